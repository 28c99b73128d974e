"""What may change in a job with a queue, what Kueue refuses of one, and how it ends one that runs too long."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pulumi_trainer as trainer
import pytest
from pulumi_trainer.provider.kubernetes.client.client import ApiError
from pulumi_trainer.provider.kueue.api_resources import QUEUE_PRIORITY, WORKLOAD
from pulumi_trainer.provider.kueue.job_webhook import queued_problems
from pulumi_trainer.provider.kueue.labels import (
    MAX_EXECUTION,
    PREFERRED,
    PRIORITY,
    QUEUE,
    REQUIRED,
    SLICE_LEVEL,
    SLICE_SIZE,
    SLICES,
    TOGETHER,
    UNCONSTRAINED,
)
from pulumi_trainer.provider.lifecycle.changes import compare
from pulumi_trainer.provider.trainer.kinds import JOBSET

from .jobs import jobset, pod_template, until
from .programs import sent
from .teams_support import MODES, Document, Teams, made_teams  # noqa: F401 (the fixture teams)


def label(key: str, value: str | None) -> Callable[[Document], Any]:
    def change(document: Document) -> None:
        labels = document["metadata"]["labels"]
        labels.pop(key, None)
        labels |= {key: value} if value else {}

    return change


def note(key: str, value: str) -> Callable[[Document], Any]:
    """Of the pods of all steps, in the JobSet or by a TrainJob's patch."""

    def change(document: Document) -> None:
        if document["kind"] == "TrainJob":
            jobs = document["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        else:
            jobs = document["spec"]["replicatedJobs"]
        for job in jobs:
            job["template"]["spec"]["template"]["metadata"]["annotations"] |= {key: value}

    return change


CHANGES: dict[str, Callable[[Document], Any]] = {
    "another queue": label(QUEUE, "blue"),
    "another priority": label(PRIORITY, "high"),
    "no priority": label(PRIORITY, None),
    "another limit": label(MAX_EXECUTION, "7200"),
    "no limit": label(MAX_EXECUTION, None),
    "another topology": note(REQUIRED, "kubernetes.io/hostname"),
    "another label": label("team", "red"),
}


@pytest.mark.parametrize("mode", MODES)
def test_what_may_change_in_a_queued_job(teams: Teams, mode: str) -> None:
    """`changes.compare` against the server, of a job that waits and of one that runs."""
    teams.mode = mode
    kind = MODES[mode]
    teams.in_racks(2)
    teams.queue("red", 8)
    teams.queue("blue", 0)
    for name in ("low", "high"):
        teams.make(QUEUE_PRIORITY, teams.name(name), value=10, description="of a test")
    teams.ready("red", "blue")
    given = {
        "queue": "red", "priority": teams.name("low"), "max_execution": 3600, "topology": trainer.Required(teams.rack),
    }  # fmt: skip
    for name in ("runs", "waits"):
        teams.submit(name, **given)
        teams.becomes(name, "Running" if name == "runs" else "Queued")
    for name in ("runs", "waits"):
        old = {key: d for key, d in sent(teams.plan(name, **given)).objects.items() if key.startswith(kind.kind)}
        for what, change in CHANGES.items():
            new = copy.deepcopy(old)
            (document,) = new.values()
            change(document)
            (effect,) = {c.effect for c in compare(old, new)}
            try:
                teams.client.apply(kind, document, dry_run=True, force=True)
                accepted = True
            except ApiError as error:
                assert "denied the request" in error.message or error.code == 422, str(error)
                accepted = False
            wanted = {"update": True, "replace": False, "waiting": name == "waits"}[effect]
            ignored = what == "another topology" and name == "waits"  # it is taken, and has no effect
            assert accepted == (wanted or ignored), (name, what, effect)


def test_kueue_reads_a_topology_once(teams: Teams) -> None:
    """Another queue reaches the Workload of a job that waits, another topology does not: such a change is a new run."""
    teams.in_racks(2)
    teams.queue("red", 16)
    teams.queue("blue", 16)
    teams.ready("red", "blue")
    teams.submit("job", 2, queue="red", topology=trainer.Required("kubernetes.io/hostname"))
    teams.becomes("job", "Queued")
    made = sent(teams.plan("job", 2, queue="blue", topology=trainer.Required(teams.rack)), digest="second")
    teams.target.jobs.update(made)

    def workload() -> Document:
        (found,) = teams.root.list(WORKLOAD, teams.namespace)[0]
        return found

    until(lambda: workload()["spec"]["queueName"] == "blue")
    assert workload()["spec"]["podSets"][0]["topologyRequest"]["required"] == "kubernetes.io/hostname"


def test_a_job_that_runs_too_long(teams: Teams) -> None:
    teams.nodes(1)
    teams.flavor(nodeLabels=teams.pool)
    teams.queue("red", 8)
    teams.ready("red")
    teams.submit("job", queue="red", max_execution=1)
    teams.becomes("job", "Queued", "Deactivated")
    teams.says("job", r"its Workload has been deactivated: .*[Mm]aximum execution time.*raise max_execution=")
    assert not [w for w in teams.queues()["jobs"] if w["holds"]]


WRONG: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "no seconds": ({MAX_EXECUTION: "1h"}, {}),
    "no time": ({MAX_EXECUTION: "0"}, {}),
    "two topologies": ({}, {REQUIRED: "a", PREFERRED: "b"}),
    "no label": ({}, {REQUIRED: "a b"}),
    "no boolean": ({}, {UNCONSTRAINED: "yes"}),
    "half a slice": ({}, {SLICE_LEVEL: "a"}),
    "the other half": ({}, {REQUIRED: "a", SLICE_SIZE: "1"}),
    "a slice of none": ({}, {SLICE_LEVEL: "a", SLICE_SIZE: "0"}),
    "a slice of words": ({}, {SLICE_LEVEL: "a", SLICE_SIZE: "two"}),
    "a slice larger than the job": ({}, {SLICE_LEVEL: "a", SLICE_SIZE: "3"}),
    "a group of one": ({}, {REQUIRED: "a", TOGETHER: "g"}),
    "a group without topology": ({}, {TOGETHER: "g"}),
    "a group in slices": ({}, {REQUIRED: "a", TOGETHER: "g", SLICE_LEVEL: "a", SLICE_SIZE: "1"}),
    "a group with a number": ({}, {REQUIRED: "a", TOGETHER: "7"}),
    "layers that are none": ({}, {SLICES: "x"}),
    "no layers": ({}, {SLICES: "[]"}),
    "layers that do not divide": ({}, {SLICES: '[{"topology": "a", "size": 2}, {"topology": "b", "size": 3}]'}),
    "a layer twice": ({}, {SLICES: '[{"topology": "a", "size": 2}, {"topology": "a", "size": 1}]'}),
    "a layer larger than the job": ({}, {SLICES: '[{"topology": "a", "size": 4}]'}),
    "all is right": ({MAX_EXECUTION: "60"}, {PREFERRED: "a", SLICE_LEVEL: "a", SLICE_SIZE: "2"}),
}


def test_kueue_refuses_what_we_refuse_and_says_the_same(teams: Teams) -> None:
    for name, (labels, notes) in WRONG.items():
        document = jobset("job", pods=2)
        document["metadata"] |= {"namespace": teams.namespace, "labels": {QUEUE: "red", **labels}}
        pod_template(document)["metadata"]["annotations"] = notes
        ours = queued_problems(document, document)
        said = ""
        try:
            teams.client.apply(JOBSET, document, dry_run=True)
        except ApiError as error:
            said = error.message
        assert bool(ours) == bool(said) == (name != "all is right"), (name, ours, said)
        for problem in ours:
            assert problem.why.partition("it is not a JSON")[0] in said, (name, problem, said)
            assert problem.where.partition("[kueue")[0] in said or ".annotations" not in said, (name, problem, said)
