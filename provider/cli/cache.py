"""`cache list` and `cache prune`: what this user's cache contains, and removal of what nothing uses.

The parts of the cache that are listed are named in `_entries`; other files below ~/.cache/pulumi-trainer are left alone. A link
in the cache is neither listed nor followed.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pulumi_trainer.provider import source_archives
from pulumi_trainer.provider.cli.formats import print_data, shortened
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.terminal import plain, print_line, print_lines
from pulumi_trainer.provider.kubernetes.values.quantity import format_bytes
from pulumi_trainer.provider.kubernetes.values.wording import aligned, duration, plural
from pulumi_trainer.provider.targets.local import environments
from pulumi_trainer.provider.targets.local.paths import remove_tree
from pulumi_trainer.provider.trainer.catalog import git

ENVIRONMENT = "environment"
_MOST_CONTENT = 60


@dataclass(frozen=True)
class Entry:
    """One thing in the cache that can be removed by itself.

    Attributes:
        kind: environment, code archive, catalogue or git project.
        used: Time of the last use, in seconds since the epoch.
        python: Version of Python of an environment.
        content: Requirements of an environment.
        kept: Why it cannot be removed now; empty if it can.
    """

    kind: str
    path: Path
    size: int
    used: float
    python: str = ""
    content: list[str] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)
    kept: str = ""

    @property
    def name(self) -> str:
        """Return the name in the cache."""
        return self.path.name.removesuffix(".tar.gz")

    def to_dict(self) -> dict[str, Any]:
        """Return the entry for JSON."""
        return {
            "kind": self.kind,
            "name": self.name,
            "path": str(self.path),
            "size": self.size,
            "lastUsed": self.used,
            "requirements": self.content,
            "python": self.python,
            "jobs": self.jobs,
            "inUse": self.kept,
        }


def list_all(output: str) -> None:
    """Print the entries of the cache. output: table, json or yaml."""
    found = [*_entries()]
    if output in ("json", "yaml"):
        print_data([each.to_dict() for each in found], output)
    elif not found:
        print_line("The cache has no environments, code archives, catalogues or git projects.")
    else:
        _print_table(found)


def prune(older_than: float, *, dry_run: bool, yes: bool) -> None:
    """Remove what nothing uses."""
    old = [each for each in _entries() if each.used <= time.time() - older_than]
    due = [each for each in old if not each.kept]
    for each in old:
        if each.kept:
            print_line(f"kept {each.kind} {each.name}: {each.kept}")
    if not due:
        print_line("Nothing to remove.")
        return
    _print_table(due)
    if dry_run:
        print_line(f"Would remove {_total(due)}.")
    elif yes or _confirmed(due):
        removed = [each for each in due if _remove(each)]
        print_line(f"Removed {_total(removed)}.")


def _total(entries: list[Entry]) -> str:
    number = "1 entry" if len(entries) == 1 else f"{len(entries)} entries"
    return f"{number}, {format_bytes(sum(each.size for each in entries))}"


def _confirmed(due: list[Entry]) -> bool:
    if not sys.stdin.isatty():
        raise Invalid(Problem("cache prune", "asks for confirmation, but stdin is not a terminal", "pass --yes"))
    return input(f"Remove {_total(due)}? [y/N] ").strip().lower() in ("y", "yes")


def _remove(entry: Entry) -> bool:
    """Remove an entry, and return whether it is gone. It may have come into use in the meantime."""
    if entry.kind == ENVIRONMENT:
        why = environments.remove_environment(entry.path)
        if why:
            print_line(f"kept {entry.kind} {entry.name}: {why}")
        else:
            environments.forget_runs(entry.path.parent)
        return not why
    hidden = entry.path.with_name(f"{environments.REMOVED}{secrets.token_hex(4)}")
    with suppress(FileNotFoundError):  # another program has removed it
        if entry.path.lstat().st_mtime > entry.used:
            print_line(f"kept {entry.kind} {entry.name}: {environments.RECENTLY}")
            return False
        entry.path.rename(hidden)  # what a kill leaves of it is never used
    remove_tree(hidden)
    return True


def _entries() -> Iterator[Entry]:
    for each in environments.list_environments(environments.folder()):
        content = each.requirements
        if not each.python:
            content = ["(installation interrupted)"]
        kept = environments.in_use(each)
        with suppress(FileNotFoundError):  # another program has removed it meanwhile
            size = _size(each.path)
            yield Entry(ENVIRONMENT, each.path, size, each.used, each.python, content, each.jobs, kept)
    for path in _children(source_archives.folder()):
        yield from _entry("code archive", path)
    for kind, folder in zip(("catalogue", "git project"), git.CACHED, strict=True):
        for repository in _children(git.cached(folder)):
            for commit in _children(repository):
                yield from _entry(kind, commit)


def _children(folder: Path) -> Iterator[Path]:
    """Yield the files and folders in a folder, without links, and nothing if the folder is a link itself."""
    if folder.is_dir() and not folder.is_symlink():
        for path in sorted(folder.iterdir()):
            if not path.is_symlink():
                yield path


def _entry(kind: str, path: Path) -> Iterator[Entry]:
    """Yield the entry of a path, unless another program has removed it, as one that plans does with its temporary folders."""
    with suppress(FileNotFoundError):
        used = path.lstat().st_mtime
        kept = environments.RECENTLY if used > time.time() - environments.RECENT else ""
        yield Entry(kind, path, _size(path), used, kept=kept)


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder; links are not followed."""
    total = 0 if path.is_dir() else path.lstat().st_size
    for folder, _, files in os.walk(path):
        for name in files:
            with suppress(OSError):  # a job may remove it
                total += Path(folder, name).lstat().st_size
    return total


def _print_table(found: list[Entry]) -> None:
    rows = [("KIND", "NAME", "PYTHON", "SIZE", "LAST USED", "JOBS", "REQUIREMENTS")]
    for each in found:
        size, jobs = format_bytes(each.size), ", ".join(map(plain, each.jobs))
        content = shortened(", ".join(each.content), _MOST_CONTENT)
        row = (each.kind, each.name[:20], each.python, size, _age(each.used), jobs, content)
        rows.append(row)
    print_lines(aligned(rows))


def _age(used: float) -> str:
    seconds = max(0.0, time.time() - used)
    if seconds < 86400:
        return f"{duration(seconds)} ago"
    return f"{plural(int(seconds // 86400), 'day')} ago"
