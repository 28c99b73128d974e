"""One at a time: set-ups of a clone, and builds of the CLI for all clones. Standard library only."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Holds the folder's lock, which ends with the process; who comes second says so and waits."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that is at work in {folder}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
