"""Plans the processes of one pod: argv, environment, folders. Pure: creates and starts nothing."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from pulumi_trainer.provider.jobs.observed_inputs import Revision
from pulumi_trainer.provider.jobs.submission import Objects
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kubernetes.views import Container, Pod, ReplicatedJob, jobs_of
from pulumi_trainer.provider.machine.uv_program import find_uv
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.pod.initializers import manifest
from pulumi_trainer.provider.targets.local import environment, images, remote, volumes
from pulumi_trainer.provider.targets.local.environment import PodFacts, Texts
from pulumi_trainer.provider.targets.local.isolation import READ_ONLY, WRITABLE, Isolation, Options, Source
from pulumi_trainer.provider.targets.local.jobset_controller import job_name
from pulumi_trainer.provider.targets.local.machine import GPU, LINUX, VISIBLE_GPUS, quantity
from pulumi_trainer.provider.targets.local.paths import inside
from pulumi_trainer.provider.targets.local.process import MARK
from pulumi_trainer.provider.targets.local.rewrite import Rewriter, domains
from pulumi_trainer.provider.trainer.labels import trainer_step
from pulumi_trainer.provider.trainer.pipeline.info import TRAINER_PORT

JOBSET = "jobset.sigs.k8s.io"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True)
class Site:
    """The resources of one job on this machine.

    Attributes:
        user_environment: The user's environment, from which containers inherit variables.
        isolation: What isolated containers see; None if they see the whole machine.
    """

    root: Path
    folder: Path
    uid: str
    python: str
    environments: Path
    user_environment: Mapping[str, str]
    addresses: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[int, int] = field(default_factory=dict)
    isolation: Isolation | None = None


@dataclass(frozen=True)
class PodId:
    """A pod: one completion index of one Job, after a number of restarts of the JobSet."""

    step: str
    job_index: int
    index: int
    restarts: int = 0


@dataclass(frozen=True)
class ContainerPlan:
    """The process of one container.

    Attributes:
        kind: init, sidecar (a restartable init container) or main.
        packages: Packages that are installed before user code starts.
        across: Whether the container starts user code on all nodes with MPI, so that the nodes install the packages.
        reports: Whether its bootstrap reports the inputs of the run.
        memory_limit: Limit of its memory, as its spec has it; empty without one.
        isolated: Options of bubblewrap; empty for a container that sees the whole machine.
    """

    name: str
    kind: str
    argv: list[str]
    env: dict[str, str]
    cwd: Path
    mounts: dict[str, str]
    packages: tuple[str, ...] = ()
    across: bool = False
    reports: bool = False
    memory_limit: str = ""
    isolated: Options = ()


@dataclass(frozen=True)
class PodPlan:
    """The processes and folders of one pod.

    Attributes:
        volumes: Each volume with its path and the rewriter of its files.
        restarts_in_place: Whether failed containers are restarted in the pod (restartPolicy OnFailure).
    """

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
    """Return the name of a pod, which is also its host name."""
    return f"{job_name(jobset, pod.step, pod.job_index)}-{pod.index}"


def replicated_job(jobset: Mapping[str, Any], step: str) -> ReplicatedJob:
    return next(job for job in jobs_of(jobset) if job.name == step)


def gpus_of(pod: Mapping[str, Any]) -> int:
    return math.ceil(requested(pod, GPU))


def requested(pod: Mapping[str, Any], resource: str) -> Fraction:
    """Return a pod's effective request: the sum of its containers and sidecars, or its largest init container."""

    def one(container: Mapping[str, Any]) -> Fraction:
        given = container.get("resources") or {}
        return quantity((given.get("requests") or {}).get(resource, (given.get("limits") or {}).get(resource, 0)))

    inits = Pod({**pod}).init_containers
    beside = [c for c in inits if c.is_sidecar]
    together = sum((one(c.document) for c in [*Pod({**pod}).containers, *beside]), Fraction(0))
    return max([together, *(one(c.document) for c in inits if not c.is_sidecar)])


