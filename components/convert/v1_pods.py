"""Compares the Pods that the controllers of v1 make of a job with those of the TrainJob that takes its place.

Source: `setPodEnv` and `SetPodEnv` in https://github.com/kubeflow/training-operator/tree/v1.9.0/pkg/controller.v1
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pulumi_trainer.convert.proof import differences
from pulumi_trainer.convert.v1_jobs import INDEX, Role, V1Job, main_container, port_of
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    listed,
    mappings,
    name_of,
    number,
    section,
    text,
    without,
)
from pulumi_trainer.provider.kubernetes.values.quantity import canonical
from pulumi_trainer.provider.trainer.offline import Cluster
from pulumi_trainer.provider.trainer.pipeline.info import NODE
from pulumi_trainer.provider.trainer.releases import DEFAULT

_OF_POLICIES = re.compile(r"PET_|JAX_|DMLC_|OMPI_|PRTE_|TASK_INDEX$|POD_IP_DUMMY$")
"""Variables that Trainer or Training Operator set for their own launchers."""
_OF_TORCHRUN = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
_ADDRESSES = ("MASTER_ADDR", "WORKER_ADDRS", "COORDINATOR_ADDRESS", "PADDLE_MASTER", "TF_CONFIG")
_REMARKS = {
    "PYTHONUNBUFFERED": "Training Operator sets PYTHONUNBUFFERED=1; without it Python may print its output late",
}


def compare_pods(job: V1Job, runtime: Document, train_job: Document) -> None:
    """Note how the Pods of a TrainJob differ from those of the v1 job.

    Args:
        runtime: The runtime of the TrainJob, as the program declares it.
        train_job: The TrainJob, as the program declares it.
    """
    jobset = _rendered(job, runtime, train_job)
    if jobset is None:
        return
    replicated = {text(each.get("name")): each for each in mappings(section(jobset, "spec").get("replicatedJobs"))}
    expected: dict[str, int] = {}
    for role in job.roles:
        expected[role.job] = expected.get(role.job, 0) + role.replicas
        new = section(replicated.get(role.job), "template", "spec")
        for index in sorted({0, role.replicas - 1}):
            _note(job, _compare_pod(job, role, index, section(new, "template")))
        _note(job, _compare_restarts(job, role, new))
    for name, count in expected.items():
        new_count = number(section(replicated.get(name), "template", "spec").get("parallelism"), 1)
        if new_count != count:
            job.differences.append(f"{count} Pods became {new_count} of {name}")
    _note(job, _compare_endings(job, jobset, train_job))


def _rendered(job: V1Job, runtime: Document, train_job: Document) -> Document | None:
    """Return the JobSet of a TrainJob; None if it is refused, which is a difference."""
    cluster = Cluster("jobset", DEFAULT)
    for document in (runtime, train_job):
        result = cluster.apply(document)
        if result is None or not result.admitted:
            why = [str(error) for error in result.errors] if result else []
            job.differences.append(f"the {document['kind']} is refused: {'; '.join(why)}")
            return None
        objects = result.objects
    return next((each for each in objects if each["kind"] == "JobSet"), None)


def _note(job: V1Job, found: Iterator[tuple[bool, str]]) -> None:
    """Add each finding once: those with a reason to the notes, the others to the differences."""
    for is_explained, what in found:
        target = job.notes if is_explained else job.differences
        if what not in target:
            target.append(what)


def _compare_pod(job: V1Job, role: Role, index: int, new: Document) -> Iterator[tuple[bool, str]]:
    """Yield whether a difference has a reason, and the difference."""
    old, pod = role.pod, section(new, "spec")
    yield from _fields(role, "", without(old, "containers", "restartPolicy"), without(pod, "containers", "restartPolicy"))
    about = section(role.template, "metadata")
    for part in ("labels", "annotations"):
        for path, before, after in differences(section(about, part), section(new, "metadata", part)):
            if before is not None:
                yield False, f"{role.name}: {part}.{path}: {before!r} became {after!r}"
    main = main_container(old, job.framework)
    by_name = {text(each.get("name")): each for each in mappings(pod.get("containers"))}
    for container in mappings(old.get("containers")):
        other = by_name.get(text(container.get("name"))) or (by_name.get(NODE, {}) if container is main else {})
        yield from _fields(role, f"{container.get('name')}.", without(container, "name", "env"), without(other, "name", "env"))
        own = _v1_variables(job, role, index)
        yield from _variables(job, _values(container, own), _values(other, {}, role.first + index), is_main=container is main)


def _fields(role: Role, path: str, old: Document, new: Document) -> Iterator[tuple[bool, str]]:
    """Yield the fields that differ. What Trainer adds to a list, such as volumes for the keys of MPI, has a reason."""
    for name in dict.fromkeys([*old, *new]):
        before, after = old.get(name) or None, new.get(name) or None
        if before == after or (name == "resources" and _amounts(before) == _amounts(after)):
            continue
        added = [each for each in listed(after) if each not in listed(before)]
        if isinstance(after, list) and len(added) + len(listed(before)) == len(after):
            if name != "ports":
                yield True, f"{role.name}: {path}{name}: Trainer adds {', '.join(str(e.get('name')) for e in mappings(added))}"
            continue
        yield False, f"{role.name}: {path}{name}: {before!r} became {after!r}"


def _amounts(value: Any) -> Any:
    """Return quantities as the API server prints them."""
    if isinstance(value, dict):
        return {name: _amounts(each) for name, each in value.items()}
    if isinstance(value, (int, str)):
        return canonical(value)
    return value


def _values(container: Document, own: Document, index: int = 0) -> dict[str, str]:
    """Return the values of the variables of a container; a value from elsewhere as JSON, the number of the Pod as such."""
    found: dict[str, str] = {}
    for variable in mappings(container.get("env")):
        value = variable.get("value", "")
        if variable.get("valueFrom") == INDEX or _is_index(variable):
            value = str(index)
        elif "valueFrom" in variable:
            value = json.dumps(variable["valueFrom"], sort_keys=True)
        found[text(variable.get("name"))] = str(value)
    for name, value in own.items():
        found[name] = str(value)
    return {name: re.sub(r"\$\(TASK_INDEX\)", found.get("TASK_INDEX", ""), value) for name, value in found.items()}


def _is_index(variable: Document) -> bool:
    return "job-completion-index" in text(section(variable, "valueFrom", "fieldRef").get("fieldPath"))


def _variables(job: V1Job, old: dict[str, str], new: dict[str, str], *, is_main: bool) -> Iterator[tuple[bool, str]]:
    """Yield the variables that differ."""
    for name in dict.fromkeys([*old, *new]):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if name in _REMARKS and after is None:
            yield True, _REMARKS[name]
        elif _OF_POLICIES.match(name):
            yield True, f"{name.partition('_')[0]}_*: the variables of the launcher are those of Trainer"
        elif not is_main and after is None:
            yield True, f"{name} is not set in other containers than the one that trains"
        elif name in _ADDRESSES and after is not None:
            yield True, f"{name} has the names of the new Pods"
        elif job.document["kind"] == "PyTorchJob" and name in _OF_TORCHRUN and after is None:
            yield True, f"{name} is set by torchrun for each process"
        else:
            yield False, f"env {name}: {_shown(before)} became {_shown(after)}"


def _shown(value: str | None) -> str:
    return "nothing" if value is None else repr(value)


def _compare_restarts(job: V1Job, role: Role, new: Document) -> Iterator[tuple[bool, str]]:
    """Yield the rules for failed Pods that differ."""
    restart, limit = section(new, "template", "spec").get("restartPolicy"), new.get("backoffLimit")
    wanted = "Never" if role.restart in ("Never", "ExitCode") else "OnFailure"
    if (restart or "OnFailure") != wanted:
        yield False, f"{role.name}: restartPolicy {role.restart} became {restart}"
    most = 0 if role.restart == "Never" else job.policy.get("backoffLimit")
    if limit != most:
        yield False, f"{role.name}: backoffLimit {most} became {limit}"
    if role.restart == "ExitCode" and "podFailurePolicy" not in new:
        yield False, f"{role.name}: restartPolicy ExitCode: no exit code is final"


def _compare_endings(job: V1Job, jobset: Document, train_job: Document) -> Iterator[tuple[bool, str]]:
    """Yield the rules of the run policy that differ."""
    spec, policy = section(train_job, "spec"), job.policy
    new = {
        "activeDeadlineSeconds": spec.get("activeDeadlineSeconds"),
        "ttlSecondsAfterFinished": section(jobset, "spec").get("ttlSecondsAfterFinished"),
    }
    for name, after in new.items():
        if policy.get(name) != after:
            yield False, f"{name}: {policy.get(name)} became {after}"
    labels = section(job.document, "metadata", "labels")
    for path, before, after in differences(labels, section(train_job, "metadata", "labels")):
        yield False, f"labels.{path}: {before!r} became {after!r}"


def _v1_variables(job: V1Job, role: Role, index: int) -> Document:
    """Return the variables that the controller of v1 adds to the containers of a Pod."""
    kind, name, nodes = job.document["kind"], name_of(job.document), job.nodes
    port = str(port_of(main_container(job.roles[0].pod, job.framework), job.framework))
    first, own = job.roles[0].name.lower(), {"PYTHONUNBUFFERED": "1"}
    rank = str(sum(each.replicas for each in job.roles[: job.roles.index(role)]) + index)
    match kind:
        case "MPIJob":
            return {}
        case "PyTorchJob":
            return {**own, **_torch_variables(job, rank, port)}
        case "XGBoostJob":
            own |= {"MASTER_ADDR": f"{name}-master-0", "MASTER_PORT": port, "WORLD_SIZE": str(nodes), "RANK": rank}
            if nodes > 1:
                workers = ",".join(f"{name}-worker-{each}" for each in range(nodes - 1))
                own |= {"WORKER_PORT": str(port_of(main_container(job.roles[-1].pod, job.framework), job.framework))}
                own |= {"WORKER_ADDRS": workers}
            return own
        case "JAXJob":
            coordinator = {"COORDINATOR_ADDRESS": f"{name}-worker-0", "COORDINATOR_PORT": port}
            return {**own, **coordinator, "NUM_PROCESSES": str(nodes), "PROCESS_ID": rank}
        case "PaddleJob":
            own |= {"PADDLE_JOB_ID": name, "PADDLE_NNODES": str(nodes), "PADDLE_MASTER": f"{name}-{first}-0:{port}"}
            if first == "master":
                own["PADDLE_SERVER_NUM" if role.name == "Master" else "PADDLE_TRAINER_NUM"] = "1"
            return own
        case _:
            return own if nodes == 1 else {**own, "TF_CONFIG": _tf_config(job, role, index)}


def _torch_variables(job: V1Job, rank: str, port: str) -> Document:
    spec, name = section(job.document, "spec"), name_of(job.document)
    processes = str(spec.get("nprocPerNode", "auto"))
    made: Document = {"PET_NPROC_PER_NODE": processes, "PET_NNODES": str(job.nodes)}
    if job.roles[0].name == "Master":
        world = job.nodes * (int(processes) if processes.isdigit() else 1)
        made |= {"MASTER_ADDR": f"{name}-master-0", "MASTER_PORT": port, "WORLD_SIZE": str(world), "RANK": rank}
    return made


def _tf_config(job: V1Job, role: Role, index: int) -> str:
    cluster: dict[str, list[str]] = {}
    for each in job.roles:
        port = port_of(main_container(each.pod, job.framework), job.framework)
        start = f"{name_of(job.document)}-{each.name.lower()}"
        space = text(section(job.document, "metadata").get("namespace"))
        cluster[each.name.lower()] = [f"{start}-{number_}.{space}.svc:{port}" for number_ in range(each.replicas)]
    task: dict[str, Any] = {"type": role.name.lower(), "index": index}
    return json.dumps({"cluster": cluster, "task": task, "environment": "cloud"}, separators=(",", ":"))
