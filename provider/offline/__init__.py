"""What a cluster with Kubeflow Trainer would make of documents, without one. The command line calls it."""

from __future__ import annotations

from pulumi_trainer.provider.offline.cluster import Cluster, Result
from pulumi_trainer.provider.offline.verdicts import (
    Verdicts,
    judge,
    report,
    unusable,
)

__all__ = ["Cluster", "Result", "Verdicts", "judge", "report", "unusable"]
