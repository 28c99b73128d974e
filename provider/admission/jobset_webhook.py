"""What JobSet's webhooks make of a JobSet, and have against it, in their words, with JobSet's feature gates as released.

`jobset.review_jobset` says the same and more in words for users. Source:
https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/webhooks/jobset_webhook.go
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.schema.field_errors import (
    INTERNAL,
    INVALID,
    NOWHERE,
    REQUIRED,
    TOO_LONG,
)
from pulumi_trainer.provider.kube.schema.verdict import Lookup
from pulumi_trainer.provider.kube.values.accessors import (
    Document,
    listed,
    same,
    section,
    texts,
)
from pulumi_trainer.provider.kube.values.names import (
    dns_1035_label,
    dns_1123_subdomain,
    domain_prefixed_path,
    label_value,
    quoted,
)
from pulumi_trainer.provider.kube.values.typed import Findings, typed
from pulumi_trainer.provider.kube.values.unknown import Unknown

_LONGEST = 63
_MAX_INT32 = 2**31 - 1
_OVER = f"must be no more than {_LONGEST} characters"
_RULE_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_REASONS = ("BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy")
_POD_PARTS = ("nodeSelector", "tolerations", "schedulingGates")
"""What Kueue changes in the Pods of a suspended JobSet, beside labels and annotations."""


def mutated(spec: Document, findings: Findings) -> Document:
    """The spec of a new JobSet with the webhook's defaults, as Go prints it: what is empty is left out.

    What Go's types cannot hold is added to `findings`.
    """
    spec = {
        "successPolicy": {"operator": "All"},
        "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
        **{name: value for name, value in spec.items() if value is not None},
    }
    if isinstance(jobs := spec.get("replicatedJobs"), list):
        spec["replicatedJobs"] = [_changed(job, _indexed, "template", "spec") for job in jobs]
    if isinstance(network := spec.get("network", {}), dict):
        spec["network"] = {"enableDNSHostnames": True, "publishNotReadyAddresses": True, **network}
    failure = spec.get("failurePolicy")
    if isinstance(rules := section(failure).get("rules"), list):
        named = [_with({"name": f"failurePolicyRule{place}"}, rule) for place, rule in enumerate(rules)]
        spec["failurePolicy"] = {**section(failure), "rules": named}
    if isinstance(policies := spec.get("volumeClaimPolicies"), list):
        retention = {"retentionPolicy": {"whenDeleted": "Delete"}}
        spec["volumeClaimPolicies"] = [_with(retention, policy) for policy in policies]
    return typed("JobSetSpec", spec, (None, "spec"), findings, applied=False)


def _changed(document: Any, change: Callable[[Document], Document], *path: str) -> Any:
    """The document with the mapping at a path changed; one is made where there is none. Other values stay."""
    document = {} if document is None else document
    if not isinstance(document, dict):
        return document
    return {**document, path[0]: _changed(document.get(path[0]), change, *path[1:])} if path else change(document)


def _indexed(spec: Document) -> Document:
    return {"completionMode": "Indexed", **_changed(spec, _restarting, "template", "spec")}


def _restarting(pod: Document) -> Document:
    return {**pod, "restartPolicy": pod.get("restartPolicy") or "OnFailure"}


def _with(defaults: Document, document: Any) -> Any:
    """`document` with the defaults for what it has not, or has empty."""
    if not isinstance(document, dict):
        return document
    return {**document, **{name: document.get(name) or default for name, default in defaults.items()}}


def created(jobset: Document, lookup: Lookup | None) -> Iterator[Problem]:
    """What the webhook has against a new JobSet, which has its defaults."""
    spec = section(jobset, "spec")
    jobs = [job for job in listed(spec.get("replicatedJobs")) if isinstance(job, dict)]
    failure = section(spec, "failurePolicy")
    if failure.get("restartStrategy") == "InPlaceRestart":
        yield _plain("InPlaceRestart restart strategy cannot be set when InPlaceRestart feature gate is disabled")
    if jobs and jobs[0].get("dependsOn"):
        yield _plain("DependsOn can't be set for the first ReplicatedJob")
    yield from _network(section(spec, "network").get("subdomain"))
    yield from _manager(spec.get("managedBy"))
    name = jobset["metadata"].get("name")
    names: list[Any] = []
    for place, job in enumerate(jobs):
        names.append(job.get("name"))
        yield from _job(name, job, f"spec.replicatedJobs[{place}]", names)
    for target in texts(section(spec, "successPolicy").get("targetReplicatedJobs")):
        if not _known(target, names):
            yield _plain(f"invalid replicatedJob name '{target}' does not appear in .spec.ReplicatedJobs")
    yield from _failure_policy(listed(failure.get("rules")), names)
    yield from _coordinator(jobset, jobs)
    yield from _claims(jobset, jobs, lookup)


def updated(jobset: Document, old: Document) -> Iterator[Problem]:
    """What the webhook has against a change. A suspended JobSet's Pods may get what a queue gives them, no more."""
    if isinstance(jobset.get("spec"), Unknown):
        return
    before, after = (_jobs(document) for document in (old, jobset))
    if any(section(document, "spec").get("suspend") is True for document in (old, jobset)) and isinstance(after, list):
        were = {section(job).get("name"): section(job) for job in listed(before)}
        after = [_as_it_was(job, were.get(section(job).get("name"))) for job in after]
    managers = (section(document, "spec").get("managedBy") for document in (old, jobset))
    for field, one, other in (("replicatedJobs", before, after), ("managedBy", *managers)):
        if not same(one, other):
            yield Problem(f"spec.{field}", "field is immutable", "a JobSet of another name can have it")


