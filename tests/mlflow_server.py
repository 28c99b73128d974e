"""A real MLflow server, and what it has of a job."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.machine.uv_program import find_uv

PACKAGE = "mlflow==3.17.2"
UV_RUN = [find_uv(), "run", "--no-project", "--python", sys.executable]
SECONDS = 300
"""Time until the server answers, whose packages may have to be downloaded."""


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as found:
        found.bind((host, 0))
        return int(found.getsockname()[1])


@contextmanager
def mlflow_server(folder: Path, port: int = 0, host: str = "127.0.0.1") -> Iterator[str]:
    """Yield the address of a server whose store is in a folder, at an address of this machine."""
    port = port or free_port(host)
    store = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "files")]
    argv = [
        *UV_RUN,
        "--with",
        PACKAGE,
        "mlflow",
        "server",
        *store,
        "--workers",
        "1",
        "--host",
        host,
        "--port",
        f"{port}",
    ]
    address, end = f"http://{host}:{port}", time.monotonic() + SECONDS
    with (folder / "log").open("a") as log:
        server = subprocess.Popen(
            [*argv, "--allowed-hosts", "*"], cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
    try:
        while not _answers(address):
            assert server.poll() is None and time.monotonic() < end, (folder / "log").read_text()
            time.sleep(0.5)
        yield address
    finally:
        os.killpg(server.pid, 15)
        server.wait()


def _answers(address: str) -> bool:
    try:
        call(address, "experiments/get-by-name?experiment_name=Default")
    except OSError:
        return False
    return True


def call(address: str, name: str, given: Any = None) -> Any:
    data = json.dumps(given).encode() if given is not None else None
    request = urllib.request.Request(f"{address}/api/2.0/mlflow/{name}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def runs_of(address: str, job: str) -> list[Any]:
    """Return the runs with the tag of a job."""
    groups = call(address, "experiments/search?max_results=100")["experiments"]
    wanted = {
        "experiment_ids": [each["experiment_id"] for each in groups],
        "filter": f"tags.`pulumi-trainer.job` LIKE '{job}%'",
    }
    found: list[Any] = call(address, "runs/search", wanted).get("runs", [])
    return found


def history(address: str, run: str, metric: str) -> list[tuple[int, float]]:
    found = call(address, f"metrics/get-history?run_id={run}&metric_key={metric}")
    return [(each.get("step", 0), each["value"]) for each in found.get("metrics", [])]


def link_of(address: str, run: Any) -> str:
    return f"{address}/#/experiments/{run['info']['experiment_id']}/runs/{run['info']['run_id']}"
