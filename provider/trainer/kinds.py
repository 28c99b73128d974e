"""API resources of JobSet, Trainer, the gang schedulers, and all kinds that a job consists of; Kueue's: `kueue.api_resources`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from pulumi_trainer.provider.kubernetes.client import api_resources as core
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kueue import api_resources as queues

JOBSET = Kind("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets")
TRAIN_JOB = Kind("trainer.kubeflow.org/v1alpha1", "TrainJob", "trainjobs")
TRAINING_RUNTIME = Kind("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", "trainingruntimes")
CLUSTER_RUNTIME = Kind("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", "clustertrainingruntimes", False)
POD_GROUP = Kind("scheduling.x-k8s.io/v1alpha1", "PodGroup", "podgroups")
VOLCANO_POD_GROUP = Kind("scheduling.volcano.sh/v1beta1", "PodGroup", "podgroups")
_NAMES = chain(vars(core).values(), vars(queues).values(), list(globals().values()))
ALL = tuple(value for value in _NAMES if isinstance(value, Kind))


def kind_of(document: Mapping[str, Any]) -> Kind:
    """Return the kind of a document."""
    return _BY_NAME[str(document.get("apiVersion")), str(document.get("kind"))]


_BY_NAME = {(kind.api_version, kind.kind): kind for kind in ALL}
