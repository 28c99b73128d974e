"""Names of resources that follow what the stack has, not the order in which a program asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulumi_trainer.program.removals import URN, names_of_runtimes

CLUSTER = {"kind": "kubernetes", "kubeconfig": "a", "context": "c"}
KIND = "trainer:index:TrainingRuntime"
CHILD = "pulumi-python:dynamic/trainer:Runtime"


def urn(name: str) -> str:
    return f"urn:pulumi:dev::project::{KIND}::{name}"


def has(name: str, namespace: str, target: Mapping[str, Any] = CLUSTER) -> tuple[str, Mapping[str, Any]]:
    document = {"kind": "TrainingRuntime", "metadata": {"name": "rt", "namespace": namespace}}
    return CHILD, {URN: f"urn:pulumi:dev::project::{KIND}${CHILD}::{name}", "document": document, "target": target}


def test_a_runtime_keeps_the_name_that_the_stack_has_for_its_namespace() -> None:
    stack = [has("rt", "b"), has("rt-2", "c"), has("rt-d", "d")]
    found = {namespace: names_of_runtimes(stack, [urn("rt")], namespace, CLUSTER) for namespace in "bcde"}
    assert found == {"b": ["rt"], "c": ["rt-2"], "d": ["rt-d"], "e": []}


def test_a_runtime_of_the_same_cluster_comes_before_one_that_is_reached_in_another_way() -> None:
    stack = [has("rt", "b", {**CLUSTER, "context": "other"}), has("rt-2", "b")]
    assert names_of_runtimes(stack, [urn("rt")], "b", CLUSTER) == ["rt-2", "rt"]


def test_a_runtime_of_another_component_is_not_taken() -> None:
    stack = [(KIND, {URN: urn("rt-2")}), has("rt-2", "b"), has("rtx", "b")]
    assert names_of_runtimes(stack, [urn("rt")], "b", CLUSTER) == []


def test_a_renamed_component_goes_on_under_its_own_name() -> None:
    stack = [(KIND, {URN: urn("old")}), has("old", "b"), has("old-2", "c")]
    assert names_of_runtimes(stack, [urn("new"), urn("old")], "c", CLUSTER) == ["new-2"]


def test_a_state_that_was_edited_names_nothing() -> None:
    stack = [(CHILD, {URN: f"urn:pulumi:dev::project::{KIND}${CHILD}::rt", "document": None})]
    assert names_of_runtimes(stack, [urn("rt")], "b", CLUSTER) == []
