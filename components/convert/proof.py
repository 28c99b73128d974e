"""Compares what a converted program declares with the documents that it was made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pulumi_trainer.convert.config_maps import KIND as CONFIG_MAP
from pulumi_trainer.convert.evaluate import Declared, evaluate
from pulumi_trainer.convert.program import Key, Part, key_of
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kubernetes.values.accessors import Document
from pulumi_trainer.provider.kueue.objects import with_canonical_quantities
from pulumi_trainer.provider.trainer.admission import default_runtime, default_train_job
from pulumi_trainer.provider.trainer.labels import FRAMEWORK
from pulumi_trainer.provider.trainer.offline import Cluster
from pulumi_trainer.provider.trainer.releases import DEFAULT

TRAINER_ADDED = "spec.trainer {} is added: with it nodes get the variables of their framework"
LABEL_ADDED = f"the label {FRAMEWORK} is added: it names what starts the code of users"


def prove(
    source: str, files: Mapping[str, str], parts: list[Part], runtimes: Mapping[str, Document]
) -> dict[Key, Declared]:
    """Run a program, and note at each part how the declared document differs. Returns the declared documents by their keys.

    Args:
        files: Content of the files that the program reads, by their paths.
        runtimes: Runtimes of the cluster that jobs name.
    """
    declared = {key_of(each.document): each for each in evaluate(source, files, runtimes)}
    for part in parts:
        each = declared.get(part.key)
        if each is None:
            part.differences.append("the program does not declare this object")
            continue
        part.differences += [f"the component rejects it: {problem}" for problem in each.problems]
        if not each.problems:
            _compare(part, each.document)
    return declared


def _compare(part: Part, made: Document) -> None:
    wanted, found = _completed(part.document), _completed(made)
    refusal, new_refusal = _refusal(part.document), _refusal(made)
    if refusal:
        part.notes.append(f"the API server refuses it, in the file too: {refusal}")
    elif new_refusal:
        part.differences.append(f"the API server refuses it: {new_refusal}")
    for path, before, after in differences(wanted, found):
        if (path, before, after) == ("spec.trainer", None, {}):
            if not part.adopt:  # else it is not sent
                part.notes.append(TRAINER_ADDED)
        elif path in (f"metadata.labels.{FRAMEWORK}", "metadata.labels") and before is None:
            part.notes.append(LABEL_ADDED)
        else:
            part.differences.append(f"{path}: {shown(before)} became {shown(after)}")


def _refusal(document: Document) -> str:
    """Return why the schema of the API server refuses a TrainJob or a runtime; empty if it does not."""
    if document["kind"] != "TrainJob" and not document["kind"].endswith("Runtime"):
        return ""
    result = Cluster("jobset", DEFAULT).apply(document)
    if result is None or result.stage != "schema" or not result.errors:
        return ""
    return str(result.errors[0])


def _completed(document: Document) -> Document:
    """Return a document with the defaults of the API server, as far as it accepts the document."""
    kind = document["kind"]
    if kind == CONFIG_MAP:
        return document
    try:
        if kind == "TrainJob":
            return default_train_job(document, DEFAULT)
        if kind.endswith("Runtime"):
            return default_runtime(document, DEFAULT)
        completed: Document = with_canonical_quantities(document)
        if kind == "WorkloadPriorityClass":
            return completed
        return {**completed, "spec": completed.get("spec") or {}}
    except Invalid:
        return document


def render_jobset(runtime: Document, train_job: Document, refusals: list[str]) -> Document:
    """Return the JobSet of a TrainJob; empty if the TrainJob or its runtime is refused, with the reason in `refusals`."""
    cluster, objects = Cluster("jobset", DEFAULT), list[Document]()
    for document in (runtime, train_job):
        result = cluster.apply(document)
        if result is None or not result.admitted:
            why = ""
            if result is not None:
                why = "; ".join(map(str, result.errors))
            refusals.append(f"the {document['kind']} is refused: {why}")
            return {}
        objects = result.objects
    for each in objects:
        if each["kind"] == "JobSet":
            return each
    return {}


def differences(wanted: Any, found: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the paths at which two documents differ, with both values; None for a field that one of them lacks."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in dict.fromkeys([*wanted, *found]):
            yield from differences(wanted.get(key), found.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif type(wanted) is not type(found) or wanted != found:
        yield path, wanted, found


def shown(value: Any) -> str:
    """Return a value for a message, cut after 60 characters."""
    if value is None:
        return "nothing"
    written = repr(value)
    if len(written) > 60:
        written = f"{written[:57]}..."
    return written
