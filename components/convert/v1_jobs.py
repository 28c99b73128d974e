"""Turns jobs of Training Operator v1 and MPI Operator into a TrainJob and its runtime.

Source: https://github.com/kubeflow/training-operator/tree/v1.9.0/pkg (defaults, webhooks, and what controllers add to Pods) and
https://github.com/kubeflow/mpi-operator/tree/v0.6.0/pkg
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pulumi_trainer.convert.upgrade import hide_secrets
from pulumi_trainer.plan.runtime_ref import API_VERSION
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    labels_of,
    listed,
    mappings,
    name_of,
    number,
    section,
    text,
)
from pulumi_trainer.provider.kubernetes.values.names import dns_1035_label
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.trainer.admission.training_operator import KINDS
from pulumi_trainer.provider.trainer.labels import ANCESTOR, FRAMEWORK
from pulumi_trainer.provider.trainer.pipeline.info import NODE

INDEX = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
"""Source of a variable with the number of the Pod."""
LAST_FINAL_EXIT_CODE = 127
"""With restartPolicy ExitCode, containers that end with a higher exit code are restarted."""
_MULTIKUEUE = "kueue.x-k8s.io/multikueue"


@dataclass(frozen=True)
class Framework:
    """What the controller of a kind does.

    Attributes:
        container: Container that trains.
        port: Port of the rendezvous, and the name of the container's port that sets another one.
        restart: Restart policy of roles without one.
        roles: Its roles; the first one present has rank 0. `first` is the name of a role that may have one Pod only.
        policy: `mlPolicy` of the new runtime.
    """

    container: str
    port_name: str
    port: int
    restart: str
    roles: tuple[str, ...]
    policy: Mapping[str, Any]
    required: str = ""
    single: tuple[str, ...] = ()


FRAMEWORKS = {
    "PyTorchJob": Framework(
        "pytorch", "pytorchjob-port", 23456, "OnFailure", ("Master", "Worker"), {"torch": {}}, single=("Master",)
    ),
    "TFJob": Framework(
        "tensorflow", "tfjob-port", 2222, "Never", ("Chief", "Master", "Worker", "PS", "Evaluator"), {}
    ),
    "XGBoostJob": Framework(
        "xgboost", "xgboostjob-port", 9999, "Never", ("Master", "Worker"), {"xgboost": {}}, "Master", ("Master",)
    ),
    "JAXJob": Framework("jax", "jaxjob-port", 6666, "Never", ("Worker",), {"jax": {}}),
    "PaddleJob": Framework("paddle", "master", 36543, "OnFailure", ("Master", "Worker"), {}),
    "MPIJob": Framework("", "", 0, "Never", ("Launcher", "Worker"), {"mpi": {}}, "Launcher", ("Launcher",)),
}


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


@dataclass
class V1Job:
    """A job of v1 and the documents that take its place.

    Attributes:
        notes: What differs, each with its reason.
        differences: What differs without a reason.
        comments: Argument of the TrainJob -> comments above it in the program.
    """

    document: Document
    roles: list[Role]
    runtime: Document | None
    train_job: Document
    notes: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    comments: dict[str, list[str]] = field(default_factory=dict)

    @property
    def framework(self) -> Framework:
        """Return what the controller of its kind does."""
        return FRAMEWORKS[self.document["kind"]]

    @property
    def policy(self) -> Document:
        """Return its runPolicy, with the fields that older MPIJobs have in their spec."""
        spec = section(self.document, "spec")
        return {
            **{name: spec[name] for name in ("cleanPodPolicy", "backoffLimit") if name in spec},
            **section(spec, "runPolicy"),
        }

    @property
    def nodes(self) -> int:
        """Return the number of its Pods."""
        return sum(role.replicas for role in self.roles)


def read_v1_job(document: Document) -> V1Job:
    """Return a job of v1 with the documents that take its place. Raises Invalid if its own webhook would refuse it."""
    document = copy.deepcopy(document)
    job = V1Job(document, _roles(document), None, {})
    hide_secrets(document, _variables_of_train_job(job), job.notes)
    about = section(document, "metadata")
    job.train_job = {
        "apiVersion": API_VERSION,
        "kind": "TrainJob",
        "metadata": {key: about[key] for key in ("name", "namespace", "labels", "annotations") if about.get(key)},
        "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": name_of(document)}, **_own_fields(job)},
    }
    spec: Document
    if document["kind"] == "MPIJob":
        spec = _mpi_runtime(job)
    elif _has_replicated_jobs(job):
        spec = _runtime_of_roles(job)
    else:
        spec = _runtime_of_nodes(job)
    if not spec:
        return job
    job.runtime = {
        "apiVersion": API_VERSION,
        "kind": "TrainingRuntime",
        "metadata": {key: about[key] for key in ("name", "namespace") if about.get(key)},
        "spec": spec,
    }
    for framework in spec.get("mlPolicy", {}):
        job.runtime["metadata"]["labels"] = {FRAMEWORK: framework}
    return job


def _roles(document: Document) -> list[Role]:
    """Return the roles of a job with the defaults of its controller. Raises Invalid with what its webhook refuses."""
    kind, name = document["kind"], name_of(document)
    framework, path = FRAMEWORKS[kind], f"spec.{KINDS[kind].replicas}"
    given = section(document, "spec", KINDS[kind].replicas)
    problems = [Problem("metadata.name", why) for why in dns_1035_label(name)]
    if not given:
        problems.append(Problem(path, "must be required"))
    by_name = {each.lower(): each for each in framework.roles}
    found = list[Role]()
    for key, value in given.items():
        role = by_name.get(str(key).lower())
        if role is None:
            problems.append(Problem(f"{path}.{key}", f"unknown role (expected {', '.join(framework.roles)})"))
            continue
        problems += _role_problems(f"{path}.{key}", section({"": value}, ""), framework, role)
        template = section(value, "template")
        restart = text(section({"": value}, "").get("restartPolicy")) or _default_restart(document, role)
        found.append(Role(role, number(section({"": value}, "").get("replicas"), 1), template, restart))
    if given and framework.required and framework.required not in [role.name for role in found]:
        problems.append(Problem(f"{path}.{framework.required}", "must be present"))
    if kind == "PyTorchJob" and "elasticPolicy" in section(document, "spec") and "worker" not in map(str.lower, given):
        problems.append(Problem(f"{path}.Worker", "must be configured if elastic policy is used"))
    if problems:
        hint = f"its own webhook refuses this {kind}: correct it first"
        raise Invalid(*(Problem(p.where, p.why, hint) for p in problems))
    return sorted(found, key=lambda role: framework.roles.index(role.name))


def _default_restart(document: Document, role: str) -> str:
    if role == "Launcher" and document["apiVersion"] == "kubeflow.org/v2beta1":
        return "OnFailure"
    return FRAMEWORKS[document["kind"]].restart


def _role_problems(path: str, role: Document, framework: Framework, name: str) -> Iterator[Problem]:
    containers = mappings(section(role, "template", "spec").get("containers"))
    at = f"{path}.template.spec.containers"
    if not containers:
        yield Problem(at, "must be specified")
    for index, container in enumerate(containers):
        if not text(container.get("image")):
            yield Problem(f"{at}[{index}].image", "must be required")
    if containers and framework.container not in ("", *(each.get("name") for each in containers)):
        yield Problem(at, f"must have at least one container with name {framework.container}")
    replicas = number(role.get("replicas"), 1)
    if name in framework.single and replicas != 1:
        yield Problem(f"{path}.replicas", "must be 1")
    elif replicas < 1:
        yield Problem(f"{path}.replicas", "must be at least 1")


def main_container(pod: Document, framework: Framework) -> Document:
    """Return the container of a Pod that trains."""
    containers = mappings(pod.get("containers"))
    return next((each for each in containers if each.get("name") == framework.container), containers[0])


def _variables_of_train_job(job: V1Job) -> Iterator[Document]:
    """Yield the variables that become those of the TrainJob; the others become part of the runtime."""
    trains = job.roles
    if job.document["kind"] == "MPIJob":
        trains = job.roles[:1]
    elif _has_replicated_jobs(job):
        trains = [_training_role(job)]
    for role in trains:
        yield from mappings(main_container(role.pod, job.framework).get("env"))


def _training_role(job: V1Job) -> Role:
    """Return the role whose Pods are the nodes of the TrainJob, if each role is a replicated job."""
    return next((role for role in job.roles if role.name == "Worker"), job.roles[0])


def _own_fields(job: V1Job) -> Document:
    """Return the fields of the TrainJob's spec that the run policy sets."""
    policy, made = job.policy, dict[str, Any]()
    if policy.get("activeDeadlineSeconds") is not None:
        made["activeDeadlineSeconds"] = policy["activeDeadlineSeconds"]
    if policy.get("suspend") is not None and labels_of(job.document).get(QUEUE):
        job.notes.append("suspend is left out: Kueue suspends and resumes the job of a queue")
    elif policy.get("suspend"):
        made["suspend"] = policy["suspend"]
    if policy.get("managedBy") == _MULTIKUEUE:
        made["managedBy"] = _MULTIKUEUE
    if policy.get("schedulingPolicy") is not None:
        _leave_out(job, "runtime", "schedulingPolicy", "give the runtime a pod_group_policy, or the job a queue of Kueue")
    if policy.get("cleanPodPolicy") == "All":
        job.notes.append("cleanPodPolicy All: finished Pods stay until the job is deleted; ttlSecondsAfterFinished deletes it")
    elastic = section(job.document, "spec").get("elasticPolicy")
    if elastic is not None:
        bounds = section({"": elastic}, "")
        sizes = f"{bounds.get('minReplicas', '?')} to {bounds.get('maxReplicas', '?')} nodes"
        _leave_out(job, "trainer", f"elasticPolicy ({sizes})", f"the job has {job.nodes} nodes throughout")
    return made


