"""JAX: the JAX_* environment for jax.distributed.initialize.

Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/jax/jax.go
"""

from __future__ import annotations

from pulumi_trainer.provider.trainer.pipeline.apply import upsert, upsert_ports
from pulumi_trainer.provider.trainer.pipeline.info import (
    COMPLETION_INDEX,
    TRAINER_PORT,
    Info,
    TrainJob,
    head_node,
    text,
)
from pulumi_trainer.provider.trainer.pipeline.interface import EnforceMLPolicyPlugin


class JAX(EnforceMLPolicyPlugin):
    """Implements `mlPolicy.jax`."""

    name = "JAX"
    policies = ("mlPolicy.jax",)

    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
        """Set JAX_* variables. The TrainJob's own env overrides them, as the JobSet plugin writes it later."""
        pod_set, trainer = info.trainer_pod_set, train_job.trainer
        if info.policy("jax") is None or pod_set is None or trainer is None:
            return
        info.take_nodes(train_job)
        if container := info.trainer_container:
            env = [
                {"name": "JAX_NUM_PROCESSES", "value": text(pod_set.count)},
                {"name": "JAX_PROCESS_ID", "valueFrom": {"fieldRef": {"fieldPath": COMPLETION_INDEX}}},
                {"name": "JAX_COORDINATOR_ADDRESS", "value": f"{head_node(train_job)}:{TRAINER_PORT}"},
            ]
            container.env = upsert(container.env, env, "name")
            container.ports = upsert_ports(container.ports, [{"containerPort": TRAINER_PORT}])
