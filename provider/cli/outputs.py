"""`outputs`: lists the outputs of jobs, and copies one into a folder or to S3."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from pulumi_trainer.provider.cli.formats import print_data, report_no_jobs
from pulumi_trainer.provider.cli.job_status import print_table
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TargetFault
from pulumi_trainer.provider.kubernetes.terminal import print_line
from pulumi_trainer.provider.kubernetes.values.quantity import format_bytes
from pulumi_trainer.provider.kubernetes.values.wording import duration, plural
from pulumi_trainer.provider.pod.code import OUTPUT_PATH
from pulumi_trainer.provider.service.jobs import State, check_single, chosen_jobs, list_all, of_stack, read_states
from pulumi_trainer.provider.service.outputs import Found, find_output
from pulumi_trainer.provider.service.reach import ReachedJob, Where
from pulumi_trainer.provider.service.runs import read_runs_of


@dataclass(frozen=True)
class Copying:
    """Options of a copy. image: Image with python3, for an output in a cluster; empty for that of the job."""

    destination: str
    overwrite: bool = False
    image: str = ""


def outputs(job: str | None, where: Where, *, output: str, copying: Copying | None = None, run: str = "") -> None:
    """Print the outputs of jobs, or copy that of one job.

    Args:
        run: Id of the run whose output is meant; empty for the result of the job.
    """
    if copying is not None and job is None:
        raise Invalid(Problem("--copy", "copies the output of one job", "name it: outputs JOB --copy DEST"))
    states = _states(job, where)
    if copying is not None:
        check_single([state.job for state in states], "outputs")
    if run:
        check_single([state.job for state in states], "--run")
    found = list[Found]()
    for state in states:
        try:
            each = find_output(state, run, "--run")
        except TargetFault as fault:
            if job is not None:
                raise
            print_line(f"note: {fault}", error=True)
            continue
        if each is not None:
            found.append(each)
            if each.state.status is not None and each.state.status.record_lost:
                print_line(f"note: {each.state.job.label}: {each.state.status.message}", error=True)
    if copying is not None:
        _copy(found, states, copying, output=output)
    elif output != "table":
        print_data([each.to_dict() for each in found], output)
    elif not states:
        report_no_jobs(job, where)
    elif not found:
        print_line(_nothing(states, job))
    else:
        head = ["job", "phase", "where", "size", "files", "age", "written", "when the job is deleted"]
        rows = [*map(_row, found)]
        if where.everywhere:
            head.insert(0, "namespace")
            for each, row in zip(found, rows, strict=True):
                row.insert(0, each.state.job.namespace)
        print_table(head, rows)


def _states(job: str | None, where: Where) -> list[State]:
    if job is not None or of_stack(job, where):
        return list(read_states(chosen_jobs(job, where)))
    return list_all(where)


def _nothing(states: list[State], job: str | None) -> str:
    if job is not None:
        return f"{states[0].job.label} has no output volume. Hint: set output=True on the TrainJob"
    return "No job has an output volume. Hint: set output=True on the TrainJob"


def _row(each: Found) -> list[str]:
    now, known = time.time(), each.output
    begin = [each.state.job.label, each.phase, each.where]
    if known is None:
        return [*begin, "gone", "", "", "", ""]
    size = format_bytes(known.size)
    if known.files is None:
        size, files = f"claim of {size}", ""
    elif known.files == 0:
        size, files = "empty", "0"
    else:
        files = str(known.files)
    age = written = ""
    if known.created:
        age = duration(now - known.created)
    if known.written:
        written = f"{duration(max(0.0, now - known.written))} ago"
    kept = "retained" if known.retained else "deleted"
    return [*begin, size, files, age, written, kept]


def _copy(found: list[Found], states: list[State], copying: Copying, *, output: str) -> None:
    """Copy the output of the only job, and print what was copied."""
    if not found:
        raise TargetFault(Problem(states[0].job.label, "has no output volume", "output=True gives it one"))
    document, text = copy_output(found[0], copying)
    if output != "table":
        print_data(document, output)
        return
    print_line(text)


def copy_output(each: Found, copying: Copying) -> tuple[dict[str, Any], str]:
    """Copy the output of a job, and return the record of the copy, and what was copied."""
    from pulumi_trainer.provider.cli import output_copy
    from pulumi_trainer.provider.cli.destinations import open_destination

    job = each.state.job
    if each.output is None:
        raise TargetFault(Problem(job.label, f"its output volume {each.where} is gone"))
    status = each.state.status
    if status is not None and status.cluster:
        why = f"its files are in the worker cluster {status.cluster}, in the claim of the same name"
        raise TargetFault(Problem(job.label, why, "copy them there, from a Pod that mounts the claim"))
    if status is not None and each.is_written:
        note = f"note: {job.label} is {status.phase}: its files may change while they are copied"
        print_line(note, error=True)
    record = {**_writer(read_runs_of(job), each.where).to_dict(), "job": job.name, "namespace": job.namespace}
    about = {
        "from": each.where,
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "unfinished": each.is_written,
    }
    roots, source = [OUTPUT_PATH], ""
    if job.local is not None:
        source = each.where
        roots.append(source)
    with (
        output_copy.ends_on_signals(),
        open_destination(copying.destination, source, overwrite=copying.overwrite) as to,
    ):
        with _archive(job, each, copying.image) as archive:
            copied = output_copy.receive(archive, to, roots)
        document = {**record, "copy": {**about, **copied.to_dict()}}
        name = output_copy.record_name(copied)
        to.finish(name, json.dumps(document, indent=2).encode() + b"\n", copied)
    for note in copied.notes:
        print_line(f"note: {note}", error=True)
    size = f"{plural(len(copied.files), 'file')}, {format_bytes(copied.size)}"
    return document, f"{job.label}: {size} copied to {copying.destination}, and the record of its run to {name} there"


def _writer(runs: list[Run], where: str) -> Run:
    """Return the newest run that has written to a folder: that of its lineage which has succeeded, else the newest one.

    A run that has done no step has left what was there.
    """
    lineage = where.rpartition("/")[2]
    writers = [run for run in runs if run.lineage == lineage] or runs
    writers = [run for run in writers if run.steps != 0] or writers
    return next((run for run in reversed(writers) if run.phase == Phase.SUCCEEDED), writers[-1])


@contextmanager
def _archive(job: ReachedJob, each: Found, image: str) -> Iterator[Iterator[bytes]]:
    """Provide the archive of the output."""
    from pulumi_trainer.provider.cli.output_copy import read_folder

    if job.local is not None:
        with read_folder(each.where) as pieces:
            yield pieces
        return
    from pulumi_trainer.provider.targets.kubernetes.copy_pod import archive
    from pulumi_trainer.provider.targets.kubernetes.jobs import record

    assert job.client is not None
    kept = record.find(job.client, job.namespace, job.name)
    if kept is None:
        raise TargetFault(Problem(job.label, "somebody has deleted it"))
    with archive(job.client, kept, each.where, image) as pieces:
        yield pieces
