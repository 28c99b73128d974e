"""The labels that assign a TrainJob to queues of Kueue, and their checks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pulumi
from pulumi_trainer.args.arguments import as_mapping
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.names import dns_1123_subdomain, name_problems
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kueue.labels import MAX_EXECUTION, PRIORITY, QUEUE

ARGUMENTS = {"queue": QUEUE, "priority": PRIORITY, "max_execution": MAX_EXECUTION}
"""Argument of a TrainJob -> its label."""

_SUSPEND = Problem(
    "suspend",
    "a job with a queue is suspended and resumed by Kueue",
    "leave it out; to hold the job, give its queue a stopPolicy, or set active: false in its Workload",
)


_LONGEST = 2**31 - 1
"""Longest time in seconds that Kueue supports; it ignores a label with more."""


def queue_name(given: Any) -> Any:
    """Return the name of a queue or a priority class.

    Args:
        given: The name, or the resource: a component of this package, or a CustomResource of pulumi-kubernetes.
    """
    if not isinstance(given, pulumi.Resource):
        return given
    made: Any = given
    if hasattr(made, "name"):
        return made.name
    if hasattr(made, "metadata"):
        return made.metadata["name"]
    return made


async def required_resources(arguments: Mapping[str, Any]) -> tuple[list[pulumi.Resource], list[Problem]]:
    """Return the resources that must exist before the job, and a problem for each one that was rejected."""
    found: list[pulumi.Resource] = []
    wrong: list[Problem] = []
    for name, given in arguments.items():
        if isinstance(given, pulumi.Resource):
            required = [given]
            resources = getattr(given, "resources", None)
            if resources is not None:  # a component, which makes its object when all of it is known
                required = await resources()
            found += [given, *required]
            if not required:
                wrong.append(Problem(name, "was rejected: fix it first"))
    return found, wrong


def labels(given: Any, arguments: Mapping[str, Any]) -> Any:
    """Return the labels of a job with those of its arguments; None if it has no labels.

    Args:
        arguments: Argument name, one of `ARGUMENTS` -> its value or None; an argument overrides a given label of the same key.
    """
    own = {ARGUMENTS[name]: _text(value) for name, value in arguments.items() if value is not None}
    if not own:
        return given
    if isinstance(given, pulumi.Output):
        return pulumi.Output.all(given, own).apply(lambda both: {**both[0], **both[1]})
    return {**(given or {}), **own}


def _text(value: Any) -> Any:
    """Return a value as labels have it; numbers of a stack's configuration may be floats."""
    if isinstance(value, pulumi.Output):
        return value.apply(_text)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (bool, int, float)):
        return str(value)
    return value


def problems(named: Mapping[str, Any], written: Any, merged: Any, suspend: Any) -> Iterator[Problem]:
    """Yield the problems of the arguments for queues.

    Values follow validation.go of https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework for the queue
    and the time; a priority class is an object, whose name has the same form.
    """
    given = {ARGUMENTS[name] for name, value in named.items() if value is not None}
    for name, label in ARGUMENTS.items():
        if label in given and isinstance(written, Mapping) and label in written:
            yield Problem(name, f"is also set by labels[{label}]", "set only one of the two")
        value = as_mapping(merged).get(label)
        where = f"labels[{label}]"
        if label in given:
            where = name
        if name == "max_execution":
            yield from _seconds(where, value)
        elif isinstance(value, str) and not value and label in given:
            yield Problem(name, "is empty", f"leave it out for a job without a {name}")
        elif isinstance(value, str) and value:
            yield from name_problems(where, value, dns_1123_subdomain)
    if isinstance(merged, Mapping) and merged.get(QUEUE) and suspend is not None and suspend is not False:
        yield _SUSPEND


def _seconds(where: str, value: Any) -> Iterator[Problem]:
    if value is None or isinstance(value, Unknown):
        return
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,10}", value) or not 0 < int(value) <= _LONGEST:
        yield Problem(where, f"must be a whole number of seconds from 1 to {_LONGEST}, not {value}")
