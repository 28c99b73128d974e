"""Reads YAML and JSON texts with bounded depth, size and number of values, and finds the place of a value in a text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

import yaml
from pulumi_trainer.provider.kubernetes.values import yaml_scalars

MAX_LENGTH = 3 * 2**20
"""Bytes of one document: an API server takes no larger request."""
MAX_VALUES = 200_000
"""Values of one document, those that aliases repeat included."""
MAX_DEPTH = 100
"""Levels of one document. The deepest field of the API lies at about 30."""

_LibYAML: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader of PyYAML's wheels; a PyYAML without libyaml has the same methods in Python."""

BLANK = " \t\r\n"


class Unreadable(Exception):
    """A value that cannot be read."""

    def __init__(self, why: str, hint: str = "", line: int = 0, path: str = "") -> None:
        super().__init__(why)
        self.why, self.hint, self.line, self.path = why, hint, line, path


_PLAIN = "plain"
"""The tag of what has none in the text, and of scalars no quotes either."""
_COLLECTIONS = (_PLAIN, "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_MERGE = "<<"
_UNFINISHED = object()
"""The value of a mapping or a list that is being built."""
_TOO_DEEP = f"is nested more than {MAX_DEPTH} levels deep"
_TOO_MANY = f"holds more than {MAX_VALUES} values"
_LONGEST_PATH = 300


class _Loader(_LibYAML):  # type: ignore[misc]
    """Composes nodes, and stops before there are too many, or so deep that libyaml's recursion would end the process."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.steps: list[Any] = []
        self.ascend_resolver = self.steps.pop
        self.nodes = 0

    def descend_resolver(self, current_node: Any, current_index: Any) -> None:
        self.nodes += 1
        self.steps.append(current_index)
        if len(self.steps) > MAX_DEPTH + 1:
            why = _TOO_DEEP
        elif self.nodes > MAX_VALUES:
            why = _TOO_MANY
        else:
            return
        steps = [getattr(step, "value", step) for step in self.steps if step is not None]
        raise Unreadable(why, "", current_node.start_mark.line, _shown(steps))

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:  # noqa: ARG002 - the name is PyYAML's
        if value is None or implicit[0]:
            return _PLAIN
        return yaml_scalars.STR


def from_yaml(text: str) -> Iterator[Any]:
    """Yield the values of the documents in a YAML text."""
    loader = _Loader(text)
    while loader.check_node():
        loader.nodes = 0
        root = loader.get_node()
        yield _value_of(root, _Builder(loader.nodes, len(text)))


def _value_of(root: Any, builder: _Builder) -> Any:
    try:
        return builder.build(root)
    except Unreadable as error:
        line, _ = Places(root).find([*map(str, builder.steps)])
        error.line, error.path = max(error.line, line), _shown(builder.steps)
        raise


class _Builder:
    """Builds the value of a document from its nodes.

    An alias refers to the same value, so memory stays flat; what aliases repeat is counted.

    Args:
        steps: Keys and indices of the value that is being built.
        built: The values, by the identity of their nodes.
        length: Length of the text, and of all texts that are repeated.
    """

    def __init__(self, values: int, length: int) -> None:
        self.steps: list[str | int] = []
        self.built: dict[int, Any] = {}
        self.values, self.length = values, length

    def build(self, node: Any) -> Any:
        at = id(node)
        if at in self.built:
            self._count_repeated(self.built[at])
            return self.built[at]
        if isinstance(node, yaml.ScalarNode):
            value = _scalar(node)
        else:
            if node.tag not in _COLLECTIONS:
                raise Unreadable(f"the tag {yaml_scalars.shown_tag(node.tag)} is not plain data", "leave it out")
            self.built[at] = _UNFINISHED
            if isinstance(node, yaml.MappingNode):
                value = self._mapping(node)
            else:
                value = self._list(node)
        self.built[at] = value
        return value

    def _list(self, node: Any) -> list[Any]:
        found: list[Any] = []
        for item in node.value:
            self.steps.append(len(found))
            found.append(self.build(item))
            self.steps.pop()
        return found

    def _mapping(self, node: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: list[Any] = []
        for key_node, value_node in node.value:
            key = self._key(key_node)
            is_merge = key == _MERGE and key_node.tag == _PLAIN
            if key in found and not is_merge:
                raise Unreadable(f"duplicate key {key}", "keep one of them", key_node.start_mark.line)
            self.steps.append(key)
            value = self.build(value_node)
            self.steps.pop()
            if not is_merge:
                found[key] = value
            elif isinstance(value, list):
                merged += value
            else:
                merged.append(value)
        for mapping in merged:
            if not isinstance(mapping, dict):
                raise Unreadable("<< takes a mapping, or a list of them")
            for key, value in mapping.items():
                found.setdefault(key, value)
        return found

    def _key(self, node: Any) -> str:
        if not isinstance(node, yaml.ScalarNode):
            hint = "a key must be a word; quote what begins with { or ["
            raise Unreadable("a key is a mapping or a list", hint, node.start_mark.line)
        value, text = self.build(node), node.value
        if not isinstance(value, str) and (value is None or json.dumps(value) != text):
            why = f"the key {text or 'null'} is not a string"
            raise Unreadable(why, f'write it in quotes: "{text}"', node.start_mark.line)
        return str(text)

    def _count_repeated(self, value: Any) -> None:
        if value is _UNFINISHED:
            raise Unreadable("an alias refers to itself: it is inside its anchor")
        for level in _levels(value, len(self.steps)):
            self.values += len(level)
            self.length += sum(len(one) for one in level if isinstance(one, str))
        if self.values > MAX_VALUES:
            raise Unreadable(f"{_TOO_MANY}, aliases written out")
        if self.length > MAX_LENGTH:
            raise Unreadable(f"is longer than {MAX_LENGTH >> 20} MiB, aliases written out")


def _scalar(node: Any) -> Any:
    if node.tag == _PLAIN:
        value = yaml_scalars.plain_value(node.value)
        if type(value) is float and value - value != 0:
            raise Unreadable(f"{node.value} is not a number that JSON has", f'write it in quotes: "{node.value}"')
        return value
    try:
        return yaml_scalars.tagged_value(node.tag, node.value)
    except ValueError as error:
        raise Unreadable(str(error), "leave the tag out") from None


def _shown(steps: list[str | int]) -> str:
    """Return the path of the value that is being read, as `: spec.containers[0].env[1]`."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}"
    path = path.removeprefix(".")
    if not path:
        return ""
    if len(path) > _LONGEST_PATH:
        path = f"{path[: _LONGEST_PATH // 2]}...{path[-_LONGEST_PATH // 2 :]}"
    return f": {path}"


def from_json(text: str) -> Iterator[Any]:
    """Yield the objects of a JSON text, one after the other."""
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
    at = _after_blanks(text, 0)
    while at < len(text):
        begun = at
        try:
            value, at = decoder.raw_decode(text, at)
        except RecursionError:
            raise Unreadable(_TOO_DEEP) from None
        except ValueError as error:
            if isinstance(error, json.JSONDecodeError):
                raise
            raise Unreadable("holds a number that is too long") from None
        _check_size(value)
        if _HALF.search(text, begun, at):
            _encoded(value)
        yield value
        at = _after_blanks(text, at)


_BLANKS = re.compile(f"[{BLANK}]*")
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    assert found is not None  # no blank at all matches too
    return found.end()


def _encoded(value: Any) -> None:
    """Raise Unreadable for lone surrogates, which JSON can contain and no text can."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Unreadable(r"holds half of a character: \ud800 to \udfff come in pairs") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise Unreadable(f"duplicate key {name}", "keep one of them")
            seen.add(name)
    return found


def _constant(text: str) -> Any:
    raise Unreadable(f"{text} is not a number that JSON has")


def _check_size(value: Any) -> None:
    """Raise Unreadable for a value that is too deep or has too many values."""
    values = 0
    for level in _levels(value, 0):
        values += len(level)
        if values > MAX_VALUES:
            raise Unreadable(_TOO_MANY)


def _levels(value: Any, depth: int) -> Iterator[list[Any]]:
    """Yield the keys and values of each level of a value that lies at a depth of its document."""
    level: list[Any] = [value]
    while level:
        if depth > MAX_DEPTH:
            raise Unreadable(_TOO_DEEP)
        yield level
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                below += one
                below += one.values()
            elif isinstance(one, list):
                below += one
            if len(below) > MAX_VALUES:
                raise Unreadable(_TOO_MANY)
        level = below
        depth += 1


@lru_cache(maxsize=1)
def find_places(text: str) -> Places:
    """Return the places of the values in the first document of a text."""
    root = None
    with suppress(yaml.YAMLError, Unreadable):  # JSON that is not valid YAML
        loader = _Loader(text)
        if loader.check_node():
            root = loader.get_node()
    return Places(root)


class Places:
    """The places of the values in a document."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._children: dict[int, dict[str, tuple[int, Any]]] = {}

    def find(self, steps: list[str]) -> tuple[int, str | None]:
        """Return the line of the value at `steps`, from 0, and its text if it is a scalar without quotes.

        If no value is there, the line is that of the innermost existing parent.
        """
        node, line = self._root, 0
        for step in steps:
            child = self._children_of(node).get(step)
            if child is None:
                return line, None
            line, node = max(line, child[0]), child[1]  # an alias leads to a node of an earlier line
        if isinstance(node, yaml.ScalarNode) and node.tag == _PLAIN:
            return line, str(node.value)
        return line, None

    def _children_of(self, node: Any) -> dict[str, tuple[int, Any]]:
        """Return the line and the node of each value in a mapping or a list, by key or index."""
        if id(node) not in self._children:
            children = {}
            if isinstance(node, yaml.MappingNode):
                children = {str(key.value): (key.start_mark.line, value) for key, value in node.value}
            elif isinstance(node, yaml.SequenceNode):
                children = {str(index): (item.start_mark.line, item) for index, item in enumerate(node.value)}
            self._children[id(node)] = children
        return self._children[id(node)]
