"""Rules about devices that nodes claim by Dynamic Resource Allocation, and about processes that CPUs stand for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_trainer.provider.kubernetes.device_claims import CLAIM, DeviceClaim, device_claims
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import items, section, text
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kueue.podsets import PodSet, pod_sets
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.trainer.admission.warnings.given_twice import PROCESSES, torchrun_options
from pulumi_trainer.provider.trainer.admission.warnings.view import Step, View, amount, gpus, number
from pulumi_trainer.provider.trainer.pipeline.info import NODE
from pulumi_trainer.provider.trainer.pipeline.plugins.torch import AUTO, NUM_PROC_PER_NODE

_PROCESSES = "spec.trainer.numProcPerNode"
_CLAIMS = "spec.trainer.resourcesPerNode.claims"


def uncounted_devices(view: View) -> Iterator[Problem]:
    """Yield claimed GPUs that the number of processes leaves out, which Trainer computes from limits and requests.

    Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/runtime.go
    """
    found = view.claimed_gpus
    if not view.claims or (view.trainer or {}).get("numProcPerNode") is not None or gpus(view.worker_container or {}):
        return
    claimed, started = " and ".join(map(str, view.claims)), _started(view)
    if started == AUTO and found == 0:
        why = f"is missing: torchrun starts a process for each CPU of the machine, as the node claims no GPUs, but {claimed}"
        yield Problem(_PROCESSES, why, "give a number")
    if started in (None, AUTO, str(found)) or found == 0:
        return
    devices = "devices, among them an unknown number of GPUs" if found is None else f"{found} GPUs"
    hint = f"give numProcPerNode: {found}" if found else "give the number of GPUs that a node claims"
    if view.has_policy("xgboost"):
        hint = "request GPUs in limits, by the extendedResourceName of their DeviceClass: XGBoost counts no others"
    computed = "1 process is" if started == "1" else f"{started} processes are"
    why = f"is missing, and claims do not count: {computed} computed for a node that claims {devices} by {claimed}"
    yield Problem(_PROCESSES, why, hint)


def _started(view: View) -> str | None:
    """Return the processes of a node that has no numProcPerNode and no GPUs in limits; None if nothing depends on GPUs."""
    if PROCESSES in torchrun_options(view):
        return None
    if view.has_policy("torch"):
        return next((text(each.get("value")) for each in view.env if each.get("name") == NUM_PROC_PER_NODE), "") or None
    by_gpus = view.has_policy("xgboost") or number((view.policy("mpi") or {}).get("numProcPerNode")) == 1
    return "1" if by_gpus else None


def dropped_claims(view: View) -> Iterator[Problem]:
    """Yield claims that a container does not get because of resourcesPerNode, of which Trainer merges limits and requests.

    Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/core/trainingruntime.go
    """
    given = section(view.trainer, "resourcesPerNode")
    names = [str(each.get("name")) for each in items(given, "claims")]
    hint = "write resourceClaims of the Pod and resources.claims of its container into the runtime: a runtimePatch has neither"
    if names:
        why = f"has no effect: Trainer reads limits and requests only, and the container {NODE} does not get {', '.join(names)}"
        yield Problem(_CLAIMS, why, hint)
    if not given:
        return
    rendered = {step.name: _claims_of_node(step) for step in view.steps}
    for step in view.template:
        own = _claims_of_node(step)
        if own and not rendered.get(step.name, own):
            why = (
                f"drops the claims of the runtime's container {NODE}: {', '.join(own)}. The Pods of {step.name} keep them,"
                " but the container gets no device"
            )
            hint = "leave resourcesPerNode out, and write limits and requests into the runtime"
            yield Problem("spec.trainer.resourcesPerNode", why, hint)


def _claims_of_node(step: Step) -> list[str]:
    return [str(each.get("name")) for each in items(section(step.node, "resources"), "claims")]


def unused_claims(view: View) -> Iterator[Problem]:
    """Yield claims of a Pod that none of its containers names: the devices are allocated, and no container gets them."""
    for step in view.template:
        if first_unknown(step.pod.spec) is not None:
            continue
        used = set[Any]()
        for container in step.pod.all_containers:
            used.update(each.get("name") for each in items(container.document.get("resources"), "claims"))
        for claim in device_claims(step.pod):
            if claim.name not in used:
                why = f"{claim}: no container of {step.name} names it in resources.claims, so none gets its devices"
                yield Problem(claim.at, why, f'resources: {{"claims": [{{"name": "{claim.name}"}}]}} of the container')


def shared_claims(view: View) -> Iterator[Problem]:
    """Yield claims that all Pods of a step share, as a ResourceClaim is allocated once."""
    for step in view.steps:
        if (step.pods or 0) < 2:
            continue
        for claim in view.claims_of(step):
            if claim.kind == CLAIM:
                why = (
                    f"{claim} is allocated once: the {step.pods} Pods of {step.name} share its devices, and devices of a node"
                    " keep all of them on this node"
                )
                hint = "use a ResourceClaimTemplate, of which Kubernetes makes a claim for each Pod"
                yield Problem(claim.at, why, hint)


def processes_for_cpus(view: View) -> Iterator[Problem]:
    """Yield that torchrun starts many processes on a node without GPUs: one for each CPU."""
    started = _started(view)
    given = (view.trainer or {}).get("numProcPerNode") is not None or not view.has_policy("torch")
    if (
        given
        or view.claims
        or started is None
        or not started.isdigit()
        or int(started) < _MANY
        or not _starts_torchrun(view)
    ):
        return
    resources = section(view.trainer_container, "resources")
    memory = {**section(resources, "requests"), **section(resources, "limits")}.get("memory")
    each, limit = "", amount(memory)
    if limit is not None:
        each = f", each with {_shown(limit.value // int(started))} of its {memory} of memory"
    why = f"is missing, and a node has no GPUs: torchrun starts {started} processes, one for each CPU{each}"
    yield Problem(_PROCESSES, why, "give 1 for one process whose threads use all CPUs")


def _shown(size: int) -> str:
    if size < 2**30:
        return f"{size // 2**20}Mi"
    return f"{size / 2**30:.3g}Gi"


_MANY = 8
"""Processes for CPUs that a user may not expect; fewer are usual in tests."""


def _starts_torchrun(view: View) -> bool:
    words = " ".join(view.words or [])
    return any(each in words for each in ("torchrun", "torch.distributed.run", code.BOOTSTRAP_FILE))


def unsupported_claims(view: View) -> Iterator[Problem]:
    """Yield claims of a job with a queue for which Kueue finds its Workload inadmissible.

    Source: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/dra/claims.go
    """
    for pods, claim in _queued_claims(view):
        words = [*_unsupported(claim)]
        if words:
            why = f"Kueue 0.19 never admits the job, as pods of {pods.name} claim {claim}: {words[0]}"
            hint = "use a ResourceClaimTemplate whose requests have a deviceClassName and a count"
            yield Problem(f"spec.template.{claim.at}", why, hint)


def _unsupported(claim: DeviceClaim) -> Iterator[str]:
    if claim.kind == CLAIM:
        yield "KueueDRAIntegration feature does not support use of resource claims"
    for request in claim.requests or ():
        if request.has_alternatives:
            yield "FirstAvailable device selection is not supported"
        elif request.admin:
            yield "AdminAccess is not supported"
        elif request.count is None:
            yield "AllocationMode 'All' is not supported"


def unmapped_devices(view: View) -> Iterator[Problem]:
    """Yield DeviceClasses of a job with a queue that Kueue's configuration does not map to a resource."""
    mapped = view.queues.device_resources
    for pods, claim in _queued_claims(view):
        if mapped is None or any(_unsupported(claim)):
            continue
        for request in claim.requests or ():
            if request.classes[0] not in mapped:
                why = (
                    f"Kueue never admits the job: DeviceClass {request.classes[0]} is not mapped in DRA configuration for"
                    f" podset {pods.name}"
                )
                hint = "add it to resources.deviceClassMappings of Kueue's configuration, and quota for the resource"
                yield Problem(f"spec.template.{claim.at}", why, hint)


def _queued_claims(view: View) -> Iterator[tuple[PodSet, DeviceClaim]]:
    if view.queue:
        for pods in pod_sets(view.jobset, view.queues):
            for claim in pods.claims:
                yield pods, claim
