"""Reads the jobs of a stack from its state, with the Pulumi CLI."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulumi_trainer.provider.jobs.identity import program_of
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, Refused, TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, only, section, text
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs
from pulumi_trainer.provider.lifecycle.state_format import FORGET, check_format
from pulumi_trainer.provider.service.reach import (
    COMMAND_SECONDS,
    ReachedJob,
    Where,
    in_project,
    project_file,
    project_folder,
    show_warning,
)
from pulumi_trainer.provider.service.trust import kubeconfig_check
from pulumi_trainer.provider.targets import connection
from pulumi_trainer.provider.targets.local import LocalTarget
from pulumi_trainer.provider.targets.local.machine import host_id

if TYPE_CHECKING:
    from pulumi_trainer.provider.kubernetes.client.client import Client

_INSTALL = "https://www.pulumi.com/docs/iac/download-install/"
DYNAMIC = "pulumi-python:dynamic/trainer:"
_TYPE = f"{DYNAMIC}JobSet"
_SIGNATURE = "4dabf18193072939515e22adb298388d"
"""Key of a secret in an exported state."""


@dataclass(frozen=True)
class StackJob:
    """A job in the state of the stack.

    Args:
        inputs: Inputs of its resource, with the identity that its target has given to the run.
    """

    urn: str
    component: str
    inputs: JobInputs
    outputs: dict[str, Any] = field(default_factory=dict)

    @property
    def resource(self) -> str:
        return self.urn.rpartition("::")[2]


def jobs(stack: str | None, wanted: str | None, project: str = ".", *, secrets: bool = False) -> list[ReachedJob]:
    """Return the jobs of a stack, with the connections to them."""
    found = resources(stack, wanted, project=project)
    if any(_has_secret(job.inputs.target) or (secrets and job.inputs.secrets) for job in found):
        found = resources(stack, wanted, project=project, secrets=True)
    if any(job.inputs.target.get("kind") != "local" for job in found):
        connection.configure(configured(stack, project))
    clients: dict[int, Client] = {}  # one for each cluster, so that its jobs are listed together
    check = kubeconfig_check(project)
    connected = [_connected(job, clients, check) for job in found]
    if not secrets:
        return connected
    return [replace(each, submission=job.inputs.submission()) for each, job in zip(connected, found, strict=True)]


def resources(stack: str | None, wanted: str | None, *, project: str = ".", secrets: bool = False) -> list[StackJob]:
    found = []
    for resource in _exported_resources(stack, project, secrets=secrets):
        if resource.get("type") == _TYPE and not resource.get("delete"):
            inputs = resource["inputs"]
            if secrets:
                inputs = _decrypted(inputs)
            outputs = section(resource, "outputs")
            inputs = {**inputs, **only(outputs, ("identity",))}
            try:
                known = JobInputs.from_state(inputs)
            except KeyError as error:
                why = f"its state cannot be read: it lacks {error}"
                raise Refused(Problem(resource["urn"], why, FORGET)) from None
            found.append(StackJob(resource["urn"], resource.get("parent", ""), known, outputs))
    chosen = [j for j in found if wanted in (None, j.resource, j.inputs.name)]
    if wanted and not chosen:
        names = [j.resource for j in found]
        listed = "the stack has no jobs"
        if names:
            listed = f"available: {', '.join(names)}"
        hint = f"{did_you_mean(wanted, names)} {listed}".strip()
        raise Invalid(Problem(wanted, "no such job in the stack", hint))
    return chosen


def _exported_resources(stack: str | None, project: str, *, secrets: bool) -> list[dict[str, Any]]:
    """Return the resources in the exported state of a stack. secrets: Whether the values of secrets are in plain text."""
    command = ["stack", "export"]
    if secrets:
        command.append("--show-secrets")
    return _current_resources(section(json.loads(_pulumi(command, stack, project)), "deployment"), project)


def _current_resources(deployment: Mapping[str, Any], project: str) -> list[dict[str, Any]]:
    """Return the resources of a deployment, with the current folders of jobs on this machine."""
    found, folder = mappings(deployment.get("resources")), project_folder(project)
    for each in found:
        if str(each.get("type")).startswith(DYNAMIC):
            check_format(str(each.get("urn")), section(each, "inputs"))
    if folder is None:
        return list(found)
    return [_in_current_folder(each, folder) for each in found]


def _in_current_folder(resource: dict[str, Any], project: Path) -> dict[str, Any]:
    """Return a resource of this machine with the current root folder of its jobs, if that has moved with the project; `pulumi up`
    writes the new place into the state.
    """
    target = section(resource, "inputs", "target")
    was = text(target.get("root"))
    now = project / Path(was).name
    if not was or target.get("host") != host_id() or Path(was).exists() or not (now / "jobs").is_dir():
        return resource
    return {**resource, "inputs": {**resource["inputs"], "target": {**target, "root": str(now)}}}


@dataclass(frozen=True)
class State:
    """The state of a stack.

    Args:
        resources: The resources, without those that wait for their deletion; the values of secrets are decrypted.
        local_root: Default root of jobs on this machine; empty if the stack runs them in a cluster.
        creating: URNs of resources that an engine was creating when it was killed: whether they exist is not recorded.
    """

    program: str
    resources: list[dict[str, Any]]
    local_root: str
    creating: list[str] = field(default_factory=list)


def read_state(stack: str | None, project: str = ".") -> State:
    """Return the state of a stack, of all resources."""
    deployment = section(json.loads(_pulumi(["stack", "export"], stack, project)), "deployment")
    resources = _current_resources(deployment, project)
    if any(_has_secret(section(each, "inputs", "target")) for each in resources):
        resources = _decrypted(_exported_resources(stack, project, secrets=True))
    kept = [{"inputs": {}, "outputs": {}, **each} for each in resources if not each.get("delete")]
    programs = [program_of(str(each.get("urn"))) for each in kept]
    folder = project_folder(project)
    names = configured(stack, project, ("target",))
    local_root = ""
    if folder is not None and names.get("target") != "kubernetes":
        local_root = str(folder / ".pulumi-trainer")
    program = next(filter(None, programs), "") or _program(stack, project, folder)
    creating = []
    for each in mappings(deployment.get("pending_operations")):
        if each.get("type") == "creating":
            creating.append(text(section(each, "resource").get("urn")))
    return State(program, kept, local_root, creating)


def _program(stack: str | None, project: str, folder: Path | None) -> str:
    """Return "project/stack" of a stack without resources; empty if it has no project here."""
    if folder is None:
        return ""
    import yaml

    file = project_file(folder)
    assert file is not None
    settings = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    name = stack or _pulumi(["stack", "--show-name"], None, project).strip()
    return f"{settings.get('name', '')}/{name.rpartition('/')[2]}"


def _has_secret(target: Mapping[str, Any]) -> bool:
    """Return whether the connection to a target contains a secret."""
    return any(isinstance(value, dict) and _SIGNATURE in value for value in target.values())


def _decrypted(value: Any) -> Any:
    """Return a value of an exported state with its secrets in plain text."""
    if isinstance(value, list):
        return [*map(_decrypted, value)]
    if not isinstance(value, dict):
        return value
    if _SIGNATURE in value and isinstance(value.get("plaintext"), str):
        return _decrypted(json.loads(value["plaintext"]))
    return {key: _decrypted(each) for key, each in value.items()}


def _connected(job: StackJob, clients: dict[int, Client], check: Callable[[str], None]) -> ReachedJob:
    connection.warn_with(show_warning)
    target = connection.connect(job.inputs.target, check)
    uid, phase = [text(job.outputs.get(name)) for name in ("uid", "phase")]
    whose, stored = job.inputs.whose, job.inputs
    known = ReachedJob(stored.namespace, stored.name, job.resource, owner=whose, uid=uid, phase=phase, stored=stored)
    if isinstance(target, LocalTarget):
        return replace(known, local=target)
    client = target.client
    return replace(known, client=clients.setdefault(id(client), client.within(COMMAND_SECONDS)))


def cluster_of(stack: str | None) -> Where:
    """Return the cluster that `trainer:kubeconfig`, `trainer:context` and `trainer:namespace` of the stack name.

    Raises:
        Invalid: The configuration of the stack is elsewhere, since the current folder is no project.
        TargetFault: The user has to trust the kubeconfig.
    """
    if stack and not in_project("."):
        why = f"the configuration of {stack}, which names its cluster, is in the folder of its project"
        raise Invalid(Problem("--stack", why, "change to that folder, or give --context and --namespace instead"))
    found = configured(stack, names=(*connection.CONFIGURED, "namespace"))
    if found.get("kubeconfig"):
        kubeconfig_check(".")(found["kubeconfig"])
    return Where("", found.get("namespace", ""), found.get("context", ""), found.get("kubeconfig", ""))


def configured(stack: str | None, project: str = ".", names: Sequence[str] = connection.CONFIGURED) -> dict[str, str]:
    """Return settings of the stack's configuration; default: those of the connection."""
    if not in_project(project):  # a stack by its full name
        return {}
    config = json.loads(_pulumi(["config", "--json"], stack, project))
    if any((config.get(f"trainer:{name}") or {}).get("secret") for name in names):
        config = json.loads(_pulumi(["config", "--json", "--show-secrets"], stack, project))
    found = {}
    for name in names:
        value = (config.get(f"trainer:{name}") or {}).get("value")
        if isinstance(value, str):
            found[name] = value
    return found


