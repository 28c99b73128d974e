"""Whether the jobs that a preview starts would start at once, and at whose expense: an answer of the moment, not an input."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pulumi_trainer.plan.job_plan import Plan
from pulumi_trainer.program import session
from pulumi_trainer.program.queue_lints import find_queues
from pulumi_trainer.provider.kubernetes.values.accessors import labels_of, section, text
from pulumi_trainer.provider.kueue.api_resources import QUEUE_PRIORITY
from pulumi_trainer.provider.kueue.labels import PRIORITY, QUEUE
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.kueue.scheduling.answer import answer, contender_of
from pulumi_trainer.provider.kueue.workload_reasons import owner_of
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.trainer.admission.warnings import Warning
from pulumi_trainer.provider.trainer.admission.warnings.table import NEVER_START


async def start_note(plan: Plan, documents: Sequence[dict[str, Any]]) -> str:
    """Return what Kueue would do now with a new run of a job.

    Empty if it has no queue, if its queue cannot be read, or if a warning says that it never starts.
    """
    jobset = next((made for key, made in plan.made.items() if key.startswith("JobSet/")), None)
    train_job = plan.objects.get(f"TrainJob/{plan.name}")  # in mode trainer
    labels = labels_of(train_job or jobset)
    if any(isinstance(warning, Warning) and warning.code in NEVER_START for warning in plan.warnings):
        return ""
    if jobset is None or not isinstance(plan.namespace, str) or plan.dispatch is not None:
        return ""
    queues = await find_queues(documents, plan.target, plan.namespace, labels.get(QUEUE))
    queues = await _with_priority(queues, plan.target, labels.get(PRIORITY))
    made = {**jobset, "metadata": {**jobset["metadata"], "namespace": plan.namespace}}
    now = time.time()
    contender = contender_of(made, queues, now, train_job)
    if contender is None:
        return ""
    work = await asyncio.to_thread(queries.list_queued_work, plan.target)
    if work is None:
        return ""
    others = [each for each in work if each.get("kind") == "Workload" and not _is_of(each, plan)]
    here = session.current()
    before, expect = [*here.contenders], partial(queries.job_durations, plan.target)
    here.contenders.append(contender)
    found = await asyncio.to_thread(answer, queues, others, contender, before, now=now, expect=expect)
    return f"{plan.name}: {found}"


def _is_of(workload: Mapping[str, Any], plan: Plan) -> bool:
    """Return whether a Workload is of the run before, which ends before the new one starts."""
    namespace = section(workload, "metadata").get("namespace")
    return namespace == plan.namespace and owner_of({**workload}).get("name") == plan.name


async def _with_priority(queues: Queues, target: Mapping[str, Any], name: object) -> Queues:
    """Return known objects with the priority class of a job, if its cluster has it."""
    if not name or queues.find(QUEUE_PRIORITY.kind, name) is not None:
        return queues
    found = await asyncio.to_thread(queries.find_object, target, QUEUE_PRIORITY, "", text(name))
    if found is None:
        return queues
    return Queues(({**found, "kind": QUEUE_PRIORITY.kind},), below=queues)
