"""Runs one pod: init containers in order, sidecars beside, containers together, restarts in place, and its end.

The kubelet's part.
"""

from __future__ import annotations

import math
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from pulumi_trainer.provider.api import code
from pulumi_trainer.provider.targets.local import process
from pulumi_trainer.provider.targets.local.failure import Failure, read_error_file
from pulumi_trainer.provider.targets.local.jobset import Exit
from pulumi_trainer.provider.targets.local.logs import Log, Pipe
from pulumi_trainer.provider.targets.local.paths import inside
from pulumi_trainer.provider.targets.local.plan import ContainerPlan, PodPlan

CONTAINER_BACKOFF_MAX = 30.0
"""In units of the first back-off: 5 minutes to 10 seconds."""
BACKOFF_FORGOTTEN = 60.0
"""In the same units: a container that ran for 10 minutes begins again with the first back-off."""


@dataclass(frozen=True)
class Tuning:
    """backoff: seconds after a first failure (a tenth of Kubernetes'). settle: seconds to see who else fails before the
    rest is ended. log_bytes, log_files: of each container.
    """

    backoff: float = 1.0
    settle: float = 1.0
    log_bytes: int = 16 << 20
    log_files: int = 3


class Pumps(Protocol):
    """Reads pipes when there is something to read."""

    def add(self, pipe: Pipe) -> None: ...
    def drop(self, pipe: Pipe) -> None: ...


class Mask(Protocol):
    """Hides secrets in a text; cut: the text is the end of a longer one."""

    def __call__(self, text: str, *, cut: bool = False) -> str: ...


@dataclass(frozen=True)
class Surroundings:
    """What a pod needs of its job. processes: the file in which starts are noted. umask: of its processes. mask: hides the
    job's secrets."""

    logs: Path
    errors: Path
    processes: Path
    pumps: Pumps
    tuning: Tuning
    umask: int
    mask: Mask
    on_line: Callable[[bytes], None] | None = None


class Container:
    """One container of a pod, over all its attempts."""

    def __init__(self, plan: ContainerPlan, pod: PodPlan, around: Surroundings) -> None:
        self.plan, self._pod, self._around = plan, pod, around
        self.code: int | None = None
        self.attempts = 0
        self.restart_at = 0.0
        self.failure: Failure | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pipes: list[Pipe] = []
        self._started = 0.0
        self._streak = 0
        log = inside(around.logs, pod.name, f"{plan.name}.log")
        self._log = Log(log, around.tuning.log_bytes, around.tuning.log_files)
        self.error_file = inside(around.errors, f"{pod.name}-{plan.name}.json")
        self._installed_file = inside(around.errors, f"{pod.name}-{plan.name}.installed")
        self._installed = False

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def restarts(self) -> int:
        return max(0, self.attempts - 1)

    @property
    def installing(self) -> Sequence[str]:
        """The packages that are installed before its work begins; none once that has begun, with MPI on one of the nodes."""
        if not self._installed:
            nodes = self._around.errors.glob("*.installed") if self.plan.across else ()
            self._installed = self._installed_file.exists() or any(True for _ in nodes)
        return self.plan.packages if self.running and not self._installed else ()

    def start(self, now: float) -> None:
        self.attempts += 1
        self.code, self._started = None, now
        self._log.begin()
        for file in (self.error_file, self._installed_file):
            file.unlink(missing_ok=True)
        self._installed = not self.plan.packages
        if self.attempts > 1:
            self._log.note(f"pulumi-trainer: attempt {self.attempts}\n".encode())
        ours = {"TORCHELASTIC_ERROR_FILE": str(self.error_file), code.INSTALLED_ENV: str(self._installed_file)}
        env = {**ours, **self.plan.env}
        try:
            self._process = process.start(self.plan.argv, env, self.plan.cwd, self._around.umask)
        except (OSError, ValueError) as error:
            self._cannot_start(error, now)
            return
        process.note(self._around.processes, self._process.pid)
        assert self._process.stdout and self._process.stderr
        rank0 = self._around.on_line if self.plan.kind == "main" else None
        self._pipes = [
            Pipe(self._process.stdout.fileno(), self._log, rank0),
            Pipe(self._process.stderr.fileno(), self._log),
        ]
        for pipe in self._pipes:
            self._around.pumps.add(pipe)

    def _cannot_start(self, error: Exception, now: float) -> None:
        said = f"{self.plan.argv[0]}: {error}"
        if isinstance(error, OSError):
            said = f"{error.filename or self.plan.argv[0]}: {error.strerror or error}"
        self._log.note(f"pulumi-trainer: cannot start {said}\n".encode())
        self._ended(127 if isinstance(error, FileNotFoundError) else 126, now, f"cannot start {said}")

    def look(self, now: float, patient: bool) -> None:
        """Notices that the process has ended, and then ends what it has left behind.

        patient: it was told to end, so the rest of its group has the grace period as well (a shell ends at once, and the
        training that it started has something to save).
        """
        if self._process is None or not process.has_ended(self._process):
            return
        if patient and process.group_lives(self._process.pid):
            return
        process.signal_group(self._process.pid, signal.SIGKILL)
        returncode = self._process.wait()
        process.kill_marked(self.plan.env[process.MARK])
        for pipe in self._pipes:
            self._around.pumps.drop(pipe)
            pipe.drain()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream
            stream.close()
        self._process, self._pipes = None, []
        self._ended(process.exit_code(returncode), now)

    def _ended(self, code: int, now: float, said: str = "") -> None:
        self.code = code
        if now - self._started >= BACKOFF_FORGOTTEN * self._around.tuning.backoff:
            self._streak = 0
        wait = self._around.tuning.backoff * min(2.0**self._streak, CONTAINER_BACKOFF_MAX)
        self._streak += 1
        self.restart_at = now + wait
        if code:
            mask, (traceback, noted_at) = self._around.mask, read_error_file(self.error_file)
            self.failure = Failure(
                step=self._pod.step,
                pod=self._pod.name,
                index=self._pod.index,
                container=self.plan.name,
                code=code,
                at=now,
                ran=now - self._started,
                tail=mask(self._log.tail.decode(errors="replace"), cut=self._log.tail_is_cut),
                traceback=mask(traceback),
                noted_at=noted_at,
                log=self._log.path,
                said=mask(said),
            )

    def signal(self, number: int) -> None:
        if self._process is not None:
            process.signal_group(self._process.pid, number)

    def close(self) -> None:
        self._log.close()


