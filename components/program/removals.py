"""The resources in the stack's state, and which of them cannot be removed: channels, unfinished jobs, and volumes with output.

The engine asks no provider in the preview of a deletion, so the program reads the stack's resources as a StackReference does
(`pulumi:pulumi:readStackResourceOutputs`; a state of 1,000 jobs takes 0.15 s of the program's time).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.engine import dynamic, pulumi_compat
from pulumi_trainer.provider.engine.values import to_plain
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, section, text
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.targets import queries

_CHANNEL = "pulumi-python:dynamic/trainer:Channel"
URN = "urn"
"""Key of the outputs that `read_stack` returns: the URN of their resource."""
_VOLUME = "pulumi-python:dynamic/trainer:Volume"
JOBSET = "pulumi-python:dynamic/trainer:JobSet"
_TARGET = "pulumi-python:dynamic/trainer:Target"
_RUNTIME = "pulumi-python:dynamic/trainer:Runtime"
_GUARD = "pulumi-python:dynamic/trainer:ObjectGuard"
Resources = Sequence[tuple[str, Mapping[str, Any]]]
"""Type and outputs of the resources of a stack."""


@dataclass(frozen=True)
class Planned:
    """A job of the program. channel: Channel that the job takes releases from; empty: none."""

    digest: Any
    channel: str


async def read_stack() -> Resources:
    """Return the resources in the stack's state; empty if the backend does not return them."""
    try:
        found = await pulumi_compat.read_stack_outputs()
        return [(str(each["type"]), {URN: urn, **each["outputs"]}) for urn, each in found.items()]
    except Exception:  # the engine's own words for a stack that was never brought up differ by backend
        return []


def jobs_of(stack: Resources) -> dict[str, Any]:
    """Return the digests of a stack's jobs, by namespace/name."""
    return {f"{o.get('namespace')}/{o.get('name')}": o.get("digest") for type_, o in stack if type_ == JOBSET}


def recorded_channel(stack: Resources, channel: str) -> Mapping[str, Any]:
    """Return the outputs of a channel in the stack's state; empty if not found."""
    found = [outputs for type_, outputs in stack if type_ == _CHANNEL and outputs.get("channel") == channel]
    return to_plain(dict(found[0])) if found else {}


def recorded_cluster(stack: Resources, name: str) -> str:
    """Return the identity of the cluster of a target in the stack; empty if the stack has no such target."""
    for type_, outputs in stack:
        if type_ == _TARGET and outputs[URN].endswith(f"::{name}"):
            return str(outputs.get("cluster") or "")
    return ""


def guarded_targets(stack: Resources, group: str) -> list[Mapping[str, Any]]:
    """Return the connections to the clusters in which a stack has objects of an API group."""
    found = list[Mapping[str, Any]]()
    for type_, outputs in stack:
        if type_ != _GUARD:
            continue
        known = to_plain(dict(outputs))
        if any(text(each.get("apiVersion")).startswith(f"{group}/") for each in mappings(known.get("objects"))):
            found.append(section(known, "target"))
    return found


def names_of_target(stack: Resources, connection: Mapping[str, Any], cluster: str = "") -> list[str]:
    """Return the names of the stack's targets that may belong to a connection, those that differ least first.

    A kubeconfig, a mode or an interpreter may change, and so may the path of a folder. A target of another kind or namespace does
    not belong to the connection.
    """
    found = []
    for name, recorded, count in _recorded_targets(stack):
        if _may_be(recorded, connection):
            found.append((_differences(recorded, connection, cluster), count, name))
    return [name for _, _, name in sorted(found)]


def names_of_others(stack: Resources, connection: Mapping[str, Any]) -> set[str]:
    """Return the names of the stack's targets that cannot belong to a connection."""
    return {name for name, recorded, _ in _recorded_targets(stack) if not _may_be(recorded, connection)}


def _recorded_targets(stack: Resources) -> Iterator[tuple[str, Mapping[str, Any], int]]:
    """Yield name, connection (with the cluster's identity) and number of each target of a stack."""
    for type_, outputs in stack:
        target = outputs.get("target")
        if type_ != _TARGET or not isinstance(target, Mapping):
            continue
        name = outputs[URN].rpartition("::")[2]
        number = 1
        digits = re.search(r"\d+$", name)
        if digits is not None:
            number = int(digits[0])
        yield name, {**target, "cluster": outputs.get("cluster")}, number


def _may_be(recorded: Mapping[str, Any], connection: Mapping[str, Any]) -> bool:
    return all(recorded.get(part) == connection.get(part) for part in ("kind", "namespace"))


def _differences(recorded: Mapping[str, Any], connection: Mapping[str, Any], cluster: str) -> tuple[bool, ...]:
    """Return which parts differ, the most significant one first; a kubeconfig's content is not compared, as it is secret and may
    change.
    """
    parts = ("root", "kubeconfig", "context", "mode", "python")
    return (
        bool(cluster) and recorded.get("cluster") != cluster,
        *(recorded.get(part) != connection.get(part) for part in parts),
    )


