"""Defines the options that name a stack or a cluster, and a job with the connection to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.terminal import plain, print_line

if TYPE_CHECKING:
    from pulumi_trainer.provider.jobs.status import Owner
    from pulumi_trainer.provider.jobs.submission import Submission
    from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
    from pulumi_trainer.provider.kubernetes.client.client import Client
    from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs
    from pulumi_trainer.provider.targets.local import LocalTarget

COMMAND_SECONDS = 10.0
"""Seconds until a request gives up: a person waits for the answer."""


@dataclass(frozen=True)
class Where:
    """Options of a command that name a stack or, as kubectl's do, a cluster.

    Args:
        arguments: Whether they are arguments of `client.connect`, and no options.
    """

    stack: str = ""
    namespace: str = ""
    context: str = ""
    kubeconfig: str = ""
    everywhere: bool = False
    project: str = "."
    arguments: bool = False

    @property
    def cluster(self) -> bool:
        """Whether one of the options names a cluster."""
        return bool(self.namespace or self.context or self.kubeconfig or self.everywhere)

    def spelled(self, option: str) -> str:
        """Return an option as the reader of a message gives it: `--stack`, or `stack=` in a program."""
        if self.arguments:
            return f"{option}="
        return f"--{option}"


@dataclass(frozen=True)
class ReachedJob:
    """A job, and how to reach it: the client of its cluster, or its target on this machine.

    Args:
        owner: Its owner in the state of the stack; None without a stack.
        kind: JobSet or TrainJob; None for either.
        submission: What the stack has submitted, with the values of Secrets; None without a stack, or if not asked for.
        uid: UID of the run in the state of the stack; empty without a stack.
        phase: Phase in the state of the stack; empty without a stack.
        stored: What the state of the stack has of the job; None without a stack.
    """

    namespace: str
    name: str
    resource: str = ""
    client: Client | None = None
    local: LocalTarget | None = None
    owner: Owner | None = field(default=None, compare=False)
    kind: Kind | None = field(default=None, compare=False)
    submission: Submission | None = field(default=None, compare=False, repr=False)
    uid: str = field(default="", compare=False)
    phase: str = field(default="", compare=False)
    stored: JobInputs | None = field(default=None, compare=False, repr=False)

    @property
    def label(self) -> str:
        return plain(self.resource or self.name)


def in_project(folder: str = ".") -> bool:
    return project_folder(folder) is not None


def project_folder(folder: str) -> Path | None:
    """Return the folder of the Pulumi project that a folder is in; None if it is in none."""
    here = Path(folder).resolve()
    return next((each for each in (here, *here.parents) if project_file(each) is not None), None)


def project_file(folder: Path) -> Path | None:
    """Return the settings of the Pulumi project in a folder; None if it has none."""
    files = (folder / "Pulumi.yaml", folder / "Pulumi.yml")
    return next((file for file in files if file.is_file()), None)


def show_warning(warning: Problem) -> None:
    """Print a warning about the access to a cluster."""
    print_line(f"warning: {warning}", error=True)
