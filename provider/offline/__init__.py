"""What a cluster with Kubeflow Trainer would make of documents, without one. The command line calls it."""

from __future__ import annotations

from .cluster import Cluster, Result
from .verdicts import (
    Verdicts,
    judge,
    report,
    unusable,
)

__all__ = ["Cluster", "Result", "Verdicts", "judge", "report", "unusable"]
