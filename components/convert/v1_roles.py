"""Reads jobs of Training Operator v1 and MPI Operator: their roles, defaults, and the variables that their controllers add.

Source: https://github.com/kubeflow/training-operator/tree/v1.9.0/pkg (defaults, webhooks, and `setPodEnv` of each controller) and
https://github.com/kubeflow/mpi-operator/tree/v0.6.0/pkg
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.convert.upgrade import NO_NAME, check_place
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, mappings, name_of, number, section, text
from pulumi_trainer.provider.kubernetes.values.names import dns_1035_label
from pulumi_trainer.provider.trainer.admission.training_operator import KINDS
from pulumi_trainer.provider.trainer.pipeline.info import NODE

MPI_OPERATOR = "kubeflow.org/v2beta1"


@dataclass(frozen=True)
class Framework:
    """What the controller of a kind does.

    Attributes:
        container: Container that trains; the first one if empty, or if there is no such container.
        port_name: Name of the container's port at which the Pods meet.
        port: This port, if the container does not have one of that name.
        restart: Restart policy of roles without one.
        roles: Its roles; the first one present has rank 0.
        required: Role that a job must have; empty for none.
        policy: `mlPolicy` of the new runtime.
    """

    container: str
    port_name: str
    port: int
    restart: str
    roles: tuple[str, ...]
    policy: Mapping[str, Any]
    required: str = ""


_PLAIN = {"numNodes": 1}
"""`mlPolicy` without a framework: without any, Trainer would ignore the resources of a TrainJob."""
FRAMEWORKS = {
    "PyTorchJob": Framework("pytorch", "pytorchjob-port", 23456, "OnFailure", ("Master", "Worker"), {"torch": {}}),
    "TFJob": Framework(
        "tensorflow", "tfjob-port", 2222, "Never", ("Chief", "Master", "Worker", "PS", "Evaluator"), _PLAIN
    ),
    "XGBoostJob": Framework(
        "xgboost", "xgboostjob-port", 9999, "Never", ("Master", "Worker"), {"xgboost": {}}, "Master"
    ),
    "JAXJob": Framework("jax", "jaxjob-port", 6666, "Never", ("Worker",), {"jax": {}}),
    "PaddleJob": Framework("paddle", "master", 36543, "OnFailure", ("Master", "Worker"), _PLAIN),
    "MPIJob": Framework("", "", 0, "Never", ("Launcher", "Worker"), {"mpi": {}}, "Launcher"),
}
_MOST_PODS = 100_000
"""Pods of a role that are converted; the API accepts more."""
_ONE_POD = {"PyTorchJob": "Master", "XGBoostJob": "Master", "MPIJob": "Launcher"}
"""Kind -> its role with one Pod."""


@dataclass
class Role:
    """Pods of one role.

    Attributes:
        job: Replicated job of the new runtime with these Pods.
        first: Number of the first Pod in the replicated job.
    """

    name: str
    replicas: int
    template: Document
    restart: str
    job: str = NODE
    first: int = 0

    @property
    def pod(self) -> Document:
        """Return the spec of the Pods."""
        return section(self.template, "spec")


def read_roles(document: Document) -> list[Role]:
    """Return the roles of a job with the defaults of its controller. Raises Invalid with what its webhook refuses."""
    kind = document["kind"]
    framework, path = FRAMEWORKS[kind], f"spec.{KINDS[kind].replicas}"
    given = section(document, "spec", KINDS[kind].replicas)
    if not name_of(document):
        raise Invalid(Problem("metadata.name", "is missing", NO_NAME))
    problems = [Problem("metadata.name", why) for why in dns_1035_label(name_of(document))]
    if not given:
        problems.append(Problem(path, "must be required"))
    by_name = dict(zip(map(str.lower, framework.roles), framework.roles, strict=True))
    found: dict[str, Role] = {}
    for key, value in given.items():
        name = by_name.get(str(key).lower())
        if name is None:
            problems.append(Problem(f"{path}.{key}", f"unknown role (expected {', '.join(framework.roles)})"))
            continue
        role = section({"": value}, "")
        if role.get("replicas") == 0 and name != _ONE_POD.get(kind):
            continue
        problems += _role_problems(f"{path}.{key}", role, framework, is_single=_ONE_POD.get(kind) == name)
        restart = text(role.get("restartPolicy")) or _default_restart(document, name)
        found[name] = Role(name, number(role.get("replicas"), 1), section(role, "template"), restart)
    if given and framework.required and framework.required not in found:
        problems.append(Problem(f"{path}.{framework.required}", "must be present"))
    if kind == "PyTorchJob" and "elasticPolicy" in section(document, "spec") and "Worker" not in found:
        problems.append(Problem(f"{path}.Worker", "must be configured if elastic policy is used"))
    if problems:
        hint = f"its own webhook refuses this {kind}: correct it first"
        raise Invalid(*(Problem(p.where, p.why, hint) for p in problems))
    check_place(section(document, "metadata"))
    return [*filter(None, map(found.get, framework.roles))]


def _default_restart(document: Document, role: str) -> str:
    if role == "Launcher" and document["apiVersion"] == MPI_OPERATOR:
        return "OnFailure"
    return FRAMEWORKS[document["kind"]].restart


def _role_problems(path: str, role: Document, framework: Framework, *, is_single: bool) -> Iterator[Problem]:
    containers = mappings(section(role, "template", "spec").get("containers"))
    at, names = f"{path}.template.spec.containers", [""]
    if not containers:
        yield Problem(at, "must be specified")
    for index, container in enumerate(containers):
        names.append(text(container.get("name")))
        if not text(container.get("image")):
            yield Problem(f"{at}[{index}].image", "must be required")
    if containers and framework.container not in names:
        yield Problem(at, f"must have at least one container with name {framework.container}")
    replicas = number(role.get("replicas"), 1)
    if is_single and replicas != 1:
        yield Problem(f"{path}.replicas", "must be 1")
    elif not 1 <= replicas <= _MOST_PODS:
        yield Problem(f"{path}.replicas", f"must be 0 to {_MOST_PODS}")


def main_container(pod: Document, framework: Framework) -> Document:
    """Return the container of a Pod that trains."""
    containers = mappings(pod.get("containers"))
    for container in containers:
        if container.get("name") == framework.container:
            return container
    return containers[0]


def controller_variables(
    document: Document, roles: list[Role], role: Role, host: Callable[[Role, int], str], rank: Any
) -> dict[str, Any]:
    """Return the variables by which the Pods of a role find each other, as the controller of v1 sets them.

    Args:
        host: Returns the name of a Pod of a role in the DNS.
        rank: Number of the Pod among all Pods, or of TensorFlow among those of its role.
    """
    nodes, addresses = 0, dict[str, list[str]]()
    for each in roles:
        nodes += each.replicas
        addresses[each.name] = [host(each, index) for index in range(each.replicas)]
    framework = FRAMEWORKS[document["kind"]]
    first, port = roles[0].name, str(_port_of(roles[0], framework))
    address = addresses[first][0]
    match document["kind"]:
        case "PyTorchJob" if first == "Master":
            world = nodes * (processes_of(document) or 1)
            return {"MASTER_ADDR": address, "MASTER_PORT": port, "WORLD_SIZE": str(world), "RANK": rank}
        case "XGBoostJob":
            found = {"MASTER_ADDR": address, "MASTER_PORT": port, "WORLD_SIZE": str(nodes), "RANK": rank}
            if nodes > 1:
                found |= {
                    "WORKER_ADDRS": ",".join(addresses["Worker"]),
                    "WORKER_PORT": str(_port_of(roles[-1], framework)),
                }
            return found
        case "JAXJob":
            coordinator = {"COORDINATOR_ADDRESS": address, "COORDINATOR_PORT": port}
            return {**coordinator, "NUM_PROCESSES": str(nodes), "PROCESS_ID": rank}
        case "PaddleJob":
            found = {
                "PADDLE_JOB_ID": name_of(document), "PADDLE_NNODES": str(nodes), "PADDLE_MASTER": f"{address}:{port}",
            }  # fmt: skip
            if first == "Master":
                found[{"Master": "PADDLE_SERVER_NUM", "Worker": "PADDLE_TRAINER_NUM"}[role.name]] = "1"
            return found
        case "TFJob" if nodes > 1:
            return {"TASK_INDEX": rank, "TF_CONFIG": _tf_config(roles, role, addresses)}
    return {}


def _tf_config(roles: list[Role], role: Role, addresses: Mapping[str, list[str]]) -> str:
    """Return TF_CONFIG of a role; $(TASK_INDEX), which Kubernetes expands, stands for the number of the Pod."""
    cluster: dict[str, list[str]] = {}
    for each in roles:
        port = _port_of(each, FRAMEWORKS["TFJob"])
        cluster[each.name.lower()] = [f"{address}:{port}" for address in addresses[each.name]]
    task = f'{{"type":{json.dumps(role.name.lower())},"index":$(TASK_INDEX)}}'
    return f'{{"cluster":{json.dumps(cluster, separators=(",", ":"))},"task":{task},"environment":"cloud"}}'


def unread_fields(document: Document) -> Iterator[str]:
    """Yield the paths of fields that no conversion of these jobs reads."""
    kind, spec = document["kind"], section(document, "spec")
    replicas = KINDS[kind].replicas
    given = {"spec": (spec, {"runPolicy", replicas, *_OWN_FIELDS.get(kind, ())})}
    given["spec.runPolicy"] = (section(spec, "runPolicy"), _RUN_POLICY)
    for name, role in section(spec, replicas).items():
        given[f"spec.{replicas}.{name}"] = (section({"": role}, ""), {"replicas", "restartPolicy", "template"})
    for path, (fields, known) in given.items():
        for name in sorted(fields.keys() - known):
            yield f"{path}.{name}"


_RUN_POLICY = {
    "activeDeadlineSeconds", "backoffLimit", "cleanPodPolicy", "managedBy", "schedulingPolicy", "suspend",
    "ttlSecondsAfterFinished",
}  # fmt: skip
_OWN_FIELDS = {
    "PyTorchJob": ("elasticPolicy", "nprocPerNode"),
    "TFJob": ("enableDynamicWorker", "successPolicy"),
    "MPIJob": (
        "backoffLimit", "cleanPodPolicy", "launcherCreationPolicy", "mainContainer", "mpiImplementation", "runLauncherAsWorker",
        "slotsPerWorker", "sshAuthMountPath",
    ),
}  # fmt: skip
"""Kind -> further fields of its spec that are read."""


def processes_of(document: Document) -> int:
    """Return the processes of each node of a PyTorchJob; 0 if torchrun chooses their number."""
    spec = section(document, "spec")
    given = str(spec.get("nprocPerNode", section(spec, "elasticPolicy").get("nProcPerNode")))
    if given.isdigit():
        return int(given)
    return 0


def _port_of(role: Role, framework: Framework) -> int:
    """Return the port at which a role listens."""
    for port in mappings(main_container(role.pod, framework).get("ports")):
        if port.get("name") == framework.port_name:
            return number(port.get("containerPort"), framework.port)
    return framework.port
