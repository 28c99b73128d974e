"""From the arguments of a TrainJob to its documents: what the user wrote, the TrainJob document, and its rendered objects.

A `CustomTrainer` becomes a plain TrainJob document and a ConfigMap, so the pipeline knows documents only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pulumi
from pulumi_trainer.args import (
    plaintext_secrets,
    queue_labels,
    sources,
    topology,
)
from pulumi_trainer.args.arguments import (
    Args,
    nested_problems,
    said,
    to_document,
    walk,
)
from pulumi_trainer.args.builtin import BuiltinTrainer
from pulumi_trainer.args.naming import api_names
from pulumi_trainer.args.patches import RuntimePatch
from pulumi_trainer.args.signatures import merge_problems, not_one_of
from pulumi_trainer.args.topology import Topology
from pulumi_trainer.args.trainers import Compiled, Trainer
from pulumi_trainer.plan import mounts as folders
from pulumi_trainer.plan import runtime_ref, user_code
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.plan.local_files import is_folder, version_of
from pulumi_trainer.plan.mounts import known_items
from pulumi_trainer.plan.outputs import Resolved, resolve, resolve_json
from pulumi_trainer.plan.review import (
    cautions,
    none_problems,
    queue_refusals,
    train_job_refusals,
)
from pulumi_trainer.plan.runtime_ref import API_VERSION, RuntimeSource
from pulumi_trainer.plan.volume_claims import (
    MANY,
    Claim,
    FetchedData,
    OutputVolume,
    mounters,
)
from pulumi_trainer.program import queue_lints, session, targets
from pulumi_trainer.program.targets import Destination
from pulumi_trainer.program.watch import REACHED, timeout_problems
from pulumi_trainer.provider.admission import default_runtime, default_train_job
from pulumi_trainer.provider.admission.multikueue import workers
from pulumi_trainer.provider.admission.warnings import subdomain
from pulumi_trainer.provider.api import trainer as api
from pulumi_trainer.provider.api.code import ARGS_FILE
from pulumi_trainer.provider.api.model import problems as document_problems
from pulumi_trainer.provider.kube.errors import Problem, TrainerError
from pulumi_trainer.provider.kube.values.quantity import canonical
from pulumi_trainer.provider.kube.values.unknown import Unknown
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.lifecycle.identity import job_name
from pulumi_trainer.provider.pipeline import render


class TrainJobArgs(Args):
    """The arguments of `TrainJob`, see there."""

    runtime: RuntimeSource | str | pulumi.Output[Any] | None = None
    follow: str | None = None
    trainer: Trainer | BuiltinTrainer | None = None
    initializer: sources.Initializer | None = None
    runtime_patches: pulumi.Input[Sequence[RuntimePatch | Mapping[str, Any]]] | None = None
    labels: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None
    annotations: pulumi.Input[Mapping[str, pulumi.Input[str]]] | None = None
    queue: pulumi.Input[str] | pulumi.Resource | None = None
    priority: pulumi.Input[str] | pulumi.Resource | None = None
    topology: Topology | None = None
    max_execution: pulumi.Input[int] | None = None
    suspend: pulumi.Input[bool] | None = None
    active_deadline_seconds: pulumi.Input[int] | None = None
    managed_by: pulumi.Input[str] | None = None
    name: str | None = None
    output: bool | OutputVolume = False
    resume: bool = True
    run: str = "1"
    wait_for: str = "created"
    timeouts: Mapping[str, Any] | None = None
    interrupt: str = "refuse"
    adopt: bool = False
    target: Destination | None = None

    places = {
        **{f"metadata.labels[{label}]": name for name, label in queue_labels.ARGUMENTS.items()},
        **{f'wish.metadata.labels["{label}"]': name for name, label in queue_labels.ARGUMENTS.items()},
        **{f"metadata.labels['{label}']": name for name, label in queue_labels.ARGUMENTS.items()},
        "wish.code.packages": "trainer.packages_to_install", "wish.code.index_urls": "trainer.pip_index_urls",
        "wish.code.": "trainer.", "mounts.": "initializer.", "wish.spec.": "", "wish.metadata.": "", "wish.": "",
        "spec.runtimeRef.name": "runtime",
        "spec.runtimeRef": "runtime", "spec.mlPolicy": "runtime.mlPolicy", "spec.podGroupPolicy": "runtime.podGroupPolicy",
        "spec.template": "runtime.template", "spec.": "", "metadata.": "",
    }  # fmt: skip

    def check(self) -> list[Problem]:
        found = super().check()
        kinds: dict[str, tuple[type, ...]] = {
            "runtime": (RuntimeSource, str, pulumi.Output),
            "trainer": (Trainer, BuiltinTrainer, type(None)),
            "initializer": (sources.Initializer, type(None)), "output": (bool, OutputVolume), "resume": (bool,),
            "run": (str,), "adopt": (bool,), "name": (str, type(None)),
            "queue": (str, pulumi.Output, pulumi.Resource, type(None)),
            "priority": (str, pulumi.Output, pulumi.Resource, type(None)), "topology": (Topology, type(None)),
        }  # fmt: skip
        for field, types in kinds.items():
            if not isinstance(value := getattr(self, field), types):
                wanted = " or ".join(_SHOWN.get(t, t.__name__) for t in types if t is not type(None))
                mend = _OF_A_STACK if isinstance(value, pulumi.StackReference) else ""
                mend = "give CustomTrainer(func=...)" if field == "trainer" and callable(value) else mend
                found.append(Problem(field, f"must be {wanted}, not {said(value)}", mend))
        found += not_one_of("wait_for", self.wait_for, tuple(REACHED))
        found += not_one_of("interrupt", self.interrupt, ("refuse", "allow"))
        found += runtime_ref.problems(self.runtime, self.follow)
        return found + timeout_problems(self.timeouts)


_SHOWN: Mapping[type, str] = {RuntimeSource: "ClusterTrainingRuntime or RuntimeChannel"}
_OF_A_STACK = 'give what it exports: get_output("NAME") of the StackReference'


def note_queue(logical: str, args: TrainJobArgs) -> None:
    """Write down which queue a job of the program names, before anything of the program is made."""
    written = args.labels.get(QUEUE) if isinstance(args.labels, Mapping) else None
    queue = queue_labels.named(args.queue) if args.queue is not None else written
    session.current().queue_of[_name(logical, args)] = queue


def _name(logical: str, args: TrainJobArgs) -> str:
    given = args.name if isinstance(args.name, str) else ""
    return given or job_name(logical, pulumi.get_project(), pulumi.get_stack())


async def plan(logical: str, args: TrainJobArgs) -> Plan:
    """Everything that a TrainJob submits, or what is wrong with it."""
    found = list(dict.fromkeys([*nested_problems(args), *targets.problems(args.target)]))
    queued = await _queued(args, found)
    if found:
        return Plan(logical, "default", {"kind": ""}, problems=[*found, *queued, *await _beside(args, found)])
    destination = targets.choose(args.target)
    name = _name(logical, args)
    place = await targets.place(destination)
    result = Plan(
        name, place.namespace, place.target, run=args.run, interrupt=args.interrupt, adopt=args.adopt,
        needs=list(place.needs), problems=[*place.problems, *queued],
    )  # fmt: skip
    runtime = await runtime_ref.document(args.runtime, args.follow, result, destination)
    if len(result.problems) > len(queued):
        return replace(result, problems=[*result.problems, *await _beside(args, result.problems)])
    compiled, resolved = _compiled(args, runtime), Resolved(None)
    placing = await _placing(args, result, destination)
    labels = queue_labels.labels(args.labels, placing)
    code = dict(vars(compiled.code)) if compiled.code else {}
    func_args = await resolve_json(code.get("func_args"), "wish.code.func_args", ARGS_FILE, resolved)
    wish = {
        "trainer": compiled.document,
        "code": {**code, "func_args": func_args.content} if code else {},
        "initializer": _sources(args.initializer),
        "spec": _own_fields(args),
        "metadata": {
            k: to_document(v) for k, v in (("labels", labels), ("annotations", args.annotations)) if v is not None
        },
        **({"topology": args.topology.annotations()} if args.topology is not None else {}),
    }
    given = {"wish": wish, "mounts": _volumes(args), "runtime": runtime}
    result.resolved = await resolve(given, result.secret_name, resolved)
    result.resolved.unknown.update(place.unknown)
    _judge_outputs(result, args)
    wish, mounts, runtime = (result.resolved.document[part] for part in given)
    _judge_code(result, compiled, wish["code"], func_args.visible)
    result.problems += [
        Problem(f"initializer.{kind}", "is refused, see there") for kind, claim in mounts.items() if claim is None
    ]
    result.content = _content(args, destination, wish, runtime, result)
    result.forget_secret_name()
    result.arguments = func_args.content if func_args.document is None else None
    result.runtime |= runtime_ref.told(runtime)
    cluster = not isinstance(destination, targets.Local)
    result.data = await _data(args, wish["initializer"], cluster=cluster)
    _judge_sources(result, wish["initializer"], runtime, destination, cluster=cluster)
    train_job = _train_job(result, wish, runtime)
    result.problems += _document_problems(args, train_job)
    result.problems += _plain_secrets(wish, func_args.visible)
    if not result.problems:
        if args.output:
            mounts = {**mounts, "output": Unknown("output")}
        shipped = {**wish, "code": {**wish["code"], "func_args": func_args.document} if code else {}}
        writable = {"output", *_writable(args)}
        folders.add(
            train_job, result, shipped, mounts, runtime,
            fresh_output=not args.resume, writable=writable, script=compiled.exact,
        )  # fmt: skip
        runtime = default_runtime(runtime)
        if not result.problems:
            result.problems += [_told(p, args) for p in train_job_refusals(train_job, runtime)]
        if not result.problems:
            mode: Any = targets.mode_of(destination)
            result.rendered(lambda: render(runtime, default_train_job(train_job), mode=mode), args.place, mode=mode)
            if mode == "trainer":
                result.objects[f"TrainJob/{result.name}"] = _as_stored(train_job)
            queues = await queue_lints.known(
                session.current().queues, result.target, result.namespace, _queue(train_job)
            )
            _cautioned(result, args, runtime, default_train_job(train_job), cluster=cluster, queues=queues)
            _mounted(result, args, mounts, logical, cluster=cluster)
    return result


def _plain_secrets(wish: Mapping[str, Any], func_args: Any) -> list[Problem]:
    """Return the secrets that somebody wrote in clear, in whatever of a job a plan and a cluster show."""
    trainer, code = wish["trainer"], wish["code"]
    shown = {f"trainer.{name}": trainer.get(name) for name in ("args", "command")}
    shown["trainer.env"] = folders.variables(trainer)
    shown["trainer.func_args"] = func_args
    names = {"packages": "packages_to_install", "index_urls": "pip_index_urls"}
    shown |= {f"trainer.{argument}": code.get(name) for name, argument in names.items()}
    shown |= {f"initializer.{kind}": source for kind, source in wish["initializer"].items()}
    shown["annotations"] = wish["metadata"].get("annotations")
    shown["runtime_patches"] = wish["spec"].get("runtimePatches")
    found = [problem for where, value in shown.items() for problem in plaintext_secrets.problems(value, where)]
    return found + plaintext_secrets.problems_of_source(code.get("script"), "trainer.func or script")


async def _beside(args: TrainJobArgs, found: Sequence[Problem]) -> list[Problem]:
    """Return what is wrong with the rest of a job of which something is refused, as far as it needs no runtime and no target."""
    right = args.accepted()
    trainer = right.trainer or Trainer()
    if isinstance(trainer, Trainer):
        compiled = user_code.compile_trainer(trainer, {}, None)
    else:  # what else is wrong with it depends on the runtime
        compiled = Compiled(trainer.compiled({}, None).document if trainer.config is not None else {})
    resolved = Resolved(None)
    code = dict(vars(compiled.code)) if compiled.code else {}
    func_args = await resolve_json(code.get("func_args"), "wish.code.func_args", ARGS_FILE, resolved)
    code = {**code, "func_args": func_args.content} if code else {}
    own, initializer = _own_fields(right), _sources(right.initializer)
    wish = {"spec": own, "trainer": compiled.document, "initializer": initializer, "code": code, "metadata": {}}
    rest = Plan("job", "default", {"kind": ""}, resolved=await resolve({"wish": wish}, "", resolved))
    wish = rest.resolved.document["wish"]
    _judge_code(rest, compiled, wish["code"], func_args.visible)
    runtime = {"kind": "ClusterTrainingRuntime", "metadata": {"name": "runtime"}}
    told = [*_plain_secrets(wish, func_args.visible), *rest.problems, *(_told(p, args) for p in rest.resolved.problems)]
    told += _document_problems(right, _train_job(rest, wish, runtime))
    told += runtime_ref.catalogue_problems(right.runtime)
    known = {p.where.partition("[")[0] for p in found}
    return [p for p in told if p.where.partition("[")[0] not in known]


def _document_problems(args: TrainJobArgs, train_job: dict[str, Any]) -> list[Problem]:
    """Return what is wrong with the document by itself, in the words of the arguments."""
    found = document_problems(api.TrainJob, train_job)
    found = merge_problems(found, none_problems("TrainJob.spec", train_job["spec"], "spec"))
    found = [_told(p, args) for p in found]
    if train_job["spec"].get("suspend") is True and args.wait_for != "created":
        why = f"holds the job, which then never gets as far as wait_for={args.wait_for!r} says"
        found.append(Problem("suspend", why, "leave out wait_for, or suspend"))
    return found


def _as_stored(train_job: dict[str, Any]) -> dict[str, Any]:
    """With quantities as a webhook writes them when it is created: `spec.trainer` must never change, and the server takes
    1 and "1" for two."""
    spec = train_job["spec"]
    resources = spec["trainer"].get("resourcesPerNode")
    if not isinstance(resources, dict):
        return train_job
    written = {
        part: {k: canonical(q) if isinstance(q, (str, int)) else q for k, q in given.items()}
        if part in ("limits", "requests") and isinstance(given, dict)
        else given
        for part, given in resources.items()
    }
    return {**train_job, "spec": {**spec, "trainer": {**spec["trainer"], "resourcesPerNode": written}}}


def _cautioned(
    result: Plan,
    args: TrainJobArgs,
    runtime: dict[str, Any],
    train_job: dict[str, Any],
    *,
    cluster: bool,
    queues: Queues,
) -> None:
    result.workers = workers(train_job, queues)
    known = session.current().jobsets
    jobsets = {key: document for key, document in result.made.items() if key.startswith("JobSet/")}
    shared = [known.setdefault(name, []) for each in jobsets.values() if isinstance(name := subdomain(each), str)]
    siblings = [other for others in shared for other in others]
    refused, told = cautions(runtime, train_job, result.made, siblings, cluster=cluster, queues=queues)
    result.problems += [_told(p, args) for p in refused]
    result.warnings += [_told(p, args) for p in told]
    for others in shared:
        others += jobsets.values()
    if cluster:
        result.problems += [
            p.below(key) for key, document in jobsets.items() for p in queue_refusals(train_job, document)
        ]


async def _placing(args: TrainJobArgs, result: Plan, destination: Destination) -> dict[str, Any]:
    """The arguments that become labels, with the names of queues and classes that the program makes."""
    needed, refused = await queue_labels.makers({name: getattr(args, name) for name in queue_labels.ARGUMENTS})
    result.needs += needed
    result.problems += [] if isinstance(destination, targets.Local) else refused
    return _named(args)


def _named(args: TrainJobArgs) -> dict[str, Any]:
    return {name: queue_labels.named(getattr(args, name)) for name in queue_labels.ARGUMENTS}


async def _queued(args: TrainJobArgs, found: Sequence[Problem]) -> list[Problem]:
    """What is wrong with the arguments for queues, whatever else is wrong. found: what has been refused already."""
    refused = {re.split(r"[.[]", p.where)[0] for p in found}
    placing = {name: None if name in refused else value for name, value in _named(args).items()}
    labelled = isinstance(args.labels, (Mapping, pulumi.Output)) and "labels" not in refused
    written = args.labels if labelled else None
    place = args.topology if isinstance(args.topology, Topology) else None
    if written is None and place is None and not any(value is not None for value in placing.values()):
        return []
    given = {
        "written": to_document(written),
        "merged": to_document(queue_labels.labels(written, placing)),
        "suspend": args.suspend,
        "topology": place.annotations() if place else {},
    }
    known = (await resolve(given, "")).document
    labels = queue_labels.problems(placing, known.get("written"), known.get("merged"), known.get("suspend"))
    return [*labels, *topology.problems(known.get("topology"))]


def _queue(train_job: dict[str, Any]) -> Any:
    return labels.get(QUEUE) if isinstance(labels := train_job["metadata"].get("labels"), dict) else None


def _mounted(result: Plan, args: TrainJobArgs, mounts: dict[str, Any], logical: str, *, cluster: bool) -> None:
    """The volume for output, and whether the others may be mounted by as many pods as there are."""
    jobset = next((o for key, o in result.made.items() if key.startswith("JobSet/")), None)
    if jobset is None:
        return
    if args.output:
        wanted = args.output if isinstance(args.output, OutputVolume) else OutputVolume()
        name = f"{result.name}-output"
        claim = Claim(f"{logical}-output", name, retain=bool(wanted.retain))
        if cluster:  # another digest than on this machine: a stack that moves has another volume
            spec = wanted.claim(several=mounters(jobset, mounts["output"]) > 1)
            claim = replace(claim, digest="claim", spec=spec)
        result.claims["output"] = claim
    for kind in ("dataset", "model"):
        source = sources.parts(args.initializer).get(kind)
        if isinstance(source, FetchedData) and source.claim is not None and source.claim.spec:
            pods, mode = mounters(jobset, mounts[kind]), source.claim.spec["accessMode"]
            if pods > 1 and mode != MANY and isinstance(mode, str):
                why = f"{pods} pods mount the volume of {source.where}, which is {mode}"
                mend = f"give it access_mode={MANY!r}; it was made before this TrainJob was known"
                chosen = f"give it access_mode={MANY!r}, or leave access_mode out"
                mend = chosen if source.claim.spec.get("chosen") else mend
                result.problems.append(Problem(f"initializer.{kind}", why, mend))


def _unfetchable(kind: str, source: dict[str, Any], runtime: dict[str, Any]) -> list[Problem]:
    """What Trainer's images, which fetch inside a job in a cluster, cannot fetch."""
    step = f"{kind}-initializer"
    image = folders.containers_of(runtime, step).get(step, {}).get("image")
    where = f"initializer.{kind}"
    uri = source.get("storageUri")
    if isinstance(uri, str) and uri.startswith("file://"):
        mend = f"use {kind.capitalize()}Initializer, whose files travel, or s3:// or hf:// here"
        return [Problem(f"{where}.storage_uri", "is a path of this machine, which a cluster cannot read", mend)]
    ours = isinstance(image, str) and image.startswith(sources.UPSTREAM)
    return [p.below(where) for p in sources.upstream_problems(uri)] if ours else []


