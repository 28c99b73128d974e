"""Why the next wave of a channel does not move yet: failed jobs, and metrics that are worse than before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, isfinite

from pulumi_trainer.provider.jobs.metrics import is_lower_better
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.kubernetes.values.wording import duration
from pulumi_trainer.provider.lifecycle.target import TargetJobs
from pulumi_trainer.provider.trainer.runtime_rollout import SECONDS, Rollout, Waves, is_reached


def hold_reasons(jobs: TargetJobs, runtime: str, release: str, rollout: Rollout, waves: Waves, now: float) -> list[str]:
    """Return why the next wave does not move yet, however long ago the last one was: jobs that failed, hang, or are worse.

    Args:
        now: Seconds since the epoch.
    """
    moved = waves.moved(rollout)
    try:
        found, unseen = jobs.consumers(runtime)
        reached = {each.where: each for each in found if is_reached(each.where, moved)}
        failed = [each for each in reached.values() if each.release == release and each.failed]
        reasons = [f"{each.where} has failed on {release}" for each in failed]
        for where in filter(lambda name: "/" in name, moved):
            if where not in reached or reached[where].release != release:
                reasons.append(f"{where} has not run on {release} yet")
                continue
            runs = jobs.runs(*where.split("/"))
            overdue = [*_overdue(where, runs, reached[where].ended, release, waves.longest, now)]
            if overdue:
                reasons += overdue
            elif not reached[where].ended:
                reasons.append(f"{where} still runs on {release}")
            elif waves.limits:
                reasons += regressions(where, runs, f"{runtime}@{rollout.before}", f"{runtime}@{release}", waves.limits)
    except TrainerError as fault:
        return [f"whether its jobs have failed is not known: {fault}"]
    return [*reasons, *filter(None, [unseen])]


def _overdue(where: str, runs: Sequence[Run], ended: bool, release: str, longest: float, now: float) -> Iterator[str]:
    """Yield that the last run of a job takes longer than it may, or has taken longer."""
    if not runs or longest == inf:
        return
    run = runs[-1]
    begun = run.started or run.created
    if not ended and begun and now - begun > longest:
        state = "has waited" if not run.started else "has run"
        yield f"{where} hangs on {release}: it {state} for {duration(now - begun)}, max_duration is {duration(longest)}"
    elif run.seconds > longest:
        yield f"{where} ran for {duration(run.seconds)} on {release}, max_duration is {duration(longest)}"


def regressions(where: str, runs: Sequence[Run], before: str, after: str, limits: Mapping[str, float]) -> Iterator[str]:
    """Yield each metric of a job's last run on a release that is worse than on the one before, or is not known. before: Runtime
    and release as NAME@RELEASE."""
    old, new = _last_run(runs, before), _last_run(runs, after)
    if old is None or new is None:
        yield f"{where} has no run that has succeeded on {before if old is None else after}"
        return
    for metric, limit in limits.items():
        first, second = _value(old, metric), _value(new, metric)
        if first is None or second is None:
            which = old if first is None else new
            yield f"{where}: {metric} of run {which.id} is not known"
        elif _is_lower_better(metric) and second - first > (limit - 1) * abs(first):
            yield f"{where}: {metric} {second:g} on {after}, {first:g} on {before}: more than {limit:g} times"
        elif not _is_lower_better(metric) and first - second > (limit - 1) * abs(first):
            yield f"{where}: {metric} {second:g} on {after}, {first:g} on {before}: less than {2 - limit:g} times"


def _is_lower_better(metric: str) -> bool:
    return metric == SECONDS or is_lower_better(metric) is not False


def _last_run(runs: Sequence[Run], runtime: str) -> Run | None:
    found = [
        run for run in runs if run.phase == "Succeeded" and run.inputs.get("runtime", "").partition(" ")[0] == runtime
    ]
    return found[-1] if found else None


def _value(run: Run, metric: str) -> float | None:
    if metric == SECONDS:
        return run.seconds or None
    try:
        found = float(run.metrics[metric].last)
    except (KeyError, ValueError):
        return None
    return found if isfinite(found) else None
