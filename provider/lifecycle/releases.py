"""What a release of a runtime does to jobs, by the objects that are rendered with it, and which jobs take it.

patch: nothing but an image's digest, or labels. minor: only additions that a job need not know of. major: all else, as it could
break a job.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pulumi_trainer.provider.admission import default_runtime, default_train_job
from pulumi_trainer.provider.api.labels import FRAMEWORK
from pulumi_trainer.provider.api.submission import Objects
from pulumi_trainer.provider.api.versions import (
    LEVELS,
    VERSION,
    Level,
    by_version,
    larger,
    step,
)
from pulumi_trainer.provider.kube.errors import Invalid
from pulumi_trainer.provider.kube.values.unknown import Unknown
from pulumi_trainer.provider.pipeline import render

Document = dict[str, Any]

KEYS = {
    "replicatedJobs": "name", "dependsOn": "name", "containers": "name", "initContainers": "name", "env": "name",
    "volumes": "name", "volumeMounts": "mountPath", "ports": "containerPort", "imagePullSecrets": "name",
}  # fmt: skip
"""Lists whose items are told apart by a field; of the others in `ADDITIONS` the whole item counts."""
ADDITIONS = ("env", "envFrom", "volumes", "volumeMounts", "ports", "tolerations", "imagePullSecrets")
"""Lists to which something may be added without a job having to know."""
REFERENCES = {"secretKeyRef": "Secret", "configMapKeyRef": "ConfigMap", "secretRef": "Secret", "configMapRef": "ConfigMap",
              "secret": "Secret", "configMap": "ConfigMap", "persistentVolumeClaim": "PersistentVolumeClaim",
              "hostPath": "hostPath"}  # fmt: skip
"""What has to be there before a pod starts."""
CONTROLLERS = ("k8s.io", "kubeflow.org", "kai.scheduler", "volcano.sh", "x-k8s.io")
"""Domains of labels that controllers and schedulers act on."""

_MISSING: Any = object()


@dataclass(frozen=True)
class Effect:
    """One difference. path: where in the objects. what: in words."""

    level: Level
    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}" if self.path else self.what


def level_of(effects: list[Effect]) -> Level:
    """The largest."""
    found: Level = "none"
    for effect in effects:
        found = larger(found, effect.level)
    return found


def effects(before: Objects, after: Objects) -> list[Effect]:
    """All differences between the objects of a job, made from one release and from another; the largest first. What is
    not known yet is no difference."""
    found = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key, _MISSING), after.get(key, _MISSING)
        if old is _MISSING or new is _MISSING:
            found.append(Effect("major", key, "added" if old is _MISSING else "removed"))
        else:
            found += [*_compare(old, new, (key,), after)]
    return sorted(found, key=lambda e: (-LEVELS.index(e.level), e.path))


def compare(before: Document, after: Document) -> list[Effect]:
    """What the step from one runtime to another does to jobs: to some that stand for all. The largest first."""
    return list(_compared(json.dumps(before, sort_keys=True), json.dumps(after, sort_keys=True)))


def held_back(follow: str, before: str, after: str, effect: Level = "none") -> str:
    """Why a job on release `before` doesn't take `after`; empty: it does. effect: what that does to this very job."""
    if before == after:
        return ""
    if follow == "pin":
        return f'it is pinned to {before} (follow="pin")'
    if follow == "any" or not VERSION.fullmatch(before) or not VERSION.fullmatch(after):
        return ""
    if by_version(after) < by_version(before):
        return f'{after} is older than its {before}, and only follow="any" goes back'
    told = step(before, after)
    wide = larger(told, effect)
    if wide == "major" or (wide == "minor" and follow == "patch"):
        beyond = "" if wide == told else f", which its number ({told}) does not say"
        return f'to this job it is {wide}{beyond}, and it has follow="{follow}"'
    return ""


PROBES: tuple[Document, ...] = (
    {},
    {"trainer": {"numNodes": 2, "command": ["python"], "args": ["train.py"], "env": [{"name": "PROBE", "value": "1"}],
                 "resourcesPerNode": {"limits": {"cpu": "4", "nvidia.com/gpu": "2"}}}},
    {"trainer": {"numProcPerNode": 2, "image": "probe:1"}},
    {"trainer": {}, "initializer": {"dataset": {"storageUri": "hf://a/b"}, "model": {"storageUri": "hf://a/b"}}},
)  # fmt: skip
"""`spec` of TrainJobs that stand for all: what a runtime says by itself, and where a job says something."""


