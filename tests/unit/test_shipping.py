"""User code arrives byte for byte, and what would be lost on the way is named with its line."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer import shipping
from pulumi_trainer.provider.api import code

OUTSIDE = 7


def plain(epochs: int, path: str = "$HOME") -> None:
    import json

    text = f"`whoami` $5 off \\n {path} 'EOM'"
    print(json.dumps({"epochs": epochs, "text": text, "nested": [i + 1 for i in range(2)]}))


def uses_global() -> None:
    print(OUTSIDE)


def uses_import() -> Any:
    return functools.partial(print)


def annotated(path: Path) -> None:
    print(path)


@functools.lru_cache
def decorated() -> None:
    print("x")


async def coroutine() -> None:
    print("x")


def recursive(n: int) -> int:
    return n and recursive(n - 1)


def closure() -> Any:
    captured = 1

    def inner() -> None:
        print(captured)

    return inner


def started(folder: Path, data: dict[str, Any], *args: str) -> subprocess.CompletedProcess[str]:
    for name, text in data.items():
        (folder / name).write_text(text)
    argv = [sys.executable, str(folder / code.BOOTSTRAP_FILE), *args]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_a_function_arrives_byte_for_byte(tmp_path: Path) -> None:
    script, problems = shipping.from_function(plain)
    assert problems == []
    lines = Path(__file__).read_text().splitlines(keepends=True)
    start = lines.index('def plain(epochs: int, path: str = "$HOME") -> None:\n')
    assert script.startswith("".join(lines[start : start + 5]))
    done = started(tmp_path, shipping.files(script, {"epochs": 3}, None, None, ""))
    assert json.loads(done.stdout) == {"epochs": 3, "text": "`whoami` $5 off \\n $HOME 'EOM'", "nested": [1, 2]}


def test_the_same_line_numbers_as_in_the_source() -> None:
    script, _ = shipping.from_function(plain)
    assert script.splitlines()[3].strip().startswith("text = ")


@pytest.mark.parametrize(
    ("func", "name", "line"),
    [
        (uses_global, "OUTSIDE", "print(OUTSIDE)"),
        (uses_import, "functools", "return functools.partial"),
        (annotated, "Path", "def annotated"),
        (decorated, "@functools.lru_cache", "@functools.lru_cache"),
        (closure(), "captured", "print(captured)"),
        (coroutine, "coroutine", "async def coroutine"),
        (lambda: 1, "lambda", ""),
    ],
)
def test_what_would_be_lost_is_named_with_its_line(func: Any, name: str, line: str) -> None:
    _, problems = shipping.from_function(
        getattr(func, "__wrapped__", func) if name != "@functools.lru_cache" else func.__wrapped__
    )
    assert problems, "the loss was not found"
    text = "\n".join(str(p) for p in problems)
    assert name in text
    if line:
        source = Path(__file__).read_text().splitlines()
        number = next(i for i, s in enumerate(source, 1) if s.strip().startswith(line))
        assert f"test_shipping.py:{number}" in text


def test_recursion_and_builtins_travel() -> None:
    assert shipping.from_function(recursive)[1] == []


def test_not_a_function() -> None:
    assert "must be a plain function" in str(shipping.from_function(print)[1][0])  # type: ignore[arg-type]


def test_arguments_that_the_function_does_not_take() -> None:
    (problem,) = shipping.argument_problems(plain, {"epoch": 3})
    assert "plain(" in str(problem) and "epoch" in str(problem)


def test_a_script_arrives_byte_for_byte(tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_bytes("import sys\nprint('$HOME `id` ä', sys.argv[1:])\n# EOM\n".encode())
    script, problems = shipping.from_script(source)
    assert problems == [] and script.encode() == source.read_bytes()
    done = started(tmp_path, shipping.files(script, None, None, None, ""), "--lr", "$X")
    assert done.stdout == "$HOME `id` ä ['--lr', '$X']\n"


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "no such file"), (b"\xff\xfe", "not UTF-8"), (b"def x(:\n", "mine.py:1")],
)
def test_a_script_that_cannot_be_shipped(tmp_path: Path, content: bytes | None, says: str) -> None:
    file = tmp_path / "mine.py"
    if content is not None:
        file.write_bytes(content)
    assert says in str(shipping.from_script(file)[1][0])


def test_a_launcher_that_is_missing(tmp_path: Path) -> None:
    data = shipping.files("print(1)\n", None, None, None, "torch")
    for name, text in data.items():
        (tmp_path / name).write_text(text)
    argv = [sys.executable, str(tmp_path / code.BOOTSTRAP_FILE)]
    done = subprocess.run(argv, capture_output=True, text=True, env={"PATH": str(tmp_path)}, check=False)
    assert done.returncode == 1 and "torchrun is not on PATH" in done.stderr and "Traceback" not in done.stderr
