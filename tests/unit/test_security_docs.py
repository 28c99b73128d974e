"""docs/security.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
TEXT = (TESTS.parent / "docs" / "security.md").read_text()


def test_each_protection_has_its_test() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("|") and line.count("|") >= 7 and "---" not in line]
    assert len(rows) > 15
    for row in rows[1:]:
        cell = row.strip("| ").rpartition("|")[2]
        names = re.findall(r"`([^`]+)`", cell)
        assert names, f"no test: {row}"
        file = ""
        for name in names:
            path, *parts = name.split("::")
            file = path if path.endswith(".py") else file
            text = (TESTS / file).read_text()
            for part in parts if path.endswith(".py") or not path else [path]:
                assert re.search(rf"(def|class) {part}\b", text), f"{file} has no {part}"
