"""Which target of its stack a connection of the program stands for."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from pulumi_trainer.program.removals import JOBSET, Resources, jobs_by_name, names_of_target, urn_of_job
from pulumi_trainer.program.session import Program
from pulumi_trainer.provider.targets import queries

TARGET = "pulumi-python:dynamic/trainer:Target"


def recorded(name: str, connection: dict[str, Any], cluster: str | None = None) -> tuple[str, dict[str, Any]]:
    return TARGET, {"urn": f"urn:pulumi:test::lab::{TARGET}::{name}", "target": connection, "cluster": cluster}


def local(python: str, root: str = "/x") -> dict[str, Any]:
    return {"kind": "local", "host": "h", "root": root, "python": python}


def cluster(namespace: str, mode: str = "jobset", **more: Any) -> dict[str, Any]:
    return {"kind": "kubernetes", "mode": mode, "namespace": namespace, **more}


def reserved(stack: Resources, *connections: dict[str, Any], **leads_to: str) -> list[str]:
    """The names that a program reserves in this order. leads_to: content of a kubeconfig -> identity of its cluster."""

    async def run() -> list[str]:
        program = Program()
        program._stack = asyncio.get_running_loop().create_future()
        program._stack.set_result(stack)
        return [await program._reserve(each) for each in connections]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queries, "cluster_identity", lambda target: leads_to.get(target.get("content", ""), ""))
        return asyncio.run(run())


def test_a_connection_stands_for_the_target_that_is_reached_in_the_same_way() -> None:
    stack = [recorded(f"local-{n}" if n > 1 else "local", local(f"python{n}")) for n in range(1, 12)]
    random.shuffle(stack)  # the engine gives them in any order
    assert reserved(stack, local("python7"), local("python1")) == ["local-7", "local"]
    assert names_of_target(stack, local("python7"))[:3] == ["local-7", "local", "local-2"]
    assert reserved(stack, local("another")) == ["local"], "an interpreter may move"


def test_modes_are_told_apart() -> None:
    stack = [recorded("kubernetes-a-2", cluster("a", "trainer")), recorded("kubernetes-a", cluster("a"))]
    assert reserved(stack, cluster("a", "trainer")) == ["kubernetes-a-2"]
    assert reserved([*reversed(stack)], cluster("a")) == ["kubernetes-a"]
    assert reserved([*reversed(stack)], cluster("a", "trainer", context="new")) == ["kubernetes-a-2"]


def test_a_namespace_that_ends_with_a_number_is_another_one() -> None:
    stack = [recorded("kubernetes-team-2", cluster("team-2"))]
    assert reserved(stack, cluster("team"), cluster("team-2")) == ["kubernetes-team", "kubernetes-team-2"]
    three = cluster("team"), cluster("team", "trainer"), cluster("team-2")
    assert reserved([], *three) == ["kubernetes-team", "kubernetes-team.2", "kubernetes-team-2"]
    assert reserved([recorded("kubernetes-team-2", three[1])], *three) == [
        "kubernetes-team-2", "kubernetes-team", "kubernetes-team-2.2",
    ]  # fmt: skip


def test_contents_that_lead_to_two_clusters_are_told_apart() -> None:
    one, two = cluster("a", content="1"), cluster("a", content="2")
    leads_to = {"1": "uid-1", "2": "uid-2"}
    stack = [recorded("kubernetes-a", one, "uid-1"), recorded("kubernetes-a-2", two, "uid-2")]
    for found in (stack, [*reversed(stack)]):
        assert reserved(found, one, two, **leads_to) == ["kubernetes-a", "kubernetes-a-2"]
        assert reserved(found, two, **leads_to) == ["kubernetes-a-2"]
    job = {"urn": "main", "namespace": "a", "name": "train", "target": {**one, "cluster": "uid-1"}}
    jobs = jobs_by_name([(JOBSET, job), ("other", job)])
    assert jobs == {("a", "train"): [job]}
    assert urn_of_job([job], two, "uid-2") == ""
    assert urn_of_job([job], one, "uid-1") == urn_of_job([job], one) == "main"
