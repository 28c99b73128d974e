"""Finds the jobs that a command is about, of a stack or of a cluster, and reads their states.

In a Pulumi project they are those of the stack, unless the command names a cluster, a namespace, or a kind of object. Without a
stack, Pulumi is not needed; a cluster's client is loaded for jobs of a cluster only.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pulumi_trainer.provider.jobs.attempts import goodput
from pulumi_trainer.provider.jobs.progress import NOTHING_LEFT, NOTHING_REPORTED, is_empty
from pulumi_trainer.provider.jobs.status import RUN_AGAIN, JobStatus, Owner, Phase, describe
from pulumi_trainer.provider.jobs.tracking import where_tracked
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TargetFault, TrainerError
from pulumi_trainer.provider.kubernetes.terminal import plain
from pulumi_trainer.provider.kubernetes.values.accessors import epoch_seconds
from pulumi_trainer.provider.kubernetes.values.wording import duration, join_names, plural
from pulumi_trainer.provider.lifecycle.interruption_cost import InterruptionCost, interruption_cost
from pulumi_trainer.provider.service.reach import COMMAND_SECONDS, ReachedJob, Where, in_project, show_warning

if TYPE_CHECKING:
    from pulumi_trainer.provider.kubernetes.client.client import Client
    from pulumi_trainer.provider.lifecycle.diagnosis import JobView
    from pulumi_trainer.provider.targets.local import LocalTarget

MOST_PROGRESS = 50
"""Jobs whose logs `status` reads for their progress."""
_KINDS = ("jobset", "trainjob")
_ENDS = (Phase.SUCCEEDED, Phase.FAILED)


@dataclass(frozen=True)
class State:
    """A job and its status.

    Args:
        queue: Its LocalQueue; empty for none.
        view: What the cluster shows of the job; None for a job of this machine.
        start: Behind whom it waits in its queue, and when it starts; empty if it does not wait, or if that is not known.
    """

    job: ReachedJob
    status: JobStatus | None
    queue: str = ""
    kind: str = ""
    view: JobView | None = field(default=None, repr=False)
    start: str = ""

    @property
    def loss(self) -> InterruptionCost | None:
        """What the job would lose if it were stopped now; None if that is not known.

        Its newest checkpoint is the one in a volume of this machine, else the one that it has reported.
        """
        checkpoints: Mapping[int, float] | None = None
        job, status = self.job, self.status
        if job.local is not None and status is not None and status.phase == Phase.RUNNING and status.checkpoints:
            place = status.identity.place
            if place and not place.startswith("s3://"):
                from pulumi_trainer.provider.lifecycle.saved_checkpoints import checkpoints_in_volume

                with suppress(TrainerError):
                    checkpoints = checkpoints_in_volume(job.namespace, place, status.identity.lineage, job.local)
        return interruption_cost(status, time.time(), checkpoints)

    @property
    def adopted(self) -> str:
        """Which other stack has adopted the job of the stack; empty if none has, or if its owner is not known."""
        job, status = self.job, self.status
        if job.owner is None or status is None or not status.owner or job.owner.owns(status.whose):
            return ""
        return plain(f"{job.namespace}/{job.name} {status.whose.adopted_from(job.owner)}")

    def to_dict(self) -> dict[str, Any]:
        status = self.status or JobStatus(self.job.name, self.job.namespace, phase=Phase.DELETED.value)
        text = "; ".join(filter(None, (status.message, self.adopted)))
        entry = {
            **status.to_dict(),
            "message": text,
            "resource": self.job.resource,
            "kind": self.kind,
            "queue": self.queue,
            "start": self.start,
            "tracking": where_tracked(status),
            "loss": None,
            "goodput": None,
        }
        loss, used = self.loss, goodput(status.attempts, status.finished or time.time())
        if loss is not None:
            entry["loss"] = loss.to_dict()
        if used is not None:
            entry["goodput"] = used.share
        return entry


def chosen_jobs(wanted: str | None, where: Where, *, secrets: bool = False) -> list[ReachedJob]:
    """Return the jobs that a command is about. secrets: Whether to return the submissions of a stack's jobs, with the values of
    their Secrets."""
    kind, name = _parsed(wanted or "", where)
    if of_stack(wanted, where):
        from pulumi_trainer.provider.service import stack

        return stack.jobs(where.stack or None, wanted, where.project, secrets=secrets)
    return _of_cluster(kind, name, where)


def of_stack(wanted: str | None, where: Where) -> bool:
    """Return whether the command is about jobs of a stack, and not about those of a cluster."""
    if where.stack and where.cluster:
        options = "-n, -A, --context and --kubeconfig"
        if where.arguments:
            options = "namespace=, context= and kubeconfig="
        why = f"names a stack, but {options} name a cluster"
        raise Invalid(Problem(where.spelled("stack"), why, "pass only one of the two"))
    return bool(where.stack) or not (where.cluster or "/" in (wanted or "") or not in_project(where.project))


def in_cluster_of_stack(where: Where) -> Where:
    """Return the options of a command about a cluster with the connection of the stack, unless they name a cluster or
    namespace. where: The options of the command; `everywhere` stays as it is."""
    if not of_stack(None, replace(where, everywhere=False)):
        return where
    from pulumi_trainer.provider.service.stack import cluster_of

    return replace(cluster_of(where.stack or None), everywhere=where.everywhere)


def read_states(jobs: Sequence[ReachedJob], *, lines: bool = False) -> Iterator[State]:
    """Yield the state of each job. Three or more jobs of a namespace are listed together."""
    listed: dict[tuple[int, str], dict[str, JobView]] = {}
    sizes = Counter(map(_group, jobs))
    for job in jobs:
        if job.local is not None:
            yield State(job, _local_status(job.local, job), kind="JobSet")
        elif sizes[_group(job)] > 2 and not lines:
            view = _list_group(job, listed).get(job.name)
            if view is not None:
                view = _without_others(job, view)
            elif job.client is not None and job.client.workers:  # which may run it, although it is gone here
                view = read_view(job)
            yield _state(job, view)
        else:
            yield _state(job, read_view(job, lines=lines))


def find_states(wanted: str | None, where: Where) -> Sequence[State]:
    """Return the states of the jobs that a command is about, with the progress and the start of those in a cluster. wanted: The
    job argument of the command; None for all jobs."""
    if wanted is None and not of_stack(wanted, where):
        found = list_all(where)
    else:
        found = list(read_states(chosen_jobs(wanted, where)))
    return with_starts(with_progress(found))


def list_all(where: Where) -> list[State]:
    """Return all jobs of a namespace or, with `everywhere`, of the cluster."""
    from pulumi_trainer.provider.targets.kubernetes.observe.listing import snapshot_jobs, with_losses

    client, namespace = open_cluster(where)
    if where.everywhere:
        namespace = ""
    found = with_losses(client, snapshot_jobs(client, namespace), namespace)
    return [_state(ReachedJob(s.namespace, s.name, client=client), s) for s in found]


def read_view(job: ReachedJob, *, lines: bool = False) -> JobView | None:
    """Return what the cluster shows of a job; None if not found. Raise TargetFault if the cluster has no such job, and no stack
    has it either."""
    from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import (
        snapshot,
        with_lines,
        with_node_reason,
        with_queue,
        with_topology_reason,
    )
    from pulumi_trainer.provider.targets.kubernetes.observe.listing import snapshot_job, with_losses

    assert job.client is not None
    if job.owner is not None:
        view = _without_others(job, snapshot(job.client, job.namespace, job.name))
    else:
        view = snapshot_job(job.client, job.namespace, job.name, job.kind)
    (view,) = with_losses(job.client, [view], job.namespace)
    if not lines:
        return view
    fresh = job.client.within(job.client.patience)  # a copy: what was read of queues and nodes before counts no more
    for look in (with_lines, with_topology_reason, with_queue, with_node_reason):
        view = look(fresh, view)
    return view


def _state(job: ReachedJob, view: JobView | None) -> State:
    from pulumi_trainer.provider.lifecycle.diagnosis import diagnose

    if view is None:
        return State(job, None)
    kind = "TrainJob" if view.train_job is not None else "JobSet"
    return State(job, diagnose(view, time.time()), view.queue, kind, view)


def with_progress(states: Sequence[State]) -> Sequence[State]:
    """Return states with the progress that rank 0 of each job has printed, for the first `MOST_PROGRESS` jobs without any."""
    unknown = [*filter(_lacks_progress, states)]
    if not unknown:
        return states
    from concurrent.futures import ThreadPoolExecutor

    from pulumi_trainer.provider.targets.kubernetes.observe.training_progress import progress_of

    def read(state: State) -> None:
        assert state.job.client is not None and state.view is not None and state.status is not None
        state.status.progress = progress_of(state.job.client, state.view)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(read, unknown[:MOST_PROGRESS]))
    return states


def with_starts(states: Sequence[State]) -> list[State]:
    """Return states with when each job starts that waits in a queue of a cluster, as far as that can be read."""
    queues: dict[Client, set[tuple[str, str]]] = {}
    for state in states:
        if state.job.client is not None and _waits_in_queue(state):
            queues.setdefault(state.job.client, set()).add((state.job.namespace, state.queue))
    if not queues:
        return list(states)
    from pulumi_trainer.provider.targets.kubernetes.observe.job_starts import read_starts

    starts: dict[tuple[Client | None, str], str] = {}
    for client, places in queues.items():
        with suppress(TargetFault):
            known = read_starts(client.within(COMMAND_SECONDS), places)  # a copy: what was read before counts no more
            starts.update({(client, job): start for job, start in known.items()})
    found = []
    for state in states:
        start = starts.get((state.job.client, f"{state.job.namespace}/{state.job.name}"), "")
        found.append(replace(state, start=start if _waits_in_queue(state) else ""))
    return found


def _waits_in_queue(state: State) -> bool:
    return bool(state.queue) and state.status is not None and state.status.phase == Phase.QUEUED


def _lacks_progress(state: State) -> bool:
    """Return whether a job runs in a cluster, or has ended without a record of that, and the cluster shows no progress of it."""
    if not state.view or not state.status or state.status.progress:
        return False
    recorded = state.view.recorded
    if recorded is not None and recorded.phase in _ENDS:
        return False
    return state.status.phase in (Phase.RUNNING, *_ENDS)


def _group(job: ReachedJob) -> tuple[int, str]:
    return id(job.client), job.namespace


def _local_status(target: LocalTarget, job: ReachedJob) -> JobStatus | None:
    """Return the status of a job of this machine; if its record cannot be read, a status that says why."""
    return target.jobs.cached_status(job.namespace, job.name, job.uid, job.phase, job.owner or Owner(""))


def _without_others(job: ReachedJob, view: JobView) -> JobView:
    """Return the view of a job, without objects of another job that has the name of a job of the stack."""
    from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import without_others

    if job.owner is None:
        return view
    return without_others(view, job.owner)


def check_own(job: ReachedJob) -> None:
    """Check that the cluster has a job, and no other job of its name."""
    view = read_view(job)
    if view is not None and view.another:
        hint = f"`pulumi-trainer why {job.label}` shows what became of the job; -n {job.namespace} shows the other one"
        raise TargetFault(Problem(f"{job.namespace}/{job.name}", "another job has this name now", hint))


def _list_group(job: ReachedJob, listed: dict[tuple[int, str], dict[str, JobView]]) -> dict[str, JobView]:
    """Return what the cluster shows of all jobs of a job's namespace, by name. listed: Earlier results, by group."""
    from pulumi_trainer.provider.targets.kubernetes.observe.listing import snapshot_jobs, with_losses

    assert job.client is not None
    if _group(job) not in listed:
        found = with_losses(job.client, snapshot_jobs(job.client, job.namespace), job.namespace)
        listed[_group(job)] = {s.name: s for s in found}
    return listed[_group(job)]


