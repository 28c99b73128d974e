"""Guards objects that pulumi-kubernetes creates, on plain data: none is deleted while it belongs to another stack.

pulumi-kubernetes deletes an object by its name, whoever has it. The guard is created after the objects, and updated or deleted
before any of them is deleted. Inputs and outputs: objects (apiVersion, kind, plural, namespace and name of each), stack (its full
name), mark (the stack's owner mark, if one of these objects has it), and target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pulumi_trainer.provider.kubernetes.values.accessors import only, without
from pulumi_trainer.provider.lifecycle.crud import LOCATION, Checked, Diff, connection_of, with_current_connection

Props = dict[str, Any]
SETTINGS = ("objects", "stack", "mark")


class Target(Protocol):
    """The methods of a target that the guard needs."""

    def check_owner(self, objects: Sequence[Mapping[str, str]], marks: Sequence[str], /) -> None: ...


Connect = Callable[[Mapping[str, Any]], Target]


def check(_olds: Props, news: Props, _connect: Connect) -> Checked:
    """Return the inputs unchanged."""
    return Checked(news)


def create(inputs: Props, _connect: Connect) -> tuple[str, Props]:
    """Create the guard."""
    return "guard", {**only(inputs, SETTINGS), "target": only(inputs["target"], LOCATION)}


def diff(olds: Props, news: Props) -> Diff:
    """Return whether the guard changes. olds: Outputs."""
    changed = any(olds.get(k) != news.get(k) for k in SETTINGS)
    return Diff(changed or connection_of(olds) != connection_of(news))


def update(outputs: Props, inputs: Props, connect: Connect) -> Props:
    """Return the outputs with the current objects. Raises Refused if one that is left out belongs to another stack."""
    _check_owner(outputs, [each for each in outputs["objects"] if each not in inputs["objects"]], connect)
    kept = without(with_current_connection(outputs, inputs), *SETTINGS)
    return {**kept, **only(inputs, SETTINGS)}


def read(outputs: Props, _connect: Connect) -> tuple[Props | None, list[str]]:
    """Return the outputs as stored: a guard exists only in its stack."""
    return outputs, []


def delete(outputs: Props, connect: Connect) -> list[str]:
    """Let the objects be deleted. Raises Refused if one belongs to another stack."""
    _check_owner(outputs, outputs["objects"], connect)
    return []


def _check_owner(outputs: Props, objects: Sequence[Mapping[str, str]], connect: Connect) -> None:
    if objects:
        marks = [*only(outputs, ("stack", "mark")).values()]
        connect(outputs["target"]).check_owner(objects, marks)
