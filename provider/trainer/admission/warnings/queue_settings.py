"""Rules about settings for a queue that have no effect, or that another setting defeats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, labels_of, section, text
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean, duration
from pulumi_trainer.provider.kueue.configuration import FRAMEWORKS, leaves_out, pods_ready_timeout
from pulumi_trainer.provider.kueue.labels import (
    DOMAIN,
    FAMILIES,
    KEYS,
    MAX_EXECUTION,
    PREFERRED,
    PRIORITY,
    QUEUE,
    REQUIRED,
    SLICE_LEVEL,
    SLICE_SIZE,
    SLICES,
    TOGETHER,
    UNCONSTRAINED,
)
from pulumi_trainer.provider.trainer.admission.warnings.queues import PLACED, QUEUED, cluster_queue_of_job, local_queue
from pulumi_trainer.provider.trainer.admission.warnings.view import View, value_or_unknown
from pulumi_trainer.provider.trainer.labels import KAI_QUEUE

_KUEUE_PATCH = "kueue.x-k8s.io/manager"
"""Manager of the runtimePatch that Kueue's webhook adds to a TrainJob, which it then suspends by itself."""
_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_READY_TIMEOUT = "kueue.x-k8s.io/wait-for-pods-ready"
_LONG_FETCH = 3600
"""Seconds within which data is taken to be fetched."""


def suspended_in_queue(view: View) -> Iterator[Problem]:
    """Yield that Kueue starts a suspended job as soon as there is quota."""
    spec, queue = section(view.train_job, "spec"), text(view.queue)
    managers = [patch.get("manager") for _, patch in view.patches]
    if (
        spec.get("suspend") is not True
        or not queue
        or _KUEUE_PATCH in managers
        or _is_stopped(view)
        or _is_left_out(view)
    ):
        return
    why = f"does not hold a job with queue {queue}: Kueue owns the field, and starts the job when it admits it"
    hint = (
        "to hold the job, deactivate its Workload (pulumi-trainer suspend), or use a queue with stopPolicy: Hold; or leave"
        " the queue out"
    )
    yield Problem("spec.suspend", why, hint)


def _is_stopped(view: View) -> bool:
    for queue in (local_queue(view), cluster_queue_of_job(view)):
        if section(queue, "spec").get("stopPolicy") in ("Hold", "HoldAndDrain"):
            return True
    return False


@dataclass(frozen=True)
class _Place:
    """Metadata of an object, or of a template in it.

    Args:
        of: Whose metadata it is: job, runtime, jobset, template (of a Job) or pods.
        at: Its path.
    """

    of: str
    at: str
    metadata: Document


@dataclass(frozen=True)
class _Setting:
    """A label or an annotation.

    Args:
        reader: Who reads it.
        field: Where, in words.
        places: Where, as names of places with labels or annotations.
    """

    reader: str
    field: str
    places: frozenset[tuple[str, str]]


_OF_JOB = _Setting("Kueue", "a label of the TrainJob", frozenset({("job", "labels")}))
_OF_PODS = _Setting("Kueue", "an annotation of the Pod template", frozenset({("pods", "annotations")}))
_OF_KAI = _Setting(
    "KAI", "a label of the Pods", frozenset({("job", "labels"), ("jobset", "labels"), ("pods", "labels")})
)
_OF_OTHERS = _Setting("Kueue", "an annotation of other kinds, never of a TrainJob or a JobSet", frozenset())
_SETTINGS = {
    **dict.fromkeys((QUEUE, PRIORITY, MAX_EXECUTION), _OF_JOB),
    **dict.fromkeys((REQUIRED, PREFERRED, UNCONSTRAINED, SLICE_LEVEL, SLICE_SIZE, SLICES, TOGETHER), _OF_PODS),
    KAI_QUEUE: _OF_KAI,
    "kueue.x-k8s.io/job-min-parallelism": _OF_OTHERS,
    "kueue.x-k8s.io/job-completions-equal-parallelism": _OF_OTHERS,
    "kueue.x-k8s.io/elastic-job": _OF_OTHERS,
}
_NAMES = frozenset(key.rpartition("/")[2] for key in _SETTINGS)
"""What follows the domain."""


