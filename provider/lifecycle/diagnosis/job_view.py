"""Collects the documents of one job, trimmed to the fields that a diagnosis reads.

Labels: https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/api/jobset/v1alpha2/jobset_types.go and
https://github.com/kubernetes-sigs/scheduler-plugins/blob/v0.34.7/apis/scheduling/v1alpha1/types.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pulumi_trainer.provider.jobs.attempts import Attempt
from pulumi_trainer.provider.jobs.checkpoints import CHECKPOINT_DIR
from pulumi_trainer.provider.jobs.metrics import Metrics
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.jobs.usage import USER
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.schema.node_fit import NoNode
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    conditions,
    epoch_seconds,
    labels_of,
    mappings,
    name_of,
    number,
    section,
    text,
    true_condition,
)
from pulumi_trainer.provider.kubernetes.views import ReplicatedJob, completions, jobs_of
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.kueue.topology_fit import TooSmall
from pulumi_trainer.provider.kueue.workload_reasons import Flavors
from pulumi_trainer.provider.trainer.labels import JOBSET_NAME, RECORD, trainer_step

STEP = "jobset.sigs.k8s.io/replicatedjob-name"
ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
JOB_NAME = "batch.kubernetes.io/job-name"
COMPLETION = "batch.kubernetes.io/job-completion-index"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
POD_GROUP_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
"""Labels of a pod that name its PodGroup."""
POD_GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
"""Annotation of a pod that names its PodGroup with Volcano."""

LONGEST = 1000
"""Characters of an event's message that are stored."""


