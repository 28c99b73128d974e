"""The test cluster: nothing of it stays on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.cluster import Cluster, processes
from tools.cluster.cluster import end

ROOT = Path(__file__).parents[2]
CORE = ("etcd", "apiserver")


def eventually(condition: Callable[[], Any], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, condition
        time.sleep(0.05)


class TestStop:
    def test_nothing_stays(self, tmp_path: Path) -> None:
        folder = tmp_path / "cluster"
        made = Cluster.start(folder, components=CORE)
        assert {p.name for p in processes.found(folder)} == {"etcd", "apiserver", "tokens"}
        made.stop()
        assert not processes.found(folder)
        assert not folder.exists()


class TestStarterIsKilled:
    @pytest.fixture
    def orphan(self, tmp_path: Path) -> Iterator[Callable[[bool], Path]]:
        """Starts a cluster in a process that is then killed; the argument: whether it is meant to stay."""
        folder = tmp_path / "orphan"

        def start(detached: bool) -> Path:
            program = f"""
                import time
                from tools.cluster import Cluster
                Cluster.start({str(folder)!r}, components={CORE!r}, detached={detached})
                print("up", flush=True)
                time.sleep(600)
            """
            argv = [sys.executable, "-c", textwrap.dedent(program)]
            process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            assert process.stdout
            assert process.stdout.readline() == "up\n"
            process.kill()
            process.wait()
            process.stdout.close()
            return folder

        yield start
        end(folder)

    def test_end_finds_everything(self, orphan: Callable[[bool], Path]) -> None:
        folder = orphan(False)
        assert len(processes.found(folder)) == 3
        end(folder)
        assert not processes.found(folder)


def test_ctrl_c_ends_the_starter_and_its_cluster(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # nohup and & make children deaf to it
    program = f"{heard}; from tools.cluster import Cluster; Cluster.start({str(folder)!r})"
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.DEVNULL)
    eventually(lambda: "kcm" in {p.name for p in processes.found(folder)})
    os.kill(process.pid, signal.SIGINT)
    process.wait(30)
    assert not processes.found(folder)
