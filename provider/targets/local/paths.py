"""Creates and removes files of the Local target: inside their folder, and readable only by this user.

Names from documents become parts of paths, and a job may leave links in its folder. Every path that is created or removed for a
document comes from `inside`. Standard library only: the supervisor must start at once.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISLNK, S_ISREG, S_ISVTX, S_IWGRP, S_IWOTH

from pulumi_trainer.provider.kubernetes.errors import Problem, Refused, TargetFault

FOLDER_MODE, FILE_MODE = 0o700, 0o600
_OTHERS = 0o077
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def inside(folder: Path, *names: str) -> Path:
    """Return the path of `names` below `folder`."""
    path = folder.joinpath(*names)
    try:
        real = path.resolve()
        contained = folder.resolve() in real.parents and not any(".." in Path(name).parts for name in names)
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a NUL
        why = f"not a valid path: {error}"
        raise Refused(Problem(f"{folder}: {'/'.join(names)!r}", why)) from None
    if not contained:
        why = f"leads out of its folder, to {str(real)!r}; nothing there was made or removed"
        hint = "use plain names without / and .., and remove the link if there is one"
        raise Refused(Problem(f"{folder}: {'/'.join(names)!r}", why, hint))
    return path


def open_contained(path: str, volume: str, root: str) -> int:
    """Return a descriptor of a file or folder in a volume. It leads nowhere else whatever a job changes meanwhile (Linux only).

    Args:
        path: The volume, or a file or folder in it. Links may lead to other places of the same volume.
        volume: A path below `root`, without links.
        root: A folder in which no job can put links.
    """
    top, names = os.path.realpath(root), Path(volume).relative_to(root).parts
    try:
        within = Path(os.path.realpath(path)).relative_to(Path(top, *names)).parts
    except ValueError:
        raise OSError(errno.ELOOP, "leads out of its volume, and is not mounted", path) from None
    opened = os.open(top, _WITHOUT_LINKS)
    for name in (*names, *within):
        folder = opened
        try:
            opened = os.open(name, _WITHOUT_LINKS, dir_fd=folder)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None
        finally:
            os.close(folder)
    if S_ISLNK(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.ELOOP, "was replaced by a link, and is not mounted", path)
    return opened


_WITHOUT_LINKS = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC


def make_folder(path: Path, root: Path) -> Path:
    """Create `path`, `root` and the folders between them, each readable only by this user, and return `path`.

    Existing folders of this user that others can read are made private, except a `root` with other content.

    Raises:
        Refused: A folder belongs to another user, others may change a `root`, or `path` is not below `root`.
    """
    between = path.relative_to(root).parts
    if between:
        inside(root, *between)
    root.parent.mkdir(parents=True, exist_ok=True)
    if between and _has_other_content(root):
        _check_unshared(root)
    else:
        _make_private(root)
    for depth in range(1, len(between) + 1):
        _make_private(root.joinpath(*between[:depth]))
    return path


def root_problems(root: Path) -> list[Problem]:
    """Return why a root cannot be created, without creating it."""
    hint = "name another folder in Local(root=...)"
    if _is_dangling_link(root):
        why = f"{root} is a link to {root.readlink()}, which does not exist"
        return [Problem("target.root", why, f"mount or make that folder, or {hint}")]
    nearest = next(each for each in (root, *root.parents) if each.exists())
    if not nearest.is_dir():
        return [Problem("target.root", f"{root} cannot be made: {nearest} is not a folder", hint)]
    if _NO_FILES & {nearest, *nearest.parents}:
        return [Problem("target.root", f"{root} cannot be made: {nearest} does not accept files", hint)]
    if not os.access(nearest, os.W_OK | os.X_OK):
        return [Problem("target.root", f"{root} cannot be made: {nearest} is not writable", hint)]
    return []


_NO_FILES = frozenset({Path("/proc"), Path("/sys")})


def _is_dangling_link(path: Path) -> bool:
    return path.is_symlink() and not path.exists()


def _has_other_content(root: Path) -> bool:
    try:
        with os.scandir(root) as found:
            return any(entry.name not in _OWN_NAMES for entry in found)
    except OSError:
        return False


_IGNORE = ".gitignore"
EARLIER_LOGS = "earlier-logs"
"""Folder of the root with the logs of earlier runs."""
_OWN_NAMES = frozenset({"jobs", "volumes", "trash", "queue", EARLIER_LOGS, _IGNORE})
"""Names of what this package creates in a root."""


def keep_out_of_projects(root: Path) -> None:
    """Write a `.gitignore` into a root with nothing else in it: neither git nor the source of a job takes what jobs write."""
    if _has_other_content(root):
        return
    with suppress(OSError):
        made = os.open(root / _IGNORE, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)
        with os.fdopen(made, "w") as file:
            file.write("*\n")


def _check_unshared(root: Path) -> None:
    """Raise Refused if other users could replace the folders in the root."""
    found, link = root.stat(), root.lstat()
    _check_owner(root, {found.st_uid, link.st_uid})
    if found.st_mode & (S_IWGRP | S_IWOTH) and not found.st_mode & S_ISVTX:
        why = f"others may change it (mode {S_IMODE(found.st_mode):o}), and it holds more than jobs and volumes"
        raise Refused(Problem(str(root), why, f"chmod go-w {root}, or use another folder (root=)"))


def _check_owner(folder: Path, owners: set[int]) -> None:
    others = owners - {os.getuid()}
    if others:
        why = f"belongs to another user (uid {others.pop()}; this is uid {os.getuid()}), who could read and change it"
        raise Refused(Problem(str(folder), why, "run as that user, remove the folder, or use another one (root=)"))


def _make_private(folder: Path) -> None:
    try:
        folder.mkdir(mode=FOLDER_MODE)
        return
    except FileExistsError:
        if _is_dangling_link(folder):
            why = f"is a link to {folder.readlink()}, which does not exist"
            raise NotADirectoryError(errno.ENOTDIR, why, str(folder)) from None
        found, link = folder.stat(), folder.lstat()
        if not S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "is not a folder", str(folder)) from None
    _check_owner(folder, {found.st_uid, link.st_uid})
    if S_IMODE(found.st_mode) & _OTHERS:
        folder.chmod(S_IMODE(found.st_mode) & ~_OTHERS | FOLDER_MODE)


def open_lock(file: Path) -> int:
    """Return a descriptor of a file to lock, which is created if it is missing."""
    return os.open(file, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)


def is_locked(file: Path) -> bool:
    """Return whether a process holds the lock of a file."""
    lock = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(lock)


def read_beginning(path: Path, most: int) -> bytes:
    """Return up to `most` bytes of a file that a job may have created. Raise OSError for a file that cannot be read or is not a
    regular one: reading a FIFO or a device may never end."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        if not S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
        return file.read(most)


