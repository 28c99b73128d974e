"""Ports of a cluster: below those that the kernel gives to clients, and nobody else's as long as the cluster lives.

A cluster has a block of ports. Its lock is a file that stays open in each process of the cluster, so a block is free again when
the last of them has ended, however it ended. Called by cluster.py.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
from collections.abc import Sequence
from pathlib import Path

FIRST, LAST, BLOCK = 21000, 32000, 25
"""From FIRST up to LAST, which lies below Linux's ephemeral ports (32768 and more)."""


def allocate(names: Sequence[str], folder: Path) -> tuple[dict[str, int], int]:
    """Name -> port, and the descriptor that holds them; pass it to what is started.

    folder: where the locks of all clusters of this machine lie.
    """
    assert len(names) <= BLOCK
    folder.mkdir(parents=True, exist_ok=True)
    starts = list(range(FIRST, LAST, BLOCK))
    random.shuffle(starts)
    for start in starts:
        descriptor = hold(start, folder)
        if descriptor is None:
            continue
        ports = dict(zip(names, range(start, start + BLOCK), strict=False))
        if all(map(_free, ports.values())):
            return ports, descriptor
        os.close(descriptor)
    raise OSError(f"no {len(names)} free ports next to each other between {FIRST} and {LAST}")


def hold(start: int, folder: Path) -> int | None:
    """The lock of the block that begins there; None where another cluster has it."""
    descriptor = os.open(folder / str(start), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
