"""A TrainJob's place in the queues of Kueue: the labels that say it, and what is wrong with them. Called by `composition`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pulumi
from pulumi_trainer.provider.api.errors import Problem
from pulumi_trainer.provider.api.labels import PRIORITY, QUEUE
from pulumi_trainer.provider.api.names import dns_1123_subdomain

ARGUMENTS = {"queue": QUEUE, "priority": PRIORITY}
"""Argument of a TrainJob -> the label that it becomes."""

_SUSPEND = Problem(
    "suspend",
    "a job with a queue is suspended and resumed by Kueue",
    "leave it out; to hold the job, give its queue a stopPolicy, or set active: false in its Workload",
)


def labels(given: Any, queue: Any, priority: Any) -> Any:
    """The labels of a job with those of queue and priority; None where there are none at all."""
    own = {ARGUMENTS[name]: value for name, value in (("queue", queue), ("priority", priority)) if value is not None}
    if not own:
        return given
    if isinstance(given, pulumi.Output):
        return pulumi.Output.all(given, own).apply(lambda both: {**both[0], **both[1]})
    return {**(given or {}), **own}


def problems(named: Mapping[str, Any], written: Any, merged: Any, suspend: Any) -> Iterator[Problem]:
    """named: the arguments by name. written: `labels=` as given, merged: with the arguments', both resolved; suspend likewise.

    Rules for values: validation.go of https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework
    for the queue; a class of priority is an object, whose name has the same form.
    """
    given = {ARGUMENTS[name] for name, value in named.items() if value is not None}
    for name, label in ARGUMENTS.items():
        if label in given and isinstance(written, Mapping) and label in written:
            yield Problem(name, f"is given by labels[{label}] as well", "give one of them")
        value = merged.get(label) if isinstance(merged, Mapping) else None
        if isinstance(value, str) and not value and label in given:
            yield Problem(name, "is empty", "leave it out for a job without one")
        elif isinstance(value, str) and value:
            where = name if label in given else f"labels[{label}]"
            yield from (Problem(where, f"{value!r} can be no name: {why}") for why in dns_1123_subdomain(value))
    if isinstance(merged, Mapping) and merged.get(QUEUE) and suspend is not None and suspend is not False:
        yield _SUSPEND
