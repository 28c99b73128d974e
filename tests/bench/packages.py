"""Measures what a second set of packages costs that shares a large package with the first one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pulumi_trainer.provider.pod import layer

from ..slow_index import slow_index

SIZE = 400_000_000
SETS = (["large"], ["large", "--no-deps"])
"""Two sets of which each has an environment of its own: their words differ."""


def _disk(folder: Path) -> int:
    """Return the bytes that files take on the disk; a file with several names counts once."""
    stats = {(stat := file.lstat()).st_ino: stat.st_blocks for file in folder.rglob("*")}
    return 512 * sum(stats.values())


def measure() -> None:
    """Print the table."""
    print("| set | downloads of the 400 MB package | s | more on the disk, MB |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as made, slow_index(Path(made), SIZE) as index:
        index.go_on.set()
        home = Path(made, "home")
        home.mkdir()
        env = {"HOME": str(home), "PATH": os.defpath, "PIP_INDEX_URL": index.url}
        for number, words in enumerate(SETS, 1):
            downloads, disk, begun = index.downloads, _disk(home), time.monotonic()
            subprocess.run([sys.executable, layer.__file__, *words], env=env, check=True, capture_output=True)
            seconds = time.monotonic() - begun
            more = (_disk(home) - disk) / 1e6
            print(f"| {number} | {index.downloads - downloads} | {seconds:.1f} | {more:.0f} |")
