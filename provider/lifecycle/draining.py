"""Creates, compares, updates and deletes the guard of a ClusterQueue, on plain data.

The guard is created after the ClusterQueue and its LocalQueues and deleted before them: its deletion drains the queue, or is
rejected before anything is touched. Inputs: name, version (of the API), drain, seconds, target, stack (its full name), mark (the
stack's owner mark, if one of these objects has it), and beside, the objects that are deleted after the guard: kind, version,
namespace and name. Outputs: the same, with the identity of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pulumi_trainer.provider.kubernetes.values.accessors import only
from pulumi_trainer.provider.lifecycle.crud import LOCATION, Checked, Diff, connection_of, with_current_connection

Props = dict[str, Any]

SETTINGS = ("name", "version", "drain", "seconds", "stack", "beside")


class Target(Protocol):
    """The methods that draining needs of a target."""

    def identity(self) -> dict[str, str]: ...
    def reopen_queue(self, name: str, version: str) -> None: ...
    def release_queue(
        self,
        name: str,
        version: str,
        *,
        drain: bool,
        seconds: float,
        marks: Sequence[str],
        beside: Sequence[Mapping[str, str]],
    ) -> list[str]: ...


Connect = Callable[[Mapping[str, Any]], Target]


def check(_olds: Props, news: Props, _connect: Connect) -> Checked:
    """Return the inputs unchanged."""
    return Checked(news)


def create(inputs: Props, connect: Connect) -> tuple[str, Props]:
    """Create the guard. Reopens a queue that an interrupted deletion has stopped. Safe to repeat."""
    target = connect(inputs["target"])
    target.reopen_queue(inputs["name"], inputs["version"])
    where = {**only(inputs["target"], LOCATION), **target.identity()}
    return inputs["name"], {**_stored(inputs), "target": where}


def diff(olds: Props, news: Props) -> Diff:
    """Return whether the guard changes. olds: Outputs."""
    if olds["name"] != news["name"]:
        return Diff(True, ("name",))
    return Diff(_stored(olds) != _stored(news) or connection_of(olds) != connection_of(news))


def update(outputs: Props, inputs: Props, _connect: Connect) -> Props:
    """Store the settings for the deletion."""
    return {**with_current_connection(outputs, inputs), **_stored(inputs)}


def read(outputs: Props, _connect: Connect) -> tuple[Props | None, list[str]]:
    """Return the outputs as stored: a guard exists only in its stack."""
    return outputs, []


def delete(outputs: Props, connect: Connect) -> list[str]:
    """Drain the queue and return notes for the user.

    Raises:
        Refused: The queue still has work, or the queue or an object beside it belongs to another stack.
        TargetFault: The queue could not be drained in time.
    """
    target = connect(outputs["target"])
    drain, seconds, beside = bool(outputs["drain"]), float(outputs["seconds"]), outputs["beside"]
    marks = [*only(outputs, ("stack", MARK)).values()]
    return target.release_queue(
        outputs["name"], outputs["version"], drain=drain, seconds=seconds, marks=marks, beside=beside
    )


MARK = "mark"


def _stored(props: Props) -> Props:
    """Return what inputs and outputs have in common, apart from the connection."""
    return {**{k: props[k] for k in SETTINGS}, **only(props, (MARK,))}
