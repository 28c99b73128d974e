"""What the namespace of a job and the nodes of its cluster allow: Pod Security, LimitRanges, ResourceQuotas, classes, nodes.

JobSet and Kueue do not look at these. The API server refuses the Pods when a Job makes them, or the scheduler finds no node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pulumi_trainer.provider.kubernetes import pod_security
from pulumi_trainer.provider.kubernetes.client.api_resources import PRIORITY_CLASS, RUNTIME_CLASS, SERVICE_ACCOUNT
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.schema.node_fit import NoNode, reason_without_node
from pulumi_trainer.provider.kubernetes.values import limit_ranges, resource_quotas
from pulumi_trainer.provider.kubernetes.values.accessors import Document, listed, section, text
from pulumi_trainer.provider.kubernetes.values.limit_ranges import with_defaults
from pulumi_trainer.provider.kubernetes.values.pod_requests import with_limits_as_requests
from pulumi_trainer.provider.kubernetes.values.resource_quotas import Exceeded, Pods
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kubernetes.views import Pod, ReplicatedJob, jobs_of
from pulumi_trainer.provider.kueue.podsets import with_overhead
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.trainer.admission.referents import pod_referents

_NOT_FOUND = {
    RUNTIME_CLASS: 'pod rejected: RuntimeClass "{name}" not found',
    PRIORITY_CLASS: "no PriorityClass with name {name} was found",
    SERVICE_ACCOUNT: 'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found',
}
"""Kinds without whose object the API server makes no Pod -> its words."""
_ADD = "create it; if something else makes it, add it to the documents"
_SECURITY = (
    "set these fields in the runtime or by a runtimePatch; a program does both with"
    ' TrainJob(hardening="restricted"). Or ask for another level of the namespace'
)


def pod_refusals(jobset: Document, known: Queues) -> Iterator[Problem]:
    """Yield why the API server refuses Pods of a JobSet in its namespace, in its words; a Pod with unknown values is accepted."""
    namespace = _namespace(jobset)
    ranges, quotas = known.inside("LimitRange", namespace), known.inside("ResourceQuota", namespace)
    for job in jobs_of(jobset):
        spec, at = job.pod.spec, job.pod.at
        if first_unknown(spec) is not None:
            continue
        why = pod_security.words_of_namespace(spec, known.find("Namespace", namespace))
        if why:
            yield Problem(at, why, _security_hint(job.pod), "FieldValueForbidden")
        for each in pod_referents(job.pod):
            words = _NOT_FOUND.get(each.kind)
            if words and known.lacks(each.kind.kind, each.name, namespace):
                yield Problem(each.where, words.format(namespace=namespace, name=each.name), _ADD)
        try:
            refused = limit_ranges.refusals(spec, ranges)
            lacking = [*resource_quotas.unspecified(_created_spec(spec, jobset, known), quotas)]
        except ValueError:  # a quantity is not valid, which admission reports
            continue
        hint = f"LimitRanges of the namespace: kubectl describe limitrange -n {namespace}"
        yield from (Problem(f"{at}.containers", why, hint) for why in refused)
        hint = "set these in resources_per_node, or give the namespace a LimitRange with defaults"
        yield from (Problem(f"{at}.containers", why, hint) for why in lacking)


def pod_warnings(jobset: Document, known: Queues) -> Iterator[Problem]:
    """Yield what Pod Security of the namespace warns of when Pods of a JobSet are created, in the API server's words."""
    namespace = known.find("Namespace", _namespace(jobset))
    for job in jobs_of(jobset):
        why = pod_security.words_of_namespace(job.pod.spec, namespace, "warn")
        if why and first_unknown(job.pod.spec) is None:
            yield Problem(job.pod.at, why, _security_hint(job.pod))


def _security_hint(pod: Pod) -> str:
    """Return what to do about a Pod that Pod Security refuses; hardening takes no access to the node away."""
    found = pod_security.host_access(pod)
    if not found:
        return _SECURITY
    return f"leave out of the runtime: {', '.join(found)}. Or ask for another level of the namespace"


