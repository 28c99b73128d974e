"""Release numbers, X.Y.Z or X.Y.Z-N, and the level of a step between them."""

from __future__ import annotations

import re
from typing import Literal

Level = Literal["none", "patch", "minor", "major"]
"""patch: an image's digest, or labels. minor: only additions. major: what could break a job."""

LEVELS: tuple[Level, ...] = ("none", "patch", "minor", "major")

VERSION = re.compile(r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})(-[1-9]\d{0,8})?")
"""One way to write each, so that no two are the same release."""


def by_version(release: str) -> list[int]:
    """Return a key that sorts releases by number."""
    return [*map(int, re.split("[.-]", release))]


def version_step(before: str, after: str) -> Level:
    """Return the level of a step between two releases, in either direction: 2.3.0 to 2.4.0 is minor."""
    old, new = by_version(before), by_version(after)
    if old == new:
        return "none"
    if old[0] != new[0]:
        return "major"
    return "minor" if old[1] != new[1] else "patch"


def larger(one: Level, other: Level) -> Level:
    """Return the higher of two levels."""
    return LEVELS[max(LEVELS.index(one), LEVELS.index(other))]


def next_version(release: str, level: Level) -> str:
    """Return the release after another one when its major, minor or patch number goes up."""
    major, minor, patch = by_version(release)[:3]
    if level == "major":
        return f"{major + 1}.0.0"
    if level == "minor":
        return f"{major}.{minor + 1}.0"
    return f"{major}.{minor}.{patch + 1}"
