"""Real Pulumi engine: every test has a project, a backend and a target folder of its own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from pulumi_trainer.provider.jobs.submission import from_state
from pulumi_trainer.provider.targets.local import LocalTarget

PINNED = {"PIP_CONSTRAINT": str(Path(__file__).parents[1] / "constraints.txt")}
"""Variables with which jobs install the same versions in each run of the tests."""

SECRET = "4dabf18193072939515e22adb298388d"
"""The key by which Pulumi marks special values in a state; of outputs, secrets."""

HEAD = """
import pulumi
import pulumi_trainer as trainer

plain = trainer.ClusterTrainingRuntime(
    "plain",
    ml_policy=trainer.PlainPolicy(num_nodes=1),
    template=trainer.JobSetTemplate(
        replicated_jobs=[
            trainer.ReplicatedJob(name="node", backoff_limit=0, pod_spec={
                "restart_policy": "Never",
                "termination_grace_period_seconds": 1,
                "containers": [{"name": "node", "image": "python:3.12"}],
            })
        ]
    ),
)
"""


@dataclass
class Result:
    """One run of the CLI."""

    code: int
    out: str

    def __str__(self) -> str:
        return f"exit code {self.code}\n{self.out}"


@dataclass
class Project:
    """A Pulumi project in a folder of its own."""

    folder: Path
    home: Path
    name: str = "lab"
    stack: str = "test"
    env: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        keep = {k: v for k, v in os.environ.items() if not k.startswith("PULUMI")}
        return {
            **keep,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), keep["PATH"]]),
            "PULUMI_HOME": str(self.home),
            "PULUMI_BACKEND_URL": f"file://{self.folder / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": "test",
            "PULUMI_SKIP_UPDATE_CHECK": "1",
            "PULUMI_DIY_BACKEND_GZIP": "0",
            **self.env,
        }

    def program(self, text: str, head: str = HEAD) -> None:
        (self.folder / "__main__.py").write_text(head + textwrap.dedent(text))

    def start(self, *args: str) -> subprocess.Popen[str]:
        argv = ["pulumi", *args, "--stack", self.stack, "--non-interactive"]
        # Python takes its bytecode for a program of the same size that is written within the same second.
        shutil.rmtree(self.folder / "__pycache__", ignore_errors=True)
        return subprocess.Popen(
            argv, cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def run(self, *args: str, timeout: float = 500) -> Result:
        process = self.start(*args)
        try:
            out, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, _ = process.communicate()
            pytest.fail(f"pulumi {' '.join(args)} did not end:\n{out}")
        return Result(process.returncode, out)

    def up(self, *args: str, ok: bool = True) -> Result:
        return self._expect(self.run("up", "--yes", "--skip-preview", *args), ok)

    def plain_up(self) -> Result:
        """Bring the stack up as the docs do: Pulumi previews it first."""
        return self._expect(self.run("up", "--yes"), True)

    def preview(self, *args: str, ok: bool = True) -> Result:
        return self._expect(self.run("preview", *args), ok)

    def destroy(self, *args: str, ok: bool = True) -> Result:
        return self._expect(self.run("destroy", "--yes", "--skip-preview", *args), ok)

    def refresh(self, *args: str, ok: bool = True) -> Result:
        return self._expect(self.run("refresh", "--yes", "--skip-preview", *args), ok)

    def config(self, key: str, value: str, *options: str) -> None:
        result = self.run("config", "set", *options, key, value)
        assert result.code == 0, result

    @staticmethod
    def _expect(result: Result, ok: bool) -> Result:
        if (result.code == 0) is not ok:
            pytest.fail(str(result))  # whole; an assertion would shorten it
        return result

    def export(self) -> dict[str, Any]:
        """Return what `pulumi stack export` prints, read from the state's file, which is a second faster."""
        backend = Path(self.environment["PULUMI_BACKEND_URL"].removeprefix("file://"))
        state = json.loads((backend / ".pulumi" / "stacks" / self.name / f"{self.stack}.json").read_text())
        return {"version": state["version"], "deployment": state["checkpoint"]["latest"] or {}}

    def outputs(self) -> dict[str, Any]:
        resources = self.export()["deployment"].get("resources") or []
        found = next((r.get("outputs", {}) for r in resources if r["type"] == "pulumi:pulumi:Stack"), {})
        if SECRET not in json.dumps(found):
            return dict(found)
        argv = ["pulumi", "stack", "output", "--json", "--show-secrets", "--stack", self.stack]
        done = subprocess.run(argv, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=True)
        return dict(json.loads(done.stdout))

    def resources(self, kind: str = "JobSet") -> list[dict[str, Any]]:
        found = self.export()["deployment"].get("resources") or []
        chosen = [r for r in found if r["type"].endswith(f":{kind}")]
        for resource in chosen:
            if "objects" in resource["inputs"]:
                resource["inputs"]["objects"] = from_state(resource["inputs"]["objects"])
        return chosen

    @property
    def root(self) -> Path:
        return self.folder / ".pulumi-trainer"

    @property
    def target(self) -> LocalTarget:
        return LocalTarget(self.root)

    def job(self, prefix: str) -> Any:
        """The status of the job whose name begins so."""
        return next((s for s in self.target.jobs.list_all() if s.name.startswith(prefix)), None)

    def logs(self, prefix: str) -> str:
        status = self.job(prefix)
        files = self.target.logs.files(status.namespace, status.name)
        return "".join(path.read_text(errors="replace") for _, _, path in files if path.exists())

    def stack_text(self) -> str:
        """Everything below the backend and the target's folder, as text."""
        return "\n".join(
            p.read_bytes().decode(errors="replace")
            for folder in (self.folder / "state", self.root)
            for p in sorted(folder.rglob("*"))
            if p.is_file() and not p.is_symlink()
        )

    def processes(self, word: str = "") -> list[psutil.Process]:
        """Processes that work for this project's jobs, those with `word` in their command."""
        found = []
        for process in psutil.process_iter():
            try:
                command = " ".join(process.cmdline())
                if str(self.root) in command and word in command and process.pid != os.getpid():
                    found.append(process)
            except psutil.Error:
                continue
        return found


