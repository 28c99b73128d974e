"""Measures what a second set of packages costs that shares a large package with the first one, with uv and with pip."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pulumi_trainer.provider.targets.local import layer

from ..slow_index import slow_index

SIZE = 400_000_000
SETS = (["large"], ["large", "--no-deps"])
"""Two sets of which each has an environment of its own: their words differ."""
UV = Path(sys.executable).with_name("uv")


def _disk(folder: Path) -> int:
    """Return the bytes that files take on the disk; a file with several names counts once."""
    stats = {(stat := file.lstat()).st_ino: stat.st_blocks for file in folder.rglob("*")}
    return 512 * sum(stats.values())


def measure() -> None:
    """Print the table."""
    print(
        "| installer | set | downloads of the 400 MB package | s | more on the disk, MB |\n| --- | --- | --- | --- | --- |"
    )
    for tool in ("uv", "pip"):
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            (folder / "bin").mkdir()
            if tool == "uv":
                (folder / "bin" / "uv").symlink_to(UV)
            with slow_index(folder, SIZE) as index:
                index.go_on.set()
                home = folder / "home"
                env = {"HOME": str(home), "PATH": f"{folder / 'bin'}:{os.defpath}", "PIP_INDEX_URL": index.url}
                env["PIP_TRUSTED_HOST"] = (
                    "127.0.0.1"  # pip caches what comes by http then, as it does what comes by https
                )
                home.mkdir()
                for number, words in enumerate(SETS, 1):
                    downloads, disk, begun = index.downloads, _disk(home), time.monotonic()
                    argv = [sys.executable, layer.__file__, *words]
                    subprocess.run(argv, env=env, check=True, capture_output=True)
                    seconds = time.monotonic() - begun
                    more = (_disk(home) - disk) / 1e6
                    print(f"| {tool} | {number} | {index.downloads - downloads} | {seconds:.1f} | {more:.0f} |")
