"""Parses Python code of users."""

from __future__ import annotations

import ast

from pulumi_trainer.provider.kubernetes.errors import Problem

TOO_DEEP = "is nested too deeply for Python"


def parse(source: str | bytes, filename: str = "<unknown>") -> ast.Module:
    """Return the syntax tree of a module. Raises SyntaxError, also for too deep nesting, and ValueError for a NUL."""
    try:
        return ast.parse(source, filename)
    except (MemoryError, RecursionError):
        raise SyntaxError(TOO_DEEP) from None


def syntax_problem(where: str, file: str, error: Exception) -> Problem:
    """Return the problem of a file that `parse` cannot read."""
    line = getattr(error, "lineno", None)
    if line:
        file = f"{file}:{line}"
    return Problem(where, f"{file}: {getattr(error, 'msg', error)}")


def is_type_checking(test: ast.expr) -> bool:
    """Return whether a condition is `TYPE_CHECKING`, which is false when code runs."""
    return getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"
