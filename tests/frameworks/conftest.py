"""Each framework with its real packages and the real Pulumi CLI. Run by `make test-frameworks`, not by `make test`: the
first run downloads a few gigabytes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.conftest import PINNED, Project, project, pulumi_home

__all__ = ["project", "pulumi_home"]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "frameworks"


@pytest.fixture(autouse=True)
def pinned(project: Project) -> None:
    project.env.update(PINNED)


@pytest.fixture
def example(project: Project) -> Callable[[str], Project]:
    """An example in a folder of its own, as a user copies it, with a stack."""

    def copied(name: str) -> Project:
        shutil.copytree(EXAMPLES / name, project.folder, dirs_exist_ok=True)
        project.name = name
        project.stack = "local"
        assert project.run("stack", "init").code == 0
        return project

    return copied
