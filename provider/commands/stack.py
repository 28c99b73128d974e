"""`status`, `logs` and `render` of the jobs of the current stack.

Reads the stack's state through the Pulumi CLI and asks the targets.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.api.errors import Invalid, Problem, TargetFault
from pulumi_trainer.provider.api.status import JobStatus, Phase, describe, duration
from pulumi_trainer.provider.targets.connection import connect
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_TYPE = "pulumi-python:dynamic/trainer:JobSet"
_COLOURS = {Phase.SUCCEEDED: "green", Phase.FAILED: "red", Phase.DELETED: "red", Phase.RUNNING: "cyan"}


@dataclass(frozen=True)
class StackJob:
    """A job as the state of the stack has it."""

    resource: str
    component: str
    inputs: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.inputs["name"])

    @property
    def namespace(self) -> str:
        return str(self.inputs["namespace"])

    def observe(self) -> JobStatus | None:
        """The job as its target sees it now."""
        return connect(self.inputs["target"]).status(self.namespace, self.name)


def status(job: str | None, stack: str | None, *, as_json: bool) -> None:
    """Prints what the jobs are doing: a table, or JSON."""
    rows = [(j, j.observe()) for j in jobs(stack, job)]
    if as_json:
        print(json.dumps([s.to_dict() if s else {"name": j.name, "phase": "Deleted"} for j, s in rows], indent=2))
        return
    out = Console()
    table = Table("job", "phase", "progress", "", "steps", "restarts", "seconds", box=None, pad_edge=False)
    for found, state in rows:
        table.add_row(*_row(found, state))
    out.print(table)
    for found, state in rows:
        if state and state.message and state.phase in (Phase.FAILED, Phase.DELETED):
            out.print(Text(f"\n{found.resource}: {state.reason}\n{state.message}"), soft_wrap=True)


def _row(job: StackJob, state: JobStatus | None) -> list[Any]:
    if state is None:
        return [job.resource, Text("Deleted", style="red"), "", "", "", "", ""]
    phase = Text(state.phase, style=_COLOURS.get(Phase(state.phase), "yellow"))
    if state.reason and not state.terminal:
        phase.append(f" {state.reason}", style="dim")
    percent = (state.progress or {}).get("progressPercentage")
    bar = ProgressBar(total=100, completed=percent, width=20) if percent is not None else ""
    end = state.finished or time.time()
    steps = ", ".join(f"{s.name} {s.succeeded or s.ready}/{s.count}" for s in state.steps)
    seconds = duration(end - state.started) if state.started else ""
    return [job.resource, phase, bar, describe(state, phase=False), steps, str(state.restarts or ""), seconds]


def logs(job: str | None, stack: str | None, *, follow: bool, step: str | None) -> None:
    """Prints what the containers have printed, each line with its pod; follow: until the jobs have ended."""
    chosen = jobs(stack, job)
    read: dict[Path, int] = {}
    while True:
        ended = all(s is None or s.terminal or s.phase == Phase.SUSPENDED for s in [j.observe() for j in chosen])
        for found in chosen:
            target = connect(found.inputs["target"])
            for pod, container, path in target.log_files(found.namespace, found.name, step):
                for line in _new_lines(path, read):
                    print(f"{pod} {line}" if container == "node" else f"{pod}/{container} {line}")
        sys.stdout.flush()
        if not follow or ended:
            return
        time.sleep(0.3)


def _new_lines(path: Path, read: dict[Path, int]) -> Iterator[str]:
    """Whole lines since the last call; a rotated file begins anew."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(read.get(path, 0) if size >= read.get(path, 0) else 0)
            data = file.read()
            whole = len(data) if not data or data.endswith(b"\n") else data.rfind(b"\n") + 1
            read[path] = file.tell() - len(data) + whole
            yield from data[:whole].decode(errors="replace").splitlines()
    except FileNotFoundError:
        return


def jobs(stack: str | None, wanted: str | None) -> list[StackJob]:
    """The jobs of the stack; those called `wanted`, if given."""
    state = _state(stack)
    resources = (state.get("deployment") or {}).get("resources") or []
    found = [
        StackJob(r["urn"].rpartition("::")[2], r.get("parent", ""), r["inputs"])
        for r in resources
        if r.get("type") == _TYPE and not r.get("delete")
    ]
    chosen = [j for j in found if wanted in (None, j.resource, j.name)]
    if wanted and not chosen:
        names = ", ".join(j.resource for j in found) or "none"
        raise Invalid(Problem(wanted, "no such job in the stack", f"it has: {names}"))
    return chosen


def _state(stack: str | None) -> dict[str, Any]:
    pulumi = shutil.which("pulumi")
    if pulumi is None:
        raise TargetFault(Problem("pulumi", "the Pulumi CLI is not on PATH", "run it through make, or install the CLI"))
    argv = [pulumi, "stack", "export", "--non-interactive", *(["--stack", stack] if stack else [])]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TargetFault(Problem("pulumi stack export", done.stderr.strip() or f"exit code {done.returncode}"))
    return dict(json.loads(done.stdout))
