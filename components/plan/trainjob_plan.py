"""From the arguments of a TrainJob to its plan: what the user wrote, the TrainJob document, and its rendered objects.

A `CustomTrainer` becomes a plain TrainJob document and a ConfigMap, so that the pipeline only knows documents.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pulumi
from pulumi_trainer.args import plaintext_secrets, queue_labels, sources
from pulumi_trainer.args.arguments import as_sequence, nested_problems
from pulumi_trainer.args.signatures import merge_problems
from pulumi_trainer.args.trainers import CustomTrainer, Trainer
from pulumi_trainer.code.requirements import project_warnings
from pulumi_trainer.plan import generation_role, job_content, mounts, queue_flavors, runtime_ref
from pulumi_trainer.plan.card_facts import with_card_facts
from pulumi_trainer.plan.checkpoint_folder import review_folder
from pulumi_trainer.plan.checkpoint_policy import checkpoint_place
from pulumi_trainer.plan.job_plan import CHECKPOINT_OWNER, PlacedJob, Plan, RenderedJob, StepResult, new_job, render_job
from pulumi_trainer.plan.job_warnings import (
    CACHE_NEEDS_TOKEN,
    NO_CACHE,
    by_arguments,
    cache_warnings,
    find_warnings,
    judge_tool,
)
from pulumi_trainer.plan.mounts import Folders, MountedCode
from pulumi_trainer.plan.outputs import Resolved, resolve
from pulumi_trainer.plan.policy import judge_by_policy
from pulumi_trainer.plan.review import none_problems, train_job_verdict
from pulumi_trainer.plan.run_inputs import describe_run
from pulumi_trainer.plan.runtime_ref import API_VERSION
from pulumi_trainer.plan.tracking import judge_tracking
from pulumi_trainer.plan.training_size import read_training
from pulumi_trainer.plan.trainjob_args import TrainJobArgs, name_of
from pulumi_trainer.plan.volume_claims import MANY, Claim, FetchedData, OutputVolume, count_mounting_pods
from pulumi_trainer.plan.written_job import (
    WrittenJob,
    fetched_data,
    plain_secrets,
    queue_problems,
    read_accepted,
    read_written,
    writable_data,
)
from pulumi_trainer.program import queue_lints, session, targets
from pulumi_trainer.program.hardening import is_restricted
from pulumi_trainer.program.trainer_release import choose_release, configured_release
from pulumi_trainer.provider.jobs.lineage import ASSIGNED
from pulumi_trainer.provider.jobs.nodes import nodes_of
from pulumi_trainer.provider.kubernetes.device_claims import device_claims
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TrainerError, problems_below
from pulumi_trainer.provider.kubernetes.schema.verdict import Verdict
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kubernetes.values.quantity import canonical
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.kubernetes.views import replicated_jobs
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.trainer.admission import default_runtime, default_train_job
from pulumi_trainer.provider.trainer.admission.document_checks import document_problems
from pulumi_trainer.provider.trainer.admission.multikueue import find_dispatch
from pulumi_trainer.provider.trainer.labels import trainer_step
from pulumi_trainer.provider.trainer.pipeline import Disruptions, Release, hardening, render
from pulumi_trainer.provider.trainer.pipeline.modes import queued_object
from pulumi_trainer.provider.trainer.policy.summary import summarize


async def plan(args: TrainJobArgs) -> Plan:
    """Return the documents of a TrainJob, or its problems.

    The steps: arguments, target and runtime, what the user wrote, its document, the code and volumes, the rendered objects, and
    their review. Up to the rendered objects, a step with problems is the last one.
    """
    refused = list(dict.fromkeys([*nested_problems(args), *targets.problems(args.target)]))
    queued = await queue_problems(args, refused)
    if refused:
        others = await _other_problems(args, refused)
        rejected = new_job(args.resource_name, "default", {"kind": ""})
        return Plan(job=rejected, problems=[*refused, *queued, *others])

    destination = targets.choose(args.target)
    place = await targets.place(destination)
    job = PlacedJob(name_of(args), destination, place, await choose_release(destination, place))
    loaded = await runtime_ref.load_runtime(args.runtime, args.follow, job)
    result = _new_plan(args, job, loaded, queued)
    if place.problems or loaded.problems:
        return replace(result, problems=[*result.problems, *await _other_problems(args, result.problems)])

    written = await read_written(args, loaded.document, result.secret_name)
    summary = runtime_ref.summary(written.runtime)
    server_problems = generation_role.role_problems(written, mode=job.mode)
    written = generation_role.with_server(written, job.name)
    train_job = train_job_document(job.name, place.namespace, written.fields, written.runtime)
    runtime = default_runtime(written.runtime, job.release)
    verdict = train_job_verdict(
        mounts.with_workspace(train_job, written.fields["initializer"], written.runtime), runtime, job.release
    )
    checked = await _check_job(args, job, written, train_job, verdict)
    result = (
        result.with_content(job_content.written_content(args, job, written))
        .add(
            checked,
            resolved=replace(written.resolved, unknown={**written.resolved.unknown, **place.unknown}),
            arguments=job_content.secret_arguments(written.func_args),
        )
        .with_inputs(
            runtime={**loaded.channel, **summary},
            data=await job_content.read_data_versions(args, written.fields, cluster=job.cluster),
        )
    )
    result = replace(result, problems=[*result.problems, *server_problems])
    if not result.problems:
        result = replace(result, problems=by_arguments(verdict.problems(), args))
    if result.problems:
        return result

    restricted = await is_restricted(args.hardening, destination, place)
    made = session.current().queues_of(destination)
    queues = await queue_lints.find_queues(
        made, place.target, place.namespace, _queue(train_job, runtime if job.mode == "jobset" else None),
        claims=_claims_devices(runtime),
    )  # fmt: skip
    owner = await _checkpoint_owner(args)
    result = replace(result, resolved=_with_owner(result.resolved, owner))
    folders = _folders(args, written, job, owner.document[CHECKPOINT_OWNER.token])
    keeps_grace = job.mode == "jobset" or not _queue(train_job)
    shipped = with_card_facts(written, args, job.name, result.job.runtime)
    mounted = mounts.mount_volumes(train_job, shipped, folders, cluster=job.cluster, keeps_grace=keeps_grace)
    mounted = _with_flavors(generation_role.mount_in_server(mounted, shipped), args, job, runtime, queues)
    if restricted:
        mounted = _harden(mounted, written, job, runtime)
    result = result.add(mounted)
    if mounted.problems:
        return result

    # The verdict has defaults as well, but of the document as the user wrote it, without the patch that mounts the code.
    complete = default_train_job(mounted.train_job, job.release)
    submitted = None
    if job.mode == "trainer":
        submitted = {f"TrainJob/{job.name}": _as_stored(mounted.train_job)}
    rendered = render_job(
        lambda release: render(
            runtime,
            complete,
            release,
            mode=job.mode,
            restricted=restricted,
            disruptions=_disruptions(args),
            fails_early=written.tool is not None or (args.fork is not None and bool(args.fork.reset)),
        ),
        job.release,
        args.place,
        submitted,
    )
    warned = find_warnings(args, runtime, complete, rendered, job, queues, read_training(args, written))
    claimed = await _claim_volumes(args, job, rendered, folders)
    jobsets = [*rendered.jobsets.values()]
    result = result.add(rendered).add(warned).add(claimed).add(judge_tool(written, args, job, jobsets, queues))
    result = result.add(await review_folder(result, folders, jobsets)).add(
        judge_tracking(args.tracking, written, job, jobsets)
    )
    result = replace(
        result, dispatch=find_dispatch(queued_object(complete, next(iter(jobsets), None), job.mode), queues)
    ).with_inputs(
        place=_place_of_checkpoints(written, folders, result.claims),
        run_inputs=describe_run(
            result,
            written,
            mounted.train_job,
            _nodes(mounted.train_job, runtime),
            rendered,
            restricted=restricted,
            logs=folders.logs,
        ),
        without_code=job_content.digest_without_code(args.rerun_on, result.content),
    )
    return _with_rendered(result, args, job, rendered, complete, runtime, queues)


def _new_plan(args: TrainJobArgs, job: PlacedJob, loaded: runtime_ref.LoadedRuntime, queued: list[Problem]) -> Plan:
    """Return the plan of a job whose target and runtime are known. queued: Problems of its queue."""
    inputs = new_job(
        job.name, job.place.namespace, job.place.target, args.run_key, resume=args.resume, fork=_fork(args),
        keep_runs=args.keep_runs, interrupt=args.interrupt, adopt=args.adopt, runtime=loaded.channel,
        rerun_on=args.rerun_on and [*args.rerun_on],
    )  # fmt: skip
    return Plan(job=inputs, needs=job.place.needs, problems=[*job.place.problems, *queued]).add(loaded)


def _with_rendered(
    result: Plan, args: TrainJobArgs, job: PlacedJob, rendered: RenderedJob, train_job: dict[str, Any],
    runtime: dict[str, Any], known: Queues,
) -> Plan:  # fmt: skip
    """Return the plan with the rendered objects, and what `up` and policy packs show of them."""
    result = replace(result, made=rendered.made)
    jobset = next(iter(rendered.jobsets.values()), None)
    if jobset is None:
        return result
    if args.logs and not args.keeps_logs:
        result = replace(result, log_step=trainer_step(jobset))
    queued = queued_object(train_job, jobset, job.mode)
    summary = summarize(jobset, queued, _nodes(train_job, runtime), result.job.runtime, known)
    cluster = targets.cluster_key(job.destination) if isinstance(job.destination, targets.Kubernetes) else ""
    return result.with_inputs(summary=summary).add(judge_by_policy(summary, cluster, result.namespace, job.name))


def _claims_devices(runtime: Mapping[str, Any]) -> bool:
    steps = replicated_jobs(section(runtime, "spec", "template", "spec"))
    return any(device_claims(each.pod) for each in steps)


def _nodes(train_job: Mapping[str, Any], runtime: Mapping[str, Any]) -> Any:
    return nodes_of(section(train_job, "spec", "trainer"), section(runtime, "spec", "mlPolicy"))


def _disruptions(args: TrainJobArgs) -> Disruptions | None:
    """Return how the job goes on after disruptions; None for one without a checkpoint policy. A job with a generation server
    starts again as a whole in any case: a server that starts again alone has lost the weights.
    """
    if args.checkpoint is not None:
        return Disruptions(args.checkpoint.max_restarts)
    if getattr(args.trainer, "generation", None) is not None:
        return Disruptions()
    return None


async def _check_job(
    args: TrainJobArgs, job: PlacedJob, written: WrittenJob, train_job: dict[str, Any], verdict: Verdict
) -> StepResult:
    """Return what is known of a job before it is rendered."""
    needed, queue_refused = await queue_labels.required_resources({n: getattr(args, n) for n in queue_labels.ARGUMENTS})
    source_problems, source_warnings = _judge_sources(job, written.fields["initializer"], written.runtime)
    problems = list[Problem]()
    if job.cluster:
        problems += queue_refused
    problems += [*by_arguments(written.resolved.problems, args), *written.problems()]
    if job.cluster:
        problems += written.cluster_problems()
    problems += [
        *source_problems,
        *_document_problems(args, train_job, job.release, verdict),
        *_plain_secrets(args, written),
    ]
    return StepResult(
        needs=needed,
        problems=problems,
        warnings=[
            *by_arguments(written.resolved.warnings, args),
            *written.code_warnings(),
            *_project_warnings(args, job),
            *source_warnings,
            *_given_twice(args),
        ],
    )


def _project_warnings(args: TrainJobArgs, job: PlacedJob) -> list[Problem]:
    """Return the warnings about the project of a job; none if it cannot be read, which is a problem."""
    if not isinstance(args.trainer, CustomTrainer):
        return []
    python = ""
    if isinstance(job.destination, targets.Local) and job.destination.python is None:
        python = platform.python_version()
    try:
        return problems_below("trainer", [*project_warnings(args.trainer, python)])
    except Invalid:
        return []


def _given_twice(args: TrainJobArgs) -> list[Problem]:
    """Return the settings that the arguments give twice, with other values, and an empty key of a run."""
    found = list[Problem]()
    if isinstance(args.trainer, Trainer):
        found += problems_below("trainer", args.trainer.given_twice())
    for kind, source in sources.parts(args.initializer).items():
        if isinstance(source, sources.DataSource):
            found += problems_below(f"initializer.{kind}", source.given_twice())
    if args.run_key == "":
        why = "is empty, but an empty key counts as a key: a finished job whose key was another one runs again"
        found.append(Problem("run", why, "leave it out, or give a text that is not empty"))
    return found


async def _checkpoint_owner(args: TrainJobArgs) -> Resolved:
    """Return the owner mark of the folder in S3 with the job's checkpoints; None without one."""
    owner: Any = None
    if args.checkpoint is not None and args.checkpoint.in_s3:
        owner = await session.current().stack_mark()
    return await resolve({CHECKPOINT_OWNER.token: owner}, "")


