"""MultiKueue with two control planes: a manager, and the worker cluster `west` to which its queue sends jobs.

The platform is the program of the guide (docs/queues.md).
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.config import new_client_from_config
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import CLAIM, CONFIG_MAP, POD, SECRET
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kueue.api_resources import MULTIKUEUE_CLUSTER, WORKLOAD
from pulumi_trainer.provider.trainer.kinds import CLUSTER_RUNTIME, JOBSET, TRAIN_JOB

from tests.documented import blocks
from tests.engine.conftest import pulumi_home  # noqa: F401 (a fixture)
from tools.cluster import Cluster

from .conftest import least_user
from .driver import Driver
from .faults_support import gone, inputs
from .jobs import left, until
from .proxy import Proxy
from .queue_lab import Lab, lab_on
from .storage_support import storage_class
from .test_crashes import MOMENTS, each_kill
from .test_up import head

pytestmark = pytest.mark.timeout(900)

(PLATFORM,) = (block.text for block in blocks("docs/queues.md", __file__))
JOB = """
def work(epochs: int) -> None:
    print(epochs)

job = trainer.TrainJob(
    "digits", name="digits", runtime=simulated, queue=queue, target=manager, timeouts={"running": 90, "complete": 60},
    output=trainer.OutputVolume(storage_class="team"),
    trainer=trainer.CustomTrainer(
        func=work, func_args={"epochs": 1}, num_nodes=2, resources_per_node={"cpu": 1},
        env={"TOKEN": pulumi.Output.secret("canary-5c1e")},
    ),
    MORE
)
pulumi.export("phase", job.phase)
"""
COPIES = ["ConfigMap/digits", "ConfigMap/digits-code", "Secret/digits-env"]


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The manager; this name makes these tests come last."""
    made = Cluster.start(tmp_path_factory.mktemp("manager") / "cluster")
    configuration = made.place.conf / "kueue.json"
    content = json.loads(configuration.read_text())
    content["multiKueue"] = {"workerLostTimeout": "3s", "gcInterval": "3s"}
    configuration.write_text(json.dumps(content))
    made.restart("kueue")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def west(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster.start(tmp_path_factory.mktemp("west") / "cluster")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def platform(
    own_cluster: Cluster,
    west: Cluster,
    pulumi_home: Path,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Lab]:
    """The stack with the program of the guide. It is brought up as the guide does, with a preview and with its first job."""
    made = lab_on(tmp_path_factory.mktemp("lab") / "lab", pulumi_home, own_cluster.kubeconfig, "team")
    for_kueue = made.folder / "west-for-kueue"
    for_kueue.write_text(json.dumps(embedded(west.kubeconfig)))
    for key, path in (("manager", own_cluster.kubeconfig), ("west", west.kubeconfig), ("westForKueue", for_kueue)):
        made.config(key, str(path))
    with ExitStack() as classes:
        for cluster in (own_cluster, west):
            root = open_client({"kubeconfig": str(cluster.kubeconfig)})
            classes.enter_context(storage_class(root, "team", volumes=10))
        made.program(with_job('wait_for="running",'))
        assert "on west" in made.plain_up().out
        made.program(PLATFORM)
        made.up()
        yield made
    made.program(PLATFORM)
    made.up()
    made.destroy()


@pytest.fixture
def worker(west: Cluster) -> Client:
    return open_client({"kubeconfig": str(west.kubeconfig)})


def embedded(kubeconfig: Path) -> dict[str, Any]:
    """A kubeconfig without paths, as Kueue wants it."""
    content: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
    cluster = content["clusters"][0]["cluster"]
    authority = Path(cluster.pop("certificate-authority")).read_bytes()
    cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    return content


def with_job(more: str = "", sim: str = "outcome: forever") -> str:
    return head(sim) + PLATFORM + JOB.replace("MORE", more)


def command(lab: Lab, *argv: str) -> str:
    """What `pulumi-trainer` prints about the stack."""
    done = subprocess.run(
        [sys.executable, "-m", "pulumi_trainer.provider.cli", *argv], cwd=lab.folder, env=lab.environment, text=True,
        capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def running(worker: Client) -> list[str]:
    found, _ = worker.list(POD, "team")
    return sorted(p["metadata"]["name"] for p in found if p["status"].get("phase") == "Running")


def test_a_job_is_sent_with_what_it_needs_and_shown_from_there(platform: Lab, worker: Client, west: Cluster) -> None:
    platform.program(with_job('wait_for="running",'))
    plan = platform.run("preview", "--diff").out
    assert re.search(r"west *: \{\s*\+? *copies *: \[\s*.*ConfigMap/digits-code", plan), plan
    up = platform.up().out
    assert "Running" in up and "on west" in up, up
    pods = until(lambda: running(worker))
    assert len(pods) == 2 and platform.root_client.list(POD, "team")[0] == []
    assert [name for name in left(worker, "team") if name.startswith(("ConfigMap", "Secret"))] == COPIES
    assert "def work" in str(worker.get(CONFIG_MAP, "team", "digits-code"))
    there, here = (client.get(SECRET, "team", "digits-env") or {} for client in (worker, platform.root_client))
    assert there["data"] == here["data"] and base64.b64encode(b"canary-5c1e").decode() in str(there["data"])
    claims = [open_.get(CLAIM, "team", "digits-output") for open_ in (worker, platform.root_client)]
    generations = {claim["metadata"]["annotations"]["pulumi-trainer.dev/generation"] for claim in claims if claim}
    assert all(claims) and len(generations) == 1
    platform.preview("--expect-no-changes", "--refresh")
    west.pod_logs("team", pods[0], ["epoch 1 of 3"])
    assert "on west" in command(platform, "status") and "node 2/2" in command(platform, "status")
    why = command(platform, "why", "digits")
    assert "is Running" in why and "on west: its pods run." in why, why
    said = command(platform, "logs", "digits")
    assert "epoch 1 of 3" in said and "team/digits is on the worker cluster west" in said, said
    platform.program(PLATFORM)
    platform.up()
    assert worker.get(JOBSET, "team", "digits") is None
    assert left(worker, "team") == [] and worker.get(CLAIM, "team", "digits-output") is None


def test_a_job_that_ends_on_the_worker_ends_here(platform: Lab, worker: Client) -> None:
    platform.program(with_job('wait_for="complete",', "outcome: succeed, run: 3s"))
    platform.up()
    assert platform.outputs()["phase"] == "Succeeded"
    assert "Succeeded on west" in command(platform, "status")
    platform.program(PLATFORM)
    platform.up()
    assert left(worker, "team") == []


def test_a_job_of_mode_trainer_has_its_runtime_on_the_worker_too(
    platform: Lab, worker: Client, west: Cluster, tmp_path: Path
) -> None:
    """As a user who has no more rights in the worker cluster than `pulumi-trainer rbac` prints."""
    job = JOB.replace("MORE", 'wait_for="running",')
    program = PLATFORM.replace('Worker(kubeconfig=config.require("west"))', 'Worker(kubeconfig=config.require("user"))')
    program = program.replace("workers=workers)", 'workers=workers, mode="trainer")')
    both = (platform.root_client, worker)
    with (
        new_client_from_config(str(west.kubeconfig)) as admin,
        least_user(west.kubeconfig, admin, "team", tmp_path / "user") as user,
    ):
        platform.config("user", str(user))
        platform.program(head() + program + job)
        platform.up()
        assert all(each.get(TRAIN_JOB, "team", "digits") for each in both)
        assert all(each.get(CLUSTER_RUNTIME, "", "simulated") for each in both)
        assert len(running(worker)) == 2 and platform.root_client.list(POD, "team")[0] == []
        status = command(platform, "status")
        assert "on west" in status and "node 2/2" in status, status
        platform.preview("--expect-no-changes", "--refresh")
        platform.program(program)
        platform.up()
        assert left(worker, "team") == [] and not any(each.get(CLUSTER_RUNTIME, "", "simulated") for each in both)
    platform.program(PLATFORM)
    platform.up()


def test_a_pod_that_no_node_takes_is_explained_from_the_worker(platform: Lab, worker: Client) -> None:
    no_node = 'runtime_patches=[trainer.RuntimePatch(manager="me.dev/me", jobs=[trainer.JobPatch(name="node",'
    no_node += ' pod=trainer.PodPatch(node_selector={"no": "such"}))])],'
    platform.program(with_job(no_node))
    platform.up()
    until(lambda: len(worker.list(POD, "team")[0]) == 2)
    until(lambda: "node" in (why := command(platform, "why", "digits")) and "no=such" in why and "on west" in why)
    platform.program(PLATFORM)
    platform.up()


def test_a_worker_that_goes_away_is_told_and_the_job_goes_on_when_it_is_back(
    platform: Lab, worker: Client, west: Cluster
) -> None:
    platform.program(with_job('wait_for="running",'))
    platform.up()
    west.kill("apiserver")
    manager = platform.root_client
    until(lambda: active(manager) == "False")
    lost = until(said(platform, "Kueue has lost the connection to it (ClientConnectionFailed"))
    assert "worker cluster west" in lost or "on west" in lost, lost
    assert "workerLostTimeout" in lost, lost
    until(lambda: cluster_name(manager) == "")
    waits = until(said(platform, "Evicted due to AdmissionCheck"))
    assert "worker cluster west: Kueue has lost the connection to it" in waits and "is Queued" in waits, waits
    restart(west)
    until(lambda: cluster_name(manager) == "west", 300)
    until(said(platform, "on west: its pods run."))
    platform.program(PLATFORM)
    platform.up()
    assert left(worker, "team") == []


def test_a_change_that_ends_a_job_deletes_nothing_while_its_worker_does_not_answer(
    platform: Lab, worker: Client, west: Cluster
) -> None:
    """It would end the job here, fail, and leave its Pods in the worker cluster, which nobody would show."""
    interrupted = with_job('wait_for="running", interrupt="allow",')
    platform.program(interrupted)
    platform.up()
    before = running(worker)
    here = left(platform.root_client, "team")
    west.kill("apiserver")
    silent = "worker cluster west: it cannot be asked, and may still run team/digits"
    try:
        platform.program(interrupted.replace("print(epochs)", "print(epochs, 2)"))
        for refused in (platform.preview(ok=False).out, platform.up(ok=False).out):
            assert f"team/digits is not replaced: {silent}" in refused and "Traceback" not in refused, refused
        platform.program(PLATFORM)
        assert f"this update cannot delete it: {silent}" in platform.preview().out
        assert silent in platform.up(ok=False).out
        assert silent in command(platform, "stop", "digits")
        assert left(platform.root_client, "team") == here
    finally:
        restart(west)
    assert running(worker) == before
    until(lambda: active(platform.root_client) == "True", 300)
    platform.program(interrupted.replace("print(epochs)", "print(epochs, 2)"))
    platform.up()
    listed = command(platform, "runs", "digits")
    assert len(re.findall(r"(?m)^digits \w{6}: ", listed)) == 2 and "Interrupted" in listed, listed
    platform.program(PLATFORM)
    platform.up()
    assert left(worker, "team") == []


def test_a_job_that_is_gone_here_is_shown_in_the_worker_that_still_has_it(platform: Lab, worker: Client) -> None:
    platform.program(with_job('wait_for="running",'))
    platform.up()
    own = worker.get(JOBSET, "team", "digits") or {}
    worker.patch(JOBSET, "team", "digits", {"metadata": {"finalizers": ["example.com/stays"]}})
    platform.root_client.delete(CONFIG_MAP, "team", "digits", propagation="Foreground")
    until(lambda: platform.root_client.get(JOBSET, "team", "digits") is None)
    assert worker.get(JOBSET, "team", "digits"), own
    there = "worker cluster west: its JobSet is still there, and may run"
    assert there in command(platform, "status") and there in command(platform, "why", "digits")
    worker.patch(JOBSET, "team", "digits", {"metadata": {"finalizers": None}})
    platform.program(PLATFORM)
    platform.up()
    assert left(worker, "team") == []


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_create_killed_between_requests_to_a_worker_is_finished_or_swept(
    platform: Lab, worker: Client, own_cluster: Cluster, west: Cluster, tmp_path: Path, moment: str
) -> None:
    with Driver() as driver, Proxy(west.kubeconfig) as proxy:
        through = proxy.kubeconfig(tmp_path / "west", like=west.kubeconfig)

        def job(name: str) -> Any:
            made = inputs("team", name, own_cluster.kubeconfig, secret="canary-4711")
            return {**made, "target": {**made["target"], "workers": {"west": {"kubeconfig": str(through)}}}}

        for number, name in enumerate(each_kill(proxy, driver, moment, lambda name: ("create", job(name)))):
            if number % 2:
                driver.ok("sweep", job(name)["target"], "stack-1")
            else:
                _, outputs = driver.ok("create", job(name))
                assert {f"Secret/{name}-env", f"ConfigMap/{name}-code"} <= {*left(worker, "team")}
                driver.ok("delete", outputs)
            gone(worker, "team")
            gone(platform.root_client, "team")


@pytest.fixture
def east(platform: Lab, tmp_path: Path) -> Iterator[Cluster]:
    """A second worker cluster of the platform."""
    made = Cluster.start(tmp_path / "east")
    for_kueue = platform.folder / "east-for-kueue"
    for_kueue.write_text(json.dumps(embedded(made.kubeconfig)))
    platform.config("east", str(made.kubeconfig))
    platform.config("eastForKueue", str(for_kueue))
    platform.program(with_east(PLATFORM))
    platform.up()
    with storage_class(open_client({"kubeconfig": str(made.kubeconfig)}), "team", volumes=10):
        yield made
    platform.program(PLATFORM)
    platform.up()
    made.stop()


def with_east(program: str) -> str:
    """The guide's program with a second worker cluster."""
    (secret,) = re.findall(r"^content = .*?^member = .*?\n", program, re.M | re.S)
    more = {
        'workers = {"west": ': 'workers = {"east": trainer.Worker(kubeconfig=config.require("east")), "west": ',
        'west = trainer.Kubernetes(kubeconfig=config.require("west"), namespace="team")\n': (
            'west = trainer.Kubernetes(kubeconfig=config.require("west"), namespace="team")\n'
            'east = trainer.Kubernetes(kubeconfig=config.require("east"), namespace="team")\n'
        ),
        secret: secret + secret.replace("west", "east").replace("member", "other"),
        "clusters=[member]": "clusters=[member, other]",
        "in_west = ": 'in_east = team_queue("in-east", east, provider("east", east))\nin_west = ',
        "after=[in_west]": "after=[in_east, in_west]",
    }
    for old, new in more.items():
        assert old in program
        program = program.replace(old, new, 1)
    return program


def test_a_job_of_a_worker_that_goes_away_goes_to_another_one(
    platform: Lab, worker: Client, west: Cluster, east: Cluster
) -> None:
    clusters = {"west": (west, worker), "east": (east, open_client({"kubeconfig": str(east.kubeconfig)}))}
    platform.program(with_east(with_job('wait_for="running",')))
    platform.up()
    manager = platform.root_client
    first = cluster_name(manager)
    (second,) = {*clusters} - {first}
    clusters[first][0].kill("apiserver")
    try:
        until(lambda: cluster_name(manager) == second, 300)
        until(said(platform, f"on {second}: its pods run."))
        assert len(running(clusters[second][1])) == 2
    finally:
        restart(clusters[first][0])
    until(lambda: active(manager, first) == "True")
    platform.program(with_east(PLATFORM))
    platform.up()
    for _, client in clusters.values():
        assert left(client, "team") == []


def restart(cluster: Cluster) -> None:
    """After an outage of the API server; controllers that go on would back off for minutes."""
    for name in ("apiserver", "kcm", "scheduler", "jobset", "kueue", "kwok"):
        cluster.restart(name)


def said(lab: Lab, words: str) -> Callable[[], str]:
    """What `why` says, once it has these words."""

    def look() -> str:
        why = command(lab, "why", "digits")
        return why if words in why else ""

    return look


def active(manager: Client, worker: str = "west") -> str:
    found = manager.get(MULTIKUEUE_CLUSTER, "", worker) or {}
    return next((c["status"] for c in found.get("status", {}).get("conditions", []) if c["type"] == "Active"), "")


def cluster_name(manager: Client) -> str:
    (work,) = manager.list(WORKLOAD, "team")[0]
    return str(work["status"].get("clusterName") or "")


def test_a_worker_that_the_program_does_not_name_is_a_problem_also_of_a_running_job(
    platform: Lab, worker: Client
) -> None:
    unknown = with_job().replace(", workers=workers)", ")")
    platform.program(unknown)
    refused = platform.preview(ok=False).out
    assert "MultiKueue sends the job to west" in refused and "name west in target=Kubernetes(workers=...)" in refused
    platform.program(with_job('wait_for="running",'))
    platform.up()
    platform.program(unknown)
    assert "name west in target=Kubernetes(workers=...)" in platform.preview(ok=False).out
    assert "name west in target=Kubernetes(workers=...)" in platform.up(ok=False).out
    assert len(running(worker)) == 2, "it goes on"
    platform.program(PLATFORM)
    platform.up()
    assert left(worker, "team") == []
