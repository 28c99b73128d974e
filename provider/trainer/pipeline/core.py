"""Merges a runtime and a TrainJob, and runs the phases of the pipeline.

Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/core/trainingruntime.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pulumi_trainer.provider.jobs.nodes import nodes_of
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import items, section, section_if_given, text, without
from pulumi_trainer.provider.kubernetes.values.strategic_merge import MergeError, strategic_merge
from pulumi_trainer.provider.kubernetes.values.typed import Findings, GoTypes, Path
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.views import ReplicatedJob, replicated_jobs
from pulumi_trainer.provider.trainer.labels import ancestor_of
from pulumi_trainer.provider.trainer.pipeline.info import (
    NODE,
    TRAINER,
    Container,
    Info,
    PodSet,
    TrainJob,
    is_unknown_at,
)
from pulumi_trainer.provider.trainer.pipeline.registry import PHASES, run, served_policies, split_own_policies
from pulumi_trainer.provider.trainer.pipeline.release import Release


class MergeFailed(Invalid):
    """A patch or resources cannot be merged into the runtime."""


def read(
    runtime: dict[str, Any],
    train_job: dict[str, Any],
    release: Release,
    *,
    exists: Callable[[str, str, str], bool] | None = None,
    status_server_ca: str | None = None,
) -> tuple[Info, TrainJob, tuple[Problem, ...]]:
    """Return both documents merged, before any plugin, with notes on unknown fields."""
    findings = Findings()
    job = _train_job(train_job, release.go, findings)
    given = _spec(runtime, findings)
    policies, own = split_own_policies(without(given, "template"), release.plugins, findings)
    spec = release.go.as_struct("TrainingRuntimeSpec", policies, (None, "spec"), findings, applied=True)
    findings.problems += _unserved(spec, release)
    if findings.problems:
        raise Invalid(*findings.problems)
    labels, annotations, template = _template(given.get("template"), job, release.go, findings)
    if findings.problems:
        raise Invalid(*findings.problems)
    spec = {**spec}
    for part, found in own.items():
        spec[part] = {**section(spec, part), **found}
    info = Info(
        labels=labels,
        annotations=annotations,
        ml_policy=section_if_given(spec, "mlPolicy"),
        pod_group_policy=section_if_given(spec, "podGroupPolicy"),
        spec=template,
        pod_sets=[],
        exists=exists,
        status_server_ca=status_server_ca,
        incomplete=is_unknown_at(runtime, "spec", "template", "spec")
        or is_unknown_at(train_job, "spec", "runtimePatches"),
    )
    info.pod_sets = [_pod_set(replicated, info, job, release.go) for replicated in replicated_jobs(template)]
    return info, job, tuple(findings.notes)


def build(info: Info, job: TrainJob, release: Release) -> list[dict[str, Any]]:
    """Run all phases except validation, and return the objects in the order in which they are applied."""
    documents: list[dict[str, Any]] = []
    for phase in PHASES:
        if phase != "validate":
            documents += run(phase, info, job, release.plugins)
    return documents


def validate(info: Info, job: TrainJob, release: Release) -> list[Problem]:
    """Return what the plugins reject."""
    return list(run("validate", info, job, release.plugins))


def _train_job(document: dict[str, Any], go: GoTypes, findings: Findings) -> TrainJob:
    metadata = section(document, "metadata")
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise Invalid(Problem("metadata.name", "a TrainJob needs a name that is known"))
    given = _spec(document, findings)
    spec = go.as_struct("TrainJobSpec", given, (None, "spec"), findings, applied=False)
    for key in ("command", "args"):
        if section(given, "trainer").get(key) == []:  # clears that of the runtime
            section(spec, "trainer")[key] = []
    uid = metadata.get("uid")
    return TrainJob(
        name=name,
        namespace=metadata.get("namespace") or "",
        uid=text(uid),
        labels=section(metadata, "labels"),
        annotations=section(metadata, "annotations"),
        spec=spec,
    )


def _spec(document: Any, findings: Findings) -> dict[str, Any]:
    given = document
    if isinstance(document, dict):
        given = document.get("spec")
    if not isinstance(given, (dict, Unknown, type(None))):
        findings.problems.append(Problem("spec", "must be a mapping"))
    return section({"spec": given}, "spec")


def _unserved(spec: dict[str, Any], release: Release) -> Iterator[Problem]:
    """Yield policies of the runtime that no plugin implements: a job rendered without them would run incorrectly."""
    known = served_policies(release.plugins)
    for part, type_ in (("mlPolicy", "MLPolicy"), ("podGroupPolicy", "PodGroupPolicy")):
        for name, how in release.go.fields(type_).items():
            if how.struct and name in section(spec, part) and f"{part}.{name}" not in known:
                hint = f"use a runtime with {' or '.join(known)}, or without {part}"
                yield Problem(f"spec.{part}.{name}", f"{name} is not supported by this version", hint)


def _template(
    given: Any, job: TrainJob, go: GoTypes, findings: Findings
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return labels, annotations and spec of the JobSet, with the runtimePatches merged in their order."""
    at: Path = ((None, "spec"), "template")
    patches = items(job.spec, "runtimePatches")
    if given is None:
        given = {}
    whole = go.as_struct("JobSetTemplateSpec", given, at, findings, applied=not patches)
    labels = {**section(whole, "metadata", "labels")}
    annotations = {**section(whole, "metadata", "annotations")}
    spec = {**section(whole, "spec")}
    order = {replicated.name: replicated.place for replicated in reversed(replicated_jobs(spec))}
    for place, patch in enumerate(patches):
        change = section(patch, "trainingRuntimeSpec", "template")
        labels.update(section(change, "metadata", "labels"))
        annotations.update(section(change, "metadata", "annotations"))
        if "spec" in change:
            spec = _patched(spec, section(change, "spec"), place, go, findings)
    if patches:
        spec = go.as_struct("JobSetSpec", spec, (at, "spec"), findings, applied=True)

        def place_in_runtime(job: Any) -> int:
            if not isinstance(job, dict):
                return 0
            return order.get(job.get("name"), 0)

        jobs = spec.get("replicatedJobs")
        if isinstance(jobs, list):
            jobs.sort(key=place_in_runtime)
    return labels, annotations, spec


