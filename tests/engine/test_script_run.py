"""`pulumi-trainer run`: a script without a project."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pulumi_trainer.provider.targets.local import LocalTarget

from .conftest import Project, eventually

SCRIPT = """
import os, sys
from shared import GREETING

place = os.environ["TRAINER_OUTPUT_DIR"] + "/model.txt"
if os.environ["JOB_COMPLETION_INDEX"] == "0":
    print(GREETING, sys.argv[1:], flush=True)
    open(place, "w").write("trained")
if "--fail" in sys.argv:
    raise ValueError("the data is bad")
"""
LONG = """
import os, signal, sys, time

def end(*_):
    open(os.environ["TRAINER_OUTPUT_DIR"] + "/saved.txt", "w").write("saved")
    sys.exit(143)

signal.signal(signal.SIGTERM, end)
print("started", flush=True)
time.sleep(600)
"""


class Folder:
    """A folder with scripts, and a home folder of its own."""

    def __init__(self, project: Project, path: Path) -> None:
        self.path, self.home = path, path / "home"
        self.home.mkdir(parents=True)
        self.environment = {**project.environment, "HOME": str(self.home), "PULUMI_CONFIG_PASSPHRASE": "another"}
        (path / "shared.py").write_text('GREETING = "hello from"\n')
        (path / "train.py").write_text(SCRIPT)
        (path / "long.py").write_text(LONG)

    def start(self, *words: str) -> subprocess.Popen[str]:
        heard = "env", "--default-signal=INT"  # nohup and & make children deaf to it
        argv = [*heard, "pulumi-trainer", "run", *words]
        return subprocess.Popen(
            argv, cwd=self.path, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip

    def run(self, *words: str) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=200)
        return process.returncode, out, err

    @property
    def target(self) -> LocalTarget:
        return LocalTarget(self.path / ".pulumi-trainer")

    def check_removed(self) -> None:
        """Check that neither a job nor a stack is left."""
        assert not self.target.jobs.list_all()
        assert not [*self.home.glob(".cache/pulumi-trainer/runs/*")]


@pytest.fixture
def folder(project: Project, tmp_path: Path) -> Iterator[Folder]:
    made = Folder(project, tmp_path / "scripts")
    yield made
    for status in made.target.jobs.list_all():
        made.target.jobs.delete(status.namespace, status.name)


@pytest.mark.core
def test_a_script_runs_on_two_nodes(folder: Folder, project: Project) -> None:
    code, out, err = folder.run("train.py", "--nodes", "2", "--runtime", "plain", "--", "--lr", "0.1 'a")
    assert code == 0, err
    assert re.fullmatch(r"""train-\w{5}-node-0-0 hello from \['--lr', "0\.1 'a"\]\n""", out), out
    assert re.search(r"^train-\w{5} has succeeded after \d+s$", err, re.M), err
    (place,) = re.findall(r"^output: (\S+) \(1 file, 7 B\)$", err, re.M)
    assert (folder.path / place / "model.txt").read_text() == "trained"
    folder.check_removed()
    lines = err.splitlines()
    kept = lines[lines.index("import pulumi_trainer as trainer") :][:3]
    assert kept[1:] == [
        'code = trainer.CustomTrainer(source=".", script="train.py", args=["--lr", "0.1 \'a"], num_nodes=2)',
        'trainer.TrainJob("train", runtime="plain", trainer=code, output=True)',
    ]
    for name in ("train.py", "shared.py"):
        (project.folder / name).write_text((folder.path / name).read_text())
    project.program("\n".join(kept), head="")
    project.preview()


def test_a_failed_script_is_the_exit_code_and_says_why(folder: Folder) -> None:
    code, out, err = folder.run("train.py", "--nodes", "2", "--runtime", "plain", "--", "--fail")
    assert code == 1 and "hello from ['--fail']" in out, out + err
    end = err[err.index("\nerror: train-") :]
    assert "(SameFailureTwice)" in end and "ValueError: the data is bad" in end, end
    assert "log: " not in end, "the file is gone"
    assert "(1 file, 7 B)" in err, "what it has written stays"
    folder.check_removed()


def test_a_refused_plan_says_so_and_leaves_nothing(folder: Folder) -> None:
    code, out, err = folder.run("train.py", "--nodes", "2", "--gpus", "4096")
    assert code == 1 and not out and "Traceback" not in err, err
    assert "error: pulumi up: " in err and "(__main__.py:3)" in err, err
    assert 'resources_per_node={"gpu": 4096}' in err, "the program that the message is about"
    folder.check_removed()
    assert not [*folder.path.glob(".pulumi-trainer/volumes/*/*")]


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "term"])
def test_an_interruption_ends_the_job_and_keeps_its_output(folder: Folder, number: int, expected: int) -> None:
    process = folder.start("long.py", "--runtime", "plain")
    assert process.stdout is not None
    assert process.stdout.readline().endswith(" started\n")
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=100)
    assert process.returncode == expected, err
    assert re.search(r"^long-\w{5} was ended$", err, re.M), err
    (place,) = re.findall(r"^output: (\S+) \(1 file, 5 B\)$", err, re.M)
    assert (folder.path / place / "saved.txt").read_text() == "saved"
    folder.check_removed()


def test_an_interruption_while_the_job_is_created_leaves_nothing(folder: Folder) -> None:
    process = folder.start("long.py", "--runtime", "plain")
    eventually(lambda: [*folder.home.glob(".cache/pulumi-trainer/runs/*/output")])
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    folder.check_removed()


def test_the_output_is_copied(folder: Folder) -> None:
    code, _, err = folder.run("train.py", "--runtime", "plain", "--copy", "result")
    assert code == 0 and "copied to result" in err, err
    assert (folder.path / "result" / "model.txt").read_text() == "trained"
    assert not [*folder.path.glob(".pulumi-trainer/volumes/*/*")]
    code, _, err = folder.run("train.py", "--runtime", "plain", "--copy", "result")
    assert code == 1 and "result is not empty" in err, err
    folder.check_removed()
