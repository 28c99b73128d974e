"""What Trainer's two webhooks make of a TrainJob, and have against it.

Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/webhooks/trainjob_webhook.go, with what
https://github.com/kubernetes-sigs/controller-runtime/blob/v0.24.1/pkg/webhook/admission/defaulter_custom.go does around
it; the lookup of runtimes: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/core/clustertrainingruntime.go
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pulumi_trainer.provider import pipeline
from pulumi_trainer.provider.admission.kinds import kinds
from pulumi_trainer.provider.admission.runtime import CLUSTER_WIDE, NAMESPACED, deprecated
from pulumi_trainer.provider.kube.errors import Invalid, Problem
from pulumi_trainer.provider.kube.schema.field_errors import FORBIDDEN
from pulumi_trainer.provider.kube.schema.verdict import Lookup
from pulumi_trainer.provider.kube.values.accessors import (
    Document,
    listed,
    same,
    section,
)
from pulumi_trainer.provider.kube.values.names import quoted
from pulumi_trainer.provider.kube.values.typed import Findings, typed
from pulumi_trainer.provider.kube.values.unknown import Unknown

_GROUP = "trainer.kubeflow.org"


def mutated(job: Document, old: Document | None, now: str) -> Document:
    """The TrainJob as the mutating webhook returns it: with a time at each of its runtimePatches.

    A patch is given the time `now` where it has none, and on an update where it has changed; an unchanged one gets its
    old time back. If a time was set, the webhook also fills in what Go prints for what is required and missing, and
    writes quantities in their canonical form. Raises Invalid for what Go's types cannot hold: it reads them first.
    """
    findings = Findings()
    spec = job.get("spec")
    printed = typed("TrainJobSpec", {} if spec is None else spec, (None, "spec"), findings, applied=False)
    if findings.problems:
        raise Invalid(*(_with_number(p, spec) for p in findings.problems))
    patches = listed(printed.get("runtimePatches"))
    times = _times(_patches(job), None if old is None else _patches(old), now)
    if not any(times):
        return job
    for patch, time in zip(patches, times, strict=False):
        if time is not None:
            patch["time"] = time
    return {**job, "spec": kinds()["TrainJob"].schema.properties["spec"].filled(_over(spec, printed))}


def _with_number(problem: Problem, spec: Any) -> Problem:
    """Before v2.3.0, `numProcPerNode` had words too."""
    word = section(spec, "trainer").get("numProcPerNode")
    if problem.where != "spec.trainer.numProcPerNode" or word not in ("auto", "cpu", "gpu"):
        return problem
    return replace(problem, mend=AUTOMATIC)


AUTOMATIC = "leave it out for one process a GPU, or a CPU where there are none; or give the number"


def validated(job: Document, old: Document | None, lookup: Lookup | None) -> tuple[list[Problem], list[str]]:
    """Problems and warnings of the validating webhook. Without lookup, only what needs no cluster is looked at."""
    spec, name_of_job = job.get("spec"), job["metadata"].get("name")
    reference = section(spec, "runtimeRef")
    kind, group, name = reference.get("kind", ""), reference.get("apiGroup", ""), reference.get("name", "")
    given = (spec, section(spec).get("runtimeRef"), kind, group, name, name_of_job)
    if any(isinstance(each, Unknown) for each in given):
        return [], []
    if group != _GROUP or kind not in (CLUSTER_WIDE, NAMESPACED):
        why = f"unsupported runtime: {kind}.{group}" if group else f"unsupported runtime: {kind}"
        mend = f"spec.runtimeRef: kind {CLUSTER_WIDE} or {NAMESPACED}, apiGroup {_GROUP}"
        return [Problem("", why, mend, type="")], []
    if lookup is None:
        return [*_changed_patches(job, old, None)], []
    namespace = job["metadata"].get("namespace", "default")
    runtime = lookup(kind, "" if kind == CLUSTER_WIDE else namespace, name)
    if runtime is None:
        return [_not_found(kind, name)], []
    words = deprecated(runtime) if kind == CLUSTER_WIDE else ""
    warnings = [f'Referenced ClusterTrainingRuntime "{name}" {words}'] if words else []

    def exists(kind: str, namespace: str, name: str) -> bool:
        return lookup(kind, namespace, name) is not None

    try:
        found = pipeline.validate(runtime, job, exists=exists)
    except pipeline.MergeFailed as error:
        mend = "a runtimePatch cannot be merged, over which the webhook stumbles: " + ", ".join(
            map(str, error.problems)
        )
        why = "runtime error: invalid memory address or nil pointer dereference"
        return [Problem("", why, mend, type="panic")], []
    except Invalid as error:
        return [*error.problems], warnings
    return [*found, *_changed_patches(job, old, lookup)], warnings


def _not_found(kind: str, name: str) -> Problem:
    plural = kinds()[kind].plural
    shown = kind[0].lower() + kind[1:]
    field = "spec.RuntimeRef" if kind == CLUSTER_WIDE else "spec.runtimeRef"
    why = (
        f"{plural}.{_GROUP} {quoted(name)} not found: specified {shown} must be created before the TrainJob is created"
    )
    return Problem(field, why, f"create the {kind} {name}, or correct spec.runtimeRef")


def _changed_patches(job: Document, old: Document | None, lookup: Lookup | None) -> Iterator[Problem]:
    """https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/jobset/jobset.go"""
    if old is None or same(_patches(old), _patches(job)):
        return
    suspended = [section(each, "spec").get("suspend", False) for each in (old, job)]
    if not any(each is True or isinstance(each, Unknown) for each in suspended):
        why = "RuntimePatches can only be modified when the TrainJob is suspended before or after the update"
        yield Problem("spec.runtimePatches", why, "set spec.suspend with the change", FORBIDDEN)
        return
    metadata = job["metadata"]
    jobset = lookup("JobSet", metadata.get("namespace", "default"), metadata["name"]) if lookup else None
    for replicated in listed(section(jobset, "status").get("replicatedJobsStatus")):
        active = section(replicated).get("active", 0)
        if isinstance(active, int) and active > 0:
            shown = section(replicated).get("name", "")
            why = f"RuntimePatches cannot be modified when the JobSet's ReplicatedJob {shown} is still active"
            yield Problem("spec.runtimePatches", why, "wait until its Pods are gone", FORBIDDEN)


def _times(patches: list[Any], before: list[Any] | None, now: str) -> list[str | None]:
    """The time that is set at each patch; None where it stays as it is, or is not known yet."""
    old = {patch.get("manager", ""): patch for patch in before or () if isinstance(patch, dict)}
    times: list[str | None] = []
    for patch in patches:
        time = patch.get("time") if isinstance(patch, dict) else None
        was = old.get(patch.get("manager", "")) if isinstance(patch, dict) else None
        if not isinstance(patch, dict) or isinstance(time, Unknown):
            times.append(None)
        elif was is None:
            times.append(now if time is None else None)
        elif not same({**was, "time": ""}, {**patch, "time": ""}):
            times.append(now)
        else:
            times.append(was.get("time") if was.get("time") != time else None)
    return times


def _patches(job: Document) -> list[Any]:
    """The runtimePatches as Go reads them."""
    patches = section(job, "spec").get("runtimePatches", [])
    if isinstance(patches, Unknown):
        return [patches]
    printed = typed("TrainJobSpec", {"runtimePatches": patches}, None, Findings(), applied=True)
    return listed(printed.get("runtimePatches"))


def _over(given: Any, printed: Any) -> Any:
    """`given` with what Go prints put over it; what Go leaves out because it is empty stays."""
    if isinstance(given, dict) and isinstance(printed, dict):
        return {
            **given,
            **{name: _over(given[name], item) if name in given else item for name, item in printed.items()},
        }
    if isinstance(given, list) and isinstance(printed, list) and len(given) == len(printed):
        return [_over(*pair) for pair in zip(given, printed, strict=True)]
    return printed