def _parsed(wanted: str, where: Where) -> tuple[str, str]:
    """Return a job's kind, one of `_KINDS` (empty for none), and its name."""
    kind, slash, name = wanted.rpartition("/")
    if not slash:
        return "", wanted
    kind = kind.lower().removesuffix("s")
    if kind not in _KINDS or not name:
        option = "-n NAMESPACE"
        if where.arguments:
            option = where.spelled("namespace")
        hint = f"a job is NAME, jobset/NAME or trainjob/NAME; {option} names its namespace"
        raise Invalid(Problem(wanted, "not a valid job name", hint))
    return kind, name


def _of_cluster(kind: str, name: str, where: Where) -> list[ReachedJob]:
    from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB

    if not name:
        return [state.job for state in list_all(where)]
    if where.everywhere:
        raise Invalid(
            Problem("-A", "shows all jobs, and cannot be combined with the name of a job", "give -n NAMESPACE")
        )
    client, namespace = open_cluster(where)
    chosen = {"jobset": JOBSET, "trainjob": TRAIN_JOB}
    return [ReachedJob(namespace, name, client=client, kind=chosen.get(kind))]


def open_cluster(where: Where) -> tuple[Client, str]:
    """Return client and namespace of a cluster; without a namespace in the options, that of the context."""
    from pulumi_trainer.provider.kubernetes.client.access import open_client
    from pulumi_trainer.provider.kubernetes.client.kubeconfig import NO_FILE
    from pulumi_trainer.provider.kubernetes.client.kubeconfig import choose_context as context

    reached = {"kubeconfig": where.kubeconfig, "context": where.context}
    client = open_client(reached, warn=show_warning).within(COMMAND_SECONDS)
    try:
        chosen = context(where.kubeconfig, "", where.context)
    except TargetFault as fault:
        (problem,) = fault.problems
        option = where.spelled("kubeconfig")
        if problem.hint == NO_FILE:
            problem = replace(problem, hint=f"set KUBECONFIG, or pass {option}")
            fault = TargetFault(problem)
        if where.kubeconfig and "trainer:kubeconfig" in problem.hint:  # no stack names this file
            raise TargetFault(replace(problem, hint=f"give the path of another file: {option}")) from None
        if where.cluster or in_project(where.project):
            raise fault from None
        folder, change = "this folder", "run the command in the folder of a Pulumi project"
        if where.arguments:
            folder, change = where.project, "pass the folder of a Pulumi project as project_dir="
        why = f"no Pulumi.yaml in {folder} or above, and {problem.why}"
        raise TargetFault(replace(problem, why=why, hint=f"{change}, or {problem.hint}")) from None
    return client, where.namespace or chosen.namespace or "default"


