"""Classifies a change of a job: no effect, an update in place, or a replacement, and why.

Rules: JobSet v0.12.0 `ValidateUpdate` (https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/webhooks/jobset_webhook.go)
and the CEL rules of its CRD; for TrainJobs the CEL rules of
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/apis/trainer/v1alpha1/trainjob_types.go. Kueue has rules for jobs in a queue:
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/validation.go.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pulumi_trainer.provider.jobs.submission import Objects, differences, main_key
from pulumi_trainer.provider.kubernetes.values.accessors import only, section, without
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.kueue.labels import MAX_EXECUTION, PRIORITY, QUEUE
from pulumi_trainer.provider.pod.code import LAUNCH_FILE, SOURCE_ADDRESS, SOURCE_DIGEST
from pulumi_trainer.provider.source_archives import digest_of

Effect = Literal["update", "replace", "waiting"]
"""waiting: an update while Kueue has suspended the job, which the objects do not show; a replacement once it runs."""

_ALWAYS: tuple[str, ...] = (
    "spec.suspend",
    "spec.ttlSecondsAfterFinished",
    "spec.coordinator",
    "metadata.labels",
    "metadata.annotations",
)
_WHERE_SET = ("failurePolicy", "activeDeadlineSeconds")
"""Fields of spec that may be added and removed: the rule that makes them immutable only compares two values."""
_WHILE_SUSPENDED = (
    "template.spec.template.metadata.labels",
    "template.spec.template.metadata.annotations",
    "template.spec.template.spec.nodeSelector",
    "template.spec.template.spec.tolerations",
    "template.spec.template.spec.schedulingGates",
)

_TRAIN_JOB_ALWAYS = ("spec.suspend", "metadata.labels", "metadata.annotations")
_PATCHES = "spec.runtimePatches"
"""The server rejects every change of them while pods run, so suspending the job in the same change is too late
(`checkRuntimePatchesImmutability`,
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/jobset/jobset.go). What a JobSet does not allow to
change, the server may accept: its controller then fails forever."""
_PATCH_SUSPENDED = ("trainingRuntimeSpec.template.metadata", *_WHILE_SUSPENDED)
_PATCH_NAMES = ("manager", "name", "time")


@dataclass(frozen=True)
class Change:
    """One field that differs: `JobSet/digits: spec.replicatedJobs[node]....image`; of a project none, but that it has changed."""

    path: str
    effect: Effect
    why: str

    def __str__(self) -> str:
        return f"{self.path} ({self.why})"


def compare(old: Objects, new: Objects) -> list[Change]:
    """Return every difference between two sets of rendered objects, and what an update has to do for it. new: The objects that
    the program has now; their unknown values are compared once they are known."""
    changes: list[Change] = []
    suspended = _suspended(old) or (_suspended(new) and main_key(new).startswith("JobSet/"))
    while_suspended: Effect = "replace"
    if queue_of(old) and queue_of(new):
        while_suspended = "waiting"
    if suspended:
        while_suspended = "update"
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if after is None:
            changes.append(Change(key, "replace", "removed: the objects of a run are fixed"))
        elif before is None:
            changes.append(Change(key, "replace", "added: the objects of a run are fixed"))
        elif key.startswith(("JobSet/", "TrainJob/")):
            changes += _queue_changes(key, before, after, while_suspended)
            changes += _jobset_or_train_job_changes(key, before, after, while_suspended)
        else:
            places = [f"{key}: {path}" for path in differences(_without_project(before), _without_project(after))]
            if digest_of(before) and digest_of(after) and digest_of(before) != digest_of(after):
                places.insert(0, "the project has changed")
            elif not places:
                places = [f"{key}: {path}" for path in differences(before, after)]
            changes += (Change(place, "replace", "read once, when pods start") for place in places)
    return changes


def _without_project(document: Any) -> Any:
    """Return a ConfigMap with code without what identifies the files of its project; another document as it is."""
    launch = section(document, "data").get(LAUNCH_FILE)
    if not digest_of(document) or not isinstance(launch, str):
        return document
    rest = without(json.loads(launch), "source", "address", "limit")
    annotations = without(section(document, "metadata", "annotations"), SOURCE_DIGEST, SOURCE_ADDRESS)
    metadata = {**document["metadata"], "annotations": annotations}
    return {**document, "metadata": metadata, "data": {**document["data"], LAUNCH_FILE: json.dumps(rest)}}


def _jobset_or_train_job_changes(key: str, before: Any, after: Any, while_suspended: Effect) -> Iterator[Change]:
    """Yield the changes of what Kueue does not read."""
    paths = [*differences(_unqueued(before), _unqueued(after))]
    if key.startswith("TrainJob/"):
        outside_patches = [path for path in paths if not _below(path, (_PATCHES,))]
        paths = sorted([*outside_patches, *_patch_differences(before, after)])
    for path in paths:
        name = path.removeprefix("spec.")
        if name in _WHERE_SET and (name in before["spec"]) != (name in after["spec"]):
            yield Change(f"{key}: {path}", "update", "may be added and taken away at any time")
        else:
            yield _change(key, path, while_suspended)


def _change(key: str, path: str, while_suspended: Effect) -> Change:
    where, kind = f"{key}: {path}", key.partition("/")[0]
    if kind == "JobSet":
        always, suspended = _ALWAYS, any(f".{each}" in path for each in _WHILE_SUSPENDED)
        suspended = suspended or path.endswith(".template.spec.template.metadata")
    else:
        always, suspended = _TRAIN_JOB_ALWAYS, _below(path, (_PATCHES,)) and _may_change_in_jobset(path)
    if _below(path, always):
        return Change(where, "update", "may change at any time")
    if suspended:
        return Change(where, while_suspended, f"may change {_ONLY[while_suspended]}while the {kind} is suspended")
    return Change(where, "replace", f"immutable in a {kind}")


def _may_change_in_jobset(path: str) -> bool:
    """Return whether a suspended JobSet follows a change of a patch. path: Of one value in it, or of the patch as a whole."""
    field = path.partition("].")[2]
    return not field or any(f".{each}" in f".{field}" for each in _PATCH_SUSPENDED)


def _patch_differences(before: Any, after: Any) -> list[str]:
    """Return the paths of all single values in which the runtimePatches differ; a patch is that of its manager."""
    old, new = _patch_values(before), _patch_values(after)
    unknown = tuple(path for path, value in new.items() if isinstance(value, Unknown))
    either = sorted(old.keys() | new.keys())
    return [path for path in either if not _below(path, unknown) and old.get(path) != new.get(path)]


def _patch_values(job: Any) -> dict[str, Any]:
    """Return the single values in the runtimePatches of a TrainJob, by path."""
    patches = section(job, "spec").get("runtimePatches") or None
    return dict(_values(_unqueued(patches), _PATCHES))


def _values(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield path and value of each single value in a document, except names."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            if name not in _PATCH_NAMES:
                yield from _values(each, f"{path}.{name}")
    elif isinstance(value, list) and value:
        for i, each in enumerate(value):
            names = section(each)
            place = f"{path}[{names.get('manager') or names.get('name', i)}]"
            if "manager" in names:
                yield place, True  # one that changes nothing is there as well
            yield from _values(each, place)
    elif value is not None:
        yield path, value


_ONLY: dict[Effect, str] = {"update": "", "replace": "only ", "waiting": "only "}


def _queue_changes(key: str, before: Any, after: Any, while_suspended: Effect) -> Iterator[Change]:
    """Yield the changes of labels and annotations that Kueue reads."""
    placed, places = dict(_placing(before)), dict(_placing(after))
    if first_unknown(after.get("spec")) is not None:  # a missing annotation may be in an unknown value
        placed = only(placed, places)
    for path in differences(placed, places):
        yield Change(f"{key}: {path}", "replace", "Kueue reads it only once")
    old, new = _labels(before), _labels(after)
    for label in _READ:
        was, now = old.get(label), new.get(label)
        where = f"{key}: metadata.labels[{label}]"
        if was == now or isinstance(now, Unknown):
            continue
        if label == QUEUE and not (was and now):
            why = "without its queue nothing would resume the job"
            if now:
                why = "a job that joins a queue has to be suspended from the start"
            yield Change(where, "replace", why)
        elif label == PRIORITY and was and now:
            yield Change(where, "update", "may change at any time")
        elif label == PRIORITY and was:
            yield Change(where, "replace", "cannot be taken from a job")
        else:
            yield Change(where, while_suspended, f"may change {_ONLY[while_suspended]}while the job waits")


def _placing(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and value of the topology annotations; Kueue copies them into the Workload when it creates it."""
    if isinstance(value, list):
        for i, each in enumerate(value):
            name = section(each).get("name", i)
            yield from _placing(each, f"{path}[{name}]")
    elif isinstance(value, dict):
        for name, each in value.items():
            if str(name).startswith(_PLACING):
                yield f"{path}[{name}]", each
            elif path:
                yield from _placing(each, f"{path}.{name}")
            else:
                yield from _placing(each, str(name))


_PLACING = "kueue.x-k8s.io/podset-"


def _unqueued(value: Any) -> Any:
    """Return the document without the labels and annotations that Kueue reads, and without metadata that is then empty."""
    if isinstance(value, list):
        return [*map(_unqueued, value)]
    if not isinstance(value, dict):
        return value
    kept = {k: _unqueued(v) for k, v in value.items() if k not in _READ and not str(k).startswith(_PLACING)}
    return {k: v for k, v in kept.items() if v != {} or k not in ("metadata", "labels", "annotations")}


_READ = (QUEUE, PRIORITY, MAX_EXECUTION)


def _labels(document: Any) -> dict[str, Any]:
    return section(document, "metadata", "labels")


def queue_of(objects: Objects) -> Any:
    """Return the LocalQueue of a job; None for none, or `Unknown`."""
    return _labels(objects.get(main_key(objects), {})).get(QUEUE)


def _below(path: str, fields: tuple[str, ...]) -> bool:
    return any(path == field or path.startswith((f"{field}.", f"{field}[")) for field in fields)


def _suspended(objects: Objects) -> bool:
    main = objects.get(main_key(objects), {})
    return (main.get("spec") or {}).get("suspend") is True
