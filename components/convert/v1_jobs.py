"""Turns jobs of Training Operator v1 and MPI Operator into a TrainJob and its runtime."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from pulumi_trainer.convert.findings import Findings
from pulumi_trainer.convert.upgrade import PLACE, derived, hide_secrets
from pulumi_trainer.convert.v1_roles import (
    FRAMEWORKS,
    MPI_OPERATOR,
    Framework,
    Role,
    controller_variables,
    main_container,
    processes_of,
    read_roles,
    unread_fields,
)
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    labels_of,
    listed,
    mappings,
    name_of,
    number,
    only,
    section,
    text,
    without,
)
from pulumi_trainer.provider.kubernetes.values.wording import plural
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.trainer.admission.training_operator import KINDS
from pulumi_trainer.provider.trainer.labels import ANCESTOR, FRAMEWORK
from pulumi_trainer.provider.trainer.pipeline.info import NODE

INDEX = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
"""Source of a variable with the number of the Pod."""
LAST_FINAL_EXIT_CODE = 127
"""With restartPolicy ExitCode, containers that end with a higher exit code are restarted."""
_OF_TRAIN_JOB = ("command", "args", "env", "resources")
"""Fields of the container that the TrainJob sets."""
_SAME_RUNTIMES = ("torch-distributed", "jax-distributed", "xgboost-distributed")
"""Runtimes of the catalogue that add nothing to the Pods but the variables of their policy."""
_MULTIKUEUE = "kueue.x-k8s.io/multikueue"
_OPERATOR = "kubeflow.org/training-operator"


@dataclass
class V1Job(Findings):
    """A job of v1 and the documents that take its place.

    Attributes:
        runtime: Its runtime; None for that of the catalogue.
        comments: Argument of the TrainJob -> comments above it in the program.
    """

    document: Document
    roles: list[Role]
    runtime: Document | None
    train_job: Document
    comments: dict[str, list[str]] = field(default_factory=dict)

    @property
    def framework(self) -> Framework:
        """Return what the controller of its kind does."""
        found = FRAMEWORKS[self.document["kind"]]
        main = section(self.document, "spec").get("mainContainer")
        if self.document["kind"] == "MPIJob" and isinstance(main, str):
            return replace(found, container=main)
        return found

    @property
    def policy(self) -> Document:
        """Return its runPolicy, with the fields that older MPIJobs have in their spec."""
        spec = section(self.document, "spec")
        return {**only(spec, ("cleanPodPolicy", "backoffLimit")), **section(spec, "runPolicy")}

    @property
    def nodes(self) -> int:
        """Return the number of its Pods."""
        return sum(role.replicas for role in self.roles)

    @property
    def has_replicated_jobs(self) -> bool:
        """Return whether each role becomes a replicated job: the Pods of TensorFlow and of parameter servers know their role."""
        kind = self.document["kind"]
        return kind == "TFJob" or (kind == "PaddleJob" and self.roles[0].name == "Master")

    @property
    def training_role(self) -> Role:
        """Return the role whose container takes command and variables from the TrainJob."""
        if self.document["kind"] == "MPIJob":
            return self.roles[0]
        for role in self.roles:
            if role.name == "Worker":
                return role
        return self.roles[0]

    def host(self, role: Role, index: int) -> str:
        """Return the name of a new Pod in the DNS of its namespace."""
        name = name_of(self.document)
        return f"{name}-{role.job}-0-{role.first + index}.{name}"


def read_v1_job(document: Document) -> V1Job:
    """Return a job of v1 with the documents that take its place. Raises Invalid if its own webhook would refuse it."""
    document = copy.deepcopy(document)
    job = V1Job(document, read_roles(document), None, {})
    hide_secrets(document, _variables_of_train_job(job), job.notes)
    job.train_job = derived("TrainJob", document, (*PLACE, "labels", "annotations"))
    job.train_job["spec"] = {"runtimeRef": {"kind": "TrainingRuntime", "name": name_of(document)}, **_own_fields(job)}
    if document["kind"] == "MPIJob":
        spec = _mpi_runtime(job)
    elif job.has_replicated_jobs:
        spec = _runtime_of_roles(job)
    else:
        spec = _runtime_of_nodes(job)
    if spec:
        job.runtime = {**derived("TrainingRuntime", document, PLACE), "spec": spec}
    for framework in without(section(spec, "mlPolicy"), "numNodes"):
        section(job.runtime, "metadata")["labels"] = {FRAMEWORK: framework}
    job.differences += [f"{path} is not read" for path in unread_fields(document)]
    _rename_hosts(job)
    return job


def _variables_of_train_job(job: V1Job) -> Iterator[Document]:
    """Yield the variables that become those of the TrainJob; the others become part of the runtime."""
    for role in job.roles:
        one_for_all = not job.has_replicated_jobs and job.document["kind"] != "MPIJob"
        if role is job.training_role or one_for_all:
            yield from mappings(main_container(role.pod, job.framework).get("env"))


def _own_fields(job: V1Job) -> Document:
    """Return the fields of the TrainJob's spec that the run policy sets."""
    policy, made = job.policy, dict[str, Any]()
    if policy.get("activeDeadlineSeconds") is not None:
        made["activeDeadlineSeconds"] = policy["activeDeadlineSeconds"]
    if policy.get("suspend") and labels_of(job.document).get(QUEUE):
        job.notes.append("suspend is left out: Kueue suspends and resumes the job of a queue")
    elif policy.get("suspend"):
        made["suspend"] = policy["suspend"]
    if policy.get("managedBy") == _MULTIKUEUE:
        made["managedBy"] = _MULTIKUEUE
    elif policy.get("managedBy") not in (None, _OPERATOR):
        job.differences.append(f"spec.runPolicy.managedBy {policy['managedBy']}: a TrainJob has Trainer or MultiKueue")
    if policy.get("schedulingPolicy") is not None:
        _leave_out(
            job, "runtime", "schedulingPolicy", "give the runtime a pod_group_policy, or the job a queue of Kueue"
        )
    elif any(role.pod.get("schedulerName") for role in job.roles):
        _leave_out(
            job,
            "runtime",
            "the PodGroup that Training Operator can make",
            "give the runtime a pod_group_policy for a gang",
        )
    if policy.get("cleanPodPolicy") == "All":
        job.notes.append(
            "cleanPodPolicy All: finished Pods stay until the job is deleted, as by ttlSecondsAfterFinished"
        )
    elastic = section(job.document, "spec").get("elasticPolicy")
    if elastic is not None:
        bounds = section({"": elastic}, "")
        sizes = f"{bounds.get('minReplicas', '?')} to {bounds.get('maxReplicas', '?')} nodes"
        others = sorted(bounds.keys() - {"minReplicas", "maxReplicas", "nProcPerNode"})
        what = f"elasticPolicy ({', '.join([sizes, *others])})"
        _leave_out(job, "trainer", what, f"the job has {plural(job.nodes, 'node')} throughout")
    if section(job.document, "spec").get("enableDynamicWorker"):
        _leave_out(job, "trainer", "enableDynamicWorker", "TF_CONFIG names all Pods")
    return made


