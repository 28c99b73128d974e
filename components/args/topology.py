"""`TrainJob(topology=)`: where in the topology of a queue's flavors a job's nodes have to be.

What is held: the steps whose pods train, and no initializer, which would only keep GPUs of the domain waiting. With MPI the
launcher and the nodes are placed together, as one group. Steps of a runtime's own are held by annotations in the runtime, or
in a runtime patch.

Annotations and their rules: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/tas_validation.go
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pulumi
from pulumi_trainer.args.arguments import Args, positional
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.values.names import qualified_name
from pulumi_trainer.provider.kueue.labels import (
    PREFERRED,
    REQUIRED,
    SLICE_LEVEL,
    SLICE_SIZE,
    TOGETHER,
    UNCONSTRAINED,
)
from pulumi_trainer.provider.pipeline.info import NODE

GROUP = "trainer"
"""Name of the group of launcher and nodes, within a job."""


class Topology(Args):
    """Base of what `topology=` takes.

    slice_level, slice_size: each so many nodes, in the order of their ranks, share a domain of that level; both or none.
    """

    slice_level: pulumi.Input[str] | None = None
    slice_size: pulumi.Input[int] | None = None

    def annotations(self) -> dict[str, Any]:
        """Of the pods that it is about, not resolved."""
        size = self.slice_size
        told = size.apply(_number) if isinstance(size, pulumi.Output) else _number(size)
        return {k: v for k, v in ((SLICE_LEVEL, self.slice_level), (SLICE_SIZE, told)) if v is not None}


class _AtLevel(Topology):
    level: pulumi.Input[str] = positional(kw_only=False)

    annotation: ClassVar[str]

    def annotations(self) -> dict[str, Any]:
        return {self.annotation: self.level, **super().annotations()}


class Required(_AtLevel):
    """All nodes in one domain of a level, or the job waits: `Required("cloud.example.com/rack")`.

    level: a node label that is a level of the Topology of the queue's flavors. slice_level, slice_size: see `Topology`.
    """

    annotation = REQUIRED


class Preferred(_AtLevel):
    """All nodes in one domain of a level where one has room, else of the next wider level, else anywhere in the topology.

    level, slice_level, slice_size: as of `Required`.
    """

    annotation = PREFERRED


class Unconstrained(Topology):
    """Anywhere in the topology, but Kueue chooses the machines: the job starts when they have room, and not only the quota.

    slice_level, slice_size: see `Topology`.
    """

    def annotations(self) -> dict[str, Any]:
        return {UNCONSTRAINED: "true", **super().annotations()}


def _number(value: Any) -> Any:
    """As annotations have it; numbers of a stack's configuration may come as floats."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole or (isinstance(value, int) and not isinstance(value, bool)) else value


def held(topology: Mapping[str, Any] | None, steps: Sequence[str], *, launched: bool) -> dict[str, dict[str, Any]]:
    """Step -> annotations of its pods. topology: as `annotations` has them, resolved. steps: those whose pods train.
    launched: they are MPI's launcher and its nodes."""
    if not topology:
        return {}
    if launched and (SLICE_LEVEL in topology or SLICE_SIZE in topology):  # one launcher is no slice
        return {NODE: dict(topology)}
    together = {TOGETHER: GROUP} if launched and UNCONSTRAINED not in topology else {}
    return {step: {**topology, **together} for step in steps}


def problems(topology: Mapping[str, Any] | None) -> Iterator[Problem]:
    """What is wrong with its values, resolved."""
    known = topology or {}
    for label, field in ((REQUIRED, "level"), (PREFERRED, "level"), (SLICE_LEVEL, "slice_level")):
        value = known.get(label)
        if isinstance(value, str):
            yield from (
                Problem(f"topology.{field}", f"{value!r} is no node label: {why}") for why in qualified_name(value)
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
        yield Problem(f"topology.{missing}", "is missing", "give slice_level and slice_size, or none of them")
