"""Outputs in a document: known values go in, unknown ones stay leaves, secret ones go aside.

One unknown or secret value must not blank the plan: all else is rendered, checked and shown.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi_trainer.provider.api.errors import Problem
from pulumi_trainer.provider.api.unknown import Unknown, first_unknown

from .arguments import to_document, walk

_ENV_VALUE = re.compile(r"^(?P<holder>.*)\.env\[\d+\]\.value$")


@dataclass
class Resolved:
    """A plain document.

    unknown: token of an `Unknown` leaf -> the Output it stands for. secrets: key -> Output. depends_on: resources that the
    values come from; a value that is put in by hand would lose them.
    """

    document: Any
    unknown: dict[str, pulumi.Output[Any]] = field(default_factory=dict)
    secrets: dict[str, pulumi.Output[Any]] = field(default_factory=dict)
    depends_on: set[pulumi.Resource] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)


async def resolve(document: Any, secret_name: str) -> Resolved:
    """Awaits every Output of the document. A secret one may stand as the value of an environment variable, which then
    refers to a key of the Secret `secret_name`; anywhere else it is a problem.
    """
    leaves: dict[str, pulumi.Output[Any]] = {}

    def find(path: str, leaf: Any) -> Any:
        if isinstance(leaf, pulumi.Output):
            leaves[path] = leaf
        return leaf

    walk(document, find)
    result = Resolved(document)
    if not leaves:
        return result
    values = {path: await _value(path, output, result) for path, output in leaves.items()}
    result.document = walk(document, values.get)
    result.document = _with_secret_refs(result.document, secret_name, result)
    return result


async def _value(path: str, output: pulumi.Output[Any], result: Resolved) -> Any:
    value = await output.future(with_unknowns=True)
    result.depends_on |= await output.resources()
    if missing := await absent(output):
        result.problems.append(missing.below(path))
        result.unknown[path] = output  # nothing more is said of it
        return Unknown(path)
    if await output.is_secret():
        return _Secret(output)
    if not await output.is_known() or pulumi.output.contains_unknowns(value):
        result.unknown[path] = output
        return Unknown(path)
    return to_document(whole(value), free=path.endswith(("labels", "annotations")))


async def absent(output: pulumi.Output[Any]) -> Problem | None:
    """What is wrong with an Output of another stack's that is None: Pulumi's `get_output` gives that for a name which the stack
    does not have. In silence, the argument would be left out."""
    if not await output.is_known() or await output.future() is not None:
        return None
    stacks = await output.resources()
    if not stacks or not all(isinstance(stack, pulumi.StackReference) for stack in stacks):
        return None
    stack: Any = next(iter(stacks))
    named, outputs = await stack.name.future(), await stack.outputs.future()
    known = sorted(name for name, value in (outputs or {}).items() if value is not None)
    there = f"it has: {', '.join(known)}" if known else "it has none at all: bring it up first"
    return Problem("", f"is None: the stack {named} has no such output", there)


class _Secret:
    def __init__(self, output: pulumi.Output[Any]) -> None:
        self.output = output


def _with_secret_refs(document: Any, secret_name: str, result: Resolved, path: str = "") -> Any:
    if isinstance(document, list):
        return [_with_secret_refs(v, secret_name, result, f"{path}[{i}]") for i, v in enumerate(document)]
    if not isinstance(document, dict):
        return document
    secret = document.get("value")
    if isinstance(secret, _Secret) and (match := _ENV_VALUE.match(f"{path}.value")):
        key = f"{match['holder'].rpartition('.')[2]}.{document['name']}"
        result.secrets[key] = secret.output
        rest = {k: v for k, v in document.items() if k != "value"}
        return {**rest, "valueFrom": {"secretKeyRef": {"name": secret_name, "key": key}}}
    resolved = {}
    for name, value in document.items():
        below = f"{path}.{name}" if path else name
        if isinstance(value, _Secret):
            why = "is secret, and would be readable in the plan and in the cluster"
            mend = "pass secrets in env or as credentials of an initializer"
            result.problems.append(Problem(below, why, mend))
            continue
        if isinstance(value, list) and any(isinstance(v, _Secret) for v in value):
            result.problems.append(Problem(below, "holds a secret, which would be readable", "pass secrets in env"))
            continue
        resolved[name] = _with_secret_refs(value, secret_name, result, below)
    return resolved


def whole(value: Any) -> Any:
    """Numbers of other resources arrive as floats; the API wants whole ones."""
    if isinstance(value, dict):
        return {k: whole(v) for k, v in value.items()}
    if isinstance(value, list):
        return [whole(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def put_back(document: Any, unknown: dict[str, pulumi.Output[Any]]) -> Any:
    """The document with the original Outputs at its unknown leaves, for the engine to show as unknown."""
    if not unknown:
        return document
    return walk(document, lambda _, leaf: unknown[leaf.token] if isinstance(leaf, Unknown) else leaf)


def has_unknown(document: Any) -> bool:
    """True where some leaf is not known yet."""
    return first_unknown(document) is not None


def known(value: Any) -> pulumi.Output[Any]:
    """A known Output that may hold unknown ones deep inside, so that the engine shows all the rest."""
    loop = asyncio.get_event_loop()
    future: asyncio.Future[Any] = loop.create_future()
    future.set_result(value)
    is_known: asyncio.Future[bool] = loop.create_future()
    is_known.set_result(True)
    return pulumi.Output(set(), future, is_known)
