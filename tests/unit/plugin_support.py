"""Runtimes and TrainJobs for the tests of the built-in plugins, and what is rendered of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

from tests.trainer import default_runtime, default_train_job, render, validate

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
Document = dict[str, Any]


def container(name: str = "node", **fields: Any) -> Document:
    return {"name": name, "image": f"{name}:1", **fields}


def job(name: str = "node", step: str | None = None, *containers: Document, **pod: Any) -> Document:
    """A replicated job; step: its ancestor, none if it is empty."""
    step = "trainer" if step is None else step
    template: Document = {"spec": {"template": {"spec": {"containers": list(containers or [container()]), **pod}}}}
    if step:
        template["metadata"] = {"labels": {STEP: step}}
    return {"name": name, "template": template}


def runtime(policy: Any, *jobs: Document, name: str = "rt", gang: Any = None, **template: Any) -> Document:
    spec: Document = {"template": {"spec": {"replicatedJobs": list(jobs or [job()]), **template}}}
    spec |= {key: value for key, value in (("mlPolicy", policy), ("podGroupPolicy", gang)) if value is not None}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name},
        "spec": spec,
    }


def train_job(trainer: Any = None, *, runtime: str = "rt", **spec: Any) -> Document:
    spec |= {"trainer": trainer} if trainer is not None else {}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "digits", "namespace": "ns"},
        "spec": {"runtimeRef": {"name": runtime}, **spec},
    }


def rendered(rt: Document, tj: Document, **options: Any) -> dict[str, Document]:
    """The objects of mode trainer, unless `options` name another, by kind and name."""
    return render(default_runtime(rt), default_train_job(tj), **{"mode": "trainer", **options}).objects


def problems(rt: Document, tj: Document, exists: Callable[[str, str, str], bool] | None = None) -> list[Problem]:
    return list(validate(default_runtime(rt), default_train_job(tj), exists=exists))


def pods(objects: dict[str, Document], name: str = "node") -> Document:
    """The Job spec of a replicated job."""
    jobs = objects["JobSet/digits"]["spec"]["replicatedJobs"]
    return next(dict(j["template"]["spec"]) for j in jobs if j["name"] == name)


def pod(objects: dict[str, Document], name: str = "node") -> Document:
    return dict(pods(objects, name)["template"]["spec"])


def main(objects: dict[str, Document], name: str = "node") -> Document:
    """The first container of a replicated job."""
    return dict(pod(objects, name)["containers"][0])


def env(of: Document) -> Document:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in of.get("env", [])}


def named(items: list[Document], name: str) -> Document:
    return next(item for item in items if item["name"] == name)


def below(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values in a document, lists and mappings too."""
    if isinstance(document, (dict, list)):
        for key, value in document.items() if isinstance(document, dict) else enumerate(document):
            yield (*at, key)
            yield from below(value, (*at, key))


def with_unknowns(rt: Document, tj: Document) -> Iterator[tuple[Document, Document, tuple[Any, ...]]]:
    """The documents with each value of their specs in turn not known yet."""
    for which, document in enumerate((default_runtime(rt), default_train_job(tj))):
        for place in below(document["spec"], ("spec",)):
            changed = copy.deepcopy(document)
            holder: Any = changed
            for key in place[:-1]:
                holder = holder[key]
            holder[place[-1]] = Unknown("leaf")
            pair = [default_runtime(rt), default_train_job(tj)]
            pair[which] = changed
            yield pair[0], pair[1], (which, *place)
