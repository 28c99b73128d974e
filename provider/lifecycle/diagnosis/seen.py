"""The documents of one job, cut down to what a diagnosis reads. Targets fill it, the other files of this folder read it.

Labels: https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/api/jobset/v1alpha2/jobset_types.go and
https://github.com/kubernetes-sigs/scheduler-plugins/blob/v0.34.7/apis/scheduling/v1alpha1/types.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pulumi_trainer.provider.api.labels import RECORD
from pulumi_trainer.provider.api.status import JobStatus
from pulumi_trainer.provider.kube.values.accessors import (
    Document,
    conditions,
    labels_of,
    name_of,
    number,
    rows,
    seconds,
    section,
    text,
    true,
)
from pulumi_trainer.provider.kueue.labels import QUEUE

JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
STEP = "jobset.sigs.k8s.io/replicatedjob-name"
ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
JOB_NAME = "batch.kubernetes.io/job-name"
COMPLETION = "batch.kubernetes.io/job-completion-index"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
GANGS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
"""Labels of a pod that name its PodGroup."""
GANG_NOTE = "scheduling.k8s.io/group-name"
"""Annotation of a pod that does so with Volcano."""

LONGEST = 1000
"""Characters of an event's message that are kept."""


@dataclass(frozen=True)
class Seen:
    """What a cluster shows of one job.

    workload: Kueue's for it, the newest. preemptor: the job that it had to make room for, as in "JobSet team/llama"; empty: none,
    or nobody has looked. cramped: why the nodes that there are never hold it where its topology wants it; empty likewise. pods:
    those that are there. gone: pods that had failed and have been deleted since. events: warnings about its objects.
    remembered: what its record says in case the job itself is no more; None: there is no record. awaited: the record was just
    made, and the job follows. another: the job is no more, and another one has its name. lines: pod -> the newest lines of its
    log, where somebody has fetched them. losses: what has become of its volumes that somebody has deleted, where somebody has
    looked. progress: the newest trainerStatus. unseen: plurals of kinds that this cluster does not have or that we may not read.
    """

    namespace: str
    name: str
    jobset: Document | None = None
    train_job: Document | None = None
    workload: Document | None = None
    preemptor: str = ""
    cramped: str = ""
    pod_group: Document | None = None
    jobs: Sequence[Document] = ()
    pods: Sequence[Document] = ()
    gone: Sequence[Document] = ()
    events: Sequence[Document] = ()
    remembered: JobStatus | None = None
    awaited: bool = False
    another: bool = False
    lines: Mapping[str, Sequence[str]] = field(default_factory=dict)
    losses: Sequence[str] = ()
    progress: Mapping[str, Any] | None = None
    unseen: frozenset[str] = frozenset()

    @cached_property
    def main(self) -> Document | None:
        """The job itself. A JobSet that Trainer's controller has made is none without its TrainJob."""
        if self.train_job is not None or "trainjobs" in self.unseen:
            return self.train_job if self.train_job is not None else self.jobset
        owners = rows(section(self.jobset, "metadata").get("ownerReferences"))
        return None if any(o.get("kind") == "TrainJob" and o.get("controller") for o in owners) else self.jobset

    @property
    def queue(self) -> str:
        """The LocalQueue that admits it; empty: none."""
        return text(labels_of(self.main).get(QUEUE)) or text(labels_of(self.jobset).get(QUEUE))

    @property
    def created(self) -> float:
        return born(self.main)

    @cached_property
    def steps(self) -> list[dict[str, Any]]:
        """The JobSet's replicatedJobs."""
        return rows(section(self.jobset, "spec").get("replicatedJobs"))

    @cached_property
    def live(self) -> list[Document]:
        """Pods that are not on their way out."""
        return [p for p in self.pods if not section(p, "metadata").get("deletionTimestamp")]

    def jobs_of(self, step: str) -> list[Document]:
        return [j for j in self.jobs if labels_of(j).get(STEP) == step]

    def warnings(self, kind: str, *reasons: str) -> list[Document]:
        """Events about objects of a kind, the newest first; of all reasons if none is given."""
        found = [
            e
            for e in self.events
            if section(e, "involvedObject").get("kind") == kind and (not reasons or e.get("reason") in reasons)
        ]
        return sorted(found, key=moment, reverse=True)

    def age(self, now: float) -> float:
        """Seconds since it was created."""
        return now - self.created if self.created else 0.0


