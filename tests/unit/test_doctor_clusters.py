"""`doctor` of a stack with queues in two clusters: each object is looked for where it was created."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi_trainer.provider.cli import doctor
from pulumi_trainer.provider.cli.doctor import _GUARD, _expected, _key, _Place, _print_not_compared
from pulumi_trainer.provider.kueue.objects import GROUP
from pulumi_trainer.provider.trainer.labels import MADE_BY

WEST, EAST = ({"kind": "kubernetes", "context": name} for name in ("west", "east"))
URN = "urn:pulumi:dev::p::{}::{}"


def queue(resource: str, name: str) -> dict[str, Any]:
    kind = f"kubernetes:{GROUP}/v1beta2:ClusterQueue"
    return {"type": kind, "urn": URN.format(kind, resource), "id": name, "inputs": {}, "outputs": {}}


def guard(target: dict[str, Any], *objects: dict[str, Any]) -> dict[str, Any]:
    urns = [each["urn"] for each in objects]
    return {"type": _GUARD, "urn": "", "inputs": {"target": target}, "dependencies": urns}


def test_each_object_is_in_the_cluster_of_its_guard() -> None:
    here, there, equal = queue("a", "gpus"), queue("b", "other"), queue("c", "gpus")
    places: Any = {_key(WEST): _Place("west", object()), _key(EAST): _Place("east", object())}  # type: ignore[arg-type]
    state = [here, there, equal, guard(WEST, here), guard(EAST, there, equal)]
    found = [(each.resource, each.where, each.name) for each in _expected(state, places)]
    assert found == [("a", "west", "gpus"), ("b", "east", "other"), ("c", "east", "gpus")]


def test_what_is_not_compared_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    mark = {"metadata": {"annotations": {MADE_BY: "o/p/dev/1"}}}
    policy = {"type": "kubernetes:networking.k8s.io/v1:NetworkPolicy", "inputs": mark}
    role = {"type": "kubernetes:rbac.authorization.k8s.io/v1:Role", "inputs": mark}
    _print_not_compared([policy, policy, role, queue("a", "gpus"), {**policy, "inputs": {}}])
    names = doctor.join_names(["NetworkPolicy (2)", "Role (1)"])
    assert capsys.readouterr().out == f"not compared: {names}; `pulumi preview` compares them\n"
