"""What changes a volume in place, what replaces it, and what it cannot become."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi_trainer.provider.jobs.status import Loss, Owner
from pulumi_trainer.provider.kubernetes.errors import TargetFault
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.lifecycle.resource import Diff, StateCalls
from pulumi_trainer.provider.lifecycle.stack_targets import UsedLabels
from pulumi_trainer.provider.lifecycle.volumes import VolumeInputs, VolumeOutputs, Volumes, removal_notes


class Calls(StateCalls[Any, Any]):
    """The calls on volumes. Outputs need not have an owner and a generation where nothing depends on them."""

    def diff(self, olds: dict[str, Any], news: dict[str, Any]) -> Diff:
        return super().diff({**UNNAMED, **olds}, news)

    def update(self, outputs: dict[str, Any], inputs: dict[str, Any], connect: Any) -> dict[str, Any]:
        return super().update({**UNNAMED, **outputs}, inputs, connect)

    def delete(self, outputs: dict[str, Any], connect: Any) -> list[str]:
        return super().delete({**UNNAMED, **outputs}, connect)


UNNAMED = {"owner": "", "generation": ""}
VOLUMES = Calls(Volumes(UsedLabels()))
BEFORE: dict[str, Any] = {
    "namespace": "team",
    "name": "job-output",
    "digest": "d",
    "target": {"kind": "kubernetes", "sweep": "s"},
    "claim": {"accessMode": "ReadWriteMany", "storageClass": "nfs", "size": "10Gi"},
}


class Target:
    """Says what a volume holds, and whom it is left to."""

    def __init__(self, held: str = "", left: str = "", lost: Loss = Loss.NONE) -> None:
        self.held, self.left, self.loss, self.deleted = held, left, lost, []

    def __call__(self, _: Any) -> Any:
        return self

    @property
    def volumes(self) -> Target:
        return self

    def lost(self, *_: str) -> Loss:
        if self.held == "unreachable":
            raise TargetFault("no answer")
        return self.loss

    def create(self, *_: Any, **__: Any) -> dict[str, str]:
        self.loss = Loss.NONE
        return {"path": "pvc://job-output", "generation": "g2"}

    def find(self, *_: str) -> tuple[dict[str, str], Owner]:
        if self.held == "unreachable":
            raise TargetFault("no answer")
        return {"path": "pvc://job-output", "generation": "g1"}, Owner(URN, "s")

    def identity(self) -> dict[str, str]:
        return {}

    def describe(self, namespace: str, name: str) -> str:
        if self.held == "unreachable":
            raise TargetFault("no answer")
        return f"{self.held} in {namespace}/{name}" if self.held else ""

    def delete(self, namespace: str, name: str, generation: str) -> str:
        self.deleted.append((namespace, name, generation))
        return self.left


NOTHING = Target()


def removed(outputs: dict[str, Any], target: Target) -> tuple[str, ...]:
    return removal_notes(VolumeOutputs.from_state({**UNNAMED, **outputs}), target)


def is_retained(state: dict[str, Any]) -> bool:
    return VolumeInputs.from_state(state).is_retained


def checked(claim: dict[str, Any], **news: Any) -> Any:
    return VOLUMES.check(BEFORE, {**BEFORE, "claim": claim, **news}, NOTHING)


def test_another_digest_is_another_volume() -> None:
    found = checked({"accessMode": "ReadWriteOnce"}, digest="e", name="other")
    assert found.failures == () and found.inputs["name"] == "other"
    assert VOLUMES.diff(BEFORE, found.inputs).replaces == ("name", "digest")


def test_a_renamed_stack_keeps_its_volume() -> None:
    found = checked(BEFORE["claim"], name="job-of-another-stack")
    assert found.inputs == BEFORE and VOLUMES.diff(BEFORE, found.inputs).changes is False


@pytest.mark.parametrize(
    "claim",
    [
        {"accessMode": "ReadWriteOnce", "storageClass": "nfs", "size": "10Gi"},  # one node less: it serves one as well
        {"accessMode": "ReadWriteMany"},  # nothing said any more
    ],
)
def test_what_it_has_is_kept_where_it_serves(claim: dict[str, Any]) -> None:
    found = checked(claim)
    assert found.failures == () and not VOLUMES.diff(BEFORE, found.inputs).changes


@pytest.mark.parametrize(("claim", "now"), [({"size": "20Gi"}, "20Gi"), ({"size": "10240Mi"}, "10240Mi")])
def test_it_grows_in_place(claim: dict[str, Any], now: str) -> None:
    found = checked({**BEFORE["claim"], **claim})
    change = VOLUMES.diff(BEFORE, found.inputs)
    assert (found.failures, change.changes, change.replaces, found.inputs["claim"]["size"]) == ((), True, (), now)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ({}, {"size": "5Gi"}, "cannot shrink"),
        ({}, {"storageClass": "efs"}, "its storage class is nfs"),
        ({"storageClass": None}, {"storageClass": "efs"}, "the cluster's default"),
        ({"accessMode": "ReadWriteOnce"}, {"accessMode": "ReadWriteMany"}, "needs ReadWriteMany"),
        ({"accessMode": "ReadWriteOncePod"}, {"accessMode": "ReadWriteOnce"}, "needs ReadWriteOnce"),
    ],
)
def test_what_it_cannot_become_is_refused(before: dict[str, Any], after: dict[str, Any], why: str) -> None:
    was = {**BEFORE, "claim": {**BEFORE["claim"], **before}}
    found = VOLUMES.check(was, {**was, "claim": {**was["claim"], **after}}, NOTHING)
    assert len(found.failures) == 1 and why in found.failures[0]
    assert "kubectl delete pvc -n team job-output" in found.failures[0]


def test_what_is_not_known_yet_is_compared_later() -> None:
    was = {**BEFORE, "claim": {**BEFORE["claim"], "size": "20Gi"}}
    for name in ("size", "storageClass", "accessMode"):
        later = {**was["claim"], name: Unknown("x")}
        assert not VOLUMES.check(was, {**was, "claim": later}, NOTHING).failures
    (refused,) = VOLUMES.check(was, {**was, "claim": {**was["claim"], "size": "20GB"}}, NOTHING).failures
    assert "its new size must be a quantity" in refused


def test_a_folder_on_this_machine_has_no_claim() -> None:
    local = {k: v for k, v in BEFORE.items() if k != "claim"}
    assert VOLUMES.check(local, {**local, "name": "x"}, NOTHING).inputs == local
    assert not VOLUMES.diff(local, local).changes


@pytest.mark.parametrize(
    ("digest", "told"), [("claim", "with the output in it;"), ("d", "with the data in it, which is fetched again;")]
)
def test_a_deleted_volume_is_made_again_each_time(digest: str, told: str) -> None:
    state = {**BEFORE, "digest": digest, "component": URN}
    outputs: dict[str, Any] = state
    for count in (1, 2):
        target = Target(lost=Loss.GONE)
        found = VOLUMES.check(state, {**BEFORE, "digest": digest, "component": URN}, target)
        assert found.notes == (
            f"volume team/job-output: somebody has deleted it, {told[:-1]}; it is created again, empty",
        )
        assert found.inputs == {**state, "again": count} and VOLUMES.diff(outputs, found.inputs).changes
        assert VOLUMES.diff(outputs, found.inputs).replaces == ()
        state, outputs = found.inputs, VOLUMES.update(outputs, found.inputs, target)
        assert outputs["generation"] == "g2"
        again = VOLUMES.check(state, {**BEFORE, "digest": digest, "component": URN}, target)
        assert again.inputs == state and not VOLUMES.diff(outputs, again.inputs).changes and not again.notes


def test_a_preview_knows_the_generation_of_a_volume_that_grows_and_not_of_one_that_is_made_again() -> None:
    grown = VOLUMES.check(BEFORE, {**BEFORE, "claim": {**BEFORE["claim"], "size": "20Gi"}}, Target())
    assert grown.inputs["generation"] == "g1" and VOLUMES.diff(BEFORE, grown.inputs).changes
    larger = {**BEFORE, "claim": {**BEFORE["claim"], "size": "30Gi"}}
    both = VOLUMES.check(grown.inputs, larger, Target(lost=Loss.GONE))
    assert "generation" not in both.inputs and both.inputs["again"] == 1
    assert "generation" not in VOLUMES.check(BEFORE, larger, Target("unreachable")).inputs


def test_a_volume_that_is_being_deleted_is_only_told() -> None:
    found = VOLUMES.check(BEFORE, BEFORE, Target(lost=Loss.LEAVING))
    assert found.inputs == BEFORE and "copy what you need before" in found.notes[0]
    assert VOLUMES.check(BEFORE, BEFORE, Target("unreachable", lost=Loss.GONE)).notes == ()


def test_a_volume_is_not_made_again_where_another_claim_has_its_name() -> None:
    found = VOLUMES.check(BEFORE, {**BEFORE, "claim": {**BEFORE["claim"], "size": "20Gi"}}, Target(lost=Loss.TAKEN))
    (why,) = found.failures
    assert "somebody has deleted it" in why and "Another claim has its name" in why
    assert "kubectl delete pvc -n team job-output" in why and "again" not in found.inputs


URN = "urn:pulumi:dev::vision::trainer:index:TrainJob$trainer:Volume::job-output"


class Holder:
    """A target with one volume, of an owner and a generation."""

    def __init__(self, whose: Owner, generation: str) -> None:
        self.whose, self.generation, self.asked = whose, generation, list[Any]()

    @property
    def volumes(self) -> Holder:
        return self

    def create(self, *_: Any, **__: Any) -> dict[str, str]:
        return {"path": "pvc://job-output", "generation": "g1"}

    def find(self, namespace: str, name: str) -> tuple[dict[str, str], Owner] | None:
        return {"path": "pvc://job-output", "generation": self.generation}, self.whose

    def delete(self, namespace: str, name: str, generation: str) -> Owner | str:
        self.asked.append(generation)
        return "" if generation == self.generation else self.whose

    def describe(self, namespace: str, name: str) -> str:
        return ""

    def update(self, namespace: str, name: str, generation: str, claim: Any) -> None:
        self.asked.append((generation, claim))

    def relabel(self, namespace: str, name: str, generation: str, owner: str, sweep: str) -> None:
        self.asked.append((generation, owner, sweep))

    def identity(self) -> dict[str, str]:
        return {}


def test_a_volume_that_a_stack_of_the_same_name_has_taken_is_left_alone() -> None:
    target = Holder(Owner(URN, "s"), "g1")
    _, outs = VOLUMES.create({**BEFORE, "component": URN}, lambda _: target)
    assert outs["owner"] == URN
    assert VOLUMES.read(outs, lambda _: target)[0] == outs
    target.generation = "g2"
    assert VOLUMES.delete(outs, lambda _: target) == []  # a later life of this very stack
    target.whose = Owner(URN, "s-elsewhere", "vision/dev")
    found, (note,) = VOLUMES.read(outs, lambda _: target)
    assert found is None and "volume team/job-output belongs to another stack of this name" in note
    (note,) = VOLUMES.delete(outs, lambda _: target)
    assert "left alone" in note and target.asked == ["g1", "g1"]


def test_only_the_generation_of_the_stack_is_changed() -> None:
    target = Holder(Owner(URN, "s"), "g1")
    _, outs = VOLUMES.create({**BEFORE, "component": URN}, lambda _: target)
    news = {**BEFORE, "claim": {**BEFORE["claim"], "size": "20Gi"}}
    VOLUMES.update(outs, news, lambda _: target)
    assert target.asked == [("g1", news["claim"])]


OUTPUT: dict[str, Any] = {**BEFORE, "digest": "claim", "generation": "g"}
"""A volume that a job writes to."""


@pytest.mark.parametrize("digest", ["", "claim"])
def test_output_that_another_target_makes_go_is_told_in_the_plan(digest: str) -> None:
    was = {**OUTPUT, "digest": digest}
    after = {**was, "digest": "claim" if not digest else "", "name": "other"}
    (note,) = VOLUMES.check(was, after, Target("2 files")).notes
    assert note.startswith("volume team/job-output will be deleted with the output in it: 2 files in team/job-output")
    assert VOLUMES.check(was, after, Target()).notes == (), "nothing is lost of an empty one"
    (note,) = VOLUMES.check(was, {**after, "retain": True}, Target("2 files")).notes
    assert "will be deleted" in note, "the engine does what was said by the last update"
    kept = {**was, "retain": True, "claim": {**was["claim"], "retain": True}, "path": "/data"}
    (note,) = VOLUMES.check(kept, after, Target("2 files")).notes
    assert note.endswith(
        "is kept because it is retained, and another volume is created: 2 files in team/job-output, in /data"
    )
    (note,) = VOLUMES.check(was, after, Target("unreachable")).notes
    assert "its content cannot be listed: no answer" in note
    assert VOLUMES.check(BEFORE, {**BEFORE, "digest": "e"}, Target("2 files")).notes == (), "it can be fetched again"


def test_a_delete_says_what_is_lost_or_why_it_stays() -> None:
    target = Target("2 files")
    (note,) = VOLUMES.delete(OUTPUT, target)
    assert note.startswith("volume team/job-output is deleted with the output in it: 2 files")
    assert VOLUMES.delete(BEFORE | {"generation": "g"}, Target("2 files")) == []
    assert VOLUMES.delete(BEFORE | {"generation": "g"}, Target("2 files", left="stays")) == ["stays"]
    assert target.deleted == [("team", "job-output", "g")]


def test_a_volume_from_another_stack_gets_a_label_of_this_one() -> None:
    there, here = "urn:pulumi:old::lab::t::j", "urn:pulumi:new::lab::t::j"
    target = Holder(Owner(there, "s"), "g1")
    made = {**BEFORE, "component": there}
    _, outs = VOLUMES.create(made, lambda _: target)
    news = {**BEFORE, "component": here, "target": {**BEFORE["target"], "sweep": "s-2"}}
    found = VOLUMES.check(made, news, lambda _: NOTHING)
    assert found.inputs == news and VOLUMES.diff(outs, found.inputs).changes is True
    after = VOLUMES.update(outs, found.inputs, lambda _: target)
    assert target.asked == [("g1", here, "s-2")]
    assert after == {**outs, "owner": here, "target": news["target"]}
    assert VOLUMES.diff(after, VOLUMES.check(news, news, lambda _: NOTHING).inputs).changes is False
    same = VOLUMES.check(made, {**news, "component": there}, lambda _: NOTHING)
    assert same.inputs == made, "another target of the same stack"


@pytest.mark.parametrize(
    ("news", "refused"),
    [
        ({"adopt": True}, True),
        ({"adopt": True, "claim": None}, True),  # this machine
        ({}, False),
        ({"adopt": True, "component": URN}, False),
        ({"adopt": True, "target": {"kind": "kubernetes", "sweep": "s"}}, False),  # a renamed stack keeps its label
        ({"adopt": True, "namespace": Unknown("n")}, False),
        ({"adopt": True, "target": {"kind": "kubernetes", "kubeconfig": Unknown("k")}}, False),
    ],
)
def test_a_new_volume_whose_name_another_stack_has_is_refused(news: dict[str, Any], refused: bool) -> None:
    other = "urn:pulumi:second::lab::trainer:index:TrainJob::job"
    given = {**BEFORE, "component": other, "target": {"kind": "kubernetes", "sweep": "t"}, **news}
    assert bool(VOLUMES.check({}, given, NOTHING).failures) == refused
    assert not VOLUMES.check({}, given, Target("unreachable")).failures


FOLDER: dict[str, Any] = {k: v for k, v in OUTPUT.items() if k != "claim"} | {"digest": "", "path": "/data"}
"""The same on this machine."""


@pytest.mark.parametrize("retain", [True, False])
@pytest.mark.parametrize("cluster", [True, False])
def test_a_change_of_retain_says_what_it_means_once(cluster: bool, retain: bool) -> None:
    def state(value: bool) -> dict[str, Any]:
        if cluster:
            return {**OUTPUT, "retain": value, "claim": {**OUTPUT["claim"], **({"retain": True} if value else {})}}
        return {**FOLDER, "retain": value}

    target = Holder(Owner("", "s"), "g")
    target.describe = lambda *_: "2 files"  # type: ignore[method-assign]
    target.lost = lambda *_: Loss.NONE  # type: ignore[attr-defined]
    before, news = state(not retain), state(retain)
    found = VOLUMES.check(before, news, lambda _: target)
    (note,) = found.notes
    assert (
        "2 files" in note
        and ("will be kept when its job is deleted" if retain else "will be deleted with its job") in note
    )
    assert found.failures == () and VOLUMES.diff(before, found.inputs).changes
    after = VOLUMES.update(before, found.inputs, lambda _: target)
    (change,) = target.asked
    assert change[0] == "g" and bool(change[1].get("retain")) is retain
    assert is_retained(after) is is_retained(found.inputs) is retain

    again = VOLUMES.check(found.inputs, news, lambda _: target)
    assert again.notes == () and again.inputs == found.inputs and not VOLUMES.diff(after, again.inputs).changes
    back = VOLUMES.check(found.inputs, before, lambda _: target)
    assert len(back.notes) == 1 and VOLUMES.diff(after, back.inputs).changes
    target.describe = lambda *_: ""  # type: ignore[method-assign]
    assert VOLUMES.check(before, news, lambda _: target).notes == (), "nothing is in it"


def test_a_retained_volume_that_leaves_the_program_stays_where_it_is() -> None:
    (note,) = removed({**FOLDER, "retain": True}, Target("2 files"))
    assert note == (
        "volume team/job-output was removed from the program, and is kept because it is"
        " retained: 2 files in team/job-output, in /data"
    )
    (note,) = removed({**FOLDER, "retain": True}, Target())
    assert "is kept because it is retained: it is empty, in /data" in note
    (note,) = removed({**FOLDER, "retain": False}, Target("2 files"))
    assert "will be deleted" in note
    (note,) = removed({**OUTPUT, "claim": {**OUTPUT["claim"], "retain": True}}, Target("unreachable"))
    assert "is kept because it is retained: its content cannot be listed: no answer" in note