def exceeded_quotas(jobset: Document, known: Queues, *, used: bool = False) -> list[Exceeded]:
    """Return what a JobSet needs beyond the ResourceQuotas of its namespace, for all Pods that run at the same time.

    Args:
        used: Whether to count what others use now.
    """
    quotas = known.inside("ResourceQuota", _namespace(jobset))
    if not quotas:
        return []
    found: dict[tuple[str, str], Exceeded] = {}
    try:
        for stage in _stages(jobs_of(jobset)):
            for each in resource_quotas.exceeded([*_pods(stage, jobset, known)], quotas, used=used):
                found.setdefault((each.quota, each.resource), each)
    except ValueError:
        return []
    return [*found.values()]


def pods_without_node(
    jobset: Document, known: Queues, flavors: Sequence[Document] = ()
) -> Iterator[tuple[ReplicatedJob, NoNode]]:
    """Yield the steps of a JobSet whose Pods the nodes do not take, even when nothing else runs.

    Args:
        flavors: ResourceFlavors of which Kueue adds labels and tolerations of one to the Pods; empty for a job without a queue.
    """
    if not known.has_all("Node"):
        return
    nodes = known.of("Node")
    for job in jobs_of(jobset):
        if not job.pods or first_unknown(job.pod.spec) is not None:
            continue
        try:
            spec = _scheduled_spec(job.pod.spec, jobset, known)
            tried = [reason_without_node(_in_flavor(spec, each), nodes, job.pods) for each in flavors or ({},)]
        except ValueError:  # a quantity is not valid, which admission reports
            continue
        failures = [each for each in tried if each is not None]
        if len(failures) == len(tried):
            yield job, next((each for each in failures if each.tainted), failures[0])


def _in_flavor(spec: Document, flavor: Document) -> Document:
    """Return the spec of a Pod as Kueue starts it in a ResourceFlavor."""
    selector = {**section(spec, "nodeSelector"), **section(flavor, "spec", "nodeLabels")}
    tolerations = [*spec["tolerations"], *listed(section(flavor, "spec").get("tolerations"))]
    return {**spec, "nodeSelector": selector, "tolerations": tolerations}


def _namespace(jobset: Document) -> str:
    return text(section(jobset, "metadata").get("namespace")) or "default"


def _created_spec(spec: Document, jobset: Document, known: Queues) -> Document:
    """Return the spec of a Pod as the API server creates it: requests from limits, LimitRanges, overhead."""
    ranges = known.inside("LimitRange", _namespace(jobset))
    return with_overhead(with_defaults(with_limits_as_requests(spec), ranges), known)


def _scheduled_spec(spec: Document, jobset: Document, known: Queues) -> Document:
    """Return the spec of a Pod as the scheduler sees it: with the nodes that its RuntimeClass selects."""
    scheduling = section(known.find("RuntimeClass", spec.get("runtimeClassName")), "scheduling")
    selector = {**section(spec, "nodeSelector"), **section(scheduling, "nodeSelector")}
    tolerations = [*listed(spec.get("tolerations")), *listed(scheduling.get("tolerations"))]
    return {**_created_spec(spec, jobset, known), "nodeSelector": selector, "tolerations": tolerations}


def _pods(stage: list[ReplicatedJob], jobset: Document, known: Queues) -> Iterator[Pods]:
    for job in stage:
        if job.pods is not None and first_unknown(job.pod.spec) is None:
            yield Pods(_created_spec(job.pod.spec, jobset, known), job.pods, job.replicas or 0)


def _stages(jobs: list[ReplicatedJob]) -> list[list[ReplicatedJob]]:
    """Return the steps that run at the same time: a step that waits for the end of another one is in a later stage."""
    by_name = {job.name: job for job in jobs}
    stages: dict[int, list[ReplicatedJob]] = {}
    for job in jobs:
        stages.setdefault(_stage(job, by_name, frozenset()), []).append(job)
    return [*stages.values()]


def _stage(job: ReplicatedJob, by_name: dict[Any, ReplicatedJob], seen: frozenset[Any]) -> int:
    earlier = 0
    for dependency in job.depends_on:
        other = by_name.get(dependency.get("name"))
        if other is not None and other.name not in seen:
            ends = dependency.get("status") == "Complete"
            earlier = max(earlier, _stage(other, by_name, seen | {job.name}) + ends)
    return earlier
