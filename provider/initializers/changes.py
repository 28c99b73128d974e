"""Tells whether the files of a `file://` URI have changed since they were fetched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pulumi_trainer.provider.initializers import file, manifest
from pulumi_trainer.provider.initializers.schemes import split
from pulumi_trainer.provider.initializers.source import Patterns


def fingerprint(uri: str, ignore: Sequence[str]) -> str:
    """Return a digest of the files that a `file://` URI names, less those that match `ignore`.

    Raises TargetFault for what a fetch would refuse, such as a link that leads out of the folder.
    """
    return file.fingerprint(split(uri)[1], Patterns(ignore=tuple(ignore)))


def is_current(uri: str, ignore: Sequence[str], output: Path) -> bool:
    """Return whether the folder `output` holds a complete fetch of the files that the URI names now."""
    done = manifest.read(output)
    if done is None or not done.complete:
        return False
    return file.is_unchanged(split(uri)[1], Patterns(ignore=tuple(ignore)), done.files, manifest.written(output))
