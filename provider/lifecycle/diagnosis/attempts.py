"""Derives the attempts of a job in a cluster from what its objects show now, and from what was observed before.

Nobody writes a history of a job there. JobSet counts restarts, Kueue counts evictions; conditions and Pods explain the newest.
Reasons of DisruptionTarget: https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions.
Reasons of evictions: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/apis/kueue/v1beta2/workload_types.go.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pulumi_trainer.provider.jobs import attempts
from pulumi_trainer.provider.jobs.attempts import INTERRUPTED_RULE, Attempt, bounded
from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.kubernetes.terminal import plain
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    condition,
    conditions,
    epoch_seconds,
    labels_of,
    mappings,
    number,
    section,
    text,
    true_condition,
)
from pulumi_trainer.provider.kubernetes.values.wording import without_full_stop
from pulumi_trainer.provider.kueue.workload_reasons import explain_preemption
from pulumi_trainer.provider.lifecycle.diagnosis.containers import describe_pod, exit_text
from pulumi_trainer.provider.lifecycle.diagnosis.job_view import STEP, JobView, of_attempt, start_times
from pulumi_trainer.provider.lifecycle.diagnosis.outcome import culprit
from pulumi_trainer.provider.trainer.pipeline.disruptions import TERMINATED

_DISRUPTIONS = {
    "PreemptionByScheduler": attempts.PREEMPTED,
    "DeletionByTaintManager": attempts.NODE_LOST,
    "DeletionByPodGC": attempts.NODE_LOST,
    "EvictionByEvictionAPI": attempts.EVICTED,
    "TerminationByKubelet": attempts.EVICTED,
}
_EVICTIONS = {"Preempted": attempts.PREEMPTED, "NodeFailures": attempts.NODE_LOST, "Deactivated": attempts.SUSPENDED}
"""Reason of an eviction by Kueue -> cause; another reason is EVICTED, with the reason as detail."""
_IDLE = (Phase.QUEUED, Phase.SUSPENDED, Phase.ADMITTED, Phase.PENDING)
"""Phases in which a job has no Pods."""


def observed_attempts(view: JobView, before: Sequence[Attempt], phase: Phase, finished: float) -> list[Attempt]:
    """Return the attempts of a job, the newest last. Times and causes that nobody has observed are not known.

    A number is left out where JobSet counts a restart in which no Pod has run (`_is_stopped`).
    """
    if view.jobset is None:
        return [*before]
    first = max((each.number for each in before if each.rerun), default=0)
    earlier = [each for each in before if each.number <= first]
    own = [replace(each, number=each.number - first) for each in before if each.number > first]
    found = _of_jobset(view, own, phase, finished)
    numbered = [replace(each, number=each.number + first) for each in found]
    return bounded([*earlier, *_with_steps(view, numbered, sum(each.count for each in earlier))])


def _of_jobset(view: JobView, before: Sequence[Attempt], phase: Phase, finished: float) -> list[Attempt]:
    """Return the attempts that the JobSet of a job counts; the arguments are those of `observed_attempts`."""
    known = {each.number: each for each in before if each.count == 1 or not each.cause}  # a gap has a cause
    suspended = 0
    if not view.queue:
        suspended = sum(each.cause == attempts.SUSPENDED for each in known.values())
    if phase == Phase.SUSPENDED and before and not before[-1].ended and not view.queue:
        known[before[-1].number] = _suspended(view, before[-1])
        suspended += 1
    over = _causes(view)
    count = sum(over.values()) + suspended
    previous = known.get(count - 1)
    previous_end = 0.0
    if previous is not None:
        previous_end = previous.finished
    newest = _newest_end(view, previous_end)
    if newest is not None and count and (count in known or not _is_stopped(previous, over)):
        known[count] = _merged(known.get(count, Attempt(count)), newest)
    for each in [*known.values()]:
        if each.number <= count and not each.ended:
            known[each.number] = replace(each, cause=_only_cause(over) or attempts.NOT_OBSERVED)
    found = [*_with_gaps(known, count, over)]
    if phase not in _IDLE or phase.terminal:
        current = _current(view, known.get(count + 1, Attempt(count + 1)), phase, finished)
        if current.started or current.ended:
            found.append(current)
    return found


def _with_steps(view: JobView, found: Sequence[Attempt], before: int) -> Iterator[Attempt]:
    """Yield the attempts, the one during which the newest log of rank 0 began with the steps in it.

    Which steps it has done again is known if the logs of all attempts before it were read. Times of a cluster are whole seconds:
    a container that begins in the second in which an attempt has ended is of the next one.

    Args:
        before: How many attempts are before these.
    """
    steps = view.steps_done
    for each in found:
        if steps is None or not 0 < each.started <= steps.started < (each.finished or math.inf):
            yield each
        elif before == view.logs_before:
            yield replace(each, first=steps.first, last=steps.last, redone=steps.redone, repeating=steps.repeating)
        else:
            yield replace(each, first=steps.first, last=steps.last)
        before += each.count


def _causes(view: JobView) -> Counter[str]:
    """Return how many attempts have ended by each cause, as far as JobSet and Kueue count them."""
    status, work = section(view.jobset, "status"), section(view.workload, "status")
    restarts, errors = number(status.get("restarts")), number(status.get("restartsCountTowardsMax"))
    found = Counter({attempts.PROGRAM_ERROR: min(errors, restarts), attempts.DISRUPTED: max(0, restarts - errors)})
    evictions = mappings(section(work, "schedulingStats").get("evictions"))
    for each in evictions:
        found[_EVICTIONS.get(text(each.get("reason")), attempts.EVICTED)] += number(each.get("count"))
    evicted = true_condition(conditions(view.workload), "Evicted")
    if evicted and not evictions:
        found[_EVICTIONS.get(text(evicted.get("reason")), attempts.EVICTED)] += 1
    return +found


def _is_stopped(attempt: Attempt | None, over: Counter[str]) -> bool:
    """Return whether JobSet may count the end of an attempt again, as the restart of a job that was stopped from outside.

    The Pods of a job with a checkpoint policy end with `TERMINATED` when Kueue or a user stops it. That fails its Jobs, mostly
    before they are suspended, and JobSet restarts them as soon as the job is resumed. No Pod has run in between.
    """
    causes = (attempts.PREEMPTED, attempts.EVICTED, attempts.NODE_LOST, attempts.SUSPENDED)
    return attempt is not None and attempt.count == 1 and _counted(attempt.cause, over) in causes


def _only_cause(over: Counter[str]) -> str:
    if len(over) != 1:
        return ""
    return next(iter(over))


def _newest_end(view: JobView, after: float) -> Attempt | None:
    """Return when and why the newest attempt has ended that does not run, if conditions show that. after: When the attempt
    before it ended; 0 if that is not known."""
    restarts = view.restarts
    evicted = true_condition(conditions(view.workload), "Evicted")
    if evicted:
        return replace(_eviction(view, evicted), started=_start(view.of_attempt(restarts), after))
    restarting = true_condition(conditions(view.jobset), "RestartingJobSet")
    if not restarting:
        return None
    at = epoch_seconds(restarting.get("lastTransitionTime"))
    own = view.of_attempt(restarts - 1)
    cause, detail, failed = _failure(own)
    at = max(at, failed)  # a condition that was True before keeps its time
    disrupted = text(restarting.get("reason")).endswith(f"_{INTERRUPTED_RULE}")
    if not cause:
        detail = without_full_stop(text(restarting.get("message")))
        cause = attempts.PROGRAM_ERROR
        if disrupted:
            cause = attempts.DISRUPTED
    return Attempt(1, _start(own, after), at, cause, detail)


def _start(own: JobView, after: float) -> float:
    """Return when the first Pod of an attempt that trains started; 0 if its Pods are gone."""
    pods = [pod for pod in (*own.pods, *own.gone) if labels_of(pod).get(STEP) == own.trainer_step]
    return min((at for at in start_times(pods) if at > after), default=0.0)


def _eviction(view: JobView, evicted: Document) -> Attempt:
    reason, message = text(evicted.get("reason")), text(evicted.get("message"))
    cause = _EVICTIONS.get(reason, attempts.EVICTED)
    detail = f"{reason}: {without_full_stop(message)}"
    if cause == attempts.PREEMPTED:
        why = text(condition(conditions(view.workload), "Preempted").get("message")) or message
        detail = explain_preemption(why, view.preemptor)
    elif view.override:
        detail = view.override.partition(";")[0]
    return Attempt(1, finished=epoch_seconds(evicted.get("lastTransitionTime")), cause=cause, detail=detail)


def _suspended(view: JobView, running: Attempt) -> Attempt:
    at = epoch_seconds(true_condition(conditions(view.main), "Suspended").get("lastTransitionTime"))
    who = view.override.partition(";")[0]
    return replace(running, finished=at, cause=attempts.SUSPENDED, detail=who)


def _failure(own: JobView) -> tuple[str, str, float]:
    """Return why an attempt has failed and since when, from its Pods; empty if they are gone."""
    for pod in (*own.pods, *own.gone):
        disrupted = true_condition(conditions(pod), "DisruptionTarget")
        if disrupted:
            reason, message = text(disrupted.get("reason")), without_full_stop(text(disrupted.get("message")))
            at = epoch_seconds(disrupted.get("lastTransitionTime"))
            return _DISRUPTIONS.get(reason, attempts.DISRUPTED), f"{describe_pod(pod)}: {message}", at
    guilty = culprit(own)
    if guilty is None:
        return "", "", 0.0
    detail = f"{describe_pod(guilty.pod)}: {exit_text(guilty.failure)}"
    at = epoch_seconds(guilty.failure.get("finishedAt"))
    if text(guilty.failure.get("reason")) == attempts.OUT_OF_MEMORY:
        return attempts.OUT_OF_MEMORY, detail, at
    if guilty.failure.get("exitCode") == TERMINATED:
        return attempts.TERMINATED, detail, at
    return attempts.PROGRAM_ERROR, detail, at


def _merged(known: Attempt, seen: Attempt) -> Attempt:
    """Return an attempt with the end that is seen now, unless a better one was observed before."""
    if known.ended and known.finished and known.cause:
        return known
    detail = plain(seen.detail)[: attempts.LONGEST]
    started = known.started or seen.started
    finished = max(seen.finished, started)
    return replace(known, started=started, finished=finished or known.finished, cause=seen.cause, detail=detail)


def _with_gaps(known: dict[int, Attempt], count: int, over: Counter[str]) -> Iterator[Attempt]:
    """Yield the attempts up to a number; several in a row that nobody has observed are one entry."""
    seen = sorted(each for each in known if each <= count)
    missing = count - sum(known[each].count for each in seen)
    left = over - Counter(_counted(known[each].cause, over) for each in seen if known[each].count == 1)
    start = 1
    for at in seen:
        start += start < at and _is_stopped(known.get(start - 1), over)
        if start < at and known[at].count == 1:  # several are the oldest ones
            yield _gap(at - 1, at - start, left, missing)
        yield known[at]
        start = at + 1
    start += start <= count and _is_stopped(known.get(start - 1), over)
    if start <= count:
        yield _gap(count, count + 1 - start, left, missing)


def _gap(last: int, count: int, left: Counter[str], missing: int) -> Attempt:
    """Return an entry for attempts in a row that nobody has observed.

    Args:
        left: By which causes attempts have ended that nobody has observed, as far as they are counted.
        missing: How many attempts nobody has observed in all.
    """
    if sum(left.values()) != missing:
        return Attempt(last, cause=attempts.NOT_OBSERVED, count=count)
    detail = ""
    if len(left) > 1 and count == missing:
        detail = ", ".join(f"{n} {name}" for name, n in left.items())
    return Attempt(last, cause=_only_cause(left) or attempts.NOT_OBSERVED, detail=detail, count=count)


def _counted(cause: str, over: Counter[str]) -> str:
    """Return as what JobSet or Kueue has counted a cause that was observed."""
    if cause in (attempts.OUT_OF_MEMORY, attempts.KILLED):
        return attempts.PROGRAM_ERROR
    if cause in over or cause == attempts.SUSPENDED:
        return cause
    return attempts.DISRUPTED


def _is_over(document: Document) -> bool:
    """Return whether a Pod or a Job has failed or is being deleted: JobSet may not have counted the restart yet."""
    failed = section(document, "status").get("phase") == "Failed" or true_condition(conditions(document), "Failed")
    return bool(failed) or "deletionTimestamp" in section(document, "metadata")


def _current(view: JobView, known: Attempt, phase: Phase, finished: float) -> Attempt:
    """Return the newest attempt, which runs or has ended the job."""
    restarts = view.restarts
    pods = of_attempt(view.pods_of(view.trainer_step), restarts)
    jobs = of_attempt(view.jobs_of(view.trainer_step), restarts)
    own = [each for each in pods or jobs if phase.terminal or not _is_over(each)]
    began = replace(known, started=known.started or min(start_times(own), default=0.0))
    if phase == Phase.SUCCEEDED:
        return replace(began, finished=finished, cause=attempts.SUCCEEDED, detail="")
    if phase == Phase.FAILED:
        cause, detail, _ = _failure(view.of_attempt(restarts))
        if not cause:
            failed = true_condition(conditions(view.main), "Failed") or true_condition(
                conditions(view.jobset), "Failed"
            )
            cause, detail = text(failed.get("reason")), text(failed.get("message"))
        return replace(began, finished=finished, cause=plain(cause), detail=plain(detail)[: attempts.LONGEST])
    return began
