"""The check for code that only defines functions: a job with it would succeed and train nothing."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.wording import join_names

_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_PASSIVE = (*_DEFINES, ast.Import, ast.ImportFrom, ast.Pass, ast.Global, ast.Assert, ast.Delete)
"""Statements that train nothing by themselves."""
_SETTINGS = frozenset({"logging", "warnings", "sys", "random", "numpy", "np", "torch"})
"""Modules whose functions, called alone, only set something."""


def uncalled_code(where: str, name: str, body: Sequence[ast.stmt]) -> tuple[Problem, ...]:
    """Return a warning if code defines functions and calls nothing; empty if it may call something."""
    defined = [each.name for each in body if isinstance(each, _DEFINES)]
    executed = [*_executed(body)]
    objects, used = set[str](), set[str]()
    for node in _nodes(executed):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            objects.add(node.id)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            used.add(node.id)
    if not defined or used & {*defined} or any(_may_train(each, objects) for each in executed):
        return ()
    why = f"{name} defines {join_names(defined)}, but calls nothing: the job would succeed without training"
    return (Problem(where, why, "call the function that trains at the end of the file"),)


def _executed(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when the code starts; conditions and `try` count as their statements."""
    pending = [*reversed(body)]
    while pending:  # no recursion: code may be nested more deeply than functions
        statement = pending.pop()
        if isinstance(statement, ast.Try):
            pending += reversed(statement.finalbody)
        if isinstance(statement, (ast.If, ast.Try)):
            pending += reversed([*statement.body, *statement.orelse])
        elif not isinstance(statement, _PASSIVE):
            yield statement


def _nodes(statements: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    for statement in statements:
        yield from ast.walk(statement)


def _may_train(statement: ast.stmt, objects: Collection[str]) -> bool:
    """Return whether a statement may be the training: a loop, or a call that is more than a setting or a new object."""
    if isinstance(statement, ast.Expr):
        call = statement.value
        return isinstance(call, (ast.Call, ast.Await, ast.Yield)) and _root(call) not in _SETTINGS
    if not isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return True
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(_is_method_of(call.func, objects) for call in calls)


def _is_method_of(function: ast.expr, objects: Collection[str]) -> bool:
    """Return whether a called function is a method of one of the objects, or of what a call returns."""
    if not isinstance(function, ast.Attribute):
        return False
    return isinstance(function.value, ast.Call) or _root(function) in objects


def _root(call: ast.AST) -> str:
    """Return the first name of a called function: `torch` of `torch.manual_seed(0)`."""
    found = call
    if isinstance(call, ast.Call):
        found = call.func
    while isinstance(found, ast.Attribute):
        found = found.value
    if isinstance(found, ast.Name):
        return found.id
    return ""
