"""Outputs without a value, such as an output of a rejected component."""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi_trainer.provider.kubernetes.errors import Problem


async def absent_output(output: pulumi.Output[Any]) -> Problem | None:
    """Return the problem of an Output that is None, which would silently omit the argument.

    The Output belongs to a rejected job, or is Pulumi's `get_output` of a name that the other stack does not have.
    """
    if not await output.is_known() or await output.future() is not None:
        return None
    stacks = await output.resources()
    for resource in stacks:
        if getattr(resource, "refused", False):
            return Problem("", f"comes from {resource.where}, which was rejected")  # type: ignore[attr-defined]
    if not stacks or not all(isinstance(stack, pulumi.StackReference) for stack in stacks):
        return None
    stack: Any = next(iter(stacks))
    named, outputs = await stack.name.future(), await stack.outputs.future()
    known = sorted(name for name, value in (outputs or {}).items() if value is not None)
    hint = "it has no outputs: run `pulumi up` in that stack first"
    if known:
        hint = f"available: {', '.join(known)}"
    return Problem("", f"is None: the stack {named} has no such output", hint)
