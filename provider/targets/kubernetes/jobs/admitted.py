"""What Kueue writes into the pods of a JobSet that it lets start: nodes and tolerations of flavors, labels, annotations, gates.

Nobody may change these fields while the job runs, so an apply says what stands there, and a job that is adopted has them beside
its own (https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/podset/podset.go, Merge). Into a TrainJob Kueue writes a
runtimePatch of its own, which no apply of ours touches.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.targets.kubernetes.jobs.drift import KEYED, LISTS

Document = dict[str, Any]


def kept(wanted: Document, live: Mapping[str, Any]) -> Document:
    """The document with what stands in the pods of the live job, where that is more of the same; the server refuses the rest."""
    if not _started(live):
        return wanted
    made = copy.deepcopy(wanted)
    for place, ours, theirs in _places(made, live):
        if place in theirs and _within(ours.get(place), theirs[place]):
            ours[place] = copy.deepcopy(theirs[place])
    return made


def _within(few: Any, many: Any) -> bool:
    if isinstance(few, dict) and isinstance(many, dict):
        return few.items() <= many.items()
    if isinstance(few, list) and isinstance(many, list):
        return all(each in many for each in few)
    return few is None


def without(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> Document:
    """The live job, less what is not in the document."""
    made = copy.deepcopy(dict(live))
    if not _started(live):
        return made
    for place, theirs, ours in _places(made, wanted):
        found, said = theirs.pop(place, None), ours.get(place)
        if isinstance(found, dict) and isinstance(said, dict):
            theirs[place] = {key: value for key, value in found.items() if key in said}
        elif isinstance(found, list) and isinstance(said, list):
            theirs[place] = [each for each in found if each in said]
    return made


def _started(live: Mapping[str, Any]) -> bool:
    queued = QUEUE in (live["metadata"].get("labels") or {})
    return queued and live.get("kind") == "JobSet" and not live["spec"].get("suspend")


def _places(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, Document, Document]]:
    """Name of a field, and what holds it in both, of each replicated job that both have."""
    templates = {each["name"]: _template(each) for each in other["spec"]["replicatedJobs"]}
    for each in one["spec"]["replicatedJobs"]:
        if each["name"] in templates:
            for part, name in (*KEYED, *LISTS):
                yield name, _template(each).setdefault(part, {}), templates[each["name"]].get(part) or {}


def _template(job: Mapping[str, Any]) -> Document:
    template: Document = job["template"]["spec"]["template"]
    return template
