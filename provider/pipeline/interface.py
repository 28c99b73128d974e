"""The phases of the pipeline: one small protocol each, with Trainer's names. A plugin has those it takes part in.

`core` runs them in this order, for each phase in the order of `plugins.REGISTRY`. As upstream:
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/interface.go
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from pulumi_trainer.provider.api.errors import Problem

from .info import Info, TrainJob


@runtime_checkable
class Plugin(Protocol):
    """policies: the parts of a runtime that this plugin serves, such as "mlPolicy.torch"; render refuses others."""

    name: str
    policies: tuple[str, ...]


@runtime_checkable
class CustomValidationPlugin(Plugin, Protocol):
    """Rules that need the runtime and the TrainJob merged: upstream's validating webhook."""

    def validate(self, info: Info, train_job: TrainJob) -> Iterable[Problem]: ...


@runtime_checkable
class EnforceMLPolicyPlugin(Plugin, Protocol):
    """Writes what the runtime's `spec.mlPolicy` asks for into the Pod sets: counts, env, ports, volumes."""

    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None: ...


@runtime_checkable
class EnforcePodGroupPolicyPlugin(Plugin, Protocol):
    """Writes what the runtime's `spec.podGroupPolicy` asks for: labels and annotations of Pods."""

    def enforce_pod_group_policy(self, info: Info, train_job: TrainJob) -> None: ...


@runtime_checkable
class PreComponentBuilderPlugin(Plugin, Protocol):
    """Brings the template in line with the Pod sets before anything is built, and finds their host names."""

    def pre_build_sync(self, info: Info, train_job: TrainJob) -> None: ...


@runtime_checkable
class ComponentBuilderPlugin(Plugin, Protocol):
    """Builds objects; those of the first plugin in the registry are applied first."""

    def build(self, info: Info, train_job: TrainJob) -> Iterable[dict[str, Any]]: ...
