"""Renders a runtime and a TrainJob into the objects that run the job, with pure functions on plain documents.

The result is that of Kubeflow Trainer's controller (https://github.com/kubeflow/trainer/tree/v2.3.0/pkg/runtime).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.jobs.submission import Objects
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.trainer.pipeline import core
from pulumi_trainer.provider.trainer.pipeline.disruptions import Disruptions, fail_at_final_errors, tolerate_disruptions
from pulumi_trainer.provider.trainer.pipeline.hardening import harden_jobset
from pulumi_trainer.provider.trainer.pipeline.modes import Mode, end_at_deadline, finish
from pulumi_trainer.provider.trainer.pipeline.registry import reject_own_policies
from pulumi_trainer.provider.trainer.pipeline.release import Release

__all__ = ["Disruptions", "MergeFailed", "Mode", "Release", "Rendered", "render", "validate"]

MergeFailed = core.MergeFailed


@dataclass(frozen=True)
class Rendered:
    """The result of rendering."""

    objects: Objects
    notes: tuple[Problem, ...]


def render(
    runtime: dict[str, Any],
    train_job: dict[str, Any],
    release: Release,
    *,
    mode: Mode = "jobset",
    status_server_ca: str | None = None,
    restricted: bool = False,
    disruptions: Disruptions | None = None,
    fails_early: bool = False,
) -> Rendered:
    """Return the objects of a TrainJob, byte by byte the same for the same input. The input is not changed.

    An unknown leaf appears wherever it decides a value.

    Args:
        runtime: A ClusterTrainingRuntime or TrainingRuntime with the API server's defaults (`admission.default_runtime`).
        train_job: A TrainJob with the API server's defaults (`default_train_job`).
        release: The release of Trainer whose controller would render it.
        mode: "trainer" for exactly what the controller would create; "jobset" for a cluster, or a target, without controller.
        status_server_ca: Certificate of the server to which jobs report, if the controller's feature gate TrainJobStatus is on.
        restricted: Whether Pods are hardened; in mode trainer by `hardening.with_patch` before.
        disruptions: How the job goes on after disruptions. Default, and always in mode trainer: as its runtime declares.
        fails_early: Whether a container that ends with `disruptions.FINAL` fails the job at once. Never in mode trainer.

    Raises:
        Invalid: A type is wrong, a policy has no plugin, a patch cannot be merged, a name is missing, or a Pod
            cannot be hardened.
    """
    info, job, notes = core.read(runtime, train_job, release, status_server_ca=status_server_ca)
    reject_own_policies(info, mode)
    info.counts_claims = mode == "jobset"
    objects = core.build(info, job, release)
    finish(objects, info, job, mode)
    if mode == "jobset":
        objects = [_with_failure_rules(document, disruptions, fails_early=fails_early) for document in objects]
    for document in objects:
        if mode == "jobset" and document["kind"] == "JobSet":
            end_at_deadline(document, job)
    if restricted:
        objects = [_hardened(document, info.ml_policy or {}, mode) for document in objects]
    return Rendered(_keyed(objects), notes)


def _with_failure_rules(
    document: dict[str, Any], disruptions: Disruptions | None, *, fails_early: bool
) -> dict[str, Any]:
    if document["kind"] == "JobSet" and disruptions is not None:
        document = tolerate_disruptions(document, disruptions)
    if document["kind"] == "JobSet" and fails_early:
        document = fail_at_final_errors(document)
    return document


def _hardened(document: dict[str, Any], ml_policy: dict[str, Any], mode: Mode) -> dict[str, Any]:
    if document["kind"] != "JobSet":
        return document
    return harden_jobset(document, ml_policy, mode)


def _keyed(objects: list[dict[str, Any]]) -> Objects:
    keyed: Objects = {}
    for document in objects:
        key = f"{document['kind']}/{document['metadata']['name']}"
        if key in keyed:  # PodGroups of two APIs
            group = document["apiVersion"].partition("/")[0]
            key = f"{document['kind']}.{group}/{document['metadata']['name']}"
        keyed[key] = document
    return keyed


def validate(
    runtime: dict[str, Any],
    train_job: dict[str, Any],
    release: Release,
    *,
    exists: Callable[[str, str, str], bool] | None = None,
) -> tuple[Problem, ...]:
    """Return what the plugins reject of a new TrainJob: those rules of Trainer's webhook that need the merged runtime.

    Source: `Validate` of the plugins, called by https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/webhooks/trainjob_webhook.go

    Args:
        exists: Returns whether the cluster has an object of a kind, namespace ("" for cluster-wide kinds) and name; None leaves
            out the rules that need it.

    Raises:
        Invalid: As in `render`; MergeFailed where the real webhook panics.
    """
    info, job, _ = core.read(runtime, train_job, release, exists=exists)
    return tuple(core.validate(info, job, release))
