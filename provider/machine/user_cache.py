"""The folder that all projects of this user share."""

from __future__ import annotations

from pathlib import Path


def cache_folder() -> Path:
    """Return the folder."""
    return Path.home() / ".cache" / "pulumi-trainer"