def _leave_out(job: V1Job, argument: str, what: str, instead: str) -> None:
    """Note what has no counterpart, in the summary and as a comment in the program."""
    job.notes.append(f"{what} has no counterpart: {instead}")
    job.comments.setdefault(argument, []).append(f"{what[0].upper()}{what[1:]} of the {job.document['kind']} has no counterpart: {instead}.")


def _has_replicated_jobs(job: V1Job) -> bool:
    """Return whether each role becomes a replicated job: the Pods of TensorFlow and of parameter servers know their role."""
    kind = job.document["kind"]
    return kind == "TFJob" or (kind == "PaddleJob" and job.roles[0].name == "Master")


def _runtime_of_nodes(job: V1Job) -> Document:
    """Return the spec of a runtime whose nodes are the Pods of all roles; empty if the catalogue's runtime does."""
    role = job.roles[-1]
    for other in job.roles[:-1]:
        other.job, role.first = NODE, other.replicas
        if other.template != role.template or other.restart != role.restart:
            why = f"a TrainJob has one Pod template for all nodes, that of {role.name}"
            job.differences.append(f"{other.name} and {role.name} have different Pods, but {why}")
    template = copy.deepcopy(role.template)
    main = main_container(section(template, "spec"), job.framework)
    trainer = _trainer(job, main)
    trainer["numNodes"] = job.nodes
    trainer["env"] = [*listed(main.pop("env", None)), *_variables(job, main, trainer)]
    for name in ("command", "args", "resources"):
        main.pop(name, None)
    main["name"] = NODE
    if not trainer["env"]:
        del trainer["env"]
    job.train_job["spec"]["trainer"] = trainer
    replicated = _replicated_job(job, role, template, ancestor="trainer")
    spec: Document = {"replicatedJobs": [replicated]}
    if job.policy.get("ttlSecondsAfterFinished") is not None:
        spec["ttlSecondsAfterFinished"] = job.policy["ttlSecondsAfterFinished"]
    bare: Document = {"template": {"spec": {"containers": [{"name": NODE, "image": main.get("image")}]}}}
    catalogue = KINDS[job.document["kind"]].runtime
    if replicated["template"]["spec"] == bare and len(spec) == 1 and job.framework.policy:
        trainer["image"] = main.get("image")
        job.train_job["spec"]["runtimeRef"] = {"kind": "ClusterTrainingRuntime", "name": catalogue}
        return {}
    made: Document = {"template": {"spec": spec}}
    if job.framework.policy:
        made = {"mlPolicy": dict(job.framework.policy), **made}
    return made


