"""What exactly runs for one pod: argv, environment, folders. Pure: nothing is made or started here."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any

from pulumi_trainer.provider.api import code
from pulumi_trainer.provider.api.labels import ANCESTOR
from pulumi_trainer.provider.api.submission import Objects
from pulumi_trainer.provider.targets.local import (
    environment,
    images,
    remote,
    volumes,
)
from pulumi_trainer.provider.targets.local.environment import PodFacts, Texts
from pulumi_trainer.provider.targets.local.jobset import job_name
from pulumi_trainer.provider.targets.local.machine import GPU, LINUX, quantity
from pulumi_trainer.provider.targets.local.paths import inside
from pulumi_trainer.provider.targets.local.process import MARK
from pulumi_trainer.provider.targets.local.rewrite import Rewriter, domains

JOBSET = "jobset.sigs.k8s.io"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True)
class Site:
    """What one job has on this machine. root: of the target; folder: of the job. ours: environment to take `kept` from.

    addresses: pod host name -> address. ports: declared port -> port in use.
    """

    root: Path
    folder: Path
    uid: str
    python: str
    environments: Path
    ours: Mapping[str, str]
    addresses: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PodId:
    """One completion index of one Job, after so many restarts of the JobSet."""

    step: str
    job_index: int
    index: int
    restarts: int = 0


@dataclass(frozen=True)
class ContainerPlan:
    """kind: init, sidecar (a restartable init container) or main. packages: that it installs first. across: with MPI, the nodes
    install them, where it starts user code."""

    name: str
    kind: str
    argv: list[str]
    env: dict[str, str]
    cwd: Path
    mounts: dict[str, str]
    packages: tuple[str, ...] = ()
    across: bool = False


@dataclass(frozen=True)
class PodPlan:
    """folders: made before the pod starts, besides what its volumes hold."""

    name: str
    step: str
    index: int
    facts: PodFacts
    spec: dict[str, Any]
    containers: list[ContainerPlan]
    volumes: list[tuple[dict[str, Any], Path, Rewriter]]
    folders: list[Path]
    grace: float
    deadline: float
    restarts_in_place: bool


def pod_name(jobset: Mapping[str, Any], pod: PodId) -> str:
    """The pod's name and host name."""
    return f"{job_name(jobset, pod.step, pod.job_index)}-{pod.index}"


def replicated_job(jobset: Mapping[str, Any], step: str) -> dict[str, Any]:
    return next(r for r in jobset["spec"]["replicatedJobs"] if r["name"] == step)


def trainer_step(jobset: Mapping[str, Any]) -> str:
    """The step whose first pod is rank 0: labelled as the trainer, else `node`, else the last."""
    steps = jobset["spec"]["replicatedJobs"]
    for step in steps:
        if ((step["template"].get("metadata") or {}).get("labels") or {}).get(ANCESTOR) == "trainer":
            return str(step["name"])
    return next((str(s["name"]) for s in steps if s["name"] == "node"), str(steps[-1]["name"]))


def gpus_of(pod: Mapping[str, Any]) -> int:
    """GPUs that a pod has for itself."""
    return math.ceil(requested(pod, GPU))


def requested(pod: Mapping[str, Any], resource: str) -> Fraction:
    """A pod's effective request: its containers and sidecars together, or its largest init container."""

    def one(container: Mapping[str, Any]) -> Fraction:
        given = container.get("resources") or {}
        return quantity((given.get("requests") or {}).get(resource, (given.get("limits") or {}).get(resource, 0)))

    inits = pod.get("initContainers") or []
    beside = [c for c in inits if c.get("restartPolicy") == "Always"]
    together = sum((one(c) for c in [*(pod.get("containers") or []), *beside]), Fraction(0))
    return max([together, *(one(c) for c in inits if c not in beside)])


