"""One watch for all jobs of a program: who waits for a job asks it, and progress is shown while somebody waits."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.api.status import JobStatus, Phase, describe
from pulumi_trainer.provider.kube.errors import Problem, TrainerError
from pulumi_trainer.provider.kube.terminal import plain
from pulumi_trainer.provider.kube.values.wording import duration

INTERVAL = 0.25
"""Seconds between two looks at what has changed."""
LINE_EVERY = 30.0
"""Seconds between two lines about a job that stays in its phase, where there is no terminal to update."""
LAST_LOOK = 1.0
"""Seconds without a first look at another job, after which a failure ends the program."""
AT_MOST_EVERY = 1.0
"""Seconds between two lines about a job."""
LONGEST = 240
"""Characters of a message in a line."""

BACK_OFF = "BackOff"
"""Reason of a job in which something has failed and will be started again."""

_STARTED = {Phase.RUNNING.value, Phase.RESTARTING.value}
_ADMITTED = _STARTED | {Phase.ADMITTED.value, Phase.STARTING.value}
REACHED: dict[str, set[str]] = {"created": set(Phase), "admitted": _ADMITTED, "running": _STARTED, "complete": set()}
"""wait_for -> phases in which the wait is over; it is always over when the job is."""
STAGES = ("admitted", "running", "complete")
"""What may have a timeout, in the order in which a job gets there."""
_WAITING = (Phase.PENDING, Phase.QUEUED, Phase.STARTING, Phase.RESTARTING)


def timeout_problems(given: Any) -> list[Problem]:
    """What is wrong with a `timeouts` argument."""
    if given is None:
        return []
    if not isinstance(given, Mapping):
        return [Problem("timeouts", f'must be a mapping such as {{"admitted": 600}}, not {given!r}')]
    found = [Problem(f"timeouts.{k}", f"must be one of {', '.join(STAGES)}") for k in given if k not in STAGES]
    return found + [
        Problem(f"timeouts.{k}", f"must be a number of seconds above 0, not {v!r}")
        for k, v in given.items()
        if k in STAGES and (isinstance(v, bool) or not isinstance(v, (int, float)) or not v > 0)
    ]


@dataclass(frozen=True)
class Watched:
    """A job that somebody waits for. row: what its progress is shown on. stack: label of the program's jobs in a cluster."""

    target: Mapping[str, Any]
    namespace: str
    name: str
    stack: str
    row: pulumi.Resource
    wait_for: str
    timeouts: Mapping[str, float]

    def over(self, status: JobStatus | None) -> bool:
        """Whether there is nothing more to wait for."""
        return (
            status is None
            or status.terminal
            or status.phase in REACHED[self.wait_for]
            or status.phase == Phase.SUSPENDED
        )


@dataclass
class _Wait:
    job: Watched
    source: dynamic.Source
    done: asyncio.Future[JobStatus | None]
    status: JobStatus | None = None
    shown: str = ""
    shown_phase: tuple[str, str, bool] = ("", "", False)
    shown_at: float = 0.0
    stage: str = ""
    stage_at: float = 0.0
    begun: float = field(default_factory=time.monotonic)

    def late(self) -> str:
        """The timeout that has passed; empty: none."""
        phase = self.status.phase if self.status is not None else ""
        reached = 2 if phase in _STARTED else 1 if phase in _ADMITTED else 0
        stage = next((s for s in STAGES[reached:] if s in self.job.timeouts), "")
        if stage != self.stage:
            self.stage_at = time.monotonic() if self.stage else self.begun
            self.stage = stage
        return stage if stage and time.monotonic() - self.stage_at > self.job.timeouts[stage] else ""


