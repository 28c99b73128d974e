"""`validate`, and `render` of files: runs documents through the offline cluster and prints the results.

Loads neither Pulumi nor a client of a cluster, and nothing that is slow to import.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import yaml
from pulumi_trainer.provider.cli.formats import dumper
from pulumi_trainer.provider.kubernetes.container_table import ContainerRow, container_table
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TargetFault, with_hint
from pulumi_trainer.provider.kubernetes.terminal import escaped, message, plain, print_line, print_lines
from pulumi_trainer.provider.kubernetes.values.accessors import listed, section, text
from pulumi_trainer.provider.kubernetes.values.documents import Document, documents
from pulumi_trainer.provider.kubernetes.values.names import in_author_words
from pulumi_trainer.provider.kubernetes.values.wording import aligned, did_you_mean
from pulumi_trainer.provider.kueue.scheduling.durations import Expectations
from pulumi_trainer.provider.machine.atomic_files import replace_file
from pulumi_trainer.provider.service.reach import Where
from pulumi_trainer.provider.trainer.admission.author_hints import for_author
from pulumi_trainer.provider.trainer.admission.warnings import Queues, Severities
from pulumi_trainer.provider.trainer.offline import Cluster, RenderLimit, Result, Verdicts, judge, report, unusable
from pulumi_trainer.provider.trainer.pipeline import Mode, Release

ADMITTED, REFUSED, UNUSABLE = 0, 1, 2
"""Exit codes."""

SUFFIXES = (".yaml", ".yml", ".json")
_BY = {
    "decode": "by the API server, which cannot decode it",
    "mutating-webhook": "by Trainer's webhook, which cannot decode it",
    "schema": "by the schema",
    "validating-webhook": "by Trainer's webhook",
    "jobset": "by JobSet",
    "pods": "by the API server when its Jobs and Pods are created",
    "training-operator": "by Kubeflow Trainer, which does not know this kind",
    "warning": "because of warnings that count as errors",
    "policy": "by the rules of the platform team",
}


def are_files(names: Iterable[str]) -> bool:
    """Return whether arguments are files and not the name of a job: `-`, an existing file, a path that begins as no name does,
    or a name with the suffix of a file.
    """
    return any(
        name == "-" or name.startswith(_PATHS) or name.endswith(SUFFIXES) or Path(name).is_file() for name in names
    )


_PATHS = ("/", "./", "../", "~")


def validate(
    files: list[str],
    mode: Mode,
    release: Release,
    output: str,
    taken: Severities,
    where: Where | None = None,
    policy: str = "",
) -> int:
    """Print the result of each document as text, or the last result as JSON or YAML, and return the exit code.

    Args:
        where: A cluster whose queues, Workloads and nodes count beside the documents; None for none.
    """
    verdicts = Verdicts()
    cluster = _cluster(mode, release, taken, explain=True)
    if where is not None:
        verdicts.notes += _read_cluster(cluster, where)
    try:
        judged = judge(_read(files), cluster, verdicts)
        if policy:
            from pulumi_trainer.provider.trainer.offline.job_rules import judge_by_rules
            from pulumi_trainer.provider.trainer.policy.reading import read_rules

            judged = judge_by_rules(judged, read_rules(Path(policy)), cluster, verdicts)
        for document, result in judged:
            if output == "text":
                print_line(_verdict(document, result, mode))
    except Invalid as error:
        return _unusable(error, output)
    if output == "text":
        _print_notes(verdicts, error=False)
    if output != "text":
        _print(report(verdicts), output)
    return _exit_code(verdicts)


def render(
    files: list[str], mode: Mode, release: Release, output: str, taken: Severities, *, summary: bool = False
) -> int:
    """Print the objects of all TrainJobs as YAML, in the order to apply them, or the last result as JSON.

    YAML is printed only if all documents are admitted; problems and warnings go to stderr. Returns the exit code.
    """
    verdicts, jobsets = Verdicts(), list[dict[str, Any]]()
    cluster = _cluster(mode, release, taken, explain=True)
    with tempfile.SpooledTemporaryFile(max_size=2**23, mode="w+", encoding="utf-8") as rendered:
        try:
            for document, result in judge(_read(files), cluster, verdicts):
                if summary:
                    jobsets += _jobsets(result.objects)
                elif output == "yaml":
                    _dump_all(result.objects, rendered)
                if not result.admitted or result.warnings or result.notes or result.found:
                    print_line(_verdict(document, result, mode), error=True)
        except Invalid as error:
            return _unusable(error, output)
        _print_notes(verdicts, error=True)
        if summary:
            print_summary(jobsets, output, cluster.known_objects())
        elif output == "json":
            _print(report(verdicts), output)
        elif not verdicts.refused:
            rendered.seek(0)
            for block in iter(lambda: rendered.read(2**16), ""):
                sys.stdout.write(block)
    return _exit_code(verdicts)


def batch(folder: Path, mode: Mode, release: Release) -> int:
    """Validate each FOLDER/*/input.yaml by itself and write actual.json beside it, without warnings of our own."""
    counts = {ADMITTED: 0, REFUSED: 0, UNUSABLE: 0}
    limit = RenderLimit()
    for file in sorted(folder.glob("*/input.yaml")):
        code, found = _validate_file(file, mode, release, limit)
        text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        try:
            if file.parent.is_symlink():
                raise ValueError(f"{file.parent} is a link")
            replace_file(file.parent / "actual.json", text.encode())
        except (OSError, ValueError) as error:
            code = UNUSABLE
            print_line(f"error: {file.parent / 'actual.json'}: cannot be written: {error}", error=True)
        counts[code] += 1
    if not any(counts.values()):
        print_line(f"error: {folder}: contains no */input.yaml", error=True)
        return UNUSABLE
    print_line(f"{counts[ADMITTED]} admitted, {counts[REFUSED]} refused, {counts[UNUSABLE]} could not be used")
    return max(code for code, count in counts.items() if count)


