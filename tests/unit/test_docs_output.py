"""What pages show of the output of commands is what these commands print of such jobs, queues and caches.

A block has commands after `$ ` with their output, or one or more messages; `...` stands for any text, on a line of its own for
any lines. The comment before a block may say after this test's path:

wrapped   the page breaks the lines of the output
"""

from __future__ import annotations

import copy
import json
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from occupancy_support import LOCAL
from pulumi_trainer.provider.cli import (
    cache,
    doctor,
    events,
    job_status,
    outputs,
    queue_usage,
    runs,
    runtime_impact,
    usage,
)  # fmt: skip
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.cli.releases import release_of
from pulumi_trainer.provider.jobs.attempts import Attempt
from pulumi_trainer.provider.jobs.metrics import Metric
from pulumi_trainer.provider.jobs.output_facts import Output
from pulumi_trainer.provider.jobs.runs import Identity, Run
from pulumi_trainer.provider.jobs.status import JobStatus, Owner, Step
from pulumi_trainer.provider.jobs.submission import Consumer
from pulumi_trainer.provider.jobs.usage import Demand
from pulumi_trainer.provider.kubernetes.errors import Problem, Refused
from pulumi_trainer.provider.kubernetes.values.accessors import epoch_seconds
from pulumi_trainer.provider.kueue.object_checks import immutable_changes
from pulumi_trainer.provider.kueue.occupancy import Cohort, Occupancy, Queue, Share, Work
from pulumi_trainer.provider.kueue.prices import read_budget, read_price
from pulumi_trainer.provider.lifecycle import ownership
from pulumi_trainer.provider.lifecycle.diagnosis import JobView, diagnose, explain
from pulumi_trainer.provider.lifecycle.events import JobEvent
from pulumi_trainer.provider.lifecycle.usage_report import ClusterUsage
from pulumi_trainer.provider.lifecycle.usage_sums import Ran
from pulumi_trainer.provider.pod.shared.check_data import columns_fault
from pulumi_trainer.provider.service.jobs import State
from pulumi_trainer.provider.service.outputs import Found
from pulumi_trainer.provider.service.reach import ReachedJob
from pulumi_trainer.provider.targets.kubernetes.observe import job_snapshot, job_starts, listing
from pulumi_trainer.provider.targets.kubernetes.queues import draining, queue_snapshot
from pulumi_trainer.provider.targets.local.places import Wait
from pulumi_trainer.provider.trainer.admission.warnings import Queues, complete_queues, queue_warnings
from test_diagnosis import RECORDED
from test_quota_changes import API, EARLY, LATE, holding, queue, waiting
from test_releases import container, live, torch
from test_report import diagnostic, step, urn
from test_start_answers import NOW as ELEVEN
from test_start_answers import Expectation, jobset, said, team, workload

from tests.documented import blocks, pages_run_by

Patch = pytest.MonkeyPatch
NOW = datetime(2026, 11, 23, 21, 13, 21, tzinfo=timezone.utc).timestamp()
HOUR = 3600.0
GPU = "nvidia.com/gpu"
FAILED = """jobset failed due to one or more job failures (first failed job: imagenet-node-0)
container node of pod imagenet-node-0-1-tdsb5 on node gpu-1: exit code 1"""
NEEDED = (
    f"couldn't assign flavors to pod set node: insufficient unused quota for {GPU} in flavor team-h100, 16 more needed"
)


def at(clock: str) -> float:
    """A time of the day of `NOW`."""
    return datetime.fromisoformat(f"2026-11-23T{clock}+00:00").timestamp()


def state(name: str, run: str, phase: str, ready: str, queue: str = "", **status: Any) -> State:
    count = [int(number) for number in ready.split("/")]
    steps = [Step("node", ready=count[0], count=count[1])]
    shown = JobStatus(name, "team", phase=phase, steps=steps, identity=Identity(id=run), **status)
    return State(ReachedJob("team", name), shown, queue)


def states(*found: State) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(job_status, "find_states", lambda *_: [*found])


