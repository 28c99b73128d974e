"""XGBoost: the DMLC_* environment with the tracker's address and the number of workers.

Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/xgboost/xgboost.go
"""

from __future__ import annotations

from collections.abc import Iterator

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import listed, section
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.trainer.pipeline.apply import upsert, upsert_ports
from pulumi_trainer.provider.trainer.pipeline.info import (
    COMPLETION_INDEX,
    TRAINER_PORT,
    Info,
    PodSet,
    TrainJob,
    head_node,
    text,
)
from pulumi_trainer.provider.trainer.pipeline.interface import CustomValidationPlugin, EnforceMLPolicyPlugin
from pulumi_trainer.provider.trainer.pipeline.resources import gpus, int32, resources_per_node

RESERVED = frozenset({"DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER"})


class XGBoost(EnforceMLPolicyPlugin, CustomValidationPlugin):
    """Implements `mlPolicy.xgboost`."""

    name = "XGBoost"
    policies = ("mlPolicy.xgboost",)

    def validate(self, info: Info, train_job: TrainJob) -> Iterator[Problem]:
        if info.policy("xgboost") is None:
            return
        given = (train_job.trainer or {}).get("env")
        for place, env in enumerate(listed(given)):
            name = section(env).get("name")
            if name in RESERVED:
                why = f"{name} is reserved for the XGBoost runtime"
                yield Problem(f"spec.trainer.env[{place}]", why, type="FieldValueForbidden")

    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
        pod_set, trainer = info.trainer_pod_set, train_job.trainer
        if info.policy("xgboost") is None or pod_set is None or trainer is None:
            return
        info.take_nodes(train_job)
        if container := info.trainer_container:
            env = [
                {"name": "DMLC_TRACKER_URI", "value": head_node(train_job)},
                {"name": "DMLC_TRACKER_PORT", "value": str(TRAINER_PORT)},
                {"name": "DMLC_TASK_ID", "valueFrom": {"fieldRef": {"fieldPath": COMPLETION_INDEX}}},
                {"name": "DMLC_NUM_WORKER", "value": text(_workers(pod_set, info, train_job))},
            ]
            container.env = upsert(container.env, env, "name")
            container.ports = upsert_ports(container.ports, [{"containerPort": TRAINER_PORT}])


def _workers(pod_set: PodSet, info: Info, train_job: TrainJob) -> int | Unknown:
    """Return the number of workers: one for each GPU, or one for each node without GPUs, wrapped to 32 bits as in Go."""
    a_node = gpus(resources_per_node(info, train_job))
    for known in (a_node, pod_set.count):
        if isinstance(known, Unknown):
            return known
    assert isinstance(a_node, int) and isinstance(pod_set.count, int)
    return int32(pod_set.count * (int32(a_node) if a_node > 0 else 1))
