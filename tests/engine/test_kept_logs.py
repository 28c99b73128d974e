"""`logs="keep"`: all lines of each container are in the output folder of their run, also of attempts before."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import Project
from .test_cli import cli

PROGRAM = """
def train(text, fail=False):
    import os, subprocess, sys

    node = os.environ["JOB_COMPLETION_INDEX"]
    print(text, "of node", node)
    subprocess.run(["sh", "-c", "echo from a child; echo to stderr >&2"])
    sys.stdout.write("no newline at the end")
    if fail:
        sys.stdout.flush()
        os.kill(os.getpid(), 9)

trainer.TrainJob("digits", runtime=plain, name="digits", wait_for="complete", output=trainer.OutputVolume(retain=True),
    logs=@LOGS, may_fail=True,
    trainer=trainer.CustomTrainer(func=train, func_args=@ARGS, num_nodes=2))
"""


def program(logs: str = '"keep"', **arguments: object) -> str:
    return PROGRAM.replace("@LOGS", logs).replace("@ARGS", repr(arguments))


def kept(project: Project) -> dict[str, Path]:
    """Return the folders of kept logs by the ids of their runs."""
    return {place.name: place for place in project.root.glob("volumes/default/digits-output/data/*/logs/*")}


def check_lines(file: Path, node: int, text: str = "hello") -> None:
    first, *lines = file.read_text().splitlines()
    assert re.fullmatch(r"pulumi-trainer: the container started at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", first)
    outputs = [
        "from a child",
        f"{text} of node {node}",
        "no newline at the end",
    ]  # Python and its child share it, in any order
    assert "to stderr" in lines
    for each in outputs:
        assert each in "\n".join(lines), lines


@pytest.mark.core
def test_all_lines_are_in_the_output_of_their_run(project: Project) -> None:
    project.program(program(text="hello"))
    assert "hello of node" not in project.up().out, "they are kept, and not shown"
    ((run, folder),) = kept(project).items()
    assert {file.name for file in folder.iterdir()} == {"digits-node-0-0.log", "digits-node-0-1.log"}
    for node in (0, 1):
        check_lines(folder / f"digits-node-0-{node}.log", node)
    assert (folder / "digits-node-0-0.log").stat().st_mode & 0o777 == 0o600
    logs = cli(project, "logs", "digits").stdout
    assert logs.count("of node") == 2 and logs.count("to stderr") == 2, "the log of the job has them as well"
    assert re.search(r"^  logs +keep$", cli(project, "runs", "digits").stdout, re.M)

    project.program(program(text="again"))
    project.up()
    found = kept(project)
    assert len(found) == 2 and found[run] == folder
    (newer,) = found.keys() - {run}
    check_lines(found[newer] / "digits-node-0-1.log", 1, "again")
    earlier = project.root / "earlier-logs"
    for file in earlier.rglob("*.log"):
        file.unlink()
    lost = cli(project, "logs", "digits", "--run", run)
    assert lost.returncode == 1 and f"Hint: all its lines are in {folder}\n" in lost.stderr, lost


def test_the_lines_of_a_killed_program_are_kept(project: Project) -> None:
    project.program(program(text="hello", fail=True))
    project.up()
    assert project.job("digits").phase == "Failed"
    ((_, folder),) = kept(project).items()
    text = (folder / "digits-node-0-0.log").read_text()
    assert text.endswith("no newline at the end"), text
    assert "exit code 137" in project.job("digits").message or "SIGKILL" in project.job("digits").message


def test_adding_it_starts_no_run(project: Project) -> None:
    project.program(program("False", text="hello"))
    project.up()
    project.program(program(text="hello"))
    project.preview("--expect-no-changes")
    assert not kept(project)


@pytest.mark.parametrize(
    ("trainer", "output", "problem"),
    [
        ("CustomTrainer(func=lambda: None)", "False", "logs: 'keep' requires an output volume, which has the logs"),
        ('Trainer(command=["true"])', "True", "logs: 'keep' requires func, script, module, source or a fine-tuning trainer"),
        ('CustomTrainer(command=["true"])', "True", "logs: 'keep' requires func, script, module, source"),
    ],
    ids=["no-output", "an-image", "a-command"],
)  # fmt: skip
def test_what_keeps_no_logs(project: Project, trainer: str, output: str, problem: str) -> None:
    text = f"""
        trainer.TrainJob("a", runtime=plain, logs="keep", output={output}, trainer=trainer.{trainer})
        trainer.TrainJob("b", runtime=plain, logs="kept", trainer=trainer.Trainer(command=["true"]))
    """
    project.program(text)
    refused = project.preview(ok=False).out
    assert problem in refused, refused
    assert "logs: must be True or False or 'keep', not 'kept'. Hint: did you mean keep?" in refused, refused
