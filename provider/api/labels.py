"""Labels of Kubeflow Trainer and of ours that several layers read.

Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/constants/constants.go
"""

from __future__ import annotations

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
"""On a Job template: which section of a TrainJob it takes (trainer, dataset-initializer, model-initializer)."""

FRAMEWORK = "trainer.kubeflow.org/framework"
"""On a runtime: its framework."""


RELEASE = "pulumi-trainer.dev/release"
"""Label and annotation of a runtime of a catalogue, and label of the jobs that were made from it: its release."""

MADE_BY = "pulumi-trainer.dev/made-by"
"""Annotation of an object of Kueue's: ORGANIZATION/PROJECT/STACK of the stack that it belongs to."""

ON_DELETE = "pulumi-trainer.dev/on-delete"
"""Annotation of an object of Kueue's: what becomes of it when it leaves its program: "drain", "retain"; none: it is deleted, a
ClusterQueue only without work."""

RECORD = "pulumi-trainer.dev/record"
"""Label of the ConfigMap that is a job's record; its value is "true". Annotation of a job's other objects: the record's uid,
which stays where somebody removes the record alone."""

RUNTIME = "pulumi-trainer.dev/runtime"
"""Label of a job: the name of its runtime."""