def born(document: Document | None) -> float:
    return seconds(section(document, "metadata").get("creationTimestamp"))


def moment(event: Document) -> float:
    """When an event was last seen."""
    return max(
        seconds(section(event, "series").get("lastObservedTime")),
        *(seconds(event.get(field)) for field in ("lastTimestamp", "eventTime", "firstTimestamp")),
    )


def subject(event: Document) -> str:
    """The name of the object that an event is about."""
    return text(section(event, "involvedObject").get("name"))


def replicas_of(step: Document) -> int:
    return max(number(step.get("replicas"), 1), 0)


def pods_of(step: Document) -> int:
    """Pods of a step that run at the same time."""
    spec = section(step, "template", "spec")
    parallelism = number(spec.get("parallelism"), 1)
    return replicas_of(step) * min(parallelism, number(spec.get("completions"), parallelism))


def wanted_pods(job: Document) -> int:
    """Return how many pods a Job should have now: none while it is suspended and once it has ended."""
    spec, status = section(job, "spec"), section(job, "status")
    if spec.get("suspend") is True or any(true(conditions(job), type_) for type_ in ("Complete", "Failed")):
        return 0
    parallelism = number(spec.get("parallelism"), 1)
    left = number(spec.get("completions"), parallelism) - number(status.get("succeeded"))
    return max(min(parallelism, left), 0)


def lacks_pods(job: Document) -> bool:
    """Return whether a Job has fewer pods than it should have."""
    return number(section(job, "status").get("active")) < wanted_pods(job)


def lacks_jobs(seen: Seen) -> bool:
    """Return whether a step has fewer Jobs than replicas."""
    return any(len(seen.jobs_of(text(s.get("name")))) < replicas_of(s) for s in seen.steps)


def pod_name(pod: Document) -> str:
    return name_of(pod)


def gang_of(pod: Document) -> str:
    """The PodGroup that a pod belongs to; empty: none."""
    named = (text(labels_of(pod).get(label)) for label in GANGS)
    return next(filter(None, named), "") or text(section(pod, "metadata", "annotations").get(GANG_NOTE))


def waiting_gang(pods: Iterable[Document]) -> str:
    """The PodGroup of the first pod that has one and no node; empty: there is none."""
    return next((group for pod in pods if not node_of(pod) and (group := gang_of(pod))), "")


def of_coscheduling(pod: Document) -> bool:
    """Whether its PodGroup is one of the scheduler plugins, else of Volcano."""
    return any(labels_of(pod).get(label) for label in GANGS)


def node_of(pod: Document) -> str:
    return text(section(pod, "spec").get("nodeName"))


# --- what is kept of each document ------------------------------------------------------------------------------------------

_ALL: Any = None
_META = {
    "name": _ALL,
    "namespace": _ALL,
    "uid": _ALL,
    "creationTimestamp": _ALL,
    "deletionTimestamp": _ALL,
}
_OWNED = {**_META, "ownerReferences": [{"kind": _ALL, "name": _ALL, "uid": _ALL, "controller": _ALL}]}
_JOB_META = {**_OWNED, "finalizers": _ALL, "labels": _ALL, "annotations": {RECORD: _ALL}}
_CONDITION = {"type": _ALL, "status": _ALL, "reason": _ALL, "message": _ALL, "lastTransitionTime": _ALL}
_LABELS = dict.fromkeys((JOBSET_NAME, STEP, ATTEMPT, JOB_NAME, COMPLETION, JOB_INDEX, *GANGS, QUEUE), _ALL)
_ENDED = {"exitCode": _ALL, "signal": _ALL, "reason": _ALL, "message": _ALL, "startedAt": _ALL, "finishedAt": _ALL}
_STATE = {"waiting": {"reason": _ALL, "message": _ALL}, "running": {"startedAt": _ALL}, "terminated": _ENDED}
_CONTAINER = {
    "name": _ALL, "image": _ALL, "ready": _ALL, "restartCount": _ALL, "state": _STATE, "lastState": {"terminated": _ENDED},
}  # fmt: skip
_JOB_SPEC = {"parallelism": _ALL, "completions": _ALL, "backoffLimit": _ALL, "suspend": _ALL}
_CLAIMS = {"template": {"spec": {"volumes": [{"name": _ALL, "persistentVolumeClaim": {"claimName": _ALL}}]}}}

