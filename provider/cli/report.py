"""`report`: what a preview means for jobs, GPUs, queues and other people's jobs, as Markdown for a pull request.

The preview comes from a program of a pull request: texts of it become code spans, in which Markdown, mentions and links have no
effect.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.cli.formats import shortened
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.terminal import plain, print_line, print_lines
from pulumi_trainer.provider.kubernetes.values.accessors import Document, mappings, number, section, text
from pulumi_trainer.provider.kubernetes.values.wording import plural
from pulumi_trainer.provider.trainer.admission.warnings.budgets import BEYOND
from pulumi_trainer.provider.trainer.admission.warnings.quota_changes import AFFECTS
from pulumi_trainer.provider.trainer.admission.warnings.table import NEVER_START
from pulumi_trainer.provider.trainer.runtime_releases import Effect, effects

UNUSABLE = 2
LARGEST_FILE = 2**28
"""Most bytes of a preview: 300 jobs with their code and their previous state have about 30 MB."""
VISIBLE = 20
"""Most lines of a report without what is folded."""
LONGEST_TEXT, LONGEST_NAME = 400, 80
LONGEST_REPORT = 60_000
"""Most characters of a report; a comment on GitHub has 65,536."""
COST = re.compile(r"(about|at most) [\d.,]+ GPU-hours|[\d.,]+ [A-Z]{3} an hour \(")
_KINDS = {BEYOND: "**beyond the budget**", AFFECTS: "**affects jobs in queues**"}
"""Warnings that come first, after jobs that never start."""
TOTAL, BUDGET = "this plan starts ", "LocalQueue "
"""How the notes of a preview on costs begin."""
MOVE = re.compile(r"((?:channel|ClusterTrainingRuntime) \S+: )( *)(.*)")
"""A note on what another release does to the jobs of all stacks: what it is about, the depth of the line, and the line."""
_DEEPEST = 4
"""Most spaces before a line of a list."""
NAMED = 5
"""How many jobs a line names."""

JOB = "pulumi-python:dynamic/trainer:JobSet"
_CHANGES = {
    "create": "new",
    "import": "new",
    "replace": "replaced",
    "create-replacement": "replaced",
    "delete-replaced": "replaced",
    "update": "updated",
    "delete": "deleted",
    "same": "unchanged",
}
_ORDER = ("new", "replaced", "moved", "updated", "deleted", "unchanged")
_PROJECT = "project:///"


@dataclass(frozen=True)
class Job:
    """A job of a preview.

    Args:
        change: What the update does to it, a value of `_ORDER`; "moved" is a job with another release of its runtime.
        before, after: Its inputs in the state and in the program; empty if it is not there.
    """

    name: str
    change: str
    before: Document
    after: Document

    @property
    def component(self) -> str:
        """Return the URN of its component, which its diagnostics and its place in the program have."""
        return text((self.after or self.before).get("component"))

    @staticmethod
    def objects(inputs: Document) -> dict[str, Any]:
        """Return the objects of inputs; an object that is not valid is left out."""
        found = {}
        for key, given in section(inputs, "objects").items():
            with suppress(ValueError, RecursionError):
                document = json.loads(given) if isinstance(given, str) else given
                if isinstance(document, dict) and key.partition("/")[0] in ("JobSet", "TrainJob"):
                    found[key] = document
        return found

    @property
    def releases(self) -> tuple[str, str]:
        """Return the releases of its runtime before and after."""
        return _release(self.before), _release(self.after)


@dataclass(frozen=True)
class Warned:
    """A warning, with the URNs of the resources that it is about."""

    text: str
    urns: tuple[str, ...]

    @property
    def code(self) -> str:
        """Return its code, such as PT203; other text if it has none."""
        return self.text.partition(":")[0]

    @property
    def never(self) -> bool:
        """Return whether a job never starts, while queues and nodes are as they are."""
        return self.code in NEVER_START


class Preview:
    """What `pulumi preview --json` has printed."""

    def __init__(self, document: Document) -> None:
        self.steps = mappings(document.get("steps"))
        self._diagnostics = mappings(document.get("diagnostics"))
        self._counts = section(document, "changeSummary")

    @property
    def stack(self) -> str:
        """Return project/stack."""
        parts = self.steps[0]["urn"].split("::") if self.steps else []
        if len(parts) < 3:
            return ""
        return f"{parts[1]}/{parts[0].removeprefix('urn:pulumi:')}"

    @cached_property
    def jobs(self) -> list[Job]:
        """Return the jobs, those first that change most."""
        found = dict[str, Job]()
        for step in self.steps:
            job = _job(step)
            if job is not None and (step["urn"] not in found or job.after):
                found[step["urn"]] = job
        return sorted(found.values(), key=lambda job: (_ORDER.index(job.change), job.name))

    @property
    def hides_unchanged(self) -> bool:
        """Return whether the preview leaves unchanged resources out, as without `--show-sames`."""
        listed = sum(step["op"] == "same" for step in self.steps)
        known = self._counts.get("same", 0)
        return isinstance(known, int) and known > listed

    @cached_property
    def warnings(self) -> list[Warned]:
        """Return the warnings, equal ones as one. They are sorted, because the engine does not order them."""
        found = dict[str, list[str]]()
        for diagnostic in self._of("warning"):
            found.setdefault(_message(diagnostic), []).append(text(diagnostic.get("urn")))
        return [Warned(said, tuple(sorted({*urns} - {""}))) for said, urns in sorted(found.items())]

    @cached_property
    def refusals(self) -> list[str]:
        """Return what an update would refuse, and other errors of the preview."""
        found = list[str]()
        for diagnostic in self._of("error"):
            heading, *rows = _message(diagnostic, lines=True)
            if not heading.endswith(":") or not rows:
                found.append(" ".join([heading, *rows]))
                continue
            for row in rows:
                if row.startswith("   ") and found:
                    found[-1] += f" {row.strip()}"
                else:
                    found.append(row.strip())
        return list(dict.fromkeys(found))

    @cached_property
    def _notes(self) -> list[tuple[str, str]]:
        return [(text(each.get("urn")), _message(each)) for each in self._of("info")]

    @cached_property
    def _starts(self) -> dict[tuple[str, str], str]:
        """Return what the queue would do with each job, by the URN of its component and its name in the target."""
        return self._sentences(cost=False)

    @cached_property
    def _costs(self) -> dict[tuple[str, str], str]:
        """Return what each new run costs, by the same."""
        return self._sentences(cost=True)

    def _sentences(self, *, cost: bool) -> dict[tuple[str, str], str]:
        found = dict[tuple[str, str], str]()
        for urn, note in self._notes:
            name, _, sentence = note.partition(": ")
            if bool(COST.match(sentence)) is cost:
                found.setdefault((urn, name), sentence)
        return found

    @property
    def total(self) -> str:
        """Return what all new runs use and cost; that of the only one; empty if not known."""
        notes = [note.partition(": ")[2] for _, note in self._notes if note.startswith(TOTAL)]
        only = [*self._costs.values()] if len(self._costs) == 1 else []
        return next(iter([*notes, *only]), "")

    @property
    def budgets(self) -> list[str]:
        """Return what the preview says about budgets that are not exceeded."""
        return [note for _, note in self._notes if note.startswith(BUDGET)]

    @property
    def moves(self) -> Iterator[str]:
        """Yield the lines on moved channels and changed runtimes, as a list of Markdown."""
        for matched in filter(None, (MOVE.fullmatch(note) for _, note in self._notes)):
            about, depth, line = matched.groups()
            yield f"{depth[:_DEEPEST]}- {code(line)}" if depth else f"- release {code(about + line)}"

    @cached_property
    def _reasons(self) -> dict[str, str]:
        """Return the first note of a change, by namespace/name of the job."""
        found = dict[str, str]()
        for urn, note in self._notes:
            name, _, reason = note.partition(": ")
            if not urn:
                found.setdefault(name, reason)
        return found

    def start(self, job: Job) -> str:
        """Return what the queue would do now with a run of the job; empty if not computed."""
        return self._starts.get((job.component, text(job.after.get("name"))), "")

    def cost(self, job: Job) -> str:
        """Return what a run of the job costs; empty if not known."""
        return self._costs.get((job.component, text(job.after.get("name"))), "")

    def reason(self, job: Job) -> str:
        """Return why a job changes; empty if not known."""
        return self._reasons.get(f"{text(job.after.get('namespace'))}/{text(job.after.get('name'))}", "")

    @cached_property
    def places(self) -> dict[str, str]:
        """Return file and line in the program of each resource that the preview has, by its URN; empty if not known."""
        return {step["urn"]: _place(step) for step in self.steps}

    def found(self) -> dict[str, int]:
        """Return how often each condition of `--fail-on` holds."""
        never = sum(warned.never for warned in self.warnings)
        preempting = sum(_preempts(self.start(job)) for job in self.jobs)
        counts = {
            "never": never,
            "preempts": preempting,
            "budget": sum(warned.code == BEYOND for warned in self.warnings),
        }
        return {**counts, "refused": len(self.refusals), "warning": len(self.warnings)}

    def _of(self, severity: str) -> list[Document]:
        return [each for each in self._diagnostics if each.get("severity") == severity]


def report(file: Path, fail_on: Collection[str]) -> int:
    """Print the report of a preview, and return the exit code."""
    try:
        preview = _read(file)
    except Invalid as error:
        print_line(f"error: {error}", error=True)
        return UNUSABLE
    print_lines(markdown(preview))
    reasons = [f"{number} {name}" for name, number in preview.found().items() if number and name in fail_on]
    if reasons:
        print_line(f"error: --fail-on: {', '.join(reasons)}", error=True)
    return int(bool(reasons))


def _read(file: Path) -> Preview:
    """Return the preview in a file. Raises Invalid if it is not the output of `pulumi preview --json`."""
    shown = "stdin" if str(file) == "-" else str(file)
    hint = "write it with `pulumi preview --json > preview.json`"
    try:
        data = _bytes(file)
        if len(data) > LARGEST_FILE:
            raise Invalid(Problem(shown, f"is larger than {LARGEST_FILE // 2**20} MiB"))
        document = json.loads(data)
    except OSError as error:
        raise Invalid(Problem(shown, f"cannot be read: {error.strerror or error}", hint)) from error
    except (ValueError, RecursionError) as error:
        raise Invalid(Problem(shown, f"not valid JSON: {error}", hint)) from error
    content = document if isinstance(document, dict) else {}
    steps, diagnostics = content.get("steps", []), content.get("diagnostics", [])
    known = _all_have(steps, "op", "urn") and _all_have(diagnostics, "severity", "message")
    if not known or not (steps or diagnostics):
        raise Invalid(Problem(shown, "not the output of `pulumi preview --json`", hint))
    return Preview(content)


def _bytes(file: Path) -> bytes:
    if str(file) == "-":
        return sys.stdin.buffer.read(LARGEST_FILE + 1) if sys.stdin else b""
    with file.open("rb") as opened:
        return opened.read(LARGEST_FILE + 1)


def _all_have(items: Any, *names: str) -> bool:
    """Return whether items are mappings that have texts of these names."""
    return isinstance(items, list) and all(
        isinstance(each, dict) and all(isinstance(each.get(name), str) for name in names) for each in items
    )


def markdown(preview: Preview) -> list[str]:
    """Return the lines of the report: at most `VISIBLE`, and then what is folded."""
    head, rows = [*_head(preview)], [*_shown(preview)]
    room = VISIBLE - len(head) - 3  # two empty lines, and the summary of what is folded
    rest = [*rows[room:], *_unchanged(preview)]
    shown = [*head, "", *rows[:room]] if rows else head
    if not rest:
        return shown
    folded = _bounded(rest, sum(map(len, shown)))
    return [*shown, "", f"<details><summary>{len(rest)} more</summary>", "", *folded, "", "</details>"]


def _bounded(rows: list[str], size: int) -> Iterator[str]:
    """Yield rows until the report is as long as it may be. size: Characters before the rows."""
    for at, row in enumerate(rows):
        size += len(row) + 1
        if size > LONGEST_REPORT:
            yield f"- and {len(rows) - at} more, which the preview has"
            return
        yield row


def _head(preview: Preview) -> Iterator[str]:
    counts = Counter(job.change for job in preview.jobs)
    parts = [f"{counts[change]} {change}" for change in _ORDER if counts[change]]
    if preview.refusals:
        parts.insert(0, f"**{len(preview.refusals)} refused**")
    if preview.hides_unchanged:
        parts.append("unchanged jobs not counted (`--show-sames` adds them)")
    yield f"### Jobs of {code(preview.stack)}: {', '.join(parts) or 'none'}"
    gpus = [*_gpu_sums(preview.jobs)]
    if gpus:
        yield ""
        yield f"GPUs: {'; '.join(gpus)}"
    if preview.total:
        yield ""
        yield f"Cost: {code(preview.total)}"


def _gpu_sums(jobs: Iterable[Job]) -> Iterator[str]:
    """Yield the GPUs of the jobs of each change; nothing if no job has any."""
    for change in _ORDER:
        of_change = [job for job in jobs if job.change == change]
        before, after = _gpus(job.before for job in of_change), _gpus(job.after for job in of_change)
        if change in ("new", "unchanged"):
            before = after
        if change == "deleted":
            after = before
        if before == after == "0":
            continue
        yield f"{before if before == after else f'{before} -> {after}'} {change}"


def _gpus(inputs: Iterable[Document]) -> str:
    """Return the sum of GPUs, and of how many jobs it is not known."""
    total, unknown = 0, 0
    for each in filter(None, inputs):
        gpus = number(section(each, "summary").get("gpus"), -1)
        total += max(gpus, 0)
        unknown += gpus < 0
    if not unknown:
        return str(total)
    return f"{total} and those of {plural(unknown, 'job')} that are not known,"


def _shown(preview: Preview) -> Iterator[str]:
    """Yield what reviewers have to see, the worst first."""
    for refusal in preview.refusals:
        yield f"- **refused** {code(refusal)}"
    for warned in preview.warnings:
        if warned.never:
            yield _warning(preview, warned, "**never starts**")
    for warned in preview.warnings:
        if warned.code in _KINDS:
            yield _warning(preview, warned, _KINDS[warned.code])
    changed = [job for job in preview.jobs if job.change != "unchanged"]
    for job in sorted(changed, key=lambda job: not _preempts(preview.start(job))):
        yield _change(preview, job)
    yield from _release_differences(preview.jobs)
    yield from preview.moves
    yield from (f"- budget {code(note)}" for note in preview.budgets)
    for warned in preview.warnings:
        if not warned.never and warned.code not in _KINDS:
            yield _warning(preview, warned, "warning")


def _release_differences(jobs: Iterable[Job]) -> Iterator[str]:
    """Yield what another release of its runtime changes in the objects of a job; jobs with the same difference are one line."""
    groups: dict[tuple[Effect, ...], list[str]] = {}
    for job in jobs:
        with suppress(RecursionError):
            if job.change == "moved":
                found = tuple(effects(job.objects(job.before), job.objects(job.after)))
                groups.setdefault(found, []).append(job.name)
    for found, names in groups.items():
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        what = f"{code(f'{found[0].level} {found[0]}')}{more}" if found else "changes nothing"
        shown = ", ".join(code(name, LONGEST_NAME) for name in names[:NAMED])
        rest = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield f"- release in {shown}{rest}: {what}"


def _unchanged(preview: Preview) -> Iterator[str]:
    names = (code(job.name, LONGEST_NAME) for job in preview.jobs if job.change == "unchanged")
    while row := [*islice(names, 10)]:
        yield f"- unchanged {', '.join(row)}"


def _change(preview: Preview, job: Job) -> str:
    """Return the line of a job: change, GPUs, releases, what the queue does with it, and why it changes."""
    start, (old, new) = preview.start(job), job.releases
    gpus = section(job.after or job.before, "summary").get("gpus")
    facts = []
    if gpus != 0:
        facts.append(plural(gpus, "GPU") if isinstance(gpus, int) else "GPUs not known")
    if job.change == "moved":
        facts.append(f"release {code(old)} -> {code(new)}")
    cost = preview.cost(job)
    if cost and cost != preview.total:
        facts.append(code(cost))
    if start:
        facts.append(f"**{code(start)}**" if _preempts(start) else code(start))
    reason = preview.reason(job)
    if reason and job.change != "new":
        facts.append(code(reason))
    line = f"- {job.change} {code(job.name, LONGEST_NAME)}"
    place = preview.places.get(job.component)
    if place:
        line += f" ({code(place, LONGEST_NAME)})"
    return f"{line}: {'; '.join(facts)}" if facts else line


def _warning(preview: Preview, warned: Warned, kind: str) -> str:
    """Return the line of a warning: names of its jobs with file and line, and its text."""
    named = [code(urn.rpartition("::")[2], LONGEST_NAME) for urn in warned.urns[:NAMED]]
    places = dict.fromkeys(filter(None, map(preview.places.get, warned.urns)))
    more = len(warned.urns) - len(named)
    if more:
        named.append(f"{more} more")
    line = " ".join([f"- {kind}", ", ".join(named)]).rstrip()
    if places:
        line += f" ({', '.join(code(place, LONGEST_NAME) for place in islice(places, NAMED))})"
    return f"{line}: {code(warned.text)}"


def code(given: str, most: int = LONGEST_TEXT) -> str:
    """Return a text of the preview as a code span: one line, without control characters, and shortened.

    Args:
        most: Number of characters that are kept.
    """
    safe = shortened(given, most).strip() or "-"
    longest = max(map(len, re.findall("`+", safe)), default=0)
    if not longest:
        return f"`{safe}`"
    fence = "`" * (longest + 1)
    return f"{fence} {safe} {fence}"


def _job(step: Mapping[str, Any]) -> Job | None:
    """Return the job of a step; None if the step is about something else, or changes nothing that an update makes."""
    kind, _, name = step["urn"].rpartition("::")
    change = _CHANGES.get(step["op"])
    if change is None or not kind.endswith(JOB):
        return None
    before, after = section(step, "oldState", "inputs"), section(step, "newState", "inputs")
    if change == "deleted":
        after = {}
    job = Job(name, change, before, after)
    old, new = job.releases
    if change in ("replaced", "updated") and old and new and old != new:
        return replace(job, change="moved")
    return job


def _release(inputs: Document) -> str:
    return text(section(inputs, "runtime").get("release"))


def _place(step: Mapping[str, Any]) -> str:
    """Return file and line of a step's resource in the program, such as src/main.py:12; empty if not known."""
    file, _, line = text(section(step, "newState").get("sourcePosition")).partition("#")
    if not file.startswith(_PROJECT) or not line:
        return ""
    return f"{file.removeprefix(_PROJECT)}:{line}"


def _preempts(sentence: str) -> bool:
    return sentence.startswith("preempts ")


def _message(diagnostic: Mapping[str, Any], *, lines: bool = False) -> Any:
    """Return the text of a diagnostic without the severity before it. lines: Return its lines."""
    said = re.sub(r"^(?:error|warning|note|info): ", "", text(diagnostic.get("message")).strip())
    rows = [row.rstrip() for row in said.splitlines() if row.strip()] or [""]
    if lines:
        return rows
    return plain(" ".join(row.strip() for row in rows))