def jobs_by_name(stack: Resources) -> dict[tuple[Any, Any], list[Mapping[str, Any]]]:
    """Return the outputs of a stack's JobSets, by namespace and name."""
    found = dict[tuple[Any, Any], list[Mapping[str, Any]]]()
    for type_, job in stack:
        if type_ == JOBSET:
            found.setdefault((job.get("namespace"), job.get("name")), []).append(job)
    return found


def urn_of_job(jobs: Iterable[Mapping[str, Any]], target: Mapping[str, Any], cluster: str = "") -> str:
    """Return the URN of that of some jobs which is at a target; empty if not found."""
    for job in jobs:
        if _same_place(job.get("target"), target, cluster):
            return str(job[URN])
    return ""


def _same_place(recorded: object, connection: Mapping[str, Any], cluster: str) -> bool:
    """Return whether a recorded job has the same connection, whatever its namespace."""
    if not isinstance(recorded, Mapping):
        return False
    elsewhere = bool(cluster) and recorded.get("cluster") not in (None, cluster)
    return not elsewhere and all(recorded.get(part) == connection.get(part) for part in _REACHED)


_REACHED = ("kind", "root", "kubeconfig", "context")


def names_of_runtimes(
    stack: Resources, urns: Sequence[str], namespace: Any, connection: Mapping[str, Any]
) -> list[str]:
    """Return the names of the stack's runtimes that a component has in a namespace, those with the same connection first.

    Args:
        urns: The URN of the component, then those of its aliases.
    """
    name = urns[0].rpartition("::")[2]
    others = {str(outputs[URN]) for _, outputs in stack}
    near, far = list[str](), list[str]()
    for type_, outputs in stack:
        if type_ != _RUNTIME:
            continue
        suffix = _suffix(str(outputs[URN]), urns, others)
        if suffix is None or not _is_in(outputs.get("document"), namespace):
            continue
        if _same_place(outputs.get("target"), connection, ""):
            near.append(name + suffix)
        else:
            far.append(name + suffix)
    return [*near, *far]


def _suffix(runtime: str, urns: Sequence[str], others: Collection[str]) -> str | None:
    """Return the suffix of a runtime's name after the name of its component; None if the runtime belongs to another component."""
    for urn in urns:
        parent, _, name = urn.rpartition("::")
        start = f"{parent}${_RUNTIME}::{name}"
        suffix = runtime.removeprefix(start)
        if runtime == start or (suffix != runtime and suffix.startswith("-") and f"{urn}{suffix}" not in others):
            return suffix
    return None


def _is_in(document: object, namespace: Any) -> bool:
    """Return whether a document of the state is in a namespace, which may be unknown."""
    if not isinstance(document, Mapping):
        return False
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping):
        return False
    return isinstance(namespace, Unknown) or metadata.get("namespace", "") == namespace


async def losses(stack: Resources, registered: Sequence[dynamic.JobSet | dynamic.Volume]) -> list[str]:
    """Return the unfinished jobs that were removed from the program, and the contents of volumes of removed jobs."""
    awaited = [asyncio.gather(r.urn.future(), r.namespace.future(), r.name.future()) for r in registered]
    urns, names = set[Any](), set[tuple[Any, Any]]()
    for found in await asyncio.gather(*awaited, return_exceptions=True):
        if isinstance(found, BaseException):
            continue
        urn, namespace, name = found
        urns.add(urn)
        names.add((namespace, name))
    texts = list[str]()
    for type_, outputs in stack:
        if type_ not in _LOSSES or outputs[URN] in urns:
            continue
        if (outputs.get("namespace"), outputs.get("name")) not in names:
            texts += await asyncio.to_thread(_LOSSES[type_], to_plain(dict(outputs)))
    return texts


_LOSSES = {JOBSET: queries.job_interruptions, _VOLUME: queries.volume_losses}


async def refusals(stack: Resources, channels: Collection[str], jobs: Mapping[str, Planned]) -> list[Problem]:
    """Return a problem for each removed channel that jobs still use."""
    removed = [outputs for type_, outputs in stack if type_ == _CHANNEL and outputs.get("channel") not in channels]
    found = list[Problem]()
    for outputs in removed:
        found += await asyncio.to_thread(_refused, outputs, stack, jobs)
    return found


def _refused(channel: Mapping[str, Any], stack: Resources, jobs: Mapping[str, Planned]) -> list[Problem]:
    own = jobs_of(stack)

    def stays(where: str) -> bool:
        """Return whether a job still uses the channel when it is removed, after all jobs were changed and removed."""
        if where not in own:
            return True
        planned = jobs.get(where)
        return planned is not None and (own[where] == planned.digest or planned.channel == channel["channel"])

    return queries.channel_refusals(to_plain(dict(channel)), stays)
