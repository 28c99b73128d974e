"""The summary of a job that plans show and policy packs read: what it asks for, without its documents."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, TypedDict

from pulumi_trainer.plan.run_inputs import images_of
from pulumi_trainer.provider.kubernetes.container_table import ContainerRow, container_table
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kueue.labels import PRIORITY, QUEUE
from pulumi_trainer.provider.kueue.podsets import claimed_gpus, pod_sets
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.trainer.pipeline.resources import is_gpu
from typing_extensions import NotRequired


class JobSummary(TypedDict):
    """What a job asks for: the input `summary` of its resource, of type `pulumi-python:dynamic/trainer:JobSet`.

    Attributes:
        gpus: GPUs of all Pods together, as Kueue counts them: the sum of the requests, else the limits, of all resources with
            "gpu" in their names; and the GPUs that Pods claim. Absent if a quantity is not valid, or a claim is not known.
        images: Images of all containers, sorted.
        release: Release of the runtime; absent if it has none.
        queue: LocalQueue of the job; absent without a queue.
        priority: WorkloadPriorityClass of the job; absent without one.
    """

    nodes: int
    gpus: NotRequired[int]
    images: list[str]
    containers: list[ContainerRow]
    runtime: str
    release: NotRequired[str]
    queue: NotRequired[str]
    priority: NotRequired[str]


def summarize(jobset: Mapping[str, Any], nodes: Any, runtime: Mapping[str, Any], known: Queues) -> dict[str, Any]:
    """Return the `JobSummary` of a job. A value that is not known yet stays an unknown leaf."""
    labels = section(jobset, "metadata", "labels")
    found = {
        "nodes": nodes,
        "gpus": _count_gpus(jobset, known),
        "images": _images(jobset),
        "containers": container_table(jobset),
        "runtime": runtime.get("name", ""),
        "release": runtime.get("release"),
        "queue": labels.get(QUEUE),
        "priority": labels.get(PRIORITY),
    }
    return {name: value for name, value in found.items() if value is not None}


def _images(jobset: Mapping[str, Any]) -> Any:
    """Return the images of all containers, sorted; unknown if any is unknown."""
    images = [image for _, image in images_of(jobset)]
    return first_unknown(images) or sorted(set(images))


def _count_gpus(jobset: Mapping[str, Any], known: Queues) -> Any:
    total = Fraction(0)
    for pods in pod_sets(dict(jobset)):
        requests = pods.requests()
        if requests is None:
            return first_unknown(jobset)
        total += sum(amount for name, amount in requests.items() if is_gpu(name))
    claimed = claimed_gpus(pod_sets(dict(jobset), known), is_gpu)
    return None if claimed is None else int(total) + claimed
