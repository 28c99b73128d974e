"""Schemas of what the commands print with `-o json` and `-o yaml`: all keys, their types and meaning.

New keys may come at any time. Before 1.0 a key may also be removed or renamed, which CHANGELOG.md names.
Times are seconds since the epoch, 0 for not yet or not known.
"""

from __future__ import annotations

from typing import Any, TypedDict


class StepEntry(TypedDict):
    """One replicated job; counts are Pods.

    Attributes:
        name: Name of the replicated job, such as node.
        phase: Pending, Running, Succeeded, Failed, ...
        count: Pods of the step.
        active: Pods that exist and have not ended.
        ready: Pods that are ready.
        succeeded: Pods that have succeeded.
        failed: Pods that have failed.
        restarts: Restarts of its containers, Pods and Jobs, without those of the whole JobSet.
        started: Time of its start.
        finished: Time of its end.
    """

    name: str
    phase: str
    count: int
    active: int
    ready: int
    succeeded: int
    failed: int
    restarts: int
    started: float
    finished: float


class AttemptEntry(TypedDict):
    """One start of a job's Pods until all of them have ended.

    Attributes:
        number: The first attempt has 1.
        started: When its first Pod was started.
        finished: When its last Pod had ended.
        cause: Why it ended: Succeeded, ProgramError, OOMKilled, Killed, Terminated, Preempted, Evicted, NodeLost, Disrupted,
            Suspended, Stopped, NotObserved, or the reason of the JobSet; empty while it runs.
        detail: Who or what has ended it; empty if not known.
        first: Step of its first report; null if it has reported none, or in a cluster.
        last: Step of its newest report; null as for first.
        redone: Steps that an earlier attempt had done already; null if not known.
        repeating: Seconds that these steps have taken.
        count: How many attempts the entry stands for: 1, or more for the oldest ones after 100 attempts.
        ran: Seconds that the attempts of an entry for several have taken; else 0.
        rerun: Whether `pulumi-trainer rerun` followed it.
    """

    number: int
    started: float
    finished: float
    cause: str
    detail: str
    first: int | None
    last: int | None
    redone: int | None
    repeating: float
    count: int
    ran: float
    rerun: bool


class StatusEntry(TypedDict):
    """An entry of the list that `status` prints.

    Attributes:
        name: Name of the job.
        namespace: Its namespace.
        uid: Identity of its run on the target.
        owner: Identity of the resource that owns it.
        digest: Digest of what was submitted.
        phase: Queued, Pending, Running, Succeeded, Failed, Suspended, Deleted, ...
        reason: One word for the phase; empty if nothing needs an explanation.
        message: What happened, in sentences.
        steps: Its replicated jobs.
        restarts: Restarts of the whole JobSet.
        created: Time of its creation.
        started: Time of its start.
        finished: Time of its end.
        progress: Newest `trainerStatus` of rank 0: progressPercentage, estimatedRemainingSeconds, metrics (name -> value), step,
            checkpoint (step, time), resumedFrom (step); null if none.
        output: Folder or claim of its output; empty for none.
        logs: Folder of its logs on this machine; empty in a cluster.
        stack: Label of the stack that owns it.
        program: Project of the stack that owns it.
        run: The `run` key.
        identity: Id, lineage, parent, cause and place of the run, as in `runs`.
        inputs: What identifies the inputs of the run: name -> digest, version or short text.
        cluster: Worker cluster of MultiKueue that has the job; empty if it runs in its own cluster.
        attempts: Starts of its Pods, the newest last.
        checkpoints: Whether it has a checkpoint policy.
        resource: Name of its resource in the stack; empty without a stack.
        kind: JobSet or TrainJob.
        queue: Its LocalQueue; empty for none.
        start: Behind whom it waits in its queue, and when it starts; empty if it does not wait, or if that is not known.
        loss: What a running job would lose if it were stopped now: steps, seconds (null if not known), and checkpoint, the step
            of the newest one or null; null if not known.
        goodput: Training time without steps done again, divided by the time since the first start; 0 to 1; null if not known.
        tracking: Address of the run on its tracker, or the command that opens the tracker's files; empty if not known.
    """

    name: str
    namespace: str
    uid: str
    owner: str
    digest: str
    phase: str
    reason: str
    message: str
    steps: list[StepEntry]
    restarts: int
    created: float
    started: float
    finished: float
    progress: dict[str, Any] | None
    output: str
    logs: str
    stack: str
    program: str
    run: str
    identity: dict[str, str]
    inputs: dict[str, str]
    cluster: str
    attempts: list[AttemptEntry]
    checkpoints: bool
    resource: str
    kind: str
    queue: str
    start: str
    loss: dict[str, Any] | None
    goodput: float | None
    tracking: str


