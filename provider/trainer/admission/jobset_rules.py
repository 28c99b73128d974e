"""The rules of a new JobSet: each names what its author reads, with field paths, and what JobSet's webhook answers.

Feature gates are as released. A rule without words of the webhook is one of the CRD, of the Job API, or of JobSet's controller.
Source: https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/webhooks/jobset_webhook.go and the CRD beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from pulumi_trainer.provider.api.go_structs import as_go_struct
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
from pulumi_trainer.provider.kubernetes.values.typed import Findings
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, any_unknown
from pulumi_trainer.provider.kubernetes.views import Pod, ReplicatedJob, entries, jobs_of

_LONGEST = 63
_MAX_INT32 = 2**31 - 1
_OVER = f"must be no more than {_LONGEST} characters"
_RULE_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_GATED_ACTIONS = ("RestartJob", "RestartJobAndIgnoreMaxRestarts")
REASONS = ("BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy")
"""Why a Job fails, for the rules of a JobSet's failurePolicy."""


def author_problems(jobset: Document) -> Iterator[Problem]:
    """Yield what is wrong with a new JobSet, in words for its author; unknown leaves count as valid.

    Args:
        jobset: The JobSet with its defaults.
    """
    view = _View(jobset)
    for job in view.jobs:
        for job_rule in _AUTHOR_ORDER.job:
            yield from job_rule(view, job).author
    for rule in _AUTHOR_ORDER.policies:
        yield from rule(view).author
    for failure in view.failure_rules:
        for failure_rule in _AUTHOR_ORDER.failure:
            yield from failure_rule(view, failure).author
    for rule in _AUTHOR_ORDER.coordinator:
        yield from rule(view).author
    for template in view.claim_templates:
        for claim_rule in _AUTHOR_ORDER.claim:
            yield from claim_rule(view, template).author


def webhook_errors(jobset: Document, lookup: Lookup | None) -> Iterator[Problem]:
    """Yield what JobSet's webhook has against a new JobSet, in its words; unknown leaves count as valid.

    Args:
        jobset: The JobSet with its defaults.
        lookup: Reads the PersistentVolumeClaims of the cluster; None leaves these checks out.
    """
    view = _View(jobset)
    yield from _restart_strategy(view).webhook
    for job in view.jobs[:1]:
        yield from _first_dependency(view, job).webhook
    for rule in _WEBHOOK_ORDER.policies:
        yield from rule(view).webhook
    for job in view.jobs:
        for job_rule in _WEBHOOK_ORDER.job:
            yield from job_rule(view, job).webhook
    yield from _success_targets(view).webhook
    yield from _failure_errors(view)
    for rule in _WEBHOOK_ORDER.coordinator:
        yield from rule(view).webhook
    for template in view.claim_templates:
        for claim_rule in _WEBHOOK_ORDER.claim:
            yield from claim_rule(view, template).webhook
        yield from _existing_claim(jobset, template, lookup)


def _failure_errors(view: _View) -> Iterator[Problem]:
    """Yield the webhook's errors about the failurePolicy. It reads no further after an action that is switched off."""
    for failure in view.failure_rules:
        gated = _gated_action(view, failure).webhook
        if gated:
            yield gated[0]
            return
    for rules in (_WEBHOOK_ORDER.failure, (_repeated_rule_name,)):
        for failure in view.failure_rules:
            for rule in rules:
                yield from rule(view, failure).webhook


@dataclass(frozen=True)
class _Broken:
    """What is reported if a rule is broken.

    Args:
        author: Problems in words for the author; empty if another rule or the schema has reported it.
        webhook: Errors in the webhook's words; empty if the webhook has no such rule.
    """

    author: Sequence[Problem] = ()
    webhook: Sequence[Problem] = ()


_KEPT = _Broken()


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
        document: The template.
        policy: The policy.
        claim: Name of the template.
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

    def __init__(self, jobset: Document) -> None:
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


