"""`logs`: what the containers of jobs have printed, each line with its pod; following several jobs at once too."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pulumi_trainer.provider.api.status import Phase
from pulumi_trainer.provider.commands.jobs import check_own, chosen, none, of_stack, states
from pulumi_trainer.provider.commands.reach import Job, Where
from pulumi_trainer.provider.kube.errors import Invalid, Problem, TrainerError
from pulumi_trainer.provider.kube.terminal import Prefixes, harmless, plain

MOST = 20
"""Jobs of a cluster that are followed at once."""
MAIN = "node"
"""The container of a step that a runtime's training runs in: it goes without saying."""


@dataclass(frozen=True)
class Wanted:
    """Options of the command. lines: the last of each container; since: of the last seconds; earlier: earlier attempts too."""

    follow: bool = False
    step: str = ""
    lines: int | None = None
    since: float | None = None
    earlier: bool = False


class Printed(NamedTuple):
    """container: empty where it goes without saying."""

    pod: str
    container: str
    text: str


def logs(job: str | None, where: Where, wanted: Wanted) -> None:
    """Prints the lines; follow: until the jobs have ended."""
    jobs = chosen(job, where)
    if not jobs and not of_stack(job, where):
        raise none(where)
    if wanted.follow and sum(j.local is None for j in jobs) > MOST:
        raise Invalid(Problem("logs -f", f"there are {len(jobs)} jobs, and {MOST} can be followed at once", "name one"))
    if wanted.since is not None and any(j.local is not None for j in jobs):
        raise Invalid(Problem("--since", "the logs of a job on this machine hold no times", "use --tail"))
    terminal = sys.stdout.isatty()
    prefixes = Prefixes(coloured=terminal and "NO_COLOR" not in os.environ)
    if wanted.follow and any(j.local is None for j in jobs):
        _announce(jobs)
    streams = [_stream(j, wanted) for j in jobs]
    printed = False
    try:
        for line in _together(streams) if wanted.follow and len(streams) > 1 else _one_by_one(streams):
            text = harmless(line.text) if terminal else line.text
            sys.stdout.write(f"{prefixes.of(line.pod, line.container)}{text}\n")
            printed = True
            if wanted.follow:
                sys.stdout.flush()
        if not printed and wanted.lines != 0:
            why = "nothing was printed, or the pods that did are gone"
            _note(f"{', '.join(j.label for j in jobs[:3])}: {why}; `pulumi-trainer why` says more")
    except KeyboardInterrupt:
        sys.exit(130)


def _announce(jobs: Sequence[Job]) -> None:
    """Why nothing comes yet."""
    for each in states(jobs):
        now = each.status
        if now is not None and not now.terminal and now.phase != Phase.RUNNING:
            reason = f" ({plain(now.reason)})" if now.reason else ""
            _note(f"{each.job.label} is {now.phase}{reason}; `pulumi-trainer why` says more")


def _note(text: str) -> None:
    sys.stdout.flush()
    print(f"pulumi-trainer: {plain(text)}", file=sys.stderr, flush=True)


def _stream(job: Job, wanted: Wanted) -> Iterator[Printed]:
    return _here(job, wanted) if job.local is not None else _there(job, wanted)


def _there(job: Job, wanted: Wanted) -> Iterator[Printed]:
    from pulumi_trainer.provider.targets.kubernetes.logs.podlogs import Wish
    from pulumi_trainer.provider.targets.kubernetes.logs.tail import tail

    assert job.client is not None
    check_own(job)
    wish = Wish(wanted.step, wanted.lines, wanted.since, wanted.earlier)
    for line in tail(job.client, job.namespace, job.name, wish, follow=wanted.follow, note=_note):
        yield Printed(line.pod, "" if line.alone or line.container == MAIN else line.container, line.text)


def _here(job: Job, wanted: Wanted) -> Iterator[Printed]:
    assert job.local is not None
    lines = sys.maxsize if wanted.lines is None else wanted.lines
    for pod, container, text in job.local.tail(
        job.namespace, job.name, wanted.step or None, lines=lines, follow=wanted.follow
    ):
        yield Printed(pod, "" if container == MAIN else container, text)


def _one_by_one(streams: Sequence[Iterator[Printed]]) -> Iterator[Printed]:
    for stream in streams:
        yield from stream


def _together(streams: Sequence[Iterator[Printed]]) -> Iterator[Printed]:
    """Lines of several jobs as they come. Raises what one of them raises."""
    lines: queue.Queue[Printed | BaseException | None] = queue.Queue(256)

    def run(stream: Iterator[Printed]) -> Callable[[], None]:
        def pump() -> None:
            try:
                for line in stream:
                    lines.put(line)
                lines.put(None)
            except TrainerError as error:
                lines.put(error)

        return pump

    for stream in streams:
        threading.Thread(target=run(stream), name="job", daemon=True).start()
    left = len(streams)
    while left:
        line = lines.get()
        if isinstance(line, BaseException):
            raise line
        if line is None:
            left -= 1
        else:
            yield line
