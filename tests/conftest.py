"""What `make test` leaves out, the clock that it runs with, and examples of Hypothesis that are the same in each run."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No test depends on luck or on how loaded the machine is.
settings.register_profile(
    "fixed", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fixed")

ROOT = Path(__file__).parent.parent
ENGINE = Path(__file__).parent / "engine"
CLOCKS = {"started": 1.0, "old": 3650 * 86400.0}
"""Value of `--clock` -> what the monotonic clock shows when the tests begin, in seconds."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares `--clock`: a machine that has just started, or one that has run for ten years."""
    parser.addoption("--clock", choices=CLOCKS, help="age of the machine: what time.monotonic() begins with")


def pytest_configure(config: pytest.Config) -> None:
    """Sets the monotonic clock before any module of the product is imported."""
    chosen = config.getoption("--clock")
    if chosen:
        real, begin = time.monotonic, time.monotonic()
        time.monotonic = lambda: real() - begin + CLOCKS[chosen]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out what the second clock need not repeat: files whose tests import no module that reads the clock."""
    if config.getoption("--clock") != "old" or not collection_path.name.startswith("test_"):
        return None
    return not any("monotonic" in path.read_text() for path in _imported_modules(collection_path))


def _imported_modules(test: Path) -> list[Path]:
    """Return the modules of the product that a file of tests imports by name."""
    found = []
    for package, names in re.findall(r"^ *from pulumi_trainer\.?([\w.]*) import (.+)$", test.read_text(), re.MULTILINE):
        for name in [package, *(f"{package}.{each}" for each in re.findall(r"\w+", names))]:
            below = name.replace(".", "/") + ".py"
            found += [path for path in (ROOT / below, ROOT / "components" / below) if path.is_file()]
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the engine's tests that are not `core` as `slow`: a new one is slow until somebody decides otherwise."""
    for item in items:
        if ENGINE in item.path.parents and not item.get_closest_marker("core"):
            item.add_marker(pytest.mark.slow)
