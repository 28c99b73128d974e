"""Which jobs a command is about, and how each is asked: those of a stack, or any of a cluster.

A stack where there is a Pulumi project, unless the command names a cluster, a namespace, or a kind of object. Without a stack
no Pulumi is needed; a cluster's client is loaded for jobs of a cluster only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulumi_trainer.provider.api.status import JobStatus, Owner, Phase
from pulumi_trainer.provider.commands.reach import PATIENCE, Job, Where, show_warning
from pulumi_trainer.provider.kube.errors import Invalid, Problem, TargetFault
from pulumi_trainer.provider.kube.values.wording import duration

if TYPE_CHECKING:
    from pulumi_trainer.provider.kube.client.client import Client
    from pulumi_trainer.provider.lifecycle.diagnosis import Seen
    from pulumi_trainer.provider.targets.local import LocalTarget

PROGRESS = 50
"""Jobs whose logs `status` reads for their progress."""
_KINDS = {"jobset": "JOBSET", "jobsets": "JOBSET", "trainjob": "TRAIN_JOB", "trainjobs": "TRAIN_JOB"}


@dataclass(frozen=True)
class State:
    """A job and what it does now. status: None: nothing is known of it."""

    job: Job
    status: JobStatus | None
    queue: str = ""
    kind: str = ""
    seen: Seen | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """As `--json` tells it."""
        status = self.status or JobStatus(self.job.name, self.job.namespace, phase=Phase.DELETED.value)
        return {**status.to_dict(), "resource": self.job.resource, "kind": self.kind, "queue": self.queue}


def chosen(wanted: str | None, where: Where) -> list[Job]:
    """The jobs called `wanted`, all where it is None. Raises Invalid, TargetFault."""
    kind, name = _parsed(wanted or "")
    if of_stack(wanted, where):
        from pulumi_trainer.provider.commands import stack

        return stack.jobs(where.stack or None, wanted)
    return _of_cluster(kind, name, where)


def of_stack(wanted: str | None, where: Where) -> bool:
    """Whether jobs of a stack are meant, and not those of a cluster. Raises Invalid."""
    if where.stack and where.cluster:
        raise Invalid(
            Problem("--stack", "names a stack, and -n, -A, --context and --kubeconfig a cluster", "give one of them")
        )
    return bool(where.stack) or not (where.cluster or "/" in (wanted or "") or not in_project())


def states(jobs: Sequence[Job], *, lines: bool = False) -> Iterator[State]:
    """What each does now. lines: with the last lines of the log that says most of a failure."""
    many: dict[tuple[int, str], dict[str, Seen]] = {}
    groups: dict[tuple[int, str], int] = {}
    for job in jobs:
        groups[_group(job)] = groups.get(_group(job), 0) + 1
    for job in jobs:
        if job.local is not None:
            yield State(job, _here(job.local, job), kind="JobSet")
            continue
        found: Seen | None
        if groups[_group(job)] > 2 and not lines:
            found = _all_of(job, many).get(job.name)
            found = None if found is None else _own(job, found)
        else:
            found = look(job, lines=lines)
        yield _state(job, found)


def everything(where: Where) -> list[State]:
    """All jobs of a namespace or, with `everywhere`, of the cluster."""
    from pulumi_trainer.provider.targets.kubernetes.observe.listing import seen_all, with_losses

    client, namespace = opened(where)
    namespace = "" if where.everywhere else namespace
    found = with_losses(client, seen_all(client, namespace), namespace)
    return [_state(Job(s.namespace, s.name, client=client), s) for s in found]


def look(job: Job, *, lines: bool = False) -> Seen | None:
    """What the cluster shows of it; None: nothing. lines: with all that `why` needs. Raises TargetFault for a job that was asked
    for by name and is not there."""
    from pulumi_trainer.provider.targets.kubernetes.observe.listing import seen_one, with_losses
    from pulumi_trainer.provider.targets.kubernetes.observe.seen import snapshot, with_lines, with_room

    assert job.client is not None
    if job.owner is not None:
        seen = _own(job, snapshot(job.client, job.namespace, job.name))
    else:
        seen = seen_one(job.client, job.namespace, job.name, job.kind)
    (seen,) = with_losses(job.client, [seen], job.namespace)
    return with_room(job.client, with_lines(job.client, seen)) if lines else seen


def _state(job: Job, seen: Seen | None) -> State:
    from pulumi_trainer.provider.lifecycle.diagnosis import diagnose

    if seen is None:
        return State(job, None)
    kind = "TrainJob" if seen.train_job is not None else "JobSet"
    return State(job, diagnose(seen, time.time()), seen.queue, kind, seen)


def with_progress(states: Sequence[State]) -> Sequence[State]:
    """What rank 0 of each running job of a cluster has printed, of the first `PROGRESS`."""
    from concurrent.futures import ThreadPoolExecutor

    from pulumi_trainer.provider.targets.kubernetes.logs.podlogs import progress_of

    def read(state: State) -> None:
        assert state.job.client is not None and state.seen is not None and state.status is not None
        state.status.progress = progress_of(state.job.client, state.seen)

    running = [s for s in states if s.seen and s.status and s.status.phase == Phase.RUNNING and not s.status.progress]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(read, running[:PROGRESS]))
    return states


def _group(job: Job) -> tuple[int, str]:
    return id(job.client), job.namespace


def _here(target: LocalTarget, job: Job) -> JobStatus | None:
    """What a job of this machine does; of one whose record cannot be read, why."""
    return target.glance(job.namespace, job.name, "", "", Owner(""))


def _own(job: Job, seen: Seen) -> Seen:
    """Without another job that has the name of one of a stack."""
    from pulumi_trainer.provider.targets.kubernetes.observe.seen import without_others

    return seen if job.owner is None else without_others(seen, job.owner)


def check_own(job: Job) -> None:
    """Raises TargetFault for a job that is not there, and for one whose name another job has by now."""
    if (seen := look(job)) is not None and seen.another:
        mend = f"`pulumi-trainer why {job.label}` says what became of it; -n {job.namespace} shows the other one"
        raise TargetFault(Problem(f"{job.namespace}/{job.name}", "another job has its name by now", mend))


def _all_of(job: Job, many: dict[tuple[int, str], dict[str, Seen]]) -> dict[str, Seen]:
    from pulumi_trainer.provider.targets.kubernetes.observe.listing import seen_all, with_losses

    assert job.client is not None
    if _group(job) not in many:
        found = with_losses(job.client, seen_all(job.client, job.namespace), job.namespace)
        many[_group(job)] = {s.name: s for s in found}
    return many[_group(job)]


def _parsed(wanted: str) -> tuple[str, str]:
    """(name of the kind's constant or empty, name)"""
    kind, slash, name = wanted.rpartition("/")
    if not slash:
        return "", wanted
    if kind.lower() not in _KINDS or not name:
        mend = "a job is NAME, jobset/NAME or trainjob/NAME; -n NAMESPACE says where it is"
        raise Invalid(Problem(wanted, "is no name of a job", mend))
    return _KINDS[kind.lower()], name


def _of_cluster(kind: str, name: str, where: Where) -> list[Job]:
    from pulumi_trainer.provider.api import kinds

    if not name:
        return [state.job for state in everything(where)]
    if where.everywhere:
        raise Invalid(Problem("-A", "is for all jobs, and a job has one namespace", "give -n NAMESPACE"))
    client, namespace = opened(where)
    return [Job(namespace, name, client=client, kind=getattr(kinds, kind) if kind else None)]


def opened(where: Where) -> tuple[Client, str]:
    """(client, namespace): that of the context, where none is given. For commands about a cluster."""
    from pulumi_trainer.provider.kube.client.access import open_client
    from pulumi_trainer.provider.kube.client.kubeconfig import chosen as context

    reached = {"kubeconfig": where.kubeconfig, "context": where.context}
    client = open_client(reached, warn=show_warning).within(PATIENCE)
    namespace = where.namespace or context(where.kubeconfig, "", where.context).namespace
    return client, namespace or "default"


def in_project() -> bool:
    """Whether this is a folder of a Pulumi project."""
    here = Path.cwd()
    return any((f / n).is_file() for f in (here, *here.parents) for n in ("Pulumi.yaml", "Pulumi.yml"))


def why(job: Job) -> str:
    """One paragraph: what the job waits for or why it has ended."""
    if job.local is not None:
        return _why_here(job, _here(job.local, job))
    from pulumi_trainer.provider.lifecycle.diagnosis import diagnose
    from pulumi_trainer.provider.lifecycle.diagnosis import why as paragraph

    seen, now = look(job, lines=True), time.time()
    assert seen is not None
    return paragraph(seen, diagnose(seen, now), now)


def _why_here(job: Job, status: JobStatus | None) -> str:
    """Of a job of this machine: its status says it all."""
    where = f"{job.namespace}/{job.name}"
    if status is None:
        return f"{where} is Deleted: nothing is known of it on this machine. `pulumi up` creates it."
    reason = f" ({status.reason})" if status.reason else ""
    now = time.time()
    if status.finished:
        reason += f" {duration(now - status.finished)} ago"
    elif since := status.started or status.created:
        reason += f" for {duration(now - since)}"
    said = {
        Phase.SUCCEEDED: "all is done",
        Phase.RUNNING: "its processes run",
        Phase.STARTING: "its processes are starting",
        Phase.SUSPENDED: "its suspend is true; set suspend to False to go on",
    }.get(Phase(status.phase), "")
    waits = [s.name for s in status.steps if s.phase == Phase.RUNNING] if status.phase == Phase.STARTING else []
    said += f", after {', '.join(waits)}" if waits else ""
    return (
        f"{where} is {status.phase}{reason}: {(status.message or said or 'nothing is known to be wrong').rstrip('.')}."
    )


def only_one(jobs: Sequence[Job], what: str) -> None:
    """Raises Invalid where a command would go on with too many jobs at once."""
    if len(jobs) > 1:
        names = ", ".join(j.label for j in jobs[:10]) + (f" and {len(jobs) - 10} more" if len(jobs) > 10 else "")
        raise Invalid(Problem(what, f"there are {len(jobs)} jobs", f"name one of: {names}"))


def none(where: Where) -> TargetFault:
    """What to say where there is no job at all."""
    place = (
        "the cluster" if where.everywhere else f"namespace {where.namespace}" if where.namespace else "the namespace"
    )
    return TargetFault(Problem(place, "has no JobSets and no TrainJobs", "-n NAMESPACE looks elsewhere, -A everywhere"))
