"""How plugins merge the lists of a container."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi_trainer.provider.trainer.pipeline.apply import upsert_ports

HTTP = {"containerPort": 80, "name": "http"}
DEBUG = {"containerPort": 90, "name": "debug"}
UNNAMED = {"containerPort": 70}


@pytest.mark.parametrize(
    ("new", "merged"),
    [
        ([{"containerPort": 80, "name": "web"}], [{"containerPort": 80, "name": "web"}, DEBUG, UNNAMED]),
        ([{"containerPort": 81, "name": "http"}], [{"containerPort": 81, "name": "http"}, DEBUG, UNNAMED]),
        ([{"containerPort": 90, "name": "http"}], [{"containerPort": 90, "name": "http"}, DEBUG, UNNAMED]),
        ([{"containerPort": 71}], [HTTP, DEBUG, {"containerPort": 71}]),
        ([{"containerPort": 1, "name": "a"}], [HTTP, DEBUG, UNNAMED, {"containerPort": 1, "name": "a"}]),
        ([{"containerPort": 1, "name": "a"}] * 2, [HTTP, DEBUG, UNNAMED, {"containerPort": 1, "name": "a"}]),
    ],
)
def test_ports_are_merged_by_number_or_name(new: list[Any], merged: list[Any]) -> None:
    assert upsert_ports([HTTP, DEBUG, UNNAMED], new) == merged
