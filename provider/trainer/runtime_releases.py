"""Computes what a release of a runtime changes in the objects of jobs, and whether a job follows it.

patch: only image digests or labels. minor: only additions that cannot break a job. major: everything else.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pulumi_trainer.provider.jobs.submission import Objects
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kubernetes.values.accessors import Document, only, section
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.trainer.admission import default_runtime, default_train_job
from pulumi_trainer.provider.trainer.catalog.versions import LEVELS, VERSION, Level, by_version, larger, version_step
from pulumi_trainer.provider.trainer.labels import FRAMEWORK
from pulumi_trainer.provider.trainer.pipeline import Release, render

KEYS = {
    "replicatedJobs": "name", "dependsOn": "name", "containers": "name", "initContainers": "name", "env": "name",
    "volumes": "name", "volumeMounts": "mountPath", "ports": "containerPort", "imagePullSecrets": "name",
}  # fmt: skip
"""Lists whose items have a key field; in the other lists of `ADDITIONS` the whole item is the key."""
ADDITIONS = ("env", "envFrom", "volumes", "volumeMounts", "ports", "tolerations", "imagePullSecrets")
"""Lists to which a release may add items without breaking a job."""
REFERENCES = {"secretKeyRef": "Secret", "configMapKeyRef": "ConfigMap", "secretRef": "Secret", "configMapRef": "ConfigMap",
              "secret": "Secret", "configMap": "ConfigMap", "persistentVolumeClaim": "PersistentVolumeClaim",
              "hostPath": "hostPath", "nodePublishSecretRef": "Secret", "azureFile": "Secret"}  # fmt: skip
"""Fields that refer to something that has to exist before a pod starts -> its kind."""
CONTROLLERS = ("k8s.io", "kubeflow.org", "kai.scheduler", "volcano.sh", "x-k8s.io")
"""Domains of labels and annotations that controllers and schedulers act on."""

_MISSING: Any = object()


@dataclass(frozen=True)
class Effect:
    """One difference. path: The field in the objects. what: Description of the change."""

    level: Level
    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}" if self.path else self.what


def level_of(effects: list[Effect]) -> Level:
    """Return the largest level."""
    found: Level = "none"
    for effect in effects:
        found = larger(found, effect.level)
    return found


def effects(before: Objects, after: Objects) -> list[Effect]:
    """Return all differences between the objects of a job, rendered from one release and from another; the largest first. An
    unknown value does not count as a difference."""
    found = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key, _MISSING), after.get(key, _MISSING)
        if old is _MISSING:
            found.append(Effect("major", key, "added"))
        elif new is _MISSING:
            found.append(Effect("major", key, "removed"))
        else:
            found += [*_compare(old, new, (key,), after)]
    return sorted(found, key=lambda e: (-LEVELS.index(e.level), e.path))


def compare(before: Document, after: Document, trainer: Release) -> list[Effect]:
    """Return what the change of a runtime does to the jobs of `PROBES`; the largest effect first."""
    return list(_compared(json.dumps(before, sort_keys=True), json.dumps(after, sort_keys=True), trainer))


def effects_on(jobset: Document, before: Document, after: Document, trainer: Release) -> list[Effect] | None:
    """Return what the change of a runtime changes in the JobSet of one job, apart from what the job sets itself.

    None if the runtime cannot be rendered.
    """
    old, new = (_rendered_alone(json.dumps(each, sort_keys=True), trainer) for each in (before, after))
    if old is None or new is None:
        return None
    live = {**jobset, "metadata": only(section(jobset, "metadata"), ("labels", "annotations"))}
    (key,) = (name for name in old if name.startswith("JobSet/"))
    return effects({key: live}, {key: _moved(live, old[key], new.get(key), key)})


@lru_cache(maxsize=64)
def _rendered_alone(runtime: str, trainer: Release) -> Objects | None:
    """Return what a runtime makes of a job that sets no more than it must; None if it cannot be rendered."""
    document = default_runtime(json.loads(runtime), trainer)
    spec = {"trainer": {"numNodes": 1}} if "flux" in (document["spec"].get("mlPolicy") or {}) else {}
    rendered = _rendered(document, spec, trainer)
    return rendered if isinstance(rendered, dict) else None


def _moved(live: Any, old: Any, new: Any, field: str) -> Any:
    """Return a value of a job with another release: the new value wherever the job has that of the old release."""
    if old == new:
        return live
    if _is_mapping(field, live) and _is_mapping(field, old) and _is_mapping(field, new):
        return _moved_fields(*(({} if each is _MISSING else each) for each in (live, old, new)))
    if _is_keyed_list(field, live) and _is_keyed_list(field, old) and _is_keyed_list(field, new):
        return [*_moved_fields(*(_by_key(field, each) for each in (live, old, new))).values()]
    return new if _covers(live, old) else live


def _moved_fields(live: Document, old: Document, new: Document) -> Document:
    fields = dict.fromkeys((*live, *new))
    moved = {}
    for name in fields:
        one, other, third = (each.get(name, _MISSING) for each in (live, old, new))
        moved[name] = _moved(one, other, third, name)
    return {name: value for name, value in moved.items() if value is not _MISSING}


def _covers(live: Any, old: Any) -> bool:
    """Return whether a value is the one of a release, apart from defaults that a server has added."""
    if isinstance(live, dict) and isinstance(old, dict):
        return all(name in live and _covers(live[name], old[name]) for name in old)
    if isinstance(live, list) and isinstance(old, list):
        return len(live) == len(old) and all(map(_covers, live, old))
    return bool(live == old)


def follow_refusal(follow: str, before: str, after: str, effect: Level = "none", *, withdrawn: bool = False) -> str:
    """Return why a job on release `before` does not follow to `after`; empty if it does.

    Args:
        withdrawn: Whether `before` was withdrawn: a job that follows at all goes back to an older release then.
    """
    if before == after:
        return ""
    if follow == "pin":
        return f'it is pinned to {before} (follow="pin")'
    if follow == "any" or not VERSION.fullmatch(before) or not VERSION.fullmatch(after):
        return ""
    is_older = by_version(after) < by_version(before)
    if is_older and withdrawn:
        return ""
    if is_older:
        return f'{after} is older than its {before}, and only follow="any" allows a downgrade'
    numbered = version_step(before, after)
    level = larger(numbered, effect)
    if level == "major" or (level == "minor" and follow == "patch"):
        beyond = ""
        if level != numbered:
            beyond = f", although its version number only announces {numbered}"
        return f'the change is {level} for this job{beyond}, but it has follow="{follow}"'
    return ""


CARRIED = 10
"""How many releases, and newest releases of a line such as 1.0, a channel carries besides its own."""


def carried_releases(known: Sequence[str], withdrawn: Collection[str]) -> list[str]:
    """Return the releases that a channel carries: the newest, and the newest patch of each of the newest lines."""
    newest = dict[str, str]()
    for each in known:
        if each not in withdrawn:
            newest[each.rpartition(".")[0]] = each
    carried = {*known[-CARRIED:], *list(newest.values())[-CARRIED:]}
    return sorted(carried, key=by_version)


def taken_release(
    follow: str, current: str, offered: str, known: Iterable[str], withdrawn: Collection[str], effect: Level = "none"
) -> str:
    """Return the release that a job takes from its channel: the channel's own if `follow` admits it, else the newest one up to
    that which it admits, such as a patch of its line, else its own; where that was withdrawn, the release before it.
    """
    bad = current in withdrawn
    if offered not in withdrawn and not follow_refusal(follow, current, offered, effect, withdrawn=bad):
        return offered
    if follow == "pin" or not VERSION.fullmatch(current) or not VERSION.fullmatch(offered):
        return current
    good = sorted({*known} - {*withdrawn}, key=by_version)
    newer, older = list[str](), list[str]()
    for each in good:
        if by_version(each) < by_version(current):
            older.append(each)
        elif by_version(each) < by_version(offered) and not follow_refusal(follow, current, each):
            newer.append(each)
    if newer:
        return newer[-1]
    return older[-1] if bad and older else current


PROBES: tuple[Document, ...] = (
    {},
    {"trainer": {"numNodes": 2, "command": ["python"], "args": ["train.py"], "env": [{"name": "PROBE", "value": "1"}],
                 "resourcesPerNode": {"limits": {"cpu": "4", "nvidia.com/gpu": "2"}}}},
    {"trainer": {"numProcPerNode": 2, "image": "probe:1"}},
    {"trainer": {}, "initializer": {"dataset": {"storageUri": "hf://a/b"}, "model": {"storageUri": "hf://a/b"}}},
)  # fmt: skip
"""`spec` of TrainJobs that represent all: one that sets nothing, and some that override parts of the runtime."""


@lru_cache(maxsize=256)
def _compared(before: str, after: str, trainer: Release) -> tuple[Effect, ...]:
    old, new = json.loads(before), json.loads(after)
    found: dict[Effect, None] = {}
    framework, new_framework = _framework(old), _framework(new)
    if framework != new_framework:
        what = f"{framework} => {new_framework}: another launcher starts user code"
        found[Effect("major", f"metadata.labels[{FRAMEWORK}]", what)] = None
    old, new = default_runtime(old, trainer), default_runtime(new, trainer)
    needs_nodes = "flux" in (new["spec"].get("mlPolicy") or {})  # Flux refuses jobs that do not say on how many nodes
    for probe in PROBES:
        spec = probe
        if needs_nodes:
            spec = {**probe, "trainer": {"numNodes": 1, **probe.get("trainer", {})}}
        one, other = _rendered(old, spec, trainer), _rendered(new, spec, trainer)
        if isinstance(one, dict) and isinstance(other, dict):
            found.update(dict.fromkeys(effects(one, other)))
        elif isinstance(other, str) and isinstance(one, dict):
            found[Effect("major", "", f"rejects jobs that it admitted: {other}")] = None
        elif isinstance(one, str) and isinstance(other, dict):
            found[Effect("minor", "", f"admits jobs that it rejected: {one}")] = None
        elif one != other or old.get("spec") != new.get("spec"):  # such as one with a plugin that only programs have
            found[Effect("major", "spec", f"changes, and cannot be rendered here: {other}")] = None
    return tuple(sorted(found, key=lambda e: (-LEVELS.index(e.level), e.path)))


def _framework(runtime: Document) -> Any:
    """Return the framework of a runtime; None if no label names it."""
    labels = (runtime.get("metadata") or {}).get("labels") or {}
    return labels.get(FRAMEWORK)


def _rendered(runtime: Document, spec: Document, trainer: Release) -> Objects | str:
    """Return the rendered objects, or why rendering fails."""
    metadata = {"name": "JOB", "namespace": "default"}
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": runtime["kind"], "name": runtime["metadata"]["name"]}
    job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata}
    try:
        train_job = default_train_job({**job, "spec": {"runtimeRef": reference, **spec}}, trainer)
        return render(runtime, train_job, trainer).objects
    except Invalid as error:
        return str(error)


def _compare(old: Any, new: Any, path: tuple[str, ...], objects: Objects) -> Iterator[Effect]:
    if isinstance(new, Unknown) or isinstance(old, Unknown) or old == new:
        return
    field = path[-1]
    if _is_mapping(field, old) and _is_mapping(field, new):
        if old is _MISSING:
            old = {}
        if new is _MISSING:
            new = {}
        for key in sorted({*old, *new}, key=str):
            yield from _compare(old.get(key, _MISSING), new.get(key, _MISSING), (*path, str(key)), objects)
    elif _is_keyed_list(field, old) and _is_keyed_list(field, new):
        olds, news = _by_key(field, old), _by_key(field, new)
        for key in dict.fromkeys([*olds, *news]):
            item = (*path[:-1], f"{field}[{key}]")
            yield from _compare(olds.get(key, _MISSING), news.get(key, _MISSING), item, objects)
        if _order_counts(field, new) and [*only(olds, news)] != [*only(news, olds)]:
            yield Effect("major", _shown(path), "has another order")
    else:
        yield _judge_change(old, new, path, objects)


def _order_counts(field: str, items: Any) -> bool:
    """Return whether a list has another meaning in another order: init containers run one after the other, and a variable with
    `$(NAME)` sees those before it."""
    return field == "initContainers" or (field == "env" and "$(" in json.dumps(items, default=str))


def _is_mapping(field: str, value: Any) -> bool:
    return isinstance(value, Mapping) or (value is _MISSING and field in ("labels", "annotations"))


def _is_keyed_list(field: str, value: Any) -> bool:
    return (field in KEYS or field in ADDITIONS) and (value is _MISSING or isinstance(value, list))


def _by_key(field: str, items: Any) -> dict[str, Any]:
    if items is _MISSING:
        return {}
    return {_key(field, item): item for item in items}


def _judge_change(old: Any, new: Any, path: tuple[str, ...], objects: Objects) -> Effect:
    where, field = _shown(path), path[-1]
    what = _describe_change(old, new)
    parent = path[-2] if len(path) > 1 else ""
    if parent == "labels":
        if _is_for_controllers(field):
            return Effect("major", where, what)
        return Effect("patch", where, what)
    if parent == "annotations":
        if old is _MISSING and not _is_for_controllers(field):
            return Effect("minor", where, what)
        return Effect("major", where, what)
    if field == "image" and isinstance(old, str) and isinstance(new, str):
        name, _, digest = old.partition("@")
        is_tagged = ":" in name.rpartition("/")[2]  # without a tag, two digests can be any two images
        if name == new.partition("@")[0] and (is_tagged or not digest):
            return Effect("patch", where, f"another digest: {what}")
        return Effect("major", where, what)
    if old is _MISSING and field.partition("[")[0] in ADDITIONS and "[" in field:
        needs = [*_needs(new, objects)]
        if needs:
            return Effect("major", where, f"{what}; it needs {', '.join(needs)}")
        return Effect("minor", where, what)
    return Effect("major", where, what)


def _is_for_controllers(key: str) -> bool:
    """Return whether a label or an annotation is one that controllers and schedulers act on."""
    return "/" in key and key.partition("/")[0].endswith(CONTROLLERS)


def _needs(added: Any, objects: Objects) -> Iterator[str]:
    """Yield what an added item refers to that is not among the job's objects."""
    if isinstance(added, Mapping):
        for key, value in added.items():
            kind = REFERENCES.get(key)
            if kind and isinstance(value, Mapping):
                name = value.get("name") or value.get("secretName") or value.get("claimName") or value.get("path") or ""
                if not value.get("optional") and f"{kind}/{name}" not in objects:
                    yield f"{kind} {name}".strip()
            else:
                yield from _needs(value, objects)
    elif isinstance(added, list):
        for value in added:
            yield from _needs(value, objects)


def _key(field: str, item: Any) -> str:
    key = KEYS.get(field)
    if key and isinstance(item, Mapping) and key in item:
        return str(item[key])
    return json.dumps(item, sort_keys=True, default=str)


def _describe_change(old: Any, new: Any) -> str:
    if old is _MISSING:
        return f"added {_short(new)}"
    if new is _MISSING:
        return f"removed {_short(old)}"
    return f"{_short(old)} => {_short(new)}"


def _short(value: Any) -> str:
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, default=str)
    if len(text) > 80:
        return f"{text[:77]}..."
    return text


def _shown(path: tuple[str, ...]) -> str:
    """Return a short path, such as `step[node].containers[node].env[A]` for a field of a step of the JobSet."""
    text = ".".join(path[1:]).replace("spec.replicatedJobs[", "step[", 1)
    for long in (".template.spec.template.spec.", ".template.spec.template.", ".template.spec."):
        if long in text:
            text = text.replace(long, ".", 1)
            break
    if path[0].startswith("JobSet/"):
        return text
    return f"{path[0].partition('/')[0]} {text}".strip()
