"""Finds what was changed externally in a job since it was applied.

Only fields that can be changed while the job exists are compared. Changes that controllers make as part of their work are
ignored, and so are those of mutating webhooks: the server still counts these fields as owned by our field manager
(metadata.managedFields), and would produce the same values from the next request. The record of a job keeps the applied values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pulumi_trainer.provider.kubernetes.client.transport import FIELD_MANAGER
from pulumi_trainer.provider.kubernetes.values.accessors import without
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.targets.kubernetes import owner_labels

Fields = dict[str, Any]

KEYED = (("metadata", "labels"), ("metadata", "annotations"), ("spec", "nodeSelector"))
_MAPS = frozenset(name for *_, name in KEYED)
LISTS = (("spec", "tolerations"), ("spec", "schedulingGates"))
"""Lists of a pod template that can change while the job is suspended; `KEYED` has the maps."""


def changeable_fields(job: Mapping[str, Any]) -> Fields:
    """Return path -> value of the fields of a job that can be changed after its creation."""
    spec = job.get("spec") or {}
    found: Fields = {"spec.suspend": bool(spec.get("suspend"))}
    for name in ("ttlSecondsAfterFinished", "coordinator"):
        found[f"spec.{name}"] = spec.get(name)
    for name in ("labels", "annotations"):
        for key, value in (_value_at(job, "metadata", name) or {}).items():
            if not key.startswith(f"{owner_labels.DOMAIN}/"):
                found[f"metadata.{name}[{key}]"] = value
    for step in jobs_of(job):
        path, pod = f"spec.replicatedJobs[{step.name}].template.spec.template", step.template
        for place in KEYED:
            for key, value in (_value_at(pod, *place) or {}).items():
                found[f"{path}.{'.'.join(place)}[{key}]"] = value
        for place in LISTS:
            value = _value_at(pod, *place)
            if value is not None:
                found[f"{path}.{'.'.join(place)}"] = value
    return found


def changed_fields(before: Mapping[str, Any], live: Mapping[str, Any]) -> Fields:
    """Return path -> current value (None: removed) of the fields that were changed externally."""
    now = changeable_fields(live)
    queued = QUEUE in ((live.get("metadata") or {}).get("labels") or {})
    owned = frozenset(_owned_paths(live))
    found: Fields = {}
    for path, value in before.items():
        current = now.get(path)
        if current == value or (queued and path == "spec.suspend"):
            continue
        if current is not None and (path in owned or path.rpartition("[")[0] in owned):
            continue
        if isinstance(value, list) and isinstance(current, list) and all(each in current for each in value):
            continue  # Kueue adds tolerations and gates
        found[path] = current
    return found


def removal_patch(before: Mapping[str, Any], live: Mapping[str, Any]) -> Fields:
    """Return a merge patch that removes externally added fields of spec, which an apply alone would leave; empty if none were
    added."""
    added = [path for path in changed_fields(before, live) if before[path] is None and path.startswith("spec.")]
    if not added:
        return {}
    return {"spec": {path.removeprefix("spec."): None for path in added}}


def _owned_paths(live: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of the fields that our field manager owns in a live object."""
    for entry in _value_at(live, "metadata", "managedFields") or []:
        if (_value_at(entry, "manager"), _value_at(entry, "operation")) == (FIELD_MANAGER, "Apply"):
            yield from _paths(entry.get("fieldsV1") or {}, "")


def _paths(fields: Mapping[str, Any], at: str) -> Iterator[str]:
    """Yield the leaves of a FieldsV1 as paths, in the notation of `changeable_fields`."""
    below = without(fields, ".")
    if not below:
        yield at.removeprefix(".")
    for key, each in below.items():
        kind, _, name = key.partition(":")
        if kind == "k":
            step = f"[{_value_at(json.loads(name), 'name')}]"
        elif at.rpartition(".")[2] in _MAPS:
            step = f"[{name}]"
        else:
            step = f".{name}"
        yield from _paths(each, at + step)


def _value_at(document: Any, *path: str) -> Any:
    for name in path:
        if not isinstance(document, Mapping):
            return None
        document = document.get(name)
    return document
