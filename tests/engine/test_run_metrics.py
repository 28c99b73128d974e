"""The metrics of all runs of a job are kept: `runs --metrics` and the client show them after a change of the program."""

from __future__ import annotations

import json

import pytest
from pulumi_trainer import client

from .conftest import Project
from .test_cli import cli

PROGRAM = """
def train(lr):
    import json
    for step, loss in enumerate((4 * lr, 2 * lr, 3 * lr)):
        status = {{"step": step, "metrics": [{{"name": "loss", "value": loss}}, {{"name": "epoch", "value": step}}]}}
        print(json.dumps({{"trainerStatus": status}}), flush=True)

trainer.TrainJob("digits", runtime=plain, wait_for="complete",
    trainer=trainer.CustomTrainer(func=train, func_args={{"lr": {lr}}}))
"""


@pytest.mark.core
def test_both_runs_are_shown_after_a_changed_argument(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for lr in ("1.0", "0.5", "float('nan')"):
        project.program(PROGRAM.format(lr=lr))
        last = project.plain_up().out
    assert "has succeeded, but its last loss is NaN" in last, last
    note = "its last loss is NaN"
    assert "Its last loss is NaN, as its program has reported" in cli(project, "why", "digits").stdout
    assert note in cli(project, "status").stdout and cli(project, "runs", "digits").stdout.count(note) == 1
    shown = cli(project, "runs", "--metrics", "--sort", "loss").stdout.splitlines()
    assert shown[0].split() == ["job", "run", "phase", "loss", "epoch", "arguments"]
    rows = [(line.partition("(best")[0].split()[3], line[line.index("{") :]) for line in shown[1:]]
    assert rows == [("1.5", '{"lr": 0.5}'), ("3.0", '{"lr": 1.0}'), ("nan", '{"lr": NaN}')], shown
    assert "(best 1.0)" in shown[1]
    entries = json.loads(cli(project, "runs", "digits", "-o", "json").stdout)
    assert [entry["metrics"]["loss"]["last"] for entry in entries] == ["3.0", "1.5", "nan"], "the newest last"
    points = [{**point, "time": 0} for point in entries[0]["history"]["loss"]]
    assert points == [{"step": i, "time": 0, "value": value} for i, value in enumerate(("4.0", "2.0", "3.0"))]
    lines = [line for line in cli(project, "runs", "digits").stdout.splitlines() if line.startswith("  metrics  ")]
    assert len(lines) == 3 and all(line.index("loss") < line.index("epoch") for line in lines), "in the same order"
    assert all([*entry["metrics"]] == [*entry["history"]] == ["loss", "epoch"] for entry in entries)
    assert cli(project, "runs", "--metrics").stdout.splitlines()[0].split()[3:5] == ["loss", "epoch"]
    assert '"points"' not in str(project.resources()), "the history is too large for the state"
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    jobs = client.connect(stack=project.stack, project_dir=str(project.folder))
    first, second, third = jobs.runs("digits")
    assert (
        jobs.metrics("digits", first.id)["loss"]
        == client.Metric("4.0", "3.0", "2.0", "2.0", "4.0")
        == first.metrics["loss"]
    )
    assert [point.value for point in jobs.history("digits", second.id)["loss"]] == ["2.0", "1.0", "1.5"]
    for run, entry in zip((first, second, third), entries, strict=True):
        shown = {**run.to_dict(), "history": {name: [*map(vars, points)] for name, points in run.history.items()}}
        assert shown.items() <= entry.items() and run.usage.to_dict() == entry["usage"], "the same names"
    assert jobs.metrics("digits")["loss"].last == third.metrics["loss"].last == "nan"
    with pytest.raises(client.Invalid, match="no run 'nothing' is recorded"):
        jobs.metrics("digits", "nothing")
    status = jobs.status("digits")
    assert status.progress is not None and status.progress["metrics"] == {"loss": "nan", "epoch": "2"}
    assert json.loads(cli(project, "status", "-o", "json").stdout)[0]["progress"] == status.progress
