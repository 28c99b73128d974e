"""What the objects of a job refer to and do not bring along: classes, queues, volumes, Secrets, service accounts.

Pure functions on rendered objects, whose leaves may be unknown: what is not known is not named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.api.kinds import CLUSTER_RUNTIME, TRAINING_RUNTIME
from pulumi_trainer.provider.api.submission import Objects
from pulumi_trainer.provider.kube.client import kinds
from pulumi_trainer.provider.kube.client.kinds import Kind
from pulumi_trainer.provider.kueue.labels import PRIORITY, QUEUE
from pulumi_trainer.provider.kueue.resources import LOCAL_QUEUE, QUEUE_PRIORITY

_BY_CONTROLLER = ("default",)
"""Service accounts that every namespace gets by itself."""
_BUILT_IN = ("system-cluster-critical", "system-node-critical")
"""PriorityClasses that an API server makes."""


@dataclass(frozen=True)
class Referent:
    """where: the field that names it. needed: without it no pod runs; without the others (pull secrets) one may."""

    kind: Kind
    name: str
    where: str
    needed: bool = True


def referents(objects: Objects, promised: Iterable[str] = ()) -> list[Referent]:
    """Each once, at its first place. promised: "Kind/name" of what the program makes beside the objects."""
    brought = {*objects, *promised}
    found: dict[tuple[Kind, str], Referent] = {}
    for key, document in objects.items():
        for each in _of(document, key):
            if f"{each.kind.kind}/{each.name}" not in brought:
                found.setdefault((each.kind, each.name), each)
    return list(found.values())


def queue(objects: Objects) -> str:
    """The LocalQueue that a job asks for; empty: none."""
    return next((_text(_map(_map(d.get("metadata")).get("labels")).get(QUEUE)) for d in objects.values()), "")


def _of(document: Mapping[str, Any], key: str) -> Iterator[Referent]:
    spec = _map(document.get("spec"))
    kind = document.get("kind")
    if kind == "JobSet":
        yield from _jobset(spec, f"{key}.spec")
    elif kind in ("ClusterTrainingRuntime", "TrainingRuntime"):
        yield from _jobset(_map(_map(spec.get("template")).get("spec")), f"{key}.spec.template.spec")
    elif kind == "TrainJob":
        yield from _train_job(spec, f"{key}.spec")
    if kind in ("JobSet", "TrainJob"):
        labels = _map(_map(document.get("metadata")).get("labels"))
        for label, of in ((QUEUE, LOCAL_QUEUE), (PRIORITY, QUEUE_PRIORITY)):
            yield from _named(of, labels.get(label), f"{key}.metadata.labels[{label}]")


def _train_job(spec: Mapping[str, Any], where: str) -> Iterator[Referent]:
    ref = _map(spec.get("runtimeRef"))
    runtime = TRAINING_RUNTIME if ref.get("kind") == "TrainingRuntime" else CLUSTER_RUNTIME
    yield from _named(runtime, ref.get("name"), f"{where}.runtimeRef.name")
    yield from _environment(_map(spec.get("trainer")), f"{where}.trainer")
    for part in ("dataset", "model"):
        source, at = _map(_map(spec.get("initializer")).get(part)), f"{where}.initializer.{part}"
        yield from _environment(source, at)
        yield from _named(kinds.SECRET, _map(source.get("secretRef")).get("name"), f"{at}.secretRef.name")
    for i, patch in enumerate(_list(spec.get("runtimePatches"))):
        template = _map(_map(_map(patch).get("trainingRuntimeSpec")).get("template"))
        at = f"{where}.runtimePatches[{i}].trainingRuntimeSpec.template.spec"
        yield from _jobset(_map(template.get("spec")), at)


def _jobset(spec: Mapping[str, Any], where: str) -> Iterator[Referent]:
    for i, job in enumerate(_list(spec.get("replicatedJobs"))):
        template = _map(_map(_map(_map(job).get("template")).get("spec")).get("template"))
        yield from _pod(_map(template.get("spec")), f"{where}.replicatedJobs[{i}].template.spec.template.spec")
    for i, policy in enumerate(_list(spec.get("volumeClaimPolicies"))):
        for j, claim in enumerate(_list(_map(policy).get("templates"))):
            at = f"{where}.volumeClaimPolicies[{i}].templates[{j}].spec.storageClassName"
            yield from _named(kinds.STORAGE_CLASS, _map(_map(claim).get("spec")).get("storageClassName"), at)


def _pod(pod: Mapping[str, Any], where: str) -> Iterator[Referent]:
    yield from _named(kinds.RUNTIME_CLASS, pod.get("runtimeClassName"), f"{where}.runtimeClassName")
    if pod.get("priorityClassName") not in _BUILT_IN:
        yield from _named(kinds.PRIORITY_CLASS, pod.get("priorityClassName"), f"{where}.priorityClassName")
    if pod.get("serviceAccountName") not in _BY_CONTROLLER:
        yield from _named(kinds.SERVICE_ACCOUNT, pod.get("serviceAccountName"), f"{where}.serviceAccountName")
    for i, ref in enumerate(_list(pod.get("imagePullSecrets"))):
        yield from _named(kinds.SECRET, _map(ref).get("name"), f"{where}.imagePullSecrets[{i}].name", needed=False)
    for i, volume in enumerate(_list(pod.get("volumes"))):
        at = f"{where}.volumes[{i}]"
        claim = _map(_map(volume).get("persistentVolumeClaim")).get("claimName")
        yield from _named(kinds.CLAIM, claim, f"{at}.persistentVolumeClaim.claimName")
        yield from _sources(_map(volume), at)
        for j, source in enumerate(_list(_map(_map(volume).get("projected")).get("sources"))):
            yield from _sources(_map(source), f"{at}.projected.sources[{j}]")
    for group in ("initContainers", "containers"):
        for i, container in enumerate(_list(pod.get(group))):
            yield from _environment(_map(container), f"{where}.{group}[{i}]")


def _sources(volume: Mapping[str, Any], where: str) -> Iterator[Referent]:
    """A volume of a pod has `secret.secretName`, a projected source `secret.name`."""
    yield from _reference(kinds.CONFIG_MAP, volume.get("configMap"), f"{where}.configMap")
    secret = _map(volume.get("secret"))
    yield from _reference(kinds.SECRET, secret, f"{where}.secret", "secretName" if "secretName" in secret else "name")


def _environment(container: Mapping[str, Any], where: str) -> Iterator[Referent]:
    for i, variable in enumerate(_list(container.get("env"))):
        source, at = _map(_map(variable).get("valueFrom")), f"{where}.env[{i}].valueFrom"
        yield from _reference(kinds.CONFIG_MAP, source.get("configMapKeyRef"), f"{at}.configMapKeyRef")
        yield from _reference(kinds.SECRET, source.get("secretKeyRef"), f"{at}.secretKeyRef")
    for i, variables in enumerate(_list(container.get("envFrom"))):
        at = f"{where}.envFrom[{i}]"
        yield from _reference(kinds.CONFIG_MAP, _map(variables).get("configMapRef"), f"{at}.configMapRef")
        yield from _reference(kinds.SECRET, _map(variables).get("secretRef"), f"{at}.secretRef")


def _reference(kind: Kind, ref: Any, where: str, field: str = "name") -> Iterator[Referent]:
    if _map(ref).get("optional") is not True:
        yield from _named(kind, _map(ref).get(field), f"{where}.{field}")


def _named(kind: Kind, name: Any, where: str, *, needed: bool = True) -> Iterator[Referent]:
    if _text(name):
        yield Referent(kind, name, where, needed)


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
