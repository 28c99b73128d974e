"""Reads YAML and JSON texts with bounded depth, size and number of values.

PyYAML builds trees recursively, and repeats of aliases are expanded only when a caller walks the tree. This module therefore
reads the events of the parser, without recursion, and counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml
from pulumi_trainer.provider.kube.values import yaml_scalars

try:
    from yaml import CSafeLoader as Loader
except ImportError:  # PyYAML without libyaml
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

MAX_LENGTH = 3 * 2**20
"""Bytes of one document: an API server takes no larger request."""
MAX_VALUES = 200_000
"""Values of one document, those that aliases repeat included."""
MAX_DEPTH = 100
"""Levels of one document. The deepest field of the API lies at about 30."""

BLANK = " \t\r\n"


class Unreadable(Exception):
    """A value that cannot be read.

    Args:
        why: The reason.
        hint: What to do.
        line: Line in the text, from 0.
        path: Path of the value.
    """

    def __init__(self, why: str, hint: str = "", line: int = 0, path: str = "") -> None:
        super().__init__(why)
        self.why, self.hint, self.line, self.path = why, hint, line, path


class _Frame:
    """A mapping or a list that is being read. begun: Size of the document when it began. merged: Values of `<<`."""

    __slots__ = ("anchor", "begun", "key", "merged", "value")

    def __init__(self, value: Any, anchor: str | None, begun: tuple[int, int]) -> None:
        self.value, self.anchor, self.begun = value, anchor, begun
        self.key: str | None = None
        self.merged: list[Any] = []


class _Merge(str):
    __slots__ = ()


_MERGE = _Merge("<<")
"""The merge key, recognised by its tag: in quotes it is an ordinary key."""


def from_yaml(text: str) -> Iterator[Any]:
    """Yield the values of the documents in a YAML text.

    Raises:
        Unreadable: A document is not valid, or too large.
        yaml.YAMLError: The text is not valid YAML.
    """
    return _Builder(text).documents()


class _Builder:
    """Builds values from the events of PyYAML's parser, without recursion.

    An alias refers to the same value, so memory stays flat; the expanded size counts.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.stack: list[_Frame] = []
        self.anchors: dict[str, tuple[Any, int, int]] = {}
        self.values = self.length = 0
        self.result: Any = None

    def documents(self) -> Iterator[Any]:
        handle = {
            yaml.ScalarEvent: self._scalar,
            yaml.AliasEvent: self._alias,
            yaml.MappingStartEvent: self._start,
            yaml.SequenceStartEvent: self._start,
            yaml.MappingEndEvent: self._end,
            yaml.SequenceEndEvent: self._end,
        }
        for event in yaml.parse(self.text, Loader=Loader):
            method = handle.get(type(event))
            if method is not None:
                try:
                    method(event)
                except Unreadable as error:
                    error.line = _line(event)
                    error.path = _shown(self.stack)
                    raise
            elif type(event) is yaml.DocumentEndEvent:
                yield self.result
                self.anchors, self.values, self.length = {}, 0, 0

    def _scalar(self, event: Any) -> None:
        text = event.value
        self._grow(1, len(text))
        frame = self._mapping_before_key()
        if frame is not None:
            frame.key = self._key(frame, event)
            return
        value = _value(event)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, 1, len(text))
        self._place(value)

    def _mapping_before_key(self) -> _Frame | None:
        """Return the innermost mapping if one of its keys comes next; else None."""
        if not self.stack:
            return None
        frame = self.stack[-1]
        if frame.key is None and type(frame.value) is dict:
            return frame
        return None

    def _key(self, frame: _Frame, event: Any) -> str:
        text: str = event.value
        value = _value(event)
        if text == _MERGE and event.implicit[0]:
            return _MERGE
        if not isinstance(value, str) and (value is None or _json_text(value) != text):
            raise Unreadable(f"the key {text or 'null'} is not a string", f'write it in quotes: "{text}"')
        if text in frame.value:
            raise Unreadable(f"duplicate key {text}", "keep one of them")
        if event.anchor is not None:
            self.anchors[event.anchor] = (text, 1, len(text))
        return text

    def _start(self, event: Any) -> None:
        self._grow(1, 0)
        if len(self.stack) >= MAX_DEPTH:
            raise Unreadable(f"is nested more than {MAX_DEPTH} levels deep")
        if event.tag is not None and not event.implicit and event.tag not in _PLAIN_TAGS:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise Unreadable(f"the tag {tag} is not plain data", "leave it out")
        value: Any = []
        if type(event) is yaml.MappingStartEvent:
            value = {}
        if self._mapping_before_key() is not None:
            raise Unreadable("a key is a mapping or a list", "a key must be a word; quote what begins with { or [")
        if event.anchor is not None:
            self.anchors.pop(event.anchor, None)
        self.stack.append(_Frame(value, event.anchor, (self.values - 1, self.length)))

    def _end(self, _: Any) -> None:
        frame = self.stack.pop()
        for given in frame.merged:
            if not isinstance(given, list):
                given = [given]
            for one in given:
                if not isinstance(one, dict):
                    raise Unreadable("<< takes a mapping, or a list of them")
                for key, value in one.items():
                    frame.value.setdefault(key, value)
        if frame.anchor is not None:
            values, length = frame.begun
            self.anchors[frame.anchor] = (frame.value, self.values - values, self.length - length)
        self._place(frame.value)

    def _alias(self, event: Any) -> None:
        if any(frame.anchor == event.anchor for frame in self.stack):
            raise Unreadable(f"*{event.anchor} refers to itself: it is inside &{event.anchor}")
        if event.anchor not in self.anchors:
            raise Unreadable(f"*{event.anchor} refers to an undefined anchor", "quote a text that begins with *")
        value, values, length = self.anchors[event.anchor]
        self._grow(values, length)
        frame = self._mapping_before_key()
        if frame is not None:
            if not isinstance(value, str) or value in frame.value:
                raise Unreadable(f"*{event.anchor} is not a key here: not a string, or there already")
            frame.key = value
            return
        self._place(value)

    def _place(self, value: Any) -> None:
        if not self.stack:
            self.result = value
            return
        frame = self.stack[-1]
        if type(frame.value) is list:
            frame.value.append(value)
        elif frame.key is _MERGE:
            frame.merged.append(value)
        else:
            frame.value[frame.key] = value
        frame.key = None

    def _grow(self, values: int, length: int) -> None:
        self.values += values
        self.length += length
        if self.values > MAX_VALUES:
            raise Unreadable(f"holds more than {MAX_VALUES} values, aliases written out")
        if self.length > MAX_LENGTH:
            raise Unreadable(f"is longer than {MAX_LENGTH >> 20} MiB, aliases written out")


