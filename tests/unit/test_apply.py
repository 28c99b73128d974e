"""How plugins merge the lists of a container."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pulumi_trainer.provider.trainer.pipeline.apply import upsert_ports


def reference(current: list[Any], new: list[Any]) -> list[Any]:
    merged = list(current)
    for port in new:
        same = (
            at for at, other in enumerate(merged) if any(other.get(k) == port.get(k) for k in ("containerPort", "name"))
        )
        at = next(same, len(merged))
        merged[at : at + 1] = [port]
    return merged


def test_ports_are_merged_by_number_or_name() -> None:
    chance = random.Random(0)

    def ports() -> list[dict[str, int]]:
        fields = [[k for k in ("containerPort", "name") if chance.random() < 0.8] for _ in range(chance.randrange(7))]
        return [{k: chance.randrange(4) for k in given} for given in fields]

    for _ in range(2000):
        old, new = ports(), ports()
        assert upsert_ports(old, new) == reference(old, new)


@pytest.mark.timeout(30)
def test_many_ports() -> None:
    ports = [{"containerPort": at, "name": f"p{at}"} for at in range(50_000)]
    assert upsert_ports(ports, ports[::-1]) == ports
