"""`pulumi-trainer status | logs | why | events` for jobs that kubectl made, with the least rights, without Pulumi and a stack."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kueue.api_resources import LOCAL_QUEUE
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB

from tests.engine.conftest import pulumi_home  # noqa: F401 (a fixture)
from tools.cluster import Cluster

from .jobs import condition, jobset, until
from .proxy import Proxy
from .test_logs import create, running
from .test_up import Lab, head, lab  # noqa: F401 (a fixture)

TRAIN = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "train"},
    "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2}, "suspend": True},
}


class Cli:
    """The command of a user with the least rights, in a folder without a project."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.kubeconfig, self.folder = kubeconfig, folder

    def __call__(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = str(Path(sys.executable).with_name("pulumi-trainer"))
        env = {"PATH": "/nowhere", "HOME": str(self.folder), "TZ": "UTC"}
        done = subprocess.run(
            [command, *arguments, "--kubeconfig", str(self.kubeconfig)],
            capture_output=True, text=True, cwd=self.folder, env=env, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == code and "Traceback" not in done.stderr, done
        return done

    def out(self, *arguments: str) -> str:
        return self(*arguments).stdout

    def error(self, *arguments: str) -> str:
        """The one line that it says."""
        told = self(*arguments, code=1).stderr
        assert told.startswith("error: ") and told.count("\n") == 1
        return told.removeprefix("error: ").strip()

    def json(self, *arguments: str) -> Any:
        return json.loads(self.out(*arguments, "-o", "json"))


@pytest.fixture
def cli(user_kubeconfig: Path, tmp_path: Path) -> Cli:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return Cli(user_kubeconfig, folder)


@pytest.mark.smoke
def test_jobs_of_others(cli: Cli, root: Client, cluster: Cluster, namespace: str) -> None:
    create(root, namespace, jobset("runs", pods=2))
    create(
        root,
        namespace,
        jobset("waits") | {"metadata": {"name": "waits", "labels": {"kueue.x-k8s.io/queue-name": "no"}}},
    )
    create(root, namespace, jobset("breaks", simulate={"outcome": "fail", "run": "1s", "exit-code": "3"}))
    root.create(TRAIN_JOB, {**TRAIN, "metadata": {"name": "train", "namespace": namespace}})
    pods = running(root, namespace, "runs", 2)
    for i, pod in enumerate(pods):
        cluster.pod_logs(namespace, pod, [f"node {i} says \x1b]0;title\x07hello"])
    progress = '{"trainerStatus": {"progressPercentage": 40}}'
    cluster.pod_logs(namespace, pods[0], [progress])
    until(lambda: condition(root, namespace, "breaks", "Failed"))
    until(lambda: (root.get(JOBSET, namespace, "train") or {}).get("status"))

    rows = {line.split()[0]: line for line in cli.out("status").splitlines() if line}
    assert (
        "Running" in rows["runs"]
        and "40%" in rows["runs"]
        and "node 2/2" in rows["runs"]
        and "Failed" in rows["breaks"]
    )
    assert "Queued" in rows["waits"] and " no  " in f"{rows['waits']}  " and "Suspended" in rows["train"]
    found = {job["name"]: job for job in cli.json("status")}
    assert set(found) == {"runs", "waits", "breaks", "train"}
    assert (found["train"]["kind"], found["runs"]["kind"], found["waits"]["queue"]) == ("TrainJob", "JobSet", "no")
    assert found["runs"]["steps"][0]["ready"] == 2 and found["breaks"]["reason"] == "FailedJobs"
    assert found["runs"]["progress"]["progressPercentage"] == 40
    (one,) = cli.json("status", "jobset/runs")
    assert {**found["runs"], "progress": None} == {**one, "progress": None}

    said = [f"{pod} node {i} says \x1b]0;title\x07hello" for i, pod in enumerate(pods)]
    assert cli.out("logs", "runs").splitlines() == [*said, f"{pods[0]} {progress}"]
    assert cli.out("logs", "runs", "--tail", "0") == ""
    assert "nothing was printed" in cli("logs", "breaks").stderr or cli.out("logs", "breaks")

    assert f"{namespace}/waits is Queued" in cli.out("why", "waits") and "LocalQueue no" in cli.out("why", "waits")
    assert "exit code 3" in cli.out("why", "breaks") and "is Suspended" in cli.out("why", "trainjob/train")
    assert cli.out("why").count(f"{namespace}/") >= 4

    happened = cli.json("events", "breaks")
    assert [e["first"] for e in happened] == sorted(e["first"] for e in happened)
    assert {"SuccessfulCreate", "Started"} <= {e["reason"] for e in happened}
    assert {"JobSet", "Job", "Pod"} == {e["kind"] for e in happened}
    assert all(o.startswith("breaks") for e in happened for o in e["objects"])
    (run,) = {each["run"] for each in happened}
    shown = cli.out("events", "breaks")
    assert "Job/breaks-node-0" in shown and shown.startswith(f"run {run}\n" if run else "")


def test_jobs_of_a_stack_are_listed_together(
    lab: Lab,  # noqa: F811
    cluster: Cluster,
    user_kubeconfig: Path,
    tmp_path: Path,
) -> None:
    """However many jobs the stack has, none is asked for by itself."""
    with Proxy(cluster.kubeconfig) as proxy:
        lab.config("trainer:kubeconfig", str(proxy.kubeconfig(tmp_path / "through-the-proxy", like=user_kubeconfig)))
        lab.program(
            """
            for i in range(4):
                trainer.TrainJob(f"job-{i}", runtime=simulated, suspend=True, trainer=trainer.CustomTrainer(command=["a"]))
            """,
            head(),
        )
        lab.up()
        proxy.reset()
        command = str(Path(sys.executable).with_name("pulumi-trainer"))
        done = subprocess.run(
            [command, "status", "--stack", lab.stack], capture_output=True, text=True, cwd=lab.folder, env=lab.environment,
            check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0 and done.stdout.count("SuspendedJobs") == 4, done
        assert proxy.count(path=f"/namespaces/{lab.namespace}/jobsets") == 1
        assert proxy.count(path="/jobsets/") == 0


def test_nothing_there(cli: Cli, root: Client, namespace: str) -> None:
    assert "has no JobSets and no TrainJobs" in cli.error("status")
    create(root, namespace, jobset("digits", suspend=True))
    for command in ("status", "logs", "why", "events"):
        said = cli.error(command, "digit")
        assert said.startswith(f"{namespace}/digit: no such JobSet or TrainJob") and said.endswith(
            "did you mean digits?"
        )
    assert "no such TrainJob" in cli.error("status", "trainjob/digits")
    assert cli("logs", "digits").stdout == "" and cli("events", "digits").stdout


def test_without_rights(cli: Cli, namespace: str) -> None:
    for arguments in (["status", "-A"], ["status", "a", "-n", "kube-system"], ["logs", "a", "-n", "kube-system"]):
        said = cli.error(*arguments)
        assert "is forbidden" in said and "`pulumi-trainer rbac`" in said


def test_following_to_the_end(cli: Cli, root: Client, cluster: Cluster, namespace: str) -> None:
    """Waits for a job that is suspended, says so, and ends with it."""
    create(root, namespace, jobset("later", suspend=True, simulate={"outcome": "succeed", "run": "1s"}))
    command = str(Path(sys.executable).with_name("pulumi-trainer"))
    argv = [command, "logs", "-f", "later", "--kubeconfig", str(cli.kubeconfig)]
    follower = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cli.folder)
    assert follower.stderr and "later is Suspended" in follower.stderr.readline()
    root.patch(JOBSET, namespace, "later", {"spec": {"suspend": False}})
    out, _ = follower.communicate(timeout=100)
    assert follower.returncode == 0 and "later-node-0-0-" in out


def test_a_queue(cli: Cli, root: Client, namespace: str) -> None:
    root.create(
        LOCAL_QUEUE,
        {
            "apiVersion": LOCAL_QUEUE.api_version, "kind": "LocalQueue", "metadata": {"name": "team", "namespace": namespace},
            "spec": {"clusterQueue": "none-such"},
        },
    )  # fmt: skip
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    create(root, namespace, jobset("waits", suspend=True) | {"metadata": {"name": "waits", "labels": labels}})
    until(lambda: "none-such" in cli.out("why", "waits"))
    assert cli.json("status", "waits")[0]["queue"] == "team"
