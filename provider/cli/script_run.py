"""`run`: runs a script once in a temporary stack, and prints the program that would keep its job."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pulumi_trainer.provider.cli import outputs
from pulumi_trainer.provider.cli.destinations import open_destination
from pulumi_trainer.provider.cli.logs import print_logs
from pulumi_trainer.provider.cli.output_copy import ends_on_signals
from pulumi_trainer.provider.cli.temporary_stack import PROJECT, TemporaryStack
from pulumi_trainer.provider.jobs.identity import job_name
from pulumi_trainer.provider.jobs.status import JobStatus, Phase
from pulumi_trainer.provider.kubernetes.errors import Invalid, NotFound, Problem, TargetFault, TrainerError
from pulumi_trainer.provider.kubernetes.terminal import print_line, print_lines
from pulumi_trainer.provider.kubernetes.values.quantity import format_bytes
from pulumi_trainer.provider.kubernetes.values.wording import did_you_mean, duration, plural
from pulumi_trainer.provider.service import operations
from pulumi_trainer.provider.service.jobs import open_cluster, read_states
from pulumi_trainer.provider.service.logs import Selection
from pulumi_trainer.provider.service.outputs import find_output
from pulumi_trainer.provider.service.reach import ReachedJob, Where
from pulumi_trainer.provider.service.stack import pulumi_command

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

_ROOT = ".pulumi-trainer"
"""Folder of jobs on this machine, below the current folder."""
_LONGEST_NAME = 27
"""Characters of a script's name in the name of its job, which may have 33."""
INTERRUPTED = 130
"""Exit code after Ctrl-C."""
_STARTED = (Phase.RUNNING, Phase.RESTARTING)
_ENDED = (Phase.SUCCEEDED, Phase.FAILED, Phase.DELETED, Phase.UNKNOWN)
_INTERVAL = 0.5
"""Seconds between two reads of a status."""
_ABOUT_PROGRAM = (
    "`pulumi-trainer run` has made this program. Files of source= that a .gitignore names stay behind; what requirements.txt,"
    " uv.lock or pyproject.toml there names is installed:"
)
_LOG_FILE = re.compile(r"^log: .*\n?", re.MULTILINE)
"""Line of a message with a file that is removed with the job."""
_NOTED_AFTER = 2.0
"""Seconds that a job waits until the first note, and at least between two notes, about what it waits for."""


@dataclass(frozen=True)
class Script:
    """A script and how it is started.

    Args:
        source: Folder whose files travel with it; empty for the folder of the script.
        processes: Processes of a node; None for the default of `CustomTrainer`.
    """

    file: Path
    source: Path | None = None
    arguments: tuple[str, ...] = ()
    nodes: int = 1
    processes: int | None = None
    gpus: int = 0
    runtime: str = "torch-distributed"

    @property
    def folder(self) -> Path:
        """Return the folder whose files travel."""
        return (self.source or self.file.parent).absolute()

    @property
    def resource(self) -> str:
        """Return the name of the job's resource."""
        stem = re.sub(r"[^A-Za-z0-9]+", "-", self.file.stem).strip("-")
        return stem[:_LONGEST_NAME].strip("-") or "script"

    def check(self) -> None:
        """Check that the script is a file of its folder."""
        if not self.file.is_file():
            why = "is a folder" if self.file.is_dir() else "no such file"
            raise Invalid(Problem(str(self.file), why, did_you_mean(self.file.name, _scripts_beside(self.file))))
        if self.source is not None and not self.source.is_dir():
            raise Invalid(Problem("--source", f"no such folder: {self.source}"))
        if not self._place.is_relative_to(self.folder.resolve()):
            raise Invalid(Problem("--source", f"{self.file} is not in {self.source}", "give a folder that contains it"))

    @property
    def _place(self) -> Path:
        """Return the path of the script; the script itself may be a link."""
        return self.file.parent.resolve() / self.file.name

    def program(self, folder: str, output: str = "True", target: str = "") -> str:
        """Return the program of a job that runs the script.

        Args:
            target: Argument `target` of the TrainJob; empty for that of the configuration.
        """
        code: dict[str, object] = {
            "source": folder,
            "script": self._place.relative_to(self.folder.resolve()).as_posix(),
            "args": [*self.arguments],
            "requirements": _requirements_of(self.folder),
            "num_nodes": self.nodes,
            "num_proc_per_node": self.processes,
            "resources_per_node": {"gpu": self.gpus} if self.gpus else None,
        }
        job = {"runtime": json.dumps(self.runtime), "trainer": "code", "output": output, "target": target}
        given = ", ".join(f"{name}={json.dumps(value)}" for name, value in code.items() if value)
        of_job = ", ".join(f"{name}={value}" for name, value in job.items() if value)
        return (
            "import pulumi_trainer as trainer\n"
            f"code = trainer.CustomTrainer({given})\n"
            f"trainer.TrainJob({json.dumps(self.resource)}, {of_job})\n"
        )


