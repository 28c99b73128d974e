"""The catalogue: training runtimes that come with the package, one folder a runtime, one file a release.

Called by components for `runtime="name"` or `"name@release"`, and by the command line. A file never changes once it
is released: `catalogue.lock` holds its digest, and `catalog` refuses one that has. A release is the version of Kubeflow Trainer
whose runtime it is, or beside whose runtimes it stands (`2.3.0`), with `-1`, `-2` ... for later ones of ours; the label
and the annotation `pulumi-trainer.dev/release` carry it, and never the name, which TorchTune's model is read from.
"""

from __future__ import annotations

from typing import Any

from pulumi_trainer.provider.trainer.catalog.catalog import BUILT_IN, Deprecation, RuntimeCatalog, Withdrawal
from pulumi_trainer.provider.trainer.labels import RELEASE

__all__ = ["BUILT_IN", "RELEASE", "Deprecation", "RuntimeCatalog", "Withdrawal", "about", "load", "names", "releases"]


def names() -> list[str]:
    """The runtimes of the catalogue, sorted."""
    return BUILT_IN.names()


def releases(name: str) -> list[str]:
    """The releases of a runtime, the newest last. Raises Invalid for a name that is not in the catalogue."""
    return BUILT_IN.releases(name)


def load(name: str, release: str | None = None) -> dict[str, Any]:
    """A ClusterTrainingRuntime document of one's own; release: the newest if None.

    Raises Invalid for a name or a release that is not in the catalogue, and tells what is.
    """
    return BUILT_IN.load(name, release)


def about(name: str) -> dict[str, Any]:
    """What a runtime is for (`purpose`), on which `devices` (cpu, gpu) and on how many `nodes` (one, any). Raises Invalid for
    a name that is not in the catalogue."""
    return BUILT_IN.about(name)
