"""Creates, compares, updates and deletes the guard of a ClusterQueue.

The guard is created after the ClusterQueue and its LocalQueues and deleted before them: its deletion drains the queue, or is
rejected before anything is touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pulumi_trainer.provider.lifecycle.connection import Located, with_current_connection
from pulumi_trainer.provider.lifecycle.resource import Diff, Resource
from pulumi_trainer.provider.lifecycle.target import ConnectCluster


@dataclass(frozen=True, kw_only=True)
class QueueInputs(Located):
    """Inputs of the guard of a ClusterQueue, and its outputs, which have the identity of the cluster in `target`.

    Attributes:
        beside: The objects that are deleted after the guard: kind, version, namespace and name.
        mark: The stack's owner mark, if one of these objects has it.
    """

    name: str
    version: str
    drain: bool
    seconds: float
    stack: str
    beside: Sequence[Mapping[str, str]]
    mark: Any = ""


class QueueGuards(Resource[QueueInputs, QueueInputs]):
    inputs = outputs = QueueInputs

    def diff(self, olds: QueueInputs, news: QueueInputs) -> Diff:
        if olds.name != news.name:
            return Diff(True, ("name",))
        changed = replace(olds, target={}) != replace(news, target={})
        return Diff(changed or olds.connection != news.connection)

    def create(self, inputs: QueueInputs, connect: ConnectCluster) -> tuple[str, QueueInputs]:
        """Create the guard. Reopens a queue that an interrupted deletion has stopped. Safe to repeat."""
        target = connect(inputs.target)
        target.queues.reopen(inputs.name, inputs.version)
        return inputs.name, replace(inputs, target={**inputs.location, **target.identity()})

    def update(self, outputs: QueueInputs, inputs: QueueInputs, connect: ConnectCluster) -> QueueInputs:  # noqa: ARG002
        """Store the settings for the deletion."""
        return replace(inputs, target=with_current_connection(outputs, inputs).target)

    def delete(self, outputs: QueueInputs, connect: ConnectCluster) -> list[str]:
        """Drain the queue and return notes for the user."""
        return connect(outputs.target).queues.release(
            outputs.name,
            outputs.version,
            drain=outputs.drain,
            seconds=float(outputs.seconds),
            marks=[*filter(None, (outputs.stack, outputs.mark))],
            beside=outputs.beside,
        )
