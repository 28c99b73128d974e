"""The values of a text: YAML without recursion, or JSON, both bounded. `documents` calls it.

A reader of YAML that builds trees, as PyYAML has it, recurses into what a file nests, and writes out what its aliases
repeat only when somebody walks over it. So this one works on the parser's events, and counts.
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
    """What is wrong with a value. line: in its text, from 0. path: where it stands."""

    def __init__(self, why: str, mend: str = "", line: int = 0, path: str = "") -> None:
        super().__init__(why)
        self.why, self.mend, self.line, self.path = why, mend, line, path


class _Frame:
    """A mapping or a list that is being read. begun: size of the document when it began. merged: values of `<<`."""

    __slots__ = ("anchor", "begun", "key", "merged", "value")

    def __init__(self, value: Any, anchor: str | None, begun: tuple[int, int]) -> None:
        self.value, self.anchor, self.begun = value, anchor, begun
        self.key: str | None = None
        self.merged: list[Any] = []


class _Merge(str):
    __slots__ = ()


_MERGE = _Merge("<<")
"""The key that merges, told by what it is: in quotes it is a key as any other."""


def from_yaml(text: str) -> Iterator[Any]:
    """The values of the documents in a YAML text. Raises Unreadable, and PyYAML's errors."""
    return _Builder(text).documents()


class _Builder:
    """Values out of the events of PyYAML's parser, without recursion.

    An alias stands for the very same value, so memory stays flat; what it would be written out counts.
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
            if (method := handle.get(type(event))) is not None:
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
        if self.stack and (frame := self.stack[-1]).key is None and type(frame.value) is dict:
            frame.key = self._key(frame, event)
            return
        value = _value(event)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, 1, len(text))
        self._place(value)

    def _key(self, frame: _Frame, event: Any) -> str:
        text: str = event.value
        value = _value(event)
        if text == _MERGE and event.implicit[0]:
            return _MERGE
        if not isinstance(value, str) and (value is None or _json_text(value) != text):
            raise Unreadable(f"the key {text or 'null'} is not a string", f'write it in quotes: "{text}"')
        if text in frame.value:
            raise Unreadable(f"the key {text} is there twice", "keep one of them")
        if event.anchor is not None:
            self.anchors[event.anchor] = (text, 1, len(text))
        return text

    def _start(self, event: Any) -> None:
        self._grow(1, 0)
        if len(self.stack) >= MAX_DEPTH:
            raise Unreadable(f"is nested more than {MAX_DEPTH} levels deep")
        if event.tag is not None and not event.implicit and event.tag not in _PLAIN_TAGS:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise Unreadable(f"the tag {tag} is no plain data", "leave it out")
        value: Any = {} if type(event) is yaml.MappingStartEvent else []
        if self.stack and (frame := self.stack[-1]).key is None and type(frame.value) is dict:
            raise Unreadable("a key is a mapping or a list", "a key must be a word; quote what begins with { or [")
        if event.anchor is not None:
            self.anchors.pop(event.anchor, None)
        self.stack.append(_Frame(value, event.anchor, (self.values - 1, self.length)))

    def _end(self, _: Any) -> None:
        frame = self.stack.pop()
        for given in frame.merged:
            for one in given if isinstance(given, list) else [given]:
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
            raise Unreadable(f"*{event.anchor} stands inside of &{event.anchor}: it would have no end")
        if event.anchor not in self.anchors:
            raise Unreadable(f"there is no &{event.anchor} before *{event.anchor}", "quote a text that begins with *")
        value, values, length = self.anchors[event.anchor]
        self._grow(values, length)
        if self.stack and (frame := self.stack[-1]).key is None and type(frame.value) is dict:
            if not isinstance(value, str) or value in frame.value:
                raise Unreadable(f"*{event.anchor} is no key here: not a string, or there already")
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
        value = yaml_scalars.plain(event.value)
        if type(value) is float and value - value != 0:
            raise Unreadable(f"{event.value} is no number that JSON has", f'write it in quotes: "{event.value}"')
        return value
    if event.tag is None or event.implicit[1]:
        return event.value
    try:
        return yaml_scalars.tagged(event.tag, event.value)
    except ValueError as error:
        raise Unreadable(str(error), "leave the tag out") from None


def _json_text(value: Any) -> str:
    return json.dumps(value)


def _shown(stack: list[_Frame]) -> str:
    """The path of what is being read, as `: spec.trainer.env[1]`."""
    path = ""
    for frame in stack:
        if type(frame.value) is list:
            path += f"[{len(frame.value)}]"
        elif frame.key is not None:
            path += f".{frame.key}" if path else frame.key
    if len(path) > _LONGEST_PATH:
        path = f"{path[: _LONGEST_PATH // 2]}...{path[-_LONGEST_PATH // 2 :]}"
    return f": {path}" if path else ""


_LONGEST_PATH = 300


def from_json(text: str) -> Iterator[Any]:
    """The objects of a JSON text, one after the other."""
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
    at = 0
    while (at := _after_blanks(text, at)) < len(text):
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


_BLANKS = re.compile(f"[{BLANK}]*")
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    assert found is not None  # no blank at all matches too
    return found.end()


def _encoded(value: Any) -> None:
    """Refuses halves of characters: JSON can name them, and no text can hold them."""
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
                raise Unreadable(f"the key {name} is there twice", "keep one of them")
            seen.add(name)
    return found


def _constant(text: str) -> Any:
    raise Unreadable(f"{text} is no number that JSON has")


def _measured(value: Any) -> None:
    """Refuses what is too deep or has too many values."""
    level, values = [value], 0
    for _ in range(MAX_DEPTH + 1):
        values += len(level)
        if values > MAX_VALUES:
            raise Unreadable(f"holds more than {MAX_VALUES} values")
        level = [
            below
            for one in level
            if isinstance(one, (dict, list))
            for below in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return
    raise Unreadable(f"is nested more than {MAX_DEPTH} levels deep")


@dataclass(slots=True)
class Place:
    """Where a value stands. line: from 0. written: a scalar without quotes, as the text has it. below: by key or index."""

    line: int = 0
    written: str | None = None
    below: dict[str, Place] | None = None

    def find(self, steps: list[str]) -> Place:
        """The value that `steps` lead to, or the last one on the way there, without what is written there."""
        here = self
        for step in steps:
            found = (here.below or {}).get(step)
            if found is None:
                return Place(here.line)
            here = found
        return here


@lru_cache(maxsize=1)
def places(text: str) -> Place:
    """Return where the values of a YAML document stand: read once, however many problems it has."""
    root = Place()
    with suppress(yaml.YAMLError):  # JSON that is no YAML: as far as it goes
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
            place, state = root, waits[-1] if waits else root
            if state is None or isinstance(state, int):
                key = str(getattr(event, "value", "")) if state is None else str(state)
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
                waits.append(0 if isinstance(event, yaml.SequenceStartEvent) else None)
                continue
            if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and event.tag is None:
                place.written = event.value
        if waits:
            state = waits[-1]
            waits[-1] = state + 1 if isinstance(state, int) else None


def _line(event: yaml.Event) -> int:
    return event.start_mark.line if event.start_mark else 0
