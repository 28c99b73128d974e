"""Rules about what Pods refer to and wait for: Secrets, ConfigMaps and claims among the documents of the job."""

from __future__ import annotations

from collections.abc import Iterator

from pulumi_trainer.provider.kubernetes.client.api_resources import RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, Kind
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, section, text
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean
from pulumi_trainer.provider.trainer.admission.referents import Referent, pod_referents
from pulumi_trainer.provider.trainer.admission.warnings.view import DEFAULT_NAMESPACE, View

_BY_KUBERNETES = "kube-root-ca.crt"
"""ConfigMap that Kubernetes makes in every namespace."""
_PULL = "without it the nodes pull only public images"
_PULL_TYPES = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")
_MADE = "create it; or ignore this warning if another repository or a controller makes it"


def missing_device_claims(view: View) -> Iterator[Problem]:
    """Yield ResourceClaimTemplates and ResourceClaims that Pods wait for."""
    for kind in (RESOURCE_CLAIM_TEMPLATE, RESOURCE_CLAIM):
        yield from missing_objects(view, kind=kind)


def missing_objects(view: View, *, kind: Kind, needed: bool = True) -> Iterator[Problem]:
    """Yield each missing object of a kind that Pods wait for (or not: `needed`), and each missing key, once."""
    if not view.queues.has_all(kind.kind):
        return
    made = {section(each, "metadata").get("name") for each in view.objects if each.get("kind") == kind.kind}
    seen = set[tuple[str, ...]]()
    for step in view.steps:
        for each in pod_referents(step.pod):
            if each.kind != kind or each.needed != needed or each.name in made or each.name == _BY_KUBERNETES:
                continue
            effect = f"the Pods of {step.name} do not start before it exists" if needed else _PULL
            for subject, problem in _lacking(view, each, effect):
                if subject not in seen:
                    seen.add(subject)
                    yield problem


def _lacking(view: View, each: Referent, effect: str) -> Iterator[tuple[tuple[str, ...], Problem]]:
    """Yield what is missing, name or name and key, with its problem."""
    kind, namespace = each.kind.kind, view.namespace
    if view.queues.lacks(kind, each.name, namespace):
        why = (
            f"{kind} {each.name} is not among the documents for namespace {namespace}{_elsewhere(view, each)}: {effect}"
        )
        names = [section(d, "metadata").get("name") for d in view.queues.inside(kind, namespace)]
        hint = f"{did_you_mean(each.name, [name for name in names if isinstance(name, str)])} {_MADE}".strip()
        yield (each.name,), Problem(each.where, why, hint)
        return
    found = view.queues.find(kind, each.name, namespace)
    keys, given = _keys(found), text(section(found).get("type")) or "Opaque"
    if not each.needed and keys and given not in _PULL_TYPES:
        why = f"Secret {each.name} has type {given}, of which nodes take no credentials: {effect}"
        yield (
            (each.name,),
            Problem(each.where, why, f"give it type {_PULL_TYPES[0]}: kubectl create secret docker-registry"),
        )
    for key in each.keys:
        if keys and key not in keys:
            why = f"{kind} {each.name} has no key {key}, but {', '.join(sorted(keys))}: {effect}"
            hint = f"{did_you_mean(key, keys)} name a key that it has".strip()
            yield (each.name, key), Problem(each.where, why, hint)


def _elsewhere(view: View, each: Referent) -> str:
    """Return the other namespace that has an object of that name."""
    for document in view.queues.of(each.kind.kind):
        metadata = section(document, "metadata")
        if metadata.get("name") == each.name:
            return f" (that of namespace {metadata.get('namespace') or DEFAULT_NAMESPACE} is of no use there)"
    return ""


def _keys(document: Document | None) -> list[str]:
    """Return the keys of a Secret or a ConfigMap; none if they are written later, or not known."""
    return [*section(document, "data"), *section(document, "stringData"), *section(document, "binaryData")]
