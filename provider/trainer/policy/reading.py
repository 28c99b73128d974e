"""Reads the rules of a platform team from their file."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.yaml_values import Unreadable, from_yaml
from pulumi_trainer.provider.trainer.pipeline.policy import Model, find_wrong
from pulumi_trainer.provider.trainer.policy.rules import JobRules
from pydantic import create_model

_LONGEST = 2**20
_TYPES = typing.get_type_hints(JobRules)
_FIELDS: Any = {each.name: (_TYPES[each.name], None) for each in fields(JobRules)}
_File: type[Model] = create_model("_File", __base__=Model, **_FIELDS)
_KEYS = {name: str(info.alias) for name, info in _File.model_fields.items()}
"""Names in a program -> in a file."""


def read_rules(path: Path) -> JobRules:
    """Return the rules of a file, in YAML or JSON with the names of `JobRules` in camelCase.

    Raises:
        Invalid: The file cannot be read, or has a key or a value that is not a rule.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_LONGEST + 1)
        documents = [*from_yaml(text.decode())] if len(text) <= _LONGEST else None
    except OSError as error:
        raise Invalid(Problem(str(path), f"cannot be read: {error.strerror or error}")) from None
    except (Unreadable, yaml.YAMLError, UnicodeDecodeError) as error:
        raise Invalid(Problem(str(path), f"is not valid YAML: {error}")) from None
    if documents is None or len(documents) != 1 or not isinstance(documents[0], Mapping):
        raise Invalid(Problem(str(path), "must be one mapping with rules", "for example `registries: [ghcr.io/acme]`"))
    given = documents[0]
    wrong = _find_wrong(given)
    if wrong:
        raise Invalid(*map(partial(_in_file, path), wrong))
    return JobRules(**{name: given[key] for name, key in _KEYS.items() if key in given})


def _in_file(path: Path, problem: Problem) -> Problem:
    return replace(problem, where=f"{path}: {problem.where}".removesuffix(": "))


def rule_problems(rules: JobRules) -> list[Problem]:
    """Return what is wrong with the values of rules, by their names in a program."""
    names, found = dict(zip(_KEYS.values(), _KEYS, strict=True)), []
    for each in _find_wrong({_KEYS[name]: value for name, value in to_document(rules).items()}):
        key = re.split(r"[.\[]", each.where)[0]
        found.append(replace(each, where=f"{names.get(key, key)}{each.where[len(key) :]}"))
    return found


def _find_wrong(given: Mapping[str, Any]) -> list[Problem]:
    null = [Problem(name, "must have a value", "leave it out") for name, value in given.items() if value is None]
    return null or find_wrong(_File, given) or [*_without_meaning(given)]


def _without_meaning(given: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the values of the right type that no job could meet, or that say nothing."""
    if not {*given} - {"action"}:
        yield Problem("", "has no rule", "for example `registries: [ghcr.io/acme]`")
    for name, value in given.items():
        if isinstance(value, (Sequence, Mapping)) and not value:
            yield Problem(name, "must name at least one", "leave the rule out if everything is allowed")
        elif isinstance(value, Mapping):
            for key, most in value.items():
                yield from _limit_problems(f"{name}.{key}", key, most)
        elif isinstance(value, (list, tuple)):
            for at, each in enumerate(value):
                yield from _NAME_PROBLEMS.get(name, _name_problems)(f"{name}[{at}]", each)


def _limit_problems(where: str, name: str, most: int) -> Iterator[Problem]:
    if name:
        yield from _name_problems(where, name)
    if not 0 <= most < _MOST:
        yield Problem(where, f"must be a number of GPUs, not {most}")


def _name_problems(where: str, name: str) -> Iterator[Problem]:
    if not _NAME.fullmatch(name):
        yield Problem(where, f"{name!r} is not a valid name")


def _runtime_problems(where: str, name: str) -> Iterator[Problem]:
    yield from _name_problems(where, name.replace("*", "a"))


def _registry_problems(where: str, name: str) -> Iterator[Problem]:
    first = name.partition("/")[0]
    if name.endswith("/*") or name.endswith("/"):
        yield Problem(where, f"{name!r} is not a path of a registry", "a path allows all below it: leave out the end")
    elif first == "index.docker.io":
        yield Problem(
            where, f"{name!r}: the name of this registry is docker.io", f"docker.io{name.removeprefix(first)}"
        )
    elif "." not in first and ":" not in first and first != "localhost" and _REGISTRY.fullmatch(f"a.b/{name}"):
        yield Problem(where, f"{name!r} names no registry", f"docker.io/{name}")
    elif not _REGISTRY.fullmatch(name):
        yield Problem(where, f"{name!r} is not a registry or a path of one", "for example ghcr.io/acme")


_NAME_PROBLEMS = {"registries": _registry_problems, "runtimes": _runtime_problems}
_MOST = 2**31
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?")
_REGISTRY = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*){0,20}")


def to_document(rules: JobRules) -> dict[str, Any]:
    """Return rules as plain data with the names of `JobRules`."""
    return {name: value for name, value in asdict(rules).items() if value != getattr(JobRules(), name)}
