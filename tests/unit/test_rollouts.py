"""Roll-outs of a channel in waves: how far one is, what stops it, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pulumi_trainer as trainer
import pytest
from pulumi_trainer.plan.offer import Offer
from pulumi_trainer.provider.jobs.metrics import Metric
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.submission import Consumer
from pulumi_trainer.provider.kubernetes.errors import Invalid, TargetFault
from pulumi_trainer.provider.lifecycle.rollout import hold_reasons, regressions
from pulumi_trainer.provider.trainer.runtime_rollout import (
    Rollout,
    Waves,
    begin_or_go_on,
    is_reached,
    next_wave,
    progress_note,
)
from test_podgroups import problems

WAVES = Waves([["nlp/canary"], ["nlp", "vision"]], 7200, {"seconds": 1.1, "loss": 1.02})
FIRST = Rollout("1.0.0", 1, 100.0)


@pytest.mark.parametrize(
    ("recorded", "rollout", "release", "expected"),
    [
        ("", Rollout(), "1.1.0", Rollout()),  # a new channel
        ("1.1.0", Rollout(), "1.1.0", Rollout()),
        ("1.0.0", Rollout(), "1.1.0", Rollout("1.0.0", 1, 500.0)),
        ("1.1.0", FIRST, "1.1.0", FIRST),
        ("1.1.0", FIRST, "1.2.0", Rollout("1.0.0", 1, 500.0)),  # a better one, before all have the first
        ("1.1.0", FIRST, "1.0.0", Rollout(left="1.1.0")),
        ("1.0.0", Rollout(left="1.1.0"), "1.0.0", Rollout(left="1.1.0")),
        ("1.0.0", Rollout(left="1.1.0"), "1.2.0", Rollout("1.0.0", 1, 500.0, "1.1.0")),
        ("1.0.0", Rollout(left="1.1.0"), "1.1.0", Rollout("1.0.0", 1, 500.0)),  # once more
        ("1.1.0", Rollout(), "1.0.0", Rollout(left="1.1.0")),  # after its last wave
    ],
)
def test_a_change_of_the_release(recorded: str, rollout: Rollout, release: str, expected: Rollout) -> None:
    assert begin_or_go_on(recorded, rollout, release, WAVES, 500.0) == expected


def test_waves_follow_each_other() -> None:
    second = next_wave(FIRST, WAVES, 900.0)
    assert second == Rollout("1.0.0", 2, 900.0) and WAVES.moved(second) == ["nlp/canary", "nlp", "vision"]
    assert next_wave(second, WAVES, 1000.0) == Rollout()
    assert begin_or_go_on("1.0.0", Rollout(), "1.1.0", Waves(), 1.0) == Rollout(), "all at once"
    assert is_reached("nlp/canary", WAVES.moved(FIRST)) and not is_reached("nlp/other", WAVES.moved(FIRST))
    assert progress_note(second, "1.1.0", WAVES, [], "12:00 UTC") == (
        "1.1.0 has reached nlp/canary, nlp, vision; all others get 1.0.0; "
        "the last wave (all others) moves with the first `pulumi up` after 12:00 UTC"
    )


def test_state_that_was_written_by_the_engine_or_edited() -> None:
    assert Rollout.from_dict({"before": "1.0.0", "wave": 1.0, "since": 100.0}) == FIRST
    assert Rollout.from_dict(FIRST.to_dict()) == FIRST
    for edited in (None, "x", {"wave": "two", "since": [], "before": 3}):
        assert Rollout.from_dict(edited) == Rollout()


def run(release: str, loss: str | None = "1", seconds: float = 10.0, phase: str = "Succeeded") -> Run:
    metrics = {} if loss is None else {"loss": Metric(last=loss)}
    inputs = {"runtime": f"ddp@{release} 0123"}
    return Run(id=release, phase=phase, inputs=inputs, metrics=metrics, started=100.0, finished=100.0 + seconds)


def worse(*runs: Run) -> list[str]:
    return [*regressions("nlp/canary", runs, "ddp@1.0.0", "ddp@1.1.0", WAVES.limits or {})]


def test_a_metric_that_is_worse_or_unknown() -> None:
    assert worse(run("1.0.0"), run("1.1.0", "1.02", 10.9)) == []
    assert worse(run("1.0.0"), run("1.1.0", "1.05", 12.0)) == [
        "nlp/canary: seconds 12 on ddp@1.1.0, 10 on ddp@1.0.0: more than 1.1 times",
        "nlp/canary: loss 1.05 on ddp@1.1.0, 1 on ddp@1.0.0: more than 1.02 times",
    ]
    assert worse(run("1.0.0"), run("1.1.0", None)) == ["nlp/canary: loss of run 1.1.0 is not known"]
    assert worse(run("1.0.0"), run("1.1.0", "nan"))[0] == "nlp/canary: loss of run 1.1.0 is not known"
    assert worse(run("1.0.0", "0"), run("1.1.0", "0")) == worse(run("1.0.0", "-1"), run("1.1.0", "-2")) == []
    assert worse(run("1.0.0", "-2"), run("1.1.0", "-1")) and worse(run("1.0.0", "0"), run("1.1.0", "0.1"))
    assert worse(run("1.0.0", phase="Failed"), run("1.1.0")) == [
        "nlp/canary has no run that has succeeded on ddp@1.0.0"
    ]


def test_a_metric_of_which_more_is_better() -> None:
    def compared(first: str, second: str) -> list[str]:
        runs = [run("1.0.0"), run("1.1.0")]
        for each, value in zip(runs, (first, second), strict=True):
            each.metrics["accuracy"] = Metric(last=value)
        return [*regressions("a/b", runs, "ddp@1.0.0", "ddp@1.1.0", {"accuracy": 1.02})]

    assert compared("0.9", "0.95") == compared("0.9", "0.89") == []
    assert compared("0.9", "0.1") == ["a/b: accuracy 0.1 on ddp@1.1.0, 0.9 on ddp@1.0.0: less than 0.98 times"]


class Jobs:
    """consumers: Jobs of the runtime, or why they cannot be listed."""

    def __init__(self, *found: Consumer, fault: str = "", note: str = "") -> None:
        self.found, self.fault, self.note = found, fault, note

    def consumers(self, runtime: str) -> tuple[list[Consumer], str]:
        if self.fault:
            raise TargetFault(self.fault)
        return [*self.found], self.note

    def runs(self, namespace: str, name: str) -> list[Run]:
        return [run("1.0.0"), run("1.1.0")]


def canary(release: str = "1.1.0", **more: Any) -> Consumer:
    return Consumer("nlp/canary", "ddp", release, **{"ended": True, **more})


@pytest.mark.parametrize(
    ("jobs", "why"),
    [
        (Jobs(canary()), []),
        (Jobs(canary(), Consumer("vision/a", "ddp", "1.0.0", failed=True)), []),
        (Jobs(), ["nlp/canary has not run on 1.1.0 yet"]),
        (Jobs(canary("1.0.0")), ["nlp/canary has not run on 1.1.0 yet"]),
        (Jobs(canary(ended=False)), ["nlp/canary still runs on 1.1.0"]),
        (Jobs(fault="no answer"), ["whether its jobs have failed is not known: no answer"]),
        (Jobs(canary(), note="only jobs of nlp could be seen"), ["only jobs of nlp could be seen"]),
    ],
)
def test_what_a_wave_waits_for(jobs: Any, why: list[str]) -> None:
    assert hold_reasons(jobs, "ddp", "1.1.0", FIRST, WAVES, 0.0) == why


def test_a_failed_job_stops_the_next_wave() -> None:
    failed = Consumer("vision/a", "ddp", "1.1.0", ended=True, failed=True)
    jobs: Any = Jobs(canary(), failed)
    assert hold_reasons(jobs, "ddp", "1.1.0", Rollout("1.0.0", 2, 0.0), WAVES, 0.0) == ["vision/a has failed on 1.1.0"]


@pytest.mark.parametrize(
    ("last", "ended", "why"),
    [
        ({"finished": 0.0, "phase": "Running"}, False, ["nlp/canary still runs on 1.1.0"]),
        (
            {"started": 40.0, "finished": 0.0, "phase": "Running"},
            False,
            ["nlp/canary hangs on 1.1.0: it has run for 2m40s, max_duration is 2m00s"],
        ),
        (
            {"started": 0.0, "created": 10.0, "finished": 0.0, "phase": "Pending"},
            False,
            ["nlp/canary hangs on 1.1.0: it has waited for 3m10s, max_duration is 2m00s"],
        ),
        ({"started": 40.0, "finished": 190.0}, True, ["nlp/canary ran for 2m30s on 1.1.0, max_duration is 2m00s"]),
        ({"started": 100.0, "finished": 190.0}, True, []),
    ],
)
def test_a_canary_has_a_bound(last: dict[str, Any], ended: bool, why: list[str]) -> None:
    jobs: Any = Jobs(canary(ended=ended))
    jobs.runs = lambda *_: [run("1.0.0"), replace(run("1.1.0"), **last)]
    assert hold_reasons(jobs, "ddp", "1.1.0", FIRST, replace(WAVES, longest=120.0, limits={}), 200.0) == why


def offer(**rollout: Any) -> dict[str, Any]:
    document = {"kind": "ClusterTrainingRuntime", "metadata": {"name": "ddp"}}
    given = Offer("stable", "ddp", "1.1.0", dict.fromkeys(("1.0.0", "1.1.0"), document), **rollout)
    return given.output


def test_other_stacks_get_the_release_of_their_wave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulumi_trainer.plan.offer.refusals", lambda *_: [])
    monkeypatch.setattr("pulumi_trainer.plan.offer.configured_release", lambda: None)
    read = Offer.read(offer(before="1.0.0", moved=["nlp/canary", "vision"]))
    of = {where: read.of_job(where).release for where in ("nlp/canary", "nlp/other", "vision/a")}
    assert of == {"nlp/canary": "1.1.0", "nlp/other": "1.0.0", "vision/a": "1.1.0"}
    assert Offer.read(offer()).of_job("nlp/other").release == "1.1.0" and "rollout" not in offer()
    for wrong in ({"before": "7"}, {"before": ["1.0.0"]}, {"moved": "nlp"}, {"moved": [7]}):
        with pytest.raises(Invalid, match="not a valid roll-out of a RuntimeChannel"):
            Offer.read({**offer(), "rollout": wrong})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"waves": [["nlp"], "vision"]}, "waves[1]: must be a list of namespaces and jobs"),
        ({"waves": [["nlp"], []]}, "waves[1]: must be a list of namespaces and jobs"),
        ({"waves": [["Nlp"]]}, "waves[0][0]: must be a namespace, or a job as NAMESPACE/NAME"),
        ({"waves": [["nlp"], ["nlp"]]}, "waves[1][0]: nlp is a duplicate"),
        ({"waves": [["nlp"]], "soak": "two hours"}, "soak: must be a duration such as 30m or 2h"),
        ({"waves": [["nlp"]], "max_regression": {"loss": 0}}, "max_regression[loss]: must be a number such as 1.1"),
        ({"waves": [["nlp"]], "max_regression": {"loss": float("nan")}}, "max_regression[loss]: must be a number"),
        (
            {"waves": [["nlp"]], "max_regression": {"temperature": 1.1}},
            "max_regression[temperature]: whether a lower or a higher value is better is not known",
        ),
        ({"waves": [["nlp"]], "max_regression": ["loss"]}, "max_regression: must be a mapping"),
        ({"waves": None}, "waves: must be a list"),
        ({"waves": 5}, "waves: must be a list"),
        ({"waves": [[["ci/canary"]]]}, "waves[0][0]: must be a namespace"),
        ({"soak": "2h"}, "waves: is missing: soak=, max_regression= and max_duration= are about the waves"),
        ({"max_duration": "2h"}, "waves: is missing: soak="),
        ({"waves": [["nlp"]], "max_duration": "0s"}, "max_duration: must be a duration such as 30m or 2h, not '0s'"),
        ({"waves": [["nlp"]], "max_duration": 90}, "max_duration: must be a duration such as 30m or 2h, not 90"),
    ],
)
def test_all_that_is_wrong_names_its_place(given: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulumi.Output.from_input", lambda given: given.close())
    found = problems(lambda: trainer.RuntimeChannel("stable", release="torch-distributed@1.0.0", **given), monkeypatch)
    assert any(why in line for line in found), found
