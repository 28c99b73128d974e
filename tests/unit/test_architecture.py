"""docs/architecture.md and CONTRIBUTING.md name what exists, and a package knows only what they say it knows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASES = (ROOT, ROOT / "components", ROOT / "provider")
"""Folders that a path may be relative to."""
DOCUMENTS = ("docs/architecture.md", "CONTRIBUTING.md")

CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w./-]+\.py|[\w.-]+(?:/[\w.-]+)*/(?:[\w.-]+\.(?:json|lock|md|toml|txt|yaml))?")
"""A Python file; a file of another kind below a folder; or a folder, which ends with a slash."""
PLACEHOLDER = re.compile(r"\b(?:NAME|RELEASE)\b")
"""As in `runtimes/NAME/RELEASE.yaml`."""
NAMED = re.compile(r"`([\w./-]+\.py)`((?:,?\s+`[A-Za-z_]\w*`)+)")
"""A Python file, and the names that follow it: "`dynamic.py` `JobSet`, `Volume`"."""


def resolved(path: str) -> Path | None:
    """Return what a path of a document stands for; None if there is no such file or folder."""
    return next((base / path for base in BASES if (base / path).exists()), None)


def missing(text: str) -> Iterator[str]:
    """Yield each path and each name of a document that does not exist."""
    for path in dict.fromkeys(CODE.findall(text)):
        if FILE.fullmatch(path) and not PLACEHOLDER.search(path) and resolved(path) is None:
            yield path
    for path, names in NAMED.findall(text):
        file = resolved(path)
        source = file.read_text() if file is not None else ""
        for name in CODE.findall(names):
            if file is not None and not is_defined(name, source):
                yield f"{path} {name}"


def is_defined(name: str, source: str) -> bool:
    """Return whether a source file defines a function, a class or a variable of that name."""
    return bool(re.search(rf"^\s*(?:(?:async )?def |class ){name}\b|^\s*{name}(?:: .*)? = ", source, re.MULTILINE))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paths_and_names_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    assert len(NAMED.findall(text)) > 10
    assert [*missing(text)] == []


def test_what_does_not_exist_is_found() -> None:
    right = "| a job | `lifecycle/job_check.py` `check`, `_check_new`; `components/plan/` and `runtimes/NAME/RELEASE.yaml` |"
    assert [*missing(right)] == []
    wrong = "`lifecycle/job_check.py` `check`,\n`absent_function` `gone.py` `check` `components/none/` `tests/golden/NONE.md`"
    assert [*missing(wrong)] == [
        "gone.py",
        "components/none/",
        "tests/golden/NONE.md",
        "lifecycle/job_check.py absent_function",
    ]


TRAINING = re.compile("train(?:er|ing|job)", re.IGNORECASE)
KNOWN_OF_TRAINING = {
    "client/access.py": "set trainer:kubeconfig and trainer:context",
    "client/kubeconfig.py": "`pulumi config set trainer:kubeconfig PATH`",
    "client/transport.py": 'FIELD_MANAGER = "pulumi-trainer"|`pulumi-trainer rbac` prints the permissions',
}
"""File -> what it may name: hints and the field manager of a client, until all callers of `open_client` pass them."""
ERROR = "TrainerError"
"""The base class of all errors for users. Its name is public."""


def test_kubernetes_in_general_knows_nothing_about_training() -> None:
    folder = ROOT / "provider" / "kubernetes"
    files = sorted(folder.rglob("*.py"))
    assert len(files) > 30
    found: list[str] = []
    for file in files:
        path = file.relative_to(folder).as_posix()
        known = KNOWN_OF_TRAINING.get(path, "$^")
        for line in file.read_text().splitlines():
            text = re.sub(rf"pulumi_trainer\.|\b{ERROR}\b", "", line)
            if TRAINING.search(text) and not re.search(known, text):
                found.append(f"{path}: {line.strip()}")
    assert found == []
