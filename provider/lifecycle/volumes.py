"""check, diff, create, update, read and delete of a volume, on plain data. Called by `dynamic.VolumeProvider`.

Inputs: namespace, name, digest, target, component, and in a cluster `claim`: size, storageClass, accessMode, retain, and
`chosen`, true where the user wrote the access mode. It keeps its name, and what it has, while its digest is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pulumi_trainer.provider.api.quantity import Quantity

from .calls import Checked, Diff, rerouted, way

Props = dict[str, Any]


class Target(Protocol):
    """What volumes ask of a target. claim: see above; None on this machine."""

    def create_volume(
        self, namespace: str, name: str, owner: str, sweep: str, claim: Mapping[str, Any] | None = None
    ) -> dict[str, str]: ...
    def identity(self) -> dict[str, str]: ...
    def update_volume(self, namespace: str, name: str, claim: Mapping[str, Any]) -> None: ...
    def volume(self, namespace: str, name: str) -> dict[str, str] | None: ...
    def delete_volume(self, namespace: str, name: str, generation: str) -> None: ...


Connect = Callable[[Mapping[str, Any]], Target]

ONE, MANY = "ReadWriteOnce", "ReadWriteMany"
_NAMES = ("namespace", "name", "digest")


def check(olds: Props, news: Props) -> Checked:
    """Freezes the inputs. What a claim cannot become is refused before anything is touched."""
    if not olds or olds.get("digest") != news.get("digest"):
        return Checked(news)
    before, after = olds.get("claim"), news.get("claim")
    if before is None or after is None or before == after:
        return Checked(rerouted(olds, news))
    where = f"volume {olds['namespace']}/{olds['name']}"
    failures = [f"{where}: {why}; {_ANEW.format(**olds)}" for why in _impossible(before, after)]
    kept = before["accessMode"]  # a volume that several nodes can mount serves one as well
    claim = {**after, "accessMode": kept, **({"storageClass": c} if (c := before.get("storageClass")) else {})}
    if not after.get("size") and before.get("size"):
        claim["size"] = before["size"]
    return Checked({**rerouted(olds, news), "claim": claim}, failures=tuple(failures))


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
    return Diff(bool(replaces) or olds.get("claim") != news.get("claim") or way(olds) != way(news), replaces)


def create(inputs: Props, connect: Connect) -> tuple[str, Props]:
    """Safe to repeat; what is in it stays."""
    namespace, name, target = inputs["namespace"], inputs["name"], inputs["target"]
    made = connect(target).create_volume(
        namespace, name, inputs["component"], target["sweep"], claim=inputs.get("claim")
    )
    return f"{namespace}/{name}", {**_kept(inputs), **made}


def update(outputs: Props, inputs: Props, connect: Connect) -> Props:
    """Another size, and whether it is kept; another way to the target."""
    known = rerouted(outputs, inputs)
    if outputs.get("claim") == inputs.get("claim"):
        connect(known["target"]).identity()  # a way that leads elsewhere is not written down
        return known
    connect(known["target"]).update_volume(outputs["namespace"], outputs["name"], inputs["claim"])
    return {**known, "claim": inputs["claim"]}


def read(outputs: Props, connect: Connect) -> Props | None:
    """None: it is gone."""
    found = connect(outputs["target"]).volume(outputs["namespace"], outputs["name"])
    return None if found is None else {**outputs, **found}


def delete(outputs: Props, connect: Connect) -> None:
    connect(outputs["target"]).delete_volume(outputs["namespace"], outputs["name"], outputs["generation"])


def _kept(inputs: Props) -> Props:
    return {k: inputs[k] for k in ("namespace", "name", "target", "digest", "claim") if k in inputs}
