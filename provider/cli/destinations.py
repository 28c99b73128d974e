"""Where `outputs --copy` writes: a folder, or a prefix of an S3 bucket. A copy without its record is not whole."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISLNK, S_ISREG
from typing import IO, Any

from pulumi_trainer.provider.cli.output_copy import OTHER_RECORD, RECORD, Copied, Destination, relative_link
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, section, text
from pulumi_trainer.provider.kubernetes.values.quantity import format_bytes
from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.machine.extras import not_installed

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
_BEGUN = "run.json.begun"
"""Object that exists while a copy is not complete."""
_LONGEST_RECORD = 2**28
_DELETED_AT_ONCE = 1000
_PARTS = 9000
"""Parts of an upload; S3 takes 10,000."""
_SMALLEST_PART = 8 * 2**20


@contextmanager
def open_destination(given: str, source: str, *, overwrite: bool) -> Iterator[Destination]:
    """Provide the destination of a copy. source: The folder that is copied; empty if it is not on this machine."""
    if "://" not in given:
        with _Folder.opened(Path(given), source, overwrite) as folder:
            yield folder
        return
    scheme, _, location = given.partition("://")
    bucket, _, prefix = location.partition("/")
    if scheme != "s3":
        raise Invalid(Problem("--copy", f"{given!r} is neither a folder nor s3://BUCKET/PREFIX"))
    if not _BUCKET.fullmatch(bucket):
        hint = "write s3://BUCKET/PREFIX, with a bucket name of 3 to 63 characters"
        raise Invalid(Problem("--copy", "the name of the bucket is not valid", hint))
    with _s3_errors(given):
        yield _Bucket(bucket, prefix.strip("/"), overwrite)


@dataclass(frozen=True)
class _Earlier:
    """What the record of an earlier copy lists.

    Attributes:
        sizes: Path of a file or object -> its bytes; None for one of a copy that is not complete.
    """

    sizes: Mapping[str, int | None]
    digests: Mapping[str, str]
    links: Mapping[str, str]

    @classmethod
    def read(cls, record: bytes) -> _Earlier | None:
        """Return what a record lists; None if it is not a record of a copy."""
        try:
            copy = section(json.loads(record), "copy")
        except (ValueError, RecursionError):
            return None
        if not copy:
            return None
        files = {text(each.get("path")): each for each in mappings(copy.get("files"))}
        return cls(
            {path: each.get("size") for path, each in files.items()},
            {path: text(each.get("sha256")) for path, each in files.items()},
            {path: text(target) for path, target in section(copy, "links").items()},
        )

    def is_as_copied(self, folder: Path, path: str) -> bool:
        """Return whether a file or link in a folder is what was copied there."""
        place = folder / path
        found = place.lstat()
        if S_ISLNK(found.st_mode):
            return path in self.links and str(place.readlink()) == relative_link(path, self.links[path])
        return S_ISREG(found.st_mode) and self.sizes.get(path) == found.st_size and self.digests[path] == _sha256(place)

    def objects(self, there: Mapping[str, int]) -> dict[str, int]:
        """Return the objects that are as they were copied, of those that are there, each with its bytes: a link is a copy."""
        sizes = dict(self.sizes)
        for path, target in self.links.items():
            resolved = _resolved(target, self.links)
            if resolved in sizes:
                sizes[path] = sizes[resolved]
        return {path: there[path] for path in sizes.keys() & there.keys() if sizes[path] in (None, there[path])}


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while piece := content.read(2**20):
            digest.update(piece)
    return digest.hexdigest()


class _Folder:
    """Writes into a folder beside the destination, which is renamed at the end; if the destination is an empty folder, such as a
    mount point or the current folder, into a folder in it."""

    def __init__(self, destination: Path, temporary: Path, overwrite: bool) -> None:
        self._destination, self._temporary, self._overwrite = destination, temporary, overwrite
        self._folders: list[tuple[Path, int]] = []
        self._verified: dict[str, os.stat_result] = {}

    @classmethod
    @contextmanager
    def opened(cls, given: Path, source: str, overwrite: bool) -> Iterator[_Folder]:
        destination = given.expanduser().absolute()
        if destination.is_symlink():
            raise Invalid(Problem("--copy", f"{given} is a link", "name the folder itself"))
        destination = destination.parent.resolve() / destination.name
        _refuse_overlap(destination, source)
        verified = _refuse_content(destination, overwrite, {})
        try:
            destination.parent.mkdir(parents=True, exist_ok=True)
            is_folder = destination.is_dir()
            is_empty = is_folder and not any(destination.iterdir())
            if is_folder and not is_empty:
                _refuse_replacement(destination)
            place = destination if is_empty else destination.parent
            temporary = Path(tempfile.mkdtemp(prefix=f".{destination.name}.copy-", dir=place))
        except OSError as error:
            raise _unwritable(destination, error) from None
        try:
            folder = cls(destination, temporary, overwrite)
            folder._verified = verified
            yield folder
        except OSError as error:
            raise _unwritable(destination, error) from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def begin(self, size: int, paths: set[str]) -> None:  # noqa: ARG002
        free = shutil.disk_usage(self._temporary).free
        if size > free:
            why = f"the output has {format_bytes(size)}, but only {format_bytes(free)} are free"
            raise TargetFault(Problem(str(self._destination), why, "free some space, or give another folder"))

    def add_folder(self, path: str, mode: int) -> None:
        folder = self._temporary / path
        folder.mkdir(parents=True, exist_ok=True)
        self._folders.append((folder, mode | 0o700))

    def add_file(self, path: str, content: IO[bytes], size: int, mode: int, modified: float) -> None:  # noqa: ARG002
        file = self._temporary / path
        file.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(file, flags, 0o600), "wb") as out:
            shutil.copyfileobj(content, out, 2**20)
            out.flush()
            os.fchmod(out.fileno(), mode | 0o600)
            os.utime(out.fileno(), (modified, modified))

    def finish(self, name: str, record: bytes, copied: Copied) -> None:
        for path, target in copied.links.items():
            if any(str(parent) in copied.links for parent in Path(path).parents):
                raise TargetFault(Problem(path, "is below a link"))
            link = self._temporary / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(relative_link(path, target))
        for folder, mode in reversed(self._folders):
            folder.chmod(mode)
        (self._temporary / name).write_bytes(record)
        if self._temporary.parent == self._destination:
            self._move_up(name)
            return
        mask = os.umask(0)
        os.umask(mask)
        self._temporary.chmod(0o777 & ~mask)
        os.sync()
        self._replace()

    def _move_up(self, record: str) -> None:
        """Move the copy into the destination, the record last, unless others have written there meanwhile."""
        if [*self._destination.iterdir()] != [self._temporary]:
            raise Invalid(Problem("--copy", f"{self._destination} is no longer empty", "give another folder"))
        os.sync()
        for each in sorted(self._temporary.iterdir(), key=lambda each: each.name == record):
            each.rename(self._destination / each.name)
        self._temporary.rmdir()

    def _replace(self) -> None:
        """Put the copy in the place of the destination, unless others have written there meanwhile."""
        _refuse_content(self._destination, self._overwrite, self._verified)
        if not self._destination.is_dir() or not any(self._destination.iterdir()):
            self._temporary.rename(self._destination)
            return
        earlier = Path(tempfile.mkdtemp(prefix=f".{self._destination.name}.old-", dir=self._destination.parent))
        self._destination.rename(earlier)
        self._temporary.rename(self._destination)
        shutil.rmtree(earlier, ignore_errors=True)


def _refuse_replacement(destination: Path) -> None:
    for what, holds in (("a mount point", destination.is_mount()), ("the current folder", destination == Path.cwd())):
        if holds:
            why = f"{destination} is {what}, which cannot be replaced"
            raise Invalid(Problem("--overwrite", why, "give a folder in it"))


def _refuse_overlap(destination: Path, source: str) -> None:
    if not source:
        return
    real = Path(source).resolve()
    if destination == real or real in destination.parents or destination in real.parents:
        raise Invalid(Problem("--copy", f"{destination} and the output {real} overlap", "give another folder"))


def _refuse_content(
    destination: Path, overwrite: bool, verified: Mapping[str, os.stat_result]
) -> dict[str, os.stat_result]:
    """Raise Invalid if there is something that is not replaced. Only what this command has copied is ever removed.

    Args:
        verified: What an earlier call has returned: the files of the copy, which are not read again unless they have changed.
    """
    try:
        if not destination.exists() or (destination.is_dir() and not any(destination.iterdir())):
            return {}
        if not destination.is_dir():
            raise Invalid(Problem("--copy", f"{destination} is a file", "name a folder"))
    except OSError as error:
        raise _unwritable(destination, error) from None
    if not overwrite:
        raise Invalid(Problem("--copy", f"{destination} is not empty", "--overwrite replaces an earlier copy"))
    name, earlier = _find_record(destination)
    if earlier is None:
        why = f"{destination} is not a copy of an output: it has no valid {RECORD}"
        raise Invalid(Problem("--overwrite", why, "--overwrite replaces earlier copies only; give another folder"))
    found = {path: (destination / path).lstat() for path in _files_below(destination)}
    unlisted = found.keys() - earlier.sizes.keys() - earlier.links.keys() - {name}
    changed = []
    for path in found.keys() - unlisted - {name}:
        is_verified = path in verified and _signature(verified[path]) == _signature(found[path])
        if not is_verified and not earlier.is_as_copied(destination, path):
            changed.append(path)
    for what, others in (
        ("are not part of the earlier copy", unlisted),
        ("have changed since they were copied", changed),
    ):
        if others:
            why = f"{destination} has files that {what}: {join_names(sorted(others))}"
            raise Invalid(Problem("--overwrite", why, "move them elsewhere, or give another folder"))
    return found


def _find_record(folder: Path) -> tuple[str, _Earlier | None]:
    """Return the record of a copy, and its name. A job may have written `RECORD` where `OTHER_RECORD` is there."""
    for name in (OTHER_RECORD, RECORD):
        earlier = _read_record(folder / name)
        if earlier is not None:
            return name, earlier
    return "", None


def _signature(found: os.stat_result) -> tuple[int, ...]:
    """Return what differs after any change of a file."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _files_below(folder: Path) -> Iterator[str]:
    """Yield the paths of files and links below a folder."""
    for parent, folders, files in os.walk(folder):
        links = [name for name in folders if Path(parent, name).is_symlink()]
        for name in (*files, *links):
            yield os.path.relpath(Path(parent, name), folder)


