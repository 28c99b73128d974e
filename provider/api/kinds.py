"""The kinds of JobSet, Trainer and the gang schedulers, and all kinds that a job is made of. Kueue's are in `kueue.resources`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from pulumi_trainer.provider.kube.client import kinds as core
from pulumi_trainer.provider.kube.client.kinds import Kind
from pulumi_trainer.provider.kueue import resources as queues

JOBSET = Kind("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets")
TRAIN_JOB = Kind("trainer.kubeflow.org/v1alpha1", "TrainJob", "trainjobs")
TRAINING_RUNTIME = Kind("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", "trainingruntimes")
CLUSTER_RUNTIME = Kind("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", "clustertrainingruntimes", False)
POD_GROUP = Kind("scheduling.x-k8s.io/v1alpha1", "PodGroup", "podgroups")
VOLCANO_POD_GROUP = Kind("scheduling.volcano.sh/v1beta1", "PodGroup", "podgroups")
_NAMES = chain(vars(core).values(), vars(queues).values(), list(globals().values()))
ALL = tuple(value for value in _NAMES if isinstance(value, Kind))


def of(document: Mapping[str, Any]) -> Kind:
    """The kind of a document; KeyError for one that we do not know."""
    return _BY_NAME[str(document.get("apiVersion")), str(document.get("kind"))]


_BY_NAME = {(kind.api_version, kind.kind): kind for kind in ALL}