def _compiled(args: TrainJobArgs, runtime: dict[str, Any]) -> Compiled:
    try:
        return user_code.compile_trainer(
            args.trainer or Trainer(), runtime, sources.parts(args.initializer).get("dataset")
        )
    except TrainerError as error:  # of a plugin that names a launcher
        return Compiled({}, problems=error.problems)


def _judge_outputs(result: Plan, args: TrainJobArgs) -> None:
    """Adds what is wrong with the Outputs that a job is given."""
    result.problems += [_told(p, args) for p in result.resolved.problems]
    result.warnings += [_told(p, args) for p in result.resolved.warnings]


def _judge_code(result: Plan, compiled: Compiled, code: Mapping[str, Any], func_args: Any) -> None:
    """Adds what is wrong with the code of a job, and with what its function is given."""
    problems, warnings = [*compiled.problems, *user_code.package_problems(code)], [*compiled.warnings]
    if compiled.func is not None:
        problems += user_code.argument_problems(compiled.func, func_args)
        warnings += user_code.argument_warnings(compiled.func, func_args)
    result.problems += [p.below("trainer") for p in problems]
    result.warnings += [p.below("trainer") for p in warnings]


def _judge_sources(
    result: Plan, sources_: Mapping[str, Any], runtime: dict[str, Any], destination: Destination, *, cluster: bool
) -> None:
    """Adds what is wrong with what is to be fetched inside the job."""
    if cluster:
        result.problems += [p for kind, source in sources_.items() for p in _unfetchable(kind, source, runtime)]
    if folders.is_cached(sources_.get("dataset")):
        if not cluster:
            result.problems.append(_NO_CACHE)
        else:
            result.warnings += _cache_warnings(destination, sources_["dataset"], runtime)


