"""Reads JSON in records and annotations that anybody may have edited."""

from __future__ import annotations

import json
from typing import Any


def step_number(value: Any) -> int | None:
    """Return a number of steps; None if it is not one."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value < 1 << 63 else None


def parse(text: Any) -> Any:
    """Return JSON from a text; None if it is not valid."""
    try:
        return json.loads(text or "null")
    except (TypeError, ValueError, RecursionError):
        return None
