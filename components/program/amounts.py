"""Prices and budgets in the stack's configuration: `trainer:prices.FLAVOR` and `trainer:budget.QUEUE`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import pulumi
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, problems_below
from pulumi_trainer.provider.kueue.prices import Amount, read_budget, read_price

_READ: Mapping[str, Callable[[Any], Amount]] = {"prices": read_price, "budget": read_budget}
EXAMPLES = {"prices": "prices.h100 3.20", "budget": "budget.nlp '5000 GPU-hours'"}


def configured(key: str) -> dict[str, Amount]:
    """Return the valid amounts of a key of the configuration, by name. key: prices or budget."""
    return _read(key)[0]


def problems() -> list[Problem]:
    """Return what is not valid in the configuration."""
    return [*chain.from_iterable(_read(key)[1] for key in _READ)]


def _read(key: str) -> tuple[dict[str, Amount], list[Problem]]:
    hint = f"pulumi config set --path 'trainer:{EXAMPLES[key].partition(' ')[0]}' {EXAMPLES[key].partition(' ')[2]}"
    try:
        given = pulumi.Config("trainer").get_object(key)
    except pulumi.ConfigTypeError:
        given = pulumi.Config("trainer").get(key)
    if not isinstance(given, Mapping):
        return {}, [] if given is None else [
            Problem(key, f"must be a mapping from names to amounts, not {given!r}", hint)
        ]
    found, wrong = dict[str, Amount](), list[Problem]()
    for name, value in given.items():
        try:
            found[str(name)] = _READ[key](value)
        except Invalid as error:
            wrong += problems_below(f"{key}.{name}", error.problems)
    return found, wrong
