"""The release of Kubeflow Trainer whose rules a program's jobs follow."""

from __future__ import annotations

import asyncio

import pulumi
from pulumi_trainer.program.targets import Destination, Place, mode_of
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.trainer.pipeline import Release
from pulumi_trainer.provider.trainer.releases import known_release


def configured_release() -> Release:
    """Return the release of `trainer:version`, or the default one."""
    return known_release(pulumi.Config("trainer").get("version"))


async def choose_release(destination: Destination, place: Place) -> Release:
    """Return the release for the jobs of a target: that of `trainer:version`; in mode trainer else that of the cluster, if it can
    be read; else the default one.
    """
    is_given = pulumi.Config("trainer").get("version")
    if is_given or place.problems or mode_of(destination) != "trainer":
        return configured_release()
    return known_release(await asyncio.to_thread(queries.trainer_version, place.target))
