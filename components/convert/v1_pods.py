"""Compares the Pods that the controllers of v1 make of a job with those of the TrainJob that takes its place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pulumi_trainer.convert.proof import differences, render_jobset, shown
from pulumi_trainer.convert.v1_jobs import V1Job, with_new_hosts
from pulumi_trainer.convert.v1_roles import Role, controller_variables, main_container
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    labels_of,
    listed,
    mappings,
    name_of,
    number,
    section,
    text,
    without,
)
from pulumi_trainer.provider.kubernetes.values.quantity import canonical
from pulumi_trainer.provider.trainer.pipeline.info import NODE

Found = Iterator[tuple[bool, str]]
"""Differences, each with whether it has a reason."""

_OF_POLICIES = re.compile(r"PET_|JAX_|DMLC_|OMPI_|PRTE_|TASK_INDEX$")
"""Variables that Trainer sets for its launchers."""
_OF_TORCHRUN = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
_ADDRESSES = ("MASTER_ADDR", "WORKER_ADDRS", "COORDINATOR_ADDRESS", "PADDLE_MASTER", "TF_CONFIG")
_UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
_LATE = "Training Operator sets PYTHONUNBUFFERED=1; without it Python may print its output late"


def compare_pods(job: V1Job, runtime: Document, train_job: Document) -> None:
    """Note how the Pods of a TrainJob differ from those of the v1 job.

    Args:
        runtime: The runtime of the TrainJob, as the program declares it.
        train_job: The TrainJob, as the program declares it.
    """
    jobset = render_jobset(runtime, train_job, job.differences)
    if not jobset:
        return
    made, expected = dict[str, Document](), dict[str, int]()
    for each in mappings(section(jobset, "spec").get("replicatedJobs")):
        made[text(each.get("name"))] = section(each, "template", "spec")
    for role in job.roles:
        expected[role.job] = expected.get(role.job, 0) + role.replicas
        new = made.get(role.job, {})
        for index in sorted({0, role.replicas - 1}):
            _note(job, _compare_pod(job, role, index, section(new, "template")))
        _note(job, _compare_restarts(job, role, new))
    for name, count in expected.items():
        if number(section(made, name).get("parallelism"), 1) != count:
            job.differences.append(f"{count} Pods became {section(made, name).get('parallelism')} of {name}")
    _note(job, _compare_endings(job, jobset, train_job))


def _note(job: V1Job, found: Found) -> None:
    """Add each finding once: those with a reason to the notes, the others to the differences."""
    for is_explained, what in found:
        target = job.differences
        if is_explained:
            target = job.notes
        if what not in target:
            target.append(what)


def _compare_pod(job: V1Job, role: Role, index: int, new: Document) -> Found:
    old, pod = role.pod, section(new, "spec")
    yield from _fields(
        role, "", without(old, "containers", "restartPolicy"), without(pod, "containers", "restartPolicy")
    )
    about = section(role.template, "metadata")
    for part in ("labels", "annotations"):
        for path, before, after in differences(section(about, part), section(new, "metadata", part)):
            if before is not None:
                yield False, f"{role.name}: {part}.{path}: {shown(before)} became {shown(after)}"
    made: dict[str, Document] = {}
    for container in mappings(pod.get("containers")):
        made[text(container.get("name"))] = container
    main = main_container(old, job.framework)
    own = _variables_of_v1(job, role, index)
    for container in mappings(old.get("containers")):
        name = text(container.get("name"))
        if container is main and name not in made:
            name = NODE
        other = made.get(name, {})
        named = without(container, "name", "env")
        for words in ("command", "args"):
            if words in named:
                named[words] = [with_new_hosts(job, word) for word in listed(named[words])]
        yield from _fields(role, f"{name}.", named, without(other, "name", "env"))
        before, after = {**_values(container, index), **own}, _values(other, role.first + index)
        yield from _variables(job, before, after, is_main=container is main)
        if container is main and job.document["kind"] == "PyTorchJob":
            yield from _processes(job, container, after)


def _processes(job: V1Job, container: Document, new: dict[str, str]) -> Found:
    """Yield how many processes torchrun starts on a node, if that differs or is not known. new: The variables of the new Pod."""
    spec, now = section(job.document, "spec"), new.get("PET_NPROC_PER_NODE", "")
    words = " ".join(map(str, [*listed(container.get("command")), *listed(container.get("args"))]))
    is_torchrun = not container.get("command") or re.search(r"torchrun|torch\.distributed\.(run|launch)", words)
    if not is_torchrun or re.search(r"--nproc[-_]per[-_]node", words):
        return
    given = str(spec.get("nprocPerNode", section(spec, "elasticPolicy").get("nProcPerNode", "auto")))
    has_gpus = any("gpu" in str(name) for name in section(container, "resources", "limits"))
    if given.isdigit() or given == now or (has_gpus and given in ("auto", "gpu")):
        return
    if now == "auto":
        now = "one for each GPU"
    starts = f"nprocPerNode {given}: torchrun starts a process for each CPU of the machine, with Trainer {now}"
    if given == "gpu":
        starts = f"nprocPerNode gpu without GPUs: torchrun ends with an error, with Trainer it starts {now}"
    yield not has_gpus, starts


def _variables_of_v1(job: V1Job, role: Role, index: int) -> dict[str, str]:
    """Return the variables that the controller of v1 adds to all containers of a Pod."""
    if job.document["kind"] == "MPIJob":
        return {}
    rank = index
    for other in job.roles[: job.roles.index(role)]:
        if not job.has_replicated_jobs:
            rank += other.replicas

    def host(of: Role, place: int) -> str:
        return f"{name_of(job.document)}-{of.name.lower()}-{place}"

    return {**_UNBUFFERED, **controller_variables(job.document, job.roles, role, host, str(rank))}


def _fields(role: Role, path: str, old: Document, new: Document) -> Found:
    """Yield the fields that differ. What Trainer adds to a list, such as volumes for the keys of MPI, has a reason."""
    for name in dict.fromkeys([*old, *new]):
        before, after = _completed(name, old.get(name)), _completed(name, new.get(name))
        if before == after or (name == "resources" and _amounts(before) == _amounts(after)):
            continue
        rest = [*listed(after)]
        for each in listed(before):
            if each in rest:
                rest.remove(each)
        if name == "ports" and _without_names(before) == _without_names(after):
            yield True, f"{role.name}: {path}ports: Trainer sets port 29500, without a name"
            continue
        if isinstance(after, list) and len(rest) + len(listed(before)) == len(after):
            if name != "ports":
                yield True, f"{role.name}: {path}{name}: Trainer adds {', '.join(map(_name_in_list, rest))}"
            continue
        yield False, f"{role.name}: {path}{name}: {shown(before)} became {shown(after)}"


def _completed(name: str, value: Any) -> Any:
    """Return a field without what servers add: the protocol of ports, empty resources; None for an empty one."""
    if name == "initContainers":
        containers = list[Document]()
        for each in mappings(value):
            resources = _amounts(each.get("resources")) or None
            containers.append({**without(each, "resources"), "resources": resources})
        return containers or None
    if name == "ports":
        return [
            without(port, "protocol") if port.get("protocol") == "TCP" else port for port in mappings(value)
        ] or None
    return value or None


def _without_names(ports: Any) -> list[Document]:
    """Return ports without the name of the one that Trainer sets for torchrun."""
    return [without(port, "name") if port.get("containerPort") == 29500 else port for port in mappings(ports)]


def _name_in_list(item: Any) -> str:
    """Return the name of an item of a list."""
    return text(section({"": item}, "").get("name"))


def _amounts(value: Any) -> Any:
    """Return quantities as the API server prints them."""
    if isinstance(value, dict):
        return {name: _amounts(each) for name, each in value.items()}
    if isinstance(value, (int, str)):
        return canonical(value)
    return value


def _values(container: Document, index: int) -> dict[str, str]:
    """Return the values of the variables of a container; a value from elsewhere as JSON, the number of the Pod as such."""
    found: dict[str, str] = {}
    for variable in mappings(container.get("env")):
        value = variable.get("value", "")
        if "job-completion-index" in text(section(variable, "valueFrom", "fieldRef").get("fieldPath")):
            value = index
        elif "valueFrom" in variable:
            value = json.dumps(variable["valueFrom"], sort_keys=True)
        found[text(variable.get("name"))] = str(value)
    return found


def _variables(job: V1Job, old: dict[str, str], new: dict[str, str], *, is_main: bool) -> Found:
    """Yield the variables that differ."""
    for name in dict.fromkeys([*old, *new]):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if name in _UNBUFFERED and after is None:
            yield True, _LATE
        elif _OF_POLICIES.match(name):
            yield True, f"{name.partition('_')[0]}_*: the variables of the launcher are those of Trainer"
        elif not is_main and after is None:
            yield True, f"{name} is only set in the container that trains"
        elif name in _ADDRESSES and with_new_hosts(job, before) == after:
            yield True, f"{name} has the names of the new Pods"
        elif job.document["kind"] == "PyTorchJob" and name in _OF_TORCHRUN and after is None:
            yield True, f"{name} is set by torchrun for each process"
        else:
            yield False, f"env {name}: {shown(before)} became {shown(after)}"


def _compare_restarts(job: V1Job, role: Role, new: Document) -> Found:
    """Yield the rules for failed Pods that differ."""
    restart, limit = section(new, "template", "spec").get("restartPolicy"), new.get("backoffLimit")
    wanted, most = "OnFailure", job.policy.get("backoffLimit")
    if role.restart in ("Never", "ExitCode"):
        wanted = "Never"
    if role.restart == "Never":
        most = 0
    if (restart or "OnFailure") != wanted:
        yield False, f"{role.name}: restartPolicy {role.restart} became {restart}"
    if limit != most:
        yield False, f"{role.name}: backoffLimit {most} became {limit}"
    if role.restart == "ExitCode" and "podFailurePolicy" not in new:
        yield False, f"{role.name}: restartPolicy ExitCode: no exit code is final"


def _compare_endings(job: V1Job, jobset: Document, train_job: Document) -> Found:
    """Yield the rules of the run policy, and the labels, that differ."""
    ends, stays = "activeDeadlineSeconds", "ttlSecondsAfterFinished"
    for name, after in ((ends, section(train_job, "spec").get(ends)), (stays, section(jobset, "spec").get(stays))):
        if job.policy.get(name) != after:
            yield False, f"{name}: {job.policy.get(name)} became {after}"
    for path, before, after in differences(labels_of(job.document), labels_of(train_job)):
        yield False, f"labels.{path}: {shown(before)} became {shown(after)}"
