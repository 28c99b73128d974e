"""`pulumi-trainer run`: the program that it makes, the arguments that it refuses, and how it calls the Pulumi CLI."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.cli import script_run, temporary_stack
from pulumi_trainer.provider.cli.script_run import Script, run
from pulumi_trainer.provider.cli.temporary_stack import TemporaryStack
from pulumi_trainer.provider.kubernetes.errors import Invalid, Refused, TargetFault
from pulumi_trainer.provider.service.reach import ReachedJob, Where


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script, which is the current one; the home folder is beside it."""
    made = tmp_path / "scripts"
    made.mkdir()
    (made / "train.py").write_text("print(1)\n")
    monkeypatch.chdir(made)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return made


def calls_of(program: str) -> dict[str, dict[str, Any]]:
    """Return the keyword arguments of the calls of a program, as far as they are literals."""
    found = {}
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            literals = [each for each in node.keywords if not isinstance(each.value, (ast.Name, ast.Call))]
            found[node.func.attr] = {str(each.arg): ast.literal_eval(each.value) for each in literals}
    return found


def test_the_program_has_what_was_given(folder: Path) -> None:
    words = ("--lr", "0.1", "a \"quoted\" 'word'", "back\\slash", "naïve\n", "\udcff")
    script = Script(folder / "train.py", None, words, nodes=2, processes=4, gpus=8, runtime="torch-team")
    program = script.program(".", "True", 'trainer.Local(root="/x")')
    assert program.count("\n") == 3
    calls = calls_of(program)
    assert calls["CustomTrainer"] == {
        "source": ".", "script": "train.py", "args": [*words], "num_nodes": 2, "num_proc_per_node": 4,
        "resources_per_node": {"gpu": 8},
    }  # fmt: skip
    assert calls["TrainJob"] == {"runtime": "torch-team", "output": True} and calls["Local"] == {"root": "/x"}


@pytest.mark.usefixtures("folder")
def test_the_program_has_no_more_than_what_was_given() -> None:
    assert Script(Path("train.py")).program(".", "") == (
        "import pulumi_trainer as trainer\n"
        'code = trainer.CustomTrainer(source=".", script="train.py", num_nodes=1)\n'
        'trainer.TrainJob("train", runtime="torch-distributed", trainer=code)\n'
    )


def test_a_script_below_its_source(folder: Path) -> None:
    (folder / "sub dir").mkdir()
    (folder / "sub dir" / "train.py").write_text("")
    script = Script(Path("sub dir/train.py"), Path())
    script.check()
    assert calls_of(script.program("."))["CustomTrainer"]["script"] == "sub dir/train.py"
    with pytest.raises(Invalid, match=r"--source: train\.py is not in sub dir\. Hint: give a folder that contains it"):
        Script(Path("train.py"), Path("sub dir")).check()
    with pytest.raises(Invalid, match="--source: no such folder: none"):
        Script(Path("train.py"), Path("none")).check()


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        ({}, None),
        ({"requirements.txt": "", "uv.lock": "", "pyproject.toml": ""}, "requirements.txt"),
        ({"uv.lock": "", "pyproject.toml": '[project]\ndependencies = ["torch"]\n'}, "uv.lock"),
        ({"pyproject.toml": '[project]\ndependencies = ["torch"]\n'}, "pyproject.toml"),
        ({"pyproject.toml": "[tool.ruff]\n"}, None),
        ({"pyproject.toml": "project = 1\n"}, None),
        ({"pyproject.toml": "[project\n"}, None),
        ({"pyproject.toml": "\udcff"}, None),
    ],
    ids=["none", "all", "lock", "project", "settings", "odd", "invalid", "not-text"],
)
def test_the_requirements_of_the_folder_are_installed(folder: Path, files: dict[str, str], chosen: str | None) -> None:
    for name, text in files.items():
        (folder / name).write_bytes(text.encode(errors="surrogateescape"))
    program = Script(folder / "train.py").program(".")
    assert calls_of(program)["CustomTrainer"].get("requirements") == chosen


@pytest.mark.parametrize(
    ("name", "resource"), [("train.py", "train"), ("1_a b.py", "1-a-b"), ("é.py", "script"), (f"{'x' * 60}.py", "x" * 27)],
    ids=["plain", "odd", "none-left", "long"],
)  # fmt: skip
def test_the_job_is_called_like_the_script(name: str, resource: str) -> None:
    assert Script(Path(name)).resource == resource


def test_a_script_that_is_not_there(folder: Path) -> None:
    with pytest.raises(Invalid, match=r"^trian\.py: no such file\. Hint: did you mean train\.py\?$"):
        run(Script(Path("trian.py")), Where())
    with pytest.raises(Invalid, match=r"^nowhere/train\.py: no such file$"):
        run(Script(Path("nowhere/train.py")), Where())
    with pytest.raises(Invalid, match="is a folder"):
        run(Script(folder), Where())


@pytest.mark.usefixtures("folder")
def test_without_the_pulumi_cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TargetFault, match="the Pulumi CLI is not on PATH"):
        run(Script(Path("train.py")), Where())
    assert not (tmp_path / "home").exists()


