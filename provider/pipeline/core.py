"""From a runtime and a TrainJob to objects: merge, then phase after phase. `render` and `validate` call it.

As upstream: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/core/trainingruntime.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pulumi_trainer.provider.api.labels import ANCESTOR
from pulumi_trainer.provider.kube.errors import Invalid, Problem
from pulumi_trainer.provider.kube.values.accessors import items, section
from pulumi_trainer.provider.kube.values.strategic_merge import MergeError, strategic_merge
from pulumi_trainer.provider.kube.values.typed import (
    Findings,
    Path,
    fields,
    typed,
)
from pulumi_trainer.provider.kube.values.unknown import Unknown
from pulumi_trainer.provider.pipeline.info import (
    NODE,
    TRAINER,
    Container,
    Info,
    PodSet,
    TrainJob,
    hidden,
    pod_spec,
)
from pulumi_trainer.provider.pipeline.registry import (
    PHASES,
    own_in,
    run,
    served,
)


class MergeFailed(Invalid):
    """A patch or resources that cannot be merged into the runtime."""


def read(
    runtime: dict[str, Any],
    train_job: dict[str, Any],
    *,
    exists: Callable[[str, str, str], bool] | None = None,
    status_server_ca: str | None = None,
) -> tuple[Info, TrainJob, tuple[Problem, ...]]:
    """Both documents, merged, before any plugin ran; with notes on fields that nobody knows. Raises Invalid."""
    findings = Findings()
    job = _train_job(train_job, findings)
    given = _spec(runtime, findings)
    policies, own = own_in({name: value for name, value in given.items() if name != "template"}, findings)
    spec = typed("TrainingRuntimeSpec", policies, (None, "spec"), findings, applied=True)
    findings.problems += _unserved(spec)
    if findings.problems:
        raise Invalid(*findings.problems)
    labels, annotations, template = _template(given.get("template"), job, findings)
    if findings.problems:
        raise Invalid(*findings.problems)
    spec = {**spec, **{part: {**section(spec, part), **found} for part, found in own.items()}}
    policy, gang = spec.get("mlPolicy"), spec.get("podGroupPolicy")
    info = Info(
        labels=labels,
        annotations=annotations,
        ml_policy=policy if isinstance(policy, dict) else None,
        pod_group_policy=gang if isinstance(gang, dict) else None,
        spec=template,
        pod_sets=[],
        exists=exists,
        status_server_ca=status_server_ca,
        incomplete=hidden(runtime, "spec", "template", "spec") or hidden(train_job, "spec", "runtimePatches"),
    )
    info.pod_sets = [_pod_set(replicated, info, job) for replicated in items(template, "replicatedJobs")]
    return info, job, tuple(findings.notes)


def build(info: Info, job: TrainJob) -> list[dict[str, Any]]:
    """All phases but validation; the objects in the order in which they are applied."""
    documents: list[dict[str, Any]] = []
    for phase in PHASES:
        if phase != "validate":
            documents += run(phase, info, job)
    return documents


def validate(info: Info, job: TrainJob) -> list[Problem]:
    return list(run("validate", info, job))


def _train_job(document: dict[str, Any], findings: Findings) -> TrainJob:
    metadata = section(document, "metadata")
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise Invalid(Problem("metadata.name", "a TrainJob needs a name that is known"))
    given = _spec(document, findings)
    spec = typed("TrainJobSpec", given, (None, "spec"), findings, applied=False)
    trainer = section(given, "trainer")  # an empty command or args clears the runtime's
    section(spec, "trainer").update({key: [] for key in ("command", "args") if trainer.get(key) == []})
    uid = metadata.get("uid")
    return TrainJob(
        name=name,
        namespace=metadata.get("namespace") or "",
        uid=uid if isinstance(uid, str) else "",
        labels=section(metadata, "labels"),
        annotations=section(metadata, "annotations"),
        spec=spec,
    )


def _spec(document: Any, findings: Findings) -> dict[str, Any]:
    given = document.get("spec") if isinstance(document, dict) else document
    if not isinstance(given, (dict, Unknown, type(None))):
        findings.problems.append(Problem("spec", "must be a mapping"))
    return section({"spec": given}, "spec")


def _unserved(spec: dict[str, Any]) -> Iterator[Problem]:
    """Policies of the runtime that no plugin serves: rendering without them would give a job that runs wrong."""
    known = served()
    for part, type_ in (("mlPolicy", "MLPolicy"), ("podGroupPolicy", "PodGroupPolicy")):
        for name, how in fields(type_).items():
            if how.struct and name in section(spec, part) and f"{part}.{name}" not in known:
                mend = f"use a runtime with {' or '.join(known)}, or without {part}"
                yield Problem(f"spec.{part}.{name}", f"{name} is not supported by this version", mend)


def _template(given: Any, job: TrainJob, findings: Findings) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Labels, annotations and spec of the JobSet, runtimePatches merged into the runtime's template in their order."""
    at: Path = ((None, "spec"), "template")
    patches = items(job.spec, "runtimePatches")
    whole = typed("JobSetTemplateSpec", {} if given is None else given, at, findings, applied=not patches)
    labels, annotations, spec = ({**section(whole, *path)} for path in _PARTS)
    order = {r.get("name"): place for place, r in reversed(list(enumerate(items(spec, "replicatedJobs"))))}
    for place, patch in enumerate(patches):
        change = section(patch, "trainingRuntimeSpec", "template")
        labels.update(section(change, "metadata", "labels"))
        annotations.update(section(change, "metadata", "annotations"))
        if "spec" in change:
            spec = _patched(spec, section(change, "spec"), place, findings)
    if patches:
        spec = typed("JobSetSpec", spec, (at, "spec"), findings, applied=True)
        if isinstance(jobs := spec.get("replicatedJobs"), list):
            jobs.sort(key=lambda r: order.get(r.get("name"), 0) if isinstance(r, dict) else 0)
    return labels, annotations, spec


