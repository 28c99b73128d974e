"""The runtimePatch that mounts code, dataset, model and output in every step that runs user code.

Environment variables contain the paths of the mounts. The patch has the topology annotations of these pods as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pulumi_trainer.args import topology
from pulumi_trainer.args.fork import Fork
from pulumi_trainer.args.project import s3_problems
from pulumi_trainer.code import user_code
from pulumi_trainer.plan.checkpoint_policy import CheckpointPolicy
from pulumi_trainer.plan.code_volume import code_volume, ship_code
from pulumi_trainer.plan.job_plan import StepResult
from pulumi_trainer.plan.tracking import tracking_variables, variables_set_in_pods
from pulumi_trainer.plan.volume_claims import mount, pod_volume
from pulumi_trainer.plan.written_job import WrittenJob
from pulumi_trainer.provider.jobs.checkpoints import (
    CHECKPOINT_ADOPT,
    CHECKPOINT_ATTEMPT,
    CHECKPOINT_FOLDER,
    CHECKPOINT_OWNER,
    CHECKPOINT_REMOVE,
    CHECKPOINT_TO,
    FORK_FOLDER,
    FORK_RESET,
    FORK_STEP,
)
from pulumi_trainer.provider.jobs.lineage import ASSIGNED, FORKED, RUN_ID_ENV
from pulumi_trainer.provider.jobs.nodes import nodes_of
from pulumi_trainer.provider.jobs.submission import secret_name
from pulumi_trainer.provider.kubernetes.errors import Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.accessors import listed, section, section_if_given
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, any_unknown, first_unknown
from pulumi_trainer.provider.kubernetes.views import ReplicatedJob, replicated_jobs
from pulumi_trainer.provider.pod import code as paths
from pulumi_trainer.provider.trainer.labels import ancestor_of, patched_jobs
from pulumi_trainer.provider.trainer.pipeline.hardening import MANAGER as HARDENING

MANAGER = "pulumi-trainer.dev/program"
"""Manager of the runtimePatch that mounts code and volumes."""
FLAVORS = "pulumi-trainer.dev/flavors"
"""Manager of the runtimePatch with the node affinity of `TrainJob(flavors=)`."""

FOLDERS = {
    "dataset": ("TRAINER_DATASET_DIR", paths.DATASET_PATH),
    "model": ("TRAINER_MODEL_DIR", paths.MODEL_PATH),
    "output": ("TRAINER_OUTPUT_DIR", paths.OUTPUT_PATH),
}
"""Kind of volume -> the environment variable with its path, and the path."""

CACHE = "cache://"
INITIALIZER = "dataset-initializer"
PATCHES = 16
"""Patches a TrainJob may have."""


@dataclass(frozen=True)
class Folders:
    """The volumes that a job mounts.

    Attributes:
        claims: Kind of folder -> name of the claim.
        checkpoint: How the job saves checkpoints; None if it has no policy.
        s3_folder: Folder of the job's checkpoints below their address in S3; None if they are in the volume for output.
    """

    claims: Mapping[str, Any]
    writable: Collection[str] = ("output",)
    checkpoint: CheckpointPolicy | None = None
    s3_folder: Any = None
    owner: Any = None
    adopt: bool = False
    fork: Fork | None = None
    logs: bool = False


@dataclass(frozen=True, kw_only=True)
class MountedCode(StepResult):
    """The objects of the code, and the TrainJob that mounts code and folders."""

    train_job: dict[str, Any]


def mount_volumes(
    train_job: dict[str, Any], written: WrittenJob, folders: Folders, *, cluster: bool, keeps_grace: bool = True
) -> MountedCode:
    """Return the TrainJob with mounts and environment variables, and the code's objects.

    Args:
        keeps_grace: Whether `terminationGracePeriodSeconds` of a patch reaches the Pods. Kueue reads TrainJobs with the types of
            Trainer 2.2.1 (https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/go.mod), which lack the field: it drops it when
            it admits the job, and Trainer's controller then fails to update the JobSet that it has made with it.
    """
    fields, runtime, compiled = written.shipped, written.runtime, written.compiled
    spec, about, tracking = {**train_job["spec"]}, train_job["metadata"], section(fields, "tracking")
    user_env = spec["trainer"].get("env")
    given = _items(user_env)
    own_env = [
        *_run_variables(folders, fields),
        *tracking_variables(tracking, about["name"]),
        *_variables(folders, fields["initializer"]),
        *_checkpoint_variables(
            folders,
            nodes_of(spec["trainer"], section(runtime, "spec", "mlPolicy")),
            section(fields, "checkpoint").get("to"),
            user_code.framework(runtime),
        ),
    ]
    named = _names(given)
    env = [*(variable for variable in own_env if variable["name"] not in named), *given]
    if len(env) > len(given) and not isinstance(user_env, Unknown):
        spec["trainer"] = {**spec["trainer"], "env": env}
    volumes, volume_mounts = _mount_folders(folders)
    shipped = StepResult()
    if fields["code"]:
        name = paths.code_name(about["name"])
        code = {
            **fields["code"],
            "checkpoints": folders.checkpoint is not None,
            "s3": folders.s3_folder is not None,
            "logs": folders.logs,
            "tracking": tracking.get("kind", ""),
            "reports": _has_observed(fields["code"], own_env) and not _show_log_ends(runtime),
        }
        if compiled.tree is not None and compiled.tree.src_packages:
            code["path"] = [*dict.fromkeys([*code["path"], "src"])]
        shipped = ship_code(
            name, about["namespace"], code, compiled, [*env, *variables_set_in_pods(tracking)], cluster=cluster
        )
        secret = ""
        if paths.ARGS_FILE in written.resolved.secrets:
            secret = secret_name(about["name"])
        volumes = [code_volume(name, secret), *volumes]
        volume_mounts = [mount(paths.CODE_VOLUME, paths.CODE_PATH, read_only=True), *volume_mounts]
    if compiled.tree is not None:
        volumes.append({"name": paths.SOURCE_VOLUME, "emptyDir": {}})
        volume_mounts.append(mount(paths.SOURCE_VOLUME, paths.SOURCE_PATH))
    if folders.s3_folder is not None:
        volumes.append({"name": paths.SCRATCH_VOLUME, "emptyDir": {}})
        volume_mounts.append(mount(paths.SCRATCH_VOLUME, paths.SCRATCH_PATH))
    steps = steps_of(runtime)
    problems = [*shipped.problems, *_s3_problems(folders, fields, runtime)]
    problems += _fork_problems(folders, fields["code"], training=compiled.training)
    if folders.logs and not fields["code"]:
        problems.append(_NO_WRAPPER)
    warnings = _replaced_variables(own_env, given)
    if not cluster:
        warnings += _credentials_warnings(folders, env, runtime, steps)
    launched = _mpi_policy(runtime) is not None and len(steps) == 2
    placements = topology.annotations_by_step(fields.get("topology"), steps, launched=launched)
    grace = None
    if folders.checkpoint is not None and keeps_grace:
        grace = folders.checkpoint.pod_grace
    jobs = []
    for step in steps:
        if volumes or step in placements:
            jobs.append(_job(step, "node", volumes, volume_mounts, placements.get(step), grace))
    jobs += _workspace_jobs(fields["initializer"], runtime)
    if jobs:
        own = _items(spec.get("runtimePatches"))
        spec["runtimePatches"] = [_patch(jobs), *own]
        problems += [*patch_count_problems(spec["runtimePatches"]), *_patch_problems(own, keeps_grace=keeps_grace)]
    return MountedCode(
        train_job={**train_job, "spec": spec}, objects=shipped.objects, problems=problems, warnings=warnings,
        notes=shipped.notes,
    )  # fmt: skip


def with_workspace(
    train_job: dict[str, Any], initializer: Mapping[str, Any], runtime: dict[str, Any]
) -> dict[str, Any]:
    """Return a TrainJob with the initializer's volume, without which Trainer's webhook rejects it."""
    jobs = _workspace_jobs(initializer, runtime)
    if not jobs:
        return train_job
    spec = train_job["spec"]
    patches = [*_items(spec.get("runtimePatches")), _patch(jobs)]
    return {**train_job, "spec": {**spec, "runtimePatches": patches}}


def _has_observed(code: Mapping[str, Any], env: list[Any]) -> bool:
    """Return whether the nodes have data, or packages that the program may not pin; those of a tool are pinned."""
    reads_data = not _names(env).isdisjoint(FOLDERS[kind][0] for kind in ("dataset", "model"))
    return reads_data or bool(code.get("requirements") or code.get("packages"))


def _show_log_ends(runtime: dict[str, Any]) -> bool:
    """Return whether failed containers of the nodes have the end of their log as their message, which a report would replace."""
    containers = chain.from_iterable(containers_of(runtime, step).values() for step in steps_of(runtime))
    return any(each.get("terminationMessagePolicy") == "FallbackToLogsOnError" for each in containers)


def _items(given: Any) -> list[Any]:
    """Return the items of a list; one that is unknown for all of them, if they are."""
    if isinstance(given, Unknown):
        return [given]
    return listed(given)


def _names(variables: list[Any]) -> set[Any]:
    """Return the names of environment variables; None for one without a name."""
    return {section(variable).get("name") for variable in variables}


def _workspace_jobs(initializer: Mapping[str, Any], runtime: dict[str, Any]) -> list[dict[str, Any]]:
    if not is_cached(initializer.get("dataset")) or not _lacks_workspace(runtime):
        return []
    workspace = mount("initializer", paths.WORKSPACE)
    return [_job(INITIALIZER, INITIALIZER, [{"name": "initializer", "emptyDir": {}}], [workspace])]


def _patch(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def _run_variables(folders: Folders, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the variable with the id of the run; none for a job with nothing but an image, which stays as it was written."""
    if not fields["code"] and not folders.claims and folders.checkpoint is None and not fields.get("tracking"):
        return []
    return [{"name": RUN_ID_ENV, "value": ASSIGNED}]


