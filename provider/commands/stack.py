"""The jobs of the current stack, out of its state, which the Pulumi CLI reads."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pulumi_trainer.provider.api.status import Owner
from pulumi_trainer.provider.api.submission import from_state
from pulumi_trainer.provider.commands.reach import PATIENCE, Job, Where, show_warning
from pulumi_trainer.provider.kube.errors import Invalid, Problem, TargetFault
from pulumi_trainer.provider.targets import connection
from pulumi_trainer.provider.targets.local import LocalTarget

if TYPE_CHECKING:
    from pulumi_trainer.provider.kube.client.client import Client

_TYPE = "pulumi-python:dynamic/trainer:JobSet"


@dataclass(frozen=True)
class StackJob:
    """A job as the state of the stack has it."""

    resource: str
    component: str
    inputs: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.inputs["name"])

    @property
    def namespace(self) -> str:
        return str(self.inputs["namespace"])


def jobs(stack: str | None, wanted: str | None) -> list[Job]:
    """The jobs of the stack; those called `wanted`, if given."""
    found = resources(stack, wanted)
    if any(_hidden(job) for job in found):
        found = resources(stack, wanted, secrets=True)
    if any(job.inputs["target"].get("kind") != "local" for job in found):
        connection.configure(_configured(stack))
    patient: dict[int, Client] = {}  # one a cluster, so that its jobs are listed together
    return [_reached(job, patient) for job in found]


def resources(stack: str | None, wanted: str | None, *, secrets: bool = False) -> list[StackJob]:
    """As `jobs`, with their inputs. secrets: in clear."""
    state = json.loads(_pulumi(["stack", "export", *(["--show-secrets"] if secrets else [])], stack))
    found = [
        StackJob(
            r["urn"].rpartition("::")[2],
            r.get("parent", ""),
            {**r["inputs"], "objects": from_state(r["inputs"]["objects"])},
        )
        for r in (state.get("deployment") or {}).get("resources") or []
        if r.get("type") == _TYPE and not r.get("delete")
    ]
    chosen = [j for j in found if wanted in (None, j.resource, j.name)]
    if wanted and not chosen:
        names = ", ".join(j.resource for j in found) or "none"
        mend = f"it has: {names}; -n NAMESPACE looks for any job of a cluster"
        raise Invalid(Problem(wanted, "no such job in the stack", mend))
    return chosen


def _hidden(job: StackJob) -> bool:
    """Whether something of how to reach its target is a secret."""
    return any(isinstance(v, dict) for v in job.inputs["target"].values())


def _reached(job: StackJob, patient: dict[int, Client]) -> Job:
    """patient: the clients of this command, by the identity of their target's."""
    connection.warn_with(show_warning)
    target = connection.connect(job.inputs["target"])
    if isinstance(target, LocalTarget):
        return Job(job.namespace, job.name, job.resource, local=target)
    client = target.client
    client = patient.setdefault(id(client), client.within(PATIENCE))
    owner = Owner(str(job.inputs.get("owner", "")), str(job.inputs["target"].get("sweep") or ""))
    return Job(job.namespace, job.name, job.resource, client=client, owner=owner)


def cluster_of(stack: str | None) -> Where:
    """What `trainer:kubeconfig`, `trainer:context` and `trainer:namespace` of the stack say, as far as they are there."""
    found = _configured(stack, (*connection.CONFIGURED, "namespace"))
    return Where("", found.get("namespace", ""), found.get("context", ""), found.get("kubeconfig", ""))


def _configured(stack: str | None, names: Sequence[str] = connection.CONFIGURED) -> dict[str, str]:
    config = json.loads(_pulumi(["config", "--json"], stack))
    found = {name: (config.get(f"trainer:{name}") or {}).get("value") for name in names}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _pulumi(argv: list[str], stack: str | None) -> str:
    pulumi = shutil.which("pulumi")
    if pulumi is None:
        mend = "run it through make, or install the CLI; -n NAMESPACE asks a cluster without it"
        raise TargetFault(Problem("pulumi", "the Pulumi CLI is not on PATH", mend))
    full = [pulumi, *argv, "--non-interactive", *(["--stack", stack] if stack else [])]
    done = subprocess.run(full, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TargetFault(Problem(f"pulumi {' '.join(argv)}", done.stderr.strip() or f"exit code {done.returncode}"))
    return done.stdout
