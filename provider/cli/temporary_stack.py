"""The stack of one `pulumi-trainer run`, with project and state in a folder of the user's cache."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pulumi_trainer.provider.kubernetes.errors import Problem, Refused, TargetFault
from pulumi_trainer.provider.kubernetes.terminal import print_line, print_lines
from pulumi_trainer.provider.kubernetes.values.accessors import section, text
from pulumi_trainer.provider.machine.user_cache import cache_folder
from pulumi_trainer.provider.service.stack import pulumi_command

PROJECT = "run"
"""Name of the Pulumi project of all these stacks."""
_UP = ("up", "--yes", "--skip-preview", "--json")
_DESTROY = ("destroy", "--yes", "--skip-preview", "--json", "--remove")
_BACKEND, _PASSPHRASE = "PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE"


@dataclass(frozen=True)
class TemporaryStack:
    """A stack with a backend of its own."""

    name: str

    @property
    def folder(self) -> Path:
        """Return the folder of the project and its state."""
        return cache_folder() / "runs" / self.name

    @property
    def exists(self) -> bool:
        """Return whether the stack has not been removed."""
        return self.folder.exists()

    @property
    def removal(self) -> str:
        """Return the command that removes what the stack has created."""
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in self._backend().items())
        return f"cd {shlex.quote(str(self.folder))} && {settings} pulumi destroy --yes --remove --stack {self.name}"

    def create(self, program: str, configuration: Mapping[str, str]) -> None:
        """Write the project, and create the stack."""
        command = pulumi_command(["stack", "init", self.name, "--no-select"], None)
        settings = {"name": PROJECT, "runtime": "python", "config": dict(configuration)}
        try:
            (self.folder / "state").mkdir(parents=True, mode=0o700)
            (self.folder / "Pulumi.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
            (self.folder / "__main__.py").write_text(program, encoding="utf-8")
            self._run(command)
        except OSError as error:
            raise TargetFault(Problem(str(self.folder), f"cannot be written: {error.strerror}")) from None
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def up(self) -> None:
        """Create the resources of the program. Its warnings are printed."""
        self._run(pulumi_command(_UP, self.name))

    def destroy(self) -> None:
        """Delete the resources and the stack, and its folder. If something cannot be deleted, the stack stays."""
        self._run(pulumi_command(_DESTROY, self.name))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, command: list[str]) -> None:
        """Run a command of the Pulumi CLI in the project.

        The first Ctrl-C lets the command finish, since one that is interrupted may lose what it has just created.
        """
        output, errors = self.folder / "output", self.folder / "errors"
        with output.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self._environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip
        _wait(process)
        found = [*_diagnostics(output.read_text(encoding="utf-8", errors="replace"))]
        print_lines([text for severity, text in found if severity == "warning"], error=True)
        if process.returncode:
            reasons = [text for severity, text in found if severity == "error"]
            reasons = reasons or [errors.read_text(encoding="utf-8", errors="replace").strip().removeprefix("error: ")]
            raise Refused(Problem(" ".join(["pulumi", command[1]]), "\n".join(reasons)))

    def _backend(self) -> dict[str, str]:
        """Return the variables that name the state. It has no secrets, so its passphrase is empty."""
        return {_BACKEND: f"file://{self.folder / 'state'}", _PASSPHRASE: ""}

    def _environment(self) -> dict[str, str]:
        """Return the variables of the Pulumi CLI: settings of the user's other stacks do not count, and the program runs with the
        interpreter of this command.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PULUMI_")}
        if "PULUMI_HOME" in os.environ:
            kept["PULUMI_HOME"] = os.environ["PULUMI_HOME"]
        if kept.get("KUBECONFIG"):  # the program runs in another folder
            paths = map(os.path.abspath, filter(None, kept["KUBECONFIG"].split(os.pathsep)))
            kept["KUBECONFIG"] = os.pathsep.join(paths)
        path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
        return {**kept, **self._backend(), "PATH": path, "PULUMI_SKIP_UPDATE_CHECK": "1"}


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Wait for a command of the Pulumi CLI; Ctrl-C ends the wait when the command has ended, a second one interrupts both."""
    try:
        process.wait()
    except (KeyboardInterrupt, SystemExit):
        print_line("pulumi-trainer: waiting for Pulumi to finish; Ctrl-C again interrupts it", error=True)
        try:
            process.wait()
        except (KeyboardInterrupt, SystemExit):
            process.send_signal(signal.SIGINT)
            raise
        raise


def _diagnostics(output: str) -> Iterator[tuple[str, str]]:
    """Yield severity and text of each message in the events that `--json` prints, one a line."""
    for line in output.splitlines():
        with suppress(ValueError):
            event: Any = json.loads(line)
            found = section(event, "diagnosticEvent")
            if found:
                yield text(found.get("severity")), text(found.get("message")).strip()
