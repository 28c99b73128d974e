"""The built-in plugins of the newest release, one file each, in the order of each phase and of the objects they build.

The JobSet comes last, after the objects that its Pods mount. Source:
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/registry.go
"""

from __future__ import annotations

from pulumi_trainer.provider.trainer.pipeline.interface import Plugin
from pulumi_trainer.provider.trainer.pipeline.plugins.coscheduling import Coscheduling
from pulumi_trainer.provider.trainer.pipeline.plugins.flux import Flux
from pulumi_trainer.provider.trainer.pipeline.plugins.jax import JAX
from pulumi_trainer.provider.trainer.pipeline.plugins.jobset import JobSet
from pulumi_trainer.provider.trainer.pipeline.plugins.mpi import MPI
from pulumi_trainer.provider.trainer.pipeline.plugins.plainml import PlainML
from pulumi_trainer.provider.trainer.pipeline.plugins.torch import Torch
from pulumi_trainer.provider.trainer.pipeline.plugins.trainjobstatus import TrainJobStatus
from pulumi_trainer.provider.trainer.pipeline.plugins.volcano import Volcano
from pulumi_trainer.provider.trainer.pipeline.plugins.xgboost import XGBoost

BUILT_IN: tuple[Plugin, ...] = (
    Torch(),
    MPI(),
    JAX(),
    XGBoost(),
    Flux(),
    PlainML(),
    Coscheduling(),
    Volcano(),
    TrainJobStatus(),
    JobSet(),
)