def _scripts_beside(file: Path) -> list[str]:
    """Return the names of the Python files in the folder of a file."""
    if not file.parent.is_dir():
        return []
    return [each.name for each in file.parent.glob("*.py")]


def _requirements_of(folder: Path) -> str:
    """Return the file with the requirements of a project; empty if it has none."""
    for name in ("requirements.txt", "uv.lock"):
        if (folder / name).is_file():
            return name
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8")).get("project")
    except (OSError, ValueError):
        return ""
    if isinstance(project, dict) and project.get("dependencies"):
        return "pyproject.toml"
    return ""


def run(script: Script, where: Where, copy: str = "") -> int:
    """Run a script until it ends, and return the exit code: 0 if it has succeeded, 1 if it has failed, 130 after Ctrl-C.

    Args:
        where: The options that name a cluster; without any, it runs on this machine.
        copy: Folder or s3://BUCKET/PREFIX to which its output is copied at the end; empty for none.
    """
    script.check()
    pulumi_command([], None)
    if copy:
        with open_destination(copy, "", overwrite=False):  # rather refused now than after the training
            pass
    stack = TemporaryStack(f"run-{secrets.token_hex(3)}")
    name = job_name(script.resource, PROJECT, stack.name)
    if where.cluster:
        client, namespace = open_cluster(where)
        job, target = ReachedJob(namespace, name, client=client), ""
        configuration = {"trainer:target": "kubernetes", "trainer:namespace": namespace}
        if where.context:
            configuration["trainer:context"] = where.context
        _status_of(job)  # loads the client: one whose loading Ctrl-C has interrupted could not end the job
    else:
        from pulumi_trainer.provider.targets.local import LocalTarget

        root = Path(_ROOT).absolute()
        job, configuration = ReachedJob("default", name, local=LocalTarget(root)), {}
        target = f"trainer.Local(root={json.dumps(str(root))})"
    program = script.program(str(script.folder), _output_of(job, copy), target)
    with ends_on_signals():
        return _run_in(stack, configuration, job, script, program, copy)


def _output_of(job: ReachedJob, copy: str) -> str:
    """Return the argument `output` of a job: it stays on this machine if it is not copied; in a cluster only a copy needs it."""
    if copy:
        return "True"
    if job.local is not None:
        return "trainer.OutputVolume(retain=True)"
    return ""


def _run_in(
    stack: TemporaryStack, configuration: Mapping[str, str], job: ReachedJob, script: Script, program: str, copy: str
) -> int:
    """Run a job until it ends, remove its stack, and return the exit code."""
    stack.create(program, configuration)
    try:
        _start(stack, program)
        code, result = _follow(job)
        kept = _keep_output(job, copy)
        stack.destroy()
    finally:
        if stack.exists:
            print_line(
                f"pulumi-trainer: {job.name} is not removed, and may run. To remove it: {stack.removal}", error=True
            )
    settings = "".join(f"; `pulumi config set {name} {shlex.quote(value)}`" for name, value in configuration.items())
    again = script.program(os.path.relpath(script.folder), "True" if copy or job.local else "")
    rows = [kept, f"To keep this job, in a Pulumi project in {Path.cwd()}{settings}:", *again.splitlines()]
    print_lines(filter(None, rows), error=True)
    print_line(result, error=True)
    return code


