"""Finds uv, which installs the packages of jobs on this machine and reads its lock files."""

from __future__ import annotations

from functools import cache

from uv import find_uv_bin


@cache
def find_uv() -> str:
    """Return the path of uv, a dependency of this package; without its program, `uv`, as PATH has it."""
    try:
        return find_uv_bin()
    except FileNotFoundError:
        return "uv"


# While a module is imported, other threads wait for it: sysconfig, which uv asks, is not safe if two threads ask it first.
find_uv()