def _variables(folders: Folders, initializer: Mapping[str, Any]) -> list[dict[str, Any]]:
    kinds = [*folders.claims]
    for kind, source in initializer.items():
        if not is_cached(source):
            kinds.append(kind)
    found = []
    for kind in dict.fromkeys(kinds):
        name, path = FOLDERS[kind]
        found.append({"name": name, "value": path})
    return found


def _replaced_variables(own: list[dict[str, Any]], given: list[Any]) -> list[Problem]:
    """Return a warning for each variable of a folder or a checkpoint policy that `env` sets to another value."""
    found = []
    values = {section(each).get("name"): each for each in given}
    for each in own:
        other = values.get(each["name"], each)
        if other != each and first_unknown([other, each]) is None:
            why = "is a variable that another argument sets too: env wins"
            if "valueFrom" not in other and "valueFrom" not in each:
                why = f"is {other.get('value')!r}, and the job sets it to {each.get('value')!r}: env wins"
            found.append(Problem(f'trainer.env["{each["name"]}"]', why, "leave it out of env"))
    return found


def _checkpoint_variables(folders: Folders, nodes: Any, address: Any, framework: Any) -> list[dict[str, Any]]:
    """Return the variables of a job with a checkpoint policy."""
    if folders.checkpoint is None:
        return []
    if isinstance(nodes, int):
        nodes = str(nodes)
    values = {"TRAINER_NUM_NODES": nodes}
    if folders.s3_folder is not None:
        values |= {CHECKPOINT_TO: address, CHECKPOINT_FOLDER: folders.s3_folder, CHECKPOINT_OWNER: folders.owner}
        values[CHECKPOINT_REMOVE] = ASSIGNED
        if folders.adopt:
            values[CHECKPOINT_ADOPT] = "1"
    if folders.fork is not None:
        values |= _fork_values(folders, folders.fork)
    own: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in values.items()]
    if folders.s3_folder is not None:
        own.append({"name": CHECKPOINT_ATTEMPT, "valueFrom": {"fieldRef": {"fieldPath": _JOB_UID}}})
    return [*folders.checkpoint.variables(framework), *own]


