"""What the digests of a checkpoint cost when it is saved, and when the next attempt reads it."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from pulumi_trainer.provider.pod.shared import find_checkpoint, training_files

SIZE = 1 << 30
BLOCK = os.urandom(1 << 24)


def measure(root: Path) -> None:
    """Prints the table. root: A folder on the disk that is measured."""
    counts = (1, 4)
    found = [[_measure_once(root, count) for count in counts] for _ in range(5)]
    for at, name in enumerate(("flushed, sizes alone", "flushed, with SHA-256", "verified")):
        medians = [statistics.median(row[column][at] for row in found) for column in range(len(counts))]
        print(f"| {name} | {' | '.join(f'{seconds:.2f}' for seconds in medians)} |")


def _measure_once(root: Path, count: int) -> tuple[float, float, float]:
    """Return the seconds until a checkpoint is complete, without and with digests, and those of verifying it."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(dir=root) as folder:
        with_digests = _save(Path(folder), 1, count)
        begun = time.monotonic()
        assert not find_checkpoint.damage(f"{folder}/step-1")
        verified = time.monotonic() - begun
        patch.setattr(training_files, "_digests_of", _no_digests)
        return _save(Path(folder), 2, count), with_digests, verified


def _no_digests(_files: Mapping[str, str]) -> dict[str, str]:
    return {}


def _save(folder: Path, step: int, count: int) -> float:
    made = folder / ".tmp-step"
    made.mkdir()
    for number in range(count):
        with (made / f"{number}.bin").open("wb") as file:
            for _ in range(SIZE // count // len(BLOCK)):
                file.write(BLOCK)
    begun = time.monotonic()
    training_files.complete(str(made), str(folder / f"step-{step}"), step, {})
    return time.monotonic() - begun