def _patched(
    spec: dict[str, Any], change: dict[str, Any], place: int, go: GoTypes, findings: Findings
) -> dict[str, Any]:
    at: Path = ((None, "spec"), "runtimePatches"), place
    try:
        merged = strategic_merge(go, "JobSetSpec", spec, change)
    except MergeError as error:
        raise MergeFailed(Problem(f"spec.runtimePatches[{place}]", str(error))) from None
    return go.as_struct("JobSetSpec", merged, at, findings, applied=False)


def _pod_set(replicated: ReplicatedJob, info: Info, job: TrainJob, go: GoTypes) -> PodSet:
    ancestor = ancestor_of(replicated)
    if not isinstance(ancestor, str):
        ancestor = None
    policy = info.ml_policy
    count: Any = replicated.job.get("parallelism", 1)
    if ancestor == TRAINER and policy is not None:
        count = nodes_of(None, policy)
    launcher_is_node = (info.policy("mpi") or {}).get("runLauncherAsNode") is True and replicated.name == NODE
    if policy is not None and (ancestor == TRAINER or launcher_is_node):
        _merge_resources(replicated, job, go)
    if not isinstance(count, Unknown):
        count = max(count, 1)
    pod = replicated.pod
    return PodSet(
        name=replicated.name,
        ancestor=ancestor,
        count=count,
        job=replicated.document,
        containers=[Container.of(container.document) for container in pod.containers],
        init_containers=[Container.of(container.document) for container in pod.init_containers],
        volumes=pod.spec.get("volumes", []),
    )


def _merge_resources(replicated: ReplicatedJob, job: TrainJob, go: GoTypes) -> None:
    """Merge the TrainJob's resourcesPerNode over those of the container node; claims are not merged.

    Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/util/trainingruntime/trainingruntime.go
    """
    given = (job.trainer or {}).get("resourcesPerNode")
    node = next((c.document for c in replicated.pod.containers if c.name == NODE), None)
    if given is None or node is None:
        return
    if isinstance(given, Unknown):
        node["resources"] = given
    elif isinstance(node["resources"], dict):
        try:
            merged = strategic_merge(go, "ResourceRequirements", node["resources"], given)
        except MergeError as error:
            raise MergeFailed(Problem("spec.trainer.resourcesPerNode", str(error))) from None
        node["resources"] = {part: merged[part] for part in ("limits", "requests") if merged.get(part)}