def _leave_out(job: V1Job, argument: str, what: str, instead: str) -> None:
    """Note what has no counterpart, in the summary and as a comment in the program."""
    job.notes.append(f"{what} is left out: {instead}")
    job.comments.setdefault(argument, []).append(f"{what} of the {job.document['kind']} is left out: {instead}.")


def _rename_hosts(job: V1Job) -> None:
    """Put the names of the new Pods into command, arguments and variables, and note those that have changed."""
    for document in filter(None, (job.train_job, job.runtime)):
        for holder, key in _places_of_words(document):
            new = with_new_hosts(job, holder[key])
            if new != holder[key]:
                holder[key] = new
                note = "host names of Pods in commands, arguments and variables became those of the new Pods"
                job.notes += [note] if note not in job.notes else []


def _places_of_words(document: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the places of commands, arguments and values of variables in a document, as an object and a key."""
    if isinstance(document, list):
        for each in document:
            yield from _places_of_words(each)
    for key, value in section({"": document}, "").items():
        if key in ("command", "args"):
            for place in range(len(listed(value))):
                yield value, place
        elif key == "env":
            for variable in mappings(value):
                if "value" in variable:
                    yield variable, "value"
        else:
            yield from _places_of_words(value)


def with_new_hosts(job: V1Job, words: Any) -> Any:
    """Return a text with the names of the new Pods in place of those of the v1 Pods; another value as it is."""
    if not isinstance(words, str):
        return words
    by_name = {role.name.lower(): role for role in job.roles}
    pattern = rf"(?<![\w-]){re.escape(name_of(job.document))}-({'|'.join(by_name)})-(\d+)(?![\w-])"
    return re.sub(pattern, lambda found: job.host(by_name[found[1]], int(found[2])), words)


def _runtime_of_nodes(job: V1Job) -> Document:
    """Return the spec of a runtime whose nodes are the Pods of all roles; empty if the catalogue's runtime does."""
    role = job.roles[-1]
    for other in job.roles[:-1]:
        role.first = other.replicas
        why = f"a TrainJob has one Pod template for all nodes, that of {role.name}"
        if other.template != role.template:
            job.differences.append(f"{other.name} and {role.name} have different Pods, but {why}")
        if other.restart != role.restart:
            restarts = f"{other.restart} of {other.name} became {role.restart}"
            job.differences.append(f"restartPolicy {restarts}: {why}")
    replicated = _training_job(job, role, job.nodes)
    spec = _template_spec(job, [replicated])
    pod = section(replicated, "template", "spec", "template")
    image = main_container(section(pod, "spec"), job.framework).get("image")
    catalogue = KINDS[job.document["kind"]].runtime
    bare = {"template": {"spec": {"containers": [{"name": NODE, "image": image}]}}}
    if replicated["template"]["spec"] == bare and len(spec) == 1 and catalogue in _SAME_RUNTIMES:
        job.train_job["spec"]["runtimeRef"] = {"kind": "ClusterTrainingRuntime", "name": catalogue}
        job.train_job["spec"]["trainer"]["image"] = image
        return {}
    return {"mlPolicy": dict(job.framework.policy), "template": {"spec": spec}}


def _training_job(job: V1Job, role: Role, nodes: int) -> Document:
    """Return the replicated job that trains, and give its command, variables and resources to the TrainJob."""
    template = copy.deepcopy(role.template)
    main = main_container(section(template, "spec"), job.framework)
    trainer = only(main, ("command", "args"))
    if main.get("resources"):
        trainer["resourcesPerNode"] = main["resources"]
    variables = [*listed(main.get("env")), *_variables(job, role, trainer)]
    if variables:
        trainer["env"] = variables
    trainer["numNodes"] = nodes
    if processes_of(job.document):
        trainer["numProcPerNode"] = processes_of(job.document)
    job.train_job["spec"]["trainer"] = trainer
    for name in _OF_TRAIN_JOB:
        main.pop(name, None)
    main["name"] = NODE
    return _replicated_job(job, role, template, ancestor="trainer")


def _template_spec(job: V1Job, replicated: list[Document]) -> Document:
    return {"replicatedJobs": replicated, **only(job.policy, ("ttlSecondsAfterFinished",))}


def _replicated_job(job: V1Job, role: Role, template: Document, *, ancestor: str = "") -> Document:
    """Return the replicated job of a role, with its rules for restarts."""
    inner: Document = {}
    pod, limit = section(template, "spec"), job.policy.get("backoffLimit")
    pod.pop("restartPolicy", None)
    if role.restart in ("Never", "ExitCode"):
        pod["restartPolicy"] = "Never"
    if role.restart == "Never":
        inner["backoffLimit"] = 0
    elif limit is not None:
        inner["backoffLimit"] = limit
    elif job.document["apiVersion"] != MPI_OPERATOR:
        why = "its Job fails after 6 failures, Training Operator restarts without a limit"
        job.notes.append(f"restarts of {role.name} are limited: {why}")
    if role.restart == "Always":
        job.notes.append(f"restartPolicy Always of {role.name} became OnFailure: a Pod that has succeeded stays so")
    if role.restart == "ExitCode":
        name = main_container(pod, job.framework)["name"]
        codes = [*range(1, LAST_FINAL_EXIT_CODE + 1)]
        rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "containerName": name, "values": codes}}
        inner["podFailurePolicy"] = {"rules": [rule]}
    made: Document = {"spec": {**inner, "template": template}}
    if ancestor:
        made["metadata"] = {"labels": {ANCESTOR: ancestor}}
    return {"name": role.job, "template": made}


