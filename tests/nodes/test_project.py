"""The project's program, unchanged, on two real nodes: its files travel in a ConfigMap, and its edit is another run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import boto3
import pytest

from tests.moto_server import moto_server
from tools.cluster import Cluster, nodes

from .examples import PATIENCE, Example, plain


@pytest.fixture
def project(examples: Callable[[str], Example]) -> Example:
    return examples("project")


def rates(project: Example, log: Path) -> dict[str, str]:
    assert project.follow("nano", log).wait(PATIENCE) == 0
    return dict(re.findall(r"rank (\d) of 2 in project: lr (\S+)", plain(log.read_text())))


def test_it_trains_in_pods_on_two_nodes(project: Example, tmp_path: Path) -> None:
    project.up()
    assert {p.spec.node_name for p in project.pods("nano")} == {"node1", "node2"}
    assert rates(project, tmp_path / "first") == {"0": "0.003", "1": "0.003"}
    (code,) = [
        m for m in project.core.list_namespaced_config_map(project.namespace).items if m.metadata.name.endswith("-code")
    ]
    assert code.binary_data.keys() == {"source.tar.gz"}
    assert code.binary_data["source.tar.gz"] not in str(project.export())
    assert "unchanged" in project.up().out

    settings = project.folder / "nano/config/small.py"
    settings.write_text(settings.read_text().replace("3e-3", "1e-3"))
    assert "+learning_rate = 1e-3" in project.preview().out
    project.up()
    assert rates(project, tmp_path / "second") == {"0": "0.001", "1": "0.001"}
    argv = ["pulumi-trainer", "runs", "nano", "--stack", project.stack, "-o", "json"]
    done = subprocess.run(argv, cwd=project.folder, env=project.environment, capture_output=True, text=True, check=True)
    first, second = json.loads(done.stdout)
    assert [each["phase"] for each in (first, second)] == ["Succeeded", "Succeeded"]
    assert {name for name, text in first["inputs"].items() if second["inputs"][name] != text} == {"code"}
    project.destroy()


def test_a_training_that_fails_names_rank_file_and_line(project: Example) -> None:
    """While its containers start again: at the backoff limit, Kubernetes deletes the Pods and their logs."""
    train = project.folder / "nano/train.py"
    before = "        optimizer.zero_grad()\n"
    assert train.read_text().count(before) == 1
    train.write_text(train.read_text().replace(before, f"{before}        assert rank == 0 or step < 3, 'bad shard'\n"))
    line = train.read_text().splitlines().index("        assert rank == 0 or step < 3, 'bad shard'") + 1
    waiting = project.start("up", "--yes", "--skip-preview")
    assert waiting.stdout
    shown = ""
    for text in waiting.stdout:
        shown += text
        if "CrashLoopBackOff" in text and f": exit code 1: AssertionError: bad shard (train.py:{line})" in text:
            break
    os.killpg(waiting.pid, signal.SIGINT)
    waiting.wait(PATIENCE)
    argv = ["pulumi-trainer", "why", "nano", "--stack", project.stack]
    why = subprocess.run(argv, cwd=project.folder, env=project.environment, capture_output=True, text=True, check=True)
    assert waiting.returncode, f"it had not ended:\n{shown}"
    assert "rank 1: exit code 1" in why.stdout, why.stdout
    found = re.search(rf'File "train.py", line {line}, in main\n.*\n(.*\^\n)? *AssertionError: bad shard', why.stdout)
    assert found, why.stdout
    assert "ChildFailedError" not in why.stdout and "torch/distributed/launcher" not in why.stdout, why.stdout
    project.destroy()


def test_a_large_project_travels_by_a_bucket(
    project: Example, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up` writes the archive there, and each Pod fetches it with the credentials of the job."""
    (project.folder / "nano" / "data" / "large.bin").write_bytes(os.urandom(2 * 2**20))
    with moto_server(nodes.address(cluster.place.ports)) as url:
        access = {
            "AWS_ENDPOINT_URL": url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "one",
            "AWS_SECRET_ACCESS_KEY": "two",
        }
        project.env.update(access)
        for name, value in access.items():
            monkeypatch.setenv(name, value)
        s3 = boto3.client("s3", region_name="us-east-1")
        s3.create_bucket(Bucket="code")
        project.edit('source="nano"', 'source=trainer.Source("nano", storage="s3://code/projects"), env=access')
        secret = {**access, "AWS_SECRET_ACCESS_KEY": ""}
        project.edit(
            "\njob = ", f'\naccess = {{**{secret!r}, "AWS_SECRET_ACCESS_KEY": pulumi.Output.secret("two")}}\njob = '
        )
        project.up()
        assert rates(project, tmp_path / "log") == {"0": "0.003", "1": "0.003"}
        stored = s3.list_objects_v2(Bucket="code")["Contents"]
        assert [each["Size"] > 2 * 2**20 for each in stored] == [True]
        assert "unchanged" in project.up().out
        project.destroy()
