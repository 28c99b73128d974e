"""The metrics that a run reports: first, last, least, greatest and best value of each, and a bounded history."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pulumi_trainer.provider.jobs.edited_json import parse, step_number
from pulumi_trainer.provider.jobs.progress import metric_text, read_metrics
from pulumi_trainer.provider.kubernetes.values.accessors import (
    epoch_seconds,
    listed,
    number,
    plausible_seconds,
    section,
)

_Value = TypeVar("_Value")

MOST_POINTS = 200
"""Points of the history of one metric."""
MOST_BYTES = 64 << 10
"""Bytes of the JSON of all metrics of a run."""
_LEAST_POINTS = 2
_LOWER = {
    "loss", "losses", "nll", "error", "err", "perplexity", "ppl", "mse", "rmse", "mae", "wer", "cer", "fid", "bpb",
}  # fmt: skip
_HIGHER = {
    "accuracy", "accuracies", "acc", "f1", "auc", "auroc", "precision", "recall", "reward", "rewards", "score", "bleu", "rouge",
    "map", "iou", "miou", "psnr", "ssim", "r2",
}  # fmt: skip
"""Words in the names of metrics whose direction the field knows."""


@dataclass(frozen=True)
class Metric:
    """One metric of a run. Values are texts, as the program has reported them.

    Attributes:
        first: The first value; empty if the reports were not read from the start.
        last: The newest value, also `nan`.
        best: The least or greatest finite value, by the usual direction of the metric; empty if no direction is known.
        min: The least finite value; empty if none is a finite number.
        max: The greatest finite value, likewise.
    """

    first: str = ""
    last: str = ""
    best: str = ""
    min: str = ""
    max: str = ""


@dataclass(frozen=True)
class Point:
    """One value in the history of a metric.

    Attributes:
        step: Step of the report; None if it has none.
        time: Time of the report, in seconds since the epoch.
        value: The value, as text.
    """

    step: int | None
    time: float
    value: str


@dataclass
class _Series:
    """A metric with its history: each point whose number is a multiple of `every`, and the newest one.

    Attributes:
        metric: The values that do not depend on the history.
        size: Bytes of the points as JSON.
    """

    metric: Metric
    count: int = 0
    every: int = 1
    points: list[Point] = field(default_factory=list)
    size: int = 0

    def add(self, point: Point) -> None:
        if self.points and (self.count - 1) % self.every:
            self.size -= _size(self.points.pop())
        self.points.append(point)
        self.size += _size(point)
        self.count += 1
        if len(self.points) > MOST_POINTS:
            self.thin()

    def thin(self) -> None:
        """Leave out every second point, but not the newest one."""
        newest = self.points[-1]
        self.points, self.every = self.points[::2], self.every * 2
        if self.points[-1] is not newest:
            self.points.append(newest)
        self.size = sum(map(_size, self.points))

    def to_dict(self) -> dict[str, Any]:
        points = [[point.step, int(point.time), point.value] for point in self.points]
        return {**vars(self.metric), "count": self.count, "every": self.every, "points": points}


class Metrics:
    """The metrics of one run."""

    def __init__(self, whole: bool = True) -> None:
        self._whole = whole
        self._series: dict[str, _Series] = {}

    def __bool__(self) -> bool:
        return bool(self._series)

    def report(self, progress: Mapping[str, Any]) -> None:
        """Add the metrics of a report."""
        step, at = progress.get("step"), epoch_seconds(progress.get("lastUpdatedTime"))
        for name, value in section(progress, "metrics").items():
            series = self._series.get(name)
            if series is None:
                first = value if self._whole else ""
                series = self._series[name] = _Series(Metric(first=first))
            series.metric = _updated(name, series.metric, value)
            series.add(Point(step, at, value))
        self._fit()

    def _fit(self) -> None:
        """Leave out points, and metrics if that does not suffice, until the JSON has at most `MOST_BYTES`."""
        size = sum(_size_of(name, series) for name, series in self._series.items())
        while size > MOST_BYTES:
            longest = max(self._series.values(), key=lambda each: len(each.points))
            if len(longest.points) > _LEAST_POINTS:
                size -= longest.size
                longest.thin()
                size += longest.size
            else:
                size -= _size_of(*self._series.popitem())

    def extend(self, newer: Metrics) -> None:
        """Add the metrics of a later part of the run, without reports that are known already. newer: Metrics of that part."""
        for name, series in newer._series.items():
            known = self._series.setdefault(name, _Series(Metric()))
            until = max((point.time for point in known.points), default=-1.0)
            for point in series.points:
                if point.time > until:
                    known.metric = _updated(name, known.metric, point.value)
                    known.add(point)
            for value in filter(None, (series.metric.min, series.metric.max, series.metric.last)):
                known.metric = _updated(name, known.metric, value)
        self._fit()

    def summary(self) -> dict[str, Metric]:
        """Return the metrics by name, without their history."""
        return in_order({name: series.metric for name, series in self._series.items()})

    def history(self) -> dict[str, list[Point]]:
        """Return the history of each metric by name, the newest point last."""
        return in_order({name: series.points for name, series in self._series.items()})

    def to_text(self) -> str:
        """Return the metrics as JSON; empty if there are none."""
        if not self._series:
            return ""
        return json.dumps({name: each.to_dict() for name, each in self._series.items()}, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Metrics:
        """Return metrics from JSON that anybody may have written; those that are not valid are left out."""
        made, given = cls(), section(parse(text))
        for name, metric in read_summary(given).items():
            found = section(given, name)
            series = _Series(metric, max(0, number(found.get("count"))), max(1, number(found.get("every"))))
            series.points = [*filter(None, map(_point, listed(found.get("points"))[-MOST_POINTS:]))]
            series.size = sum(map(_size, series.points))
            made._series[name] = series
        return made

    @classmethod
    def of(cls, reports: Iterable[Mapping[str, Any]], whole: bool = True) -> Metrics:
        """Return the metrics of some reports."""
        made = cls(whole)
        for each in reports:
            made.report(each)
        return made


def read_summary(given: Any) -> dict[str, Metric]:
    """Return the metrics of a run, without their history, from JSON that anybody may have written."""
    found: dict[str, Metric] = {}
    for name, values in section(given).items():
        texts = {part: metric_text(section(values).get(part)) or "" for part in _PARTS}
        if read_metrics({name: "0"}) and texts["last"]:
            found[name] = Metric(**texts)
    return found


def in_order(of_metrics: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return values of metrics in the order in which all runs show them: first those with a direction, then by name.

    The order of the reports is not kept: the engine of Pulumi, which has the metrics of earlier runs, keeps none.
    """
    return {
        name: of_metrics[name] for name in sorted(of_metrics, key=lambda name: (is_lower_better(name) is None, name))
    }


