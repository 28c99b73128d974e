"""Lists what the objects of a job reference without containing it: classes, queues, volumes, Secrets, service accounts.

All functions are pure. Objects may contain unknown values; a reference with an unknown name is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.jobs.submission import Objects
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.values.accessors import Document, items, labels_of, section, text, texts
from pulumi_trainer.provider.kubernetes.views import Pod, entries, replicated_jobs
from pulumi_trainer.provider.kueue.api_resources import LOCAL_QUEUE, QUEUE_PRIORITY
from pulumi_trainer.provider.kueue.labels import PRIORITY, QUEUE
from pulumi_trainer.provider.trainer.kinds import CLUSTER_RUNTIME, TRAINING_RUNTIME
from pulumi_trainer.provider.trainer.labels import patched_jobs

_BY_CONTROLLER = ("default",)
"""Service accounts that Kubernetes creates in every namespace."""
_BUILT_IN = ("system-cluster-critical", "system-node-critical")
"""PriorityClasses that an API server creates."""
_CLAIMS = {"resourceClaimTemplateName": kinds.RESOURCE_CLAIM_TEMPLATE, "resourceClaimName": kinds.RESOURCE_CLAIM}


@dataclass(frozen=True)
class Referent:
    """A referenced object. needed: Whether no Pod runs without it; Pods may run without a pull secret."""

    kind: Kind
    name: str
    where: str
    needed: bool = True
    keys: tuple[str, ...] = ()


def referents(objects: Objects, promised: Iterable[str] = ()) -> list[Referent]:
    """Return each referenced object once, with its first reference."""
    brought = {*objects, *promised}
    found: dict[tuple[Kind, str], Referent] = {}
    for key, document in objects.items():
        for each in _referents_of(document, key):
            if f"{each.kind.kind}/{each.name}" not in brought:
                found.setdefault((each.kind, each.name), each)
    return list(found.values())


def secret_keys(names: Iterable[str]) -> list[str]:
    """Return "Kind/name" of the Secrets of these names."""
    return [f"{kinds.SECRET.kind}/{name}" for name in names]


def queue_name(objects: Objects) -> str:
    """Return the LocalQueue of a job; empty if it has none."""
    return next((text(labels_of(document).get(QUEUE)) for document in objects.values()), "")


def _referents_of(document: Document, key: str) -> Iterator[Referent]:
    spec = section(document, "spec")
    kind = document.get("kind")
    if kind == "JobSet":
        yield from _jobset(spec, f"{key}.spec")
    elif kind in ("ClusterTrainingRuntime", "TrainingRuntime"):
        yield from _jobset(section(spec, "template", "spec"), f"{key}.spec.template.spec")
    elif kind == "TrainJob":
        yield from _train_job(spec, f"{key}.spec")
    if kind in ("JobSet", "TrainJob"):
        for label, of in ((QUEUE, LOCAL_QUEUE), (PRIORITY, QUEUE_PRIORITY)):
            yield from _named(of, labels_of(document).get(label), f"{key}.metadata.labels[{label}]")


def _train_job(spec: Document, where: str) -> Iterator[Referent]:
    ref = section(spec, "runtimeRef")
    runtime = CLUSTER_RUNTIME
    if ref.get("kind") == "TrainingRuntime":
        runtime = TRAINING_RUNTIME
    yield from _named(runtime, ref.get("name"), f"{where}.runtimeRef.name")
    yield from _environment(section(spec, "trainer"), f"{where}.trainer")
    for part in ("dataset", "model"):
        source, at = section(spec, "initializer", part), f"{where}.initializer.{part}"
        yield from _environment(source, at)
        yield from _named(kinds.SECRET, section(source, "secretRef").get("name"), f"{at}.secretRef.name")
    for at, patch in entries(spec, "runtimePatches", where):
        for job in patched_jobs(patch, at):
            yield from pod_referents(job.pod)


def _jobset(spec: Document, where: str) -> Iterator[Referent]:
    for job in replicated_jobs(spec, where):
        yield from pod_referents(job.pod)
    for at, policy in entries(spec, "volumeClaimPolicies", where):
        for place, claim in entries(policy, "templates", at):
            name = section(claim, "spec").get("storageClassName")
            yield from _named(kinds.STORAGE_CLASS, name, f"{place}.spec.storageClassName")


def pod_referents(pod: Pod) -> Iterator[Referent]:
    """Yield what a Pod references, without what every cluster and every namespace has."""
    spec, where = pod.spec, pod.at
    yield from _named(kinds.RUNTIME_CLASS, spec.get("runtimeClassName"), f"{where}.runtimeClassName")
    if spec.get("priorityClassName") not in _BUILT_IN:
        yield from _named(kinds.PRIORITY_CLASS, spec.get("priorityClassName"), f"{where}.priorityClassName")
    if spec.get("serviceAccountName") not in _BY_CONTROLLER:
        yield from _named(kinds.SERVICE_ACCOUNT, spec.get("serviceAccountName"), f"{where}.serviceAccountName")
    for at, ref in entries(spec, "imagePullSecrets", where):
        yield from _named(kinds.SECRET, ref.get("name"), f"{at}.name", needed=False)
    for at, volume in entries(spec, "volumes", where):
        claim = section(volume, "persistentVolumeClaim").get("claimName")
        yield from _named(kinds.CLAIM, claim, f"{at}.persistentVolumeClaim.claimName")
        yield from _sources(volume, at)
        for place, source in entries(section(volume, "projected"), "sources", f"{at}.projected"):
            yield from _sources(source, place)
    for at, claim in entries(spec, "resourceClaims", where):
        for field, kind in _CLAIMS.items():
            yield from _named(kind, claim.get(field), f"{at}.{field}")
    for container in pod.all_containers:
        yield from _environment(container.document, container.at)


def _sources(volume: Document, where: str) -> Iterator[Referent]:
    """Yield what a volume or a projected source references: a volume has `secret.secretName`, a projected source
    `secret.name`."""
    yield from _reference(kinds.CONFIG_MAP, volume.get("configMap"), f"{where}.configMap")
    secret = section(volume, "secret")
    yield from _reference(kinds.SECRET, secret, f"{where}.secret", "secretName" if "secretName" in secret else "name")


def _environment(container: Document, where: str) -> Iterator[Referent]:
    for at, variable in entries(container, "env", where):
        source = section(variable, "valueFrom")
        for field, kind in (("configMapKeyRef", kinds.CONFIG_MAP), ("secretKeyRef", kinds.SECRET)):
            yield from _reference(kind, source.get(field), f"{at}.valueFrom.{field}")
    for at, variables in entries(container, "envFrom", where):
        yield from _reference(kinds.CONFIG_MAP, variables.get("configMapRef"), f"{at}.configMapRef")
        yield from _reference(kinds.SECRET, variables.get("secretRef"), f"{at}.secretRef")


def _reference(kind: Kind, ref: Any, where: str, field: str = "name") -> Iterator[Referent]:
    if section(ref).get("optional") is not True:
        keys = [section(ref).get("key"), *(each.get("key") for each in items(ref, "items"))]
        yield from _named(kind, section(ref).get(field), f"{where}.{field}", keys=tuple(texts(keys)))


def _named(kind: Kind, name: Any, where: str, *, needed: bool = True, keys: tuple[str, ...] = ()) -> Iterator[Referent]:
    if text(name):
        yield Referent(kind, name, where, needed, keys)
