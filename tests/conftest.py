"""What `make test` leaves out, and examples of Hypothesis that are the same in each run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No test depends on luck or on how loaded the machine is.
settings.register_profile(
    "fixed", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fixed")

ENGINE = Path(__file__).parent / "engine"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the engine's tests that are not `core` as `slow`: a new one is slow until somebody decides otherwise."""
    for item in items:
        if ENGINE in item.path.parents and not item.get_closest_marker("core"):
            item.add_marker(pytest.mark.slow)
