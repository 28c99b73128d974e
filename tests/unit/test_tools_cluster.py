"""What tests with a cluster may touch of this machine: processes with their mark, addresses of loopback, the named context."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.cluster import control_plane, processes
from tools.cluster.existing import Existing


class TestProcesses:
    def test_they_are_found_by_their_mark_alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SECRET", "canary")
        monkeypatch.setenv("NOT_OURS", f"{processes.CLUSTER}={tmp_path}")
        stranger = subprocess.Popen(["sleep", "60"])
        ours = processes.start(
            tmp_path, "etcd", ["sleep", "60"], tmp_path / "log", env={"A": "b"}, owner=processes.me()
        )
        try:
            time.sleep(0.05)
            (found,) = processes.found(tmp_path)
            assert (found.pid, found.name, found.owner) == (ours.pid, "etcd", processes.me())
            assert processes.found(tmp_path / "other") == []
            env = Path(f"/proc/{ours.pid}/environ").read_text()
            assert "A=b" in env and "canary" not in env
            assert os.getsid(ours.pid) == ours.pid
        finally:
            processes.send(processes.found(tmp_path), signal.SIGKILL, 5)
            assert ours.wait() == -signal.SIGKILL
            assert stranger.poll() is None
            stranger.kill()
            stranger.wait()

    def test_a_number_that_is_another_process_by_now_gets_no_signal(self, tmp_path: Path) -> None:
        other = subprocess.Popen(["sleep", "60"])
        try:
            gone = processes.Found(other.pid, tmp_path, "etcd", "")
            assert processes.send([gone], signal.SIGKILL, 1) == []
            assert other.poll() is None
        finally:
            other.kill()
            other.wait()


PLACE = control_plane.Place(Path("/cluster"), {name: 21000 + i for i, name in enumerate(control_plane.PORTS)})


class TestCommands:
    @pytest.mark.parametrize("name", control_plane.ALL)
    def test_nothing_listens_beyond_this_machine(self, name: str) -> None:
        command = " ".join(control_plane.command(PLACE, name))
        assert "=0.0.0.0" not in command
        assert control_plane.health(PLACE, name).split("://")[1].startswith("127.0.0.1:")

    def test_what_is_secret_is_in_no_argument(self, tmp_path: Path) -> None:
        place = replace(PLACE, folder=tmp_path)
        control_plane.configure(place, "canary")
        assert json.loads(place.kubeconfig.read_text())["users"][0]["user"]["token"] == "canary"
        assert place.kubeconfig.stat().st_mode & 0o077 == 0
        for name in control_plane.ALL:
            assert "canary" not in str([control_plane.command(place, name), control_plane.environment(place, name)])


class TestExisting:
    KUBECONFIG: dict[str, Any] = {
        "current-context": "production",
        "contexts": [
            {"name": "production", "context": {"cluster": "p", "user": "p"}},
            {"name": "lab", "context": {"cluster": "l", "user": "l", "namespace": "team"}},
        ],
        "clusters": [
            {"name": "p", "cluster": {"server": "https://production"}},
            {"name": "l", "cluster": {"server": "https://lab", "certificate-authority": "ca.crt"}},
        ],
        "users": [{"name": "p", "user": {"token": "canary"}}, {"name": "l", "user": {"tokenFile": "/abs/token"}}],
    }

    def test_only_the_context_that_was_named_is_used(self, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "config").write_text(yaml.safe_dump(self.KUBECONFIG))
        made = Existing.of(tmp_path / "config", "lab", tmp_path / "out")
        text = made.kubeconfig.read_text()
        assert "production" not in text and "canary" not in text and made.server == "https://lab"
        known = yaml.safe_load(text)
        assert known["clusters"][0]["cluster"]["certificate-authority"] == str(tmp_path / "ca.crt")
        assert known["users"][0]["user"]["tokenFile"] == "/abs/token"
