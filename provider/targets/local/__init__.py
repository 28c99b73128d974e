"""Runs rendered JobSets as processes of this machine, with the semantics of the JobSet controller."""

from __future__ import annotations

from pulumi_trainer.provider.targets.local.machine import host_id
from pulumi_trainer.provider.targets.local.target import LocalTarget

__all__ = ["LocalTarget", "host_id"]
