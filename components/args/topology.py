"""`TrainJob(topology=)`: the topology constraints of a job's nodes, within the topology of a queue's flavors.

Only the steps whose pods train are constrained: initializers would keep GPUs of the domain idle. With MPI the launcher and the
nodes are placed together, as one group. Annotations in the runtime or in a runtime patch constrain a runtime's own steps.

Annotations and their rules: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/tas_validation.go
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pulumi
from pulumi_trainer.args.arguments import Args, drop_none, positional
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.names import name_problems, qualified_name
from pulumi_trainer.provider.kueue.labels import PREFERRED, REQUIRED, SLICE_LEVEL, SLICE_SIZE, TOGETHER, UNCONSTRAINED
from pulumi_trainer.provider.trainer.pipeline.info import NODE

GROUP = "trainer"
"""Name of the group of launcher and nodes, within a job."""


class Topology(Args):
    """Base of the values of `TrainJob(topology=)`.

    Args:
        slice_level: Node label that is the level of each slice; given together with `slice_size`.
        slice_size: Nodes per slice, in the order of their ranks; given together with `slice_level`.
    """

    slice_level: pulumi.Input[str] | None = None
    slice_size: pulumi.Input[int] | None = None

    def annotations(self) -> dict[str, Any]:
        """Return the annotations of the constrained pods; values may be Outputs."""
        size = self.slice_size
        if isinstance(size, pulumi.Output):
            number = size.apply(_number)
        else:
            number = _number(size)
        return drop_none({SLICE_LEVEL: self.slice_level, SLICE_SIZE: number})


class _AtLevel(Topology):
    level: pulumi.Input[str] = positional(kw_only=False)

    annotation: ClassVar[str]

    def annotations(self) -> dict[str, Any]:
        return {self.annotation: self.level, **super().annotations()}


class Required(_AtLevel):
    """All nodes in one domain of a level, or the job waits: `Required("cloud.example.com/rack")`.

    Args:
        level: Node label that is a level of the Topology of the queue's flavors.
        slice_level: Node label that is the level of each slice; given together with `slice_size`.
        slice_size: Nodes per slice, in the order of their ranks; given together with `slice_level`.
    """

    annotation = REQUIRED


class Preferred(_AtLevel):
    """All nodes in one domain of a level if one has capacity, else of the next wider level, else anywhere in the topology.

    Args:
        level: Node label that is a level of the Topology of the queue's flavors.
        slice_level: Node label that is the level of each slice; given together with `slice_size`.
        slice_size: Nodes per slice, in the order of their ranks; given together with `slice_level`.
    """

    annotation = PREFERRED


class Unconstrained(Topology):
    """Anywhere in the topology, but Kueue chooses the machines: the job starts when the machines have capacity, and not only
    the quota.

    Args:
        slice_level: Node label that is the level of each slice; given together with `slice_size`.
        slice_size: Nodes per slice, in the order of their ranks; given together with `slice_level`.
    """

    def annotations(self) -> dict[str, Any]:
        return {UNCONSTRAINED: "true", **super().annotations()}


def _number(value: Any) -> Any:
    """Return a number as annotations have it; numbers of a stack's configuration may be floats."""
    whole = isinstance(value, float) and value.is_integer()
    if whole or (isinstance(value, int) and not isinstance(value, bool)):
        return str(int(value))
    return value


def annotations_by_step(
    topology: Mapping[str, Any] | None, steps: Sequence[str], *, launched: bool
) -> dict[str, dict[str, Any]]:
    """Return step -> annotations of its pods. launched: Whether these steps are MPI's launcher and its nodes."""
    if not topology:
        return {}
    if launched and (SLICE_LEVEL in topology or SLICE_SIZE in topology):  # one launcher cannot be a slice
        return {NODE: dict(topology)}
    annotations = dict(topology)
    if launched and UNCONSTRAINED not in topology:
        annotations[TOGETHER] = GROUP
    return {step: dict(annotations) for step in steps}


def problems(topology: Mapping[str, Any] | None) -> Iterator[Problem]:
    """Yield the problems of the resolved annotations."""
    known = topology or {}
    for label, field in ((REQUIRED, "level"), (PREFERRED, "level"), (SLICE_LEVEL, "slice_level")):
        value = known.get(label)
        if isinstance(value, str):
            yield from name_problems(
                f"topology.{field}", value, qualified_name, "node label", "for example topology.kubernetes.io/zone"
            )
        elif label in known and isinstance(value, (bool, int, float, list, dict)):
            yield Problem(f"topology.{field}", f"must be a node label, not {value!r}")
    size = known.get(SLICE_SIZE)
    if isinstance(size, (bool, float, list, dict)) or (
        isinstance(size, str) and not re.fullmatch("0*[1-9][0-9]{0,9}", size)
    ):
        yield Problem("topology.slice_size", f"must be a whole number of nodes above 0, not {size!r}")
    if (SLICE_LEVEL in known) != (SLICE_SIZE in known):
        missing = "slice_size" if SLICE_LEVEL in known else "slice_level"
        yield Problem(f"topology.{missing}", "is missing", "give both slice_level and slice_size, or neither")
