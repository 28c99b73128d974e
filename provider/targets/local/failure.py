"""Reports why a job has failed: step, rank, the rank's exit code and traceback, the last lines, the path of the log.

A failing rank makes the others fail, so the report is about the earliest one. torchrun describes its ranks in its error file
(written if the rank's entry point is decorated with `record`) and in the summary that it prints last; formats:
torch/distributed/elastic/multiprocessing/errors in https://github.com/pytorch/pytorch/tree/v2.8.0.
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pulumi_trainer.provider.targets.local.paths import read_beginning

LIMIT = 8000
"""Limit on the characters of a message."""
LINES = 20

TOGETHER = 5.0
"""Seconds within which failures are attributed to one cause."""


@dataclass(frozen=True)
class Failure:
    """A container that exited with another code than 0 or was killed at the deadline of its Pod, with secrets masked.

    Attributes:
        step: Step of the job.
        pod: Name of the Pod.
        index: Completion index of the Pod.
        container: Name of the container.
        code: Exit code; may be 0 if `verdict` is set.
        at: Time of the end, in seconds since the epoch.
        tail: The newest output.
        log: Path of the log.
        traceback: Traceback of the failed rank, from torchrun's error file.
        traceback_at: Time at which torchrun recorded the traceback, 0 if unknown.
        start_error: Why the process could not be started.
        ran: Seconds from start to end.
        signal: Number of the signal that killed the process, 0 if it exited.
        verdict: Why the Pod was terminated; reported as the reason if set.
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

    @property
    def not_installed(self) -> bool:
        """Return whether the packages could not be installed, so that user code has not started."""
        return _NOT_INSTALLED in self.tail

    @property
    def refused(self) -> bool:
        """Return whether the program of a tool has refused its input (`run_tool.py`), which another attempt does not change."""
        return self.traceback.startswith(_OWN_MESSAGE)


@dataclass(frozen=True)
class Cause:
    """The process that caused a failure; `rank` is None for the process of the container itself. signal: as in `Failure`.

    place: What `pulumi-trainer logs --rank` takes: the node, or NODE.PROCESS if the lines of the log name their process.
    """

    failure: Failure
    at: float
    rank: int | None
    place: str
    code: int
    signal: int
    traceback: str

    @property
    def is_consequence(self) -> bool:
        """Return whether another failure probably caused this one: the process got SIGTERM or lost a connection."""
        if self.failure.verdict:
            return False
        return self.code == 128 + signal.SIGTERM or bool(_LOST_PEER.search(self.traceback))


_LOST_PEER = re.compile(
    r"Connection (closed|reset) by peer|Connection refused|Broken pipe|Socket Timeout|remote process exited"
    r"|DistNetworkError|DistStoreError|RendezvousConnectionError|Rendezvous(Closed|Timeout)Error|recvValue failed"
)
_PREFIX = re.compile(r"^(?:\[rank\d+\]: ?|\[default\d+\]:)+", re.MULTILINE)
"""torchrun's prefix of each line of several processes, and PyTorch's of each line of a traceback."""
_LAUNCHER = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*(?=\S*ChildFailedError).*\n=+\n(?:.*\n)*?=+\n?"
    r"|^[EWI]\d{4} [\d:.]+ \d+ torch/distributed/.*\n?",
    re.MULTILINE,
)
"""Output of torchrun about itself."""
_NOTICE = re.compile(r"W\d{4} [\d:.]+ \d+ torch/distributed/run\.py:\d+\] ?(?:\*+|Setting OMP_NUM_THREADS .*)?")
_TRACEBACK_HEAD = "Traceback (most recent call last):"
_SUMMARY = "Root Cause (first observed failure):\n"
_BEFORE_TRACEBACK = re.compile(r"^(?:\S.*|.*\S)(?=Traceback \(most recent call last\):$)", re.MULTILINE)
"""A line that was not ended, such as a progress bar; not the indentation of a traceback in an exception group."""
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(?:(?:[ \t].*)?\n)*?\S.*$", re.MULTILINE)

