"""Reviews which parts of a JobSet this machine cannot run (refusals) or runs differently (warnings).

Silently ignored, because they have no meaning on one machine: the content of images, node selection and scheduling, pull secrets,
permissions of service accounts, security contexts. Unknown leaves of objects are not reviewed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.jobs.submission import Objects
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, listed, mappings, section, text
from pulumi_trainer.provider.kubernetes.values.wording import plural
from pulumi_trainer.provider.kubernetes.views import Container, Pod, jobs_of
from pulumi_trainer.provider.machine.extras import missing
from pulumi_trainer.provider.targets.local import environment, images, volumes
from pulumi_trainer.provider.targets.local.jobset_controller import peak_of
from pulumi_trainer.provider.targets.local.machine import (
    GPU,
    VISIBLE_GPUS,
    cpus,
    memory,
    open_files,
    quantity,
    visible_gpus,
)
from pulumi_trainer.provider.targets.local.plan import gpus_of, launch_file, requested, uses_mpi
from pulumi_trainer.provider.trainer.admission.pod_names import is_root, pod_name_problems

Keys = Mapping[str, Collection[str]]
"""Secret -> its keys."""

CONTROLLER = "jobset.sigs.k8s.io/jobset-controller"
MOST_PODS = 1000
"""Limit on the Pods of one job at one time; each is one process or more."""


def refusals(objects: Objects, secrets: Keys | None = None) -> list[Problem]:
    """Return why jobs cannot run on this machine. secrets: The Secrets whose values are submitted with the jobs; None if not
    known yet."""
    if secrets is not None:
        made: dict[str, Collection[str]] = {}
        for key, document in objects.items():
            if key.startswith("Secret/"):
                made[key.partition("/")[2]] = section(document, "data")
        secrets = {**made, **secrets}
    found: list[Problem] = []
    for where, jobset in _jobsets(objects):
        found += _refused(where, jobset, objects, secrets)
    return found


def invalid_names(objects: Objects) -> list[Problem]:
    """Return the invalid names among those that become parts of paths. The plan has reviewed them, but a state may be edited."""
    found: list[Problem] = []
    for where, jobset in _jobsets(objects):
        for pod in _pods(where, jobset):
            found += pod_name_problems(pod.spec, pod.at)
    return found


def warnings(objects: Objects) -> list[Problem]:
    """Return what this machine does differently from a cluster."""
    found: list[Problem] = []
    for where, jobset in _jobsets(objects):
        found += [*_exceeding_machine(where, jobset), *_ignored_fields(where, jobset)]
    return found


def too_many_pods(objects: Objects) -> list[Problem]:
    """Return the jobs with more pods than any machine can start; their supervisors would run out of memory."""
    found = []
    hint = "ask for fewer (num_nodes), or use the Kubernetes target"
    for where, jobset in _jobsets(objects):
        pods = _peak(jobset, lambda _: 1)
        if pods > MOST_PODS:
            why = f"needs {pods} Pods at one time, but the Local target starts at most {MOST_PODS}"
            found.append(Problem(where, why, hint))
    return found


def too_many_files(objects: Objects) -> list[Problem]:
    """Return the jobs whose supervisors would have to open more files than the system allows."""
    found = []
    for where, jobset in _jobsets(objects):
        if _peak(jobset, lambda _: 1) > MOST_PODS:
            continue  # `too_many_pods` reports it
        needed = _OTHER_FILES + _CONTAINER_FILES * _peak(jobset, lambda pod: len(Pod(pod, "").all_containers))
        most = open_files()
        if needed > most:
            why = (
                f"needs {needed} open files for its Pods at one time, but a process may have {most} here (`ulimit -Hn`)"
            )
            found.append(Problem(where, why, "ask for fewer (num_nodes), or raise the limit"))
    return found


_CONTAINER_FILES = 3
"""Open files of a supervisor for each container: two pipes and a log."""
_OTHER_FILES = 64
"""Open files of a supervisor that do not depend on containers."""


def too_few_gpus(objects: Objects) -> list[Problem]:
    """Return the jobs that need more GPUs than this machine has; GPUs are only counted if a job requests them."""
    found = []
    visible = os.environ.get(VISIBLE_GPUS)
    shown = ""
    if visible is not None:
        shown = f" ({VISIBLE_GPUS}={visible})"
    for where, jobset in _jobsets(objects):
        needed = _peak(jobset, gpus_of)
        if not needed:
            continue
        total = len(visible_gpus(visible))
        if needed > total:
            why = f"needs {plural(needed, 'GPU')} at one time, but this machine has {total}{shown}"
            hint = "ask for fewer (num_nodes, resources_per_node), or use the Kubernetes target"
            found.append(Problem(f"{where}: {GPU}", why, hint))
    return found


def missing_programs(objects: Objects, python: str) -> tuple[list[Problem], list[Problem]]:
    """Return refusals and warnings for the programs that containers start and this machine lacks.

    A missing program is a warning if a package that the job installs may provide it.
    """
    refused: list[Problem] = []
    warned: list[Problem] = []
    mpi = uses_mpi(objects)
    if mpi and not shutil.which("mpirun"):
        hint = "install Open MPI (Debian and Ubuntu: sudo apt-get install openmpi-bin), or use the Kubernetes target"
        refused += [Problem(where, "needs mpirun, which is not on PATH", hint) for where, _ in _jobsets(objects)]
    for where, jobset in _jobsets(objects):
        for pod in _pods(where, jobset):
            for container in pod.all_containers:
                launch = launch_file(container.document, _volumes(jobset, pod.spec), objects)
                program = _program(container.document, launch)
                if not program or (mpi and program in ("mpirun", "sshd")) or _on_path(program, container, python):
                    continue
                brought = _names_of([*(launch.get("install") or []), *(launch.get("requirements") or [])])
                package = _PACKAGES.get(program, program)
                if package in brought:
                    continue
                why = f"{program} is not on PATH, and {package} is not in packages_to_install"
                hint = f"install {program} on this machine"
                if launch:
                    hint = f'add packages_to_install=["{package}"], or give Local(python=) an interpreter that has {program}'
                problem = Problem(_at(pod, container), why, hint)
                if brought:
                    warned.append(problem)
                else:
                    refused.append(problem)
    return refused, warned


_PACKAGES = {"torchrun": "torch"}
"""Program -> the package that provides it, if that has another name."""


def _names_of(requirements: Collection[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", word, maxsplit=1)[0].lower() for word in requirements if word[:1] != "-"}


def _program(container: Document, launch: Document) -> str:
    """Return the program that a container starts, if PATH determines its path; empty otherwise."""
    of_user = "command"
    if launch.get("launcher") == []:
        of_user = "args"
    command = launch.get("launcher") or container.get(of_user)
    if not isinstance(command, list) or not command:
        return ""
    first = text(command[0])
    if re.fullmatch(r"[\w.+-]+", first) and first not in ("python", "python3"):
        return first
    return ""


def _on_path(program: str, container: Container, python: str) -> bool:
    if any(variable.get("name") == "PATH" for variable in container.env):
        return True
    path = environment.base_environment(os.environ, python)["PATH"]
    return shutil.which(program, path=path) is not None


def invalid_arguments(objects: Objects) -> list[Problem]:
    """Return the problems of arguments and environments that the kernel rejects."""
    found: list[Problem] = []
    for where, container in _containers(objects):
        found += _argument_problems(where, container.document)
    return found


def _argument_problems(where: str, container: Mapping[str, Any]) -> Iterator[Problem]:
    words = {field: container.get(field) for field in ("command", "args")}
    for field, given in words.items():
        for i, word in enumerate(listed(given)):
            if "\0" in text(word):
                yield Problem(
                    f"{where}.{field}[{i}]", "holds a NUL, so it cannot be given to a process", "leave it out"
                )
    command = words["command"]
    if isinstance(command, list) and command[:1] == [""]:
        yield Problem(f"{where}.command[0]", "is empty: it names the program to start", "give a program")
    for variable in mappings(container.get("env")):
        if "\0" in text(variable.get("value")):
            at = f"{where}.env[{variable.get('name')}].value"
            yield Problem(at, "holds a NUL, so it cannot be given to a process", "leave it out, or encode it")


def missing_interpreter(objects: Objects, python: str) -> list[Problem]:
    """Return a problem if the interpreter that replaces images cannot be started, and a container needs it."""
    needed = any(_starts_python(container) for _, container in _containers(objects))
    if not needed or shutil.which(python):
        return []
    hint = "give the path of a Python interpreter, or leave python out: it is the one that runs the program"
    return [Problem("target.python", f"{python} is not a program that can be started", hint)]


def _starts_python(container: Container) -> bool:
    words = container.document.get("command")
    return isinstance(words, list) and words[:1] in (["python"], ["python3"])


def missing_packages(objects: Objects) -> list[Problem]:
    """Return the packages that initializers need and this interpreter, which runs them, lacks."""
    found = []
    for _, container in _containers(objects):
        if not images.entrypoint(text(container.document.get("image"))):
            continue
        for variable in container.env:
            if variable.get("name") != "STORAGE_URI":
                continue
            uri = text(variable.get("value"))
            module = _FETCHING.get(uri.partition("://")[0].lower())
            if module is not None:
                found += missing(module, uri)
    return found


_FETCHING = {"s3": "boto3", "hf": "huggingface_hub"}
"""Scheme of a URI -> the module that the initializer needs."""


def _jobsets(objects: Objects) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, document in objects.items():
        if key.startswith("JobSet/") and isinstance(document, dict):
            yield key, document


def _pods(where: str, jobset: Document) -> Iterator[Pod]:
    """Yield the pods of the steps, with the names of the steps in their paths."""
    for job in jobs_of(jobset):
        yield Pod(job.pod.spec, f"{where}: spec.replicatedJobs[{job.name}].template.spec.template.spec")


def _containers(objects: Objects) -> Iterator[tuple[str, Container]]:
    """Yield the containers of all pods, with the names of steps and containers in their paths."""
    for where, jobset in _jobsets(objects):
        for pod in _pods(where, jobset):
            for container in pod.all_containers:
                yield _at(pod, container), container


def _at(pod: Pod, container: Container) -> str:
    field = "containers"
    if container.is_init:
        field = "initContainers"
    return f"{pod.at}.{field}[{container.name}]"


def _unsupported(where: str, what: str, hint: str) -> Problem:
    return Problem(where, f"the Local target does not support {what}", hint)


def _refused(where: str, jobset: Document, objects: Objects, secrets: Keys | None) -> Iterator[Problem]:
    spec = section(jobset, "spec")
    if text(spec.get("managedBy")) not in ("", CONTROLLER):
        why = f"{spec['managedBy']} manages the job, but does not run on this machine"
        yield Problem(f"{where}: spec.managedBy", why, "leave it out")
    policy = section(spec, "failurePolicy")
    if policy.get("restartStrategy") == "InPlaceRestart":
        yield _unsupported(f"{where}: spec.failurePolicy.restartStrategy", "InPlaceRestart", "use Recreate")
    for i, rule in enumerate(mappings(policy.get("rules"))):
        if text(rule.get("action")).startswith("RestartJob") and not rule["action"].startswith("RestartJobSet"):
            at = f"{where}: spec.failurePolicy.rules[{i}].action"
            yield _unsupported(at, rule["action"], "use RestartJobSet")
    for step in jobs_of(jobset):
        if step.job.get("completionMode", "Indexed") == "NonIndexed":
            at = f"{where}: spec.replicatedJobs[{step.name}].template.spec.completionMode"
            yield _unsupported(at, "NonIndexed", "leave it out: Indexed is the default")
    for pod in _pods(where, jobset):
        at = pod.at
        if pod.spec.get("resourceClaims"):
            yield _unsupported(f"{at}.resourceClaims", "resource claims", f"ask for {GPU} in resources.limits")
        known = {v["name"]: v for v in _volumes(jobset, pod.spec)}
        for i, volume in enumerate(pod.volumes):
            yield from _volume_problems(f"{at}.volumes[{volume.get('name', i)}]", volume, objects, secrets)
        for container in pod.all_containers:
            yield from _container_problems(_at(pod, container), container, known, objects, secrets)


def _volumes(jobset: Document, pod: Document) -> list[Document]:
    try:
        return [v for v in volumes.pod_volumes(jobset, pod) if isinstance(v.get("name"), str)]
    except (TypeError, KeyError, AttributeError):  # unknown leaves
        return [v for v in mappings(pod.get("volumes")) if isinstance(v.get("name"), str)]


def _volume_problems(where: str, volume: Document, objects: Objects, secrets: Keys | None) -> Iterator[Problem]:
    """Yield why the Local target cannot mount a volume."""
    for kind in volume:
        if kind != "name" and kind not in volumes.KINDS:
            yield _unsupported(f"{where}.{kind}", "this kind of volume", f"use one of {', '.join(volumes.KINDS)}")
    if volumes.in_memory(_plain(volume)) and not volumes.MEMORY.is_dir():
        why = f"a Secret must not be written to a disk, and this machine has no {volumes.MEMORY}"
        yield Problem(where, why, "pass it in env with valueFrom.secretKeyRef")
    path = text(section(volume, "hostPath").get("path"))
    if path and not Path(path).exists():
        yield Problem(
            f"{where}.hostPath.path", f"{path} does not exist on this machine", "make it, or use another volume"
        )
    sources = mappings(section(volume, "projected").get("sources"))
    for i, source in enumerate(sources):
        for kind in source:
            if kind not in ("configMap", "secret", "downwardAPI"):
                yield Problem(
                    f"{where}.projected.sources[{i}].{kind}", "is not supported by the Local target", "leave it out"
                )
    for source in [volume, *sources]:
        for kind in ("configMap", "secret"):
            yield from _missing_reference(f"{where}.{kind}", kind, section(source, kind), objects, secrets)


def _plain(volume: Document) -> dict[str, Any]:
    return {k: v for k, v in volume.items() if isinstance(v, Mapping)}


def _missing_reference(
    where: str, kind: str, ref: Document, objects: Objects, secrets: Keys | None, key: str = ""
) -> Iterator[Problem]:
    """Yield the problem that a ConfigMap, a Secret or its key is missing, unless it is optional."""
    name = ref.get("secretName") or ref.get("name")
    if ref.get("optional") or not isinstance(name, str):
        return
    have: Collection[str] | None
    if kind.startswith("secret"):
        if secrets is None:
            return
        word, have = "Secret", secrets.get(name)
        hint = "pass the value as a secret Output (pulumi.Config().require_secret) in env"
    else:
        config = objects.get(f"ConfigMap/{name}")
        word, hint = "ConfigMap", "use plain values, or make it optional"
        have = None
        if config is not None:
            have = {**section(config, "data"), **section(config, "binaryData")}
    if have is None:
        yield Problem(
            where, f"{word} {name} is not part of the job, and the Local target has no cluster to read it from", hint
        )
    elif key and key not in have:
        yield Problem(where, f"{word} {name} has no key {key}", "name one of its keys")


def _container_problems(
    where: str, view: Container, known: Mapping[str, Document], objects: Objects, secrets: Keys | None
) -> Iterator[Problem]:
    container = view.document
    image = container.get("image")
    known_image = image is None or isinstance(image, str)
    if not container.get("command") and known_image and not images.entrypoint(image or ""):
        why = f"what image {image} starts is not known on this machine"
        yield Problem(
            f"{where}.command", why, "give the TrainJob a trainer=, or the container of its runtime a command"
        )
    if container.get("volumeDevices"):
        yield _unsupported(f"{where}.volumeDevices", "block devices", "use volumeMounts")
    given = section(container, "resources")
    for resource in {**section(given, "limits"), **section(given, "requests")}:
        if "/" in resource and resource != GPU:
            yield Problem(f"{where}.resources", f"the Local target does not provide {resource}", f"ask for {GPU}")
    mounts = []
    for i, mount in enumerate(view.mounts):
        at, path = f"{where}.volumeMounts[{i}]", text(mount.get("mountPath"))
        mounts.append(path.rstrip("/"))
        if is_root(path):
            yield Problem(f"{at}.mountPath", "must not be the root folder of this machine", "use a folder")
        if isinstance(mount.get("name"), str) and mount["name"] not in known:
            yield Problem(f"{at}.name", f"the pod has no volume {mount['name']}", "declare it in volumes")
    cwd = text(container.get("workingDir"))
    mounted = any(m and (cwd == m or cwd.startswith(f"{m}/")) for m in mounts)
    if cwd and not Path(cwd).is_dir() and not mounted:
        why = f"{cwd} is neither a folder of this machine nor below a mounted volume"
        yield Problem(f"{where}.workingDir", why, "leave it out: each pod has a folder of its own")
    yield from _environment(where, view, objects, secrets)


def _environment(where: str, view: Container, objects: Objects, secrets: Keys | None) -> Iterator[Problem]:
    secret_names: set[Any] = set()
    container = view.document
    for i, source in enumerate(mappings(container.get("envFrom"))):
        for kind in ("configMapRef", "secretRef"):
            at = f"{where}.envFrom[{i}].{kind}"
            yield from _missing_reference(at, kind, section(source, kind), objects, secrets)
        ref = section(source, "secretRef")
        prefix = source.get("prefix") or ""
        for key in (secrets or {}).get(text(ref.get("name")), ()):
            secret_names.add(f"{prefix}{key}")
    for variable in view.env:
        at, source = f"{where}.env[{variable.get('name')}].valueFrom", section(variable, "valueFrom")
        for kind, ref in source.items():
            if kind == "fieldRef":
                path = text(section(ref).get("fieldPath"))
                if path and not environment.FIELDS.fullmatch(path):
                    yield Problem(f"{at}.fieldRef", f"{path} is not supported by the Local target", "leave it out")
            elif kind in ("configMapKeyRef", "secretKeyRef"):
                key = text(section(ref).get("key"))
                yield from _missing_reference(f"{at}.{kind}", kind, section(ref), objects, secrets, key)
            elif kind != "resourceFieldRef":
                yield Problem(
                    f"{at}.{kind}",
                    "is not supported by the Local target",
                    "use value, fieldRef, configMapKeyRef or secretKeyRef",
                )
        if "secretKeyRef" in source or environment.references(text(variable.get("value"))) & secret_names:
            secret_names.add(variable.get("name"))
    yield from _secret_words(where, container, secret_names)


def _secret_words(where: str, container: Document, secret_names: set[Any]) -> Iterator[Problem]:
    """Yield the references to secret variables in the command and arguments of a container."""
    for field in ("command", "args"):
        for word in listed(container.get(field)):
            for name in environment.references(text(word)) & secret_names:
                why = f"$({name}) would put a secret where every user of this machine can read it"
                yield Problem(f"{where}.{field}", why, f"read {name} from the environment instead")


def _peak(jobset: Document, amount: Any) -> Any:
    """Return the largest amount that a JobSet needs at one time; 0 if a count is not known yet."""
    try:
        return peak_of(jobset, amount)
    except (TypeError, ValueError, KeyError, AttributeError):
        return 0


def _exceeding_machine(where: str, jobset: Document) -> Iterator[Problem]:
    hint = "the job will be slow, or run out of memory; request less"
    cores = _peak(jobset, lambda pod: requested(pod, "cpu"))
    if cores > cpus():
        yield Problem(
            f"{where}: cpu", f"requests {float(cores):g} CPUs at one time, but this machine has {cpus()}", hint
        )
    amount = _peak(jobset, lambda pod: requested(pod, "memory"))
    if amount > memory():
        gib = quantity("1Gi")
        why = (
            f"requests {float(amount / gib):.1f} GiB at one time, but this machine has {float(memory() / gib):.1f} GiB"
        )
        yield Problem(f"{where}: memory", why, hint)


def _ignored_fields(where: str, jobset: Document) -> Iterator[Problem]:
    for pod in _pods(where, jobset):
        for container in pod.all_containers:
            for field in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
                if container.document.get(field):
                    yield Problem(
                        f"{_at(pod, container)}.{field}",
                        "is not run by the Local target; a pod is ready when its containers run",
                    )
