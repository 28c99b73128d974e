"""Guards objects that pulumi-kubernetes creates: none is deleted while it belongs to another stack.

pulumi-kubernetes deletes an object by its name, whoever has it. The guard is created after the objects, and updated or deleted
before any of them is deleted. It also reverts changes by hand, as pulumi-kubernetes sends nothing for an object whose inputs are
the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pulumi_trainer.provider.lifecycle.connection import Located, with_current_connection
from pulumi_trainer.provider.lifecycle.resource import Diff, Resource
from pulumi_trainer.provider.lifecycle.target import ConnectCluster


@dataclass(frozen=True, kw_only=True)
class ObjectInputs(Located):
    """Inputs and outputs of a guard.

    Attributes:
        objects: apiVersion, kind, plural, namespace and name of each object.
        mark: The stack's owner mark, if one of these objects has it.
        restored: In inputs: objects that were changed by hand, each with what reverts that (`hand_edits.restoration`).
    """

    objects: Sequence[Mapping[str, str]]
    stack: str = ""
    mark: Any = ""
    restored: Sequence[Mapping[str, Any]] = field(default_factory=list)


class ObjectGuards(Resource[ObjectInputs, ObjectInputs]):
    inputs = outputs = ObjectInputs

    def diff(self, olds: ObjectInputs, news: ObjectInputs) -> Diff:
        changed = replace(olds, target={}) != replace(news, target={})
        return Diff(changed or olds.connection != news.connection)

    def create(self, inputs: ObjectInputs, connect: ConnectCluster) -> tuple[str, ObjectInputs]:
        _restore(inputs, connect)
        return "guard", replace(inputs, target=inputs.location, restored=[])

    def update(self, outputs: ObjectInputs, inputs: ObjectInputs, connect: ConnectCluster) -> ObjectInputs:
        """Return the outputs with the current objects. Raises Refused if one that is left out belongs to another stack."""
        _check_owner(outputs, [each for each in outputs.objects if each not in inputs.objects], connect)
        _restore(inputs, connect)
        return replace(inputs, target=with_current_connection(outputs, inputs).target, restored=[])

    def delete(self, outputs: ObjectInputs, connect: ConnectCluster) -> list[str]:
        """Let the objects be deleted. Raises Refused if one belongs to another stack."""
        _check_owner(outputs, outputs.objects, connect)
        return []


def _restore(inputs: ObjectInputs, connect: ConnectCluster) -> None:
    if inputs.restored:
        connect(inputs.target).queues.restore(inputs.restored)


def _check_owner(outputs: ObjectInputs, objects: Sequence[Mapping[str, str]], connect: ConnectCluster) -> None:
    if objects:
        connect(outputs.target).queues.check_owner(objects, [*filter(None, (outputs.stack, outputs.mark))])
