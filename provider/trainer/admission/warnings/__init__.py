"""Warnings about what passes admission and then fails, each with a code, a reason and a hint.

`table` has the rules; docs/warnings.md explains them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, product

from pulumi_trainer.provider.jobs.gpu_memory import Training
from pulumi_trainer.provider.kubernetes.values.accessors import Document
from pulumi_trainer.provider.kueue.queue_state import Queues, complete_queues
from pulumi_trainer.provider.trainer.admission.warnings.placing import gpu_taints
from pulumi_trainer.provider.trainer.admission.warnings.rule import Rule, Warning
from pulumi_trainer.provider.trainer.admission.warnings.severity import IGNORE, REFUSED, Severities, Severity
from pulumi_trainer.provider.trainer.admission.warnings.starting import subdomain
from pulumi_trainer.provider.trainer.admission.warnings.table import CLOSED_NETWORK, RULES
from pulumi_trainer.provider.trainer.admission.warnings.view import Taints, View
from pulumi_trainer.provider.trainer.pipeline import Mode, Release

__all__ = [
    "CLOSED_NETWORK",
    "IGNORE",
    "REFUSED",
    "RULES",
    "Queues",
    "Rule",
    "Severities",
    "Severity",
    "Taints",
    "Warning",
    "complete_queues",
    "gpu_taints",
    "queue_warnings",
    "subdomain",
    "warnings",
]


def warnings(
    runtime: Document,
    train_job: Document,
    objects: Mapping[str, Document] | Iterable[Document],
    release: Release,
    *,
    siblings: Iterable[Document] = (),
    taints: Taints | None = None,
    cluster: bool = True,
    queues: Queues | None = None,
    mode: Mode = "jobset",
    training: Training | None = None,
) -> tuple[Warning, ...]:
    """Return the warnings about an admitted TrainJob, in the order of their codes; unknown values count as valid.

    Args:
        objects: The rendered objects (`Rendered.objects`, or a list); empty if rendering failed.
        siblings: Other JobSets; the one of this job may be among them.
        taints: Taints of nodes and flavors with GPUs (`gpu_taints`); None if unknown, then PT111 is left out.
        training: Size of the training, for an estimate of the memory of its GPUs.
    """
    given = objects.values() if isinstance(objects, Mapping) else objects
    view = View(runtime, train_job, tuple(given), release, tuple(siblings), taints, queues or Queues(), mode, training)
    rules = [rule for rule in RULES if cluster or not rule.cluster]
    return tuple(chain.from_iterable(rule.warnings(view) for rule in rules))


def queue_warnings(documents: Iterable[Document], queues: Queues) -> tuple[Warning, ...]:
    """Return the warnings about queues, which do not depend on jobs, in the order of their codes."""
    found: list[Warning] = []
    for rule, document in product(RULES, documents):
        if rule.of_queue is not None:
            found += [Warning(p.where, p.why, p.hint, p.type, rule.code) for p in rule.of_queue(document, queues)]
    return tuple(found)
