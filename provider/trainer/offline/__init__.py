"""An offline cluster: the results of documents in a cluster with Kubeflow Trainer."""

from __future__ import annotations

from pulumi_trainer.provider.trainer.offline.cluster import Cluster, Result
from pulumi_trainer.provider.trainer.offline.render_limit import RenderLimit
from pulumi_trainer.provider.trainer.offline.verdicts import Verdicts, judge, report, unusable

__all__ = ["Cluster", "RenderLimit", "Result", "Verdicts", "judge", "report", "unusable"]
