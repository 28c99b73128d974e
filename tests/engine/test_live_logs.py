"""`logs=True` shows the log of rank 0 while `up` waits for the job."""

from __future__ import annotations

import pytest

from .conftest import Project

PROGRAM = """
def train(lines):
    import os, time
    for i in range(lines):
        print("rank", os.environ.get("JOB_COMPLETION_INDEX"), "line", i, "\\x1b[2J", flush=True)
    time.sleep(1)

trainer.TrainJob("digits", runtime=plain, name="digits", wait_for="complete", {more}
    trainer=trainer.CustomTrainer(func=train, func_args={{"lines": {lines}}}, num_nodes=2))
"""


@pytest.mark.core
def test_up_shows_the_lines_of_rank_0(project: Project) -> None:
    project.program(PROGRAM.format(more="logs=True,", lines=5))
    shown = project.up().out
    assert all(shown.count(f"rank 0 line {i}") >= 1 for i in range(5)), shown
    assert "rank 1" not in shown and "\x1b[2J" not in shown
    assert "rank 0" not in project.up().out, "the job has ended"


def test_a_flood_is_cut(project: Project) -> None:
    project.program(PROGRAM.format(more="logs=True,", lines=3000))
    shown = project.up().out
    assert "more lines: pulumi-trainer logs digits" in shown and "rank 0 line 2999" in shown


def test_logs_are_not_shown_by_default(project: Project) -> None:
    project.program(PROGRAM.format(more="", lines=2))
    assert "rank 0" not in project.up().out


def test_a_traceback_has_the_line_of_the_program(project: Project) -> None:
    program = """
def train():
    raise ValueError("here")

trainer.TrainJob("digits", runtime=plain, name="digits", wait_for="complete", trainer=trainer.CustomTrainer(func=train))
"""
    project.program(program)
    lines = (project.folder / "__main__.py").read_text().splitlines()
    line = 1 + lines.index('    raise ValueError("here")')
    assert f'File "__main__.py", line {line}, in train' in project.up(ok=False).out


def test_a_traceback_names_the_file_of_the_function(project: Project) -> None:
    """A function that moves to another line or file starts no other run."""
    program = """
from {module} import train

trainer.TrainJob("digits", runtime=plain, name="digits", wait_for="complete", trainer=trainer.CustomTrainer(func=train,
    func_args={{"bad": {bad}}}))
"""
    text = 'def train(bad: bool):\n    if bad:\n        raise ValueError("here")\n'
    (project.folder / "jobs").mkdir()
    (project.folder / "jobs" / "digits.py").write_text("\n\n" + text)
    (project.folder / "other.py").write_text(text)
    project.program(program.format(module="jobs.digits", bad=False))
    project.up()
    project.program(program.format(module="other", bad=False))
    project.preview("--expect-no-changes")
    project.program(program.format(module="jobs.digits", bad=True))
    shown = project.up(ok=False).out
    assert 'File "jobs/digits.py", line 5, in train' in shown and str(project.folder) not in shown.split("log: ")[0]


def test_how_much_of_a_log_is_kept(project: Project) -> None:
    target, lines = "target=trainer.Local(log_bytes={}),", 80_000
    project.program(PROGRAM.format(more=target.format(1 << 20), lines=lines))
    project.up()
    sizes = [file.stat().st_size for file in project.root.glob("jobs/*/digits/logs/*-0-0/node.log*")]
    assert len(sizes) == 3 and 1 << 19 < sum(sizes) <= 1 << 20
    project.program(PROGRAM.format(more=target.format(1 << 21), lines=lines))
    project.preview("--expect-no-changes")
    project.program(PROGRAM.format(more=target.format(1000), lines=lines))
    why = "target.log_bytes: must be a whole number of at least 1,048,576 (1 MiB), not 1000"
    assert why in project.preview(ok=False).out
