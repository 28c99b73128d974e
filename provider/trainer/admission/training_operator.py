"""Recognises jobs of Training Operator v1, which Kubeflow Trainer replaces, and says which TrainJob does the same.

Sources: https://github.com/kubeflow/trainer/tree/v1.9.0/pkg/apis/kubeflow.org/v1 and
https://www.kubeflow.org/docs/components/trainer/operator-guides/migration/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kueue.labels import QUEUE

GUIDE = "https://www.kubeflow.org/docs/components/trainer/operator-guides/migration/"
STAGE = "training-operator"


@dataclass(frozen=True)
class _Kind:
    """A kind of job.

    Args:
        replicas: Field of `spec` with a Pod template for each role.
        nodes: The roles that train.
        runtime: The runtime of a TrainJob that trains the same.
    """

    replicas: str
    nodes: tuple[str, ...]
    runtime: str
    note: str = ""


KINDS = {
    "PyTorchJob": _Kind("pytorchReplicaSpecs", ("Master", "Worker"), "torch-distributed", "start the script with torchrun"),
    "TFJob": _Kind(
        "tfReplicaSpecs", ("Chief", "Master", "Worker"), "tensorflow",
        "Trainer has no policy that sets TF_CONFIG, which the catalogue's runtime tensorflow sets for workers; other roles"
        " need your own runtime with TensorFlowPolicy",
    ),
    "MPIJob": _Kind(
        "mpiReplicaSpecs", ("Worker",), "deepspeed-distributed",
        "with runLauncherAsNode in the runtime the launcher is one more node; mpirun gets hosts and slots from Trainer",
    ),
    "XGBoostJob": _Kind("xgbReplicaSpecs", ("Master", "Worker"), "xgboost-distributed", "the program reads DMLC_* variables"),
    "JAXJob": _Kind("jaxReplicaSpecs", ("Worker",), "jax-distributed", "the program reads JAX_* variables"),
    "PaddleJob": _Kind(
        "paddleReplicaSpecs", ("Master", "Worker"), "paddle", "Trainer has no policy for it; the catalogue has the runtime paddle"
    ),
}  # fmt: skip


def is_job(document: Mapping[str, Any]) -> bool:
    """Return whether a document is a job of Training Operator v1, or an MPIJob of MPI Operator."""
    return document.get("kind") in KINDS and str(document.get("apiVersion", "")).startswith("kubeflow.org/")


def successor(document: Mapping[str, Any]) -> Problem:
    """Return the problem with such a job: Kubeflow Trainer does not know it, and which TrainJob takes its place."""
    kind = str(document["kind"])
    operator = "Training Operator v1"
    if document["apiVersion"] == "kubeflow.org/v2beta1":
        operator = "MPI Operator"
    why = f"{kind} is a kind of {operator}, which Kubeflow Trainer replaces"
    return Problem("kind", why, f"write a TrainJob: {'; '.join(_parts(document, KINDS[kind]))}. Guide: {GUIDE}")


def _parts(document: Mapping[str, Any], kind: _Kind) -> Iterator[str]:
    spec, metadata = section(document, "spec"), section(document, "metadata")
    roles = section(spec, kind.replicas)
    counts = [section(roles, role).get("replicas", 1) for role in kind.nodes if role in roles]
    yield f"runtimeRef.name: {kind.runtime}"
    if counts and all(isinstance(count, int) for count in counts):
        yield f"trainer.numNodes: {sum(counts)}"
    yield "image, command, args, env and resourcesPerNode in trainer"
    processes = spec.get("nprocPerNode", spec.get("slotsPerWorker"))
    if isinstance(processes, int) or str(processes).isdigit():
        yield f"trainer.numProcPerNode: {processes}"
    elif processes is not None:
        yield (
            f"no numProcPerNode instead of nprocPerNode: {processes}; the default is a process for each GPU, or for"
            " each CPU without GPUs"
        )
    queue = section(metadata, "labels").get(QUEUE)
    if queue:
        yield f"keep the label {QUEUE}: {queue}"
    policy = section(spec, "runPolicy")
    if policy.get("backoffLimit") is not None:
        yield f"failurePolicy.maxRestarts: {policy['backoffLimit']} in the runtime's spec.template.spec, which restarts all nodes"
    if policy.get("activeDeadlineSeconds") is not None:
        yield f"spec.activeDeadlineSeconds: {policy['activeDeadlineSeconds']}"
    if policy.get("ttlSecondsAfterFinished") is not None:
        yield f"ttlSecondsAfterFinished: {policy['ttlSecondsAfterFinished']} in the runtime's spec.template.spec"
    if policy.get("schedulingPolicy") is not None:
        yield "podGroupPolicy in the runtime instead of schedulingPolicy"
    if spec.get("elasticPolicy") is not None:
        yield "a fixed number of nodes instead of elasticPolicy"
    if kind.note:
        yield kind.note
