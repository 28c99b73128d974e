"""How a job has ended: which pod, where, with which exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pulumi_trainer.provider.api.status import OUTCOME_UNKNOWN, JobStatus, Phase
from pulumi_trainer.provider.kube.values.accessors import (
    Document,
    conditions,
    labels_of,
    name_of,
    seconds,
    section,
    text,
    true,
)
from pulumi_trainer.provider.kube.values.wording import ended
from pulumi_trainer.provider.lifecycle.diagnosis.containers import (
    Container,
    containers,
    exit_mend,
    exit_words,
    placed,
    wake,
)
from pulumi_trainer.provider.lifecycle.diagnosis.finding import Finding
from pulumi_trainer.provider.lifecycle.diagnosis.pods import last_lines
from pulumi_trainer.provider.lifecycle.diagnosis.seen import (
    JOB_NAME,
    Seen,
    moment,
    pod_name,
)
from pulumi_trainer.provider.lifecycle.status import Observed

_FIRST = re.compile(r"\(first failed job: (\S+?)\)")


def succeeded(found: Observed) -> Finding:
    """That it is done."""
    return Finding(Phase.SUCCEEDED, found.reason, found.message, f"all is done ({ended(found.message)})")


def failed(seen: Seen, found: Observed) -> Finding:
    """The pod that is at fault, as far as it is still known; else what its Job says."""
    guilty = culprit(seen, found.message)
    if guilty is not None:
        failure = guilty.failure
        how = f"{guilty.place()}: {exit_words(failure)}{_disrupted(guilty.pod)}"
        lines = last_lines(seen, guilty.pod)
        mend = exit_mend(failure) or "correct it, and run it again (run=)"
        return Finding(
            Phase.FAILED, found.reason, f"{found.message}\n{how}{lines}", f"{found.message}; {how}{lines}", mend
        )
    lost = next(_lost(seen), "")
    more = lost or _job_words(seen, found.message)
    message = found.message + (f"\n{more}" if more else "")
    why = ended(found.message) + (f"; {more}" if more else "")
    return Finding(Phase.FAILED, found.reason, message, why, "correct it, and run it again (run=)")


def culprit(seen: Seen, message: str = "") -> Container | None:
    """The container that has failed first: of the Job that JobSet names, and of its own accord, if there is one such."""
    first = _FIRST.search(message)
    found = [c for p in (*seen.pods, *seen.gone) for c in containers(p) if c.failure]
    if first:
        found = [c for c in found if labels_of(c.pod).get(JOB_NAME) == first[1]] or found
    return min(
        found,
        key=lambda c: (wake(c.failure), seconds(c.failure.get("finishedAt"), float("inf"))),
        default=None,
    )


def _disrupted(pod: Document) -> str:
    """That somebody else has ended it: an eviction, a node that went."""
    found = true(conditions(pod), "DisruptionTarget")
    return f"; {text(found.get('reason'))}: {ended(text(found.get('message')))}" if found else ""


def _lost(seen: Seen) -> Iterator[str]:
    """Pods that failed without a container that did: evicted, or never admitted by their node."""
    for pod in (*seen.pods, *seen.gone):
        status = section(pod, "status")
        if status.get("phase") == "Failed":
            reason, said = text(status.get("reason")), text(status.get("message"))
            yield (
                f"{placed(pod)} failed"
                + (f" ({reason})" if reason else "")
                + (f": {said}" if said else "")
                + _disrupted(pod)
            )


def _job_words(seen: Seen, message: str) -> str:
    first = _FIRST.search(message)
    for job in seen.jobs:
        found = true(conditions(job), "Failed")
        if found and (not first or name_of(job) == first[1]):
            where = f"Job {name_of(job)}: {ended(text(found.get('message')))} ({text(found.get('reason'))})"
            events = sorted(seen.warnings("Pod", "Failed", "BackOff", "Evicted", "Killing"), key=moment)
            words = next((text(e.get("message")) for e in events), "")
            return where + (f"; a pod said: {ended(words)}" if words else "")
    return ""


def ending(seen: Seen) -> Finding | None:
    """That a Job has failed, and JobSet has not yet said what becomes of it; None: none has."""
    for job in seen.jobs:
        found = true(conditions(job), "Failed") or true(conditions(job), "FailureTarget")
        if found:
            said = f"Job {name_of(job)} has failed: {ended(text(found.get('message')))} ({text(found.get('reason'))})"
            return Finding(Phase.RUNNING, "Ending", said, f"{said}, and JobSet decides what becomes of it")
    return None


def gone(seen: Seen) -> Finding:
    """What can be said of a job whose objects are no more."""
    known = seen.remembered
    if known is None:
        why = "there is no such job, and no record of one"
        return Finding(
            Phase.DELETED, "NotFound", "there is no such job", why, "`pulumi preview` says what becomes of it"
        )
    return Finding(
        Phase(known.phase),
        known.reason,
        known.message,
        f"it is no more ({ended(known.message)})" if known.message else "it is no more",
        _again(seen, known),
    )


def _again(seen: Seen, known: JobStatus) -> str:
    """Return how a job that is no more runs again; empty for one that has succeeded."""
    if known.phase == Phase.SUCCEEDED:
        return ""
    if known.phase != Phase.DELETED or known.reason == OUTCOME_UNKNOWN:
        return "give the TrainJob another run= key to run it again"
    if seen.another:
        return "delete the other one, or give the TrainJob another name"
    return "`pulumi up` creates it again"


def deleting(seen: Seen) -> Finding | None:
    """That somebody has deleted it, and what holds it; None: nobody has."""
    meta = section(seen.main, "metadata")
    if not meta.get("deletionTimestamp"):
        return None
    holds = [f for f in meta.get("finalizers") or [] if isinstance(f, str)]
    held = f"; held by {', '.join(holds)}" if holds else ""
    said = f"it is being deleted since {meta['deletionTimestamp']}"
    return Finding(Phase.DELETED, "Deleting", said + held, said + held)


def suspect(seen: Seen) -> tuple[str, str, bool] | None:
    """(pod, container, whether its log is that of an earlier start) whose last lines would say most; None: there is none."""
    guilty = culprit(seen, text(true(conditions(seen.jobset), "Failed").get("message")))
    if guilty is None or pod_name(guilty.pod) not in {pod_name(p) for p in seen.pods}:
        return None
    return pod_name(guilty.pod), guilty.name, not section(guilty.status, "state", "terminated")
