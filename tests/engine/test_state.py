"""A stack whose state somebody else has changed: what it can make `up`, `refresh` and `destroy` do."""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi_trainer.provider.engine import host
from pulumi_trainer.provider.lifecycle.state_format import FORMAT

from .conftest import Project
from .test_jobs import LONG

SUSPENDED = LONG.replace('wait_for="running"', "suspend=True")


@pytest.fixture
def guarded(project: Project) -> Project:
    """With our host of dynamic providers."""
    file = project.folder / "Pulumi.yaml"
    plugin = {"name": "pulumi-python", "path": str(Path(host.__file__).parent)}
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "plugins": {"providers": [plugin]}}))
    return project


def changed(project: Project, change: Callable[[dict[str, Any]], None], kind: str = "JobSet") -> None:
    """Imports the state with another resource of a kind."""
    state = project.export()
    (resource,) = (r for r in state["deployment"]["resources"] if r["type"].endswith(f":{kind}"))
    change(resource)
    (project.folder / "state.json").write_text(json.dumps(state))
    result = project.run("stack", "import", "--file", "state.json")
    assert result.code == 0, result


class Evil:
    """A pickle that runs a program."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.place}",)


@pytest.mark.parametrize("command", [pytest.param("refresh", marks=pytest.mark.core), "destroy"])
def test_our_host_runs_no_program_of_a_state(guarded: Project, command: str) -> None:
    guarded.program(SUSPENDED)
    guarded.up()
    assert "unchanged" in guarded.up().out
    before, place = guarded.export(), guarded.folder / "owned"
    text = base64.b64encode(pickle.dumps(Evil(place))).decode()

    def change(resource: dict[str, Any]) -> None:
        for part in ("inputs", "outputs"):
            resource[part]["__provider"] = text

    changed(guarded, change)
    result = guarded.run(command, "--yes", "--skip-preview")
    assert result.code != 0 and "this host only runs providers of pulumi_trainer" in result.out, result
    assert "Exception calling" not in result.out and "Traceback" not in result.out
    assert not place.exists() and guarded.job("long").phase == "Suspended"
    (guarded.folder / "state.json").write_text(json.dumps(before))
    assert guarded.run("stack", "import", "--file", "state.json").code == 0
    guarded.destroy()
    assert not guarded.target.jobs.list_all()


def test_the_interpreter_is_that_of_the_program(project: Project) -> None:
    project.program(SUSPENDED)
    project.up()
    place, evil = project.folder / "owned", project.folder / "bin" / "python"
    evil.parent.mkdir()
    evil.write_text(f'#!/bin/sh\ntouch {place}\nexec {sys.executable} "$@"\n')
    evil.chmod(0o755)

    def change(resource: dict[str, Any]) -> None:
        for part in ("inputs", "outputs"):
            resource[part]["target"]["python"] = str(evil)

    changed(project, change)
    project.program(SUSPENDED.replace("suspend=True", 'suspend=False, wait_for="running"'))
    project.up()
    assert project.job("long").phase == "Running" and not place.exists()


def test_a_folder_of_somebody_else_is_left_alone(project: Project) -> None:
    """Its records would say which processes are ended and which folders are removed."""
    project.program(SUSPENDED)
    project.up()
    shared = project.folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)

    def change(resource: dict[str, Any]) -> None:
        resource["outputs"]["target"]["root"] = str(shared)

    changed(project, change)
    result = project.destroy(ok=False)
    assert f"root {shared}: can be changed by every user of this machine" in result.out, result
    assert list(shared.iterdir()) == []


def test_what_a_sweep_deletes_is_shown(project: Project) -> None:
    """The label of another stack in the state: nothing but the state says which stack runs."""
    project.program(SUSPENDED)
    project.up()
    other = project.job("long")
    project.stack = "second"
    assert project.run("stack", "init").code == 0
    project.up()
    (target,) = project.resources("Target")
    assert target["id"] != other.stack

    def change(resource: dict[str, Any]) -> None:
        resource["id"] = resource["outputs"]["sweep"] = other.stack

    changed(project, change, "Target")
    out = project.destroy().out
    assert f"note: default/{other.name} has the label {other.stack} of this stack and is deleted" in out
    assert not project.target.jobs.list_all()


TAMPERED: dict[str, dict[str, Any]] = {
    "is not a name that Kubernetes accepts": {"name": "../../../x"},
    "not a valid absolute path": {"target": {"root": "/tmp/a\0b"}},
}


def test_what_a_state_must_not_say_is_refused_without_a_traceback(project: Project) -> None:
    project.program(SUSPENDED)
    project.up()
    before = json.dumps(project.export())

    for words, given in TAMPERED.items():
        state = json.loads(before)
        for resource in state["deployment"]["resources"]:
            if "dynamic/trainer" in resource["type"]:
                for part in ("inputs", "outputs"):
                    _overwrite(resource[part], given)
        (project.folder / "state.json").write_text(json.dumps(state))
        assert project.run("stack", "import", "--file", "state.json").code == 0
        for command in ("refresh", "destroy"):
            result = project.run(command, "--yes", "--skip-preview")
            assert result.code != 0 and words in result.out, result
            assert "Traceback" not in result.out and "Exception calling application" not in result.out, result
        assert project.job("long").phase == "Suspended"
    (project.folder / "state.json").write_text(before)
    assert project.run("stack", "import", "--file", "state.json").code == 0
    project.destroy()


def test_a_state_of_another_format_is_refused_and_can_be_forgotten(project: Project) -> None:
    project.program(SUSPENDED)
    project.up()
    project.preview("--expect-no-changes")
    state = project.export()
    ours = [r for r in state["deployment"]["resources"] if "dynamic/trainer" in r["type"]]
    for resource in ours:
        for part in ("inputs", "outputs"):
            assert resource[part]["format"] == FORMAT
            resource[part]["format"] = FORMAT + 1
    (project.folder / "state.json").write_text(json.dumps(state))
    assert project.run("stack", "import", "--file", "state.json").code == 0
    for command in ("up", "refresh", "destroy"):
        result = project.run(command, "--yes", "--skip-preview")
        words = f"its state was written by another version of pulumi-trainer, in format {FORMAT + 1}"
        assert result.code != 0 and words in result.out, result
        assert "Traceback" not in result.out and "Exception calling" not in result.out, result
    doctor = [sys.executable, "-m", "pulumi_trainer.provider.cli", "doctor"]
    told = subprocess.run(doctor, cwd=project.folder, env=project.environment, capture_output=True, text=True)
    assert told.returncode == 1 and words in told.stderr and "Traceback" not in told.stderr

    for resource in reversed(ours):  # as the message says
        assert project.run("state", "delete", "--yes", "--target-dependents", resource["urn"]).code == 0
    told = subprocess.run(doctor, cwd=project.folder, env=project.environment, capture_output=True, text=True)
    assert "with adopt=True on its TrainJob" in told.stdout and "deletes it and its data" in told.stdout, told
    project.program(SUSPENDED.replace("suspend=True", "suspend=True, adopt=True"))
    project.up()
    project.destroy()
    assert not project.target.jobs.list_all()


def _overwrite(properties: dict[str, Any], given: dict[str, Any]) -> None:
    for name, value in given.items():
        if name in properties:
            more = isinstance(value, dict) and "root" in value
            properties[name] = {**properties[name], **value} if more else value


@pytest.mark.parametrize("part", ["name", "target", "objects", "generation"])
def test_a_state_that_lacks_something_says_so_and_can_be_forgotten(project: Project, part: str) -> None:
    project.program(SUSPENDED)
    project.up()

    def change(resource: dict[str, Any]) -> None:
        for side in ("inputs", "outputs"):
            resource[side].pop(part, None)

    changed(project, change)
    for command in ("up", "refresh", "destroy"):
        result = project.run(command, "--yes", "--skip-preview")
        assert "Traceback" not in result.out and "Exception calling" not in result.out, result
        assert result.code == 0 or "the state of this resource cannot be read" in result.out, result
