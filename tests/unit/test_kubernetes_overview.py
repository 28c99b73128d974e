"""The snapshot of a namespace's jobs: how often it is taken."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi_trainer.provider.jobs.status import Loss, Owner, Phase
from pulumi_trainer.provider.kubernetes.client.api_resources import CLAIM, Kind
from pulumi_trainer.provider.kubernetes.errors import TargetFault
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.targets.kubernetes.observe import overview
from pulumi_trainer.provider.targets.kubernetes.observe.overview import Overview
from pulumi_trainer.provider.targets.kubernetes.storage import claims
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB

OURS = Owner("urn:job", "stack")


class Clock:
    """Time that passes when somebody says so."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Server:
    """A client whose lists take a number of seconds."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds, self.lists = clock, seconds, 0

    def within(self, patience: float) -> Server:
        return self

    def list(self, *_: Any, **__: Any) -> tuple[list[dict[str, Any]], str]:
        self.lists += 1
        self.clock.now += self.seconds
        return [], "1"


@pytest.mark.parametrize(("seconds", "snapshots"), [(0.01, 10), (1.5, 2)])
def test_a_snapshot_that_takes_long_is_used_longer(
    monkeypatch: pytest.MonkeyPatch, seconds: float, snapshots: int
) -> None:
    clock = Clock()
    monkeypatch.setattr(overview, "time", clock)
    server = Server(clock, seconds)
    seen = Overview(server, "team", JOBSET)  # type: ignore[arg-type]
    end = clock.now + 60
    while clock.now < end:
        seen.record("job")
        clock.now += 1
    assert server.lists == 2 * snapshots


class Claims:
    """A client that lists claims: by name, whether each is being deleted. fault: what it meets instead, for a kind."""

    def __init__(self, claims: dict[str, bool], fault: Kind | None = None) -> None:
        self.claims, self.fault, self.asked = claims, fault, list[tuple[str, str]]()

    def within(self, _: float) -> Claims:
        return self

    def list(self, kind: Kind, namespace: str, *, fields: str = "", keep: Any = None, **_: Any) -> Any:
        self.asked.append((kind.plural, fields))
        if kind is self.fault:
            raise TargetFault("no")
        about = {"namespace": namespace, "annotations": {owner_labels.OWNER: OURS.id}}
        found = [
            {"metadata": {**about, "name": name, **({"deletionTimestamp": "now"} if leaves else {})}}
            for name, leaves in self.claims.items()
            if kind is CLAIM and fields in ("", f"metadata.name={name}")
        ]
        return [keep(each) if keep else each for each in found], "1"


def test_claims_are_listed_once_and_those_that_are_missing_asked_for() -> None:
    client = Claims({"a": False, "b": True, **{f"job-{i}": False for i in range(1000)}})
    seen = Overview(client, "team", JOBSET)  # type: ignore[arg-type]
    assert [seen.lost_claim(name, OURS) for name in ("a", "b")] == [Loss.NONE, Loss.LEAVING]
    assert {seen.lost_claim(f"job-{i}", OURS) for i in range(1000)} == {Loss.NONE}
    client.claims["made-since"] = False
    assert seen.lost_claim("made-since", OURS) is Loss.NONE and seen.lost_claim("gone", OURS) is Loss.GONE
    assert [fields for kind, fields in client.asked if kind == CLAIM.plural] == [
        "", "metadata.name=made-since", "metadata.name=gone",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("owner", "loss"),
    [
        (Owner("urn:job", "renewed"), Loss.NONE),
        (Owner("urn:renamed", "stack"), Loss.NONE),
        (Owner("urn:other", "other"), Loss.TAKEN),
    ],
)
def test_a_claim_of_others_is_none_of_ours(owner: Owner, loss: Loss) -> None:
    about = {
        "annotations": {owner_labels.OWNER: OURS.id},
        "labels": {owner_labels.STACK: OURS.stack},
        "deletionTimestamp": None,
    }
    place = "team", "a"
    assert claims.loss_of({place: {"metadata": about}}, place, owner) is loss
    assert claims.loss_of({place: {"metadata": {"deletionTimestamp": None}}}, place, owner) is Loss.TAKEN


@pytest.mark.parametrize("fault", [CLAIM, JOBSET], ids=["not allowed", "out of reach"])
def test_claims_that_cannot_be_listed_are_asked_for_once(fault: Kind) -> None:
    client = Claims({}, fault)
    seen = Overview(client, "team", JOBSET)  # type: ignore[arg-type]
    for _ in range(5):
        with pytest.raises(TargetFault, match="no"):
            seen.lost_claim("a", OURS)
    assert len(client.asked) == (3 if fault is CLAIM else 2)


def test_what_a_job_says_is_made_harmless_and_cut() -> None:
    labels = {"pulumi-trainer.dev/record": "true"}
    data = {"output": "\x1b[31m/workspace", "finished": "nan", "phase": "Failed", "applied": "[" * 100_000}
    metadata = {"name": "job", "namespace": "team", "uid": "run", "labels": labels}
    read = Record.of({"metadata": metadata, "data": {**data, "message": "\x1b]0;title\x07" + "x" * 20_000}})
    for status in (read.last_status(), read.status(Phase.FAILED, "\x1b[31mRED", "\x1b[31m" + "x" * 20_000)):
        assert (status.reason + status.message + status.output).isprintable() and len(status.message) == 4096
    assert read.last_status().finished == 0.0 and read.applied == {}


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        ({"jobsStatus": [{"name": "node", "active": 2, "ready": 2}]}, "Running"),
        ({"jobsStatus": [{"name": "node", "active": 2}]}, "Starting"),
        ({"jobsStatus": [{"name": "node"}], "conditions": [{"type": "Complete", "status": "True"}]}, "Succeeded"),
        ({}, "Pending"),
    ],
)
def test_a_train_job_shows_what_its_jobset_does(status: dict[str, Any], phase: str) -> None:
    """Conditions of a TrainJob do not tell whether it runs; a plan would expect it to be Pending."""
    about = {"name": "job", "namespace": "team", "uid": "record", "labels": {owner_labels.RECORD: "true"}}
    owners = [{"kind": "ConfigMap", "name": "job", "uid": "record"}]
    listed = {
        "ConfigMap": {"metadata": about, "data": {"job": "TrainJob/job"}},
        "TrainJob": {"metadata": {"name": "job", "ownerReferences": owners}, "status": status},
    }

    class Jobs(Server):
        def list(self, kind: Kind, *_: Any, **__: Any) -> tuple[list[dict[str, Any]], str]:
            return [listed[kind.kind]], "1"

    found = Overview(Jobs(Clock(), 0), "team", TRAIN_JOB).status("job")  # type: ignore[arg-type]
    assert found is not None and found.phase == phase