def _mountable(args: TrainJobArgs) -> dict[str, FetchedData]:
    """Return kind of folder -> what was fetched before, into a volume."""
    given = sources.parts(args.initializer)
    return {kind: source for kind, source in given.items() if isinstance(source, FetchedData)}


def _volumes(args: TrainJobArgs) -> dict[str, Any]:
    """Return kind of folder -> name of the claim that holds what was fetched before."""
    return {kind: source.volume for kind, source in _mountable(args).items()}


def _writable(args: TrainJobArgs) -> list[str]:
    """Return the kinds of fetched data that the job may change."""
    return sorted(kind for kind, source in _mountable(args).items() if source.writable)


async def _data(args: TrainJobArgs, inline: Mapping[str, Any], *, cluster: bool) -> dict[str, dict[str, str]]:
    """Return kind -> name and version of the data that the job reads, as far as the plan knows a version."""
    found: dict[str, dict[str, str]] = {}
    for kind in ("dataset", "model"):
        source = sources.parts(args.initializer).get(kind)
        if isinstance(source, FetchedData) and source.claim is not None:
            found[kind] = {"name": source.label, "version": source.claim.digest}
            if source.claim.former:
                found[kind]["former"] = source.claim.former
        elif not cluster and is_folder(uri := inline.get(kind, {}).get("storageUri")):
            found[kind] = {"name": uri, "version": await version_of(uri, inline[kind])}
    return found


