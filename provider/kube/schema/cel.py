"""Validation rules of a cluster's own CRDs that `admission.rules` does not know, by an implementation of CEL.

The package `cel-python` comes with the extra `kubernetes`. Kubernetes' own functions (quantities, URLs, formats) are not in
it: a rule that it cannot work out counts as kept, and the server's dry run judges it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from pulumi_trainer.provider.kube.values.unknown import first_unknown

if TYPE_CHECKING:
    from pulumi_trainer.provider.kube.schema.schema import Schema


def predicate(text: str) -> Callable[[Any, Any, Schema], bool]:
    """Whether the rule holds for (self, oldSelf, schema); it is compiled when it is first asked."""

    def holds(value: Any, _: Any, __: Schema) -> bool:
        return first_unknown(value) is not None or _evaluated(text, value)

    return holds


def _evaluated(text: str, value: Any) -> bool:
    program = _compiled(text)
    if program is None:
        return True
    from celpy.adapter import json_to_cel
    from celpy.evaluation import CELEvalError

    try:
        answer = program.evaluate({"self": json_to_cel(value)})
    except (CELEvalError, ValueError, TypeError):
        return True
    return bool(answer)


@cache
def _compiled(text: str) -> Any:
    """A program; None where there is no library, or none that can read the rule."""
    try:
        from celpy import Environment
        from celpy.celparser import CELParseError
    except ImportError:
        return None
    environment = Environment()
    try:
        return environment.program(environment.compile(text))
    except (ValueError, CELParseError):
        return None
