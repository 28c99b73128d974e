"""Compares what a target has of a stack with the stack's state."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pulumi_trainer.provider.jobs.status import NAMESAKE, UNKNOWN_END, Owner

JOB, VOLUME = "Job", "Volume"
REFRESH = "pulumi refresh"
UP = "pulumi up"
ADOPT = "adopt"
"""A job is given to another stack by its program."""

Key = tuple[str, str, str, str]
"""Target, kind, namespace and name of an object."""


@dataclass(frozen=True)
class _Object:
    where: str
    kind: str
    namespace: str
    name: str

    @property
    def key(self) -> Key:
        return self.where, self.kind, self.namespace, self.name

    @property
    def about(self) -> Mapping[str, Any]:
        return {"where": self.where, "kind": self.kind, "namespace": self.namespace, "name": self.name}


@dataclass(frozen=True)
class Expected(_Object):
    """An object in the state of a stack.

    Args:
        where: The target, as messages name it.
        identity: UID or generation in the state; empty if not recorded.
        stays_gone: Whether it is a job that `pulumi up` does not create again if it is gone, since it may have ended.
        changes: Returns what others have changed in the object that was found, as a sentence without its subject; empty for
            nothing. None: it is not compared.
    """

    resource: str
    owner: Owner
    identity: str = ""
    stays_gone: bool = False
    changes: Callable[[Mapping[str, Any]], str] | None = None


@dataclass(frozen=True)
class Found(_Object):
    """An object that a target has.

    Args:
        where: As for `Expected`, and so kind, namespace and name.
        identity: Its UID or generation.
        take: Command that gives it to this stack, or `ADOPT`; empty if there is none.
        record_gone: Whether it is a job whose record is gone.
        lost: Of a job of which only the record is there, although it has not ended: what is known of it; else empty.
        live: The object, if it can be compared.
    """

    owner: Owner
    identity: str = ""
    delete: str = ""
    take: str = ""
    record_gone: bool = False
    fault: str = ""
    lost: str = ""
    live: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """A difference between a target and the state.

    Args:
        code: not-in-state, namesake, gone, changed, unreadable, other-owner, other-run, no-record or pending.
        resource: Name of its resource in the state; empty if it is not there.
        settle: How to settle it: what it does, and the command.
    """

    code: str
    where: str
    kind: str
    namespace: str
    name: str
    resource: str
    message: str
    settle: Sequence[tuple[str, str]] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        return {
            "code": self.code, "target": self.where, "kind": self.kind, "namespace": self.namespace, "name": self.name,
            "resource": self.resource, "message": self.message,
            "settle": [{"effect": effect, "command": command} for effect, command in self.settle],
        }  # fmt: skip


def compare(
    expected: Sequence[Expected],
    found: Sequence[Found],
    labels: Collection[str],
    program: str,
    unread: Collection[tuple[str, str]] = (),
) -> Iterator[Finding]:
    """Yield what differs.

    Args:
        labels: Labels of the stack's targets in the state.
        unread: Target and kind of objects that could not be listed, so that nothing is known of them.
    """
    there = {each.key: each for each in found}
    known = {each.key for each in expected}
    for each in expected:
        if (each.where, each.kind) not in unread:
            yield from _of_expected(each, there.get(each.key))
    for other in found:
        if other.key not in known:
            yield from _of_found(other, labels, program)


def _of_expected(each: Expected, found: Found | None) -> Iterator[Finding]:
    about = {**each.about, "resource": each.resource}
    again = [("removes it from the state", REFRESH), ("creates it again, if the program still has it", UP)]
    lost = _find_loss(each, found)
    if lost:
        settle = [("runs it again", f"pulumi-trainer rerun {each.resource}")]
        yield Finding("gone", **about, message=lost, settle=settle)
    elif found is None:
        yield Finding("gone", **about, message="is in the state, but does not exist any more", settle=again)
    elif found.record_gone:
        effect = "creates what is missing, if the program still has the job"
        yield Finding("no-record", **about, message="exists, but its record is gone", settle=[(effect, UP)])
    elif found.fault:
        settle = [("deletes the job with its data", found.delete)]
        yield Finding("unreadable", **about, message=f"cannot be read: {found.fault}", settle=settle)
    elif not each.owner.owns(found.owner):
        settle = [("leaves it to the other stack; remove it from this program first", REFRESH)]
        if found.take == ADOPT:
            settle.insert(0, ("takes it back, with adopt=True on its TrainJob", f"{REFRESH} && {UP}"))
        elif found.take:
            settle.insert(0, ("gives it to this stack", found.take))
        yield Finding("other-owner", **about, message=f"belongs to {found.owner.called_by(each.owner)}", settle=settle)
    elif each.identity and found.identity and each.identity != found.identity:
        message = "is not the object in the state: the state is older, or the object was created again"
        yield Finding(
            "other-run", **about, message=message, settle=[("records the existing object", REFRESH), again[1]]
        )
    elif each.changes is not None:
        changes = each.changes(found.live)
        if changes:
            settle = [("puts it back, or names the jobs that this affects", UP)]
            yield Finding("changed", **about, message=changes, settle=settle)


def _find_loss(each: Expected, found: Found | None) -> str:
    """Return what is known of a job that is gone and may have ended; empty for other objects."""
    if found is None and each.stays_gone:
        return UNKNOWN_END
    if found is not None and each.owner.owns(found.owner):
        return found.lost
    return ""


def pending_creation(urn: str) -> Finding:
    """Return that an engine was killed while it created a resource."""
    kind, _, name = urn.rpartition("::")
    settle = [("reads what exists, and removes this from the state", f"{REFRESH} --clear-pending-creates")]
    message = "was being created when Pulumi was ended: whether it exists is not recorded"
    kind = re.split(r"[:$]", kind)[-1]
    return Finding("pending", "the state", kind, "", name, name, message, settle)


def _of_found(found: Found, labels: Collection[str], program: str) -> Iterator[Finding]:
    label, same_name = found.owner.stack, bool(program) and found.owner.program == program
    alike = label.partition("-")[0] in {each.partition("-")[0] for each in labels if each} - {""}
    about = {**found.about, "resource": ""}
    deletes = "deletes it"
    if found.kind in (JOB, VOLUME):
        deletes = "deletes it and its data"
    settle = [(deletes, found.delete)]
    if found.take == ADOPT:
        settle.insert(0, ("takes it over, if the program has it, with adopt=True on its TrainJob", UP))
    elif found.take:
        settle.insert(0, ("gives it to this stack, if the program has it", found.take))
    if (label and label in labels) or (same_name and not label):
        yield Finding(
            "not-in-state", **about, message="was created by this stack, but is not in its state", settle=settle
        )
    elif alike or same_name:
        yield Finding("namesake", **about, message=f"belongs to {NAMESAKE}", settle=settle)