_USER_FRAME = re.compile(r'^ +File "(?![/<]).*\n(?: {4}.*\n)*', re.MULTILINE)
"""A frame of a file of the user's project; the path of a library is absolute."""

_OWN_MESSAGE = "pulumi-trainer: "
_NOT_INSTALLED = "pulumi-trainer: the packages could not be installed"
"""From `bootstrap.py`."""
_ERROR_OF_PIP = re.compile(r"^ *error: .*\S", re.MULTILINE | re.IGNORECASE)
_OBJECT = re.compile(r"^.* object at 0x[0-9a-f]+>: ")
"""urllib3's prefix of a reason."""

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
            failure: The failure of this attempt.
            progressed: Time of the newest progress of user code, in seconds since the epoch.
        """
        who = failure.pod, failure.container
        at, before = self._newest.get(who, (0.0, None))
        if failure.at == at:
            return False
        cause = _cause(failure)
        killed = bool(failure.verdict) or failure.signal in (signal.SIGKILL, signal.SIGTERM)
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
    last = _reason_text(cause).rstrip().rpartition("\n")[2].strip()
    return f"{cause.failure.verdict or _exit_text(cause)}: {_shown_line(last, 300) or _SILENT}"


_SILENT = "it printed nothing"
_PROGRESS = '{"trainerStatus"'
"""In a line that reports progress, which is not a reason."""


def _reason_text(cause: Cause) -> str:
    """Return the reason in the output of a failed container: a traceback, or the last line."""
    failure = cause.failure
    if failure.not_installed:
        errors = _ERROR_OF_PIP.findall(failure.tail)
        if errors:
            reasons = errors[-1].strip(), _broken_connection(failure.tail)
            return "; ".join(filter(None, reasons))
    lines = _LAUNCHER.sub("", failure.tail).rstrip().splitlines()
    while lines and _PROGRESS in lines[-1]:
        lines.pop()
    return failure.start_error or cause.traceback or "".join(lines[-1:])


def _broken_connection(tail: str) -> str:
    """Return pip's reason for its newest broken connection; empty if not found."""
    for line in reversed(tail.splitlines()):
        _, found, rest = line.partition(" after connection broken by '")
        reason, ended, _ = rest.rpartition("': /")
        if line.startswith("WARNING: ") and found and ended:
            return _OBJECT.sub("", reason).removesuffix("')").strip()
    return ""


def report(verdict: str, failures: Iterable[Failure]) -> str:
    """Return the message of a failed job.

    Args:
        verdict: The message of the policy that failed the job.
        failures: The failed containers.
    """
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
    summary, ended, _ = failure.tail.rpartition(_SUMMARY)[2].partition("\n=====")
    rank, code, ended_by, at = None, failure.code, failure.signal, failure.at
    place, process, traceback = str(failure.index), "", ""
    if ended:  # untrusted: the job may print anything here
        match = re.search(r"^ +rank +: (\d{1,9})\b(?: \(local_rank: (\d{1,4})\))?", summary, re.MULTILINE)
        if match:
            rank = int(match[1])
            if match[2] and f"[default{match[2]}]:" in failure.tail:
                place, process = f"{place}.{match[2]}", f"[default{match[2]}]:"
        match = re.search(r"^ +exitcode +: (-?\d{1,9})\b", summary, re.MULTILINE)
        if match:
            code = int(match[1])
            ended_by = max(0, -code)
            if code < 0:
                code = 128 - code
        match = re.search(r"^ +time +: (\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d)", summary, re.MULTILINE)
        if match:
            with suppress(ValueError, OverflowError):
                at = _earlier(at, time.mktime(time.strptime(match[1], "%Y-%m-%d_%H:%M:%S")))
    if failure.traceback:
        traceback = failure.traceback
        at = _earlier(at, failure.traceback_at)
    elif not ended_by:
        own = "\n".join(line for line in failure.tail.splitlines() if line.startswith(process))
        traceback = _own_traceback(own) or _own_traceback(failure.tail)
    return Cause(failure, at, rank, place, code, ended_by, traceback)


def _earlier(observed: float, logged: float) -> float:
    """Return the earlier time. torchrun logs whole seconds, so `logged` counts only if it is clearly earlier than `observed`."""
    if 0 < logged + 1.0 < observed:
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


