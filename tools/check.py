"""Check what does not need a run of the product: lint, style, types, layers, the docs site, and what is in the wheel.

Called by `make check`; stops at the first step that fails and prints its output.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import release
import setup
from step import BIN, PYTHON, step


def main() -> None:
    """All steps, in the order of what fails most often."""
    step("ruff", BIN / "ruff", "check", ".")
    step("format", BIN / "ruff", "format", "--check", ".")
    step("style", PYTHON, "tools/style.py", "components", "provider", "runtimes", show=True)
    step("layers", BIN / "lint-imports", "--no-cache")
    step("mypy", BIN / "mypy")
    step("mypy of the tools", BIN / "mypy", *sorted((setup.ROOT / "tools").glob("*.py")))
    step("mypy of the test cluster", BIN / "mypy", "-p", "tools.cluster")
    step("names in tests", PYTHON, "tools/test_names.py")
    step("pyright", BIN / "pyright")
    with tempfile.TemporaryDirectory() as temporary:
        step("docs", BIN / "mkdocs", "build", "--strict", "--site-dir", Path(temporary) / "site")
        release.build(Path(temporary) / "dist")


if __name__ == "__main__":
    main()
