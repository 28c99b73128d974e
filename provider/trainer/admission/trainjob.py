"""Trainer's mutating and validating webhooks for a TrainJob.

Sources: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/webhooks/trainjob_webhook.go, inside
https://github.com/kubernetes-sigs/controller-runtime/blob/v0.24.1/pkg/webhook/admission/defaulter_custom.go; the lookup of
runtimes: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/core/clustertrainingruntime.go
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.schema.field_errors import FORBIDDEN
from pulumi_trainer.provider.kubernetes.schema.verdict import Lookup
from pulumi_trainer.provider.kubernetes.values.accessors import Document, equal_as_go, listed, mappings, section
from pulumi_trainer.provider.kubernetes.values.names import quoted
from pulumi_trainer.provider.kubernetes.values.typed import Findings, GoTypes, over_given
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, any_unknown
from pulumi_trainer.provider.trainer import pipeline
from pulumi_trainer.provider.trainer.admission.runtime import CLUSTER_WIDE, NAMESPACED, deprecated
from pulumi_trainer.provider.trainer.pipeline.release import Release

_GROUP = "trainer.kubeflow.org"


def mutate(job: Document, old: Document | None, release: Release, now: str) -> Document:
    """Return the TrainJob as the mutating webhook returns it: with a time at each of its runtimePatches.

    A new or changed patch gets the time `now`, an unchanged one its old time. If a time was set, the webhook also writes what Go
    prints for required fields that are missing, and canonical quantities.
    """
    findings = Findings()
    spec = job.get("spec")
    if spec is None:
        spec = {}
    printed = release.go.as_struct("TrainJobSpec", spec, (None, "spec"), findings, applied=False)
    if findings.problems:
        raise Invalid(*(_with_number(p, spec) for p in findings.problems))
    patches = listed(printed.get("runtimePatches"))
    given = _patches(job, release.go)
    before: list[Any] = []
    if old is not None:
        before = _patches(old, release.go)
    times = _times(given, before, now)
    if not any(times):
        return job
    for patch, time in zip(patches, times, strict=False):
        if time is not None:
            patch["time"] = time
    schema = release.kinds["TrainJob"].schema.properties["spec"]
    return {**job, "spec": schema.with_defaults(over_given(spec, printed))}


def _with_number(problem: Problem, spec: Any) -> Problem:
    """Return the problem with a hint for the words that `numProcPerNode` accepted before v2.3.0."""
    word = section(spec, "trainer").get("numProcPerNode")
    if problem.where != "spec.trainer.numProcPerNode" or word not in ("auto", "cpu", "gpu"):
        return problem
    return replace(problem, hint=AUTOMATIC)


AUTOMATIC = "leave it out for one process per GPU (per CPU without GPUs), or give a number"


def validate(
    job: Document, old: Document | None, release: Release, lookup: Lookup | None
) -> tuple[list[Problem], list[str]]:
    """Return problems and warnings of the validating webhook."""
    spec, name_of_job = job.get("spec"), job["metadata"].get("name")
    reference = section(spec, "runtimeRef")
    kind, group, name = reference.get("kind", ""), reference.get("apiGroup", ""), reference.get("name", "")
    given = (spec, section(spec).get("runtimeRef"), kind, group, name, name_of_job)
    if any_unknown(given):
        return [], []
    if group != _GROUP or kind not in (CLUSTER_WIDE, NAMESPACED):
        why = f"unsupported runtime: {kind}"
        if group:
            why += f".{group}"
        hint = f"spec.runtimeRef: kind {CLUSTER_WIDE} or {NAMESPACED}, apiGroup {_GROUP}"
        return [Problem("", why, hint, type="")], []
    if lookup is None:
        return [*_changed_patches(job, old, release.go, None)], []
    namespace = job["metadata"].get("namespace", "default")
    if kind == CLUSTER_WIDE:
        namespace = ""
    runtime = lookup(kind, namespace, name)
    if runtime is None:
        return [_not_found(release.kinds[kind].plural, kind, name)], []
    warnings: list[str] = []
    if kind == CLUSTER_WIDE and deprecated(runtime):
        warnings.append(f'Referenced ClusterTrainingRuntime "{name}" {deprecated(runtime)}')

    def exists(kind: str, namespace: str, name: str) -> bool:
        return lookup(kind, namespace, name) is not None

    try:
        found = pipeline.validate(runtime, job, release, exists=exists)
    except pipeline.MergeFailed as error:
        hint = "a runtimePatch cannot be merged, over which the webhook stumbles: " + ", ".join(
            map(str, error.problems)
        )
        why = "runtime error: invalid memory address or nil pointer dereference"
        return [Problem("", why, hint, type="panic")], []
    except Invalid as error:
        return [*error.problems], warnings
    return [*found, *_changed_patches(job, old, release.go, lookup)], warnings


def _not_found(plural: str, kind: str, name: str) -> Problem:
    shown = kind[0].lower() + kind[1:]
    field = "spec.runtimeRef"
    if kind == CLUSTER_WIDE:
        field = "spec.RuntimeRef"
    why = (
        f"{plural}.{_GROUP} {quoted(name)} not found: specified {shown} must be created before the TrainJob is created"
    )
    return Problem(field, why, f"create the {kind} {name}, or correct spec.runtimeRef")


def _changed_patches(job: Document, old: Document | None, go: GoTypes, lookup: Lookup | None) -> Iterator[Problem]:
    """Yield problems of changed runtimePatches.

    Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/jobset/jobset.go
    """
    if old is None or equal_as_go(_patches(old, go), _patches(job, go)):
        return
    if not _may_be_suspended(old) and not _may_be_suspended(job):
        why = "RuntimePatches can only be modified when the TrainJob is suspended before or after the update"
        yield Problem("spec.runtimePatches", why, "set spec.suspend with the change", FORBIDDEN)
        return
    metadata = job["metadata"]
    if not lookup:
        return
    jobset = lookup("JobSet", metadata.get("namespace", "default"), metadata["name"])
    for replicated in listed(section(jobset, "status").get("replicatedJobsStatus")):
        active = section(replicated).get("active", 0)
        if isinstance(active, int) and active > 0:
            shown = section(replicated).get("name", "")
            why = f"RuntimePatches cannot be modified when the JobSet's ReplicatedJob {shown} is still active"
            yield Problem("spec.runtimePatches", why, "wait until its Pods are gone", FORBIDDEN)


def _may_be_suspended(job: Document) -> bool:
    suspend = section(job, "spec").get("suspend", False)
    return suspend is True or isinstance(suspend, Unknown)


def _times(patches: list[Any], before: list[Any], now: str) -> list[str | None]:
    """Return the time to set at each patch; None if the patch keeps its time, or if that is unknown."""
    old = {patch.get("manager", ""): patch for patch in mappings(before)}
    times: list[str | None] = []
    for patch in patches:
        if isinstance(patch, dict):
            times.append(_time_to_set(patch, old.get(patch.get("manager", "")), now))
        else:
            times.append(None)
    return times


def _time_to_set(patch: Document, old: Document | None, now: str) -> str | None:
    time = patch.get("time")
    if isinstance(time, Unknown):
        return None
    if old is None:
        return now if time is None else None
    if not equal_as_go({**old, "time": ""}, {**patch, "time": ""}):
        return now
    if old.get("time") == time:
        return None
    return old.get("time")


def _patches(job: Document, go: GoTypes) -> list[Any]:
    """Return the runtimePatches as Go decodes them."""
    patches = section(job, "spec").get("runtimePatches", [])
    if isinstance(patches, Unknown):
        return [patches]
    printed = go.as_struct("TrainJobSpec", {"runtimePatches": patches}, None, Findings(), applied=True)
    return listed(printed.get("runtimePatches"))