def print_objects(objects: list[dict[str, Any]], output: str) -> None:
    """Print rendered objects as JSON or YAML."""
    if output == "json":
        _print_json(objects)
    else:
        _dump_all(objects, sys.stdout)


def print_summary(objects: list[dict[str, Any]], output: str, known: Queues | None = None) -> None:
    """Print image, command and resources of each container of JobSets, as a table for each JobSet or as JSON."""
    known = known or Queues()
    jobsets = _jobsets(objects)
    names = Counter(each["metadata"]["name"] for each in jobsets)
    tables: dict[str, Any] = {}
    for each in jobsets:
        namespace = each["metadata"].get("namespace")
        tables[_summary_title(each, names)] = container_table(each, partial(known.claims_of, namespace=namespace))
    if output == "json":
        _print_json(tables)
        return
    columns = [*ContainerRow.__annotations__]
    titles = [column.upper() for column in columns]
    for name, rows in tables.items():
        print_line(f"JobSet {name}")
        cells = [titles]
        for row in rows:
            cells.append([str(row[column]) for column in columns])
        print_lines(map(plain, aligned(cells)))


def _jobsets(objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in objects if each["kind"] == "JobSet"]


def _summary_title(jobset: dict[str, Any], names: Counter[str]) -> str:
    """Return the name of a JobSet, with its namespace if several have the name."""
    about = jobset["metadata"]
    if names[about["name"]] > 1:
        return f"{about.get('namespace', '')}/{about['name']}"
    return str(about["name"])