def _fork_values(folders: Folders, fork: Fork) -> dict[str, Any]:
    """Return the variables that tell a fork where its first checkpoint is, and what it leaves out of it."""
    folder = folders.s3_folder
    if folder is None:
        folder = paths.FORK_PATH + paths.CHECKPOINT_PATH.removeprefix(paths.OUTPUT_PATH)
    elif isinstance(folder, str):
        folder = f"{folder.rpartition('/')[0]}/{FORKED}"
    values = {FORK_FOLDER: folder}
    if fork.step is not None:
        values[FORK_STEP] = str(fork.step)
    if fork.reset:
        values[FORK_RESET] = ",".join(fork.reset)
    return values


def _fork_problems(folders: Folders, code: Any, *, training: bool) -> list[Problem]:
    """Return why nothing would find the checkpoint that a job starts from, or leave out what is to be reset."""
    if folders.fork is None or (code and (training or not folders.fork.reset)):
        return []
    if not code:
        why = "requires func, script or source: with an image's own command nothing finds the checkpoint"
        return [Problem("fork", why, "leave it out")]
    why = "has no effect: the code does not import pulumi_trainer.training, whose load leaves out what is reset"
    return [
        Problem("fork.reset", why, "load the checkpoint with training.checkpoints().load(state), or leave reset out")
    ]


