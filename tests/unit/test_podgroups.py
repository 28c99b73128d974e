"""PodGroups of a program's own, without a cluster: what is refused, and in which words. The real server judges the same table
in tests/cluster/test_podgroups.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pulumi
import pulumi_trainer as trainer
import pytest
from podgroups_support import BAD, GOOD, VOLCANO, pod_group
from pulumi_trainer import podgroups
from pulumi_trainer.program import session
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.trainer.admission.podgroups import mistakes, refusals


@pytest.mark.parametrize("name", list(GOOD))
def test_good(name: str) -> None:
    assert refusals(GOOD[name]) == []


@pytest.mark.parametrize("name", list(BAD))
def test_bad(name: str) -> None:
    document, where = BAD[name]
    found = refusals(document)
    assert found and all(where in str(p) and "<nil>" not in str(p) for p in found), found


def test_volcano() -> None:
    spec = {
        "minMember": 4, "minTaskMember": {"worker": 3}, "minResources": {"nvidia.com/gpu": "32"}, "queue": "research",
        "priorityClassName": "high", "networkTopology": {"mode": "soft", "highestTierAllowed": 2},
    }  # fmt: skip
    assert refusals(pod_group(VOLCANO, **spec)) == refusals(pod_group(VOLCANO)) == []
    for field, value in {
        "minTaskMember": {"worker": "3"}, "queue": 3, "priorityClassName": 1, "networkTopology": {"mode": "near"},
        "scheduleTimeoutSeconds": 3,
    }.items():  # fmt: skip
        (found,) = refusals(pod_group(VOLCANO, **{**spec, field: value}))
        assert found.where.startswith(f"spec.{field}"), found


def test_less_than_nothing() -> None:
    def told(document: dict[str, Any]) -> list[str]:
        return [p.where for p in mistakes(document)]

    assert told(GOOD["negative resources"]) == ["spec.minResources[cpu]"]
    assert told(GOOD["negative time"]) == ["spec.scheduleTimeoutSeconds"]
    assert told(pod_group(VOLCANO, minMember=-1)) == ["spec.minMember"]
    assert told(GOOD["all fields"]) == []


@pytest.mark.parametrize("field", ["minMember", "minResources", "scheduleTimeoutSeconds"])
def test_what_is_not_known_yet_is_right(field: str) -> None:
    document = pod_group(**{**GOOD["all fields"]["spec"], field: Unknown("u")})
    assert refusals(document) == mistakes(document) == []
    inside = pod_group(minMember=1, minResources={"cpu": Unknown("u")})
    assert refusals(inside) == mistakes(inside) == []


def problems(make: Any, patch: pytest.MonkeyPatch) -> list[str]:
    """What components tell at the end of their program."""
    settings = pulumi.runtime.Settings(project="project", stack="stack", dry_run=True)
    patch.setattr(pulumi.runtime.settings, "SETTINGS", settings)
    patch.setattr(pulumi.ComponentResource, "__init__", lambda *_, **__: None)
    patch.setattr(pulumi.ComponentResource, "register_outputs", lambda *_: None)

    async def run() -> list[str]:
        here = session.current()
        patch.setattr(here, "_reporting", True)
        make()
        await asyncio.gather(*here._tasks)
        return [str(p) for p in here.problems]

    return asyncio.run(run())


def test_all_that_is_wrong_is_told_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> None:
        group: Any = trainer.CoschedulingPodGroup
        group("a", min_member=0, min_resources={"cpu": "many"})
        group("b", min_members=2, min_member=1)
        trainer.VolcanoPodGroup("c", network_topology=trainer.VolcanoNetworkTopology(mode="near"))  # type: ignore[arg-type]
        trainer.VolcanoPodGroup("d", min_member=-1)
        group("E", min_member=1)

    found = problems(make, monkeypatch)
    places = [line.partition(": ")[0] for line in found]
    assert [place.partition(" (test_podgroups.py")[0] for place in places] == [
        'CoschedulingPodGroup("a")', 'CoschedulingPodGroup("a")', 'CoschedulingPodGroup("b")', 'VolcanoPodGroup("c")',
        'VolcanoPodGroup("d")', 'CoschedulingPodGroup("E")',
    ], found  # fmt: skip
    assert all("test_podgroups.py:" in place for place in places)
    for line, said in zip(
        found,
        ("min_member", "min_resources", "min_members", "network_topology.mode", "min_member", "name"),
        strict=True,
    ):
        assert f".{said}" in line or f": {said}" in line, line


def test_what_its_pods_bear() -> None:
    made = podgroups.CoschedulingPodGroup.__new__(podgroups.CoschedulingPodGroup)
    made.name = "sweep"
    assert (made.pod_labels, made.pod_annotations) == ({"scheduling.x-k8s.io/pod-group": "sweep"}, {})
    other = podgroups.VolcanoPodGroup.__new__(podgroups.VolcanoPodGroup)
    other.name = "sweep"
    assert (other.pod_labels, other.pod_annotations) == ({}, {"scheduling.k8s.io/group-name": "sweep"})


def test_a_change_by_hand_affects_the_jobs_with_pods_of_the_group() -> None:
    group = trainer.CoschedulingPodGroup.__new__(trainer.CoschedulingPodGroup)
    group.name = "gang"

    def affected(labels: dict[str, str]) -> bool:
        pods = {"spec": {"template": {"metadata": {"labels": labels}}}}
        return group.affects({"spec": {"replicatedJobs": [{"template": {}}, {"template": pods}]}})

    assert affected({"scheduling.x-k8s.io/pod-group": "gang", "a": "b"})
    assert not affected({"scheduling.x-k8s.io/pod-group": "other"}) and not affected({})
