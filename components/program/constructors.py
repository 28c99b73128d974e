"""Constructors of components, which take the fields of a class of arguments, declared only there."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

import pulumi
from pulumi_trainer.args.arguments import Args, positional
from pulumi_trainer.program import messages, session
from pulumi_trainer.provider.kubernetes.errors import Problem

P = ParamSpec("P")


class ComponentArgs(Args):
    """Base of the arguments of a component."""

    resource_name: str = positional(kw_only=False)
    opts: pulumi.ResourceOptions | None = None

    shipped = frozenset(
        {"resource_name", "name", "namespace", "labels", "annotations", "target", "drift", "adopt", "opts"}
    )
    free = frozenset({"resource_name", "target", "opts"})


def constructor(
    arguments: Callable[P, ComponentArgs],
) -> Callable[[Callable[[Any], None]], Callable[Concatenate[Any, P], None]]:
    """Make a constructor that takes the fields of a class of arguments, and passes them to the component's `construct`.

    A call that does not match raises no TypeError: its problems are in `misnamed`, and are reported with all others.

    Returns:
        A decorator of `__init__`, whose body is never run.
    """

    def decorate(stub: Callable[[Any], None]) -> Any:
        @functools.wraps(stub)
        def __init__(self: Any, *unnamed: P.args, **named: P.kwargs) -> None:  # noqa: N807  # Pulumi looks for this name on the stack
            args = arguments(*unnamed, **named)
            kind, name = type(self).__name__, args.resource_name
            if not isinstance(name, str) or not name:
                where = f"{kind} ({session.call_site()})"
                hint = f'give {kind}("NAME", ...)'
                unknown = [p.below(where) for p in args.misnamed if p.where not in args.fields]
                lines = [Problem(where, "needs a resource name as its first argument", hint), *unknown]
                raise messages.failure("\n".join(map(str, lines)))
            if args.opts is not None and not isinstance(args.opts, pulumi.ResourceOptions):
                why = f"must be pulumi.ResourceOptions(...), not {type(args.opts).__name__}"
                args.misnamed.append(Problem("opts", why))
                args.opts = None
            session.current().register(kind, name, getattr(args.opts, "parent", None))
            self.misnamed, args.misnamed = args.misnamed, []
            self.construct(args)

        own = inspect.signature(arguments).parameters.values()
        self_ = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        __init__.__signature__ = inspect.Signature([self_, *own])  # type: ignore[attr-defined]
        return __init__

    return decorate