def _with_owner(resolved: Resolved, owner: Resolved) -> Resolved:
    return replace(
        resolved, unknown={**resolved.unknown, **owner.unknown}, depends_on=resolved.depends_on | owner.depends_on
    )


def _folders(args: TrainJobArgs, written: WrittenJob, job: PlacedJob, owner: Any) -> Folders:
    """Return the volumes that a job mounts, and the folder in S3. owner: Owner mark of that folder."""
    has_output = args.output_volume is not None
    claims, saved = written.mounts, None
    if args.checkpoint is not None and args.checkpoint.in_s3:
        place = checkpoint_place(job.name, job.place.namespace)
        saved = place if isinstance(place, Unknown) else f"{place}/{ASSIGNED}"
    if has_output:
        claims = {**written.mounts, "output": Unknown("output")}
    writable = {"output", *writable_data(args)}
    return Folders(claims, writable, args.checkpoint, saved, owner, bool(args.adopt), args.fork, args.keeps_logs)


def _fork(args: TrainJobArgs) -> dict[str, Any] | None:
    """Return run and step of the checkpoint that a new run starts from, and what it resets; None without `fork`."""
    if args.fork is None:
        return None
    given = {"step": args.fork.step, "reset": [*as_sequence(args.fork.reset)] or None}
    return {"run": args.fork.run, **{name: value for name, value in given.items() if value is not None}}


