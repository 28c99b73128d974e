"""Runs the JobSet of one job: leases, pods, verdicts. The supervisor gives it time and writes down what it says.

What is decided here is when to ask: the rules are `jobset`'s, the processes `pods`'.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.api.progress import progress
from pulumi_trainer.provider.api.status import JobStatus, Phase, Step
from pulumi_trainer.provider.kube.client.masking import forms_of_values, mask
from pulumi_trainer.provider.kube.errors import Invalid, Refused, TrainerError
from pulumi_trainer.provider.targets.local import failure, volumes
from pulumi_trainer.provider.targets.local.jobset import (
    Job,
    JobSet,
    Verdict,
    peak,
    ready_everywhere,
    together,
)
from pulumi_trainer.provider.targets.local.jobset import Pod as PodView
from pulumi_trainer.provider.targets.local.leases import Leases
from pulumi_trainer.provider.targets.local.machine import gpus
from pulumi_trainer.provider.targets.local.paths import (
    inside,
    is_full,
    make_folder,
    make_temporary,
    remove_tree,
)
from pulumi_trainer.provider.targets.local.plan import (
    PodId,
    PodPlan,
    Site,
    gpus_of,
    plan_pod,
    pod_name,
    trainer_step,
)
from pulumi_trainer.provider.targets.local.pods import PodRunner, Pumps, Surroundings
from pulumi_trainer.provider.targets.local.record import Record
from pulumi_trainer.provider.targets.local.store import JobFolder

RETRY = 1.0
"""Seconds before something that the machine refused (a GPU, space on the disk) is tried again."""

PATIENCE = 5.0
"""Seconds after which something that the machine refuses, other than GPUs that other jobs hold, has failed the job."""


class Run:
    """One job at work. record: as it is now; the supervisor replaces it. status: what is told of the job. umask: of its
    processes."""

    def __init__(
        self,
        folder: JobFolder,
        record: Record,
        secrets: Mapping[str, Mapping[str, str]],
        pumps: Pumps,
        before: JobStatus | None,
        state: Mapping[str, Any] | None,
        umask: int,
    ) -> None:
        self.record = record
        self.jobset = JobSet(record.jobset, state)
        self.status = record.status(Phase.STARTING)
        if before is not None:
            self.status.started, self.status.progress = before.started, before.progress
        self._folder, self._secrets, self._pumps, self._umask = folder, secrets, pumps, umask
        self._pods: dict[tuple[str, int], PodRunner] = {}
        self._gpus: dict[tuple[str, int], list[int]] = {}
        self._free_gpus: list[int] = []
        self._temporary: dict[tuple[str, int], Path] = {}
        self._failures: dict[tuple[str, str], failure.Failure] = {}
        self._leases: Leases | None = None
        self._site: Site | None = None
        self._verdict: Verdict | None = None
        self._settled_at = math.inf
        self._restarting = ""
        self._ran = False
        self._retry_at = 0.0
        self._unable_since = 0.0
        self._doom: Verdict | None = None
        self._repeats = failure.Repeats()
        self._percent, self._progressed = 0, 0.0

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
        for (job, _), pod in self._pods.items():
            pod.step(now)
            if not pod.ending or (pod.done and not pod.done.ended):
                self._compare(job, pod)
        self._collect(now)

    def _compare(self, job: str, pod: PodRunner) -> None:
        """Gives the job up where a container fails for the second time as it did before, within seconds and without progress.
        Kubernetes would try it until `backoffLimit`, which takes a minute and more. Rules of the job's own that ask for more
        attempts are followed.
        """
        if self._doom is None and not any(j.persistent for j in self.jobset.jobs if j.name == job):
            found = [c.failure for c in pod.containers if c.failure and c.plan.kind != "sidecar"]
            again = next((f for f in found if self._repeats.again(f, self._progressed)), None)
            if again and not self.jobset.persistent:
                soon = "" if again.not_installed else " within seconds"
                why = f"{again.pod} has failed twice in the same way{soon}"
                self._doom = Verdict("Failed", "SameFailureTwice", f"{why}, so it is not tried again on this machine")

    def stop(self, now: float, grace: float | None = None, only: str = "") -> None:
        """Ends the pods (of one Job). grace: instead of each pod's own."""
        for (job, _), pod in self._pods.items():
            if only in ("", job) and (not pod.ending or grace is not None):
                pod.stop(now, grace)

    def go_on(self, now: float) -> bool:
        """Starts what is due; True: the job is over, and `status` says how."""
        if self._verdict is None:
            if self._lease(now):
                self._advance(now)
            else:
                self._verdict = self._doom
        return self._verdict is not None and self._carry_out(self._verdict, now)

    def release(self) -> None:
        if self._leases:
            self._leases.release()

    def _advance(self, now: float) -> None:
        self.jobset.start_ready(now)
        for job in self.jobset.jobs:
            if job.phase == "Active":
                job.check(now)
        verdict = self.jobset.verdict()
        self._verdict = verdict if verdict and verdict.action != "Restart" else self._doom or verdict
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
        except (OSError, TrainerError) as error:
            self.release()
            self._cannot(now, "WaitingForLeases", error)
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
        rank0 = who.step == trainer_step(document) and (job.index, index) == (0, 0)
        around = Surroundings(
            logs=self._folder.logs,
            errors=self._folder.errors,
            processes=self._folder.processes,
            pumps=self._pumps,
            tuning=self.record.tuning,
            umask=self._umask,
            mask=self._mask,
            on_line=self._on_line if rank0 else None,
        )
        key = (job.name, index)
        try:
            remove_tree(inside(self._folder.path, "pods", name))
            self._temporary[key] = make_temporary(Path(self.record.temporary), self.record.uid)
            site = replace(self._site, ours={**self._site.ours, "TMPDIR": str(self._temporary[key])})
            plan = plan_pod(objects, document, who, site, own, self._secrets)
            self._make_folders(plan)
            runner = PodRunner(plan, around, now)
        except (OSError, ValueError, TrainerError) as error:
            self._remove_temporary(key)
            self._cannot(now, "CannotStartPod", error, f"{name}: ")
            return
        self._unable_since = 0.0
        self._free_gpus = self._free_gpus[len(own) :]
        self._gpus[key] = own
        self._pods[key] = runner
        job.pods[index] = PodView()
        self.status.started = self.status.started or now
        runner.step(now)

    def _remove_temporary(self, pod: tuple[str, int]) -> None:
        if folder := self._temporary.pop(pod, None):
            remove_tree(folder)

    def _make_folders(self, plan: PodPlan) -> None:
        root = Path(self.record.root)
        for volume, place, rewriter in plan.volumes:
            top = volumes.memory_folder(self.record.uid) if volumes.in_memory(volume) else root
            volumes.prepare(volume, place, top, self.record.objects, self._secrets, plan.facts, rewriter)
        for folder in (*plan.folders, self._folder.errors):
            make_folder(folder, root)

    def _on_line(self, line: bytes) -> None:
        now = time.time()
        reported = progress(line, now)
        if reported is None:
            return
        for metric in reported.get("metrics", []):
            metric.update({key: self._mask(text) for key, text in metric.items()})
        self.status.progress = reported
        percent = reported.get("progressPercentage", 0)
        if percent > self._percent:
            self._percent, self._progressed = percent, now

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
            self._remove_temporary(key)
            job.restarted += pod.restarted
            if pod.done.ended:
                job.pods.pop(index, None)
            elif pod.done.succeeded:
                job.pod_succeeded(index, now)
                self._repeats.clear()
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
        return failure.report(verdict.message, [] if late else self._all_failures())

    def _all_failures(self) -> list[failure.Failure]:
        return [*self._failures.values(), *(f for p in self._pods.values() for f in p.failures)]

    def _mask(self, text: str, *, cut: bool = False) -> str:
        return mask(text, self._secret_forms, cut=cut)

    @cached_property
    def _secret_forms(self) -> tuple[str, ...]:
        return forms_of_values(value for secret in self._secrets.values() for value in secret.values())

    def _restart(self, verdict: Verdict) -> None:
        self.jobset.restart(verdict)
        most = int((self.jobset.spec.get("failurePolicy") or {}).get("maxRestarts", 0))
        count = f"{self.jobset.counted} of {most}" if verdict.counts else f"{self.jobset.restarts}, not counted"
        self._restarting = f"{count}, {verdict.reason}"
        self._verdict, self._settled_at, self._ran = None, math.inf, False
        self._failures.clear()
        self.status.finished = 0.0

    def fail(self, error: Exception, now: float) -> None:
        """The job has failed before anything was started."""
        self.status.phase, self.status.finished = Phase.FAILED.value, now
        self.status.reason, self.status.message = _reason_of(error, "CannotStartPod"), _words(error)

    def _cannot(self, now: float, reason: str, error: Exception, who: str = "") -> None:
        """Tries it again for a while. What is refused stays so: there is nothing to wait for."""
        self._unable_since = self._unable_since or now
        message = self._mask(who + _words(error))
        if isinstance(error, (Refused, Invalid)) or now - self._unable_since >= PATIENCE:
            self._doom = Verdict("Failed", _reason_of(error, reason), message)
        self._wait(now, reason, message)

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
        elif self._ran and not self._installing():
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
            why = failure.in_short(self._all_failures())
            return "BackOff", f"{', '.join(waiting[:3])} failed and will be started again{why and f': {why}'}"
        if not self._pods and (waits_for := self.jobset.waits_for()):
            return "DependsOn", waits_for
        if packages := self._installing():
            return "", f"installing {', '.join(packages)}"
        return "", ""

    def _installing(self) -> list[str]:
        """Packages that are being installed; none where user code runs already. With MPI, nodes are ready before it does."""
        containers = [c for p in self._pods.values() for c in p.containers]
        across = {name for c in containers if c.plan.across for name in c.installing}
        if not across and any(p.ready for p in self._pods.values()):
            return []
        return sorted(across or {name for c in containers for name in c.installing})

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


def _words(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    mend = "; free some space there, then run it again" if is_full(error) else ""
    return f"{error.filename}: {error.strerror}{mend}" if error.filename else f"{error}{mend}"


def _reason_of(error: Exception, otherwise: str) -> str:
    return "DiskFull" if is_full(error) else otherwise


def _pod(step: Mapping[str, Any]) -> Any:
    return step["template"]["spec"]["template"]["spec"]