@dataclass(frozen=True)
class JobView:
    """What a cluster shows of one job.

    Args:
        preemptor: The job that preempted it, such as "team/llama (high)"; empty if none, or not known.
        no_fit: Why the cluster's nodes can never fit its topology request; None if they can, or not looked up.
        no_node: Why no node takes its pods, even an empty one; None if one does, or not looked up.
        unbound: Why a claim of pods without a node is not bound; None if all are, or not looked up.
        queue_inactive: Why its ClusterQueue takes no jobs; empty if it does, or not looked up.
        queue_flavors, peer, turn: As `Waiting.flavors` and so on.
        gone: Failed pods that have been deleted since.
        recorded: The status in its record, for a job whose objects are gone; None if it has no record.
        awaited: The record was just created, and the job follows.
        another: The job is gone, and another one has its name.
        lines: Pod -> the last lines of its log, if fetched.
        losses: What was lost with volumes that were deleted externally, if looked up.
        metrics: The metrics in the logs of rank 0, as far as these were read.
        steps_done: The steps in the newest log of rank 0, as an attempt that begins with its container; None if no log was read
            from its start.
        logs_before: Number of logs of rank 0 before it that were read from their start.
        cluster: Worker cluster of MultiKueue to which the job was sent; empty if it runs in its own cluster.
        attempts: Its attempts as they were observed before; those of `recorded` if it is None.
        left: Of a job that is gone: which worker clusters of MultiKueue run it, or may run it.
        worker_fault: Why its Pods in that cluster are not known, or which worker cluster is lost; None if nothing is wrong.
        unreadable: Plurals of kinds that the cluster does not have or that the user may not read.
        record_fault: What is not valid in its record; else empty.
    """

    namespace: str
    name: str
    jobset: Document | None = None
    train_job: Document | None = None
    workload: Document | None = None
    preemptor: str = ""
    no_fit: TooSmall | None = None
    no_node: NoNode | None = None
    unbound: Problem | None = None
    queue_inactive: str = ""
    queue_flavors: Flavors | None = None
    peer: Document | None = None
    turn: bool = False
    pod_group: Document | None = None
    jobs: Sequence[Document] = ()
    pods: Sequence[Document] = ()
    gone: Sequence[Document] = ()
    events: Sequence[Document] = ()
    recorded: JobStatus | None = None
    awaited: bool = False
    another: bool = False
    lines: Mapping[str, Sequence[str]] = field(default_factory=dict)
    override: str = ""
    losses: Sequence[str] = ()
    progress: Mapping[str, Any] | None = None
    metrics: Metrics | None = None
    steps_done: Attempt | None = None
    logs_before: int = 0
    cluster: str = ""
    attempts: Sequence[Attempt] | None = None
    left: Sequence[str] = ()
    worker_fault: Problem | None = None
    unreadable: frozenset[str] = frozenset()
    record_fault: str = ""

    @property
    def remarks(self) -> list[str]:
        """What its message says beside its phase: what was lost, and what is not valid in its record."""
        return [*self.losses, *filter(None, [self.record_fault])]

    @cached_property
    def main(self) -> Document | None:
        """The TrainJob or JobSet that is the job. A JobSet of a deleted TrainJob is not a job."""
        if self.train_job is not None:
            return self.train_job
        owners = mappings(section(self.jobset, "metadata").get("ownerReferences"))
        of_train_job = any(o.get("kind") == "TrainJob" and o.get("controller") for o in owners)
        if of_train_job and "trainjobs" not in self.unreadable:
            return None
        return self.jobset

    @property
    def queue(self) -> str:
        """The LocalQueue that admits the job; empty if it has none."""
        return text(labels_of(self.main).get(QUEUE)) or text(labels_of(self.jobset).get(QUEUE))

    @property
    def created(self) -> float:
        return created_at(self.main)

    @cached_property
    def steps(self) -> list[ReplicatedJob]:
        return jobs_of(self.jobset)

    @cached_property
    def trainer_step(self) -> str:
        """The step that trains; empty without a JobSet."""
        if not self.steps:
            return ""
        return trainer_step(self.jobset or {})

    @cached_property
    def live(self) -> list[Document]:
        """Pods that are not being deleted."""
        return [p for p in self.pods if not section(p, "metadata").get("deletionTimestamp")]

    def jobs_of(self, step: str) -> list[Document]:
        return [j for j in self.jobs if labels_of(j).get(STEP) == step]

    def pods_of(self, step: str) -> list[Document]:
        return [p for p in self.pods if labels_of(p).get(STEP) == step]

    @property
    def restarts(self) -> int:
        """How often JobSet has restarted the job: the number of the newest attempt."""
        return number(section(self.jobset, "status").get("restarts"))

    def of_attempt(self, restart: int) -> JobView:
        """Return the view with the pods of one attempt, and those that name none. restart: Restarts before the attempt."""
        return replace(self, pods=of_attempt(self.pods, restart), gone=of_attempt(self.gone, restart))

    def warnings(self, kind: str, *reasons: str) -> list[Document]:
        """Return the events about objects of a kind, the newest first; of all reasons if none is given."""
        found = [e for e in self.events if section(e, "involvedObject").get("kind") == kind]
        if reasons:
            found = [e for e in found if e.get("reason") in reasons]
        return sorted(found, key=last_observed, reverse=True)

    def age(self, now: float) -> float:
        """Return the seconds since the job was created."""
        if not self.created:
            return 0.0
        return now - self.created


def of_attempt(documents: Sequence[Document], restart: int) -> list[Document]:
    """Return the pods or Jobs of one attempt, and those that name none. restart: Restarts before the attempt."""
    return [each for each in documents if text(labels_of(each).get(ATTEMPT)) in ("", str(restart))]


def created_at(document: Document | None) -> float:
    """Return the creation time in seconds since the epoch; 0 if unknown."""
    return epoch_seconds(section(document, "metadata").get("creationTimestamp"))


def last_observed(event: Document) -> float:
    """Return when an event was last observed."""
    return max(
        epoch_seconds(section(event, "series").get("lastObservedTime")),
        *(epoch_seconds(event.get(field)) for field in ("lastTimestamp", "eventTime", "firstTimestamp")),
    )


def subject(event: Document) -> str:
    """Return the name of the object that an event is about."""
    return text(section(event, "involvedObject").get("name"))


