"""The check for annotations that only work unevaluated, since what they name in a function is not bound yet, or never."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from pulumi_trainer.plan.python_source import is_type_checking

_Place = tuple[int, int]
"""Line and column."""


@dataclass
class _Scope:
    """Names of a function or class.

    Attributes:
        outer: The scope around it.
        is_class: Whether it belongs to a class.
        local: The names that it binds.
        bound: Name -> first place from which it has a value; none for names that only a type checker binds.
        annotated: Names in annotations that Python evaluates in it, each with its place.
    """

    outer: _Scope | None = None
    is_class: bool = False
    local: set[str] = field(default_factory=set)
    bound: dict[str, _Place] = field(default_factory=dict)
    annotated: list[tuple[str, _Place]] = field(default_factory=list)

    def bind(self, name: str | None, place: _Place | None) -> None:
        """Add a name; a place of None gives it no value."""
        if name is None:
            return
        self.local.add(name)
        if place is not None:
            self.bound[name] = min(place, self.bound.get(name, place))

    def annotate(self, annotation: ast.expr | None) -> None:
        """Add the names of an annotation."""
        if annotation is None:
            return
        for node in ast.walk(annotation):
            if isinstance(node, ast.Name):
                self.annotated.append((node.id, _start(node)))


def has_unbound(function: ast.stmt) -> bool:
    """Return whether an annotation in a function would fail if Python evaluated it: it names a class from inside of it, what the
    function only binds later, or what it binds under `if TYPE_CHECKING`.
    """
    scopes, shared = [_Scope()], set[str]()
    _read(function, scopes[0], scopes, shared)
    return any(_has_unbound(scope, shared) for scope in scopes)


def _read(node: ast.AST, scope: _Scope, scopes: list[_Scope], shared: set[str], *, runs: bool = True) -> None:
    """Read a statement or expression into its scope.

    Args:
        node: The statement or expression.
        scope: Its scope.
        scopes: All scopes so far; those inside of the node are added.
        shared: Names that a function declares as global or nonlocal are added.
        runs: Whether it runs in the job, and not only in a type checker.
    """
    inside = scope
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            if not runs:
                scope.bind(node.name, None)
                return
            scope.bind(node.name, _end(node))
            inside = _Scope(scope, isinstance(node, ast.ClassDef))
            scopes.append(inside)
            if not isinstance(node, ast.ClassDef):
                for argument in _arguments(node.args):
                    scope.annotate(argument.annotation)
                    inside.bind(argument.arg, (0, 0))
                scope.annotate(node.returns)
        case ast.AnnAssign():
            if scope.is_class and runs:  # in a function, Python evaluates none of a variable
                scope.annotate(node.annotation)
            if node.value is None and isinstance(node.target, ast.Name):
                scope.bind(node.target.id, None)
                return
        case ast.If() if is_type_checking(node.test):
            for statement in node.body:
                _read(statement, scope, scopes, shared, runs=False)
            for statement in node.orelse:
                _read(statement, scope, scopes, shared, runs=runs)
            return
        case ast.Name(ctx=ast.Store()):
            scope.bind(node.id, _start_if(node, runs=runs))
        case ast.alias():
            scope.bind(node.asname or node.name.partition(".")[0], _start_if(node, runs=runs))
        case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar():
            scope.bind(node.name, _start(node))
        case ast.MatchMapping():
            scope.bind(node.rest, _start(node))
        case ast.Global() | ast.Nonlocal():
            shared.update(node.names)
    for child in ast.iter_child_nodes(node):
        _read(child, inside, scopes, shared, runs=runs)


def _arguments(given: ast.arguments) -> Iterator[ast.arg]:
    yield from (*given.posonlyargs, *given.args, *given.kwonlyargs)
    yield from filter(None, (given.vararg, given.kwarg))


def _has_unbound(scope: _Scope, shared: Collection[str]) -> bool:
    return any(name not in shared and _is_unbound(name, place, scope) for name, place in scope.annotated)


def _is_unbound(name: str, place: _Place, scope: _Scope) -> bool:
    """Return whether a name has no value at a place of a scope. A function inside another may be called later: of what is bound
    around it, only a name that never has a value counts.
    """
    if name in scope.local:
        return scope.bound.get(name, _NEVER) > place and not (scope.is_class and hasattr(builtins, name))
    at = place
    while scope.outer is not None:
        if not scope.is_class:
            at = _END
        scope = scope.outer
        if name in scope.local and not scope.is_class:
            return scope.bound.get(name, _NEVER) > at
    return False


_END, _NEVER = (1 << 32, 0), (1 << 32, 1)


def _start(node: ast.expr | ast.alias | ast.ExceptHandler | ast.pattern) -> _Place:
    return node.lineno, node.col_offset


def _start_if(node: ast.expr | ast.alias, *, runs: bool) -> _Place | None:
    """Return the place of a name that a statement binds; None if the statement does not run in the job."""
    if not runs:
        return None
    return _start(node)


def _end(node: ast.stmt) -> _Place:
    return node.end_lineno or node.lineno, node.end_col_offset or 0