def _trainer(job: V1Job, main: Document) -> Document:
    """Return what the TrainJob takes over from the container that trains."""
    trainer = {name: main[name] for name in ("command", "args") if main.get(name)}
    if main.get("resources"):
        trainer["resourcesPerNode"] = main["resources"]
    spec = section(job.document, "spec")
    processes = spec.get("nprocPerNode", section(spec, "elasticPolicy").get("nProcPerNode"))
    if str(processes).isdigit():
        trainer["numProcPerNode"] = int(str(processes))
    elif job.document["kind"] == "PyTorchJob":
        job.notes.append(
            f"nprocPerNode {processes or 'auto'}: torchrun starts a process for each GPU of a node, else for each CPU, in both"
        )
    return trainer


def _replicated_job(job: V1Job, role: Role, template: Document, *, ancestor: str = "") -> Document:
    """Return the replicated job of a role, with its rules for restarts."""
    inner: Document = {}
    pod = section(template, "spec")
    limit = job.policy.get("backoffLimit")
    restart = role.restart
    pod.pop("restartPolicy", None)
    if restart in ("Never", "ExitCode"):
        pod["restartPolicy"] = "Never"
    if restart == "Never":
        inner["backoffLimit"] = 0
    elif limit is not None:
        inner["backoffLimit"] = limit
    elif job.document["apiVersion"] == "kubeflow.org/v1":
        job.notes.append(f"restarts of {role.name} are limited: its Job fails after 6 failures, Training Operator restarts for ever")
    if restart == "Always":
        job.notes.append(f"restartPolicy Always of {role.name} became OnFailure: a Pod of a Job that has succeeded stays so")
    if restart == "ExitCode":
        codes = {"operator": "In", "containerName": main_container(pod, job.framework)["name"], "values": [*range(1, LAST_FINAL_EXIT_CODE + 1)]}
        inner["podFailurePolicy"] = {"rules": [{"action": "FailJob", "onExitCodes": codes}]}
    job_template: Document = {"spec": {**inner, "template": template}}
    if ancestor:
        job_template["metadata"] = {"labels": {ANCESTOR: ancestor}}
    return {"name": role.job, "template": job_template}


