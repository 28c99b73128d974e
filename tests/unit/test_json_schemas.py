"""What commands print as JSON has the keys of `tools/json_output_schemas.py`, whose docstrings explain each."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from json_output_schemas import SCHEMAS, MetricEntry, PointEntry, StepEntry
from pulumi_trainer.provider.cli import cache, runs
from pulumi_trainer.provider.cli.runtime_table import list_runtimes
from pulumi_trainer.provider.cli.version import read_versions
from pulumi_trainer.provider.jobs.metrics import Metrics
from pulumi_trainer.provider.jobs.output_facts import Output
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.status import JobStatus, Step
from pulumi_trainer.provider.kueue.occupancy import Occupancy
from pulumi_trainer.provider.lifecycle.events import JobEvent
from pulumi_trainer.provider.lifecycle.usage_report import Row, to_json
from pulumi_trainer.provider.service.jobs import Explanation, State
from pulumi_trainer.provider.service.logs import LogLine, PodPlace
from pulumi_trainer.provider.service.outputs import Found
from pulumi_trainer.provider.service.reach import ReachedJob

JOB = ReachedJob("team", "digits", "digits")
STATE = State(JOB, JobStatus("digits", "team", steps=[Step("node")]))
PRINTED: dict[str, dict[str, Any]] = {
    "status": STATE.to_dict(),
    "why": Explanation("digits", "team", "Queued", "", "", "", [], "").to_dict(),
    "logs": LogLine("digits", PodPlace("node", 0), "digits-node-0-0", "", "epoch 1").to_dict(),
    "events": JobEvent(1.0, 2.0, 1, "Normal", "Created", "Pod").to_dict(),
    "runs": runs.entry(JOB, Run("1")),
    "outputs": Found(STATE, "folder", Output("folder", 1)).to_dict(),
    "queues": Occupancy().to_dict(),
    "usage": {**to_json([], Row(""), "team", 0.0, 1.0), "unseen": []},
    "doctor": {"findings": [], "unseen": []},
    "cache list": cache.Entry("catalogue", Path("a"), 1, 2.0).to_dict(),
    "runtime list": list_runtimes()[0],
    "version": read_versions(),
}


@pytest.mark.parametrize("command", SCHEMAS)
def test_keys_are_those_of_the_schema(command: str) -> None:
    assert set(PRINTED[command]) == set(get_type_hints(SCHEMAS[command]))


def test_steps_have_the_keys_of_the_schema() -> None:
    assert set(PRINTED["status"]["steps"][0]) == set(get_type_hints(StepEntry))


def test_metrics_have_the_keys_of_the_schema() -> None:
    metrics = Metrics.of([{"metrics": {"loss": "0.5"}}])
    entry = runs.entry(JOB, Run("1", metrics=metrics.summary(), history_text=metrics.to_text()))
    assert set(entry["metrics"]["loss"]) == set(get_type_hints(MetricEntry))
    assert set(entry["history"]["loss"][0]) == set(get_type_hints(PointEntry))


@pytest.mark.parametrize("schema", [*SCHEMAS.values(), MetricEntry, PointEntry, StepEntry])
def test_each_key_is_explained(schema: type) -> None:
    explained = re.findall(r"^    (\w+): \S", inspect.getdoc(schema) or "", re.M)
    assert explained == list(get_type_hints(schema))
