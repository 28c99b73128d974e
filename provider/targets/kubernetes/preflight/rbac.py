"""What we may have to ask of a cluster: one table of permissions, and the RBAC objects that grant them.

The table is the only place: previews ask for what stands here, `pulumi-trainer rbac` prints it, tests run under it. Called by
`review` and by the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pulumi_trainer.provider.api.kinds import (
    CLUSTER_RUNTIME,
    JOBSET,
    POD_GROUP,
    TRAIN_JOB,
    TRAINING_RUNTIME,
    VOLCANO_POD_GROUP,
)
from pulumi_trainer.provider.kube.client import kinds
from pulumi_trainer.provider.kube.client.kinds import Kind
from pulumi_trainer.provider.kueue.objects import (
    GROUP,
    KINDS,
    NAMESPACED,
    NEWEST,
)
from pulumi_trainer.provider.kueue.resources import (
    ADMISSION_CHECK,
    CLUSTER_QUEUE,
    COHORT,
    LOCAL_QUEUE,
    MULTIKUEUE_CONFIG,
    QUEUE_PRIORITY,
    RESOURCE_FLAVOR,
    TOPOLOGY,
    WORKLOAD,
)
from pulumi_trainer.provider.lifecycle.identity import short_digest

Document = dict[str, Any]
Mode = Literal["jobset", "trainer"]

NAME = "pulumi-trainer"
"""Of the Role and the ClusterRole."""
IDENTITY = "kube-system"
"""The namespace whose UID is a cluster's identity."""
_GROUP = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Permission:
    """why: what fails without it. subresource: `log` of pods. names: of the only objects that it is about. helps: what is
    missing is only told less well; nothing that was asked for fails. everywhere: in the ClusterRole."""

    kind: Kind
    verbs: tuple[str, ...]
    why: str
    subresource: str = ""
    names: tuple[str, ...] = ()
    helps: bool = False
    everywhere: bool = False

    @property
    def rule(self) -> Document:
        """As a PolicyRule."""
        resource = f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural
        names = {"resourceNames": list(self.names)} if self.names else {}
        return {"apiGroups": [self.kind.group], "resources": [resource], **names, "verbs": list(self.verbs)}


def needed(mode: Mode = "jobset", *, queues: bool = True) -> list[Permission]:
    """All that jobs of a mode may need. queues: they are admitted by Kueue."""
    table = [*_TABLE, *(_TRAINER if mode == "trainer" else _JOBSET), *(_QUEUES if queues else ())]
    return sorted(table, key=lambda permission: permission.everywhere)


def quotas() -> list[Permission]:
    """What shows all of Kueue's queues to the users of some."""
    return list(_QUOTAS)


def queue_admin() -> list[Permission]:
    """All that a platform team's queues need, in all namespaces."""
    return list(_QUEUE_ADMIN)


def _may(verbs: str, kind: Kind, why: str, **more: Any) -> Permission:
    return Permission(kind, tuple(verbs.split()), why, **more)


_TABLE = (
    _may(
        "get list watch create patch delete", kinds.CONFIG_MAP, "up, destroy and refresh: a job's record and its code"
    ),
    _may("list create patch delete", kinds.SECRET, "up and destroy: secret values of a job, MPI's keys"),
    _may("list watch", kinds.JOB, "status: steps, restarts, and which of them has failed"),
    _may("list watch", kinds.POD, "status and logs: what pods wait for, and how they have ended"),
    _may("get", kinds.POD, "logs, and the last lines of what has failed", subresource="log"),
    _may("list watch", kinds.EVENT, "why and events: what controllers and the scheduler say", helps=True),
    _may("get list create patch delete", kinds.CLAIM, "up and destroy: volumes of outputs, datasets and models"),
    _may("get", kinds.SERVICE_ACCOUNT, "preview: whether the one that pods name is there", helps=True),
    _may("get", kinds.NAMESPACE, "preview: whether the namespace is there", helps=True),
    _may("get", kinds.NAMESPACE, "everything: which cluster this is", names=(IDENTITY,), everywhere=True),
    _may("get", kinds.PRIORITY_CLASS, "preview: whether the one that pods name is there", helps=True, everywhere=True),
    _may("get", kinds.RUNTIME_CLASS, "preview: whether the one that pods name is there", helps=True, everywhere=True),
    _may(
        "get list", kinds.STORAGE_CLASS, "preview: whether it can do what a volume needs", helps=True, everywhere=True
    ),
    _may(
        "list",
        kinds.NODE,
        "waiting: whether nodes were added, for which a gang is woken; preview: whether a queue's flavor has any",
        helps=True,
        everywhere=True,
    ),
)
_JOBSET = (
    _may("get list watch create patch delete", JOBSET, "up, destroy and refresh: the job itself"),
    _may("get list", TRAIN_JOB, "logs, why, and destroy: whether a TrainJob stands behind a JobSet"),
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
)  # fmt: skip
_QUEUES = (
    _may("list watch", WORKLOAD, "status: what Kueue says of a job that waits"),
    _may("get", LOCAL_QUEUE, "preview: whether the queue is there", helps=True),
    _may("get", QUEUE_PRIORITY, "preview: whether the WorkloadPriorityClass is there", helps=True, everywhere=True),
)
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
    _may("get", kinds.NAMESPACE, "preview: whether the namespace of a team is there", helps=True, everywhere=True),
)
_QUOTAS = tuple(
    _may("list", kind, why, helps=True, everywhere=True)
    for kind, why in (
        (WORKLOAD, "queues: who holds quota and who waits, in all namespaces"),
        (LOCAL_QUEUE, "queues: the queues of all namespaces"),
        (CLUSTER_QUEUE, "queues: quotas and what is used; preview: whether a job ever fits"),
        (COHORT, "queues and preview: what cohorts add to quotas"),
        (RESOURCE_FLAVOR, "preview: whether a flavor is for the job's pods"),
        (TOPOLOGY, "preview: whether a flavor has the level that a job asks for"),
        (
            ADMISSION_CHECK,
            "preview: whether what a queue names is there, and whether it sends jobs to other clusters",
        ),
        (MULTIKUEUE_CONFIG, "preview: to which clusters a queue sends jobs"),
    )
)


@dataclass(frozen=True)
class Subject:
    """kind: User, Group or ServiceAccount; namespace: of a service account."""

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
        """The name of its bindings, which no other subject has: applying those of one takes no rights from another."""
        name = f"{self.namespace}:{self.name}" if self.namespace else self.name
        allowed = name.replace("/", "-").replace("%", "-")
        distinct = allowed if allowed == name else f"{allowed}-{short_digest(name, 6)}"
        return f"{NAME}-{self.kind.lower()}-{distinct}"


def objects(
    permissions: Sequence[Permission],
    namespaces: Sequence[str],
    subjects: Sequence[Subject] = (),
    *,
    name: str = NAME,
    of: str = "",
) -> Iterator[Document]:
    """Yield a ClusterRole, a Role for each namespace, and their bindings to each of the subjects.

    Args:
        of: The end of all their names. Roles that grant different rights have different names, so that applying one never
            takes away what another grants.
    """
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