def _variables(job: V1Job, main: Document, trainer: Document) -> list[Document]:
    """Return the variables of the v1 controller that the program may read, with the names of the new Pods as hosts."""
    kind, nodes = job.document["kind"], job.nodes
    hosts = [host(job, NODE, index) for index in range(nodes)]
    port = str(port_of(main, job.framework))
    named: dict[str, Any] = {}
    if kind == "PyTorchJob" and job.roles[0].name == "Master" and not _starts_torchrun(trainer):
        world = nodes * trainer.get("numProcPerNode", 1)
        named = {"MASTER_ADDR": hosts[0], "MASTER_PORT": port, "WORLD_SIZE": str(world), "RANK": INDEX}
    elif kind == "XGBoostJob":
        named = {"MASTER_ADDR": hosts[0], "MASTER_PORT": port, "WORLD_SIZE": str(nodes), "RANK": INDEX}
        if nodes > 1:
            named |= {"WORKER_ADDRS": ",".join(hosts[1:]), "WORKER_PORT": port}
    elif kind == "JAXJob":
        named = {
            "COORDINATOR_ADDRESS": hosts[0], "COORDINATOR_PORT": port, "NUM_PROCESSES": str(nodes), "PROCESS_ID": INDEX,
        }  # fmt: skip
    elif kind == "PaddleJob":
        named = {"PADDLE_JOB_ID": name_of(job.document), "PADDLE_NNODES": str(nodes), "PADDLE_MASTER": f"{hosts[0]}:{port}"}
    return [_variable(name, value) for name, value in named.items()]


