"""What passes admission and then fails: warnings with a code, a reason and a mend.

`table` has the rules; docs/warnings.md explains them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pulumi_trainer.provider.admission.warnings.placing import gpu_taints
from pulumi_trainer.provider.admission.warnings.rule import Rule, Warning
from pulumi_trainer.provider.admission.warnings.severity import IGNORE, Severities, Severity
from pulumi_trainer.provider.admission.warnings.starting import subdomain
from pulumi_trainer.provider.admission.warnings.table import QUEUE_RULES, RULES
from pulumi_trainer.provider.admission.warnings.view import Document, Taints, View
from pulumi_trainer.provider.kueue.queue_state import Queues, among

__all__ = [
    "IGNORE",
    "RULES",
    "Queues",
    "Rule",
    "Severities",
    "Severity",
    "Taints",
    "Warning",
    "among",
    "gpu_taints",
    "queue_warnings",
    "subdomain",
    "warnings",
]


def warnings(
    runtime: Document,
    train_job: Document,
    objects: Mapping[str, Document] | Iterable[Document],
    *,
    siblings: Iterable[Document] = (),
    taints: Taints | None = None,
    cluster: bool = True,
    queues: Queues | None = None,
) -> tuple[Warning, ...]:
    """What will go wrong with a TrainJob that is admitted, in the order of the codes.

    runtime, train_job: with the API server's defaults, as they were rendered. objects: what came out (`Rendered.objects`,
    or a list); empty where rendering failed. siblings: other JobSets (this one may be among them). taints: of what has GPUs
    (`gpu_taints`); None: nobody knows, and PT111 is left out. cluster: whether the Pods will be those of a cluster.
    queues: what is known of Kueue's objects. Values not known yet count as right. Raises nothing.
    """
    given = objects.values() if isinstance(objects, Mapping) else objects
    view = View(runtime, train_job, tuple(given), tuple(siblings), taints, queues or Queues())
    rules = [rule for rule in RULES if cluster or not rule.cluster]
    return tuple(warning for rule in rules for warning in rule.warnings(view))


def queue_warnings(documents: Iterable[Document], queues: Queues) -> tuple[Warning, ...]:
    """What is wrong with some of the queues by themselves, whether there are jobs or not: in the order of the codes."""
    subjects = list(documents)
    found = [(code, p) for code, rule in QUEUE_RULES.items() for each in subjects for p in rule(each, queues)]
    return tuple(Warning(p.where, p.why, p.mend, p.type, code=code) for code, p in found)
