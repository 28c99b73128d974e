"""Where user code finds code, dataset, model and output: one runtimePatch of our own manager mounts them in every step
whose pods run user code, and variables tell where they are. It also says where in a topology these pods have to be. Called by
`composition`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pulumi_trainer.args import topology
from pulumi_trainer.plan import user_code
from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.plan.volume_claims import mount, pod_volume, run_env
from pulumi_trainer.provider.api import code as paths
from pulumi_trainer.provider.api.labels import ANCESTOR
from pulumi_trainer.provider.kube.errors import Problem

MANAGER = "pulumi-trainer.dev/program"
"""Manager of the runtimePatch that mounts code and volumes."""

FOLDERS = {
    "dataset": ("TRAINER_DATASET_DIR", paths.DATASET_PATH),
    "model": ("TRAINER_MODEL_DIR", paths.MODEL_PATH),
    "output": ("TRAINER_OUTPUT_DIR", paths.OUTPUT_PATH),
}
"""Kind of volume -> the variable that tells user code, and where it is mounted."""

CACHE = "cache://"
INITIALIZER = "dataset-initializer"
PATCHES = 16
"""Patches a TrainJob may have."""


def add(
    train_job: dict[str, Any], plan: Plan, wish: dict[str, Any], mounts: dict[str, Any], runtime: dict[str, Any],
    fresh_output: bool, writable: Collection[str] = ("output",), script: bytes | None = None,
) -> None:  # fmt: skip
    """Completes the TrainJob document. mounts: kind -> claim. fresh_output: a folder of its own for each run. writable: the kinds
    that the job may write to. script: the bytes of a script file."""
    spec = train_job["spec"]
    given = known_items(wish["trainer"].get("env"))
    named = {e["name"] for e in given}
    env = [*(e for e in _variables(mounts, wish["initializer"], fresh_output) if e["name"] not in named), *given]
    if len(env) > len(given):
        spec["trainer"] = {**wish["trainer"], "env": env}
    volumes = [pod_volume(f"trainer-{kind}", claim, read_only=kind not in writable) for kind, claim in mounts.items()]
    volume_mounts = [
        mount(
            f"trainer-{kind}",
            FOLDERS[kind][1],
            read_only=kind not in writable,
            run_folder=kind == "output" and fresh_output,
        )
        for kind in mounts
    ]
    if wish["code"]:
        volumes = [{"name": paths.CODE_VOLUME, **_code_volume(plan, _ship(plan, wish["code"], script, env))}, *volumes]
        volume_mounts = [mount(paths.CODE_VOLUME, paths.CODE_PATH, read_only=True), *volume_mounts]
    steps = steps_of(runtime)
    if fresh_output and "output" in mounts and not all(_takes_env(runtime, step) for step in steps):
        why = "the nodes of this runtime take no variables, which a folder of its own for each run needs"
        plan.problems.append(Problem("resume", why, "set run_launcher_as_node in the runtime's MPIPolicy"))
    launched = _mpi(runtime) is not None and len(steps) == 2
    held = topology.held(wish.get("topology"), steps, launched=launched)
    jobs = [_job(step, "node", volumes, volume_mounts, held.get(step)) for step in steps if volumes or step in held]
    if is_cached(wish["initializer"].get("dataset")) and _lacks_workspace(runtime):
        workspace = mount("initializer", paths.WORKSPACE)
        jobs.append(_job(INITIALIZER, INITIALIZER, [{"name": "initializer", "emptyDir": {}}], [workspace]))
    if jobs:
        patch = {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
        own = known_items(spec.get("runtimePatches"))
        plan.problems += _beside(own)
        spec["runtimePatches"] = [patch, *own]


def _variables(mounts: dict[str, Any], initializer: dict[str, Any], fresh_output: bool) -> list[dict[str, Any]]:
    inline = [kind for kind, source in initializer.items() if not is_cached(source)]
    folders = [{"name": FOLDERS[k][0], "value": FOLDERS[k][1]} for k in dict.fromkeys([*mounts, *inline])]
    return [run_env(), *folders] if fresh_output and "output" in mounts else folders


def known_items(value: Any) -> list[Any]:
    """A list; none of it while the whole list is not known yet."""
    return value if isinstance(value, list) else []


def variables(holder: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The known variables of what has an `env`."""
    return [each for each in known_items(holder.get("env")) if isinstance(each, dict)]


def is_cached(source: Any) -> bool:
    """Whether what the initializer fetches is in the data cache, and in no folder."""
    uri = source.get("storageUri") if isinstance(source, Mapping) else None
    return isinstance(uri, str) and uri.startswith(CACHE)


def containers_of(runtime: Mapping[str, Any], step: str) -> dict[str, Mapping[str, Any]]:
    """The containers of a step by name."""
    pod = pod_of(runtime, step)
    return {c["name"]: c for c in known_items(pod.get("containers")) if isinstance(c, Mapping) and "name" in c}


