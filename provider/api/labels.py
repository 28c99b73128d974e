"""Labels of Kubeflow Trainer that several layers read.

Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/constants/constants.go
"""

from __future__ import annotations

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
"""On a Job template: which section of a TrainJob it takes (trainer, dataset-initializer, model-initializer)."""

FRAMEWORK = "trainer.kubeflow.org/framework"
"""On a runtime: its framework."""
