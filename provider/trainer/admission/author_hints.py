"""Adds to errors of the API server and of Trainer's webhook, which only say what is wrong, what an author can do."""

from __future__ import annotations

import re
from dataclasses import replace

from pulumi_trainer.provider.kubernetes.errors import Problem

_NAME = "use lowercase letters, digits and '-', a letter first, for example my-job"
_HINTS = (
    (r"spec\.runtimeRef", "FieldValueRequired", "", "for example runtimeRef: {name: torch-distributed}"),
    (r"spec\.runtimeRef\.name", "FieldValueRequired", "", "for example name: torch-distributed"),
    (r"metadata\.name", "", "RFC 1123", _NAME),
    (r"", "", r"^metadata\.name must match RFC 1035", _NAME),
    (r".*\.name", "FieldValueRequired", "", "give it a name"),
    (r".*secretKeyRef\.key", "FieldValueRequired", "", "name the key of the Secret that has the value"),
    (r".*[rR]esources.*\.[\w.-]+/[\w.-]+", "", "must be of type integer", "a device cannot be divided"),
    (r".*resources_per_node.*(/|gpu).*", "", "must be a quantity such as", "devices are counted: a whole number"),
    (r".*[rR]esources.*", "", "must be of type integer", 'write it in quotes, such as "1.5"'),
    (r".*", "", "RFC 1123 label", "for example team-a"),
    (r".*", "", "RFC 1123 subdomain", "for example my-name"),
    (r".*cluster_?queue", "", "should match", "the name of a ClusterQueue: lowercase letters, digits, '-' and '.'"),
)
"""Pattern of the whole field, type, pattern within the message, hint. The first that fits counts."""


_REPLACED = (
    (r"should match '\^\[a-z0-9\].*", "is not a valid name"),
    (r'must be of type integer\S*: "\w+"$', "must be a whole number"),
)
"""Pattern of what a server says, and what an author reads instead."""


def for_author(problem: Problem) -> Problem:
    """Return a problem of a server in words for an author, with a hint if there is one."""
    problem = with_author_hint(problem)
    why = problem.why
    for pattern, instead in _REPLACED:
        why = re.sub(pattern, instead, why)
    return replace(problem, why=why)


def with_author_hint(problem: Problem) -> Problem:
    """Return a problem of a server with a hint, if it has none and there is one."""
    if problem.hint:
        return problem
    where = problem.where.replace("<nil>", "")
    for field, kind, words, hint in _HINTS:
        if re.fullmatch(field, where, re.I) and kind in ("", problem.type) and re.search(words, problem.why):
            return replace(problem, hint=hint)
    return problem
