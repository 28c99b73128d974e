"""Writes the files of checkpoints of `pulumi_trainer.training`: complete with the digest of each, or not there at all."""

# pyright: reportMissingImports=false
from __future__ import annotations

import glob
import json
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from pulumi_trainer.provider.pod.shared import find_checkpoint
from pulumi_trainer.provider.pod.shared.training_ranks import own_rank

TEMPORARY = ".tmp-"
"""Begins the names of folders that are being written or deleted. They are hidden, so nobody takes them for checkpoints."""
_DIGESTS = ".sha256-"
"""Begins the names of files in which ranks leave the digests of their parts for the one that makes a checkpoint complete."""
_VERIFIED = "verified"
"""Name of the file beside TRAINER_STOP_FILE with the checkpoints that processes of this container have read."""

_digests_of: Callable[[Mapping[str, str]], dict[str, str]] = find_checkpoint.digests
_damage_in: Callable[[str], str] = find_checkpoint.damage
_newest_in: Callable[..., str] = find_checkpoint.newest
_number_of: Callable[[str], int] = find_checkpoint.number_of
_fault: Callable[..., str] = find_checkpoint.fault
_OWN: str = find_checkpoint.OWN
_ABANDONED = 3600
"""Seconds without a change after which a temporary folder belongs to a process that is gone."""


@dataclass(frozen=True)
class Saved:
    path: str
    step: int
    time: float


def newest_here(folder: str) -> str:
    """Return the newest complete checkpoint in a folder; empty if there is none."""
    return _newest_in(folder, verify_once) if os.path.isdir(folder) else ""


def has_saved_after(folder: str, path: str) -> bool:
    """Return whether a folder has a checkpoint, or this node's part of one, that is newer than another."""
    names, limit = os.listdir(folder) if os.path.isdir(folder) else [], _number_of(os.path.basename(path))
    return any(_number_of(name) > limit and not _fault(os.path.join(folder, name), part=True) for name in names)


def prune(folder: str, keep: int, saved: Saved | None, start: Saved | None) -> None:
    """Delete the oldest complete checkpoints that `save` has made in a folder, and what processes that were killed have left."""
    try:
        names = os.listdir(folder)
        steps = {int(name[5:]): name for name in names if re.fullmatch(r"step-\d{8,}", name)}
        newest = saved or start
        # later ones are of an earlier run: they stay, and do not count
        own = [steps[step] for step in sorted(steps) if newest is not None and step <= newest.step]
        complete = [path for path in (os.path.join(folder, name) for name in own) if not _fault(path, part=True)]
        for path in complete[: -max(keep, 1)]:
            if saved is not None and path == saved.path:
                continue
            hidden = os.path.join(folder, f"{TEMPORARY}{os.path.basename(path)}-{secrets.token_hex(4)}")
            os.rename(path, hidden)
            delete(hidden)
        if saved is None:
            return
        now = os.path.getmtime(saved.path)  # by the clock of the volume
        for name in names:
            path = os.path.join(folder, name)
            if name.startswith(TEMPORARY) and now - max(map(os.path.getmtime, all_files(path)), default=0) > _ABANDONED:
                delete(path)
    except OSError as error:
        print(f"pulumi-trainer: old checkpoints stay: {error}", file=sys.stderr, flush=True)


def complete(temporary: str, path: str, step: int, more: Mapping[str, Any]) -> None:
    """Write the marker into a folder whose other files are written, and give it its name. more: As for `mark`."""
    mark(temporary, step, take_digests(temporary), more)
    if os.path.exists(path):  # it is damaged, or an earlier run has left it
        os.rename(path, f"{temporary}-replaced")
        delete(f"{temporary}-replaced")
    os.rename(temporary, path)
    flush(os.path.dirname(path))


def mark(folder: str, step: int, digests: dict[str, str], more: Mapping[str, Any]) -> None:
    """Write the marker with size and digest of each file of a folder, when all of these are on disk.

    Args:
        more: What the marker has besides: `arguments`, if the program has given any; and if it is the part of one node, the
            number of nodes, and a token of the checkpoint.
    """
    own, written = os.path.join(folder, _OWN), os.path.join(folder, f"{TEMPORARY}marker")
    others = [file for file in all_files(folder) if file not in (own, written) and not os.path.isdir(file)]
    files = {os.path.relpath(file, folder): file for file in others}
    with ThreadPoolExecutor(1) as pool:  # reads the files while the disk writes them
        unread = pool.submit(_digests_of, {name: file for name, file in files.items() if name not in digests})
        for file in all_files(folder):
            flush(file)
        digests = {**digests, **unread.result()}
    sizes = {name: os.path.getsize(file) for name, file in files.items()}
    about = {"files": sizes, "sha256": digests, "step": step, "time": timestamp(time.time()), **more}
    with open(written, "w", encoding="utf-8") as marker:
        json.dump(about, marker)
    flush(written)
    os.rename(written, own)
    flush(folder)


def leave_digests(folder: str) -> None:
    """Write the digests of the files that torch.distributed.checkpoint has written on this rank, which has them in memory."""
    names = [name for name in os.listdir(folder) if name.startswith(f"__{own_rank()}_")]
    found = _digests_of({name: os.path.join(folder, name) for name in names})
    with open(os.path.join(folder, f"{_DIGESTS}{own_rank()}"), "w", encoding="utf-8") as file:
        json.dump(found, file)


def take_digests(folder: str) -> dict[str, str]:
    """Return the digests that the ranks have left in a folder, and delete their files."""
    found: dict[str, str] = {}
    for path in glob.glob(os.path.join(glob.escape(folder), f"{_DIGESTS}*")):
        with open(path, encoding="utf-8") as file:
            found.update(json.load(file))
        os.remove(path)
    return found


def verify_once(path: str) -> str:
    """Return what is damaged in a checkpoint; empty if nothing is. One of the processes of a container reads the files."""
    place = os.path.dirname(os.environ.get("TRAINER_STOP_FILE", ""))
    if not place:  # outside of a job
        return _damage_in(path)
    try:
        import fcntl

        marker = os.stat(os.path.join(path, _OWN))
        key = f"{path} {marker.st_ino} {marker.st_mtime_ns}"
        with open(os.path.join(place, _VERIFIED), "a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            known = dict(map(json.loads, file))
            if key not in known:
                known[key] = _damage_in(path)
                file.write(json.dumps([key, known[key]]) + "\n")
                file.flush()
            return str(known[key])
    except (ImportError, OSError, ValueError):  # a folder without locks
        return _damage_in(path)


def all_files(folder: str) -> Iterator[str]:
    """Yield a folder and all below it."""
    yield folder
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            yield os.path.join(place, name)


def flush(path: str) -> None:
    """Wait until a file or folder is on disk, where the file system can do that."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError:
        if not os.path.isdir(path):  # some network file systems refuse folders
            raise
    finally:
        os.close(number)


def delete(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)


def touch(file: str) -> None:
    if file:
        try:
            open(file, "a", encoding="utf-8").close()
        except OSError as error:
            print(f"pulumi-trainer: {file} cannot be written: {error}", file=sys.stderr, flush=True)


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
