"""The blocks of docs/ that need no cluster, page by page and from top to bottom, in a project of their own.

What the comment before a block may say after the test's path:

kubernetes   the program's target is a cluster that is not there
up           the program is run; without it, it is previewed
file=NAME    the block is that file
fails        the preview or the run fails
output       the block is part of what the CLI has printed last; ... stands for any text
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.documented import Block, blocks, pages_run_by

from .conftest import Project

BEFORE = {
    "docs/cli.md": """
        trainer.TrainJob("digits", runtime=plain, trainer=trainer.CustomTrainer(command=["sleep", "600"]))
    """
}
"""Page -> program that runs before its blocks."""

STUB = "#!/bin/sh\ncat > /dev/null\n"


@pytest.mark.parametrize("page", pages_run_by(__file__))
def test_a_page(page: str, project: Project, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "kubectl").write_text(STUB)  # commands for kubectl are right if what they are given is
    (tools / "kubectl").chmod(0o755)
    project.env["PATH"] = f"{tools}:{project.environment['PATH']}"
    shown = ""
    if page in BEFORE:
        project.program(BEFORE[page])
        project.up()
    for block in blocks(page, __file__):
        named = [option.removeprefix("file=") for option in block.options if option.startswith("file=")]
        if named:
            file = project.folder / named[0]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
        elif "output" in block.options:
            check_output(block, block.text, shown)
        elif block.kind == "python":
            shown = run_program(block, project)
        else:
            run_commands(block, project)


def run_program(block: Block, project: Project) -> str:
    target = "kubernetes" if "kubernetes" in block.options else "local"
    project.config("trainer:target", target)
    project.config("trainer:kubeconfig", "nowhere")
    project.program(block.text, head="")
    if "up" in block.options:
        return project.up(ok="fails" not in block.options).out
    shown = project.preview("--diff", ok="fails" not in block.options).out
    assert "Traceback" not in shown, block.where
    return shown


def run_commands(block: Block, project: Project) -> None:
    """Run each line, or those that begin with $, whose output follows them."""
    text = block.text
    if "$ " not in text:
        text = "".join(f"$ {line}\n" for line in text.splitlines() if line)
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, expected = part.partition("\n")
        done = subprocess.run(
            command, cwd=project.folder, env=project.environment, shell=True, text=True, timeout=300,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if expected.strip():
            check_output(block, expected, done.stdout)
        else:
            assert done.returncode == 0, f"{block.where}: {command}\n{done.stdout}"


def check_output(block: Block, expected: str, shown: str) -> None:
    """Each line is there, in this order; blanks around lines do not count."""
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    at = 0
    for line in filter(str.strip, expected.splitlines()):
        pattern = ".*".join(re.escape(part) for part in " ".join(line.split()).split("..."))
        found = [i for i, each in enumerate(lines[at:], at) if re.fullmatch(pattern, each)]
        assert found, f"{block.where}: `{line}` is not in\n{shown}"
        at = found[0] + 1
