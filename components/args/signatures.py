"""The names of arguments: a component and a class of arguments declare them once, as a Python signature.

Type checkers, `inspect.signature` and completion see that signature. At run time a call that does not fit is no TypeError: what
is wrong with it is a problem of the component, which is reported with all others.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pulumi_trainer.provider.kube.errors import Problem


def bind(
    signature: inspect.Signature,
    unnamed: Sequence[Any],
    named: Mapping[str, Any],
    elsewhere: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], list[Problem]]:
    """Return what a call gives by the names of the signature, and what is wrong with the call.

    elsewhere: names that are no arguments here -> how they are given instead.
    """
    known = list(signature.parameters)
    by_name = [name for name in known if signature.parameters[name].kind is inspect.Parameter.KEYWORD_ONLY]
    given = dict(zip((name for name in known if name not in by_name), unnamed, strict=False))
    surplus = unnamed[len(given) :]
    found = [
        Problem(name, "takes its value by name", f"give {name}=...") for name, _ in zip(by_name, surplus, strict=False)
    ]
    if len(surplus) > len(by_name):
        found.append(Problem("", f"takes {len(known)} arguments, and {len(unnamed)} were given"))
    given |= dict(zip(by_name, surplus, strict=False))
    found += unknown_fields(named, known, elsewhere)
    found += [Problem(name, "is given twice", f"give {name}= once") for name in named if name in given]
    given = {**{name: value for name, value in named.items() if name in signature.parameters}, **given}
    for name, parameter in signature.parameters.items():
        if name not in given and parameter.default is inspect.Parameter.empty:
            found.append(Problem(name, "is required"))
            given[name] = None
    return given, found


def unknown_fields(
    given: Iterable[str], known: Sequence[str], elsewhere: Mapping[str, str] | None = None
) -> list[Problem]:
    """Return a problem for each name that is not known, with the nearest one that is."""
    return [
        Problem(name, _unknown(name), _nearest(name, known, elsewhere or {})) for name in given if name not in known
    ]


def _unknown(name: str) -> str:
    """Return the reason, with the name where a path shows it as Python writes names."""
    return f"unknown field {name}" if any(c.isupper() for c in name) else "unknown field"


def merge_problems(misnamed: Sequence[Problem], found: Iterable[Problem]) -> list[Problem]:
    """Return what is wrong with a call and what is wrong with its values, but nothing twice of one argument."""
    known = {p.where for p in misnamed}
    return [*misnamed, *(p for p in found if p.where not in known)]


def not_one_of(where: str, value: Any, allowed: Sequence[str]) -> list[Problem]:
    """Return a problem where a value is none of a few words, with the nearest one."""
    if isinstance(value, str) and value in allowed:
        return []
    near = difflib.get_close_matches(value, allowed, n=1) if isinstance(value, str) else []
    hint = f"did you mean {near[0]}?" if near else ""
    return [Problem(where, f"must be one of {', '.join(allowed)}, not {value!r}", hint)]


def _nearest(name: str, known: Sequence[str], elsewhere: Mapping[str, str]) -> str:
    if name in elsewhere:
        return f"give it as {elsewhere[name]}"
    written = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
    near = difflib.get_close_matches(written, [*known, *elsewhere], n=1, cutoff=0.5)
    if not near:
        return f"known: {', '.join(known)}"
    return f"did you mean {near[0] if near[0] in known else elsewhere[near[0]]}?"
