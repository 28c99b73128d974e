"""Applies documents to an offline cluster, and reports the results: each as it comes, and the last one as JSON."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pulumi_trainer.provider.admission.warnings import Warning
from pulumi_trainer.provider.kube.errors import Invalid, Problem, with_hint
from pulumi_trainer.provider.kube.values.accessors import section
from pulumi_trainer.provider.kube.values.documents import Document
from pulumi_trainer.provider.kube.values.wording import did_you_mean
from pulumi_trainer.provider.kueue.objects import unserved_version
from pulumi_trainer.provider.offline.cluster import RUNTIMES, Cluster, Result, is_referred

JUDGED = (*RUNTIMES, "TrainJob")
_KINDS = ("JobSet", "PodGroup", "ConfigMap", "Secret")
"""The order of objects in a report."""


@dataclass
class Verdicts:
    """The results of all documents.

    Args:
        last: The result of the last TrainJob, or of the last runtime if there is no TrainJob.
        status: The status of that TrainJob.
        refused: All results that were not admitted.
        notes: What is known of documents that are not judged.
    """

    last: Result | None = None
    status: dict[str, Any] = field(default_factory=dict)
    refused: list[Result] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)


def judge(documents: Iterable[Document], cluster: Cluster, verdicts: Verdicts) -> Iterator[tuple[Document, Result]]:
    """Yield each document with its result, for runtimes and TrainJobs.

    The order of files changes no result: what TrainJobs refer to is applied before them. A further document of the same kind and
    name is an update, and is applied in its place.

    Args:
        documents: The documents.
        cluster: The offline cluster.
        verdicts: Gets the results of all documents.

    Raises:
        Invalid: No cluster could have such a document, or none is a runtime or a TrainJob.
    """
    others: dict[str, Document] = {}
    for document in _in_order(documents):
        try:
            result = cluster.apply(document.content)
        except Invalid as error:
            raise Invalid(*(_placed(p, document) for p in error.problems)) from None
        if result is None:
            verdicts.notes += (_placed(p, document) for p in unserved_version(document.content))
            others.setdefault(str(document.content.get("kind")), document)
            continue
        if not result.admitted:
            verdicts.refused.append(result)
        if verdicts.last is None or result.kind == "TrainJob" or verdicts.last.kind != "TrainJob":
            verdicts.last = result
        yield document, result
    if verdicts.last is None:
        why = f"found {', '.join(sorted(others))}, but" if others else "found"
        judged = f"kinds that can be checked: {', '.join(sorted(JUDGED))}"
        kind, first = next(iter(others.items()), ("", None))
        hint = f"{did_you_mean(kind, JUDGED)} {judged}".strip() if len(others) == 1 else judged
        where = "" if first is None else f"{first}, line {first.line_of('kind')}"
        raise Invalid(Problem(where, f"{why} no TrainJob and no runtime to check", hint))
    verdicts.status = cluster.status(verdicts.last)


def _in_order(documents: Iterable[Document]) -> Iterator[Document]:
    """Yield documents in the order in which they are applied. Those that wait for others are kept in a compact form."""
    seen, waiting = set[tuple[str, ...]](), list[bytes]()
    for document in documents:
        metadata = section(document.content, "metadata")
        place = tuple(
            str(each) for each in (document.content.get("kind"), metadata.get("namespace"), metadata.get("name"))
        )
        is_first = place not in seen
        seen.add(place)
        if (waiting or document.content.get("kind") == "TrainJob") and not (is_first and is_referred(document.content)):
            waiting.append(pickle.dumps(document))
        else:
            yield document
    yield from map(pickle.loads, waiting)


def report(verdicts: Verdicts) -> dict[str, Any]:
    """Return the last result as the JSON of the command line."""
    assert verdicts.last is not None
    result = verdicts.last
    own_words = result.stage in (
        "decode",
        "mutating-webhook",
        "warning",
        "jobset",
        "training-operator",
    )  # not those of a server
    errors = [
        {"field": p.where, "type": p.type, "detail": _detail(p) if own_words or isinstance(p, Warning) else p.why}
        for p in result.errors
    ]
    return {
        "admitted": result.admitted,
        "stage": result.stage,
        "errors": errors,
        "warnings": [
            *result.warnings,
            *map(str, result.found),
            *map(str, result.notes),
            *_refused_beside(verdicts),
            *map(str, verdicts.notes),
        ],
        "objects": sorted(result.objects, key=_order),
        "status": verdicts.status,
    }


def _refused_beside(verdicts: Verdicts) -> Iterator[str]:
    """Yield that other documents than the reported one are refused."""
    for result in verdicts.refused:
        if result is not verdicts.last:
            yield f"{result.kind} {result.name} is refused: {'; '.join(map(str, result.errors))}"


def unusable(error: Invalid) -> dict[str, Any]:
    """Return the report for input that cannot be read."""
    errors = [{"field": p.where, "type": p.type, "detail": _detail(p)} for p in error.problems]
    return {"admitted": False, "stage": "decode", "errors": errors, "warnings": [], "objects": [], "status": {}}


def _detail(problem: Problem) -> str:
    code = f"{problem.code}: " if isinstance(problem, Warning) else ""
    return with_hint(f"{code}{problem.why}", problem.hint)


def _placed(problem: Problem, document: Document) -> Problem:
    where = f"{document}, line {document.line_of(problem.where)}"
    return Problem(f"{where}: {problem.where}", problem.why, problem.hint, problem.type)


def _order(document: dict[str, Any]) -> tuple[int, str, str]:
    kind = document["kind"]
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS), document["apiVersion"], document["metadata"]["name"]
