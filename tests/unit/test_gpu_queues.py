"""`GpuQueues`: what its arguments mean, and the table of quotas that it exports."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi_trainer import Team
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kueue.objects import quota_rows, with_canonical_quantities
from pulumi_trainer.queues.flavors import ResourceFlavor
from pulumi_trainer.queues.teams import team_problems

GPU = "nvidia.com/gpu"


def problems(**given: Any) -> list[str]:
    arguments = {
        "teams": {"a": 8}, "gpus": {"pool": None}, "cohort": "pool", "borrowing": True, "priorities": ("low", "high"),
        "topology": None, "others": {}, "prices": None, "memory": None, **given,
    }  # fmt: skip
    return [str(problem) for problem in team_problems(arguments, [GPU], "pool")]


def queue(name: str, nominal: int, **spec: Any) -> dict[str, Any]:
    flavors = [{"name": "h100", "resources": [{"name": GPU, "nominalQuota": nominal}]}]
    return {"metadata": {"name": name}, "spec": {"resourceGroups": [{"flavors": flavors}], **spec}}


@pytest.mark.parametrize("lending", [True, False])
def test_lending_is_a_number(lending: Any) -> None:
    """Unlike borrowing, which may be switched off."""
    assert problems(teams={"a": Team(gpus=8, borrowing=False)}) == []
    assert problems(teams={"a": Team(gpus=8, lending=lending)}) == [
        f"teams[a].lending: must be a number of GPUs, not {lending}. Hint: 0 lends none; leave it out to lend all"
    ]


@pytest.mark.parametrize(("cohort", "shared"), [({}, (0, 0, 8)), ({"cohortName": "pool"}, (None, None, 16))])
def test_a_queue_without_a_cohort_has_its_own_quota_alone(cohort: dict[str, str], shared: tuple[Any, ...]) -> None:
    for row in quota_rows([queue("pool-a", 8, **cohort), queue("pool-b", 8, **cohort)], ["a", "b"], GPU):
        assert (row["borrows"], row["lends"], row["of"]) == shared and row["own"] == 8


def test_a_label_that_is_called_like_a_quantity_is_a_label() -> None:
    flavor = {"metadata": {"labels": {"weight": "heavy"}}, "spec": {"nodeLabels": {"weight": "1000"}}}
    assert with_canonical_quantities(flavor) == flavor
    shared = with_canonical_quantities({"spec": {"fairSharing": {"weight": "1000m"}}})
    assert shared == {"spec": {"fairSharing": {"weight": "1"}}}
    with pytest.raises(Invalid, match=r"spec\.fairSharing\.weight: must be a quantity"):
        with_canonical_quantities({"spec": {"fairSharing": {"weight": "heavy"}}})


PRICE = "must be the price of an hour of a GPU, 0 or more, not"


@pytest.mark.parametrize(
    ("prices", "problem"),
    [
        ({"a100": 3.2}, "prices[a100]: unknown kind of GPU. Hint: available: pool"),
        ({"pool": -3.2}, f'prices[pool]: {PRICE} -3.2. Hint: for example 3.20, or "3.20 EUR"'),
        ({"pool": "much"}, f"prices[pool]: {PRICE} 'much'. Hint: for example 3.20, or \"3.20 EUR\""),
        ({"pool": True}, f'prices[pool]: {PRICE} True. Hint: for example 3.20, or "3.20 EUR"'),
        ({"pool": float("nan")}, f'prices[pool]: {PRICE} nan. Hint: for example 3.20, or "3.20 EUR"'),
        ({"pool": "3 GPU-hours"}, f"prices[pool]: {PRICE} '3 GPU-hours'. Hint: for example 3.20, or \"3.20 EUR\""),
        (3.2, "prices: must be a mapping from kinds of GPUs to prices, not 3.2"),
    ],
)
def test_prices_that_nothing_can_be_computed_from(prices: Any, problem: str) -> None:
    assert problems(prices={"pool": "3.20 EUR"}) == problems(prices={"pool": 0}) == []
    assert problems(prices=prices) == [problem]


def test_the_price_of_a_flavor_that_the_program_makes_itself_is_its_annotation() -> None:
    given = ResourceFlavor.__new__(ResourceFlavor)
    (problem,) = problems(gpus={"pool": given}, prices={"pool": 3})
    assert 'annotations={"pulumi-trainer.dev/price-per-hour": "3.20 USD"}' in problem


@pytest.mark.parametrize(
    ("memory", "problem"),
    [
        ({"a100": "80Gi"}, "memory[a100]: unknown kind of GPU. Hint: available: pool"),
        ({"pool": 80}, 'memory[pool]: must be the memory of one GPU, not 80. Hint: for example "80Gi"'),
        ({"pool": "80"}, "memory[pool]: must be the memory of one GPU, not '80'. Hint: for example \"80Gi\""),
        ({"pool": "80 GB"}, "memory[pool]: must be the memory of one GPU, not '80 GB'. Hint: for example \"80Gi\""),
        ("80Gi", "memory: must be a mapping from kinds of GPUs to memory, not '80Gi'"),
    ],
)
def test_memory_that_no_gpu_has(memory: Any, problem: str) -> None:
    assert problems(memory={"pool": "80Gi"}) == problems(memory={"pool": "81559Mi"}) == []
    assert problems(memory=memory) == [problem]


@pytest.mark.parametrize("budget", ["5000", 5000, "-1 USD", "many GPU-hours", "5000 gpu-hours", "1e9 USD"])
def test_a_budget_is_money_or_gpu_hours(budget: Any) -> None:
    assert problems(teams={"a": Team(gpus=8, budget="5000 GPU-hours")}) == []
    (problem,) = problems(teams={"a": Team(gpus=8, budget=budget)})
    assert problem.startswith("teams[a].budget: must be the money or the GPU-hours of a month, not ")
    assert problem.endswith('for example "20000 USD" or "5000 GPU-hours"')