def _place_of_checkpoints(written: WrittenJob, folders: Folders, claims: Mapping[str, Claim]) -> Any:
    """Return where a job keeps output and checkpoints, without the folder of a lineage; empty if nowhere."""
    if folders.s3_folder is None:
        return Unknown("output") if "output" in claims else ""
    address, folder = section(written.fields, "checkpoint").get("to"), folders.s3_folder
    unknown = first_unknown([address, folder])
    return unknown or f"{str(address).rstrip('/')}/{folder.rpartition('/')[0]}"


def _harden(mounted: MountedCode, written: WrittenJob, job: PlacedJob, runtime: dict[str, Any]) -> MountedCode:
    """Return the TrainJob with the patch that hardens its Pods in mode trainer, or the reason why they cannot be hardened."""
    if mounts.is_cached(written.fields["initializer"].get("dataset")):
        return replace(mounted, problems=[*mounted.problems, CACHE_NEEDS_TOKEN])
    if job.mode == "jobset" or mounted.problems:
        return mounted
    try:
        patched = hardening.with_patch(runtime, mounted.train_job, job.release)
    except TrainerError as error:
        return replace(mounted, problems=error.problems)
    return replace(mounted, train_job=patched, problems=mounts.patch_count_problems(patched["spec"]["runtimePatches"]))