def _jobs(jobset: Document) -> Any:
    """The replicated jobs as Go reads them."""
    jobs = section(jobset, "spec").get("replicatedJobs", [])
    printed = typed("JobSetSpec", {"replicatedJobs": jobs}, None, Findings(), applied=True)
    return printed.get("replicatedJobs", [])


def _as_it_was(job: Any, old: Document | None) -> Any:
    if old is None or not isinstance(job, dict):
        return job
    job = _kept(job, old, ("annotations", "labels"), "template", "spec", "template", "metadata")
    return _kept(job, old, _POD_PARTS, "template", "spec", "template", "spec")


def _kept(job: Document, old: Document, names: tuple[str, ...], *path: str) -> Document:
    was = section(old, *path)
    kept = {name: was[name] for name in names if name in was}
    changed: Document = _changed(job, lambda part: {**{k: v for k, v in part.items() if k not in names}, **kept}, *path)
    return changed


def _network(subdomain: Any) -> Iterator[Problem]:
    if not isinstance(subdomain, str) or not subdomain:
        return
    yield from _each("spec.network.subdomain", subdomain, dns_1123_subdomain(subdomain))
    too_long = ".spec.network.subdomain is too long, must be less than 63 characters"
    yield from _each("spec.network.subdomain", subdomain, dns_1035_label(subdomain), too_long)


def _manager(manager: Any) -> Iterator[Problem]:
    field = "spec.managedBy"
    if not isinstance(manager, str):
        return
    if not manager:
        yield Problem(field, "Required value", "leave it out", REQUIRED)
        return
    host, _, path = manager.partition("/")
    for why in domain_prefixed_path(manager):
        shown = manager if why.startswith("must be a domain") else path if why.startswith("Invalid path") else host
        yield _invalid(field, shown, why)
    if len(manager.encode(errors="replace")) > _LONGEST:
        yield Problem(field, f"Too long: may not be more than {_LONGEST} bytes", type=TOO_LONG)


def _job(jobset: Any, job: Document, at: str, names: list[Any]) -> Iterator[Problem]:
    name, replicas = job.get("name"), job.get("replicas", 1)
    template = section(job, "template", "spec")
    parallelism, completions = template.get("parallelism", 1), template.get("completions")
    if isinstance(replicas, int) and isinstance(parallelism, int) and replicas * parallelism > _MAX_INT32:
        limit = f"the product of replicas and parallelism must not exceed {_MAX_INT32}"
        yield _plain(f"{limit} for replicatedJob '{name}'")
    group = job.get("groupName", "")
    if isinstance(group, str):
        too_long = ".spec.replicatedJob[].groupName is too long, must be less than 63 characters"
        yield from _each(f"{at}.groupName", group, dns_1035_label(group), too_long)
    if isinstance(jobset, str) and isinstance(name, str) and isinstance(replicas, int):
        longest = f"{jobset}-{name}-{replicas - 1}"
        too_long = "JobSet name is too long, {} names generated for this JobSet will exceed 63 characters"
        yield from _each(f"{at}.name", longest, dns_1035_label(longest), too_long.format("job"))
        if template.get("completionMode") == "Indexed" and isinstance(completions, int):
            pod = f"{longest}-{completions - 1}-abcde"
            yield from _each(f"{at}.name", longest, dns_1035_label(pod), too_long.format("pod"))
    for other in listed(job.get("dependsOn")):
        if not _known(section(other).get("name"), names):
            yield _plain(f"replicatedJob: {name} cannot depend on replicatedJob: {section(other).get('name')}")


