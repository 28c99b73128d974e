"""Shows the log lines of a job's rank 0 while `pulumi up` waits for the job."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator

import pulumi
from pulumi_trainer.program import messages
from pulumi_trainer.provider.kubernetes.errors import TrainerError

MOST_LINES = 50
"""Lines that are shown at a time: the engine stores each message, and a job may print faster than anybody reads."""
FIRST_LINES = 100
"""Lines of a log that were printed before the program waits for the job."""
_MOST_WAITING = 10_000
_JOIN_SECONDS = 3.0
"""Seconds that the last lines of an ended job may take."""


class LogTail:
    """Reads lines in a thread of its own."""

    def __init__(self, name: str, lines: Iterator[str], row: pulumi.Resource) -> None:
        self._name, self._lines, self._row = name, lines, row
        self._read: queue.Queue[str] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._copy_lines, name="log", daemon=True)
        self._thread.start()

    def _copy_lines(self) -> None:
        try:
            for line in self._lines:
                self._read.put(line)
        except TrainerError as error:
            self._read.put(f"pulumi-trainer: the log cannot be read any further: {error}")

    def show(self) -> None:
        """Show the lines that were read since the last call: of many the last ones, and how many were left out."""
        lines = []
        while not self._read.empty():
            lines.append(self._read.get())
        if more := max(0, len(lines) - MOST_LINES):
            lines = [f"... {more} more lines: pulumi-trainer logs {self._name}", *lines[more:]]
        if lines:
            messages.log_lines(lines, self._row)

    async def finish(self) -> None:
        """Show the last lines when the wait for the job ends; `pulumi.log` works in the thread of the event loop only."""
        await asyncio.to_thread(self._thread.join, _JOIN_SECONDS)
        self.show()