PROGRESS = {"progressPercentage": 40, "estimatedRemainingSeconds": 190, "metrics": {"loss": "0.4213"}}
IN_A_CLUSTER = states(
    state("digits", "t4kz1f", "Running", "2/2", "research", progress=PROGRESS, created=NOW - 11, started=NOW - 9),
    state("imagenet", "t4kz1g", "Failed", "1/2", reason="FailedJobs", message=FAILED, created=NOW - 11, started=NOW - 9,
          finished=NOW - 5),
    state("llama", "t4kz1h", "Queued", "0/2", "research", reason="Pending", message=NEEDED, created=NOW - 11),
)  # fmt: skip
WAIT = Wait(4, False, ["digits", "sweep-3", "sweep-4", "sweep-5"], ["sweep-6", "sweep-1"])
ON_THIS_MACHINE = states(
    state("digits", "t4kz1f", "Running", "1/1", created=NOW - 42, started=NOW - 41),
    state("sweep-7", "t4kz1h", "Queued", "0/1", reason="MaxParallel", message=str(WAIT), created=NOW - 40),
)
ATTEMPTS = [
    Attempt(1, at("17:03:11"), at("19:13:11"), "Suspended", "by ann with `pulumi-trainer suspend`", 0, 4812, 0),
    Attempt(2, at("19:30:02"), at("20:11:14"), "ProgramError", "exit code 1: ValueError: loss is nan", 4812, 6330, 0),
    Attempt(3, at("20:11:20"), first=6200, last=8514, redone=130, repeating=212),
]


def ran_of(*found: tuple[ReachedJob, Run]) -> Callable[[Patch], None]:
    def patch_runs(patch: Patch) -> None:
        jobs = [*dict.fromkeys(job for job, _ in found)]
        patch.setattr(runs, "chosen_jobs", lambda *_: jobs)
        patch.setattr(
            runs, "read_runs_of_all", lambda _: [(job, [run for each, run in found if each == job]) for job in jobs]
        )

    return patch_runs


DIGITS = ReachedJob("team", "digits")
INPUTS = {
    "code": "8c1f0b6a2d3e", "arguments": '{"lr": 0.1}', "image": "pytorch/pytorch:2.6.0 sha256:1c92ae4371bf",
    "runtime": "torch-distributed@1.0.0 1c92ae4371bf", "nodes": "2",
    "dataset": f"hf://org/digits 5d72ab011c92ae43{48 * '0'}",
}  # fmt: skip
CHANGED = {**INPUTS, "arguments": '{"lr": 0.2}', "dataset": f"hf://org/digits 91fc03de3b771c92{48 * '0'}"}
FIRST = Run(
    id="t4kz1f", lineage="t4kz1f", run="1", phase="Succeeded", created=at("17:03:11"), finished=at("17:05:21"), inputs=INPUTS,
    metrics={"loss": Metric(last="0.42", best="0.4")},
)  # fmt: skip
SECOND = Run(id="t4l38i", lineage="t4l38i", run="again", phase="Running", created=at("18:40:02"), inputs=CHANGED)


def tried(name: str, run: str, last: str, best: str) -> tuple[ReachedJob, Run]:
    inputs = {"arguments": f'{{"lr": {name.removeprefix("lr-")}}}', "nodes": "1"}
    metrics = {"loss": Metric(last=last, best=best), "epoch": Metric(last="3")}
    return ReachedJob("team", name), Run(id=run, phase="Succeeded", inputs=inputs, metrics=metrics)


SWEEP = ran_of(
    tried("lr-10", "t4kz1h", "nan", "2.3"), tried("lr-0.1", "t4kz1f", "0.42", "0.4"), tried("lr-0.01", "t4kz1g", "0.61", "0.61")
)  # fmt: skip


def output_of(patch: Patch, *found: Found) -> None:
    by_job = {id(each.state): each for each in found}
    patch.setattr(outputs, "_states", lambda *_: [each.state for each in found])
    patch.setattr(outputs, "find_output", lambda each, *_: by_job[id(each)])


SAVED = state("digits", "t4kz1f", "Succeeded", "2/2", created=NOW - 2 * HOUR)


