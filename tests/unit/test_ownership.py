"""`pulumi-trainer doctor`: what differs between a state and what its targets have."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from pulumi_trainer.provider.cli import doctor
from pulumi_trainer.provider.jobs.status import NAMESAKE, UNKNOWN_END, Owner
from pulumi_trainer.provider.lifecycle.ownership import ADOPT, Expected, Finding, Found, compare
from pulumi_trainer.provider.service import stack
from pulumi_trainer.provider.service.reach import Where
from pulumi_trainer.provider.targets.kubernetes.observe.owned_objects import _of_stacks
from pulumi_trainer.provider.trainer.labels import MADE_BY

MINE = "a1b2c3-11111111"
CLONE = "a1b2c3-22222222"
OTHER = "ffffff-33333333"
PROGRAM = "lab/dev"
STATE = Expected("here", "Job", "team", "digits", "digits", Owner("id", MINE), "uid-1")
THERE = Found("here", "Job", "team", "digits", Owner("id", MINE, PROGRAM), "uid-1", "delete it", ADOPT)
QUEUE_STATE = Expected("here", "ClusterQueue", "", "gpus-nlp", "gpus-nlp", Owner(PROGRAM))
RESOURCE = {
    "type": "kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue",
    "urn": "urn:pulumi:dev::lab::kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue::gpus-nlp", "id": "gpus-nlp",
    "inputs": {"apiVersion": "v1", "spec": {}}, "outputs": {"apiVersion": "v1", "spec": {"stopPolicy": "None"}},
}  # fmt: skip
COMPARED = doctor._queue(RESOURCE, "gpus-nlp", "here")
QUEUE = Found("here", "ClusterQueue", "", "gpus-nlp", Owner(PROGRAM, "", PROGRAM), "", "delete it", "pulumi up")


def found(*there: Found, state: tuple[Expected, ...] = (STATE,), **more: Any) -> list[Finding]:
    return [*compare(state, there, {MINE}, PROGRAM, **more)]


def test_what_agrees_is_not_reported() -> None:
    assert found(THERE) == []
    assert found(QUEUE, state=(QUEUE_STATE,)) == []
    assert found(THERE, dataclasses.replace(THERE, name="a", owner=Owner("x", OTHER, "lab/prod"))) == []


def test_an_object_that_is_gone() -> None:
    (gone,) = found()
    assert (gone.code, gone.resource) == ("gone", "digits")
    assert [command for _, command in gone.settle] == ["pulumi refresh", "pulumi up"]
    assert found(unread={("here", "Job")}) == [], "nobody may say that it is gone"
    (lost,) = found(state=(dataclasses.replace(STATE, stays_gone=True),))
    assert lost.code == "gone" and "it is not known whether it had ended" in lost.message
    assert [command for _, command in lost.settle] == ["pulumi-trainer rerun digits"]


def test_a_queue_has_no_data() -> None:
    queue = dataclasses.replace(QUEUE, owner=Owner(PROGRAM, "", PROGRAM), delete="kubectl delete it")
    (finding,) = found(queue, state=())
    assert finding.settle[-1] == ("deletes it", "kubectl delete it")


def test_a_resource_that_was_being_created_when_pulumi_was_killed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    urn = "urn:pulumi:dev::lab::trainer:index:GpuQueues$kubernetes:kueue.x-k8s.io/v1beta2:Cohort::gpus"
    pending = [{"type": "creating", "resource": {"urn": urn}}, {"type": "updating", "resource": {"urn": urn}}]
    exported = json.dumps({"deployment": {"resources": [], "pending_operations": pending}})
    monkeypatch.setattr(stack, "_pulumi", lambda *_: exported)
    monkeypatch.setattr(stack, "configured", lambda *_: {})
    assert doctor.doctor(Where(stack="dev"), output="table") == 1
    printed = capsys.readouterr().out
    assert "Cohort gpus in the state: was being created when Pulumi was ended" in printed
    assert printed.count("pulumi refresh --clear-pending-creates") == 1


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"owner": Owner("x", OTHER, "lab/prod")}, "other-owner", "belongs to the stack lab/prod"),
        ({"owner": Owner("id", CLONE, PROGRAM)}, "other-owner", NAMESAKE),
        ({"identity": "uid-2"}, "other-run", "is not the object in the state"),
        ({"record_gone": True}, "no-record", "its record is gone"),
        ({"fault": "record.json: is not JSON"}, "unreadable", "cannot be read: record.json: is not JSON"),
    ],
)
def test_an_object_of_the_state_that_differs(change: dict[str, Any], code: str, words: str) -> None:
    (finding,) = found(dataclasses.replace(THERE, **change))
    assert finding.code == code and words in finding.message
    if code == "unreadable":
        assert [command for _, command in finding.settle] == ["delete it"], "a refresh would forget the job"
    else:
        assert any("pulumi" in command for _, command in finding.settle)


@pytest.mark.parametrize(
    ("owner", "code"),
    [
        (Owner("x", MINE, PROGRAM), "not-in-state"),
        (Owner("x", "", PROGRAM), "not-in-state"),
        (Owner("x", CLONE, PROGRAM), "namesake"),
        (Owner("x", CLONE), "namesake"),
        (Owner("x", OTHER, PROGRAM), "namesake"),
        (Owner("x", OTHER, "lab/prod"), ""),
        (Owner("", ""), ""),
    ],
)
def test_an_object_that_is_not_in_the_state(owner: Owner, code: str) -> None:
    findings = found(dataclasses.replace(THERE, owner=owner), state=())
    assert [each.code for each in findings] == ([code] if code else [])
    for each in findings:
        assert [command for _, command in each.settle] == ["pulumi up", "delete it"]


def test_without_a_program_nothing_is_a_namesake() -> None:
    assert [*compare((), [dataclasses.replace(THERE, owner=Owner("", ""))], {""}, "")] == []


def test_a_queue_of_a_renamed_stack() -> None:
    renamed = dataclasses.replace(QUEUE, owner=Owner("lab/old", "", "lab/old"), take="kubectl annotate it")
    (finding,) = found(renamed, state=(QUEUE_STATE,))
    assert finding.code == "other-owner"
    assert finding.settle[0] == ("gives it to this stack", "kubectl annotate it")


def test_a_queue_of_a_stack_of_the_same_name_in_another_backend() -> None:
    mark = f"organization/{PROGRAM}/22222222"
    listed = [{"metadata": {"name": "gpus-nlp", "annotations": {MADE_BY: mark}}}]
    (theirs,) = _of_stacks(listed, "here", "ClusterQueue", PROGRAM, "kubectl", "11111111")
    mine = dataclasses.replace(QUEUE_STATE, owner=Owner(PROGRAM, "11111111"))
    (finding,) = found(theirs, state=(mine,))
    assert finding.code == "other-owner" and NAMESAKE in finding.message
    command = "kubectl annotate --overwrite clusterqueues.kueue.x-k8s.io gpus-nlp"
    assert finding.settle[0] == ("gives it to this stack", f"{command} {MADE_BY}=organization/{PROGRAM}")
    assert [each.code for each in found(theirs, state=())] == ["namesake"]
    (own,) = _of_stacks(listed, "here", "ClusterQueue", PROGRAM, "kubectl", "22222222")
    assert found(own, state=(dataclasses.replace(mine, owner=Owner(PROGRAM, "22222222")),)) == []


def test_a_queue_that_was_changed_by_hand() -> None:
    hand = {"manager": "kubectl-edit", "fieldsV1": {"f:spec": {"f:stopPolicy": {}}}}
    live = {"apiVersion": "v1", "metadata": {"managedFields": [hand]}, "spec": {"stopPolicy": "Hold"}}
    (finding,) = found(dataclasses.replace(QUEUE, live=live), state=(COMPARED,))
    assert finding.code == "changed"
    assert finding.message == "was changed by hand (kubectl-edit): stopPolicy None -> Hold"
    assert [command for _, command in finding.settle] == ["pulumi up"]


def test_a_job_of_which_only_the_record_is_there() -> None:
    (finding,) = found(dataclasses.replace(THERE, lost=UNKNOWN_END))
    assert finding.code == "gone" and "it is not known whether it had ended" in finding.message
    (other,) = found(dataclasses.replace(THERE, lost=UNKNOWN_END, owner=Owner("x", OTHER, "lab/prod")))
    assert other.code == "other-owner"


def test_json() -> None:
    (finding,) = found()
    assert finding.to_dict() == {
        "code": "gone", "target": "here", "kind": "Job", "namespace": "team", "name": "digits", "resource": "digits",
        "message": finding.message,
        "settle": [{"effect": effect, "command": command} for effect, command in finding.settle],
    }  # fmt: skip


def test_a_volume_that_no_command_can_give_to_the_stack() -> None:
    volume = Found("here", "Volume", "team", "out", Owner("", CLONE), "3", "rm -r it")
    (finding,) = found(volume, state=())
    assert finding.settle == [("deletes it and its data", "rm -r it")]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (
            (STATE, STATE, STATE, QUEUE_STATE, COMPARED),
            "All 5 objects in the state of lab/dev exist and belong to it; 1 of them were compared with what was applied,"
            " and are unchanged.",
        ),
        ((STATE, STATE, STATE), "3 of the 5 objects in the state of lab/dev exist and belong to it."),
        ((), "None of the 5 objects in the state of lab/dev could be checked."),
    ],
)
def test_only_what_was_seen_is_said_to_agree(
    seen: tuple[Expected, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    doctor._print([], "lab/dev", [], seen, 5)
    assert capsys.readouterr().out == f"{said}\n"