def _start(stack: TemporaryStack, program: str) -> None:
    """Create the job of a stack; if its plan has problems, what was created is removed."""
    try:
        stack.up()
    except (TrainerError, KeyboardInterrupt, SystemExit) as error:
        if isinstance(error, TrainerError):
            print_lines([_ABOUT_PROGRAM, *program.splitlines()], error=True)
        try:
            stack.destroy()
        except TrainerError as another:
            print_line(f"error: {another}", error=True)
        raise


def _follow(job: ReachedJob) -> tuple[int, str]:
    """Print the log of a job until it has ended, and return the exit code and how it has ended. Ctrl-C ends the job."""
    try:
        _wait_until(job, (*_STARTED, *_ENDED))
        print_logs([job], Selection(follow=True))
        _wait_until(job, _ENDED)
    except (KeyboardInterrupt, SystemExit, BrokenPipeError) as error:
        print_line(f"pulumi-trainer: ending {job.name}; Ctrl-C again leaves it", error=True)
        _stop(job)
        code = error.code if isinstance(error, SystemExit) else None
        return code if isinstance(code, int) else INTERRUPTED, f"{job.name} was ended"
    return _result(job)


def _wait_until(job: ReachedJob, phases: Collection[Phase]) -> None:
    """Wait until a job is in one of several phases, or gone, and print what it waits for; an API server may be away meanwhile."""
    shown, again = "", time.monotonic() + _NOTED_AFTER
    while True:
        try:
            status = _status_of(job)
            if status is None or Phase(status.phase) in phases:
                return
            now = f"{job.name} is {_shown(status)}"
        except TargetFault as error:
            now = str(error)
        if now != shown and time.monotonic() > again:
            print_line(f"pulumi-trainer: {now}", error=True)
            shown, again = now, time.monotonic() + _NOTED_AFTER
        time.sleep(_INTERVAL if job.local is not None else _NOTED_AFTER)


def _shown(status: JobStatus) -> str:
    """Return phase, reason and message of a job, without the file of its log, which is removed with it."""
    phase = f"{status.phase} ({status.reason})" if status.reason else status.phase
    return ": ".join(filter(None, [phase, _LOG_FILE.sub("", status.message)]))


def _status_of(job: ReachedJob) -> JobStatus | None:
    """Return the status of a job; None if it is gone."""
    with suppress(NotFound):
        (state,) = read_states([job])
        return state.status
    return None


def _stop(job: ReachedJob) -> None:
    """End a job within its grace period, unless it has ended."""
    status = _status_of(job)
    if status is not None and not status.terminal:
        operations.apply("stop", replace(job, owner=status.whose))


def _keep_output(job: ReachedJob, copy: str) -> str:
    """Copy the output of a job that has ended, or leave it where it is, and return where it is; empty if it has no files."""
    (state,) = read_states([job])
    found = find_output(state, "", "")
    if found is None or found.output is None:
        return ""
    if copy:
        return outputs.copy_output(found, outputs.Copying(copy))[1]
    if not found.output.files:
        _remove_volume(job, found.where)
        return ""
    files = f"{plural(found.output.files, 'file')}, {format_bytes(found.output.size)}"
    return f"output: {os.path.relpath(found.where)} ({files})"


def _remove_volume(job: ReachedJob, path: str) -> None:
    """Remove the empty output volume of a job of this machine, since the stack retains it. path: A folder in it."""
    assert job.local is not None
    claim = Path(path).relative_to(job.local.root / "volumes" / job.namespace).parts[0]
    known = job.local.volumes.find(job.namespace, claim)
    if known is not None:
        job.local.volumes.delete(job.namespace, claim, known[0]["generation"])


def _result(job: ReachedJob) -> tuple[int, str]:
    """Return the exit code for a job that has ended, and how it has ended."""
    status = _status_of(job)
    if status is None:
        return 1, f"error: {job.name} was deleted while it ran"
    if status.phase == Phase.SUCCEEDED:
        took = duration(status.finished - status.created)
        return 0, ", ".join(filter(None, [f"{job.name} has succeeded after {took}", status.note]))
    return 1, f"error: {job.name} is {_shown(status)}"
