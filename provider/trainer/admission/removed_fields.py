"""Reports unknown fields of runtimes and TrainJobs; of those that Trainer has removed, with what takes their place.

Sources: the types of https://github.com/kubeflow/trainer/tree/v2.1.0/pkg/apis/trainer/v1alpha1 and of v2.0.0; removed by
https://github.com/kubeflow/trainer/pull/3309 (overrides, labels and annotations of a TrainJob),
https://github.com/kubeflow/trainer/pull/3239 (numProcPerNode) and https://github.com/kubeflow/trainer/pull/3235 (elasticPolicy)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.schema.strict import unknown_fields
from pulumi_trainer.provider.kubernetes.values.accessors import Document, mappings, section, without
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.trainer.pipeline.info import DATASET_INITIALIZER, MODEL_INITIALIZER, NODE
from pulumi_trainer.provider.trainer.pipeline.release import Release

MANAGER = "example.com/team"
"""Manager of the patches that a hint writes out; a user may give any name below a domain."""

_OWN_ENV = {
    NODE: "spec.trainer.env",
    DATASET_INITIALIZER: "spec.initializer.dataset.env",
    MODEL_INITIALIZER: "spec.initializer.model.env",
}
"""Container whose env a patch cannot set -> where it is set."""


def unknown_field_problems(document: Mapping[str, Any], release: Release, paths: Iterable[str]) -> list[Problem]:
    """Return a problem for each unknown field of a document, given by its path."""
    kind = document["kind"]
    found: list[Problem] = []
    for problem in unknown_fields(release.kinds[kind].schema, paths):
        if is_removed(kind, problem.where):
            found.append(replace(problem, **_successor(document, problem.where)))
        else:
            found.append(problem)
    return found


def is_removed(kind: str, path: str) -> bool:
    """Return whether an earlier version of Trainer had a field of a TrainJob or a runtime."""
    return path in _removed_from(kind)


def _removed_from(kind: str) -> dict[str, tuple[str, Callable[[Any], str]]]:
    """Return the removed fields of a TrainJob, or of a runtime."""
    return _OF_TRAIN_JOBS if kind == "TrainJob" else _OF_RUNTIMES


def _successor(document: Mapping[str, Any], path: str) -> dict[str, str]:
    """Return the reason and the hint of a problem with a removed field."""
    version, write = _removed_from(document["kind"])[path]
    *above, name = path.split(".")
    return {"why": f"unknown field: removed in Trainer {version}", "hint": write(section(document, *above).get(name))}


def _patched_pods(overrides: Any) -> str:
    """Return the runtimePatches that do what podTemplateOverrides, or the podSpecOverrides before them, did."""
    patches, env = [], list[str]()
    for place, override in enumerate(mappings(overrides)):
        pod: Document = {}
        for part in ("metadata", "spec"):
            if section(override, part):
                pod[part] = section(override, part)
        if not pod:  # podSpecOverrides have the fields of the spec themselves
            pod["spec"] = without(override, "targetJobs")
        if "spec" in pod:
            pod["spec"] = _without_env(pod["spec"], env)
        jobs: list[Document] = []
        for job in mappings(override.get("targetJobs")):
            jobs.append({"name": job.get("name"), "template": {"spec": {"template": pod}}})
        patches.append(_patch({"spec": {"replicatedJobs": jobs}}, place))
    return "; ".join([_written(patches), *(f"give the {each}" for each in dict.fromkeys(env))])


def _without_env(pod: Document, elsewhere: list[str]) -> Document:
    """Return the spec of a Pod without variables that a patch cannot set, and without values of others, which may be secret."""
    changed = dict(pod)
    for part in ("containers", "initContainers"):
        if mappings(pod.get(part)):
            changed[part] = [_container(container, elsewhere) for container in mappings(pod[part])]
    return changed


def _container(container: Document, elsewhere: list[str]) -> Document:
    variables = mappings(container.get("env"))
    if not variables:
        return container
    place = _OWN_ENV.get(str(container.get("name")))
    if place:
        elsewhere.append(f"env of {container['name']} in {place}")
        return without(container, "env")
    return {**container, "env": [*map(_without_value, variables)]}


def _without_value(variable: Document) -> Document:
    return {**variable, "value": "..."} if "value" in variable else variable


def _metadata(part: str) -> Callable[[Any], str]:
    return lambda value: _written([_patch({"metadata": {part: value}})])


def _patch(template: Document, place: int = 0) -> Document:
    manager = MANAGER
    if place > 0:
        manager += f"-{place + 1}"
    return {"manager": manager, "trainingRuntimeSpec": {"template": template}}


def _written(patches: list[Document]) -> str:
    if first_unknown(patches) is not None:
        return "write runtimePatches"
    return f"write runtimePatches: {json.dumps(patches, ensure_ascii=False)}"


def _processes(given: Any) -> str:
    field = "numProcPerNode"
    if isinstance(given, int) and not isinstance(given, bool):
        field += f": {given}"
    return (
        f"write torch: {{}}, and {field} in spec.trainer of the TrainJob; without it a node has a process for each GPU"
    )


def _elastic(_: Any) -> str:
    return (
        "write torch: {}, give numNodes, and failurePolicy.maxRestarts in spec.template.spec for restarts of all nodes"
    )


_OF_TRAIN_JOBS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "spec.podSpecOverrides": ("2.1", _patched_pods),
    "spec.podTemplateOverrides": ("2.2", _patched_pods),
    "spec.labels": ("2.2", _metadata("labels")),
    "spec.annotations": ("2.2", _metadata("annotations")),
}
_OF_RUNTIMES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "spec.mlPolicy.torch.numProcPerNode": ("2.2", _processes),
    "spec.mlPolicy.torch.elasticPolicy": ("2.2", _elastic),
}
"""Path of a removed field -> the version that has removed it, and what returns the hint for its value."""
