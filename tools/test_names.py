"""Find names and arguments that the product no longer has, in the tests that `make test` does not run. Called by check.py.

mypy knows them; what else it would say about tests does not count. Its options are those of the product, whose cache it shares.
"""

from __future__ import annotations

import subprocess
import sys

import setup

FOLDERS = ("cluster", "nodes", "gangs", "frameworks", "fine_tuning")
GONE = ("[attr-defined]", "[call-arg]")


def main() -> int:
    """Print the lines that count, and return whether there are any."""
    mypy = [str(setup.VENV / "bin" / "mypy"), "--no-error-summary", *(f"tests/{name}" for name in FOLDERS)]
    done = subprocess.run(mypy, cwd=setup.ROOT, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.endswith(GONE) and "explicitly export" not in line]
    if done.returncode not in (0, 1):
        lines.append(done.stdout + done.stderr)
    print("\n".join(lines))
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
