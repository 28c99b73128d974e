"""Warnings, and the rules that find them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.trainer.admission.warnings.view import View
from pulumi_trainer.provider.trainer.pipeline import Mode


@dataclass(frozen=True)
class Warning(Problem):
    """A problem that passes admission and then fails, or has no effect.

    `where` is a path of the TrainJob or, below `spec.mlPolicy`, `spec.podGroupPolicy` and `spec.template`, of the runtime.

    Args:
        is_note: Whether this is often what the user wants.
        is_refused: Whether it is an error unless the user has set its severity.
    """

    code: str = ""
    is_note: bool = False
    is_refused: bool = False

    def __str__(self) -> str:
        return f"{self.code}: {super().__str__()}"


@dataclass(frozen=True)
class Rule:
    """A rule that finds warnings.

    Args:
        cluster: Whether the rule only concerns clusters, not Pods that are processes of one machine.
        is_note: Whether it finds what users often want, which a plan shows as information.
        refused: Whether an API server refuses an object that a controller makes later, and the job never starts. Such a warning
            is an error, unless the user has set its severity.
        refused_in: Mode in which it is such an error; None if `refused` decides.
        of_queue: Yields the problems of an object of Kueue, for a rule that depends on no job.
    """

    code: str
    title: str
    find: Callable[[View], Iterator[Problem]]
    cluster: bool = False
    is_note: bool = False
    refused: bool = False
    refused_in: Mode | None = None
    of_queue: Callable[[Document, Queues], Iterator[Problem]] | None = None

    def warnings(self, view: View) -> Iterator[Warning]:
        """Yield the warnings about a job."""
        is_refused = self.refused or self.refused_in == view.mode
        for problem in self.find(view):
            yield Warning(problem.where, problem.why, problem.hint, problem.type, self.code, self.is_note, is_refused)
