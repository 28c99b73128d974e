"""Kubeflow Trainer at commit 8c0f5059b of 2026-08-21, 58 commits after 2.3.0, with JobSet 0.12.0."""

from __future__ import annotations

from pathlib import Path

from pulumi_trainer.provider.trainer.admission.cel_rules import PREDICATES
from pulumi_trainer.provider.trainer.pipeline import Release
from pulumi_trainer.provider.trainer.pipeline.plugins import BUILT_IN

RELEASE = Release("8c0f5059b", Path(__file__).parent, PREDICATES, BUILT_IN)
