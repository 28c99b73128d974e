"""Renders the rules that an API server can judge as ValidatingAdmissionPolicies, for jobs that anybody makes.

The expressions say about a JobSet what `rules` says about its summary. Two things differ, as one object does not show them: GPUs
that Pods claim do not count; and a JobSet of Trainer's controller, whose labels for Kueue are those of its TrainJob, needs no
queue and may have as many GPUs as the highest priority.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pulumi_trainer.provider.jobs.checkpoints import CHECKPOINT_DIR
from pulumi_trainer.provider.kueue.labels import PRIORITY, QUEUE
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB
from pulumi_trainer.provider.trainer.policy.rules import ANY, ELSEWHERE, JobRules, listed_names

Document = dict[str, Any]

_PODS = "has(object.spec.replicatedJobs) ? object.spec.replicatedJobs.map(j, j.template.spec.template.spec) : []"
_OF_TRAINJOB = (
    "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller"
    " && o.kind == 'TrainJob' && o.apiVersion.startsWith('trainer.kubeflow.org/'))"
)
_ALL_CONTAINERS = "(p.containers + (has(p.initContainers) ? p.initContainers : []))"
_IMAGE = "(has(c.image) ? c.image : '')"
_HOST = ("hostNetwork", "hostPID", "hostIPC")


def render_policies(rules: JobRules, name: str, namespaces: Sequence[str] = ()) -> list[Document]:
    """Return policies and bindings, in the order to apply them; none if no rule can be judged by a server.

    Args:
        name: Name of the policy; the one for TrainJobs has the suffix `-trainjobs`.
        namespaces: Where they hold; default: everywhere.
    """
    kinds = {JOBSET: ("", [*_of_jobset(rules)]), TRAIN_JOB: ("-trainjobs", [*_of_train_job(rules)])}
    documents = list[Document]()
    for kind, (suffix, validations) in kinds.items():
        if validations:
            version = kind.api_version.rpartition("/")[2]
            resource = {"apiGroups": [kind.group], "apiVersions": [version], "resources": [kind.plural]}
            documents.append(_policy(f"{name}{suffix}", resource, validations, of_jobset=kind is JOBSET))
            documents.append(_binding(f"{name}{suffix}", rules, namespaces))
    return documents


def rules_elsewhere(rules: JobRules) -> list[str]:
    """Return the names of the given rules that no server judges."""
    return [name for name in ELSEWHERE if getattr(rules, name)]


def _policy(name: str, resource: Document, validations: Sequence[Document], *, of_jobset: bool) -> Document:
    variables = {"labels": "has(object.metadata.labels) ? object.metadata.labels : {}"}
    variables |= {"queue": _label(QUEUE), "priority": _label(PRIORITY)}
    if of_jobset:
        variables |= {"pods": _PODS, "ofTrainJob": _OF_TRAINJOB, "gpus": _gpus()}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{**resource, "operations": ["CREATE", "UPDATE"]}]},
            # What is there stays: its Pods cannot change, so it is judged again only if it gets another queue or priority.
            "matchConditions": [{"name": "new-or-moved", "expression": _moved()}],
            "variables": [{"name": key, "expression": text} for key, text in variables.items()],
            "validations": [*validations],
        },
    }


def _binding(name: str, rules: JobRules, namespaces: Sequence[str]) -> Document:
    spec: Document = {
        "policyName": name,
        "validationActions": ["Deny"] if rules.action == "deny" else ["Warn", "Audit"],
    }
    if namespaces:
        names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [*namespaces]}
        spec["matchResources"] = {"namespaceSelector": {"matchExpressions": [names]}}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": spec,
    }


def _of_jobset(rules: JobRules) -> Iterator[Document]:
    if rules.registries:
        each = f"{_text([*rules.registries])}.exists(r, {_is_from('r')})"
        yield _rule("registries", _all_containers(each), f"images must be from {listed_names(rules.registries)}")
    if rules.digests:
        expression = _all_containers(f"{_IMAGE}.contains('@sha256:')")
        yield _rule("digests", expression, "each image must have a digest (@sha256:)")
    if rules.gpus:
        yield _rule("gpus", _within(rules.gpus), f"a job may have at most {_described(rules.gpus)}")
    if not rules.host_access:
        yield _rule(
            "host_access", _without_host(), "Pods may not use their node (privileged, host network, folders, ports)"
        )
    if rules.queue:
        yield _rule("queue", "variables.ofTrainJob || variables.queue != ''", f"the job needs a queue: label {QUEUE}")
    if rules.checkpoints:
        saves = f"has(c.env) && c.env.exists(e, e.name == '{CHECKPOINT_DIR}')"
        saved = f"variables.pods.exists(p, {_ALL_CONTAINERS}.exists(c, {saves}))"
        expression = f"!(variables.queue in {_text([*rules.checkpoints])}) || {saved}"
        yield _rule(
            "checkpoints",
            expression,
            f"jobs of queue {listed_names(rules.checkpoints)} must save checkpoints: {CHECKPOINT_DIR}",
        )


def _of_train_job(rules: JobRules) -> Iterator[Document]:
    if rules.queue:
        yield _rule("queue", "variables.queue != ''", f"the job needs a queue: label {QUEUE}")


def _rule(name: str, expression: str, message: str) -> Document:
    return {"expression": expression, "message": f"{name}: {message}"}


def _text(value: Any) -> str:
    """Return texts or lists of texts as CEL, whose escapes are those of JSON."""
    return json.dumps(value, ensure_ascii=True)


def _label(name: str) -> str:
    return f"'{name}' in variables.labels ? variables.labels['{name}'] : ''"


def _moved() -> str:
    """Return whether an object is new, or its queue or priority has changed."""
    changed = list[str]()
    for label in (QUEUE, PRIORITY):
        values = []
        for each in ("object", "oldObject"):
            has = f"has({each}.metadata.labels) && '{label}' in {each}.metadata.labels"
            values.append(f"({has} ? {each}.metadata.labels['{label}'] : '')")
        changed.append(" != ".join(values))
    return " || ".join(["request.operation == 'CREATE'", *changed])


def _all_containers(condition: str) -> str:
    return f"variables.pods.all(p, {_ALL_CONTAINERS}.all(c, {condition}))"


def _is_from(registry: str) -> str:
    """Return whether image `c` is from a registry, as `rules.is_allowed_image` tells it."""
    first = f"{_IMAGE}.split('/')[0]"
    names_registry = f"({first}.contains('.') || {first}.contains(':') || {first} == 'localhost')"
    name = f"({_IMAGE}.contains('/') ? ({names_registry} ? {_IMAGE} : 'docker.io/' + {_IMAGE}) : 'docker.io/library/' + {_IMAGE})"
    below = f"{name}.startsWith({registry} + '/')"
    is_it = f"{name} == {registry} || {name}.startsWith({registry} + ':') || {name}.startsWith({registry} + '@')"
    return f"{below} || ({registry}.contains('/') && ({is_it}))"


def _gpus() -> str:
    """Return the GPUs of all Pods as Kueue counts them: requests, else limits; of init containers all that go on, or the most."""
    containers = f"p.containers.map(c, {_gpus_of('c')}).sum()"
    inits = "(has(p.initContainers) ? p.initContainers : [])"
    is_sidecar = "(has(c.restartPolicy) && c.restartPolicy == 'Always')"
    sidecars = f"{inits}.filter(c, {is_sidecar}).map(c, {_gpus_of('c')}).sum()"
    once = f"([0] + {inits}.filter(c, !{is_sidecar}).map(c, {_gpus_of('c')})).max()"
    of_pod = f"[{containers} + {sidecars}, {once}].max()"
    job = "j.template.spec"
    parallel = f"(has({job}.parallelism) ? {job}.parallelism : 1)"
    pods = f"(has({job}.completions) && {job}.completions < {parallel} ? {job}.completions : {parallel})"
    count = f"(has(j.replicas) ? j.replicas : 1) * {pods}"
    each = f"[j.template.spec.template.spec].map(p, {of_pod})[0]"
    return f"has(object.spec.replicatedJobs) ? object.spec.replicatedJobs.map(j, {count} * {each}).sum() : 0"


def _gpus_of(container: str) -> str:
    amounts = list[str]()
    for part, also in (
        ("requests", ""),
        ("limits", f" && !(has({container}.resources.requests) && k in {container}.resources.requests)"),
    ):
        has = f"has({container}.resources) && has({container}.resources.{part})"
        chosen = f"{container}.resources.{part}.filter(k, k.lowerAscii().contains('gpu'){also})"
        number = f"quantity(string({container}.resources.{part}[k])).asInteger()"
        amounts.append(f"({has} ? {chosen}.map(k, {number}).sum() : 0)")
    return f"({' + '.join(amounts)})"


def _within(limits: Mapping[str, int]) -> str:
    expression = f"variables.gpus <= {limits[ANY]}" if ANY in limits else "true"
    for priority in sorted(name for name in limits if name):
        within = f"variables.gpus <= {limits[priority]}"
        expression = f"variables.priority == {_text(priority)} ? {within} : ({expression})"
    of_any = f"variables.gpus <= {max(limits.values())}" if ANY in limits else "true"
    return f"variables.ofTrainJob ? {of_any} : ({expression})"


def _described(limits: Mapping[str, int]) -> str:
    named = [f"{most} GPUs with priority {name}" for name, most in sorted(limits.items()) if name]
    return ", ".join([*([f"{limits[ANY]} GPUs"] if ANY in limits else []), *named])


def _without_host() -> str:
    pod = [f"!(has(p.{name}) && p.{name})" for name in _HOST]
    pod.append("!(has(p.volumes) && p.volumes.exists(v, has(v.hostPath)))")
    privileged = "(has(c.securityContext) && has(c.securityContext.privileged) && c.securityContext.privileged)"
    port = "(has(c.ports) && c.ports.exists(o, has(o.hostPort) && o.hostPort > 0))"
    pod.append(f"{_ALL_CONTAINERS}.all(c, !{privileged} && !{port})")
    return f"variables.pods.all(p, {' && '.join(pod)})"
