"""Runs the JobSet of one job: leases, pods, verdicts.

The supervisor calls it at regular times and writes its status. `jobset_controller` has the rules, `pod_processes` the processes.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from pulumi_trainer.provider import source_archives
from pulumi_trainer.provider.jobs import attempts
from pulumi_trainer.provider.jobs.attempts import Attempt, Attempts
from pulumi_trainer.provider.jobs.metrics import Metrics
from pulumi_trainer.provider.jobs.observed_inputs import Observed, with_observed
from pulumi_trainer.provider.jobs.progress import missing_steps, progress, with_kept
from pulumi_trainer.provider.jobs.status import JobStatus, Phase
from pulumi_trainer.provider.jobs.submission import Objects
from pulumi_trainer.provider.kubernetes.client.masking import forms_of_values, mask
from pulumi_trainer.provider.kubernetes.errors import Invalid, Refused, TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import section, text
from pulumi_trainer.provider.kubernetes.values.wording import join_names, plural
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.targets.local import failure, volumes
from pulumi_trainer.provider.targets.local.jobset_controller import Job, JobSet, Verdict, all_ready, peak_of
from pulumi_trainer.provider.targets.local.jobset_controller import Pod as PodView
from pulumi_trainer.provider.targets.local.leases import Leases
from pulumi_trainer.provider.targets.local.machine import python_version, visible_gpus
from pulumi_trainer.provider.targets.local.memory_limits import MemoryLimits
from pulumi_trainer.provider.targets.local.paths import inside, is_disk_full, make_folder, make_temporary, remove_tree
from pulumi_trainer.provider.targets.local.places import Place
from pulumi_trainer.provider.targets.local.plan import (
    PodId,
    PodPlan,
    Site,
    declared_ports,
    fetched_revisions,
    gpus_of,
    plan_pod,
    pod_name,
    shared_scratch,
)
from pulumi_trainer.provider.targets.local.pod_processes import ContainerProcess, PodContext, PodRunner, Pumps
from pulumi_trainer.provider.targets.local.record import Record
from pulumi_trainer.provider.targets.local.step_status import installing, steps_of
from pulumi_trainer.provider.targets.local.store import JobFolder
from pulumi_trainer.provider.trainer.labels import trainer_step

RETRY = 1.0
"""Seconds before the next attempt to get a resource of the machine, such as a GPU or space on the disk."""

NEXT_RETRY = 0.2
"""Seconds before the next attempt of the job that gets the next free place."""

_MOST_NAMED = 5
"""Packages that are named while they are installed."""

RESOURCE_SECONDS = 5.0
"""Seconds after which a missing resource fails the job, except GPUs that other jobs use."""


class Run:
    """One running job. The supervisor replaces `record` and writes `status`."""

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
        earlier: Sequence[Attempt] = self.status.attempts
        if before is not None:
            self.status.started, self.status.progress = before.started, before.progress
            earlier = before.attempts
        self.attempts = Attempts(earlier)
        self.metrics = Metrics.from_text(folder.read_metrics(record.identity.id))
        self._trainer_step = trainer_step(record.jobset)
        self._folder, self._secrets, self._pumps, self._umask = folder, secrets, pumps, umask
        self._pods: dict[tuple[str, int], PodRunner] = {}
        self._gpus: dict[tuple[str, int], list[int]] = {}
        self._free_gpus: list[int] = []
        self._temporary: dict[tuple[str, int], Path] = {}
        self._failures: dict[tuple[str, str], failure.Failure] = {}
        self._leases: Leases | None = None
        since = record.created
        if before is not None:
            since = time.time()
        self._place = Place(Path(record.root), record.resource or record.name, record.uid, since)
        self._queued = False
        self._site: Site | None = None
        self._verdict: Verdict | None = None
        self._settled_at = math.inf
        self._restarting = ""
        self._ran = False
        self._retry_at = 0.0
        self._unable_since = 0.0
        self._failed_verdict: Verdict | None = None
        self._repeats = failure.Repeats()
        self._memory_limits = MemoryLimits()
        self._percent, self._progressed = 0, 0.0
        self._observed, self._reported, self._has_trained = Observed(), False, False
        self._lost_bytes = 0

    @property
    def pods_gone(self) -> bool:
        """Return whether all pods have ended."""
        return not self._pods

    @property
    def verdict_due(self) -> bool:
        """Return whether the JobSet ends or restarts as soon as its pods have ended."""
        return self._verdict is not None

    def poll_pods(self, now: float) -> None:
        """Poll every pod, and report ended pods to the JobSet."""
        for (job, _), pod in self._pods.items():
            pod.poll(now)
            if not pod.ending or (pod.done and not pod.done.ended):
                self._fail_repeated(job, pod)
        self._memory_limits.enforce(self._containers())
        self._collect(now)

    def _fail_repeated(self, job: str, pod: PodRunner) -> None:
        """Fail the job if a container fails twice in the same way, within seconds and without progress.

        Kubernetes would retry until `backoffLimit`, which takes a minute or more. A job with own rules for retries is not failed.
        """
        if self._failed_verdict is not None:
            return
        if any(j.has_retry_rules for j in self.jobset.jobs if j.name == job):
            return
        found = [c.failure for c in pod.containers if c.failure and c.plan.kind != "sidecar"]
        again = next((f for f in found if self._repeats.is_repeated(f, self._progressed)), None)
        if again is None or self.jobset.restarts_without_limit:
            return
        why = f"{again.pod} has failed twice in the same way"
        if not again.not_installed:
            why += " within seconds"
        self._failed_verdict = Verdict("Failed", "SameFailureTwice", f"{why}, so it is not tried again on this machine")

    def stop(self, now: float, grace: float | None = None, only: str = "") -> None:
        """Terminate pods. grace: Seconds between SIGTERM and SIGKILL; default: each pod's own."""
        for (job, _), pod in self._pods.items():
            if only in ("", job) and (not pod.ending or grace is not None):
                pod.stop(now, grace)

    def advance(self, now: float) -> bool:
        """Start the pods that are due, and return whether the job has ended; `status` has the outcome."""
        if self._verdict is None:
            if self._has_leases(now):
                self._start_due_pods(now)
            else:
                self._verdict = self._failed_verdict
        return self._verdict is not None and self._apply_verdict(self._verdict, now)

    def release(self) -> None:
        self._place.release()
        if self._leases:
            self._leases.release()

    def _start_due_pods(self, now: float) -> None:
        self.jobset.start_ready(now)
        for job in self.jobset.jobs:
            if job.phase == "Active":
                job.check(now)
        verdict = self.jobset.verdict()
        if verdict is None or verdict.action == "Restart":
            verdict = self._failed_verdict or verdict
        self._verdict = verdict
        if self._verdict is not None:
            self._settled_at = now + self.record.tuning.settle
            return
        for job in self.jobset.jobs:
            if job.phase in ("Complete", "Failed"):
                self.stop(now, only=job.name)
            elif now >= self._retry_at:
                for index in job.to_start(now, self.record.tuning.backoff):
                    self._start_pod(job, index, now)

    def _has_leases(self, now: float) -> bool:
        """Take the leases before the first pod starts, and return whether the job has them."""
        if self._site is not None:
            return True
        if now < self._retry_at:
            return False
        try:
            return self._has_place(now) and self._take_leases(now)
        except (OSError, TrainerError) as error:
            self.release()
            self._schedule_retry(now, "WaitingForLeases", error)
            return False

    def _has_place(self, now: float) -> bool:
        """Take a place among the jobs of the root, and return whether the job has one."""
        waits = self._place.take()
        self._queued = waits is not None
        if waits is None:
            return True
        seconds = NEXT_RETRY
        if waits.earlier:
            seconds = RETRY
        self._wait(now, "MaxParallel", str(waits), seconds)
        return False

    def _take_leases(self, now: float) -> bool:
        document = self.record.jobset
        needed = int(peak_of(document, gpus_of))
        self._leases = self._leases or Leases()
        if needed:
            usable = visible_gpus(self.record.visible_gpus)
            found, owners = self._leases.gpus(needed, usable, self.record.resource or self.record.name)
            if not found:
                self._place.release()  # who waits for GPUs does not keep others waiting
                behind = join_names(owners) or "other jobs of this machine"
                self._wait(now, "WaitingForGPUs", f"needs {needed} of {plural(len(usable), 'GPU')}: behind {behind}")
                return False
            self._free_gpus = found
        names: list[str] = []
        for job in self.jobset.jobs:
            names += [pod_name(document, PodId(job.step, job.index, i)) for i in range(job.completions)]
        declared = declared_ports(document, self.record.objects)
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
        is_rank_0 = who.step == self._trainer_step and (job.index, index) == (0, 0)
        on_line: Callable[[bytes], None] | None = None
        if is_rank_0:
            on_line = self._on_line
        context = PodContext(
            logs=self._folder.logs,
            errors=self._folder.errors,
            pumps=self._pumps,
            tuning=self.record.tuning,
            umask=self._umask,
            mask=self._mask,
            on_line=on_line,
        )
        key = (job.name, index)
        try:
            remove_tree(inside(self._folder.path, "pods", name))
            self._temporary[key] = make_temporary(Path(self.record.temporary), self.record.uid)
            site = replace(
                self._site, user_environment={**self._site.user_environment, "TMPDIR": str(self._temporary[key])}
            )
            plan = plan_pod(objects, document, who, site, own, self._secrets)
            self._make_folders(plan)
            if is_rank_0:
                python = self._observed.python or python_version(self.record.python)
                self._observe(Observed(fetched_revisions(plan), python=python))
            runner = PodRunner(plan, context, now)
        except (OSError, ValueError, TrainerError) as error:
            self._remove_temporary(key)
            self._schedule_retry(now, "CannotStartPod", error, f"{name}: ")
            return
        self._unable_since = 0.0
        self._free_gpus = self._free_gpus[len(own) :]
        self._gpus[key] = own
        self._pods[key] = runner
        job.pods[index] = PodView()
        self.status.started = self.status.started or now
        if who.step == self._trainer_step:
            self.attempts.begin(now)
        runner.poll(now)

    def _observe(self, found: Observed) -> None:
        """Add what was observed to what identifies the run."""
        self._observed = self._observed.merged(found)
        inputs = with_observed(self.record.inputs, self._observed)
        if inputs != self.status.inputs:
            self.status.inputs = inputs
            self._write_run_manifest()

    def _write_run_manifest(self) -> None:
        with suppress(TrainerError):  # the status has it
            self.record.write_run_manifest(self.status.inputs, has_trained=self._has_trained)

    def _observe_pod(self, pod: PodRunner) -> None:
        """Take what a pod of the training has reported, until one has, and what its own init containers have fetched."""
        if pod.plan.step != self._trainer_step:
            return
        for container in pod.containers:
            found = None if self._reported else container.observed
            if found is not None:
                self._reported = True
                self._observe(found)
        if pod.done is not None and pod.plan.index == 0:
            self._observe(Observed(fetched_revisions(pod.plan)))

    def _remove_temporary(self, pod: tuple[str, int]) -> None:
        folder = self._temporary.pop(pod, None)
        if folder:
            remove_tree(folder)

    def _make_folders(self, plan: PodPlan) -> None:
        root = Path(self.record.root)
        for volume, place, rewriter in plan.volumes:
            top = root
            if volumes.in_memory(volume):
                top = volumes.memory_folder(self.record.uid)
            volumes.prepare(volume, place, top, self._objects(), self._secrets, plan.facts, rewriter)
        memory = volumes.memory_folder(self.record.uid)
        for folder in (*plan.folders, self._folder.errors):
            if folder.is_relative_to(root):
                make_folder(folder, root)
            elif folder.is_relative_to(memory):
                make_folder(folder, memory)

    def _objects(self) -> Objects:
        """Return the objects of the job, with the archive of its project."""
        found = dict(self.record.objects)
        for key, document in found.items():
            digest = source_archives.digest_of(document)
            if digest:
                found[key] = source_archives.with_archive(document, self._folder.source(digest).read_bytes())
        return found

    def _on_line(self, line: bytes) -> None:
        now = time.time()
        reported = progress(line, now)
        if reported is None:
            return
        if "metrics" in reported:
            reported["metrics"] = {self._mask(name): self._mask(value) for name, value in reported["metrics"].items()}
            self.metrics.report(reported)
        if "step" in reported:
            self.attempts.report(reported["step"], now)
        self.status.progress = reported = with_kept(self.status.progress, reported)
        if not self._has_trained and "step" in reported and not missing_steps(reported):
            self._has_trained = True
            self._write_run_manifest()
        percent = reported.get("progressPercentage", 0)
        if percent > self._percent:
            self._percent, self._progressed = percent, now

    def _collect(self, now: float) -> None:
        """Report the state of the pods to the JobSet."""
        jobs = {job.name: job for job in self.jobset.jobs}
        for key, pod in list(self._pods.items()):
            job, index = jobs[key[0]], key[1]
            self._observe_pod(pod)
            if pod.done is None:
                if index in job.pods:
                    job.pods[index].ready, job.pods[index].restarts = pod.ready, pod.restarts
                continue
            del self._pods[key]
            self._free_gpus += self._gpus.pop(key)
            self._remove_temporary(key)
            job.restarted += pod.restarted
            self._lost_bytes += pod.lost_bytes
            if pod.done.ended:
                job.pods.pop(index, None)
            elif pod.done.succeeded:
                job.pod_succeeded(index, now)
                self._repeats.clear()
            else:
                for each in pod.failures:
                    self._failures[each.pod, each.container] = each
                job.pod_failed(index, pod.done.exits, now, f"{self.record.namespace}/{pod.plan.name}")
        trains = any(jobs[name].step == self._trainer_step for name, _ in self._pods)
        if not trains:
            self.attempts.end(now, *self._cause())

    def _cause(self, verdict: Verdict | None = None) -> tuple[str, str]:
        """Return why an attempt has ended, in one word and with details. verdict: What the JobSet does about it."""
        if verdict is not None and verdict.action == "Succeeded":
            return attempts.SUCCEEDED, ""
        cause = failure.first_cause(self._all_failures())
        if cause is None:
            if verdict is None:
                return attempts.SUCCEEDED, ""
            return verdict.reason, ""
        detail = failure.cause_summary(self._all_failures())
        if verdict is not None and verdict.rule == attempts.INTERRUPTED_RULE:
            return attempts.TERMINATED, f"{cause.failure.pod} received a SIGTERM from outside"
        if cause.failure.memory_limit:
            return attempts.OUT_OF_MEMORY, detail
        killed = cause.signal == signal.SIGKILL or cause.code == 128 + signal.SIGKILL
        if killed and not cause.failure.verdict:
            return attempts.KILLED, detail
        return attempts.PROGRAM_ERROR, detail

    def _apply_verdict(self, verdict: Verdict, now: float) -> bool:
        """Terminate the pods, then end or restart the JobSet; return whether the job has ended.

        After a failure the other pods run on for `Tuning.settle` seconds, because one of them may have failed first. A restart
        starts when all pods have ended: restartStrategy Recreate is BlockingRecreate here.
        """
        running = any(c.running for c in self._containers())
        if verdict.action != "Succeeded" and running and now < self._settled_at:
            return False
        if self._settled_at != -math.inf:
            self._settled_at = -math.inf
            self.status.finished = now
            self.status.message = self._message(verdict)
            self.attempts.explain(*self._cause(verdict))
            self.stop(now)
        if not self.pods_gone:
            return False
        if verdict.action == "Restart":
            self._restart(verdict)
            return False
        phase = Phase.FAILED
        if verdict.action == "Succeeded":
            phase = Phase.SUCCEEDED
        self.status.phase, self.status.reason = phase.value, verdict.reason
        if self._lost_bytes:
            lost = f"{self._lost_bytes} bytes of output are missing from its logs: no space on the disk"
            self.status.message = "\n".join(filter(None, [self.status.message, lost]))
        if not self._has_trained and not missing_steps(self.status.progress or {}):
            self._has_trained = True
            self._write_run_manifest()
        return True

    def _message(self, verdict: Verdict) -> str:
        if verdict.action == "Succeeded":
            return verdict.message
        late = any(j.name == verdict.job and j.reason == "DeadlineExceeded" for j in self.jobset.jobs)
        if late:
            return failure.report(verdict.message, [])
        return failure.report(verdict.message, self._all_failures())

    def _all_failures(self) -> list[failure.Failure]:
        return [*self._failures.values(), *chain.from_iterable(p.failures for p in self._pods.values())]

    def _containers(self) -> Iterator[ContainerProcess]:
        return chain.from_iterable(p.containers for p in self._pods.values())

    def _mask(self, text: str, *, cut: bool = False) -> str:
        return mask(text, self._secret_forms, cut=cut)

    @cached_property
    def _secret_forms(self) -> tuple[str, ...]:
        config_map = self.record.objects.get(f"ConfigMap/{code.code_name(self.record.name)}")
        launch = text(section(config_map, "data").get(code.LAUNCH_FILE))
        return forms_of_values(chain.from_iterable(code.secret_texts(each, launch) for each in self._secrets.values()))

    def _restart(self, verdict: Verdict) -> None:
        self.jobset.restart(verdict)
        remove_tree(shared_scratch(self._folder.pods))
        most = int((self.jobset.spec.get("failurePolicy") or {}).get("maxRestarts", 0))
        count = f"{self.jobset.counted} of {most}"
        if not verdict.counts:
            count = f"{self.jobset.restarts}, which does not count towards the maximum of {most}"
        self._restarting = count
        if verdict.rule == attempts.INTERRUPTED_RULE:
            self._restarting = f"{count}, since its program was asked to stop"
        elif verdict.rule:
            self._restarting = f"{count}, by rule {verdict.rule} of its failure policy"
        self._verdict, self._settled_at, self._ran = None, math.inf, False
        self._failures.clear()
        self.status.finished = 0.0

    def fail(self, error: Exception, now: float, reason: str = "CannotStartPod") -> None:
        self.status.phase, self.status.finished = Phase.FAILED.value, now
        self.status.reason, self.status.message = _reason_of(error, reason), self._mask(_error_text(error))

    def give_up(self, error: Exception, now: float) -> None:
        """Set the status to Failed because the supervisor failed, and close the logs: too many open files may be the cause."""
        for container in self._containers():
            container.close()
        self.fail(error, now, "SupervisorFailed")
        self.status.fail(self.status.reason, self.status.message, now)

    def _schedule_retry(self, now: float, reason: str, error: Exception, who: str = "") -> None:
        """Schedule a retry; fail the job for an error that a retry cannot change, or after `RESOURCE_SECONDS`."""
        self._unable_since = self._unable_since or now
        message = self._mask(who + _error_text(error))
        if isinstance(error, (Refused, Invalid)) or now - self._unable_since >= RESOURCE_SECONDS:
            self._failed_verdict = Verdict("Failed", _reason_of(error, reason), message)
        self._wait(now, reason, message)

    def _wait(self, now: float, reason: str, message: str, seconds: float = RETRY) -> None:
        self._retry_at = now + seconds
        self.status.reason, self.status.message = reason, message

    def describe(self, now: float, ending: bool) -> None:
        """Update `status`. ending: whether the supervisor terminates the pods."""
        status = self.status
        self._ran = self._ran or any(p.ready for p in self._pods.values())
        status.restarts = self.jobset.restarts
        status.steps = steps_of(self.record.jobset, self.jobset, self._pods)
        status.attempts = self.attempts.all
        if status.terminal:
            return
        if self._ran and all_ready(self.jobset.jobs):
            self._restarting = ""
        if ending or self.verdict_due:
            status.reason = "Ending"
        elif now >= self._retry_at:
            status.reason, message = self._reason()
            if message or not self._restarting:
                status.message = message
        if self._restarting:
            status.phase = Phase.RESTARTING.value
        elif self._ran and not installing(self._pods.values()):
            status.phase = Phase.RUNNING.value
        elif self._pods:
            status.phase = Phase.STARTING.value
        elif self._queued:
            status.phase = Phase.QUEUED.value
        elif self._site is None or self.jobset.waits_for():
            status.phase = Phase.PENDING.value

    def suspended(self) -> JobStatus:
        """Return the status of the suspended job, whose pods have ended."""
        steps = steps_of(self.record.jobset, self.jobset, self._pods)
        for step in steps:
            if not Phase(step.phase).terminal:
                step.phase = Phase.SUSPENDED.value
        return replace(
            self.status,
            phase=Phase.SUSPENDED.value,
            reason="SuspendedJobs",
            message="",
            steps=steps,
            attempts=self.attempts.all,
        )

    def _reason(self) -> tuple[str, str]:
        if self._restarting:
            return self._restarting, ""
        waiting = [p.plan.name for p in self._pods.values() if p.next_restart_at]
        waiting += [j.name for j in self.jobset.jobs if j.in_backoff]
        if waiting:
            why = failure.cause_summary(self._all_failures())
            message = f"{', '.join(waiting[:3])} failed and will be started again"
            if why:
                message += f": {why}"
            return "BackOff", message
        if not self._pods:
            waits_for = self.jobset.waits_for()
            if waits_for:
                return "DependsOn", waits_for
        packages = installing(self._pods.values())
        if not packages:
            return "", ""
        message = f"installing {join_names(packages, _MOST_NAMED)}"
        install_progress = sorted({c.install_progress for c in self._containers()} - {""})
        if install_progress:
            message += f" ({install_progress[0]})"
        return "", message


def _error_text(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    hint = ""
    if is_disk_full(error):
        hint = ". Hint: free some space there, then run it again"
    if error.filename:
        return f"{error.filename}: {error.strerror}{hint}"
    return f"{error}{hint}"


def _reason_of(error: Exception, otherwise: str) -> str:
    if is_disk_full(error):
        return "DiskFull"
    return otherwise