def _variable(name: str, value: Any) -> Document:
    if isinstance(value, str):
        return {"name": name, "value": value}
    return {"name": name, "valueFrom": copy.deepcopy(value)}


def _starts_torchrun(trainer: Document) -> bool:
    """Return whether the command is torchrun, which sets the variables itself, and does not contain these."""
    words = " ".join(map(str, [*listed(trainer.get("command")), *listed(trainer.get("args"))]))
    is_torchrun = re.search(r"\btorchrun\b|torch\.distributed\.(run|launch)\b", words) is not None
    return is_torchrun and not re.search(r"\$[({]?(MASTER_ADDR|MASTER_PORT|WORLD_SIZE|RANK)\b", words)


def host(job: V1Job, replicated_job: str, index: int) -> str:
    """Return the name of a Pod in the DNS of its namespace."""
    name = name_of(job.document)
    return f"{name}-{replicated_job}-0-{index}.{name}"


def port_of(container: Document, framework: Framework) -> int:
    """Return the port at which the nodes meet."""
    for port in mappings(container.get("ports")):
        if port.get("name") == framework.port_name:
            return number(port.get("containerPort"), framework.port)
    return framework.port


def _runtime_of_roles(job: V1Job) -> Document:
    """Return the spec of a runtime with a replicated job for each role: their Pods get other variables."""
    trains = _training_role(job)
    made = list[Document]()
    for role in job.roles:
        role.job = NODE if role is trains else role.name.lower()
    for role in job.roles:
        template = copy.deepcopy(role.template)
        main = main_container(section(template, "spec"), job.framework)
        own = _variables_of_role(job, role)
        if role is trains:
            trainer = {**_trainer(job, main), "numNodes": role.replicas}
            trainer["env"] = [*listed(main.pop("env", None)), *own]
            job.train_job["spec"]["trainer"] = trainer
            main["name"] = NODE
            for name in ("command", "args", "resources"):
                main.pop(name, None)
            made.append(_replicated_job(job, role, template, ancestor="trainer"))
            continue
        main["env"] = [*listed(main.get("env")), *own]
        replicated = _replicated_job(job, role, template)
        replicated["template"]["spec"] = {
            "parallelism": role.replicas, "completions": role.replicas, "completionMode": "Indexed",
            **replicated["template"]["spec"],
        }  # fmt: skip
        made.append(replicated)
    spec: Document = {"replicatedJobs": made}
    ends = next((role for role in job.roles if role.name in ("Chief", "Master")), trains)
    if len(job.roles) > 1:
        spec["successPolicy"] = {"operator": "All", "targetReplicatedJobs": [ends.job]}
    if job.document["kind"] == "TFJob" and ends is trains and ends.replicas > 1:
        job.notes.append("the job succeeds when all workers have, not when worker 0 has")
    if job.policy.get("ttlSecondsAfterFinished") is not None:
        spec["ttlSecondsAfterFinished"] = job.policy["ttlSecondsAfterFinished"]
    return {"template": {"spec": spec}}


def _variables_of_role(job: V1Job, role: Role) -> list[Document]:
    """Return the variables of the Pods of a role of TensorFlow, or of Paddle's parameter servers."""
    cluster: dict[str, list[str]] = {}
    for each in job.roles:
        port = port_of(main_container(each.pod, job.framework), job.framework)
        cluster[each.name.lower()] = [f"{host(job, each.job, index)}:{port}" for index in range(each.replicas)]
    if job.document["kind"] == "PaddleJob":
        count = {"Master": "PADDLE_SERVER_NUM", "Worker": "PADDLE_TRAINER_NUM"}[role.name]
        named: dict[str, Any] = {
            "PADDLE_JOB_ID": name_of(job.document), "PADDLE_NNODES": str(job.nodes),
            "PADDLE_MASTER": cluster["master"][0], count: "1",
        }  # fmt: skip
    elif job.nodes == 1:
        return []
    else:
        task = f'{{"type":{json.dumps(role.name.lower())},"index":$(TASK_INDEX)}}'
        clusters = json.dumps(cluster, separators=(",", ":"))
        named = {"TASK_INDEX": INDEX, "TF_CONFIG": f'{{"cluster":{clusters},"task":{task},"environment":"cloud"}}'}
    return [_variable(name, value) for name, value in named.items()]


