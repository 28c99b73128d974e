"""Rules about settings of a TrainJob that reach fewer containers than they seem to, or containers that they break.

Image, command and args go to the replicated jobs with the ancestor trainer; env and resources also to the nodes of an MPI job
whose launcher is a node. Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/jobset/builder.go
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import items, section
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.trainer.admission.warnings.view import (
    Step,
    View,
    listed_or_unknown,
    number,
    value_or_unknown,
)
from pulumi_trainer.provider.trainer.pipeline.info import NODE

_STARTS = ("command", "args")
_READ_BY_MPIRUN = ("OMPI_", "PRTE_", "PMIX_")
"""Beginnings of variables that mpirun reads on the launcher, or passes on by itself."""


def no_processes(view: View) -> Iterator[Problem]:
    """Yield a number of processes per node below 1, which the CRDs of some releases admit."""
    mpi = view.policy("mpi") or {}
    for where, given in (("spec.trainer", view.trainer or {}), ("spec.mlPolicy.mpi", mpi)):
        found = number(given.get("numProcPerNode"))
        if found is not None and found < 1:
            why = f"is {found}: Trainer {view.release.version} admits it, and the launcher has no process to start"
            yield Problem(f"{where}.numProcPerNode", why, "leave it out, or give a number of at least 1")


def replaced_commands(view: View) -> Iterator[Problem]:
    """Yield a command of the job that replaces different commands of several steps, such as sshd of MPI's nodes."""
    given = next((field for field in _STARTS if (view.trainer or {}).get(field)), None)
    if given is None or len(view.trainers) < 2 or not view.steps_known:
        return
    trainers = [step.name for step in view.trainers]
    own = {step.name: _words(step) for step in view.template if step.name in trainers}
    if first_unknown(list(own.values())) is not None or len(set(map(tuple, own.values()))) < 2:
        return
    names = " and ".join(own)
    replaced = [f"{shlex.join(map(str, words))} of {name}" for name, words in own.items() if words]
    why = f"applies to {names}, which all have the ancestor trainer, and replaces {' and '.join(replaced)}"
    hint = "keep the label on one of them only (MPI: the launcher), and write the image of the others into the runtime"
    yield Problem(f"spec.trainer.{given}", why, hint)


def _words(step: Step) -> list[Any]:
    """Return command and args of a step's container in the runtime; an unknown one is one word."""
    words: list[Any] = []
    for part in _STARTS:
        words += listed_or_unknown(value_or_unknown(step.node, part))
    return words


def settings_of_others(view: View) -> Iterator[Problem]:
    """Yield settings of the job that the replicated job `node` does not get, since another one has the ancestor trainer."""
    node, trainer, mpi = view.step(NODE), view.trainer, view.has_policy("mpi")
    known = view.steps_known and first_unknown(value_or_unknown(view.runtime, "spec", "mlPolicy")) is None
    if not known or node is None or node.node is None or trainer is None or not view.trainers or node in view.trainers:
        return
    for field, missing in _missing(trainer, node.node, commands=not mpi):
        if mpi and field == "env" and _passes_env(view):
            continue
        hint = f"write it into the runtime's replicated job {node.name} as well"
        if mpi and field == "env":
            hint = f"pass each with `-x NAME` to mpirun, or {hint}"
        elif mpi and field == "image":
            hint += "; Trainer 2.4 sets it for both"
        yield Problem(f"spec.trainer.{field}", f"applies to {view.trainers[0].name} only: {node.name} {missing}", hint)


def _passes_env(view: View) -> bool:
    words = view.words or []
    return "-x" in words or any(code.BOOTSTRAP_FILE in word for word in words)


def _missing(trainer: dict[str, Any], container: dict[str, Any], *, commands: bool) -> Iterator[tuple[str, str]]:
    """Yield each setting of the job that a container lacks, and what the container has instead; unknown ones count as right."""
    fields: tuple[str, ...] = ("image",)
    if commands:
        fields = ("image", *_STARTS)
    for field in fields:
        given, there = trainer.get(field), container.get(field)
        if not given or there == given or first_unknown([given, there]) is not None:
            continue
        if there:
            yield field, f"keeps {there}"
        else:
            yield field, "has none"
    names = [str(each.get("name")) for each in items(trainer, "env")]
    there = [each.get("name") for each in items(container, "env")]
    absent = [name for name in names if name not in there and not name.startswith(_READ_BY_MPIRUN)]
    if absent and first_unknown([trainer.get("env"), container.get("env")]) is None:
        yield "env", f"has no {', '.join(absent)}"
    given, there = section(trainer, "resourcesPerNode"), section(container, "resources")
    lacking = dict.fromkeys([*_other_amounts(given, there, "limits"), *_other_amounts(given, there, "requests")])
    if lacking and first_unknown([given, there]) is None:
        yield "resourcesPerNode", f"does not get its {', '.join(lacking)}"


def _other_amounts(given: dict[str, Any], there: dict[str, Any], part: str) -> list[str]:
    amounts = section(there, part)
    return [name for name, value in section(given, part).items() if str(amounts.get(name)) != str(value)]
