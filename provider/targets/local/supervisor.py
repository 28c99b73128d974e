"""One small process a job: runs the JobSet, writes its status, and ends with it. It outlives the program that started it.

Started by `LocalTarget` as `python -m pulumi_trainer.provider.targets.local.supervisor FOLDER LOCK`: FOLDER is the job's,
LOCK the number of the inherited file descriptor of `supervisor.lock`; the values of Secrets come as JSON on stdin, and
are kept in memory alone. It follows `record.json` (suspend, ttlSecondsAfterFinished), and ends its job on SIGTERM. It imports
the standard library and psutil only, so that a job starts at once.
"""

from __future__ import annotations

import json
import math
import os
import selectors
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from pulumi_trainer.provider.api.errors import TargetFault
from pulumi_trainer.provider.api.status import Phase, Step

from . import failure, process, volumes
from .jobset import Job, JobSet, Verdict, peak, ready_everywhere, together
from .jobset import Pod as PodView
from .leases import Leases
from .logs import Pipe, progress
from .machine import gpus
from .plan import PodId, Site, gpus_of, plan_pod, pod_name, trainer_step
from .pods import PodRunner, Surroundings
from .record import Record
from .store import JobFolder, remove_tree, write_json

TICK = 0.1
"""Seconds between two looks at what tells nobody that it has changed: the record, back-offs, deadlines."""
WRITE_EVERY = 0.2
RETRY = 1.0
"""Seconds before something that the machine refused (a GPU, space on the disk) is tried again."""


