"""Rules about the limits of a namespace."""

from __future__ import annotations

from collections.abc import Iterator

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.trainer.admission.namespace_limits import exceeded_quotas
from pulumi_trainer.provider.trainer.admission.warnings.view import View


def over_resource_quota(view: View) -> Iterator[Problem]:
    """Yield that the Pods of a job need more than a ResourceQuota of the namespace allows, whatever else runs there."""
    for each in exceeded_quotas(view.jobset, view.queues):
        why = (
            f"its Pods request {each.requested} of {each.resource} in total, but ResourceQuota {each.quota} of the"
            f" namespace allows {each.hard}: some Pods are never created"
        )
        yield Problem(
            "metadata.namespace", why, "request less (fewer nodes, or less per node), or have the quota raised"
        )
