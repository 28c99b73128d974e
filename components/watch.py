"""One watch for all jobs of a program: who waits for a job asks it, and progress is shown while somebody waits."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.api.status import JobStatus, Phase, describe

INTERVAL = 0.25
"""Seconds between two looks at a job."""
LINE_EVERY = 30.0
"""Seconds between two progress lines where there is no terminal to update."""

_STARTED = {Phase.RUNNING.value, Phase.RESTARTING.value}
_ADMITTED = _STARTED | {Phase.ADMITTED.value, Phase.STARTING.value}
REACHED: dict[str, set[str]] = {"created": set(Phase), "admitted": _ADMITTED, "running": _STARTED, "complete": set()}
"""wait_for -> phases in which the wait is over; it is always over when the job is."""


@dataclass
class _Wait:
    target: dict[str, Any]
    namespace: str
    name: str
    row: pulumi.Resource
    over: Callable[[JobStatus | None], bool]
    done: asyncio.Future[JobStatus | None]
    shown: str = ""
    shown_at: float = 0.0


@dataclass
class Watch:
    """Looks at every job that somebody waits for, in one task."""

    _waits: list[_Wait] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None

    async def until(
        self, wait_for: str, target: dict[str, Any], namespace: str, name: str, row: pulumi.Resource
    ) -> JobStatus | None:
        """The job once it has come as far as `wait_for` or has ended; None where the target knows nothing of it. Shows what
        it does on `row`."""
        reached = REACHED[wait_for]

        def over(status: JobStatus | None) -> bool:
            return status is None or status.terminal or status.phase in reached or status.phase == Phase.SUSPENDED

        first = dynamic.observe(target, namespace, name)
        if over(first):
            return first
        pulumi.log.info(
            f"waiting for {namespace}/{name} to be {wait_for}. Ctrl-C ends only the waiting: the job runs on, `pulumi up`"
            " waits again, `pulumi-trainer logs -f` follows it, `pulumi destroy` or suspend=True stops it",
            row,
        )
        wait = _Wait(target, namespace, name, row, over, asyncio.get_event_loop().create_future())
        self._waits.append(wait)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._look())
        return await wait.done

    async def _look(self) -> None:
        while self._waits:
            for wait in list(self._waits):
                try:
                    status = dynamic.observe(wait.target, wait.namespace, wait.name)
                except Exception as error:
                    wait.done.set_exception(error)
                    self._waits.remove(wait)
                    continue
                if status is not None:
                    _show(wait, status)
                if wait.over(status):
                    wait.done.set_result(status)
                    self._waits.remove(wait)
            await asyncio.sleep(INTERVAL)


def _show(wait: _Wait, status: JobStatus) -> None:
    text, now = describe(status), time.monotonic()
    if text == wait.shown:
        return
    terminal = os.environ.get("PULUMI_TRAINER_PROGRESS") == "tty"
    changed = text.split(" ", 1)[0] != wait.shown.split(" ", 1)[0]
    pause = INTERVAL if terminal else LINE_EVERY
    if changed or now - wait.shown_at >= pause:
        wait.shown, wait.shown_at = text, now
        pulumi.log.info(f"{wait.name}: {text}", wait.row, ephemeral=terminal)
