"""Detects whether the files of a `file://` URI have changed since they were fetched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pulumi_trainer.provider.initializers import file
from pulumi_trainer.provider.initializers.schemes import split_uri
from pulumi_trainer.provider.initializers.source import Patterns


def fingerprint(uri: str, ignore: Sequence[str]) -> str:
    """Return a digest of the files of a `file://` URI.

    Args:
        uri: The URI.
        ignore: Patterns of files to leave out.

    Raises:
        TargetFault: A fetch would refuse a file, such as a link that leads out of the folder.
    """
    return file.fingerprint(split_uri(uri)[1], Patterns(ignore=tuple(ignore)))


def local_files(uri: str, ignore: Sequence[str]) -> dict[str, tuple[Path, int]]:
    """Return the files of a `file://` URI, by path below it: place and bytes. They are in the order of `Path`.

    Args:
        uri: The URI.
        ignore: Patterns of files to leave out.

    Raises:
        TargetFault: A fetch would refuse a file, such as a link that leads out of the folder.
    """
    return file.local_files(split_uri(uri)[1], Patterns(ignore=tuple(ignore)))