def _failure_policy(rules: list[Any], names: list[Any]) -> Iterator[Problem]:
    rules = [rule for rule in rules if isinstance(rule, dict)]
    if any(rule.get("action") in ("RestartJob", "RestartJobAndIgnoreMaxRestarts") for rule in rules):
        actions = "RestartJob and RestartJobAndIgnoreMaxRestarts failure policy actions"
        yield _plain(f"{actions} are not allowed when RestartJob feature gate is disabled")
        return
    places: dict[str, list[int]] = {}
    for place, rule in enumerate(rules):
        name = rule.get("name")
        if isinstance(name, str):
            places.setdefault(name, []).append(place)
            if not 1 <= len(name) <= 128:
                bounds = "at least 1 characters long and at most 128 characters long"
                yield _plain(f"invalid failure policy rule name of length {len(name)}, the rule name must be {bounds}")
            if not _RULE_NAME.fullmatch(name):
                yield _plain(
                    f"invalid failure policy rule name '{name}', a failure policy rule name must start with an "
                    "alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and "
                    "must end with an alphanumeric character or '_'"
                )
        for target in texts(rule.get("targetReplicatedJobs")):
            if not _known(target, names):
                why = "in failure policy does not appear in .spec.ReplicatedJobs"
                yield _plain(f"invalid replicatedJob name '{target}' {why}")
        for reason in texts(rule.get("onJobFailureReasons")):
            if reason not in _REASONS:
                why = "in failure policy is not a recognized job failure reason"
                yield _plain(f"invalid job failure reason '{reason}' {why}")
    for name, found in places.items():
        if len(found) > 1:
            shown = " ".join(map(str, found))
            yield _plain(f"rule names are not unique, rules with indices [{shown}] all have the same name '{name}'")


def _coordinator(jobset: Document, jobs: list[Document]) -> Iterator[Problem]:
    spec = section(jobset, "spec")
    coordinator = spec.get("coordinator")
    if not isinstance(coordinator, dict):
        return
    target = coordinator.get("replicatedJob", "")
    job_index, pod_index = coordinator.get("jobIndex", 0), coordinator.get("podIndex", 0)
    subdomain = section(spec, "network").get("subdomain") or jobset["metadata"].get("name")
    if not isinstance(target, Unknown):
        yield from _coordinating(next((j for j in jobs if j.get("name") == target), None), target, job_index, pod_index)
    parts = (jobset["metadata"].get("name"), target, job_index, pod_index)
    if not any(isinstance(part, Unknown) for part in (*parts, subdomain)):
        host = f"{'-'.join(map(str, parts))}.{subdomain}"
        if wrong := label_value(host):
            label = f'label value {_quoted(host)} for coordinator label "jobset.sigs.k8s.io/coordinator"'
            hint = "(long JobSet / ReplicatedJob / SubDomain name?)"
            yield _plain(f"spec will lead to invalid {label} {hint}: {', '.join(wrong)}")


def _coordinating(job: Document | None, target: str, job_index: Any, pod_index: Any) -> Iterator[Problem]:
    """The first thing that is wrong with the place of the coordinator."""
    if job is None:
        yield _plain(f"coordinator replicatedJob {target} does not exist")
        return
    replicas, template = job.get("replicas", 1), section(job, "template", "spec")
    mode, completions = template.get("completionMode"), template.get("completions")
    if isinstance(job_index, int) and (job_index < 0 or (isinstance(replicas, int) and job_index >= replicas)):
        yield _plain(f"coordinator job index {job_index} is invalid for replicatedJob {target}")
    elif completions is None or (mode != "Indexed" and not isinstance(mode, Unknown)):
        yield _plain("job for coordinator pod must be indexed completion mode, and completions number must be set")
    elif isinstance(pod_index, int) and (pod_index < 0 or (isinstance(completions, int) and pod_index >= completions)):
        yield _plain(f"coordinator pod index {pod_index} is invalid for replicatedJob {target} job index {job_index}")


