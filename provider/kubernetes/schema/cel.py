"""Evaluates validation rules (CEL) that have no predicate of this project with a CEL library, `cel-python`.

The library comes with the extra `kubernetes`. Functions that only Kubernetes has are added to the library's; a rule with another
one cannot be evaluated, and is neither met nor broken. Source of the functions:
https://github.com/kubernetes/apiserver/tree/v0.36.3/pkg/cel/library and the strings of
https://github.com/google/cel-go/blob/v0.26.0/ext/strings.go
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from typing import Any

from pulumi_trainer.provider.kubernetes.schema.field_errors import NotEvaluated
from pulumi_trainer.provider.kubernetes.values import go_regexp
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown


def predicate(text: str) -> Callable[[Any, Any, Any], bool]:
    """Return a function of (self, oldSelf, schema) that evaluates a rule; the rule is compiled on the first call.

    A rule about an unknown value is met. The function raises NotEvaluated if the library is missing, or cannot evaluate the rule.
    """

    def holds(value: Any, old: Any, _: Any) -> bool:
        return first_unknown([value, old]) is not None or _evaluated(text, value, old)

    return holds


def _evaluated(text: str, value: Any, old: Any) -> bool:
    program = _compiled(text)
    from celpy.adapter import json_to_cel
    from celpy.celtypes import BoolType
    from celpy.evaluation import CELEvalError

    variables = {"self": json_to_cel(value)}
    if old is not None:
        variables["oldSelf"] = json_to_cel(old)
    try:
        answer = program.evaluate(variables)
    except (CELEvalError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise NotEvaluated(str(error.args[0])) from error
    if not isinstance(answer, (bool, BoolType)):
        raise NotEvaluated("the result is not a boolean")
    return bool(answer)


@cache
def _compiled(text: str) -> Any:
    """Return the compiled rule. Raises NotEvaluated if the library is missing or cannot parse the rule."""
    try:
        environment = _environment()
        from celpy.adapter import json_to_cel
        from celpy.celparser import CELParseError
    except ImportError:
        raise NotEvaluated("the Python package cel-python is not installed") from None

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            result = function(*arguments)
            return result if isinstance(result, Quantity) else json_to_cel(result)

        return call

    try:
        tree = environment.compile(text)
        return environment.program(tree, functions={name: wrapped(each) for name, each in _FUNCTIONS.items()})
    except (ValueError, CELParseError) as error:
        raise NotEvaluated(f"not a valid rule: {error}") from error


@cache
def _environment() -> Any:
    from celpy import Environment

    return Environment()


def _index_of(values: Any, item: Any) -> int:
    if isinstance(values, str):
        return values.find(item)
    return next((place for place, each in enumerate(values) if each == item), -1)


def _last_index_of(values: Any, item: Any) -> int:
    if isinstance(values, str):
        return values.rfind(item)
    return max((place for place, each in enumerate(values) if each == item), default=-1)


def _is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except ValueError:
        return False
    return True


def _of_amounts(compare: Callable[[Any, Any], Any]) -> Callable[[Quantity, Quantity], Any]:
    return lambda one, other: compare(one.amount, other.amount)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "isSorted": lambda values: all(map(operator.le, values, values[1:])),
    "sum": sum,
    "min": min,
    "max": max,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "find": lambda text, pattern: next((m.group() for m in go_regexp.compiled(pattern).finditer(text)), ""),
    "charAt": lambda text, place: text[place : place + 1],
    "join": lambda texts, separator="": separator.join(texts),
    "lowerAscii": lambda text: "".join(each.lower() if each.isascii() else each for each in text),
    "upperAscii": lambda text: "".join(each.upper() if each.isascii() else each for each in text),
    "replace": lambda text, old, new, most=-1: text.replace(old, new, int(most)),
    "split": lambda text, separator: text.split(separator),
    "substring": lambda text, start, end=None: text[start:end],
    "trim": str.strip,
    "isQuantity": _is_quantity,
    "quantity": Quantity.parse,
    "compareTo": _of_amounts(lambda one, other: (one > other) - (one < other)),
    "isGreaterThan": _of_amounts(operator.gt),
    "isLessThan": _of_amounts(operator.lt),
    "isInteger": lambda quantity: quantity.amount.denominator == 1,
    "asInteger": lambda quantity: int(quantity.amount),
    "asApproximateFloat": lambda quantity: float(quantity.amount),
    "sign": lambda quantity: (quantity.amount > 0) - (quantity.amount < 0),
}
