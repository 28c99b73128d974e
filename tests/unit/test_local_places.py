"""How many jobs of one root run at once, and who is next."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from local_support import NAMESPACE, eventually, jobset, kill_supervisor, log, python, step, submission, wait
from pulumi_trainer.provider.jobs.status import JobStatus, Owner
from pulumi_trainer.provider.targets.local import LocalTarget, places
from pulumi_trainer.provider.targets.local.leases import Leases
from pulumi_trainer.provider.targets.local.machine import GPU

HOLD = "import os, sys, time; print('up', flush=True)\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)"


def hold(local: LocalTarget, name: str, **fields: Any) -> dict[str, Any]:
    """A job that runs until `go_on`."""
    return jobset(step(command=python(HOLD, str(local.root / f"{name}.end"))), name=name, **fields)


def go_on(local: LocalTarget, name: str) -> None:
    (local.root / f"{name}.end").touch()


def start(local: LocalTarget, *names: str) -> None:
    """Start jobs one after the other, each when the one before runs or waits."""
    for name in names:
        local.jobs.create(submission(hold(local, name)))
        wait(local, name, until=lambda s: s.phase == "Queued" or (s.phase == "Running" and s.reason == ""))


def queued(local: LocalTarget, name: str) -> JobStatus:
    return wait(local, name, until=lambda s: s.phase == "Queued")


def runs(local: LocalTarget, name: str) -> JobStatus:
    return wait(local, name, until=lambda s: s.phase == "Running")


@pytest.fixture
def one(local: LocalTarget) -> LocalTarget:
    """A target that runs one job at once."""
    local.limit_jobs(1)
    return local


def test_jobs_run_in_the_order_in_which_they_came_and_say_behind_whom_they_wait(one: LocalTarget) -> None:
    start(one, "a", "b", "c")
    assert queued(one, "b").message == "waits for the only place (max_parallel=1): behind a"
    status = queued(one, "c")
    assert (status.reason, status.message) == ("MaxParallel", "waits for the only place (max_parallel=1): behind a, b")
    assert not status.started and not log(one, "c-node-0-0", "c")
    go_on(one, "a")
    runs(one, "b")
    wait(one, "c", until=lambda s: s.message.endswith(": behind b"))
    go_on(one, "b")
    assert runs(one, "c").message == ""
    go_on(one, "c")
    assert wait(one, "c").phase == "Succeeded"
    assert sorted(file.name for file in (one.root / "queue").iterdir()) == ["limit", "lock"]


def test_several_places(local: LocalTarget) -> None:
    local.limit_jobs(2)
    start(local, "a", "b", "c")
    assert queued(local, "c").message == "waits for one of 2 places (max_parallel=2): behind a, b"
    go_on(local, "b")
    runs(local, "c")
    assert runs(local, "a").phase == "Running"
    go_on(local, "a"), go_on(local, "c")


@pytest.mark.parametrize("killed", ["a", "b"])
def test_a_dead_supervisor_frees_its_place_and_its_turn(one: LocalTarget, killed: str) -> None:
    start(one, "a", "b", "c")
    kill_supervisor(one, killed)
    assert wait(one, killed).reason == "SupervisorLost"
    if killed == "b":
        go_on(one, "a")
    else:
        runs(one, "b")
        go_on(one, "b")
    runs(one, "c")
    go_on(one, "c")
    assert wait(one, "c").phase == "Succeeded"


def test_a_waiting_job_can_be_deleted_and_suspended(one: LocalTarget) -> None:
    start(one, "a", "b", "c", "d")
    one.jobs.delete(NAMESPACE, "b")
    assert one.jobs.status(NAMESPACE, "b") is None
    one.jobs.update(submission(hold(one, "c", suspend=True)))
    assert wait(one, "c", until=lambda s: s.phase == "Suspended").started == 0
    wait(one, "d", until=lambda s: s.message.endswith(": behind a"))
    one.jobs.update(submission(hold(one, "c")))
    wait(one, "c", until=lambda s: s.message.endswith(": behind a, d"))
    go_on(one, "a")
    runs(one, "d")
    go_on(one, "d")
    runs(one, "c")
    go_on(one, "c")


def test_a_waiting_job_can_be_stopped_and_run_again(one: LocalTarget) -> None:
    start(one, "a", "b", "c")
    stopped = one.jobs.stop(NAMESPACE, "b", Owner("owner-1", "stack-1"), "stopped")
    assert (stopped.phase, stopped.message, stopped.started) == ("Failed", "stopped", 0)
    wait(one, "c", until=lambda s: s.message.endswith(": behind a"))
    one.jobs.rerun(submission(hold(one, "b")))
    assert queued(one, "b").message.endswith(": behind a, c")
    for name in "acb":
        runs(one, name)
        go_on(one, name)
    assert wait(one, "b").phase == "Succeeded"


def test_a_suspended_job_gives_its_place_away(one: LocalTarget) -> None:
    start(one, "a", "b")
    one.jobs.update(submission(hold(one, "a", suspend=True)))
    runs(one, "b")
    one.jobs.update(submission(hold(one, "a")))
    assert queued(one, "a").message.endswith(": behind b")
    go_on(one, "b"), go_on(one, "a")
    assert wait(one, "a").phase == "Succeeded"


def test_time_in_the_queue_does_not_count(one: LocalTarget) -> None:
    start(one, "a")
    short = jobset(step(job={"activeDeadlineSeconds": 4}), name="b")
    one.jobs.create(submission(short))
    queued(one, "b")
    time.sleep(4.2)
    go_on(one, "a")
    status = wait(one, "b")
    assert status.phase == "Succeeded" and status.started >= wait(one, "a").finished


def test_another_limit_holds_for_those_that_wait(one: LocalTarget) -> None:
    start(one, "a", "b", "c")
    one.limit_jobs(2)
    runs(one, "b")
    wait(one, "c", until=lambda s: s.message.startswith("waits for one of 2 places"))
    one.limit_jobs(None)
    runs(one, "c")
    for name in "abc":
        go_on(one, name)


def test_who_waits_for_gpus_keeps_no_place(one: LocalTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'GPU 0: H200'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{smi.parent}:{os.environ['PATH']}")
    held = Leases()
    assert held.gpus(1, [0]) == ([0], [])
    one.jobs.create(submission(jobset(step(container_fields={"resources": {"limits": {GPU: 1}}}), name="gpu")))
    wait(one, "gpu", until=lambda s: s.reason == "WaitingForGPUs")
    start(one, "a")
    runs(one, "a")
    held.release()
    assert queued(one, "gpu").message.endswith(": behind a")
    go_on(one, "a")
    assert wait(one, "gpu").phase == "Succeeded"


def test_two_roots_do_not_wait_for_each_other(one: LocalTarget, tmp_path: Path) -> None:
    other = LocalTarget(tmp_path / "other", python=one.jobs.python)
    other.jobs.tuning = one.jobs.tuning
    other.limit_jobs(1)
    start(one, "a")
    start(other, "b")
    runs(other, "b")
    go_on(one, "a")
    other.jobs.delete(NAMESPACE, "b")


def test_the_default(monkeypatch: pytest.MonkeyPatch, local: LocalTarget) -> None:
    for cpus, gpus, limit in ((1, 0, 4), (16, 0, 16), (2, 8, 8)):
        monkeypatch.setattr(places, "cpus", lambda cpus=cpus: cpus)
        monkeypatch.setattr(places, "gpus", lambda gpus=gpus: gpus)
        assert places.default_limit() == limit
    held = [places.Place(local.root, f"job-{i}", f"uid-{i}", float(i)) for i in range(10)]
    waits = [place.take() for place in held]
    assert waits[:8] == [None] * 8
    assert str(waits[9]) == (
        "waits for one of 8 places (max_parallel=8, the default): behind job-0, job-1, job-2 and 6 more"
    )
    for place in held:
        place.release()


@pytest.mark.parametrize("content", ["", "none", "0", "-3", "9" * 5000])
def test_a_damaged_limit_is_the_default(local: LocalTarget, content: str) -> None:
    local.limit_jobs(1)
    (local.root / "queue" / "limit").write_text(content)
    held = [places.Place(local.root, name, name, 0.0) for name in ("a", "b")]
    assert [place.take() for place in held] == [None, None]
    for place in held:
        place.release()


def test_links_in_the_queue_are_not_followed(one: LocalTarget, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    first = places.Place(one.root, "a", "a", 0.0)
    assert first.take() is None
    (one.root / "queue" / "0-x.waits").symlink_to(outside)
    with pytest.raises(OSError, match=r"symbolic link|loop"):
        places.Place(one.root, "b", "b", 0.0).take()
    first.release()
    assert outside.read_text() == "mine"


def test_a_job_whose_place_was_removed_by_hand_is_left_alone(one: LocalTarget) -> None:
    start(one, "a")
    folder = one.root / "queue"
    for file in folder.glob("*.runs"):
        file.unlink()
    start(one, "b")
    assert {s.name: s.phase for s in one.jobs.list_all()} == {"a": "Running", "b": "Running"}
    go_on(one, "a"), go_on(one, "b")
    eventually(lambda: all(s.terminal for s in one.jobs.list_all()))
    assert wait(one, "b").phase == "Succeeded"
