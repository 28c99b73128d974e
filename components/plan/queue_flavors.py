"""`TrainJob(flavors=)`: the required node affinity with which Kueue gives a job quota of these flavors alone.

Kueue assigns a flavor only if its node labels match the required node affinity of the pods, by the keys that the flavor has:
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/flavorassigner.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pulumi_trainer.plan import mounts
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import listed, section, text
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean
from pulumi_trainer.provider.kubernetes.views import replicated_jobs
from pulumi_trainer.provider.kueue.fit import flavor_names
from pulumi_trainer.provider.kueue.objects import without_digest
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.trainer.labels import patched_jobs

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def find_terms(
    chosen: Sequence[str], queue: Any, namespace: Any, queues: Queues
) -> tuple[list[dict[str, Any]], list[Problem]]:
    """Return the node selector terms that match the nodes of flavors and of no other flavor of the queue, and problems."""
    if not queue:
        return [], [
            Problem("flavors", "requires queue=, whose flavors they are", "name the queue, or leave flavors out")
        ]
    local = queues.find("LocalQueue", queue, namespace)
    behind = queues.find("ClusterQueue", section(local, "spec").get("clusterQueue"))
    if behind is None:
        why = (
            f"the flavors of the queue {queue} are unknown: neither the program nor the cluster shows its ClusterQueue"
        )
        hint = (
            "create the queue first, or grant what `pulumi-trainer rbac` prints; or select nodes with runtime_patches"
        )
        return [], [Problem("flavors", why, hint)]
    labels = _labels_by_flavor(behind, queues)
    full = {without_digest(name): name for name in labels} | {name: name for name in labels}
    wanted, found = list[str](), list[Problem]()
    for i, name in enumerate(chosen):
        if name in full:
            wanted.append(full[name])
            continue
        kinds = [*map(without_digest, labels)]
        hint = did_you_mean(name, kinds, f"available: {', '.join(kinds)}")
        found.append(Problem(f"flavors[{i}]", f"queue {queue} has no flavor {name!r}", hint))
    terms = list[dict[str, Any]]()
    for name in dict.fromkeys(wanted):
        wrong = [*_label_problems(name, wanted, labels)]
        found += wrong
        if not wrong and labels[name]:
            terms.append({"matchExpressions": [*_expressions(labels[name] or {})]})
    return terms, found


def _labels_by_flavor(cluster_queue: Mapping[str, Any], queues: Queues) -> dict[str, Mapping[str, Any] | None]:
    """Return flavor of a ClusterQueue -> labels of its nodes, None if they are not known."""
    labels: dict[str, Mapping[str, Any] | None] = {}
    for group in map(section, listed(section(cluster_queue, "spec").get("resourceGroups"))):
        for name in flavor_names(group):
            flavor = queues.find("ResourceFlavor", name)
            labels[name] = None
            if flavor is not None and first_unknown(flavor) is None:
                labels[name] = section(flavor, "spec", "nodeLabels")
    return labels


def _label_problems(
    name: str, wanted: Sequence[str], labels: Mapping[str, Mapping[str, Any] | None]
) -> Iterator[Problem]:
    """Yield why the labels of a flavor's nodes do not set it apart from the flavors that are not wanted."""
    own = labels[name]
    if own is None:
        why = f"the node labels of flavor {without_digest(name)} are unknown"
        yield Problem("flavors", why, "let the cluster have the ResourceFlavor, with labels that are known")
        return
    for other, theirs in labels.items():
        if other in wanted or theirs is None:
            continue
        if all(theirs.get(key, value) == value for key, value in own.items()):  # Kueue compares the keys that both have
            why = f"Kueue cannot tell the nodes of {without_digest(other)} from those of {without_digest(name)}"
            yield Problem("flavors", why, "give both flavors a label with one key and two values, or name both")


def _expressions(labels: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for key, value in labels.items():
        yield {"key": key, "operator": "In", "values": [value]}


def with_patch(
    train_job: dict[str, Any], runtime: Mapping[str, Any], terms: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a TrainJob whose pods that train run on nodes that match one of the terms; MPI's launcher runs anywhere."""
    steps = mounts.steps_of(runtime)
    if section(runtime, "spec", "mlPolicy").get("mpi") and "node" in steps:
        steps = ["node"]
    pod = {"spec": {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [*terms]}}}}}
    jobs = [{"name": step, "template": {"spec": {"template": pod}}} for step in steps]
    patch = {"manager": mounts.FLAVORS, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    spec = train_job["spec"]
    return {**train_job, "spec": {**spec, "runtimePatches": [*listed(spec.get("runtimePatches")), patch]}}


def affinity_problems(train_job: Mapping[str, Any], runtime: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield each required node affinity of the steps that train, which `flavors` would replace, or which would replace it."""
    steps = mounts.steps_of(runtime)
    jobs = [*replicated_jobs(section(runtime, "spec", "template", "spec"))]
    for patch in listed(section(train_job, "spec").get("runtimePatches")):
        jobs += patched_jobs(patch)
    for job in jobs:
        if job.name in steps and section(job.pod.spec, "affinity", "nodeAffinity").get(_REQUIRED):
            why = f'the step "{text(job.name)}" has a required node affinity already (runtime or runtime_patches)'
            yield Problem("flavors", why, "leave one of the two out")
