"""What counts as a change by hand of an object, and the patch that reverts it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from pulumi_trainer.program import drift
from pulumi_trainer.provider.kubernetes.hand_edits import (
    differences,
    edits_text,
    find_edits,
    restoration,
    restoring_patch,
    with_edits,
    with_plugin_as_manager,
    with_sole_manager,
)
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE

FLAVOR = {"name": "h100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "16"}]}
SPEC = {"cohortName": "gpus", "resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": [FLAVOR]}]}
MARKS = {"metadata": {"name": "gpus-rl", "labels": {"team": "rl"}, "annotations": {"example.com/price": "3"}}}
WANTED: dict[str, Any] = {"apiVersion": "v1beta2", "kind": "ClusterQueue", **MARKS, "spec": SPEC}
APPLIED: dict[str, Any] = {**WANTED, "spec": {**SPEC, "stopPolicy": "None"}, "status": {"pendingWorkloads": 1}}


def live(spec: dict[str, Any], *managers: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """The object as somebody has changed it. managers: Entries of managedFields."""
    about = {**APPLIED["metadata"], **metadata, "managedFields": [*managers]}
    return {**APPLIED, "metadata": about, "spec": {**APPLIED["spec"], **spec}, "status": {"pendingWorkloads": 9}}


def manager(name: str, *fields: str, subresource: str = "", at: str = "2026-11-29T00:12:00Z") -> dict[str, Any]:
    entry: dict[str, Any] = {
        "manager": name,
        "operation": "Apply" if name.startswith("pulumi") else "Update",
        "time": at,
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


def test_an_empty_selector_selects_everything_and_none_nothing() -> None:
    applied, wanted = ({**each, "spec": {**each["spec"], "namespaceSelector": {}}} for each in (APPLIED, WANTED))
    edits = find_edits(applied, live({}), wanted)
    assert edits_text(edits) == "was changed by hand: namespaceSelector {} -> nothing"
    assert restoring_patch(restoration(edits, wanted)) == {"spec": {"namespaceSelector": {}}}
    now = live({"namespaceSelector": {}}, manager("kubectl-edit", "namespaceSelector"))
    assert [*find_edits(APPLIED, now, WANTED)[0].lines] == ["namespaceSelector nothing -> {}"]


def test_a_change_that_a_refresh_has_taken_into_the_state_still_counts() -> None:
    plugin = manager("pulumi-kubernetes-1a2b", at="2026-11-29T00:10:00Z")
    now = live({"resourceGroups": less("3"), "fairSharing": {"weight": "2"}, "stopPolicy": "Hold"}, plugin)
    fields = ("resourceGroups", "fairSharing", "stopPolicy")
    now["metadata"]["managedFields"].append(manager("kubectl-edit", *fields))
    assert edits_text(find_edits(now, now, WANTED)) == (
        "was changed by hand (kubectl-edit at 2026-11-29T00:12:00Z): resourceGroups[0].flavors[h100]"
        '.resources[nvidia.com/gpu].nominalQuota 16 -> 3; stopPolicy nothing -> Hold; fairSharing nothing -> {"weight": "2"}'
    )
    partly = {**now, "spec": {**now["spec"], "fairSharing": {"weight": "1"}}}
    assert [each.path for each in find_edits(partly, now, WANTED)] == [
        ("spec", "fairSharing", "weight"),
        ("spec", "resourceGroups"),
        ("spec", "stopPolicy"),
    ]
    assert find_edits(now, now, {**WANTED, "spec": Unknown("spec")}) == []


def test_what_others_had_set_before_this_stack_applied_the_object_is_no_change() -> None:
    creator = manager("kubectl-create", "stopPolicy", "fairSharing", "cohortName", at="2026-11-29T00:10:00Z")
    now = live({"fairSharing": {"weight": "2"}}, creator, manager("pulumi-kubernetes-1a2b", "cohortName"))
    assert find_edits(now, now, {**WANTED, "spec": {**SPEC, "cohortName": "other"}}) == []


def test_what_was_put_back_belongs_to_the_plugin_again() -> None:
    plugin, status = manager("pulumi-kubernetes-1a2b", "cohortName"), manager("us", "a", subresource="status")
    edited, ours = manager("kubectl-edit", "fairSharing"), manager("us", "stopPolicy", "cohortName")
    ours["fieldsV1"]["f:metadata"] = {"f:labels": {".": {}, "f:team": {}}}
    given = with_plugin_as_manager([edited, ours, plugin, status], "us")
    both = {"f:spec": {"f:cohortName": {}, "f:stopPolicy": {}}, "f:metadata": {"f:labels": {".": {}, "f:team": {}}}}
    assert given == [edited, {**plugin, "fieldsV1": both}, status]
    assert with_plugin_as_manager([edited, ours], "us") == [edited, ours]


def test_labels_concern_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = {(CLUSTER_QUEUE.group, CLUSTER_QUEUE.kind, "", "gpus-rl"): APPLIED}

    async def owner() -> Any:
        return SimpleNamespace(recorded=recorded)

    warned: list[str] = []
    program = SimpleNamespace(object_owner=owner, is_unreported=lambda _: True)
    monkeypatch.setattr(drift.session, "current", lambda: program)
    monkeypatch.setattr(drift.messages, "warn", lambda note: warned.append(str(note)))

    def review(now: dict[str, Any]) -> Any:
        return asyncio.run(drift.review_edits(CLUSTER_QUEUE, now, WANTED, None, lambda: ["nlp/llama"]))

    found, refused = review(live({}, labels={"team": "nlp"}))
    assert [edit.path for edit in found.restored] == [("metadata", "labels", "team")] and refused == []
    assert warned == ["ClusterQueue gpus-rl was changed by hand: team rl -> nlp; an update puts it back"]
    found, (refusal,) = review(live({"stopPolicy": "Hold"}, manager("kubectl", "stopPolicy")))
    assert not found.restored and "These jobs are affected: nlp/llama" in refusal.why


def test_a_change_in_the_second_of_the_last_apply_is_seen_after_a_refresh() -> None:
    at = "2026-11-29T00:12:00Z"
    now = live(
        {"stopPolicy": "Hold"}, manager("pulumi-kubernetes-1", "x", at=at), manager("kubectl", "stopPolicy", at=at)
    )
    assert [edit.path for edit in find_edits(now, now, WANTED)] == [("spec", "stopPolicy")]


def test_what_was_put_back_is_no_change_though_a_refresh_has_taken_it_into_the_state() -> None:
    refreshed = {**APPLIED, "spec": {**APPLIED["spec"], "stopPolicy": "Hold", "fairSharing": {"weight": "2"}}}
    assert find_edits(refreshed, live({}, manager("pulumi-kubernetes-1a2b", "stopPolicy")), WANTED) == []


def test_what_a_program_would_change_in_an_object_that_it_takes_over() -> None:
    assert differences(live({}), {**WANTED, "spec": APPLIED["spec"]}) == []
    assert differences(live({"stopPolicy": "Hold"}), WANTED) == ["stopPolicy Hold -> nothing"]
    assert differences(live({"cohortName": "others"}), APPLIED) == ["cohortName others -> gpus"]
    assert differences(live({}, labels={}), APPLIED) == ["team nothing -> rl"]
    assert differences({"metadata": {}}, {"metadata": {}, "spec": {}}) == []  # kubectl may leave an empty spec out
    assert differences(live({}), {**APPLIED, "spec": {**APPLIED["spec"], "stopPolicy": Unknown("x")}}) == []


def test_one_manager_alone_has_the_spec_of_an_adopted_object() -> None:
    """An apply removes only fields that its own manager has; labels of others stay with them."""
    plugin, kueue = manager("pulumi-kubernetes-1", "cohortName"), manager("kueue", "x", subresource="status")
    kubectl = manager("kubectl-client-side-apply", "cohortName", "stopPolicy")
    kubectl["fieldsV1"]["f:metadata"] = {"f:labels": {"f:team": {}, "f:own": {}}}
    plugin["fieldsV1"]["f:metadata"] = {"f:labels": {"f:team": {}}}
    made = with_sole_manager([kubectl, kueue, plugin])
    assert made[0]["fieldsV1"] == {"f:metadata": {"f:labels": {"f:own": {}}}} and made[1] == kueue
    assert made[2]["fieldsV1"]["f:spec"] == {"f:cohortName": {}, "f:stopPolicy": {}}
    assert with_sole_manager([kubectl]) == [kubectl]


def test_what_is_kept_is_applied_as_it_is_until_the_program_says_the_same() -> None:
    now = live({"stopPolicy": "Hold"}, manager("kubectl", "stopPolicy"), labels={})
    edits = find_edits(APPLIED, now, WANTED)
    assert {edit.field for edit in edits} == {"team", "stopPolicy"}
    applied = with_edits(WANTED, edits)
    assert applied["spec"] == {**SPEC, "stopPolicy": "Hold"} and applied["metadata"]["labels"] == {}
    assert "stopPolicy" not in WANTED["spec"], "the program's own document stays"
    kept = [edit.path for edit in edits]
    assert find_edits(now, now, WANTED) == [], "the stack has it now"
    later = find_edits(now, now, WANTED, kept)
    assert [edit.path for edit in later] == kept and with_edits(WANTED, later) == applied
    assert find_edits(now, now, applied, kept) == []
