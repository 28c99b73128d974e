"""Regular expressions of documents, compiled and matched as in Kubernetes: RE2, in linear time."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


def matches(pattern: str, text: str) -> bool:
    """Return whether a pattern in Go's syntax (RE2) is found anywhere in a text. Raises ValueError for an invalid pattern."""
    without_surrogates = text.encode("utf-8", "replace").decode()
    return compiled(pattern).search(without_surrogates) is not None


@lru_cache(1024)
def compiled(pattern: str) -> Any:
    """Return the compiled pattern."""
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        why = error.args[0]
        raise ValueError(why.decode() if isinstance(why, bytes) else str(why)) from None