def _group_name(_view: _View, job: ReplicatedJob) -> _Broken:
    group, at = job.document.get("groupName"), f"{job.at}.groupName"
    wrong = _wrong(dns_1035_label, group)
    too_long = ".spec.replicatedJob[].groupName is too long, must be less than 63 characters"
    return _Broken([Problem(at, why) for why in wrong], _each(at, group, wrong, too_long))


def _generated_names(view: _View, job: ReplicatedJob) -> _Broken:
    """Checks names of the Jobs and Pods that will be made, at their longest: those with the highest indices."""
    if not isinstance(view.name, str) or not isinstance(job.name, str) or job.replicas is None:
        return _KEPT
    at = f"{job.at}.name"
    too_long = "JobSet name is too long, {} names generated for this JobSet will exceed 63 characters"
    what, longest = "Job", f"{view.name}-{job.name}-{job.replicas - 1}"
    webhook = _each(at, longest, dns_1035_label(longest), too_long.format("job"))
    completions = job.job.get("completions")
    if job.job.get("completionMode") == "Indexed" and isinstance(completions, int):
        what, pod = "Pod", f"{longest}-{completions - 1}-abcde"
        webhook += _each(at, longest, dns_1035_label(pod), too_long.format("pod"))
        longest = pod
    over = len(longest) - _LONGEST
    if over > 0:
        why = f"is too long: names of its {what}s, such as {longest!r}, must have at most {_LONGEST} characters"
        return _Broken([Problem("metadata.name", why, f"shorten it, or the name of {job.name}, by {over}")], webhook)
    wrong = dns_1035_label(longest)
    if wrong:
        return _Broken([Problem(at, f"gives {what}s the name {longest!r}: {wrong[0]}")], webhook)
    return _KEPT


def _number_of_pods(_view: _View, job: ReplicatedJob) -> _Broken:
    if job.replicas is None or job.parallelism is None or job.replicas * job.parallelism <= _MAX_INT32:
        return _KEPT
    limit = f"the product of replicas and parallelism must not exceed {_MAX_INT32}"
    return _Broken(
        [Problem(job.at, f"replicas x parallelism must not be more than {_MAX_INT32}")],
        [_plain(f"{limit} for replicatedJob '{job.document.get('name')}'")],
    )


def _restart_policy(_view: _View, job: ReplicatedJob) -> _Broken:
    restart, at = job.pod.spec.get("restartPolicy"), f"{job.pod.at}.restartPolicy"
    if restart not in ("OnFailure", "Never") and not isinstance(restart, Unknown):
        return _Broken([Problem(at, "must be OnFailure or Never in a Job")])
    if restart == "OnFailure" and "podFailurePolicy" in job.job:
        return _Broken([Problem(at, "must be Never if the Job has a podFailurePolicy")])
    return _KEPT


def _first_dependency(_view: _View, job: ReplicatedJob) -> _Broken:
    if job.place > 0 or not listed(job.document.get("dependsOn")):
        return _KEPT
    return _Broken(
        [Problem(f"{job.at}.dependsOn", "the first replicated job cannot depend on another")],
        [_plain("DependsOn can't be set for the first ReplicatedJob")],
    )


def _startup_order(view: _View, job: ReplicatedJob) -> _Broken:
    if not job.depends_on or section(view.spec, "startupPolicy").get("startupPolicyOrder") != "InOrder":
        return _KEPT
    return _Broken([Problem(f"{job.at}.dependsOn", "cannot be combined with the startupPolicy InOrder")])


def _dependencies(view: _View, job: ReplicatedJob) -> _Broken:
    """Checks that a job depends on jobs before it. The webhook also accepts the job itself."""
    earlier = [each.document.get("name") for each in view.jobs if each.place < job.place]
    own = job.document.get("name")
    hint = f"jobs before it: {', '.join(map(str, earlier))}"
    author: list[Problem] = []
    webhook: list[Problem] = []
    for at, other in enumerate(job.depends_on):
        name = other.get("name")
        if job.place > 0 and not _known(name, earlier):
            where = f"{job.at}.dependsOn[{at}].name"
            author.append(Problem(where, "must be a replicated job before this one", hint))
        if not _known(name, [*earlier, own]):
            webhook.append(_plain(f"replicatedJob: {own} cannot depend on replicatedJob: {name}"))
    return _Broken(author, webhook)


