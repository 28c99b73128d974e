"""Runs the test targets of the Makefile, whatever fails, and prints a table of the results. Run by `make test-all`.

`test` and `test-smoke` are left out: they run parts of what others run.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

TARGETS = (
    "coverage", "test-engine", "test-pythons", "test-pulumi", "test-cluster", "test-nodes", "test-gangs", "test-frameworks",
    "test-fine-tuning", "test-site",
)  # fmt: skip
COUNTED = ("passed", "failed", "error", "skipped", "rerun")
MOST_RERUNS = 3
"""More tests of a target that pass only at their second try make it fail."""


@dataclass(frozen=True)
class Result:
    """What one target did."""

    target: str
    code: int
    counts: Counter[str]
    seconds: float

    @property
    def good(self) -> bool:
        return self.code == 0 and self.counts["rerun"] <= MOST_RERUNS


def count_outcomes(lines: Iterable[str]) -> Counter[str]:
    """Add up the outcomes in pytest's closing lines, for example `== 5 passed, 1 rerun in 3.20s ==`."""
    counts: Counter[str] = Counter()
    for line in lines:
        if re.search(r"\d+ \w+.* in [\d.]+s", line):
            for number, outcome in re.findall(r"(\d+) (passed|failed|error|skipped|rerun)", line):
                counts[outcome] += int(number)
    return counts


def run_target(target: str) -> Result:
    """Run `make TARGET`, with its output shown as it comes."""
    begun, lines = time.monotonic(), []
    argv = ["make", "--no-print-directory", target]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as make:
        assert make.stdout
        for line in make.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return Result(target, make.returncode, count_outcomes(lines), time.monotonic() - begun)


def format_table(results: Iterable[Result]) -> str:
    """Return a Markdown table with one row for each target."""
    rows = [f"| target | {' | '.join(COUNTED)} | minutes | result |", f"|---|{'---|' * (len(COUNTED) + 2)}"]
    for result in results:
        numbers = " | ".join(str(result.counts[outcome]) for outcome in COUNTED)
        verdict = "passed" if result.good else f"failed (exit code {result.code})"
        rows.append(f"| {result.target} | {numbers} | {result.seconds / 60:.1f} | {verdict} |")
    return "\n".join(rows)


def main() -> None:
    """Run all targets; exit code 1 if one of them failed."""
    results = [run_target(target) for target in TARGETS]
    print(f"\n{format_table(results)}")
    sys.exit(not all(result.good for result in results))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("test-all: interrupted")
