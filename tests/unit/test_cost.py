"""Prices, and what a run will use and cost."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.provider.jobs.cost import Cost, Time, cost_of, estimate_time, rounded, time_limit
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.usage import Demand, is_gpu
from pulumi_trainer.provider.kueue.labels import MAX_EXECUTION
from pulumi_trainer.provider.kueue.prices import GPU_HOURS, PRICE, Prices, gpu_flavors, read_budget, read_price
from test_start_answers import kueue, team

HOUR = 3600.0


def prices(**by_flavor: Any) -> Prices:
    return Prices({name: read_price(price) for name, price in by_flavor.items()})


def cost(time: Time | None, *flavors: str, known: Prices | None = None) -> Cost:
    return Cost(64, time, frozenset(flavors), known or Prices())


NOTE = "its last successful run took 1h30m"
LAST = Time(1.5 * HOUR, NOTE)


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (cost(LAST, "h100", known=prices(h100=3.2)), f"about 96 GPU-hours, 307 USD (h100 3.20 USD an hour; {NOTE})"),
        (cost(LAST, "h100-0a1b2c", known=prices(h100=3)), f"about 96 GPU-hours, 288 USD (h100 3 USD an hour; {NOTE})"),
        (
            cost(Time(HOUR, "its time limit is 1h00m", limited=True), "h100", known=prices(h100="0.005 EUR")),
            "at most 64 GPU-hours, 0.32 EUR (h100 0.005 EUR an hour; its time limit is 1h00m)",
        ),
        (cost(LAST, "a", "b", known=prices(a=2, b=2)), f"about 96 GPU-hours, 192 USD (a, b 2 USD an hour; {NOTE})"),
        (
            cost(LAST, "a", "b", known=prices(a=2, b=3)),
            f"about 96 GPU-hours (its cost depends on which flavor it gets: a, b; {NOTE})",
        ),
        (
            cost(LAST, "b", known=prices(a=2)),
            f"about 96 GPU-hours (its cost is not known: b has no price; {NOTE})",
        ),
        (
            cost(LAST, known=prices(a=2)),
            f"about 96 GPU-hours (its cost is not known, nor is its flavor; {NOTE})",
        ),
        (cost(LAST, "h100", known=prices()), "about 96 GPU-hours (its last successful run took 1h30m)"),
        (
            cost(None, "h100", known=prices(h100=3.2)),
            "205 USD an hour (h100 3.20 USD an hour), and how long it runs is not known",
        ),
        (cost(None, "h100", known=prices()), ""),
    ],
)  # fmt: skip
def test_the_cost_of_a_run(found: Cost, line: str) -> None:
    assert str(found) == line


def test_what_is_not_known_is_no_amount() -> None:
    known = cost(LAST, "h100", known=prices(h100="2 EUR"))
    assert known.amount(GPU_HOURS) == 96 and known.amount("EUR") == 192 and known.amount("USD") is None
    assert cost(None, "h100", known=prices(h100=2)).amount(GPU_HOURS) is None


def run(phase: str, seconds: float, gpus: float | None = None) -> Run:
    return Run(phase=phase, started=100.0, finished=100.0 + seconds, usage=Demand(gpus=gpus))


def test_the_time_of_a_run() -> None:
    done = [run("Succeeded", 7200), run("Succeeded", 5400, 32), run("Failed", 60), Run(phase="Running", started=5.0)]
    assert estimate_time(None, [], None, 8) is None and estimate_time(None, done[2:], None, 8) is None
    assert estimate_time(2, done, None, 8) == Time(7200, "by expected_hours")
    assert estimate_time(None, done, None, 32) == Time(5400, "its last successful run took 1h30m")
    assert estimate_time(None, done, 9000, 8) == Time(5400, "its last successful run took 1h30m with 32 GPUs")
    assert estimate_time(None, done, 3600, 8) == Time(3600, "its time limit is 1h00m", limited=True)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (2, ""),
        (1.5, ""),
        (None, ""),
        ("2", "must be a number, not '2'"),
        (True, "must be a number, not True"),
        (-2, "must be a number of hours above 0, not -2"),
        (float("nan"), "must be a number of hours above 0, not nan"),
    ],
)
def test_expected_hours(given: Any, why: str) -> None:
    found = TrainJobArgs("job", runtime="plain", expected_hours=given).check()
    assert [(p.where, p.why) for p in found] == ([("expected_hours", why)] if why else [])


def test_the_time_limit_of_a_job() -> None:
    limited = {"metadata": {"labels": {MAX_EXECUTION: "7200"}}}
    assert time_limit({"metadata": {}}, None) is None and time_limit(limited, None) == 7200
    assert time_limit(limited, {"spec": {"activeDeadlineSeconds": 60}}) == 60


def test_a_job_without_gpus_costs_nothing_that_is_known() -> None:
    step = {"name": "node", "template": {"spec": {"template": {"spec": {"containers": [{"name": "node"}]}}}}}
    assert cost_of({"spec": {"replicatedJobs": [step]}}, LAST, {"h100"}, prices(h100=2)) is None


def test_prices_of_flavors_and_of_the_stack() -> None:
    flavors = [kueue("ResourceFlavor", name) for name in ("h100-0a1b2c", "a100", "l4")]
    for flavor, price in zip(flavors, ("3.20 USD", "-1", "0.8"), strict=True):
        flavor["metadata"]["annotations"] = {PRICE: price}
    found = Prices.of(flavors, {"l4": read_price(1), "h200": read_price(5)})
    shown = {name: str(found.find(name)) for name in ("h100-0a1b2c", "a100", "l4", "h200-abcdef")}
    assert shown == {"h100-0a1b2c": "3.20 USD", "a100": "None", "l4": "1 USD", "h200-abcdef": "5 USD"}
    assert gpu_flavors(team("nlp", 8)[0], is_gpu) == {"h100"} and gpu_flavors(None, is_gpu) == set()


def test_amounts_have_the_digits_that_readers_need() -> None:
    assert [rounded(n, "USD") for n in (12345.6, 12.34, 0.25)] == ["12,346 USD", "12 USD", "0.25 USD"]
    assert str(read_budget("20000 USD")) == "20,000 USD" and read_price(3.2).written == "3.2 USD"
