"""What others have changed in a job since we applied it.

A field that we applied and that now has another value was changed by somebody; controllers change some as part of their
work, and those are left out. So is what a mutating webhook makes of our own request: the server still counts that field as
ours (metadata.managedFields), and would get the same from the next request. Only fields that a server lets anybody change
are looked at. The record of a job keeps what was applied.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pulumi_trainer.provider.kube.client.transport import FIELD_MANAGER
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.targets.kubernetes import marks

Fields = dict[str, Any]

KEYED = (("metadata", "labels"), ("metadata", "annotations"), ("spec", "nodeSelector"))
_MAPS = frozenset(name for *_, name in KEYED)
LISTS = (("spec", "tolerations"), ("spec", "schedulingGates"))
"""Of a pod template: what may change while its job is suspended."""


def applied(job: Mapping[str, Any]) -> Fields:
    """Path -> value of the fields of a job that may be changed later."""
    spec = job.get("spec") or {}
    found: Fields = {"spec.suspend": bool(spec.get("suspend"))}
    for name in ("ttlSecondsAfterFinished", "coordinator"):
        found[f"spec.{name}"] = spec.get(name)
    for name in ("labels", "annotations"):
        for key, value in (_at(job, "metadata", name) or {}).items():
            if not key.startswith(f"{marks.DOMAIN}/"):
                found[f"metadata.{name}[{key}]"] = value
    for path, pod in _pods(job):
        for place in KEYED:
            for key, value in (_at(pod, *place) or {}).items():
                found[f"{path}.{'.'.join(place)}[{key}]"] = value
        for place in LISTS:
            if (value := _at(pod, *place)) is not None:
                found[f"{path}.{'.'.join(place)}"] = value
    return found


def changed(before: Mapping[str, Any], live: Mapping[str, Any]) -> Fields:
    """Path -> value now (None: removed), of what somebody has changed in the live job."""
    now = applied(live)
    queued = QUEUE in ((live.get("metadata") or {}).get("labels") or {})
    ours = frozenset(_held(live))
    found: Fields = {}
    for path, value in before.items():
        current = now.get(path)
        if current == value or (queued and path == "spec.suspend"):
            continue
        if current is not None and (path in ours or path.rpartition("[")[0] in ours):
            continue
        if isinstance(value, list) and isinstance(current, list) and all(each in current for each in value):
            continue  # Kueue adds tolerations and gates
        found[path] = current
    return found


def additions(before: Mapping[str, Any], live: Mapping[str, Any]) -> Fields:
    """A merge patch that takes away what somebody has added where nothing was applied: an apply alone would leave it."""
    added = [path for path in changed(before, live) if before[path] is None and path.startswith("spec.")]
    return {"spec": {path.removeprefix("spec."): None for path in added}} if added else {}


def _held(live: Mapping[str, Any]) -> Iterator[str]:
    """The fields that are ours in a live object. Nobody else has written them since."""
    for entry in _at(live, "metadata", "managedFields") or []:
        if (_at(entry, "manager"), _at(entry, "operation")) == (FIELD_MANAGER, "Apply"):
            yield from _paths(entry.get("fieldsV1") or {}, "")


def _paths(fields: Mapping[str, Any], at: str) -> Iterator[str]:
    """The leaves of a FieldsV1, in the notation of `applied`."""
    below = {key: each for key, each in fields.items() if key != "."}
    if not below:
        yield at.removeprefix(".")
    for key, each in below.items():
        kind, _, name = key.partition(":")
        if kind == "k":
            step = f"[{_at(json.loads(name), 'name')}]"
        else:
            step = f"[{name}]" if at.rpartition(".")[2] in _MAPS else f".{name}"
        yield from _paths(each, at + step)


def _pods(job: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for each in _at(job, "spec", "replicatedJobs") or []:
        if pod := _at(each, "template", "spec", "template"):
            yield f"spec.replicatedJobs[{each.get('name')}].template.spec.template", pod


def _at(document: Any, *path: str) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, Mapping) else None
    return document
