"""What the stack has: channels, unfinished jobs, and volumes with output, that the program no longer has, and its cluster.

The engine asks no provider in the preview of a deletion, so the program asks the engine what the stack has, which is what a
StackReference does (`pulumi:pulumi:readStackResourceOutputs`; a state of 1,000 jobs takes 0.15 s of the program's time).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.kube.errors import Problem

_CHANNEL = "pulumi-python:dynamic/trainer:Channel"
URN = "urn"
"""Key of the outputs that `read_stack` returns: the URN of their resource."""
_VOLUME = "pulumi-python:dynamic/trainer:Volume"
JOBSET = "pulumi-python:dynamic/trainer:JobSet"
_TARGET = "pulumi-python:dynamic/trainer:Target"
Resources = Sequence[tuple[str, Mapping[str, Any]]]
"""Type and outputs of the resources of a stack."""


@dataclass(frozen=True)
class Planned:
    """A job of the program. digests: of what the user wrote, and what earlier versions took for it. channel: that it takes
    releases from; empty: none."""

    digests: tuple[Any, ...]
    channel: str


async def read_stack() -> Resources:
    """Return what the stack has now; nothing if its backend does not tell."""
    try:
        found = await pulumi.runtime.invoke_async(
            "pulumi:pulumi:readStackResourceOutputs", {"stackName": pulumi.get_stack()}
        )
        return [(str(each["type"]), {URN: urn, **each["outputs"]}) for urn, each in found["outputs"].items()]
    except Exception:  # the engine's own words for a stack that was never brought up differ by backend
        return []


def jobs_of(stack: Resources) -> dict[str, Any]:
    """Return the digests of a stack's jobs, by namespace/name."""
    return {f"{o.get('namespace')}/{o.get('name')}": o.get("digest") for type_, o in stack if type_ == JOBSET}


def recorded_cluster(stack: Resources, name: str) -> str:
    """Return the identity of the cluster that a target of the stack was made in; empty if there is no such target."""
    found = (o.get("cluster") for type_, o in stack if type_ == _TARGET and o[URN].endswith(f"::{name}"))
    return str(next(found, None) or "")


def names_of_target(stack: Resources, kind: str, connection: Mapping[str, Any]) -> list[str]:
    """Return the names of the stack's targets that are reached in the same way.

    Args:
        stack: What the stack has.
        kind: What all names of targets of this kind and namespace begin with.
        connection: How the target is reached.
    """
    named = re.compile(rf"{re.escape(kind)}(?:-\d+)?")
    found = [(o[URN].rpartition("::")[2], o.get("target")) for type_, o in stack if type_ == _TARGET]
    return [name for name, target in found if named.fullmatch(name) and _same_place(target, connection)]


def _same_place(recorded: object, connection: Mapping[str, Any]) -> bool:
    """Return whether a target of the stack is reached as a connection of the program is, whatever its namespace."""
    return isinstance(recorded, Mapping) and all(recorded.get(part) == connection.get(part) for part in _REACHED)


_REACHED = ("kind", "root", "kubeconfig", "context")


def holder(stack: Resources, target: Mapping[str, Any], namespace: str, name: str) -> str:
    """Return the URN of the stack's JobSet of that name at a target; empty if it has none."""
    jobs = [o for type_, o in stack if type_ == JOBSET and _same_place(o.get("target"), target)]
    return next((str(o[URN]) for o in jobs if (o.get("namespace"), o.get("name")) == (namespace, name)), "")


async def losses(stack: Resources, registered: Sequence[dynamic.JobSet | dynamic.Volume]) -> list[str]:
    """Return which unfinished jobs have left the program, and what is in each volume of a job that has.

    Args:
        stack: What the stack has.
        registered: The program's jobs and volumes.
    """
    known = [asyncio.gather(r.urn.future(), r.namespace.future(), r.name.future()) for r in registered]
    found = [
        each for each in await asyncio.gather(*known, return_exceptions=True) if not isinstance(each, BaseException)
    ]
    urns, names = {urn for urn, _, _ in found}, {(namespace, name) for _, namespace, name in found}
    gone = [
        (_LOSSES[type_], outputs)
        for type_, outputs in stack
        if type_ in _LOSSES
        and outputs[URN] not in urns
        and (outputs.get("namespace"), outputs.get("name")) not in names
    ]
    return [text for lost, outputs in gone for text in await asyncio.to_thread(lost, outputs)]


_LOSSES = {JOBSET: dynamic.interruptions, _VOLUME: dynamic.losses}


async def refusals(stack: Resources, channels: Collection[str], jobs: Mapping[str, Planned]) -> list[Problem]:
    """Return which channels cannot be removed.

    Args:
        stack: What the stack has.
        channels: Names of those of the program.
        jobs: The program's, by namespace/name.
    """
    removed = [outputs for type_, outputs in stack if type_ == _CHANNEL and outputs.get("channel") not in channels]
    return [p for outputs in removed for p in await asyncio.to_thread(_refused, outputs, stack, jobs)]


def _refused(channel: Mapping[str, Any], stack: Resources, jobs: Mapping[str, Planned]) -> list[Problem]:
    own = jobs_of(stack)

    def stays(where: str) -> bool:
        """Whether a job still uses the channel when that is removed, after all jobs were changed and removed."""
        if where not in own:
            return True
        planned = jobs.get(where)
        return planned is not None and (own[where] in planned.digests or planned.channel == channel["channel"])

    return dynamic.channel_refusals(channel, stays)
