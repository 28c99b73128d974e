"""Finds uv, which installs the packages of jobs on this machine and reads its lock files."""

from __future__ import annotations

from functools import cache
from threading import Lock

from uv import find_uv_bin

_LOCK = Lock()
"""sysconfig, which uv asks, is not safe if two threads ask it first."""


def find_uv() -> str:
    """Return the path of uv, a dependency of this package; without its program, `uv`, as PATH has it."""
    with _LOCK:
        return _find_uv()


@cache
def _find_uv() -> str:
    try:
        return find_uv_bin()
    except FileNotFoundError:
        return "uv"