def remove_tree(path: Path) -> None:
    """Remove a folder or a file. Links are removed, not followed.

    Folders without permissions, or nested deeper than Python follows, are removed too.
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
    """Create a folder for the temporary files of one Pod of the job `uid`, and return its path.

    It is below the machine's folder for temporary files, not the job's: the path of a socket has at most 107 bytes. The folder of
    the shell that created the job may have gone with the shell; then it is below another one.
    """
    places = (folder, *_TEMPORARY)
    usable = next((each for each in places if os.access(each, os.W_OK | os.X_OK)), folder)
    return Path(tempfile.mkdtemp(prefix=_temporary_prefix(uid), dir=usable))


_TEMPORARY = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108
"""Folders of the machine for temporary files, if the preferred one has gone."""


def remove_temporaries(folder: Path, uid: str) -> None:
    """Remove the folders that `make_temporary` has created for the job `uid`; those of other users stay."""
    for place in {folder, *_TEMPORARY}:
        with suppress(OSError):
            for entry in os.scandir(place):
                is_ours = entry.name.startswith(_temporary_prefix(uid))
                if is_ours and entry.stat(follow_symlinks=False).st_uid == os.getuid():
                    remove_tree(Path(entry.path))


def _temporary_prefix(uid: str) -> str:
    return f"pulumi-trainer-{hashlib.sha256(uid.encode()).hexdigest()[:8]}-"


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error, or its cause, is an OSError for a full disk or quota."""
    return (isinstance(error, OSError) and error.errno in _FULL) or (
        error is not None and is_disk_full(error.__cause__)
    )


@contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Raise TargetFault in place of an OSError. path: The path in the message if the error has none."""
    try:
        yield
    except OSError as error:
        where = str(error.filename or path)
        hint = "check its owner and permissions"
        if is_disk_full(error):
            hint = "free some space there and run it again"
        raise TargetFault(Problem(where, f"cannot be written: {error.strerror or error}", hint)) from error
