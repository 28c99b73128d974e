"""Reads YAML and JSON files of API documents as Kubernetes' tools read them, with bounded memory and time.

Reading takes memory for one document and time in proportion to the file's length. Problems name file, document, line and path.
The meaning of fields is not known here.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import IO, Any

import yaml
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.terminal import control_character
from pulumi_trainer.provider.kubernetes.values.yaml_values import (
    BLANK,
    MAX_LENGTH,
    Unreadable,
    find_places,
    from_json,
    from_yaml,
)

MAX_FILE = 64 * 2**20
"""Bytes of one file, or of standard input."""

_OPEN = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""Where what is open already has a path, such as the `<(...)` of a shell; another FIFO or device may never end."""
_SPLIT = "split it into several files"


@dataclass(frozen=True, slots=True)
class Document:
    """One document and its place in a file. item: Index in the items of a List; None if it is not in a List."""

    content: dict[str, Any]
    file: str
    number: int
    line: int
    text: str
    item: int | None = None

    def __str__(self) -> str:
        text = f"{self.file}, document {self.number}"
        if self.item is not None:
            text += f", items[{self.item}]"
        return text

    def line_of(self, path: str) -> int:
        """Return the line of a field, such as `spec.containers[0].env[1].name`, or of its innermost existing parent."""
        return self._find_line(path)[0]

    def plain_scalar(self, path: str) -> str | None:
        """Return a scalar as written in the file, if it has no quotes; None for other values."""
        return self._find_line(path)[1]

    def _find_line(self, path: str) -> tuple[int, str | None]:
        steps = [*split_path(path)]
        if self.item is not None:
            steps = ["items", str(self.item), *steps]
        line, plain = find_places(self.text).find(steps)
        return self.line + line, plain


def control_character_problems(document: Any, where: str = "") -> Iterator[Problem]:
    """Yield a problem for each text of a foreign document with control characters.

    `pulumi preview --diff` prints texts of several lines unchanged, so a text could hide others.
    """
    if isinstance(document, str):
        found = control_character(document)
        if found:
            why = f"contains the control character {found}, which could hide a part of the plan on a terminal"
            hint = "leave it out, or write it as an escape that the program in the container understands"
            yield Problem(where, why, hint)
    elif isinstance(document, dict):
        for key, value in document.items():
            yield from control_character_problems(str(key), where)
            yield from control_character_problems(value, f"{where}.{key}".lstrip("."))
    elif isinstance(document, list):
        for at, value in enumerate(document):
            yield from control_character_problems(value, f"{where}[{at}]")


def split_path(path: str) -> tuple[str, ...]:
    """Return the keys and indices in a path such as `spec.containers[0].env[1].name`."""
    return tuple(key or index for key, index in _STEP.findall(path))


_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


def read_all(source: Path | str) -> list[dict[str, Any]]:
    """Return all documents of a file (a Path) or of a text."""
    if isinstance(source, Path):
        found = documents(source)
    else:
        found = parse(source)
    return [document.content for document in found]


def documents(path: Path | str, stdin: IO[bytes] | None = None) -> Iterator[Document]:
    """Yield the documents of a file ("-": standard input), those in a List one by one, without empty ones."""
    if str(path) == "-" and stdin is not None:
        yield from _stream(stdin, "stdin")
        return
    try:
        mode = Path(path).stat().st_mode
        if not (S_ISREG(mode) or S_ISDIR(mode) or str(path).startswith(_OPEN)):
            raise Invalid(Problem(str(path), "is not a regular file", "- reads stdin"))
        with Path(path).open("rb") as file:
            size = 0
            if file.seekable():
                size = file.seek(0, io.SEEK_END)
            if size > MAX_FILE:
                raise Invalid(Problem(str(path), f"is {_size(size)} long, more than {_size(MAX_FILE)}", _SPLIT))
            if size:
                file.seek(0)
            yield from _stream(file, str(path))
    except OSError as error:
        raise Invalid(Problem(str(path), f"cannot be read: {error.strerror or error}")) from None


def parse(text: str | bytes, name: str = "text") -> Iterator[Document]:
    """Yield the documents of a text, which is YAML with any number of documents, or JSON."""
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    yield from _stream(io.BytesIO(text), name)


def _stream(file: IO[bytes], name: str) -> Iterator[Document]:
    number = 1
    for line, data in _chunks(file, name):
        where = f"{name}, document {number}"
        text = _decoded(data, where, line)
        for value in _values(text, name, where, line):
            where = f"{name}, document {number}"
            if value is not None:
                yield from _expanded(Document(_checked(value, where, line), name, number, line, text))
            number += 1


