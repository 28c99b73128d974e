"""How far a fetch is: counted by the threads of `transfer`, told at most once a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.kube.values.quantity import human

INTERVAL = 1.0
LONGEST = (1 << 31) - 1
"""Trainer's estimatedRemainingSeconds has 32 bits."""


@dataclass(frozen=True)
class Progress:
    """done, total: bytes. seconds_left: None while nothing can be said. percent is 100 only when everything is in place."""

    done: int
    total: int
    files_done: int
    files: int
    seconds_left: int | None
    finished: bool = False

    @property
    def percent(self) -> int:
        return 100 if self.finished else min(99, self.done * 100 // max(1, self.total))

    def trainer_status(self) -> dict[str, Any]:
        """The line of JSON that a target shows (`JobStatus.progress`)."""
        status: dict[str, Any] = {"progressPercentage": self.percent}
        if self.seconds_left is not None:
            status["estimatedRemainingSeconds"] = self.seconds_left
        return {"trainerStatus": {**status, "metrics": [{"name": "bytes", "value": str(self.done)}]}}

    def __str__(self) -> str:
        left = "" if self.seconds_left is None or self.finished else f", {self.seconds_left} s left"
        files = f"{self.files_done} of {self.files} files"
        return f"{self.percent}%: {human(self.done)} of {human(self.total)}, {files}{left}"


Report = Callable[[Progress], None]


class Meter:
    """Counts from any thread."""

    def __init__(self, report: Report, total: int, files: int) -> None:
        self._report, self._total, self._files = report, total, files
        self._lock = threading.Lock()
        self._done = self._kept = self._files_done = 0
        self._begun = self._told = time.monotonic()

    def kept(self, size: int) -> None:
        """A file, or a part of one, that was there already."""
        with self._lock:
            self._done += size
            self._kept += size

    def add(self, size: int) -> None:
        """Bytes have come; negative: they were wrong, and will come again."""
        with self._lock:
            self._done += size
            if time.monotonic() - self._told >= INTERVAL:
                self._tell()

    def file(self) -> None:
        with self._lock:
            self._files_done += 1

    def _tell(self) -> None:
        self._told = time.monotonic()
        rate = (self._done - self._kept) / max(1e-3, self._told - self._begun)
        left = min(LONGEST, int((self._total - self._done) / rate)) if rate > 0 else None
        self._report(Progress(self._done, self._total, self._files_done, self._files, left))
