"""The real MLflow server, of the version of the client, with its SQLite store."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

SECONDS = 300
"""Time for the start, whose first one downloads packages into uv's cache."""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def mlflow_server(folder: Path, port: int = 0) -> Iterator[str]:
    """Yield the URL of a server whose store is in a folder."""
    port = port or free_port()
    uv = [str(Path(sys.executable).parent / "uv"), "tool", "run", "--quiet", "--python", sys.executable]
    server = ["mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    store = [
        "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "artifacts"),
    ]  # fmt: skip
    argv = [*uv, "--from", f"mlflow=={version('mlflow-skinny')}", *server, *store]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "mlflow.log").open("a") as log:
        process = subprocess.Popen(
            argv, env=environment, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
    url, until = f"http://127.0.0.1:{port}", time.monotonic() + SECONDS
    try:
        while not _answers(url):
            assert process.poll() is None and time.monotonic() < until, (folder / "mlflow.log").read_text()
            time.sleep(0.2)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(url: str) -> bool:
    try:
        return bool(urllib.request.urlopen(f"{url}/health", timeout=2).status == 200)
    except OSError:
        return False