def _sources(initializer: sources.Initializer | None) -> dict[str, Any]:
    """`spec.initializer`: what is fetched inside the job."""
    given = sources.parts(initializer)
    return {kind: source.document() for kind, source in given.items() if isinstance(source, sources.Source)}


def _own_fields(args: TrainJobArgs) -> dict[str, Any]:
    fields = {
        "suspend": args.suspend,
        "activeDeadlineSeconds": args.active_deadline_seconds,
        "managedBy": args.managed_by,
        "runtimePatches": args.runtime_patches,
    }
    return {k: api_names(f"TrainJob.spec.{k}", to_document(v)) for k, v in fields.items() if v is not None}


def _content(
    args: TrainJobArgs, destination: Destination, wish: dict[str, Any], runtime: dict[str, Any], result: Plan
) -> dict[str, Any]:
    """What the user wrote, without what is derived from names of stack and resource or from the runtime's content: the job
    keeps the runtime it was created with. The name of the job's own Secret is in `wish` as earlier versions had it."""
    if former := result.resolved.former_keys:
        wish = walk(wish, lambda _, leaf: former.get(leaf, leaf) if isinstance(leaf, str) else leaf)
    return {
        "wish": wish,
        "runtime": [runtime.get("kind"), runtime["metadata"]["name"]],
        "target": [
            type(destination).__name__,
            result.namespace,
            *([mode] if (mode := _other_mode(destination)) else []),
        ],
        "name": args.name,
        "output": bool(args.output),
        "resume": args.resume,
        "run": args.run,
        "mounts": sorted(_mountable(args)),
        **({"writable": writable} if (writable := _writable(args)) else {}),
    }