def expected_pods(job: Document) -> int:
    """Return how many pods a Job should have now: none while it is suspended and once it has ended."""
    spec, status = section(job, "spec"), section(job, "status")
    has_ended = any(true_condition(conditions(job), type_) for type_ in ("Complete", "Failed"))
    if spec.get("suspend") is True or has_ended:
        return 0
    parallelism = number(spec.get("parallelism"), 1)
    return max(min(parallelism, (completions(spec) or 0) - number(status.get("succeeded"))), 0)


def start_times(documents: Sequence[Document]) -> list[float]:
    """Return when Pods or Jobs started, as far as they have."""
    starts = [epoch_seconds(section(each, "status").get("startTime")) for each in documents]
    return [*filter(None, starts)]


def lacks_pods(job: Document) -> bool:
    """Return whether a Job has fewer pods than it should have."""
    return number(section(job, "status").get("active")) < expected_pods(job)


def lacks_jobs(view: JobView) -> bool:
    """Return whether a step has fewer Jobs than replicas."""
    return any(len(view.jobs_of(text(s.name))) < (s.replicas or 0) for s in view.steps)


def pod_name(pod: Document) -> str:
    return name_of(pod)


def node_index(pod: Document) -> str:
    """Return the index of a pod in its step: of the pod in its Job, or of its Job in the step."""
    found = labels_of(pod)
    return max(text(found.get(COMPLETION)), text(found.get(JOB_INDEX)), "0", key=lambda index: (len(index), index))


def pod_group_of(pod: Document) -> str:
    """Return the PodGroup that a pod belongs to; empty if it has none."""
    for label in POD_GROUP_LABELS:
        name = text(labels_of(pod).get(label))
        if name:
            return name
    return text(section(pod, "metadata", "annotations").get(POD_GROUP_ANNOTATION))


def waiting_pod_group(pods: Iterable[Document]) -> str:
    """Return the PodGroup of the first pod that has one and no node; empty if not found."""
    for pod in pods:
        group = pod_group_of(pod)
        if group and not node_of(pod):
            return group
    return ""


def is_coscheduled(pod: Document) -> bool:
    """Return whether a pod's PodGroup belongs to the scheduler plugins, otherwise to Volcano."""
    return any(map(labels_of(pod).get, POD_GROUP_LABELS))


def node_of(pod: Document) -> str:
    return text(section(pod, "spec").get("nodeName"))


# --- the stored fields of each kind -------------------------------------------------------------------------------------------

_ALL: Any = None
_META = {"name": _ALL, "namespace": _ALL, "uid": _ALL, "creationTimestamp": _ALL, "deletionTimestamp": _ALL}
_OWNED = {**_META, "ownerReferences": [{"kind": _ALL, "name": _ALL, "uid": _ALL, "controller": _ALL}]}
_JOB_META = {**_OWNED, "finalizers": _ALL, "labels": _ALL, "annotations": {RECORD: _ALL, USER: _ALL}}
_CONDITION = {"type": _ALL, "status": _ALL, "reason": _ALL, "message": _ALL, "lastTransitionTime": _ALL}
_LABELS = dict.fromkeys((JOBSET_NAME, STEP, ATTEMPT, JOB_NAME, COMPLETION, JOB_INDEX, *POD_GROUP_LABELS, QUEUE), _ALL)
_ENDED = {"exitCode": _ALL, "signal": _ALL, "reason": _ALL, "message": _ALL, "startedAt": _ALL, "finishedAt": _ALL}
_STATE = {"waiting": {"reason": _ALL, "message": _ALL}, "running": {"startedAt": _ALL}, "terminated": _ENDED}
_CONTAINER = {
    "name": _ALL, "image": _ALL, "imageID": _ALL, "ready": _ALL, "restartCount": _ALL, "state": _STATE,
    "lastState": {"terminated": _ENDED},
}  # fmt: skip
_JOB_SPEC = {"parallelism": _ALL, "completions": _ALL, "backoffLimit": _ALL, "suspend": _ALL}
_POD_SPEC = {
    "volumes": [{"name": _ALL, "persistentVolumeClaim": {"claimName": _ALL}}],
    "containers": [{"resources": _ALL, "env": [{"name": _ALL}]}],
    "initContainers": [{"resources": _ALL, "restartPolicy": _ALL}],
    "restartPolicy": _ALL,
}
_TEMPLATE = {"template": {"spec": _POD_SPEC}}

