"""What happens to objects of this stack that were changed by hand: `drift=` of their components."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pulumi_trainer.program import messages, session
from pulumi_trainer.program.object_owner import Place
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault, several
from pulumi_trainer.provider.kubernetes.hand_edits import HandEdit, edits_text, find_edits
from pulumi_trainer.provider.kubernetes.values.accessors import section, text

Drift = Literal["restore", "refuse", "keep"]
PATCH_FORCE = "pulumi.com/patchForce"
"""Annotation with which pulumi-kubernetes takes fields back that others have set by hand. A new object does not have it: another
stack may make it at the same time."""


async def force_annotation(place: Place, live: Mapping[str, Any], edits: Sequence[HandEdit]) -> dict[str, str]:
    """Return the annotation for an object that was changed by hand; an object that has it keeps it.

    Args:
        live: Metadata of this stack's object in the cluster; empty if not found.
        edits: What is put back.
    """
    recorded = section((await session.current().object_owner()).recorded.get(place, {}), "metadata")
    if edits or any(PATCH_FORCE in section(each, "annotations") for each in (live, recorded)):
        return {PATCH_FORCE: "true"}
    return {}


async def review_edits(
    kind: Kind,
    live: Mapping[str, Any],
    wanted: Mapping[str, Any],
    drift: Drift | None,
    list_jobs: Callable[[], Sequence[str]],
) -> tuple[list[HandEdit], list[Problem]]:
    """Return what an update has to revert, and why it is refused; warn of changes that are reverted, or stay.

    Args:
        drift: What the program asks for; None: `refuse` if jobs are affected, else `restore`.
        list_jobs: Returns the running and waiting jobs that are affected.
    """
    about = section(live, "metadata")
    namespace, name = text(about.get("namespace")), text(about.get("name"))
    recorded = (await session.current().object_owner()).recorded
    edits = find_edits(recorded.get((kind.group, kind.kind, namespace, name), {}), live, wanted)
    if not edits:
        return [], []
    jobs: Sequence[str] = ()
    if drift is None and any(edit.path[0] != "metadata" for edit in edits):  # labels and annotations concern no job
        try:
            jobs = await asyncio.to_thread(list_jobs)
        except TargetFault as fault:
            jobs = [f"jobs that are not known: {fault}"]
    why = f"{kind.where(namespace, name)} {edits_text(edits)}"
    if drift == "refuse" or jobs:
        if jobs:
            why += f". These jobs are affected: {several(jobs)}"
        hint = 'drift="restore" puts it back, drift="keep" leaves it; or write the values into the program'
        return [], [Problem("drift", why, hint)]
    does = "an update puts it back"
    if drift == "keep":
        does, edits = "stays so", []
    note = Problem("", f"{why}; {does}")
    if session.current().is_unreported(note):
        messages.warn(note)
    return edits, []
