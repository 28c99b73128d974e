"""`runtime impact`: prints what another release of a runtime does to the jobs that use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pulumi_trainer.provider.cli.formats import print_data
from pulumi_trainer.provider.cli.releases import release_of, valid_runtime
from pulumi_trainer.provider.cli.report import LONGEST_NAME, code
from pulumi_trainer.provider.jobs.submission import Consumer
from pulumi_trainer.provider.kubernetes.terminal import plain, print_lines
from pulumi_trainer.provider.kubernetes.values.accessors import name_of
from pulumi_trainer.provider.kubernetes.values.wording import aligned, plural
from pulumi_trainer.provider.lifecycle.impact import NEXT_RUN, REPLACED_OR_NEXT_RUN, Impact, effect_lines, find_impacts
from pulumi_trainer.provider.service.jobs import in_cluster_of_stack, of_stack, open_cluster
from pulumi_trainer.provider.service.reach import Where
from pulumi_trainer.provider.trainer.catalog.catalog import BUILT_IN, RuntimeCatalog
from pulumi_trainer.provider.trainer.pipeline import Release
from pulumi_trainer.provider.trainer.runtime_releases import Effect, compare, follow_refusal, level_of

_HEAD = ("job", "stack", "queue", "GPUs", "runs now")


def impact(one: str, other: str, where: Where, folder: str, output: str, trainer: Release) -> None:
    """Print what the step from one release to another does to each job that uses the first one."""
    catalog = RuntimeCatalog.from_dir(folder) if folder else BUILT_IN
    before, after = valid_runtime(one, catalog, trainer), valid_runtime(other, catalog, trainer)
    jobs, interrupts = _consumers(where, name_of(before))
    release = release_of(before)
    affected = [job for job in jobs if not release or job.release == release]
    general = compare(before, after, trainer)
    found = find_impacts(affected, before, after, general, trainer, _outcome(release_of(after), interrupts))
    head = f"{one} => {other}", level_of(general), general
    rest = len(jobs) - len(affected)
    if output in ("json", "yaml"):
        print_data(
            {"from": one, "to": other, "level": head[1], "others": rest, "impacts": [*map(_to_dict, found)]}, output
        )
    elif output == "markdown":
        print_lines(_markdown(*head, found, rest))
    else:
        print_lines(_table(*head, found, rest))


def _consumers(where: Where, runtime: str) -> tuple[list[Consumer], Mapping[str, str]]:
    """Return the jobs of a stack, a namespace or a cluster that use a runtime, and `interrupt` of those whose stack is known."""
    from pulumi_trainer.provider.service import stack
    from pulumi_trainer.provider.targets.kubernetes.jobs.consumers import consumers_in

    if not of_stack(None, where):
        client, namespace = open_cluster(in_cluster_of_stack(where))
        return consumers_in(client, runtime, "" if where.everywhere else namespace), {}
    found: dict[str, Consumer] = {}
    interrupts: dict[str, str] = {}
    read: set[tuple[int, str]] = set()
    for job in stack.jobs(where.stack or None, None, where.project):
        interrupts[f"{job.namespace}/{job.name}"] = job.stored.interrupt if job.stored is not None else ""
        place = id(job.client or job.local), job.namespace
        if place not in read:
            read.add(place)
            assert job.client is not None or job.local is not None
            if job.client is not None:
                jobs = consumers_in(job.client, runtime, job.namespace)
            else:
                jobs = job.local.jobs.consumers(runtime)[0] if job.local is not None else []
            found |= {each.where: each for each in jobs}
    return [found[name] for name in sorted(found) if name in interrupts], interrupts


def _outcome(after: str, interrupts: Mapping[str, str]) -> Callable[[Consumer, list[Effect]], str]:
    """Return a function that says when a job changes."""

    def outcome(job: Consumer, effects: list[Effect]) -> str:
        if not effects:
            return "nothing"
        if job.channel and after and follow_refusal(job.follow, job.release, after, level_of(effects)):
            return f'nothing: they stay with {plain(job.release)} (follow="{plain(job.follow)}")'
        if not job.channel:
            return "on the first run after their program names the release"
        if job.ended or interrupts.get(job.where) == "refuse":
            return NEXT_RUN
        if job.where in interrupts and job.runs:
            return "replaced: they run, and interrupt allows it"
        return REPLACED_OR_NEXT_RUN

    return outcome


def _to_dict(impact: Impact) -> dict[str, Any]:
    jobs = [dict(zip(("job", "stack", "queue", "gpus", "runs"), _values(job), strict=True)) for job in impact.jobs]
    level = level_of([*impact.effects])
    return {
        "outcome": impact.outcome, "level": level, "exact": impact.exact, "effects": [*map(asdict, impact.effects)], "jobs": jobs,
    }  # fmt: skip


def _values(job: Consumer) -> tuple[Any, ...]:
    return job.where, job.program or None, job.queue, job.gpus, job.runs


def _cells(job: Consumer) -> list[str]:
    gpus = "unknown" if job.gpus is None else f"{job.gpus:g}"
    runs = {True: "yes", False: "no", None: "unknown"}[job.runs]
    queue = "unknown" if job.queue is None else job.queue or "none"
    return [*map(plain, (job.where, job.program or "unknown", queue)), gpus, runs]


def _table(step: str, level: str, general: Sequence[Effect], found: Sequence[Impact], rest: int) -> Iterator[str]:
    yield f"{step}: {level if general else 'nothing changes in jobs'}"
    yield from effect_lines(general)
    for each in found:
        yield ""
        yield f"{plural(len(each.jobs), 'job')} {each.outcome}: {each.difference}"
        yield from [] if each.effects == tuple(general) else effect_lines(each.effects)
        yield from (f"  {row}" for row in aligned([_HEAD, *map(_cells, each.jobs)]))
    yield from _others(found, rest)


def _markdown(step: str, level: str, general: Sequence[Effect], found: Sequence[Impact], rest: int) -> Iterator[str]:
    yield f"### {code(step)}: {level if general else 'nothing changes in jobs'}"
    yield ""
    yield from (f"- {effect.level} {code(str(effect))}" for effect in general)
    for each in found:
        yield from ["", f"**{plural(len(each.jobs), 'job')}** {code(each.outcome)}: {each.difference}", ""]
        if each.effects != tuple(general):
            yield from [*(f"- {effect.level} {code(str(effect))}" for effect in each.effects), ""]
        yield from [f"| {' | '.join(_HEAD)} |", f"|{'---|' * len(_HEAD)}"]
        for job in each.jobs:
            yield f"| {' | '.join(code(cell, LONGEST_NAME).replace('|', '&#124;') for cell in _cells(job))} |"
    yield from _others(found, rest)


def _others(found: Sequence[Impact], rest: int) -> Iterator[str]:
    if not found:
        yield from ["", "no job uses the first one"]
    if rest:
        yield from ["", f"not shown: {plural(rest, 'job')} with other releases of the runtime"]
