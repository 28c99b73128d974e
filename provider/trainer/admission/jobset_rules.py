"""The rules of a new JobSet. Each is written once: in the server's words, with the path of the value for its author.

Feature gates are as released. What JobSet's webhook accepts, and the Job API or JobSet's controller rejects later, is marked.
Source: https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/webhooks/jobset_webhook.go
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.schema.field_errors import INTERNAL, INVALID, NOWHERE, REQUIRED, TOO_LONG
from pulumi_trainer.provider.kubernetes.schema.verdict import Lookup
from pulumi_trainer.provider.kubernetes.values import go_regexp
from pulumi_trainer.provider.kubernetes.values.accessors import Document, equal_as_go, listed, section, texts
from pulumi_trainer.provider.kubernetes.values.names import (
    dns_1035_label,
    dns_1123_subdomain,
    domain_prefixed_path,
    label_value,
    quoted,
)
from pulumi_trainer.provider.kubernetes.values.typed import Findings, GoTypes
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, any_unknown
from pulumi_trainer.provider.kubernetes.views import Pod, ReplicatedJob, entries, jobs_of

_LONGEST = 63
_MAX_INT32 = 2**31 - 1
_OVER = f"must be no more than {_LONGEST} characters"
_RULE_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_GATED_ACTIONS = ("RestartJob", "RestartJobAndIgnoreMaxRestarts")
REASONS = ("BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy")
"""Why a Job fails, for the rules of a JobSet's failurePolicy."""


@dataclass(frozen=True)
class BrokenRule:
    """A rule that a JobSet breaks.

    Args:
        detail: The server's text about it.
        field: The path that the server names; default: the server names no field.
        type: The server's error type; empty if JobSet's webhook accepts the value.
    """

    at: str
    detail: str
    hint: str = ""
    field: str = NOWHERE
    type: str = INTERNAL

    @property
    def server_error(self) -> Problem:
        """The error as the webhook reports it."""
        why = self.detail
        if self.type == INTERNAL:
            why = f"Internal error: {why}"
        return Problem(self.field, why, self.hint, self.type)

    @property
    def author_problem(self) -> Problem:
        """The problem as the author of the JobSet reads it: without a value that is longer than a name."""
        return Problem(self.at, _LONG_VALUE.sub("", self.detail), self.hint)


_LONG_VALUE = re.compile(r"^Invalid value: [\[{].*[\]}]: ", re.DOTALL)


def broken_rules(jobset: Document, go: GoTypes, lookup: Lookup | None = None) -> Iterator[BrokenRule]:
    """Yield the rules that a new JobSet breaks; unknown leaves count as valid.

    Args:
        lookup: Reads the PersistentVolumeClaims of the cluster; default: these rules are left out.
    """
    view = _View(jobset, go)
    for check in (_restart_strategy, _subdomain, _managed_by):
        yield from check(view)
    for job in view.jobs:
        for job_check in (_pods_within_int32, _group_name, _generated_names, _restart_policy, _dependencies):
            yield from job_check(view, job)
    yield from _targets(view, section(view.spec, "successPolicy"), "spec.successPolicy", "")
    yield from _failure_policy(view)
    yield from _coordinator_pod(view)
    yield from _coordinator_label(view)
    for template in view.claim_templates:
        for claim_check in (_claim_name, _claim_volume, _claim_mount):
            yield from claim_check(view, template)
        yield from _existing_claim(jobset, template, go, lookup)


def later_rules(jobset: Document, go: GoTypes) -> Iterator[BrokenRule]:
    """Yield the rules that JobSet's webhook does not check and a new JobSet breaks, which may have no defaults yet."""
    view = _View(jobset, go)
    for job in view.jobs:
        yield from _restart_policy(view, job)
    yield from (rule for rule in _failure_policy(view) if not rule.type)


def _failure_policy(view: _View) -> Iterator[BrokenRule]:
    """Yield what is wrong with the failurePolicy. The webhook reads no further after an action that is switched off."""
    for failure in view.failure_rules:
        action = failure.document.get("action")
        if action in _GATED_ACTIONS:
            actions = f"{' and '.join(_GATED_ACTIONS)} failure policy actions"
            why = f"{actions} are not allowed when RestartJob feature gate is disabled"
            yield BrokenRule(f"{failure.at}.action", why, "use RestartJobSet or RestartJobSetAndIgnoreMaxRestarts")
            return
    for failure in view.failure_rules:
        yield from _rule_name(view, failure)
        yield from _targets(view, failure.document, failure.at, "in failure policy ")
        yield from _failure_causes(failure)