@pytest.mark.usefixtures("folder")
def test_a_copy_is_refused_before_the_training(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(script_run, "pulumi_command", lambda *_: [])
    with pytest.raises(Invalid, match="is not empty"):
        run(Script(Path("train.py")), Where(), str(folder))


def test_what_a_job_keeps() -> None:
    there, here = ReachedJob("team", "train"), ReachedJob("default", "train", local=Any)  # type: ignore[arg-type]
    assert [script_run._output_of(job, "") for job in (here, there)] == ["trainer.OutputVolume(retain=True)", ""]
    assert [script_run._output_of(job, "x") for job in (here, there)] == ["True", "True"]


def test_arguments_of_a_script_follow_two_dashes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Script] = []
    monkeypatch.setattr(script_run, "run", lambda script, *_: seen.append(script) or 7)
    for words, code in (
        (["train.py", "--nodes", "2", "--", "--nodes", "3", "-h"], 7),
        (["train.py", "--lr", "1"], 2),
        (["train.py", "--nodes", "0"], 2),
    ):
        monkeypatch.setattr(sys, "argv", ["pulumi-trainer", "run", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == code
    assert [(each.nodes, each.arguments) for each in seen] == [(2, ("--nodes", "3", "-h"))]
    assert "arguments of the script follow --, as in `run train.py -- --lr 0.1`" in capsys.readouterr().err


class Cli:
    """A Pulumi CLI that notes its variables and prints events."""

    def __init__(self, folder: Path, events: list[dict[str, Any]], code: int = 0, error: str = "") -> None:
        lines = "\n".join(map(json.dumps, events))
        self.seen = folder / "seen.json"
        program = folder / "pulumi"
        program.write_text(
            f"#!{sys.executable}\n"
            "import json, os, sys\n"
            f"open({str(self.seen)!r}, 'w').write(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))\n"
            f"print({lines!r})\nprint({error!r}, file=sys.stderr)\nsys.exit({code})\n"
        )
        program.chmod(0o755)


def message(severity: str, text: str) -> dict[str, Any]:
    return {"sequence": 1, "diagnosticEvent": {"severity": severity, "message": text, "color": "never"}}


def stack_of(folder: Path) -> TemporaryStack:
    made = TemporaryStack("run-1")
    made.folder.mkdir(parents=True)
    return made


def test_the_cli_has_a_state_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Cli(folder, [])
    for name in ("BACKEND_URL", "CONFIG_PASSPHRASE", "CONFIG_PASSPHRASE_FILE", "ACCESS_TOKEN", "STACK"):
        monkeypatch.setenv(f"PULUMI_{name}", "the user's")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("KUBECONFIG", f"a/b{os.pathsep}/c")
    monkeypatch.setenv("PULUMI_HOME", "/plugins")
    stack = stack_of(folder)
    stack.up()
    argv, environment, where = json.loads(program.seen.read_text())
    assert argv == ["up", "--yes", "--skip-preview", "--json", "--non-interactive", "--stack", "run-1"]
    assert where == str(stack.folder)
    pulumi = {name: value for name, value in environment.items() if name.startswith("PULUMI_")}
    assert pulumi == {
        "PULUMI_BACKEND_URL": f"file://{stack.folder}/state", "PULUMI_CONFIG_PASSPHRASE": "",
        "PULUMI_HOME": "/plugins", "PULUMI_SKIP_UPDATE_CHECK": "1",
    }  # fmt: skip
    assert environment["KUBECONFIG"] == f"{folder}/a/b{os.pathsep}/c"
    assert environment["PATH"].startswith(str(Path(sys.executable).parent)), "the program runs with this interpreter"
    assert os.environ["PULUMI_CONFIG_PASSPHRASE"] == "the user's"


def test_messages_of_the_cli(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    told = [message("debug", "noise"), message("warning", "PT1: odd\n"), message("error", "2 problems:\n  a\n  b\n")]
    Cli(folder, told, code=1, error="error: stderr")
    stack = stack_of(folder)
    with pytest.raises(Refused, match=r"^pulumi up: 2 problems:\n  a\n  b$"):
        stack.up()
    assert capsys.readouterr().err == "PT1: odd\n"
    Cli(folder, [], code=1, error="error: no such \x1b[2Jstack")
    with pytest.raises(Refused, match=r"^pulumi up: no such stack$"):
        stack.up()


def test_the_command_that_removes_a_stack_that_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Cli(folder, [], code=1)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    stack = stack_of(folder)
    with pytest.raises(Refused):
        stack.destroy()
    assert stack.exists
    subprocess.run(["sh", "-c", stack.removal], check=False)
    argv, environment, where = json.loads(program.seen.read_text())
    assert argv == ["destroy", "--yes", "--remove", "--stack", "run-1"] and where == str(stack.folder)
    assert environment["PULUMI_BACKEND_URL"].endswith("/runs/run-1/state")
    assert environment["PULUMI_CONFIG_PASSPHRASE"] == ""


def test_a_stack_that_cannot_be_made_leaves_no_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Cli(folder, [], code=1, error="error: no backend")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    stack = TemporaryStack("run-1")
    with pytest.raises(Refused, match="pulumi stack: no backend"):
        stack.create("", {})
    assert not stack.exists
    (folder.parent / "home" / ".cache").chmod(0o500)
    monkeypatch.setattr(temporary_stack, "cache_folder", lambda: folder / "train.py")
    with pytest.raises(TargetFault, match="cannot be written: Not a directory"):
        replace(stack, name="run-2").create("", {})
