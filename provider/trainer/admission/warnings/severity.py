"""The severity of warnings: on the command line, in a stack's configuration, in a TrainJob's annotation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean
from pulumi_trainer.provider.trainer.admission.warnings.rule import Warning
from pulumi_trainer.provider.trainer.admission.warnings.table import RULES

Severity = Literal["ignore", "warning", "error"]

IGNORE = "pulumi-trainer.dev/ignore"
"""Annotation of a TrainJob: codes of warnings that are hidden, as in "PT105, PT112"."""


@dataclass(frozen=True)
class Severities:
    """Severities of warnings.

    Args:
        by_code: Severities by code; default: "error" for what an API server refuses later, else "warning". A TrainJob cannot
            ignore a warning that is an error here.
        lenient: Whether the default is "warning" for all, as for servers, which admit the TrainJob.
    """

    by_code: Mapping[str, Severity] = field(default_factory=dict)
    lenient: bool = False

    @classmethod
    def read(cls, given: Any) -> Severities:
        """Return the severities of a mapping such as {"PT103": "ignore"}."""
        if not isinstance(given, Mapping):
            raise Invalid(Problem("", 'must be a mapping such as {"PT103": "ignore"}'))
        found: list[Problem] = []
        for code, severity in given.items():
            found += _unknown([code], str(code))
            if severity not in get_args(Severity):
                found.append(Problem(str(code), f"must be ignore, warning or error, not {severity!r}"))
        if found:
            raise Invalid(*found)
        return cls(dict(given))

    @classmethod
    def of(cls, *, ignore: Iterable[str] = (), error: Iterable[str] = ()) -> Severities:
        """Return the severities of lists of codes; "error" wins.

        Args:
            ignore: Codes to ignore; a text may have several ("PT103,PT107").
        """
        return cls.read({**dict.fromkeys(codes(ignore), "ignore"), **dict.fromkeys(codes(error), "error")})

    @classmethod
    def none(cls) -> Severities:
        """Return severities that ignore all warnings."""
        return cls({rule.code: "ignore" for rule in RULES})

    def split(
        self, warnings: Iterable[Warning], train_job: Mapping[str, Any]
    ) -> tuple[tuple[Warning, ...], tuple[Problem, ...]]:
        """Return the warnings that are errors, and the others together with the problems of the annotation."""
        errors: list[Warning] = []
        others: list[Problem] = []
        ignored, problems = _ignored(train_job)
        for warning in warnings:
            default: Severity = "warning"
            if warning.is_refused and not self.lenient and warning.code not in ignored:
                default = "error"
            severity = self.by_code.get(warning.code, default)
            if severity == "error":
                errors.append(warning)
            elif severity == "warning" and warning.code not in ignored:
                others.append(warning)
        return tuple(errors), (*others, *problems)


REFUSED = frozenset(rule.code for rule in RULES if rule.refused)
"""Codes of what an API server refuses when a controller makes it."""


def codes(given: Iterable[str]) -> list[str]:
    """Return the codes in texts, separated by commas or blanks."""
    return " ".join(given).replace(",", " ").split()


def _unknown(given: Iterable[Any], where: str) -> list[Problem]:
    known = [rule.code for rule in RULES]
    problems: list[Problem] = []
    for code in given:
        if code not in known:
            problems.append(Problem(where, f"unknown warning code {code!r}", _hint(code, known)))
    return problems


def _hint(code: Any, known: list[str]) -> str:
    return did_you_mean(str(code).upper(), known, "docs/warnings.md lists all codes", cutoff=0.85)


def _ignored(train_job: Mapping[str, Any]) -> tuple[list[str], list[Problem]]:
    text = section(train_job, "metadata", "annotations").get(IGNORE)
    if not isinstance(text, str):
        return [], []
    found = codes([text])
    return found, _unknown(found, f"metadata.annotations[{IGNORE}]")
