"""Evaluates validation rules of a cluster's own CRDs, which have no predicate in `admission.cel_rules`, with a CEL library.

The package `cel-python` comes with the extra `kubernetes` and lacks Kubernetes' own functions (quantities, URLs, formats). A
rule that it cannot evaluate counts as valid; the server's dry run decides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from pulumi_trainer.provider.kubernetes.schema.schema import Schema
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown


def predicate(text: str) -> Callable[[Any, Any, Schema], bool]:
    """Return a function of (self, oldSelf, schema) that evaluates a rule; the rule is compiled on the first call."""

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
    """Return the compiled rule; None if the library is missing or cannot parse the rule."""
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
