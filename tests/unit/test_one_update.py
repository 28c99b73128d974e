"""What the update of one resource means for the other resources of the stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.lifecycle.jobs import Jobs
from pulumi_trainer.provider.lifecycle.resource import StateCalls
from pulumi_trainer.provider.lifecycle.runtimes import Runtimes
from pulumi_trainer.provider.lifecycle.stack_targets import TargetInputs, Targets, UsedLabels, label_suffix
from test_lifecycle import Target, inputs, objects
from test_lifecycle_runtimes import DOCUMENT, Cluster
from test_lifecycle_runtimes import inputs as runtime_inputs


class Swept:
    """A target that remembers what was swept."""

    def __init__(self) -> None:
        self.labels: list[str] = []

    def identity(self) -> dict[str, str]:
        return {"cluster": "u-1"}

    def sweep(self, label: str, _note: Callable[[str], None], /) -> list[str]:
        self.labels.append(label)
        return ["team/left"]


def stack_targets(labels: UsedLabels) -> StateCalls[Any, Any]:
    return StateCalls(Targets(labels, lambda: "0a", print))


def test_a_target_whose_label_a_job_uses_is_not_swept() -> None:
    labels, swept = UsedLabels(), Swept()
    targets = stack_targets(labels)
    labels.use(TargetInputs(target={"sweep": "dev-1"}))
    assert targets.delete({"target": {}, "sweep": "dev-1"}, lambda _: swept) == []
    assert swept.labels == []
    notes = targets.delete({"target": {}, "sweep": "dev-2"}, lambda _: swept)
    assert notes == ["team/left has the label dev-2 of this stack and is deleted"]
    assert swept.labels == ["dev-2"]


def test_a_label_that_is_not_known_is_not_in_use() -> None:
    labels = UsedLabels()
    labels.use(TargetInputs(target={"sweep": None}))
    labels.use(TargetInputs(target={}))
    assert labels == set()


def test_a_target_has_a_label_of_stack_and_suffix() -> None:
    label, outputs = stack_targets(UsedLabels()).create(
        {"stack": "dev", "target": {"kind": "kubernetes"}}, lambda _: Swept()
    )
    assert label == outputs["sweep"] == "dev-0a"
    assert outputs["target"] == {"kind": "kubernetes", "cluster": "u-1"} and outputs["cluster"] == "u-1"


def test_without_checkpoints_the_same_place_gives_the_same_label() -> None:
    assert label_suffix("r1", ["host", "/a"], checkpoints=True) == "r1"
    same = {label_suffix(random, ["host", "/a"], checkpoints=False) for random in ("r1", "r2")}
    assert len(same) == 1 and label_suffix("r1", ["host", "/b"], checkpoints=False) not in same


@pytest.mark.parametrize("replaces", [(), ("document",)])
def test_a_runtime_that_another_resource_has_is_not_deleted(replaces: tuple[str, ...]) -> None:
    cluster, runtimes = Cluster(), StateCalls(Runtimes())
    made = runtime_inputs()
    _, outputs = StateCalls(Runtimes()).create(made, lambda _: cluster)
    cluster.asked.clear()
    news = {**made, "document": {**DOCUMENT, "metadata": {"name": "other"}}} if replaces else made
    assert runtimes.diff(outputs, news).replaces == replaces
    runtimes.delete(outputs, lambda _: cluster)
    assert cluster.asked == ([("r", "uid", False)] if replaces else [])


def test_the_runs_of_a_job_survive_a_replacement_that_has_deleted_its_record() -> None:
    """The engine checks the replacement again, without the old inputs, and no record has the runs before it."""
    target, jobs = Target("Running"), StateCalls(Jobs(UsedLabels()))
    earlier = [{"run": "1", "phase": "Succeeded", "created": 1.0, "finished": 2.0, "inputs": {"code": "a"}}]
    made = jobs.check({}, inputs(run="2", runInputs={"code": "b"}), lambda _: target).inputs
    news = inputs(run="3", runInputs={"code": "c"}, digest="d3", objects=objects(image="x:3"))
    assert jobs.check({**made, "earlierRuns": earlier}, news, lambda _: target).inputs["generation"] == 2
    identity = {"id": "t4kz1f", "lineage": "t4kz0a", "parent": "t4kz0a", "cause": "changed", "place": "data"}
    after = {**made, "generation": 2, "component": news["component"]}
    for phase, kept, note in (
        ("Running", "Deleted", "it is not known whether it had ended"),
        ("Failed", "Failed", None),
    ):
        jobs.diff({**made, "identity": identity, "uid": "u", "phase": phase}, after)
        again = jobs.check({}, news, lambda _: target).inputs["earlierRuns"]
        assert again[0] == {**earlier[0], **again[0]} and len(again) == 2
        known = {"run": "2", "phase": kept, "inputs": {"code": "b"}, "created": float(int("t4kz1f", 36)), **identity}
        assert again[1] == {**again[1], **known} and again[1].get("note") == note
    assert "earlierRuns" not in jobs.check({}, inputs(component="urn:2"), lambda _: target).inputs


def test_a_record_knows_the_runs_before_a_replacement_better() -> None:
    target, jobs = Target("Running"), StateCalls(Jobs(UsedLabels()))
    given = inputs(run="1", runInputs={"code": "a"})
    made = jobs.check({}, given, lambda _: target).inputs
    jobs.create(made, lambda _: target)
    target.made["j"].phase = "Succeeded"
    target.earlier = [Run("1", "Succeeded", created=5.0, inputs={"code": "a"})]
    news = {**given, "run": "2", "digest": "d2"}
    jobs.check(made, news, lambda _: target)
    (run,) = jobs.check({}, news, lambda _: target).inputs["earlierRuns"]
    assert (run["phase"], run["created"]) == ("Succeeded", 5.0)