@dataclass(frozen=True)
class _FailureRule:
    """A rule of the failurePolicy, with its index and its path."""

    document: Document
    place: int
    at: str


@dataclass(frozen=True)
class _ClaimTemplate:
    """A template of a volumeClaimPolicy.

    Args:
        is_repeated: Whether an earlier template has this name.
        places: Index of the policy, and of the template in it.
    """

    document: Document
    policy: Document
    claim: str
    is_repeated: bool
    places: tuple[int, int]

    @property
    def at(self) -> str:
        return "spec.volumeClaimPolicies[{}].templates[{}]".format(*self.places)

    @property
    def webhook_at(self) -> str:
        """The path as the webhook writes it."""
        return "spec.volumeClaimPolicies[{}].template[{}]".format(*self.places)


class _View:
    """A JobSet as the rules read it."""

    def __init__(self, jobset: Document, go: GoTypes) -> None:
        self.go = go
        self.name: Any = jobset["metadata"].get("name")
        self.spec = section(jobset, "spec")
        self.jobs = jobs_of(jobset)

    @cached_property
    def job_names(self) -> list[Any]:
        return [job.document.get("name") for job in self.jobs]

    @cached_property
    def failure_rules(self) -> list[_FailureRule]:
        rules = enumerate(listed(section(self.spec, "failurePolicy").get("rules")))
        at = "spec.failurePolicy.rules"
        return [_FailureRule(rule, place, f"{at}[{place}]") for place, rule in rules if isinstance(rule, dict)]

    @cached_property
    def coordinator(self) -> Document | None:
        coordinator = self.spec.get("coordinator")
        return coordinator if isinstance(coordinator, dict) else None

    @cached_property
    def coordinator_job(self) -> ReplicatedJob | None:
        target = section(self.coordinator).get("replicatedJob", "")
        return next((job for job in self.jobs if job.document.get("name") == target), None)

    @cached_property
    def claim_templates(self) -> list[_ClaimTemplate]:
        found: list[_ClaimTemplate] = []
        seen: set[str] = set()
        for number, policy in enumerate(listed(self.spec.get("volumeClaimPolicies"))):
            for place, template in enumerate(listed(section(policy).get("templates"))):
                claim = section(template, "metadata").get("name", "")
                if isinstance(template, dict) and isinstance(claim, str):
                    found.append(_ClaimTemplate(template, policy, claim, claim in seen, (number, place)))
                    seen.add(claim)
        return found

    @cached_property
    def mounted(self) -> list[Any]:
        """Names of the volumes that the containers mount."""
        return list(chain.from_iterable(_mounted(job.pod) for job in self.jobs))


def _mounted(pod: Pod) -> Iterator[Any]:
    for container in pod.all_containers:
        mounts = container.document.get("volumeMounts")
        if isinstance(mounts, Unknown):
            yield mounts
        for mount in listed(mounts):
            yield section(mount).get("name")


def _group_name(_view: _View, job: ReplicatedJob) -> Iterator[BrokenRule]:
    group, at = job.document.get("groupName"), f"{job.at}.groupName"
    too_long = ".spec.replicatedJob[].groupName is too long, must be less than 63 characters"
    yield from _invalid(at, group, _wrong(dns_1035_label, group), too_long)


def _generated_names(view: _View, job: ReplicatedJob) -> Iterator[BrokenRule]:
    """Check names of the Jobs and Pods that will be made, at their longest: those with the highest indices."""
    if not isinstance(view.name, str) or not isinstance(job.name, str) or job.replicas is None:
        return
    field, shown = f"{job.at}.name", f"{view.name}-{job.name}-{job.replicas - 1}"
    names = {"job": shown}
    completions = job.job.get("completions")
    if job.job.get("completionMode") == "Indexed" and isinstance(completions, int):
        names["pod"] = f"{shown}-{completions - 1}-abcde"
    over = max(map(len, names.values())) - _LONGEST
    hint = f"shorten it, or the name of {job.name}, by {over}"
    for what, name in names.items():
        too_long = f"JobSet name is too long, {what} names generated for this JobSet will exceed 63 characters"
        for why in dns_1035_label(name):
            if why == _OVER:
                yield from _invalid("metadata.name", shown, [too_long], hint=hint, field=field)
            else:
                yield from _invalid(field, shown, [why])


