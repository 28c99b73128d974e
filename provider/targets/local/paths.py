"""Paths of the Local target: inside their folder, and readable by this user alone.

Names out of documents become parts of paths, and what a job leaves in its folder may hold links. Every path that is made or
removed on behalf of a document comes from `inside`. Standard library only: the supervisor must start at once.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISREG, S_ISVTX, S_IWGRP, S_IWOTH

from pulumi_trainer.provider.kube.errors import Problem, Refused, TargetFault

FOLDER_MODE, FILE_MODE = 0o700, 0o600
_OTHERS = 0o077
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def inside(folder: Path, *names: str) -> Path:
    """Return the path of `names` below `folder`.

    Raises:
        Refused: with all links followed, the path does not lie below the folder.
    """
    path = folder.joinpath(*names)
    try:
        real = path.resolve()
        contained = folder.resolve() in real.parents and not any(".." in Path(name).parts for name in names)
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a NUL
        why = f"not a valid path: {error}"
        raise Refused(Problem(f"{folder}: {'/'.join(names)!r}", why)) from None
    if not contained:
        why = f"leads out of its folder, to {str(real)!r}; nothing there was made or removed"
        mend = "use plain names without / and .., and remove the link if there is one"
        raise Refused(Problem(f"{folder}: {'/'.join(names)!r}", why, mend))
    return path


def make_folder(path: Path, root: Path) -> Path:
    """Make `path`, `root` and what lies between them, each readable by this user alone, and return `path`.

    Folders of this user that others can read (earlier versions made such) are closed to them, but for a `root` that holds what
    is not ours: that stays as it is.

    Raises:
        Refused: a folder belongs to another user, others may change a `root`, or `path` does not lie below `root`.
        OSError: a folder cannot be made.
    """
    between = path.relative_to(root).parts
    if between:
        inside(root, *between)
    root.parent.mkdir(parents=True, exist_ok=True)
    if between and _holds_others(root):
        _check_unshared(root)
    else:
        _make_private(root)
    for depth in range(1, len(between) + 1):
        _make_private(root.joinpath(*between[:depth]))
    return path


def _holds_others(root: Path) -> bool:
    try:
        with os.scandir(root) as found:
            return any(entry.name not in _OURS for entry in found)
    except OSError:
        return False


_OURS = frozenset({"jobs", "volumes", "trash"})
"""Names of the folders in a root."""


def _check_unshared(root: Path) -> None:
    """Raises Refused where others could put another folder in the place of ours."""
    found, link = root.stat(), root.lstat()
    _check_owner(root, {found.st_uid, link.st_uid})
    if found.st_mode & (S_IWGRP | S_IWOTH) and not found.st_mode & S_ISVTX:
        why = f"others may change it (mode {S_IMODE(found.st_mode):o}), and it holds more than jobs and volumes"
        raise Refused(Problem(str(root), why, f"chmod go-w {root}, or use another folder (root=)"))


def _check_owner(folder: Path, owners: set[int]) -> None:
    if others := owners - {os.getuid()}:
        why = f"belongs to another user (uid {others.pop()}; this is uid {os.getuid()}), who could read and change it"
        raise Refused(Problem(str(folder), why, "run as that user, remove the folder, or use another one (root=)"))


def _make_private(folder: Path) -> None:
    try:
        folder.mkdir(mode=FOLDER_MODE)
        return
    except FileExistsError:
        found, link = folder.stat(), folder.lstat()
        if not S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "is not a folder", str(folder)) from None
    _check_owner(folder, {found.st_uid, link.st_uid})
    if S_IMODE(found.st_mode) & _OTHERS:
        folder.chmod(S_IMODE(found.st_mode) & ~_OTHERS | FOLDER_MODE)


def read_beginning(path: Path, most: int) -> bytes:
    """Return up to `most` bytes of a file that a job may have made.

    Raises:
        OSError: it cannot be read, or is not a regular file: reading a FIFO or a device may never end.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        if not S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
        return file.read(most)


def remove_tree(path: Path) -> None:
    """Remove a folder or a file, also where a program has taken the permissions from its own folders, or has nested them deeper
    than Python follows. Links are removed, not followed.
    """
    if path.is_symlink() or not path.is_dir():
        with suppress(OSError):
            path.unlink()
        return
    with suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        for argv in (["chmod", "-R", "u+rwX", str(path)], ["rm", "-rf", str(path)]):
            with suppress(OSError):
                subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def make_temporary(folder: Path, uid: str) -> Path:
    """Make a folder for the temporary files of one Pod of the job `uid`, and return its path.

    It lies in a folder that everybody may write to, and not in the job's: the path of a socket has 107 bytes at most.
    """
    return Path(tempfile.mkdtemp(prefix=_temporary_prefix(uid), dir=folder))


def remove_temporaries(folder: Path, uid: str) -> None:
    """Remove what `make_temporary` has made for the job; what belongs to others stays."""
    with suppress(OSError):
        for entry in os.scandir(folder):
            if (
                entry.name.startswith(_temporary_prefix(uid))
                and entry.stat(follow_symlinks=False).st_uid == os.getuid()
            ):
                remove_tree(Path(entry.path))


def _temporary_prefix(uid: str) -> str:
    return f"pulumi-trainer-{hashlib.sha256(uid.encode()).hexdigest()[:8]}-"


def is_full(error: BaseException | None) -> bool:
    """Whether a disk or a quota is full: an OSError, or what `faults` has made of it."""
    return (isinstance(error, OSError) and error.errno in _FULL) or (error is not None and is_full(error.__cause__))


@contextmanager
def faults(path: Path) -> Iterator[None]:
    """Failures of the file system in words."""
    try:
        yield
    except OSError as error:
        where = str(error.filename or path)
        mend = "free some space there and run it again" if is_full(error) else "check its owner and permissions"
        raise TargetFault(Problem(where, f"cannot be written: {error.strerror or error}", mend)) from error