class WhyEntry(TypedDict):
    """An entry of the list that `why` prints.

    Attributes:
        job: Name of the job.
        namespace: Its namespace.
        phase: Its phase.
        reason: One word; empty if nothing needs an explanation.
        message: What it waits for or why it has ended.
        hint: What to do; empty for nothing.
        lines: Last lines of the log of what has failed.
        start: As in `status`.
    """

    job: str
    namespace: str
    phase: str
    reason: str
    message: str
    hint: str
    lines: list[str]
    start: str


class LogEntry(TypedDict):
    """A line of `logs -o json`, each an object on a line of its own.

    Attributes:
        job: Name of the job.
        run: Id of its run; empty if unknown.
        step: Name of the replicated job.
        rank: Index of the Pod in its step; null if unknown.
        pod: Name of the Pod.
        process: Process of the node, if torchrun runs several; else null.
        container: Name of the container.
        line: The text.
    """

    job: str
    run: str
    step: str
    rank: int | None
    pod: str
    process: int | None
    container: str
    line: str


class EventEntry(TypedDict):
    """An entry of the list that `events` prints.

    Attributes:
        first: Time of the first occurrence, in UTC as in Kubernetes (RFC 3339).
        last: Time of the last occurrence.
        count: Number of occurrences.
        type: Normal or Warning.
        reason: Reason of the event.
        kind: Kind of the objects.
        objects: Names of the objects.
        message: Message of the event.
        source: Component that has reported it.
        run: Id of the job's run; empty for a job without one.
    """

    first: str
    last: str
    count: int
    type: str
    reason: str
    kind: str
    objects: list[str]
    message: str
    source: str
    run: str


class MetricEntry(TypedDict):
    """A metric in an entry of `runs`. Values are texts, as the program has reported them.

    Attributes:
        first: The first value; empty if the reports were not read from the start.
        last: The newest value, also `nan`.
        best: The least or greatest finite value, by the usual direction of the metric; empty if no direction is known.
        min: The least finite value; empty if none is a finite number.
        max: The greatest finite value, likewise.
    """

    first: str
    last: str
    best: str
    min: str
    max: str


class PointEntry(TypedDict):
    """A value in the history of a metric.

    Attributes:
        step: Step of the report; null if it has none.
        time: Time of the report.
        value: The value, as text.
    """

    step: int | None
    time: float
    value: str


class RunEntry(TypedDict):
    """An entry of the list that `runs` prints, the newest run of a job last.

    Attributes:
        job: Name of the job; in a stack that of its resource.
        namespace: Its namespace.
        run: The `run` key.
        id: Id of the run.
        lineage: Id of the run that started anew and from which this one continues; its own id if it started anew.
        parent: Id of the run that it continues; empty if it started anew.
        cause: Why it was started: created, changed or rerun.
        place: Where it keeps output and checkpoints, without the folder of its lineage; empty if nowhere.
        fork: Run and step of the checkpoint that its lineage started from; empty for none.
        origin: Lineage of that run.
        removed: Lineages whose folders were removed when it was created (`keep_runs`), separated by commas; empty for none.
        resumedFrom: Step of the checkpoint that it has loaded last, as it has reported; null if it has reported none.
        steps: Steps that it has done, as far as it has reported; null if that is not known.
        phase: Its last phase; Interrupted if a new run has ended it, Deleted if it is not known whether it had ended.
        created: Time of its creation.
        started: When it began to run.
        finished: Time of its end.
        inputs: What it was made from: name -> digest, version or short text.
        note: That it has succeeded without a step; empty if it has done steps, or reported none.
        message: Why it has ended, with its last lines if it has failed.
        usage: What it requested: user, queue, gpus, cpus, since; only what is known.
        metrics: The metrics that it has reported, by name.
        history: Their history by name, the newest point last; at most 200 points each. Empty where the runs of several jobs are
            printed.
    """

    job: str
    namespace: str
    run: str
    id: str
    lineage: str
    parent: str
    cause: str
    place: str
    fork: str
    origin: str
    removed: str
    resumedFrom: int | None
    steps: int | None
    phase: str
    created: float
    started: float
    finished: float
    inputs: dict[str, str]
    note: str
    message: str
    usage: dict[str, Any]
    metrics: dict[str, MetricEntry]
    history: dict[str, list[PointEntry]]


