"""The runs of a job, and what identifies the inputs of each, such as code, arguments, images, runtime, data and nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from pulumi_trainer.provider.jobs.metrics import Metric, Metrics, Point, in_order, read_summary
from pulumi_trainer.provider.jobs.usage import NOTHING_KNOWN, Demand
from pulumi_trainer.provider.kubernetes.terminal import message as harmless_message
from pulumi_trainer.provider.kubernetes.terminal import plain_field
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, number, plausible_seconds, section, text

MOST_RUNS = 200
"""Runs that a job's record has; all but the last ones as a row (`retention`)."""
LONGEST = 1000
"""Characters of one input."""
BATCH = "batch"
"""Input of a run of a fine-tuning tool whose number of steps depends on the batch, as epochs decide it: what makes the batch."""
COMMIT = "commit"
"""Input of a run: the commit of the repository of its project, which is no part of what makes it another run."""
NODES = "nodes"
"""Input that every run has, but those that fetch a dataset or a model."""
LOGS, KEEP = "logs", "keep"
"""Input of a run whose containers keep their output in the output volume, and its value."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What a run is called, and where it comes from.

    Attributes:
        id: Id of the run, unique among those of its job; later runs have greater ones.
        lineage: Id of the run that started anew, and from which this one continues, perhaps through others; else its own id.
        parent: Id of the run that it continues; empty if it started anew.
        cause: Why it was started (`lineage.CREATED`, `CHANGED`, `RERUN`).
        place: Where it kept output and checkpoints, without the folder of the lineage; empty if nowhere.
        fork: Run and step that its lineage started from, as RUN@STEP or RUN; empty if it started without a checkpoint.
        origin: Lineage of that run.
        removed: Lineages whose folders were removed when it was created, separated by commas (`retention`).
    """

    id: str = ""
    lineage: str = ""
    parent: str = ""
    cause: str = ""
    place: str = ""
    fork: str = ""
    origin: str = ""
    removed: str = ""

    @property
    def removed_lineages(self) -> list[str]:
        """The lineages whose folders were removed when the run was created."""
        return [*filter(is_run_id, self.removed.split(","))]

    def to_dict(self) -> dict[str, Any]:
        """Return the identity as JSON."""
        known = {part: getattr(self, part) for part in _IDENTITY}
        return {part: value for part, value in known.items() if value or part not in ("fork", "origin", "removed")}

    @classmethod
    def from_dict(cls, given: Any) -> Identity:
        """Return an identity from JSON that anybody may have written."""
        return Identity(**_identity_from(given))


_IDENTITY = tuple(each.name for each in fields(Identity))


def _identity_from(given: Any) -> dict[str, str]:
    """Return the fields of an identity from JSON that anybody may have written."""
    known = section(given)
    names = {part: _name(known.get(part)) for part in ("id", "lineage", "parent", "origin")}
    return {**names, **{part: plain_field(known.get(part), LONGEST) for part in ("cause", "place", "fork", "removed")}}


@dataclass(frozen=True)
class Run(Identity):
    """One run of a job.

    Attributes:
        run: The user's `run` key.
        phase: Its last phase; Interrupted if a new run has ended it, Deleted if it is not known whether it had ended.
        created: Seconds since the epoch; 0 if unknown.
        finished: Seconds since the epoch; 0 if it has not finished.
        inputs: What it was made from: name -> digest, version or short text.
        started: When it began to run, in seconds since the epoch; 0 if it has not, or if unknown.
        note: That it has ended without a step, why it may not have trained although it has succeeded (`JobStatus.note`), or that
            its folders were removed; else empty.
        usage: What it has requested.
        metrics: The metrics that it has reported, by name.
        history_text: The same with the history, as text (`metrics.Metrics`); no part of the JSON; empty if not known.
        message: Why it has ended, with its last lines if it has failed.
        resumed_from: Step of the checkpoint that it has loaded last, as it has reported; None if it has reported none.
        steps: Steps that it has done, as far as it has reported; None if that is not known.
    """

    run: str = ""
    phase: str = ""
    created: float = 0.0
    finished: float = 0.0
    inputs: Mapping[str, str] = field(default_factory=dict)
    started: float = 0.0
    usage: Demand = NOTHING_KNOWN
    note: str = ""
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    history_text: str = field(default="", compare=False, repr=False)
    message: str = ""
    resumed_from: int | None = None
    steps: int | None = None

    @property
    def identity(self) -> Identity:
        """What it is called, and where it comes from."""
        return Identity(**{part: getattr(self, part) for part in _IDENTITY})

    @property
    def seconds(self) -> float:
        """How long it took, if it has succeeded and its times are known; else 0."""
        known = self.phase == "Succeeded" and 0 < self.started < self.finished
        return self.finished - self.started if known else 0.0

    @property
    def history(self) -> dict[str, list[Point]]:
        """The history of each metric by name, the newest point last; empty if it is not known."""
        return Metrics.from_text(self.history_text).history()

    def to_dict(self) -> dict[str, Any]:
        """Return the run as JSON."""
        document: dict[str, Any] = {
            "run": self.run,
            "phase": self.phase,
            "created": self.created,
            "finished": self.finished,
        }
        document |= {"inputs": dict(self.inputs), **super().to_dict()}
        optional = {"note": self.note, "started": self.started, "message": self.message}
        document |= {name: value for name, value in optional.items() if value}
        numbers = {"resumedFrom": self.resumed_from, "steps": self.steps}
        document |= {name: value for name, value in numbers.items() if value is not None}
        if self.usage != NOTHING_KNOWN:
            document["usage"] = self.usage.to_dict()
        if self.metrics:
            document["metrics"] = {name: asdict(metric) for name, metric in self.metrics.items()}
        return document

    @classmethod
    def from_dict(cls, given: Any) -> Run:
        """Return a run from JSON that anybody may have written."""
        known = section(given)
        return Run(
            run=plain_field(known.get("run"), LONGEST),
            phase=plain_field(known.get("phase"), LONGEST),
            created=plausible_seconds(known.get("created")),
            finished=plausible_seconds(known.get("finished")),
            inputs=read_inputs(known.get("inputs")),
            started=plausible_seconds(known.get("started")),
            note=plain_field(known.get("note"), LONGEST),
            usage=Demand.from_dict(known.get("usage")),
            metrics=in_order(read_summary(known.get("metrics"))),
            message=harmless_message(text(known.get("message"))[:LONGEST]),
            resumed_from=resumed_step(given),
            steps=_whole(known, "steps"),
            **_identity_from(given),
        )


