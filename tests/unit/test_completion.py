"""The script of `completion`, run by bash."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.cli.commands import COMMANDS

ASK = """
COMP_WORDS=({words}) COMP_CWORD=$(({count} - 1))
$(complete -p pulumi-trainer | sed 's/.* -F //; s/ .*//')
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def script() -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pulumi_trainer.provider.cli", "completion", "bash"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("pulumi-trainer va", {"validate"}),
        ("pulumi-trainer runtime pi", {"pin"}),
        ("pulumi-trainer validate --mo", {"--mode"}),
        ("pulumi-trainer validate --mode tr", {"trainer"}),
    ],
)
def test_bash_completes_a_line(script: str, line: str, completed: set[str]) -> None:
    words = line.split()
    asked = script + ASK.format(words=line, count=len(words))
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert {*done.stdout.split()} == completed, done


def test_all_commands_are_in_it(script: str) -> None:
    for name in COMMANDS:
        assert all(word in script for word in name.split())


def test_a_shell_that_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.run(["completion", "fish"])
    assert ended.value.code == 2 and "invalid choice: 'fish'" in capsys.readouterr().err