def plan_pod(
    objects: Objects, jobset: dict[str, Any], pod: PodId, site: Site, gpus: list[int], secrets: Texts
) -> PodPlan:
    """gpus: indices on this machine that this pod has for itself."""
    step = replicated_job(jobset, pod.step)
    template = step["template"]["spec"]["template"]
    spec = template["spec"]
    name = pod_name(jobset, pod)
    facts = _facts(jobset, step, template, pod, name, site)
    folder = inside(site.folder / "pods", name)
    claims = inside(site.root / "volumes", facts.namespace)
    memory = volumes.memory_folder(site.uid) / name
    held = volumes.pod_volumes(jobset, spec)
    places = {v["name"]: volumes.location(v, folder / "volumes", memory, claims) for v in held}
    configs = {
        key.partition("/")[2]: {k: str(v) for k, v in (o.get("data") or {}).items()}
        for key, o in objects.items()
        if key.startswith("ConfigMap/")
    }
    planned, folders = [], [folder / "scratch"]
    rewriters: dict[str, Rewriter] = {}
    for container in volumes.containers(spec):
        one = environment.variables(spec, container, facts, configs, secrets)
        mounts = _mounts(container, places, one.values)
        folders += _below(container, held, mounts)
        rewriter = _rewriter(jobset, facts, mounts, site)
        for mount in container.get("volumeMounts") or []:
            rewriters.setdefault(mount["name"], rewriter)
        plan = _container(spec, container, one, mounts, rewriter, facts, site, gpus, folder / "scratch")
        launch = launch_file(container, held, objects)
        plan = replace(plan, packages=packages(launch), across="across" in launch)
        planned.append(_reachable(plan, facts, site) if uses_mpi(objects) else plan)
    everything = [(v, places[v["name"]], rewriters.get(v["name"], Rewriter({}, {}))) for v in held]
    return PodPlan(
        name=name,
        step=pod.step,
        index=pod.index,
        facts=facts,
        spec=spec,
        containers=planned,
        volumes=everything,
        folders=folders,
        grace=float(spec.get("terminationGracePeriodSeconds", 30)),
        deadline=float(spec.get("activeDeadlineSeconds") or math.inf),
        restarts_in_place=(spec.get("restartPolicy") or "OnFailure") == "OnFailure",
    )


def uses_mpi(objects: Objects) -> bool:
    """`mpirun` starts processes of the job on its other nodes: Trainer has written down which there are."""
    return any(key.startswith("ConfigMap/") and key.endswith(remote.HOSTFILE_MAP) for key in objects)


