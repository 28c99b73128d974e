"""What happened to a job: Kubernetes' events about its objects, in order, repeated ones folded. Pure; called by `events`.

Events: https://github.com/kubernetes/api/blob/v0.36.3/core/v1/types.go (Event).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

from pulumi_trainer.provider.kube.values.accessors import (
    Document,
    name_of,
    number,
    seconds,
    section,
    text,
)
from pulumi_trainer.provider.lifecycle.diagnosis.seen import Seen, moment


@dataclass
class Happened:
    """One thing that happened to one or more objects. first, last: seconds since the epoch. objects: names."""

    first: float
    last: float
    count: int
    type: str
    reason: str
    kind: str
    objects: list[str] = field(default_factory=list)
    message: str = ""
    source: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As `--json` tells it."""
        return {**asdict(self), "first": _time(self.first), "last": _time(self.last)}


def about(seen: Seen) -> re.Pattern[str]:
    """Matches "Kind/name" of the objects of a job, those included that are no more."""
    name = re.escape(seen.name)
    steps = "|".join(re.escape(text(s.get("name"))) for s in seen.steps) or "[a-z0-9-]+?"
    work = "|".join(
        [f"(?:jobset|trainjob)-{name}-[0-9a-f]{{5}}", *([re.escape(name_of(seen.workload))] * bool(seen.workload))]
    )
    return re.compile(
        rf"(?:JobSet|TrainJob)/{name}|PodGroup/{name}(?:\.(?:{steps}))?|Workload/(?:{work})"
        rf"|Job/{name}-(?:{steps})-\d+|Pod/{name}-(?:{steps})-\d+-\d+-[a-z0-9]{{5}}"
    )


def belongs(event: Document, objects: re.Pattern[str], since: float) -> bool:
    """since: when the job was created; an earlier job of the same name is another one."""
    about_ = section(event, "involvedObject")
    return (
        bool(objects.fullmatch(f"{text(about_.get('kind'))}/{text(about_.get('name'))}")) and moment(event) >= since - 1
    )


def folded(events: Iterable[Document], name: str) -> list[Happened]:
    """In the order in which they first happened. The same event is one, also of several objects of a kind. name: of the job,
    with which the names of its objects begin."""
    named = re.compile(rf"(?<![a-z0-9-]){re.escape(name)}-[a-z0-9-]+")
    found: dict[tuple[str, ...], Happened] = {}
    for one in sorted(map(_happened, events), key=lambda h: (h.first, h.last)):
        general = named.sub("*", one.message)
        if one.reason == "Scheduled":
            general = general.rpartition(" to ")[0]
        known = found.setdefault((one.kind, one.type, one.reason, general), one)
        if known is not one:
            known.count += one.count
            known.last = max(known.last, one.last)
            known.objects += [name for name in one.objects if name not in known.objects]
    return list(found.values())


def _happened(event: Document) -> Happened:
    about_ = section(event, "involvedObject")
    first = min(t for t in (*map(seconds, (event.get("firstTimestamp"), event.get("eventTime"))), float("inf")) if t)
    last = moment(event)
    return Happened(
        first=min(first, last),
        last=last,
        count=max(number(event.get("count")), number(section(event, "series").get("count")), 1),
        type=text(event.get("type")),
        reason=text(event.get("reason")),
        kind=text(about_.get("kind")),
        objects=[text(about_.get("name"))],
        message=text(event.get("message")),
        source=text(section(event, "source").get("component")) or text(event.get("reportingComponent")),
    )


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
