"""Implements the Kubernetes target: jobs as JobSets, or TrainJobs, of one cluster.

Every call can be repeated after a crash at any point.
"""

from __future__ import annotations

from collections.abc import Callable

from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.targets.kubernetes.cluster import Cluster
from pulumi_trainer.provider.targets.kubernetes.cluster_jobs import ClusterJobs
from pulumi_trainer.provider.targets.kubernetes.cluster_volumes import ClusterVolumes
from pulumi_trainer.provider.targets.kubernetes.jobs import worker_copies
from pulumi_trainer.provider.targets.kubernetes.jobs.runtime_objects import RuntimeObjects
from pulumi_trainer.provider.targets.kubernetes.queues.draining import ClusterQueues


class KubernetesTarget(Cluster):
    """The jobs, volumes, runtimes and queues of one cluster; the arguments are those of `Cluster`."""

    def __init__(
        self, client: Client, *, cluster: Callable[[], str], mode: str = "jobset", namespace: str = "default"
    ) -> None:
        super().__init__(client, cluster=cluster, mode=mode, namespace=namespace)
        self.jobs = ClusterJobs(self)
        self.volumes = ClusterVolumes(self)
        self.runtimes = RuntimeObjects(client, self.reachable_client, self.trainer_release)
        self.queues = ClusterQueues(client)

    def sweep(self, label: str, note: Callable[[str], None] = lambda _: None) -> list[str]:
        """Delete all jobs of the namespace with the stack's label, and the stack's volumes that are not mounted.

        Args:
            note: Called with size and age of each volume that is deleted with its data.

        Returns:
            The names of the deleted jobs and volumes.
        """
        worker_copies.check_reachable(self.client, "")
        left = self.jobs.sweep(self.namespace, label)
        copies = worker_copies.sweep(self.client, self.namespace, label)
        return left + copies + self.volumes.sweep(self.namespace, label, note)
