"""Whether the Pods of new runs are hardened, as the job, the stack or the namespace says."""

from __future__ import annotations

import asyncio

import pulumi
from pulumi_trainer.program import messages, session, targets
from pulumi_trainer.program.targets import Destination, Kubernetes, Place
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.trainer.labels import HARDENING


async def is_restricted(hardening: str | None, destination: Destination, place: Place) -> bool:
    """Return whether Pods are hardened; a plan says it if the namespace alone is the reason.

    Args:
        hardening: The argument of the job; None for `trainer:hardening` of the stack, else what the namespace says.
    """
    if not isinstance(destination, Kubernetes):
        return False
    wanted = hardening or pulumi.Config("trainer").get("hardening")
    if wanted:
        return wanted == "restricted"
    why = await _hardened_by(destination, place)
    if why and pulumi.runtime.is_dry_run():
        hint = 'hardening="none" of a job, or trainer:hardening of the stack, says otherwise'
        note = Problem("", f"New runs in namespace {place.namespace} are hardened: {why}", hint)
        if session.current().is_unreported(note):
            messages.info(note)
    return bool(why)


async def _hardened_by(destination: Kubernetes, place: Place) -> str:
    """Return why jobs of a namespace are hardened: its component in the program, else the namespace as it is; empty if they are
    not."""
    namespace = place.namespace
    if not isinstance(namespace, str):
        return ""
    declared = session.current().hardening
    for cluster in ("", targets.cluster_key(destination)):
        if (cluster, namespace) in declared:
            return declared[cluster, namespace]
    if await asyncio.to_thread(queries.hardens_jobs, place.target, namespace):
        return f"its annotation {HARDENING} is restricted"
    return ""
