"""How many nodes a job has, and how many Pods train on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TENSORFLOW_ROLES = ("chief", "ps", "evaluator")
"""Roles beside the workers, which are the nodes: their counts in `mlPolicy.tensorflow`."""


def given_nodes(part: Mapping[str, Any] | None) -> Any:
    """Return `numNodes` of a TrainJob's `trainer` or of a runtime's `mlPolicy`; None if it has none."""
    return (part or {}).get("numNodes")


def nodes_of(trainer: Mapping[str, Any] | None, ml_policy: Mapping[str, Any] | None) -> Any:
    """Return the number of nodes of a job: the TrainJob's, else the runtime's, else 1. It may be an `Unknown`."""
    for part in (trainer, ml_policy):
        nodes = given_nodes(part)
        if nodes is not None:
            return nodes
    return 1


def workers_of(nodes: Any, mpi: Mapping[str, Any]) -> Any:
    """Return the Pods that MPI's launcher starts ranks on: one less if the launcher is one of the nodes, but at least one. mpi:
    `mlPolicy.mpi` of the runtime."""
    if mpi.get("runLauncherAsNode") is True and isinstance(nodes, int):
        return max(nodes - 1, 1)
    return nodes


def training_pods(nodes: Any, ml_policy: Mapping[str, Any]) -> Any:
    """Return the Pods of a job that train, start the training (MPI), or have another role in it (TensorFlow)."""
    if not isinstance(nodes, int):
        return nodes
    mpi, tensorflow = ml_policy.get("mpi"), ml_policy.get("tensorflow")
    if mpi is not None:
        return workers_of(nodes, mpi) + 1
    for role in TENSORFLOW_ROLES:
        count = (tensorflow or {}).get(role, 0)
        if not isinstance(count, int):
            return count
        nodes += count
    return nodes


def nodes_with_launcher(workers: int, nodes: int) -> int:
    """Return the nodes of a job of MPI whose launcher is one of them, from its rendered workers: the inverse of `workers_of`.
    workers: Pods of its workers, of which it has at least one, whatever it has asked for."""
    return min(workers + 1, max(nodes, workers))
