"""The names of arguments: components and classes of arguments declare them once, as a Python signature.

Type checkers, `inspect.signature` and completion read that signature. At run time a call that does not match it raises no
TypeError: the component reports its problems with all others.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pulumi_trainer.args.naming import underscored
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import only
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean


def bind(
    signature: inspect.Signature,
    unnamed: Sequence[Any],
    named: Mapping[str, Any],
    elsewhere: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the values of a call by the names of the signature, and the problems of the call."""
    known = list(signature.parameters)
    by_name = [name for name in known if signature.parameters[name].kind is inspect.Parameter.KEYWORD_ONLY]
    by_position = [name for name in known if name not in by_name]
    given = dict(zip(by_position, unnamed, strict=False))
    surplus = unnamed[len(given) :]
    placed: dict[str, Any] = {}
    for name, value in zip(by_name, surplus, strict=False):
        placed[_meant(name, value, signature, [*given, *named, *placed])] = value
    found = [Problem(name, "must be passed by name", f"write {name}=...") for name in placed]
    if len(surplus) > len(by_name):
        found.append(Problem("", f"takes {len(known)} arguments, but {len(unnamed)} were given"))
    given |= placed
    found += unknown_fields(named, known, elsewhere)
    found += [Problem(name, "is given twice", f"give {name}= once") for name in named if name in given]
    given = {**only(named, signature.parameters), **given}
    for name, parameter in signature.parameters.items():
        if name not in given and parameter.default is inspect.Parameter.empty:
            found.append(Problem(name, "is required"))
            given[name] = None
    return given, found


def _meant(name: str, value: Any, signature: inspect.Signature, taken: Collection[str]) -> str:
    """Return the argument that a value without a name is for: a function is `func`, an object is the argument of its class,
    else of the nearest class above it; others come in the declared order.
    """
    if callable(value) and "func" in signature.parameters:
        return "func"
    for each in inspect.getmro(type(value)):
        if not each.__module__.startswith("pulumi_trainer."):
            continue
        fitting = []
        for parameter in signature.parameters.values():
            if parameter.name not in taken and each.__name__ in re.findall(r"\w+", str(parameter.annotation)):
                fitting.append(parameter.name)
        if fitting:
            return name if name in fitting else fitting[0]
    return name


def unknown_fields(
    given: Iterable[str], known: Sequence[str], elsewhere: Mapping[str, str] | None = None
) -> list[Problem]:
    """Return a problem for each unknown name, with the nearest known one."""
    found = []
    for name in given:
        if name not in known:
            found.append(Problem(name, _unknown(name), _nearest(name, known, elsewhere or {})))
    return found


def _unknown(name: str) -> str:
    """Return the reason; it contains the name unless a path shows the name in the same spelling."""
    if not any(c.isupper() for c in name):
        return "unknown field"
    return f"unknown field {name}"


def merge_problems(misnamed: Sequence[Problem], found: Iterable[Problem]) -> list[Problem]:
    """Return the problems of a call and of its values, with one source of problems for each argument.

    Args:
        found: Problems of the values; left out if the call has a problem with the same path.
    """
    known = {p.where for p in misnamed}
    return [*misnamed, *(p for p in found if p.where not in known)]


def not_one_of(where: str, value: Any, allowed: Sequence[str], others: str = "") -> list[Problem]:
    """Return a problem if a value is not one of the allowed words, with the nearest one."""
    if isinstance(value, str) and value in allowed:
        return []
    hint = ""
    if isinstance(value, str):
        hint = did_you_mean(value, allowed, cutoff=0.75)
    expected = f"one of {', '.join(allowed)}"
    if others:
        expected = f"{others} or {' or '.join(map(repr, allowed))}"
    return [Problem(where, f"must be {expected}, not {value!r}", hint)]


def _nearest(name: str, known: Sequence[str], elsewhere: Mapping[str, str]) -> str:
    if name in elsewhere:
        return f"use {elsewhere[name]}"
    similar = [*known]
    for other, instead in elsewhere.items():
        if f"{other}=" in instead:
            similar.append(other)
    written = underscored(name)
    near = difflib.get_close_matches(written, similar, n=1, cutoff=0.75)  # mounts and timeouts have 0.71
    near = near or [each for each in similar if written.startswith(f"{each}_") or name.lower() == each]
    if not known:
        return "leave it out"
    if not near:
        return f"known: {', '.join(known)}"
    meant = near[0]
    if meant not in known:
        meant = elsewhere[meant]
    return f"did you mean {meant}?"
