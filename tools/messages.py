"""Lists the texts that users can see, as they are in the source: problems, warnings, errors, notes and help texts.

python tools/messages.py FILE components provider
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PROBLEMS = {"Problem", "Warning", "_problem", "problem", "GoError"}
ERRORS = {
    "Invalid",
    "Refused",
    "Conflict",
    "TargetFault",
    "Unreadable",
    "TrainerError",
    "ApiError",
    "MergeFailed",
    "RunError",
}
LOGS = {"info", "warn", "error", "_note"}
PARTS = ("where", "why", "hint")
_WORD = re.compile(r"[A-Za-z]{2,}")


@dataclass(frozen=True)
class Message:
    """A text that users can see.

    Args:
        at: File and line of the source.
        kind: What carries the text: `Problem`, `RunError`, `Option`, ...; `text` for any other string with words in it.
        parts: Where, why and hint of a problem; one text otherwise. `{name}` stands for a value that the source inserts.
    """

    at: str
    kind: str
    parts: tuple[str, ...]

    def __str__(self) -> str:
        named = zip(PARTS, self.parts, strict=True) if len(self.parts) > 1 else [("text", self.parts[0])]
        lines = [f"    {name + ':':<7}{text}" for name, text in named if text]
        return "\n".join([f"{self.at} {self.kind}", *lines])


def read(path: Path) -> Iterator[Message]:
    """Yield the texts of a module in the order of the source."""
    tree = ast.parse(path.read_text())
    skipped = docstrings(tree)
    constants = dict(_assigned(tree.body))
    found: list[tuple[int, Message]] = []
    for scope, node in _calls(tree):
        local = sorted(_assigned(ast.walk(scope)), key=lambda each: each[1].lineno)
        parts = _parts(node, {**constants, **{name: value for name, value in local if value.lineno <= node.lineno}})
        if parts is None:
            continue
        skipped |= {id(n) for n in ast.walk(node)}
        found.append((node.lineno, Message(f"{path}:{node.lineno}", _name(node.func), parts)))
    for text in strings(tree, skipped):
        if len(_WORD.findall(re.sub(r"\{.*?\}", "", source(text)))) > 2:
            found.append((text.lineno, Message(f"{path}:{text.lineno}", "text", (source(text),))))
    yield from (message for _, message in sorted(found, key=lambda each: each[0]))


def strings(tree: ast.AST, skipped: set[int]) -> Iterator[ast.Constant | ast.JoinedStr]:
    """Yield the strings with more than one word that are neither docstrings nor in `skipped`, each f-string as a whole."""
    for node in ast.iter_child_nodes(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            if " " in source(node).strip():
                yield node
        else:
            yield from strings(node, skipped)


def docstrings(tree: ast.AST) -> set[int]:
    """Return the ids of the strings that are statements: docstrings of modules, classes, functions and constants."""
    statements = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    return {id(value) for value in statements if isinstance(value, (ast.Constant, ast.JoinedStr))}


def source(node: ast.expr | None) -> str:
    """Return the text of an expression, with `{...}` for what is known only at run time."""
    if node is None:
        return ""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(source(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return f"{{{ast.unparse(node.value)}}}"
    if isinstance(node, ast.IfExp):
        return f"{source(node.body)} | {source(node.orelse)}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return source(node.left) + source(node.right)
    return f"{{{ast.unparse(node)}}}"


def _calls(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.Call]]:
    """Yield each call with the function around it, or the module."""

    def below(scope: ast.AST, node: ast.AST) -> Iterator[tuple[ast.AST, ast.Call]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call):
                yield scope, child
            inner = child if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) else scope
            yield from below(inner, child)

    yield from below(tree, tree)


def _parts(call: ast.Call, names: dict[str, ast.expr]) -> tuple[str, ...] | None:
    """Return the texts of a call that makes a message; None for any other call."""

    def text(node: ast.expr | None) -> str:
        return source(names.get(node.id, node) if isinstance(node, ast.Name) else node)

    name = _name(call.func)
    keywords = {each.arg: each.value for each in call.keywords if each.arg}
    if name in PROBLEMS:
        return tuple(text(keywords.get(part, dict(enumerate(call.args)).get(at))) for at, part in enumerate(PARTS))
    if name in ERRORS or name in LOGS:
        plain = bool(call.args) and isinstance(call.args[0], (ast.Constant, ast.JoinedStr, ast.BinOp, ast.Name))
        return (text(call.args[0]),) if plain and " " in text(call.args[0]) else None
    if isinstance(keywords.get("help"), (ast.Constant, ast.JoinedStr)):
        return (text(keywords["help"]),)
    return None


def _assigned(nodes: Iterator[ast.AST] | Sequence[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names to which texts are assigned, with these texts."""
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Constant, ast.JoinedStr, ast.IfExp)):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))


def _name(function: ast.expr) -> str:
    """Return the last part of a function's name."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def main(file: str, folders: list[str]) -> None:
    paths = sorted(path for folder in folders for path in Path(folder).rglob("*.py"))
    messages = [message for path in paths for message in read(path)]
    Path(file).write_text("\n".join(map(str, messages)) + "\n")
    print(f"{len(messages)} messages in {file}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
