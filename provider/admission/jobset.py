"""Whether a JobSet would be taken, and could run: what its CRD, its webhook and then the Job API would refuse.

Called for every rendered JobSet at preview, and by the Local target's callers before anything starts. Rules:
https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/webhooks/jobset_webhook.go and the CRD beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pulumi_trainer.provider.admission.defaults import stored_jobset
from pulumi_trainer.provider.admission.pod_names import pod_name_problems
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.values import go_regexp
from pulumi_trainer.provider.kube.values.accessors import section
from pulumi_trainer.provider.kube.values.names import (
    dns_1035_label,
    dns_1123_subdomain,
    domain_prefixed_path,
    label_value,
)
from pulumi_trainer.provider.kube.values.unknown import Unknown

Document = dict[str, Any]

_LONGEST_NAME = 63
_MAX_INT32 = 2**31 - 1
_RULE_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")


def review_jobset(jobset: Document) -> list[Problem]:
    """What is wrong with a JobSet, defaulted or not; nothing: an empty list. Unknown leaves count as right.

    Field paths are the JobSet's own: `spec.replicatedJobs[0].name`. If fields have wrong types, only that is told.
    """
    # pydantic takes a tenth of a second to import, and who needs only defaults imports this package too.
    from pulumi_trainer.provider.api.jobset import JobSetSpec
    from pulumi_trainer.provider.api.model import problems

    name = section(jobset, "metadata").get("name")
    spec = jobset.get("spec")
    found = [] if isinstance(name, (str, Unknown)) else [Problem("metadata.name", "must be a string")]
    found += [p.below("spec") for p in problems(JobSetSpec, spec)]
    found += [p for path, pod in _pods(jobset) for p in _check_pod(pod, path)]
    if found:
        return found
    stored = stored_jobset(jobset)
    return [*_check_jobs(stored), *_check_policies(stored), *_check_coordinator(stored), *_check_claims(stored)]


def pod_refusals(jobset: Document) -> list[Problem]:
    """Return what the API server will have against names and paths when the JobSet's Pods are made."""
    return [p for path, pod in _pods(jobset) for p in pod_name_problems(pod, path)]


def _check_jobs(jobset: Document) -> Iterator[Problem]:
    spec = jobset["spec"]
    name = jobset["metadata"]["name"]
    seen: list[Any] = []
    in_order = section(spec, "startupPolicy").get("startupPolicyOrder") == "InOrder"
    for place, job in enumerate(_list(spec, "replicatedJobs")):
        path = f"spec.replicatedJobs[{place}]"
        if job.get("name") in seen:
            yield Problem(f"{path}.name", "is the name of another replicated job")
        yield from _check_names(name, job, path)
        yield from _check_job(job, path)
        depends_on = _list(job, "dependsOn")
        if depends_on and place == 0:
            yield Problem(f"{path}.dependsOn", "the first replicated job cannot depend on another")
        if depends_on and in_order:
            yield Problem(f"{path}.dependsOn", "cannot stand beside the startupPolicy InOrder")
        if len(depends_on) > 5:
            yield Problem(f"{path}.dependsOn", "must have at most 5 items")
        for at, other in enumerate(depends_on):
            if place > 0 and not _known(other.get("name"), seen):
                mend = f"jobs before it: {', '.join(map(str, seen))}"
                yield Problem(f"{path}.dependsOn[{at}].name", "must be a replicated job before this one", mend)
        seen.append(job.get("name"))


def _check_names(jobset: Any, job: Document, path: str) -> Iterator[Problem]:
    """Names of the Jobs and Pods that will be made, at their longest: those with the highest indices."""
    for why in _of(dns_1035_label, job.get("groupName")):
        yield Problem(f"{path}.groupName", why)
    name, replicas = job.get("name"), job.get("replicas", 1)
    spec = section(job, "template", "spec")
    completions = spec.get("completions")
    if not isinstance(jobset, str) or not isinstance(name, str) or not isinstance(replicas, int):
        return
    longest, what = f"{jobset}-{name}-{replicas - 1}", "Job"
    if spec.get("completionMode") == "Indexed" and isinstance(completions, int):
        longest, what = f"{longest}-{completions - 1}-abcde", "Pod"
    over = len(longest) - _LONGEST_NAME
    if over > 0:
        why = f"is too long: names of its {what}s would be up to {longest!r}, and may have {_LONGEST_NAME} characters"
        yield Problem("metadata.name", why, f"shorten it, or the name of {name}, by {over}")
    elif wrong := dns_1035_label(longest):
        yield Problem(f"{path}.name", f"gives {what}s the name {longest!r}: {wrong[0]}")


