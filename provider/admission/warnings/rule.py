"""A warning, and a rule that finds some."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pulumi_trainer.provider.admission.warnings.view import View
from pulumi_trainer.provider.kube.errors import Problem


@dataclass(frozen=True)
class Warning(Problem):
    """Something that passes admission and then fails, or does not do what it says.

    code: such as PT103, which never changes its meaning. where, why, mend: as of any Problem; paths are those of the
    TrainJob or, below `spec.mlPolicy`, `spec.podGroupPolicy` and `spec.template`, of the runtime.
    """

    code: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {super().__str__()}"


@dataclass(frozen=True)
class Rule:
    """title: what it is about, in one line. find: yields what it has against a job. cluster: only there it goes wrong, and
    not where a job's Pods are processes of one machine."""

    code: str
    title: str
    find: Callable[[View], Iterator[Problem]]
    cluster: bool = False

    def warnings(self, view: View) -> Iterator[Warning]:
        for problem in self.find(view):
            yield Warning(problem.where, problem.why, problem.mend, problem.type, code=self.code)