async def _other_problems(args: TrainJobArgs, found: Sequence[Problem]) -> list[Problem]:
    """Return the problems of the other arguments of a rejected job, as far as their checks need no runtime and no target."""
    accepted = args.accepted()
    written = await read_accepted(accepted)
    runtime = {"kind": "ClusterTrainingRuntime", "metadata": {"name": "runtime"}}
    train_job = train_job_document("job", "default", written.fields, runtime)
    others = [
        *_plain_secrets(accepted, written),
        *written.code_problems(),
        *by_arguments(written.resolved.problems, args),
        *_document_problems(accepted, train_job, configured_release()),
        *runtime_ref.catalogue_problems(accepted.runtime),
    ]
    refused = {*map(_field, found)}
    return [p for p in others if _field(p) not in refused]


def _field(problem: Problem) -> str:
    return problem.where.partition("[")[0]


def _document_problems(
    args: TrainJobArgs, train_job: dict[str, Any], release: Release, verdict: Verdict | None = None
) -> list[Problem]:
    """Return the problems of the document by itself, by the paths of the arguments."""
    found = merge_problems(
        document_problems(train_job, release, verdict), none_problems("TrainJob.spec", train_job["spec"], "spec")
    )
    found = by_arguments(found, args)
    if train_job["spec"].get("suspend") is True and args.wait_for != "created":
        why = f"keeps the job suspended, so wait_for={args.wait_for!r} would never be reached"
        found.append(Problem("suspend", why, "leave out wait_for, or suspend"))
    return found


