"""Which jobs `status`, `logs`, `why` and `events` are about, and what they load for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pulumi_trainer.provider.cli.options import read_seconds
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.service.jobs import of_stack
from pulumi_trainer.provider.service.reach import Where, in_project

KUBECONFIG = {
    "apiVersion": "v1", "kind": "Config", "current-context": "here",
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}], "users": [],
    "contexts": [{"name": "here", "context": {"cluster": "c"}}],
}  # fmt: skip


@pytest.fixture(params=[True, False])
def project(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    if request.param:
        (tmp_path / "Pulumi.yaml").touch()
    monkeypatch.chdir(below)
    return bool(request.param)


def test_a_project_means_its_stack_unless_a_cluster_is_named(project: bool) -> None:
    assert in_project() is project
    assert of_stack(None, Where()) is project and of_stack("digits", Where()) is project
    assert of_stack(None, Where(stack="dev"))
    for where in (Where(namespace="team"), Where(context="c"), Where(kubeconfig="f"), Where(everywhere=True)):
        assert not of_stack(None, where)
    assert not of_stack("jobset/digits", Where())
    with pytest.raises(Invalid, match="pass only one of the two"):
        of_stack(None, Where(stack="dev", namespace="team"))


def test_durations() -> None:
    assert [read_seconds(t) for t in ("90s", "5m", "2h", "1d", "1h30m")] == [90, 300, 7200, 86400, 5400]
    for wrong in ("5", "m", "5x", "-5m", "1m1h", "5 m"):
        with pytest.raises(Invalid, match=r"invalid duration .*expected for example"):
            read_seconds(wrong)


def run(folder: Path, *arguments: str, kubeconfig: object = None) -> subprocess.CompletedProcess[str]:
    """Runs in a folder without a project; the last line of stdout is what was loaded."""
    code = (
        "import sys\nfrom pulumi_trainer.provider.cli import main as cli\nsys.argv = ['pulumi-trainer', *sys.argv[1:]]\n"
        "try:\n    cli.main()\nfinally:\n    print([m for m in ('pulumi', 'kubernetes') if m in sys.modules])"
    )
    file = folder / "kubeconfig"
    file.write_text(json.dumps(kubeconfig or KUBECONFIG))
    env = {"KUBECONFIG": str(file), "HOME": str(folder), "PATH": "/nowhere"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=folder, env=env, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["status", "pod/a", "-n", "team"],
            "pod/a: not a valid job name. Hint: a job is NAME, jobset/NAME or trainjob/NAME",
        ),
        (["why", "a", "-n", "team", "-s", "dev"], "--stack: names a stack"),
        (["status", "a", "-A"], "-A: shows all jobs"),
        (["logs", "--since", "yesterday"], "--since: invalid duration 'yesterday'"),
        (["status", "-s", "dev"], "the Pulumi CLI is not on PATH"),
    ],
)
def test_mistakes_are_one_line_and_cost_no_client(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1, done
    assert done.stdout.strip() == "[]"


def test_a_context_that_is_none(tmp_path: Path) -> None:
    done = run(tmp_path, "status", "--context", "there")
    assert (
        done.returncode == 1
        and 'has no context "there". Hint: available: here' in done.stderr
        and done.stderr.count("\n") == 1
    )


def test_help_loads_neither_pulumi_nor_a_client(tmp_path: Path) -> None:
    for command in ("status", "logs", "why", "events"):
        done = run(tmp_path, command, "--help")
        assert done.returncode == 0 and done.stdout.splitlines()[-1] == "[]"