def eventually(condition: Callable[[], Any], seconds: float = 120.0, what: str = "") -> Any:
    """The first true value of the condition."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.1)
    pytest.fail(f"did not happen in {seconds} s: {what or condition}")


@pytest.fixture(scope="session")
def pulumi_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert shutil.which("pulumi"), "the Pulumi CLI is not on PATH: run the tests through `make test`"
    return tmp_path_factory.mktemp("pulumi-home")


@cache
def _empty_stack(home: Path) -> Path:
    """Return the folder of a project with a new stack, which each test copies: `stack init` takes most of a second.

    It is no fixture, so that other folders only import `project` and `pulumi_home`.
    """
    made = Project(home.with_name(f"{home.name}-empty-stack"), home)
    (made.folder / "state").mkdir(parents=True)
    (made.folder / "Pulumi.yaml").write_text(yaml.safe_dump({"name": made.name, "runtime": "python", "main": "."}))
    result = made.run("stack", "init")
    assert result.code == 0, result
    return made.folder


def _selection(home: Path, folder: Path) -> Path:
    """Return the file in which Pulumi keeps the selected stack of a project."""
    digest = hashlib.sha1(str(folder / "Pulumi.yaml").encode()).hexdigest()
    return home / "workspaces" / f"lab-{digest}-workspace.json"


@pytest.fixture
def project(tmp_path: Path, pulumi_home: Path) -> Iterator[Project]:
    empty_stack = _empty_stack(pulumi_home)
    shutil.copytree(empty_stack, tmp_path, dirs_exist_ok=True)
    selected = _selection(pulumi_home, empty_stack).read_text().replace(str(empty_stack), str(tmp_path))
    _selection(pulumi_home, tmp_path).write_text(selected)  # newer CLIs select a stack for each backend
    made = Project(tmp_path, pulumi_home)
    yield made
    for status in made.target.jobs.list_all():
        made.target.jobs.delete(status.namespace, status.name)
    for process in made.processes():
        process.kill()
