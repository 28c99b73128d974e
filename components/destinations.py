"""Where jobs run: `Local` and `Kubernetes`, and how the stack's configuration chooses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import pulumi
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.api.errors import Problem

from .arguments import Args

MODES = ("jobset", "trainer")


class Local(Args):
    """Processes on this machine.

    root: folder of jobs, logs and volumes; default `.pulumi-trainer` beside Pulumi.yaml. python: interpreter that stands in
    for the images; default: the one that runs the program.
    """

    root: str | None = None
    python: str | None = None


class Kubernetes(Args):
    """A cluster. Configuration `trainer:{mode,namespace,kubeconfig,context}` gives what is not given here.

    namespace: of the jobs, default `default`. mode: `jobset` (needs only JobSet in the cluster) or `trainer` (drives
    Kubeflow Trainer's own resources). kubeconfig: path; default as kubectl. context: default the current one.
    """

    namespace: pulumi.Input[str] | None = None
    mode: Literal["jobset", "trainer"] | None = None
    kubeconfig: pulumi.Input[str] | None = None
    context: pulumi.Input[str] | None = None


Destination = Local | Kubernetes


def choose(given: Destination | None) -> Destination:
    """What the program says, else `trainer:target` of the stack, else Local."""
    if given is not None:
        return given
    return Kubernetes() if pulumi.Config("trainer").get("target") == "kubernetes" else Local()


def problems(given: Any) -> list[Problem]:
    """What is wrong with the argument and the configuration."""
    if given is not None and not isinstance(given, (Local, Kubernetes)):
        return [Problem("target", f"must be Local(...) or Kubernetes(...), not {given!r}")]
    target = pulumi.Config("trainer").get("target")
    if target not in (None, "local", "kubernetes"):
        mend = "pulumi config set trainer:target local"
        return [Problem("trainer:target", f"must be local or kubernetes, not {target!r}", mend)]
    found = given.check() if given is not None else []
    mode = mode_of(choose(given))
    if mode not in MODES:
        found.append(Problem("trainer:mode", f"must be jobset or trainer, not {mode!r}"))
    elif mode == "trainer":
        why = "mode trainer renders (pulumi-trainer render --mode trainer) and cannot apply yet"
        found.append(Problem("trainer:mode", why, "use mode jobset"))
    return found


def mode_of(destination: Destination) -> str:
    """jobset or trainer."""
    if isinstance(destination, Local):
        return "jobset"
    return destination.mode or pulumi.Config("trainer").get("mode") or "jobset"


def namespace_of(destination: Destination) -> Any:
    """Namespace of the jobs."""
    given = destination.namespace if isinstance(destination, Kubernetes) else None
    return given if given is not None else (pulumi.Config("trainer").get("namespace") or "default")


def connection(destination: Destination) -> dict[str, Any]:
    """The `target` input of a resource: identity, and how to connect."""
    if isinstance(destination, Kubernetes):
        config = pulumi.Config("trainer")
        how = {k: getattr(destination, k) or config.get(k) for k in ("kubeconfig", "context")}
        return {"kind": "kubernetes", **{k: v for k, v in how.items() if v is not None}}
    root = destination.root or str(_project() / ".pulumi-trainer")
    return dynamic.local(root, destination.python or sys.executable)


def _project() -> Path:
    """The folder of Pulumi.yaml: the program may run in a folder below it."""
    here = Path.cwd()
    names = ("Pulumi.yaml", "Pulumi.yml")
    return next((f for f in (here, *here.parents) if any((f / n).is_file() for n in names)), here)
