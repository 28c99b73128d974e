"""Which release of Kubeflow Trainer a cluster has, by its CRD of TrainJobs: the CRDs name no release."""

from __future__ import annotations

from functools import cache, partial

from pulumi_trainer.provider.kubernetes.schema.schema import Schema
from pulumi_trainer.provider.trainer.pipeline import Release
from pulumi_trainer.provider.trainer.releases import RELEASES


@cache
def nearest_release(served: Schema) -> Release:
    """Return the known release whose TrainJobs differ least from those that a cluster serves; the oldest of equal ones."""
    return min(RELEASES.values(), key=partial(_differences, served.properties["spec"]))


def _differences(served: Schema, release: Release) -> int:
    return _count(release.kinds["TrainJob"].schema.properties["spec"], served)


def _count(known: Schema, served: Schema) -> int:
    """Return the number of fields that one of two schemas lacks, and of those with other bounds or rules."""
    found = len(known.properties.keys() ^ served.properties.keys())
    found += known.bounds != served.bounds or _rules(known) != _rules(served)
    pairs = [(known.properties[name], served.properties[name]) for name in known.properties.keys() & served.properties]
    if known.items and served.items:
        pairs.append((known.items, served.items))
    return found + sum(_count(*pair) for pair in pairs)


def _rules(schema: Schema) -> list[str]:
    return [rule["rule"] for rule in schema.given.get("x-kubernetes-validations", ())]