@dataclass
class Outcome:
    """What became of a pod. ended: by us, so it is neither a success nor a failure."""

    succeeded: bool = False
    ended: bool = False
    exits: list[Exit] = field(default_factory=list)


class PodRunner:
    """A pod, from its first init container to its end."""

    def __init__(self, plan: PodPlan, around: Surroundings, now: float) -> None:
        self.plan = plan
        self.started = now
        self.done: Outcome | None = None
        self.containers = [Container(c, plan, around) for c in plan.containers]
        self._inits = [c for c in self.containers if c.plan.kind != "main"]
        self._mains = [c for c in self.containers if c.plan.kind == "main"]
        self._outcome: Outcome | None = None
        self._kill_at = math.inf
        self._stage: Literal["init", "main"] = "init"

    @property
    def ready(self) -> bool:
        return (
            self._outcome is None and self._stage == "main" and all(c.running and not c.installing for c in self._mains)
        )

    @property
    def restarts(self) -> int:
        """Restarts of containers, those included that are waiting for their back-off."""
        return sum(c.restarts + self._pending(c) for c in self.containers)

    @property
    def restarted(self) -> int:
        return sum(c.restarts for c in self.containers)

    @property
    def waits_until(self) -> float:
        """When the back-off of a container ends; 0 where none waits."""
        return min((c.restart_at for c in self.containers if self._pending(c)), default=0.0)

    @property
    def failures(self) -> list[Failure]:
        return [c.failure for c in self.containers if c.failure]

    @property
    def ending(self) -> bool:
        return self._outcome is not None

    def _pending(self, container: Container) -> bool:
        """It has failed and waits to be restarted."""
        again = self.plan.restarts_in_place or container.plan.kind == "sidecar"
        failed = container.code is not None and (container.code != 0 or container.plan.kind == "sidecar")
        return self._outcome is None and again and failed

    def stop(self, now: float, grace: float | None = None) -> None:
        """TERM now, KILL after the grace period."""
        self._finish(Outcome(ended=True), now, grace)

    def step(self, now: float) -> None:
        """Goes on as far as it can without waiting."""
        patient = self._outcome is not None and now < self._kill_at
        for container in self.containers:
            container.look(now, patient)
        if self._outcome is None and now - self.started >= self.plan.deadline:
            self._finish(Outcome(exits=self._exits()), now)
        if self._outcome is None and self._stage == "init":
            self._init(now)
        if self._outcome is None and self._stage == "main":
            self._main(now)
        if self._outcome is not None:
            self._end(now)

    def _init(self, now: float) -> None:
        for container in self._inits:
            if container.plan.kind == "sidecar":
                self._keep(container, now)
            elif container.code != 0:
                if container.code is None and not container.running:
                    container.start(now)
                elif container.code is not None and not self._again(container, now):
                    self._finish(Outcome(exits=self._exits()), now)
                return
        self._stage = "main"

    def _main(self, now: float) -> None:
        for container in self._inits:
            if container.plan.kind == "sidecar":
                self._keep(container, now)
        for container in self._mains:
            if container.code is None and not container.running:
                container.start(now)
            elif container.code and self.plan.restarts_in_place:
                self._again(container, now)
        if all(c.code is not None and (c.code == 0 or not self.plan.restarts_in_place) for c in self._mains):
            exits = self._exits()
            self._finish(Outcome(succeeded=not exits, exits=exits), now)

    def _keep(self, sidecar: Container, now: float) -> None:
        if not sidecar.running and (sidecar.code is None or now >= sidecar.restart_at):
            sidecar.start(now)

    def _again(self, container: Container, now: float) -> bool:
        """Restarts it when its back-off is over; False: its pod does not restart containers."""
        if self.plan.restarts_in_place and now >= container.restart_at:
            container.start(now)
        return self.plan.restarts_in_place

    def _exits(self) -> list[Exit]:
        ended = [c for c in (*self._mains, *self._inits) if c.plan.kind != "sidecar" and c.code]
        return [Exit(c.plan.name, c.code or 0) for c in ended]

    def _finish(self, outcome: Outcome, now: float, grace: float | None = None) -> None:
        """The outcome stands; what still runs is ended first. Again with a grace: only sooner."""
        first = self._outcome is None
        if not first and grace is None:
            return
        self._outcome = self._outcome or outcome
        self._kill_at = min(self._kill_at, now + (self.plan.grace if grace is None else grace))
        for container in self.containers if first else []:
            container.signal(signal.SIGTERM)

    def _end(self, now: float) -> None:
        if now >= self._kill_at:
            for container in self.containers:
                container.signal(signal.SIGKILL)
        if not any(c.running for c in self.containers):
            for container in self.containers:
                container.close()
            self.done = self._outcome
