"""Whether the jobs that a preview starts would start at once, at whose expense and for how much: answers, not inputs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.program import amounts, session
from pulumi_trainer.program.budgets import Started
from pulumi_trainer.program.queue_lints import find_queues
from pulumi_trainer.provider.jobs.cost import cost_of, estimate_time, flavors_of, time_limit
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.status import JobStatus, Phase
from pulumi_trainer.provider.jobs.usage import demand_of
from pulumi_trainer.provider.kubernetes.values.accessors import Document, labels_of, text
from pulumi_trainer.provider.kueue.api_resources import QUEUE_PRIORITY, WORKLOAD
from pulumi_trainer.provider.kueue.labels import PRIORITY, QUEUE
from pulumi_trainer.provider.kueue.prices import Prices, budget_of
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.quota import Slot
from pulumi_trainer.provider.kueue.scheduling.answer import answer, contender_of
from pulumi_trainer.provider.kueue.workload_reasons import belongs_to
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.trainer.admission.multikueue import cluster_queue_of
from pulumi_trainer.provider.trainer.admission.warnings import Warning
from pulumi_trainer.provider.trainer.admission.warnings.table import NEVER_START
from pulumi_trainer.provider.trainer.kinds import kind_of

_UNKNOWN = "it is not known whether it starts now: its queue, its priority or the Workloads are not known"


async def start_notes(plan: Plan, documents: Sequence[Document], expected_hours: float | None) -> list[str]:
    """Return what Kueue would do now with a new run of a job, and what the run will use and cost, as far as that is known.

    Empty if a warning says that it never starts.
    """
    jobset, train_job = _objects(plan)
    never = any(isinstance(warning, Warning) and warning.code in NEVER_START for warning in plan.warnings)
    if (
        never
        or jobset is None
        or not isinstance(plan.namespace, str)
        or await _is_taken_over(plan, train_job or jobset)
    ):
        return []
    jobset = {**jobset, "metadata": {**jobset["metadata"], "namespace": plan.namespace}}
    queues = await find_queues(documents, plan.target, plan.namespace, labels_of(train_job or jobset).get(QUEUE))
    sentence, slots = await _start(plan, jobset, train_job, queues) if plan.dispatch is None else ("", ())
    cost = await _cost(plan, jobset, train_job, queues, slots, expected_hours)
    return [f"{plan.name}: {each}" for each in (sentence, cost) if each]


async def _is_taken_over(plan: Plan, main: Document) -> bool:
    """Return whether a job exists already that the program adopts."""
    if not plan.job.adopt or plan.target["kind"] != "kubernetes":
        return False
    found = await asyncio.to_thread(queries.find_object, plan.target, kind_of(main), str(plan.namespace), plan.name)
    return found is not None


async def _start(
    plan: Plan, jobset: Document, train_job: Document | None, queues: Queues
) -> tuple[str, Collection[Slot]]:
    """Return what Kueue would do with a job, and where it gets quota; empty for a job without a queue."""
    if plan.target["kind"] != "kubernetes" or not queues.queue_of(train_job or jobset):
        return "", ()
    queues = await _with_priority(queues, plan.target, labels_of(train_job or jobset).get(PRIORITY))
    now = time.time()
    contender = contender_of(jobset, queues, now, train_job)
    work = await asyncio.to_thread(queries.list_queued_work, plan.target)
    if contender is None or work is None:
        return _UNKNOWN, ()
    others = [
        each for each in work if each["kind"] == WORKLOAD.kind and not belongs_to(each, plan.namespace, plan.name)
    ]
    here = session.current()
    before, expect = [*here.contenders], partial(queries.job_durations, plan.target)
    here.contenders.append(contender)
    return await asyncio.to_thread(answer, queues, others, contender, before, now=now, expect=expect)


async def _cost(
    plan: Plan,
    jobset: Document,
    train_job: Document | None,
    queues: Queues,
    slots: Collection[Slot],
    expected_hours: float | None,
) -> str:
    """Return what a run will use and cost, and remember it for the total of the plan; empty if nothing is known."""
    gpus = demand_of(jobset).gpus
    if gpus == 0:
        return ""
    runs: Sequence[Run] = ()
    if expected_hours is None:
        runs = await asyncio.to_thread(queries.list_runs, plan.target, plan.namespace, plan.name)
    taken = estimate_time(expected_hours, runs, time_limit(jobset, train_job), gpus)
    prices = Prices.of(queues.of("ResourceFlavor"), amounts.configured("prices"))
    queue = text(queues.queue_of(train_job or jobset))
    cost = cost_of(jobset, taken, flavors_of(cluster_queue_of(train_job or jobset, queues), slots), prices)
    if cost is None:
        return ""
    local = queues.find("LocalQueue", queue, plan.namespace)
    budget = amounts.configured("budget").get(queue) or (budget_of(local) if local else None)
    started = Started(
        f"{plan.namespace}/{plan.name}",
        cost,
        plan.target,
        session.key(plan.target),
        plan.namespace,
        queue,
        budget,
        prices,
    )
    session.current().started.append(started)
    return str(cost)


async def waiting_notes(plan: Plan, status: JobStatus | None) -> list[str]:
    """Return behind whom an existing job waits, and when it starts, as far as that is known; empty if it does not wait."""
    if status is None or status.phase != Phase.QUEUED:
        return []
    jobset, train_job = _objects(plan)
    queue = text(labels_of(train_job or jobset).get(QUEUE))
    start = await asyncio.to_thread(queries.job_start, plan.target, status.namespace, status.name, queue)
    return [f"{plan.name}: {start}"] if start else []


def _objects(plan: Plan) -> tuple[Document | None, Document | None]:
    """Return the JobSet of a plan, and in mode trainer its TrainJob."""
    jobset = next((made for key, made in plan.made.items() if key.startswith("JobSet/")), None)
    return jobset, plan.objects.get(f"TrainJob/{plan.name}")


async def _with_priority(queues: Queues, target: Mapping[str, Any], name: object) -> Queues:
    """Return known objects with the priority class of a job, if its cluster has it."""
    if not name or queues.find(QUEUE_PRIORITY.kind, name) is not None:
        return queues
    found = await asyncio.to_thread(queries.find_object, target, QUEUE_PRIORITY, "", text(name))
    if found is None:
        return queues
    return Queues(({**found, "kind": QUEUE_PRIORITY.kind},), below=queues)
