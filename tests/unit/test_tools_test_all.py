"""The table of `make test-all`."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import test_all


def test_outcomes_of_all_runs_of_a_target_are_added_up() -> None:
    output = [
        "tests/unit/test_a.py .F.\n",
        "FAILED tests/unit/test_a.py::test_b - 3 failed in the text of a test\n",
        "=================== 1 failed, 5 passed, 2 skipped in 3.20s ===================\n",
        "1200 passed, 2 rerun in 190.01s (0:03:10)\n",
        "== 3 errors in 0.5s ==\n",
    ]

    assert test_all.count_outcomes(output) == Counter(passed=1205, failed=1, skipped=2, rerun=2, error=3)


@pytest.mark.parametrize(
    ("code", "reruns", "good"), [(0, 0, True), (0, 3, True), (0, 4, False), (2, 0, False)]
)  # fmt: skip
def test_a_target_fails_by_its_exit_code_or_by_too_many_reruns(code: int, reruns: int, good: bool) -> None:
    assert test_all.Result("test-cluster", code, Counter(rerun=reruns), 60.0).good is good


def test_all_targets_run_whatever_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a Makefile whose first target fails."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(test_all, "TARGETS", ("bad", "good"))
    (tmp_path / "Makefile").write_text(
        "bad:\n\t@echo '2 failed, 1 passed in 1.00s'; exit 1\ngood:\n\t@echo '4 passed in 1.00s'\n"
    )

    with pytest.raises(SystemExit) as end:
        test_all.main()

    assert end.value.code == 1
    table = capsys.readouterr().out.split("| target")[1]
    assert "| bad | 1 | 2 | 0 | 0 | 0 | 0.0 | failed (exit code 2) |" in table
    assert "| good | 4 | 0 | 0 | 0 | 0 | 0.0 | passed |" in table


def test_the_targets_are_those_of_the_makefile() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    targets = re.findall(r"^(test-[a-z-]+|coverage):", makefile, re.M)

    assert sorted(test_all.TARGETS) == sorted({*targets} - {"test-smoke", "test-all"})
