"""Without the extras of this package: commands and plans print what to install, and no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pulumi_trainer.provider.api.extras import EXTRAS
from pulumi_trainer.provider.kube.errors import TargetFault
from pulumi_trainer.provider.targets.connection import connect
from pulumi_trainer.provider.targets.local import LocalTarget, review

BARE = (
    "import sys; sys.modules.update(dict.fromkeys({modules!r})); from pulumi_trainer.provider.cli import main; main()"
)
KUBECONFIG = {
    "current-context": "a",
    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:9"}}],
    "users": [{"name": "a", "user": {"token": "x"}}],
}


def ran(folder: Path, *args: str, lacking: tuple[str, ...] = tuple(EXTRAS)) -> subprocess.CompletedProcess[str]:
    """`pulumi-trainer` where these modules cannot be imported."""
    (folder / "kubeconfig").write_text(yaml.safe_dump(KUBECONFIG))
    argv = [sys.executable, "-c", BARE.format(modules=lacking), *args]
    env = {"KUBECONFIG": str(folder / "kubeconfig"), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("command", "lacking"),
    [
        *((command, tuple(EXTRAS)) for command in ("status", "logs", "why", "events", "queues")),
        ("status", ("kubernetes",)),  # urllib3 may be there for another reason
    ],
)
def test_a_command_that_needs_a_cluster_prints_what_to_install(
    tmp_path: Path, command: str, lacking: tuple[str, ...]
) -> None:
    done = ran(tmp_path, command, "-n", "default", lacking=lacking)
    assert done.returncode == 1 and done.stdout == ""
    assert 'pip install "pulumi-trainer[kubernetes]"' in done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("args", [["rbac"], ["runtimes"]])
def test_a_command_that_needs_no_cluster_needs_no_extra(tmp_path: Path, args: list[str]) -> None:
    done = ran(tmp_path, *args)
    assert done.returncode == 0 and not done.stderr


def test_a_stack_that_has_a_cluster_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(TargetFault, match=r'pip install "pulumi-trainer\[kubernetes\]"'):
        connect({"kind": "kubernetes", "namespace": "of-this-test"})


@pytest.mark.parametrize(
    ("uri", "module", "extra"), [("s3://b/x", "boto3", "s3"), ("hf://o/n", "huggingface_hub", "hub")]
)
def test_the_plan_says_what_a_source_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uri: str, module: str, extra: str
) -> None:
    pod = {"containers": [{"name": "a", "image": "ghcr.io/kubeflow/trainer/dataset-initializer:v2.3.0",
                           "env": [{"name": "STORAGE_URI", "value": uri}]}]}  # fmt: skip
    step = {"name": "dataset-initializer", "template": {"spec": {"template": {"spec": pod}}}}
    objects = {"JobSet/a": {"kind": "JobSet", "metadata": {"name": "a"}, "spec": {"replicatedJobs": [step]}}}
    assert review.missing_packages(objects) == []
    monkeypatch.setitem(sys.modules, module, None)
    (problem,) = review.missing_packages(objects)
    why = f"needs the extra '{extra}', which is not installed ({module} is missing)"
    assert str(problem) == f'{uri}: {why}; pip install "pulumi-trainer[{extra}]"'
    assert problem in LocalTarget(tmp_path).review(objects)[0]
