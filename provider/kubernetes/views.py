"""A typed view of a JobSet: replicated jobs, Pods and containers.

A view reads any document, also one with unknown values, and neither checks nor changes it. A field that is missing or has
another type reads as empty. A view keeps the parts that it has read, so make another one of a document that has changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from pulumi_trainer.provider.kubernetes.values.accessors import Document, items, listed, section


@dataclass(frozen=True)
class Container:
    """A container of a Pod. is_init: Whether it is one of `initContainers`."""

    document: Document
    at: str
    is_init: bool = False

    @property
    def name(self) -> Any:
        return self.document.get("name")

    @property
    def is_sidecar(self) -> bool:
        """Whether it is an init container that runs beside the other containers."""
        return self.is_init and self.document.get("restartPolicy") == "Always"

    @property
    def env(self) -> list[Document]:
        return items(self.document, "env")

    @property
    def mounts(self) -> list[Document]:
        return items(self.document, "volumeMounts")

    @property
    def ports(self) -> list[Document]:
        return items(self.document, "ports")


@dataclass(frozen=True)
class Pod:
    """The spec of a Pod, or of a patch of a Pod."""

    spec: Document
    at: str = ""

    @cached_property
    def containers(self) -> list[Container]:
        return [Container(document, at) for at, document in entries(self.spec, "containers", self.at)]

    @cached_property
    def init_containers(self) -> list[Container]:
        return [Container(document, at, True) for at, document in entries(self.spec, "initContainers", self.at)]

    @cached_property
    def all_containers(self) -> list[Container]:
        """Init containers and containers, in the order in which they start."""
        return [*self.init_containers, *self.containers]

    @property
    def mounts(self) -> list[Document]:
        """The volume mounts of all containers."""
        return list(chain.from_iterable(container.mounts for container in self.all_containers))

    @property
    def ports(self) -> list[Document]:
        """The ports of all containers."""
        return list(chain.from_iterable(container.ports for container in self.all_containers))

    @property
    def volumes(self) -> list[Document]:
        return items(self.spec, "volumes")


@dataclass(frozen=True)
class ReplicatedJob:
    """A replicated job of a JobSet, of a runtime's template, or of a patch."""

    document: Document
    place: int = 0
    at: str = ""

    @property
    def name(self) -> Any:
        return self.document.get("name", "")

    @property
    def group(self) -> Any:
        """Name of the group that the replicated job belongs to."""
        return self.document.get("groupName", "default")

    @property
    def labels(self) -> Document:
        """Labels of its Jobs."""
        return section(self.document, "template", "metadata", "labels")

    @cached_property
    def job(self) -> Document:
        """Spec of its Jobs."""
        return section(self.document, "template", "spec")

    @cached_property
    def template(self) -> Document:
        """Template of its Pods, with their metadata."""
        return section(self.job, "template")

    @cached_property
    def pod(self) -> Pod:
        return Pod(section(self.template, "spec"), f"{self.at}.template.spec.template.spec")

    @property
    def depends_on(self) -> list[Document]:
        return items(self.document, "dependsOn")

    @property
    def replicas(self) -> int | None:
        """Number of Jobs; None if unknown."""
        return _count(self.document.get("replicas"), 1)

    @property
    def parallelism(self) -> int | None:
        """Number of Pods that each Job may run at the same time; None if unknown."""
        return _count(self.job.get("parallelism"), 1)

    @property
    def pods(self) -> int | None:
        """Number of Pods of all Jobs that run at the same time; None if unknown."""
        jobs, each = self.replicas, pods_at_once(self.job)
        if jobs is None or each is None:
            return None
        return jobs * each


def replicated_jobs(spec: Any, at: str = "spec") -> list[ReplicatedJob]:
    """Return the replicated jobs of a JobSet's spec."""
    jobs = enumerate(listed(section(spec).get("replicatedJobs")))
    return [ReplicatedJob(job, i, f"{at}.replicatedJobs[{i}]") for i, job in jobs if isinstance(job, dict)]


def jobs_of(jobset: Any) -> list[ReplicatedJob]:
    """Return the replicated jobs of a JobSet."""
    return replicated_jobs(section(jobset, "spec"))


def completions(job: Mapping[str, Any]) -> int | None:
    """Return how many Pods of a Job have to succeed; None if unknown. job: The Job's spec."""
    return _count(job.get("completions"), _count(job.get("parallelism"), 1))


def pods_at_once(job: Mapping[str, Any]) -> int | None:
    """Return how many Pods of a Job run at the same time; None if unknown. job: The Job's spec."""
    parallelism, wanted = _count(job.get("parallelism"), 1), completions(job)
    if parallelism is None or wanted is None:
        return None
    return min(parallelism, wanted)


def entries(document: Any, name: str, at: str) -> Iterator[tuple[str, Document]]:
    """Yield path and value of the mappings in a list of a document."""
    prefix = f"{at}.{name}" if at else name
    for place, item in enumerate(listed(section(document).get(name))):
        if isinstance(item, dict):
            yield f"{prefix}[{place}]", item


def _count(value: Any, default: int | None) -> int | None:
    if value is None:
        return default
    return value if isinstance(value, int) and not isinstance(value, bool) else None
