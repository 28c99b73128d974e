"""Without the extras of this package: commands and plans print what to install, and no traceback."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi_trainer.provider.kubernetes.errors import TargetFault
from pulumi_trainer.provider.machine.extras import EXTRAS, install_command, requirement
from pulumi_trainer.provider.targets.connection import connect
from pulumi_trainer.provider.targets.local import LocalTarget, local_limits

BARE = "import sys; sys.modules.update(dict.fromkeys({modules!r})); from pulumi_trainer.provider.cli.main import main; main()"
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
    assert install_command("kubernetes") in done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("args", [["rbac"], ["runtime", "list"]])
def test_a_command_that_needs_no_cluster_needs_no_extra(tmp_path: Path, args: list[str]) -> None:
    done = ran(tmp_path, *args)
    assert done.returncode == 0 and not done.stderr


def test_a_stack_that_has_a_cluster_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(TargetFault, match=re.escape(install_command("kubernetes"))):
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
    assert local_limits.missing_packages(objects) == []
    monkeypatch.setitem(sys.modules, module, None)
    (problem,) = local_limits.missing_packages(objects)
    why = f"needs the extra '{extra}', which is not installed ({module} is missing)"
    assert str(problem) == f"{uri}: {why}. Hint: {install_command(extra)}"
    assert problem in LocalTarget(tmp_path).jobs.review(objects)[0]


@pytest.mark.parametrize(
    ("origin", "expected", "command"),
    [
        (
            {"url": "file:///w/pulumi_trainer-1.0-py3-none-any.whl", "archive_info": {}},
            "pulumi-trainer[s3] @ file:///w/pulumi_trainer-1.0-py3-none-any.whl",
            'pip install "pulumi-trainer[s3] @ file:///w/pulumi_trainer-1.0-py3-none-any.whl"',
        ),
        (
            {
                "url": "https://example.com/x.git",
                "vcs_info": {"vcs": "git", "commit_id": "a1", "requested_revision": "v1"},
            },
            "pulumi-trainer[s3] @ git+https://example.com/x.git@a1",
            'pip install "pulumi-trainer[s3] @ git+https://example.com/x.git@a1"',
        ),
        (
            {"url": "https://example.com/x.whl?signature=canary", "archive_info": {}},
            "pulumi-trainer[s3] @ https://example.com/x.whl",
            'pip install "pulumi-trainer[s3] @ https://example.com/x.whl"',
        ),
        (
            {"url": "file:///clone", "dir_info": {"editable": True}},
            "pulumi-trainer[s3] @ file:///clone",
            'pip install --editable "/clone[s3]"',
        ),
        (None, "pulumi-trainer[s3]==1.0", 'pip install "pulumi-trainer[s3]==1.0"'),
    ],
)
def test_an_extra_is_installed_from_where_the_package_came(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, origin: dict[str, Any] | None, expected: str, command: str
) -> None:
    (tmp_path / "METADATA").write_text("Metadata-Version: 2.1\nName: pulumi-trainer\nVersion: 1.0\n")
    if origin:
        (tmp_path / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.setattr(metadata, "distribution", lambda name: metadata.PathDistribution(tmp_path))
    assert requirement("s3") == expected and install_command("s3") == command
    assert requirement() == expected.replace("[s3]", "")
