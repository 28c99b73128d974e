"""The metrics of a run: what is kept of its reports on this machine and in the record of a cluster, and the table of runs."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import pytest
from local_support import NAMESPACE, jobset, log, python, run, step, submission, wait
from pulumi_trainer.provider.cli import runs
from pulumi_trainer.provider.jobs.metrics import MOST_BYTES, MOST_POINTS, Metric, Metrics, is_lower_better, read_summary
from pulumi_trainer.provider.jobs.progress import progress, read_metrics, timestamp
from pulumi_trainer.provider.jobs.runs import Identity, Run, read_runs
from pulumi_trainer.provider.jobs.status import JobStatus, describe
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.lifecycle.diagnosis import JobView
from pulumi_trainer.provider.service.reach import ReachedJob, Where
from pulumi_trainer.provider.targets.kubernetes.jobs import record, run_end
from pulumi_trainer.provider.targets.local import LocalTarget

REPORTS = """
import json
for step, loss in enumerate({values}):
    status = {{"step": step, "metrics": [{{"name": "loss", "value": loss}}]}}
    print(json.dumps({{"trainerStatus": status}}), flush=True)
"""


def reported(*values: object, name: str = "loss", whole: bool = True) -> Metrics:
    return Metrics.of(
        ({"step": i, "metrics": {name: str(value)}, "lastUpdatedTime": timestamp(i)} for i, value in enumerate(values)),
        whole,
    )


def test_first_last_and_best() -> None:
    assert reported(2.5, 0.5, 0.75).summary() == {"loss": Metric("2.5", "0.75", "0.5", "0.5", "2.5")}
    assert reported(0.1, 0.9, 0.8, name="eval_accuracy").summary()["eval_accuracy"].best == "0.9"
    assert reported(1, 3, 2, name="grad_norm").summary() == {"grad_norm": Metric("1", "2", "", "1", "3")}
    assert reported(1, 2, whole=False).summary()["loss"].first == "", "it is not known"


def test_nan_at_the_end_is_the_last_value() -> None:
    found = reported(0.5, "nan", "inf", "nan").summary()["loss"]
    assert found == Metric("0.5", "nan", "0.5", "0.5", "0.5")
    assert reported("nan").summary()["loss"] == Metric("nan", "nan")
    assert reported("warm-up", name="phase").summary()["phase"] == Metric("warm-up", "warm-up")


@pytest.mark.parametrize(
    ("name", "lower"),
    [
        ("loss", True), ("eval_loss", True), ("eval/wer", True), ("val-perplexity", True), ("reward_loss", True),
        ("accuracy", False), ("rewards/accuracies", False), ("macro f1", False), ("eval.BLEU", False),
        ("learning_rate", None), ("epoch", None), ("glossy", None),
    ],
)  # fmt: skip
def test_the_usual_direction(name: str, lower: bool | None) -> None:
    assert is_lower_better(name) is lower


@pytest.mark.parametrize("count", [1, 2, MOST_POINTS, MOST_POINTS + 1, 1000, 1023, 4097])
def test_the_history_is_thinned_out_evenly(count: int) -> None:
    points = reported(*range(count)).history()["loss"]
    assert len(points) <= MOST_POINTS and (points[0].value, points[-1].value) == ("0", str(count - 1))
    steps = [point.step or 0 for point in points]
    gaps = {after - before for before, after in pairwise(steps[:-1])}
    assert len(gaps) <= 1 and len(points) >= min(count, MOST_POINTS // 2)
    again = Metrics.from_text(reported(*range(count - 1)).to_text())
    again.report({"step": count - 1, "metrics": {"loss": str(count - 1)}, "lastUpdatedTime": timestamp(count - 1)})
    assert again.history()["loss"] == points, "a run goes on after it was suspended"


@pytest.mark.parametrize(
    "name", ["m", 'quoted "', "ü" * 60, "\U0001f600" * 60], ids=["short", "quoted", "umlauts", "emoji"]
)
def test_all_metrics_of_a_run_have_a_bound(name: str) -> None:
    made = Metrics()
    for at in range(60):
        made.report({"step": 1 << 62, "metrics": {f"{name}{i}": name for i in range(4 * at + 20)}})
        if at % 10 == 0:
            assert len(made.to_text().encode()) <= MOST_BYTES
    assert 0 < len(made.to_text().encode()) <= MOST_BYTES
    assert Metrics.from_text(made.to_text()).to_text() == made.to_text()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "5",
        "{",
        "[" * 100_000,
        '{"loss": 5}',
        '{"loss": {"last": [1]}}',
        '{"a\\u001b": {"last": "1"}}',
        '{"": {"last": "1"}}',
    ],
)
def test_an_edited_file_has_no_metrics(text: str) -> None:
    assert not Metrics.from_text(text)


def test_an_edited_history_loses_what_is_not_valid() -> None:
    points = [[1, 2, "3"], [True, "x", "4"], [1, 2], "x", [1, 2, "\x1b"], [-1, 1e300, 5], *[[1, 1, "6"]] * 1000]
    found = Metrics.from_text(json.dumps({"loss": {"last": "1", "count": -5, "every": 0, "points": points[:6]}}))
    assert [(each.step, each.time, each.value) for each in found.history()["loss"]] == [
        (1, 2.0, "3"), (None, 0.0, "4"), (None, 0.0, "5"),
    ]  # fmt: skip
    found.report({"metrics": {"loss": "7"}})
    assert (
        len(Metrics.from_text(json.dumps({"loss": {"last": "1", "points": points}})).history()["loss"]) <= MOST_POINTS
    )
    assert read_summary({"loss": {"last": 0.5, "first": "\x1b"}, "x": []}) == {"loss": Metric(last="0.5")}


def test_progress_has_metrics_by_name() -> None:
    line = b'{"trainerStatus": {"metrics": [{"name": "loss", "value": 0.5}, {"name": "epoch", "value": "1"}]}}'
    found = progress(line, 1.0)
    assert found is not None and found["metrics"] == {"loss": "0.5", "epoch": "1"}
    status = JobStatus.from_dict({"name": "a", "namespace": "b", "progress": {"metrics": {"loss": "0.5"}}})
    assert describe(status, phase=False) == "loss 0.5"
    assert read_metrics([{"name": "a"}, 5, {"name": "b\n", "value": 1}, {"name": "c", "value": float("nan")}]) == {
        "c": "nan"
    }


def test_runs_of_this_machine_keep_their_metrics(local: LocalTarget) -> None:
    document = jobset(step(command=python(REPORTS.format(values=[2.5, 0.5, "nan"]))))
    run(local, document)
    (only,) = local.jobs.runs(NAMESPACE, "job")
    assert only.metrics == {"loss": Metric("2.5", "nan", "0.5", "0.5", "2.5")}
    assert [point.value for point in only.history["loss"]] == ["2.5", "0.5", "nan"]
    local.jobs.rerun(submission(document))
    wait(local)
    first, second = local.jobs.runs(NAMESPACE, "job")
    assert first.metrics == second.metrics == only.metrics and first.history == only.history
    text = (local.root / "jobs" / NAMESPACE / "job" / "record.json").read_text()
    assert '"nan"' in text and "points" not in text, "the history is not read with the record"
    assert log(local).count("trainerStatus") == 3


def test_a_job_that_is_created_again_has_the_history_of_its_earlier_runs(local: LocalTarget) -> None:
    history = reported(3, 2).to_text()
    earlier = [
        Run("1", "Succeeded", id="a1", metrics=reported(3, 2).summary(), history_text=history),
        Run("1", "Failed", id="a2"),
    ]
    sent = submission(jobset(step()))
    local.jobs.create(replace(sent, earlier=earlier))
    wait(local)
    found = local.jobs.runs(NAMESPACE, "job")
    assert [each.history_text for each in found] == [history, "", ""]
    assert found[0].metrics["loss"].best == "2"


def ended(earlier: list[Run], histories: dict[str, str], view: JobView) -> dict[str, str | None]:
    """Return the end of a job as its record gets it."""
    kept = record.Record.of(
        {
            "metadata": {"name": "j", "namespace": "team", "labels": {"pulumi-trainer.dev/record": "true"}},
            "data": {
                record.EARLIER: record.runs_as_text(earlier),
                record.IDENTITY: json.dumps(Identity(id="z99").to_dict()),
                **record.histories_as_data(histories),
            },
        }
    )
    status = JobStatus("j", "team", phase="Succeeded", progress={"metrics": {"loss": "0.25"}})
    return run_end.end_of(kept, status, view)


def test_the_record_of_a_cluster_gets_the_metrics_with_the_end() -> None:
    metrics = reported(3, 2, 1)
    end = ended([], {}, JobView("team", "j", metrics=metrics))
    assert end[f"{record.METRICS}z99"] == metrics.to_text()
    only_reported = ended([], {}, JobView("team", "j"))[f"{record.METRICS}z99"]
    assert Metrics.from_text(only_reported or "").summary()["loss"] == Metric("", "0.25", "0.25", "0.25", "0.25")
    later = Metrics.of([{"step": 2, "metrics": {"loss": "4"}, "lastUpdatedTime": timestamp(9)}])
    for _ in range(2):
        again = ended([], {"z99": metrics.to_text()}, JobView("team", "j", metrics=later))[f"{record.METRICS}z99"]
        found = Metrics.from_text(again or "")
        assert [point.value for point in found.history()["loss"]] == ["3", "2", "1", "4"], "the run went on"
        assert found.summary()["loss"] == Metric("3", "4", "1", "1", "4")
        metrics = found


def test_a_record_with_many_metrics_is_below_900_kb() -> None:
    big = Metrics()
    for at in range(40):
        big.report({"step": at, "metrics": {f"metric-{i}" + "é" * 40: "é" * 64 for i in range(256)}})
    names = [f"a{i}" for i in range(10, 29)]
    inputs = {f"dataset{i}": "x" * 900 for i in range(5)}
    earlier = [Run("1", "Succeeded", id=name, inputs=inputs, metrics=big.summary()) for name in names]
    end = ended(earlier, dict.fromkeys(names, big.to_text()), JobView("team", "j", metrics=big))
    kept = [name for name in [*names, "z99"] if end.get(f"{record.METRICS}{name}")]
    assert kept == [*names, "z99"][-len(kept) :] and 3 <= len(kept) < 20, "the newest ones"
    text = record.runs_as_text(earlier)
    size = len(text) + sum(len(value or "") for value in end.values())
    assert size < 900_000, size
    with_summary = [each.id for each in read_runs(json.loads(text)) if each.metrics]
    assert with_summary and with_summary == names[-len(with_summary) :]


def test_runs_of_usual_metrics_all_keep_their_history_in_a_cluster() -> None:
    usual = Metrics()
    for at in range(5000):
        usual.report(
            {
                "step": at,
                "metrics": dict.fromkeys(("loss", "grad_norm", "lr"), "0.123456"),
                "lastUpdatedTime": timestamp(1.8e9),
            }
        )
    names = [f"a{i}" for i in range(10, 30)]
    assert len(record.histories_as_data(dict.fromkeys(names, usual.to_text()))) == 20


class Target:
    """Jobs of this machine, with runs."""

    def __init__(self, *found: Run) -> None:
        self.found = [*found]

    @property
    def jobs(self) -> Target:
        return self

    def runs(self, *_: object) -> list[Run]:
        return self.found


def a_run(name: str, arguments: str, *values: object, metric: str = "loss") -> Run:
    made = reported(*values, name=metric)
    return Run(
        "1",
        "Succeeded",
        id=name,
        inputs={"arguments": arguments, "nodes": "1"},
        metrics=made.summary(),
        history_text=made.to_text(),
    )


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def show(*jobs: Target, **options: Any) -> str:
        found = [ReachedJob("team", f"job-{i}", f"job-{i}", local=cast(Any, each)) for i, each in enumerate(jobs)]
        monkeypatch.setattr(runs, "chosen_jobs", lambda *_: found)
        runs.runs(None, Where(), **{"output": "table", **options})
        return capsys.readouterr().out

    return show


def test_a_sweep_is_sorted_by_a_metric(shown: Any) -> None:
    sweep = [
        Target(a_run("a1", '{"lr": 0.1}', 3, 0.9)),
        Target(a_run("a2", '{"lr": 10}', 3, "nan"), a_run("a3", '{"lr": 0.3}', 3, 0.05, 0.2)),
        Target(Run("1", "Running", id="a4")),
        Target(replace(a_run("a5", "", 4096, metric="bytes"), inputs={"dataset": "file://data 5d72"})),
    ]
    lines = shown(*sweep, metrics=True, sort="loss").splitlines()
    assert [line.split() for line in lines[:1]] == [["job", "run", "phase", "loss", "arguments"]]
    assert [line.split()[1] for line in lines[1:]] == ["a3", "a1", "a2", "a4"]
    assert "0.2 (best 0.05)" in lines[1] and '{"lr": 0.3}' in lines[1] and "nan (best 3)" in lines[3]
    with pytest.raises(Invalid, match=r"unknown metric 'los'. Hint: did you mean loss\? available: loss"):
        shown(*sweep, metrics=True, sort="los")
    with pytest.raises(Invalid, match="has no effect without --metrics"):
        shown(*sweep, sort="loss")
    with pytest.raises(Invalid, match="there are 4 jobs"):
        shown(*sweep)
    entries = json.loads(shown(*sweep, metrics=True, output="json"))
    assert [(each["job"], each["id"]) for each in entries] == [
        ("job-0", "a1"), ("job-1", "a2"), ("job-1", "a3"), ("job-2", "a4"),
    ]  # fmt: skip
    assert entries[1]["metrics"]["loss"]["last"] == "nan"
    assert entries[2]["history"] == {}, "of a sweep they are large"
    (_, entry) = json.loads(shown(sweep[1], metrics=True, output="json"))
    assert entry["history"]["loss"][1] == {"step": 1, "time": 1.0, "value": "0.05"}


def test_the_greatest_accuracy_comes_first(shown: Any) -> None:
    jobs = [Target(a_run(f"a{i}", "", value, metric="accuracy")) for i, value in enumerate((0.5, 0.9))]
    assert [line.split()[1] for line in shown(*jobs, metrics=True, sort="accuracy").splitlines()[1:]] == ["a1", "a0"]


def test_runs_of_a_job_show_their_metrics(shown: Any) -> None:
    lines = shown(Target(a_run("a1", '{"lr": 0.1}', 3, 0.5), a_run("a2", '{"lr": 1}', 3, "nan"))).splitlines()
    assert [line.split(None, 1) for line in lines if "metrics" in line] == [
        ["metrics", "loss 0.5"], ["metrics", "loss nan (best 3)"],
    ]  # fmt: skip


def test_a_table_shows_six_metrics_and_names_the_others(shown: Any) -> None:
    made = Metrics()
    made.report({"metrics": {f"m{i}": str(i) for i in range(8)}})
    text = shown(Target(Run("1", "Succeeded", id="a1", metrics=made.summary())), metrics=True, sort="m7")
    assert text.splitlines()[0].split() == ["job", "run", "phase", "m7", "m0", "m1", "m2", "m3", "m4", "arguments"]
    assert text.splitlines()[-1] == "2 more metrics, with -o json: m5, m6"
