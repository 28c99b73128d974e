"""`TrainJob(queue=, priority=)`: labels of both modes, conflicts, and what belongs to Kueue."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pulumi
import pulumi_trainer as trainer
import pytest
from pulumi_trainer import composition, selection
from pulumi_trainer.composition import TrainJobArgs
from pulumi_trainer.job import Plan

QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
RUNTIME: dict[str, Any] = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "r"},
    "spec": {
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "x"}]}}},
                        },
                    }
                ]
            }
        }
    },
}


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Any:
    settings = pulumi.runtime.Settings(project="project", stack="stack")
    monkeypatch.setattr(pulumi.runtime.settings, "SETTINGS", settings)
    for finder in ("from_catalogue", "_named"):
        monkeypatch.setattr(selection, finder, lambda *_: (copy.deepcopy(RUNTIME), []))

    def plan(mode: str = "jobset", **given: Any) -> Plan:
        async def planning() -> Plan:
            target = trainer.Kubernetes(mode=mode)  # type: ignore[arg-type]
            made = {k: v() if callable(v) else v for k, v in given.items()}
            return await composition.plan("job", TrainJobArgs(runtime="r", target=target, **made))

        return asyncio.run(planning())

    return plan


def main(plan: Plan) -> dict[str, Any]:
    assert [str(p) for p in plan.problems] == []
    (found,) = (o for key, o in plan.objects.items() if key.startswith(("JobSet/", "TrainJob/")))
    return found


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_queue_and_priority_are_labels_of_the_job(planned: Any, mode: str) -> None:
    job = main(planned(mode, queue="team", priority="high", labels={"a": "b"}))
    assert job["kind"] == {"jobset": "JobSet", "trainer": "TrainJob"}[mode]
    assert job["metadata"]["labels"] == {QUEUE: "team", PRIORITY: "high", "a": "b"}


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_suspend_of_a_job_with_a_queue_is_kueues(planned: Any, mode: str) -> None:
    """However the queue was given: a manager that applies the field would take it out of Kueue's hands."""
    for given in ({"queue": "team"}, {"labels": {QUEUE: "team"}}):
        assert "suspend" not in main(planned(mode, **given))["spec"]
        assert "suspend" not in main(planned(mode, suspend=False, **given))["spec"]
        (problem,) = planned(mode, suspend=True, **given).problems
        assert problem.where == "suspend" and "Kueue" in problem.why
    assert main(planned(mode, suspend=True))["spec"]["suspend"] is True
    assert main(planned(mode, suspend=True, priority="high"))["spec"]["suspend"] is True


def test_labels_that_are_not_known_yet_keep_the_queue(planned: Any) -> None:
    known = lambda: pulumi.Output.from_input({"a": "b"})  # noqa: E731
    assert main(planned(labels=known, queue="team"))["metadata"]["labels"] == {QUEUE: "team", "a": "b"}
    both = lambda: pulumi.Output.from_input({QUEUE: "other"})  # noqa: E731
    (problem,) = planned(labels=both, queue="team").problems
    assert problem.where == "queue" and "as well" in problem.why


@pytest.mark.parametrize(
    ("given", "where", "why"),
    [
        ({"queue": "a", "labels": {QUEUE: "b"}}, "queue", f"is given by labels[{QUEUE}] as well"),
        ({"queue": "a", "labels": {QUEUE: "a"}}, "queue", "as well"),
        ({"priority": "a", "labels": {PRIORITY: "b"}}, "priority", "as well"),
        ({"queue": "Team_A"}, "queue", "'Team_A' can be no name"),
        ({"priority": "High"}, "priority", "'High' can be no name"),
        ({"labels": {QUEUE: "Team_A"}}, f"labels[{QUEUE}]", "can be no name"),
        ({"queue": ""}, "queue", "is empty"),
        ({"queue": 3}, "queue", "must be str"),
        ({"queue": "q" * 64}, f"labels[{QUEUE}]", "63"),
    ],
)
def test_what_is_wrong_is_told_by_its_argument(planned: Any, given: dict[str, Any], where: str, why: str) -> None:
    found = planned(**given).problems
    assert any(why in p.why for p in found), found
    assert {p.where for p in found} <= {where, "labels"}


def test_a_queue_by_argument_is_the_same_job_as_by_label(planned: Any) -> None:
    assert planned(queue="team").content == planned(labels={QUEUE: "team"}).content
    assert planned(queue="team").content != planned(queue="other").content