@lru_cache(maxsize=256)
def _compared(before: str, after: str) -> tuple[Effect, ...]:
    old, new = json.loads(before), json.loads(after)
    found: dict[Effect, None] = {}
    labels = [(d.get("metadata") or {}).get("labels") or {} for d in (old, new)]
    if labels[0].get(FRAMEWORK) != labels[1].get(FRAMEWORK):
        what = f"{labels[0].get(FRAMEWORK)} => {labels[1].get(FRAMEWORK)}: another launcher starts user code"
        found[Effect("major", f"metadata.labels[{FRAMEWORK}]", what)] = None
    old, new = default_runtime(old), default_runtime(new)
    for spec in PROBES:
        one, other = (_rendered(document, spec) for document in (old, new))
        if isinstance(one, dict) and isinstance(other, dict):
            found.update(dict.fromkeys(effects(one, other)))
        elif isinstance(other, str) and isinstance(one, dict):
            found[Effect("major", "", f"refuses jobs that it took: {other}")] = None
        elif isinstance(one, str) and isinstance(other, dict):
            found[Effect("minor", "", f"takes jobs that it refused: {one}")] = None
        elif one != other or old.get("spec") != new.get("spec"):  # such as one with a plugin that only programs have
            found[Effect("major", "spec", f"changes, and cannot be rendered here: {other}")] = None
    return tuple(sorted(found, key=lambda e: (-LEVELS.index(e.level), e.path)))


def _rendered(runtime: Document, spec: Document) -> Objects | str:
    """The objects, or why there are none."""
    metadata = {"name": "JOB", "namespace": "default"}
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": runtime["kind"], "name": runtime["metadata"]["name"]}
    job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata}
    try:
        return render(runtime, default_train_job({**job, "spec": {"runtimeRef": reference, **spec}})).objects
    except Invalid as error:
        return str(error)


def _compare(old: Any, new: Any, path: tuple[str, ...], made: Objects) -> Iterator[Effect]:
    if isinstance(new, Unknown) or isinstance(old, Unknown) or old == new:
        return
    field = path[-1]
    maps = [isinstance(v, Mapping) or (v is _MISSING and field in ("labels", "annotations")) for v in (old, new)]
    if all(maps):
        old, new = ({} if v is _MISSING else v for v in (old, new))
        for key in sorted({*old, *new}, key=str):
            yield from _compare(old.get(key, _MISSING), new.get(key, _MISSING), (*path, str(key)), made)
    elif (field in KEYS or field in ADDITIONS) and all(v is _MISSING or isinstance(v, list) for v in (old, new)):
        items = [{} if v is _MISSING else {_key(field, item): item for item in v} for v in (old, new)]
        for key in dict.fromkeys([*items[0], *items[1]]):
            yield from _compare(
                items[0].get(key, _MISSING), items[1].get(key, _MISSING), (*path[:-1], f"{field}[{key}]"), made
            )
    else:
        yield _judged(old, new, path, made)


def _judged(old: Any, new: Any, path: tuple[str, ...], made: Objects) -> Effect:
    where, field = _shown(path), path[-1]
    what = _words(old, new)
    parent = path[-2] if len(path) > 1 else ""
    if parent == "labels":
        domain = field.partition("/")[0] if "/" in field else ""
        return Effect("major" if domain.endswith(CONTROLLERS) else "patch", where, what)
    if parent == "annotations":
        return Effect("minor" if old is _MISSING else "major", where, what)
    if field == "image" and isinstance(old, str) and isinstance(new, str):
        same = old.partition("@")[0] == new.partition("@")[0]
        return Effect("patch" if same else "major", where, what if not same else f"another digest: {what}")
    if old is _MISSING and field.partition("[")[0] in ADDITIONS and "[" in field:
        needs = [*_needs(new, made)]
        return Effect("major" if needs else "minor", where, f"{what}; it needs {', '.join(needs)}" if needs else what)
    return Effect("major", where, what)


def _needs(added: Any, made: Objects) -> Iterator[str]:
    """What has to be there already, and does not come with the job."""
    if isinstance(added, Mapping):
        for key, value in added.items():
            kind = REFERENCES.get(key)
            if kind and isinstance(value, Mapping):
                name = value.get("name") or value.get("secretName") or value.get("claimName") or value.get("path") or ""
                if not value.get("optional") and f"{kind}/{name}" not in made:
                    yield f"{kind} {name}".strip()
            else:
                yield from _needs(value, made)
    elif isinstance(added, list):
        for value in added:
            yield from _needs(value, made)


def _key(field: str, item: Any) -> str:
    key = KEYS.get(field)
    if key and isinstance(item, Mapping) and key in item:
        return str(item[key])
    return json.dumps(item, sort_keys=True, default=str)


def _words(old: Any, new: Any) -> str:
    if old is _MISSING:
        return f"added {_short(new)}"
    return f"removed {_short(old)}" if new is _MISSING else f"{_short(old)} => {_short(new)}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _shown(path: tuple[str, ...]) -> str:
    """`node container[node].env[A]` for what lies deep in a step of the JobSet."""
    text = ".".join(path[1:]).replace("spec.replicatedJobs[", "step[", 1)
    for long in (".template.spec.template.spec.", ".template.spec.template.", ".template.spec."):
        if long in text:
            text = text.replace(long, ".", 1)
            break
    return text if path[0].startswith("JobSet/") else f"{path[0].partition('/')[0]} {text}".strip()
