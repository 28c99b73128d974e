"""The interface for writing plugins, which does not load Pulumi. `docs/plugins.md` explains it.

Names of this module stay. A plugin is an object with a `name`, `policies`, and the methods of its phases. It is registered by
`pulumi_trainer.register_plugin`, or by a package's entry point in the group `pulumi_trainer.plugins`.
"""

from __future__ import annotations

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import items
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.trainer.pipeline.apply import env_vars, upsert, upsert_ports
from pulumi_trainer.provider.trainer.pipeline.info import (
    COMPLETION_INDEX,
    NODE,
    TRAINER,
    TRAINER_PORT,
    Container,
    Info,
    PodSet,
    TrainJob,
)
from pulumi_trainer.provider.trainer.pipeline.interface import (
    ComponentBuilderPlugin,
    CustomValidationPlugin,
    EnforceMLPolicyPlugin,
    EnforcePodGroupPolicyPlugin,
    EnforcePodSpecPlugin,
    Plugin,
    PreComponentBuilderPlugin,
)
from pulumi_trainer.provider.trainer.pipeline.policy import Policy
from pulumi_trainer.provider.trainer.pipeline.resources import cpus, gpus, resources_per_node

__all__ = [
    "COMPLETION_INDEX",
    "NODE",
    "TRAINER",
    "TRAINER_PORT",
    "ComponentBuilderPlugin",
    "Container",
    "CustomValidationPlugin",
    "EnforceMLPolicyPlugin",
    "EnforcePodGroupPolicyPlugin",
    "EnforcePodSpecPlugin",
    "Info",
    "Invalid",
    "Plugin",
    "PodSet",
    "Policy",
    "PreComponentBuilderPlugin",
    "Problem",
    "TrainJob",
    "Unknown",
    "cpus",
    "env_vars",
    "first_unknown",
    "gpus",
    "items",
    "resources_per_node",
    "upsert",
    "upsert_ports",
]