@dataclass
class Watch:
    """Looks at every job that somebody waits for, in one task."""

    _waits: list[_Wait] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None
    _troubled: dict[int, bool] = field(default_factory=dict)
    _failed: dict[str, None] = field(default_factory=dict)
    _looked_at: float = 0.0

    async def failures(self, text: str) -> str:
        """Return how this job has failed, and how the others have that are known to have failed by now: Pulumi ends the program
        with the first error."""
        self._failed[text] = None
        while time.monotonic() - self._looked_at < LAST_LOOK:
            await asyncio.sleep(INTERVAL)
        return "\n\n".join(self._failed)

    async def until(self, job: Watched) -> JobStatus | None:
        """The job once it has come as far as `wait_for` or has ended; None where the target knows nothing of it. Shows what
        it does on its row. Raises TrainerError where it takes longer than its timeouts, or waiting is in vain."""
        source = dynamic.source(job.target, job.namespace, job.stack, pulumi.log.warn)
        status = await asyncio.to_thread(source.first, job.name)
        self._looked_at = time.monotonic()
        if not job.over(status):
            pulumi.log.info(
                f"waiting for {job.namespace}/{job.name} to be {job.wait_for}. Ctrl-C ends only the waiting: the job runs on,"
                " `pulumi up` waits again, `pulumi-trainer logs -f` follows it, `pulumi destroy` or suspend=True stops it",
                job.row,
            )
            wait = _Wait(job, source, asyncio.get_event_loop().create_future(), status)
            self._waits.append(wait)
            if self._task is None or self._task.done():
                self._task = asyncio.ensure_future(self._look())
            status = await wait.done
        source.leave(job.name)
        if status is not None and status.terminal:
            return await asyncio.to_thread(source.conclude, job.name)
        return status

    async def _look(self) -> None:
        while self._waits:
            sources = {id(w.source): w.source for w in self._waits}
            changed = {at: source.changed() for at, source in sources.items()}
            faults = {at: self._trouble(source) for at, source in sources.items()}
            for wait in list(self._waits):
                at = id(wait.source)
                try:
                    if fault := faults[at]:
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
        if job.over(wait.status):
            wait.done.set_result(wait.status)
        elif stage := wait.late():
            waited = duration(time.monotonic() - wait.stage_at)
            why = f"is not {stage} after {waited}. {wait.source.why(job.name)}"
            mend = "The job is left as it is: `pulumi up` waits again, timeouts= says how long"
            raise TrainerError(f"{job.namespace}/{job.name} {why} {mend}")

    def _trouble(self, source: dynamic.Source) -> TrainerError | None:
        """Tells once that there is no news, and once that there is again. Returns why waiting is in vain."""
        row = next(w.job.row for w in self._waits if w.source is source)
        try:
            said = source.trouble()
        except TrainerError as fault:
            return fault
        before = self._troubled.get(id(source), False)
        if said and not before:
            pulumi.log.info(f"{said}. The job runs on by itself; waiting goes on", row)
        elif before and not said:
            pulumi.log.info("the cluster answers again", row)
        self._troubled[id(source)] = bool(said)
        return None


def _show(wait: _Wait, status: JobStatus) -> None:
    """A line, if there is something new to say: at once where the phase is another one or is explained now, but at most one a
    second."""
    text, now = _line(status), time.monotonic()
    phase = (status.phase, status.reason, bool(status.message))
    failed = status.reason == BACK_OFF and phase != wait.shown_phase  # seen for a second: the next attempt begins soon
    if text == wait.shown or (now - wait.shown_at < AT_MOST_EVERY and not failed):
        return
    terminal = os.environ.get("PULUMI_TRAINER_PROGRESS") == "tty"
    pause = AT_MOST_EVERY if terminal else LINE_EVERY
    if phase != wait.shown_phase or now - wait.shown_at >= pause:
        wait.shown, wait.shown_phase, wait.shown_at = text, phase, now
        pulumi.log.info(f"{wait.job.name}: {text}", wait.job.row, ephemeral=terminal)


def _line(status: JobStatus) -> str:
    """A job in one line; of one that waits also for what."""
    text = plain(describe(status))
    first = plain(status.message.split("\n", 1)[0])
    if first and (status.phase in _WAITING or status.reason == BACK_OFF):
        text += f": {first[:LONGEST]}" + ("..." if len(first) > LONGEST else "")
    return text
