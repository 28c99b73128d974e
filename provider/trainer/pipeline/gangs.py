"""Splits the PodGroup of a job into one for each stage: the replicated jobs that start together.

Trainer creates one PodGroup for all Pods of a job, initializers included. It waits forever if some Pods are only created after
others have ended (https://github.com/kubeflow/trainer/issues/2525).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

from pulumi_trainer.provider.kubernetes.values.accessors import items, section
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, any_unknown
from pulumi_trainer.provider.trainer.pipeline.info import Info, PodSet, TrainJob
from pulumi_trainer.provider.trainer.pipeline.plugins.coscheduling import Coscheduling
from pulumi_trainer.provider.trainer.pipeline.plugins.volcano import Volcano

_PLUGINS: dict[str, Coscheduling | Volcano] = {"coscheduling": Coscheduling(), "volcano": Volcano()}
"""Name of the policy -> its plugin."""


def split_by_stage(objects: list[dict[str, Any]], info: Info, job: TrainJob) -> None:
    """Replace the PodGroups of the plugins, and the references of the Pods to them, in place.

    A job of one stage keeps the names of Trainer; else a stage is called `<job>.<its first replicated job>`, which is not a valid
    name of another job. All Jobs of a replicated job count; upstream counts one.
    """
    stages = _stages(info)
    for policy, plugin in _PLUGINS.items():
        at = [place for place, document in enumerate(objects) if _built_by(plugin, document, job)]
        if not at or info.gang(policy) is None:  # of a plugin of the user
            continue
        groups: list[dict[str, Any]] = []
        for place, stage in enumerate(stages):
            name = next((each.name for each in stage if isinstance(each.name, str)), place)
            own = job
            if len(stages) > 1:
                own = replace(job, name=f"{job.name}.{name}")
            part = replace(info, pod_sets=[*map(_multiply_by_replicas, stage)], pod_labels={}, pod_annotations={})
            groups += plugin.build(part, own)
            plugin.enforce_pod_group_policy(part, own)
            for pod_set in stage:
                _set_pod_group(pod_set, part)
        objects[at[0] : at[0] + 1] = groups


def _built_by(plugin: Coscheduling | Volcano, document: dict[str, Any], job: TrainJob) -> bool:
    found = document["kind"], document["apiVersion"], document["metadata"]["name"]
    return found == ("PodGroup", plugin.api_version, job.name)


def _stages(info: Info) -> list[list[PodSet]]:
    """Return the pod sets by stage: those with the same dependsOn, or each alone with InOrder."""
    in_order = section(info.spec, "startupPolicy").get("startupPolicyOrder") == "InOrder"
    stages: dict[Any, list[PodSet]] = {}
    for place, pod_set in enumerate(info.pod_sets):
        stage: Any = place
        if not in_order:
            stage = _waits_for(pod_set, place)
        stages.setdefault(stage, []).append(pod_set)
    return list(stages.values())


def _waits_for(pod_set: PodSet, place: int) -> Any:
    given = pod_set.job.get("dependsOn") or []
    pairs = [(each.get("name"), each.get("status")) for each in items(pod_set.job, "dependsOn")]
    if not isinstance(given, list) or len(pairs) < len(given) or any_unknown(chain.from_iterable(pairs)):
        return place  # unknown; a stage of its own does no harm
    return frozenset(pairs)


def _multiply_by_replicas(pod_set: PodSet) -> PodSet:
    """Return a PodSet with the Pods of all replicas of its job."""
    replicas: Any = pod_set.job.get("replicas", 1)
    count: Any = pod_set.count
    if isinstance(replicas, Unknown):
        count = replicas
    elif not isinstance(count, Unknown):
        count = count * replicas
    return replace(pod_set, count=count)


def _set_pod_group(pod_set: PodSet, info: Info) -> None:
    metadata = section(pod_set.job, "template", "spec", "template", "metadata")
    for part, values in (("labels", info.pod_labels), ("annotations", info.pod_annotations)):
        if isinstance(metadata.get(part), dict):
            metadata[part].update(values)
