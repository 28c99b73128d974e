"""Why a job has failed, in words: step, rank, the rank's own exit code and traceback, the last lines, the log's path.

One failing rank takes the others with it, so the report is about the earliest one. What torchrun knows of its ranks
comes from its error file (written where the rank's entry point is decorated with `record`) and from the summary that it
prints last; formats: torch/distributed/elastic/multiprocessing/errors in https://github.com/pytorch/pytorch/tree/v2.8.0.
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pulumi_trainer.provider.targets.local.paths import read_beginning

LIMIT = 8000
"""Characters of a message."""
LINES = 20

TOGETHER = 5.0
"""Seconds within which failures are taken to have one cause."""


@dataclass(frozen=True)
class Failure:
    """A container that ended with another code than 0, told without secrets. at: when. ran: seconds. tail: its newest output.
    traceback: of the rank at fault, from torchrun's error file; noted_at: when that was written, 0 if unknown.
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
    noted_at: float = 0.0
    said: str = ""
    ran: float = 0.0

    @property
    def not_installed(self) -> bool:
        """Its packages could not be installed, so user code has not begun."""
        return _NOT_INSTALLED in self.tail


@dataclass(frozen=True)
class Cause:
    """One process at fault, as far as it is known. rank None: the container's process itself."""

    failure: Failure
    at: float
    rank: int | None
    code: int
    traceback: str

    @property
    def in_the_wake(self) -> bool:
        """It probably failed because another one had: it was told to end, or lost a connection."""
        return self.code == 128 + signal.SIGTERM or bool(_WAKE.search(self.traceback))


_WAKE = re.compile(
    r"Connection (closed|reset) by peer|Connection refused|Broken pipe|Socket Timeout|remote process exited"
    r"|DistNetworkError|DistStoreError|RendezvousConnectionError|Rendezvous(Closed|Timeout)Error|recvValue failed"
)
_PREFIX = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
"""PyTorch puts it before each line of a traceback."""
_LAUNCHER = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*(?=\S*ChildFailedError).*\n=+\n(?:.*\n)*?=+\n?"
    r"|^[EWI]\d{4} [\d:.]+ \d+ torch/distributed/.*\n?",
    re.MULTILINE,
)
"""What torchrun says about itself."""
_SUMMARY = "Root Cause (first observed failure):\n"
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(?:(?:[ \t].*)?\n)*?\S.*$", re.MULTILINE)


_NOT_INSTALLED = "pulumi-trainer: the packages could not be installed"
"""From `bootstrap.py`."""
_ERROR_OF_PIP = re.compile(r"^ *error: .*\S", re.MULTILINE | re.IGNORECASE)
_OBJECT = re.compile(r"^.* object at 0x[0-9a-f]+>: ")
"""What urllib3 puts before a reason."""

QUICK = 10.0
"""Seconds within which a container fails that will never get far."""