def _pods_within_int32(_view: _View, job: ReplicatedJob) -> Iterator[BrokenRule]:
    """Check that the number of Pods fits the type of its field."""
    if job.replicas is not None and job.parallelism is not None and job.replicas * job.parallelism > _MAX_INT32:
        limit = f"the product of replicas and parallelism must not exceed {_MAX_INT32}"
        yield BrokenRule(job.at, f"{limit} for replicatedJob '{job.document.get('name')}'")


def _restart_policy(_view: _View, job: ReplicatedJob) -> Iterator[BrokenRule]:
    restart, at = job.pod.spec.get("restartPolicy") or "OnFailure", f"{job.pod.at}.restartPolicy"
    if restart not in ("OnFailure", "Never") and not isinstance(restart, Unknown):
        yield BrokenRule(at, "must be OnFailure or Never in a Job", type="")
    elif restart == "OnFailure" and "podFailurePolicy" in job.job:
        yield BrokenRule(at, "must be Never if the Job has a podFailurePolicy", type="")


def _dependencies(view: _View, job: ReplicatedJob) -> Iterator[BrokenRule]:
    """Check that a job depends on jobs before it. The webhook also accepts the job itself."""
    if job.place == 0 and listed(job.document.get("dependsOn")):
        yield BrokenRule(f"{job.at}.dependsOn", "DependsOn can't be set for the first ReplicatedJob")
    if not job.depends_on:
        return
    earlier = [each.document.get("name") for each in view.jobs if each.place < job.place]
    own = job.document.get("name")
    hint = ""
    if earlier:
        hint = f"jobs before it: {', '.join(map(str, earlier))}"
    for at, other in enumerate(job.depends_on):
        name = other.get("name")
        if not _known(name, earlier) and (job.place > 0 or name != own):
            error_type = INTERNAL
            if name == own:
                error_type = ""
            why = f"replicatedJob: {own} cannot depend on replicatedJob: {name}"
            yield BrokenRule(f"{job.at}.dependsOn[{at}].name", why, hint, type=error_type)


def _subdomain(view: _View) -> Iterator[BrokenRule]:
    subdomain, at = section(view.spec, "network").get("subdomain"), "spec.network.subdomain"
    if subdomain:
        too_long = ".spec.network.subdomain is too long, must be less than 63 characters"
        yield from _invalid(at, subdomain, _wrong(dns_1123_subdomain, subdomain))
        yield from _invalid(at, subdomain, _wrong(dns_1035_label, subdomain), too_long)


def _managed_by(view: _View) -> Iterator[BrokenRule]:
    manager, at = view.spec.get("managedBy"), "spec.managedBy"
    if manager == "":
        yield BrokenRule(at, "Required value", "leave it out", at, REQUIRED)
    elif isinstance(manager, str):
        for why in domain_prefixed_path(manager):
            yield from _invalid(at, _wrong_part(manager, why), [why])
        if len(manager.encode(errors="replace")) > _LONGEST:
            yield BrokenRule(at, f"Too long: may not be more than {_LONGEST} bytes", "", at, TOO_LONG)


def _wrong_part(manager: str, why: str) -> str:
    """Return the part of a domain-prefixed path that an error is about."""
    host, _, path = manager.partition("/")
    if why.startswith("must be a domain"):
        return manager
    if why.startswith("Invalid path"):
        return path
    return host


def _restart_strategy(view: _View) -> Iterator[BrokenRule]:
    if section(view.spec, "failurePolicy").get("restartStrategy") == "InPlaceRestart":
        why = "InPlaceRestart restart strategy cannot be set when InPlaceRestart feature gate is disabled"
        yield BrokenRule("spec.failurePolicy.restartStrategy", why, "use Recreate or BlockingRecreate")


def _rule_name(view: _View, rule: _FailureRule) -> Iterator[BrokenRule]:
    name, at = rule.document.get("name"), f"{rule.at}.name"
    if not isinstance(name, str):
        return
    if not 1 <= len(name) <= 128:
        bounds = "at least 1 characters long and at most 128 characters long"
        why = f"invalid failure policy rule name of length {len(name)}, the rule name must be {bounds}"
        yield BrokenRule(at, why)
    if not _RULE_NAME.fullmatch(name):
        form = (
            "a failure policy rule name must start with an alphabetic character, optionally followed by a string of "
            "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'"
        )
        yield BrokenRule(at, f"invalid failure policy rule name '{name}', {form}")
    equal = [each for each in view.failure_rules if each.document.get("name") == name]
    if len(equal) > 1 and rule is equal[0]:
        places = " ".join(str(each.place) for each in equal)
        why = f"rule names are not unique, rules with indices [{places}] all have the same name '{name}'"
        yield BrokenRule(f"{equal[1].at}.name", why)


