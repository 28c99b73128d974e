"""What `deploy exporter` prints runs in a Pod of a real node, with no more rights than it prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from kubernetes import utils
from kubernetes.client import ApiClient
from kubernetes.stream import stream

from tests.engine.conftest import eventually
from tools.cluster.images import MACHINE

from .conftest import Lab

SCRAPE = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9400/metrics').read().decode())"


def deployed(lab: Lab) -> list[dict[str, Any]]:
    """What the command prints, with the program of this clone in place of the image's."""
    program = Path(sys.executable).with_name("pulumi-trainer")
    argv = [program, "deploy", "exporter", MACHINE, "-n", lab.namespace]
    return [*yaml.safe_load_all(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)]


def test_it_serves_the_metrics_of_all_namespaces(lab: Lab, admin: ApiClient) -> None:
    for document in deployed(lab):
        if document["kind"] == "Deployment":
            (container,) = document["spec"]["template"]["spec"]["containers"]
            container["command"] = [sys.executable, "-m", "pulumi_trainer.provider.cli"]
        utils.create_from_dict(admin, document)
    lab.run("waits", "import time; time.sleep(600)")
    lab.until("waits", lambda status: status.phase == "Running")
    labels = "app.kubernetes.io/name=pulumi-trainer-exporter"

    def metrics() -> str:
        (pod,) = lab.core.list_namespaced_pod(lab.namespace, label_selector=labels).items
        if not all(each.ready for each in pod.status.container_statuses or [None]):
            return ""
        command = [sys.executable, "-c", SCRAPE]
        return str(stream(lab.core.connect_get_namespaced_pod_exec, pod.metadata.name, lab.namespace, command=command,
                          stdout=True, stderr=True, stdin=False, tty=False))  # fmt: skip

    eventually(lambda: f'pulumi_trainer_jobs{{namespace="{lab.namespace}",phase="Running"' in metrics(), 120)
    assert 'pulumi_trainer_exporter_kind_readable{kind="jobsets"} 1.0' in metrics()
