"""The progress of a fetch: counted by the threads of `transfer`, reported at most once a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.kubernetes.values.quantity import format_bytes

INTERVAL = 1.0
MAX_SECONDS = (1 << 31) - 1
"""Trainer's estimatedRemainingSeconds has 32 bits."""


@dataclass(frozen=True)
class Progress:
    """A report. seconds_left: Estimate in seconds; None if unknown."""

    done: int
    total: int
    files_done: int
    files: int
    seconds_left: int | None
    finished: bool = False

    @property
    def percent(self) -> int:
        """Return the percentage of transferred bytes; 100 only if the fetch is complete."""
        return 100 if self.finished else min(99, self.done * 100 // max(1, self.total))

    def trainer_status(self) -> dict[str, Any]:
        """Return the JSON object of a line that a target shows (`JobStatus.progress`)."""
        status: dict[str, Any] = {"progressPercentage": self.percent}
        if self.seconds_left is not None:
            status["estimatedRemainingSeconds"] = self.seconds_left
        return {"trainerStatus": {**status, "metrics": [{"name": "bytes", "value": str(self.done)}]}}

    def __str__(self) -> str:
        left = ""
        if self.seconds_left is not None and not self.finished:
            left = f", {self.seconds_left} s left"
        files = f"{self.files_done} of {self.files} files"
        return f"{self.percent}%: {format_bytes(self.done)} of {format_bytes(self.total)}, {files}{left}"


Report = Callable[[Progress], None]


class Meter:
    """Counts bytes and files. Every method may be called from any thread."""

    def __init__(self, report: Report, total: int, files: int) -> None:
        self._report, self._total, self._files = report, total, files
        self._lock = threading.Lock()
        self._arriving: dict[str, int] = {}
        self._done = self._reused = self._files_done = 0
        self._begun = self._reported = time.monotonic()

    def add(self, path: str, size: int) -> None:
        """Count bytes of a file that have arrived; a negative size if they are transferred again."""
        with self._lock:
            self._arriving[path] = self._arriving.get(path, 0) + size
            self._done += size
            if time.monotonic() - self._reported >= INTERVAL:
                self._send_report()

    def reset(self, path: str) -> None:
        """Forget the bytes of a file, which is transferred again."""
        with self._lock:
            self._done -= self._arriving.pop(path, 0)

    def add_file(self, path: str, size: int) -> None:
        """Count a complete file: all of its bytes, whatever has been reported of them."""
        with self._lock:
            self._done += size - self._arriving.pop(path, 0)
            self._files_done += 1

    def add_reused_file(self, size: int) -> None:
        """Count a file that an earlier fetch has transferred."""
        with self._lock:
            self._done += size
            self._reused += size
            self._files_done += 1

    def _send_report(self) -> None:
        self._reported = time.monotonic()
        rate = (self._done - self._reused) / max(1e-3, self._reported - self._begun)
        left = min(MAX_SECONDS, int((self._total - self._done) / rate)) if rate > 0 else None
        self._report(Progress(self._done, self._total, self._files_done, self._files, left))
