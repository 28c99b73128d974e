"""The runs of a job, and what identifies the inputs of each, such as code, arguments, images, runtime, data and nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pulumi_trainer.provider.api.usage import NOTHING_KNOWN, Demand
from pulumi_trainer.provider.kube.terminal import plain_field
from pulumi_trainer.provider.kube.values.accessors import mappings, only, plausible_seconds, section, without

MOST_RUNS = 20
"""Runs that a job's record keeps."""
LONGEST = 1000
"""Characters of one input."""
UNKNOWN = "Unknown"
"""Phase of a run whose record was deleted."""
NODES = "nodes"
"""Input that every run has, except those of earlier versions."""


@dataclass(frozen=True)
class Run:
    """One run of a job.

    Attributes:
        run: The user's `run` key.
        phase: Its last phase; Interrupted if a new run has ended it, `UNKNOWN` if its record was deleted.
        created: Seconds since the epoch; 0 if unknown.
        finished: Seconds since the epoch; 0 if it has not finished.
        inputs: What it was made from: name -> digest, version or short text.
        started: When it began to run, in seconds since the epoch; 0 if it has not, or if unknown.
        demand: What it has requested.
    """

    run: str = ""
    phase: str = ""
    created: float = 0.0
    finished: float = 0.0
    inputs: Mapping[str, str] = field(default_factory=dict)
    started: float = 0.0
    demand: Demand = NOTHING_KNOWN

    def to_dict(self) -> dict[str, Any]:
        """Return the run as JSON."""
        document = without(asdict(self), "started", "demand")
        if self.started:
            document["started"] = self.started
        if self.demand != NOTHING_KNOWN:
            document["usage"] = self.demand.to_dict()
        return document

    @classmethod
    def from_dict(cls, given: Any) -> Run:
        """Return a run from JSON that anybody may have written."""
        known = only(section(given), cls.__dataclass_fields__)
        return cls(
            run=plain_field(known.get("run"), LONGEST),
            phase=plain_field(known.get("phase"), LONGEST),
            created=plausible_seconds(known.get("created")),
            finished=plausible_seconds(known.get("finished")),
            inputs=read_inputs(known.get("inputs")),
            started=plausible_seconds(known.get("started")),
            demand=Demand.from_dict(section(given).get("usage")),
        )


def read_inputs(given: Any) -> dict[str, str]:
    """Return the inputs of a run from JSON that anybody may have written."""
    found = {plain_field(name, LONGEST): plain_field(value, LONGEST) for name, value in section(given).items()}
    return {name: found[name] for name in sorted(found, key=_place)}


def read_runs(given: Any) -> list[Run]:
    """Return runs from JSON that anybody may have written, the newest last."""
    return [*map(Run.from_dict, mappings(given))][-MOST_RUNS:]


def _place(name: str) -> tuple[int, str]:
    """Return the place of an input in lists. The engine of Pulumi keeps no order."""
    if name in _FIRST:
        return _FIRST.index(name), name
    return len(_FIRST), name


_FIRST = (
    "code", "arguments", "environment", "packages", "image", "python", "runtime", NODES, "processes", "resources", "generation",
)  # fmt: skip
