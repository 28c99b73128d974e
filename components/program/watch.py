"""The watch of a program's jobs: it waits for jobs, and shows their progress meanwhile."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypedDict

import pulumi
from pulumi_trainer.program import messages
from pulumi_trainer.program.log_tail import FIRST_LINES, LogTail
from pulumi_trainer.provider.jobs.progress import NOTHING_LEFT
from pulumi_trainer.provider.jobs.status import NOT_STARTED, JobStatus, Phase, describe
from pulumi_trainer.provider.kubernetes.errors import Problem, TrainerError
from pulumi_trainer.provider.kubernetes.terminal import plain
from pulumi_trainer.provider.kubernetes.values.wording import duration
from pulumi_trainer.provider.targets import status_source

INTERVAL = 0.25
"""Seconds between two checks for changes."""
LINE_EVERY = 30.0
"""Seconds between two lines about a job that stays in its phase, without a terminal to update."""
LAST_LOOK = 1.0
"""Seconds after the end of the last wait until a failure ends the program, which registers the outputs of its jobs meanwhile."""
STUCK = 30.0
"""Seconds until a failure ends a program in which a job waits for something else than its target and the jobs before it."""
AT_MOST_EVERY = 1.0
"""Seconds between two lines about a job."""
_BEGAN = time.time()
_SKEW = 60.0
"""Seconds by which the clocks of this machine and of a cluster may differ."""
LONGEST = 240
"""Characters of a message in a line."""
MOST_ASKED = 50
"""Running jobs that are not waited for and whose progress is read nevertheless."""
BACK_OFF = "BackOff"
"""Reason of a job in which something has failed and will be started again."""

_STARTED = {Phase.RUNNING.value, Phase.RESTARTING.value}
_ADMITTED = _STARTED | {Phase.ADMITTED.value, Phase.STARTING.value}


class Timeouts(TypedDict, total=False):
    """Seconds that `pulumi up` waits for a job to reach a stage; default: no limit.

    The first stage counts from the start of the wait, each further one from the time when the previous one was reached (again: a
    preempted job is queued again).

    Attributes:
        admitted: Seconds until Kueue has admitted the job.
        running: Seconds until the job runs.
        complete: Seconds until the job has ended.
    """

    admitted: float
    running: float
    complete: float


STAGES = tuple(Timeouts.__annotations__)
"""Stages that may have a timeout, in the order in which a job reaches them."""
REACHED: dict[str, set[str]] = {"created": set(Phase), "admitted": _ADMITTED, "running": _STARTED, "complete": set()}
"""wait_for -> phases that end the wait; the end of the job always ends it."""
_WAITING = (Phase.PENDING, Phase.QUEUED, Phase.STARTING, Phase.RESTARTING)


def timeout_problems(given: Any) -> list[Problem]:
    """Return the problems of a `timeouts` argument."""
    if given is None:
        return []
    if not isinstance(given, Mapping):
        return [Problem("timeouts", f'must be a mapping such as {{"admitted": 600}}, not {given!r}')]
    found = [Problem(f"timeouts.{k}", f"must be one of {', '.join(STAGES)}") for k in given if k not in STAGES]
    for stage, seconds in given.items():
        if stage not in STAGES:
            continue
        is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if not is_number or not seconds > 0:
            found.append(Problem(f"timeouts.{stage}", f"must be a number of seconds above 0, not {seconds!r}"))
    return found


@dataclass(frozen=True)
class Watched:
    """A job that the program waits for.

    Attributes:
        row: Resource that shows the job's progress.
        log_step: Step whose rank 0 prints its log here; empty if the log is not shown.
    """

    target: Mapping[str, Any]
    namespace: str
    name: str
    stack: str
    row: pulumi.Resource
    wait_for: str
    timeouts: Mapping[str, float]
    log_step: str = ""

    def is_over(self, status: JobStatus | None) -> bool:
        """Return whether the wait is over."""
        return (
            status is None
            or status.terminal
            or status.phase in REACHED[self.wait_for]
            or status.phase == Phase.SUSPENDED
            or status.reason == NOT_STARTED
        )


@dataclass
class _Wait:
    job: Watched
    source: status_source.Source
    done: asyncio.Future[JobStatus | None]
    status: JobStatus | None = None
    shown: str = ""
    shown_phase: tuple[str, str, bool] = ("", "", False)
    shown_at: float = -math.inf
    stage: str = ""
    stage_at: float = 0.0
    begun: float = field(default_factory=time.monotonic)
    log: LogTail | None = None

    def passed_timeout(self) -> str:
        """Return the stage whose timeout has passed; empty: none."""
        reached = 0
        if self.status is not None and self.status.phase in _STARTED:
            reached = 2
        elif self.status is not None and self.status.phase in _ADMITTED:
            reached = 1
        stage = next((s for s in STAGES[reached:] if s in self.job.timeouts), "")
        if stage != self.stage:
            self.stage_at = self.begun
            if self.stage:
                self.stage_at = time.monotonic()
            self.stage = stage
        if stage and time.monotonic() - self.stage_at > self.job.timeouts[stage]:
            return stage
        return ""


@dataclass
class Watch:
    """Watches all jobs that the program waits for, in one task."""

    _waits: list[_Wait] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None
    _troubled: dict[int, bool] = field(default_factory=dict)
    _changed_at: float = -math.inf
    _unfinished: int = 0
    _asked: int = 0

    @contextmanager
    def expect_end(self) -> Iterator[None]:
        """Count a job as unfinished while the program waits for it to be created and to reach its stage."""
        self._unfinished += 1
        self._changed_at = time.monotonic()
        try:
            yield
        finally:
            self._unfinished -= 1
            self._changed_at = time.monotonic()

    async def end(self) -> None:
        """Wait until no job is waited for."""
        while self._waits or time.monotonic() - self._changed_at < (STUCK if self._unfinished else LAST_LOOK):
            await asyncio.sleep(INTERVAL)

    async def until(self, job: Watched) -> JobStatus | None:
        """Wait until a job has reached `wait_for` or has ended, and show its progress on its row.

        Raises:
            TrainerError: A timeout has passed, or the wait cannot end.
        """
        source = status_source.source(job.target, job.namespace, job.stack, messages.warn)
        status = await asyncio.to_thread(source.first, job.name)
        self._changed_at = time.monotonic()
        unwatched = job.is_over(status)
        if not unwatched:
            same = next((each for each in self._waits if each.job == job), None)
            if same is not None:  # another output of the job waits for the same, and shows it
                status = await same.done
            else:
                status = await self._watch(_Wait(job, source, asyncio.get_event_loop().create_future(), status))
        source.leave(job.name)
        if status is not None and (status.terminal or (unwatched and self._asks_progress(status))):
            return await asyncio.to_thread(source.conclude, job.name)
        return status

    async def _watch(self, wait: _Wait) -> JobStatus | None:
        job = wait.job
        messages.info(
            f"waiting for {job.namespace}/{job.name} to be {job.wait_for}. Ctrl-C ends only the waiting: the job runs on,"
            " `pulumi up` waits again, `pulumi-trainer logs -f` follows it, `pulumi destroy` or suspend=True stops it",
            job.row,
        )
        if job.log_step:
            lines = status_source.log_lines(job.target, job.namespace, job.name, job.log_step, FIRST_LINES)
            wait.log = LogTail(job.row.pulumi_resource_name, lines, job.row)
        self._waits.append(wait)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._resolve_waits())
        status = await wait.done
        if wait.log is not None:
            await wait.log.finish()
        return status

    def _asks_progress(self, status: JobStatus) -> bool:
        """Return whether to read the progress of a job whose log was not followed: of the first `MOST_ASKED` that run."""
        if status.phase != Phase.RUNNING or status.progress:
            return False
        self._asked += 1
        return self._asked <= MOST_ASKED

    async def _resolve_waits(self) -> None:
        while self._waits:
            sources = {id(w.source): w.source for w in self._waits}
            changed = {at: source.changed() for at, source in sources.items()}
            faults = {at: self._trouble(source) for at, source in sources.items()}
            for wait in list(self._waits):
                at = id(wait.source)
                try:
                    fault = faults[at]
                    if fault:
                        raise fault
                    self._step(wait, changed[at])
                except Exception as error:
                    wait.done.set_exception(error)
                if wait.done.done():
                    self._waits.remove(wait)
            await asyncio.sleep(INTERVAL)

    def _step(self, wait: _Wait, changed: set[str] | None) -> None:
        job = wait.job
        if changed is None or job.name in changed:
            wait.status = wait.source.status(job.name)
        if wait.status is not None:
            _show(wait, wait.status)
        if wait.log is not None:
            wait.log.show()
        if job.is_over(wait.status):
            wait.done.set_result(wait.status)
            return
        stage = wait.passed_timeout()
        if stage:
            waited = duration(time.monotonic() - wait.stage_at)
            why = f"is not {stage} after {waited}. {wait.source.why(job.name)}"
            hint = "The job is left as it is: `pulumi up` waits again, timeouts= limits how long"
            raise TrainerError(f"{job.namespace}/{job.name} {why} {hint}")

    def _trouble(self, source: status_source.Source) -> TrainerError | None:
        """Log when the cluster stops and starts answering, once each. Return the error if the wait cannot end."""
        row = next(w.job.row for w in self._waits if w.source is source)
        try:
            trouble = source.trouble()
        except TrainerError as fault:
            return fault
        before = self._troubled.get(id(source), False)
        if trouble and not before:
            messages.info(f"{trouble}. The job runs on by itself; waiting goes on", row)
        elif before and not trouble:
            messages.info("the cluster answers again", row)
        self._troubled[id(source)] = bool(trouble)
        return None


def _show(wait: _Wait, status: JobStatus) -> None:
    """Log a job's line if it has changed: at once for another phase or a new explanation, but at most one line a second.

    The line that ends the wait is always logged, and so is a failure, since the next attempt begins soon.
    """
    text, now = _line(status), time.monotonic()
    phase = (status.phase, status.reason, bool(status.message))
    failed = status.reason == BACK_OFF and phase != wait.shown_phase
    is_due = now - wait.shown_at >= AT_MOST_EVERY or failed or wait.job.is_over(status)
    if text == wait.shown or not is_due:
        return
    terminal = os.environ.get("PULUMI_TRAINER_PROGRESS") == "tty"
    pause = LINE_EVERY
    if terminal:
        pause = AT_MOST_EVERY
    if phase != wait.shown_phase or now - wait.shown_at >= pause:
        wait.shown, wait.shown_phase, wait.shown_at = text, phase, now
        messages.info(f"{wait.job.name}: {text}", wait.job.row, ephemeral=terminal)
        if _is_alarming(status):
            messages.warn(f"{wait.job.namespace}/{wait.job.name} has succeeded, but {status.note}", wait.job.row)


def _is_alarming(status: JobStatus) -> bool:
    """Return whether the result of a run that has succeeded may be of no use, unless an earlier program has seen it end."""
    if not status.note or status.note.startswith(NOTHING_LEFT):
        return False
    return not 0 < status.finished < _BEGAN - _SKEW


def _line(status: JobStatus) -> str:
    """Return the status of a job in one line, with the reason if it waits."""
    text = plain(describe(status))
    first = plain(status.message.split("\n", 1)[0])
    if first and (status.phase in _WAITING or status.reason == BACK_OFF):
        text += f": {first[:LONGEST]}"
        if len(first) > LONGEST:
            text += "..."
    return text