def _chunks(file: IO[bytes], name: str) -> Iterator[tuple[int, bytes]]:
    """Yield line and bytes of each part between `---`; a part has several documents only if `...` ends the first."""
    begun, line, size, total, content = 1, 0, 0, 0, False
    lines: list[bytes] = []
    while read_ := file.readline(MAX_LENGTH + 1):
        line += 1
        total += len(read_)
        if total > MAX_FILE:
            raise Invalid(Problem(name, f"is longer than {_size(MAX_FILE)}", _SPLIT))
        if content and read_[:3] == b"---" and read_[3:4] in (b"", b" ", b"\t", b"\r", b"\n"):
            yield begun, b"".join(lines)
            begun, lines, size, content = line, [], 0, False
        lines.append(read_)
        size += len(read_)
        if size > MAX_LENGTH:
            why = f"is longer than {_size(MAX_LENGTH)}, the most that an API server accepts"
            raise Invalid(Problem(f"{name}, the document from line {begun} on", why))
        content = content or not (read_[:1] in b"#%\r\n" or read_.isspace())
    if content:
        yield begun, b"".join(lines)


def _decoded(data: bytes, where: str, line: int) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = line + data.count(b"\n", 0, error.start)
        why = f"the byte 0x{data[error.start]:02x} is not UTF-8"
        raise Invalid(Problem(f"{where}, line {at}", why, "save the file as UTF-8")) from None
    if "\0" in text:
        at = line + text.count("\n", 0, text.index("\0"))
        raise Invalid(Problem(f"{where}, line {at}", "holds a NUL byte: it is not text"))
    return text


def _values(text: str, name: str, where: str, line: int) -> Iterator[Any]:
    """Yield the values of a chunk. A text that looks like an object but is not JSON is read as YAML, in which {} is valid."""
    if text.lstrip(BLANK).startswith("{"):
        try:
            found = list(from_json(text))
        except json.JSONDecodeError as error:
            if name.endswith(".json"):
                raise Invalid(
                    Problem(f"{where}, line {line + error.lineno - 1}", f"not valid JSON: {error.msg}")
                ) from None
        except Unreadable as error:
            raise Invalid(Problem(f"{where}{error.path}", error.why, error.hint)) from None
        else:
            yield from found
            return
    try:
        yield from from_yaml(text)
    except Unreadable as error:
        raise Invalid(Problem(f"{where}, line {line + error.line}{error.path}", error.why, error.hint)) from None
    except yaml.reader.ReaderError as error:
        character: Any = error.character  # a number where libyaml reads
        if isinstance(character, str):
            character = ord(character)
        raise Invalid(Problem(where, f"not valid YAML: the character U+{character:04X} is not allowed")) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark:
            where = f"{where}, line {line + mark.line}"
        reason = "; ".join(part for part in (error.context, error.problem) if part)
        hint = ""
        if _tab_at(text, mark):
            hint = "indent with blanks, not tabs"
        elif "undefined alias" in reason:
            hint = "quote a text that begins with *"
        raise Invalid(Problem(where, f"not valid YAML: {reason}", hint)) from None
    except yaml.YAMLError as error:
        raise Invalid(Problem(where, f"not valid YAML: {error}")) from None


def _tab_at(text: str, mark: Any) -> bool:
    return mark is not None and "\t" in "".join(text.splitlines()[mark.line : mark.line + 1])[: mark.column + 1]


def _checked(value: Any, where: str, line: int) -> dict[str, Any]:
    if not isinstance(value, dict):
        why = f"holds {_KINDS.get(type(value), 'a ' + type(value).__name__)}, not an object of the API"
        raise Invalid(Problem(f"{where}, line {line}", why, "begin it with apiVersion and kind"))
    missing = [key for key in ("apiVersion", "kind") if not value.get(key)]
    if missing:
        raise Invalid(Problem(f"{where}, line {line}", f"has no {' and no '.join(missing)}"))
    for key in ("apiVersion", "kind"):
        if not isinstance(value[key], str):
            raise Invalid(Problem(f"{where}: {key}", f"must be a string, not {value[key]!r}", "write it in quotes"))
    return value


_KINDS = {list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}


def _expanded(document: Document) -> Iterator[Document]:
    """Yield the items of a List; any other document unchanged."""
    content = document.content
    if not content["kind"].endswith("List") or "items" not in content:
        yield document
        return
    if not isinstance(content["items"], list):
        raise Invalid(Problem(f"{document}: items", "must be a list"))
    for index, item in enumerate(content["items"]):
        one = replace(document, item=index)
        yield from _expanded(replace(one, content=_checked(item, str(one), one.line_of(""))))


def _size(count: int) -> str:
    return f"{count / 2**20:.0f} MiB"
