"""A test cluster on this machine: the real control plane, with simulated nodes or real ones."""

from __future__ import annotations

from .build import Unavailable
from .cluster import Broken, Cluster
from .control_plane import ALL, GANGS

__all__ = ["ALL", "GANGS", "Broken", "Cluster", "Unavailable"]
