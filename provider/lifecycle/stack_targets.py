"""The targets of a stack, and the labels that its jobs and volumes use.

A process serves one update. It remembers the labels that jobs and volumes have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.jobs.identity import digest
from pulumi_trainer.provider.lifecycle.connection import (
    MAX_PARALLEL,
    Located,
    connection_changed,
    with_current_connection,
)
from pulumi_trainer.provider.lifecycle.resource import Checked, Diff, Resource
from pulumi_trainer.provider.lifecycle.target import Connect


class UsedLabels(set[str]):
    """Labels of the program's jobs and volumes.

    Jobs keep the label of the target with which they were created, and that target may leave the program before them.
    """

    def use(self, inputs: Located | None) -> None:
        """Add the label of a job or volume. inputs: Its current or previous inputs; None for none."""
        if inputs is not None:
            self.update({inputs.label} - {""})


@dataclass(frozen=True, kw_only=True)
class TargetInputs(Located):
    """Inputs of a Target resource. stack: What identifies project, stack and target; the start of its label."""

    stack: str = ""


@dataclass(frozen=True, kw_only=True)
class TargetOutputs(Located):
    sweep: str = ""
    cluster: str | None = None


class Targets(Resource[TargetInputs, TargetOutputs]):
    """The targets of a stack; the delete of a target sweeps what a crash has left behind.

    Args:
        suffix: Returns what distinguishes two stacks of the same name: of two clones, or one after the other was renamed.
    """

    inputs, outputs = TargetInputs, TargetOutputs

    def __init__(self, labels: UsedLabels, suffix: Callable[[], str], note: Callable[[str], None]) -> None:
        self._labels, self._suffix, self._note = labels, suffix, note

    def check(self, olds: TargetInputs | None, news: TargetInputs, connect: Any) -> Checked[TargetInputs]:  # noqa: ARG002
        if olds is None:
            return Checked(news)
        return Checked(with_current_connection(olds, news))

    def diff(self, olds: TargetOutputs, news: TargetInputs) -> Diff:
        return Diff(connection_changed(olds, news))

    def create(self, inputs: TargetInputs, connect: Any) -> tuple[str, TargetOutputs]:
        identity = _identify(inputs, connect)
        label = f"{inputs.stack}-{self._suffix()}"
        where = {**inputs.target, **identity}
        return label, TargetOutputs(target=where, sweep=label, cluster=identity.get("cluster"))

    def update(self, outputs: TargetOutputs, inputs: TargetInputs, connect: Any) -> TargetOutputs:
        outputs = with_current_connection(outputs, inputs)
        _identify(outputs, connect)
        return outputs

    def delete(self, outputs: TargetOutputs, connect: Connect) -> list[str]:
        """Delete what has the target's label, unless jobs or volumes use it."""
        if outputs.sweep in self._labels:
            return []
        swept = connect(outputs.target).sweep(outputs.sweep, self._note)
        return [f"{name} has the label {outputs.sweep} of this stack and is deleted" for name in swept]


def _identify(located: Located, connect: Any) -> dict[str, str]:
    """Return the identity of a target, which refuses another cluster; set how many jobs run at once on this machine."""
    there = connect(located.target)
    identity: dict[str, str] = there.identity()
    if located.target.get("kind") == "local":
        there.limit_jobs(located.target.get(MAX_PARALLEL))
    return identity


def label_suffix(random: str, place: Sequence[str], *, checkpoints: bool) -> str:
    """Return what distinguishes the labels of two stacks of the same name. Only the state distinguishes such stacks.

    Args:
        checkpoints: Whether the engine writes the state before the end. If not, the `up` after one that was killed has to find
            the same label.
    """
    return random if checkpoints else digest(list(place))[:8]
