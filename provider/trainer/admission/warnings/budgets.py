"""The rule about budgets: a job that may use more than the budget of its team for a whole month."""

from __future__ import annotations

from collections.abc import Iterator

from pulumi_trainer.provider.jobs.cost import cost_of, estimate_time, flavors_of, rounded, time_limit
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kueue.prices import GPU_HOURS, Prices, budget_of
from pulumi_trainer.provider.trainer.admission.warnings.queues import QUEUED, cluster_queue_of_job, local_queue
from pulumi_trainer.provider.trainer.admission.warnings.view import View

BEYOND, WITHOUT_EFFECT = "PT230", "PT231"
HINT = "fewer nodes or hours, or a larger budget"


def beyond_budget(view: View) -> Iterator[Problem]:
    """Yield that a job may use more than the budget of its team's month, by its time limit; a plan adds what was used."""
    local = local_queue(view)
    budget = budget_of(local) if local else None
    if budget is None:
        return
    limit = time_limit(view.jobset, view.train_job if view.mode == "trainer" else None)
    flavors, prices = flavors_of(cluster_queue_of_job(view)), Prices.of(view.queues.of("ResourceFlavor"))
    found = cost_of(view.jobset, estimate_time(None, [], limit, None), flavors, prices)
    if found and found.price and budget.unit not in (GPU_HOURS, found.price.unit):
        why = f"its budget is in {budget.unit} and the price of its GPUs in {found.price.unit}: they cannot be compared"
        yield Problem(QUEUED, why, "prices and budgets in one currency, or a budget in GPU-hours")
    used = found.amount(budget.unit) if found else None
    if used is not None and used > budget.number:
        why = f"it may use {rounded(used, budget.unit)}, but the budget of its team for a month is {budget}"
        yield Problem(QUEUED, why, HINT)
