"""What a target is asked to create: the rendered objects of one job and whose they are."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pulumi_trainer.provider.kube.values.unknown import Unknown, first_unknown

Objects = dict[str, dict[str, Any]]
"""Rendered objects keyed "Kind/name" (JobSet/digits-1a2b3, ConfigMap/digits-1a2b3-code-0f3c...)."""

ANYTHING = "*"
"""Among what the dependencies of a job make: objects of any kind."""
MAIN = ("TrainJob", "JobSet")
"""Kinds of the object that is the job itself: in mode trainer the TrainJob, from which a controller makes the JobSet."""


def to_state(objects: Objects) -> dict[str, Any]:
    """As the engine keeps them: each object as JSON, whose fields its plans show like any others; one with a leaf that is not
    known yet as it is. The engine writes its whole state several times a resource, and a text costs it much less than hundreds
    of fields."""
    return {
        key: document if first_unknown(document) else json.dumps(document, separators=(",", ":"), ensure_ascii=False)
        for key, document in objects.items()
    }


def from_state(objects: Mapping[str, Any]) -> Objects:
    """What `to_state` has made them of."""
    return {key: json.loads(o) if isinstance(o, str) else o for key, o in objects.items()}


def main_key(objects: Objects) -> str:
    """Key of the job itself; empty where the objects hold none."""
    return next((k for kind in MAIN for k in objects if k.startswith(f"{kind}/")), "")


def secret_name(job: str) -> str:
    """Return the name of the Secret that holds the values of a job's secret Outputs."""
    return f"{job}-env"


@dataclass(frozen=True)
class Submission:
    """One job for a target.

    owner: id that survives renames; what exists with the same owner and digest is ours and is taken over.
    digest: of what the user wrote. run: the user's `run` key. sweep: label that all objects of a stack carry.
    secrets: Secret name -> key -> value; never written to disk or logs by a target on this machine. retain: a sweep
    leaves it alone. runtime: name, and release, channel and follow where there are any, of what it was made from.
    program: "project/stack" for messages, empty where that is not known.
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
    """What a job has in a ClusterQueue. queue: namespace/name of its LocalQueue. job: kind and namespace/name. text: what it
    holds, or that it waits."""

    queue: str
    job: str
    text: str


@dataclass(frozen=True)
class Consumer:
    """A user of a runtime: a job that is there, as its record says. where: namespace/name. stack: label of its stack. ended:
    whether that is known. channel_of: "project/stack" of the channel; empty where that is not known."""

    where: str
    runtime: str
    release: str
    channel: str = ""
    follow: str = ""
    stack: str = ""
    ended: bool = False
    channel_of: str = ""


@dataclass(frozen=True)
class Draft:
    """A job that a program is about to submit, or shows in a preview: leaves, namespace and digest may be unknown.

    made: what runs in the end where a controller makes it of the objects. secrets: Secret -> its keys, of those that come with
    the job. promised: "Kind/name" of what the program makes beside. awaited: the same of what the job's dependencies make:
    "Kind/" if the name is not known, "*" if it may be anything. adopt: take over what is there. interrupts: it may end an
    unfinished run. workers: the clusters that MultiKueue may send it to, in words; empty: it stays where it is submitted.
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
    workers: str = ""


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Paths of the fields in which two documents differ; what is not known yet in `new` is no difference."""
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
    """Return that a job is not the run that a program asks for; nothing where it does not say which run it is."""
    if not run or not submission.run or run == submission.run:
        return []
    return [f"run, which is {run!r} and not {submission.run!r}"]
