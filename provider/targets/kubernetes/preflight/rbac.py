"""Owns the table of permissions that a cluster has to grant, and renders the RBAC objects that grant them.

Previews check these permissions, `pulumi-trainer rbac` prints them, and tests run with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pulumi_trainer.provider.jobs.identity import short_digest
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kueue.api_resources import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    COHORT,
    LOCAL_QUEUE,
    MULTIKUEUE_CLUSTER,
    MULTIKUEUE_CONFIG,
    PENDING_IN_CLUSTER_QUEUE,
    PENDING_IN_LOCAL_QUEUE,
    QUEUE_PRIORITY,
    RESOURCE_FLAVOR,
    TOPOLOGY,
    WORKLOAD,
)
from pulumi_trainer.provider.kueue.configuration import CONFIGMAP
from pulumi_trainer.provider.kueue.objects import GROUP, KINDS, NAMESPACED, NEWEST
from pulumi_trainer.provider.trainer.kinds import (
    CLUSTER_RUNTIME,
    JOBSET,
    POD_GROUP,
    TRAIN_JOB,
    TRAINING_RUNTIME,
    VOLCANO_POD_GROUP,
)

Document = dict[str, Any]
Mode = Literal["jobset", "trainer"]

NAME = "pulumi-trainer"
"""Name of the Role and the ClusterRole."""
IDENTITY = "kube-system"
"""The namespace whose UID is a cluster's identity."""
_GROUP = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Permission:
    """A permission.

    Args:
        names: The only objects that it is about; empty for all.
        helps: Whether only reports have less detail without it, and no operation fails.
    """

    kind: Kind
    verbs: tuple[str, ...]
    why: str
    subresource: str = ""
    names: tuple[str, ...] = ()
    helps: bool = False
    everywhere: bool = False

    @property
    def rule(self) -> Document:
        resource = self.kind.plural
        if self.subresource:
            resource = f"{resource}/{self.subresource}"
        rule = {"apiGroups": [self.kind.group], "resources": [resource]}
        if self.names:
            rule["resourceNames"] = list(self.names)
        return {**rule, "verbs": list(self.verbs)}


def job_permissions(mode: Mode = "jobset", *, queues: bool = True) -> list[Permission]:
    """Return all permissions that jobs of a mode may need."""
    table = [*_TABLE]
    table += _TRAINER if mode == "trainer" else _JOBSET
    if queues:
        table += _QUEUES
    return sorted(table, key=lambda permission: permission.everywhere)


def quota_permissions() -> list[Permission]:
    """Return the permissions that show all of Kueue's queues to the users of some."""
    return list(_QUOTAS)


def output_permissions() -> list[Permission]:
    """Return the permissions to copy outputs out of their volumes."""
    return list(_OUTPUTS)


def queue_admin_permissions() -> list[Permission]:
    """Return the permissions to manage queues, in all namespaces."""
    return list(_QUEUE_ADMIN)


def usage_permissions() -> list[Permission]:
    """Return the permissions to report on the jobs and queues of all namespaces."""
    return list(_USAGE)


def doctor_permissions() -> list[Permission]:
    """Return the permissions to compare the state of a stack with a cluster, in all namespaces."""
    return list(_DOCTOR)


def _may(verbs: str, kind: Kind, why: str, **more: Any) -> Permission:
    return Permission(kind, tuple(verbs.split()), why, **more)