@dataclass(frozen=True)
class Explanation:
    """What a job waits for, or why it has ended."""

    job: str
    namespace: str
    phase: str
    reason: str
    message: str
    hint: str
    lines: Sequence[str]
    text: str
    start: str = ""

    def to_dict(self) -> dict[str, Any]:
        names = ("job", "namespace", "phase", "reason", "message", "hint", "lines", "start")
        return {name: getattr(self, name) for name in names}


def why(job: ReachedJob) -> Explanation:
    if job.local is not None:
        local = _local_status(job.local, job)
        text = _explain_local(job, local)
        status = local or JobStatus(job.name, job.namespace, phase=Phase.DELETED.value)
        detail = status.message or text.partition(": ")[2]
        hint = RUN_AGAIN if status.unknown_end and status.uid else ""
        state = State(job, status)
    else:
        from pulumi_trainer.provider.lifecycle.diagnosis import best_finding, explain

        view, now = read_view(job, lines=True), time.time()
        (state,) = with_starts([_state(job, view)])
        assert view is not None and state.status is not None
        status, found = state.status, best_finding(view, now)
        if status.phase == Phase.RUNNING and job.client is not None and not status.progress:
            from pulumi_trainer.provider.targets.kubernetes.observe.training_progress import progress_of

            status.progress = progress_of(job.client, view)
        text = explain(view, status, now)
        detail, hint = found.why or found.message, found.hint
    text = " ".join([text, *_progress(status), *_ended_nodes(status)])
    loss = state.loss
    if loss is not None:
        text += f" If it were stopped now, it {loss}."
    text += _note(status)
    link = where_tracked(status)
    if link:
        text += f" Its metrics: {link}"
    if hint and job.local is not None:
        text += f" {hint[0].upper()}{hint[1:]}."
    if state.adopted:
        text += f"\n{state.adopted}."
    if state.start:
        text += f" It {state.start}."
    first, *lines = detail.splitlines() or [""]  # the others are of a log
    return Explanation(
        job.label, job.namespace, status.phase, status.reason, first, hint, tuple(lines), text, state.start
    )


