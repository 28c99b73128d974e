"""The volumes of a cluster: PersistentVolumeClaims, and their copies in the worker clusters of MultiKueue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pulumi_trainer.provider.jobs.status import Loss, Owner
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.targets.kubernetes.cluster import Cluster
from pulumi_trainer.provider.targets.kubernetes.jobs import worker_copies
from pulumi_trainer.provider.targets.kubernetes.storage import claims


class ClusterVolumes:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.client = cluster.client

    def create(
        self, namespace: str, name: str, owner: str, sweep: str, claim: Mapping[str, Any] | None = None
    ) -> dict[str, str]:
        """Create a PersistentVolumeClaim, and return its path and generation. Safe to repeat; existing data stays."""
        made = claims.create(self.client, namespace, name, owner, sweep, claim or {})
        self.copy(namespace, name, owner, sweep, claim or {}, made["generation"])
        return made

    def copy(
        self, namespace: str, name: str, owner: str, sweep: str, claim: Mapping[str, Any], generation: str
    ) -> None:
        """Create a claim of the same name and generation in each worker cluster of MultiKueue. Safe to repeat."""
        for cluster, worker in self.client.workers.items():
            with worker_copies.in_worker(cluster):
                claims.create(worker, namespace, name, owner, sweep, claim, generation)

    def update(self, namespace: str, name: str, generation: str, claim: Mapping[str, Any]) -> None:
        """Change the size of a claim, and whether a sweep leaves the claim alone."""
        claims.update(self.client, namespace, name, generation, claim)
        for cluster, worker in self.client.workers.items():
            with worker_copies.in_worker(cluster):
                claims.update(worker, namespace, name, generation, claim)

    def find(self, namespace: str, name: str) -> tuple[dict[str, str], Owner] | None:
        """Return path and generation of a claim, and its owner; None if not found."""
        return claims.read(self.client, namespace, name)

    def relabel(self, namespace: str, name: str, generation: str, owner: str, sweep: str) -> None:
        """Write our owner and label on a claim that came from another stack, if it is of that generation."""
        for client in (self.client, *self.client.workers.values()):
            claims.relabel(client, namespace, name, generation, owner, sweep)

    def lost(self, namespace: str, name: str, owner: Owner) -> Loss:
        """Return whether a volume that its owner created before was lost, without a request for an existing volume alone."""
        return self.cluster.overview(namespace).lost_claim(name, owner)

    def describe(self, namespace: str, name: str) -> str:
        """Return size and age of a volume; empty if it has no data."""
        return claims.describe(self.client, namespace, name)

    def delete(self, namespace: str, name: str, generation: str) -> Owner | str:
        """Delete a claim with all its data."""
        worker_copies.check_reachable(self.client, f"{namespace}/{name}")
        for cluster, worker in self.client.workers.items():
            with worker_copies.in_worker(cluster):
                claims.delete(worker, namespace, name, generation)
        return claims.delete(self.client, namespace, name, generation)

    def review(
        self, namespace: str, name: str, claim: Mapping[str, Any], job: str, owner: str, *, adopt: bool
    ) -> tuple[list[Problem], list[Problem]]:
        """Return refusals and warnings about a claim that is to be created."""
        client = self.cluster.reachable_client(namespace)
        found = client.get(kinds.CLAIM, namespace, name)
        if found is None:
            return claims.review(client, namespace, name, claim)
        taken, record = claims.ownership_problems(found, owner), self.cluster.overview(namespace).record(job)
        if record is None or not claims.is_owned_by(found, record.whose):
            return taken, []
        if not adopt:
            return [], []  # the URN of an own job differs if its stack was renamed
        return [], taken

    def sweep(self, namespace: str, label: str, note: Callable[[str], None]) -> list[str]:
        """Delete the claims with the stack's label that are not mounted, and return their names. note: Called with size and age
        of each claim that may have data."""
        swept = claims.sweep(self.client, namespace, label, note)
        for cluster, worker in self.client.workers.items():
            with worker_copies.in_worker(cluster):
                swept += [f"{volume} in {cluster}" for volume in claims.sweep(worker, namespace, label, note)]
        return swept
