"""A real Prometheus scrapes `exporter` beside real queues, and answers all that the Grafana dashboard asks."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes import config
from kubernetes.client import ApiClient
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.targets.kubernetes.preflight import rbac

from tests.cluster import least
from tests.cluster.conftest import USER
from tests.cluster.jobs import slip, submission, until
from tests.cluster.test_exporter import exporter
from tests.cluster.test_queue import queue  # noqa: F401 (a fixture)
from tests.cluster.test_usage import in_queue
from tools.cluster import Cluster, debian

DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "grafana-dashboard.json"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One with Kueue, and simulated nodes."""
    made = Cluster.start(tmp_path_factory.mktemp("queues"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> Iterator[ApiClient]:
    with config.new_client_from_config(str(cluster.kubeconfig)) as made:
        yield made


@pytest.fixture
def root(cluster: Cluster) -> Client:
    return open_client({"kubeconfig": str(cluster.kubeconfig)})


@contextmanager
def prometheus(folder: Path, url: str) -> Iterator[str]:
    """Yield the address of one that scrapes a URL each second."""
    target = urllib.parse.urlsplit(url)
    job = {"job_name": "trainer", "metrics_path": target.path, "static_configs": [{"targets": [target.netloc]}]}
    settings = folder / "prometheus.json"
    settings.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    programs = debian.unpacked(["prometheus"], print)
    argv = [programs / "usr/bin/prometheus", f"--config.file={settings}", f"--web.listen-address={address}"]
    log = (folder / "prometheus.log").open("w")
    with log, subprocess.Popen([*argv, f"--storage.tsdb.path={folder / 'data'}"], stdout=log, stderr=log) as process:
        try:
            yield f"http://{address}"
        finally:
            process.terminate()


def ask(address: str, expression: str) -> list[dict[str, Any]]:
    """Return the answer of Prometheus to an expression."""
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"{address}/api/v1/query?{query}", timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found


def expressions(node: Any) -> Iterator[str]:
    """Yield what the panels of a dashboard ask."""
    if isinstance(node, dict):
        if isinstance(node.get("expr"), str):
            yield node["expr"]
        for each in node.values():
            yield from expressions(each)
    elif isinstance(node, list):
        for each in node:
            yield from expressions(each)


def test_the_dashboard_of_a_real_prometheus(
    root: Client,
    admin: ApiClient,
    namespace: str,
    queue: str,  # noqa: F811
    user_kubeconfig: Path,
    tmp_path: Path,
) -> None:
    least.grant(admin, namespace, USER, [*least.EVERYTHING, *rbac.usage_permissions()])
    for name in ("runs", "waits"):
        slip(root, submission(namespace, in_queue(name, 2, queue, outcome="forever"), code=False))
    with exporter(user_kubeconfig, "-n", namespace) as (url, _), prometheus(tmp_path, url) as address:
        until(lambda: reachable(address), 60)
        until(lambda: ask(address, 'sum(pulumi_trainer_jobs{phase="Running"}) == 1'), 60)
        until(lambda: ask(address, "sum(pulumi_trainer_queue_waiting_workloads) == 1"), 60)
        until(
            lambda: ask(address, "count_over_time(pulumi_trainer_gpu_seconds_total[1m]) >= 2"), 60
        )  # as increase() needs
        asked = dict.fromkeys(expressions(json.loads(DASHBOARD.read_text())))
        found = {each: ask(address, in_grafana(each, namespace)) for each in asked}
        silent = [each for each, answer in found.items() if not answer]
        # Nothing has progress or restarts, borrows, or is stopped.
        assert all("progress" in each or "restarts" in each or "active == 0" in each for each in silent), silent
        (share,) = [answer for each, answer in found.items() if "used_quota" in each and "nominal_quota" in each]
        assert share[0]["value"][1] == "1"


def reachable(address: str) -> bool:
    try:
        return ask(address, "up") != []
    except OSError:
        return False


def in_grafana(expression: str, namespace: str) -> str:
    """Return an expression with the values that a user chooses in Grafana."""
    return expression.replace("$resource", "cpu").replace("$namespace", namespace)
