"""check, diff, create, update, read and delete of a volume, on plain data.

Inputs: namespace, name, digest, target, component, retain (absent where it is not kept), and in a cluster `claim`: size,
storageClass, accessMode, retain, and `chosen`, true where the user wrote the access mode. It keeps its name, and what it has,
while its digest is the same. again, set here, counts how often somebody else has deleted it, so that it is made again (absent:
never). generation is set here where a claim has been changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from pulumi_trainer.provider.api.status import Loss, Owner
from pulumi_trainer.provider.kube.errors import TrainerError, Unreadable
from pulumi_trainer.provider.kube.values.quantity import Quantity
from pulumi_trainer.provider.kube.values.unknown import Unknown
from pulumi_trainer.provider.lifecycle.calls import (
    Checked,
    Diff,
    leads_elsewhere,
    rerouted,
    root,
    stay,
    with_known_digest,
)

Props = dict[str, Any]


class Target(Protocol):
    """What volumes ask of a target. claim: see above; None on this machine."""

    def create_volume(
        self, namespace: str, name: str, owner: str, sweep: str, claim: Mapping[str, Any] | None = None
    ) -> dict[str, str]: ...
    def identity(self) -> dict[str, str]: ...
    def update_volume(self, namespace: str, name: str, generation: str, claim: Mapping[str, Any]) -> None: ...
    def volume(self, namespace: str, name: str) -> tuple[dict[str, str], Owner] | None: ...
    def delete_volume(self, namespace: str, name: str, generation: str) -> Owner | str: ...
    def lost_volume(self, namespace: str, name: str, owner: Owner) -> Loss: ...
    def describe_volume(self, namespace: str, name: str) -> str: ...


Connect = Callable[[Mapping[str, Any]], Target]

ONE, MANY = "ReadWriteOnce", "ReadWriteMany"
_NAMES = ("namespace", "name", "digest")


def check(olds: Props, news: Props, connect: Connect) -> Checked:
    """Freezes the inputs. What a claim cannot become is refused before anything is touched."""
    news = with_known_digest(olds, news)
    if not olds:
        return Checked(news)
    if _is_another(olds, news):
        was, now = root(olds), root(news)
        if was and now and was != now and Path(was).exists():
            why = f"is in {was}, and what replaces it would be in {now}, without the volumes of its jobs"
            return Checked(news, failures=(f"{_where(olds)} {why}: {stay(olds, news)}",))
        return Checked(news, notes=() if news.get("retain") else losses(olds, connect, "is to be deleted"))
    known, notes, taken = _with_loss(olds, news, connect)
    before, after = olds.get("claim"), news.get("claim")
    if before is None or after is None or before == after:
        return Checked(known, notes=notes, failures=taken)
    failures = [f"{_where(olds)}: {why}; {_ANEW.format(**olds)}" for why in _impossible(before, after)]
    kept = before["accessMode"]  # a volume that several nodes can mount serves one as well
    claim = {**after, "accessMode": kept, **({"storageClass": c} if (c := before.get("storageClass")) else {})}
    if not after.get("size") and before.get("size"):
        claim["size"] = before["size"]
    same = {} if known.get(AGAIN) != olds.get(AGAIN) else _generation(known, connect)
    return Checked({**known, **same, "claim": claim}, failures=(*taken, *failures), notes=notes)


def _is_another(olds: Props, news: Props) -> bool:
    moved = olds["namespace"] != news["namespace"] and not isinstance(news["namespace"], Unknown)
    return moved or olds.get("digest") != news.get("digest")


def _generation(known: Props, connect: Connect) -> Props:
    """Return the generation of a volume that is changed in place: a preview shows inputs for what an update returns, and a fetch
    would seem to be needed again."""
    try:
        found = connect(known["target"]).volume(known["namespace"], known["name"])
    except TrainerError:
        return {}
    return {"generation": found[0]["generation"]} if found is not None else {}


def _with_loss(olds: Props, news: Props, connect: Connect) -> tuple[Props, tuple[str, ...], tuple[str, ...]]:
    """Return the inputs of a volume that stays, what to tell if somebody else has deleted it, and why it cannot be made again: it
    is, unless another one has its name."""
    known = rerouted(olds, news)
    owner = Owner(str(olds.get("component") or ""), str(olds["target"].get("sweep") or ""))
    try:
        lost = connect(known["target"]).lost_volume(olds["namespace"], olds["name"], owner)
    except TrainerError:
        return known, (), ()
    if lost is Loss.TAKEN:
        return known, (), (f"{_where(olds)}: {_LOST[_is_written(olds)]}. {_TAKEN.format(**olds)}",)
    if lost is Loss.GONE:
        note = f"{_where(olds)}: {_LOST[_is_written(olds)]}; it is created again, empty"
        lasting = {k: v for k, v in known.items() if k != "generation"}
        return {**lasting, AGAIN: int(olds.get(AGAIN, 0)) + 1}, (note,), ()
    if lost is Loss.LEAVING:
        note = f"{_where(olds)}: somebody has deleted it. It goes, with what is in it, when no Pod mounts it any more"
        return known, (f"{note}; copy what you need before",), ()
    return known, (), ()


_LOST = {
    True: "somebody has deleted it, with the output in it",
    False: "somebody has deleted it, with the data in it, which is fetched again",
}
"""Whether jobs write to it -> what has become of it."""
_TAKEN = (
    "Another claim has its name, which was not made by this program and is left alone; if nothing needs what is in it:"
    " kubectl delete pvc -n {namespace} {name}, and `pulumi up`; or give the resource another name"
)
AGAIN = "again"


_ANEW = (
    "copy what it holds, then `kubectl delete pvc -n {namespace} {name}`, `pulumi refresh` and `pulumi up`;"
    " or leave it as it was"
)


def _impossible(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    found = []
    modes = before["accessMode"], after["accessMode"]
    if modes[0] != modes[1] and modes != (MANY, ONE):
        found.append(f"it has {before['accessMode']} and needs {after['accessMode']}, and an access mode cannot change")
    if after.get("storageClass") and after["storageClass"] != before.get("storageClass"):
        was = before.get("storageClass") or "the cluster's default"
        found.append(f"its storage class is {was}, and cannot become {after['storageClass']}")
    sizes = [Quantity.parse(str(c["size"])).amount for c in (before, after) if c.get("size")]
    if len(sizes) == 2 and sizes[1] < sizes[0]:
        found.append(f"it has {before['size']}, and a volume cannot shrink to {after['size']}")
    return found


def diff(olds: Props, news: Props) -> Diff:
    """olds are outputs, news are checked inputs."""
    replaces = tuple(k for k in _NAMES if olds.get(k) != news.get(k))
    changed = olds.get("claim") != news.get("claim") or leads_elsewhere(olds, news) or _is_made_again(olds, news)
    return Diff(bool(replaces) or changed, replaces)


def _is_made_again(outputs: Props, news: Props) -> bool:
    return news.get(AGAIN) not in (None, outputs.get(AGAIN))


def create(inputs: Props, connect: Connect) -> tuple[str, Props]:
    """Safe to repeat; what is in it stays."""
    namespace, name, target = inputs["namespace"], inputs["name"], inputs["target"]
    claim = inputs.get("claim")
    kept = claim is None and inputs.get("retain")  # a folder that stays when its stack goes is any later stack's
    made = connect(target).create_volume(
        namespace, name, inputs["component"], "" if kept else target["sweep"], claim=claim
    )
    return f"{namespace}/{name}", {**_kept(inputs), **made, "owner": inputs["component"]}


def update(outputs: Props, inputs: Props, connect: Connect) -> Props:
    """Another size, and whether it is kept; another way to the target; one that somebody has deleted is made again."""
    known = rerouted(outputs, inputs)
    if _is_made_again(outputs, inputs):
        return create({**inputs, "target": known["target"]}, connect)[1]
    if outputs.get("claim") == inputs.get("claim"):
        target = connect(known["target"])
        target.identity()  # a way that leads elsewhere is not written down
        there = target.volume(known["namespace"], known["name"]) if root(outputs) != root(known) else None
        return {**known, **there[0]} if there is not None else known
    place = outputs["namespace"], outputs["name"]
    connect(known["target"]).update_volume(*place, outputs["generation"], inputs["claim"])
    return {**known, "claim": inputs["claim"]}


def read(outputs: Props, connect: Connect) -> tuple[Props | None, list[str]]:
    """The volume as it is now, and what to tell; None: it is gone, or belongs to another stack."""
    try:
        there = connect(outputs["target"]).volume(outputs["namespace"], outputs["name"])
    except Unreadable as fault:
        return outputs, [f"{_where(outputs)} stays as it was in the state of this stack: {fault}"]
    if there is None:
        lost = f"{_where(outputs)}: {_LOST[_is_written(outputs)]}"
        return None, [f"{lost}; it is no longer in the state of this stack, and `pulumi up` creates it again, empty"]
    found, whose = there
    if not _is_ours(outputs, whose):
        return None, [f"{_where(outputs)} {whose.adopted}. It is left alone, and no longer in the state of this stack"]
    return {**outputs, **found}, []


def delete(outputs: Props, connect: Connect) -> list[str]:
    """Returns what to tell: output that is lost, why the volume stays for now, or whose it is."""
    lost = losses(outputs, connect, "is deleted")
    place = outputs["namespace"], outputs["name"]
    left = connect(outputs["target"]).delete_volume(*place, outputs["generation"])
    if isinstance(left, str):
        return [left] if left else [*lost]
    if _is_ours(outputs, left):  # of a later life of this stack
        return []
    return [f"{_where(outputs)} {left.adopted}. It is left alone"]


def _is_ours(outputs: Props, whose: Owner) -> bool:
    """Outputs of earlier versions do not have the owner's id."""
    return Owner(outputs.get("owner", whose.id), str(outputs["target"].get("sweep") or "")).owns(whose)


def _where(props: Props) -> str:
    return f"volume {props['namespace']}/{props['name']}"


def losses(props: Props, connect: Connect, becomes: str) -> tuple[str, ...]:
    """Return what is in a volume that goes, if a job has written it; what was fetched can be fetched again. One that a sweep
    leaves alone is kept."""
    if not _is_written(props) or (props.get("claim") or {}).get("retain"):
        return ()
    try:
        held = connect(props["target"]).describe_volume(props["namespace"], props["name"])
    except TrainerError as fault:
        held = f"what is in it cannot be seen: {fault}"
    return (f"{_where(props)} {becomes} with the output in it: {held}{_KEEP}",) if held else ()


def _is_written(props: Props) -> bool:
    """Return whether jobs write to a volume."""
    return props.get("digest") in OUTPUTS


OUTPUTS = ("", "claim")
"""Digests of the volumes that jobs write to (`composition._mounted`); that of a fetched one is hexadecimal."""
_KEEP = ". OutputVolume(retain=True), applied by an `up` before, keeps one"


def _kept(inputs: Props) -> Props:
    return {k: inputs[k] for k in ("namespace", "name", "target", "digest", "claim", AGAIN) if k in inputs}
