"""Owns the products that a cluster needs for a job, and why the least version of each is needed.

Versions are those in which something appeared: JobSet's releases
(https://github.com/kubernetes-sigs/jobset/tree/v0.12.0/CHANGELOG, dependsOn: https://github.com/kubernetes-sigs/jobset/pull/740),
Trainer's API (https://github.com/kubeflow/trainer/releases) and Kueue's
(https://github.com/kubernetes-sigs/kueue/releases/tag/v0.15.0).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from pulumi_trainer.provider.jobs.submission import Objects
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kueue.api_resources import LOCAL_QUEUE
from pulumi_trainer.provider.trainer.admission.referents import queue_name
from pulumi_trainer.provider.trainer.kinds import JOBSET, POD_GROUP, TRAIN_JOB, VOLCANO_POD_GROUP, kind_of
from pulumi_trainer.provider.trainer.upstream import UPSTREAM


@dataclass(frozen=True)
class Product:
    """A product that serves an API group.

    Args:
        fields: Field -> the release that added it. An older cluster may drop the field silently.
    """

    name: str
    why: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def since(self) -> str:
        """The least release; empty if any works."""
        return UPSTREAM[self.name].least


PRODUCTS = {
    JOBSET.group: Product(
        "JobSet",
        "groups of replicated jobs",
        {"dependsOn": "0.8", "groupName": "0.9", "onJobFailureMessagePatterns": "0.10", "volumeClaimPolicies": "0.11"},
    ),
    TRAIN_JOB.group: Product(
        "Kubeflow Trainer",
        "runtimePatches, by which code and volumes are mounted",
        {
            "runtimePatches": "2.2",
            "activeDeadlineSeconds": "2.2",
            "flux": "2.2",
            "xgboost": "2.2",
            "envInjection": "2.3",
        },
    ),
    LOCAL_QUEUE.group: Product("Kueue", "its API v1beta2"),
    POD_GROUP.group: Product("scheduler-plugins"),
    VOLCANO_POD_GROUP.group: Product("Volcano"),
}
"""API group -> its product."""

Served = Mapping[str, Collection[str]]
"""API group -> its versions."""


def absent_products(objects: Objects, served: Served) -> list[Problem]:
    """Return a problem for each product that is not installed at all."""
    return [p for p, installed in _unserved(objects, served) if not installed]


def outdated_products(objects: Objects, served: Served) -> list[Problem]:
    """Return a problem for each product that is installed but does not serve the needed version."""
    return [p for p, installed in _unserved(objects, served) if installed]


def _unserved(objects: Objects, served: Served) -> Iterator[tuple[Problem, bool]]:
    """Yield a problem, and whether the product is installed in another version."""
    needed = {}
    for key, document in objects.items():
        kind = known_kind(document)
        if kind is not None and kind.group:
            needed[kind.group] = key, kind
    asked = queue_name(objects)
    if asked:
        needed[LOCAL_QUEUE.group] = f"queue {asked}", LOCAL_QUEUE
    for group, (where, kind) in needed.items():
        product, version = PRODUCTS.get(group), kind.api_version.rpartition("/")[2]
        versions = served.get(group, ())
        if product is None or version in versions:
            continue
        install = f"install {product.name}"
        if product.since:
            install += f" {product.since} or newer ({product.why})"
        if versions:
            why = f"the cluster serves {group} in {', '.join(versions)}, but not in {version}"
            yield Problem(where, why, install), True
        else:
            yield (
                Problem(where, f"the cluster has no {product.name} ({group}/{version})", f"{install} before the job"),
                False,
            )


def known_kind(document: Mapping[str, object]) -> Kind | None:
    """Return the kind of a document; None for a kind that this project does not use."""
    try:
        return kind_of(document)
    except KeyError:
        return None


def upgrade_hint(kind: Kind, path: str) -> str:
    """Return the hint for a field that the cluster does not know."""
    product = PRODUCTS.get(kind.group)
    names = re.findall(r"[A-Za-z]+", path)
    if product is None:
        return ""
    for name in reversed(names):
        if name in product.fields:
            release = product.fields[name]
            return f"{product.name} {release} introduced it: upgrade {product.name} in the cluster"
    return f"a newer {product.name} may have it: upgrade {product.name} in the cluster, or leave the field out"
