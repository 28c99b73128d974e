"""The summary of a job that plans show and policy packs read: what it asks for, without its documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, TypedDict

from pulumi_trainer.provider.jobs.checkpoints import CHECKPOINT_DIR
from pulumi_trainer.provider.kubernetes.container_table import ContainerRow, container_table
from pulumi_trainer.provider.kubernetes.pod_security import host_access
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, section
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.kueue.labels import PRIORITY
from pulumi_trainer.provider.kueue.podsets import claimed_gpus, pod_sets
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.trainer.pipeline.resources import is_gpu
from typing_extensions import NotRequired


class JobSummary(TypedDict):
    """What a job asks for: the input `summary` of its resource, of type `pulumi-python:dynamic/trainer:JobSet`.

    Attributes:
        gpus: GPUs of all Pods together, as Kueue counts them: the sum of the requests, else the limits, of all resources with
            "gpu" in their names; and the GPUs that Pods claim. Absent if a quantity is not valid, or a claim is not known.
        images: Images of all containers and image volumes, sorted.
        host_access: How Pods use their node, in the words of Pod Security, such as "node: host namespaces (hostNetwork=true)";
            absent if they do not.
        saves_checkpoints: True if a container has the variable that says where to save checkpoints; else absent.
        release: Release of the runtime; absent if it has none.
        channel: Channel of the runtime; absent if it comes from none.
        queue: LocalQueue of the job; absent without a queue.
        priority: WorkloadPriorityClass of the job; absent without one.
    """

    nodes: int
    gpus: NotRequired[int]
    images: list[str]
    containers: list[ContainerRow]
    host_access: NotRequired[list[str]]
    saves_checkpoints: NotRequired[bool]
    runtime: str
    release: NotRequired[str]
    channel: NotRequired[str]
    queue: NotRequired[str]
    priority: NotRequired[str]


def summarize(
    jobset: Mapping[str, Any], queued: Mapping[str, Any], nodes: Any, runtime: Mapping[str, Any], known: Queues
) -> dict[str, Any]:
    """Return the `JobSummary` of a job. A value that is not known yet stays an unknown leaf.

    Args:
        queued: The object with the job's labels for Kueue: the TrainJob in mode trainer, else the JobSet.
    """
    labels = section(queued, "metadata").get("labels")
    priority = labels if isinstance(labels, Unknown) else section(labels).get(PRIORITY)
    found = {
        "nodes": nodes,
        "gpus": _count_gpus(jobset, known),
        "images": _images(jobset),
        "containers": container_table(jobset),
        "host_access": [*_host_access(jobset)] or None,
        "saves_checkpoints": _saves_checkpoints(jobset),
        "runtime": runtime.get("name", ""),
        "release": runtime.get("release"),
        "channel": runtime.get("channel"),
        "queue": known.queue_of(dict(queued)) or None,
        "priority": priority or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _images(jobset: Mapping[str, Any]) -> list[Any]:
    """Return the images of all containers and image volumes, sorted; those that are unknown come last."""
    images, unknown = set[str](), list[Unknown]()
    for image in _images_of(jobset):
        if isinstance(image, Unknown):
            unknown.append(image)
        else:
            images.add(image)
    return [*sorted(images), *unknown]


def _images_of(jobset: Mapping[str, Any]) -> Iterator[Any]:
    for job in jobs_of(jobset):
        for container in job.pod.all_containers:
            yield container.document.get("image", "")
        for volume in job.pod.volumes:
            if "image" in volume:
                yield section(volume, "image").get("reference", "")


def _count_gpus(jobset: Mapping[str, Any], known: Queues) -> Any:
    total = Fraction(0)
    for pods in pod_sets(dict(jobset)):
        requests = pods.requests()
        if requests is None:
            return first_unknown(pods.template) or first_unknown(jobset)
        total += sum(amount for name, amount in requests.items() if is_gpu(name))
    claimed = claimed_gpus(pod_sets(dict(jobset), known), is_gpu)
    return None if claimed is None else int(total) + claimed


def _host_access(jobset: Mapping[str, Any]) -> Iterator[str]:
    """Yield how the Pods of each step use their node, in the order of steps."""
    for job in jobs_of(jobset):
        for each in host_access(job.pod):
            yield f"{job.name}: {each}"


def _saves_checkpoints(jobset: Mapping[str, Any]) -> Any:
    """Return True if a container has the variable; None if none has it, unknown if one may have it."""
    unknown = None
    for job in jobs_of(jobset):
        for container in job.pod.all_containers:
            variables = container.document.get("env")
            if isinstance(variables, Unknown):
                unknown = variables
            for each in mappings(variables):
                if each.get("name") == CHECKPOINT_DIR:
                    return True
                unknown = unknown or first_unknown(each.get("name"))
    return unknown
