"""Orders the Kubernetes events about a job's objects and folds repeated ones.

Events: https://github.com/kubernetes/api/blob/v0.36.3/core/v1/types.go (Event).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from pulumi_trainer.provider.jobs.progress import timestamp
from pulumi_trainer.provider.kubernetes.values.accessors import Document, epoch_seconds, name_of, number, section, text
from pulumi_trainer.provider.lifecycle.diagnosis.job_view import JobView, last_observed


@dataclass
class JobEvent:
    """An event about one or more objects. run: Id of the job's run; empty if it has none."""

    first: float
    last: float
    count: int
    type: str
    reason: str
    kind: str
    objects: list[str] = field(default_factory=list)
    message: str = ""
    source: str = ""
    run: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "first": timestamp(self.first), "last": timestamp(self.last)}


def object_pattern(view: JobView) -> re.Pattern[str]:
    """Return a pattern that matches "Kind/name" of a job's objects, including deleted ones."""
    name = re.escape(view.name)
    steps = "|".join(re.escape(text(s.name)) for s in view.steps) or "[a-z0-9-]+?"
    work = f"(?:jobset|trainjob)-{name}-[0-9a-f]{{5}}"
    if view.workload:
        work += "|" + re.escape(name_of(view.workload))
    return re.compile(
        rf"(?:JobSet|TrainJob)/{name}|PodGroup/{name}(?:\.(?:{steps}))?|Workload/(?:{work})"
        rf"|Job/{name}-(?:{steps})-\d+|Pod/{name}-(?:{steps})-\d+-\d+-[a-z0-9]{{5}}"
    )


def is_about(event: Document, objects: re.Pattern[str], since: float) -> bool:
    """Return whether an event is about a job. since: When the job was created; older events are about an earlier job of the
    same name."""
    involved = section(event, "involvedObject")
    return (
        bool(objects.fullmatch(f"{text(involved.get('kind'))}/{text(involved.get('name'))}"))
        and last_observed(event) >= since - 1
    )


def fold(events: Iterable[Document], name: str) -> list[JobEvent]:
    """Return events in the order of their first occurrence. Equal events about several objects of a kind are one."""
    named = re.compile(rf"(?<![a-z0-9-]){re.escape(name)}-[a-z0-9-]+")
    found: dict[tuple[str, ...], JobEvent] = {}
    for one in sorted(map(_happened, events), key=lambda h: (h.first, h.last)):
        general = named.sub("*", one.message)
        if one.reason == "Scheduled":
            general = general.rpartition(" to ")[0]
        first_one = found.setdefault((one.kind, one.type, one.reason, general), one)
        if first_one is not one:
            first_one.count += one.count
            first_one.last = max(first_one.last, one.last)
            first_one.objects += [name for name in one.objects if name not in first_one.objects]
    return list(found.values())


def _happened(event: Document) -> JobEvent:
    involved = section(event, "involvedObject")
    times = epoch_seconds(event.get("firstTimestamp")), epoch_seconds(event.get("eventTime"))
    last = last_observed(event)
    return JobEvent(
        first=min([*filter(None, times), last]),
        last=last,
        count=max(number(event.get("count")), number(section(event, "series").get("count")), 1),
        type=text(event.get("type")),
        reason=text(event.get("reason")),
        kind=text(involved.get("kind")),
        objects=[text(involved.get("name"))],
        message=text(event.get("message")),
        source=text(section(event, "source").get("component")) or text(event.get("reportingComponent")),
    )
