"""What counts as a change by hand of an object, and the patch that reverts it."""

from __future__ import annotations

from typing import Any

from pulumi_trainer.provider.kubernetes.hand_edits import edits_text, find_edits, restoration, restoring_patch

FLAVOR = {"name": "h100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "16"}]}
SPEC = {"cohortName": "gpus", "resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": [FLAVOR]}]}
MARKS = {"metadata": {"name": "gpus-rl", "labels": {"team": "rl"}, "annotations": {"example.com/price": "3"}}}
WANTED: dict[str, Any] = {"apiVersion": "v1beta2", "kind": "ClusterQueue", **MARKS, "spec": SPEC}
APPLIED: dict[str, Any] = {**WANTED, "spec": {**SPEC, "stopPolicy": "None"}, "status": {"pendingWorkloads": 1}}


def live(spec: dict[str, Any], *managers: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """The object as somebody has changed it. managers: Entries of managedFields."""
    about = {**APPLIED["metadata"], **metadata, "managedFields": [*managers]}
    return {**APPLIED, "metadata": about, "spec": {**APPLIED["spec"], **spec}, "status": {"pendingWorkloads": 9}}


def manager(name: str, *fields: str, subresource: str = "") -> dict[str, Any]:
    entry = {
        "manager": name,
        "time": "2026-11-29T00:12:00Z",
        "fieldsV1": {"f:spec": {f"f:{each}": {} for each in fields}},
    }
    return {**entry, "subresource": subresource} if subresource else entry


def less(quota: str) -> list[dict[str, Any]]:
    flavor = {**FLAVOR, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": quota}]}
    return [{"coveredResources": ["nvidia.com/gpu"], "flavors": [flavor]}]


def test_changed_values_are_named_with_who_has_changed_them() -> None:
    now = live(
        {"resourceGroups": less("3"), "stopPolicy": "Hold"}, manager("kubectl-edit", "resourceGroups", "stopPolicy")
    )
    edits = find_edits(APPLIED, now, WANTED)
    assert edits_text(edits) == (
        "was changed by hand (kubectl-edit at 2026-11-29T00:12:00Z): resourceGroups[0].flavors[h100]"
        ".resources[nvidia.com/gpu].nominalQuota 16 -> 3; stopPolicy None -> Hold"
    )
    assert restoring_patch(restoration(edits, WANTED)) == {
        "spec": {"resourceGroups": SPEC["resourceGroups"], "stopPolicy": None}
    }


def test_removed_fields_count_and_own_labels_too() -> None:
    now = live({}, labels={"team": "nlp", "other": "x"})
    del now["spec"]["cohortName"]
    edits = find_edits(APPLIED, now, WANTED)
    assert edits_text(edits) == "was changed by hand: team rl -> nlp; cohortName gpus -> nothing"
    assert restoring_patch(restoration(edits, WANTED)) == {
        "metadata": {"labels": {"team": "rl"}},
        "spec": {"cohortName": "gpus"},
    }


def test_a_field_that_nobody_has_set_is_a_default_of_a_newer_api() -> None:
    assert find_edits(APPLIED, live({"queueingStrategy": "BestEffortFIFO"}), WANTED) == []
    controller = manager("kueue", "queueingStrategy", subresource="status")
    assert find_edits(APPLIED, live({"queueingStrategy": "BestEffortFIFO"}, controller), WANTED) == []
    plugin = manager("pulumi-kubernetes-1a2b", "queueingStrategy")
    assert find_edits(APPLIED, live({"queueingStrategy": "BestEffortFIFO"}, plugin), WANTED) == []
    (edit,) = find_edits(APPLIED, live({"fairSharing": {"weight": "2"}}, manager("kubectl", "fairSharing")), WANTED)
    assert [*edit.lines] == ['fairSharing nothing -> {"weight": "2"}']


def test_the_program_may_take_over_what_was_changed() -> None:
    now = live({"resourceGroups": less("3")}, manager("kubectl-edit", "resourceGroups"))
    assert find_edits(APPLIED, now, {**WANTED, "spec": {**SPEC, "resourceGroups": less("3")}}) == []
    (edit,) = find_edits(APPLIED, now, {**WANTED, "spec": {**SPEC, "resourceGroups": less("8")}})
    assert restoring_patch(restoration([edit], {**WANTED, "spec": {**SPEC, "resourceGroups": less("8")}})) == {
        "spec": {"resourceGroups": less("8")}
    }


def test_an_object_that_is_served_in_another_version_is_not_compared() -> None:
    now = {**live({"stopPolicy": "Hold"}, manager("kubectl", "stopPolicy")), "apiVersion": "v1beta3"}
    assert find_edits(APPLIED, now, WANTED) == [] and find_edits({}, now, WANTED) == []