def misplaced_settings(view: View) -> Iterator[Problem]:
    """Yield settings of queues and topologies where nobody reads them."""
    if isinstance(value_or_unknown(view.train_job, "metadata", "labels"), Unknown):
        return
    for place in _places(view):
        for field in ("labels", "annotations"):
            for key, value in section(place.metadata, field).items():
                setting = _SETTINGS.get(key)
                if setting is not None and not _is_read(view, place, field, key, value):
                    why = (
                        f"has no effect there: {setting.reader} reads it as {setting.field}{_effect(view, key, value)}"
                    )
                    yield Problem(f"{place.at}.{field}[{key}]", why, _hint(setting, key))


def unknown_settings(view: View) -> Iterator[Problem]:
    """Yield labels and annotations in Kueue's domain that Kueue does not know."""
    for place in _places(view):
        for field in ("labels", "annotations"):
            for key in section(place.metadata, field):
                name = str(key).lower()
                domain, _, last = name.partition("/")
                mistyped = "kueue" in domain and last in _NAMES
                if (mistyped or name.startswith(DOMAIN)) and key not in KEYS and not name.startswith(FAMILIES):
                    why = f"has no effect: Kueue knows no such {field.removesuffix('s')}"
                    yield Problem(f"{place.at}.{field}[{key}]", why, did_you_mean(name, _SETTINGS, cutoff=0.8))


def _places(view: View) -> Iterator[_Place]:
    runtime = section(view.runtime, "metadata")
    template = section(view.runtime, "spec", "template", "metadata")
    yield _Place("job", "metadata", section(view.train_job, "metadata"))
    yield _Place("runtime", f"{view.runtime.get('kind')} {runtime.get('name')}: metadata", runtime)
    yield _Place("jobset", "spec.template.metadata", template)
    for i, patch in view.patches:
        metadata = section(patch, "trainingRuntimeSpec", "template", "metadata")
        yield _Place("jobset", f"spec.runtimePatches[{i}].trainingRuntimeSpec.template.metadata", metadata)
    for step in view.steps:
        yield _Place("template", f"{step.at}.template.metadata", section(step.document, "template", "metadata"))
        metadata = section(step.template, "metadata")
        yield _Place("pods", f"{step.at}.template.spec.template.metadata", metadata)


def _is_read(view: View, place: _Place, field: str, key: str, value: Any) -> bool:
    """Return whether a setting has an effect where it is, or where it is needed has the same value."""
    setting = _SETTINGS[key]
    if (place.of, field) in setting.places:
        return True
    if setting is not _OF_JOB:
        return False
    if view.mode == "jobset" and (place.of, field) == ("jobset", "labels"):
        return True
    if key == QUEUE:
        return bool(value == view.queue)
    return bool(value == labels_of(view.queued).get(key))


def _effect(view: View, key: str, value: Any) -> str:
    if key != QUEUE:
        return ""
    actual = text(view.queue)
    if actual:
        return f", so the job is in queue {actual}"
    named = "this queue"
    if isinstance(value, str):
        named = f"queue {value}"
    return f", so the job is not in {named}"


def _hint(setting: _Setting, key: str) -> str:
    if setting is _OF_OTHERS:
        return "leave it out"
    if setting is _OF_JOB:
        return f"write it as metadata.labels[{key}] of the TrainJob"
    return f"write it as {setting.field}"


def exclusive_topology(view: View) -> Iterator[Problem]:
    """Yield that JobSet and Kueue place the same Pods, each by a topology of its own."""
    if not text(view.queue):
        return
    where = _exclusive_at(view)
    if where and _has_topology(view):
        why = (
            "keeps each Job in a domain of its own by the affinity of its Pods, which Kueue does not know when it assigns"
            " nodes by the topology: Pods may never fit the nodes that Kueue has chosen"
        )
        yield Problem(where, why, "leave it out, and request the level by Kueue's annotations")


