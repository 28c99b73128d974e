"""Reports why a job has failed: step, rank, the rank's exit code and traceback, the last lines, the path of the log.

A failing rank makes the others fail, so the report is about the earliest one. torchrun describes its ranks in its error file
(written if the rank's entry point is decorated with `record`) and in the summary that it prints last; formats:
torch/distributed/elastic/multiprocessing/errors in https://github.com/pytorch/pytorch/tree/v2.8.0.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pulumi_trainer.provider.kubernetes.values.wording import plural
from pulumi_trainer.provider.lifecycle.diagnosis.error_output import (
    OWN_MESSAGE,
    SILENT,
    RootCause,
    describe_output,
    exit_text,
    find_root_cause,
    find_traceback,
    has_lost_peer,
    last_line,
    summarize_exception,
    without_launcher,
)
from pulumi_trainer.provider.targets.local.paths import read_beginning

LIMIT = 8000
"""Limit on the characters of a message."""

TOGETHER = 5.0
"""Seconds within which failures are attributed to one cause."""


@dataclass(frozen=True)
class Failure:
    """A container that exited with another code than 0 or was killed at the deadline of its Pod, with secrets masked.

    Attributes:
        tail: The newest output.
        traceback: Traceback of the failed rank, from torchrun's error file.
        verdict: Why the Pod was terminated; reported as the reason if set.
        oom_kills: Processes of this machine that the kernel killed for lack of memory while the container ran.
    """

    step: str
    pod: str
    index: int
    container: str
    code: int
    at: float
    tail: str
    log: Path
    traceback: str = ""
    traceback_at: float = 0.0
    start_error: str = ""
    ran: float = 0.0
    signal: int = 0
    verdict: str = ""
    memory_limit: str = ""
    oom_kills: int = 0

    @property
    def not_installed(self) -> bool:
        """Return whether the packages could not be installed, so that user code has not started."""
        return _NOT_INSTALLED in self.tail

    @property
    def refused(self) -> bool:
        """Return whether the program of a tool has refused its input (`run_tool.py`), which another attempt does not change."""
        return self.traceback.startswith(OWN_MESSAGE)


@dataclass(frozen=True)
class Cause:
    """The process that caused a failure: that of torchrun's summary (`root`), otherwise that of the container itself."""

    failure: Failure
    root: RootCause
    at: float
    code: int
    signal: int
    traceback: str

    @property
    def is_consequence(self) -> bool:
        """Return whether another failure probably caused this one: the process got SIGTERM or lost a connection."""
        if self.failure.verdict or self.failure.memory_limit:
            return False
        return self.code == 128 + signal.SIGTERM or has_lost_peer(self.traceback)

    @property
    def lacked_memory(self) -> bool:
        """Return whether lack of memory is the reason, so that nothing that the process has printed is."""
        return bool(self.failure.memory_limit or (self.failure.oom_kills and self.signal == signal.SIGKILL))

    @property
    def ended(self) -> str:
        """Return how the process ended, such as "exit code 1", or why it was killed."""
        failure = self.failure
        if failure.memory_limit:
            return f"memory limit {failure.memory_limit} reached"
        if failure.verdict:
            return failure.verdict
        text = exit_text(self.code, self.signal)
        if self.lacked_memory:
            text += f"; meanwhile the kernel killed {plural(failure.oom_kills, 'program')} for lack of memory"
        return text


_NOT_INSTALLED = "pulumi-trainer: the packages could not be installed"
"""From `bootstrap.py`."""
_ERROR_OF_UV = re.compile(r"^error: (.*)\n((?:  cause: .*\n)*)", re.MULTILINE)

QUICK = 10.0
"""A container that fails within these seconds has probably not begun its work."""


