"""Guards objects that pulumi-kubernetes creates: none is deleted while it belongs to another stack.

pulumi-kubernetes deletes an object by its name, whoever has it. The guard is created after the objects, and updated or deleted
before any of them is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
    """

    objects: Sequence[Mapping[str, str]]
    stack: str = ""
    mark: Any = ""


class ObjectGuards(Resource[ObjectInputs, ObjectInputs]):
    inputs = outputs = ObjectInputs

    def diff(self, olds: ObjectInputs, news: ObjectInputs) -> Diff:
        changed = replace(olds, target={}) != replace(news, target={})
        return Diff(changed or olds.connection != news.connection)

    def create(self, inputs: ObjectInputs, connect: ConnectCluster) -> tuple[str, ObjectInputs]:  # noqa: ARG002
        return "guard", replace(inputs, target=inputs.location)

    def update(self, outputs: ObjectInputs, inputs: ObjectInputs, connect: ConnectCluster) -> ObjectInputs:
        """Return the outputs with the current objects. Raises Refused if one that is left out belongs to another stack."""
        _check_owner(outputs, [each for each in outputs.objects if each not in inputs.objects], connect)
        return replace(inputs, target=with_current_connection(outputs, inputs).target)

    def delete(self, outputs: ObjectInputs, connect: ConnectCluster) -> list[str]:
        """Let the objects be deleted. Raises Refused if one belongs to another stack."""
        _check_owner(outputs, outputs.objects, connect)
        return []


def _check_owner(outputs: ObjectInputs, objects: Sequence[Mapping[str, str]], connect: ConnectCluster) -> None:
    if objects:
        connect(outputs.target).queues.check_owner(objects, [*filter(None, (outputs.stack, outputs.mark))])