def _exclusive_at(view: View) -> str:
    """Return the path of JobSet's annotation; empty if the job has none."""
    if _EXCLUSIVE in section(view.jobset, "metadata", "annotations"):
        return f"spec.template.metadata.annotations[{_EXCLUSIVE}]"
    for step in view.steps:
        if _EXCLUSIVE in section(step.document, "template", "metadata", "annotations"):
            return f"{step.at}.template.metadata.annotations[{_EXCLUSIVE}]"
    return ""


def _has_topology(view: View) -> bool:
    """Return whether Kueue assigns the nodes: a Pod template requests a topology, or all flavors of the queue have one."""
    for step in view.steps:
        if section(step.template, "metadata", "annotations").keys() & {*PLACED}:
            return True
    return view.queues.has_only_topologies(cluster_queue_of_job(view))


def pods_never_ready(view: View) -> Iterator[Problem]:
    """Yield that Kueue evicts a job whose steps wait for the end of others, as it waits for the Pods of all steps.

    Source: `PodsReady` of https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/trainjob/trainjob_controller.go
    and of jobset/jobset_controller.go beside it
    """
    configuration = view.queues.configuration or {}
    timeout, default = pods_ready_timeout(configuration), ""
    if not configuration.get("waitForPodsReady"):
        default = " (on by default since 0.19)"
    if not text(view.queue) or timeout is None or timeout >= _LONG_FETCH:
        return
    if _READY_TIMEOUT in section(view.queued, "metadata", "annotations"):
        return
    for step in view.steps:
        first = [each.get("name") for each in step.depends_on if each.get("status") == "Complete"]
        if first:
            why = (
                f"{step.name} starts after {first[0]}, and Kueue's waitForPodsReady{default} evicts a job whose Pods are"
                f" not all ready after {duration(timeout)}: if {first[0]} takes longer, it starts again"
            )
            hint = (
                "fetch data and models before the job, or give waitForPodsReady a longer timeout; since Kueue 0.20 also for"
                f" one job, by the annotation {_READY_TIMEOUT} (gate WorkloadLevelWaitForPodsReady)"
            )
            yield Problem(f"{step.at}.dependsOn", why, hint)
            return


def unmanaged_kind(view: View) -> Iterator[Problem]:
    """Yield that Kueue's Configuration leaves the job to itself, so that it starts beside its queue."""
    kind = text(view.queued.get("kind"))
    if text(view.queue) and _is_left_out(view):
        why = f"Kueue's Configuration does not list {FRAMEWORKS[kind]}: the job starts at once, beside its queue"
        yield Problem(QUEUED, why, f"add {FRAMEWORKS[kind]} to integrations.frameworks of Kueue's Configuration")


def unmanaged_namespace(view: View) -> Iterator[Problem]:
    """Yield that Kueue's webhook suspends a job with a queue, in a namespace whose jobs Kueue never starts.

    Source: `WorkloadShouldBeSuspended` and `ReconcileGenericJob` of
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework
    """
    namespace = view.namespace
    if view.queues.configuration is None or not text(view.queue) or _is_left_out(view):
        return
    if view.queues.manages(namespace) is False:
        why = (
            "Kueue suspends the job because of its queue, and never starts it: managedJobsNamespaceSelector of its"
            f" Configuration does not select namespace {namespace}"
        )
        yield Problem(QUEUED, why, "label the namespace, change the selector, or leave the queue out")


def held_without_queue(view: View) -> Iterator[Problem]:
    """Yield that Kueue suspends a job without a queue, which no queue can admit."""
    configuration = view.queues.configuration or {}
    namespace = view.namespace
    if view.queue or configuration.get("manageJobsWithoutQueueName") is not True or _is_left_out(view):
        return
    if view.queues.manages(namespace):
        why = (
            "is missing, and Kueue's Configuration has manageJobsWithoutQueueName: true: Kueue suspends the job, and it never"
            " starts"
        )
        yield Problem(QUEUED, why, "name a LocalQueue of the namespace")


def _is_left_out(view: View) -> bool:
    return leaves_out(view.queues.configuration or {}, text(view.queued.get("kind")))