def _failure_causes(rule: _FailureRule) -> Iterator[BrokenRule]:
    """Check reasons of failures, and patterns of messages, which JobSet's controller reads."""
    for reason in texts(rule.document.get("onJobFailureReasons")):
        if reason not in REASONS:
            why = f"invalid job failure reason '{reason}' in failure policy is not a recognized job failure reason"
            yield BrokenRule(f"{rule.at}.onJobFailureReasons", why)
    for place, pattern in enumerate(listed(rule.document.get("onJobFailureMessagePatterns"))):
        if isinstance(pattern, str):
            try:
                go_regexp.compiled(pattern)
            except ValueError as error:
                at = f"{rule.at}.onJobFailureMessagePatterns[{place}]"
                yield BrokenRule(at, f"must be a regular expression: {error}", type="")


def _targets(view: _View, policy: Document, path: str, what: str) -> Iterator[BrokenRule]:
    """Check the replicated jobs that a policy names."""
    hint = f"replicated jobs: {', '.join(map(str, view.job_names))}"
    for place, target in enumerate(listed(policy.get("targetReplicatedJobs"))):
        if not _known(target, view.job_names):
            why = f"invalid replicatedJob name '{target}' {what}does not appear in .spec.ReplicatedJobs"
            yield BrokenRule(f"{path}.targetReplicatedJobs[{place}]", why, hint)


def _coordinator_pod(view: _View) -> Iterator[BrokenRule]:
    """Check that the coordinator is a Pod of the JobSet. The webhook reports only the first fault."""
    coordinator, job, path = section(view.coordinator), view.coordinator_job, "spec.coordinator"
    target = coordinator.get("replicatedJob", "")
    if view.coordinator is None or isinstance(target, Unknown):
        return
    if job is None:
        hint = f"replicated jobs: {', '.join(map(str, view.job_names))}"
        yield BrokenRule(f"{path}.replicatedJob", f"coordinator replicatedJob {target} does not exist", hint)
        return
    job_index, pod_index = coordinator.get("jobIndex", 0), coordinator.get("podIndex", 0)
    completions = job.job.get("completions")
    if _is_outside(job_index, job.replicas):
        why = f"coordinator job index {job_index} is invalid for replicatedJob {target}"
        yield BrokenRule(f"{path}.jobIndex", why, f"must be less than {job.replicas}")
    elif not _has_indices(job):
        why = "job for coordinator pod must be indexed completion mode, and completions number must be set"
        yield BrokenRule(path, why, f"give {target} completionMode Indexed and completions")
    elif _is_outside(pod_index, completions):
        why = f"coordinator pod index {pod_index} is invalid for replicatedJob {target} job index {job_index}"
        yield BrokenRule(f"{path}.podIndex", why, f"must be less than {completions}")


def _has_indices(job: ReplicatedJob) -> bool:
    mode = job.job.get("completionMode")
    return job.job.get("completions") is not None and (mode == "Indexed" or isinstance(mode, Unknown))


def _is_outside(index: Any, count: Any) -> bool:
    if not isinstance(index, int):
        return False
    return index < 0 or (isinstance(count, int) and index >= count)


def _coordinator_label(view: _View) -> Iterator[BrokenRule]:
    """Check the label that names the coordinator's Pod."""
    coordinator = view.coordinator
    if coordinator is None:
        return
    target = coordinator.get("replicatedJob", "")
    job_index, pod_index = coordinator.get("jobIndex", 0), coordinator.get("podIndex", 0)
    subdomain = section(view.spec, "network").get("subdomain") or view.name
    if any_unknown((view.name, target, job_index, pod_index, subdomain)):
        return
    host = f"{view.name}-{target}-{job_index}-{pod_index}.{subdomain}"
    wrong = label_value(host)
    if wrong:
        label = f'label value {_quoted(host)} for coordinator label "jobset.sigs.k8s.io/coordinator"'
        advice = "(long JobSet / ReplicatedJob / SubDomain name?)"
        why = f"spec will lead to invalid {label} {advice}: {', '.join(wrong)}"
        own = len(f"-{target}-{job_index}-{pod_index}.")
        fits = (_LONGEST - own) // 2  # the subdomain is the name as well
        if subdomain != view.name:
            fits = _LONGEST - own - len(subdomain)
        hint = f"a name of at most {fits} characters fits"
        if fits < 1:
            hint = f"a spec.network.subdomain of at most {_LONGEST - own - len(view.name)} characters fits"
        yield BrokenRule("metadata.name", why, hint)


