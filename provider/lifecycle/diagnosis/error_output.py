"""Finds the error in the output of a failed container: the traceback, and the process that failed first according to torchrun.

torchrun prints a summary of its processes last; formats: torch/distributed/elastic/multiprocessing/errors in
https://github.com/pytorch/pytorch/tree/v2.8.0. The output is untrusted: a job may print anything.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

LINES = 20
"""Lines of the output that are shown beside a traceback."""
OWN_MESSAGE = "pulumi-trainer: "
"""Beginning of a message of `bootstrap.py`."""
SILENT = "it printed nothing"

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
_USER_LINE = re.compile(r'^ +File "(?![/<])([^"\n]+)", line (\d+)', re.MULTILINE)
_OWN_FRAME = re.compile(r'^ +File "[^"\n]*/pulumi_trainer/(?:\w+/)*training\.py".*\n(?: {4}.*\n)*', re.MULTILINE)
"""A frame of `pulumi_trainer.training`, whose errors say what to do in the frame above."""
_OF_PIP = re.compile(
    r"(?:Requirement already satisfied|Collecting|Downloading|Using cached|Installing collected packages)\b"
)
"""Lines of pip about packages, which say nothing about a failure."""


@dataclass(frozen=True)
class RootCause:
    """The process that torchrun's summary names as the first that failed.

    Attributes:
        process: Its index in its node, if the lines of the log name their process; else None.
        at: When torchrun noticed the failure, in seconds since the epoch; 0 if unknown.
    """

    rank: int | None = None
    process: int | None = None
    exit_code: int | None = None
    at: float = 0.0

    @property
    def signal(self) -> int:
        """Number of the signal that ended the process; 0 if it exited."""
        return max(0, -(self.exit_code or 0))

    @property
    def code(self) -> int | None:
        """Exit code as a shell reports it: 137 for SIGKILL; None if unknown."""
        if self.signal:
            return 128 + self.signal
        return self.exit_code

    def name(self, node: str) -> str:
        """Return for example "rank 3 (logs --rank 1.1)", with what `pulumi-trainer logs --rank` takes if it is not the rank."""
        place = node
        if self.process is not None:
            place = f"{node}.{self.process}"
        if place == str(self.rank):
            return f"rank {self.rank}"
        return f"rank {self.rank} (logs --rank {place})"

    @property
    def prefix(self) -> str:
        """Beginning of each line of the process; empty if the lines do not name their process."""
        if self.process is None:
            return ""
        return f"[default{self.process}]:"


def find_root_cause(output: str) -> RootCause:
    """Return the process that failed first according to torchrun's last summary in the output of a container."""
    _, begun, rest = output.rpartition(_SUMMARY)
    summary, ended, _ = rest.partition("\n=====")
    if not (begun and ended):
        return RootCause()
    rank, process, exit_code, at = None, None, None, 0.0
    match = re.search(r"^ +rank +: (\d{1,9})\b(?: \(local_rank: (\d{1,4})\))?", summary, re.MULTILINE)
    if match:
        rank = int(match[1])
        if match[2] and f"[default{match[2]}]:" in output:
            process = int(match[2])
    match = re.search(r"^ +exitcode +: (-?\d{1,9})\b", summary, re.MULTILINE)
    if match:
        exit_code = int(match[1])
    match = re.search(r"^ +time +: (\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d)", summary, re.MULTILINE)
    if match:
        with suppress(ValueError, OverflowError):
            at = time.mktime(time.strptime(match[1], "%Y-%m-%d_%H:%M:%S"))
    return RootCause(rank, process, exit_code, at)


def find_traceback(output: str, prefix: str = "", ended_by: int = 0) -> str:
    """Return the last traceback in the output of a container, if possible one that is not about a lost peer; empty if not found.

    A process that is killed prints none, so an earlier traceback in its output does not explain its end. PyTorch aborts a process
    after an error of its GPU, whose traceback may be there: ProcessGroupNCCL's watchdog and destructors find the same error.

    Args:
        prefix: Beginning of the lines that are searched first: those of the process that failed.
        ended_by: Number of the signal that ended the process; 0 if it exited.
    """
    if ended_by not in (0, signal.SIGABRT):
        return ""
    found = ""
    if prefix:
        found = _last_traceback("\n".join(line for line in output.splitlines() if line.startswith(prefix)))
    return found or _last_traceback(output)


def _last_traceback(output: str) -> str:
    lines = _PREFIX.sub("", without_launcher(output))
    found = _TRACEBACK.findall(_BEFORE_TRACEBACK.sub("", lines))
    own = [t for t in found if not has_lost_peer(t)]
    return str((own or found or [""])[-1])


