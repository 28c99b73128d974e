"""Rules about jobs as data, and which of them a job breaks.

Imports nothing but the standard library: a policy pack of Pulumi, which has an environment of its own, gets a copy of this file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

Job = Mapping[str, Any]
"""The summary of a job; values that are not known yet are absent, or have a type that no rule reads."""

ANY = ""
"""The priority of jobs whose own has no limit, and of those without one."""


@dataclass(frozen=True)
class JobRules:
    """What every job has to keep. A rule that is not given allows everything.

    Args:
        registries: Where images come from: registries (`ghcr.io`), or paths below one (`ghcr.io/acme`, `docker.io/library`).
        digests: Whether each image needs a digest (`@sha256:`).
        gpus: The most GPUs of a job, by its WorkloadPriorityClass; "" for all others and for jobs without one.
        host_access: Whether Pods may be privileged, or use networks, processes, folders or ports of their node.
        queue: Whether a job needs a LocalQueue.
        checkpoints: LocalQueues whose jobs have to save checkpoints, because they may be preempted.
        runtimes: Names of the runtimes that jobs may use; `torch-*` allows all that begin with `torch-`.
        channels: Names of the channels that runtimes have to come from.
        team_gpus: Namespace -> the most GPUs that its jobs in a program, or among the files of a call, have together.
        action: `deny` refuses a job that breaks a rule, `warn` says so.
    """

    registries: Sequence[str] = ()
    digests: bool = False
    gpus: Mapping[str, int] = field(default_factory=dict)
    host_access: bool = True
    queue: bool = False
    checkpoints: Sequence[str] = ()
    runtimes: Sequence[str] = ()
    channels: Sequence[str] = ()
    team_gpus: Mapping[str, int] = field(default_factory=dict)
    action: Literal["deny", "warn"] = "deny"


@dataclass(frozen=True)
class Broken:
    """A rule that a job breaks.

    Args:
        where: What of the job it is about: `images`, `gpus`, `host_access`, `queue`, `checkpoints`, `runtime` or `channel`.
    """

    rule: str
    where: str
    why: str
    hint: str


def find_broken(rules: JobRules, job: Job) -> list[Broken]:
    """Return the rules that a job breaks, in the order of the fields of `JobRules`."""
    broken = list[Broken]()
    for rule, (about, find) in _RULES.items():
        if getattr(rules, rule) != _NO_RULES[rule]:
            for why, hint in find(rules, job):
                broken.append(Broken(in_file(rule), about, why, hint))
    return broken


def in_file(rule: str) -> str:
    """Return the name in a file of a field of `JobRules`."""
    first, *more = rule.split("_")
    return first + "".join(map(str.capitalize, more))


def find_beyond_team(rules: JobRules, gpus: Mapping[str, int]) -> dict[str, str]:
    """Return why the jobs of a namespace have too many GPUs together, by namespace."""
    found = dict[str, str]()
    for namespace, most in rules.team_gpus.items():
        if gpus.get(namespace, 0) > most:
            found[namespace] = (
                f"the jobs of namespace {namespace} have {gpus[namespace]} GPUs together; at most {most} are allowed"
            )
    return found


def is_allowed_image(image: str, registries: Sequence[str]) -> bool:
    """Return whether an image comes from one of some registries or paths."""
    name = full_name(image)
    for registry in registries:
        behind = name.removeprefix(registry)
        ends = ("/", ":", "@") if "/" in registry else ("/",)
        if behind != name and (behind.startswith(ends) or (not behind and "/" in registry)):
            return True
    return False


def full_name(image: str) -> str:
    """Return the name of an image as a node completes it."""
    first, slash, rest = image.partition("/")
    is_registry = slash and ("." in first or ":" in first or first == "localhost" or first != first.lower())
    if not is_registry:
        first, rest = "docker.io", image
    if first in ("docker.io", "index.docker.io"):
        first, rest = "docker.io", rest if "/" in rest else f"library/{rest}"
    return f"{first}/{rest}"


def runtime_pattern(runtimes: Sequence[str]) -> str:
    """Return the regular expression of names of runtimes, in which `*` is any text."""
    return "|".join(re.escape(name).replace(r"\*", ".*") for name in runtimes)


def listed_names(names: Sequence[str]) -> str:
    """Return names as an enumeration: `a, b or c`."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