class Supervisor:
    """The life of one job."""

    def __init__(self, folder: JobFolder, lock: int, secrets: Mapping[str, Mapping[str, str]]) -> None:
        self.folder, self._lock, self._secrets = folder, lock, secrets
        self.record = Record.read(folder)
        before = folder.read_status()
        self.jobset = JobSet(self.record.jobset, folder.read_state())
        self.pods: dict[tuple[str, int], PodRunner] = {}
        self._gpus: dict[tuple[str, int], list[int]] = {}
        self._free_gpus: list[int] = []
        self._failures: dict[tuple[str, str], failure.Failure] = {}
        self._leases: Leases | None = None
        self._site: Site | None = None
        self._verdict: Verdict | None = None
        self._settled_at = math.inf
        self._restarting = ""
        self._ran = False
        self._retry_at = 0.0
        self._told_to_end = False
        self._over = False
        self._seen = (0, 0)
        self._written: dict[str, Any] | None = None
        self._write_at = 0.0
        self._selector = selectors.DefaultSelector()
        self._awake, self._wake = os.pipe()
        self.status = self.record.status(Phase.STARTING)
        if before is not None:
            self.status.started, self.status.progress = before.started, before.progress

    # Pumps

    def add(self, pipe: Pipe) -> None:
        self._selector.register(pipe.fd, selectors.EVENT_READ, pipe)

    def drop(self, pipe: Pipe) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(pipe.fd)

    # The loop

    def run(self) -> None:
        self._listen()
        me = psutil.Process()
        self._insist(lambda: write_json(self.folder.supervisor, {"pid": me.pid, "started": me.create_time()}))
        self._insist(lambda: self.folder.write_status(self.status))
        stepped = 0.0
        while not self._over:
            woken = self._pump()
            now = time.time()
            if woken or not stepped <= now < stepped + 0.02:
                stepped = now
                self._follow_record()
                self._step(now)
                self._save(now)
        if self._lock >= 0:
            self._finish()

    def _listen(self) -> None:
        for end in (self._awake, self._wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        self._selector.register(self._awake, selectors.EVENT_READ)

    def _on_term(self, *_: object) -> None:
        self._told_to_end = True

    def _pump(self) -> bool:
        """Moves output; True: a signal or a quiet moment has come."""
        ready = self._selector.select(TICK)
        woken = not ready
        for key, _ in ready:
            if key.data is None:
                with suppress(BlockingIOError):
                    os.read(self._awake, 512)
                woken = True
            elif not key.data.pump():
                self.drop(key.data)
        return woken

    def _follow_record(self) -> None:
        try:
            stat = self.folder.record.stat()
        except FileNotFoundError:  # somebody has removed the job's folder by hand
            self._told_to_end = True
            return
        if (stat.st_mtime_ns, stat.st_ino) != self._seen:
            self._seen = (stat.st_mtime_ns, stat.st_ino)
            try:
                self.record = Record.read(self.folder)
            except TargetFault as fault:
                _complain(fault)
            self.status.owner, self.status.digest = self.record.owner, self.record.digest

    def _step(self, now: float) -> None:
        for pod in self.pods.values():
            pod.step(now)
        self._collect(now)
        if self._told_to_end:
            self._stop_pods(now, self._ordered_grace())
            self._over = not self.pods
        elif self._verdict is not None:
            self._carry_out(self._verdict, now)
        elif self.record.suspended:
            self._stop_pods(now)
            if not self.pods:
                self._suspend()
        elif self._lease(now):
            self._go_on(now)
        self._describe(now)

    def _go_on(self, now: float) -> None:
        self.jobset.start_ready(now)
        for job in self.jobset.jobs:
            if job.phase == "Active":
                job.check(now)
        self._verdict = self.jobset.verdict()
        if self._verdict is not None:
            self._settled_at = now + self.record.tuning.settle
            self._carry_out(self._verdict, now)
            return
        for job in self.jobset.jobs:
            if job.phase in ("Complete", "Failed"):
                self._stop_pods(now, only=job.name)
            elif now >= self._retry_at:
                for index in job.to_start(now, self.record.tuning.backoff):
                    self._start_pod(job, index, now)

    # Pods

    def _lease(self, now: float) -> bool:
        """What the job shares with others, taken before its first pod; False: it has to wait."""
        if self._site is not None:
            return True
        if now < self._retry_at:
            return False
        document = self.record.jobset
        steps = document["spec"]["replicatedJobs"]
        needed = int(peak(document, {s["name"]: together(s) * gpus_of(_pod(s)) for s in steps}))
        self._leases = self._leases or Leases()
        if needed:
            total = gpus()
            found = self._leases.gpus(needed, total)
            if found is None:
                self._wait(
                    now, "WaitingForGPUs", f"needs {needed} of {total} GPUs; other jobs of this machine hold too many"
                )
                return False
            self._free_gpus = found
        names = [
            pod_name(document, PodId(job.step, job.index, i))
            for job in self.jobset.jobs
            for i in range(job.completions)
        ]
        declared = [
            p["containerPort"] for s in steps for c in volumes.containers(_pod(s)) for p in c.get("ports") or []
        ]
        addresses, ports = self._leases.addresses(names, self.record.uid), self._leases.ports(declared)
        self._site = self.record.site(self.folder, os.environ, addresses, ports)
        return True

    def _start_pod(self, job: Job, index: int, now: float) -> None:
        assert self._site is not None
        document, objects = self.record.jobset, self.record.objects
        who = PodId(job.step, job.index, index, self.jobset.restarts)
        name = pod_name(document, who)
        own = self._free_gpus[: gpus_of(job.spec["template"]["spec"])]
        plan = plan_pod(objects, document, who, self._site, own, self._secrets)
        try:
            remove_tree(self.folder.pods / name)
            if any(volumes.in_memory(volume) for volume, _, _ in plan.volumes):
                volumes.make_private(volumes.memory_folder(self.record.uid))
            for volume, place, rewriter in plan.volumes:
                volumes.prepare(volume, place, objects, self._secrets, plan.facts, rewriter)
            for folder in (*plan.folders, self.folder.path / "errors"):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self._wait(now, "CannotStartPod", f"{name}: {error.filename or ''}: {error.strerror or error}")
            return
        rank0 = who.step == trainer_step(document) and (job.index, index) == (0, 0)
        around = Surroundings(
            logs=self.folder.logs,
            errors=self.folder.path / "errors",
            processes=self.folder.processes,
            pumps=self,
            tuning=self.record.tuning,
            on_line=self._on_line if rank0 else None,
        )
        self._free_gpus = self._free_gpus[len(own) :]
        self._gpus[job.name, index] = own
        self.pods[job.name, index] = runner = PodRunner(plan, around, now)
        job.pods[index] = PodView()
        self.status.started = self.status.started or now
        runner.step(now)

    def _on_line(self, line: bytes) -> None:
        self.status.progress = progress(line, time.time()) or self.status.progress

    def _collect(self, now: float) -> None:
        """Tells the JobSet what became of its pods."""
        jobs = {job.name: job for job in self.jobset.jobs}
        for key, pod in list(self.pods.items()):
            job, index = jobs[key[0]], key[1]
            if pod.done is None:
                if index in job.pods:
                    job.pods[index].ready, job.pods[index].restarts = pod.ready, pod.restarts
                continue
            del self.pods[key]
            self._free_gpus += self._gpus.pop(key)
            job.restarted += pod.restarted
            if pod.done.ended:
                job.pods.pop(index, None)
            elif pod.done.succeeded:
                job.pod_succeeded(index, now)
            else:
                self._failures.update({(f.pod, f.container): f for f in pod.failures})
                job.pod_failed(index, pod.done.exits, now, f"{self.record.namespace}/{pod.plan.name}")

    def _stop_pods(self, now: float, grace: float | None = None, only: str = "") -> None:
        for (job, _), pod in self.pods.items():
            if only in ("", job) and (not pod.ending or grace is not None):
                pod.stop(now, grace)

    def _ordered_grace(self) -> float | None:
        """Seconds that `delete` asks for; None: each pod's own."""
        with suppress(OSError, ValueError, KeyError):
            return float(json.loads(self.folder.stop.read_bytes())["grace"])
        return None

    # Ends

    def _carry_out(self, verdict: Verdict, now: float) -> None:
        """Ends what still runs, a failed job after a moment in which others may show that they failed first."""
        running = any(c.running for p in self.pods.values() for c in p.containers)
        if verdict.action != "Succeeded" and running and now < self._settled_at:
            return
        if self._settled_at != -math.inf:
            self._settled_at = -math.inf
            self.status.finished = now
            self.status.message = self._message(verdict)
            self._stop_pods(now)
        if self.pods:
            return
        if verdict.action == "Restart":
            self._restart(verdict)
        else:
            phase = Phase.SUCCEEDED if verdict.action == "Succeeded" else Phase.FAILED
            self.status.phase, self.status.reason = phase.value, verdict.reason
            self._over = True

    def _message(self, verdict: Verdict) -> str:
        if verdict.action == "Succeeded":
            return verdict.message
        late = any(j.name == verdict.job and j.reason == "DeadlineExceeded" for j in self.jobset.jobs)
        active = [f for p in self.pods.values() for f in p.failures]
        failures = [] if late else [*self._failures.values(), *active]
        values = [v for secret in self._secrets.values() for v in secret.values()]
        return failure.report(verdict.message, failures, values)

    def _restart(self, verdict: Verdict) -> None:
        self.jobset.restart(verdict)
        most = int((self.jobset.spec.get("failurePolicy") or {}).get("maxRestarts", 0))
        count = f"{self.jobset.counted} of {most}" if verdict.counts else f"{self.jobset.restarts}, not counted"
        self._restarting = f"{count}, {verdict.reason}"
        self._verdict, self._settled_at, self._ran = None, math.inf, False
        self._failures.clear()
        self.status.finished = 0.0

    def _suspend(self) -> None:
        """Ends this supervisor, unless the job has been resumed in the meantime."""
        guard = self.folder.try_guard()
        if guard is None:
            return
        try:
            self.record = Record.read(self.folder)
            if not self.record.suspended:
                return
            self.status.phase, self.status.reason, self.status.message = Phase.SUSPENDED.value, "SuspendedJobs", ""
            self.status.steps = self._steps()
            self._clean_up()
            self.folder.write_status(self.status, self.jobset.state())
            self._over = True
            os.close(self._lock)
            self._lock = -1
        except TargetFault as fault:
            _complain(fault)
        finally:
            os.close(guard)

    def _finish(self) -> None:
        """The end is written when nothing is left of the job."""
        self._clean_up()
        if not self._told_to_end:
            self._insist(lambda: self.folder.write_status(self.status))
            if self.record.ttl == 0:
                self.folder.expire()

    def _clean_up(self) -> None:
        process.kill_marked(self.record.uid)
        remove_tree(volumes.memory_folder(self.record.uid))
        if self._leases:
            self._leases.release()

    # Status

    def _wait(self, now: float, reason: str, message: str) -> None:
        self._retry_at = now + RETRY
        self.status.reason, self.status.message = reason, message

    def _describe(self, now: float) -> None:
        status = self.status
        self._ran = self._ran or any(p.ready for p in self.pods.values())
        status.restarts = self.jobset.restarts
        status.steps = self._steps()
        if status.terminal or status.phase == Phase.SUSPENDED:
            return
        if self._ran:
            self._restarting = "" if ready_everywhere(self.jobset.jobs) else self._restarting
        if self._verdict is not None or self._told_to_end or self.record.suspended:
            status.reason = "Ending"
        elif now >= self._retry_at:
            status.reason, message = self._reason()
            status.message = message or (status.message if self._restarting else "")
        if self._restarting:
            status.phase = Phase.RESTARTING.value
        elif self._ran:
            status.phase = Phase.RUNNING.value
        elif self.pods:
            status.phase = Phase.STARTING.value
        elif self._site is None or self.jobset.waits_for():
            status.phase = Phase.PENDING.value

    def _reason(self) -> tuple[str, str]:
        if self._restarting:
            return self._restarting, ""
        waiting = [p.plan.name for p in self.pods.values() if p.waits_until]
        waiting += [j.name for j in self.jobset.jobs if j.waits]
        if waiting:
            return "BackOff", f"{', '.join(waiting[:3])} failed and will be started again"
        if not self.pods and (waits_for := self.jobset.waits_for()):
            return "DependsOn", waits_for
        return "", ""

    def _steps(self) -> list[Step]:
        return [self._of_step(rjob["name"]) for rjob in self.record.jobset["spec"]["replicatedJobs"]]

    def _of_step(self, name: str) -> Step:
        jobs = self.jobset.of(name)
        pods = [p for (job, _), p in self.pods.items() if any(j.name == job for j in jobs)]
        over = all(j.phase in ("Complete", "Failed") for j in jobs)
        step = Step(
            name,
            count=sum(j.completions for j in jobs),
            active=len(pods),
            ready=sum(p.ready for p in pods),
            succeeded=sum(len(j.succeeded) for j in jobs),
            failed=sum(j.replaced for j in jobs),
            restarts=sum(j.replaced + j.restarted for j in jobs) + sum(p.restarted for p in pods),
            started=min((j.started for j in jobs if j.started), default=0.0),
            finished=max((j.finished for j in jobs), default=0.0) if over else 0.0,
        )
        if any(j.phase == "Failed" for j in jobs):
            step.phase = Phase.FAILED.value
        elif jobs and all(j.phase == "Complete" for j in jobs):
            step.phase = Phase.SUCCEEDED.value
        elif self.status.phase == Phase.SUSPENDED:
            step.phase = Phase.SUSPENDED.value
        elif pods:
            step.phase = (Phase.RUNNING if step.ready else Phase.STARTING).value
        return step

    def _save(self, now: float) -> None:
        """Writes what has changed, a few times a second at most; on a full disk the job runs on and this is tried again."""
        if self._told_to_end or self._over:
            return
        new = self.status.to_dict()
        urgent = self._written is None or new["phase"] != self._written["phase"]
        if new == self._written or (now < self._write_at and not urgent):
            return
        try:
            self.folder.write_status(self.status)
            self._written, self._write_at = new, now + WRITE_EVERY
        except TargetFault as fault:
            _complain(fault)
            self._written, self._write_at = self._written or new, now + RETRY

    def _insist(self, write: Any) -> None:
        """Until it is written, or the job is to be deleted."""
        while not self._told_to_end:
            try:
                write()
                return
            except TargetFault as fault:
                _complain(fault)
                time.sleep(RETRY)


def _pod(step: Mapping[str, Any]) -> Any:
    return step["template"]["spec"]["template"]["spec"]


def _complain(fault: TargetFault) -> None:
    with suppress(OSError):
        print(time.strftime("%Y-%m-%d %H:%M:%S"), fault, file=sys.stderr, flush=True)


def main() -> None:
    folder, lock = JobFolder(Path(sys.argv[1])), int(sys.argv[2])
    os.set_inheritable(lock, False)
    secrets = json.loads(sys.stdin.buffer.read())
    sys.stdin.close()
    Supervisor(folder, lock, secrets).run()


if __name__ == "__main__":
    main()