def _subdomain(view: _View) -> _Broken:
    subdomain, at = section(view.spec, "network").get("subdomain"), "spec.network.subdomain"
    if not subdomain:
        return _KEPT
    too_long = ".spec.network.subdomain is too long, must be less than 63 characters"
    as_subdomain, as_label = _wrong(dns_1123_subdomain, subdomain), _wrong(dns_1035_label, subdomain)
    return _Broken(
        [Problem(at, why) for why in (*as_subdomain, *as_label)],
        [*_each(at, subdomain, as_subdomain), *_each(at, subdomain, as_label, too_long)],
    )


def _managed_by(view: _View) -> _Broken:
    manager, at = view.spec.get("managedBy"), "spec.managedBy"
    if not isinstance(manager, str):
        return _KEPT
    wrong = domain_prefixed_path(manager)
    author = [Problem(at, why) for why in wrong]
    if not manager:
        return _Broken(author, [Problem(at, "Required value", "leave it out", REQUIRED)])
    webhook = [_invalid(at, _wrong_part(manager, why), why) for why in wrong]
    if len(manager) > _LONGEST:
        author.append(Problem(at, _OVER))
    if len(manager.encode(errors="replace")) > _LONGEST:
        webhook.append(Problem(at, f"Too long: may not be more than {_LONGEST} bytes", type=TOO_LONG))
    return _Broken(author, webhook)


def _wrong_part(manager: str, why: str) -> str:
    """Return the part of a domain-prefixed path that an error is about."""
    host, _, path = manager.partition("/")
    if why.startswith("must be a domain"):
        return manager
    if why.startswith("Invalid path"):
        return path
    return host


def _success_targets(view: _View) -> _Broken:
    policy, why = section(view.spec, "successPolicy"), "does not appear in .spec.ReplicatedJobs"
    return _targets(view, policy, "spec.successPolicy", why)


def _restart_strategy(view: _View) -> _Broken:
    if section(view.spec, "failurePolicy").get("restartStrategy") != "InPlaceRestart":
        return _KEPT
    why = "InPlaceRestart needs the feature gate InPlaceRestart, which is off"
    gate = "InPlaceRestart restart strategy cannot be set when InPlaceRestart feature gate is disabled"
    at = "spec.failurePolicy.restartStrategy"
    return _Broken([Problem(at, why, "use Recreate or BlockingRecreate")], [_plain(gate)])


def _rule_name(_view: _View, rule: _FailureRule) -> _Broken:
    name = rule.document.get("name")
    if not isinstance(name, str):
        return _KEPT
    webhook: list[Problem] = []
    if not 1 <= len(name) <= 128:
        bounds = "at least 1 characters long and at most 128 characters long"
        webhook.append(
            _plain(f"invalid failure policy rule name of length {len(name)}, the rule name must be {bounds}")
        )
    if not _RULE_NAME.fullmatch(name):
        form = (
            "a failure policy rule name must start with an alphabetic character, optionally followed by a string of "
            "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'"
        )
        webhook.append(_plain(f"invalid failure policy rule name '{name}', {form}"))
    if not webhook:
        return _KEPT
    why = "must be 1 to 128 letters, digits or _,: starting with a letter, not ending with , or :"
    return _Broken([Problem(f"{rule.at}.name", why)], webhook)


def _gated_action(_view: _View, rule: _FailureRule) -> _Broken:
    action = rule.document.get("action")
    if action not in _GATED_ACTIONS:
        return _KEPT
    hint = "use RestartJobSet or RestartJobSetAndIgnoreMaxRestarts"
    actions = f"{' and '.join(_GATED_ACTIONS)} failure policy actions"
    return _Broken(
        [Problem(f"{rule.at}.action", f"{action} needs the feature gate RestartJob, which is off", hint)],
        [_plain(f"{actions} are not allowed when RestartJob feature gate is disabled")],
    )


