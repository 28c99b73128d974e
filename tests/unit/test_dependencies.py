"""What the resources that a job depends on may make in its cluster."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest
from pulumi_trainer.program.dependencies import explicit, made_by
from pulumi_trainer.provider.jobs.submission import ANYTHING


def resource(type_: str, metadata: Any = None) -> Any:
    return SimpleNamespace(pulumi_resource_type=type_, metadata=metadata)


def found(*resources: Any) -> set[str]:
    async def ask() -> set[str]:
        return set(await made_by(resources))

    return asyncio.run(ask())


@pytest.fixture(autouse=True)
def previewing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulumi.runtime, "is_dry_run", lambda: True)


OBJECTS = [
    ("kubernetes:core/v1:Secret", {"name": "s"}, "Secret/s"),
    ("kubernetes:core/v1:Secret", SimpleNamespace(name="s"), "Secret/s"),
    ("kubernetes:core/v1:SecretPatch", {"name": "s"}, "Secret/s"),
    ("kubernetes:core/v1:Secret", None, "Secret/"),
    ("kubernetes:core/v1:Secret", {}, "Secret/"),
    ("kubernetes:core/v1:PersistentVolumeClaim", {"name": "data"}, "PersistentVolumeClaim/data"),
    ("kubernetes:scheduling.k8s.io/v1:PriorityClass", {"name": "high"}, "PriorityClass/high"),
    ("kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue", {"name": "team"}, "LocalQueue/team"),
    ("kubernetes:core/v1:Namespace", {"name": "nlp"}, "Namespace/nlp"),
    ("kubernetes:helm.sh/v3:Release", {"name": "s"}, ANYTHING),
    ("kubernetes:helm.sh/v4:Chart", None, ANYTHING),
    ("kubernetes:yaml:ConfigFile", None, ANYTHING),
    ("kubernetes:yaml/v2:ConfigGroup", None, ANYTHING),
    ("kubernetes:kustomize/v2:Directory", None, ANYTHING),
    ("acme:index:Team", None, ANYTHING),
    ("aws:eks/addon:Addon", None, ANYTHING),
]


@pytest.mark.parametrize(("type_", "metadata", "makes"), OBJECTS, ids=[f"{t} {m}" for t, m, _ in OBJECTS])
def test_an_object_a_chart_and_anything_else(type_: str, metadata: Any, makes: str) -> None:
    assert found(resource(type_, metadata)) == {makes}


def test_our_own_and_providers_make_nothing_that_the_program_does_not_know() -> None:
    ours = ("trainer:index:TrainJob", "pulumi-python:dynamic/trainer:Volume", "pulumi:providers:kubernetes")
    assert found(*map(resource, ours)) == set()


def test_no_name_is_waited_for_in_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulumi.runtime, "is_dry_run", lambda: False)
    never: Any = resource("kubernetes:core/v1:Secret", asyncio.Future)
    assert found(never) == {"Secret/", "Namespace/"}


def of_type(type_: str, depends_on: list[Any], **options: Any) -> Any:
    """One of our own resources, which keep their options."""
    made: Any = pulumi.CustomResource.__new__(pulumi.CustomResource)
    made._type, made.metadata = type_, {"name": "team", "namespace": "team"}
    made._opts = pulumi.ResourceOptions(depends_on=depends_on, **options)
    return made


def foreign(type_: str, metadata: Any = None) -> Any:
    made: Any = pulumi.CustomResource.__new__(pulumi.CustomResource)
    made._type, made.metadata = type_, metadata
    return made


LOCAL_QUEUE = "kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue"


def test_what_our_own_resources_wait_for_is_created_before_them_too() -> None:
    """A job in a queue depends on the queue's object, which depends on what the program gives the component."""
    namespace, chart = foreign("kubernetes:core/v1:Namespace", {"name": "team"}), foreign("kubernetes:helm.sh/v4:Chart")
    component = of_type("trainer:index:LocalQueue", [namespace])
    cluster_queue = of_type("kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue", [])
    cluster_queue.metadata = {"name": "gpus"}
    queue = of_type(LOCAL_QUEUE, [cluster_queue], parent=component)
    assert found(queue) == {"LocalQueue/team", "ClusterQueue/gpus", "Namespace/team"}
    assert found(component) == {"Namespace/team"}
    cluster_queue._opts = pulumi.ResourceOptions(depends_on=[chart])
    assert ANYTHING in found(queue)
    fetch = of_type("pulumi-python:dynamic/trainer:JobSet", [of_type("trainer:index:TrainJob", [namespace])])
    assert found(fetch) == {"Namespace/team"}


def test_a_component_of_the_program_above_ours_is_no_dependency() -> None:
    above = foreign("acme:index:Team")
    assert found(of_type("trainer:index:TrainJob", [], parent=above)) == set()


def test_an_object_in_a_namespace_comes_after_its_namespace() -> None:
    """Pulumi keeps no dependencies of objects that the program creates with pulumi-kubernetes."""
    metadata = {"name": "team", "namespace": "nlp"}
    for each in (metadata, SimpleNamespace(**metadata)):
        assert found(resource(LOCAL_QUEUE, each)) == {"LocalQueue/team", "Namespace/nlp"}


def test_what_is_not_known_yet_may_be_anything() -> None:
    assert found(None) == {ANYTHING}


def test_depends_on_in_all_its_forms() -> None:
    async def given(value: Any) -> list[Any]:
        return await explicit(pulumi.ResourceOptions(depends_on=value() if callable(value) else value))

    one: Any = pulumi.Resource.__new__(pulumi.CustomResource)
    assert asyncio.run(given(None)) == [] and asyncio.run(given(one)) == [one] and asyncio.run(given([one])) == [one]
    assert asyncio.run(given(lambda: pulumi.Output.from_input([one]))) == [one]
    assert asyncio.run(given(lambda: [pulumi.Output.from_input(one)])) == [one]
