"""Which step of a typed runtime takes the trainer's section when nobody says so."""

from __future__ import annotations

from typing import Any

from pulumi_trainer import JobSetTemplate, ReplicatedJob
from pulumi_trainer.args.template import ANCESTOR


def labels(*steps: ReplicatedJob) -> dict[str, Any]:
    jobs = JobSetTemplate(replicated_jobs=steps).document()["spec"]["replicatedJobs"]
    return {job["name"]: job["template"].get("metadata", {}).get("labels") for job in jobs}


def test_node_takes_it() -> None:
    assert labels(ReplicatedJob(name="node")) == {"node": {ANCESTOR: "trainer"}}
    assert labels(ReplicatedJob(name="node"), ReplicatedJob(name="launcher"))["node"] == {ANCESTOR: "trainer"}


def test_node_keeps_its_own_command_where_another_step_takes_it() -> None:
    """With MPI two steps that take it would both run the user's code."""
    launcher = ReplicatedJob(name="launcher", ancestor="trainer")
    assert labels(ReplicatedJob(name="node"), launcher) == {"node": None, "launcher": {ANCESTOR: "trainer"}}
    assert labels(launcher, ReplicatedJob(name="node", labels={"a": "b"}))["node"] == {"a": "b"}


def test_what_is_said_of_node_stays() -> None:
    launcher = ReplicatedJob(name="launcher", ancestor="trainer")
    assert labels(launcher, ReplicatedJob(name="node", ancestor="trainer"))["node"] == {ANCESTOR: "trainer"}
    assert labels(launcher, ReplicatedJob(name="node", labels={ANCESTOR: "mine"}))["node"] == {ANCESTOR: "mine"}
