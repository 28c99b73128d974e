"""The input of a target: the rendered objects of one job and their owner."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from pulumi_trainer.provider.jobs.retention import KEEP_RUNS
from pulumi_trainer.provider.jobs.runs import Identity, Run
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown

Objects = dict[str, dict[str, Any]]
"""Rendered objects keyed "Kind/name" (JobSet/digits-1a2b3, ConfigMap/digits-1a2b3-code)."""

ANYTHING = "*"
"""Among the objects that the job's dependencies create: an object of any kind."""
MAIN = ("TrainJob", "JobSet")
"""Kinds of the job itself: in mode trainer the TrainJob, from which a controller creates the JobSet."""


WORKERS = "workers"
"""Key of `target` in a cluster: worker clusters of MultiKueue, name -> kubeconfig, context and the "Kind/name" of what is copied
there (`copies`). Absent if there are none."""


def to_state(objects: Objects) -> dict[str, Any]:
    """Return objects for the engine's state: each as JSON text, or as it is if a leaf is unknown.

    Plans show the fields of JSON text. The engine writes its state several times for each resource, and a text is much cheaper
    than hundreds of fields.
    """
    state: dict[str, Any] = {}
    for key, document in objects.items():
        if first_unknown(document):
            state[key] = document
        else:
            state[key] = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return state


def from_state(objects: Mapping[str, Any]) -> Objects:
    """Return the objects that `to_state` has converted."""
    documents: Objects = {}
    for key, document in objects.items():
        if isinstance(document, str):
            documents[key] = json.loads(document)
        else:
            documents[key] = document
    return documents


def main_key(objects: Collection[str]) -> str:
    """Return the key of the job itself; empty if not found."""
    return next((key for kind, key in product(MAIN, objects) if key.startswith(f"{kind}/")), "")


def secret_name(job: str) -> str:
    """Return the name of the Secret with the values of a job's secret Outputs."""
    return f"{job}-env"


@dataclass(frozen=True)
class Submission:
    """One job for a target.

    Args:
        owner: Id that survives renames; an existing job with the same owner and digest is taken over.
        digest: Digest of the user's arguments.
        sweep: Label of all objects of a stack.
        secrets: Secret name -> key -> value; a target on this machine never writes them to disk or logs.
        runtime: Name of the runtime; release, channel, follow and interrupt if known.
        program: "project/stack" for messages; empty if unknown.
        resource: Name of its component in the program, for messages; empty if unknown.
        inputs: What identifies the inputs of this run (`runs.Run.inputs`).
        earlier: Earlier runs of the job, the newest last.
        keep_runs: Earlier runs that are kept in full, and lineages whose folders are kept, those of the run included.
        removes_folders: Whether the target of the job can remove folders of earlier lineages.
        gpus: GPUs of all Pods, with those that they claim; None if not known.
    """

    namespace: str
    name: str
    owner: str
    digest: str
    objects: Objects
    run: str = ""
    sweep: str = ""
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    retain: bool = False
    runtime: Mapping[str, Any] = field(default_factory=dict)
    program: str = ""
    resource: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    earlier: Sequence[Run] = ()
    identity: Identity = field(default_factory=Identity)
    keep_runs: int = KEEP_RUNS
    removes_folders: bool = True
    gpus: float | None = None

    def __post_init__(self) -> None:
        if not main_key(self.objects):
            raise ValueError("a submission holds a JobSet or a TrainJob")

    @property
    def main(self) -> dict[str, Any]:
        """The job itself: JobSet or TrainJob."""
        return self.objects[main_key(self.objects)]

    @property
    def jobset(self) -> dict[str, Any]:
        return next(o for k, o in self.objects.items() if k.startswith("JobSet/"))


@dataclass(frozen=True)
class Work:
    """A job in a ClusterQueue.

    Args:
        job: Kind and namespace/name.
        text: The quota that it occupies, or that it waits.
        priority: Its WorkloadPriorityClass; empty for none.
    """

    queue: str
    job: str
    text: str
    priority: str = ""


@dataclass(frozen=True)
class Consumer:
    """A job that uses a runtime, by its record.

    Args:
        where: namespace/name of the job.
        ended: Whether it is known to have ended.
        channel_of: "project/stack" of the channel; empty if unknown.
        program: "project/stack" of the job; empty if unknown.
        queue: Its LocalQueue; None if unknown.
        gpus: GPUs of all its Pods; None if unknown.
        runs: Whether it runs now; None if unknown.
        interrupt: Whether a change may end its run: refuse, allow or checkpoint; empty if unknown.
        failed: Whether its last run has failed.
        jobset: Its JobSet, as its target has it; None if that is gone.
    """

    where: str
    runtime: str
    release: str
    channel: str = ""
    follow: str = ""
    stack: str = ""
    ended: bool = False
    channel_of: str = ""
    program: str = ""
    queue: str | None = None
    gpus: float | None = None
    runs: bool | None = None
    interrupt: str = ""
    failed: bool = False
    jobset: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Dispatch:
    """The clusters to which MultiKueue may send a job.

    Args:
        clusters: Names of the MultiKueueClusters, in the order in which they are tried; empty if not known.
        reason: What sends it, as in "AdmissionCheck mk of ClusterQueue gpus".
    """

    clusters: Sequence[str]
    reason: str

    def __str__(self) -> str:
        return f"{', '.join(self.clusters) or 'the worker clusters of MultiKueue'} ({self.reason})"


@dataclass(frozen=True)
class Draft:
    """A job that a program is about to submit, or shows in a preview: leaves, namespace and digest may be unknown.

    Args:
        made: The objects that a controller creates from `objects`.
        promised: "Kind/name" of other objects that the program creates.
        awaited: "Kind/name" of objects that the job's dependencies create: "Kind/" if the name is unknown, "*" for any object.
        interrupts: Whether it may end an unfinished run.
        claims: "Kind/name" of the job's own volumes; they are among `promised`.
        dispatch: The clusters to which MultiKueue may send it; None if it stays where it is submitted.
    """

    namespace: Any
    name: str
    digest: Any
    objects: Objects
    made: Objects = field(default_factory=dict)
    secrets: Mapping[str, Collection[str]] = field(default_factory=dict)
    promised: Collection[str] = ()
    awaited: Collection[str] = ()
    adopt: bool = False
    interrupts: bool = False
    claims: Collection[str] = ()
    dispatch: Dispatch | None = None


EXISTING = "existing"
"""Value of `adopt` with which nothing is created: what the program describes has to be there."""


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of the fields in which two documents differ; unknown values in `new` count as equal."""
    if isinstance(new, Unknown) or old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys(), key=str):
            below = f"{path}.{key}" if path else str(key)
            if key not in old or key not in new:
                if not isinstance(new.get(key), Unknown):
                    yield below
            else:
                yield from differences(old[key], new[key], below)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            name = b.get("name", i) if isinstance(b, dict) else i
            yield from differences(a, b, f"{path}[{name}]")
    else:
        yield path


def another_run(run: str, submission: Submission) -> list[str]:
    """Return that a job is not the requested run; empty if no run is requested or known."""
    if not run or not submission.run or run == submission.run:
        return []
    return [f"run, which is {run!r} and not {submission.run!r}"]
