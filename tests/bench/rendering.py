"""Documents judged and rendered without Pulumi: the command from the shell, one job, the golden cases, 10,000 jobs."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

CASES = Path(__file__).parents[1] / "golden" / "cases"
CASE = CASES / "b-torch-nodes3-cmd" / "input.yaml"
COMMAND = Path(sys.executable).parent / "pulumi-trainer"


def main() -> None:
    """Prints the table."""
    print("\n| documents | time | processor, memory | limit |\n| --- | --- | --- | --- |")
    for row in rows():
        print(f"| {' | '.join(row)} |", flush=True)


def rows() -> Iterator[tuple[str, str, str, str]]:
    """What, how long, of that in the processor and memory at the peak, and the limit."""
    runs = [ran([str(COMMAND), "validate", str(CASE)]) for _ in range(9)]
    seconds, processor, megabytes = (statistics.median(values) for values in zip(*runs, strict=True))
    used = f"{processor * 1000:.0f} ms, {megabytes:.0f} MB"
    yield "`pulumi-trainer validate FILE` from the shell", f"{seconds * 1000:.0f} ms", used, "400 ms"
    yield "one TrainJob in Python: admission, rendering, admission of its JobSet", milliseconds(one_job()), "", "0.6 ms"
    yield "the same with warnings, status and storing", milliseconds(one_job_in_a_cluster()), "", "2 ms"
    with tempfile.TemporaryDirectory() as folder:
        cases = Path(folder) / "cases"
        for case in CASES.iterdir():
            if (
                "oracle/v1" not in (case / "input.yaml").read_text()
            ):  # steps of the recorder, which the command does not know
                shutil.copytree(case, cases / case.name)
        batch = shown(ran([str(COMMAND), "validate", "--mode", "trainer", "--batch", str(cases)]))
        yield f"{len(list(cases.iterdir()))} golden cases in one process", *batch, "4 s"
        for count, limit in ((1_000, ""), (10_000, "20 s")):
            file = Path(folder) / "jobs.yaml"
            file.write_text("---\n".join(jobs(count)))
            for name in ("validate", "render"):
                one = shown(ran([str(COMMAND), name, "--mode", "trainer", str(file)]))
                yield f"`{name}` of a file of {count:,} TrainJobs", *one, limit


def shown(used: tuple[float, float, float]) -> tuple[str, str]:
    return f"{used[0]:.1f} s", f"{used[1]:.1f} s, {used[2]:.0f} MB"


def ran(argv: list[str]) -> tuple[float, float, float]:
    """Seconds, seconds of the processor, and megabytes at the peak of a command."""
    begun = time.monotonic()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return time.monotonic() - begun, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def one_job() -> float:
    """Seconds of what the servers and the controller do with a TrainJob until its JobSet is accepted."""
    from pulumi_trainer.provider.kubernetes.values.documents import documents
    from pulumi_trainer.provider.trainer.admission import review
    from pulumi_trainer.provider.trainer.pipeline import render
    from pulumi_trainer.provider.trainer.releases import DEFAULT

    runtime, train_job = (d.content for d in documents(CASE))
    stored = review(runtime, DEFAULT).stored
    assert stored is not None

    def once(number: int) -> None:
        written = {**train_job, "metadata": {"name": f"job-{number}", "namespace": "team", "uid": "1"}}
        accepted = review(written, DEFAULT, lookup=lambda *_: stored, mode="trainer").stored
        assert accepted is not None
        jobset = render(stored, accepted, DEFAULT, mode="trainer").objects[f"JobSet/job-{number}"]
        assert review(jobset, DEFAULT).stored is not None

    return timed(once, 500)


def one_job_in_a_cluster() -> float:
    """Seconds of a TrainJob of a runtime that is stored already, in an offline cluster."""
    from pulumi_trainer.provider.kubernetes.values.documents import documents
    from pulumi_trainer.provider.trainer.offline import Cluster
    from pulumi_trainer.provider.trainer.releases import DEFAULT

    runtime, train_job = (d.content for d in documents(CASE))
    cluster = Cluster("trainer", DEFAULT)
    cluster.apply(runtime)

    def once(number: int) -> None:
        result = cluster.apply({**train_job, "metadata": {"name": f"job-{number}", "namespace": "team"}})
        assert result is not None and result.objects

    return timed(once, 500)


def timed(call: Callable[[int], None], times: int) -> float:
    """The median."""
    found = []
    for number in range(times):
        begun = time.perf_counter()
        call(number)
        found.append(time.perf_counter() - begun)
    return statistics.median(found)


def jobs(count: int) -> Iterator[str]:
    """The text of a runtime and of `count` TrainJobs."""
    *runtime, train_job = CASE.read_text().split("---\n")
    yield from runtime
    for number in range(count):
        yield train_job.replace("  name: job\n", f"  name: job-{number}\n")