def two_outputs(patch: Patch) -> None:
    where = "/home/ann/mnist/.pulumi-trainer/volumes/default-digits/data"
    here = Output(where, 1_200_000, 14, NOW - 7800, NOW - 7080, retained=True)
    claim = Output("pvc://llama-output", 21_500_000_000, created=NOW - 668)
    llama = state("llama", "t4kz1h", "Running", "2/2")
    output_of(patch, Found(SAVED, where, here), Found(llama, claim.where, claim))


def an_output_to_copy(patch: Patch) -> None:
    where = Path("volume").absolute()
    where.mkdir()
    for number in range(14):
        (where / f"part-{number}").write_bytes(bytes(85_714))
    job = ReachedJob("default", "digits", local=SimpleNamespace())  # type: ignore[arg-type]
    patch.setattr(outputs, "read_runs_of", lambda _: [replace(FIRST, place=str(where))])
    output_of(patch, Found(replace(SAVED, job=job), str(where), Output(str(where), 1_200_000, 14)))


def occupied(found: Occupancy) -> Callable[[Patch], None]:
    def patch_queues(patch: Patch) -> None:
        patch.setattr(queue_usage, "in_cluster_of_stack", lambda where: where)
        patch.setattr(queue_usage, "open_cluster", lambda _: (None, "team"))
        patch.setattr(queue_snapshot, "overview", lambda *_: ([], []))
        patch.setattr(job_snapshot, "recorded_preemptors", lambda *_: {})
        patch.setattr(job_starts, "read_starts", lambda *_: {})
        patch.setattr(queue_usage, "occupancy", lambda *_: found)

    return patch_queues


def share(used: int, nominal: int | None = None, borrowed: int = 0, **limits: int) -> list[Share]:
    known = {name: Fraction(value) for name, value in limits.items()}
    own = None if nominal is None else Fraction(nominal)
    return [Share("h100", GPU, Fraction(used), own, Fraction(borrowed), **known)]


def work(name: str, seconds: float, *, priority: int | None = None, why: str = "") -> Work:
    return Work(
        "team", name, "JobSet", "red", not why, {GPU: "8"}, "red", priority, "high" if priority else "", NOW - seconds,
        why=why, flavors=() if why else ("h100",),
    )  # fmt: skip


ROOM = f"it waits in the LocalQueue red: 8 more of {GPU} must become free in flavor h100"
RED = Occupancy(
    [Queue("red", behind="research", admitted=2, pending=1, shares=share(16, 8, 8, lends=8, most=16)),
     Queue("blue", behind="research", shares=share(0, 8))],
    [Queue("red", "team", "red", admitted=2, pending=1, shares=share(16)), Queue("blue", "team", "blue")],
    [work("llama", 252, priority=1000), work("imagenet", 123), work("mixtral", 100, why=ROOM)],
    cohorts=[Cohort("research", shares=share(16, 16, 8))],
)  # fmt: skip
BORROWS = Occupancy(
    [Queue("gpus-nlp", behind="gpus", admitted=3, pending=1, shares=share(24, 16, 8, lends=16, most=24)),
     Queue("gpus-rl", behind="gpus", shares=share(0, 4)), Queue("gpus-vision", behind="gpus", shares=share(0, 4))],
    [Queue("nlp", "nlp", "gpus-nlp", admitted=3, pending=1, shares=share(24)), Queue("rl", "rl", "gpus-rl"),
     Queue("vision", "vision", "gpus-vision")],
    cohorts=[Cohort("gpus", shares=share(24, 24, 8))],
)  # fmt: skip


def event(clock: str, about: str, reason: str, message: str, *, count: int = 1) -> JobEvent:
    kind, _, names = about.partition("/")
    return JobEvent(at(clock), at(clock), count, "Normal", reason, kind, names.split(","), message, run="t4kz1g")