def _variables(job: V1Job, role: Role, trainer: Document) -> Iterator[Document]:
    """Yield the variables of the v1 controller that the program may read, with the names of the new Pods as hosts."""
    if job.document["kind"] == "PyTorchJob" and _starts_torchrun(trainer):
        return
    for name, value in controller_variables(job.document, job.roles, role, job.host, INDEX).items():
        if isinstance(value, str):
            yield {"name": name, "value": value}
        else:
            yield {"name": name, "valueFrom": copy.deepcopy(value)}


def _starts_torchrun(trainer: Document) -> bool:
    """Return whether the command is torchrun, which sets the variables itself, and does not contain these."""
    words = " ".join(map(str, [*listed(trainer.get("command")), *listed(trainer.get("args"))]))
    is_torchrun = re.search(r"\btorchrun\b|torch\.distributed\.(run|launch)\b", words) is not None
    return is_torchrun and not re.search(r"\$[({]?(MASTER_ADDR|MASTER_PORT|WORLD_SIZE|RANK)\b", words)


def _runtime_of_roles(job: V1Job) -> Document:
    """Return the spec of a runtime with a replicated job for each role: their Pods get other variables."""
    trains, ends = job.training_role, job.training_role
    for role in job.roles:
        if role is not trains:
            role.job = role.name.lower()
        if role.name in ("Chief", "Master") and job.document["kind"] == "TFJob":
            ends = role
    made = list[Document]()
    for role in job.roles:
        if role is trains:
            made.append(_training_job(job, role, role.replicas))
            continue
        template = copy.deepcopy(role.template)
        main = main_container(section(template, "spec"), job.framework)
        main["env"] = [*listed(main.get("env")), *_variables(job, role, {})]
        replicated = _replicated_job(job, role, template)
        counts = {"parallelism": role.replicas, "completions": role.replicas, "completionMode": "Indexed"}
        replicated["template"]["spec"] = {**counts, **replicated["template"]["spec"]}
        made.append(replicated)
    spec = _template_spec(job, made)
    if len(job.roles) > 1:
        spec["successPolicy"] = {"operator": "All", "targetReplicatedJobs": [ends.job]}
    for_all = section(job.document, "spec").get("successPolicy") == "AllWorkers"
    if job.document["kind"] == "TFJob" and ends is trains and ends.replicas > 1 and not for_all:
        job.notes.append("the job succeeds when all workers have, not when worker 0 has")
    return {"mlPolicy": dict(job.framework.policy), "template": {"spec": spec}}


