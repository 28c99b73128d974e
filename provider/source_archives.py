"""Stores the archives of jobs' code in the user's cache: a project by the digest of its files, other code by that of its text.

A program writes an archive before it registers a job, and the target reads it when it creates the job. State and plan contain
only the digest.
"""

from __future__ import annotations

import gzip
import os
import re
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import Document, section, text
from pulumi_trainer.provider.machine.extras import not_installed
from pulumi_trainer.provider.machine.user_cache import cache_folder
from pulumi_trainer.provider.pod.code import SOURCE_ADDRESS, SOURCE_DIGEST, SOURCE_FILE

_DIGEST = re.compile("[0-9a-f]{64}")
_NOTED = 3600.0
"""Seconds after which another use of an archive is noted."""


def archive_path(digest: str) -> Path:
    """Return the path of the archive of a digest.

    Raises:
        TargetFault: The digest is not valid.
    """
    if not _DIGEST.fullmatch(digest):
        raise TargetFault(Problem("source", f"not a valid digest: {digest!r}"))
    return folder() / f"{digest}.tar.gz"


def find_digest(beginning: str) -> str:
    """Return the digest of an archive of the cache by its first characters; empty if there is none, or several."""
    found = [each.name.partition(".")[0] for each in folder().glob(f"{beginning}*.tar.gz")]
    if len(found) != 1:
        return ""
    return found[0]


def folder() -> Path:
    """Return the folder of the archives."""
    return cache_folder() / "sources"


def store(digest: str, archive: Callable[[], bytes]) -> None:
    """Write the archive of a digest into the cache, unless it has a whole one.

    Args:
        digest: SHA-256 of the project's files, in hexadecimal.

    Raises:
        TargetFault: The archive cannot be written.
    """
    place = archive_path(digest)
    if _is_whole(place):
        with suppress(OSError):
            if time.time() - place.stat().st_mtime > _NOTED:
                os.utime(place)  # its time is that of the last use, for `cache prune`
        return
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".new-") as fresh:
            written = Path(fresh, place.name)
            with written.open("wb") as file:
                file.write(archive())
                file.flush()
                os.fsync(file.fileno())  # else a power failure can leave the name without the content
            written.rename(place)
    except OSError as error:
        raise TargetFault(Problem(str(place), f"cannot be written: {error.strerror}")) from None


def read(digest: str) -> bytes:
    """Return the archive of a digest.

    Raises:
        TargetFault: The archive is not on this machine, or it is damaged.
    """
    try:
        return _read(archive_path(digest))
    except (OSError, EOFError) as error:
        what = "is not on this machine"
        if isinstance(error, EOFError):
            what = "is damaged on this machine"
        hint = (
            "`pulumi up` makes it again if the files of the project are as they were (check out that commit); otherwise"
            " another run= key runs the project as it is now"
        )
        raise TargetFault(Problem("source", f"the archive of the project ({digest[:12]}) {what}", hint)) from None


_whole: dict[Path, int] = {}
"""Archives that this process has found whole -> their bytes, so that each is unpacked once for many jobs of one project."""


def _is_whole(place: Path) -> bool:
    try:
        size = place.stat().st_size
        if _whole.get(place) != size:
            _whole[place] = len(_read(place))
    except (OSError, EOFError):
        return False
    return True


def _read(place: Path) -> bytes:
    """Return an archive.

    Raises:
        OSError: It cannot be read.
        EOFError: It is damaged, such as by a power failure.
    """
    archive = place.read_bytes()
    try:
        whole = gzip.decompress(archive)
    except (gzip.BadGzipFile, zlib.error):
        whole = b""
    if not whole:
        raise EOFError
    return archive


def address_of(document: Document) -> str:
    """Return the S3 address of the archive of a ConfigMap; empty if the ConfigMap contains the archive."""
    return text(section(document, "metadata", "annotations").get(SOURCE_ADDRESS))


def upload(address: str, digest: str) -> None:
    """Write the archive of a digest to an S3 address, unless it exists.

    Args:
        address: The S3 address, s3://BUCKET/KEY.
        digest: Digest of the archive, which is on this machine.

    Raises:
        TargetFault: The archive cannot be written; the message is the server's.
    """
    bucket, _, key = address.removeprefix("s3://").partition("/")
    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise not_installed("boto3", address) from None
    try:
        client = boto3.client("s3")
        try:
            client.head_object(Bucket=bucket, Key=key)
        except ClientError:
            client.put_object(Bucket=bucket, Key=key, Body=read(digest))
    except (BotoCoreError, ClientError, ValueError) as error:  # ValueError: an endpoint that is not a URL
        hint = "this machine writes there with its AWS credentials: AWS_PROFILE, AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL"
        raise TargetFault(Problem(address, f"the archive of the project cannot be written: {error}", hint)) from None


def digest_of(document: Document) -> str:
    """Return the digest of the archive of a ConfigMap; empty if the ConfigMap has none."""
    if document.get("kind") != "ConfigMap":
        return ""
    return text(section(document, "metadata", "annotations").get(SOURCE_DIGEST))


def with_archive(document: Document, archive: Any) -> Document:
    """Return a ConfigMap with an archive in it.

    Args:
        document: The ConfigMap of a job's source; it is not changed.
        archive: The archive: base64 for a server, bytes for a job on this machine.
    """
    return {**document, "binaryData": {**section(document, "binaryData"), SOURCE_FILE: archive}}