PODS = "Pod/imagenet-node-0-0-p57rm,imagenet-node-0-1-tdsb5"
EVENTS = [
    event("13:37:56", "Job/imagenet-node-0", "SuccessfulCreate", "Created pod: imagenet-node-0-0-p57rm", count=2),
    event("13:37:56", PODS, "Scheduled", "Successfully assigned team/imagenet-node-0-0-p57rm to gpu-0", count=2),
    event("13:37:57", PODS, "Started", "Started container", count=2),
    event("13:37:59", "Pod/imagenet-node-0-1-tdsb5", "Failed", "container exited with non-zero code"),
    event("13:38:00", "Job/imagenet-node-0", "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
    event("13:38:00", "JobSet/imagenet", "FailedJobs", FAILED.partition("\n")[0]),
]


def happened(patch: Patch) -> None:
    patch.setattr(events, "chosen_jobs", lambda *_: [ReachedJob("team", "imagenet", client=SimpleNamespace())])  # type: ignore[arg-type]
    patch.setattr(events, "check_own", lambda *_: None)
    patch.setattr(listing, "list_events", lambda *_: EVENTS)


def used(*found: Ran, **budgets: str) -> Callable[[Patch], None]:
    known = ClusterUsage([*found], {}, {team: read_budget(budget) for team, budget in budgets.items()}, ())

    def patch_usage(patch: Patch) -> None:
        patch.setattr(usage, "open_cluster", lambda _: (None, "team"))
        patch.setattr(usage, "_of_cluster", lambda *_: known)

    return patch_usage


def jobs_of(queue: str, count: int, hours: float, *, gpus: float, cpus: float, runs_now: bool = False) -> list[Ran]:
    demand, end = Demand("ann", queue, gpus, cpus), 0.0 if runs_now else NOW - HOUR
    begin = (end or NOW) - hours * HOUR
    return [Ran(queue or "team", f"{hours}-{runs_now}-{i}", demand, begin, end) for i in range(count)]


A_MONTH = used(
    *jobs_of("nlp", 6, 10, gpus=8, cpus=32, runs_now=True), *jobs_of("nlp", 405, 6, gpus=8, cpus=32),
    *jobs_of("nlp", 1, 210.5625, gpus=8, cpus=32), *jobs_of("vision", 2, 10, gpus=8, cpus=16, runs_now=True),
    *jobs_of("vision", 94, 8, gpus=8, cpus=16), *jobs_of("vision", 1, 6.875, gpus=8, cpus=16),
    *jobs_of("", 10, 1, gpus=1, cpus=4), *jobs_of("", 1, 4.2, gpus=1, cpus=4), *jobs_of("", 1, 0.5, gpus=0, cpus=0.2),
)  # fmt: skip
PAID = [replace(ran, price=read_price("3.50 USD")) for ran in jobs_of("nlp", 1, 101.5, gpus=40, cpus=1)]
BUDGETS = used(*PAID, *jobs_of("vision", 1, 76.5, gpus=8, cpus=1), nlp="20000 USD", vision="5000 GPU-hours")


def cached(patch: Patch) -> None:
    used_by, day = ["default/digits"], 24 * HOUR
    needs, interrupted = ["torch>=2.6", "numpy"], ["(installation interrupted)"]
    found = [
        cache.Entry("environment", Path("0b27c6a7b6399662"), 5_200_000_000, NOW - 12, "3.11.7", needs, used_by),
        cache.Entry("environment", Path("37c306d8606e618c"), 5_400_000_000, NOW - 41 * day, content=interrupted),
        cache.Entry("code archive", Path("30dd0fa5950b063fa773c0.tar.gz"), 1_800_000, NOW - 3 * day),
    ]
    patch.setattr(cache, "_entries", lambda: found)


def recorded(file: str, job: str, seconds: float, words: Mapping[str, str], **given: Any) -> str:
    """What `why` says of a job that a cluster has had, some seconds after. words: Recorded text -> text of the page."""
    text = (RECORDED / f"{file}.json").read_text()
    for old, new in words.items():
        text = text.replace(old, new)
    found = json.loads(text)
    now = epoch_seconds(found.pop("last"))
    view = replace(JobView("team", found.pop("name"), **found), name=job, **given)
    return explain(view, diagnose(view, now + 1), now + seconds)


TRACEBACK = [
    "rank 3 (logs --rank 1.1): exit code 1", "Traceback (most recent call last):", '  File "train.py", line 31, in <module>',
    '    data = ImageFolder("/data/train")', "FileNotFoundError: [Errno 2] No such file or directory: '/data/train'",
    "last other line:", "  [default1]:starting",
]  # fmt: skip


def waits(patch: Patch) -> None:
    why = recorded("queued", "llama", 18, {"team-a": "research"}, queue_flavors=[{"h100"}])
    patch.setattr(job_status, "chosen_jobs", lambda *_: [DIGITS])
    patch.setattr(job_status, "explained", lambda _: SimpleNamespace(text=why))


def has_failed(patch: Patch) -> None:
    pod = "imagenet-node-0-1-tdsb5"
    words = {"fail-worker-0-1-52hj6": pod, "fail-worker": "imagenet-node", '"main"': '"node"', '"exitCode": 3': '"exitCode": 1',
             '"message": "boom", ': ""}  # fmt: skip
    why = recorded("failed", "imagenet", 16, words, lines={pod: TRACEBACK})
    patch.setattr(job_status, "chosen_jobs", lambda *_: [DIGITS])
    patch.setattr(job_status, "explained", lambda _: SimpleNamespace(text=why))


def damaged(patch: Patch) -> None:
    place, mine = ("the cluster", "Job", "team"), Owner("mine", "dev-1", "lab/dev")
    delete = "kubectl delete jobset,configmap -n team mixtral"
    other = ownership.Found(*place, "mixtral", Owner("mine", "dev-2", "lab/dev"), delete=delete, take=ownership.ADOPT)
    found = [*ownership.compare([ownership.Expected(*place, "digits", "digits", mine)], [other], ["dev-1"], "lab/dev")]
    patch.setattr(doctor, "doctor", lambda *_, **__: doctor._print(found, "lab/dev", [], [], 1))


def released(patch: Patch) -> None:
    """The job of the team vision has the variable already."""
    old = torch()
    container(old)["env"] = []
    new = copy.deepcopy(old)
    container(new)["env"] = [{"name": "NCCL_DEBUG", "value": "WARN"}]
    known = {"torch-team@1.0.0": old, "torch-team@1.1.0": new}
    jobs = (("nlp", "llama", 64, True, old), ("nlp", "mix", 16, False, old), ("vision", "vit", 8, True, new))
    found = []
    for name, job, gpus, runs_now, made in jobs:
        used = Consumer(f"{name}/{job}", "torch-team", release_of(old), "stable", "any", jobset=live(made))
        found.append(replace(used, program=f"{name}/prod", queue=name, gpus=gpus, runs=runs_now))
    patch.setattr(runtime_impact, "valid_runtime", lambda name, *_: known[name])
    patch.setattr(runtime_impact, "_consumers", lambda *_: (found, {}))


def previewed(_: Patch) -> None:
    """Of a program with a job that is replaced, one that another release moves, and two new ones."""
    lines = {"llama": 12, "urgent": 18, "mix": 24, "huge": 31}
    moved = step("replace", "mix", 8, "1.1.0", 8, "1.0.0")
    for state, env in (("oldState", []), ("newState", [{"name": "NCCL_DEBUG", "value": "WARN"}])):
        pod = {"template": {"spec": {"containers": [{"name": "node", "env": env}]}}}
        job = {"name": "node", "template": {"spec": pod}}
        moved[state]["inputs"]["objects"] = {"JobSet/mix": json.dumps({"spec": {"replicatedJobs": [job]}})}
    steps = [
        step("create", "urgent", 16), step("create", "huge", 128), step("replace", "llama", 16, before=8), moved,
        *(step("same", f"kept-{number}") for number in range(7)),
    ]  # fmt: skip
    at_lines = [
        {"op": "same", "urn": urn(name), "newState": {"sourcePosition": f"project:///train.py#{line}"}}
        for name, line in lines.items()
    ]
    notes = {
        "llama": ("starts now: 16 h100 of gpus-nlp",), "mix": ("starts now: 8 h100 of gpus-nlp",),
        "urgent": ("preempts rl/grpo-7 (normal) in gpus-rl",),
    }  # fmt: skip
    told = [diagnostic("info", f"{name}: {note}\n", name) for name, found in notes.items() for note in found]
    told += [
        diagnostic("info", 'nlp/llama: arguments {"lr": 0.1} -> {"lr": 0.2}\n'),
        diagnostic("info", "all new runs: about 112 GPU-hours, about 358 USD\n"),
        diagnostic(
            "warning", "warning: PT203: queue: it requests more than its queue can ever have, 64 h100\n", "huge"
        ),
        *(diagnostic("warning", "warning: PT112: /dev/shm\n", name) for name in ("llama", "mix")),
    ]
    document = {"steps": [*steps, *at_lines], "diagnostics": told}
    Path("preview.json").write_text(json.dumps(document).replace("dev::nlp", "prod::nlp"))


OF_A_PAGE: Mapping[str, Mapping[str, Callable[[Patch], None]]] = MappingProxyType({
    "docs/cli.md": {
        "status -n team": IN_A_CLUSTER,
        "status llama --history": states(state("llama", "t4kz1h", "Running", "2/2", attempts=ATTEMPTS)),
        "why llama -n team": waits, "why imagenet -n team": has_failed,
        "runs digits": ran_of((DIGITS, FIRST), (DIGITS, SECOND)), "runs --metrics --sort loss": SWEEP,
        "outputs": two_outputs, "outputs digits --copy ./digits": an_output_to_copy, "queues -n team": occupied(RED),
        "events imagenet -n team": happened,
    },
    "docs/guides/ci.md": {"report preview.json --fail-on never,preempts,refused": previewed},
    "docs/guides/review-a-plan.md": {"usage -A --budget": BUDGETS},
    "docs/on-this-machine.md": {"status": ON_THIS_MACHINE, "cache list": cached},
    "docs/platform-teams.md": {"usage -A --since 30d --by team": A_MONTH, "doctor -s dev": damaged},
    "docs/queues.md": {"queues -A": occupied(BORROWS)},
    "docs/versioning-runtimes.md": {"runtime impact torch-team@1.0.0 torch-team@1.1.0 -A": released},
})  # fmt: skip
"""Page -> command -> what there is when it runs."""


def bad_column(_: Patch) -> str:
    why, hint = columns_fault("dpo", {}, ["messages"]) or ("", "")
    return f"pulumi-trainer: {why}. Hint: {hint}"


def a_busy_queue(patch: Patch) -> str:
    holder = draining.Holder("nlp/jobset-train-4f1c2", "JobSet nlp/train", {GPU: "16"}, "2026-01-31T09:30:00Z")
    patch.setattr(draining, "_check_owners", lambda *_: None)
    patch.setattr(draining, "_own", lambda *_: {})
    patch.setattr(draining, "_emptied", lambda *_, **__: [holder])
    queues: Any = draining.ClusterQueues(SimpleNamespace())  # type: ignore[arg-type]
    with pytest.raises(Refused) as refused:
        queues.release("nlp", "v1beta2", drain=False, seconds=1, marks=[], beside=[])
    return str(refused.value)


def less_quota(_: Patch) -> str:
    def renamed(document: Any) -> Any:
        text = json.dumps(document)
        names = {"team": "rl", "red": "gpus-rl", "blue": "gpus-nlp", "p0": "normal", "p5": "high"}
        for old, new in names.items():
            text = text.replace(f'"{old}"', f'"{new}"')
        return json.loads(text)

    asks = waiting("rl-9", 20)
    asks["spec"] |= {"priority": 5, "priorityClassRef": {"name": "p5"}}
    taker = queue("blue", 8, "all", reclaimWithinCohort="Any")
    jobs = [holding("rl-7", 8, 0, LATE), holding("rl-8", 8, 5, EARLY), asks]
    before = renamed([queue("red", 16, "all"), taker, *jobs, {**API, **LOCAL}])
    program = renamed([queue("red", 8, "all")])
    found = queue_warnings(program, Queues(tuple(program), below=complete_queues(before)))
    return "\n".join(str(warning) for warning in found if warning.code == "PT215")


def another_topology(_: Patch) -> str:
    rack, host = {"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}
    live = {
        "apiVersion": API["apiVersion"],
        "kind": "Topology",
        "metadata": {"name": "dc"},
        "spec": {"levels": [rack, host]},
    }
    (problem,) = immutable_changes({**live, "spec": {"levels": [host]}}, live)
    return str(Problem('Topology("dc").levels', problem.why, problem.hint))


def answers(_: Patch) -> str:
    lower = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    borrows = said([*team("nlp", 48), *team("vision", 64, preemption=lower)], [], jobset("nlp", "llama", 8))
    running = workload("rl", "grpo-7", 16, "2026-11-01T10:00:00Z", rank="normal")
    saved = {"rl/grpo-7": Expectation(saved=ELEVEN - 725)}
    queues = team("rl", 16, preemption={"withinClusterQueue": "LowerPriority"})
    preempts = said(queues, [running], jobset("rl", "llama", 1, priority="high"), **saved)
    mix = workload("nlp", "mix", 16, "2026-11-01T10:00:00Z")
    mix["spec"]["maximumExecutionTimeSeconds"] = 43_200
    waits = said(team("nlp", 24), [mix], jobset("nlp", "llama", 2), mix=Expectation(reported=ELEVEN, remaining=3600))
    return "\n".join(f"llama: {answer}" for answer in (borrows, preempts, waits))


def preempted(_: Patch) -> str:
    given: Any = {"namespace": "rl", "preemptor": "rl/llama (high)", "queue_flavors": [{"h100"}]}
    return recorded("preempted", "digits", 125, {}, **given)


MESSAGES: Mapping[str, list[Callable[[Patch], str]]] = MappingProxyType({
    "docs/guides/fine-tuning.md": [bad_column],
    "docs/queues.md": [a_busy_queue, less_quota, another_topology, answers, preempted],
})  # fmt: skip
"""Page -> what its blocks without commands show, from top to bottom."""


@dataclass(frozen=True)
class Part:
    """A command with its output, or a block of messages, whose command is empty."""

    page: str
    command: str
    output: str
    wrapped: bool

    def check(self, printed: str) -> None:
        shown = self.output
        if self.wrapped:
            shown, printed = " ".join(shown.split()), " ".join(printed.split())
        assert is_shown(shown, printed), f"{self.page}: {self.command}\n{printed}"


def parts() -> Iterator[Part]:
    """Yield the commands that have an output, and the messages."""
    for page in pages_run_by(__file__):
        for block in blocks(page, __file__):
            wrapped = "wrapped" in block.options
            if not block.text.startswith("$ "):
                yield Part(page, "", block.text, wrapped)
                continue
            for each in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
                command, _, output = each.partition("\n")
                if output.strip():
                    yield Part(page, command, output, wrapped)


COMMANDS = [part for part in parts() if part.command]


def is_shown(expected: str, printed: str) -> bool:
    """Whether a page shows these lines; blanks between words do not count."""
    lines = (" ".join(line.split()) for line in expected.strip().split("\n"))
    patterns = ["(.*\n)*?" if line == "..." else ".*".join(map(re.escape, line.split("..."))) + "\n" for line in lines]
    text = "".join(f"{' '.join(line.split())}\n" for line in printed.strip().split("\n"))
    return bool(re.fullmatch("".join(patterns), text))


@pytest.fixture
def utc() -> Iterator[None]:
    """A machine whose time is UTC."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize("part", COMMANDS, ids=[f"{part.page} {part.command}" for part in COMMANDS])
def test_a_command_prints_what_the_page_shows(
    part: Part, monkeypatch: Patch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program, *words = shlex.split(part.command)
    assert program == "pulumi-trainer"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "time", lambda: NOW)
    OF_A_PAGE[part.page][" ".join(words)](monkeypatch)
    cli.run(words)
    printed = capsys.readouterr()
    part.check(printed.out + printed.err)


@pytest.mark.parametrize("page", MESSAGES)
def test_messages_are_those_of_the_code(page: str, monkeypatch: Patch) -> None:
    for message, part in zip(
        MESSAGES[page], (part for part in parts() if part.page == page and not part.command), strict=True
    ):
        part.check(message(monkeypatch))


def test_all_of_the_output_is_compared() -> None:
    assert is_shown("a  b ... c\n...\nd", "a b x c\n1\n2\nd\n") and not is_shown("a\nb", "a\n")
    assert not is_shown("a", "a\nb\n") and not is_shown("a\n\nb", "a\nb\n")