def pulumi_command(argv: Sequence[str], stack: str | None) -> list[str]:
    pulumi = shutil.which("pulumi")
    if pulumi is None:
        hint = f'install it from {_INSTALL}, or run eval "`make -s env`" in a clone'
        raise TargetFault(Problem("pulumi", "the Pulumi CLI is not on PATH", hint))
    command = [pulumi, *argv, "--non-interactive"]
    if stack:
        command += ["--stack", stack]
    return command


def _pulumi(argv: list[str], stack: str | None, project: str) -> str:
    done = subprocess.run(pulumi_command(argv, stack), cwd=project, capture_output=True, text=True, check=False)
    if done.returncode:
        why = done.stderr.strip().removeprefix("error: ") or f"exit code {done.returncode}"
        raise TargetFault(_explained(Problem(f"pulumi {' '.join(argv)}", why), project))
    return done.stdout


_HINTS = {
    "no stack named": "`pulumi stack ls` lists the stacks",
    "no stack selected": "name one, -s STACK, or select one: `pulumi stack select STACK`; `pulumi stack ls` lists them",
    "PULUMI_ACCESS_TOKEN must be set": "log in to the backend of the stack: `pulumi login --local` if it is this machine",
    "passphrase must be set": "set PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE to the passphrase of the stack",
}
"""Parts of messages of the Pulumi CLI -> what to do."""


def _explained(problem: Problem, project: str) -> Problem:
    """Return a failure of the Pulumi CLI with what to do, if that is known."""
    if "no project file found" in problem.why and not in_project(project):
        hint = "run the command in the folder of a Pulumi project; -s ORGANIZATION/PROJECT/STACK names a stack from anywhere"
        return Problem("", "no Pulumi.yaml in this folder or above", hint)
    for part, hint in _HINTS.items():
        if part in problem.why:
            return replace(problem, hint=hint)
    return replace(problem, hint="")
