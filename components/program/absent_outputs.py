"""Outputs that have no value, such as one of a component that is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pulumi
from pulumi_trainer.provider.kube.errors import Problem


async def absent(output: pulumi.Output[Any]) -> Problem | None:
    """Return what is wrong with an Output that is None, which would leave the argument out in silence: it is that of a job
    which is refused, or Pulumi's `get_output` of a name that another stack does not have."""
    if not await output.is_known() or await output.future() is not None:
        return None
    stacks = await output.resources()
    for resource in stacks:
        if getattr(resource, "refused", False):
            return Problem("", f"comes from {resource.where}, which is refused")  # type: ignore[attr-defined]
    if not stacks or not all(isinstance(stack, pulumi.StackReference) for stack in stacks):
        return None
    stack: Any = next(iter(stacks))
    named, outputs = await stack.name.future(), await stack.outputs.future()
    known = sorted(name for name, value in (outputs or {}).items() if value is not None)
    there = f"it has: {', '.join(known)}" if known else "it has none at all: bring it up first"
    return Problem("", f"is None: the stack {named} has no such output", there)


def known(value: Any) -> pulumi.Output[Any]:
    """A known Output that may hold unknown ones deep inside, so that the engine shows all the rest."""
    loop = asyncio.get_event_loop()
    future: asyncio.Future[Any] = loop.create_future()
    future.set_result(value)
    is_known: asyncio.Future[bool] = loop.create_future()
    is_known.set_result(True)
    return pulumi.Output(set(), future, is_known)
