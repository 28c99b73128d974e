"""What of a JobSet this machine cannot do (refusals), and what it does differently (warnings).

Ignored without a word, because one machine gives it no meaning: images' contents, node selection and scheduling, pull secrets,
service accounts' rights, security contexts.
Objects may hold unknown leaves: what is not known is not judged.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.admission.pod_names import pod_name_problems
from pulumi_trainer.provider.api.extras import missing
from pulumi_trainer.provider.api.submission import Objects
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.targets.local import environment, images, volumes
from pulumi_trainer.provider.targets.local.jobset import peak, together
from pulumi_trainer.provider.targets.local.machine import (
    GPU,
    cpus,
    gpus,
    memory,
    quantity,
)
from pulumi_trainer.provider.targets.local.plan import (
    gpus_of,
    launch_file,
    requested,
    uses_mpi,
)

Keys = Mapping[str, Collection[str]]
"""Secret -> its keys."""

CONTROLLER = "jobset.sigs.k8s.io/jobset-controller"
MOST_PODS = 1000
"""Of one job at one time: each is one process or more."""


def refusals(objects: Objects, secrets: Keys | None = None) -> list[Problem]:
    """secrets: the Secrets whose values come with the job; None: not known yet."""
    if secrets is not None:
        made = {key.partition("/")[2]: _map(o.get("data")) for key, o in objects.items() if key.startswith("Secret/")}
        secrets = {**made, **secrets}
    return [p for where, jobset in _jobsets(objects) for p in _refused(where, jobset, objects, secrets)]


def bad_names(objects: Objects) -> list[Problem]:
    """What the API server would have against names that become parts of paths: a plan has reviewed them, and what somebody has
    changed in a state since then has not been."""
    return [
        p for where, jobset in _jobsets(objects) for at, pod in _pods(where, jobset) for p in pod_name_problems(pod, at)
    ]


def warnings(objects: Objects) -> list[Problem]:
    return [p for where, jobset in _jobsets(objects) for p in (*_beyond(where, jobset), *_left_out(where, jobset))]


def too_many_pods(objects: Objects) -> list[Problem]:
    """What no machine can start; a supervisor that tried would use up its memory."""
    peaks = [(where, _peak(jobset, lambda _: 1)) for where, jobset in _jobsets(objects)]
    mend = "ask for fewer (num_nodes), or use the Kubernetes target"
    return [
        Problem(where, f"needs {pods} Pods at one time, and the Local target starts at most {MOST_PODS}", mend)
        for where, pods in peaks
        if pods > MOST_PODS
    ]


def too_few_gpus(objects: Objects) -> list[Problem]:
    """Asks the machine only where GPUs are requested."""
    found = []
    for where, jobset in _jobsets(objects):
        needed = _peak(jobset, gpus_of)
        if needed and needed > (total := gpus()):
            why = f"needs {needed} GPUs at one time, and this machine has {total}"
            mend = "ask for fewer (num_nodes, resources_per_node), or use the Kubernetes target"
            found.append(Problem(f"{where}: {GPU}", why, mend))
    return found


def missing_programs(objects: Objects, python: str) -> tuple[list[Problem], list[Problem]]:
    """Programs that containers start and this machine does not have: refusals, and warnings where a package that is installed
    first may bring one. python: the interpreter that stands in for the images.
    """
    refused: list[Problem] = []
    warned: list[Problem] = []
    mpi = uses_mpi(objects)
    if mpi and not shutil.which("mpirun"):
        mend = "install Open MPI (Debian and Ubuntu: sudo apt-get install openmpi-bin), or use the Kubernetes target"
        refused += [Problem(where, "needs mpirun, which is not on PATH", mend) for where, _ in _jobsets(objects)]
    for where, jobset in _jobsets(objects):
        for at, pod in _pods(where, jobset):
            for below, container in _containers(at, pod):
                launch = launch_file(container, _volumes(jobset, pod), objects)
                program = _program(container, launch)
                if not program or (mpi and program in ("mpirun", "sshd")) or _on_path(program, container, python):
                    continue
                brought = _names_of(launch.get("install") or [])
                package = _PACKAGES.get(program, program)
                if package in brought:
                    continue
                why = f"{program} is not on PATH, and {package} is not in packages_to_install"
                mend = (
                    f'add packages_to_install=["{package}"], or give Local(python=) an interpreter that has {program}'
                )
                found = Problem(below, why, mend if launch else f"install {program} on this machine")
                (warned if brought else refused).append(found)
    return refused, warned


_PACKAGES = {"torchrun": "torch"}
"""Program -> the package that brings it, where that has another name."""


def _names_of(requirements: Collection[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", word, maxsplit=1)[0].lower() for word in requirements if word[:1] != "-"}


def _program(container: Mapping[str, Any], launch: Mapping[str, Any]) -> str:
    """What a container starts, if it is to be found on PATH."""
    command = launch.get("launcher") or container.get("command")
    first = _text(command[0]) if isinstance(command, list) and command else ""
    return first if re.fullmatch(r"[\w.+-]+", first) and first not in ("python", "python3") else ""


def _on_path(program: str, container: Mapping[str, Any], python: str) -> bool:
    given = [v for v in _list(container.get("env")) if v.get("name") == "PATH"]
    path = environment.base_environment(os.environ, python)["PATH"]
    return bool(given) or shutil.which(program, path=path) is not None


def missing_interpreter(objects: Objects, python: str) -> list[Problem]:
    """Return that the interpreter which stands in for the images cannot be started, if some container asks for one."""
    everyone = (
        c for where, jobset in _jobsets(objects) for at, pod in _pods(where, jobset) for _, c in _containers(at, pod)
    )
    commands = (container.get("command") for container in everyone)
    wanted = any(isinstance(words, list) and words[:1] in (["python"], ["python3"]) for words in commands)
    if not wanted or shutil.which(python):
        return []
    hint = "give the path of a Python interpreter, or leave python out: it is the one that runs the program"
    return [Problem("target.python", f"{python} is not a program that can be started", hint)]


def missing_packages(objects: Objects) -> list[Problem]:
    """Return what initializers lack to fetch from their sources: they run with the interpreter that has this package."""
    found = []
    for where, jobset in _jobsets(objects):
        containers = [c for path, pod in _pods(where, jobset) for _, c in _containers(path, pod)]
        for container in containers:
            if not images.entrypoint(_text(container.get("image"))):
                continue
            for each in _list(container.get("env")):
                uri = _text(each.get("value")) if each.get("name") == "STORAGE_URI" else ""
                if module := _FETCHING.get(uri.partition("://")[0].lower()):
                    found += missing(module, uri)
    return found


_FETCHING = {"s3": "boto3", "hf": "huggingface_hub"}
"""Scheme of a URI -> the module that fetches from there."""


def _jobsets(objects: Objects) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, document in objects.items():
        if key.startswith("JobSet/") and isinstance(document, dict):
            yield key, document


def _list(value: Any) -> list[Any]:
    return [v for v in value if isinstance(v, Mapping)] if isinstance(value, list) else []


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _pods(where: str, jobset: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for step in _list(_map(jobset.get("spec")).get("replicatedJobs")):
        pod = _map(_map(_map(_map(step.get("template")).get("spec")).get("template")).get("spec"))
        yield f"{where}: spec.replicatedJobs[{step.get('name')}].template.spec.template.spec", pod


def _containers(where: str, pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for kind in ("initContainers", "containers"):
        for container in _list(pod.get(kind)):
            yield f"{where}.{kind}[{container.get('name')}]", container


def _refused(where: str, jobset: Mapping[str, Any], objects: Objects, secrets: Keys | None) -> Iterator[Problem]:
    spec = _map(jobset.get("spec"))
    if _text(spec.get("managedBy")) not in ("", CONTROLLER):
        why = f"{spec['managedBy']} manages the job, and does not run on this machine"
        yield Problem(f"{where}: spec.managedBy", why, "leave it out")
    policy = _map(spec.get("failurePolicy"))
    if policy.get("restartStrategy") == "InPlaceRestart":
        yield Problem(
            f"{where}: spec.failurePolicy.restartStrategy", "InPlaceRestart is not done locally", "use Recreate"
        )
    for i, rule in enumerate(_list(policy.get("rules"))):
        if _text(rule.get("action")).startswith("RestartJob") and not rule["action"].startswith("RestartJobSet"):
            at = f"{where}: spec.failurePolicy.rules[{i}].action"
            yield Problem(at, f"{rule['action']} is not done locally", "use RestartJobSet")
    for step in _list(spec.get("replicatedJobs")):
        job = _map(_map(step.get("template")).get("spec"))
        at = f"{where}: spec.replicatedJobs[{step.get('name')}].template.spec"
        if job.get("completionMode", "Indexed") == "NonIndexed":
            yield Problem(
                f"{at}.completionMode", "NonIndexed is not done locally", "leave it out: Indexed is the default"
            )
        if job.get("successPolicy"):
            yield Problem(f"{at}.successPolicy", "a Job's own successPolicy is not done locally", "use the JobSet's")
    for at, pod in _pods(where, jobset):
        if pod.get("resourceClaims"):
            yield Problem(
                f"{at}.resourceClaims", "devices are not claimed locally", f"ask for {GPU} in resources.limits"
            )
        known = {v["name"]: v for v in _volumes(jobset, pod)}
        for i, volume in enumerate(_list(pod.get("volumes"))):
            yield from _volume(f"{at}.volumes[{volume.get('name', i)}]", volume, objects, secrets)
        for below, container in _containers(at, pod):
            yield from _container(below, container, known, objects, secrets)


def _volumes(jobset: Mapping[str, Any], pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    try:
        return [v for v in volumes.pod_volumes(jobset, pod) if isinstance(v.get("name"), str)]
    except (TypeError, KeyError, AttributeError):  # unknown leaves
        return [v for v in _list(pod.get("volumes")) if isinstance(v.get("name"), str)]


def _volume(where: str, volume: Mapping[str, Any], objects: Objects, secrets: Keys | None) -> Iterator[Problem]:
    kinds = [k for k in volume if k != "name"]
    for kind in kinds:
        if kind not in volumes.KINDS:
            yield Problem(
                f"{where}.{kind}", "this kind of volume cannot be had locally", f"use one of {', '.join(volumes.KINDS)}"
            )
    if volumes.in_memory(_plain(volume)) and not volumes.MEMORY.is_dir():
        why = f"a Secret must not be written to a disk, and this machine has no {volumes.MEMORY}"
        yield Problem(where, why, "pass it in env with valueFrom.secretKeyRef")
    path = _text(_map(volume.get("hostPath")).get("path"))
    if path and not Path(path).exists():
        yield Problem(
            f"{where}.hostPath.path", f"{path} does not exist on this machine", "make it, or use another volume"
        )
    sources = _list(_map(volume.get("projected")).get("sources"))
    for i, source in enumerate(sources):
        for kind in source:
            if kind not in ("configMap", "secret", "downwardAPI"):
                yield Problem(f"{where}.projected.sources[{i}].{kind}", "cannot be had locally", "leave it out")
    for source in [volume, *sources]:
        for kind in ("configMap", "secret"):
            ref = _map(source.get(kind))
            if ref and not ref.get("optional"):
                yield from _named(f"{where}.{kind}", kind, ref, objects, secrets)


def _plain(volume: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in volume.items() if isinstance(v, Mapping)}


def _named(
    where: str, kind: str, ref: Mapping[str, Any], objects: Objects, secrets: Keys | None, key: str = ""
) -> Iterator[Problem]:
    """A ConfigMap or Secret that must be there."""
    name = ref.get("secretName") or ref.get("name")
    if not isinstance(name, str):
        return
    have: Collection[str] | None
    if kind.startswith("secret"):
        if secrets is None:
            return
        word, have = "Secret", secrets.get(name)
        mend = "pass the value as a secret Output (pulumi.Config().require_secret) in env"
    else:
        config = objects.get(f"ConfigMap/{name}")
        word, mend = "ConfigMap", "use plain values, or make it optional"
        have = None if config is None else {**_map(config.get("data")), **_map(config.get("binaryData"))}
    if have is None:
        yield Problem(where, f"{word} {name} is not part of the job, and there is no cluster to have it from", mend)
    elif key and key not in have:
        yield Problem(where, f"{word} {name} has no key {key}", "name one of its keys")


def _container(
    where: str,
    container: Mapping[str, Any],
    known: Mapping[str, Mapping[str, Any]],
    objects: Objects,
    secrets: Keys | None,
) -> Iterator[Problem]:
    image = container.get("image")
    known_image = image is None or isinstance(image, str)
    if not container.get("command") and known_image and not images.entrypoint(image or ""):
        why = f"what image {image} starts is not known on this machine"
        yield Problem(f"{where}.command", why, "give the container a command")
    if container.get("volumeDevices"):
        yield Problem(f"{where}.volumeDevices", "block devices cannot be had locally", "use volumeMounts")
    given = _map(container.get("resources"))
    for resource in {**_map(given.get("limits")), **_map(given.get("requests"))}:
        if "/" in resource and resource != GPU:
            yield Problem(f"{where}.resources", f"{resource} is not handed out locally", f"ask for {GPU}")
    mounts = []
    for i, mount in enumerate(_list(container.get("volumeMounts"))):
        at, path = f"{where}.volumeMounts[{i}]", _text(mount.get("mountPath"))
        mounts.append(path.rstrip("/"))
        if path == "/":
            yield Problem(f"{at}.mountPath", "nothing can be mounted over the whole of this machine", "use a folder")
        if isinstance(mount.get("name"), str) and mount["name"] not in known:
            yield Problem(f"{at}.name", f"the pod has no volume {mount['name']}", "declare it in volumes")
    cwd = _text(container.get("workingDir"))
    if cwd and not Path(cwd).is_dir() and not any(m and (cwd == m or cwd.startswith(f"{m}/")) for m in mounts):
        why = f"{cwd} is neither a folder of this machine nor below a mounted volume"
        yield Problem(f"{where}.workingDir", why, "leave it out: each pod has a folder of its own")
    yield from _environment(where, container, objects, secrets)


def _environment(where: str, container: Mapping[str, Any], objects: Objects, secrets: Keys | None) -> Iterator[Problem]:
    secret_names: set[Any] = set()
    for i, source in enumerate(_list(container.get("envFrom"))):
        for kind in ("configMapRef", "secretRef"):
            ref = _map(source.get(kind))
            if ref and not ref.get("optional"):
                yield from _named(f"{where}.envFrom[{i}].{kind}", kind, ref, objects, secrets)
        ref = _map(source.get("secretRef"))
        secret_names |= {
            f"{source.get('prefix') or ''}{key}" for key in (secrets or {}).get(_text(ref.get("name")), ())
        }
    for variable in _list(container.get("env")):
        at, source = f"{where}.env[{variable.get('name')}].valueFrom", _map(variable.get("valueFrom"))
        for kind, ref in source.items():
            if kind == "fieldRef":
                path = _text(_map(ref).get("fieldPath"))
                if path and not environment.FIELDS.fullmatch(path):
                    yield Problem(f"{at}.fieldRef", f"{path} has no meaning locally", "leave it out")
            elif kind in ("configMapKeyRef", "secretKeyRef"):
                if not _map(ref).get("optional"):
                    yield from _named(f"{at}.{kind}", kind, _map(ref), objects, secrets, _text(_map(ref).get("key")))
            elif kind != "resourceFieldRef":
                yield Problem(
                    f"{at}.{kind}", "cannot be had locally", "use value, fieldRef, configMapKeyRef or secretKeyRef"
                )
        if "secretKeyRef" in source or environment.references(_text(variable.get("value"))) & secret_names:
            secret_names.add(variable.get("name"))
    for field in ("command", "args"):
        words = container.get(field)
        for word in words if isinstance(words, list) else []:
            for name in environment.references(_text(word)) & secret_names:
                why = f"$({name}) would put a secret where every user of this machine can read it"
                yield Problem(f"{where}.{field}", why, f"read {name} from the environment instead")


def _peak(jobset: Mapping[str, Any], amount: Any) -> Any:
    """The most that runs at one time; 0 where a count is not known yet."""
    try:
        steps = jobset["spec"]["replicatedJobs"]
        return peak(jobset, {s["name"]: together(s) * amount(s["template"]["spec"]["template"]["spec"]) for s in steps})
    except (TypeError, ValueError, KeyError, AttributeError):
        return 0


def _beyond(where: str, jobset: Mapping[str, Any]) -> Iterator[Problem]:
    mend = "it will be slow, or run out of memory; ask for less"
    cores = _peak(jobset, lambda pod: requested(pod, "cpu"))
    if cores > cpus():
        yield Problem(
            f"{where}: cpu", f"asks for {float(cores):g} CPUs at one time, and this machine has {cpus()}", mend
        )
    amount = _peak(jobset, lambda pod: requested(pod, "memory"))
    if amount > memory():
        gib = quantity("1Gi")
        why = (
            f"asks for {float(amount / gib):.1f} GiB at one time, and this machine has {float(memory() / gib):.1f} GiB"
        )
        yield Problem(f"{where}: memory", why, mend)


def _left_out(where: str, jobset: Mapping[str, Any]) -> Iterator[Problem]:
    for at, pod in _pods(where, jobset):
        for below, container in _containers(at, pod):
            for field in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
                if container.get(field):
                    yield Problem(f"{below}.{field}", "is not run locally; a pod is ready when its containers run")