def _plain_secrets(args: TrainJobArgs, written: WrittenJob) -> list[Problem]:
    """Return the plain-text secrets, by the paths of the arguments."""
    found = []
    for problem in (*plain_secrets(written), *plaintext_secrets.problems(args.run_key, "run")):
        if problem.where.startswith("initializer."):
            problem = replace(problem, where=args.place(problem.where))
        found.append(problem)
    return found


def _as_stored(train_job: dict[str, Any]) -> dict[str, Any]:
    """Return the document with quantities as a webhook writes them on creation.

    `spec.trainer` is immutable, and the server treats 1 and "1" as different values.
    """
    spec = train_job["spec"]
    trainer = {**spec["trainer"]}
    if "resourcesPerNode" in trainer:
        trainer["resourcesPerNode"] = _canonical(trainer["resourcesPerNode"])
    return {**train_job, "spec": {**spec, "trainer": trainer}}


def _canonical(value: Any) -> Any:
    """Return quantities in their canonical form; a value of another type stays."""
    if isinstance(value, dict):
        return {name: _canonical(each) for name, each in value.items()}
    return canonical(value) if isinstance(value, (str, int)) else value


def _queue(train_job: dict[str, Any], runtime: Mapping[str, Any] | None = None) -> Any:
    """Return the label with the queue of a job. runtime: The runtime in mode jobset, whose label counts as well."""
    of_runtime = section(runtime, "spec", "template", "metadata", "labels").get(QUEUE)
    return section(train_job["metadata"], "labels").get(QUEUE) or of_runtime


def _with_flavors(
    mounted: MountedCode, args: TrainJobArgs, job: PlacedJob, runtime: dict[str, Any], queues: Queues
) -> MountedCode:
    """Return the TrainJob of a job that may only get some flavors with the patch that says so, or why it cannot have them."""
    if not args.flavors or not job.cluster:
        return mounted
    queue = _queue(mounted.train_job, runtime if job.mode == "jobset" else None)
    terms, found = queue_flavors.find_terms(args.flavors, queue, job.place.namespace, queues)
    if not terms:
        return replace(mounted, problems=[*mounted.problems, *found])
    found += queue_flavors.affinity_problems(mounted.train_job, runtime)
    patched = queue_flavors.with_patch(mounted.train_job, runtime, terms)
    found += mounts.patch_count_problems(patched["spec"]["runtimePatches"])
    return replace(mounted, train_job=patched, problems=[*mounted.problems, *found])


