"""The phases of the pipeline: one small protocol each, with Trainer's names. A plugin has those it takes part in.

`registry.run` runs them in this order, for each phase in the order of `plugins.REGISTRY`, own ones after it. As upstream:
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/interface.go
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.pipeline.info import Info, TrainJob

if TYPE_CHECKING:
    from pulumi_trainer.provider.pipeline.policy import Policy


@runtime_checkable
class Plugin(Protocol):
    """policies: the parts of a runtime that this plugin serves, such as "mlPolicy.torch"; render refuses others. Of a
    plugin that is not built in: classes of its own."""

    name: str
    policies: tuple[str | type[Policy], ...]


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
class EnforcePodSpecPlugin(Plugin, Protocol):
    """Writes into the Pods what no policy of the runtime asks for."""

    def enforce_pod_spec(self, info: Info, train_job: TrainJob) -> None: ...


@runtime_checkable
class PreComponentBuilderPlugin(Plugin, Protocol):
    """Brings the template in line with the Pod sets before anything is built, and finds their host names."""

    def pre_build_sync(self, info: Info, train_job: TrainJob) -> None: ...


@runtime_checkable
class ComponentBuilderPlugin(Plugin, Protocol):
    """Builds objects; those of the first plugin in the registry are applied first."""

    def build(self, info: Info, train_job: TrainJob) -> Iterable[dict[str, Any]]: ...
