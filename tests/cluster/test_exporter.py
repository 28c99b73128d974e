"""`exporter` beside real queues: what Prometheus reads, as a user with the printed permissions, and with less."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubernetes.client import ApiClient
from prometheus_client.parser import text_string_to_metric_families
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.targets.kubernetes.preflight import rbac
from pulumi_trainer.provider.trainer.kinds import JOBSET

from . import least
from .conftest import USER
from .jobs import slip, submission, until
from .test_queue import queue  # noqa: F401 (a fixture)
from .test_usage import in_queue


@contextmanager
def exporter(kubeconfig: Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The URL of its metrics."""
    argv = [sys.executable, "-m", "pulumi_trainer.provider.cli", "exporter", "--port", "0", *arguments]
    argv += ["--kubeconfig", str(kubeconfig)]
    process = subprocess.Popen(argv, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "http://127.0.0.1:" in line, line + process.stdout.read()
        yield "http://" + line.rpartition("http://")[2].strip(), process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def scrape(url: str) -> dict[str, dict[str, float]]:
    """Metric -> job, queue, phase or kind -> value."""
    text = urllib.request.urlopen(url, timeout=10).read().decode()
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = sample.labels
            key = labels.get("job") or labels.get("phase") or labels.get("cluster_queue") or labels.get("kind") or ""
            found.setdefault(sample.name.removeprefix("pulumi_trainer_"), {})[key] = sample.value
    return found


def test_jobs_and_queues(
    root: Client,
    admin: ApiClient,
    namespace: str,
    queue: str,  # noqa: F811
    user_kubeconfig: Path,
) -> None:
    least.grant(admin, namespace, USER, [*least.EVERYTHING, *rbac.usage_permissions()])
    with exporter(user_kubeconfig, "-n", namespace) as (url, _):
        assert set(scrape(url)["exporter_kind_readable"].values()) == {1}
        slip(root, submission(namespace, in_queue("runs", 2, queue, outcome="forever"), code=False))
        until(lambda: scrape(url).get("jobs", {}).get("Running") == 1)
        slip(root, submission(namespace, in_queue("waits", 2, queue, outcome="forever"), code=False))
        until(lambda: scrape(url)["jobs"].get("Queued") == 1)
        until(lambda: scrape(url)["queue_used_quota"][namespace] == 2)
        until(lambda: scrape(url)["queue_waiting_workloads"][namespace] == 1)
        found = scrape(url)
        assert found["queue_nominal_quota"][namespace] == 2 and found["queue_active"][namespace] == 1
        assert set(found["job_gpus"]) == {"runs", "waits"} and set(found["job_queued_seconds"]) == {"waits"}
        root.delete(JOBSET, namespace, "runs", propagation="Background")
        until(lambda: set(scrape(url)["job_gpus"]) == {"waits"})
        until(lambda: scrape(url)["jobs"].get("Running") == 1)


def test_what_may_not_be_watched_is_said(namespace: str, user_kubeconfig: Path) -> None:
    with exporter(user_kubeconfig, "-n", namespace) as (url, process):
        assert process.stdout is not None
        assert "clusterqueues" in "".join(process.stdout.readline() for _ in range(3))
        readable = scrape(url)["exporter_kind_readable"]
        assert (readable["jobsets"], readable["clusterqueues"]) == (1, 0)