async def _claim_volumes(args: TrainJobArgs, job: PlacedJob, rendered: RenderedJob, folders: Folders) -> StepResult:
    """Return the volume for output, and a problem if too many Pods mount the others."""
    jobset = next(iter(rendered.jobsets.values()), None)
    if jobset is None:
        return StepResult()
    claims, problems, needs = dict[str, Claim](), list[Problem](), list[pulumi.Resource]()
    wanted = args.output_volume
    if wanted is not None:
        claim = Claim(f"{args.resource_name}-output", f"{job.name}-output", retain=bool(wanted.retain))
        if job.cluster:  # another digest than on this machine: a stack that moves has another volume
            spec = wanted.claim(several=count_mounting_pods(jobset, folders.claims["output"]) > 1)
            resolved = await resolve(spec, "")
            claim = replace(claim, digest="claim", spec=resolved.document, unknown=resolved.unknown)
            where = "output" if isinstance(args.output, OutputVolume) else "checkpoint.to"
            problems += problems_below(where, [*resolved.problems, *wanted.output_problems(resolved.document)])
            needs += resolved.depends_on
        claims["output"] = claim
    for kind, source in fetched_data(args).items():
        problems += _mount_problems(kind, source, count_mounting_pods(jobset, folders.claims[kind]))
    return StepResult(claims=claims, problems=problems, needs=needs)


def _mount_problems(kind: str, source: FetchedData, pods: int) -> list[Problem]:
    """Return a problem if more than one Pod mounts a volume of fetched data that only one node can mount."""
    if source.claim is None or not source.claim.spec:
        return []
    mode = source.claim.spec["accessMode"]
    if pods <= 1 or mode == MANY or not isinstance(mode, str):
        return []
    why = f"{pods} pods mount the volume of {source.where}, but its access mode {mode} allows one node"
    hint = f"give {source.where} access_mode={MANY!r}; its volume was planned before this TrainJob"
    if source.claim.spec.get("chosen"):
        hint = f"give {source.where} access_mode={MANY!r}, or leave access_mode out"
    return [Problem(f"initializer.{kind}", why, hint)]


def _unfetchable(kind: str, source: dict[str, Any], runtime: dict[str, Any]) -> list[Problem]:
    """Return the problems of a source that Trainer's images, which fetch inside a job in a cluster, cannot fetch."""
    step = f"{kind}-initializer"
    image = mounts.containers_of(runtime, step).get(step, {}).get("image")
    where = f"initializer.{kind}"
    uri = source.get("storageUri")
    if isinstance(uri, str) and uri.startswith("file://"):
        hint = f"use {kind.capitalize()}Initializer, whose files travel, or s3:// or hf:// here"
        return [Problem(f"{where}.storage_uri", "is a path of this machine, which a cluster cannot read", hint)]
    is_of_trainer = isinstance(image, str) and image.startswith(sources.UPSTREAM)
    if not is_of_trainer:
        return []
    return problems_below(where, sources.upstream_problems(uri, kind))


def _judge_sources(
    job: PlacedJob, initializer: Mapping[str, Any], runtime: dict[str, Any]
) -> tuple[list[Problem], list[Problem]]:
    """Return problems and warnings of the sources that are fetched inside the job."""
    problems: list[Problem] = []
    if job.cluster:
        for kind, source in initializer.items():
            problems += _unfetchable(kind, source, runtime)
    if not mounts.is_cached(initializer.get("dataset")):
        return problems, []
    if not job.cluster:
        return [*problems, NO_CACHE], []
    return problems, cache_warnings(job, initializer["dataset"], runtime)


def train_job_document(name: str, namespace: Any, fields: dict[str, Any], runtime: dict[str, Any]) -> dict[str, Any]:
    """Return the TrainJob document. It always has a trainer section: without one, upstream injects no PET_* and n nodes would
    train n models."""
    spec = {
        "runtimeRef": {
            "apiGroup": API_VERSION.partition("/")[0], "kind": runtime["kind"], "name": runtime["metadata"]["name"],
        },
        "trainer": fields["trainer"],
        **fields["spec"],
    }  # fmt: skip
    if fields["initializer"]:
        spec["initializer"] = sources.with_absolute_paths(fields["initializer"])
    metadata = {"name": name, "namespace": namespace, **fields["metadata"]}
    if _queue({"metadata": metadata}):
        spec.pop("suspend", None)  # Kueue's, and an apply would take it away
    return {"apiVersion": API_VERSION, "kind": "TrainJob", "metadata": metadata, "spec": spec}