def _message_patterns(_view: _View, rule: _FailureRule) -> _Broken:
    author: list[Problem] = []
    for place, pattern in enumerate(listed(rule.document.get("onJobFailureMessagePatterns"))):
        if isinstance(pattern, str):
            try:
                go_regexp.compiled(pattern)
            except ValueError as error:
                where = f"{rule.at}.onJobFailureMessagePatterns[{place}]"
                author.append(Problem(where, f"must be a regular expression: {error}"))
    return _Broken(author)


def _rule_targets(view: _View, rule: _FailureRule) -> _Broken:
    return _targets(view, rule.document, rule.at, "in failure policy does not appear in .spec.ReplicatedJobs")


def _failure_reasons(_view: _View, rule: _FailureRule) -> _Broken:
    """Checks reasons of failures; their author has read of them in the problems of the document."""
    why = "in failure policy is not a recognized job failure reason"
    webhook: list[Problem] = []
    for reason in texts(rule.document.get("onJobFailureReasons")):
        if reason not in REASONS:
            webhook.append(_plain(f"invalid job failure reason '{reason}' {why}"))
    return _Broken(webhook=webhook)


def _repeated_rule_name(view: _View, rule: _FailureRule) -> _Broken:
    """Checks that rules have different names: the webhook reports the first of equal ones, its author reads of the others."""
    name = rule.document.get("name")
    equal = [each.place for each in view.failure_rules if each.document.get("name") == name]
    if rule.place != equal[0]:
        return _Broken([Problem(f"{rule.at}.name", "is the name of another rule")])
    if len(equal) == 1 or not isinstance(name, str):
        return _KEPT
    shown = " ".join(map(str, equal))
    return _Broken(
        webhook=[_plain(f"rule names are not unique, rules with indices [{shown}] all have the same name '{name}'")]
    )


def _targets(view: _View, policy: Document, path: str, webhook_why: str) -> _Broken:
    """Checks the replicated jobs that a policy names."""
    hint = f"replicated jobs: {', '.join(map(str, view.job_names))}"
    author: list[Problem] = []
    webhook: list[Problem] = []
    for place, target in enumerate(listed(policy.get("targetReplicatedJobs"))):
        if not _known(target, view.job_names):
            author.append(Problem(f"{path}.targetReplicatedJobs[{place}]", "unknown replicated job", hint))
            webhook.append(_plain(f"invalid replicatedJob name '{target}' {webhook_why}"))
    return _Broken(author, webhook)


def _coordinator_pod(view: _View) -> _Broken:
    """Checks that the coordinator is a Pod of the JobSet. The webhook reports only the first fault."""
    coordinator, job, path = section(view.coordinator), view.coordinator_job, "spec.coordinator"
    target = coordinator.get("replicatedJob", "")
    if view.coordinator is None or isinstance(target, Unknown):
        return _KEPT
    if job is None:
        missing = _plain(f"coordinator replicatedJob {target} does not exist")
        return _Broken([Problem(f"{path}.replicatedJob", "unknown replicated job")], [missing])
    author: list[Problem] = []
    webhook: list[Problem] = []
    job_index, pod_index = coordinator.get("jobIndex", 0), coordinator.get("podIndex", 0)
    completions = job.job.get("completions")
    if _is_outside(job_index, job.replicas):
        author.append(Problem(f"{path}.jobIndex", f"must be less than {job.replicas}, not {job_index}"))
        webhook.append(_plain(f"coordinator job index {job_index} is invalid for replicatedJob {target}"))
    if not _has_indices(job):
        mode = "job for coordinator pod must be indexed completion mode, and completions number must be set"
        author = [Problem(path, "its replicated job must have completionMode Indexed, and completions")]
        webhook.append(_plain(mode))
    elif _is_outside(pod_index, completions):
        author.append(Problem(f"{path}.podIndex", f"must be less than {completions}, not {pod_index}"))
        place = f"replicatedJob {target} job index {job_index}"
        webhook.append(_plain(f"coordinator pod index {pod_index} is invalid for {place}"))
    return _Broken(author, webhook[:1])


def _has_indices(job: ReplicatedJob) -> bool:
    mode = job.job.get("completionMode")
    return job.job.get("completions") is not None and (mode == "Indexed" or isinstance(mode, Unknown))