def _claims(jobset: Document, jobs: list[Document], lookup: Lookup | None) -> Iterator[Problem]:
    name, namespace = (jobset["metadata"].get(field, "default") for field in ("name", "namespace"))
    seen: list[Any] = []
    for place, policy in enumerate(listed(section(jobset, "spec").get("volumeClaimPolicies"))):
        for number, template in enumerate(listed(section(policy).get("templates"))):
            at = f"spec.volumeClaimPolicies[{place}].template[{number}]"
            claim = section(template, "metadata").get("name", "")
            if not isinstance(claim, str):
                continue
            if claim in seen:
                yield _invalid(f"{at}.name", claim, "names must be unique for VolumeClaimPolicies template")
            seen.append(claim)
            yield from _each(f"{at}.name", claim, dns_1123_subdomain(claim))
            if isinstance(name, str) and len(f"{claim}-{name}") > _LONGEST:
                yield _invalid(f"{at}.name", claim, "VolumeClaimPolicies template name is too long")
            yield from _mounts(jobs, claim)
            there = lookup("PersistentVolumeClaim", namespace, f"{claim}-{name}") if lookup else None
            if there is not None:
                yield from _existing(section(policy), section(template), there, place, at)


def _mounts(jobs: list[Document], claim: str) -> Iterator[Problem]:
    mounted: list[Any] = []
    for place, job in enumerate(jobs):
        pod = section(job, "template", "spec", "template", "spec")
        at = f"spec.replicatedJobs[{place}].template.spec.template.spec.volumes"
        for number, volume in enumerate(listed(pod.get("volumes"))):
            if section(volume).get("name") == claim:
                why = f"volume name conflicts with VolumeClaimPolicy template name: {claim}"
                yield _invalid(f"{at}[{number}].name", claim, why)
        for container in (*listed(pod.get("initContainers")), *listed(pod.get("containers"))):
            mounts = section(container).get("volumeMounts", [])
            mounted += [mounts] if isinstance(mounts, Unknown) else [section(mount).get("name") for mount in mounts]
    if not _known(claim, mounted):
        why = f"replicatedJob containers don't have a matching volumeMount: {claim} from VolumeClaimPolicies"
        printed = typed("JobSetSpec", {"replicatedJobs": jobs}, None, Findings(), applied=False)
        yield _invalid("spec.replicatedJobs", printed.get("replicatedJobs"), why)


def _existing(policy: Document, template: Document, claim: Document, place: int, at: str) -> Iterator[Problem]:
    """A claim of that name that is there already: it is taken over if it is the same, and kept."""
    specs = [
        typed("PersistentVolumeClaimSpec", section(each, "spec"), None, Findings(), applied=False)
        for each in (claim, template)
    ]
    if not same(*specs):
        metadata = claim.get("metadata", {})
        why = f"spec does not match existing PVC {metadata.get('name')} in namespace {metadata.get('namespace')}"
        yield _invalid(f"{at}.spec", specs[1], why)
    kept = section(policy, "retentionPolicy").get("whenDeleted", "Delete")
    if kept != "Retain" and not isinstance(kept, Unknown):
        where = f"spec.volumeClaimPolicies[{place}].retentionPolicy.whenDeleted"
        yield _invalid(where, kept, "retentionPolicy must be retain when PVC exists")


def _known(name: Any, names: list[Any]) -> bool:
    return name in names or isinstance(name, Unknown) or any(isinstance(each, Unknown) for each in names)


def _plain(why: str) -> Problem:
    """An error without a field, as the server passes it on."""
    return Problem(NOWHERE, f"Internal error: {why}", type=INTERNAL)


def _invalid(where: str, value: Any, why: str) -> Problem:
    return Problem(where, f"Invalid value: {_quoted(value)}: {why}", type=INVALID)


def _quoted(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _each(where: str, value: str, wrong: list[str], too_long: str = _OVER) -> Iterator[Problem]:
    for why in wrong:
        yield _invalid(where, value, too_long if why == _OVER else why)