def _mpi_runtime(job: V1Job) -> Document:
    """Return the spec of a runtime with a launcher and nodes that it reaches by SSH."""
    spec = section(job.document, "spec")
    launcher, *workers = job.roles
    launcher.job = "launcher"
    policy: Document = {
        "numProcPerNode": number(spec.get("slotsPerWorker"), 1), "mpiImplementation": "OpenMPI",
        "sshAuthMountPath": text(spec.get("sshAuthMountPath")) or "/root/.ssh",
        "runLauncherAsNode": bool(spec.get("runLauncherAsWorker")),
    }  # fmt: skip
    if spec.get("mpiImplementation", "OpenMPI") != "OpenMPI":
        job.differences.append(f"mpiImplementation {spec['mpiImplementation']}: Trainer has OpenMPI only")
    made, nodes = list[Document](), int(policy["runLauncherAsNode"])
    for role in workers:
        _start_ssh_server(job, role)
        template = copy.deepcopy(role.template)
        main_container(section(template, "spec"), job.framework)["name"] = NODE
        made.append(_replicated_job(job, role, template))
        nodes += role.replicas
    last = _training_job(job, launcher, nodes or 1)
    resources = job.train_job["spec"]["trainer"].pop("resourcesPerNode", None)
    if resources:  # those of the TrainJob would be those of the workers too
        main_container(section(last, "template", "spec", "template", "spec"), job.framework)["resources"] = resources
    is_early = (
        job.document["apiVersion"] == MPI_OPERATOR and spec.get("launcherCreationPolicy") != "WaitForWorkersReady"
    )
    if workers and is_early:
        job.notes.append("the launcher starts when all workers are ready, not at once")
    if workers:
        last["dependsOn"] = [{"name": NODE, "status": "Ready"}]
    template_spec = _template_spec(job, [*made, last])
    template_spec["network"] = {"publishNotReadyAddresses": True}
    template_spec["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ["launcher"]}
    return {"mlPolicy": {"mpi": policy}, "template": {"spec": template_spec}}


def _start_ssh_server(job: V1Job, role: Role) -> None:
    """Give workers without a command that of MPI Operator, and note where it differs from Training Operator's."""
    role.template = copy.deepcopy(role.template)
    main = main_container(role.pod, job.framework)
    if not main.get("command"):
        main["command"] = ["/usr/sbin/sshd", "-De"]
    if job.document["apiVersion"] != MPI_OPERATOR:
        why = "Training Operator reaches them by kubectl exec"
        job.notes.append(f"mpirun reaches workers by SSH, so their image has to have an SSH server; {why}")