def packages(launch: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the packages that are installed before user code starts. launch: see `launch_file`."""
    words = launch.get("install") or []
    return tuple(name for i, word in enumerate(words) if not words[i - 1].startswith("--") and (name := _package(word)))


def _package(requirement: str) -> str:
    """As it is shown: an address may hold a password."""
    name = re.split("[@;]", requirement, maxsplit=1)[0].strip()
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[^]]*\])?(?:\s*[=<>!~][\w.,\s=<>!~*-]*)?", name):
        return name
    if requirement.startswith("-"):
        return ""
    return "a package from an address" if "://" in requirement else requirement


def launch_file(container: Mapping[str, Any], held: Sequence[Mapping[str, Any]], objects: Objects) -> dict[str, Any]:
    """What `bootstrap.py` of the job's code is told to do; nothing where the container does not start it, or that is not known
    yet."""
    command, mounts = container.get("command"), container.get("volumeMounts")
    bootstrap = f"{code.CODE_PATH}/{code.BOOTSTRAP_FILE}"
    if not isinstance(command, list) or bootstrap not in command or not isinstance(mounts, list):
        return {}
    mounted = [m.get("name") for m in mounts if isinstance(m, dict) and m.get("mountPath") == code.CODE_PATH]
    sources = [source for volume in held if volume.get("name") in mounted for source in _sources(volume)]
    for source in sources:
        config = source.get("configMap")
        data = objects.get(f"ConfigMap/{config.get('name')}", {}).get("data") if isinstance(config, dict) else None
        text = data.get(code.LAUNCH_FILE) if isinstance(data, dict) else None
        if isinstance(text, str):
            return dict(json.loads(text))
    return {}


def _sources(volume: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what a volume is made of: itself, or what is projected into it."""
    projected = volume.get("projected")
    sources = projected.get("sources") if isinstance(projected, dict) else None
    return [source for source in sources if isinstance(source, dict)] if isinstance(sources, list) else [volume]


def _reachable(plan: ContainerPlan, facts: PodFacts, site: Site) -> ContainerPlan:
    """Nothing listens for ssh on this machine: `remote` stands in for both ends of it."""
    folder = str(volumes.memory_folder(site.uid))
    env = {**remote.variables(folder, facts.address, os.getuid() == 0), **plan.env}
    sshd = bool(plan.argv) and PurePosixPath(plan.argv[0]).name == "sshd"
    return replace(plan, env=env, argv=[sys.executable, remote.__file__, "serve"] if sshd else plan.argv)


def output_folder(jobset: dict[str, Any], objects: Objects, site: Site) -> str:
    """The folder at `code.OUTPUT_PATH` of rank 0; empty where nothing is mounted there."""
    step = replicated_job(jobset, trainer_step(jobset))
    mounted = volumes.containers(step["template"]["spec"]["template"]["spec"])
    if not any(m.get("mountPath") == code.OUTPUT_PATH for c in mounted for m in c.get("volumeMounts") or []):
        return ""
    plan = plan_pod(objects, jobset, PodId(step["name"], 0, 0), site, [], {})
    return next((c.mounts[code.OUTPUT_PATH] for c in plan.containers if code.OUTPUT_PATH in c.mounts), "")


def _facts(
    jobset: Mapping[str, Any], step: Mapping[str, Any], template: Mapping[str, Any], pod: PodId, name: str, site: Site
) -> PodFacts:
    """Labels and annotations as JobSet and Job put them.

    Rule: labelAndAnnotateObject in https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/controllers/jobset_controller.go
    """
    metadata = jobset["metadata"]
    namespace = metadata.get("namespace") or "default"
    steps = jobset["spec"]["replicatedJobs"]
    job = job_name(jobset, pod.step, pod.job_index)
    before = sum(int(s.get("replicas", 1)) for s in steps[: steps.index(step)])
    group = [s for s in steps if s.get("groupName", "default") == step.get("groupName", "default")]
    before_in_group = sum(int(s.get("replicas", 1)) for s in group[: group.index(step)])
    both = {
        f"{JOBSET}/jobset-name": metadata["name"],
        f"{JOBSET}/jobset-uid": site.uid,
        f"{JOBSET}/replicatedjob-name": pod.step,
        f"{JOBSET}/replicatedjob-replicas": str(step.get("replicas", 1)),
        f"{JOBSET}/global-replicas": str(sum(int(s.get("replicas", 1)) for s in steps)),
        f"{JOBSET}/job-index": str(pod.job_index),
        f"{JOBSET}/job-global-index": str(before + pod.job_index),
        f"{JOBSET}/job-key": hashlib.sha1(f"{namespace}/{job}".encode(), usedforsecurity=False).hexdigest(),
        f"{JOBSET}/restart-attempt": str(pod.restarts),
        f"{JOBSET}/group-name": step.get("groupName", "default"),
        f"{JOBSET}/group-replicas": str(sum(int(s.get("replicas", 1)) for s in group)),
        f"{JOBSET}/job-group-index": str(before_in_group + pod.job_index),
    }
    if coordinator := jobset["spec"].get("coordinator"):
        parts = (coordinator["replicatedJob"], coordinator.get("jobIndex", 0), coordinator.get("podIndex", 0))
        both[f"{JOBSET}/coordinator"] = f"{metadata['name']}-{parts[0]}-{parts[1]}-{parts[2]}.{subdomain(jobset)}"
    own = template.get("metadata") or {}
    labels = {
        **(own.get("labels") or {}),
        **both,
        "batch.kubernetes.io/job-name": job,
        "job-name": job,
        COMPLETION_INDEX: str(pod.index),
        "apps.kubernetes.io/pod-index": str(pod.index),
    }
    return PodFacts(
        name=name,
        namespace=namespace,
        uid=hashlib.sha256(f"{site.uid}/{name}/{pod.restarts}".encode()).hexdigest()[:32],
        labels=labels,
        annotations={**(own.get("annotations") or {}), **both, COMPLETION_INDEX: str(pod.index)},
        address=site.addresses.get(name, "127.0.0.1"),
        node=socket.gethostname(),
        service_account=template["spec"].get("serviceAccountName") or "default",
    )


def subdomain(jobset: Mapping[str, Any]) -> str:
    return str((jobset["spec"].get("network") or {}).get("subdomain") or jobset["metadata"]["name"])


def _mounts(container: Mapping[str, Any], places: Mapping[str, Path], values: Mapping[str, str]) -> dict[str, str]:
    mounts = {}
    for mount in container.get("volumeMounts") or []:
        below = mount.get("subPath") or environment.expand(mount.get("subPathExpr") or "", values)
        place, parts = places[mount["name"]], PurePosixPath(below).parts
        mounts[mount["mountPath"]] = str(inside(place, *parts) if parts else place)
    return mounts


def _below(container: Mapping[str, Any], held: list[dict[str, Any]], mounts: Mapping[str, str]) -> list[Path]:
    """Sub-folders of writable volumes, which Kubernetes makes where they are missing."""
    writable = {v["name"] for v in held if v.get("emptyDir") is not None or v.get("persistentVolumeClaim")}
    return [
        Path(mounts[m["mountPath"]])
        for m in container.get("volumeMounts") or []
        if m["name"] in writable and (m.get("subPath") or m.get("subPathExpr"))
    ]


def _threads(container: Mapping[str, Any]) -> dict[str, str]:
    """A CPU limit bounds a container in a cluster; here it bounds the threads of numerical libraries, so that the nodes of
    a job don't take each other's processors."""
    limit = quantity(((container.get("resources") or {}).get("limits") or {}).get("cpu"))
    return {"OMP_NUM_THREADS": str(max(1, math.ceil(limit)))} if limit else {}


def _rewriter(jobset: Mapping[str, Any], facts: PodFacts, mounts: Mapping[str, str], site: Site) -> Rewriter:
    return Rewriter(mounts, site.addresses, domains(subdomain(jobset), facts.namespace), site.ports)


def _container(
    spec: Mapping[str, Any],
    container: Mapping[str, Any],
    given: environment.Variables,
    mounts: dict[str, str],
    rewriter: Rewriter,
    facts: PodFacts,
    site: Site,
    gpus: list[int],
    scratch: Path,
) -> ContainerPlan:
    command = list(container.get("command") or images.entrypoint(str(container.get("image", ""))))
    words = [*command, *(container.get("args") or [])]
    argv = rewriter.argv([environment.expand(str(word), given.values) for word in words])
    if argv and argv[0] in ("python", "python3"):
        argv[0] = site.python
    is_init = any(container is c for c in spec.get("initContainers") or [])
    kind = "main" if not is_init else "sidecar" if container.get("restartPolicy") == "Always" else "init"
    cwd = container.get("workingDir")
    return ContainerPlan(
        name=container["name"],
        kind=kind,
        argv=argv,
        env={
            **environment.base_environment(site.ours, site.python),
            **_defaults(facts, site),
            **_threads(container),
            **{k: rewriter.value(k, v) for k, v in images.variables(str(container.get("image", ""))).items()},
            **{k: rewriter.value(k, v) if k in given.literal else v for k, v in given.values.items()},
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
            MARK: f"{site.uid}/{facts.name}/{container['name']}",
        },
        cwd=Path(rewriter.path(cwd)) if cwd else scratch,
        mounts=mounts,
    )


def _defaults(facts: PodFacts, site: Site) -> dict[str, str]:
    """What a container's own variables may replace."""
    loopback = "lo" if LINUX else "lo0"
    return {
        "HOSTNAME": facts.name,
        "JOB_COMPLETION_INDEX": facts.annotations[COMPLETION_INDEX],
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        code.ENVIRONMENTS_ENV: str(site.environments),
        code.LAYER_ENV: str(Path(__file__).with_name("layer.py")),
    }