class Repeats:
    """Tells a failure that has been seen before: the same container, exit code and words, each time within `QUICK` or while
    packages were installed."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], tuple[float, object]] = {}

    def again(self, failure: Failure, progressed: float) -> bool:
        """Whether the container failed in the same way the time before. progressed: when user code last got further than ever.

        One that was killed, or failed because another one had, says nothing about the next attempt.
        """
        who = failure.pod, failure.container
        at, before = self._newest.get(who, (0.0, None))
        if failure.at == at:
            return False
        cause = _cause(failure)
        killed = failure.code in (128 + signal.SIGKILL, 128 + signal.SIGTERM)
        counts = failure.not_installed or (failure.ran < QUICK and not killed and not cause.in_the_wake)
        same = (failure.code, _VARYING.sub("", _words(cause))) if counts else None
        self._newest[who] = failure.at, same
        return same is not None and same == before and progressed < failure.at - failure.ran

    def clear(self) -> None:
        """Something has succeeded since."""
        self._newest.clear()


_VARYING = re.compile(r"0x[0-9a-f]+|pulumi-trainer-[0-9a-f]{8}-\w+")
"""What differs between attempts: places in memory, temporary folders."""


def in_short(failures: Iterable[Failure]) -> str:
    """What went wrong first, in one line; empty where nothing did."""
    cause = first_cause(failures)
    if cause is None:
        return ""
    last = _words(cause).rstrip().rpartition("\n")[2].strip()
    return f"{_exit(cause.code)}: {_clip(last, 300) or _SILENT}"


_SILENT = "it printed nothing"


def _words(cause: Cause) -> str:
    """What a failed container said of the reason: a traceback, or its last line."""
    failure = cause.failure
    if failure.not_installed and (errors := _ERROR_OF_PIP.findall(failure.tail)):
        reasons = errors[-1].strip(), _broken_connection(failure.tail)
        return "; ".join(filter(None, reasons))
    lines = _LAUNCHER.sub("", failure.tail).rstrip().rpartition("\n")
    return failure.said or cause.traceback or lines[2]


def _broken_connection(tail: str) -> str:
    """Return why pip says that its newest connection broke; empty if it does not say so."""
    for line in reversed(tail.splitlines()):
        _, found, rest = line.partition(" after connection broken by '")
        reason, ended, _ = rest.rpartition("': /")
        if line.startswith("WARNING: ") and found and ended:
            return _OBJECT.sub("", reason).removesuffix("')").strip()
    return ""


def report(verdict: str, failures: Iterable[Failure]) -> str:
    """The message of a failed job. verdict: what the policies said."""
    cause = first_cause(failures)
    text = verdict if cause is None else _told(verdict, cause)
    return text if len(text) <= LIMIT else f"{text[: LIMIT - 2000]}\n[...]\n{text[-1900:]}"


def first_cause(failures: Iterable[Failure]) -> Cause | None:
    """The earliest of the newest failures, those last that look like a consequence."""
    causes = [_cause(f) for f in failures]
    newest = max((c.at for c in causes), default=0.0)
    recent = [c for c in causes if c.at >= newest - TOGETHER]
    return min(recent, key=lambda c: (c.in_the_wake, c.at), default=None)


def _cause(failure: Failure) -> Cause:
    summary, ended, _ = failure.tail.rpartition(_SUMMARY)[2].partition("\n=====")
    rank, code, at = None, failure.code, failure.at
    traceback = ""
    if ended:  # whatever the job prints may stand here
        if match := re.search(r"^ +rank +: (\d{1,9})\b", summary, re.MULTILINE):
            rank = int(match[1])
        if match := re.search(r"^ +exitcode +: (-?\d{1,9})\b", summary, re.MULTILINE):
            number = int(match[1])
            code = 128 - number if number < 0 else number
        if match := re.search(r"^ +time +: (\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d)", summary, re.MULTILINE):
            with suppress(ValueError, OverflowError):
                at = _earlier(at, time.mktime(time.strptime(match[1], "%Y-%m-%d_%H:%M:%S")))
    if failure.traceback:
        traceback = failure.traceback
        at = _earlier(at, failure.noted_at)
    elif code <= 128:
        traceback = _own_traceback(failure.tail)
    return Cause(failure, at, rank, code, traceback)


def _earlier(seen: float, told: float) -> float:
    """What torchrun tells has whole seconds: it counts only where it is clearly earlier than what we saw."""
    return told + 1.0 if 0 < told + 1.0 < seen else seen


def read_error_file(path: Path) -> tuple[str, float]:
    """Traceback and time of torchrun's error file; ("", 0) where there is none."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        message = json.loads(read_beginning(path, 1 << 20))["message"]
        if isinstance(message, str):
            return message, 0.0
        extra = message.get("extraInfo") or {}
        return str(extra.get("py_callstack") or message.get("message") or ""), float(extra.get("timestamp") or 0)
    return "", 0.0


def _own_traceback(tail: str) -> str:
    """The traceback of user code in the output: the last one that is not about a lost peer, if there is such a one."""
    found = _TRACEBACK.findall(_PREFIX.sub("", _LAUNCHER.sub("", tail)))
    own = [t for t in found if not _WAKE.search(t)]
    return str((own or found or [""])[-1])


def _told(verdict: str, cause: Cause) -> str:
    failure = cause.failure
    rank = f"rank {cause.rank}" if cause.rank is not None else f"index {failure.index}"
    lines = [f"step {failure.step}, pod {failure.pod}, {rank}: {_exit(cause.code)}"]
    if cause.rank is not None:
        lines[0] += f" (container {failure.container}: {_exit(failure.code)})"
    else:
        lines[0] += f" (container {failure.container})"
    if failure.said:
        lines.append(failure.said)
    if cause.traceback:
        lines.append(_clip(cause.traceback.rstrip(), 3000))
    shown = _LAUNCHER.sub("", failure.tail).splitlines()[-LINES:]
    if not (shown or failure.said or cause.traceback):
        lines.append(_SILENT)
    elif shown:
        lines += [f"last {len(shown)} lines:", *(f"  {_clip(line, 160)}" for line in shown)]
    return "\n".join([*lines, f"log: {failure.log}", verdict])


def _exit(code: int) -> str:
    if code > 128:
        with suppress(ValueError):
            return f"signal {code - 128} ({signal.Signals(code - 128).name}), exit code {code}"
    return f"exit code {code}"


def _clip(text: str, limit: int) -> str:
    """The end of a traceback and of a long line says more than its beginning."""
    return text if len(text) <= limit else f"[...]{text[-limit:]}"
