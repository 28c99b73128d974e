"""Prints values as Python source in the layout of `ruff format`. Text of documents becomes string literals and comments only."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

WIDTH = 88
"""Default line length of `ruff format`."""
INDENT = "    "


@dataclass(frozen=True)
class Expression:
    """Source of a short expression, such as the name of a variable."""

    source: str


@dataclass(frozen=True)
class Secret:
    """A value of the stack's configuration that `config.require_secret` reads."""

    key: str


@dataclass(frozen=True)
class Range:
    """Consecutive numbers of a list, from the first to the last."""

    first: int
    last: int


def marker(key: str) -> str:
    """Return the text that stands for a secret where documents are compared."""
    return f"<secret {key}>"


@dataclass
class Call:
    """A call of a class of `pulumi_trainer`, or of the one that its attribute `source` names.

    Attributes:
        first: Positional argument, the name of a resource; None for none.
        arguments: Keyword arguments, in their order.
        comments: Keyword -> comments above it.
    """

    cls: type
    arguments: dict[str, Any] = field(default_factory=dict)
    first: str | None = None
    comments: dict[str, list[str]] = field(default_factory=dict)


def key_of_marker(text: str) -> str:
    """Return the key of the secret that a marker stands for."""
    return text.removeprefix("<secret ").removesuffix(">")


def literal(text: str) -> str:
    """Return a string literal, in the quotes that need fewer escapes."""
    quote = '"'
    if text.count('"') > text.count("'"):
        quote = "'"
    return quote + "".join(_escaped(character, quote) for character in text) + quote


def _escaped(character: str, quote: str) -> str:
    if character in ("\\", quote):
        return f"\\{character}"
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


def comment_lines(text: str, indent: str) -> Iterator[str]:
    """Yield the lines of a comment. No text can end it: characters that are not printable are escaped."""
    safe = "".join(_escaped(character, "") if not character.isprintable() else character for character in text)
    line = f"{indent}#"
    for word in safe.split(" "):
        if len(line) + 1 + len(word) > WIDTH and line.strip() != "#":
            yield line
            line = f"{indent}#"
        line += f" {word}"
    yield line


def statement(target: str, value: Any) -> str:
    """Return a statement that creates a value. target: Variable that it is assigned to; empty for none."""
    start = f"{target} = " if target else ""
    return start + _printed(value, "", len(start)) + "\n"


def _flat(value: Any) -> str:
    """Return a value in one line."""
    match value:
        case Expression():
            return value.source
        case Secret():
            return f"config.require_secret({literal(value.key)})"
        case Range():
            return f"list(range({value.first}, {value.last + 1}))"
        case Call():
            return f"{_class_source(value.cls)}({', '.join(_flat_items(value))})"
        case str():
            return literal(value)
        case Mapping():
            return f"{{{', '.join(_flat_items(value))}}}"
        case list() | tuple():
            return f"[{', '.join(_flat_items(value))}]"
        case float() if not math.isfinite(value):
            return f"float({str(value)!r})"
        case _:
            return repr(value)


def _class_source(cls: type) -> str:
    """Return how a program names a class: as an attribute of its module, which `source` names if it is another one."""
    return str(getattr(cls, "source", f"trainer.{cls.__name__}"))


def _flat_items(value: Any) -> Iterator[str]:
    for start, item in _items(value):
        yield start + _flat(item)


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the items of a call or a collection, each with the text before it."""
    if isinstance(value, Call):
        if value.first is not None:
            yield "", value.first
        for name, item in value.arguments.items():
            yield f"{name}=", item
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield f"{_flat(key)}: ", item
    else:
        for item in value:
            yield "", item


def _has_comment(value: Any) -> bool:
    if isinstance(value, Call) and value.comments:
        return True
    is_compound = isinstance(value, (Call, Mapping, list, tuple))
    return is_compound and any(_has_comment(item) for _, item in _items(value))


def _printed(value: Any, indent: str, used: int) -> str:
    """Return a value, in several lines if it does not fit into one.

    Args:
        indent: Indentation of the line in which the value starts.
        used: Characters of this line that are taken, with the comma after the value.
    """
    flat = _flat(value)
    is_compound = isinstance(value, (Call, Mapping, list, tuple)) and flat[-2:] not in ("()", "[]", "{}")
    broken = is_compound and _has_comment(value)
    if not broken and used + len(flat) <= WIDTH:
        return flat
    if not is_compound:
        return flat
    inner = indent + INDENT
    opening, closing = flat[: flat.index("(") + 1] if isinstance(value, Call) else flat[0], flat[-1]
    if isinstance(value, Call) and not broken:
        body = ", ".join(_flat_items(value))
        if len(inner) + len(body) <= WIDTH:
            return f"{opening}\n{inner}{body}\n{indent}{closing}"
    lines = [opening]
    for start, item in _items(value):
        if isinstance(value, Call):
            for comment in value.comments.get(start.removesuffix("="), ()):
                lines += comment_lines(comment, inner)
        lines.append(f"{inner}{start}{_printed(item, inner, len(inner) + len(start) + 1)},")
    lines.append(f"{indent}{closing}")
    return "\n".join(lines)


def pulumi_yaml(name: str, description: str, config: Mapping[str, str]) -> str:
    """Return the content of `Pulumi.yaml`."""
    lines = [f"name: {json.dumps(name)}", f"description: {json.dumps(description)}", "runtime:", "  name: python"]
    if config:
        lines.append("config:")
    for key, value in config.items():
        lines.append(f"  {yaml.safe_dump({key: value}, width=math.inf).strip()}")
    return "\n".join(lines) + "\n"
