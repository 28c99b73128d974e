"""Keeps or drops the fields that Kueue writes into the Pod templates of a JobSet when it admits the JobSet.

These are node selectors and tolerations of flavors, labels, annotations and scheduling gates
(https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/podset/podset.go, Merge). They are immutable while the job runs, so an
apply has to repeat them, and a comparison for an adoption has to ignore them. For a TrainJob Kueue writes a runtimePatch of its
own, which no apply of this package changes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from pulumi_trainer.provider.kubernetes.values.accessors import mappings, only, section, text, without
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.targets.kubernetes.jobs.drift import KEYED, LISTS

Document = dict[str, Any]

_MANAGER = "kueue.x-k8s.io/"
"""How the manager of the runtimePatch begins that Kueue adds to a TrainJob."""


def keep_kueue_fields(wanted: Document, live: Mapping[str, Any]) -> Document:
    """Return a document with the values that Kueue has added to the live job; the server rejects an apply without them."""
    if not _started(live):
        return wanted
    made = copy.deepcopy(wanted)
    for field, wanted_part, live_part in _places(made, live):
        if field in live_part and _is_contained(wanted_part.get(field), live_part[field]):
            wanted_part[field] = copy.deepcopy(live_part[field])
    return made


def written_spec(job: Mapping[str, Any]) -> Document:
    """Return the spec of a TrainJob without Kueue's runtimePatches and without the times of the others; that of a JobSet."""
    patches = mappings(section(job, "spec").get("runtimePatches"))
    kept = [without(each, "time") for each in patches if not text(each.get("manager")).startswith(_MANAGER)]
    spec = without(job["spec"], "runtimePatches")
    if kept:
        spec["runtimePatches"] = kept
    return spec


def _is_contained(few: Any, many: Any) -> bool:
    if isinstance(few, dict) and isinstance(many, dict):
        return few.items() <= many.items()
    if isinstance(few, list) and isinstance(many, list):
        return all(each in many for each in few)
    return few is None


def drop_kueue_fields(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> Document:
    """Return the live job without the values that Kueue may have added and that `wanted` does not have."""
    made = copy.deepcopy(dict(live))
    if not _started(live):
        return made
    for field, live_part, wanted_part in _places(made, wanted):
        found, written = live_part.pop(field, None), wanted_part.get(field)
        if isinstance(found, dict) and isinstance(written, dict):
            live_part[field] = only(found, written)
        elif isinstance(found, list) and isinstance(written, list):
            live_part[field] = [each for each in found if each in written]
    return made


def _started(live: Mapping[str, Any]) -> bool:
    queued = QUEUE in (live["metadata"].get("labels") or {})
    return queued and live.get("kind") == "JobSet" and not live["spec"].get("suspend")


def _places(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, Document, Document]]:
    """Yield field name and parent object in both documents, for each replicated job that both have."""
    templates = {job.name: job.template for job in jobs_of(other)}
    for job in jobs_of(one):
        if job.name in templates:
            for part, name in (*KEYED, *LISTS):
                yield name, job.template.setdefault(part, {}), templates[job.name].get(part) or {}