class Repeats:
    """Detects a repeated failure: the same container, exit code and message, each time within `QUICK` or while packages were
    installed."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], tuple[float, object]] = {}

    def is_repeated(self, failure: Failure, progressed: float) -> bool:
        """Return whether the previous attempt of the container failed in the same way.

        A container that was killed, or failed because of another one, does not count: its next attempt may succeed.

        Args:
            progressed: Time of the newest progress of user code, in seconds since the epoch.
        """
        who = failure.pod, failure.container
        at, before = self._newest.get(who, (0.0, None))
        if failure.at == at:
            return False
        cause = _cause(failure)
        killed = bool(failure.verdict) or failure.signal in (signal.SIGKILL, signal.SIGTERM)
        killed = killed and not failure.memory_limit
        counts = (
            failure.not_installed
            or failure.refused
            or (failure.ran < QUICK and not killed and not cause.is_consequence)
        )
        same = None
        if counts:
            same = (failure.code, _VARYING.sub("", _reason_text(cause)))
        self._newest[who] = failure.at, same
        return same is not None and same == before and progressed < failure.at - failure.ran

    def clear(self) -> None:
        """Forget all failures, because a pod has succeeded."""
        self._newest.clear()


_VARYING = re.compile(r"0x[0-9a-f]+|pulumi-trainer-[0-9a-f]{8}-\w+|(?<=/)(?:main(?:\.py)?|modules)-\w+(?=/)")
"""Parts of a message that differ between attempts: addresses in memory, temporary folders."""


def cause_summary(failures: Iterable[Failure]) -> str:
    """Return the first cause of failures in one line; empty without failures."""
    cause = first_cause(failures)
    if cause is None:
        return ""
    if cause.lacked_memory:
        return cause.ended
    shown = last_line(_reason_text(cause), 300, exception=bool(cause.traceback))
    return f"{cause.ended}: {shown or SILENT}"


_PROGRESS = '{"trainerStatus"'
"""In a line that reports progress, which is not a reason."""


def _reason_text(cause: Cause) -> str:
    """Return the reason in the output of a failed container: a traceback, or the last line."""
    failure = cause.failure
    if failure.not_installed:
        errors = _ERROR_OF_UV.findall(failure.tail)
        if errors:
            error, causes = errors[-1]
            first, *others = [line.removeprefix("  cause: ") for line in causes.splitlines()] or [error]
            return "; ".join([first, *others[-1:]])
    lines = without_launcher(failure.tail).rstrip().splitlines()
    while lines and _PROGRESS in lines[-1]:
        lines.pop()
    return failure.start_error or cause.traceback or "".join(lines[-1:])


def report(verdict: str, failures: Iterable[Failure]) -> str:
    cause = first_cause(failures)
    text = verdict
    if cause is not None:
        text = _report_cause(verdict, cause)
    if len(text) <= LIMIT:
        return text
    return f"{text[: LIMIT - 2000]}\n[...]\n{text[-1900:]}"


def first_cause(failures: Iterable[Failure]) -> Cause | None:
    """Return the earliest of the newest failures, preferably not a consequence of another one; None without failures."""
    causes = [*map(_cause, failures)]
    newest = max((c.at for c in causes), default=0.0)
    recent = [c for c in causes if c.at >= newest - TOGETHER]
    return min(recent, key=lambda c: (c.is_consequence, c.at), default=None)


def _cause(failure: Failure) -> Cause:
    root = find_root_cause(failure.tail)
    traceback, at = failure.traceback, _earlier(failure.at, root.at)
    code, ended_by = failure.code, failure.signal
    if root.code is not None:
        code, ended_by = root.code, root.signal
    if traceback:
        at = _earlier(at, failure.traceback_at)
    else:
        traceback = find_traceback(failure.tail, root.prefix, ended_by)
    return Cause(failure, root, at, code, ended_by, traceback)


def _earlier(observed: float, logged: float) -> float:
    """Return the earlier time. torchrun logs whole seconds, so `logged` counts only if it is clearly earlier than `observed`."""
    if logged > 0 and logged + 1.0 < observed:
        return logged + 1.0
    return observed


def read_error_file(path: Path) -> tuple[str, float]:
    """Return traceback and time of torchrun's error file; ("", 0) if not found or not valid."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        message = json.loads(read_beginning(path, 1 << 20))["message"]
        if isinstance(message, str):
            return message, 0.0
        extra = message.get("extraInfo") or {}
        return str(extra.get("py_callstack") or message.get("message") or ""), float(extra.get("timestamp") or 0)
    return "", 0.0


def _report_cause(verdict: str, cause: Cause) -> str:
    failure = cause.failure
    process, container = f"index {failure.index}", f"container {failure.container}"
    if cause.root.rank is not None:
        process = cause.root.name(str(failure.index))
        container = f"{container}: {exit_text(failure.code, failure.signal)}"
    error = "" if cause.lacked_memory else summarize_exception(cause.traceback)
    ended = f"{cause.ended}: {error}" if error else cause.ended
    lines = [f"step {failure.step}, pod {failure.pod}, {process}: {ended} ({container})"]
    printed = [*describe_output(failure.tail, cause.traceback)]
    if failure.start_error:
        printed.insert(0, failure.start_error)
    lines += printed or [SILENT]
    lines += [f"log: {failure.log}", verdict]
    if failure.memory_limit:
        lines.append("Hint: raise resources_per_node, or use a smaller batch")
    elif cause.lacked_memory:
        lines.append("Hint: use a smaller batch, or run fewer jobs at once: Local(max_parallel=)")
    return "\n".join(lines)