def number_of(value: str) -> float | None:
    """Return the finite number in the text of a value; None for NaN, infinity and any other text."""
    try:
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def is_lower_better(name: str) -> bool | None:
    """Return whether a lower value of a metric is better; None if that is not known. name: `eval_loss`, `rewards/accuracies`."""
    known = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word in _LOWER or word in _HIGHER]
    if not known:
        return None
    return known[-1] in _LOWER


_PARTS = tuple(Metric.__dataclass_fields__)
_BRACKETS = 140
"""Most bytes of the keys and numbers of a metric."""
_MOST_ESCAPED = 12
"""Most bytes of a character as JSON."""


def _updated(name: str, metric: Metric, value: str) -> Metric:
    """Return a metric with a newer value."""
    least, greatest, found = metric.min, metric.max, number_of(value)
    if found is not None:
        if not least or found < float(least):
            least = value
        if not greatest or found > float(greatest):
            greatest = value
    lower = is_lower_better(name)
    best = ""
    if lower is not None:
        best = least if lower else greatest
    return Metric(metric.first, value, best, least, greatest)


def _point(given: Any) -> Point | None:
    step, time, value = (*listed(given), None, None, None)[:3]
    text = metric_text(value)
    if text is None:
        return None
    return Point(step_number(step), plausible_seconds(time), text)


def _size_of(name: str, series: _Series) -> int:
    """Return the most bytes of a metric as JSON."""
    return _BRACKETS + _text_size(name, *vars(series.metric).values()) + series.size


def _size(point: Point) -> int:
    """Return the most bytes of a point as JSON."""
    return len(f"[{point.step or 'null'},{int(point.time)},],") + _text_size(point.value)


def _text_size(*texts: str) -> int:
    size = 0
    for text in texts:
        plain = text.isascii() and '"' not in text and "\\" not in text
        size += 2 + len(text) * (1 if plain else _MOST_ESCAPED)
    return size
