"""Documents through a cluster, and what is told about them: each verdict as it comes, and the last one as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pulumi_trainer.provider.admission.warnings import Warning
from pulumi_trainer.provider.kube.errors import Invalid, Problem
from pulumi_trainer.provider.kube.values.documents import Document
from pulumi_trainer.provider.offline.cluster import RUNTIMES, Cluster, Result

JUDGED = (*RUNTIMES, "TrainJob")
_KINDS = ("JobSet", "PodGroup", "ConfigMap", "Secret")
"""The order of objects in a report."""


@dataclass
class Verdicts:
    """What is left once all documents are through. last: the last TrainJob's, or the last runtime's if there is none.
    refused: all that were not admitted."""

    last: Result | None = None
    status: dict[str, Any] = field(default_factory=dict)
    refused: list[Result] = field(default_factory=list)


def judge(documents: Iterable[Document], cluster: Cluster, verdicts: Verdicts) -> Iterator[tuple[Document, Result]]:
    """The result of each runtime and TrainJob, one after the other; what they come to is written into `verdicts`.

    Raises Invalid, with file and document: one that no cluster could have, or no runtime and no TrainJob at all.
    """
    others: set[str] = set()
    for document in documents:
        try:
            result = cluster.apply(document.content)
        except Invalid as error:
            raise Invalid(*(_placed(p, document) for p in error.problems)) from None
        if result is None:
            others.add(str(document.content.get("kind")))
            continue
        if not result.admitted:
            verdicts.refused.append(result)
        if verdicts.last is None or result.kind == "TrainJob" or verdicts.last.kind != "TrainJob":
            verdicts.last = result
        yield document, result
    if verdicts.last is None:
        why = f"there is {', '.join(sorted(others))}, and" if others else "there is"
        mend = f"kinds that are judged: {', '.join(sorted(JUDGED))}"
        raise Invalid(Problem("", f"{why} neither a TrainJob nor a runtime to judge", mend))
    verdicts.status = cluster.status(verdicts.last)


def report(verdicts: Verdicts) -> dict[str, Any]:
    """The last verdict as the command line's JSON has it."""
    assert verdicts.last is not None
    result = verdicts.last
    wordy = result.stage in ("decode", "mutating-webhook", "warning", "jobset")  # words of our own, not a server's
    errors = [{"field": p.where, "type": p.type, "detail": _detail(p) if wordy else p.why} for p in result.errors]
    return {
        "admitted": result.admitted,
        "stage": result.stage,
        "errors": errors,
        "warnings": [
            *result.warnings,
            *map(str, result.found),
            *map(str, result.notes),
            *_refused_beside(verdicts),
        ],
        "objects": sorted(result.objects, key=_order),
        "status": verdicts.status,
    }


def _refused_beside(verdicts: Verdicts) -> Iterator[str]:
    """The report is about one document; that others are refused must not be lost."""
    for result in verdicts.refused:
        if result is not verdicts.last:
            yield f"{result.kind} {result.name} is refused: {'; '.join(map(str, result.errors))}"


def unusable(error: Invalid) -> dict[str, Any]:
    """The report on input that cannot be read."""
    errors = [{"field": p.where, "type": p.type, "detail": _detail(p)} for p in error.problems]
    return {"admitted": False, "stage": "decode", "errors": errors, "warnings": [], "objects": [], "status": {}}


def _detail(problem: Problem) -> str:
    code = f"{problem.code}: " if isinstance(problem, Warning) else ""
    return f"{code}{problem.why}; {problem.mend}" if problem.mend else f"{code}{problem.why}"


def _placed(problem: Problem, document: Document) -> Problem:
    where = f"{document}, line {document.line_of(problem.where)}"
    return Problem(f"{where}: {problem.where}", problem.why, problem.mend, problem.type)


def _order(document: dict[str, Any]) -> tuple[int, str, str]:
    kind = document["kind"]
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS), document["apiVersion"], document["metadata"]["name"]
