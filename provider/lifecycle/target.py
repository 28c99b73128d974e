"""What the lifecycle needs of a target, by resource. All methods raise `TrainerError` if a target fails."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from pulumi_trainer.provider.jobs.output_facts import Content
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.status import JobStatus, Loss, Owner, Presence
from pulumi_trainer.provider.jobs.submission import Consumer, Submission

T = TypeVar("T")
_Connect = Callable[[Mapping[str, Any]], T]


class TargetJobs(Protocol):
    """The jobs of a target.

    An existing job is changed or deleted only while it belongs to the owner of the submission, or to `owner` (None: to any). For
    a job of another one, `create`, `update` and `relabel` raise Conflict, and `delete` returns its owner; else `delete` returns
    what was deleted with the job.

    Args:
        adopt: Whether to take over a job of another owner that has the same objects.
        force: Whether to take back fields that were changed externally.
        was: Owner of the job in the state.
        beside: "Kind/name" of the other objects of the job.
        uid: UID of the only run to delete; empty for any.
        replaced: Whether a new run of the job follows, so that logs of this machine stay.
        uri: Output of the job, as its status has it.
    """

    def create(self, submission: Submission, *, adopt: bool = False) -> JobStatus: ...
    def check_adoption(self, submission: Submission) -> str: ...
    def update(self, submission: Submission, *, force: bool = False) -> JobStatus: ...
    def update_secrets(self, submission: Submission) -> None: ...
    def relabel(self, submission: Submission, was: Owner) -> None: ...
    def drift(self, namespace: str, name: str) -> dict[str, Any]: ...
    def status(self, namespace: str, name: str) -> JobStatus | None: ...
    def presence(self, namespace: str, name: str, beside: Collection[str]) -> Presence | None: ...
    def current_owner(self, namespace: str, name: str) -> Owner | None: ...
    def runs(self, namespace: str, name: str) -> list[Run]: ...
    def output_content(self, namespace: str, name: str, uri: str, /) -> Content: ...
    def progress(self, status: JobStatus) -> dict[str, Any] | None: ...
    def consumers(self, runtime: str) -> tuple[list[Consumer], str]: ...
    def delete(
        self, namespace: str, name: str, *, uid: str = "", owner: Owner | None = None, replaced: bool = False
    ) -> Owner | str | None: ...


class ClusterJobs(TargetJobs, Protocol):
    """The jobs of a cluster, which may be sent to worker clusters of MultiKueue."""

    def check_workers(self, namespace: str, name: str) -> None: ...
    def update_copies(self, submission: Submission) -> None: ...
    def abandon_copies(self, namespace: str, name: str, owner: Owner) -> None: ...


class TargetVolumes(Protocol):
    """The volumes of a target.

    `create` returns path and generation, and raises Conflict for a volume of another owner. `delete` returns the owner of a
    volume of another generation, or why the volume is not deleted yet; empty if it is deleted.

    Args:
        owner: URN of the component; in `lost` the owner in the state.
        sweep: Label of the stack; empty if a sweep must not delete the volume.
        claim: As in the inputs of a volume; None on this machine.
        generation: Generation in the state; a volume of another generation is not changed.
    """

    def create(
        self, namespace: str, name: str, owner: str, sweep: str, claim: Mapping[str, Any] | None = None
    ) -> dict[str, str]: ...
    def update(self, namespace: str, name: str, generation: str, claim: Mapping[str, Any]) -> None: ...
    def find(self, namespace: str, name: str) -> tuple[dict[str, str], Owner] | None: ...
    def relabel(self, namespace: str, name: str, generation: str, owner: str, sweep: str) -> None: ...
    def delete(self, namespace: str, name: str, generation: str) -> Owner | str: ...
    def lost(self, namespace: str, name: str, owner: Owner) -> Loss: ...
    def describe(self, namespace: str, name: str) -> str: ...


class ClusterVolumes(TargetVolumes, Protocol):
    """The volumes of a cluster, which worker clusters have as well."""

    def copy(
        self, namespace: str, name: str, owner: str, sweep: str, claim: Mapping[str, Any], generation: str
    ) -> None: ...


class ClusterRuntimes(Protocol):
    def apply(self, document: Mapping[str, Any], owner: str, sweep: str, *, adopt: bool | str = False) -> str: ...
    def check(
        self, document: Mapping[str, Any], owner: str, sweep: str | None, *, adopt: bool | str = False
    ) -> str: ...
    def edited(
        self, document: Mapping[str, Any], applied: Mapping[str, Any], owner: str, sweep: str
    ) -> list[str] | None: ...
    def find(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None: ...
    def owner(self, found: Mapping[str, Any]) -> Owner: ...
    def delete(self, document: Mapping[str, Any], uid: str, owner: Owner, *, force: bool = False) -> Owner | None: ...


class ClusterQueues(Protocol):
    """The queues of a cluster, and other objects that pulumi-kubernetes creates."""

    def reopen(self, name: str, version: str) -> None: ...
    def release(
        self,
        name: str,
        version: str,
        *,
        drain: bool,
        seconds: float,
        marks: Sequence[str],
        beside: Sequence[Mapping[str, str]],
    ) -> list[str]: ...
    def check_owner(self, objects: Sequence[Mapping[str, str]], marks: Sequence[str]) -> None: ...
    def restore(self, objects: Sequence[Mapping[str, Any]]) -> None: ...


class Target(Protocol):
    @property
    def jobs(self) -> TargetJobs: ...
    @property
    def volumes(self) -> TargetVolumes: ...
    def identity(self) -> dict[str, str]: ...
    def sweep(self, label: str, note: Callable[[str], None], /) -> Sequence[str]: ...


class Cluster(Target, Protocol):
    @property
    def jobs(self) -> ClusterJobs: ...
    @property
    def volumes(self) -> ClusterVolumes: ...
    @property
    def runtimes(self) -> ClusterRuntimes: ...
    @property
    def queues(self) -> ClusterQueues: ...


Connect = _Connect[Target]
"""Returns the target of an input `target`."""
ConnectCluster = _Connect[Cluster]
"""Returns the cluster of an input `target`."""