def _validate_file(file: Path, mode: Mode, release: Release, limit: RenderLimit) -> tuple[int, dict[str, Any]]:
    verdicts = Verdicts()
    try:
        for _ in judge(documents(file), _cluster(mode, release, Severities.none(), limit=limit), verdicts):
            pass
        return _exit_code(verdicts), report(verdicts)
    except Invalid as error:
        print_line(f"error: {error}", error=True)
        return UNUSABLE, unusable(error)
    except Exception as error:  # an internal error must not stop the files after it
        fault = Problem(str(file), f"this is a fault of pulumi-trainer: {type(error).__name__}: {error}", "report it")
        print_line(f"error: {fault}", error=True)
        return UNUSABLE, unusable(Invalid(fault))


def _exit_code(verdicts: Verdicts) -> int:
    if verdicts.refused:
        return REFUSED
    return ADMITTED


def _read(files: Sequence[str]) -> Iterator[Document]:
    document = None
    for name in files:
        stdin = sys.stdin.buffer if sys.stdin else None
        for document in documents(name, stdin):
            yield document
    if document is None:
        names = ", ".join("stdin" if name == "-" else name for name in files)
        raise Invalid(Problem(names, "contains no document", "write a TrainJob or a runtime into it"))


def _cluster(
    mode: Mode, release: Release, taken: Severities, *, explain: bool = False, limit: RenderLimit | None = None
) -> Cluster:
    catalogue = _from_catalogue if mode == "jobset" else None
    return Cluster(mode, release, catalogue=catalogue, severities=taken, explain=explain, limit=limit)


def _read_cluster(cluster: Cluster, where: Where) -> Iterator[Problem]:
    """Let a cluster know the queues, Workloads and nodes of a real one, and yield what is not known of it."""
    from pulumi_trainer.provider.service.jobs import open_cluster
    from pulumi_trainer.provider.targets.kubernetes.observe.job_durations import read_expectations
    from pulumi_trainer.provider.targets.kubernetes.observe.job_starts import read_queued

    client, _ = open_cluster(where)
    unknown = "what Kueue would do with the jobs is not known"

    def expect(running: Sequence[str]) -> Expectations:
        with suppress(TargetFault):
            return read_expectations(client, running)
        return {}

    try:
        cluster.below, cluster.expect = read_queued(client), expect
    except TargetFault as fault:
        yield Problem("", f"{unknown}: {fault}")
        return
    if not cluster.below.has_all("Workload"):
        why = f"{unknown}: Workloads of all namespaces cannot be listed in {client.host}"
        yield Problem("", why, "is Kueue installed? `pulumi-trainer rbac --quotas` prints the permissions")


def _from_catalogue(name: str) -> dict[str, Any] | None:
    from pulumi_trainer.provider.trainer.catalog.catalog import BUILT_IN

    with suppress(Invalid):
        return BUILT_IN.load(name)
    return None


def _verdict(document: Document, result: Result, mode: Mode) -> str:
    """Return a result as text: what was admitted or refused, and each problem with its line."""
    name = f"{result.kind} {result.name}"
    if result.namespace:
        name = f"{result.kind} {result.namespace}/{result.name}"
    outcome = "is admitted"
    if not result.admitted:
        outcome = f"is refused {_BY.get(result.stage or '', '')}".rstrip()
    lines = [f"{document}, line {document.line}: {name} {outcome}"]
    lines += [f"  error: {_with_line(problem, document)}" for problem in _shown(result.errors, document, mode)]
    for stage, problem in result.later:
        refused_by = _BY[stage].partition(",")[0]
        lines.append(f"  error, {refused_by}: {_with_line(_for_author(problem, document, mode), document)}")
    lines += [f"  warning: {warning}" for warning in result.warnings]
    lines += [f"  warning: {problem}" for problem in result.found]
    lines += [f"  note: {problem}" for problem in result.notes]
    first, *more = map(message, lines)
    indented = [line.replace("\n", "\n    ") for line in more]
    return "\n".join([first, *indented])


def _shown(problems: Sequence[Problem], document: Document, mode: Mode) -> Iterator[Problem]:
    """Yield what an author has to correct: of errors with the same place and hint the first, and the server's summaries of
    other errors, which have no place, only if there are no others.
    """
    placed = [problem for problem in problems if problem.where not in ("", "<nil>")]
    known = set[tuple[str, str]]()
    for problem in placed or problems:
        about = (problem.where, problem.hint)
        if about in known and problem.hint:
            continue
        known.add(about)
        yield _for_author(problem, document, mode)


