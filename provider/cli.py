"""`pulumi-trainer`: status and logs of the jobs of the current stack, and rendering of documents.

Reads the stack's state through the Pulumi CLI and asks the targets; imports neither Pulumi nor a client of a cluster.
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
from typing import Annotated, Any

import typer
import yaml
from pulumi_trainer.provider.api.errors import Invalid, Problem, TargetFault, TrainerError
from pulumi_trainer.provider.api.status import JobStatus, Phase, describe, duration
from pulumi_trainer.provider.targets.connection import connect
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

app = typer.Typer(
    help="Jobs of the current stack, and rendering of documents.", no_args_is_help=True, add_completion=False,
    pretty_exceptions_enable=False,
)  # fmt: skip
out = Console()
_TYPE = "pulumi-python:dynamic/trainer:JobSet"
_COLOURS = {Phase.SUCCEEDED: "green", Phase.FAILED: "red", Phase.DELETED: "red", Phase.RUNNING: "cyan"}

JobArgument = Annotated[
    str | None, typer.Argument(help="Name of the resource or of the JobSet; default: all.", show_default=False)
]
StackOption = Annotated[str | None, typer.Option("--stack", "-s", help="Stack; default: the selected one.")]


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


@app.command()
def status(
    job: JobArgument = None, stack: StackOption = None, json_: Annotated[bool, typer.Option("--json")] = False
) -> None:
    """What the jobs of the current stack are doing."""
    rows = [(j, j.observe()) for j in _jobs(stack, job)]
    if json_:
        print(json.dumps([s.to_dict() if s else {"name": j.name, "phase": "Deleted"} for j, s in rows], indent=2))
        return
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


@app.command()
def logs(
    job: JobArgument = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    step: Annotated[str | None, typer.Option(help="Only this step, such as node or dataset-initializer.")] = None,
    stack: StackOption = None,
) -> None:
    """What the containers of the jobs have printed, each line with its pod."""
    jobs = _jobs(stack, job)
    read: dict[Path, int] = {}
    while True:
        ended = all(s is None or s.terminal or s.phase == Phase.SUSPENDED for s in [j.observe() for j in jobs])
        for found in jobs:
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


@app.command()
def render(
    job: JobArgument = None,
    file: Annotated[
        list[Path] | None, typer.Option("--file", "-f", help="Runtime and TrainJob documents (YAML).")
    ] = None,
    mode: Annotated[str, typer.Option(help="jobset, or trainer: exactly what the controller makes.")] = "jobset",
    stack: StackOption = None,
) -> None:
    """The objects of a job as YAML: of the stack, or of documents in files."""
    if mode not in ("jobset", "trainer"):
        raise Invalid(Problem("--mode", f"must be jobset or trainer, not {mode!r}"))
    objects = _rendered(file, mode) if file else [o for j in _jobs(stack, job) for o in j.inputs["objects"].values()]
    print(yaml.safe_dump_all(objects, sort_keys=False), end="")


def _rendered(files: list[Path], mode: Any) -> list[dict[str, Any]]:
    from pulumi_trainer.provider.admission import default_runtime, default_train_job
    from pulumi_trainer.provider.api import trainer as api
    from pulumi_trainer.provider.api.model import problems
    from pulumi_trainer.provider.pipeline import render as render_documents

    documents = [d for f in files for d in _documents(f)]
    found = [p.below(_name(d)) for d in documents for p in problems(_model(api, d), d)]
    if found:
        raise Invalid(*found)
    runtimes = {(d["kind"], d["metadata"]["name"]): d for d in documents if d["kind"] != "TrainJob"}
    objects: list[dict[str, Any]] = []
    for document in (d for d in documents if d["kind"] == "TrainJob"):
        reference = document["spec"]["runtimeRef"]
        key = (reference.get("kind", "ClusterTrainingRuntime"), reference["name"])
        runtime = runtimes.get(key) or _catalogue(key)
        rendered = render_documents(default_runtime(runtime), default_train_job(document), mode=mode)
        objects += rendered.objects.values()
    return objects


def _catalogue(key: tuple[str, str]) -> dict[str, Any]:
    from pulumi_trainer import runtimes

    return {**runtimes.load(key[1]), "kind": key[0]}


def _model(api: Any, document: dict[str, Any]) -> Any:
    return api.TrainJob if document.get("kind") == "TrainJob" else api.Runtime


def _name(document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    return f"{document.get('kind')}/{metadata.get('name') if isinstance(metadata, dict) else '?'}"


def _documents(file: Path) -> Iterator[dict[str, Any]]:
    try:
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            if document is not None:
                if not isinstance(document, dict):
                    raise Invalid(Problem(str(file), "holds a document that is no mapping"))
                yield document
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Invalid(Problem(str(file), f"cannot be read: {error}")) from None


def _jobs(stack: str | None, wanted: str | None) -> list[StackJob]:
    """The jobs of the stack; those called `wanted`, if given."""
    state = _state(stack)
    resources = (state.get("deployment") or {}).get("resources") or []
    jobs = [
        StackJob(r["urn"].rpartition("::")[2], r.get("parent", ""), r["inputs"])
        for r in resources
        if r.get("type") == _TYPE and not r.get("delete")
    ]
    chosen = [j for j in jobs if wanted in (None, j.resource, j.name)]
    if wanted and not chosen:
        names = ", ".join(j.resource for j in jobs) or "none"
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


def main() -> None:
    """Entry point: errors meant for the user are one line on stderr, exit code 1."""
    try:
        app()
    except TrainerError as error:
        Console(stderr=True).print(Text(f"error: {error}"), soft_wrap=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(0)


if __name__ == "__main__":
    main()