class OutputEntry(TypedDict):
    """An entry of the list that `outputs` prints.

    Attributes:
        name: Name of the job.
        namespace: Its namespace.
        resource: Name of its resource in the stack.
        phase: Phase of the run that was asked for; else of the job.
        where: Folder, or `pvc://CLAIM[/FOLDER]`.
        size: Bytes of the files; in a cluster the capacity of the claim.
        files: Number of files; null if not known.
        created: When the volume was created.
        written: When a file was last written.
        retained: Whether the volume stays when its job is deleted.
        gone: Whether the volume does not exist any more.
    """

    name: str
    namespace: str
    resource: str
    phase: str
    where: str
    size: int
    files: int | None
    created: float
    written: float
    retained: bool
    gone: bool


class QueuesResult(TypedDict):
    """What `queues` prints. Amounts are quantities of Kubernetes; an amount that does not exist is left out.

    Attributes:
        cohorts: name, parent, resources.
        clusterQueues: name, cohort, active, message, admitted, pending, resources.
        localQueues: name, namespace, clusterQueue, active, message, admitted, pending, resources.
        jobs: namespace, name, kind, queue, clusterQueue, holds, asks, priority, priorityClass, since, reason, why,
            start (as in `status`), flavors.
        unseen: Kinds that could not be listed.
    """

    cohorts: list[dict[str, Any]]
    clusterQueues: list[dict[str, Any]]
    localQueues: list[dict[str, Any]]
    jobs: list[dict[str, Any]]
    unseen: list[str]


class UsageResult(TypedDict):
    """What `usage` prints.

    Attributes:
        by: team, queue, user or job; each row has its name by this key.
        since: Begin of the window.
        until: End of the window.
        rows: jobs, running, gpus, gpuHours, cpuHours (null if no job requests CPUs), incomplete, unpriced, and cost by currency,
            of each.
        total: The same numbers of all.
        unseen: Kinds that could not be listed.
    """

    by: str
    since: float
    until: float
    rows: list[dict[str, Any]]
    total: dict[str, Any]
    unseen: list[str]


class DoctorResult(TypedDict):
    """What `doctor` prints.

    Attributes:
        findings: code, target, kind, namespace, name, resource, message, and settle: a list of effect and command.
        unseen: Kinds that could not be listed.
    """

    findings: list[dict[str, Any]]
    unseen: list[str]


class CacheEntry(TypedDict):
    """An entry of the list that `cache list` prints.

    Attributes:
        kind: environment, code archive, catalogue or git project.
        name: Its name.
        path: Its folder or file.
        size: Bytes of its files.
        lastUsed: Time of the last use.
        requirements: Requirements of an environment; else empty.
        python: Version of Python of an environment; else empty.
        jobs: Running jobs that use it.
        inUse: Why it cannot be removed now; empty if it can.
    """

    kind: str
    name: str
    path: str
    size: int
    lastUsed: float
    requirements: list[str]
    python: str
    jobs: list[str]
    inUse: str


class RuntimeEntry(TypedDict):
    """An entry of the list that `runtime list` prints.

    Attributes:
        name: Name of the runtime.
        releases: Its releases that are offered, the oldest first.
        newest: The newest release.
        deprecated: Releases that are deprecated.
        framework: What starts user code.
        devices: cpu, gpu.
        gpusPerNode: GPUs that each node requests by default.
        nodes: `1` or `1 or more`.
        purpose: What it is for.
    """

    name: str
    releases: list[str]
    newest: str
    deprecated: list[str]
    framework: str
    devices: list[str]
    gpusPerNode: int
    nodes: str
    purpose: str


class ProductEntry(TypedDict):
    """A product that this package builds on.

    Attributes:
        name: Its name.
        needed: What needs it.
        followed: The version whose rules the plan applies; of Pulumi the newest whose private parts are known.
        tested: The version that tests run against.
        least: The least version that works; empty if any does.
        differences: What is known to differ in another version, each beginning with that version.
    """

    name: str
    needed: str
    followed: str
    tested: str
    least: str
    differences: list[str]


class VersionResult(TypedDict):
    """The version of this package and of what it follows.

    Attributes:
        version: Version of pulumi-trainer.
        products: Kubernetes, JobSet, Kubeflow Trainer, Kueue, scheduler-plugins, Volcano, KAI, Pulumi.
    """

    version: str
    products: list[ProductEntry]


SCHEMAS: dict[str, type] = {
    "version": VersionResult,
    "status": StatusEntry,
    "why": WhyEntry,
    "logs": LogEntry,
    "events": EventEntry,
    "runs": RunEntry,
    "outputs": OutputEntry,
    "queues": QueuesResult,
    "usage": UsageResult,
    "doctor": DoctorResult,
    "cache list": CacheEntry,
    "runtime list": RuntimeEntry,
}
"""Command -> schema of its result, or of an entry if it prints a list (Entry)."""