def _s3_problems(folders: Folders, fields: Mapping[str, Any], runtime: Mapping[str, Any]) -> list[Problem]:
    """Return why the checkpoints of a job cannot be uploaded to S3."""
    if folders.s3_folder is None:
        return []
    where, instead = "checkpoint.to", "leave to= out: an output volume then holds the checkpoints"
    address, steps = fields["checkpoint"]["to"], steps_of(runtime)
    found = list[Problem]()
    if isinstance(address, str):
        found += problems_below(where, s3_problems(address))
    if not fields["code"]:
        why = "requires func, script or source: with an image's own command nothing uploads checkpoints"
        found.append(Problem(where, why, instead))
    elif _mpi_policy(runtime) is not None:
        why = "is not supported with MPI: mpirun starts programs on the other nodes, and nothing uploads their checkpoints"
        found.append(Problem(where, why, instead))
    elif len(steps) > 1:
        why = f"is not supported if code runs in several steps ({', '.join(steps)}): their nodes have the same ranks"
        found.append(Problem(where, why, instead))
    return found


def _credentials_warnings(
    folders: Folders, env: list[Any], runtime: Mapping[str, Any], steps: Collection[str]
) -> list[Problem]:
    """Return a warning if containers of this machine, which inherit no credentials, are given none for S3."""
    if folders.s3_folder is None or any_unknown(env):
        return []
    given = _names(env)
    for step in steps:
        for container in containers_of(runtime, step).values():
            given |= _names(listed(container.get("env")))
            if container.get("envFrom"):
                given |= {*_KEYS}
    if given & {*_ROLES} or given >= {*_KEYS}:
        return []
    why = "the job has no credentials for S3: jobs on this machine do not inherit yours"
    if given & {*_KEYS}:
        missing = {*_KEYS} - given
        why = f"the job has no credentials for S3: its environment lacks {missing.pop()}"
    hint = 'give env={"AWS_ACCESS_KEY_ID": config.require_secret("keyId"), "AWS_SECRET_ACCESS_KEY": ..., "AWS_REGION": ...}'
    return [Problem("checkpoint.to", why, hint)]


_NO_WRAPPER = Problem(
    "logs",
    "'keep' requires func, script, module, source or a fine-tuning trainer: nothing copies the output of an image's own command",
    "leave logs out, or start the program with script=",
)
_JOB_UID = "metadata.labels['batch.kubernetes.io/controller-uid']"
"""JobSet makes the Job with all nodes anew for each attempt."""
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_ROLES = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI")


def _mount_folders(folders: Folders) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the volumes and the mounts of folders."""
    volumes, volume_mounts = [], []
    for kind, claim in folders.claims.items():
        name, read_only = f"trainer-{kind}", kind not in folders.writable
        volumes.append(pod_volume(name, claim, read_only=read_only))
        is_output = kind == "output"
        volume_mounts.append(mount(name, FOLDERS[kind][1], read_only=read_only, folder=ASSIGNED if is_output else ""))
        if is_output and folders.fork is not None and folders.s3_folder is None:
            volume_mounts.append(mount(name, paths.FORK_PATH, read_only=True, folder=FORKED))
    return volumes, volume_mounts


def is_cached(source: Any) -> bool:
    """Return whether the initializer fetches into the data cache instead of a folder."""
    if not isinstance(source, Mapping):
        return False
    uri = source.get("storageUri")
    return isinstance(uri, str) and uri.startswith(CACHE)


def containers_of(runtime: Mapping[str, Any], step: str) -> dict[str, Mapping[str, Any]]:
    """Return the containers of a step by name; empty if the runtime does not have the step."""
    containers = _replicated_job(runtime, step).pod.containers
    return {container.name: container.document for container in containers if "name" in container.document}


def pod_of(runtime: Mapping[str, Any], step: str) -> Mapping[str, Any]:
    """Return the spec of a step's pods; empty if the runtime does not have the step."""
    return _replicated_job(runtime, step).pod.spec


