"""Compares the project that a job was started with to the current one, file by file."""

from __future__ import annotations

import difflib
import io
import tarfile
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

from pulumi_trainer.provider import source_archives
from pulumi_trainer.provider.jobs.runs import read_inputs
from pulumi_trainer.provider.kubernetes import terminal
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.kubernetes.values.wording import plural
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs
from pulumi_trainer.provider.lifecycle.run_changes import git_revision

MOST_FILES = 30
"""Changed files that a note names."""
MOST_LINES = 200
"""Changed lines that a note shows, of all files."""
MOST_LINES_OF_FILE = 40
"""Changed lines that a note shows of one file."""
LONGEST_LINE = 200
"""Characters that a note shows of a line; those of a notebook may have a million."""
LONGEST_TEXT = 2**20
"""Bytes of the longest file whose lines are compared."""
MOST_COMPARED = 20_000
"""Lines of the longest file whose lines are compared, which takes up to some seconds."""

_shown: dict[tuple[str, str], str] = {}
"""Former and current digest -> the job whose note has shown the change, so that many jobs of one project show it once."""


def source_notes(olds: JobInputs, news: JobInputs) -> tuple[str, ...]:
    """Return a note with the files of the project that have changed since the job was started, and their lines."""
    was, now = _digest(olds), _digest(news)
    if not was or not now or was == now:
        return ()
    sources = [
        digest[:8] + git_revision(read_inputs(inputs.run_inputs)) for digest, inputs in ((was, olds), (now, news))
    ]
    change = f"{olds.where}: project {' -> '.join(sources)}"
    if _shown.setdefault((was, now), olds.where) != olds.where:
        return (f"{change}, as for {_shown[was, now]}",)
    found = compare_archives([was], [now])
    if found is None:
        return (f"{change}; the files of {was[:8]} are not in the cache of this machine, so they cannot be compared",)
    return ("\n".join([change, *found.lines]),)


class Changes(NamedTuple):
    """What differs in two sets of files. files: Path -> added, removed or changed. lines: The files with their changed lines."""

    files: dict[str, str]
    lines: list[str]


def compare_archives(was: Sequence[str], now: Sequence[str]) -> Changes | None:
    """Return what differs in the files of two sets of archives; None if one of them is not in the cache of this machine. was:
    Digests of the archives of a project, a script, or functions."""
    try:
        before, after = (dict(chain.from_iterable(_files(each).items() for each in digests)) for digests in (was, now))
    except (TrainerError, OSError, tarfile.TarError):
        return None
    files = {}
    for path in sorted({*before, *after}):
        if path not in before:
            files[path] = "added"
        elif path not in after:
            files[path] = "removed"
        elif before[path] != after[path]:
            files[path] = "changed"
    return Changes(files, _changes(before, after))


def _digest(inputs: JobInputs) -> str:
    digests = map(source_archives.digest_of, inputs.documents.values())
    return next(filter(None, digests), "")


class _File(NamedTuple):
    content: bytes = b""
    executable: bool = False


_NONE = _File()


def _files(digest: str) -> dict[str, _File]:
    with tarfile.open(fileobj=io.BytesIO(source_archives.read(digest))) as tar:
        return {
            entry.name: _File((tar.extractfile(entry) or io.BytesIO()).read(), bool(entry.mode & 0o100))
            for entry in tar
        }


def _changes(before: Mapping[str, _File], after: Mapping[str, _File]) -> list[str]:
    changed = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    lines: list[str] = []
    left = MOST_LINES
    for path in changed[:MOST_FILES]:
        diff = _line_diff(before.get(path, _NONE).content, after.get(path, _NONE).content)
        shown = diff[: min(left, MOST_LINES_OF_FILE)]
        left -= len(shown)
        lines += [
            f"  {path} {_kind_of_change(path, before, after, diff)}",
            *(f"    {_shortened(line)}" for line in shown),
        ]
        if diff[len(shown) :]:
            lines.append(f"    ... {plural(len(diff) - len(shown), 'more line')}")
    if len(changed) > MOST_FILES:
        lines.append(f"  ... and {len(changed) - MOST_FILES} more files")
    for path in changed:
        folder = path.removesuffix("__main__.py")
        if folder != path and f"{folder}Pulumi.yaml" in after:
            hint = (
                f'exclude=["/{folder}"] leaves its folder out' if folder else 'exclude=["/__main__.py"] leaves it out'
            )
            lines.append(f"  {path} is the program itself: {hint}, and its edits start no other run")
    return [*map(terminal.plain, lines)]


def _shortened(line: str) -> str:
    if len(line) <= LONGEST_LINE:
        return line
    return f"{line[:LONGEST_LINE]}... ({len(line) - 1:,} characters)"


def _kind_of_change(path: str, before: Mapping[str, _File], after: Mapping[str, _File], diff: Sequence[str]) -> str:
    if path not in before:
        return "added"
    if path not in after:
        return "removed"
    was, now = before[path], after[path]
    what = []
    if was.content != now.content:
        what.append("changed" if diff else f"changed ({_unshown(was.content, now.content)})")
    if was.executable != now.executable:
        what.append("executable now" if now.executable else "not executable any more")
    return ", ".join(what)


def _unshown(before: bytes, after: bytes) -> str:
    """Return why no lines of a changed file are shown."""
    too_long = _too_long(before) or _too_long(after)
    if too_long:
        return too_long
    if b"\0" in before + after or any("\ufffd" in each.decode(errors="replace") for each in (before, after)):
        return "not a text in UTF-8"
    return "line endings alone"


def _too_long(content: bytes) -> str:
    """Return why a file is too long to compare its lines; empty if it is not."""
    if len(content) > LONGEST_TEXT:
        return f"more than {LONGEST_TEXT // 2**20} MiB"
    if content.count(b"\n") > MOST_COMPARED:
        return f"more than {MOST_COMPARED:,} lines"
    return ""


def _line_diff(before: bytes, after: bytes) -> list[str]:
    if _too_long(before) or _too_long(after) or b"\0" in before + after:
        return []
    old, new = (content.decode(errors="replace").splitlines() for content in (before, after))
    found = difflib.unified_diff(old, new, lineterm="", n=0)
    return list(islice(found, 2, None))  # without the names of the files
