"""The pipeline: a runtime and a TrainJob in, the objects that run it out. Pure functions on plain documents.

It does what Kubeflow Trainer's controller does
in a cluster (https://github.com/kubeflow/trainer/tree/v2.3.0/pkg/runtime), so that a plan can show it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.api.submission import Objects
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.pipeline import core
from pulumi_trainer.provider.pipeline.modes import Mode, finish
from pulumi_trainer.provider.pipeline.registry import refuse_own

__all__ = ["MergeFailed", "Mode", "Rendered", "render", "validate"]

MergeFailed = core.MergeFailed


@dataclass(frozen=True)
class Rendered:
    """objects: by "Kind/name", in the order in which they are applied. notes: what is odd and does no harm."""

    objects: Objects
    notes: tuple[Problem, ...]


def render(
    runtime: dict[str, Any],
    train_job: dict[str, Any],
    *,
    mode: Mode = "jobset",
    status_server_ca: str | None = None,
) -> Rendered:
    """The objects of a TrainJob: the same for the same input, byte by byte; the input is not changed.

    runtime: a ClusterTrainingRuntime or TrainingRuntime, train_job: a TrainJob, both with the API server's defaults
    (`admission.default_runtime`, `default_train_job`). mode "trainer": exactly what the controller would create.
    "jobset": for a cluster, or a target, without it. status_server_ca: the certificate of the server that jobs report to,
    where the controller's feature gate TrainJobStatus is on. An unknown leaf arrives wherever it decides a value.
    Raises Invalid: wrong types, a policy without plugin, a patch that cannot be merged, no name.
    """
    info, job, notes = core.read(runtime, train_job, status_server_ca=status_server_ca)
    refuse_own(info, mode)
    objects = core.build(info, job)
    finish(objects, info, job, mode)
    return Rendered(_keyed(objects), notes)


def _keyed(objects: list[dict[str, Any]]) -> Objects:
    keyed: Objects = {}
    for document in objects:
        key = f"{document['kind']}/{document['metadata']['name']}"
        if key in keyed:  # two kinds of PodGroup
            group = document["apiVersion"].partition("/")[0]
            key = f"{document['kind']}.{group}/{document['metadata']['name']}"
        keyed[key] = document
    return keyed


def validate(
    runtime: dict[str, Any],
    train_job: dict[str, Any],
    *,
    exists: Callable[[str, str, str], bool] | None = None,
) -> tuple[Problem, ...]:
    """What the plugins have against a new TrainJob: those rules of Trainer's webhook that need the merged runtime.

    exists: whether the cluster has an object of that kind, namespace ("" for none) and name; None: such rules are left
    out. Takes and raises what `render` does; MergeFailed where the real webhook panics. Source: `Validate` of the plugins, from
    https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/webhooks/trainjob_webhook.go
    """
    info, job, _ = core.read(runtime, train_job, exists=exists)
    return tuple(core.validate(info, job))
