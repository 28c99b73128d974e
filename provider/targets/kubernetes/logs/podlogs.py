"""What the containers of a job have printed, and what they print from now on.

History is read container by container and told by time; `following` goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pulumi_trainer.provider.api.progress import progress
from pulumi_trainer.provider.kube.client.client import ApiError, Client, Unreachable
from pulumi_trainer.provider.kube.errors import TargetFault
from pulumi_trainer.provider.lifecycle.diagnosis.seen import JOBSET_NAME, STEP, Seen
from pulumi_trainer.provider.targets.kubernetes.logs.loglines import (
    Line,
    Position,
    fresh,
    merged,
    pieces,
    stamped,
)
from pulumi_trainer.provider.targets.kubernetes.logs.logsources import (
    Document,
    Source,
    newest,
    ordered,
    sources,
)
from pulumi_trainer.provider.targets.kubernetes.observe.progress import rank_0

AT_ONCE = 64
"""Logs that are read at the same time."""
IDLE = 60.0
"""Seconds of silence after which a connection may be dead: it is made anew."""
PROGRESS_LINES = 100
"""Lines of rank 0 that are looked through for its progress."""
PROGRESS_BYTES = 2**20
_PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds between attempts to go on with a log."""

Positions = dict[tuple[str, str], Position]


@dataclass(frozen=True)
class Wish:
    """Which lines of a job. step: only of this one. lines: only the last of each container; None: all. since: only those of
    the last seconds. earlier: also those of earlier attempts, as far as they are still there."""

    step: str = ""
    lines: int | None = None
    since: float | None = None
    earlier: bool = False

    def labels(self, name: str) -> str:
        """Selector of the pods."""
        return f"{JOBSET_NAME}={name}" + (f",{STEP}={self.step}" if self.step else "")


def history(
    client: Client, namespace: str, pods: list[Document], wish: Wish, positions: Positions, note: Callable[[str], None]
) -> Iterator[Line]:
    """Lines that are there; positions: how far each log has been read."""
    chosen = ordered(pods if wish.earlier else newest(pods))
    logs = iter([s for pod in chosen for s in sources(pod) if s.started])
    while group := list(islice(logs, AT_ONCE)):
        streams = []
        for source in group:
            position = positions.setdefault(
                source.key, Position(limited=wish.lines is not None or wish.since is not None)
            )
            streams.append(_persistent(client, namespace, source, wish, position, note))
        yield from merged(streams)


def read(
    client: Client,
    namespace: str,
    source: Source,
    position: Position,
    wish: Wish | None = None,
    *,
    follow: bool = False,
    previous: bool = False,
    complete: bool = False,
    opened: Callable[[Callable[[], None]], None] | None = None,
) -> Iterator[Line]:
    """What is new in a log: one request. wish: with its limits. complete: as `fresh`. opened: as `Client.logs`. Raises ApiError,
    Unreachable."""
    query = {"container": source.container, "timestamps": "true"}
    if since := position.since:
        query["sinceTime"] = since
    elif wish is not None and wish.since is not None:
        query["sinceSeconds"] = str(max(1, round(wish.since)))
    if wish is not None and wish.lines is not None:
        query["tailLines"] = str(wish.lines)
    query |= {"follow": "true"} if follow else {}
    query |= {"previous": "true"} if previous else {}
    chunks = client.logs(namespace, source.pod, query, idle=IDLE, opened=opened)
    try:
        for moment, data in fresh(chunks, position, complete=complete):
            text = data.decode(errors="replace").removesuffix("\r")
            yield Line(moment or position.newest, source.pod, source.container, text, source.alone)
    finally:
        with suppress(AttributeError):
            chunks.close()  # type: ignore[attr-defined]


def last(client: Client, namespace: str, source: Source, *, previous: bool) -> int:
    """Time of the last line of a log, in nanoseconds since the epoch; 0: there is none. Raises ApiError, Unreachable."""
    query = {"container": source.container, "timestamps": "true", "tailLines": "1"}
    chunks = client.logs(namespace, source.pod, query | ({"previous": "true"} if previous else {}), idle=IDLE)
    return next((stamped(piece.data)[0] for piece in pieces(chunks)), 0)


def gone(error: ApiError) -> bool:
    """There is no such log: the pod is gone, the container has not started, or its earlier run was cleaned up."""
    return error.code in (400, 404)


def progress_of(client: Client, seen: Seen) -> dict[str, Any] | None:
    """The newest trainerStatus that rank 0 of a running job has printed, if it is among its last lines."""
    found = rank_0(seen)
    if found is None:
        return None
    pod, container = found
    query = {"container": container, "tailLines": str(PROGRESS_LINES)}
    try:
        text = client.log_tail(seen.namespace, pod, query, PROGRESS_BYTES)
    except (ApiError, Unreachable):
        return None
    return next((p for line in reversed(text.split(b"\n")) if (p := progress(line, time.time()))), None)


def _persistent(
    client: Client, namespace: str, source: Source, wish: Wish, position: Position, note: Callable[[str], None]
) -> Iterator[Line]:
    """All of a log that is there, through connections that break. A node that is away is noted: its logs are not to be had."""
    for previous in (True, False) if wish.earlier and source.restarts else (False,):
        for pause in (*_PAUSES, None):
            try:
                complete = previous or source.ended
                yield from read(client, namespace, source, position, wish, previous=previous, complete=complete)
                break
            except ApiError as error:
                if gone(error):
                    break
                if error.code < 500 and error.code != 429:
                    raise
                fault: TargetFault = error
            except Unreachable as broken:
                fault = broken
            if pause is None:
                note(str(fault))
            else:
                time.sleep(pause)