def _progress(status: JobStatus) -> Iterator[str]:
    """Yield when a running job has last reported progress, and what it reported."""
    reported = epoch_seconds((status.progress or {}).get("lastUpdatedTime"))
    if status.phase != Phase.RUNNING or not reported or is_empty(status.progress or {}):
        return
    shown = [describe(status, phase=False)]
    step = (status.progress or {}).get("step")
    if step is not None:
        shown.append(f"step {step:,}")
    now = " ".join(filter(None, shown))
    text = f"It reported progress {duration(time.time() - reported)} ago"
    if now:
        text += f": {now}"
    yield f"{text}."


def _ended_nodes(status: JobStatus) -> Iterator[str]:
    """Yield the Pods that have ended while others of their step run: after SIGTERM, a program that ends with 0 would leave its
    peers waiting for it forever."""
    if status.phase != Phase.RUNNING:
        return
    for step in status.steps:
        if step.active and 0 < step.succeeded <= step.count - step.active:  # else the Pods of a step run in turns
            ended = f"{step.succeeded} of {plural(step.count, 'Pod')} of {step.name}"
            counts = "counts" if step.succeeded == 1 else "count"
            yield (
                f"{ended} ended with exit code 0 and {counts} as complete, while others run. If SIGTERM has stopped the program"
                " there, it is not started again: let it end with 143 after SIGTERM (PT135)."
            )


