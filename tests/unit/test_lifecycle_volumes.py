"""What changes a volume in place, what replaces it, and what it cannot become."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi_trainer.provider.lifecycle import volumes

BEFORE: dict[str, Any] = {
    "namespace": "team",
    "name": "job-output",
    "digest": "d",
    "target": {"kind": "kubernetes", "sweep": "s"},
    "claim": {"accessMode": "ReadWriteMany", "storageClass": "nfs", "size": "10Gi"},
}


def checked(claim: dict[str, Any], **news: Any) -> Any:
    return volumes.check(BEFORE, {**BEFORE, "claim": claim, **news})


def test_another_digest_is_another_volume() -> None:
    found = checked({"accessMode": "ReadWriteOnce"}, digest="e", name="other")
    assert found.failures == () and found.inputs["name"] == "other"
    assert volumes.diff(BEFORE, found.inputs).replaces == ("name", "digest")


def test_a_renamed_stack_keeps_its_volume() -> None:
    found = checked(BEFORE["claim"], name="job-of-another-stack")
    assert found.inputs == BEFORE and volumes.diff(BEFORE, found.inputs).changes is False


@pytest.mark.parametrize(
    "claim",
    [
        {"accessMode": "ReadWriteOnce", "storageClass": "nfs", "size": "10Gi"},  # one node less: it serves one as well
        {"accessMode": "ReadWriteMany"},  # nothing said any more
    ],
)
def test_what_it_has_is_kept_where_it_serves(claim: dict[str, Any]) -> None:
    found = checked(claim)
    assert found.failures == () and not volumes.diff(BEFORE, found.inputs).changes


@pytest.mark.parametrize(("claim", "now"), [({"size": "20Gi"}, "20Gi"), ({"size": "10240Mi"}, "10240Mi")])
def test_it_grows_in_place(claim: dict[str, Any], now: str) -> None:
    found = checked({**BEFORE["claim"], **claim})
    diff = volumes.diff(BEFORE, found.inputs)
    assert (found.failures, diff.changes, diff.replaces, found.inputs["claim"]["size"]) == ((), True, (), now)


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
    found = volumes.check(was, {**was, "claim": {**was["claim"], **after}})
    assert len(found.failures) == 1 and why in found.failures[0]
    assert "kubectl delete pvc -n team job-output" in found.failures[0]


def test_a_folder_on_this_machine_has_no_claim() -> None:
    local = {k: v for k, v in BEFORE.items() if k != "claim"}
    assert volumes.check(local, {**local, "name": "x"}).inputs == local
    assert not volumes.diff(local, local).changes