def _check_job(job: Document, path: str) -> Iterator[Problem]:
    spec = section(job, "template", "spec")
    replicas, parallelism = job.get("replicas", 1), spec.get("parallelism", 1)
    if isinstance(replicas, int) and isinstance(parallelism, int) and replicas * parallelism > _MAX_INT32:
        yield Problem(path, f"replicas x parallelism must not be more than {_MAX_INT32}")
    restart = section(spec, "template", "spec").get("restartPolicy")
    at = f"{path}.template.spec.template.spec.restartPolicy"
    if restart not in ("OnFailure", "Never") and not isinstance(restart, Unknown):
        yield Problem(at, "must be OnFailure or Never in a Job")
    elif restart == "OnFailure" and "podFailurePolicy" in spec:
        yield Problem(at, "must be Never where the Job has a podFailurePolicy")


def _check_policies(jobset: Document) -> Iterator[Problem]:
    spec = jobset["spec"]
    names = [job.get("name") for job in _list(spec, "replicatedJobs")]
    subdomain = section(spec, "network").get("subdomain")
    for check in (dns_1123_subdomain, dns_1035_label):
        for why in _of(check, subdomain) if subdomain else ():
            yield Problem("spec.network.subdomain", why)
    manager = spec.get("managedBy")
    for why in _of(domain_prefixed_path, manager) if manager is not None else ():
        yield Problem("spec.managedBy", why)
    if isinstance(manager, str) and len(manager) > _LONGEST_NAME:
        yield Problem("spec.managedBy", f"must be no more than {_LONGEST_NAME} characters")
    yield from _check_targets(section(spec, "successPolicy"), names, "spec.successPolicy")
    failure = section(spec, "failurePolicy")
    if failure.get("restartStrategy") == "InPlaceRestart":
        why = "InPlaceRestart needs the feature gate InPlaceRestart, which is off"
        yield Problem("spec.failurePolicy.restartStrategy", why, "use Recreate or BlockingRecreate")
    rule_names: list[Any] = []
    for place, rule in enumerate(_list(failure, "rules")):
        path = f"spec.failurePolicy.rules[{place}]"
        yield from _check_rule(rule, path)
        yield from _check_targets(rule, names, path)
        if rule.get("name") in rule_names:
            yield Problem(f"{path}.name", "is the name of another rule")
        rule_names.append(rule.get("name"))


def _check_rule(rule: Document, path: str) -> Iterator[Problem]:
    name = rule.get("name")
    if isinstance(name, str) and (len(name) > 128 or not _RULE_NAME.fullmatch(name)):
        why = "must be 1 to 128 letters, digits or _,: starting with a letter, not ending with , or :"
        yield Problem(f"{path}.name", why)
    if rule.get("action") in ("RestartJob", "RestartJobAndIgnoreMaxRestarts"):
        why = f"{rule['action']} needs the feature gate RestartJob, which is off"
        yield Problem(f"{path}.action", why, "use RestartJobSet or RestartJobSetAndIgnoreMaxRestarts")
    for place, pattern in enumerate(_values(rule, "onJobFailureMessagePatterns")):
        if isinstance(pattern, str):
            try:
                go_regexp.compiled(pattern)
            except ValueError as error:
                where = f"{path}.onJobFailureMessagePatterns[{place}]"
                yield Problem(where, f"must be a regular expression: {error}")


def _check_targets(policy: Document, names: list[Any], path: str) -> Iterator[Problem]:
    for place, target in enumerate(_values(policy, "targetReplicatedJobs")):
        if not _known(target, names):
            mend = f"replicated jobs: {', '.join(map(str, names))}"
            yield Problem(f"{path}.targetReplicatedJobs[{place}]", "names no replicated job", mend)


def _check_coordinator(jobset: Document) -> Iterator[Problem]:
    spec = jobset["spec"]
    coordinator = section(spec, "coordinator")
    path = "spec.coordinator"
    target = coordinator.get("replicatedJob")
    job = next((j for j in _list(spec, "replicatedJobs") if j.get("name") == target), None)
    if "coordinator" not in spec or isinstance(target, Unknown):
        return
    if job is None:
        yield Problem(f"{path}.replicatedJob", "names no replicated job")
        return
    job_spec = section(job, "template", "spec")
    mode, completions = job_spec.get("completionMode"), job_spec.get("completions")
    if (mode != "Indexed" and not isinstance(mode, Unknown)) or completions is None:
        yield Problem(path, "its replicated job must have completionMode Indexed, and completions")
        return
    indices = coordinator.get("jobIndex", 0), coordinator.get("podIndex", 0)
    for field, index, end in zip(("jobIndex", "podIndex"), indices, (job.get("replicas", 1), completions), strict=True):
        if isinstance(index, int) and isinstance(end, int) and not 0 <= index < end:
            yield Problem(f"{path}.{field}", f"must be less than {end}, not {index}")
    name = jobset["metadata"]["name"]
    parts = (name, target, *indices, section(spec, "network").get("subdomain") or name)
    if not any(isinstance(part, Unknown) for part in parts):
        host = "{}-{}-{}-{}.{}".format(*parts)
        for why in label_value(host):
            yield Problem("metadata.name", f"gives the coordinator the label {host!r}, which {why}", "shorten it")


