"""Who takes which warning how seriously: a command line, a stack's configuration, a TrainJob's annotation."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pulumi_trainer.provider.admission.warnings.rule import Warning
from pulumi_trainer.provider.admission.warnings.table import RULES
from pulumi_trainer.provider.kube.errors import Invalid, Problem
from pulumi_trainer.provider.kube.values.accessors import section

Severity = Literal["ignore", "warning", "error"]

IGNORE = "pulumi-trainer.dev/ignore"
"""Annotation of a TrainJob: codes that are not told about it, as in "PT105, PT112"."""


@dataclass(frozen=True)
class Severities:
    """Code -> severity; "warning" where nothing is said. What is an error here, no TrainJob can ignore by itself."""

    by_code: Mapping[str, Severity] = field(default_factory=dict)

    @classmethod
    def read(cls, given: Any) -> Severities:
        """Of a mapping such as {"PT103": "ignore"}. Raises Invalid."""
        found = [] if isinstance(given, Mapping) else [Problem("", 'must be a mapping such as {"PT103": "ignore"}')]
        for code, severity in given.items() if isinstance(given, Mapping) else ():
            found += _unknown([code], str(code))
            if severity not in get_args(Severity):
                found.append(Problem(str(code), f"must be ignore, warning or error, not {severity!r}"))
        if found:
            raise Invalid(*found)
        return cls(dict(given))

    @classmethod
    def of(cls, *, ignore: Iterable[str] = (), error: Iterable[str] = ()) -> Severities:
        """Of lists of codes, each of which may hold several ("PT103,PT107"); error wins. Raises Invalid."""
        return cls.read({**dict.fromkeys(codes(ignore), "ignore"), **dict.fromkeys(codes(error), "error")})

    @classmethod
    def none(cls) -> Severities:
        """All warnings ignored."""
        return cls({rule.code: "ignore" for rule in RULES})

    def split(
        self, warnings: Iterable[Warning], train_job: Mapping[str, Any]
    ) -> tuple[tuple[Warning, ...], tuple[Problem, ...]]:
        """Which are errors, and which are warnings; what is wrong with the annotation is a warning too."""
        errors: list[Warning] = []
        told: list[Problem] = []
        ignored, problems = _ignored(train_job)
        for warning in warnings:
            severity = self.by_code.get(warning.code, "warning")
            if severity == "error":
                errors.append(warning)
            elif severity == "warning" and warning.code not in ignored:
                told.append(warning)
        return tuple(errors), (*told, *problems)


def codes(given: Iterable[str]) -> list[str]:
    """The codes in texts with commas or blanks between them."""
    return [code for text in given for code in text.replace(",", " ").split()]


def _unknown(given: Iterable[Any], where: str) -> list[Problem]:
    known = [rule.code for rule in RULES]
    return [
        Problem(where, f"{code!r} is no code of a warning", _hint(code, known)) for code in given if code not in known
    ]


def _hint(code: Any, known: list[str]) -> str:
    near = difflib.get_close_matches(str(code).upper(), known, n=1)
    return f"did you mean {near[0]}? they are in docs/warnings.md" if near else "they are in docs/warnings.md"


def _ignored(train_job: Mapping[str, Any]) -> tuple[list[str], list[Problem]]:
    text = section(train_job, "metadata", "annotations").get(IGNORE)
    found = codes([text]) if isinstance(text, str) else []
    return found, _unknown(found, f"metadata.annotations[{IGNORE}]")
