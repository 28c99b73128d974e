"""How long `pulumi-trainer runs --metrics` takes over all jobs of a stack: 50 jobs of this machine with 20 runs each.

Called by `python -m tests.bench runs`.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path

from pulumi_trainer.provider.jobs.metrics import Metrics
from pulumi_trainer.provider.jobs.progress import timestamp
from pulumi_trainer.provider.jobs.runs import Run

JOBS, RUNS, REPORTS = 50, 20, 2000
NAMES = ("loss", "grad_norm", "learning_rate", "epoch", "eval_loss")
TIMES = 5


def add_runs(root: Path) -> None:
    """Give each job of a root earlier runs, so that it has 20, and all of them metrics with a full history."""
    made = Metrics()
    for step in range(REPORTS):
        values = dict.fromkeys(NAMES, f"{2.5 / (step + 1):.6g}")
        made.report({"step": step, "metrics": values, "lastUpdatedTime": timestamp(1.8e9 + step)})
    inputs = {"code": "8c1f0b6a2d3e", "arguments": '{"lr": 0.1}', "image": "pytorch/pytorch:2.6.0", "nodes": "2"}
    ids = [f"t4kz{number:02}" for number in range(1, RUNS)]
    earlier = [
        Run(
            "1",
            "Succeeded",
            id=name,
            lineage=name,
            created=1.8e9,
            finished=1.8e9 + 900,
            inputs=inputs,
            metrics=made.summary(),
        )
        for name in ids
    ]
    for file in root.glob("jobs/*/*/record.json"):
        known = json.loads(file.read_text())
        file.write_text(json.dumps({**known, "earlier": [run.to_dict() for run in earlier]}))
        (file.parent / "metrics").mkdir()
        for name in (*ids, known["identity"]["id"]):
            (file.parent / "metrics" / f"{name}.json").write_text(made.to_text())


def measure(folder: Path, env: dict[str, str], timed: Callable[[list[str], Path, dict[str, str]], float]) -> None:
    """Print the rows of docs/benchmarks.md.

    Args:
        folder: Project of a stack with `JOBS` jobs.
        env: Environment of its commands.
        timed: Runs a command there, and returns how many seconds it took.
    """
    add_runs(folder / ".pulumi-trainer")
    table = ["pulumi-trainer", "runs", "--metrics", "--sort", "loss"]
    shown = subprocess.run(table, cwd=folder, env=env, capture_output=True, text=True, check=True).stdout
    assert len(shown.splitlines()) == 1 + JOBS * RUNS, shown[-2000:]
    commands = {
        "pulumi-trainer runs --metrics --sort loss": table,
        "of it: pulumi stack export": ["pulumi", "stack", "export"],
        "pulumi-trainer runs --metrics -o json": [*table[:3], "-o", "json"],
    }
    for what, argv in commands.items():
        seconds, busy = [], []
        for _ in range(TIMES):
            before = _children()
            seconds.append(timed(argv, folder, env))
            busy.append(_children() - before)
        print(f"| {what} | {statistics.median(seconds):.2f} | {statistics.median(busy):.2f} |", flush=True)


def _children() -> float:
    """Return the processor time of all commands that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
