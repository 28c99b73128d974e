"""What Kueue counts of a JobSet: a set of pods for each replicated job, and what these ask for.

https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/jobset/jobset_controller.go
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from pulumi_trainer.provider.kube.schema.tolerations import Tolerations
from pulumi_trainer.provider.kube.values.accessors import Document, listed, section
from pulumi_trainer.provider.kube.values.pod_requests import pod_requests
from pulumi_trainer.provider.kube.values.unknown import Unknown, first_unknown


@dataclass(frozen=True)
class PodSet:
    """The pods of a replicated job. at: the path of their template in the JobSet. count: None: not known yet."""

    name: str
    at: str
    count: int | None
    template: Document

    @property
    def annotations(self) -> Mapping[str, Any] | Unknown:
        for part in (self.template.get("metadata"), section(self.template, "metadata").get("annotations")):
            if isinstance(part, Unknown):
                return part
        return section(self.template, "metadata", "annotations")

    @property
    def spec(self) -> Document:
        return section(self.template, "spec")

    @cached_property
    def tolerations(self) -> Tolerations:
        return Tolerations(listed(self.spec.get("tolerations")))

    def requests(self) -> dict[str, Fraction] | None:
        """Of all its pods, by resource; None: not known yet, or no quantity. A limit counts as a request where there is none,
        as Kueue counts it; what a namespace's LimitRange or a RuntimeClass would add is not known here."""
        if (
            self.count is None
            or first_unknown(self.spec.get("containers"))
            or first_unknown(self.spec.get("initContainers"))
        ):
            return None
        pod = {**self.spec}
        for part in ("containers", "initContainers"):
            pod[part] = [_requesting(c) for c in listed(pod.get(part)) if isinstance(c, dict)]
        try:
            each = pod_requests(pod)
        except (ValueError, TypeError, AttributeError):
            return None
        amounts = {name: q.amount for name, q in each.items() if not isinstance(q, Unknown)}
        return {name: amount * self.count for name, amount in amounts.items()} if len(amounts) == len(each) else None


def _requesting(container: Document) -> Document:
    resources = section(container, "resources")
    asked = {**section(resources, "limits"), **section(resources, "requests")}
    texts = {name: str(q) if isinstance(q, int) else q for name, q in asked.items()}
    return {**container, "resources": {**resources, "requests": texts}}


def pod_sets(jobset: Document) -> list[PodSet]:
    """In the order of the replicated jobs."""
    found = []
    for i, job in enumerate(listed(section(jobset, "spec").get("replicatedJobs"))):
        if isinstance(job, dict):
            spec = section(job, "template", "spec")
            at = f"spec.replicatedJobs[{i}].template.spec.template"
            found.append(PodSet(str(job.get("name", "")), at, _count(job, spec), section(spec, "template")))
    return found


def _count(job: Document, spec: Document) -> int | None:
    replicas, parallelism = _number(job.get("replicas", 1)), _number(spec.get("parallelism", 1))
    completions = _number(spec.get("completions", parallelism))
    return (
        None
        if replicas is None or parallelism is None or completions is None
        else replicas * min(parallelism, completions)
    )


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
