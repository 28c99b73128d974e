"""Rules about jobs that end before they are done: checkpoints, grace periods, restarts, deadlines, preemption."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from pulumi_trainer.provider.jobs.attempts import INTERRUPTED_RULE
from pulumi_trainer.provider.jobs.checkpoints import CHECKPOINT_DIR
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, items, labels_of, name_of, section, text
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.kueue.labels import PRIORITY
from pulumi_trainer.provider.trainer.admission.warnings.launchers import find_launch, is_bootstrapped
from pulumi_trainer.provider.trainer.admission.warnings.queues import cluster_queue_of_job
from pulumi_trainer.provider.trainer.admission.warnings.quota_changes import preemption_policy, reclaiming_queues
from pulumi_trainer.provider.trainer.admission.warnings.storage import UNCOUNTED, loses_all
from pulumi_trainer.provider.trainer.admission.warnings.view import Step, View, number, value_or_unknown
from pulumi_trainer.provider.trainer.labels import patched_jobs
from pulumi_trainer.provider.trainer.pipeline.disruptions import (
    DISRUPTED,
    RESTART,
    STOPPED,
    TERMINATED,
    action_after_disruption,
    may_tolerate,
    tolerates,
    trains,
)

GRACE = "TRAINER_CHECKPOINT_GRACE"
OUTPUT = "TRAINER_OUTPUT_DIR"
"""Variables of a job that saves its work: `components/plan/checkpoint_policy.py` and `mounts.py` set them."""

_DEFAULT_GRACE = 30
"""terminationGracePeriodSeconds of a Pod that declares none."""
_TORCHRUN = re.compile(r"\btorchrun\b|\btorch\.distributed\.run\b|\baccelerate(\.commands\.| )launch\b")
"""Commands that start a torch.distributed elastic agent."""
_AGENT_WAITS = 30
"""Seconds between SIGTERM and SIGKILL for the workers of an elastic agent, if nothing else is set."""
_SETTING, _SETTING_SINCE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", (2, 12)
_OPTION = re.compile(r"--shutdown[-_]timeout\b")
_TORCH_IMAGE = re.compile(r"(?:^|/)pytorch:v?(\d+)\.(\d+)\b")
_LONGEST_DEADLINE = (2**63 - 1) // 10**9
"""Seconds whose nanoseconds an int64 holds."""


def counted_disruptions(view: View) -> Iterator[Problem]:
    """Yield that a job saves checkpoints, and disruptions use its restarts, or end it.

    Sources: https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy,
    https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/controllers/failure_policy.go
    """
    rules = [value_or_unknown(view.jobset, "spec", "failurePolicy")]
    for step in view.steps:
        rules += [
            value_or_unknown(step.job, "podFailurePolicy"),
            value_or_unknown(step.template, "spec", "restartPolicy"),
        ]
    if not view.steps_known or first_unknown(rules) is not None:
        return
    if not view.variable(CHECKPOINT_DIR) or _may_replace_pods(view):
        return
    found = [*_pods_that_count(view), *_jobset_that_counts(view)]
    if found:
        causes = "; ".join(each.why for each in found)
        hints = "; ".join(each.hint for each in found)
        why = (
            "this job saves checkpoints, but after an eviction, a drain or a lost node it does not restart"
            f" cleanly: {causes}"
        )
        hint = f"in the runtime, {hints}"
        if view.mode == "trainer" and all(map(may_tolerate, filter(trains, view.steps))):
            hint += '; or use mode="jobset", in which TrainJob(checkpoint=) adds the rules'
        yield Problem(found[0].where, why, hint)


def _may_replace_pods(view: View) -> bool:
    """Return whether Kubernetes replaces a Pod after a disruption without counting it, and no peer waits for it in vain."""
    if view.nodes != 1:
        return False
    actions = [_first_action(step) for step in view.steps if trains(step)]
    return actions == ["Ignore"]


def _pods_that_count(view: View) -> Iterator[Problem]:
    for step in filter(trains, view.steps):
        at = f"{step.at}.template.spec.podFailurePolicy"
        rules = json.dumps({"rules": [DISRUPTED, STOPPED]})
        hint = (
            f"write restartPolicy: Never for the Pods of {step.name}, and podFailurePolicy: {rules} and backoffLimit: 0 for its"
            " Jobs"
        )
        if not may_tolerate(step):
            restart, at = step.pod.spec.get("restartPolicy"), f"{step.pod.at}.restartPolicy"
            why = (
                f"the Pods of {step.name} have restartPolicy {restart}, with which Kubernetes allows no"
                " podFailurePolicy"
            )
            if view.mode == "jobset" and _has_rule(view):
                hint = "write restartPolicy: Never, or leave it out: the checkpoint policy then adds the rules"
            yield Problem(at, why, hint)
            return
        if tolerates(step):
            continue
        action = _first_action(step)
        if not action:
            why = f"no podFailurePolicy of {step.name} fails its Job when a Pod is disrupted"
            yield Problem(at, why, hint)
            return
        why = f"the first rule of {step.name} for DisruptionTarget is {action}, not FailJob"
        if view.several_nodes:
            why += ": a new Pod starts alone, and its peers wait for it"
        yield Problem(at, why, f"let the first rule be {json.dumps(DISRUPTED)}")
        return


def _has_rule(view: View) -> bool:
    rules = items(section(view.jobset, "spec", "failurePolicy"), "rules")
    return INTERRUPTED_RULE in [rule.get("name") for rule in rules]


def _first_action(step: Step) -> str:
    """Return the action of the first rule for disruptions; empty if there is none."""
    for rule in items(step.job.get("podFailurePolicy"), "rules"):
        if any(each.get("type") == "DisruptionTarget" for each in items(rule, "onPodConditions")):
            return str(rule.get("action"))
    return ""


def _jobset_that_counts(view: View) -> Iterator[Problem]:
    for step in filter(trains, view.steps):
        action = action_after_disruption(view.jobset, step)
        if action in UNCOUNTED:
            continue
        if not isinstance(section(view.jobset, "spec").get("failurePolicy"), dict):
            why = "without failurePolicy a failed Job ends the job"
        elif action.startswith("Restart"):
            why = f"failurePolicy reacts with {action}, which uses one of maxRestarts"
        else:
            why = f"failurePolicy reacts with {action}, which ends the job"
        hint = f"begin failurePolicy.rules with {json.dumps(RESTART)}"
        yield Problem("spec.template.spec.failurePolicy", why, hint)
        return


def unfinished_success(view: View) -> Iterator[Problem]:
    """Yield that a job saves checkpoints, and its program may report success when it is interrupted.

    torchrun itself never does: it ends with an error after SIGTERM.

    Source: https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/controller/job/job_controller.go
    """
    words = _command(view)
    if (
        words is None
        or not view.variable(CHECKPOINT_DIR)
        or is_bootstrapped(words)
        or _TORCHRUN.search(" ".join(words))
    ):
        return
    what = "the command"
    if not words:
        what = "the command of the image"
    why = (
        f"{what} has to end with exit code {TERMINATED} after SIGTERM: with 0 its Pod counts as complete although the program"
        " was interrupted, and never starts again"
    )
    hint = (
        f"let it end with {TERMINATED}, or use script= or source= of CustomTrainer, which do; else ignore this warning"
    )
    yield Problem("spec.trainer.command", why, hint)


def torchrun_kills(view: View) -> Iterator[Problem]:
    """Yield Pods with a longer grace period than torchrun gives its workers.

    Sources: https://github.com/pytorch/pytorch/blob/v2.10.0/torch/distributed/elastic/multiprocessing/api.py,
    https://github.com/pytorch/pytorch/pull/172596
    """
    if not view.has_policy("torch") or view.worker is None:
        return
    grace = number(view.worker.pod.spec.get("terminationGracePeriodSeconds"))
    if grace is None or grace <= _AGENT_WAITS:
        return
    words = _command(view)
    text = " ".join(words or ())
    if (
        words is None
        or is_bootstrapped(words)
        or find_launch(view) is not None
        or not _TORCHRUN.search(text)
        or isinstance(value_or_unknown(view.trainers[0].node, "env"), Unknown)
    ):
        return
    version, chosen = _torch_version(view), bool(view.variable(_SETTING) or _OPTION.search(text))
    fixed = version is not None and version < _SETTING_SINCE
    if chosen and not fixed:
        return
    since = ".".join(map(str, _SETTING_SINCE))
    why = (
        f"torchrun kills its workers {_AGENT_WAITS} seconds after SIGTERM, but the Pods have {grace}"
        " (terminationGracePeriodSeconds): a checkpoint that takes longer is never complete"
    )
    hint = f"set {_SETTING} in env (torch {since} or newer)"
    if version is not None and fixed:
        why += f"; torch {version[0]}.{version[1]} in the image cannot change these {_AGENT_WAITS} seconds"
        hint = f"use an image with torch {since} or newer, and set {_SETTING} in env"
    yield Problem(
        "spec.trainer.command",
        why,
        f"{hint}, or use script= or source= of CustomTrainer with checkpoint=, which stop the workers themselves",
    )


def short_grace(view: View) -> Iterator[Problem]:
    """Yield Pods that are killed before the time that their program has for a checkpoint is over."""
    promised = view.variable(GRACE)
    if not promised.isdecimal():
        return
    for step in filter(trains, view.steps):
        given = step.pod.spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE)
        grace = number(given)
        if grace is not None and grace < int(promised) and (step in view.trainers or step is view.worker):
            why = (
                f"is {grace} for {step.name}, but {GRACE} promises {promised} seconds after SIGTERM: the program is"
                " killed while it saves a checkpoint"
            )
            yield Problem(_grace_at(view, step), why, f"give more than {promised}, or lower grace= of CheckpointPolicy")
            return


def _grace_at(view: View, step: Step) -> str:
    for place, patch in reversed(view.patches):
        for job in patched_jobs(patch, f"spec.runtimePatches[{place}]"):
            if job.name == step.name and "terminationGracePeriodSeconds" in job.pod.spec:
                return f"{job.pod.at}.terminationGracePeriodSeconds"
    return f"{step.pod.at}.terminationGracePeriodSeconds"


def repeated_failure(view: View) -> Iterator[Problem]:
    """Yield a TTL after which Trainer's controller creates the JobSet of a failed job again.

    Up to 2.3.0, the controller removes the condition Failed before it looks whether the TrainJob has finished, and then finds no
    JobSet: https://github.com/kubeflow/trainer/pull/3891
    """
    ttl = number(section(view.jobset, "spec").get("ttlSecondsAfterFinished"))
    if view.mode == "trainer" and ttl is not None and not view.release.failure_is_final:
        why = (
            f"JobSet deletes a failed job {ttl} seconds later, and the controller of Trainer {view.release.version} creates it"
            " again: the job fails and starts over forever"
        )
        yield Problem("spec.template.spec.ttlSecondsAfterFinished", why, "leave it out, or use Trainer 2.4")


def repeated_step(view: View) -> Iterator[Problem]:
    """Yield a TTL of a Job that ends before its JobSet does.

    JobSet creates each Job that is missing: `shouldCreateJob` of
    https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/controllers/jobset_controller.go
    """
    policy = view.success_policy
    if policy is None:
        return
    one_is_enough = policy.one_is_enough or len(policy.steps) == 1
    for step in view.steps:
        ttl = number(step.job.get("ttlSecondsAfterFinished"))
        is_last = one_is_enough and step.name in policy.steps and step.replicas == 1
        if ttl is not None and not is_last:
            why = (
                f"deletes the Job of {step.name} {ttl} seconds after its end, and JobSet creates it again while the other Jobs"
                f" run: {step.name} runs again beside them"
            )
            hint = "write ttlSecondsAfterFinished into spec.template.spec instead: JobSet deletes all Jobs after the last one"
            yield Problem(f"{step.at}.template.spec.ttlSecondsAfterFinished", why, hint)


def replaced_pods(view: View) -> Iterator[Problem]:
    """Yield a deadline of Pods, whose Job creates another Pod after it.

    Source: https://kubernetes.io/docs/concepts/workloads/controllers/job/#job-termination-and-cleanup
    """
    for step in view.steps:
        deadline, retries = number(step.pod.spec.get("activeDeadlineSeconds")), step.job.get("backoffLimit", 6)
        if deadline is not None and number(retries):
            why = (
                f"ends each Pod of {step.name} after {deadline} seconds, and its Job creates another up to {retries} times"
                " (backoffLimit): the step starts over"
            )
            hint = "write activeDeadlineSeconds into the spec of the TrainJob, which ends the job"
            yield Problem(f"{step.pod.at}.activeDeadlineSeconds", why, hint)


def restarts_alone(view: View) -> Iterator[Problem]:
    """Yield nodes of which a failed one starts again in its Pod, and cannot join the others."""
    step = view.first_trainer
    if step is None or not view.several_nodes or view.has_policy("mpi", "flux"):
        return
    if step.pod.spec.get("restartPolicy") == "OnFailure":
        why = (
            "is OnFailure: the container of a failed node starts again alone, and the others wait in collective"
            " operations until these time out"
        )
        hint = "write Never, and a failurePolicy with maxRestarts, which starts all nodes again"
        yield Problem(f"{step.pod.at}.restartPolicy", why, hint)


def overflowing_deadline(view: View) -> Iterator[Problem]:
    """Yield deadlines that overflow: both controllers compute `time.Duration(seconds) * time.Second`, an int64 of nanoseconds.

    Sources: `reconcileDeadline` of https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/controller/trainjob_controller.go,
    `pastActiveDeadline` of https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/controller/job/job_controller.go
    """
    own = "spec.activeDeadlineSeconds"
    deadlines = [(own, section(view.train_job, "spec").get("activeDeadlineSeconds"))]
    deadlines += [(f"{step.at}.template.{own}", step.job.get("activeDeadlineSeconds")) for step in view.template]
    for where, given in deadlines:
        deadline = number(given)
        if deadline is not None and deadline > _LONGEST_DEADLINE:
            why = (
                f"is {deadline}: its nanoseconds overflow above {_LONGEST_DEADLINE} seconds, and the job then fails too early,"
                " mostly at once (DeadlineExceeded)"
            )
            yield Problem(where, why, "leave it out for no deadline, or give less")
            return


def unsaved_work(view: View) -> Iterator[Problem]:
    """Yield that Kueue may preempt a job that has no place for checkpoints.

    Source: https://kueue.sigs.k8s.io/docs/concepts/preemption/
    """
    queue = cluster_queue_of_job(view)
    if queue is None or first_unknown(section(queue, "spec", "preemption")) is not None or not _lower_priority(view):
        return
    by = [*_preemptors(view, queue)]
    saves = any(map(view.variable, (CHECKPOINT_DIR, OUTPUT)))
    if by and not saves and view.steps and all(map(loses_all, filter(trains, view.steps))):
        why = (
            f"Kueue may preempt this job, and any other one in the queue that saves nothing beyond its Pods, for"
            f" {' or '.join(by)}: it would start from zero"
        )
        hint = (
            "give it checkpoint=CheckpointPolicy(...), a volume for checkpoints, or the highest priority; ignore this if the"
            " program saves them elsewhere"
        )
        yield Problem(f"LocalQueue {text(view.queue)}", why, hint)  # reported for the first job in it


def _lower_priority(view: View) -> bool:
    """Return whether a known WorkloadPriorityClass is higher than the priority of a job, which has to be known too."""
    name = labels_of(view.queued).get(PRIORITY)
    own: int | None = 0
    if name:
        own = number((view.queues.find("WorkloadPriorityClass", name) or {}).get("value"))
    elif any(step.pod.spec.get("priorityClassName") for step in view.steps):
        return False
    if own is None:
        return False
    values = [number(each.get("value")) or 0 for each in view.queues.of("WorkloadPriorityClass")]
    return any(value > own for value in values)


def _preemptors(view: View, queue: Document) -> Iterator[str]:
    if preemption_policy(queue, "withinClusterQueue") != "Never":
        yield "a job of a higher priority in its queue"
    node = view.queues.tree.queues.get(name_of(queue))
    if node is None:
        return
    others = reclaiming_queues(node, view.queues)
    if others:
        yield f"jobs of {join_names(others)}, which take back their quota"


def _command(view: View) -> list[str] | None:
    """Return command and arguments of the trainer, [] for those of its image; None if they are unknown."""
    container = view.trainer_container
    if container is None or first_unknown([container.get("command"), container.get("args")]) is not None:
        return None
    return view.words or []


def _torch_version(view: View) -> tuple[int, int] | None:
    """Return the version of PyTorch in an image of its project; None for other images."""
    image = (view.trainer_container or {}).get("image")
    if not isinstance(image, str):
        return None
    found = _TORCH_IMAGE.search(image)
    if found is None:
        return None
    return int(found[1]), int(found[2])
