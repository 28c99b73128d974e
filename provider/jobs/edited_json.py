"""Reads JSON in records and annotations that anybody may have edited."""

from __future__ import annotations

import json
from typing import Any


def parse(text: Any) -> Any:
    """Return JSON from a text; None if it is not valid."""
    try:
        return json.loads(text or "null")
    except (TypeError, ValueError, RecursionError):
        return None
