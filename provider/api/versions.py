"""Numbers of releases, X.Y.Z or X.Y.Z-N, and how far a step from one to another goes."""

from __future__ import annotations

import re
from typing import Literal

Level = Literal["none", "patch", "minor", "major"]
"""patch: an image's digest, or labels. minor: only additions. major: what could break a job."""

LEVELS: tuple[Level, ...] = ("none", "patch", "minor", "major")

VERSION = re.compile(r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})(-[1-9]\d{0,8})?")
"""One way to write each, so that no two are the same release."""


def by_version(release: str) -> list[int]:
    """Sorts releases by number."""
    return [int(part) for part in re.split("[.-]", release)]


def step(before: str, after: str) -> Level:
    """How far the numbers say that it is, in either direction: 2.3.0 to 2.4.0 is minor."""
    old, new = by_version(before), by_version(after)
    if old == new:
        return "none"
    return "major" if old[0] != new[0] else "minor" if old[1] != new[1] else "patch"


def larger(one: Level, other: Level) -> Level:
    return LEVELS[max(LEVELS.index(one), LEVELS.index(other))]


def following(release: str, level: Level) -> str:
    """The next number that a change of that level may have."""
    major, minor, patch = by_version(release)[:3]
    if level == "major":
        return f"{major + 1}.0.0"
    return f"{major}.{minor + 1}.0" if level == "minor" else f"{major}.{minor}.{patch + 1}"
