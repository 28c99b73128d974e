"""Checks, compares, creates, updates, reads and deletes a volume. It keeps its name and content while its digest is the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.jobs.status import Loss, Owner
from pulumi_trainer.provider.kubernetes.errors import TrainerError, Unreadable
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, any_unknown
from pulumi_trainer.provider.lifecycle.connection import (
    Inputs,
    Located,
    connection_changed,
    has_other_label,
    keep_root_hint,
    moved_root_note,
    with_current_connection,
    with_current_label,
    with_label,
)
from pulumi_trainer.provider.lifecycle.resource import Checked, Diff, Resource
from pulumi_trainer.provider.lifecycle.stack_targets import UsedLabels
from pulumi_trainer.provider.lifecycle.target import Cluster, Connect

ONE, MANY = "ReadWriteOnce", "ReadWriteMany"
OUTPUTS = ("", "claim")
"""Digests of the volumes that jobs write to; the digest of a fetched volume is hexadecimal."""


@dataclass(frozen=True, kw_only=True)
class _Volume(Located):
    """What inputs and outputs of a volume have in common.

    Attributes:
        digest: Another digest is another volume.
        claim: In a cluster: size, storageClass, accessMode, retain, and `chosen`, true if the user wrote the access mode; None
            on this machine.
        path: Where its files are; empty in inputs.
        again: Set by `check`: how often the volume was deleted externally and created again.
    """

    namespace: Any
    name: str
    digest: str = ""
    path: str = ""
    claim: Mapping[str, Any] | None = None
    retain: bool = False
    again: int = 0

    @property
    def where(self) -> str:
        """Return namespace/name, for messages."""
        return f"volume {self.namespace}/{self.name}"

    @property
    def is_retained(self) -> bool:
        """Return whether the volume is kept. The claim decides in a cluster."""
        return bool(self.retain if self.claim is None else self.claim.get("retain"))

    @property
    def is_written(self) -> bool:
        return self.digest in OUTPUTS


@dataclass(frozen=True, kw_only=True)
class VolumeInputs(_Volume, Inputs):
    """Inputs of a volume.

    Attributes:
        adopt: Whether the job of the volume may take over a job of another owner.
        generation: Set by `check` if a claim, or the connection to its target, was changed in place: a preview takes inputs for
            what an update returns, and would otherwise announce another fetch.
    """

    adopt: bool = False
    generation: str = ""


@dataclass(frozen=True, kw_only=True)
class VolumeOutputs(_Volume):
    """Outputs of a volume.

    Attributes:
        owner: URN of the component that owns it.
        generation: Changes with each volume that is created, even if the name stays the same.
    """

    owner: Any
    generation: str

    @property
    def whose(self) -> Owner:
        return Owner(self.owner, self.label)


class Volumes(Resource[VolumeInputs, VolumeOutputs]):
    """Volumes of a stack. labels: Labels in use; those of volumes are added."""

    inputs, outputs = VolumeInputs, VolumeOutputs

    def __init__(self, labels: UsedLabels) -> None:
        self._labels = labels

    def check(self, olds: VolumeInputs | None, news: VolumeInputs, connect: Connect) -> Checked[VolumeInputs]:
        """Return the inputs to store. A change that a claim does not support is rejected before anything is touched."""
        self._labels.use(olds)
        found = _check(olds, news, connect)
        self._labels.use(found.inputs)
        return found

    def diff(self, olds: VolumeOutputs, news: VolumeInputs) -> Diff:
        replaces = tuple(k for k in ("namespace", "name", "digest") if getattr(olds, k) != getattr(news, k))
        changed = olds.claim != news.claim or connection_changed(olds, news) or _is_recreated(olds, news)
        changed = changed or has_other_label(olds, news) or olds.is_retained != news.is_retained
        return Diff(bool(replaces) or changed, replaces)

    def create(self, inputs: VolumeInputs, connect: Connect) -> tuple[str, VolumeOutputs]:
        """Create the volume. Safe to repeat; existing content stays."""
        label = ""  # any later stack may use a retained folder
        if inputs.claim is not None or not inputs.retain:
            label = inputs.target["sweep"]
        place = inputs.namespace, inputs.name
        made = connect(inputs.target).volumes.create(*place, inputs.component, label, claim=inputs.claim)
        return "/".join(place), VolumeOutputs.of(inputs, owner=inputs.component, **made)

    def update(self, outputs: VolumeOutputs, inputs: VolumeInputs, connect: Connect) -> VolumeOutputs:
        """Change the size, the retention, the connection or the label, or create a volume again that was deleted externally."""
        known = with_current_connection(outputs, inputs)
        place = known.namespace, known.name
        if has_other_label(outputs, inputs):
            known = replace(with_label(known, inputs.label), owner=inputs.component)
            connect(known.target).volumes.relabel(*place, known.generation, inputs.component, inputs.label)
        if _is_recreated(outputs, inputs):
            return self.create(replace(inputs, target=known.target), connect)[1]
        target: Any = connect(known.target)
        if outputs.workers != known.workers:
            cluster: Cluster = target
            cluster.volumes.copy(*place, known.owner, known.label, inputs.claim or {}, known.generation)
        if outputs.claim != inputs.claim:
            target.volumes.update(*place, outputs.generation, inputs.claim)
            return replace(known, claim=inputs.claim)
        if outputs.is_retained != inputs.is_retained:
            target.volumes.update(*place, known.generation, {"retain": inputs.is_retained})
            known = replace(known, retain=inputs.is_retained)
        target.identity()  # a connection to another cluster must not be stored
        current = None
        if outputs.root != known.root:
            current = target.volumes.find(*place)
        return known if current is None else _with_place(known, current[0])

    def read(self, outputs: VolumeOutputs, connect: Connect) -> tuple[VolumeOutputs | None, list[str]]:
        try:
            current = connect(outputs.target).volumes.find(outputs.namespace, outputs.name)
        except Unreadable as fault:
            return outputs, [f"{outputs.where} stays as it was in the state of this stack: {fault}"]
        if current is None:
            moved = moved_root_note(outputs)
            if moved:
                return outputs, [f"{outputs.where} {moved}"]
            lost = f"{outputs.where}: {_LOST[outputs.is_written]}"
            return None, [
                f"{lost}; it is no longer in the state of this stack, and `pulumi up` creates it again, empty"
            ]
        found, whose = current
        if not outputs.whose.owns(whose):
            lost = f"{outputs.where} {whose.adopted_from(outputs.whose)}"
            return None, [f"{lost}. It is left alone, and no longer in the state of this stack"]
        return _with_place(outputs, found), []

    def delete(self, outputs: VolumeOutputs, connect: Connect) -> list[str]:
        """Delete the volume. Return notes for the user: lost output, why the volume stays for now, or its current owner."""
        lost = losses(outputs, connect, "is deleted")
        remaining = connect(outputs.target).volumes.delete(outputs.namespace, outputs.name, outputs.generation)
        if isinstance(remaining, str):
            return [remaining] if remaining else [*lost]
        if outputs.whose.owns(remaining):  # this stack was created again
            return []
        return [f"{outputs.where} {remaining.adopted_from(outputs.whose)}. It is left alone"]


def _check(olds: VolumeInputs | None, news: VolumeInputs, connect: Connect) -> Checked[VolumeInputs]:
    if olds is None:
        return Checked(news, failures=_owner_conflicts(news, connect))
    if _is_another(olds, news):
        was, now = olds.root, news.root
        if was and now and was != now and Path(was).exists():
            why = f"is in {was}, but its replacement would be in {now}, without the volumes of its jobs"
            return Checked(news, failures=(f"{olds.where} {why}: {keep_root_hint(olds, news)}",))
        return Checked(news, notes=_replaced_notes(olds, connect))
    known, notes, taken = _check_loss(olds, news, connect)
    if not taken and known.again == olds.again:
        notes += _retention_notes(olds, news, connect)
    if olds.is_retained != news.retain:
        known = replace(known, retain=news.retain)
    before, after = olds.claim, news.claim
    resized = before is not None and after is not None and before != after
    if known.again == olds.again and (resized or connection_changed(olds, known)):
        known = _with_generation(known, connect)
    if before is None or after is None or before == after:
        return Checked(known, notes=notes, failures=taken)
    failures = [f"{olds.where}: {why}; {_ANEW.format(**vars(olds))}" for why in _impossible(before, after)]
    claim = {**after, "accessMode": before["accessMode"]}  # a volume that several nodes can mount serves one as well
    if before.get("storageClass"):
        claim["storageClass"] = before["storageClass"]
    if not after.get("size") and before.get("size"):
        claim["size"] = before["size"]
    return Checked(replace(known, claim=claim), failures=(*taken, *failures), notes=notes)


def _replaced_notes(olds: VolumeInputs, connect: Connect) -> tuple[str, ...]:
    """Return what becomes of a volume that is replaced. The `retain` of its last update decides, not that of the program."""
    if olds.is_retained:
        return (_remains(olds, connect, "is kept because it is retained, and another volume is created:"),)
    return losses(olds, connect, "will be deleted")


def _retention_notes(olds: VolumeInputs, news: VolumeInputs, connect: Connect) -> tuple[str, ...]:
    """Return what a change of `retain` means for what is in the volume."""
    if olds.is_retained == news.retain:
        return ()
    content = _content(olds, connect)
    if not content:
        return ()
    if news.retain:
        return (f"{olds.where} will be kept when its job is deleted: {content}{_place(olds)}",)
    return (f"{olds.where} will be deleted with its job and its content: {content}",)


def _owner_conflicts(news: VolumeInputs, connect: Connect) -> tuple[str, ...]:
    """Return why the new volume of a job that adopts cannot be created: another owner has one of its name. Empty if that is not
    known. Without `adopt` the name of the job itself is refused."""
    target = news.known_target
    if not news.adopt or target is None or any_unknown([news.namespace, news.name, news.component]):
        return ()
    try:
        found = connect(target).volumes.find(news.namespace, news.name)
    except TrainerError:
        return ()
    if found is None:
        return ()
    me, current_owner = Owner(news.component, news.label), found[1]
    if me.id == current_owner.id or me.stack == current_owner.stack != "":
        return ()
    why = (
        f"exists and belongs to {current_owner.called_by(me)}. A volume cannot change its owner, nor can a job that"
        " writes to it"
    )
    return (f"{news.where}: {why}; give the resource another name",)


def _is_another(olds: VolumeInputs, news: VolumeInputs) -> bool:
    moved = olds.namespace != news.namespace and not isinstance(news.namespace, Unknown)
    return moved or olds.digest != news.digest


def _with_generation(known: VolumeInputs, connect: Connect) -> VolumeInputs:
    """Return the inputs with the generation of a volume that is changed in place."""
    try:
        found = connect(known.target).volumes.find(known.namespace, known.name)
    except TrainerError:
        return known
    return known if found is None else replace(known, generation=found[0]["generation"])


def _check_loss(
    olds: VolumeInputs, news: VolumeInputs, connect: Connect
) -> tuple[VolumeInputs, tuple[str, ...], tuple[str, ...]]:
    """Return the inputs of a volume that stays, notes if it was deleted externally, and failures if it cannot be created
    again because another volume has its name."""
    known = with_current_label(olds, news, with_current_connection(olds, news))
    try:
        owner = Owner(str(olds.component or ""), olds.label)
        lost = connect(known.target).volumes.lost(olds.namespace, olds.name, owner)
    except TrainerError:
        return known, (), ()
    deleted = f"{olds.where}: {_LOST[olds.is_written]}"
    if lost is Loss.TAKEN:
        return known, (), (f"{deleted}. {_TAKEN.format(**vars(olds))}",)
    if lost is Loss.GONE:
        return replace(known, generation="", again=olds.again + 1), (f"{deleted}; it is created again, empty",), ()
    if lost is Loss.LEAVING:
        note = f"{olds.where}: somebody has deleted it. It disappears with its content when no Pod mounts it any more"
        return known, (f"{note}; copy what you need before that",), ()
    return known, (), ()


_LOST = {
    True: "somebody has deleted it, with the output in it",
    False: "somebody has deleted it, with the data in it, which is fetched again",
}
"""Whether jobs write to a volume -> what was lost with it."""
_TAKEN = (
    "Another claim has its name, which this program did not create and leaves alone; if its content is not needed:"
    " kubectl delete pvc -n {namespace} {name}, and `pulumi up`; or give the resource another name"
)
_ANEW = (
    "copy its content, then `kubectl delete pvc -n {namespace} {name}`, `pulumi refresh` and `pulumi up`;"
    " or leave it as it was"
)


def _impossible(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return which parts of a change a claim does not support."""
    found = []
    # What is not known yet is compared once it is.
    after = {name: value for name, value in after.items() if not isinstance(value, Unknown)}
    modes = before["accessMode"], after.get("accessMode", before["accessMode"])
    if modes[0] != modes[1] and modes != (MANY, ONE):
        found.append(f"it has {before['accessMode']} but needs {after['accessMode']}, and an access mode is immutable")
    if after.get("storageClass") and after["storageClass"] != before.get("storageClass"):
        was = before.get("storageClass") or "the cluster's default"
        found.append(f"its storage class is {was}, which cannot be changed to {after['storageClass']}")
    try:
        sizes = [Quantity.parse(str(c["size"])).amount for c in (before, after) if c.get("size")]
    except ValueError as error:
        return [*found, f"its new size {error}"]
    if len(sizes) == 2 and sizes[1] < sizes[0]:
        found.append(f"it has {before['size']}, and a volume cannot shrink to {after['size']}")
    return found