def _read_record(file: Path) -> _Earlier | None:
    """Return what the record of a copy lists; None if the file is not such a record."""
    try:
        if file.is_symlink() or file.stat().st_size >= _LONGEST_RECORD:
            return None
        return _Earlier.read(file.read_bytes())
    except OSError:
        return None


def _unwritable(destination: Path, error: OSError) -> TargetFault:
    return TargetFault(Problem(str(destination), f"cannot be written: {error.strerror or error}"))


class _Bucket:
    """Writes objects below a prefix; the record, written last, says that all are there."""

    def __init__(self, bucket: str, prefix: str, overwrite: bool) -> None:
        try:
            import boto3
        except ImportError:
            raise not_installed("boto3", "s3://") from None
        self._client: Any = boto3.client("s3")
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._earlier = self._sizes()
        self._refuse_content(overwrite)
        self._listed = self._find_listed()

    def begin(self, size: int, paths: set[str]) -> None:  # noqa: ARG002
        given = {RECORD, OTHER_RECORD, *paths}
        others = sorted(given & self._earlier.keys() - self._listed.keys() - {_BEGUN})
        if others:
            where = f"s3://{self._bucket}/{self._prefix}"
            why = (
                f"{where} has objects that are not part of the earlier copy and would be replaced: {join_names(others)}"
            )
            raise Invalid(Problem("--overwrite", why, "move them elsewhere, or give another prefix"))
        # Until the copy is complete, this object has what is of an earlier copy, whose record is removed now, or of this one.
        sizes = {**self._listed, **dict.fromkeys(paths)}
        listed = [{"path": path, "size": size} for path, size in sorted(sizes.items())]
        content = json.dumps({"copy": {"files": listed}}).encode()
        self._client.put_object(Bucket=self._bucket, Key=self._prefix + _BEGUN, Body=content)
        self._remove([name for name in (RECORD, OTHER_RECORD) if name in self._listed])

    def add_folder(self, path: str, mode: int) -> None:
        """Do nothing: S3 has no folders."""

    def add_file(self, path: str, content: IO[bytes], size: int, mode: int, modified: float) -> None:  # noqa: ARG002
        from boto3.s3.transfer import TransferConfig

        part = max(_SMALLEST_PART, size // _PARTS + 1)
        config = TransferConfig(multipart_chunksize=part, multipart_threshold=part, max_concurrency=4)
        self._client.upload_fileobj(content, self._bucket, self._key(path), Config=config)

    def finish(self, name: str, record: bytes, copied: Copied) -> None:
        files = {each.path: each.size for each in copied.files}
        for path, target in copied.links.items():
            resolved = _resolved(target, copied.links)
            if resolved in files:
                place = {"Bucket": self._bucket, "Key": self._key(resolved)}
                self._client.copy(place, self._bucket, self._key(path))
                files[path] = files[resolved]
            else:
                copied.notes.append(
                    f"{path} is left out: it is a link to a folder or to nothing, which S3 does not have"
                )
        there = self._sizes()
        wrong = [path for path, size in files.items() if there.get(path) != size]
        if wrong:
            where = f"s3://{self._bucket}/{self._key(wrong[0])}"
            raise TargetFault(Problem(where, "does not have the size that was uploaded", "copy it again"))
        unchanged = {path for path, size in self._listed.items() if there.get(path) == size}
        self._remove(sorted(unchanged - files.keys() - {_BEGUN}))
        self._client.put_object(
            Bucket=self._bucket, Key=self._prefix + name, Body=record, ContentType="application/json"
        )
        self._remove([_BEGUN])

    def _key(self, path: str) -> str:
        if path == _BEGUN:
            raise TargetFault(Problem(path, "has the name that marks a copy which is not complete", "rename it"))
        try:
            path.encode()
        except UnicodeEncodeError:
            raise TargetFault(Problem(repr(path), "is not UTF-8, and no object of S3 can have this name")) from None
        return self._prefix + path

    def _sizes(self) -> dict[str, int]:
        """Return the objects below the prefix, by their path below it."""
        found = {}
        for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix):
            for item in page.get("Contents", []):
                found[item["Key"][len(self._prefix) :]] = int(item["Size"])
        return found

    def _refuse_content(self, overwrite: bool) -> None:
        if self._earlier and not overwrite:
            begun = " (a copy there is not complete)" if _BEGUN in self._earlier else ""
            why = f"s3://{self._bucket}/{self._prefix} is not empty{begun}"
            raise Invalid(Problem("--copy", why, "--overwrite replaces an earlier copy"))

    def _find_listed(self) -> dict[str, int]:
        """Return the objects of the earlier copy with their bytes: its record and what that lists. All others stay.

        A job may have written `RECORD` where one of the others is there.
        """
        for name in (_BEGUN, OTHER_RECORD, RECORD):
            earlier = self._read_listed(name)
            if earlier is not None:
                return {name: self._earlier[name], **earlier.objects(self._earlier)}
        if self._earlier and _BEGUN not in self._earlier:
            why = f"s3://{self._bucket}/{self._prefix} is not a copy of an output: it has no valid {RECORD}"
            raise Invalid(Problem("--overwrite", why, "--overwrite replaces earlier copies only; give another prefix"))
        return {}

    def _read_listed(self, name: str) -> _Earlier | None:
        if self._earlier.get(name, _LONGEST_RECORD) >= _LONGEST_RECORD:
            return None
        return _Earlier.read(self._client.get_object(Bucket=self._bucket, Key=self._prefix + name)["Body"].read())

    def _remove(self, paths: list[str]) -> None:
        for start in range(0, len(paths), _DELETED_AT_ONCE):
            keys = [{"Key": self._prefix + path} for path in paths[start : start + _DELETED_AT_ONCE]]
            answer = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": keys, "Quiet": True})
            for fault in answer.get("Errors", []):
                raise TargetFault(Problem(f"s3://{self._bucket}/{fault.get('Key')}", str(fault.get("Message"))))


def _resolved(path: str, links: Mapping[str, str]) -> str:
    """Return the path that links lead to; a cycle leads to one of its links."""
    for _ in range(len(links)):
        if path not in links:
            break
        path = links[path]
    return path


@contextmanager
def _s3_errors(where: str) -> Iterator[None]:
    """Turn errors of boto3 into errors for the user; they quote no credentials."""
    try:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise not_installed("boto3", "s3://") from None
    try:
        yield
    except (Boto3Error, BotoCoreError, ClientError, ValueError) as error:  # ValueError: an endpoint that is not a URL
        hint = "check the credentials (AWS_* or a profile), the bucket's name, its region and AWS_ENDPOINT_URL"
        raise TargetFault(Problem(where, str(error), hint)) from None
