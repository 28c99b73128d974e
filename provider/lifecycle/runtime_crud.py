"""Checks, compares, creates, updates, reads and deletes a runtime in mode trainer, on plain data.

Inputs: document, target, component, force if set; check adds owner, and again, which counts how often the runtime was applied
because it was deleted or changed externally (absent: never). Outputs: document, owner, uid, target, force, again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pulumi_trainer.provider.jobs.identity import digest
from pulumi_trainer.provider.jobs.status import Owner
from pulumi_trainer.provider.kubernetes.errors import Conflict, TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import only
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.lifecycle.crud import (
    LOCATION,
    Checked,
    Diff,
    conflict_message,
    connection_of,
    known_target,
    with_current_connection,
)

Props = dict[str, Any]


class Target(Protocol):
    """The methods that runtimes need of a target."""

    def apply_runtime(self, document: Mapping[str, Any], owner: str, sweep: str) -> str: ...
    def check_runtime(self, document: Mapping[str, Any], owner: str, sweep: str | None) -> None: ...
    def edited_runtime(
        self, document: Mapping[str, Any], applied: Mapping[str, Any], owner: str, sweep: str
    ) -> list[str] | None: ...
    def runtime(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None: ...
    def runtime_owner(self, found: Mapping[str, Any]) -> Owner: ...
    def delete_runtime(
        self, document: Mapping[str, Any], uid: str, owner: Owner, *, force: bool = False
    ) -> Owner | None: ...


Connect = Callable[[Mapping[str, Any]], Target]


def check(olds: Props, news: Props, connect: Connect) -> Checked:
    """Return the inputs to store. An update reverts external changes and deletions; a runtime of another owner is rejected.

    The owner is computed once and then copied, so that a renamed stack or component keeps its runtime, also if its jobs are in
    another namespace now.

    Args:
        olds: Previous inputs; empty for a new runtime.
        news: Current inputs; leaves may be unknown.
        connect: Returns the target of an input `target`.
    """
    owner = news["component"]
    if not isinstance(owner, Unknown):
        owner = digest([owner])[:20]
    inputs = {**news, "owner": olds.get("owner", owner)}
    if first_unknown(news["document"]) is not None:
        return Checked(inputs)
    if not olds or _identity(olds["document"]) != _identity(news["document"]):
        why = _conflict(inputs, connect)
        if not why:
            return Checked(inputs)
        return Checked(inputs, (why,))
    inputs["target"] = with_current_connection(olds, news)["target"]
    if "again" in olds:
        inputs["again"] = olds["again"]
    target = known_target(inputs)
    if target is None:
        return Checked(inputs)
    about = inputs["document"], olds["document"], inputs["owner"], str(target.get("sweep") or "")
    try:
        edited = connect(target).edited_runtime(*about)
    except Conflict as refused:
        return Checked(inputs, (str(refused),))
    except TrainerError:
        return Checked(inputs)
    if edited == []:
        return Checked(inputs)
    kind, _, name = _identity(inputs["document"])
    what = "somebody has deleted it; it is created again"
    if edited is not None:
        shown = ", ".join(edited[:5])
        if len(edited) > 5:
            shown += f" and {len(edited) - 5} more"
        what = f"somebody has changed {shown}; this update restores the values of the program"
    return Checked({**inputs, "again": olds.get("again", 0) + 1}, notes=(f"{kind} {name}: {what}",))


def _conflict(inputs: Props, connect: Connect) -> str:
    """Return why a runtime cannot be created: it exists and belongs to another owner. Empty if not, or if that is not known."""
    target = known_target(inputs)
    if target is None:
        return ""
    return conflict_message(
        lambda: connect(target).check_runtime(inputs["document"], inputs["owner"], target.get("sweep"))
    )


def diff(olds: Props, news: Props) -> Diff:
    """Return whether the runtime changes.

    Args:
        news: Checked inputs; in a refresh, the stored inputs.
    """
    before, after = _identity(olds["document"]), _identity(news["document"])
    if before != after:
        return Diff(True, ("document",))
    changed = any(olds.get(part) != news.get(part) for part in ("document", "force", "again"))
    return Diff(changed or connection_of(olds) != connection_of(news))


def create(inputs: Props, connect: Connect) -> tuple[str, Props]:
    """Apply the runtime. Safe to repeat.

    Args:
        inputs: Checked inputs; all values are known.
        connect: Returns the target of an input `target`.

    Raises:
        TrainerError: The target cannot be reached, or refuses.
    """
    return "/".join(filter(None, map(str, _identity(inputs["document"])))), _apply(inputs, inputs["target"], connect)


def update(outputs: Props, inputs: Props, connect: Connect) -> Props:
    """Update the runtime in place. Existing jobs keep the snapshot that they were created with.

    Args:
        inputs: Checked inputs; all values are known.
        connect: Returns the target of an input `target`.

    Raises:
        TrainerError: The target cannot be reached, or refuses.
    """
    return _apply(inputs, {**inputs["target"], **with_current_connection(outputs, inputs)["target"]}, connect)


def read(outputs: Props, connect: Connect) -> tuple[Props | None, list[str]]:
    """Return the outputs with the cluster's values, and notes for the user. None: the runtime is gone, or has another owner.

    Args:
        outputs: Outputs of the runtime in the state.
        connect: Returns the target of an input `target`.

    Raises:
        TrainerError: The target cannot be reached, or refuses.
    """
    kind, namespace, name = _identity(outputs["document"])
    target = connect(outputs["target"])
    found = target.runtime(kind, namespace, name)
    if found is None or found["metadata"].get("uid") != outputs["uid"]:
        return None, []
    owner = target.runtime_owner(found)
    if not _owner(outputs).owns(owner):
        return None, [f"{_left_alone(outputs, owner)}, and no longer in the state of this stack"]
    return {**outputs, "document": current_fields(outputs["document"], found)}, []


def delete(outputs: Props, connect: Connect) -> list[str]:
    """Delete the runtime and return notes for the user.

    Args:
        outputs: Outputs of the runtime in the state.
        connect: Returns the target of an input `target`.

    Raises:
        TrainerError: The target cannot be reached, or refuses.
    """
    target, force = connect(outputs["target"]), bool(outputs.get("force"))
    new_owner = target.delete_runtime(outputs["document"], outputs["uid"], _owner(outputs), force=force)
    if not new_owner:
        return []
    return [_left_alone(outputs, new_owner)]


def _owner(outputs: Props) -> Owner:
    return Owner(outputs["owner"], str(outputs["target"].get("sweep") or ""))


def _left_alone(outputs: Props, new_owner: Owner) -> str:
    kind, _, name = _identity(outputs["document"])
    return f"{kind} {name} belongs to {new_owner} now. It is left alone"


def current_fields(written: Any, live: Any) -> Any:
    """Return the current values of the fields that the program wrote, without defaults and other managers' fields.

    Args:
        written: The document as the program wrote it, or a part of it.
        live: The document as the server has it, or the same part. A list of another length counts as a whole.
    """
    if isinstance(written, dict) and isinstance(live, dict):
        return {k: current_fields(v, live[k]) for k, v in written.items() if k in live}
    if isinstance(written, list) and isinstance(live, list) and len(written) == len(live):
        return [current_fields(a, b) for a, b in zip(written, live, strict=True)]
    return live


def _identity(document: Mapping[str, Any]) -> tuple[str, str, str]:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def _apply(inputs: Props, target: Mapping[str, Any], connect: Connect) -> Props:
    uid = connect(target).apply_runtime(inputs["document"], inputs["owner"], target.get("sweep", ""))
    where = only(target, LOCATION)
    more = {part: inputs[part] for part in ("force", "again") if inputs.get(part)}
    return {"document": inputs["document"], "owner": inputs["owner"], "uid": uid, "target": where, **more}
