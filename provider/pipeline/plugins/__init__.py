"""The plugins, one file each. Another one is a file here and a line below.

Their order is that of each phase, and of the objects they build: a JobSet comes last, when what its Pods mount is
there. As upstream: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/registry.go
"""

from __future__ import annotations

from ..interface import Plugin
from .coscheduling import Coscheduling
from .flux import Flux
from .jax import JAX
from .jobset import JobSet
from .mpi import MPI
from .plainml import PlainML
from .torch import Torch
from .trainjobstatus import TrainJobStatus
from .volcano import Volcano
from .xgboost import XGBoost

REGISTRY: tuple[Plugin, ...] = (
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
