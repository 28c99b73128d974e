"""Rules about jobs that run without training as intended: launchers, processes, nodes, unused sections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import listed, section
from pulumi_trainer.provider.kubernetes.values.unknown import any_unknown
from pulumi_trainer.provider.trainer.admission.warnings.view import (
    View,
    gpus,
    listed_or_unknown,
    number,
    value_or_unknown,
    values_or_unknown,
)
from pulumi_trainer.provider.trainer.pipeline import validate
from pulumi_trainer.provider.trainer.pipeline.info import DATASET_INITIALIZER, MODEL_INITIALIZER, NODE
from pulumi_trainer.provider.trainer.pipeline.plugins.mpi import (
    HOSTFILE,
    HOSTFILE_FOLDER,
    HOSTFILE_LOCATION,
    LAUNCHER,
    OPEN_MPI,
    OPEN_MPI_5,
)

_CONNECTED = ("torch", "jax", "xgboost")
"""Policies that connect the nodes if there is a `trainer` section."""

_LISTS_HOSTS = re.compile(r"(^|\s)(--?hostfile|--?machinefile|--?host|-H)\b|PRTE_MCA_|prte_default_hostfile")
"""Parts of a command that tell mpirun its nodes."""

_LOCAL = re.compile(r"(--(rdzv[-_]endpoint|master[-_]addr)=?)(localhost|127\.0\.0\.1)\b.*|--standalone")


def local_rendezvous(view: View) -> Iterator[Problem]:
    """Yield a rendezvous on localhost with several nodes."""
    if not view.several_nodes or not view.has_policy("torch"):
        return
    words = view.words or []
    pairs = [f"{word}={after}" for word, after in pairwise(words)]
    found = next((pair for pair in (*words, *pairs) if _LOCAL.match(pair)), None)
    if found:
        why = f"with {found} each of the {view.nodes} nodes connects only to itself: they train {view.nodes} models"
        yield Problem("spec.trainer.command", why, f"leave it out, or name {view.name}-{NODE}-0-0.{view.name}")


def fewer_processes(view: View) -> Iterator[Problem]:
    """Yield fewer processes than GPUs on a node."""
    processes = _processes(view)
    if processes is not None and 0 < processes < view.gpus:
        why = f"is {processes} while a node has {view.gpus} GPUs: {view.gpus - processes} of them stay idle"
        yield Problem(_processes_at(view), why, "leave it out: then there is a process for each GPU")


def more_processes(view: View) -> Iterator[Problem]:
    """Yield more processes than GPUs on a node."""
    processes = _processes(view)
    if processes is not None and 0 < view.gpus < processes:
        why = f"is {processes} while a node has {view.gpus}: NCCL refuses two processes on one GPU"
        yield Problem(_processes_at(view), why, "leave it out: then there is a process for each GPU")


def _processes(view: View) -> int | None:
    """Return the processes of a node; None if neither runtime nor TrainJob sets them."""
    if not view.has_policy("torch", "mpi"):
        return None
    given = number((view.trainer or {}).get("numProcPerNode"))
    own = number((view.policy("mpi") or {}).get("numProcPerNode"))
    if given is not None:
        return given
    if own == 1:  # it becomes the number of GPUs
        return None
    return own


def _processes_at(view: View) -> str:
    given = (view.trainer or {}).get("numProcPerNode")
    if given is not None:
        return "spec.trainer.numProcPerNode"
    return "spec.mlPolicy.mpi.numProcPerNode"


def hidden_gpus(view: View) -> Iterator[Problem]:
    """Yield that resourcesPerNode hides the runtime's GPUs, as only the former are counted.

    Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/runtime.go
    """
    given = (view.trainer or {}).get("resourcesPerNode")
    if not isinstance(given, dict) or not view.has_policy("torch", "mpi", "xgboost") or _processes(view) is not None:
        return
    parts = [given.get(part, {}) for part in ("limits", "requests")]
    if not all(isinstance(part, dict) for part in parts) or gpus({"resources": given}):
        return
    kept = gpus(view.worker_container or {})
    if kept > 1:
        why = (
            f"names no GPUs, but the runtime gives each node {kept}: the node keeps its GPUs, but the number"
            " of processes is computed without them"
        )
        yield Problem("spec.trainer.resourcesPerNode", why, f"name the GPUs here too, or give numProcPerNode: {kept}")


def no_trainer(view: View) -> Iterator[Problem]:
    """Yield a TrainJob without trainer section: https://github.com/kubeflow/trainer/issues/4076"""
    if "trainer" in section(view.train_job, "spec") and view.trainer is not None:
        return
    policy = next((name for name in _CONNECTED if view.policy(name) is not None), None)
    if not isinstance(section(view.train_job, "spec").get("trainer"), (dict, type(None))) or not policy:
        return
    if view.several_nodes:
        nodes = f"{view.nodes} nodes train {view.nodes} models"
    elif policy == "torch" and view.gpus > 1:
        nodes = "one process trains"
    else:
        return
    why = f"is missing, so Trainer does not connect the nodes and their processes: {nodes}"
    yield Problem("spec.trainer", why, "add trainer: {} at least")


