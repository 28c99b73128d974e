"""What a cluster must have installed for a job, from which version on, and why.

Versions are those in which something appeared: JobSet's releases
(https://github.com/kubernetes-sigs/jobset/tree/v0.12.0/CHANGELOG, dependsOn: https://github.com/kubernetes-sigs/jobset/pull/740),
Trainer's API (https://github.com/kubeflow/trainer/releases) and Kueue's
(https://github.com/kubernetes-sigs/kueue/releases/tag/v0.15.0).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from pulumi_trainer.provider.api.kinds import JOBSET, POD_GROUP, TRAIN_JOB, VOLCANO_POD_GROUP, of
from pulumi_trainer.provider.api.submission import Objects
from pulumi_trainer.provider.kube.client.kinds import Kind
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kueue.resources import LOCAL_QUEUE
from pulumi_trainer.provider.targets.kubernetes.preflight.referents import queue


@dataclass(frozen=True)
class Product:
    """since: the least release, why: what it is needed for. fields: those that came later, and with which release; a
    cluster without them may drop what they say without a word."""

    name: str
    since: str = ""
    why: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)


PRODUCTS = {
    JOBSET.group: Product("JobSet", "0.8", "order of stages", {"dependsOn": "0.8", "volumeClaimPolicies": "0.11"}),
    TRAIN_JOB.group: Product(
        "Kubeflow Trainer",
        "2.2",
        "runtimePatches, by which code and volumes are mounted",
        {
            "runtimePatches": "2.2",
            "activeDeadlineSeconds": "2.2",
            "flux": "2.2",
            "xgboost": "2.2",
            "envInjection": "2.3",
        },
    ),
    LOCAL_QUEUE.group: Product("Kueue", "0.15", "its API v1beta2"),
    POD_GROUP.group: Product("scheduler-plugins"),
    VOLCANO_POD_GROUP.group: Product("Volcano"),
}
"""By API group."""

Served = Mapping[str, Collection[str]]
"""API group -> its versions."""


def absent(objects: Objects, served: Served) -> list[Problem]:
    """What is not installed at all, one for each product."""
    return [p for p, installed in _unserved(objects, served) if not installed]


def outdated(objects: Objects, served: Served) -> list[Problem]:
    """What is installed and does not speak our version."""
    return [p for p, installed in _unserved(objects, served) if installed]


def _unserved(objects: Objects, served: Served) -> Iterator[tuple[Problem, bool]]:
    """A problem, and whether the product is there in another version."""
    needed = {of.group: (key, of) for key, document in objects.items() if (of := known(document)) and of.group}
    if asked := queue(objects):
        needed[LOCAL_QUEUE.group] = f"queue {asked}", LOCAL_QUEUE
    for group, (where, kind) in needed.items():
        product, version = PRODUCTS.get(group), kind.api_version.rpartition("/")[2]
        versions = served.get(group, ())
        if product is None or version in versions:
            continue
        install = f"install {product.name}" + (f" {product.since} or newer ({product.why})" if product.since else "")
        if versions:
            why = f"the cluster serves {group} in {', '.join(versions)} and not in {version}"
            yield Problem(where, why, install), True
        else:
            yield (
                Problem(where, f"the cluster has no {product.name} ({group}/{version})", f"{install} before the job"),
                False,
            )


def known(document: Mapping[str, object]) -> Kind | None:
    """The kind of a document, if it is one of ours."""
    try:
        return of(document)
    except KeyError:
        return None


def newer(kind: Kind, path: str) -> str:
    """What to do about a field that the cluster does not know."""
    product = PRODUCTS.get(kind.group)
    names = re.findall(r"[A-Za-z]+", path)
    if product is None:
        return ""
    release = next((product.fields[name] for name in reversed(names) if name in product.fields), "")
    upgrade = f"it came with {product.name} {release}: upgrade the cluster's" if release else ""
    return upgrade or f"a newer {product.name} may know it: upgrade the cluster's, or leave the field out"
