"""The phases of the pipeline: a protocol for each, with Trainer's names. A plugin implements those of its phases.

`registry.run` runs them in this order, and each phase in the order of a release's plugins, users' plugins last. Source, with
the effects of 2.3.0 in their order: https://github.com/kubeflow/trainer/blob/8c0f5059bd51/pkg/runtime/framework/interface.go
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.trainer.pipeline.info import Info, TrainJob

if TYPE_CHECKING:
    from pulumi_trainer.provider.trainer.pipeline.policy import Policy


@runtime_checkable
class Plugin(Protocol):
    """A plugin.

    Attributes:
        policies: The parts of a runtime that the plugin implements, such as "mlPolicy.torch"; `render` rejects others. For a
            user's plugin: its Policy classes.
    """

    name: str
    policies: tuple[str | type[Policy], ...]


@runtime_checkable
class CustomValidationPlugin(Plugin, Protocol):
    """Validates runtime and TrainJob merged, as upstream's validating webhook."""

    def validate(self, info: Info, train_job: TrainJob) -> Iterable[Problem]: ...


@runtime_checkable
class EnforceMLPolicyPlugin(Plugin, Protocol):
    """Writes the effects of the runtime's `spec.mlPolicy` into the Pod sets: counts, env, ports, volumes."""

    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None: ...


@runtime_checkable
class EnforcePodGroupPolicyPlugin(Plugin, Protocol):
    """Writes the effects of the runtime's `spec.podGroupPolicy`: labels and annotations of Pods."""

    def enforce_pod_group_policy(self, info: Info, train_job: TrainJob) -> None: ...


@runtime_checkable
class EnforcePodSpecPlugin(Plugin, Protocol):
    """Writes changes into the Pods that no policy requests."""

    def enforce_pod_spec(self, info: Info, train_job: TrainJob) -> None: ...


@runtime_checkable
class PreComponentBuilderPlugin(Plugin, Protocol):
    """Updates the template from the Pod sets before objects are built, and sets their host names."""

    def pre_build_sync(self, info: Info, train_job: TrainJob) -> None: ...


@runtime_checkable
class ComponentBuilderPlugin(Plugin, Protocol):
    """Builds objects; those of the first plugin in the registry are applied first."""

    def build(self, info: Info, train_job: TrainJob) -> Iterable[dict[str, Any]]: ...
