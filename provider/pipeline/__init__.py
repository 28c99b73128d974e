"""The pipeline: a runtime and a TrainJob in, the objects that run it out. Pure functions on plain documents.

Called by components (a program's TrainJobs) and by the command line. It does what Kubeflow Trainer's controller does
in a cluster (https://github.com/kubeflow/trainer/tree/v2.3.0/pkg/runtime), so that a plan can show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.api.errors import Problem
from pulumi_trainer.provider.api.submission import Objects

from . import core
from .modes import Mode, finish

__all__ = ["Mode", "Rendered", "render", "validate"]


@dataclass(frozen=True)
class Rendered:
    """objects: by "Kind/name", in the order in which they are applied. notes: what is odd and does no harm."""

    objects: Objects
    notes: tuple[Problem, ...]


def render(runtime: dict[str, Any], train_job: dict[str, Any], *, mode: Mode = "jobset") -> Rendered:
    """The objects of a TrainJob: the same for the same input, byte by byte; the input is not changed.

    runtime: a ClusterTrainingRuntime or TrainingRuntime, train_job: a TrainJob, both with the API server's defaults
    (`admission.default_runtime`, `default_train_job`). mode "trainer": exactly what the controller would create.
    "jobset": for a cluster, or a target, without it. An unknown leaf arrives wherever it decides a value.
    Raises Invalid: wrong types, a policy without plugin, a patch that cannot be merged, no name.
    """
    info, job, notes = core.read(runtime, train_job)
    objects = core.build(info, job)
    finish(objects, job, mode)
    return Rendered({f"{o['kind']}/{o['metadata']['name']}": o for o in objects}, notes)


def validate(runtime: dict[str, Any], train_job: dict[str, Any]) -> tuple[Problem, ...]:
    """What the plugins have against a new TrainJob: those rules of Trainer's webhook that need the merged runtime.

    Takes and raises what `render` does. Source: `Validate` of the plugins, from
    https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/webhooks/trainjob_webhook.go
    """
    info, job, _ = core.read(runtime, train_job)
    return tuple(core.validate(info, job))
