"""Runs the processes of one pod, as the kubelet does: init containers, sidecars, containers, restarts in place, termination."""

from __future__ import annotations

import math
import signal
import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

import psutil
from pulumi_trainer.provider.jobs.observed_inputs import Observed, split_message
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.pod.code import with_user_tracebacks
from pulumi_trainer.provider.targets.local import process
from pulumi_trainer.provider.targets.local.failure import Failure, read_error_file
from pulumi_trainer.provider.targets.local.jobset_controller import Exit
from pulumi_trainer.provider.targets.local.logs import Log, Pipe
from pulumi_trainer.provider.targets.local.machine import kernel_oom_kills, quantity
from pulumi_trainer.provider.targets.local.paths import inside, read_beginning
from pulumi_trainer.provider.targets.local.plan import ContainerPlan, PodPlan
from pulumi_trainer.provider.targets.local.store import INSTALLED

CONTAINER_BACKOFF_MAX = 30.0
"""Maximum in units of the first back-off: 5 minutes to 10 seconds."""
BACKOFF_FORGOTTEN = 60.0
"""In the same units: after 10 minutes of running, a container starts again with the first back-off."""


_DEADLINE = "DeadlineExceeded: Pod was active on the node longer than the specified deadline"
"""Reason and message of the kubelet (`pkg/kubelet/active_deadline.go`)."""


