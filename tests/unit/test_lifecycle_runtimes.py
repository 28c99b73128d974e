"""Runtimes in mode trainer: whose they are, what their change means, and what a refresh shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pulumi_trainer.provider.jobs.status import Owner
from pulumi_trainer.provider.kubernetes.errors import Conflict, Problem, TargetFault
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.lifecycle.resource import StateCalls
from pulumi_trainer.provider.lifecycle.runtimes import Runtimes

DOCUMENT: dict[str, Any] = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "r", "labels": {"a": "b"}},
    "spec": {"mlPolicy": {"numNodes": 1}, "list": [{"name": "x", "image": "one"}]},
}
RUNTIMES = StateCalls(Runtimes())
TARGET = {"kind": "kubernetes", "context": "c", "sweep": "s"}


class Cluster:
    """One runtime; no more than what `runtimes` asks of a target."""

    def __init__(self, live: dict[str, Any] | None = None) -> None:
        self.live, self.asked = live, []  # type: ignore[var-annotated]
        self.whose = Owner(inputs()["owner"], "s")
        self.edits: list[str] | None = []

    @property
    def runtimes(self) -> Cluster:
        return self

    def apply(self, document: Mapping[str, Any], owner: str, sweep: str, *, adopt: bool = False) -> str:
        self.asked.append((document["metadata"]["name"], owner, sweep))
        return "uid"

    def check(self, document: Mapping[str, Any], owner: str, sweep: str | None, *, adopt: bool = False) -> str:
        self.asked.append((document["metadata"]["name"], owner, sweep))
        return "2026-01-01T00:00:00Z" if adopt else ""

    def edited(
        self, document: Mapping[str, Any], applied: Mapping[str, Any], owner: str, sweep: str
    ) -> list[str] | None:
        if not Owner(owner, sweep).owns(self.whose):
            raise Conflict(Problem("", "exists and is somebody's"))
        return self.edits

    def find(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        self.asked.append((kind, namespace, name))
        return self.live

    def owner(self, found: Mapping[str, Any]) -> Owner:
        return self.whose

    def delete(self, document: Mapping[str, Any], uid: str, owner: Owner, *, force: bool = False) -> Owner | None:
        self.asked.append((document["metadata"]["name"], uid, force))
        return None if owner.owns(self.whose) else self.whose


def unreachable(_: Mapping[str, Any]) -> Cluster:
    raise TargetFault(Problem("", "out of reach"))


def inputs(**document: Any) -> dict[str, Any]:
    given = {"document": {**DOCUMENT, **document}, "target": TARGET, "component": "urn:a"}
    return RUNTIMES.check({}, given, unreachable).inputs


def test_the_owner_outlives_a_rename() -> None:
    first = inputs()
    renamed = RUNTIMES.check(first, {**first, "component": "urn:b"}, unreachable).inputs
    assert renamed["owner"] == first["owner"] and len(first["owner"]) == 20
    assert inputs()["owner"] != RUNTIMES.check({}, {**first, "component": "urn:b"}, unreachable).inputs["owner"]
    unknown = Unknown("component")
    assert RUNTIMES.check({}, {**first, "component": unknown}, unreachable).inputs["owner"] == unknown


@pytest.mark.parametrize(
    ("change", "changes", "replaces"),
    [
        ({}, False, ()),
        ({"spec": {"mlPolicy": {"numNodes": 2}}}, True, ()),
        ({"metadata": {"name": "other"}}, True, ("document",)),
        ({"kind": "TrainingRuntime"}, True, ("document",)),
        ({"metadata": {"name": "r", "namespace": "team"}}, True, ("document",)),
    ],
)
def test_a_change_is_made_in_place_unless_it_is_another_object(
    change: dict[str, Any], changes: bool, replaces: tuple[str, ...]
) -> None:
    _, outs = RUNTIMES.create(inputs(), lambda _: Cluster())
    diff = RUNTIMES.diff(outs, inputs(**change))
    assert (diff.changes, diff.replaces) == (changes, replaces)


@pytest.mark.parametrize(
    ("edited", "note"),
    [
        (None, "r: somebody has deleted it; it is created again"),
        (
            ["spec.a", "spec.b"],
            "r: somebody has changed spec.a, spec.b; this update restores the values of the program",
        ),
        (list("abcdefg"), "somebody has changed a, b, c, d, e and 2 more;"),
    ],
)
def test_what_others_have_done_to_it_is_an_update_each_time(edited: list[str] | None, note: str) -> None:
    cluster, before = Cluster(), inputs()
    _, outs = RUNTIMES.create(before, lambda _: cluster)
    assert RUNTIMES.check(before, before, lambda _: cluster).inputs == before
    for _ in range(2):
        cluster.edits = edited
        found = RUNTIMES.check(before, inputs(), lambda _: cluster)
        assert note in found.notes[0] and RUNTIMES.diff(outs, found.inputs).changes
        outs, before = RUNTIMES.update(outs, found.inputs, lambda _: cluster), found.inputs
        cluster.edits = []
        found = RUNTIMES.check(before, inputs(), lambda _: cluster)
        assert not found.notes and not RUNTIMES.diff(outs, found.inputs).changes
        assert not RUNTIMES.diff(outs, RUNTIMES.check(before, inputs(), unreachable).inputs).changes
    cluster.whose = Owner("theirs", "")
    assert RUNTIMES.check(before, inputs(), lambda _: cluster).failures == ("exists and is somebody's",)


def test_one_keeps_its_stack_s_label_when_its_jobs_are_in_another_namespace() -> None:
    cluster, before = Cluster(), inputs()
    _, outs = RUNTIMES.create(before, lambda _: cluster)
    elsewhere = {**inputs(), "target": {**TARGET, "sweep": "other"}}
    found = RUNTIMES.check(before, elsewhere, lambda _: cluster)
    assert not found.failures and not RUNTIMES.diff(outs, found.inputs).changes
    RUNTIMES.update(outs, elsewhere, lambda _: cluster)
    assert cluster.asked[-1][-1] == "s"


def test_create_keeps_how_to_get_there_and_no_more() -> None:
    cluster = Cluster()
    id_, outs = RUNTIMES.create(inputs(), lambda _: cluster)
    assert id_ == "ClusterTrainingRuntime/r" and cluster.asked == [("r", inputs()["owner"], "s")]
    assert outs["target"] == {"kind": "kubernetes", "context": "c", "sweep": "s"} and outs["uid"] == "uid"


def test_a_refresh_shows_what_others_have_changed_and_nothing_else() -> None:
    _, outs = RUNTIMES.create(inputs(), lambda _: Cluster())
    live = {
        **DOCUMENT,
        "metadata": {**DOCUMENT["metadata"], "uid": "uid", "labels": {"a": "b", "theirs": "1"}, "generation": 2},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "list": [{"name": "x", "image": "one", "pull": "Always"}]},
    }
    same, _ = RUNTIMES.read(outs, lambda _: Cluster(live))
    assert same is not None and same["document"] == DOCUMENT
    live["spec"]["list"][0]["image"] = "two"
    seen, _ = RUNTIMES.read(outs, lambda _: Cluster(live))
    assert seen is not None and seen["document"]["spec"]["list"] == [{"name": "x", "image": "two"}]
    assert RUNTIMES.diff(seen, inputs()).changes
    live["spec"]["list"].append({"name": "y"})
    more, _ = RUNTIMES.read(outs, lambda _: Cluster(live))
    assert more is not None and len(more["document"]["spec"]["list"]) == 2


def test_one_that_is_gone_or_made_anew_by_others_is_not_ours() -> None:
    _, outs = RUNTIMES.create(inputs(), lambda _: Cluster())
    assert RUNTIMES.read(outs, lambda _: Cluster()) == (None, [])
    assert RUNTIMES.read(outs, lambda _: Cluster({**DOCUMENT, "metadata": {"uid": "another"}})) == (None, [])


@pytest.mark.parametrize("whose", [("another", "s"), (None, "another-clone")])
def test_one_that_another_stack_has_taken_is_left_alone(whose: tuple[str | None, str]) -> None:
    _, outs = RUNTIMES.create(inputs(), lambda _: Cluster())
    cluster = Cluster({**DOCUMENT, "metadata": {**DOCUMENT["metadata"], "uid": "uid"}})
    cluster.whose = Owner(whose[0] or outs["owner"], whose[1])
    found, (note,) = RUNTIMES.read(outs, lambda _: cluster)
    assert found is None and "ClusterTrainingRuntime r belongs to another program now. It is left alone" in note
    assert StateCalls(Runtimes()).delete(outs, lambda _: cluster) == [
        "ClusterTrainingRuntime r belongs to another program now. It is left alone"
    ]


@pytest.mark.parametrize("force", [True, False])
def test_only_force_removes_what_is_in_use(force: bool) -> None:
    """The target refuses otherwise; it is written down before, since a destroy does not run the program."""
    given = {"force": True} if force else {}
    cluster = Cluster()
    _, outs = RUNTIMES.create({**inputs(), **given}, lambda _: cluster)
    assert RUNTIMES.diff(outs, inputs()).changes == force
    assert StateCalls(Runtimes()).delete(outs, lambda _: cluster) == []
    assert cluster.asked[-1] == ("r", "uid", force)
