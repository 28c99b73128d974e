"""The pod sets of a JobSet as Kueue counts them: one for each replicated job, with its requests.

Source: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/jobset/jobset_controller.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from pulumi_trainer.provider.kubernetes.device_claims import TEMPLATE, DeviceClaim, count_gpus, devices_by_class
from pulumi_trainer.provider.kubernetes.schema.tolerations import Tolerations
from pulumi_trainer.provider.kubernetes.values.accessors import Document, listed, mappings, number, section, text
from pulumi_trainer.provider.kubernetes.values.limit_ranges import with_defaults
from pulumi_trainer.provider.kubernetes.values.pod_requests import pod_requests, with_limits_as_requests
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, any_unknown, first_unknown
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.kueue.queue_state import Queues


@dataclass(frozen=True)
class PodSet:
    """The pods of a replicated job. count: Number of pods; None if unknown."""

    name: str
    at: str
    count: int | None
    template: Document
    claims: tuple[DeviceClaim, ...] = ()
    device_resources: Mapping[str, str] | None = None

    @property
    def annotations(self) -> Mapping[str, Any] | Unknown:
        for part in (self.template.get("metadata"), section(self.template, "metadata").get("annotations")):
            if isinstance(part, Unknown):
                return part
        return section(self.template, "metadata", "annotations")

    @property
    def annotations_or_empty(self) -> Mapping[str, Any]:
        """The annotations; empty if they are unknown."""
        annotations = self.annotations
        if isinstance(annotations, Unknown):
            return {}
        return annotations

    @property
    def spec(self) -> Document:
        return section(self.template, "spec")

    @cached_property
    def tolerations(self) -> Tolerations:
        return Tolerations(listed(self.spec.get("tolerations")))

    def requests(self) -> dict[str, Fraction] | None:
        """Return the requests of all its pods by resource; None if unknown, or if a quantity is not valid.

        As in Kueue, a limit counts for a resource without a request.
        """
        if self.count is None or any(map(_has_unknown_requests, map(self.spec.get, ("containers", "initContainers")))):
            return None
        try:
            each = pod_requests(with_limits_as_requests(self.spec))
        except (ValueError, TypeError, AttributeError):
            return None
        amounts = {name: q.amount for name, q in each.items() if not isinstance(q, Unknown)}
        if len(amounts) != len(each):
            return None
        return {name: amount * self.count for name, amount in amounts.items()}

    def quota_requests(self) -> dict[str, Fraction] | None:
        """Return the requests with the claimed devices that use quota, as far as Kueue's configuration is known.

        Source: https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/pkg/dra
        """
        requests, names = self.requests(), self.device_resources or {}
        if requests is None or self.count is None:
            return None
        devices = [
            (name, Fraction(count * self.count)) for name, count in devices_by_class(self.claims) if names.get(name)
        ]
        found: dict[str, Fraction] = {}
        for name, amount in (*requests.items(), *devices):
            resource = names.get(name, name)
            found[resource] = found.get(resource, Fraction(0)) + amount
        return found


def _has_unknown_requests(containers: Any) -> bool:
    """Return whether what some containers request is not known yet; other fields of them may be."""
    if isinstance(containers, Unknown) or any_unknown(listed(containers)):
        return True
    parts = [[each.get("resources"), each.get("restartPolicy")] for each in mappings(containers)]
    return first_unknown(parts) is not None


def claimed_gpus(sets: Iterable[PodSet], is_gpu: Callable[[str], bool]) -> int | None:
    """Return the GPUs that pods claim; None if their number is not known.

    A node gives its GPUs to a device plugin or to a driver for claims: pods that request GPUs claim other devices.
    """
    total, shared = 0, dict[str, DeviceClaim]()
    for pods in sets:
        if any(map(is_gpu, pods.requests() or ())):
            continue
        own = [claim for claim in pods.claims if claim.kind == TEMPLATE]
        shared.update({claim.source: claim for claim in pods.claims if claim not in own})
        found = count_gpus(own)
        if own and (found is None or pods.count is None):
            return None
        total += (found or 0) * (pods.count or 0)
    of_all = count_gpus(shared.values())
    return None if of_all is None else total + of_all


def pod_sets(jobset: Document, queues: Queues | None = None) -> list[PodSet]:
    """Return the pod sets of a JobSet, in the order of its replicated jobs.

    Args:
        queues: Known LimitRanges and device classes, which change what Pods request.
    """
    queues = queues or Queues()
    namespace, found = section(jobset, "metadata").get("namespace"), list[PodSet]()
    ranges, resources = queues.inside("LimitRange", namespace), queues.device_resources
    for job in jobs_of(jobset):
        at, template = f"{job.at}.template.spec.template", _as_counted(job.template, ranges, queues)
        claims = queues.claims_of(job.pod, namespace)
        found.append(PodSet(str(job.name), at, job.pods, template, claims, resources))
    return found


def workload_pod_sets(workload: Document) -> list[PodSet]:
    """Return the pod sets of a Workload, whose templates have what Kueue adds already."""
    sets = mappings(section(workload, "spec").get("podSets"))
    return [
        PodSet(text(each.get("name")), "", number(each.get("count"), 1), dict(section(each, "template")))
        for each in sets
    ]


def _as_counted(template: Document, ranges: Sequence[Document], known: Queues) -> Document:
    """Return a pod template with what Kueue adds before it counts requests."""
    spec = with_overhead(section(template, "spec"), known)
    if not spec:
        return template
    return {**template, "spec": with_defaults(spec, ranges)}


def with_overhead(pod_spec: Document, known: Queues) -> Document:
    """Return the spec of a Pod with the overhead of its RuntimeClass, if that is known."""
    overhead = section(known.find("RuntimeClass", pod_spec.get("runtimeClassName")), "overhead", "podFixed")
    if not overhead or pod_spec.get("overhead"):
        return pod_spec
    return {**pod_spec, "overhead": overhead}