_Found = Iterator[tuple[str, str]]


def _foreign_images(rules: JobRules, job: Job) -> _Found:
    for image in _texts(job.get("images")):
        if not image:
            yield "a container has no image", "give it one"
        elif not is_allowed_image(image, rules.registries):
            yield f"image {image} is not from {listed_names(rules.registries)}", "use an image from there"


def _moving_images(_: JobRules, job: Job) -> _Found:
    for image in _texts(job.get("images")):
        if image and "@sha256:" not in image:
            yield f"image {image} has no digest, so what it names may change", f"{image.partition('@')[0]}@sha256:..."


def _too_many_gpus(rules: JobRules, job: Job) -> _Found:
    gpus, priority = job.get("gpus"), job.get("priority") or ANY
    if not isinstance(priority, str):
        return
    most = rules.gpus.get(priority, rules.gpus.get(ANY))
    if most is None:
        return
    if gpus is None:
        hint = "valid quantities, and with claims of devices the ResourceClaimTemplate that they name"
        yield f"it is not known how many GPUs the job has; at most {most} are allowed", hint
    elif isinstance(gpus, (int, float)) and gpus > most:
        larger = sorted(name for name, each in rules.gpus.items() if name and each >= gpus)
        whose, hint = "jobs without a priority", "fewer GPUs"
        if priority:
            whose = f"jobs of priority {priority}"
        if larger:
            hint += f", or priority {listed_names(larger)}"
        yield f"the job has {int(gpus)} GPUs; {whose} have at most {most}", hint


def _host_access(_: JobRules, job: Job) -> _Found:
    for each in _texts(job.get("host_access")):
        yield f"{each}: Pods may not use their node", "leave it out"


def _without_queue(_: JobRules, job: Job) -> _Found:
    if not job.get("queue"):
        yield "the job has no queue", "label kueue.x-k8s.io/queue-name, or queue= in a program"


def _without_checkpoints(rules: JobRules, job: Job) -> _Found:
    if job.get("queue") in rules.checkpoints and not job.get("saves_checkpoints"):
        why = f"jobs of queue {job.get('queue')} may be preempted, and this one saves no checkpoints"
        yield why, "variable TRAINER_CHECKPOINT_DIR, or checkpoint=CheckpointPolicy(...) in a program"


def _other_runtime(rules: JobRules, job: Job) -> _Found:
    name = job.get("runtime")
    if not isinstance(name, str) or re.fullmatch(runtime_pattern(rules.runtimes), name):
        return
    yield f"runtime {name} is not allowed", f"use {listed_names(rules.runtimes)}"


def _other_channel(rules: JobRules, job: Job) -> _Found:
    channel = job.get("channel") or ""
    if channel not in rules.channels:
        yield (
            f"its runtime comes from {f'channel {channel}' if channel else 'no channel'}",
            f"runtime=channel(...) of {listed_names(rules.channels)}",
        )


def _texts(values: Any) -> Iterator[str]:
    """Yield the texts of a list, whose values may be unknown, or which may be unknown as a whole."""
    if isinstance(values, (list, tuple)):
        for value in values:
            if isinstance(value, str):
                yield value


_RULES: Mapping[str, tuple[str, Callable[[JobRules, Job], _Found]]] = {
    "registries": ("images", _foreign_images),
    "digests": ("images", _moving_images),
    "gpus": ("gpus", _too_many_gpus),
    "host_access": ("host_access", _host_access),
    "queue": ("queue", _without_queue),
    "checkpoints": ("checkpoints", _without_checkpoints),
    "runtimes": ("runtime", _other_runtime),
    "channels": ("channel", _other_channel),
}
"""Rule -> what of a job it is about, and what finds that the job breaks it."""
_NO_RULES = {each.name: getattr(JobRules(), each.name) for each in fields(JobRules)}
ELSEWHERE = ("channels", "team_gpus")
"""Rules that need more than one object, so that an API server cannot judge them."""