def _other_mode(destination: Destination) -> str:
    """The mode, where it is not the default: digests of before there were two stay."""
    mode = targets.mode_of(destination)
    return "" if mode == "jobset" else mode


def _train_job(result: Plan, wish: dict[str, Any], runtime: dict[str, Any]) -> dict[str, Any]:
    """The TrainJob document. It always has a trainer section: without one, upstream injects no PET_* and n nodes would
    train n models."""
    spec = {
        "runtimeRef": {
            "apiGroup": API_VERSION.partition("/")[0], "kind": runtime["kind"], "name": runtime["metadata"]["name"],
        },
        "trainer": wish["trainer"],
        **wish["spec"],
    }  # fmt: skip
    if wish["initializer"]:
        spec["initializer"] = sources.located(wish["initializer"])
    metadata = {"name": result.name, "namespace": result.namespace, **wish["metadata"]}
    if _queue({"metadata": metadata}):
        spec.pop("suspend", None)  # Kueue's, and an apply would take it away
    return {"apiVersion": API_VERSION, "kind": "TrainJob", "metadata": metadata, "spec": spec}


_CACHED = "initializer.dataset.storage_uri"
_NO_CACHE = Problem(
    _CACHED,
    "the data cache is made of pods of a cluster, and this machine has none",
    "use the Kubernetes target, or hf://, s3:// or file:// here",
)


def _cache_warnings(destination: Destination, source: dict[str, Any], runtime: dict[str, Any]) -> list[Problem]:
    """What lets the cache's initializer fail later (pkg/initializers/dataset/cache.py)."""
    found = []
    if targets.mode_of(destination) == "jobset":
        why = "the cache belongs to a TrainJob object; mode jobset makes none, and the job would start without a cache"
        found.append(Problem(_CACHED, why, "it needs mode trainer"))
    container = folders.containers_of(runtime, folders.INITIALIZER).get(folders.INITIALIZER, {})
    env = [*known_items(source.get("env")), *known_items(container.get("env"))]
    others = [source.get("secretRef"), container.get("envFrom"), not isinstance(source.get("env", []), list)]
    if not any(others) and "IAM_ROLE" not in {e.get("name") for e in env}:
        why = "the initializer does not start without IAM_ROLE"
        found.append(Problem("initializer.dataset.iam_role", why, "give iam_role, or set IAM_ROLE in the runtime"))
    return found


def _told(problem: Problem, args: TrainJobArgs) -> Problem:
    """A path of the documents in the words of the arguments."""
    own = not problem.where.startswith(queue_lints.ABOUT_QUEUES)
    return replace(problem, where=args.place(problem.where)) if own else problem
