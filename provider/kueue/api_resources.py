"""Kinds of Kueue, and the API resources of their objects."""

from __future__ import annotations

from dataclasses import replace

from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kueue.objects import GROUP, KINDS, NAMESPACED, NEWEST, VERSIONS

WORKLOAD = Kind("kueue.x-k8s.io/v1beta2", "Workload", "workloads")
LOCAL_QUEUE = Kind("kueue.x-k8s.io/v1beta2", "LocalQueue", "localqueues")
CLUSTER_QUEUE = Kind("kueue.x-k8s.io/v1beta2", "ClusterQueue", "clusterqueues", False)
QUEUE_PRIORITY = Kind("kueue.x-k8s.io/v1beta2", "WorkloadPriorityClass", "workloadpriorityclasses", False)
COHORT = Kind("kueue.x-k8s.io/v1beta2", "Cohort", "cohorts", False)
RESOURCE_FLAVOR = Kind("kueue.x-k8s.io/v1beta2", "ResourceFlavor", "resourceflavors", False)
TOPOLOGY = Kind("kueue.x-k8s.io/v1beta2", "Topology", "topologies", False)
ADMISSION_CHECK = Kind("kueue.x-k8s.io/v1beta2", "AdmissionCheck", "admissionchecks", False)
MULTIKUEUE_CLUSTER = Kind("kueue.x-k8s.io/v1beta2", "MultiKueueCluster", "multikueueclusters", False)
MULTIKUEUE_CONFIG = Kind("kueue.x-k8s.io/v1beta2", "MultiKueueConfig", "multikueueconfigs", False)

PENDING_IN_LOCAL_QUEUE = Kind("visibility.kueue.x-k8s.io/v1beta2", "LocalQueue", "localqueues")
"""Of Kueue's visibility API: its subresource `pendingworkloads` has the waiting Workloads in Kueue's order."""
PENDING_IN_CLUSTER_QUEUE = Kind("visibility.kueue.x-k8s.io/v1beta2", "ClusterQueue", "clusterqueues", False)


def older(kind: Kind) -> Kind:
    """Return a kind in the version of Kueue before 0.15; conditions are the same in both."""
    return replace(kind, api_version=f"{GROUP}/{VERSIONS[1]}")


def api_resource(kind: str, version: str = NEWEST) -> Kind:
    """Return the API resource of one of `KINDS` in a version of Kueue's API."""
    return Kind(f"{GROUP}/{version}", kind, KINDS[kind], kind == NAMESPACED)