def no_trainer_step(view: View) -> Iterator[Problem]:
    """Yield a trainer section although the runtime has no trainer step."""
    if view.steps and view.steps_known and not view.trainers and view.trainer and not _own_policy(view):
        given = ", ".join(sorted(view.trainer))
        why = (
            f"applies to the replicated job with the ancestor trainer, but the runtime has none: {given} have no effect"
        )
        hint = "give its Job template (not its Pod template) the label trainer.kubeflow.org/trainjob-ancestor-step: trainer"
        yield Problem("spec.trainer", why, hint)


def second_trainer(view: View) -> Iterator[Problem]:
    """Yield replicated jobs with a second trainer, which is not connected to the first."""
    if view.has_policy(*_CONNECTED) and view.steps_known and not _own_policy(view):
        for step in view.trainers[1:]:
            why = (
                f"is a second trainer: {step.name} gets neither the number of nodes nor the variables that connect them"
            )
            yield Problem(f"{step.at}.template.metadata.labels", why, "keep the label on one trainer only")


def _own_policy(view: View) -> bool:
    """Return whether a policy of a user's plugin decides."""
    built_in = {"torch", "mpi", "jax", "xgboost", "flux"}
    return any(isinstance(value, dict) and name not in built_in for name, value in (view.ml_policy or {}).items())


def no_initializer(view: View) -> Iterator[Problem]:
    """Yield an initializer without step: validation uses the replicated job's name, rendering its label."""
    given = section(view.train_job, "spec", "initializer")
    for kind, ancestor in (("dataset", DATASET_INITIALIZER), ("model", MODEL_INITIALIZER)):
        if not isinstance(given.get(kind), dict) or not view.steps or not view.steps_known:
            continue
        names: list[Any] = []
        for step in view.steps:
            if step.ancestor == ancestor:
                containers = value_or_unknown(step.document, "template", "spec", "template", "spec", "containers")
                names += values_or_unknown(listed_or_unknown(containers), "name")
        there = ancestor in names or any_unknown(names)
        if not there:
            why = f"has no effect: no replicated job of the runtime has the ancestor {ancestor} and a container of that name"
            hint = f"give its Job template the label trainer.kubeflow.org/trainjob-ancestor-step: {ancestor}"
            yield Problem(f"spec.initializer.{kind}", why, hint)


def unvalidated_nodes(view: View) -> Iterator[Problem]:
    """Yield errors of the runtime's numNodes: Trainer's webhook validates only the TrainJob's, rendering uses both."""
    for problem in _unvalidated(view):
        if "LoRA" not in problem.why:
            nodes = _own_nodes(view)
            why = f"is {nodes} in the runtime, which Trainer's webhook does not check: {problem.where} {problem.why}"
            yield Problem("spec.mlPolicy.numNodes", why, "write numNodes: 1 into the TrainJob's trainer")


def unvalidated_lora(view: View) -> Iterator[Problem]:
    """Yield that LoRA has no effect with the runtime's number of nodes."""
    for problem in _unvalidated(view):
        if "LoRA" in problem.why:
            why = (
                f"LoRA has no effect: the runtime has {_own_nodes(view)} nodes, and on several nodes TorchTune"
                " trains all weights"
            )
            yield Problem("spec.trainer.args", why, "write numNodes: 1 into the TrainJob's trainer")


def _own_nodes(view: View) -> int | None:
    return number((view.ml_policy or {}).get("numNodes"))


def _unvalidated(view: View) -> list[Problem]:
    """Return what the webhook would reject if the TrainJob itself had the runtime's number of nodes, asked once for a view."""
    if "unvalidated" not in view.asked:
        view.asked["unvalidated"] = _find_unvalidated(view)
    return view.asked["unvalidated"]