_TABLE = (
    _may(
        "get list watch create patch delete", kinds.CONFIG_MAP, "up, destroy and refresh: a job's record and its code"
    ),
    _may("get create patch delete", kinds.SECRET, "up and destroy: secret values of a job, MPI's keys"),
    _may("list watch", kinds.JOB, "status: steps, restarts, and which of them has failed"),
    _may("create", kinds.JOB, "up: removes the output of runs that are too old (keep_runs); else it stays", helps=True),
    _may("list watch", kinds.POD, "status and logs: what pods wait for, and how they have ended"),
    _may("get", kinds.POD, "logs, and the last lines of what has failed", subresource="log"),
    _may("create", kinds.POD, "preview: whether Pod Security admits the Pods (a dry run, nothing is made)", helps=True),
    _may("list watch", kinds.EVENT, "why and events: what controllers and the scheduler report", helps=True),
    _may("get list create patch delete", kinds.CLAIM, "up and destroy: volumes of outputs, datasets and models"),
    _may("get", kinds.SERVICE_ACCOUNT, "preview: whether the one that pods name is there", helps=True),
    _may("get", kinds.NAMESPACE, "preview: whether the namespace is there", helps=True),
    _may("get", kinds.NAMESPACE, "everything: which cluster this is", names=(IDENTITY,), everywhere=True),
    _may("get", kinds.PRIORITY_CLASS, "preview: whether the one that pods name is there", helps=True, everywhere=True),
    _may(
        "get list",
        kinds.RUNTIME_CLASS,
        "preview: whether the one that pods name is there, and its overhead",
        helps=True,
        everywhere=True,
    ),
    _may("get list", kinds.RESOURCE_CLAIM_TEMPLATE, "preview: the devices that the job's pods claim", helps=True),
    _may("get list", kinds.RESOURCE_CLAIM, "preview: the devices that the job's pods share", helps=True),
    _may("list", kinds.DEVICE_CLASS, "preview: whether claimed devices are GPUs", helps=True, everywhere=True),
    _may("list", kinds.RESOURCE_QUOTA, "preview: whether the namespace has room for the job", helps=True),
    _may("list", kinds.LIMIT_RANGE, "preview: whether the namespace takes the job's pods", helps=True),
    _may("list", kinds.NETWORK_POLICY, "preview: whether the job's pods reach each other", helps=True),
    _may(
        "get list", kinds.STORAGE_CLASS, "preview: whether it can do what a volume needs", helps=True, everywhere=True
    ),
    _may(
        "list",
        kinds.NODE,
        "waiting: whether nodes were added, for which a gang is woken; preview: whether one takes the job's pods",
        helps=True,
        everywhere=True,
    ),
)
_JOBSET = (
    _may("get list watch create patch delete", JOBSET, "up, destroy and refresh: the job itself"),
    _may("get list", TRAIN_JOB, "logs, why, and destroy: whether a JobSet belongs to a TrainJob"),
    _may("get list create patch delete", POD_GROUP, "up, why and destroy: gangs of the scheduler plugins"),
    _may("watch", POD_GROUP, "waiting: what a gang of the scheduler plugins waits for", helps=True),
    _may("get create patch", VOLCANO_POD_GROUP, "up and why: gangs of Volcano"),
    _may("list watch", VOLCANO_POD_GROUP, "waiting: what a gang of Volcano waits for", helps=True),
)
_TRAINER = (
    _may("get list watch create patch delete", TRAIN_JOB, "up, destroy and refresh: the job itself"),
    _may("get list watch", JOBSET, "status: what Trainer has made of a job"),
    _may("get list", POD_GROUP, "why: what a gang of the scheduler plugins waits for"),
    _may("watch patch", POD_GROUP, "waiting: the same, and to wake it when nodes were added", helps=True),
    _may("get", VOLCANO_POD_GROUP, "why: what a gang of Volcano waits for"),
    _may("list watch", VOLCANO_POD_GROUP, "waiting: the same", helps=True),
    _may("get create patch delete", TRAINING_RUNTIME, "up and destroy: TrainingRuntimes of the program"),
    _may(
        "get create patch delete", CLUSTER_RUNTIME, "up and destroy: ClusterTrainingRuntimes that it makes or names",
        everywhere=True,
    ),
    _may("list", TRAINING_RUNTIME, "doctor: runtimes that no state has", helps=True),
    _may("list", CLUSTER_RUNTIME, "doctor: runtimes that no state has", helps=True, everywhere=True),
)  # fmt: skip
_QUEUES = (
    _may("list watch", WORKLOAD, "status: what Kueue reports about a job that waits"),
    _may("get", LOCAL_QUEUE, "preview: whether the queue is there", helps=True),
    _may(
        "get", PENDING_IN_LOCAL_QUEUE, "status, why and preview: at which position of its queue a job waits",
        subresource="pendingworkloads", helps=True,
    ),
    _may("get", QUEUE_PRIORITY, "preview: whether the WorkloadPriorityClass is there", helps=True, everywhere=True),
)  # fmt: skip
_QUEUE_ADMIN = (
    _may("get", kinds.NAMESPACE, "everything: which cluster this is", names=(IDENTITY,), everywhere=True),
    *(
        _may(
            "get list watch create patch delete",
            Kind(f"{GROUP}/{NEWEST}", kind, plural, kind == NAMESPACED),
            "preview, up, destroy and refresh: these objects of the program",
            everywhere=True,
        )
        for kind, plural in KINDS.items()
    ),
    _may("list", WORKLOAD, "destroy: who has work in a ClusterQueue", everywhere=True),
    _may("get", kinds.CONFIG_MAP, "preview: the runs of the canaries of a channel", everywhere=True),
    _may("get", JOBSET, "preview: whether these have ended", everywhere=True),
    _may("get", kinds.NAMESPACE, "preview: whether the namespace of a team is there", helps=True, everywhere=True),
    *(
        _may("get create patch delete", kind, "preview, up and destroy: the rules of JobPolicy", everywhere=True)
        for kind in (kinds.ADMISSION_POLICY, kinds.ADMISSION_POLICY_BINDING)
    ),
)
_OUTPUTS = (
    _may("create get delete", kinds.POD, "outputs --copy: the pod that mounts the volume"),
    _may("create get", kinds.POD, "outputs --copy: to read the files through it", subresource="exec"),
)
_QUOTAS = (
    *(
        _may("list", kind, why, helps=True, everywhere=True)
        for kind, why in (
            (WORKLOAD, "queues: who holds quota and who waits, in all namespaces"),
            (LOCAL_QUEUE, "queues: the queues of all namespaces"),
            (CLUSTER_QUEUE, "queues: quotas and what is used; preview: whether a job ever fits"),
            (COHORT, "queues and preview: what cohorts add to quotas"),
            (RESOURCE_FLAVOR, "preview: whether a flavor is for the job's pods"),
            (TOPOLOGY, "preview: whether a flavor has the level that a job asks for"),
            (ADMISSION_CHECK, "preview: whether what a queue names is there, and whether it sends jobs to other clusters"),
            (MULTIKUEUE_CONFIG, "preview: to which clusters a queue sends jobs"),
            (MULTIKUEUE_CLUSTER, "status and why: whether Kueue reaches the cluster to which it has sent a job"),
        )
    ),
    _may(
        "get", PENDING_IN_CLUSTER_QUEUE, "queues: at which positions jobs wait", subresource="pendingworkloads", helps=True,
        everywhere=True,
    ),
    _may(
        "get", kinds.CONFIG_MAP, "preview: which jobs Kueue manages, and how it counts devices", names=(CONFIGMAP,),
        helps=True, everywhere=True,
    ),
)  # fmt: skip
_USAGE = tuple(
    _may(verbs, kind, why, helps=kind not in (kinds.CONFIG_MAP, JOBSET), everywhere=True)
    for verbs, kind, why in (
        ("list watch", kinds.CONFIG_MAP, "usage -A and exporter: the records of jobs"),
        ("list watch", JOBSET, "usage -A and exporter: which jobs run"),
        ("list watch", TRAIN_JOB, "exporter: what the training has reported to Trainer"),
        ("list watch", WORKLOAD, "usage -A and exporter: when Kueue has admitted a job, and for how long jobs wait"),
        ("list watch", LOCAL_QUEUE, "usage -A and exporter: the team of a queue"),
        ("list watch", CLUSTER_QUEUE, "exporter: quotas and what is used; usage: flavors of a queue with one price"),
        ("list", RESOURCE_FLAVOR, "usage: prices of GPUs"),
        ("list watch", COHORT, "exporter: what cohorts add to quotas"),
    )
)