_PLAIN_TAGS = ("!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


def _value(event: Any) -> Any:
    if event.implicit[0] and event.tag is None:
        value = yaml_scalars.plain_value(event.value)
        if type(value) is float and value - value != 0:
            raise Unreadable(f"{event.value} is not a number that JSON has", f'write it in quotes: "{event.value}"')
        return value
    if event.tag is None or event.implicit[1]:
        return event.value
    try:
        return yaml_scalars.tagged_value(event.tag, event.value)
    except ValueError as error:
        raise Unreadable(str(error), "leave the tag out") from None


def _json_text(value: Any) -> str:
    return json.dumps(value)


def _shown(stack: list[_Frame]) -> str:
    """Return the path of the value that is being read, as `: spec.containers[0].env[1]`."""
    path = ""
    for frame in stack:
        if type(frame.value) is list:
            path += f"[{len(frame.value)}]"
        elif frame.key is not None and path:
            path += f".{frame.key}"
        elif frame.key is not None:
            path = frame.key
    if not path:
        return ""
    if len(path) > _LONGEST_PATH:
        path = f"{path[: _LONGEST_PATH // 2]}...{path[-_LONGEST_PATH // 2 :]}"
    return f": {path}"


_LONGEST_PATH = 300


def from_json(text: str) -> Iterator[Any]:
    """Yield the objects of a JSON text, one after the other."""
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
    at = _after_blanks(text, 0)
    while at < len(text):
        begun = at
        try:
            value, at = decoder.raw_decode(text, at)
        except RecursionError:
            raise Unreadable(f"is nested more than {MAX_DEPTH} levels deep") from None
        except ValueError as error:
            if isinstance(error, json.JSONDecodeError):
                raise
            raise Unreadable("holds a number that is too long") from None
        _measured(value)
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


def _measured(value: Any) -> None:
    """Raise Unreadable for a value that is too deep or has too many values."""
    level: list[Any] = [value]
    values = 0
    for _ in range(MAX_DEPTH + 1):
        values += len(level)
        if values > MAX_VALUES:
            raise Unreadable(f"holds more than {MAX_VALUES} values")
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                below += one.values()
            elif isinstance(one, list):
                below += one
        level = below
        if not level:
            return
    raise Unreadable(f"is nested more than {MAX_DEPTH} levels deep")


@dataclass(slots=True)
class Place:
    """The place of a value in a text.

    Args:
        line: Line, from 0.
        written: A scalar without quotes, as in the text.
        below: The places of the values inside, by key or index.
    """

    line: int = 0
    written: str | None = None
    below: dict[str, Place] | None = None

    def find(self, steps: list[str]) -> Place:
        """Return the place of the value at `steps`; if not found, that of the innermost existing parent, without its text."""
        here = self
        for step in steps:
            found = (here.below or {}).get(step)
            if found is None:
                return Place(here.line)
            here = found
        return here


@lru_cache(maxsize=1)
def find_places(text: str) -> Place:
    """Return the places of the values in a YAML document."""
    root = Place()
    with suppress(yaml.YAMLError):  # JSON that is not valid YAML: up to the first error
        _fill(root, text)
    return root


def _fill(root: Place, text: str) -> None:
    opened: list[Place] = []  # mappings and lists around
    waits: list[Place | int | None] = []  # of each: the value whose key was read, None before a key; the next index
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.DocumentEndEvent):
            return
        if isinstance(event, yaml.CollectionEndEvent):
            opened.pop()
            waits.pop()
        elif not isinstance(event, yaml.NodeEvent):
            continue
        else:
            state: Place | int | None = root
            if waits:
                state = waits[-1]
            if state is None or isinstance(state, int):
                if state is None:
                    key = str(getattr(event, "value", ""))
                else:
                    key = str(state)
                place = Place(_line(event))
                below = opened[-1].below
                assert below is not None
                below.setdefault(key, place)
                if state is None:
                    waits[-1] = place
                    continue
            else:
                place = state
            if isinstance(event, yaml.CollectionStartEvent):
                place.below = {}
                opened.append(place)
                if isinstance(event, yaml.SequenceStartEvent):
                    waits.append(0)
                else:
                    waits.append(None)
                continue
            if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and event.tag is None:
                place.written = event.value
        if waits:
            state = waits[-1]
            waits[-1] = state + 1 if isinstance(state, int) else None


def _line(event: yaml.Event) -> int:
    return event.start_mark.line if event.start_mark else 0
