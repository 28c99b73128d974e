"""The whole conversion: documents to a program, and the comparison of both."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pulumi_trainer.convert.components import RUNTIMES
from pulumi_trainer.convert.evaluate import Declared
from pulumi_trainer.convert.findings import Findings
from pulumi_trainer.convert.jobsets import JobSetJob, compare_jobset, is_jobset, read_jobset
from pulumi_trainer.convert.program import (
    Key,
    Part,
    is_convertible,
    key_of,
    parts_of,
    title,
    write_project,
    write_source,
)
from pulumi_trainer.convert.proof import prove
from pulumi_trainer.convert.upgrade import is_marked
from pulumi_trainer.convert.v1_jobs import V1Job, read_v1_job
from pulumi_trainer.convert.v1_pods import compare_pods
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, problems_below, several
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    controller_of,
    mappings,
    name_of,
    section,
    without,
)
from pulumi_trainer.provider.trainer.admission.training_operator import is_job

_NO_COMPONENT = "has no component in pulumi-trainer"
_IN_PLAIN_TEXT = "a variable is a secret in plain text, which a program keeps in a Secret"
_LEAVE = "leave it as it is, or write it in Python by hand"
_KEEP = "keep applying it as before, or use a resource of pulumi-kubernetes"


@dataclass
class Result(Findings):
    """How the objects of a program relate to an object of the files."""

    title: str


@dataclass
class Conversion:
    """A converted program and how it relates to the documents.

    Attributes:
        files: Content of the files that it reads, by their paths.
        has_trainer: Whether the documents are for a cluster with Kubeflow Trainer.
        refused: What could not be converted.
    """

    source: str
    files: dict[str, str]
    has_trainer: bool
    results: list[Result]
    refused: list[Problem]

    def project(self, name: str, settings: Mapping[str, str]) -> str:
        """Return the content of Pulumi.yaml. settings: Further settings of the stack."""
        return write_project(name, settings, has_trainer=self.has_trainer)


def take_over(documents: Iterable[tuple[str, Document]], runtimes: Iterable[Document]) -> Conversion:
    """Return the program that takes over objects of a cluster; objects that it would change are refused.

    Args:
        documents: Each with where it is, for messages.
        runtimes: Runtimes of the cluster, which jobs may name if they are not among the documents.
    """
    given, known = [*documents], {key_of(each): each for each in runtimes}
    left = list[Problem]()
    while True:
        found = convert(given, known, adopt=True)
        changed = {each.title: each.differences for each in found.results if each.differences}
        if not changed:
            found.refused += left
            return found
        for where, differences in changed.items():
            left.append(Problem(where, f"the program would change it: {several(differences)}", _LEAVE))
        given = [each for each in given if title(*each) not in changed]


def convert(
    documents: Iterable[tuple[str, Document]], runtimes: Mapping[Key, Document] | None = None, *, adopt: bool = False
) -> Conversion:
    """Return the program for documents, compared with them.

    Args:
        documents: Each with where it is, for messages.
        runtimes: Runtimes of the cluster, which jobs may name; default: none.
        adopt: Whether the documents are objects of a cluster, which the program takes over.
    """
    live = runtimes or {}
    refused, given = list[Problem](), list[tuple[str, Document]]()
    replaced: dict[str, V1Job | JobSetJob] = {}
    made_by_others = list[Result]()
    for origin, document in documents:
        where = title(origin, document)
        owner = _controller_of(document)
        if owner:
            made_by_others.append(Result(where, notes=[f"is not in the program: {owner} makes it"]))
            continue
        try:
            if is_job(document):
                replaced[where] = read_v1_job(document)
            elif is_jobset(document):
                replaced[where] = read_jobset(document)
            elif is_convertible(document):
                given.append((origin, document))
            else:
                refused.append(Problem(where, _NO_COMPONENT, _KEEP))
        except Invalid as error:
            refused += problems_below(where, error.problems)
    has_trainer = any(document["kind"] in ("TrainJob", *RUNTIMES) for _, document in given)
    _separate_names(replaced, [document for _, document in given], refused)
    given += _replacements(replaced)
    parts = parts_of(given, refused)
    for job in replaced.values():
        _add_comments(job, parts)
    if adopt:
        _adopt(parts, replaced.values())
    files = dict[str, str]()
    source = write_source(parts, refused, files, live)
    declared = prove(source, files, parts, {key[2]: each for key, each in live.items()})
    results = _results(parts, replaced, declared)
    return Conversion(source, files, has_trainer, [*results, *made_by_others], refused)


def _adopt(parts: Iterable[Part], jobs: Iterable[V1Job | JobSetJob]) -> None:
    """Let the program take over the objects of a cluster. A JobSet stays one, and its runtime is in the program alone."""
    made = {key_of(each.train_job) for each in jobs}
    runtimes = {key_of(each.runtime) for each in jobs if each.runtime is not None}
    for part in parts:
        part.adopt = part.key not in runtimes
        if part.key in made | runtimes:
            part.mode = "jobset"
        if any(is_marked(each.get("value")) for each in mappings(section(part.document, "spec", "trainer").get("env"))):
            part.differences.append(_IN_PLAIN_TEXT)


def _controller_of(document: Document) -> str:
    """Return kind and name of the object whose controller makes another one; empty if no controller does."""
    owner = controller_of(document)
    if not owner:
        return ""
    return f"{owner.get('kind')} {owner.get('name')}"


def _separate_names(
    replaced: dict[str, V1Job | JobSetJob], documents: Iterable[Document], refused: list[Problem]
) -> None:
    """Refuse jobs whose TrainJob would have the name of another one, and rename runtimes that would."""
    taken = {*map(key_of, documents)}
    for where, job in [*replaced.items()]:
        if key_of(job.train_job) in taken:
            refused.append(
                Problem(where, "another job of the files has this name and namespace", "rename one of the two")
            )
            del replaced[where]
            continue
        taken.add(key_of(job.train_job))
        if job.runtime is not None and key_of(job.runtime) in taken:
            job.runtime["metadata"]["name"] += "-converted"
            job.train_job["spec"]["runtimeRef"]["name"] += "-converted"


def _replacements(replaced: Mapping[str, V1Job | JobSetJob]) -> list[tuple[str, Document]]:
    """Return the documents that take the place of jobs, each with where the job is."""
    _share_runtimes(replaced.values())
    made = list[tuple[str, Document]]()
    for where, job in replaced.items():
        if job.runtime is not None and not any(each is job.runtime for _, each in made):
            made.append((where, job.runtime))
        made.append((where, job.train_job))
    return made


def _share_runtimes(jobs: Iterable[V1Job | JobSetJob]) -> None:
    """Let all jobs of a namespace whose runtimes are equal have one."""
    shared: dict[str, Document] = {}
    for job in jobs:
        if job.runtime is None:
            continue
        key = json.dumps([without(job.runtime["metadata"], "name"), job.runtime["spec"]], sort_keys=True)
        job.runtime = shared.setdefault(key, job.runtime)
        job.train_job["spec"]["runtimeRef"]["name"] = name_of(job.runtime)


def _add_comments(job: V1Job | JobSetJob, parts: Iterable[Part]) -> None:
    for part in parts:
        if isinstance(job, V1Job) and part.key == key_of(job.train_job):
            part.comments = job.comments


def _results(
    parts: Iterable[Part], replaced: Mapping[str, V1Job | JobSetJob], declared: Mapping[Key, Declared]
) -> list[Result]:
    """Return a result for each document of the files; that of a replaced job has what differs in its runtime and TrainJob."""
    by_key = {part.key: part for part in parts}
    results = list[Result]()
    for where, job in replaced.items():
        key = key_of(job.train_job)
        if key not in by_key or key not in declared:
            continue
        made = declared[key]
        own = [by_key.pop(key)]
        if job.runtime is not None:
            own += [each for each in parts if each.key == key_of(job.runtime)]
        if not made.problems and "apiVersion" in made.runtime:
            if isinstance(job, V1Job):
                compare_pods(job, made.runtime, made.document)
            else:
                compare_jobset(job, made.runtime, made.document)
        result = Result(where, notes=job.notes, differences=job.differences)
        for part in own:
            result.notes += [note for note in part.notes if note not in result.notes]
            result.differences += [each for each in part.differences if each not in result.differences]
        results.append(result)
    made_runtimes = {key_of(job.runtime) for job in replaced.values() if job.runtime is not None}
    for part in by_key.values():
        if part.key not in made_runtimes:
            results.append(Result(part.title, notes=part.notes, differences=part.differences))
    return results
