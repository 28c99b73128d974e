"""Checks, compares, creates, updates, reads and deletes a volume, on plain data.

Inputs: namespace, name, digest, target, component, retain (absent if the volume is not retained), and in a cluster `claim`: size,
storageClass, accessMode, retain, and `chosen`, true if the user wrote the access mode. adopt: true if the job of the volume may
take over a job of another owner (else absent). A volume keeps its name and content while its digest is the same. again, set here,
counts how often the volume was deleted externally and created again (absent: never). generation
is set here if a claim, or the connection to its target, was changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from pulumi_trainer.provider.jobs.status import Loss, Owner
from pulumi_trainer.provider.kubernetes.errors import TrainerError, Unreadable
from pulumi_trainer.provider.kubernetes.values.accessors import without
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.lifecycle.crud import (
    Checked,
    Diff,
    connection_changed,
    has_other_label,
    keep_root_hint,
    known_target,
    label_of,
    moved_root_note,
    root,
    with_current_connection,
    with_current_label,
    workers_of,
)

Props = dict[str, Any]


class Target(Protocol):
    """The methods that volumes need of a target. claim: As in the inputs; None on this machine."""

    def create_volume(
        self, namespace: str, name: str, owner: str, sweep: str, claim: Mapping[str, Any] | None = None
    ) -> dict[str, str]: ...
    def identity(self) -> dict[str, str]: ...
    def update_volume(self, namespace: str, name: str, generation: str, claim: Mapping[str, Any]) -> None: ...
    def volume(self, namespace: str, name: str) -> tuple[dict[str, str], Owner] | None: ...
    def relabel_volume(self, namespace: str, name: str, generation: str, owner: str, sweep: str) -> None: ...
    def delete_volume(self, namespace: str, name: str, generation: str) -> Owner | str: ...
    def lost_volume(self, namespace: str, name: str, owner: Owner) -> Loss: ...
    def describe_volume(self, namespace: str, name: str) -> str: ...


Connect = Callable[[Mapping[str, Any]], Target]

ONE, MANY = "ReadWriteOnce", "ReadWriteMany"
_NAMES = ("namespace", "name", "digest")


def check(olds: Props, news: Props, connect: Connect) -> Checked:
    """Return the inputs to store. A change that a claim does not support is rejected before anything is touched.

    Args:
        olds: Previous inputs; empty for a new volume.
        news: Current inputs; leaves may be unknown.
        connect: Returns the target of an input `target`.
    """
    if not olds:
        return Checked(news, failures=_owner_conflicts(news, connect))
    if _is_another(olds, news):
        was, now = root(olds), root(news)
        if was and now and was != now and Path(was).exists():
            why = f"is in {was}, but its replacement would be in {now}, without the volumes of its jobs"
            return Checked(news, failures=(f"{_where(olds)} {why}: {keep_root_hint(olds, news)}",))
        return Checked(news, notes=_replaced_notes(olds, connect))
    known, notes, taken = _check_loss(olds, news, connect)
    if not taken and known.get(AGAIN) == olds.get(AGAIN):
        notes += _retention_notes(olds, news, connect)
    known = _with_retention(olds, news, known)
    before, after = olds.get("claim"), news.get("claim")
    resized = before is not None and after is not None and before != after
    if known.get(AGAIN) == olds.get(AGAIN) and (resized or connection_changed(olds, known)):
        known = {**known, **_generation(known, connect)}
    if before is None or after is None or before == after:
        return Checked(known, notes=notes, failures=taken)
    failures = [f"{_where(olds)}: {why}; {_ANEW.format(**olds)}" for why in _impossible(before, after)]
    claim = {**after, "accessMode": before["accessMode"]}  # a volume that several nodes can mount serves one as well
    if before.get("storageClass"):
        claim["storageClass"] = before["storageClass"]
    if not after.get("size") and before.get("size"):
        claim["size"] = before["size"]
    return Checked({**known, "claim": claim}, failures=(*taken, *failures), notes=notes)


def _replaced_notes(olds: Props, connect: Connect) -> tuple[str, ...]:
    """Return what becomes of a volume that is replaced. The `retain` of its last update decides, not that of the program."""
    if is_retained(olds):
        return remains(olds, connect, "is kept because it is retained, and another volume is created:")
    return losses(olds, connect, "will be deleted")


def _with_retention(olds: Props, news: Props, known: Props) -> Props:
    """Return the inputs with the current `retain`, if it was changed."""
    before, after = is_retained(olds), bool(news.get("retain"))
    if before == after:
        return known
    return {**known, "retain": after}


def _retention_notes(olds: Props, news: Props, connect: Connect) -> tuple[str, ...]:
    """Return what a change of `retain` means for what is in the volume."""
    before, after = is_retained(olds), bool(news.get("retain"))
    if before == after:
        return ()
    content = _content(olds, connect)
    if not content:
        return ()
    if after:
        return (f"{_where(olds)} will be kept when its job is deleted: {content}{_place(olds)}",)
    return (f"{_where(olds)} will be deleted with its job and its content: {content}",)


def is_retained(props: Props) -> bool:
    """Return whether inputs or outputs of a volume say that it is kept."""
    claim = props.get("claim")
    if claim is not None:
        return bool(claim.get("retain"))
    return bool(props.get("retain"))


def _owner_conflicts(news: Props, connect: Connect) -> tuple[str, ...]:
    """Return why the new volume of a job that adopts cannot be created: another owner has one of its name. Empty if that is not
    known. Without `adopt` the name of the job itself is refused."""
    if not news.get("adopt"):
        return ()
    if any(isinstance(news[key], Unknown) for key in ("namespace", "name", "component", "target")):
        return ()
    target = known_target(news)
    if target is None:
        return ()
    try:
        found = connect(target).volume(news["namespace"], news["name"])
    except TrainerError:
        return ()
    if found is None:
        return ()
    me, current_owner = Owner(news["component"], label_of(news)), found[1]
    if me.id == current_owner.id or me.stack == current_owner.stack != "":
        return ()
    why = (
        f"exists and belongs to {current_owner.called_by(me)}. A volume cannot change its owner, nor can a job that"
        " writes to it"
    )
    return (f"{_where(news)}: {why}; give the resource another name",)


def _is_another(olds: Props, news: Props) -> bool:
    moved = olds["namespace"] != news["namespace"] and not isinstance(news["namespace"], Unknown)
    return moved or olds.get("digest") != news.get("digest")


def _generation(known: Props, connect: Connect) -> Props:
    """Return the generation of a volume that is changed in place. A preview takes inputs for what an update returns, and would
    otherwise announce another fetch."""
    try:
        found = connect(known["target"]).volume(known["namespace"], known["name"])
    except TrainerError:
        return {}
    if found is None:
        return {}
    return {"generation": found[0]["generation"]}


def _check_loss(olds: Props, news: Props, connect: Connect) -> tuple[Props, tuple[str, ...], tuple[str, ...]]:
    """Return the inputs of a volume that stays, notes if it was deleted externally, and failures if it cannot be created
    again because another volume has its name."""
    known = with_current_label(olds, news, with_current_connection(olds, news))
    owner = Owner(str(olds.get("component") or ""), label_of(olds))
    try:
        lost = connect(known["target"]).lost_volume(olds["namespace"], olds["name"], owner)
    except TrainerError:
        return known, (), ()
    if lost is Loss.TAKEN:
        return known, (), (f"{_where(olds)}: {_LOST[_is_written(olds)]}. {_TAKEN.format(**olds)}",)
    if lost is Loss.GONE:
        note = f"{_where(olds)}: {_LOST[_is_written(olds)]}; it is created again, empty"
        lasting = without(known, "generation")
        return {**lasting, AGAIN: int(olds.get(AGAIN, 0)) + 1}, (note,), ()
    if lost is Loss.LEAVING:
        note = f"{_where(olds)}: somebody has deleted it. It disappears with its content when no Pod mounts it any more"
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
AGAIN = "again"


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


def diff(olds: Props, news: Props) -> Diff:
    """Return whether the volume changes.

    Args:
        news: Checked inputs; in a refresh, the stored inputs.
    """
    replaces = tuple(k for k in _NAMES if olds.get(k) != news.get(k))
    changed = olds.get("claim") != news.get("claim") or connection_changed(olds, news) or _is_recreated(olds, news)
    changed = changed or has_other_label(olds, news) or is_retained(olds) != is_retained(news)
    return Diff(bool(replaces) or changed, replaces)


def _is_recreated(outputs: Props, news: Props) -> bool:
    return news.get(AGAIN) not in (None, outputs.get(AGAIN))


def create(inputs: Props, connect: Connect) -> tuple[str, Props]:
    """Create the volume. Safe to repeat; existing content stays.

    Args:
        inputs: Checked inputs; all values are known.
        connect: Returns the target of an input `target`.

    Raises:
        TrainerError: The target cannot be reached, or refuses.
    """
    namespace, name, target = inputs["namespace"], inputs["name"], inputs["target"]
    claim = inputs.get("claim")
    is_retained_folder = claim is None and inputs.get("retain")
    label = ""  # any later stack may use a retained folder
    if not is_retained_folder:
        label = target["sweep"]
    made = connect(target).create_volume(namespace, name, inputs["component"], label, claim=claim)
    return f"{namespace}/{name}", {**_stored(inputs), **made, "owner": inputs["component"]}


def update(outputs: Props, inputs: Props, connect: Connect) -> Props:
    """Change the size, the retention, the connection or the label, or create a volume again that was deleted externally.

    Args:
        inputs: Checked inputs; all values are known.
        connect: Returns the target of an input `target`.

    Raises:
        TrainerError: The target cannot be reached, or refuses.
    """
    known = with_current_connection(outputs, inputs)
    if has_other_label(outputs, inputs):
        label = label_of(inputs)
        known = {**known, "target": {**known["target"], "sweep": label}, "owner": inputs["component"]}
        volume = known["namespace"], known["name"], known["generation"]
        connect(known["target"]).relabel_volume(*volume, inputs["component"], label)
    if _is_recreated(outputs, inputs):
        return create({**inputs, "target": known["target"]}, connect)[1]
    if workers_of(outputs) != workers_of(known):
        there: Any = connect(known["target"])
        copied = known["namespace"], known["name"], known["owner"], label_of(known)
        there.copy_volume(*copied, inputs.get("claim") or {}, known["generation"])
    if outputs.get("claim") == inputs.get("claim"):
        target = connect(known["target"])
        retain = is_retained(inputs)
        if is_retained(outputs) != retain:
            target.update_volume(known["namespace"], known["name"], known["generation"], {"retain": retain})
            known = {**known, "retain": retain}
        target.identity()  # a connection to another cluster must not be stored
        if root(outputs) == root(known):
            return known
        current = target.volume(known["namespace"], known["name"])
        if current is None:
            return known
        return {**known, **current[0]}
    place = outputs["namespace"], outputs["name"]
    connect(known["target"]).update_volume(*place, outputs["generation"], inputs["claim"])
    return {**known, "claim": inputs["claim"]}


def read(outputs: Props, connect: Connect) -> tuple[Props | None, list[str]]:
    """Return the current outputs, and notes for the user. None: the volume is gone, or belongs to another stack.

    Args:
        outputs: Outputs of the volume in the state.
        connect: Returns the target of an input `target`.

    Raises:
        TrainerError: The target cannot be reached, or refuses.
    """
    try:
        current = connect(outputs["target"]).volume(outputs["namespace"], outputs["name"])
    except Unreadable as fault:
        return outputs, [f"{_where(outputs)} stays as it was in the state of this stack: {fault}"]
    if current is None:
        moved = moved_root_note(outputs)
        if moved:
            return outputs, [f"{_where(outputs)} {moved}"]
        lost = f"{_where(outputs)}: {_LOST[_is_written(outputs)]}"
        return None, [f"{lost}; it is no longer in the state of this stack, and `pulumi up` creates it again, empty"]
    found, whose = current
    owner = _owner(outputs)
    if not owner.owns(whose):
        lost = f"{_where(outputs)} {whose.adopted_from(owner)}"
        return None, [f"{lost}. It is left alone, and no longer in the state of this stack"]
    return {**outputs, **found}, []


def delete(outputs: Props, connect: Connect) -> list[str]:
    """Delete the volume.

    Args:
        outputs: Outputs of the volume in the state.
        connect: Returns the target of an input `target`.

    Returns:
        Notes for the user: lost output, why the volume stays for now, or its current owner.
    Raises:
        TrainerError: The target cannot be reached, or refuses.
    """
    lost = losses(outputs, connect, "is deleted")
    place = outputs["namespace"], outputs["name"]
    remaining = connect(outputs["target"]).delete_volume(*place, outputs["generation"])
    if isinstance(remaining, str):
        if not remaining:
            return [*lost]
        return [remaining]
    owner = _owner(outputs)
    if owner.owns(remaining):  # this stack was created again
        return []
    return [f"{_where(outputs)} {remaining.adopted_from(owner)}. It is left alone"]


def _owner(outputs: Props) -> Owner:
    """Return the owner of a volume in the state."""
    return Owner(outputs["owner"], label_of(outputs))


def _where(props: Props) -> str:
    return f"volume {props['namespace']}/{props['name']}"


def removal_notes(outputs: Props, connect: Connect) -> tuple[str, ...]:
    """Return what becomes of a volume that leaves the program.

    Args:
        outputs: Outputs of the volume in the state.
        connect: Returns the target of a `target` input.
    """
    if is_retained(outputs):
        return remains(outputs, connect, "was removed from the program, and is kept because it is retained:")
    becomes = "was removed from the program, and will be deleted unless it was retained,"
    return losses(outputs, connect, becomes)


def losses(props: Props, connect: Connect, becomes: str) -> tuple[str, ...]:
    """Return a note on the output that is lost with a volume. Fetched data can be fetched again, and a retained volume stays."""
    if not _is_written(props) or is_retained(props):
        return ()
    content = _content(props, connect)
    if not content:
        return ()
    return (f"{_where(props)} {becomes} with the output in it: {content}{_KEEP}",)


def remains(props: Props, connect: Connect, stays: str) -> tuple[str, ...]:
    """Return a note on a volume that is kept: what is in it, and where it is."""
    return (f"{_where(props)} {stays} {_content(props, connect) or 'it is empty'}{_place(props)}",)


def _content(props: Props, connect: Connect) -> str:
    """Return size and age of what is in a volume; empty if nothing is."""
    try:
        return connect(props["target"]).describe_volume(props["namespace"], props["name"])
    except TrainerError as fault:
        return f"its content cannot be listed: {fault}"


def _place(props: Props) -> str:
    if not props.get("path"):
        return ""
    return f", in {props['path']}"


def _is_written(props: Props) -> bool:
    """Return whether jobs write to a volume."""
    return props.get("digest") in OUTPUTS


OUTPUTS = ("", "claim")
"""Digests of the volumes that jobs write to; the digest of a fetched volume is hexadecimal."""
_KEEP = ". To keep it, apply OutputVolume(retain=True) with `pulumi up` first"


_STORED = ("namespace", "name", "target", "digest", "claim", "retain", AGAIN)


def _stored(inputs: Props) -> Props:
    return {k: inputs[k] for k in _STORED if k in inputs}
