"""A TrainJob's place in the queues of Kueue: the labels that say it, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pulumi
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.values.names import dns_1123_subdomain
from pulumi_trainer.provider.kube.values.unknown import Unknown
from pulumi_trainer.provider.kueue.labels import MAX_EXECUTION, PRIORITY, QUEUE

ARGUMENTS = {"queue": QUEUE, "priority": PRIORITY, "max_execution": MAX_EXECUTION}
"""Argument of a TrainJob -> the label that it becomes."""

_SUSPEND = Problem(
    "suspend",
    "a job with a queue is suspended and resumed by Kueue",
    "leave it out; to hold the job, give its queue a stopPolicy, or set active: false in its Workload",
)


_LONGEST = 2**31 - 1
"""Seconds that Kueue can count; it ignores a label with more."""


def named(given: Any) -> Any:
    """The name of a queue or a class of priority that is given by its name, or as the resource that makes it: a component of
    this package, or a CustomResource of pulumi-kubernetes."""
    if not isinstance(given, pulumi.Resource):
        return given
    made: Any = given
    return made.name if hasattr(made, "name") else made.metadata["name"] if hasattr(made, "metadata") else made


async def makers(arguments: Mapping[str, Any]) -> tuple[list[pulumi.Resource], list[Problem]]:
    """The resources that have to be there before the job, as it names what they make; and those that are not made."""
    found: list[pulumi.Resource] = []
    wrong: list[Problem] = []
    for name, given in arguments.items():
        if isinstance(given, pulumi.Resource):
            resources = getattr(
                given, "resources", None
            )  # of a component, which makes its object when all of it is known
            there = await resources() if resources is not None else [given]
            found += [given, *there]
            wrong += [] if there else [Problem(name, "is not made, see there")]
    return found, wrong


def labels(given: Any, arguments: Mapping[str, Any]) -> Any:
    """The labels of a job with those of its arguments; None where there are none at all."""
    own = {ARGUMENTS[name]: _text(value) for name, value in arguments.items() if value is not None}
    if not own:
        return given
    if isinstance(given, pulumi.Output):
        return pulumi.Output.all(given, own).apply(lambda both: {**both[0], **both[1]})
    return {**(given or {}), **own}


def _text(value: Any) -> Any:
    """As labels have it; numbers of a stack's configuration may come as floats."""
    if isinstance(value, pulumi.Output):
        return value.apply(_text)
    if isinstance(value, (bool, int, float)):
        return str(int(value) if isinstance(value, float) and value.is_integer() else value)
    return value


def problems(named: Mapping[str, Any], written: Any, merged: Any, suspend: Any) -> Iterator[Problem]:
    """named: the arguments by name. written: `labels=` as given, merged: with the arguments', both resolved; suspend likewise.

    Rules for values: validation.go of https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework
    for the queue and the time; a class of priority is an object, whose name has the same form.
    """
    given = {ARGUMENTS[name] for name, value in named.items() if value is not None}
    for name, label in ARGUMENTS.items():
        if label in given and isinstance(written, Mapping) and label in written:
            yield Problem(name, f"is given by labels[{label}] as well", "give one of them")
        value = merged.get(label) if isinstance(merged, Mapping) else None
        where = name if label in given else f"labels[{label}]"
        if name == "max_execution":
            yield from _seconds(where, value)
        elif isinstance(value, str) and not value and label in given:
            yield Problem(name, "is empty", "leave it out for a job without one")
        elif isinstance(value, str) and value:
            yield from (Problem(where, f"{value!r} can be no name: {why}") for why in dns_1123_subdomain(value))
    if isinstance(merged, Mapping) and merged.get(QUEUE) and suspend is not None and suspend is not False:
        yield _SUSPEND


def _seconds(where: str, value: Any) -> Iterator[Problem]:
    if value is None or isinstance(value, Unknown):
        return
    if not isinstance(value, str) or not re.fullmatch(r"\d{1,10}", value) or not 0 < int(value) <= _LONGEST:
        yield Problem(where, f"must be a whole number of seconds from 1 to {_LONGEST}, not {value}")
