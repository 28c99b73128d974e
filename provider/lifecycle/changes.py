"""What a change does to a job: nothing, an update in place, or a replacement, and why.

Rules: JobSet v0.12.0 `ValidateUpdate` (https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/webhooks/jobset_webhook.go)
and the CEL rules of its CRD; for TrainJobs the CEL rules of
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/apis/trainer/v1alpha1/trainjob_types.go. Called by `calls.check`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pulumi_trainer.provider.api.submission import Objects, differences, main_key

Effect = Literal["update", "replace"]

_ALWAYS = (
    "spec.suspend",
    "spec.ttlSecondsAfterFinished",
    "spec.coordinator",
    "metadata.labels",
    "metadata.annotations",
)
_WHILE_SUSPENDED = (
    "template.spec.template.metadata.labels",
    "template.spec.template.metadata.annotations",
    "template.spec.template.spec.nodeSelector",
    "template.spec.template.spec.tolerations",
    "template.spec.template.spec.schedulingGates",
)

_TRAIN_JOB_ALWAYS = ("spec.suspend", "metadata.labels", "metadata.annotations")
_TRAIN_JOB_SUSPENDED = ("spec.runtimePatches",)
"""As a whole list: what in it is fixed is known to the server, which refuses the rest."""


@dataclass(frozen=True)
class Change:
    """One field that differs: `JobSet/digits: spec.replicatedJobs[node]....image`."""

    path: str
    effect: Effect
    why: str

    def __str__(self) -> str:
        return f"{self.path} ({self.why})"


def compare(old: Objects, new: Objects) -> list[Change]:
    """Every difference between two sets of rendered objects. Unknown leaves of `new` are no differences: what they turn
    out to be is compared when it is known.
    """
    changes: list[Change] = []
    suspended = _suspended(old) or _suspended(new)
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if before is None or after is None:
            word = "removed" if after is None else "added"
            changes.append(Change(key, "replace", f"{word}: the objects of a run are fixed"))
        elif key.startswith("JobSet/"):
            changes += [_jobset_change(key, path, suspended) for path in differences(before, after)]
        elif key.startswith("TrainJob/"):
            changes += [_train_job_change(key, path, suspended) for path in differences(before, after)]
        else:
            changes += [
                Change(f"{key}: {path}", "replace", "read once, when pods start") for path in differences(before, after)
            ]
    return changes


def _jobset_change(key: str, path: str, suspended: bool) -> Change:
    where = f"{key}: {path}"
    if _below(path, _ALWAYS):
        return Change(where, "update", "may change at any time")
    if any(f".{p}" in path for p in _WHILE_SUSPENDED):
        if suspended:
            return Change(where, "update", "may change while the JobSet is suspended")
        return Change(where, "replace", "may change only while the JobSet is suspended")
    return Change(where, "replace", "immutable in a JobSet")


def _train_job_change(key: str, path: str, suspended: bool) -> Change:
    where = f"{key}: {path}"
    if _below(path, _TRAIN_JOB_ALWAYS):
        return Change(where, "update", "may change at any time")
    if _below(path, _TRAIN_JOB_SUSPENDED):
        if suspended:
            return Change(where, "update", "may change while the TrainJob is suspended")
        return Change(where, "replace", "may change only while the TrainJob is suspended")
    return Change(where, "replace", "immutable in a TrainJob")


def _below(path: str, fields: tuple[str, ...]) -> bool:
    return any(path == field or path.startswith((f"{field}.", f"{field}[")) for field in fields)


def _suspended(objects: Objects) -> bool:
    main = objects.get(main_key(objects), {})
    return (main.get("spec") or {}).get("suspend") is True
