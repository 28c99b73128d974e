"""Why a job has failed, in words: step, rank, the rank's own exit code and traceback, the last lines, the log's path.

One failing rank takes the others with it, so the report is about the earliest one. What torchrun knows of its ranks
comes from its error file (written where the rank's entry point is decorated with `record`) and from the summary that it
prints last; formats: torch/distributed/elastic/multiprocessing/errors in https://github.com/pytorch/pytorch/tree/v2.8.0.
Called by `run`.
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LIMIT = 8000
"""Characters of a message."""
LINES = 20

TOGETHER = 5.0
"""Seconds within which failures are taken to have one cause."""


@dataclass(frozen=True)
class Failure:
    """A container that ended with another code than 0. at: when. tail: its newest output."""

    step: str
    pod: str
    index: int
    container: str
    code: int
    at: float
    tail: str
    error_file: Path
    log: Path
    said: str = ""


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
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*\S*ChildFailedError.*\n=+\n(?:.*\n)*?=+\n?"
    r"|^[EWI]\d{4} [\d:.]+ \d+ torch/distributed/.*\n?",
    re.MULTILINE,
)
"""What torchrun says about itself."""
_SUMMARY = re.compile(r"^Root Cause \(first observed failure\):\n(.*?)^=====", re.MULTILINE | re.DOTALL)
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(?:(?:[ \t].*)?\n)*?\S.*$", re.MULTILINE)


def report(verdict: str, failures: Iterable[Failure], secrets: Sequence[str] = ()) -> str:
    """The message of a failed job. verdict: what the policies said. secrets: values that must not appear."""
    cause = first_cause(failures)
    text = verdict if cause is None else _told(verdict, cause)
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, "[secret]")
    return text if len(text) <= LIMIT else f"{text[: LIMIT - 2000]}\n[...]\n{text[-1900:]}"


def first_cause(failures: Iterable[Failure]) -> Cause | None:
    """The earliest of the newest failures, those last that look like a consequence."""
    causes = [_cause(f) for f in failures]
    newest = max((c.at for c in causes), default=0.0)
    recent = [c for c in causes if c.at >= newest - TOGETHER]
    return min(recent, key=lambda c: (c.in_the_wake, c.at), default=None)


def _cause(failure: Failure) -> Cause:
    summary = _SUMMARY.findall(failure.tail)
    rank, code, at = None, failure.code, failure.at
    traceback = ""
    if summary:
        text = summary[-1]
        if match := re.search(r"^ +rank +: (\d+)", text, re.MULTILINE):
            rank = int(match[1])
        if match := re.search(r"^ +exitcode +: (-?\d+)", text, re.MULTILINE):
            number = int(match[1])
            code = 128 - number if number < 0 else number
        if match := re.search(r"^ +time +: (\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d)", text, re.MULTILINE):
            at = _earlier(at, time.mktime(time.strptime(match[1], "%Y-%m-%d_%H:%M:%S")))
    told, told_at = _error_file(failure.error_file)
    if told:
        traceback = told
        at = _earlier(at, told_at)
    elif code <= 128:
        traceback = _own_traceback(failure.tail)
    return Cause(failure, at, rank, code, traceback)


def _earlier(seen: float, told: float) -> float:
    """What torchrun tells has whole seconds: it counts only where it is clearly earlier than what we saw."""
    return told + 1.0 if 0 < told + 1.0 < seen else seen


def _error_file(path: Path) -> tuple[str, float]:
    """Traceback and time of the error file; ("", 0) where there is none."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        message = json.loads(path.read_bytes()[: 1 << 20])["message"]
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
    if shown:
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
