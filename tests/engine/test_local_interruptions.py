"""A job with a checkpoint policy on this machine: whatever ends its processes, it goes on from its newest checkpoint."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from .conftest import Project, eventually
from .test_checkpoints import JOB, bootstrap_of, run_cli, total

PATIENCE = 60.0
COUNT = int(os.environ.get("LOCAL_INTERRUPTIONS", "6"))
"""`make bench-interruptions` has 100 of them."""
STEPS = 100 + 60 * COUNT
TELLS = """        if stopped:
            open(os.environ["TRAINER_STOP_FILE"], "w").close()
"""
"""A program that stops although its container has got no signal tells its container."""


class Fate:
    """What happens to a job of two nodes, each time something else; returns the cause of the attempt that has ended."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def kill_a_rank(self) -> str:
        self._rank(random.choice([0, 1])).kill()
        return "Killed"

    def stop_a_rank(self) -> str:
        self._rank(random.choice([0, 1])).terminate()
        return "Terminated"

    def kill_the_first_process(self) -> str:
        bootstrap_of(self._project, random.choice([0, 1])).kill()
        return "Killed"

    def stop_the_first_process(self) -> str:
        bootstrap_of(self._project, random.choice([0, 1])).terminate()
        return "Terminated"

    def end_the_supervisor(self) -> str:
        (supervisor,) = self._project.processes("local.supervisor")
        supervisor.send_signal(random.choice([signal.SIGKILL, signal.SIGTERM]))
        return self._rerun()

    def restart_the_machine(self) -> str:
        (supervisor,) = self._project.processes("local.supervisor")
        supervisor.suspend()  # it would start what is missing again
        for process in (*supervisor.children(recursive=True), supervisor):
            process.kill()
        return self._rerun()

    def _rank(self, node: int) -> psutil.Process:
        (rank,) = [p for p in bootstrap_of(self._project, node).children() if "main.py" in " ".join(p.cmdline())]
        return rank

    def _rerun(self) -> str:
        def lost() -> bool:
            status = self._project.job("long")
            return bool(status.reason == "SupervisorLost")

        eventually(lost, PATIENCE, "the supervisor is lost")
        run_cli(self._project, "rerun", "long")
        return ""


def spread(fates: list[Callable[[], str]]) -> int:
    """Return how many restarts the longest run of a job needs for errors."""
    most = errors = 0
    for fate in fates:
        name = fate.__name__
        errors = 0 if name in ("end_the_supervisor", "restart_the_machine") else errors + name.startswith("kill")
        most = max(most, errors)
    return most


@pytest.mark.timeout(300 + 30 * COUNT)
def test_random_interruptions(project: Project) -> None:
    """Seeded: the result is that of an uninterrupted run, only kills count, and no step before a checkpoint is lost.

    It is one run, whatever `resume` says of a new one."""
    random.seed(16)
    fate = Fate(project)
    kinds = [fate.kill_a_rank, fate.stop_a_rank, fate.kill_the_first_process, fate.stop_the_first_process]
    kinds += [fate.end_the_supervisor, fate.restart_the_machine]
    fates = [kinds[i % len(kinds)] for i in range(COUNT)]
    random.shuffle(fates)
    text = JOB.replace('"steps": 120', f'"steps": {STEPS}').replace(
        "grace=20", f"grace=20, max_restarts={spread(fates)}"
    )
    text = text.replace("time.sleep(0.05)", 'time.sleep(0 if os.path.exists(folder + "/hurry") else 0.05)')
    text = text.replace("        if stopped:\n", TELLS, 1).replace("wait_for=", "resume=False, wait_for=")
    project.program(text)
    project.up()
    starts = 0

    def trains() -> list[int] | None:
        """The steps at which node 0 has started, once both nodes have started anew and node 0 has saved."""
        log = project.logs("long")
        found = [[int(step) for step in re.findall(rf"node {node} starts at step (\d+)", log)] for node in (0, 1)]
        begun = log.rpartition("node 0 starts at step ")[2]
        return found[0] if min(map(len, found)) > starts and "has saved step" in begun else None

    def steps_after(seconds: float) -> Any:
        return eventually(trains, seconds, "both nodes train")

    steps_after(PATIENCE)
    for number, interrupt in enumerate(fates, 1):
        time.sleep(random.uniform(0, 0.5))
        log = project.logs("long")
        starts = log.count("node 0 starts at step")
        saved = max(map(int, re.findall(r"has saved step (\d+)", log)))
        cause = interrupt()
        again = steps_after(PATIENCE)[-1]
        assert again >= saved, f"{interrupt.__name__}: from {saved} to {again}"
        if cause:
            assert project.job("long").attempts[-2].cause == cause, interrupt.__name__
        print(f"{number}: {interrupt.__name__}, saved {saved}, goes on at step {again}", flush=True)
    for folder in project.root.glob("volumes/*/*/data/*/checkpoints"):
        (folder / "hurry").touch()
    status = eventually(lambda: s if (s := project.job("long")) and s.terminal else None, PATIENCE)
    assert status.phase == "Succeeded", status
    log = project.logs("long")
    assert f"node 0 total {total(STEPS)}" in log
    assert len({run["id"] for run in json.loads(run_cli(project, "runs", "long", "-o", "json"))}) == 1
    eventually(lambda: not project.processes(), PATIENCE, "no process is left")
