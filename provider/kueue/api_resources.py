"""Kinds of Kueue, and the API resources of their objects."""

from __future__ import annotations

from pulumi_trainer.provider.kube.client.api_resources import Kind

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
