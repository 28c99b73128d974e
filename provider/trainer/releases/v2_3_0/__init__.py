"""Kubeflow Trainer 2.3.0 with JobSet 0.12.0."""

from __future__ import annotations

from pathlib import Path

from pulumi_trainer.provider.trainer.admission.cel_rules import PREDICATES
from pulumi_trainer.provider.trainer.pipeline import Release
from pulumi_trainer.provider.trainer.pipeline.plugins import BUILT_IN
from pulumi_trainer.provider.trainer.pipeline.plugins.flux import Flux

RELEASE = Release(
    "2.3.0",
    Path(__file__).parent,
    PREDICATES,
    tuple(Flux(refuses_no_process=True) if isinstance(plugin, Flux) else plugin for plugin in BUILT_IN),
    failure_is_final=False,
)
