"""Lists and removes the cached Python environments, which `layer` builds: none that a running job uses."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from pulumi_trainer.provider.machine.user_cache import cache_folder
from pulumi_trainer.provider.pod.layer import RECORD, read_record
from pulumi_trainer.provider.targets.local.paths import remove_tree
from pulumi_trainer.provider.targets.local.process import MARK
from pulumi_trainer.provider.targets.local.store import JobFolder

RECENT = 600.0
"""Seconds after its last use in which nothing of the cache is removed: a job that has just asked for it may not run yet."""

REMOVED = ".removed-"


@dataclass(frozen=True)
class Environment:
    """A cached environment. python: Version of Python; empty if the environment is incomplete."""

    path: Path
    used: float
    python: str = ""
    requirements: list[str] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)


def folder() -> Path:
    return cache_folder() / "environments"


def list_environments(at: Path) -> list[Environment]:
    """Return the environments in a folder, by name. Links are left out."""
    jobs = _jobs_by_environment()
    found: list[Environment] = []
    if not at.is_dir() or at.is_symlink():
        return found
    for path in sorted(at.iterdir()):
        if path.is_dir() and not path.is_symlink():
            with suppress(FileNotFoundError):  # another program has removed it
                found.append(_read(path, jobs))
    return found


def in_use(environment: Environment) -> str:
    """Return why an environment must stay; empty if nothing uses it."""
    if environment.jobs:
        return f"used by {', '.join(environment.jobs)}"
    if environment.python and environment.used > time.time() - RECENT:
        return RECENTLY
    return ""


RECENTLY = "used in the last ten minutes"


def remove_environment(path: Path) -> str:
    """Remove an environment, and return why not: empty if it is removed.

    The lock of its installation is held meanwhile, so that no job begins to use it.
    """
    with (path.parent / f"{path.name}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "it is being installed"
        removed = path.with_name(f"{REMOVED}{secrets.token_hex(4)}")
        with suppress(FileNotFoundError):  # another program has removed it
            why = in_use(_read(path, _jobs_by_environment()))
            if why:
                return why
            path.rename(removed)
    remove_tree(removed)
    return ""


def forget_runs(at: Path) -> None:
    """Remove the files that name the environments of runs, where no environment of that name is left."""
    kept = {path.name for path in at.iterdir() if path.is_dir()}
    for file in at.glob("*.run"):
        with suppress(OSError):
            old = file.lstat().st_mtime < time.time() - RECENT
            if old and file.is_file() and not file.is_symlink() and file.read_text(encoding="ascii") not in kept:
                file.unlink()


def _read(path: Path, jobs: Mapping[str, list[str]]) -> Environment:
    record: Mapping[str, Any] = read_record(path) or {}
    mark = path / RECORD
    last_used = path
    if mark.exists():
        last_used = mark
    return Environment(
        path,
        used=last_used.stat().st_mtime,
        python=str(record.get("python", "")),
        requirements=[*map(str, record.get("requirements", []))],
        jobs=jobs.get(os.path.realpath(path), []),
    )


def _jobs_by_environment() -> dict[str, list[str]]:
    """Return which running jobs of this user use which environment.

    A job's folder names the environments of its containers. A container of a dead supervisor has the variables that activate its
    environment.
    """
    names: dict[str, str] = {}
    found: dict[str, set[str]] = {}
    for variables, argv in _marked_processes():
        uid, _, container = variables[MARK].partition("/")
        used: Iterable[Path] = _environments_on_path(variables)
        if not container and len(argv) > 1:  # the supervisor: ... FOLDER LOCK
            names[uid] = "/".join(Path(argv[-2]).parts[-2:])
            used = JobFolder(Path(argv[-2])).environments()
        for each in used:
            found.setdefault(os.path.realpath(each), set()).add(uid)
    jobs: dict[str, list[str]] = {}
    for path, uids in found.items():
        jobs[path] = sorted(names.get(uid, uid) for uid in uids)
    return jobs


def _environments_on_path(variables: Mapping[str, str]) -> Iterator[Path]:
    """Yield the environments in PATH and PYTHONPATH, in which a program may have put its own folders first."""
    for name, levels in (("PATH", 1), ("PYTHONPATH", 3)):
        for each in variables.get(name, "").split(os.pathsep):
            parts = Path(each).parents
            if len(parts) > levels:
                yield parts[levels - 1]


def _marked_processes() -> Iterator[tuple[dict[str, str], list[str]]]:
    """Yield variables and arguments of the processes of jobs, as far as this user may read them."""
    for pid in psutil.pids():
        with suppress(psutil.Error, OSError, ValueError):
            process = psutil.Process(pid)
            variables = process.environ()
            if MARK in variables and process.status() != psutil.STATUS_ZOMBIE:
                yield variables, process.cmdline()
