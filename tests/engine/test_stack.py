"""The make targets, with the real CLI: a stack on first use, a killed CLI, a stack in use, cleaning."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import clone
import locks
import psutil
import pytest
import setup
import yaml

PROGRAM = """
import pulumi, slow
slow.Slow("slow")
pulumi.export("target", pulumi.Config("trainer").get("target"))
pulumi.export("secret", pulumi.Output.secret("a canary"))
"""
PROVIDER = """
import os, pathlib, time
from pulumi.dynamic import CreateResult, Resource, ResourceProvider

ROOT = pathlib.Path(__file__).parent

class Provider(ResourceProvider):
    serialize_as_secret_always = False

    def create(self, props):
        with (ROOT / "creates").open("a") as file:
            file.write("x")
        while not (ROOT / "go").exists():
            time.sleep(0.05)
        return CreateResult("slow", {})

class Slow(Resource):
    def __init__(self, name):
        super().__init__(Provider(), name, {})
"""
MAKE = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import clone, stack
stack.main(clone.Clone(pathlib.Path(sys.argv[2])), *sys.argv[3:])
"""


class Lab(clone.Clone):
    """A clone with a program whose only resource waits for the file `go`."""

    def start(self, *command: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", MAKE, str(setup.ROOT / "tools"), str(self.root), *command]
        return subprocess.Popen(
            argv, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def run(self, *command: str) -> tuple[int, str]:
        process = self.start(*command)
        out, _ = process.communicate(timeout=120)
        return process.returncode, out


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    root = tmp_path / "a clone"
    root.mkdir()
    project = yaml.safe_load((setup.ROOT / "Pulumi.yaml").read_text())
    del project["plugins"]  # our host refuses the provider of this program
    (root / "Pulumi.yaml").write_text(yaml.safe_dump({**project, "main": "."}))
    (root / "__main__.py").write_text(PROGRAM)
    (root / "slow.py").write_text(PROVIDER)
    yield Lab(root)
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(str(root)):
                process.kill()
        except psutil.Error:
            continue


@pytest.mark.core
def test_a_killed_cli_is_no_hindrance(lab: Lab) -> None:
    process = lab.start("up")
    eventually(lambda: (lab.root / "creates").exists() and lab.latest("local").get("pending_operations"))
    (held,) = locks.locks(lab, "local")
    assert not held.dead
    code, out = lab.run("up")
    assert code == 1 and f"in use by process {held.pid}" in out and "pulumi cancel --yes local" in out
    code, out = lab.run("preview")
    assert code == 0, out

    os.kill(held.pid, 9)
    process.communicate()
    (lab.root / "go").touch()
    code, out = lab.run("up")
    assert code == 0, out
    assert f"the lock of {held} is removed" in out and "taken up again" in out
    assert (lab.root / "creates").read_text() == "xx"
    assert "pending_operations" not in lab.latest("local") and locks.locks(lab, "local") == []
    code, out = lab.run("exec", "pulumi", "stack", "output", "--show-secrets")
    assert "a canary" in out and "local" in out, "the stack that commands by hand mean"
    assert not any(b"canary" in file.read_bytes() for file in lab.state.rglob("*") if file.is_file())
    assert "canary" not in str(lab.latest("local"))

    code, out = lab.run("up")
    assert code == 0 and "2 unchanged" in out and "lock" not in out
    code, out = lab.run("clean")
    assert code == 0 and "2 deleted" in out and not lab.latest("local").get("resources")
    assert sorted(file.name for file in lab.root.iterdir() if file.name.startswith(".")) == [".pulumi", ".pulumi-state"]


def test_the_second_stack_has_its_own_target(lab: Lab) -> None:
    code, out = lab.run("down")
    assert code == 0 and "make up" in out and lab.stacks() == []
    code, out = lab.run("preview-kubernetes")
    assert code == 0 and '"kubernetes"' in out, out
    assert lab.stacks() == ["kubernetes"] and not (lab.root / "creates").exists()
    assert not list(lab.root.glob("Pulumi.*.yaml")), "nothing that git would see"
