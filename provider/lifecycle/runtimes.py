"""check, diff, create, update, read and delete of a runtime in mode trainer, on plain data.

Inputs: document, target, component, force where there is one; check adds owner, and again, which counts how often the runtime was
to be applied because others had deleted or changed it (absent while they have not). Outputs: document, owner, uid, target, force,
again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pulumi_trainer.provider.api.status import Owner
from pulumi_trainer.provider.kube.errors import Conflict, TrainerError
from pulumi_trainer.provider.kube.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.lifecycle.calls import (
    WHERE,
    Checked,
    Diff,
    conflict,
    known_target,
    rerouted,
    way,
)
from pulumi_trainer.provider.lifecycle.identity import digest

Props = dict[str, Any]


class Target(Protocol):
    """What runtimes ask of a target."""

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
    """The owner is computed once, and then copied: a renamed stack or component keeps its runtime. So does one whose jobs are in
    another namespace now. What others have deleted or changed in the cluster is an update; what is theirs is refused."""
    component = news["component"]
    new = component if isinstance(component, Unknown) else digest([component])[:20]
    inputs = {**news, "owner": olds.get("owner", new)}
    if first_unknown(news["document"]) is not None:
        return Checked(inputs)
    if not olds or _identity(olds["document"]) != _identity(news["document"]):
        why = _taken(inputs, connect)
        return Checked(inputs, (why,) if why else ())
    inputs |= {"target": rerouted(olds, news)["target"], **({"again": olds["again"]} if "again" in olds else {})}
    if (target := known_target(inputs)) is None:
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
        shown = ", ".join(edited[:5]) + (f" and {len(edited) - 5} more" if len(edited) > 5 else "")
        what = f"somebody has changed {shown}; it is put back as the program has it"
    return Checked({**inputs, "again": olds.get("again", 0) + 1}, notes=(f"{kind} {name}: {what}",))


def _taken(inputs: Props, connect: Connect) -> str:
    """Return that a runtime which is to be created is there and belongs to others; empty if it does not, or nobody can tell."""
    target = known_target(inputs)
    if target is None:
        return ""
    return conflict(lambda: connect(target).check_runtime(inputs["document"], inputs["owner"], target.get("sweep")))


def diff(olds: Props, news: Props) -> Diff:
    """olds are outputs, news are checked inputs."""
    before, after = _identity(olds["document"]), _identity(news["document"])
    if before != after:
        return Diff(True, ("document",))
    changed = any(olds.get(part) != news.get(part) for part in ("document", "force", "again"))
    return Diff(changed or way(olds) != way(news))


def create(inputs: Props, connect: Connect) -> tuple[str, Props]:
    """Safe to repeat."""
    return "/".join(filter(None, map(str, _identity(inputs["document"])))), _applied(inputs, inputs["target"], connect)


def update(outputs: Props, inputs: Props, connect: Connect) -> Props:
    """In place: jobs that exist keep what they were made with, by their snapshot."""
    return _applied(inputs, {**inputs["target"], **rerouted(outputs, inputs)["target"]}, connect)


def read(outputs: Props, connect: Connect) -> tuple[Props | None, list[str]]:
    """The document with the cluster's values in its fields, and what to tell; None: it is gone, or somebody else's."""
    kind, namespace, name = _identity(outputs["document"])
    target = connect(outputs["target"])
    found = target.runtime(kind, namespace, name)
    if found is None or found["metadata"].get("uid") != outputs["uid"]:
        return None, []
    if not _owner(outputs).owns(whose := target.runtime_owner(found)):
        return None, [f"{_left(outputs, whose)}, and no longer in the state of this stack"]
    return {**outputs, "document": seen(outputs["document"], found)}, []


def delete(outputs: Props, connect: Connect) -> list[str]:
    """What to tell."""
    target, force = connect(outputs["target"]), bool(outputs.get("force"))
    taker = target.delete_runtime(outputs["document"], outputs["uid"], _owner(outputs), force=force)
    return [_left(outputs, taker)] if taker else []


def _owner(outputs: Props) -> Owner:
    return Owner(outputs["owner"], str(outputs["target"].get("sweep") or ""))


def _left(outputs: Props, taker: Owner) -> str:
    kind, _, name = _identity(outputs["document"])
    return f"{kind} {name} belongs to {taker} now. It is left alone"


def seen(written: Any, live: Any) -> Any:
    """What the cluster has in the fields that the program wrote; defaults and other managers' fields are left out."""
    if isinstance(written, dict) and isinstance(live, dict):
        return {k: seen(v, live[k]) for k, v in written.items() if k in live}
    if isinstance(written, list) and isinstance(live, list) and len(written) == len(live):
        return [seen(a, b) for a, b in zip(written, live, strict=True)]
    return live


def _identity(document: Mapping[str, Any]) -> tuple[str, str, str]:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def _applied(inputs: Props, target: Mapping[str, Any], connect: Connect) -> Props:
    uid = connect(target).apply_runtime(inputs["document"], inputs["owner"], target.get("sweep", ""))
    where = {k: v for k, v in target.items() if k in WHERE}
    more = {part: inputs[part] for part in ("force", "again") if inputs.get(part)}
    return {"document": inputs["document"], "owner": inputs["owner"], "uid": uid, "target": where, **more}