def _for_author(problem: Problem, document: Document, mode: Mode) -> Problem:
    """Return a problem with what its author can do."""
    reference = section(document.content, "spec", "runtimeRef")
    if " must be created before the TrainJob" in problem.why:
        why = f"no {reference.get('kind', 'ClusterTrainingRuntime')} {reference.get('name')!r} among the documents"
        return Problem("spec.runtimeRef.name", why, _runtime_hint(document, mode) or problem.hint)
    if problem.why.startswith("unsupported runtime: "):
        return replace(problem, where="spec.runtimeRef")
    without_step = re.match("must have (dataset|model)-initializer job ", problem.why)
    if without_step:
        kind = without_step[1]
        why = f"the runtime {reference.get('name')} has no replicated job {kind}-initializer, which fetches the {kind}"
        return Problem(f"spec.initializer.{kind}", why, problem.hint)
    if re.search(r"\.env\[\d+\]\.name$", problem.where):
        for at, variable in enumerate(listed(section(document.content, "spec", "trainer").get("env"))):
            if section(variable).get("name") == "":
                return Problem(f"spec.trainer.env[{at}].name", "is empty", "give the variable a name")
    return for_author(problem)


def _runtime_hint(document: Document, mode: Mode) -> str:
    """Return what the author of a TrainJob can do whose runtime was not found."""
    from pulumi_trainer.provider.trainer.catalog.catalog import BUILT_IN

    name = text(section(document.content, "spec", "runtimeRef").get("name"))
    if mode == "trainer":
        return "give the file of the runtime too: the runtimes of the catalogue are used in mode jobset only"
    if name in BUILT_IN.names():
        return f"the catalogue has a ClusterTrainingRuntime {name}: leave out kind"
    return did_you_mean(name, BUILT_IN.names())


def _print_notes(verdicts: Verdicts, *, error: bool) -> None:
    for note in verdicts.notes:
        print_line(f"note: {note}", error=error)


def _with_line(problem: Problem, document: Document) -> str:
    """Return a problem with its line; if a string lacks its quotes, with the text to quote."""
    where, hint = problem.where, problem.hint
    if where == "<nil>":
        where = ""
    if "be a string" in problem.why or "of type string" in problem.why:
        written = document.plain_scalar(where)
        if written:
            hint = f'write it in quotes: "{written}"'
    why = in_author_words(str(replace(problem, where="", hint="")))
    if not where:
        return with_hint(why, hint)
    place = where
    rendered = "/" in where.partition(".")[0]  # a field of a rendered object has no line in the document
    if not rendered:
        place += f" (line {document.line_of(where)})"
    return with_hint(f"{place}: {why}", hint)


def _unusable(error: Invalid, output: str) -> int:
    if output == "json":
        _print(unusable(error), output)
    for problem in error.problems:
        print_line(f"error: {problem}", error=True)
    return UNUSABLE


def _print(found: dict[str, Any], output: str) -> None:
    if output == "json":
        _print_json(found)
    else:
        _dump_all([found], sys.stdout)


def _print_json(found: Any) -> None:
    print_lines(escaped(json.dumps(found, indent=2, ensure_ascii=False)).split("\n"))


def _dump_all(found: list[dict[str, Any]], file: IO[str]) -> None:
    for one in found:
        text = _yaml(one, allow_unicode=True)
        if escaped(text) != text:
            text = _yaml(one, allow_unicode=False)
        file.write(text)


def _yaml(document: dict[str, Any], *, allow_unicode: bool) -> str:
    text: str = yaml.dump(
        document, None, dumper(), sort_keys=False, explicit_start=True, allow_unicode=allow_unicode, width=2**16
    )
    return text
