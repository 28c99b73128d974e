"""Memory limits on this machine: which processes and pages count, and what a job says that has reached its limit."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from local_support import NAMESPACE, OVERWRITTEN, jobset, living, log, python, run, step, submission, wait
from pulumi_trainer.provider.targets.local import LocalTarget, machine, memory_limits
from pulumi_trainer.provider.targets.local.failure import Failure, cause_summary, report
from pulumi_trainer.provider.targets.local.process import MARK

from tests.documented import blocks

FILL = "held = bytearray(b'x') * ({mib} << 20); print('filled', flush=True)\n"
"""Takes memory; zeros alone would take none."""
WAIT = "import time; time.sleep(120)\n"
END = "import time; time.sleep(2)\n"
CHILDREN = """
import subprocess, sys
each = [sys.executable, "-S", "-c", sys.argv[1]]
children = [subprocess.Popen(each, start_new_session=True) for _ in range(2)]
sys.exit(max(child.wait() for child in children))
"""
"""Starts children as torchrun does: each in a session of its own."""
SHARED = """
import mmap, os, time
held = mmap.mmap(-1, 200 << 20)
own = bytearray(b"x") * (50 << 20)
children = []
for _ in range(4):
    child = os.fork()
    if not child:
        for at in range(0, len(held), 4096):
            held[at] = 1
        sum(own[::4096])
        time.sleep(2)
        os._exit(0)
    children.append(child)
sys_exit = [os.waitpid(child, 0) for child in children]
"""
"""Four children that share 200 MiB and inherit 50 MiB: 250 MiB, of which each shows all as resident."""
DAEMON = """
import os, subprocess, sys, time
if not os.fork():
    os.setsid()
    subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1]])
    os._exit(0)
