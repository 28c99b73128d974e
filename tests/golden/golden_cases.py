"""The golden cases by name: see README.md."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

CASES = Path(__file__).parent / "cases"
NAMES = sorted(path.name for path in CASES.iterdir())


@functools.cache
def expected(name: str) -> dict[str, Any]:
    return dict(json.loads((CASES / name / "expected.json").read_text()))


def having(key: str) -> list[str]:
    return [name for name in NAMES if expected(name).get(key)]