def _is_outside(index: Any, count: Any) -> bool:
    if not isinstance(index, int):
        return False
    return index < 0 or (isinstance(count, int) and index >= count)


def _coordinator_label(view: _View) -> _Broken:
    """Checks the label that names the coordinator's Pod; its author first reads of a job that cannot have this Pod."""
    coordinator = view.coordinator
    if coordinator is None:
        return _KEPT
    target = coordinator.get("replicatedJob", "")
    job_index, pod_index = coordinator.get("jobIndex", 0), coordinator.get("podIndex", 0)
    subdomain = section(view.spec, "network").get("subdomain") or view.name
    if any_unknown((view.name, target, job_index, pod_index, subdomain)):
        return _KEPT
    host = f"{view.name}-{target}-{job_index}-{pod_index}.{subdomain}"
    wrong = label_value(host)
    if not wrong:
        return _KEPT
    label = f'label value {_quoted(host)} for coordinator label "jobset.sigs.k8s.io/coordinator"'
    hint = "(long JobSet / ReplicatedJob / SubDomain name?)"
    webhook = [_plain(f"spec will lead to invalid {label} {hint}: {', '.join(wrong)}")]
    if view.coordinator_job is None or not _has_indices(view.coordinator_job):
        return _Broken(webhook=webhook)
    gives = f"gives the coordinator the label {host!r}, which"
    return _Broken([Problem("metadata.name", f"{gives} {why}", "shorten it") for why in wrong], webhook)


def _repeated_claim(_view: _View, template: _ClaimTemplate) -> _Broken:
    if not template.is_repeated:
        return _KEPT
    why = "names must be unique for VolumeClaimPolicies template"
    return _Broken(
        [Problem(f"{template.at}.metadata.name", "is the name of another template")],
        [_invalid(f"{template.webhook_at}.name", template.claim, why)],
    )


def _claim_name(_view: _View, template: _ClaimTemplate) -> _Broken:
    wrong = dns_1123_subdomain(template.claim)
    return _Broken(
        [Problem(f"{template.at}.metadata.name", why) for why in wrong],
        _each(f"{template.webhook_at}.name", template.claim, wrong),
    )


def _claim_length(view: _View, template: _ClaimTemplate) -> _Broken:
    name = f"{template.claim}-{view.name}"
    if not isinstance(view.name, str) or len(name) <= _LONGEST:
        return _KEPT
    why = f"is too long: the name of the claim, {name}, must have at most {_LONGEST} characters"
    too_long = "VolumeClaimPolicies template name is too long"
    return _Broken(
        [Problem(f"{template.at}.metadata.name", why)],
        [_invalid(f"{template.webhook_at}.name", template.claim, too_long)],
    )


def _claim_namespace(_view: _View, template: _ClaimTemplate) -> _Broken:
    if not section(template.document, "metadata").get("namespace"):
        return _KEPT
    return _Broken([Problem(f"{template.at}.metadata.namespace", "cannot be set")])


def _claim_mount(view: _View, template: _ClaimTemplate) -> _Broken:
    claim = template.claim
    if _known(claim, view.mounted):
        return _KEPT
    why = f"replicatedJob containers don't have a matching volumeMount: {claim} from VolumeClaimPolicies"
    documents = [job.document for job in view.jobs]
    printed = as_go_struct("JobSetSpec", {"replicatedJobs": documents}, None, Findings(), applied=False)
    return _Broken(
        [Problem(f"{template.at}.metadata.name", f"no container has a volumeMount called {claim}")],
        [_invalid("spec.replicatedJobs", printed.get("replicatedJobs"), why)],
    )


def _claim_volume(view: _View, template: _ClaimTemplate) -> _Broken:
    claim = template.claim
    author: list[Problem] = []
    webhook: list[Problem] = []
    for job in view.jobs:
        for at, volume in entries(job.pod.spec, "volumes", job.pod.at):
            if volume.get("name") == claim:
                author.append(Problem(f"{at}.name", "is the name of a volumeClaimPolicy's template"))
                why = f"volume name conflicts with VolumeClaimPolicy template name: {claim}"
                webhook.append(_invalid(f"{at}.name", claim, why))
    return _Broken(author, webhook)