def plan_pod(
    objects: Objects, jobset: dict[str, Any], pod: PodId, site: Site, gpus: list[int], secrets: Texts
) -> PodPlan:
    step = replicated_job(jobset, pod.step)
    spec = step.pod.spec
    name = pod_name(jobset, pod)
    facts = _facts(jobset, step, pod, name, site)
    folder = inside(site.folder / "pods", name)
    claims = inside(site.root / "volumes", facts.namespace)
    memory = volumes.memory_folder(site.uid) / name
    pod_volumes = volumes.pod_volumes(jobset, spec)
    places = {v["name"]: volumes.location(v, folder / "volumes", memory, claims) for v in pod_volumes}
    configs, hosts = _config_texts(objects), volumes.host_paths(jobset)
    scratch = folder / "scratch"
    if site.isolation is not None and uses_mpi(objects):
        scratch = shared_scratch(site.folder / "pods")
    planned, folders = [], [scratch]
    own = _own_sources(site, scratch, mpi=uses_mpi(objects))
    if uses_mpi(objects):
        folders.append(volumes.mpi_folder(site.uid))
    if site.isolation is not None:
        folders += [Path(source.path) for source in own]
    rewriters: dict[str, Rewriter] = {}
    for each in step.pod.all_containers:
        container = each.document
        one = environment.variables(spec, container, facts, configs, secrets)
        mounts = _mounts(container, places, one.values)
        folders += _below(container, pod_volumes, mounts)
        within = domains(subdomain(jobset), facts.namespace)
        rewriter = Rewriter(mounts, site.addresses, within, site.ports)
        for mount in container.get("volumeMounts") or []:
            rewriters.setdefault(mount["name"], rewriter)
        plan = _container(each, one, mounts, rewriter, facts, site, gpus, scratch)
        launch = launch_file(container, pod_volumes, objects)
        plan = replace(plan, packages=packages(launch), across="across" in launch, reports="report" in launch)
        if uses_mpi(objects):
            plan = _with_remote_for_ssh(plan, facts, site)
        sources = _mounted_sources(container, mounts, places, hosts, site)
        planned.append(_isolated(plan, container, pod_volumes, sources, own, site))
    everything = [(v, places[v["name"]], rewriters.get(v["name"], Rewriter({}, {}))) for v in pod_volumes]
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


def _config_texts(objects: Objects) -> dict[str, dict[str, str]]:
    """Return the texts of the ConfigMaps of a job: name -> key -> text."""
    found: dict[str, dict[str, str]] = {}
    for key, document in objects.items():
        if key.startswith("ConfigMap/"):
            data = document.get("data") or {}
            found[key.partition("/")[2]] = {k: str(v) for k, v in data.items()}
    return found


def _isolated(
    plan: ContainerPlan,
    container: Mapping[str, Any],
    pod_volumes: list[dict[str, Any]],
    mounts: Mapping[str, Source],
    own: Mapping[Source, str],
    site: Site,
) -> ContainerPlan:
    if site.isolation is None:
        return plan
    options = (*site.isolation.options(container, pod_volumes, mounts, own), *_source_of(plan))
    return replace(plan, env=site.isolation.environment(plan.env), isolated=options)


def _own_sources(site: Site, scratch: Path, *, mpi: bool) -> dict[Source, str]:
    """Return the folders of a job that each isolated container sees besides its volumes -> the option that mounts them.

    No container writes to a folder above one that is mounted for another: it could put a link there. `mpirun` names the files of
    its Pod on all nodes, and starts processes in its own working directory.
    """
    temporary = Path(site.user_environment.get("TMPDIR", scratch))
    found = {Source.of(temporary, temporary.parent): WRITABLE}
    found |= {Source.of(each, site.root): WRITABLE for each in (scratch, site.folder / "errors", site.environments)}
    if mpi:
        memory = volumes.memory_folder(site.uid)
        found |= {Source.of(site.folder / "pods", site.root): READ_ONLY, Source.of(memory, volumes.MEMORY): READ_ONLY}
        found[Source.of(volumes.mpi_folder(site.uid), volumes.MEMORY)] = WRITABLE
    return found


def shared_scratch(pods: Path) -> Path:
    """Return the working directory of all isolated containers of a job that uses MPI. pods: Folder of the job's Pods."""
    return pods / ".scratch"


