"""PlainML: number of nodes and environment for runtimes without an mlPolicy of their own, and for those of xgboost and flux.

Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/plainml/plainml.go
"""

from __future__ import annotations

from pulumi_trainer.provider.trainer.pipeline.apply import env_vars, upsert
from pulumi_trainer.provider.trainer.pipeline.info import Info, TrainJob
from pulumi_trainer.provider.trainer.pipeline.interface import EnforceMLPolicyPlugin


class PlainML(EnforceMLPolicyPlugin):
    """Implements runtimes without a policy of torch, mpi or jax."""

    name = "PlainML"
    policies = ()

    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
        """Set nodes and env unless torch, mpi or jax is set: also for xgboost and flux, and without any policy."""
        trainer = train_job.trainer
        if trainer is None or any(info.policy(name) is not None for name in ("torch", "mpi", "jax")):
            return
        info.take_nodes(train_job)
        if container := info.trainer_container:
            container.env = upsert(container.env, env_vars(trainer.get("env")), "name")
