"""What JobSet's webhooks write into a new JobSet, and what they have against a change, in their words.

What they have against a new JobSet is in `jobset_rules`. Source:
https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/webhooks/jobset_webhook.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, equal_as_go, listed, section, without
from pulumi_trainer.provider.kubernetes.values.typed import Findings, GoTypes, over_given
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

_POD_PARTS = ("nodeSelector", "tolerations", "schedulingGates")
"""What Kueue changes in the Pods of a suspended JobSet, beside labels and annotations."""


def mutated(spec: Document, go: GoTypes, findings: Findings) -> Document:
    """The spec of a new JobSet with the webhook's defaults, as Go prints it; empty fields that Go omits stay.

    What Go's types cannot hold is left out, and added to `findings`.
    """
    complete = defaulted(spec)
    printed = go.as_struct("JobSetSpec", complete, (None, "spec"), findings, applied=False)
    if findings.problems:
        return printed
    return section({"spec": over_given(complete, printed)}, "spec")


def defaulted(spec: Document) -> Document:
    """Return the spec of a new JobSet with the webhook's defaults; what is wrong in it stays."""
    spec = {
        "successPolicy": {"operator": "All"},
        "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
        **{name: value for name, value in spec.items() if value is not None},
    }
    jobs = spec.get("replicatedJobs")
    if isinstance(jobs, list):
        spec["replicatedJobs"] = [_changed(job, _indexed, "template", "spec") for job in jobs]
    network = spec.get("network", {})
    if isinstance(network, dict):
        spec["network"] = {"enableDNSHostnames": True, "publishNotReadyAddresses": True, **network}
    failure = spec.get("failurePolicy")
    rules = section(failure).get("rules")
    if isinstance(rules, list):
        named = [_with({"name": f"failurePolicyRule{place}"}, rule) for place, rule in enumerate(rules)]
        spec["failurePolicy"] = {**section(failure), "rules": named}
    policies = spec.get("volumeClaimPolicies")
    if isinstance(policies, list):
        retention = {"retentionPolicy": {"whenDeleted": "Delete"}}
        spec["volumeClaimPolicies"] = [_with(retention, policy) for policy in policies]
    return spec


def _changed(document: Any, change: Callable[[Document], Document], *path: str) -> Any:
    """The document with the mapping at a path changed; one is made where there is none. Other values stay."""
    if document is None:
        document = {}
    if not isinstance(document, dict):
        return document
    if path:
        return {**document, path[0]: _changed(document.get(path[0]), change, *path[1:])}
    return change(document)


def _indexed(spec: Document) -> Document:
    return {"completionMode": "Indexed", **_changed(spec, _restarting, "template", "spec")}


def _restarting(pod: Document) -> Document:
    return {**pod, "restartPolicy": pod.get("restartPolicy") or "OnFailure"}


def _with(defaults: Document, document: Any) -> Any:
    """`document` with the defaults for what it has not, or has empty."""
    if not isinstance(document, dict):
        return document
    return {**document, **{name: document.get(name) or default for name, default in defaults.items()}}


def updated(jobset: Document, old: Document, go: GoTypes) -> Iterator[Problem]:
    """What the webhook has against a change. A suspended JobSet's Pods may get what a queue gives them, no more."""
    if isinstance(jobset.get("spec"), Unknown):
        return
    before, after = _jobs(old, go), _jobs(jobset, go)
    spec_before, spec = section(old, "spec"), section(jobset, "spec")
    is_suspended = spec_before.get("suspend") is True or spec.get("suspend") is True
    if is_suspended and isinstance(after, list):
        were = {section(job).get("name"): section(job) for job in listed(before)}
        after = [_as_it_was(job, were.get(section(job).get("name"))) for job in after]
    managers = spec_before.get("managedBy"), spec.get("managedBy")
    for field, one, other in (("replicatedJobs", before, after), ("managedBy", *managers)):
        if not equal_as_go(one, other):
            yield Problem(f"spec.{field}", "field is immutable", "create a JobSet with another name for it")


def _jobs(jobset: Document, go: GoTypes) -> Any:
    """The replicated jobs as Go reads them."""
    jobs = section(jobset, "spec").get("replicatedJobs", [])
    printed = go.as_struct("JobSetSpec", {"replicatedJobs": jobs}, None, Findings(), applied=True)
    return printed.get("replicatedJobs", [])


def _as_it_was(job: Any, old: Document | None) -> Any:
    if old is None or not isinstance(job, dict):
        return job
    job = _kept(job, old, ("annotations", "labels"), "template", "spec", "template", "metadata")
    return _kept(job, old, _POD_PARTS, "template", "spec", "template", "spec")


def _kept(job: Document, old: Document, names: tuple[str, ...], *path: str) -> Document:
    was = section(old, *path)
    kept = {name: was[name] for name in names if name in was}
    changed: Document = _changed(job, lambda part: {**without(part, *names), **kept}, *path)
    return changed
