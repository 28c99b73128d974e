"""The constructors of components: each is declared as a stub, and all of them treat a call that does not fit in the same way."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import pulumi
from pulumi_trainer.args.signatures import bind
from pulumi_trainer.program import session
from pulumi_trainer.provider.kube.errors import Problem

Declared = TypeVar("Declared", bound=Callable[..., None])


def component(declaration: Declared) -> Declared:
    """Make the constructor of a component of its signature, which is a stub.

    The component's `construct` gets the name of the resource, all arguments by name (what was not given has its default, and
    what is missing is None) and the resource options. What is wrong with the call stands in `misnamed` before.
    """
    signature = inspect.signature(declaration)
    own = signature.replace(parameters=[*signature.parameters.values()][1:])
    defaults = {name: p.default for name, p in own.parameters.items()}

    @functools.wraps(declaration)
    def __init__(self: Any, *unnamed: Any, **named: Any) -> None:  # noqa: N807  # Pulumi looks for this name on the stack
        given, found = bind(own, unnamed, named, getattr(self, "elsewhere", None))
        given = {**defaults, **given}
        resource_name, opts = given.pop("resource_name"), given.pop("opts")
        if not isinstance(resource_name, str) or not resource_name:
            kind = type(self).__name__
            raise pulumi.RunError(f'{kind} ({session.call_site()}): needs a name of its own; give {kind}("NAME", ...)')
        if opts is not None and not isinstance(opts, pulumi.ResourceOptions):
            found.append(Problem("opts", f"must be pulumi.ResourceOptions(...), not {type(opts).__name__}"))
            opts = None
        session.current().construct(type(self).__name__, resource_name, getattr(opts, "parent", None))
        self.misnamed = found
        self.construct(resource_name, given, opts)

    return __init__  # type: ignore[return-value]