def _mounted_sources(
    container: Mapping[str, Any],
    mounts: Mapping[str, str],
    places: Mapping[str, Path],
    hosts: Sequence[Path],
    site: Site,
) -> dict[str, Source]:
    """Return mount path -> source. hosts: The job's hostPaths, to which containers may write, so that links below them count."""
    found = {}
    for mount in container.get("volumeMounts") or []:
        place, path = places[mount["name"]], mount["mountPath"]
        root = next((each for each in (site.root, volumes.MEMORY, *hosts) if each in place.parents), place)
        found[path] = Source(mounts[path], str(place), str(root))
    return found


def _source_of(plan: ContainerPlan) -> Iterator[str | Source]:
    """Yield the options with which an initializer sees the data of this machine that it fetches."""
    if plan.name not in _INITIALIZERS:
        return
    uri = plan.env.get("STORAGE_URI", "")
    path = uri.removeprefix("file://")
    if uri.startswith("file://") and os.path.exists(path):  # noqa: PTH110 - a path that is not valid is none
        real = os.path.realpath(path)
        for place in dict.fromkeys((real, os.path.abspath(path))):  # noqa: PTH100 - a link is bound as well
            yield from (READ_ONLY, Source(real, real, "/"), place)


_INITIALIZERS = ("dataset-initializer", "model-initializer")


def uses_mpi(objects: Objects) -> bool:
    """Return whether `mpirun` starts processes on the other nodes of the job, which then has a hostfile."""
    return any(key.startswith("ConfigMap/") and key.endswith(remote.HOSTFILE_MAP) for key in objects)


def declared_ports(jobset: Mapping[str, Any], objects: Objects) -> list[int]:
    """Return the ports that containers declare; with MPI also the one at which the bootstrap lets ranks meet."""
    found: list[int] = []
    for step in jobs_of(jobset):
        found += [port["containerPort"] for port in step.pod.ports]
    if uses_mpi(objects):
        found.append(TRAINER_PORT)
    return found