def _claim_name(view: _View, template: _ClaimTemplate) -> Iterator[BrokenRule]:
    at, wrong = f"{template.at}.metadata.name", dns_1123_subdomain(template.claim)
    if template.is_repeated:
        wrong = ["names must be unique for VolumeClaimPolicies template", *wrong]
    yield from _invalid(at, template.claim, wrong, field=f"{template.webhook_at}.name")
    over = len(f"{template.claim}-{view.name}") - _LONGEST
    if isinstance(view.name, str) and over > 0:
        why, hint = "VolumeClaimPolicies template name is too long", f"shorten it, or the name of the job, by {over}"
        yield from _invalid(at, template.claim, [why], hint=hint, field=f"{template.webhook_at}.name")


def _claim_mount(view: _View, template: _ClaimTemplate) -> Iterator[BrokenRule]:
    claim = template.claim
    if _known(claim, view.mounted):
        return
    why = f"replicatedJob containers don't have a matching volumeMount: {claim} from VolumeClaimPolicies"
    documents = [job.document for job in view.jobs]
    printed = view.go.as_struct("JobSetSpec", {"replicatedJobs": documents}, None, Findings(), applied=False)
    jobs = printed.get("replicatedJobs")
    yield from _invalid(f"{template.at}.metadata.name", jobs, [why], field="spec.replicatedJobs")


def _claim_volume(view: _View, template: _ClaimTemplate) -> Iterator[BrokenRule]:
    claim = template.claim
    why = f"volume name conflicts with VolumeClaimPolicy template name: {claim}"
    for job in view.jobs:
        for at, volume in entries(job.pod.spec, "volumes", job.pod.at):
            if volume.get("name") == claim:
                yield from _invalid(f"{at}.name", claim, [why])


def _existing_claim(
    jobset: Document, template: _ClaimTemplate, go: GoTypes, lookup: Lookup | None
) -> Iterator[BrokenRule]:
    """Yield what is wrong about an existing claim of that name: it is taken over if it is the same, and kept."""
    if not lookup:
        return
    metadata = jobset["metadata"]
    name, namespace = metadata.get("name", "default"), metadata.get("namespace", "default")
    claim = lookup("PersistentVolumeClaim", namespace, f"{template.claim}-{name}")
    if claim is None:
        return
    existing, spec = _claim_spec(claim, go), _claim_spec(template.document, go)
    if not equal_as_go(existing, spec):
        about = claim.get("metadata", {})
        why = f"spec does not match existing PVC {about.get('name')} in namespace {about.get('namespace')}"
        yield from _invalid(f"{template.at}.spec", spec, [why], field=f"{template.webhook_at}.spec")
    kept = section(template.policy, "retentionPolicy").get("whenDeleted", "Delete")
    if kept != "Retain" and not isinstance(kept, Unknown):
        where = f"spec.volumeClaimPolicies[{template.places[0]}].retentionPolicy.whenDeleted"
        yield from _invalid(where, kept, ["retentionPolicy must be retain when PVC exists"])


def _claim_spec(claim: Document, go: GoTypes) -> Document:
    """Return the spec of a claim, or of a template for one, as Go prints it."""
    return go.as_struct("PersistentVolumeClaimSpec", section(claim, "spec"), None, Findings(), applied=False)


def _known(name: Any, names: list[Any]) -> bool:
    return name in names or isinstance(name, Unknown) or any_unknown(names)


def _wrong(check: Callable[[str], list[str]], value: Any) -> list[str]:
    return check(value) if isinstance(value, str) else []


def _invalid(
    at: str, value: Any, wrong: Iterable[str], too_long: str = _OVER, *, hint: str = "", field: str = ""
) -> Iterator[BrokenRule]:
    """Yield a broken rule for each reason why a value is not valid.

    Args:
        too_long: The server's text for a name with too many characters.
        field: The path that the server names; default: `at`.
    """
    for why in wrong:
        if why == _OVER:
            why = too_long
        yield BrokenRule(at, f"Invalid value: {_quoted(value)}: {why}", hint, field or at, INVALID)


def _quoted(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=repr)  # an unknown leaf
