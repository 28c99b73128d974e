"""What a job prints, and what a program gives, in Pulumi's own output."""

from __future__ import annotations

import pytest

from .conftest import Project, eventually

PROGRAM = """
HOSTILE = "x\\x1b]0;owned\\x07\\x1b[2J\\x9b1A\\u202e"

def work():
    hostile = "x" + chr(27) + "]0;owned" + chr(7) + chr(27) + "[2J" + chr(0x9b) + "1A" + chr(0x202e)
    print(hostile + chr(13) + "over", flush=True)
    raise SystemExit("refused: " + hostile + "\\nTrainJob(good) Succeeded")

trainer.TrainJob("bad", runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(func=work))
"""
WRONG = """
trainer.TrainJob("wrong", runtime="x\\x1b]0;owned\\x07\\x1b[2J\\u202e", wait_for="\\x9b1A", trainer=trainer.Trainer(image="x"))
"""


def acted_on(text: str) -> list[str]:
    return [c for c in text if not c.isprintable() and c not in "\n\t"]


@pytest.mark.core
def test_what_a_failed_job_has_printed(project: Project) -> None:
    project.program(PROGRAM)
    result = project.up("--color", "never", ok=False)
    assert "refused: x" in result.out and not acted_on(result.out), result
    assert "TrainJob(good) Succeeded" not in [line.strip() for line in result.out.splitlines() if line[:1] == "T"]
    again = project.up("--color", "never", ok=False)
    assert "refused: x" in again.out and not acted_on(again.out), again


def test_what_a_problem_quotes(project: Project) -> None:
    project.program(WRONG)
    result = project.preview("--color", "never", ok=False)
    assert "wrong" in result.out and not acted_on(result.out), result


def test_what_a_program_gets_of_a_failed_job(project: Project) -> None:
    program = PROGRAM.replace('wait_for="complete"', 'wait_for="created"').replace(
        "trainer.TrainJob(", "bad = trainer.TrainJob("
    )
    project.program(f"{program}\npulumi.export('message', bad.message)\n")
    project.up()
    eventually(lambda: project.job("bad").phase == "Failed")
    project.up()
    message = project.outputs()["message"]
    assert "refused: x" in message and not acted_on(message), message
