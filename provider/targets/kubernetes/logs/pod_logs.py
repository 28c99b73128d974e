"""Reads the existing log lines of a job, container by container, merged by time; `log_follow` continues from there."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client, Unreachable
from pulumi_trainer.provider.kubernetes.errors import TargetFault
from pulumi_trainer.provider.kubernetes.values.wording import plural
from pulumi_trainer.provider.lifecycle.diagnosis.job_view import STEP
from pulumi_trainer.provider.pod.code import with_user_paths
from pulumi_trainer.provider.targets.kubernetes.logs.log_lines import (
    Line,
    Position,
    merge,
    new_lines,
    split_lines,
    split_timestamp,
)
from pulumi_trainer.provider.targets.kubernetes.logs.log_sources import (
    Document,
    Source,
    newest_pods,
    sort_pods,
    sources,
)
from pulumi_trainer.provider.trainer.labels import JOBSET_NAME

AT_ONCE = 64
"""Number of logs that are read at the same time."""
IDLE = 60.0
"""Seconds of silence after which a connection may be dead and is opened again."""
_PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds between attempts to go on with a log."""

Positions = dict[tuple[str, str], Position]


@dataclass(frozen=True)
class LogSelection:
    """Selects log lines of a job.

    Args:
        lines: Number of last lines of each container; None for all.
        earlier: Include earlier attempts, if their logs still exist.
        filter_of: Returns, by the name of a pod, the test of the texts of the lines that `lines` counts; None counts all.
    """

    step: str = ""
    lines: int | None = None
    since: float | None = None
    earlier: bool = False
    filter_of: Callable[[str], Callable[[str], bool] | None] | None = None

    def line_filter(self, pod: str) -> Callable[[str], bool] | None:
        """Return the test of the lines of a pod that `lines` counts; None if it counts all, or if there is no limit."""
        if not self.lines or self.filter_of is None:
            return None
        return self.filter_of(pod)

    def labels(self, name: str) -> str:
        if not self.step:
            return f"{JOBSET_NAME}={name}"
        return f"{JOBSET_NAME}={name},{STEP}={self.step}"


def history(
    client: Client,
    namespace: str,
    pods: list[Document],
    selection: LogSelection,
    positions: Positions,
    note: Callable[[str], None],
) -> Iterator[Line]:
    """Yield the existing lines. positions: How far each log was read; updated."""
    chosen = sort_pods(pods if selection.earlier else newest_pods(pods))
    logs = iter(_started(chosen))
    while True:
        group = list(islice(logs, AT_ONCE))
        if not group:
            return
        yield from merge([_existing(client, namespace, source, selection, positions, note) for source in group])


def _existing(
    client: Client,
    namespace: str,
    source: Source,
    selection: LogSelection,
    positions: Positions,
    note: Callable[[str], None],
) -> Iterator[Line]:
    """Yield the existing lines of a log. The server can only limit all lines: a log with a line filter is read whole."""
    matches = selection.line_filter(source.pod)
    request = selection
    if matches is not None:
        request = replace(selection, lines=None)
    limited = request.lines is not None or request.since is not None
    position = positions.setdefault(source.key, Position(limited=limited))
    lines = _with_retries(client, namespace, source, request, position, note)
    if matches is None:
        return lines
    return _last_matching(lines, selection.lines, matches)


def _last_matching(lines: Iterable[Line], number: int | None, matches: Callable[[str], bool]) -> Iterator[Line]:
    """Yield the last lines whose text matches, after all lines were read."""
    yield from deque((line for line in lines if matches(line.text)), maxlen=number)


def _started(pods: list[Document]) -> list[Source]:
    found: list[Source] = []
    for pod in pods:
        found += [source for source in sources(pod) if source.started]
    return found


def read_log(
    client: Client,
    namespace: str,
    source: Source,
    position: Position,
    selection: LogSelection | None = None,
    *,
    follow: bool = False,
    previous: bool = False,
    complete: bool = False,
    opened: Callable[[Callable[[], None]], None] | None = None,
) -> Iterator[Line]:
    """Yield the new lines of a log, with one request. previous: Whether to read the previous run of the container."""
    query = {"container": source.container, "timestamps": "true"}
    since = position.since
    if since:
        query["sinceTime"] = since
    elif selection is not None and selection.since is not None:
        query["sinceSeconds"] = str(max(1, round(selection.since)))
    if selection is not None and selection.lines is not None:
        query["tailLines"] = str(selection.lines)
    if follow:
        query["follow"] = "true"
    if previous:
        query["previous"] = "true"
    chunks = client.logs(namespace, source.pod, query, idle=IDLE, opened=opened)
    try:
        for moment, data in new_lines(chunks, position, complete=complete):
            text = with_user_paths(data.decode(errors="replace").removesuffix("\r"))
            yield Line(moment or position.newest, source.pod, source.container, text, source.alone)
    finally:
        with suppress(AttributeError):
            chunks.close()  # type: ignore[attr-defined]


def last_time(client: Client, namespace: str, source: Source, *, previous: bool) -> int:
    """Return the time of the last line of a log, in nanoseconds since the epoch; 0 if it is empty."""
    query = {"container": source.container, "timestamps": "true", "tailLines": "1"}
    if previous:
        query["previous"] = "true"
    chunks = client.logs(namespace, source.pod, query, idle=IDLE)
    return next((split_timestamp(piece.data)[0] for piece in split_lines(chunks)), 0)


def _with_retries(
    client: Client,
    namespace: str,
    source: Source,
    selection: LogSelection,
    position: Position,
    note: Callable[[str], None],
) -> Iterator[Line]:
    """Yield a whole log, and retry broken connections. Reports with `note` an unreachable node and logs that are gone."""
    runs = (True, False) if selection.earlier and source.restarts else (False,)
    gone = source.restarts - 1  # Kubernetes keeps one
    for previous in runs:
        for pause in (*_PAUSES, None):
            try:
                complete = previous or source.ended
                yield from read_log(
                    client, namespace, source, position, selection, previous=previous, complete=complete
                )
                break
            except ApiError as error:
                if error.code in (400, 404):  # the Pod or an earlier run is gone, or the container has not started
                    gone += previous
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
        if previous and gone:
            earlier = plural(gone, "earlier run")
            note(f"{source.pod}: Kubernetes has removed the output of {earlier} of container {source.container}")
