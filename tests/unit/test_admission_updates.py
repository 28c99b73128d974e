"""What may change in a TrainJob, and what the mutating webhook does to its runtimePatches."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from admission_support import (
    BLOCKED,
    Store,
    admitted,
    answer,
    changed,
    faults,
    long,
    names,
    pod_patch,
    required,
    runtime,
    train_job,
)
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.trainer.admission import NOW

from tests.trainer import default_runtime, review

UNKNOWN = Unknown("1")


STORE = Store(runtime(), runtime("TrainingRuntime"))


POD = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec"


def times(stored: dict[str, Any]) -> list[str | None]:
    return [patch.get("time") for patch in stored["spec"]["runtimePatches"]]


def test_times_of_patches() -> None:
    given = "2025-05-05T05:05:05+01:00"
    document = train_job(suspend=True, runtimePatches=[pod_patch("a.b/c"), pod_patch("a.b/d", time=given)])
    old = admitted(document, lookup=STORE)
    assert times(old) == [NOW, "2025-05-05T04:05:05Z"], "with one of them, all are printed anew"
    later = "2026-02-02T00:00:00Z"
    assert times(admitted(document, old=old, lookup=STORE, now=later)) == times(old), "unchanged: the old time is back"
    moved = changed(document, "spec.runtimePatches.0", pod_patch("a.b/c", time=given, nodeSelector={"a": "b"}))
    assert times(admitted(moved, old=old, lookup=STORE, now=later)) == [later, "2025-05-05T04:05:05Z"]
    added = train_job(suspend=True, runtimePatches=[*document["spec"]["runtimePatches"], pod_patch("a.b/e")])
    assert times(admitted(added, old=old, lookup=STORE, now=later))[2] == later
    assert times(admitted(train_job(runtimePatches=[pod_patch("a.b/c", time=given)]), lookup=STORE)) == [given]
    assert times(admitted(old, old=old, lookup=STORE, now=later)) == times(old)


EMPTY = {"name": "node", "volumeMounts": [{"name": "x"}], "env": []}


def test_what_setting_a_time_prints_anew() -> None:
    resources = {"limits": {"cpu": "0.5", "memory": 1073741824, "x": 1.5}}
    document = train_job(
        trainer={"resourcesPerNode": resources, "args": []}, runtimePatches=[pod_patch(containers=[EMPTY])]
    )
    stored = admitted(document, lookup=STORE)
    printed = {"limits": {"cpu": "500m", "memory": "1073741824", "x": "1500m"}}
    assert stored["spec"]["trainer"] == {"resourcesPerNode": printed, "args": []}, "what is empty stays"
    job = stored["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    assert container == {**EMPTY, "volumeMounts": [{"name": "x", "mountPath": ""}]}
    timed = changed(document, "spec.runtimePatches.0.time", NOW)
    assert answer(review(timed, lookup=STORE)) == (
        "schema",
        {
            (f"{POD}.containers[0].volumeMounts[0].mountPath", "Required", ""),
            *faults(review(train_job(trainer={"resourcesPerNode": {"limits": {"x": 1.5}}}))),
        },
    )


def test_nulls_that_go_prints_are_wrong() -> None:
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}
    terms = f"{POD}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    document = train_job(runtimePatches=[pod_patch(affinity=affinity)])
    null = (terms, "TypeInvalid", f'{terms} in body must be of type array: "null"')
    assert answer(review(document, lookup=STORE)) == ("schema", {null, BLOCKED})
    document["spec"]["runtimePatches"][0]["time"] = NOW
    assert answer(review(document, lookup=STORE)) == ("schema", required(terms))


def test_the_order_of_named_things_does_not_matter() -> None:
    one = train_job(trainer={"env": names(2)})
    other = train_job(trainer={"env": names(2)[::-1]})
    admitted(other, old=admitted(one, lookup=STORE), lookup=STORE)
    swapped = train_job(trainer={"args": ["a", "b"]}), train_job(trainer={"args": ["b", "a"]})
    assert not review(swapped[1], old=review(swapped[0]).stored).admitted


RUNNING = (
    "spec.runtimePatches",
    "Forbidden",
    "RuntimePatches can only be modified when the TrainJob is suspended before or after the update",
)


@pytest.mark.parametrize(
    ("before", "after", "right"), [(False, False, False), (True, False, True), (False, True, True)]
)
def test_patches_change_while_suspended(before: bool, after: bool, right: bool) -> None:
    old = admitted(train_job(suspend=before, runtimePatches=[pod_patch()]), lookup=STORE)
    document = train_job(suspend=after, runtimePatches=[pod_patch(nodeSelector={"a": "b"})])
    for lookup in (STORE, None):
        verdict = review(document, old=old, lookup=lookup)
        assert answer(verdict) == ((None, set()) if right else ("validating-webhook", {RUNNING}))
    assert review(changed(document, "spec.suspend", UNKNOWN), old=old, lookup=STORE).admitted
    same = train_job(suspend=after, runtimePatches=[pod_patch()])
    admitted(same, old=old, lookup=STORE)
    assert review(train_job(suspend=after, runtimePatches=UNKNOWN), old=old, lookup=STORE).admitted


def test_status_is_not_set_with_the_rest() -> None:
    status = {"conditions": []}
    old = {**admitted(train_job(), lookup=STORE), "status": status}
    assert admitted({**train_job(), "status": {}}, old=old, lookup=STORE)["status"] == status
    assert "status" not in admitted({**train_job(), "status": status}, lookup=STORE)


def test_what_was_stored_before_its_crd_forbade_it_is_tolerated() -> None:
    old = admitted(train_job(trainer={"image": "img"}, runtimePatches=[pod_patch(containers=names(1))]), lookup=STORE)
    odd = copy.deepcopy(old)
    odd["spec"]["trainer"] |= {"image": "x" * 501, "numNodes": -1}
    admitted(changed(odd, "metadata.labels", {"a": "b"}), old=odd, lookup=STORE)
    more = changed(odd, "spec.trainer.image", "x" * 502)
    assert answer(review(more, old=odd, lookup=STORE))[1] == long("spec.trainer.image", 500)
    twice = changed(old, "spec.trainer.env", [*names(1), *names(1)])
    admitted(changed(twice, "metadata.labels", {"a": "b"}), old=twice, lookup=STORE)
    ref = changed(old, "spec.managedBy", "")
    admitted(changed(ref, "metadata.labels", {"a": "b"}), old=ref, lookup=STORE)
    container = changed(odd, "spec.runtimePatches.0", pod_patch(containers=[{"name": "n0", "env": [{}]}], time=NOW))
    admitted(changed(container, "metadata.labels", {"a": "b"}), old=container, lookup=STORE)


def test_what_is_tolerated_of_lists() -> None:
    """Named items are found again wherever they are; a list of others must be as it was."""
    old = admitted(train_job(trainer={"args": ["a"], "env": names(2)}), lookup=STORE)
    odd = changed(old, "spec.runtimeRef", {**old["spec"]["runtimeRef"], "name": ""})
    odd = changed(odd, "spec.initializer", {"dataset": {"env": [{"name": "a", "value": 1}, {"name": "b"}]}})
    swapped = changed(odd, "spec.initializer.dataset.env", odd["spec"]["initializer"]["dataset"]["env"][::-1])
    document = runtime(template={"spec": {"replicatedJobs": [{"name": "a"}, {"name": "b"}]}})
    before = default_runtime(document)
    assert review(changed(before, "metadata.labels", {"a": "b"}), old=before).admitted
    turned = changed(
        before, "spec.template.spec.replicatedJobs", before["spec"]["template"]["spec"]["replicatedJobs"][::-1]
    )
    assert review(turned, old=before).admitted
    assert review(swapped, old=odd).stage == "mutating-webhook", "Go reads it all the same"
    targets = [{"jobName": "a", "containerNames": [5, "b"]}]
    before = default_runtime(runtime(mlPolicy={"torch": {"envInjection": {"targets": targets}}}))
    assert review(before, old=before).stage == "validating-webhook", "where Go reads it"
    more = changed(before, "spec.mlPolicy.torch.envInjection.targets.0.containerNames", [5, "c"])
    assert review(more, old=before).stage == "schema"
