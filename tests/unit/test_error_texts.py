"""What a wrong command or document prints: each text of `tests/golden/errors/commands.yaml`, whole.

`python -m tests.unit.test_error_texts` writes the texts anew, to be read in the difference.
"""

from __future__ import annotations

import io
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi_trainer.provider.cli.main import main

CASES = Path(__file__).parents[1] / "golden" / "errors" / "commands.yaml"
_TRAIN_JOB = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: digits, namespace: team}
spec:
"""
_KUBECONFIG = """apiVersion: v1
kind: Config
current-context: lab
clusters: [{name: lab, cluster: {server: 'http://127.0.0.1:1'}}]
contexts: [{name: lab, context: {cluster: lab, user: me}}]
users: [{name: me, user: {}}]
"""


def read_cases() -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = yaml.safe_load(CASES.read_text())
    return cases


def printed(case: dict[str, Any], folder: Path) -> tuple[int, str]:
    """Return the exit code and the text of a command in a folder with the files of its case."""
    files = {"kubeconfig": _KUBECONFIG, **case.get("files", {})}
    if "spec" in case:
        files["job.yaml"] = _TRAIN_JOB + "".join(f"  {line}\n" for line in case["spec"].splitlines())
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        for name, value in (("HOME", str(folder)), ("KUBECONFIG", "kubeconfig"), ("COLUMNS", "120")):
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["pulumi-trainer", *case["run"].split()])
        with pytest.raises(SystemExit) as ended:
            main()
    code = ended.value.code
    assert isinstance(code, int)
    return code, (out.getvalue() + err.getvalue()).replace(str(folder), "DIR")


@pytest.mark.parametrize("case", read_cases(), ids=lambda case: case["run"])
def test_a_mistake_is_reported_with_place_reason_and_hint(case: dict[str, Any], tmp_path: Path) -> None:
    assert printed(case, tmp_path) == (case["exit"], case["says"])


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text:
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def record() -> None:
    """Write what the commands print into the file of cases."""
    cases = read_cases()
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            case["exit"], case["says"] = printed(case, Path(folder))
    _Dumper.add_representer(str, _write_text)
    CASES.write_text(yaml.dump(cases, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True))


if __name__ == "__main__":
    record()
