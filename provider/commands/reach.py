"""How a command reaches a job: the options that name a cluster or a stack, and the job with its client."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.terminal import plain

if TYPE_CHECKING:
    from pulumi_trainer.provider.api.status import Owner
    from pulumi_trainer.provider.kube.client.client import Client
    from pulumi_trainer.provider.kube.client.kinds import Kind
    from pulumi_trainer.provider.targets.local import LocalTarget

PATIENCE = 10.0
"""Seconds that a request goes on trying: somebody sits in front of it."""


@dataclass(frozen=True)
class Where:
    """Options of a command. stack: name of one. The others name a cluster, as kubectl's do; everywhere: all namespaces."""

    stack: str = ""
    namespace: str = ""
    context: str = ""
    kubeconfig: str = ""
    everywhere: bool = False

    @property
    def cluster(self) -> bool:
        return bool(self.namespace or self.context or self.kubeconfig or self.everywhere)


@dataclass(frozen=True)
class Job:
    """A job of a cluster or, with `local`, of this machine. label: what it is called here; resource: its name in the stack,
    empty without one. owner: whose it is, by the state of the stack. kind: JobSet or TrainJob, where only that is meant."""

    namespace: str
    name: str
    resource: str = ""
    client: Client | None = None
    local: LocalTarget | None = None
    owner: Owner | None = field(default=None, compare=False)
    kind: Kind | None = field(default=None, compare=False)

    @property
    def label(self) -> str:
        return plain(self.resource or self.name)


def show_warning(warning: Problem) -> None:
    """Prints a warning about the access to a cluster."""
    print(f"warning: {warning}", file=sys.stderr, flush=True)