_DOCTOR = tuple(
    _may("list", kind, why, everywhere=True)
    for kind, why in (
        (kinds.CONFIG_MAP, "doctor: the records of jobs"),
        (JOBSET, "doctor: which jobs exist"),
        (TRAIN_JOB, "doctor: which jobs of mode trainer exist"),
        (kinds.CLAIM, "doctor: volumes that no state has"),
        (TRAINING_RUNTIME, "doctor: runtimes that no state has"),
        (CLUSTER_RUNTIME, "doctor: runtimes that no state has"),
        *(
            (Kind(f"{GROUP}/{NEWEST}", name, plural, name == NAMESPACED), "doctor: queues")
            for name, plural in KINDS.items()
        ),
    )
)


@dataclass(frozen=True)
class Subject:
    """A subject of a binding. kind: User, Group or ServiceAccount. namespace: Of a service account."""

    kind: str
    name: str
    namespace: str = ""

    @property
    def document(self) -> Document:
        if self.kind == "ServiceAccount":
            return {"kind": self.kind, "name": self.name, "namespace": self.namespace}
        return {"kind": self.kind, "name": self.name, "apiGroup": _GROUP}

    @property
    def binding(self) -> str:
        """The name of its bindings, unique for the subject: applying the bindings of one subject never changes those of
        another."""
        name = self.name
        if self.namespace:
            name = f"{self.namespace}:{name}"
        distinct = name.replace("/", "-").replace("%", "-")
        if distinct != name:
            distinct = f"{distinct}-{short_digest(name, 6)}"
        return f"{NAME}-{self.kind.lower()}-{distinct}"


def objects(
    permissions: Sequence[Permission],
    namespaces: Sequence[str],
    subjects: Sequence[Subject] = (),
    *,
    name: str = NAME,
    of: str = "",
) -> Iterator[Document]:
    """Yield a ClusterRole, a Role for each namespace, and their bindings to each of the subjects. of: The end of all their
    names. Roles that grant different rights have different names, so that applying one never takes away what another grants."""
    name += of
    metadata = {"name": name}
    cluster = [p for p in permissions if p.everywhere]
    yield {**_head("ClusterRole"), "metadata": metadata, "rules": _rules(cluster)}
    for namespace in namespaces:
        inside = [p for p in permissions if not p.everywhere]
        yield {**_head("Role"), "metadata": {**metadata, "namespace": namespace}, "rules": _rules(inside)}
    for subject in subjects:
        bound = {"name": f"{subject.binding}{of}"}
        yield {**_head("ClusterRoleBinding"), "metadata": bound, **_bound("ClusterRole", name, subject)}
        for namespace in namespaces:
            yield {
                **_head("RoleBinding"),
                "metadata": {**bound, "namespace": namespace},
                **_bound("Role", name, subject),
            }


def _rules(permissions: Iterable[Permission]) -> list[Document]:
    return [p.rule for p in permissions]


def _head(kind: str) -> Document:
    return {"apiVersion": f"{_GROUP}/v1", "kind": kind}


def _bound(kind: str, name: str, subject: Subject) -> Document:
    return {"roleRef": {"apiGroup": _GROUP, "kind": kind, "name": name}, "subjects": [subject.document]}