def _with_place(outputs: VolumeOutputs, found: Mapping[str, str]) -> VolumeOutputs:
    return replace(outputs, path=found["path"], generation=found["generation"])


def _is_recreated(outputs: VolumeOutputs, news: VolumeInputs) -> bool:
    return news.again not in (0, outputs.again)


def removal_notes(outputs: VolumeOutputs, connect: Connect) -> tuple[str, ...]:
    """Return what becomes of a volume that leaves the program."""
    if outputs.is_retained:
        return (_remains(outputs, connect, "was removed from the program, and is kept because it is retained:"),)
    becomes = "was removed from the program, and will be deleted unless it was retained,"
    return losses(outputs, connect, becomes)


def losses(volume: _Volume, connect: Connect, becomes: str) -> tuple[str, ...]:
    """Return a note on the output that is lost with a volume. Fetched data can be fetched again, and a retained volume stays."""
    if not volume.is_written or volume.is_retained:
        return ()
    content = _content(volume, connect)
    if not content:
        return ()
    return (f"{volume.where} {becomes} with the output in it: {content}{_KEEP}",)


def _remains(volume: _Volume, connect: Connect, stays: str) -> str:
    """Return a note on a volume that is kept: what is in it, and where it is."""
    return f"{volume.where} {stays} {_content(volume, connect) or 'it is empty'}{_place(volume)}"


def _content(volume: _Volume, connect: Connect) -> str:
    """Return size and age of what is in a volume; empty if nothing is."""
    try:
        return connect(volume.target).volumes.describe(volume.namespace, volume.name)
    except TrainerError as fault:
        return f"its content cannot be listed: {fault}"


def _place(volume: _Volume) -> str:
    return f", in {volume.path}" if volume.path else ""


_KEEP = ". To keep it, apply OutputVolume(retain=True) with `pulumi up` first"
