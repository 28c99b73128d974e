"""`pulumi-trainer run` in a cluster, as a user with the least role: the job and all of its objects are gone at the end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, POD
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.trainer.kinds import JOBSET

from tests.engine.conftest import Project, pulumi_home  # noqa: F401 (a fixture)
from tools.cluster import Cluster

from .jobs import STAYS, until


@pytest.fixture
def environment(tmp_path: Path, pulumi_home: Path, user_kubeconfig: Path) -> dict[str, str]:  # noqa: F811
    """The variables of a user, whose KUBECONFIG is relative to the current folder."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    relative = os.path.relpath(user_kubeconfig, folder)
    return {**Project(folder, pulumi_home).environment, "HOME": str(tmp_path / "home"), "KUBECONFIG": relative}


def start(folder: Path, environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    heard = "env", "--default-signal=INT"  # nohup and & make children deaf to it
    argv = [*heard, "pulumi-trainer", "run", "train.py", "--nodes", "2", *words]
    return subprocess.Popen(
        argv, cwd=folder / "scripts", env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip


def pods(root: Client, namespace: str) -> list[str]:
    found, _ = root.list(POD, namespace)
    return [pod["metadata"]["name"] for pod in found if pod["status"].get("phase") == "Running"]


def check_removed(root: Client, namespace: str, folder: Path) -> None:
    assert not root.list(JOBSET, namespace)[0]
    maps, _ = root.list(CONFIG_MAP, namespace)
    assert {each["metadata"]["name"] for each in maps} <= {*STAYS}
    assert not [*folder.glob("home/.cache/pulumi-trainer/runs/*")]
    assert not (folder / "scripts" / ".pulumi-trainer").exists()


def test_a_script_runs_in_a_cluster(
    environment: dict[str, str], tmp_path: Path, root: Client, cluster: Cluster, namespace: str
) -> None:
    process = start(tmp_path, environment, "--context", "test")
    first, second = until(lambda: len(found := pods(root, namespace)) == 2 and sorted(found))
    for pod in (first, second):
        cluster.pod_logs(namespace, pod, ["hello"])
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert sorted(out.splitlines()) == [f"{first} hello", f"{second} hello"], out + err
    assert re.search(r"^train-\w{5} has succeeded after \d+s$", err, re.M), err
    assert f"`pulumi config set trainer:namespace {namespace}`; `pulumi config set trainer:context test`" in err, err
    check_removed(root, namespace, tmp_path)


def test_ctrl_c_ends_a_job_in_a_cluster(
    environment: dict[str, str], tmp_path: Path, root: Client, namespace: str
) -> None:
    process = start(
        tmp_path, environment, "--namespace", namespace, "--gpus", "64"
    )  # no node has them, so that it waits
    assert process.stderr is not None
    process.stderr.readline()  # what it waits for, once Pulumi has ended
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 130 and "was ended" in err, err
    check_removed(root, namespace, tmp_path)
