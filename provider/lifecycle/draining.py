"""create, diff, update and delete of what stands before a ClusterQueue, on plain data.

It is made after the ClusterQueue and its LocalQueues and deleted before them: its delete is where work is drained, or the
deletion refused while nothing has been touched. Inputs: name, version (of the API), drain, seconds, target, stack, the mark of
the queue's owner, and beside, the objects that are deleted after it: kind, version, namespace and name. Outputs: the same, with
the identity of the cluster; guards of earlier versions have neither stack nor beside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pulumi_trainer.provider.lifecycle.calls import (
    WHERE,
    Checked,
    Diff,
    rerouted,
    way,
)

Props = dict[str, Any]

SAID = ("name", "version", "drain", "seconds")


class Target(Protocol):
    """What draining asks of a target."""

    def identity(self) -> dict[str, str]: ...
    def reopen_queue(self, name: str, version: str) -> None: ...
    def release_queue(
        self,
        name: str,
        version: str,
        *,
        drain: bool,
        seconds: float,
        stack: str = "",
        beside: Sequence[Mapping[str, str]] = (),
    ) -> list[str]: ...


Connect = Callable[[Mapping[str, Any]], Target]


def check(_olds: Props, news: Props, _connect: Connect) -> Checked:
    """Nothing is asked before a queue goes."""
    return Checked(news)


def create(inputs: Props, connect: Connect) -> tuple[str, Props]:
    """Safe to repeat. A queue that an interrupted deletion has stopped is opened again."""
    target = connect(inputs["target"])
    target.reopen_queue(inputs["name"], inputs["version"])
    where = {**{k: v for k, v in inputs["target"].items() if k in WHERE}, **target.identity()}
    return inputs["name"], {**{k: inputs[k] for k in SAID}, **_ownership(inputs), "target": where}


def diff(olds: Props, news: Props) -> Diff:
    """olds are outputs."""
    if olds["name"] != news["name"]:
        return Diff(True, ("name",))
    others = any(k in olds and olds[k] != news.get(k) for k in OWNERSHIP)
    return Diff(others or any(olds[k] != news[k] for k in SAID) or way(olds) != way(news))


def update(outputs: Props, inputs: Props, _connect: Connect) -> Props:
    """Only what is to be done later."""
    return {**rerouted(outputs, inputs), **{k: inputs[k] for k in SAID}, **_ownership(inputs)}


def read(outputs: Props, _connect: Connect) -> tuple[Props | None, list[str]]:
    """As it was written: a guard stands in a stack alone."""
    return outputs, []


def delete(outputs: Props, connect: Connect) -> list[str]:
    """What to tell. Raises Refused while the queue has work or if it, or an object beside it, belongs to another stack by now,
    TargetFault if it could not be drained in time."""
    target = connect(outputs["target"])
    drain, seconds, stack = bool(outputs["drain"]), float(outputs["seconds"]), str(outputs.get("stack") or "")
    beside = outputs.get("beside") or []
    return target.release_queue(
        outputs["name"], outputs["version"], drain=drain, seconds=seconds, stack=stack, beside=beside
    )


OWNERSHIP = ("stack", "beside")


def _ownership(inputs: Props) -> Props:
    return {k: inputs[k] for k in OWNERSHIP if k in inputs}