def _own_traceback(tail: str) -> str:
    """Return the last traceback in the output, if possible one that is not about a lost peer."""
    lines = _PREFIX.sub("", _LAUNCHER.sub("", tail))
    found = _TRACEBACK.findall(_BEFORE_TRACEBACK.sub("", lines))
    own = [t for t in found if not _LOST_PEER.search(t)]
    return str((own or found or [""])[-1])


def _report_cause(verdict: str, cause: Cause) -> str:
    failure = cause.failure
    if cause.rank is not None:
        process = f"rank {cause.rank}"
        if cause.place != str(cause.rank):
            process = f"rank {cause.rank} (logs --rank {cause.place})"
        container = f"container {failure.container}: {_exit_text(failure)}"
    else:
        process = f"index {failure.index}"
        container = f"container {failure.container}"
    ended = failure.verdict or _exit_text(cause)
    lines = [f"step {failure.step}, pod {failure.pod}, {process}: {ended} ({container})"]
    if failure.start_error:
        lines.append(failure.start_error)
    if cause.traceback:
        lines.append(_shown_traceback(cause.traceback.rstrip()))
    shown = _other_lines(failure.tail, cause.traceback)
    if not (shown or failure.start_error or cause.traceback):
        lines.append(_SILENT)
    elif shown:
        other = "other " if cause.traceback else ""
        lines.append(_title(len(shown), other))
        lines += [f"  {_shown_line(line, 160)}" for line in shown]
    return "\n".join([*lines, f"log: {failure.log}", verdict])


def _shown_traceback(traceback: str) -> str:
    """Return a traceback, and of a long one its beginning, the last frames of the user's files, and its end."""
    if len(traceback) <= 3000:
        return traceback
    begin, end = traceback.rfind("\n", 0, 1000) + 1, len(traceback) - 2000
    end = traceback.find("\n", end) + 1 or end
    frames = ""
    for frame in reversed(_USER_FRAME.findall(traceback, begin, end)):
        if len(frame) + len(frames) > 1000:
            break
        frames = frame + frames
    if frames:
        frames += "[...]\n"
    return f"{traceback[:begin]}[...]\n{frames}{traceback[end:]}"


def is_notice(line: str) -> bool:
    """Return whether a line of a log is empty but for the name of its process, or of torchrun's notice about OMP_NUM_THREADS."""
    return bool(line) and (not _PREFIX.sub("", line) or _NOTICE.fullmatch(line) is not None)


def _title(lines: int, other: str) -> str:
    """Return the line above the last lines of the output. other: Word for lines beside a traceback; empty without one."""
    if lines == 1:
        return f"last {other}line:"
    return f"last {lines} {other}lines:"


def _shown_line(line: str, limit: int) -> str:
    """Return a line of the output, and of a long one the end; of a message of our own all, since it begins with the reason.

    Args:
        line: The line.
        limit: Number of characters from which on a line is long.
    """
    if line.startswith(_OWN_MESSAGE):
        return _clip(line, 1000)
    return _clip(line, limit)


def _other_lines(output: str, traceback: str) -> list[str]:
    """Return the last lines of the output, without empty ones and those of the traceback, which nobody has to read twice."""
    reported = {"", *(line.strip() for line in traceback.splitlines())}
    lines = _LAUNCHER.sub("", output).splitlines()
    others = (line for line in reversed(lines) if _PREFIX.sub("", line).strip() not in reported)
    shown = [*islice(others, LINES)][::-1]
    if traceback:
        return [line.removesuffix(_TRACEBACK_HEAD) for line in shown]
    return shown


def _exit_text(ended: Failure | Cause) -> str:
    with suppress(ValueError):
        return f"signal {ended.signal} ({signal.Signals(ended.signal).name}), exit code {ended.code}"
    return f"exit code {ended.code}"


def _clip(text: str, limit: int) -> str:
    """Return the end of a text, which is more informative than its beginning."""
    if len(text) <= limit:
        return text
    return f"[...]{text[-limit:]}"
