"""Applies documents to an offline cluster, and reports the results: each as it comes, and the last one as JSON."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, with_hint
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kubernetes.values.documents import Document
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean
from pulumi_trainer.provider.kueue.objects import unserved_version
from pulumi_trainer.provider.trainer.admission.warnings import Warning
from pulumi_trainer.provider.trainer.offline.cluster import RUNTIMES, Cluster, Result, is_referred

JUDGED = (*RUNTIMES, "TrainJob")
_KINDS = ("JobSet", "PodGroup", "ConfigMap", "Secret")
"""The order of objects in a report."""


@dataclass
class Verdicts:
    """The results of all documents.

    Args:
        last: The result of the last TrainJob, or of the last runtime if there is no TrainJob.
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
        raise Invalid(_nothing_to_judge(others))
    verdicts.status = cluster.status(verdicts.last)


def _nothing_to_judge(others: Mapping[str, Document]) -> Problem:
    """Return the problem that no document is a runtime or a TrainJob. others: The first document of each other kind."""
    hint = f"kinds that can be checked: {', '.join(sorted(JUDGED))}"
    if not others:
        return Problem("", "found no TrainJob and no runtime to check", hint)
    kind, first = next(iter(others.items()))
    if len(others) == 1:
        hint = f"{did_you_mean(kind, JUDGED)} {hint}".strip()
    why = f"found {', '.join(sorted(others))}, but no TrainJob and no runtime to check"
    return Problem(f"{first}, line {first.line_of('kind')}", why, hint)


def _in_order(documents: Iterable[Document]) -> Iterator[Document]:
    """Yield documents in the order in which they are applied. Those that wait for others are kept in a compact form."""
    seen, waiting = set[tuple[str, ...]](), list[bytes]()
    for document in documents:
        metadata = section(document.content, "metadata")
        parts = (document.content.get("kind"), metadata.get("namespace"), metadata.get("name"))
        place = tuple(map(str, parts))
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
        "policy",
        "jobset",
        "training-operator",
    )  # not those of a server
    errors = []
    for problem in result.errors:
        detail = problem.why
        if own_words or isinstance(problem, Warning):
            detail = _detail(problem)
        errors.append({"field": problem.where, "type": problem.type, "detail": detail})
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
    why = problem.why
    if isinstance(problem, Warning):
        why = f"{problem.code}: {why}"
    return with_hint(why, problem.hint)


def _placed(problem: Problem, document: Document) -> Problem:
    where = f"{document}, line {document.line_of(problem.where)}"
    return Problem(f"{where}: {problem.where}", problem.why, problem.hint, problem.type)


def _order(document: dict[str, Any]) -> tuple[int, str, str]:
    kind = document["kind"]
    position = len(_KINDS)
    if kind in _KINDS:
        position = _KINDS.index(kind)
    return position, document["apiVersion"], document["metadata"]["name"]
