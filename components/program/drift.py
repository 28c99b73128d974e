"""What happens to objects of this stack that were changed by hand: `drift=` of their components."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pulumi_trainer.program import messages, session
from pulumi_trainer.program.object_owner import Place
from pulumi_trainer.provider.jobs.edited_json import parse
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault, several
from pulumi_trainer.provider.kubernetes.hand_edits import HandEdit, edits_text, find_edits
from pulumi_trainer.provider.kubernetes.values.accessors import listed, section, text
from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.trainer.labels import KEPT

Drift = Literal["restore", "refuse", "keep"]
PATCH_FORCE = "pulumi.com/patchForce"
"""Annotation with which pulumi-kubernetes takes fields back that others have set by hand. A new object does not have it: another
stack may make it at the same time."""


@dataclass(frozen=True)
class Reviewed:
    """What was changed by hand in an object.

    Attributes:
        live: Metadata of this stack's object in the cluster; empty if not found.
        restored: What an update puts back.
        kept: What it leaves as it is.
        adopted: Whether the object belongs to no stack yet and is taken over.
    """

    live: Mapping[str, Any] = field(default_factory=dict)
    restored: Sequence[HandEdit] = ()
    kept: Sequence[HandEdit] = ()
    adopted: bool = False


async def drift_annotations(place: Place, reviewed: Reviewed) -> dict[str, str]:
    """Return the annotations for an object that was changed by hand or is adopted; one that has `PATCH_FORCE` keeps it."""
    recorded = section((await session.current().object_owner()).recorded.get(place, {}), "metadata")
    found: dict[str, str] = {}
    is_forced = any(PATCH_FORCE in section(each, "annotations") for each in (reviewed.live, recorded))
    if reviewed.restored or reviewed.adopted or is_forced:
        found[PATCH_FORCE] = "true"
    if reviewed.kept:
        found[KEPT] = json.dumps([edit.path for edit in reviewed.kept], separators=(",", ":"))
    return found


async def review_edits(
    kind: Kind,
    live: Mapping[str, Any],
    wanted: Mapping[str, Any],
    drift: Drift | None,
    list_jobs: Callable[[], Sequence[str]],
) -> tuple[Reviewed, list[Problem]]:
    """Return what was changed by hand, and why an update is refused; warn of changes that are reverted, or stay.

    Args:
        drift: What the program asks for; None: `refuse` if jobs are affected, else `restore`.
        list_jobs: Returns the running and waiting jobs that are affected.
    """
    about = section(live, "metadata")
    namespace, name = text(about.get("namespace")), text(about.get("name"))
    owner = await session.current().object_owner()
    recorded = owner.recorded.get((kind.group, kind.kind, namespace, name), {})
    edits = find_edits(recorded, live, wanted, _kept_fields(recorded))
    if not edits:
        return Reviewed(about), []
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
        return Reviewed(about), [Problem("drift", why, hint)]
    does, found = "an update puts it back", Reviewed(about, restored=edits)
    if drift == "keep":
        fields = join_names([edit.field for edit in edits])
        does, found = f"stays so, and no update changes {fields}", Reviewed(about, kept=edits)
    note = Problem("", f"{why}; {does}")
    if session.current().is_unreported(note):
        messages.warn(note)
    return found, []


def _kept_fields(recorded: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the fields that this stack has applied as others had changed them."""
    found = parse(section(recorded, "metadata", "annotations").get(KEPT))
    return [tuple(map(str, path)) for path in listed(found) if path and isinstance(path, list)]
