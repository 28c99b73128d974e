"""What `make test` leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

ENGINE = Path(__file__).parent / "engine"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the engine's tests that are not `core` as `slow`: a new one is slow until somebody decides otherwise."""
    for item in items:
        if ENGINE in item.path.parents and not item.get_closest_marker("core"):
            item.add_marker(pytest.mark.slow)