KEPT: dict[str, Any] = {
    "JobSet": {
        "metadata": _JOB_META,
        "spec": {
            "suspend": _ALL, "ttlSecondsAfterFinished": _ALL, "managedBy": _ALL,
            "failurePolicy": {"maxRestarts": _ALL},
            "replicatedJobs": [
                {"name": _ALL, "replicas": _ALL, "dependsOn": _ALL, "template": {"spec": {**_JOB_SPEC, **_TEMPLATE}}},
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
        "spec": {
            "queueName": _ALL, "active": _ALL, "priority": _ALL, "priorityClassRef": {"name": _ALL}, "priorityClassName": _ALL,
        },
        "status": {
            "conditions": [_CONDITION], "admission": {"clusterQueue": _ALL}, "requeueState": _ALL,
            "admissionChecks": [{"name": _ALL, "state": _ALL, "message": _ALL}], "clusterName": _ALL,
            "schedulingStats": {"evictions": _ALL},
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
        "metadata": {**_META, "labels": _LABELS, "annotations": {POD_GROUP_ANNOTATION: _ALL}},
        "spec": {"nodeName": _ALL, "schedulerName": _ALL, "containers": [{"name": _ALL, "image": _ALL}]},
        "status": {
            "phase": _ALL, "reason": _ALL, "message": _ALL, "startTime": _ALL, "conditions": [_CONDITION],
            "containerStatuses": [_CONTAINER], "initContainerStatuses": [_CONTAINER],
        },
    },
    "PodGroup": {
        "metadata": _OWNED,
        "spec": {"minMember": _ALL, "queue": _ALL},
        "status": {"phase": _ALL, "running": _ALL, "conditions": [_CONDITION]},
    },
    "Event": {
        "metadata": {"name": _ALL},
        "involvedObject": {"kind": _ALL, "name": _ALL, "uid": _ALL},
        "type": _ALL, "reason": _ALL, "message": _ALL, "count": _ALL, "series": {"count": _ALL, "lastObservedTime": _ALL},
        "firstTimestamp": _ALL, "lastTimestamp": _ALL, "eventTime": _ALL,
    },
}  # fmt: skip
"""Kind -> the fields that a diagnosis reads. None: the whole value."""
_IRRELEVANT = ("Initialized", "ContainersReady", "PodReadyToStartContainers")
"""Conditions of a pod that a diagnosis does not need."""


def keep(kind: str, document: Document) -> dict[str, Any]:
    """Return the fields of a document that a diagnosis reads. document: The document as the server returns it; it is not
    changed."""
    kept: dict[str, Any] = _picked(document, KEPT[kind])
    if kind == "Event":
        kept["message"] = text(kept.get("message"))[:LONGEST]
    if kind == "JobSet":
        for job in jobs_of(kept):
            for container in job.pod.containers:
                if "env" in container.document:
                    container.document["env"] = [each for each in container.env if each.get("name") == CHECKPOINT_DIR]
    status = section(kept, "status")
    if kind == "Pod" and "conditions" in status:
        status["conditions"] = [c for c in status["conditions"] if c.get("type") not in _IRRELEVANT]
    return kept


def _picked(value: Any, fields: Any) -> Any:
    if fields is None:
        return value
    if isinstance(fields, list):
        if not isinstance(value, list):
            return []
        return [_picked(each, fields[0]) for each in value if isinstance(each, dict)]
    if not isinstance(value, Mapping):
        return {}
    return {name: _picked(value[name], inner) for name, inner in fields.items() if value.get(name) is not None}