def has_lost_peer(traceback: str) -> bool:
    """Return whether a traceback is about a lost connection to another process, which has probably failed first."""
    return _LOST_PEER.search(traceback) is not None


def summarize(lines: Sequence[str]) -> str:
    """Return the exception in one line, or the last line without one; empty without lines."""
    text = "\n".join(lines)
    return summarize_exception(text) or last_line(text, 160, exception=False)


def summarize_exception(output: str) -> str:
    """Return the exception in an output in one line, such as "ValueError: no data (src/train.py:31)"; empty if not found."""
    traceback = find_traceback(output)
    error = last_line(traceback, 160, exception=True)
    frames = _USER_LINE.findall(traceback)
    if not frames:
        return error
    file, line = frames[-1]
    return f"{error} ({file}:{line})"


def is_consequence(lines: Sequence[str]) -> bool:
    """Return whether a container has failed because another one did. lines: What explains its failure, by `explain_failure`."""
    return has_lost_peer(find_traceback("\n".join(lines)))


def without_launcher(output: str) -> str:
    """Return the output of a container without what torchrun prints about itself."""
    return _LAUNCHER.sub("", output)


def describe_output(output: str, traceback: str) -> Iterator[str]:
    """Yield the lines that explain a failure: the traceback, then the last other lines; none if nothing was printed."""
    other = ""
    if traceback:
        yield _shorten_traceback(traceback.rstrip())
        other = "other "
    shown = _other_lines(output, traceback)
    if shown:
        yield _title(len(shown), other)
    for line in shown:
        yield f"  {shorten_line(line, 160)}"


def explain_failure(output: str, node: str) -> list[str]:
    """Return what explains a failure: the process that failed first, its traceback, and the last other lines of the output."""
    root = find_root_cause(output)
    found: list[str] = []
    if root.rank is not None and root.code is not None:
        found.append(f"{root.name(node)}: {exit_text(root.code, root.signal)}")
    traceback = find_traceback(output, root.prefix, root.signal)
    found += describe_output(output, traceback)
    return "\n".join(found).splitlines()


def _shorten_traceback(traceback: str) -> str:
    """Return a traceback without our own frames, and of a long one its beginning, the last frames of the user's files, and its
    end."""
    traceback = _OWN_FRAME.sub("", traceback)
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


def exit_text(code: int, ended_by: int) -> str:
    """Return for example "signal 9 (SIGKILL), exit code 137"."""
    with suppress(ValueError):
        return f"signal {ended_by} ({signal.Signals(ended_by).name}), exit code {code}"
    return f"exit code {code}"


def is_notice(line: str) -> bool:
    """Return whether a line of a log is empty but for the name of its process, or of torchrun's notice about OMP_NUM_THREADS."""
    return bool(line) and (not _PREFIX.sub("", line) or _NOTICE.fullmatch(line) is not None)


def _title(lines: int, other: str) -> str:
    """Return the line above the last lines of the output. other: Word for lines beside a traceback; empty without one."""
    if lines == 1:
        return f"last {other}line:"
    return f"last {lines} {other}lines:"


def shorten_line(line: str, limit: int) -> str:
    """Return a line of the output, and of a long one the end; of a message of this package or of uv the beginning, which has
    the reason.
    """
    if line.startswith((OWN_MESSAGE, "  cause: ")):
        return line if len(line) <= LONGEST_MESSAGE else f"{line[:LONGEST_MESSAGE]}[...]"
    return _clip(line, limit)


LONGEST_MESSAGE = 1000


def last_line(text: str, limit: int, *, exception: bool) -> str:
    """Return the last line of a text, and of a long one the part that says most. exception: Whether the line is that of an
    exception, which begins with its reason."""
    last = text.rstrip().rpartition("\n")[2].strip()
    if exception and len(last) > limit:
        return f"{last[:limit]}[...]"
    return shorten_line(last, limit)


def _is_other(line: str, reported: Container[str]) -> bool:
    return line not in reported and not _OF_PIP.match(line)


def _other_lines(output: str, traceback: str) -> list[str]:
    """Return the last lines of the output without empty ones, pip's, and those of the traceback, which nobody reads twice."""
    reported = {"", *(line.strip() for line in traceback.splitlines())}
    lines = without_launcher(output).splitlines()
    others = (line for line in reversed(lines) if _is_other(_PREFIX.sub("", line).strip(), reported))
    shown = [*islice(others, LINES)][::-1]
    if traceback:
        return [line.removesuffix(_TRACEBACK_HEAD) for line in shown]
    return shown


def _clip(text: str, limit: int) -> str:
    """Return the end of a text, which is more informative than its beginning."""
    if len(text) <= limit:
        return text
    return f"[...]{text[-limit:]}"