time.sleep(120)
"""
"""Leaves its child to the supervisor, in another session."""


def containers(home: Path) -> list[psutil.Process]:
    """Processes of containers that live, without supervisors."""
    found = []
    for process in living(home):
        with suppress(psutil.Error):
            if process.environ().get(MARK, "").count("/"):
                found.append(process)
    return found


def limited(command: list[str], memory: str = "300Mi", **fields: Any) -> dict[str, Any]:
    """A step whose container has a memory limit."""
    return step(command=command, container_fields={"resources": {"limits": {"memory": memory}}}, **fields)


def test_a_container_that_reaches_its_limit_is_killed_and_the_job_says_so(local: LocalTarget, home: Path) -> None:
    program = "print('begins', flush=True)\n" + FILL.format(mib=400)
    status = run(local, jobset(limited(python(program + WAIT))))
    assert status.phase == "Failed"
    first, *_, last = status.message.splitlines()
    (block,) = blocks("docs/on-this-machine.md", __file__)
    assert [first, "...", last] == block.text.replace("digits", "job").splitlines()
    assert "  begins" in status.message.splitlines(), status.message
    [attempt] = status.attempts
    assert (attempt.cause, attempt.detail) == ("OOMKilled", "memory limit 300Mi reached")
    assert "pulumi-trainer: memory limit 300Mi reached: the container had " in log(local)
    assert not containers(home)


def test_a_silent_program_has_its_limit_as_the_reason_while_it_waits_for_its_next_attempt(local: LocalTarget) -> None:
    document = jobset(limited(python("held = bytearray(b'x') * (400 << 20)\n" + WAIT), job={"backoffLimit": 6}))
    quickly, local.jobs.tuning = local.jobs.tuning, replace(local.jobs.tuning, backoff=600.0)
    local.jobs.create(submission(document))
    status = wait(local, until=lambda s: s.reason == "BackOff" or s.terminal)
    assert status.message == "job-node-0 failed and will be started again: memory limit 300Mi reached"
    local.jobs.delete(NAMESPACE, "job")
    local.jobs.tuning = quickly
    status = run(local, document)
    assert (status.reason, status.steps[0].failed) == ("SameFailureTwice", 2)


def test_its_exit_code_is_that_of_kubernetes_so_rules_about_it_apply(local: LocalTarget) -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [137]}}
    job = {"backoffLimit": 6, "podFailurePolicy": {"rules": [rule]}}
    status = run(local, jobset(limited(python(FILL.format(mib=400) + WAIT), job=job)))
    assert "exit code 137" in status.message and status.steps[0].failed == 1, status.message


def test_a_container_is_started_again_in_its_pod(local: LocalTarget, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    once = f"import os, sys\nif os.path.exists({str(mark)!r}): sys.exit()\nopen({str(mark)!r}, 'w')\n"
    command = python(once + FILL.format(mib=400) + WAIT)
    status = run(local, jobset(limited(command, pod={"restartPolicy": "OnFailure"}, job={"backoffLimit": 6})))
    assert (status.phase, status.steps[0].restarts) == ("Succeeded", 1)


def test_children_in_sessions_of_their_own_count(local: LocalTarget, home: Path) -> None:
    status = run(local, jobset(limited(python(CHILDREN, FILL.format(mib=200) + WAIT))))
    assert "memory limit 300Mi reached" in status.message
    assert not containers(home)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone can adopt orphans")
@pytest.mark.parametrize("hides", [False, True], ids=["in-another-session", "without-its-mark"])
def test_orphans_count(local: LocalTarget, home: Path, hides: bool) -> None:
    command = python(DAEMON, FILL.format(mib=400) + WAIT)
    if hides:
        command = python(
            DAEMON.replace("os.setsid()", "pass"), OVERWRITTEN + "overwrite()\n" + FILL.format(mib=400) + WAIT
        )
    assert "memory limit 300Mi reached" in run(local, jobset(limited(command))).message
    assert not containers(home)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells which pages are shared on Linux alone")
def test_memory_that_processes_share_counts_once(local: LocalTarget) -> None:
    assert run(local, jobset(limited(python(SHARED)))).phase == "Succeeded"
    until_killed = python(SHARED.replace("time.sleep(2)", "time.sleep(60)"))
    assert "memory limit 200Mi reached" in run(local, jobset(limited(until_killed, "200Mi"), name="less")).message


@pytest.mark.parametrize(
    ("own", "used", "killed_at"),
    [
        (10, [150, 150, 90, 150, 150], 0),  # a page was counted twice while processes were read
        (10, [150, 150, 150], 3),
        (150, [150], 1),
        (10, [90, 90], 0),
    ],
)
def test_shared_memory_has_to_be_over_the_limit_several_times(
    own: int, used: list[int], killed_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    container = SimpleNamespace(
        memory_limit=100, leader=1, plan=SimpleNamespace(env={MARK: "m"}),
        kill_at_memory_limit=lambda amount, _: killed.append(amount),
    )  # fmt: skip
    monkeypatch.setattr(memory_limits.process, "processes_by_parent", dict)
    monkeypatch.setattr(memory_limits.process, "processes_of_container", lambda *_: [None])
    monkeypatch.setattr(memory_limits, "_own", lambda _: own)
    limits, at = memory_limits.MemoryLimits(), 0
    for check, amount in enumerate(used, 1):
        monkeypatch.setattr(memory_limits, "memory_of", lambda *_, amount=amount: amount)
        limits._next = 0.0
        limits.enforce([container])  # type: ignore[list-item]
        at = at or (check if killed else 0)
    assert at == killed_at


def test_each_container_has_its_own_limit(local: LocalTarget) -> None:
    fill = python(FILL.format(mib=200) + END)
    assert run(local, jobset(limited(fill, pods=2))).phase == "Succeeded"
    free = step("free", python(FILL.format(mib=400) + END))
    assert run(local, jobset(limited(fill), free, name="other")).phase == "Succeeded"


def test_an_init_container_has_a_limit_as_well(local: LocalTarget) -> None:
    fields = {"resources": {"limits": {"memory": "300Mi"}}}
    init = {"name": "load", "image": "x", "command": python(FILL.format(mib=400) + WAIT), **fields}
    status = run(local, jobset(step(pod={"initContainers": [init]})))
    assert "memory limit 300Mi reached (container load)" in status.message


def failed(tmp_path: Path, **fields: Any) -> Failure:
    known: dict[str, Any] = {"step": "node", "pod": "pod-0", "index": 0, "container": "node", "code": 137, "ran": 1.0}
    known |= {"at": 100.0, "tail": "", "log": tmp_path / "log", "signal": 9}
    return Failure(**{**known, **fields})


def test_what_the_kernel_has_killed_for_lack_of_memory_is_a_part_of_the_reason(tmp_path: Path) -> None:
    reason = "signal 9 (SIGKILL), exit code 137; meanwhile the kernel killed 2 programs for lack of memory"
    assert cause_summary([failed(tmp_path, oom_kills=2)]) == reason
    first, *_, hint = report("verdict", [failed(tmp_path, oom_kills=2)]).splitlines()
    assert first.endswith(f": {reason} (container node)")
    assert hint == "Hint: use a smaller batch, or run fewer jobs at once: Local(max_parallel=)"
    assert cause_summary([failed(tmp_path)]) == "signal 9 (SIGKILL), exit code 137: it printed nothing"
    assert cause_summary([failed(tmp_path, oom_kills=2, signal=0, code=1)]) == "exit code 1: it printed nothing"


def test_the_kernels_count_is_read_from_its_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = tmp_path / "vmstat"
    monkeypatch.setattr(machine, "KERNEL_STATISTICS", statistics)
    assert machine.kernel_oom_kills() == 0
    statistics.write_text("nr_free_pages 1\noom_kill 7\noom_kill_other 9\n")
    assert machine.kernel_oom_kills() == 7