KEPT: dict[str, Any] = {
    "JobSet": {
        "metadata": _JOB_META,
        "spec": {
            "suspend": _ALL, "ttlSecondsAfterFinished": _ALL, "managedBy": _ALL,
            "failurePolicy": {"maxRestarts": _ALL},
            "replicatedJobs": [
                {"name": _ALL, "replicas": _ALL, "dependsOn": _ALL, "template": {"spec": {**_JOB_SPEC, **_CLAIMS}}},
            ],
        },
        "status": {
            "conditions": [_CONDITION], "restarts": _ALL, "restartsCountTowardsMax": _ALL, "terminalState": _ALL,
            "replicatedJobsStatus": _ALL,
        },
    },
    "TrainJob": {
        "metadata": _JOB_META,
        "spec": {"suspend": _ALL, "runtimeRef": _ALL, "managedBy": _ALL, "activeDeadlineSeconds": _ALL},
        "status": {"conditions": [_CONDITION], "trainerStatus": _ALL},
    },
    "Workload": {
        "metadata": _OWNED,
        "spec": {"queueName": _ALL, "active": _ALL, "priority": _ALL},
        "status": {
            "conditions": [_CONDITION], "admission": {"clusterQueue": _ALL}, "requeueState": _ALL,
            "admissionChecks": [{"name": _ALL, "state": _ALL, "message": _ALL}],
        },
    },
    "Job": {
        "metadata": {**_META, "labels": _LABELS},
        "spec": _JOB_SPEC,
        "status": {
            "active": _ALL, "ready": _ALL, "succeeded": _ALL, "failed": _ALL, "startTime": _ALL, "completionTime": _ALL,
            "conditions": [_CONDITION],
        },
    },
    "Pod": {
        "metadata": {**_META, "labels": _LABELS, "annotations": {GANG_NOTE: _ALL}},
        "spec": {"nodeName": _ALL, "schedulerName": _ALL},
        "status": {
            "phase": _ALL, "reason": _ALL, "message": _ALL, "startTime": _ALL, "conditions": [_CONDITION],
            "containerStatuses": [_CONTAINER], "initContainerStatuses": [_CONTAINER],
        },
    },
    "PodGroup": {
        "metadata": _OWNED,
        "spec": {"minMember": _ALL},
        "status": {"phase": _ALL, "running": _ALL, "conditions": [_CONDITION]},
    },
    "Event": {
        "metadata": {"name": _ALL},
        "involvedObject": {"kind": _ALL, "name": _ALL, "uid": _ALL},
        "type": _ALL, "reason": _ALL, "message": _ALL, "count": _ALL, "series": {"count": _ALL, "lastObservedTime": _ALL},
        "firstTimestamp": _ALL, "lastTimestamp": _ALL, "eventTime": _ALL,
    },
}  # fmt: skip
"""Kind -> the fields that a diagnosis reads; None: all below."""
_DULL = ("Initialized", "ContainersReady", "PodReadyToStartContainers")
"""Conditions of a pod that say nothing more than others."""


def keep(kind: str, document: Document) -> dict[str, Any]:
    """The fields of a document that a diagnosis reads. The kinds are those of `KEPT`."""
    kept: dict[str, Any] = _picked(document, KEPT[kind])
    if kind == "Event":
        kept["message"] = text(kept.get("message"))[:LONGEST]
    if kind == "Pod" and (status := kept.get("status")) and "conditions" in status:
        status["conditions"] = [c for c in status["conditions"] if c.get("type") not in _DULL]
    return kept


def _picked(value: Any, fields: Any) -> Any:
    if fields is None:
        return value
    if isinstance(fields, list):
        return [_picked(each, fields[0]) for each in value if isinstance(each, dict)] if isinstance(value, list) else []
    if not isinstance(value, Mapping):
        return {}
    return {name: _picked(value[name], inner) for name, inner in fields.items() if value.get(name) is not None}