def _name(given: Any) -> str:
    """Return the id of a run, which names a folder; empty if it is not valid."""
    if isinstance(given, str) and is_run_id(given):
        return given
    return ""


def is_run_id(text: str) -> bool:
    """Return whether a text has the form of a run's id."""
    return _RUN_ID.fullmatch(text) is not None


_RUN_ID = re.compile(r"[0-9a-z]{1,16}")


def resumed_step(given: Any) -> int | None:
    """Return the step of the checkpoint that a run has loaded, in JSON of the run or of its progress; None if there is none."""
    return _whole(section(given), "resumedFrom")


def _whole(given: Mapping[str, Any], name: str) -> int | None:
    found = number(given.get(name), -1)
    return found if found >= 0 else None


def fault_of_runs(identity: Any, earlier: Any) -> str:
    """Return what is not valid in the runs of a job as its record has them: field, value, and what is expected; else empty.

    Records of runs that are older than all others are removed at some time, so a run may name one of them.

    Args:
        identity: JSON of the current run's identity.
    """
    if not isinstance(earlier, list):
        return _fault("earlier", earlier, "a list of runs")
    found = {f"earlier[{number}]": run for number, run in enumerate(earlier)} | {"identity": identity}
    for where, run in found.items():
        if not isinstance(run, dict):
            return _fault(where, run, "an object with the fields of a run")
        for names, is_valid, expected in _FORMS:
            for name in names:
                if name in run and not is_valid(run[name]):
                    return _fault(f"{where}.{name}", run[name], expected)
    recorded = [int(run["id"], 36) for run in earlier if run.get("id")]
    for where, run in found.items():
        for name in ("parent", "lineage", "origin"):
            wanted = int(run.get(name) or "0", 36)
            is_own = name == "lineage" and run[name] == run.get("id") if wanted else True
            if not is_own and wanted not in recorded and (not recorded or wanted > min(recorded)):
                return _fault(f"{where}.{name}", run[name], "the id of a run that the record has")
    return ""


def _fault(where: str, value: Any, expected: str) -> str:
    return f"{where} is {value!r:.80}, not {expected}"


_FORMS: Sequence[tuple[Sequence[str], Callable[[Any], bool], str]] = (
    (
        ("id", "lineage", "parent", "origin"),
        lambda value: value == "" or (isinstance(value, str) and is_run_id(value)),
        "the id of a run, such as 't4kz1f'",
    ),
    (
        ("run", "phase", "cause", "place", "fork", "removed", "note", "message"),
        lambda value: isinstance(value, str),
        "a text",
    ),
    (
        ("created", "started", "finished"),
        lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
        "seconds since the epoch",
    ),
    (("inputs", "metrics", "usage"), lambda value: isinstance(value, dict), "an object"),
)
"""Fields of a run in JSON, whether a value is valid, and what is expected."""


def read_inputs(given: Any) -> dict[str, str]:
    """Return the inputs of a run from JSON that anybody may have written."""
    found = {plain_field(name, LONGEST): plain_field(value, LONGEST) for name, value in section(given).items()}
    return {name: found[name] for name in sorted(found, key=_sort_key)}


def read_runs(given: Any) -> list[Run]:
    """Return runs from JSON that anybody may have written, the newest last."""
    return [*map(Run.from_dict, mappings(given))][-MOST_RUNS:]


def _sort_key(name: str) -> tuple[int, str]:
    """Return the key that sorts inputs for a table: Pulumi's engine keeps no order."""
    if name in _FIRST:
        return _FIRST.index(name), name
    return len(_FIRST), name


_FIRST = (
    "code", COMMIT, "arguments", BATCH, "environment", "packages", "image", "python", "runtime", NODES, "processes", "resources",
    "generation",
)  # fmt: skip