_PARTS = (("metadata", "labels"), ("metadata", "annotations"), ("spec",))


def _patched(spec: dict[str, Any], change: dict[str, Any], place: int, findings: Findings) -> dict[str, Any]:
    at: Path = ((None, "spec"), "runtimePatches"), place
    try:
        merged = strategic_merge("JobSetSpec", spec, change)
    except MergeError as error:
        raise MergeFailed(Problem(f"spec.runtimePatches[{place}]", str(error))) from None
    return typed("JobSetSpec", merged, at, findings, applied=False)


def _pod_set(replicated: dict[str, Any], info: Info, job: TrainJob) -> PodSet:
    ancestor = section(replicated, "template", "metadata", "labels").get(ANCESTOR)
    ancestor = ancestor if isinstance(ancestor, str) else None
    policy = info.ml_policy
    count: Any = section(replicated, "template", "spec").get("parallelism", 1)
    if ancestor == TRAINER and policy is not None:
        count = policy.get("numNodes", 1)
    launcher_is_node = (info.policy("mpi") or {}).get("runLauncherAsNode") is True and replicated.get("name") == NODE
    if policy is not None and (ancestor == TRAINER or launcher_is_node):
        _merge_resources(replicated, job)
    spec = pod_spec(replicated)
    return PodSet(
        name=replicated.get("name", ""),
        ancestor=ancestor,
        count=count if isinstance(count, Unknown) else max(count, 1),
        job=replicated,
        containers=[Container.of(c) for c in items(spec, "containers")],
        init_containers=[Container.of(c) for c in items(spec, "initContainers")],
        volumes=spec.get("volumes", []),
    )


def _merge_resources(replicated: dict[str, Any], job: TrainJob) -> None:
    """The TrainJob's resourcesPerNode over those of the container node; its claims are not taken over.

    https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/util/trainingruntime/trainingruntime.go
    """
    given = (job.trainer or {}).get("resourcesPerNode")
    node = next((c for c in items(pod_spec(replicated), "containers") if c.get("name") == NODE), None)
    if given is None or node is None:
        return
    if isinstance(given, Unknown):
        node["resources"] = given
    elif isinstance(node["resources"], dict):
        try:
            merged = strategic_merge("ResourceRequirements", node["resources"], given)
        except MergeError as error:
            raise MergeFailed(Problem("spec.trainer.resourcesPerNode", str(error))) from None
        node["resources"] = {part: merged[part] for part in ("limits", "requests") if merged.get(part)}