@dataclass(frozen=True)
class Tuning:
    """Times and limits of a job.

    Attributes:
        backoff: Seconds after a first failure, a tenth of Kubernetes'.
        settle: Seconds between the failure of a job and the termination of its other processes, in which others may fail too.
    """

    backoff: float = 1.0
    settle: float = 1.0
    log_bytes: int = 16 << 20
    log_files: int = 3

    @property
    def bytes_of_container(self) -> int:
        """Return the bytes of all log files of a container."""
        return self.log_bytes * self.log_files

    def with_log_bytes(self, total: int) -> Tuning:
        """Return the same with another size of all log files of a container."""
        return replace(self, log_bytes=total // self.log_files)


class Pumps(Protocol):
    """Reads pipes when they have data."""

    def add(self, pipe: Pipe) -> None: ...

    def drop(self, pipe: Pipe) -> None: ...


_LONGEST_REPORT = 4096
"""Bytes of what a container reports, as of a termination message."""


class Mask(Protocol):
    """Hides secrets in a text, which is the end of a longer one if `cut`."""

    def __call__(self, text: str, *, cut: bool = False) -> str: ...


@dataclass(frozen=True)
class PodContext:
    """What a pod needs from its job. on_line: Receives each line with a `trainerStatus`; None if the pod is not rank 0."""

    logs: Path
    errors: Path
    pumps: Pumps
    tuning: Tuning
    umask: int
    mask: Mask
    on_line: Callable[[bytes], None] | None = None


class ContainerProcess:
    """One container of a pod, with all its attempts."""

    def __init__(self, plan: ContainerPlan, pod: PodPlan, context: PodContext) -> None:
        self.plan, self._pod, self._context = plan, pod, context
        self.code: int | None = None
        self.attempts = 0
        self.restart_at = 0.0
        self.failure: Failure | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pipes: list[Pipe] = []
        self._started = 0.0
        self._verdict = ""
        self.memory_limit = int(quantity(plan.memory_limit))
        self._memory_limit_reached = False
        self._oom_kills = 0
        self._streak = 0
        log = inside(context.logs, pod.name, f"{plan.name}.log")
        self._log = Log(log, context.tuning.log_bytes, context.tuning.log_files)
        self.error_file = inside(context.errors, f"{pod.name}-{plan.name}.json")
        self._installed_file = inside(context.errors, f"{pod.name}-{plan.name}{INSTALLED}")
        self._installed = False
        self._report_file = inside(context.errors, f"{pod.name}-{plan.name}.report")

    @property
    def observed(self) -> Observed | None:
        """Return what the container has reported of the inputs of its run; None if it has not, or never does."""
        if not self.plan.reports:
            return None
        with suppress(OSError):
            report = read_beginning(self._report_file, _LONGEST_REPORT).decode(errors="replace")
            if report.endswith("\n"):  # else it is being written
                return split_message(report)[0]
        return None

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def leader(self) -> int:
        """Return the pid of the first process; 0 if none runs."""
        if self._process is None:
            return 0
        return self._process.pid

    @property
    def restarts(self) -> int:
        return max(0, self.attempts - 1)

    @property
    def installing(self) -> Sequence[str]:
        """Return the packages that are being installed; none after user code has started, with MPI on any node."""
        if not self._installed:
            on_a_node = self.plan.across and any(True for _ in self._context.errors.glob(f"*{INSTALLED}"))
            self._installed = self._installed_file.exists() or on_a_node
        if not self.running or self._installed:
            return ()
        return self.plan.packages

    @property
    def install_progress(self) -> str:
        """Return what the installation does at the moment, with MPI on any node; empty if unknown."""
        files: Iterable[Path] = [self._installed_file.with_suffix(code.INSTALLING)]
        if self.plan.across:
            files = self._context.errors.glob(f"*{code.INSTALLING}")
        for file in files:
            with suppress(OSError):
                return read_beginning(file, 200).decode(errors="replace")
        return ""

    def start(self, now: float) -> None:
        self.attempts += 1
        self.code, self._started = None, now
        self._memory_limit_reached, self._oom_kills = False, kernel_oom_kills()
        self._log.begin_attempt()
        for file in (
            self.error_file,
            self._report_file,
            self._installed_file,
            self._installed_file.with_suffix(code.INSTALLING),
        ):
            file.unlink(missing_ok=True)
        self._installed = not self.plan.packages
        if self.attempts > 1:
            self._log.write_note(f"pulumi-trainer: attempt {self.attempts}\n".encode())
        own = {
            "TORCHELASTIC_ERROR_FILE": str(self.error_file),
            code.INSTALLED_ENV: str(self._installed_file),
            code.REPORT_ENV: str(self._report_file),
        }
        env = {**own, **self.plan.env}
        try:
            self._process = process.start(self.plan.argv, env, self.plan.cwd, self._context.umask, self.plan.isolated)
        except (OSError, ValueError) as error:
            self._cannot_start(error, now)
            return
        assert self._process.stdout and self._process.stderr
        on_line: Callable[[bytes], None] | None = None
        if self.plan.kind == "main":
            on_line = self._context.on_line
        self._pipes = [
            Pipe(self._process.stdout.fileno(), self._log, on_line),
            Pipe(self._process.stderr.fileno(), self._log),
        ]
        for pipe in self._pipes:
            self._context.pumps.add(pipe)

    def _cannot_start(self, error: Exception, now: float) -> None:
        start_error = f"{self.plan.argv[0]}: {error}"
        if isinstance(error, OSError):
            start_error = f"{error.filename or self.plan.argv[0]}: {error.strerror or error}"
        self._log.write_note(f"pulumi-trainer: cannot start {start_error}\n".encode())
        exit_code = 126
        if isinstance(error, FileNotFoundError):
            exit_code = 127
        self._record_end(exit_code, now, f"cannot start {start_error}")

    def poll(self, now: float, wait_for_group: bool) -> None:
        """Detect the end of the process, then kill the processes that it has left.

        Args:
            wait_for_group: Whether to wait for its process group: after SIGTERM, a shell ends immediately, while its training
                may need the grace period to save a checkpoint.
        """
        if self._process is None or not process.has_ended(self._process):
            return
        if wait_for_group and process.group_lives(self._process.pid):
            return
        process.signal_group(self._process.pid, signal.SIGKILL)
        returncode = self._process.wait()
        process.kill_marked(self.plan.env[process.MARK])
        for pipe in self._pipes:
            self._context.pumps.drop(pipe)
            pipe.drain()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream
            stream.close()
        self._process, self._pipes = None, []
        number = process.ended_by(returncode, isolated=bool(self.plan.isolated))
        self._record_end(process.exit_code(returncode), now, ended_by=number)

    def _record_end(self, code: int, now: float, start_error: str = "", ended_by: int = 0) -> None:
        self.code = code
        if now - self._started >= BACKOFF_FORGOTTEN * self._context.tuning.backoff:
            self._streak = 0
        wait = self._context.tuning.backoff * min(2.0**self._streak, CONTAINER_BACKOFF_MAX)
        self._streak += 1
        self.restart_at = now + wait
        if code or self._verdict:
            mask, (traceback, traceback_at) = self._context.mask, read_error_file(self.error_file)
            tail = mask(self._log.tail.decode(errors="replace"), cut=self._log.tail_is_cut)
            self.failure = Failure(
                step=self._pod.step,
                pod=self._pod.name,
                index=self._pod.index,
                container=self.plan.name,
                code=code,
                at=now,
                ran=now - self._started,
                tail=with_user_tracebacks(tail),
                traceback=with_user_tracebacks(mask(traceback)),
                traceback_at=traceback_at,
                log=self._log.path,
                start_error=mask(start_error),
                signal=ended_by,
                verdict=self._verdict,
                memory_limit=self.plan.memory_limit if self._memory_limit_reached else "",
                oom_kills=kernel_oom_kills() - self._oom_kills,
            )

    def set_verdict(self, verdict: str) -> None:
        """Set the reason of the failure of a container that has failed or is about to be killed."""
        self._verdict = verdict
        if self.failure is not None:
            self.failure = replace(self.failure, verdict=verdict)

    def kill_at_memory_limit(self, used: int, processes: Iterable[psutil.Process]) -> None:
        """Kill all processes of the container because they have more memory than its limit. processes: The processes, also
        those that have left its process group and overwritten their mark."""
        if not self._memory_limit_reached:
            self._memory_limit_reached = True
            reached = (
                f"memory limit {self.plan.memory_limit} reached: the container had {used >> 20} MiB, and was killed"
            )
            self._log.write_note(f"pulumi-trainer: {reached}\n".encode())
        self.signal(signal.SIGKILL)
        for each in processes:
            with suppress(psutil.Error):
                each.kill()

    def signal(self, number: int) -> None:
        if self._process is not None:
            process.signal_group(self._process.pid, number)

    @property
    def lost_bytes(self) -> int:
        """Return the bytes of output that could not be written."""
        return self._log.lost_bytes

    def close(self) -> None:
        self._log.close()


@dataclass
class Outcome:
    """The end of a pod. ended: Whether `PodRunner.stop` ended the pod, so that it has neither succeeded nor failed."""

    succeeded: bool = False
    ended: bool = False
    exits: list[Exit] = field(default_factory=list)


class PodRunner:
    """Runs a pod from its first init container to its end; `done` is its outcome."""

    def __init__(self, plan: PodPlan, context: PodContext, now: float) -> None:
        self.plan = plan
        self.started = now
        self.done: Outcome | None = None
        self.containers = [ContainerProcess(c, plan, context) for c in plan.containers]
        self._inits = [c for c in self.containers if c.plan.kind != "main"]
        self._mains = [c for c in self.containers if c.plan.kind == "main"]
        self._outcome: Outcome | None = None
        self._kill_at = math.inf
        self._stage: Literal["init", "main"] = "init"

    @property
    def ready(self) -> bool:
        """Return whether all containers run user code."""
        return (
            self._outcome is None and self._stage == "main" and all(c.running and not c.installing for c in self._mains)
        )

    @property
    def restarts(self) -> int:
        """Return the restarts of containers, including those that wait for their back-off."""
        return sum(c.restarts + self._pending(c) for c in self.containers)

    @property
    def restarted(self) -> int:
        """Return the restarts of containers that have happened."""
        return sum(c.restarts for c in self.containers)

    @property
    def next_restart_at(self) -> float:
        """Return when the next back-off of a container ends; 0 if no container waits."""
        return min((c.restart_at for c in self.containers if self._pending(c)), default=0.0)

    @property
    def lost_bytes(self) -> int:
        """Return the bytes of output that could not be written."""
        return sum(c.lost_bytes for c in self.containers)

    @property
    def failures(self) -> list[Failure]:
        """Return the newest failure of each container that has failed."""
        return [c.failure for c in self.containers if c.failure]

    @property
    def ending(self) -> bool:
        return self._outcome is not None

    def _pending(self, container: ContainerProcess) -> bool:
        again = self.plan.restarts_in_place or container.plan.kind == "sidecar"
        failed = container.code is not None and (container.code != 0 or container.plan.kind == "sidecar")
        return self._outcome is None and again and failed

    def stop(self, now: float, grace: float | None = None) -> None:
        """Send SIGTERM now, and SIGKILL after `grace` seconds; default: the grace period of the pod."""
        self._terminate(Outcome(ended=True), now, grace)

    def poll(self, now: float) -> None:
        """Process ended containers and start the next ones, without waiting."""
        wait_for_group = self._outcome is not None and now < self._kill_at
        for container in self.containers:
            container.poll(now, wait_for_group)
        if self._outcome is None and now - self.started >= self.plan.deadline:
            for container in self.containers:
                container.set_verdict(_DEADLINE)
            self._terminate(Outcome(exits=self._exits()), now)
        if self._outcome is None and self._stage == "init":
            self._run_init_containers(now)
        if self._outcome is None and self._stage == "main":
            self._run_main_containers(now)
        if self._outcome is not None:
            self._complete(now)

    def _run_init_containers(self, now: float) -> None:
        for container in self._inits:
            if container.plan.kind == "sidecar":
                self._restart_sidecar(container, now)
            elif container.code != 0:
                if container.code is None and not container.running:
                    container.start(now)
                elif container.code is not None and not self._restart_if_due(container, now):
                    self._terminate(Outcome(exits=self._exits()), now)
                return
        self._stage = "main"

    def _run_main_containers(self, now: float) -> None:
        for container in self._inits:
            if container.plan.kind == "sidecar":
                self._restart_sidecar(container, now)
        for container in self._mains:
            if container.code is None and not container.running:
                container.start(now)
            elif container.code and self.plan.restarts_in_place:
                self._restart_if_due(container, now)
        if all(c.code is not None and (c.code == 0 or not self.plan.restarts_in_place) for c in self._mains):
            exits = self._exits()
            self._terminate(Outcome(succeeded=not exits, exits=exits), now)

    def _restart_sidecar(self, sidecar: ContainerProcess, now: float) -> None:
        if not sidecar.running and (sidecar.code is None or now >= sidecar.restart_at):
            sidecar.start(now)

    def _restart_if_due(self, container: ContainerProcess, now: float) -> bool:
        """Restart a container after its back-off, and return whether its pod restarts containers."""
        if self.plan.restarts_in_place and now >= container.restart_at:
            container.start(now)
        return self.plan.restarts_in_place

    def _exits(self) -> list[Exit]:
        ended = [c for c in (*self._mains, *self._inits) if c.plan.kind != "sidecar" and c.code]
        return [Exit(c.plan.name, c.code or 0) for c in ended]

    def _terminate(self, outcome: Outcome, now: float, grace: float | None = None) -> None:
        """Set the outcome and terminate the containers. A later call keeps the outcome, and may only shorten the grace period."""
        first = self._outcome is None
        if not first and grace is None:
            return
        self._outcome = self._outcome or outcome
        if grace is None:
            grace = self.plan.grace
        self._kill_at = min(self._kill_at, now + grace)
        if first:
            for container in self.containers:
                container.signal(signal.SIGTERM)

    def _complete(self, now: float) -> None:
        if now >= self._kill_at:
            for container in self.containers:
                container.signal(signal.SIGKILL)
        if not any(c.running for c in self.containers):
            for container in self.containers:
                container.close()
            self.done = self._outcome
