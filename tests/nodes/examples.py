"""Examples of the clone as a user runs them, on the cluster of the tests."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubernetes import client

from tests.engine.conftest import Project, Result

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 240.0
"""Seconds, for what takes twenty on an idle machine."""


class Example(Project):
    """A project of the clone in a folder of its own, with a stack that runs on the cluster."""

    namespace: str
    core: client.CoreV1Api

    def run(self, *args: str, timeout: float = PATIENCE) -> Result:
        return super().run(*args, timeout=timeout)

    def edit(self, old: str, new: str) -> None:
        (program,) = self.folder.rglob("__main__.py")
        text = program.read_text()
        assert old in text
        program.write_text(text.replace(old, new))

    def pods(self, job: str = "") -> list[Any]:
        """Those of the job whose name begins so."""
        found: list[Any] = self.core.list_namespaced_pod(self.namespace).items
        return [p for p in found if p.metadata.labels["jobset.sigs.k8s.io/jobset-name"].startswith(job)]

    def jobsets(self) -> list[Any]:
        api = client.CustomObjectsApi(self.core.api_client)
        found = api.list_namespaced_custom_object("jobset.x-k8s.io", "v1alpha2", self.namespace, "jobsets")
        return list(found["items"])  # type: ignore[index]

    def follow(self, job: str, file: Path) -> subprocess.Popen[bytes]:
        """`pulumi-trainer logs -f` of a job, into a file."""
        argv = ["pulumi-trainer", "logs", "--follow", "--stack", self.stack, job]
        with file.open("wb") as out:
            return subprocess.Popen(argv, cwd=self.folder, env=self.environment, stdout=out, stderr=out)


def example(name: str, folder: Path, home: Path, core: client.CoreV1Api, settings: Mapping[str, str]) -> Example:
    """`examples/NAME` with a new stack. settings: of the stack."""
    shutil.copytree(ROOT / "examples" / name, folder)
    (folder / "state").mkdir()
    made = Example(folder, home, name=name, stack="cluster")
    made.core, made.namespace = core, settings["trainer:namespace"]
    assert made.run("stack", "init").code == 0
    for key, value in settings.items():
        made.config(key, value)
    return made


def plain(printed: str) -> str:
    """Lines of `logs` without the name of their pod."""
    return re.sub(r"^\S+ ", "", printed, flags=re.MULTILINE)