def packages(launch: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the packages that are installed before user code starts. launch: from `launch_file`."""
    words = launch.get("install") or []
    names: list[str] = []
    for option, word in zip(["", *words], words, strict=False):
        if option == "-r":
            names += _packages_of_file(launch.get("requirements") or []) or [PurePosixPath(word).name]
        elif not option.startswith("--"):
            names.append(_package(word))
    return tuple(filter(None, names))


def _packages_of_file(lines: Sequence[str]) -> list[str]:
    """Return the names of the packages in a file of requirements, without its options."""
    found = [re.sub(r"(^|\s)#.*|\\$", "", line).strip() for line in lines]
    return [_package(each) for each in found if each and not each.startswith("-")]


def _package(requirement: str) -> str:
    """Return a requirement for messages, without its URL, which may contain a password."""
    name = re.split("[@;]", requirement, maxsplit=1)[0].strip()
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[^]]*\])?(?:\s*[=<>!~][\w.,\s=<>!~*-]*)?", name):
        return name
    if requirement.startswith("-"):
        return ""
    if "://" in requirement:
        return "a package from an address"
    return requirement


def launch_file(
    container: Mapping[str, Any], pod_volumes: Sequence[Mapping[str, Any]], objects: Objects
) -> dict[str, Any]:
    """Return the settings of `bootstrap.py`, with the lines of its requirements file.

    They are empty if the container does not start `bootstrap.py`, or if they are not known yet.
    """
    command, mounts = container.get("command"), container.get("volumeMounts")
    bootstrap = f"{code.CODE_PATH}/{code.BOOTSTRAP_FILE}"
    if not isinstance(command, list) or bootstrap not in command or not isinstance(mounts, list):
        return {}
    mounted = [m.get("name") for m in mounts if isinstance(m, dict) and m.get("mountPath") == code.CODE_PATH]
    used = [volume for volume in pod_volumes if volume.get("name") in mounted]
    for source in chain.from_iterable(map(_sources, used)):
        config = source.get("configMap")
        if not isinstance(config, dict):
            continue
        data = objects.get(f"ConfigMap/{config.get('name')}", {}).get("data")
        text = section(data).get(code.LAUNCH_FILE)
        if isinstance(text, str):
            lines = str((data or {}).get(code.REQUIREMENTS_FILE, "")).splitlines()
            return {**json.loads(text), "requirements": lines}
    return {}


def _sources(volume: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the sources of a projected volume, or the volume itself."""
    projected = volume.get("projected")
    sources = section(projected).get("sources")
    if isinstance(sources, list):
        return [source for source in sources if isinstance(source, dict)]
    return [volume]


def _with_remote_for_ssh(plan: ContainerPlan, facts: PodFacts, site: Site) -> ContainerPlan:
    """Return the plan of a container with `remote` in place of ssh and sshd."""
    folder, port = str(volumes.mpi_folder(site.uid)), site.ports.get(TRAINER_PORT, TRAINER_PORT)
    env = {**remote.mpi_variables(folder, facts.address, os.getuid() == 0), "MASTER_PORT": str(port), **plan.env}
    argv = plan.argv
    if argv and PurePosixPath(argv[0]).name == "sshd":
        argv = [sys.executable, remote.__file__, "serve"]
    return replace(plan, env=env, argv=argv)


def output_folder(jobset: dict[str, Any], objects: Objects, site: Site) -> str:
    """Return the folder that rank 0 mounts at `code.OUTPUT_PATH`; empty if not found."""
    step = replicated_job(jobset, trainer_step(jobset))
    if not any(mount.get("mountPath") == code.OUTPUT_PATH for mount in step.pod.mounts):
        return ""
    plan = plan_pod(objects, jobset, PodId(step.name, 0, 0), site, [], {})
    return next((c.mounts[code.OUTPUT_PATH] for c in plan.containers if code.OUTPUT_PATH in c.mounts), "")


def fetched_revisions(pod: PodPlan) -> dict[str, Revision]:
    """Return kind -> revision of the dataset and the model that a pod reads, as far as they have been fetched."""
    paths = {code.DATASET_PATH: "dataset", code.MODEL_PATH: "model"}
    found = {}
    for container, (name, kind) in itertools.product(pod.containers, paths.items()):
        for path, folder in container.mounts.items():
            inside = PurePosixPath(name)
            if not inside.is_relative_to(path):
                continue
            fetched = manifest.read(Path(folder, inside.relative_to(path)))
            if fetched is not None:
                found[kind] = Revision(fetched.revision, fetched.uri)
    return found


def _facts(jobset: Mapping[str, Any], step: ReplicatedJob, pod: PodId, name: str, site: Site) -> PodFacts:
    """Return the facts of a pod, with the labels and annotations that JobSet and Job set.

    Rule: labelAndAnnotateObject in https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/controllers/jobset_controller.go
    """
    metadata = jobset["metadata"]
    namespace = metadata.get("namespace") or "default"
    steps = jobs_of(jobset)
    job = job_name(jobset, pod.step, pod.job_index)
    group = [each for each in steps if each.group == step.group]
    before = _replicas(s for s in steps if s.place < step.place)
    before_in_group = _replicas(s for s in group if s.place < step.place)
    both = {
        f"{JOBSET}/jobset-name": metadata["name"],
        f"{JOBSET}/jobset-uid": site.uid,
        f"{JOBSET}/replicatedjob-name": pod.step,
        f"{JOBSET}/replicatedjob-replicas": str(step.replicas),
        f"{JOBSET}/global-replicas": str(_replicas(steps)),
        f"{JOBSET}/job-index": str(pod.job_index),
        f"{JOBSET}/job-global-index": str(before + pod.job_index),
        f"{JOBSET}/job-key": hashlib.sha1(f"{namespace}/{job}".encode(), usedforsecurity=False).hexdigest(),
        f"{JOBSET}/restart-attempt": str(pod.restarts),
        f"{JOBSET}/group-name": step.group,
        f"{JOBSET}/group-replicas": str(_replicas(group)),
        f"{JOBSET}/job-group-index": str(before_in_group + pod.job_index),
    }
    coordinator = jobset["spec"].get("coordinator")
    if coordinator:
        parts = (coordinator["replicatedJob"], coordinator.get("jobIndex", 0), coordinator.get("podIndex", 0))
        both[f"{JOBSET}/coordinator"] = f"{metadata['name']}-{parts[0]}-{parts[1]}-{parts[2]}.{subdomain(jobset)}"
    own = section(step.template, "metadata")
    labels = {
        **(own.get("labels") or {}),
        **both,
        "batch.kubernetes.io/controller-uid": hashlib.sha256(f"{site.uid}/{job}/{pod.restarts}".encode()).hexdigest()[
            :32
        ],
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
        service_account=step.pod.spec.get("serviceAccountName") or "default",
    )


def _replicas(steps: Iterable[ReplicatedJob]) -> int:
    return sum(step.replicas or 0 for step in steps)


def subdomain(jobset: Mapping[str, Any]) -> str:
    """Return the subdomain of the pods' host names."""
    return str((jobset["spec"].get("network") or {}).get("subdomain") or jobset["metadata"]["name"])


def _mounts(container: Mapping[str, Any], places: Mapping[str, Path], values: Mapping[str, str]) -> dict[str, str]:
    mounts = {}
    for mount in container.get("volumeMounts") or []:
        below = mount.get("subPath") or environment.expand(mount.get("subPathExpr") or "", values)
        place, parts = places[mount["name"]], PurePosixPath(below).parts
        if parts:
            place = inside(place, *parts)
        mounts[mount["mountPath"]] = str(place)
    return mounts


def _below(container: Mapping[str, Any], pod_volumes: list[dict[str, Any]], mounts: Mapping[str, str]) -> list[Path]:
    """Return the sub-paths of writable volumes, which Kubernetes creates if they are missing."""
    writable = {v["name"] for v in pod_volumes if v.get("emptyDir") is not None or v.get("persistentVolumeClaim")}
    folders: list[Path] = []
    for mount in container.get("volumeMounts") or []:
        has_sub_path = mount.get("subPath") or mount.get("subPathExpr")
        if mount["name"] in writable and has_sub_path:
            folders.append(Path(mounts[mount["mountPath"]]))
    return folders


def _threads(container: Mapping[str, Any]) -> dict[str, str]:
    """Return OMP_NUM_THREADS for a CPU limit: processes of this machine have none, and nodes would compete for CPUs."""
    limit = quantity(_limits(container).get("cpu"))
    if not limit:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, math.ceil(limit)))}


