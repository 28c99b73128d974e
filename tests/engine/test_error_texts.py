"""What a preview says about mistakes of a program: each text, whole, in `tests/golden/errors/program.txt`; and about changes
that the provider refuses, all of them with their lines.

`RECORD=1` writes the texts anew, to be read in the difference.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from .conftest import Project

ERRORS = Path(__file__).parents[1] / "golden" / "errors"
JOBS = """
import pulumi_trainer as trainer

for number in range(3):
    trainer.TrainJob(f"sweep-{number}", runtime="plain", wait_for="created",
                     trainer=trainer.CustomTrainer(command=["sleep", "SECONDS"]))
trainer.TrainJob("other", runtime="plain", keep_runs=RUNS, trainer=trainer.CustomTrainer(command=["true"]))
"""


@pytest.mark.core
def test_each_mistake_of_a_program_has_place_reason_and_hint(project: Project) -> None:
    project.program((ERRORS / "program.py").read_text(), head="")
    printed = project.preview(ok=False).out
    (listed,) = re.findall(r"not created or changed:\n((?: {6}.*\n)+)", printed)
    found = "".join(line[6:] + "\n" for line in listed.splitlines()).replace(str(project.folder), "DIR")
    if os.environ.get("RECORD"):
        (ERRORS / "program.txt").write_text(found)
    assert found == (ERRORS / "program.txt").read_text()
    assert "Traceback" not in printed


def test_all_refused_changes_are_reported_with_their_lines_and_the_mistakes_of_the_program(project: Project) -> None:
    project.program(JOBS.replace("SECONDS", "600").replace("RUNS", "1"), head="")
    project.up()
    changed = JOBS.replace("SECONDS", "601").replace("RUNS", "0")
    project.program(changed, head="")
    for printed in (project.preview(ok=False).out, project.run("up", "--yes").out):
        assert "4 problems found" in printed, printed
        for number in range(3):
            assert f'TrainJob("sweep-{number}") (__main__.py:5): default/sweep-{number}' in printed, printed
        assert 'TrainJob("other") (__main__.py:7).keep_runs: must be an int from 1 to 100, not 0' in printed
        assert "has a problem" not in printed
    project.program(changed.replace("keep_runs=0", "keep_runs=1"), head="")
    refused = project.up(ok=False).out
    assert "sweep-" in refused, "without a preview the provider refuses"
