"""Rules about what becomes of a runtime and its patches when they are merged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_trainer.provider.admission.warnings.view import (
    Document,
    Step,
    View,
    all_known,
    reached,
)
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.values.accessors import listed, section
from pulumi_trainer.provider.kube.values.unknown import Unknown
from pulumi_trainer.provider.pipeline.info import NODE, TRAINER, TRAINER_PORT

_WITH_PORT = ("torch", "jax", "xgboost")
"""Policies that declare a port on the trainer's container."""


def unknown_in_patch(view: View) -> Iterator[Problem]:
    """Trainer's own three checks look at the template after the patches were merged into it, and never find anything:
    https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/jobset/jobset.go"""
    known = {step.name: step for step in view.template}
    jobs = reached(view.runtime, "spec", "template", "spec", "replicatedJobs")
    if not all_known(jobs) or any(isinstance(name, Unknown) for name in known):
        return
    for place, patch in view.patches:
        at = f"spec.runtimePatches[{place}].trainingRuntimeSpec.template.spec.replicatedJobs"
        jobs = listed(section(patch, "trainingRuntimeSpec", "template", "spec").get("replicatedJobs"))
        for number, job in enumerate(jobs):
            name = section(job).get("name")
            if isinstance(name, str) and name not in known:
                why = f"the runtime has no replicated job {name}: one without containers is added, which JobSet refuses"
                yield Problem(f"{at}[{number}].name", why, f"it has: {_names(known)}")
            elif isinstance(name, str):
                yield from _containers(section(job), known[name], f"{at}[{number}].template.spec.template.spec")


def _containers(job: Document, step: Step, at: str) -> Iterator[Problem]:
    pod = section(job, "template", "spec", "template", "spec")
    for part in ("containers", "initContainers"):
        there = reached(step.document, "template", "spec", "template", "spec", part)
        names = [
            reached(container, "name") for container in (there if isinstance(there, list) else [there]) if container
        ]
        for place, container in enumerate(listed(pod.get(part))):
            name = section(container).get("name")
            if isinstance(name, str) and name not in names and not any(isinstance(n, Unknown) for n in names):
                what = "container" if part == "containers" else "init container"
                why = f"{step.name} has no {what} {name}: one without an image is added, and no Pod can be made"
                yield Problem(f"{at}.{part}[{place}].name", why, f"it has: {_names(names)}")


def _names(names: Any) -> str:
    return ", ".join(map(str, names)) or "none"


def two_sources(view: View) -> Iterator[Problem]:
    """A patch's volume is merged with that of the same name, and keeps its source."""
    for step in view.steps:
        for volume in step.volumes:
            sources = [name for name in volume if name != "name"]
            if len(sources) > 1:
                name = volume.get("name")
                why = f"volume {name} of {step.name} has {' and '.join(sources)}, and no Pod can be made with both"
                mend = "give the volume of the patch another name, and mount that"
                yield Problem(_of_patch(view, step, name), why, mend)


def _of_patch(view: View, step: Step, volume: Any) -> str:
    for place, patch in reversed(view.patches):
        for job in listed(section(patch, "trainingRuntimeSpec", "template", "spec").get("replicatedJobs")):
            volumes = listed(section(job, "template", "spec", "template", "spec").get("volumes"))
            if section(job).get("name") == step.name and volume in [section(v).get("name") for v in volumes]:
                return f"spec.runtimePatches[{place}]"
    return f"{step.at}.template.spec.template.spec.volumes"


def unnamed_ports(view: View) -> Iterator[Problem]:
    """Ports of no name count as the same port:
    https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/apply/apply.go"""
    for step in view.template:
        declares = step.ancestor == TRAINER and view.trainer is not None and view.has_policy(*_WITH_PORT)
        for place, container in enumerate(step.containers):
            ports = [section(port) for port in listed(container.get("ports"))]
            unnamed = [port.get("containerPort") for port in ports if not port.get("name")]
            at = f"{step.at}.template.spec.template.spec.containers[{place}].ports"
            if len(unnamed) > 1:
                why = f"{len(unnamed)} ports without a name become the last one, twice, which JobSet refuses"
                yield Problem(at, why, "give each a name")
            elif unnamed and unnamed != [TRAINER_PORT] and declares and container.get("name") == NODE:
                why = f"port {unnamed[0]} has no name, and gives way to {TRAINER_PORT} of the framework"
                yield Problem(at, why, "give it a name")
