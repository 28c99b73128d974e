"""Renders the rules that an API server can judge as ValidatingAdmissionPolicies, for jobs that anybody makes.

The expressions say about a JobSet what `rules` says about its summary. Two things differ, as one object does not show them: GPUs
that Pods claim do not count; and a JobSet of Trainer's controller, whose labels for Kueue are those of its TrainJob, needs no
queue and may have as many GPUs as the highest priority, if there is a limit for all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pulumi_trainer.provider.jobs.checkpoints import CHECKPOINT_DIR
from pulumi_trainer.provider.jobs.usage import USER
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.pod_security import WITHOUT_NODE
from pulumi_trainer.provider.kubernetes.values.accessors import Document
from pulumi_trainer.provider.kueue.labels import PRIORITY, QUEUE
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB
from pulumi_trainer.provider.trainer.policy.rules import (
    ANY,
    ELSEWHERE,
    JobRules,
    in_file,
    listed_names,
    runtime_pattern,
)

_VERSION = "admissionregistration.k8s.io/v1"
_PODS = "has(object.spec.replicatedJobs) ? object.spec.replicatedJobs.map(j, j.template.spec.template.spec) : []"
_OF_TRAINJOB = (
    "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller"
    " && o.kind == 'TrainJob' && o.apiVersion.startsWith('trainer.kubeflow.org/') && o.name == object.metadata.name)"
)
_ALL_CONTAINERS = "(p.containers + (has(p.initContainers) ? p.initContainers : []))"
_IMAGE = "(has(c.image) ? c.image : '')"
_VOLUME_IMAGE = "(has(v.image.reference) ? v.image.reference : '')"
_HOST = ("hostNetwork", "hostPID", "hostIPC")


def render_policies(rules: JobRules, name: str, namespaces: Sequence[str] = ()) -> list[Document]:
    """Return policies and bindings, in the order to apply them; none if no rule can be judged by a server.

    Args:
        name: Name of the policy; the one for TrainJobs has the suffix `-trainjobs`.
    """
    kinds = {JOBSET: ("", [*_of_jobset(rules)]), TRAIN_JOB: ("-trainjobs", [*_of_train_job(rules)])}
    documents = list[Document]()
    for kind, (suffix, validations) in kinds.items():
        if validations:
            documents.append(_policy(f"{name}{suffix}", _changes_of(kind), validations, of_jobset=kind is JOBSET))
            documents.append(_binding(f"{name}{suffix}", rules, namespaces))
    return documents


def render_user_policy(name: str, namespaces: Sequence[str] = ()) -> list[Document]:
    """Return a policy and its binding that write into each new job who creates it; later changes of the name have no effect.

    The JobSet of a TrainJob names nobody: its controller creates it, and the TrainJob has the user.
    """
    new = f"({_OF_TRAINJOB}) ? '' : request.userInfo.username"
    is_new, before = "request.operation == 'CREATE'", _annotation("oldObject", USER)
    expression = f"Object{{metadata: Object.metadata{{annotations: {{{_text(USER)}: variables.user}}}}}}"
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [_changes_of(JOBSET), _changes_of(TRAIN_JOB)]},
        "matchConditions": [
            {"name": "new-or-renamed", "expression": f"{is_new} || {_annotation('object', USER)} != {before}"}
        ],
        "variables": [{"name": "user", "expression": f"{is_new} ? ({new}) : {before}"}],
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
    }
    policy = {"apiVersion": _VERSION, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}
    bound = {"policyName": name, **_within_namespaces(namespaces)}
    binding = {"kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": bound}
    return [policy, {"apiVersion": _VERSION, **binding}]


def _annotation(document: str, name: str) -> str:
    has = f"has({document}.metadata.annotations) && '{name}' in {document}.metadata.annotations"
    return f"({has} ? {document}.metadata.annotations['{name}'] : '')"


def rules_elsewhere(rules: JobRules) -> list[str]:
    """Return the names of the given rules that no server judges."""
    return [name for name in ELSEWHERE if getattr(rules, name)]


def _changes_of(kind: Kind) -> Document:
    """Return the resource rule for what is created or updated of a kind."""
    version = kind.api_version.rpartition("/")[2]
    operations = ["CREATE", "UPDATE"]
    return {"apiGroups": [kind.group], "apiVersions": [version], "resources": [kind.plural], "operations": operations}


def _policy(name: str, changes: Document, validations: Sequence[Document], *, of_jobset: bool) -> Document:
    variables = {"labels": "has(object.metadata.labels) ? object.metadata.labels : {}"}
    variables |= {"queue": _label(QUEUE), "priority": _label(PRIORITY)}
    if of_jobset:
        variables |= {"pods": _PODS, "ofTrainJob": _OF_TRAINJOB, "gpus": _gpus()}
    return {
        "apiVersion": _VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [changes]},
            # What is there stays: its Pods cannot change but for their number.
            "matchConditions": [{"name": "new-or-moved", "expression": _moved(of_jobset=of_jobset)}],
            "variables": [dict(zip(("name", "expression"), each, strict=True)) for each in variables.items()],
            "validations": [*validations],
        },
    }


def _binding(name: str, rules: JobRules, namespaces: Sequence[str]) -> Document:
    spec: Document = {
        "policyName": name,
        "validationActions": ["Deny"] if rules.action == "deny" else ["Warn", "Audit"],
    }
    spec |= _within_namespaces(namespaces)
    return {
        "apiVersion": _VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": spec,
    }


def _within_namespaces(namespaces: Sequence[str]) -> Document:
    """Return the field of a binding for some namespaces; none for all."""
    if not namespaces:
        return {}
    names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [*namespaces]}
    return {"matchResources": {"namespaceSelector": {"matchExpressions": [names]}}}


def _of_jobset(rules: JobRules) -> Iterator[Document]:
    if rules.registries:
        expression = _all_images(partial(_is_from, registries=rules.registries))
        yield _rule("registries", expression, f"images must be from {listed_names(rules.registries)}")
    if rules.digests:
        expression = _all_images("{}.contains('@sha256:')".format)
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
    if rules.runtimes:
        expression = f"object.spec.runtimeRef.name.matches({_text(f'^({runtime_pattern(rules.runtimes)})$')})"
        yield _rule("runtimes", expression, f"the runtime must be {listed_names(rules.runtimes)}")


def _rule(name: str, expression: str, message: str) -> Document:
    return {"expression": expression, "message": f"{in_file(name)}: {message}"}


def _text(value: Any) -> str:
    """Return texts or lists of texts as CEL, whose escapes are those of JSON; there are none of surrogates."""
    return json.dumps(value, ensure_ascii=False)


def _label(name: str) -> str:
    return f"'{name}' in variables.labels ? variables.labels['{name}'] : ''"


def _moved(*, of_jobset: bool) -> str:
    """Return whether an object is new, or its queue, priority, owner or number of Pods has changed."""
    parts = ["request.operation == 'CREATE'"]
    for read in (_label_of(QUEUE), _label_of(PRIORITY), *([_OWNERS, _SIZES] if of_jobset else [])):
        parts.append(f"{read.format('object')} != {read.format('oldObject')}")
    return " || ".join(parts)


def _label_of(name: str) -> str:
    has = f"has({{0}}.metadata.labels) && '{name}' in {{0}}.metadata.labels"
    return f"({has} ? {{0}}.metadata.labels['{name}'] : '')"


_OWNERS = "(has({0}.metadata.ownerReferences) ? {0}.metadata.ownerReferences.map(o, string(o.uid)) : [])"
_PARALLEL = "(has(j.template.spec.parallelism) ? j.template.spec.parallelism : 1)"
_SIZE = f"(has(j.replicas) ? j.replicas : 1) * {_PARALLEL}"
_SIZES = f"(has({{0}}.spec.replicatedJobs) ? {{0}}.spec.replicatedJobs.map(j, {_SIZE}) : [])"


def _all_images(condition: Callable[[str], str]) -> str:
    """Return whether all images of a JobSet meet a condition. condition: Returns it for an expression of an image."""
    volumes = f"!has(p.volumes) || p.volumes.all(v, !has(v.image) || {condition(_VOLUME_IMAGE)})"
    return f"variables.pods.all(p, {_ALL_CONTAINERS}.all(c, {condition(_IMAGE)}) && ({volumes}))"


def _is_from(image: str, registries: Sequence[str]) -> str:
    """Return whether an image is from one of some registries, as `rules.is_allowed_image` says."""
    below = "n.startsWith(r + '/')"
    is_it = "n == r || n.startsWith(r + ':') || n.startsWith(r + '@')"
    matches = f"{_text([*registries])}.exists(r, {below} || (r.contains('/') && ({is_it})))"
    return f"[{image}].map(i, {_FULL_NAME}).all(n, {matches})"


_FIRST = "i.split('/')[0]"
_REST = "i.substring(i.indexOf('/') + 1)"
_NAMES_REGISTRY = (
    f"(i.contains('/') && ({_FIRST}.contains('.') || {_FIRST}.contains(':') || {_FIRST} == 'localhost'"
    f" || {_FIRST} != {_FIRST}.lowerAscii()))"
)
_FULL_NAME = (
    f"({_NAMES_REGISTRY} ? ({_FIRST} in ['docker.io', 'index.docker.io']"
    f" ? ({_REST}.contains('/') ? 'docker.io/' + {_REST} : 'docker.io/library/' + {_REST}) : i)"
    " : (i.contains('/') ? 'docker.io/' + i : 'docker.io/library/' + i))"
)
"""The name of image `i` as `rules.full_name` returns it."""


def _gpus() -> str:
    """Return the GPUs of all Pods as Kueue counts them, by requests, else limits; an init container counts as if all that go on
    had been started before it.
    """
    containers = f"p.containers.map(c, {_gpus_of('c')}).sum()"
    inits = "(has(p.initContainers) ? p.initContainers : [])"
    is_sidecar = "(has(c.restartPolicy) && c.restartPolicy == 'Always')"
    sidecars = f"{inits}.filter(c, {is_sidecar}).map(c, {_gpus_of('c')}).sum()"
    once = f"([0] + {inits}.filter(c, !{is_sidecar}).map(c, {_gpus_of('c')})).max()"
    of_pod = f"{sidecars} + [{containers}, {once}].max()"
    job = "j.template.spec"
    pods = f"(has({job}.completions) && {job}.completions < {_PARALLEL} ? {job}.completions : {_PARALLEL})"
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
    expression = of_any = "true"
    if ANY in limits:
        expression, of_any = f"variables.gpus <= {limits[ANY]}", f"variables.gpus <= {max(limits.values())}"
    for priority in sorted(name for name in limits if name):
        within = f"variables.gpus <= {limits[priority]}"
        expression = f"variables.priority == {_text(priority)} ? {within} : ({expression})"
    return f"variables.ofTrainJob ? {of_any} : ({expression})"


def _described(limits: Mapping[str, int]) -> str:
    parts = list[str]()
    for name, most in sorted(limits.items()):
        parts.append(f"{most} GPUs{name and f' with priority {name}'}")
    return ", ".join(parts)


def _without_host() -> str:
    pod = [f"!(has(p.{name}) && p.{name})" for name in _HOST]
    pod.append("!(has(p.volumes) && p.volumes.exists(v, has(v.hostPath)))")
    privileged = "(has(c.securityContext) && has(c.securityContext.privileged) && c.securityContext.privileged)"
    port = "(has(c.ports) && c.ports.exists(o, has(o.hostPort) && o.hostPort > 0))"
    unmasked = (
        "(has(c.securityContext) && has(c.securityContext.procMount) && c.securityContext.procMount == 'Unmasked')"
    )
    added = "has(c.securityContext) && has(c.securityContext.capabilities) && has(c.securityContext.capabilities.add)"
    more = f"({added} && c.securityContext.capabilities.add.exists(n, !(n in {_text(sorted(WITHOUT_NODE))})))"
    own_users = "(has(p.hostUsers) && !p.hostUsers)"  # then procMount gives nothing of the node
    pod.append(f"{_ALL_CONTAINERS}.all(c, !{privileged} && !{port} && ({own_users} || !{unmasked}) && !{more})")
    return f"variables.pods.all(p, {' && '.join(pod)})"