def pod_of(runtime: Mapping[str, Any], step: str) -> Mapping[str, Any]:
    """The spec of a step's pods."""
    return _pod(_jobs(runtime).get(step, {}))


def steps_of(runtime: Mapping[str, Any]) -> list[str]:
    """Steps whose pods run user code: those that take the trainer section; with MPI also the nodes, which the launcher
    starts processes on."""
    jobs = _jobs(runtime)
    steps = [name for name, job in jobs.items() if _ancestor(job) == "trainer"] or ["node"]
    if _mpi(runtime) is not None and "node" in jobs and "node" in containers_of(runtime, "node"):
        steps += ["node"]
    return list(dict.fromkeys(steps))


def _takes_env(runtime: Mapping[str, Any], step: str) -> bool:
    """Whether the trainer's variables reach a step."""
    job = _jobs(runtime).get(step, {})
    return _ancestor(job) == "trainer" or bool((_mpi(runtime) or {}).get("runLauncherAsNode")) or not job


def _jobs(runtime: Mapping[str, Any]) -> dict[Any, Mapping[str, Any]]:
    jobs = runtime.get("spec", {}).get("template", {}).get("spec", {}).get("replicatedJobs", [])
    return {job["name"]: job for job in jobs}


def _ancestor(job: Mapping[str, Any]) -> Any:
    return job.get("template", {}).get("metadata", {}).get("labels", {}).get(ANCESTOR)


def _pod(job: Mapping[str, Any]) -> Mapping[str, Any]:
    pod: Mapping[str, Any] = job.get("template", {}).get("spec", {}).get("template", {}).get("spec", {})
    return pod


def _mpi(runtime: Mapping[str, Any]) -> Mapping[str, Any] | None:
    policy = (runtime.get("spec", {}).get("mlPolicy") or {}).get("mpi")
    return policy if isinstance(policy, Mapping) else None


def _job(
    step: str,
    container: str,
    volumes: list[Any],
    volume_mounts: list[Any],
    annotations: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    pod: dict[str, Any] = {"metadata": {"annotations": dict(annotations)}} if annotations else {}
    if volumes:
        pod["spec"] = {"volumes": volumes, "containers": [{"name": container, "volumeMounts": volume_mounts}]}
    return {"name": step, "template": {"spec": {"template": pod}}}


def _ship(plan: Plan, code: dict[str, Any], script: bytes | None, env: list[dict[str, Any]]) -> str:
    """Adds the ConfigMap with the code, and tells its name."""
    data = user_code.files(**code, env=[e["name"] for e in env])
    content = {"data": data} if script is None else user_code.exactly(data, script)
    size = sum(len(str(v).encode()) for part in content.values() for v in part.values())
    if size > user_code.LIMIT:
        why = f"code and func_args have {size} bytes, and a ConfigMap holds {user_code.LIMIT}"
        plan.problems.append(Problem("trainer", why, "pass large values as a file in a volume"))
    name = f"{plan.name}-code"  # no digest in it: the plan could not show changed code line by line
    metadata = {"name": name, "namespace": plan.namespace}
    plan.objects[f"ConfigMap/{name}"] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **content}
    return name


def _code_volume(plan: Plan, config_map: str) -> dict[str, Any]:
    """The source of the volume with the code; func_args that hold a secret are in the job's Secret."""
    if paths.ARGS_FILE not in plan.resolved.secrets:
        return {"configMap": {"name": config_map}}
    file = {"key": paths.ARGS_FILE, "path": paths.ARGS_FILE}
    secret = {"name": plan.secret_name, "items": [file]}
    return {"projected": {"sources": [{"configMap": {"name": config_map}}, {"secret": secret}]}}


def _lacks_workspace(runtime: Mapping[str, Any]) -> bool:
    """Trainer refuses a dataset where the initializer mounts no volume `initializer`. The runtime of the data cache has
    none, since nothing is written to it."""
    container = containers_of(runtime, INITIALIZER).get(INITIALIZER)
    pod = pod_of(runtime, INITIALIZER)
    has = {
        v.get("name") for v in (*known_items(pod.get("volumes")), *known_items((container or {}).get("volumeMounts")))
    }
    return container is not None and "initializer" not in has


def _beside(patches: list[Any]) -> list[Problem]:
    """What the user's patches must leave to ours."""
    found = []
    if len(patches) >= PATCHES:
        why = f"has {len(patches)} patches, and that of the program itself makes one more than {PATCHES}"
        found.append(Problem("runtime_patches", why, "put some of them together"))
    for i, patch in enumerate(patches):
        if isinstance(patch, Mapping) and patch.get("manager") == MANAGER:
            why = f"{MANAGER} is the manager of the patch for code, volumes and topology"
            found.append(Problem(f"runtime_patches[{i}].manager", why, "use a domain of your own"))
    return found
