"""Runs the JobSet of one job: leases, pods, verdicts. The supervisor gives it time and writes down what it says.

What is decided here is when to ask: the rules are `jobset`'s, the processes `pods`'.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pulumi_trainer.provider.api.errors import TargetFault
from pulumi_trainer.provider.api.progress import progress
from pulumi_trainer.provider.api.status import JobStatus, Phase, Step

from . import failure, volumes
from .jobset import Job, JobSet, Verdict, peak, ready_everywhere, together
from .jobset import Pod as PodView
from .leases import Leases
from .machine import gpus
from .plan import PodId, Site, gpus_of, plan_pod, pod_name, trainer_step
from .pods import PodRunner, Pumps, Surroundings
from .record import Record
from .store import JobFolder, remove_tree

RETRY = 1.0
"""Seconds before something that the machine refused (a GPU, space on the disk) is tried again."""


class Run:
    """One job at work. record: as it is now; the supervisor replaces it. status: what is told of the job."""

    def __init__(
        self,
        folder: JobFolder,
        record: Record,
        secrets: Mapping[str, Mapping[str, str]],
        pumps: Pumps,
        before: JobStatus | None,
        state: Mapping[str, Any] | None,
    ) -> None:
        self.record = record
        self.jobset = JobSet(record.jobset, state)
        self.status = record.status(Phase.STARTING)
        if before is not None:
            self.status.started, self.status.progress = before.started, before.progress
        self._folder, self._secrets, self._pumps = folder, secrets, pumps
        self._pods: dict[tuple[str, int], PodRunner] = {}
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

    @property
    def gone(self) -> bool:
        """No pod is left."""
        return not self._pods

    @property
    def decided(self) -> bool:
        """The JobSet has succeeded or failed, or begins anew, as soon as its pods are gone."""
        return self._verdict is not None

    def look(self, now: float) -> None:
        """Lets every pod go on, and tells the JobSet what became of them."""
        for pod in self._pods.values():
            pod.step(now)
        self._collect(now)

    def stop(self, now: float, grace: float | None = None, only: str = "") -> None:
        """Ends the pods (of one Job). grace: instead of each pod's own."""
        for (job, _), pod in self._pods.items():
            if only in ("", job) and (not pod.ending or grace is not None):
                pod.stop(now, grace)

    def go_on(self, now: float) -> bool:
        """Starts what is due; True: the job is over, and `status` says how."""
        if self._verdict is None and self._lease(now):
            self._advance(now)
        return self._verdict is not None and self._carry_out(self._verdict, now)

    def release(self) -> None:
        if self._leases:
            self._leases.release()

    def _advance(self, now: float) -> None:
        self.jobset.start_ready(now)
        for job in self.jobset.jobs:
            if job.phase == "Active":
                job.check(now)
        self._verdict = self.jobset.verdict()
        if self._verdict is not None:
            self._settled_at = now + self.record.tuning.settle
            return
        for job in self.jobset.jobs:
            if job.phase in ("Complete", "Failed"):
                self.stop(now, only=job.name)
            elif now >= self._retry_at:
                for index in job.to_start(now, self.record.tuning.backoff):
                    self._start_pod(job, index, now)

    def _lease(self, now: float) -> bool:
        """What the job shares with others, taken before its first pod; False: it has to wait."""
        if self._site is not None:
            return True
        if now < self._retry_at:
            return False
        try:
            return self._take_leases(now)
        except (OSError, TargetFault) as error:
            self.release()
            self._wait(now, "WaitingForLeases", str(error))
            return False

    def _take_leases(self, now: float) -> bool:
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
        self._site = self.record.site(self._folder, os.environ, addresses, ports)
        return True

    def _start_pod(self, job: Job, index: int, now: float) -> None:
        assert self._site is not None
        document, objects = self.record.jobset, self.record.objects
        who = PodId(job.step, job.index, index, self.jobset.restarts)
        name = pod_name(document, who)
        own = self._free_gpus[: gpus_of(job.spec["template"]["spec"])]
        if len(own) < gpus_of(job.spec["template"]["spec"]):
            return
        plan = plan_pod(objects, document, who, self._site, own, self._secrets)
        try:
            remove_tree(self._folder.pods / name)
            if any(volumes.in_memory(volume) for volume, _, _ in plan.volumes):
                volumes.make_private(volumes.memory_folder(self.record.uid))
            for volume, place, rewriter in plan.volumes:
                volumes.prepare(volume, place, objects, self._secrets, plan.facts, rewriter)
            for folder in (*plan.folders, self._folder.errors):
                folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            what = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
            self._wait(now, "CannotStartPod", f"{name}: {what}")
            return
        rank0 = who.step == trainer_step(document) and (job.index, index) == (0, 0)
        around = Surroundings(
            logs=self._folder.logs,
            errors=self._folder.errors,
            processes=self._folder.processes,
            pumps=self._pumps,
            tuning=self.record.tuning,
            on_line=self._on_line if rank0 else None,
        )
        self._free_gpus = self._free_gpus[len(own) :]
        self._gpus[job.name, index] = own
        self._pods[job.name, index] = runner = PodRunner(plan, around, now)
        job.pods[index] = PodView()
        self.status.started = self.status.started or now
        runner.step(now)

    def _on_line(self, line: bytes) -> None:
        self.status.progress = progress(line, time.time()) or self.status.progress

    def _collect(self, now: float) -> None:
        """Tells the JobSet what became of its pods."""
        jobs = {job.name: job for job in self.jobset.jobs}
        for key, pod in list(self._pods.items()):
            job, index = jobs[key[0]], key[1]
            if pod.done is None:
                if index in job.pods:
                    job.pods[index].ready, job.pods[index].restarts = pod.ready, pod.restarts
                continue
            del self._pods[key]
            self._free_gpus += self._gpus.pop(key)
            job.restarted += pod.restarted
            if pod.done.ended:
                job.pods.pop(index, None)
            elif pod.done.succeeded:
                job.pod_succeeded(index, now)
            else:
                self._failures.update({(f.pod, f.container): f for f in pod.failures})
                job.pod_failed(index, pod.done.exits, now, f"{self.record.namespace}/{pod.plan.name}")

    def _carry_out(self, verdict: Verdict, now: float) -> bool:
        """Ends what still runs, a failed job after a moment in which others may show that they failed first. A restart begins
        when all is gone: restartStrategy Recreate is BlockingRecreate here.
        """
        running = any(c.running for p in self._pods.values() for c in p.containers)
        if verdict.action != "Succeeded" and running and now < self._settled_at:
            return False
        if self._settled_at != -math.inf:
            self._settled_at = -math.inf
            self.status.finished = now
            self.status.message = self._message(verdict)
            self.stop(now)
        if not self.gone:
            return False
        if verdict.action == "Restart":
            self._restart(verdict)
            return False
        phase = Phase.SUCCEEDED if verdict.action == "Succeeded" else Phase.FAILED
        self.status.phase, self.status.reason = phase.value, verdict.reason
        return True

    def _message(self, verdict: Verdict) -> str:
        if verdict.action == "Succeeded":
            return verdict.message
        late = any(j.name == verdict.job and j.reason == "DeadlineExceeded" for j in self.jobset.jobs)
        active = [f for p in self._pods.values() for f in p.failures]
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

    def _wait(self, now: float, reason: str, message: str) -> None:
        self._retry_at = now + RETRY
        self.status.reason, self.status.message = reason, message

    def describe(self, now: float, ending: bool) -> None:
        """Brings `status` up to date. ending: its pods are being ended from outside."""
        status = self.status
        self._ran = self._ran or any(p.ready for p in self._pods.values())
        status.restarts = self.jobset.restarts
        status.steps = self._steps()
        if status.terminal:
            return
        if self._ran:
            self._restarting = "" if ready_everywhere(self.jobset.jobs) else self._restarting
        if ending or self.decided:
            status.reason = "Ending"
        elif now >= self._retry_at:
            status.reason, message = self._reason()
            status.message = message or (status.message if self._restarting else "")
        if self._restarting:
            status.phase = Phase.RESTARTING.value
        elif self._ran:
            status.phase = Phase.RUNNING.value
        elif self._pods:
            status.phase = Phase.STARTING.value
        elif self._site is None or self.jobset.waits_for():
            status.phase = Phase.PENDING.value

    def suspended(self) -> JobStatus:
        """What is told once all pods are gone and the job is suspended."""
        steps = self._steps()
        for step in steps:
            step.phase = step.phase if Phase(step.phase).terminal else Phase.SUSPENDED.value
        return replace(self.status, phase=Phase.SUSPENDED.value, reason="SuspendedJobs", message="", steps=steps)

    def _reason(self) -> tuple[str, str]:
        if self._restarting:
            return self._restarting, ""
        waiting = [p.plan.name for p in self._pods.values() if p.waits_until]
        waiting += [j.name for j in self.jobset.jobs if j.waits]
        if waiting:
            return "BackOff", f"{', '.join(waiting[:3])} failed and will be started again"
        if not self._pods and (waits_for := self.jobset.waits_for()):
            return "DependsOn", waits_for
        return "", ""

    def _steps(self) -> list[Step]:
        return [self._of_step(rjob["name"]) for rjob in self.record.jobset["spec"]["replicatedJobs"]]

    def _of_step(self, name: str) -> Step:
        jobs = self.jobset.of(name)
        pods = [p for (job, _), p in self._pods.items() if any(j.name == job for j in jobs)]
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
        elif pods:
            step.phase = (Phase.RUNNING if step.ready else Phase.STARTING).value
        return step


def _pod(step: Mapping[str, Any]) -> Any:
    return step["template"]["spec"]["template"]["spec"]