def _limits(container: Mapping[str, Any]) -> Mapping[str, Any]:
    return (container.get("resources") or {}).get("limits") or {}


def _container(
    view: Container,
    given: environment.Variables,
    mounts: dict[str, str],
    rewriter: Rewriter,
    facts: PodFacts,
    site: Site,
    gpus: list[int],
    scratch: Path,
) -> ContainerPlan:
    container = view.document
    command = list(container.get("command") or images.entrypoint(str(container.get("image", ""))))
    words = [*command, *(container.get("args") or [])]
    argv = rewriter.argv([environment.expand(str(word), given.values) for word in words])
    if argv and argv[0] in ("python", "python3"):
        argv[0] = site.python
    kind = "main"
    if view.is_init:
        kind = "sidecar" if view.is_sidecar else "init"
    image_variables = images.variables(str(container.get("image", "")))
    rewritten = {name: rewriter.value(name, given.values[name]) for name in given.literal}
    cwd = scratch
    if container.get("workingDir"):
        cwd = Path(rewriter.path(container["workingDir"]))
    return ContainerPlan(
        name=container["name"],
        kind=kind,
        argv=argv,
        env={
            **environment.base_environment(site.user_environment, site.python),
            **_defaults(facts, site),
            **_threads(container),
            **{k: rewriter.value(k, v) for k, v in image_variables.items()},
            **given.values,
            **rewritten,
            VISIBLE_GPUS: ",".join(map(str, gpus)),
            MARK: f"{site.uid}/{facts.name}/{container['name']}",
        },
        cwd=cwd,
        mounts=mounts,
        memory_limit=str(_limits(container).get("memory") or ""),
    )


def _defaults(facts: PodFacts, site: Site) -> dict[str, str]:
    """Return the default variables, which a container's own variables replace."""
    loopback = "lo" if LINUX else "lo0"
    return {
        "HOSTNAME": facts.name,
        "JOB_COMPLETION_INDEX": facts.annotations[COMPLETION_INDEX],
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        code.ENVIRONMENTS_ENV: str(site.environments),
        code.LAYER_ENV: str(code.source_of("layer.py")),
        code.UV_ENV: find_uv(),
    }