def _mpi_runtime(job: V1Job) -> Document:
    """Return the spec of a runtime with a launcher and nodes that it reaches by SSH."""
    spec = section(job.document, "spec")
    launcher = job.roles[0]
    launcher.job = "launcher"
    _start_ssh_servers(job)
    policy: Document = {
        "numProcPerNode": number(spec.get("slotsPerWorker"), 1), "mpiImplementation": "OpenMPI",
        "sshAuthMountPath": text(spec.get("sshAuthMountPath")) or "/root/.ssh",
        "runLauncherAsNode": bool(spec.get("runLauncherAsWorker")),
    }  # fmt: skip
    if spec.get("mpiImplementation", "OpenMPI") != "OpenMPI":
        job.differences.append(f"mpiImplementation {spec['mpiImplementation']}: Trainer has OpenMPI only")
    made, nodes = list[Document](), 0
    for role in reversed(job.roles):
        template = copy.deepcopy(role.template)
        main = main_container(section(template, "spec"), job.framework)
        main["name"] = NODE
        if role is launcher:
            trainer = {name: main.pop(name) for name in ("command", "args", "env") if main.get(name)}
            replicated = _replicated_job(job, role, template, ancestor="trainer")
            if nodes:
                replicated["dependsOn"] = [{"name": NODE, "status": "Ready"}]
        else:
            nodes = role.replicas
            replicated = _replicated_job(job, role, template)
        made.append(replicated)
    job.train_job["spec"]["trainer"] = {**trainer, "numNodes": nodes + policy["runLauncherAsNode"] or 1}
    template_spec: Document = {
        "network": {"publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": ["launcher"]},
        "replicatedJobs": made,
    }
    if job.policy.get("ttlSecondsAfterFinished") is not None:
        template_spec["ttlSecondsAfterFinished"] = job.policy["ttlSecondsAfterFinished"]
    return {"mlPolicy": {"mpi": policy}, "template": {"spec": template_spec}}


def _start_ssh_servers(job: V1Job) -> None:
    """Give workers without a command that of MPI Operator, and note where it differs from Training Operator's."""
    for role in job.roles[1:]:
        role.template = copy.deepcopy(role.template)
        main = main_container(role.pod, job.framework)
        if not main.get("command"):
            main["command"] = ["/usr/sbin/sshd", "-De"]
        if job.document["apiVersion"] == "kubeflow.org/v1":
            why = "Training Operator reaches them by kubectl exec"
            job.notes.append(f"mpirun reaches workers by SSH, so their image has to have an SSH server; {why}")


def share_runtimes(jobs: list[V1Job]) -> list[Document]:
    """Return the runtimes of jobs, one for all jobs of a namespace whose runtimes are equal."""
    shared = list[Document]()
    for job in jobs:
        if job.runtime is None:
            continue
        namespace = job.runtime["metadata"].get("namespace")
        same = next(
            (e for e in shared if e["spec"] == job.runtime["spec"] and e["metadata"].get("namespace") == namespace), None
        )
        if same is None:
            shared.append(job.runtime)
            continue
        job.runtime = same
        job.train_job["spec"]["runtimeRef"]["name"] = name_of(same)
    return shared


def note_host_names(job: V1Job) -> None:
    """Note the names of the v1 Pods in command, arguments and variables, which the new Pods do not have."""
    roles = "|".join(role.lower() for role in job.framework.roles)
    pattern = re.compile(rf"{re.escape(name_of(job.document))}-(?:{roles})-\d+")
    for found in sorted(set(pattern.findall(json.dumps([role.template for role in job.roles])))):
        role, _, index = found.removeprefix(f"{name_of(job.document)}-").rpartition("-")
        place = next((each for each in job.roles if each.name.lower() == role), job.roles[0])
        new = host(job, place.job, place.first + int(index))
        _leave_out(job, "trainer", f"host name {found}", f"the Pod is {new} now")
