"""Opens the model registry that an input `registry` describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulumi_trainer.provider.registries.kubeflow_registry import KubeflowRegistry
from pulumi_trainer.provider.registries.mlflow_registry import MLflow
from pulumi_trainer.provider.registries.registry import MLFLOW, ModelRegistry


def open_registry(settings: Mapping[str, Any]) -> ModelRegistry:
    """Return the registry of an input `registry`, without a request."""
    uri, token = str(settings["uri"]).rstrip("/"), str(settings.get("token") or "")
    if settings["kind"] == MLFLOW:
        return MLflow(uri, token)
    return KubeflowRegistry(uri, token)
