"""Rules about merging a runtime with patches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import listed, section
from pulumi_trainer.provider.kubernetes.values.unknown import any_unknown
from pulumi_trainer.provider.kubernetes.views import ReplicatedJob, entries
from pulumi_trainer.provider.trainer.admission.warnings.view import (
    Step,
    View,
    all_known,
    value_or_unknown,
    values_or_unknown,
)
from pulumi_trainer.provider.trainer.labels import patched_jobs
from pulumi_trainer.provider.trainer.pipeline.info import NODE, TRAINER, TRAINER_PORT

_WITH_PORT = ("torch", "jax", "xgboost")
"""Policies that declare a port on the trainer's container."""


def unknown_in_patch(view: View) -> Iterator[Problem]:
    """Yield patches of replicated jobs and containers that do not exist.

    Trainer's own three checks read the template with the patches merged in, and therefore never find anything:
    https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/jobset/jobset.go
    """
    known = {step.name: step for step in view.template}
    jobs = value_or_unknown(view.runtime, "spec", "template", "spec", "replicatedJobs")
    if not all_known(jobs) or any_unknown(known):
        return
    for place, patch in view.patches:
        for job in patched_jobs(patch, f"spec.runtimePatches[{place}]"):
            name = job.document.get("name")
            if isinstance(name, str) and name not in known:
                why = (
                    f"the runtime has no replicated job {name}: the patch adds one without containers, which JobSet"
                    " rejects"
                )
                yield Problem(f"{job.at}.name", why, f"available: {_names(known)}")
            elif isinstance(name, str):
                yield from _containers(job, known[name])


def _containers(job: ReplicatedJob, step: Step) -> Iterator[Problem]:
    for part in ("containers", "initContainers"):
        there = value_or_unknown(step.document, "template", "spec", "template", "spec", part)
        if not isinstance(there, list):
            there = [there]
        names = values_or_unknown([container for container in there if container], "name")
        for at, container in entries(job.pod.spec, part, job.pod.at):
            name = container.get("name")
            if isinstance(name, str) and name not in names and not any_unknown(names):
                what = "container"
                if part == "initContainers":
                    what = "init container"
                why = (
                    f"{step.name} has no {what} {name}: the patch adds one without an image, and no Pod can be created"
                )
                yield Problem(f"{at}.name", why, f"available: {_names(names)}")


def _names(names: Any) -> str:
    return ", ".join(map(str, names)) or "none"


def two_sources(view: View) -> Iterator[Problem]:
    """Yield volumes of a patch that are merged with one of the same name, and keep its source."""
    for step in view.steps:
        for volume in step.pod.volumes:
            sources = [name for name in volume if name != "name"]
            if len(sources) > 1:
                name = volume.get("name")
                why = f"volume {name} of {step.name} has two sources, {' and '.join(sources)}: no Pod can be created"
                hint = "give the volume of the patch another name, and mount it by that name"
                yield Problem(_of_patch(view, step, name), why, hint)


def _of_patch(view: View, step: Step, volume: Any) -> str:
    for place, patch in reversed(view.patches):
        for job in patched_jobs(patch):
            if job.name == step.name and volume in [each.get("name") for each in job.pod.volumes]:
                return f"spec.runtimePatches[{place}]"
    return f"{step.pod.at}.volumes"


def unnamed_ports(view: View) -> Iterator[Problem]:
    """Yield ports that are merged because neither has a name.

    Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/apply/apply.go
    """
    for step in view.template:
        declares = step.ancestor == TRAINER and view.trainer is not None and view.has_policy(*_WITH_PORT)
        for container in step.pod.containers:
            ports = [*map(section, listed(container.document.get("ports")))]
            unnamed = [port.get("containerPort") for port in ports if not port.get("name")]
            at = f"{container.at}.ports"
            if len(unnamed) > 1:
                why = (
                    f"{len(unnamed)} ports have no name: merging turns them into duplicates of the last one, which"
                    " JobSet rejects"
                )
                yield Problem(at, why, "give each a name")
            elif unnamed and unnamed != [TRAINER_PORT] and declares and container.name == NODE:
                why = f"port {unnamed[0]} has no name, so port {TRAINER_PORT} of the framework replaces it"
                yield Problem(at, why, "give it a name")