def steps_of(runtime: Mapping[str, Any]) -> list[str]:
    """Return the steps whose pods run user code: those that take the trainer section; with MPI also the nodes, on which the
    launcher starts processes.
    """
    steps = [job.name for job in _jobs(runtime) if ancestor_of(job) == "trainer"] or ["node"]
    if _mpi_policy(runtime) is not None and "node" in containers_of(runtime, "node"):
        steps += ["node"]
    return list(dict.fromkeys(steps))


def _jobs(runtime: Mapping[str, Any]) -> list[ReplicatedJob]:
    return replicated_jobs(section(runtime, "spec", "template", "spec"))


def _replicated_job(runtime: Mapping[str, Any], step: str) -> ReplicatedJob:
    """Return the replicated job of a step; empty if not found."""
    for job in _jobs(runtime):
        if job.name == step:
            return job
    return ReplicatedJob({})


def _mpi_policy(runtime: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return section_if_given(section(runtime, "spec", "mlPolicy"), "mpi")


def _job(
    step: str,
    container: str,
    volumes: list[Any],
    volume_mounts: list[Any],
    annotations: Mapping[str, Any] | None = None,
    grace: int | None = None,
) -> dict[str, Any]:
    pod: dict[str, Any] = {}
    if annotations:
        pod["metadata"] = {"annotations": dict(annotations)}
    if volumes:
        pod["spec"] = {"volumes": volumes, "containers": [{"name": container, "volumeMounts": volume_mounts}]}
    if grace is not None:
        pod["spec"]["terminationGracePeriodSeconds"] = grace
    return {"name": step, "template": {"spec": {"template": pod}}}


def _lacks_workspace(runtime: Mapping[str, Any]) -> bool:
    """Return whether the initializer mounts no volume `initializer`, which Trainer requires for a dataset. The runtime of the
    data cache has none, because its initializer writes no files.
    """
    container = containers_of(runtime, INITIALIZER).get(INITIALIZER)
    if container is None:
        return False
    volumes = [*listed(pod_of(runtime, INITIALIZER).get("volumes")), *listed(container.get("volumeMounts"))]
    return all(volume.get("name") != "initializer" for volume in volumes)


def patch_count_problems(patches: list[Any]) -> list[Problem]:
    """Return a problem if a TrainJob has too many patches, with those that this program adds."""
    if len(patches) <= PATCHES:
        return []
    own = sum(1 for patch in patches if section(patch).get("manager") in (MANAGER, FLAVORS, HARDENING))
    why = f"has {len(patches) - own} patches, and pulumi-trainer adds {own}, but a TrainJob has at most {PATCHES}"
    return [Problem("runtime_patches", why, "merge some of the patches")]


def _patch_problems(patches: list[Any], *, keeps_grace: bool) -> list[Problem]:
    """Return conflicts of the user's patches with the patch of this program, and with Kueue (`keeps_grace`)."""
    found = []
    for i, patch in enumerate(patches):
        manager = section(patch).get("manager")
        if manager in (MANAGER, HARDENING):
            why = f"{manager} is reserved for patches of pulumi-trainer"
            found.append(Problem(f"runtime_patches[{i}].manager", why, "use your own domain"))
        for job in patched_jobs(section(patch), f"runtime_patches[{i}]"):
            if "terminationGracePeriodSeconds" in job.pod.spec and not keeps_grace:
                why = "is lost when Kueue admits a job in mode trainer, and the job would never start"
                hint = "set it in the runtime, or use mode jobset"
                found.append(Problem(f"{job.pod.at}.terminationGracePeriodSeconds", why, hint))
    return found