def _find_unvalidated(view: View) -> list[Problem]:
    nodes, trainer = _own_nodes(view), view.trainer
    if trainer is None or "numNodes" in trainer or nodes is None or nodes < 2 or not view.has_policy("torch"):
        return []
    spec = {**view.train_job["spec"], "trainer": {**trainer, "numNodes": nodes}}
    try:
        found = dict.fromkeys(validate(view.runtime, {**view.train_job, "spec": spec}, view.release))
        if found:
            for known in validate(view.runtime, view.train_job, view.release):
                found.pop(known, None)
    except Invalid:
        return []
    return [*found]


def no_nodes(view: View) -> Iterator[Problem]:
    """Yield a TrainJob with zero nodes."""
    if number((view.trainer or {}).get("numNodes")) == 0:
        yield Problem("spec.trainer.numNodes", "is 0: the job is complete at once and trains nothing", "give 1 or more")


def several_launchers(view: View) -> Iterator[Problem]:
    """Yield several MPI launchers: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/core/trainingruntime.go"""
    nodes, launcher = _own_nodes(view), view.first_trainer
    if nodes is None or launcher is None or not view.has_policy("mpi"):
        return
    if nodes > 1 and launcher.name != NODE and launcher.pods != 1:
        why = (
            f"is {nodes}, and applies to the job with the ancestor trainer: {nodes} Pods of {launcher.name} each"
            " start mpirun"
        )
        yield Problem("spec.mlPolicy.numNodes", why, "leave it at 1, and give numNodes in the TrainJob's trainer")


def no_mpi(view: View) -> Iterator[Problem]:
    """Yield an MPI policy with an empty implementation."""
    implementation = (view.policy("mpi") or {}).get("mpiImplementation")
    launcher = next((step for step in view.template if step.name == LAUNCHER and step.node), None)
    if implementation == "" and launcher is not None:
        why = "is empty, which the schema admits: Trainer's controller then never creates the objects"
        yield Problem("spec.mlPolicy.mpi.mpiImplementation", why, f"write {OPEN_MPI}")


def no_hosts_for_open_mpi_5(view: View) -> Iterator[Problem]:
    """Yield a launcher without the variables of Open MPI 5: https://github.com/kubeflow/trainer/issues/4028"""
    launcher = view.step(LAUNCHER)
    if view.mode != "trainer" or not view.has_policy("mpi") or not view.several_nodes or launcher is None:
        return
    env = value_or_unknown(launcher.node, "env")
    names = values_or_unknown(listed(env), "name")
    variable = OPEN_MPI_5[HOSTFILE_LOCATION]
    given = [variable in names, any_unknown([env, *names]), _LISTS_HOSTS.search(" ".join(view.words or []))]
    if HOSTFILE_LOCATION in names and not any(given):
        why = (
            f"Open MPI 5 ignores {HOSTFILE_LOCATION}, the variable of Open MPI 4 that Trainer 2.3 sets: mpirun then starts all"
            f" ranks on the launcher instead of {view.nodes} nodes, and the job is complete"
        )
        hint = (
            f"set {variable}={HOSTFILE_FOLDER}/{HOSTFILE} in the env of the runtime's launcher, or pass --hostfile"
            f" {HOSTFILE_FOLDER}/{HOSTFILE} to mpirun; with Open MPI 4 or Trainer 2.4 ignore this warning"
        )
        yield Problem("spec.mlPolicy.mpi.mpiImplementation", why, hint)


def flux_without_nodes(view: View) -> Iterator[Problem]:
    """Yield a TrainJob for Flux without numNodes."""
    trainer = section(view.train_job, "spec").get("trainer")
    if view.has_policy("flux") and isinstance(trainer, (dict, type(None))) and (trainer or {}).get("numNodes") is None:
        why = "is missing: Trainer's controller never creates the objects of a Flux job without it"
        yield Problem("spec.trainer.numNodes", why, "set it, also for one node (1)")


def ignored_resources(view: View) -> Iterator[Problem]:
    """Yield resourcesPerNode that have no effect because the runtime has no mlPolicy.

    Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/core/trainingruntime.go
    """
    if section(view.runtime, "spec").get("mlPolicy") is None and section(view.trainer, "resourcesPerNode"):
        why = "has no effect: Trainer reads it only if the runtime has an mlPolicy"
        yield Problem("spec.trainer.resourcesPerNode", why, "give the runtime one, if only as mlPolicy: {numNodes: 1}")