def _check_claims(jobset: Document) -> Iterator[Problem]:
    spec, name = jobset["spec"], jobset["metadata"]["name"]
    seen: list[Any] = []
    pods = list(_pods(jobset))
    mounted = {
        mount.get("name")
        for _, pod in pods
        for kind in ("initContainers", "containers")
        for container in _list(pod, kind)
        for mount in _list(container, "volumeMounts")
    }
    for place, policy in enumerate(_list(spec, "volumeClaimPolicies")):
        for at, template in enumerate(_list(policy, "templates")):
            path = f"spec.volumeClaimPolicies[{place}].templates[{at}]"
            claim = section(template, "metadata").get("name", "")
            if isinstance(claim, Unknown):
                continue
            if claim in seen:
                yield Problem(f"{path}.metadata.name", "is the name of another template")
            seen.append(claim)
            for why in _of(dns_1123_subdomain, claim):
                yield Problem(f"{path}.metadata.name", why)
            if isinstance(name, str) and len(f"{claim}-{name}") > _LONGEST_NAME:
                why = f"is too long: the claim would be called {claim}-{name}, and may have {_LONGEST_NAME} characters"
                yield Problem(f"{path}.metadata.name", why)
            if section(template, "metadata").get("namespace"):
                yield Problem(f"{path}.metadata.namespace", "cannot be set")
            if claim not in mounted and not any(isinstance(m, Unknown) for m in mounted):
                yield Problem(f"{path}.metadata.name", f"no container has a volumeMount called {claim}")
            for where, pod in pods:
                for number, volume in enumerate(_list(pod, "volumes")):
                    if volume.get("name") == claim:
                        yield Problem(
                            f"{where}.volumes[{number}].name", "is the name of a volumeClaimPolicy's template"
                        )


def _check_pod(pod: Document, path: str) -> Iterator[Problem]:
    yield from pod_name_problems(pod, path)
    if not pod.get("containers"):
        yield Problem(f"{path}.containers", "must have a container")
    for name, keys in _UNIQUE_IN_POD.items():
        yield from _check_unique(pod, name, keys, path)
    for kind in ("initContainers", "containers"):
        for place, container in enumerate(_list(pod, kind)):
            where = f"{path}.{kind}[{place}]"
            if not container.get("image"):
                yield Problem(f"{where}.image", "is required")
            for field in ("name", "image"):
                if not isinstance(container.get(field, ""), (str, Unknown)):
                    yield Problem(f"{where}.{field}", "must be a string")
            for field in ("command", "args"):
                words = container.get(field, [])
                right = isinstance(words, list) and all(isinstance(word, (str, Unknown)) for word in words)
                if not right and not isinstance(words, Unknown):
                    yield Problem(f"{where}.{field}", "must be a list of strings")
            for name, keys in _UNIQUE_IN_CONTAINER.items():
                yield from _check_unique(container, name, keys, where)


_UNIQUE_IN_POD: dict[str, tuple[str, ...]] = {
    "initContainers": ("name",),
    "containers": ("name",),
    "volumes": ("name",),
}
_UNIQUE_IN_CONTAINER = {"env": ("name",), "ports": ("containerPort", "protocol"), "volumeMounts": ("mountPath",)}


def _check_unique(document: Document, name: str, keys: tuple[str, ...], path: str) -> Iterator[Problem]:
    seen: list[Any] = []
    if not isinstance(document.get(name, []), (list, Unknown)):
        yield Problem(f"{path}.{name}", "must be a list")
        return
    for place, item in enumerate(_list(document, name)):
        key = tuple(item.get(k, "TCP" if k == "protocol" else None) for k in keys)
        if key in seen:
            yield Problem(f"{path}.{name}[{place}]", f"has the same {' and '.join(keys)} as another one")
        seen.append(key)


def _pods(jobset: Document) -> Iterator[tuple[str, Document]]:
    """The Pod spec of each replicated job, with its path; not those that are unknown."""
    for place, job in enumerate(_list(section(jobset, "spec"), "replicatedJobs")):
        pod = section(job, "template", "spec", "template").get("spec")
        if isinstance(pod, dict):
            yield f"spec.replicatedJobs[{place}].template.spec.template.spec", pod


def _list(document: Document, name: str) -> list[Document]:
    return [item for item in _values(document, name) if isinstance(item, dict)]


def _values(document: Document, name: str) -> list[Any]:
    found = document.get(name)
    return found if isinstance(found, list) else []


def _known(name: Any, names: list[Any]) -> bool:
    return name in names or isinstance(name, Unknown) or any(isinstance(n, Unknown) for n in names)


def _of(check: Any, value: Any) -> list[str]:
    return check(value) if isinstance(value, str) else []