def _existing_claim(jobset: Document, template: _ClaimTemplate, lookup: Lookup | None) -> Iterator[Problem]:
    """Yield the webhook's errors about an existing claim of that name: it is taken over if it is the same, and kept."""
    if not lookup:
        return
    metadata = jobset["metadata"]
    name, namespace = metadata.get("name", "default"), metadata.get("namespace", "default")
    claim = lookup("PersistentVolumeClaim", namespace, f"{template.claim}-{name}")
    if claim is None:
        return
    existing, spec = _claim_spec(claim), _claim_spec(template.document)
    if not equal_as_go(existing, spec):
        about = claim.get("metadata", {})
        why = f"spec does not match existing PVC {about.get('name')} in namespace {about.get('namespace')}"
        yield _invalid(f"{template.webhook_at}.spec", spec, why)
    kept = section(template.policy, "retentionPolicy").get("whenDeleted", "Delete")
    if kept != "Retain" and not isinstance(kept, Unknown):
        where = f"spec.volumeClaimPolicies[{template.places[0]}].retentionPolicy.whenDeleted"
        yield _invalid(where, kept, "retentionPolicy must be retain when PVC exists")


def _claim_spec(claim: Document) -> Document:
    """Return the spec of a claim, or of a template for one, as Go prints it."""
    return as_go_struct("PersistentVolumeClaimSpec", section(claim, "spec"), None, Findings(), applied=False)


def _known(name: Any, names: list[Any]) -> bool:
    return name in names or isinstance(name, Unknown) or any_unknown(names)


def _wrong(check: Callable[[str], list[str]], value: Any) -> list[str]:
    return check(value) if isinstance(value, str) else []


def _plain(why: str) -> Problem:
    """Return an error without a field, as the server passes it on."""
    return Problem(NOWHERE, f"Internal error: {why}", type=INTERNAL)


def _invalid(where: str, value: Any, why: str) -> Problem:
    return Problem(where, f"Invalid value: {_quoted(value)}: {why}", type=INVALID)


def _quoted(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=repr)  # an unknown leaf


def _each(where: str, value: Any, wrong: list[str], too_long: str = _OVER) -> list[Problem]:
    problems: list[Problem] = []
    for why in wrong:
        if why == _OVER:
            problems.append(_invalid(where, value, too_long))
        else:
            problems.append(_invalid(where, value, why))
    return problems


@dataclass(frozen=True)
class _Order:
    """The rules in the order in which problems are reported, by the part of the JobSet that they read."""

    job: Sequence[Callable[[_View, ReplicatedJob], _Broken]]
    policies: Sequence[Callable[[_View], _Broken]]
    failure: Sequence[Callable[[_View, _FailureRule], _Broken]]
    coordinator: Sequence[Callable[[_View], _Broken]]
    claim: Sequence[Callable[[_View, _ClaimTemplate], _Broken]]


_AUTHOR_ORDER = _Order(
    job=(
        _group_name,
        _generated_names,
        _number_of_pods,
        _restart_policy,
        _first_dependency,
        _startup_order,
        _dependencies,
    ),
    policies=(_subdomain, _managed_by, _success_targets, _restart_strategy),
    failure=(_rule_name, _gated_action, _message_patterns, _rule_targets, _repeated_rule_name),
    coordinator=(_coordinator_pod, _coordinator_label),
    claim=(_repeated_claim, _claim_name, _claim_length, _claim_namespace, _claim_mount, _claim_volume),
)
_WEBHOOK_ORDER = _Order(
    job=(_number_of_pods, _group_name, _generated_names, _dependencies),
    policies=(_subdomain, _managed_by),
    failure=(_rule_name, _rule_targets, _failure_reasons),
    coordinator=(_coordinator_pod, _coordinator_label),
    claim=(_repeated_claim, _claim_name, _claim_length, _claim_volume, _claim_mount),
)