def _note(status: JobStatus) -> str:
    """Return why a job that has succeeded may not have trained, as sentences that follow others."""
    if not status.note:
        return ""
    first = status.note[0].upper() + status.note[1:]
    if status.note == NOTHING_REPORTED:
        return f" {first}. `pulumi_trainer.training.progress(step=...)` reports the steps of a program."
    follows = "its result is not trained. Look at the size of the data and at the number of steps in its arguments"
    if status.note.startswith(NOTHING_LEFT):
        follows = "it has resumed from the last step"
    elif status.note.startswith("its last "):
        follows = (
            "its result may be of no use. `pulumi-trainer runs --metrics` shows the best value, if the metric has one"
        )
    elif (status.progress or {}).get("resumedFrom"):
        follows = "its result is that of the checkpoint. Look at the number of steps in its arguments"
    return f" {first}, as its program has reported: {follows}."


_LOCAL_PHASES = {
    Phase.SUCCEEDED: "all is done",
    Phase.RUNNING: "its processes run",
    Phase.STARTING: "its processes are starting",
    Phase.SUSPENDED: "it is suspended (suspend is true); set suspend to False to continue",
}


def _explain_local(job: ReachedJob, status: JobStatus | None) -> str:
    where = f"{job.namespace}/{job.name}"
    if status is None:
        return f"{where} is Deleted: it does not exist on this machine. `pulumi up` creates it."
    reason = f" ({status.reason})" if status.reason else ""
    now = time.time()
    since = status.started or status.created
    if status.finished:
        reason += f" {duration(now - status.finished)} ago"
    elif since:
        reason += f" for {duration(now - since)}"
    what = _LOCAL_PHASES.get(Phase(status.phase), "")
    running = [s.name for s in status.steps if s.phase == Phase.RUNNING]
    if status.phase == Phase.STARTING and running:
        what += f", after {', '.join(running)}"
    what = status.message or what or "no problem is known"
    return f"{where} is {status.phase}{reason}: {what.rstrip('.')}."


def check_single(jobs: Sequence[ReachedJob], what: str) -> None:
    if len(jobs) > 1:
        names = join_names([job.label for job in jobs], 10)
        raise Invalid(Problem(what, f"there are {len(jobs)} jobs", f"name one of: {names}"))
