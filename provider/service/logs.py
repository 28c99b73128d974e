"""Reads the logs of one or several jobs, each line with its pod."""

from __future__ import annotations

import queue
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from pulumi_trainer.provider.jobs.lineage import find_run
from pulumi_trainer.provider.jobs.runs import KEEP, LOGS, Run
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TargetFault, TrainerError
from pulumi_trainer.provider.kubernetes.terminal import print_line
from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.service.jobs import check_own, read_states
from pulumi_trainer.provider.service.outputs import find_output
from pulumi_trainer.provider.service.reach import ReachedJob
from pulumi_trainer.provider.service.runs import distinct, read_runs_of, times_of

MOST_FOLLOWED = 20
"""Jobs of a cluster that are followed at once."""
MAIN_CONTAINER = "node"
"""The container that the training runs in; its name is not printed."""


@dataclass(frozen=True)
class Selection:
    """Options of the command that select log lines.

    Args:
        follow: Whether to follow the logs until the jobs have ended.
        node: The only node to show, by the index of its pod in its step; None for all.
        process: The only process of that node to show, by its local rank; None for all.
        run: Id of the only run to show; empty for the current one, and with `earlier` for all.
    """

    follow: bool = False
    step: str = ""
    lines: int | None = None
    since: float | None = None
    earlier: bool = False
    node: int | None = None
    process: int | None = None
    run: str = ""

    def shows(self, line: LogLine) -> bool:
        """Return whether a line is of the selected node and process."""
        return self.node in (None, line.place.rank) and self.process in (None, line.process)

    def filter_of(self, place: PodPlace) -> Callable[[str], bool] | None:
        """Return which lines of a pod count for `lines`: those of the process in the pod of its node; None for all."""
        if self.process is None or place.rank != self.node:
            return None
        return lambda text: process_of(text) == self.process


class LogLine(NamedTuple):
    """A line of a log. job: Label of its job. container: Empty for the main container. run: Id of its run; empty if not known.
    process: Local rank of the process of a node with several, which begins the line; else None.
    """

    job: str
    place: PodPlace
    pod: str
    container: str
    text: str
    run: str = ""

    @property
    def process(self) -> int | None:
        return process_of(self.text)

    def to_dict(self) -> dict[str, Any]:
        named = {"job": self.job, "run": self.run, **self.place._asdict(), "pod": self.pod}
        text = self.text
        if self.process is not None:
            text = _PROCESS.sub("", text)
        return {**named, "process": self.process, "container": self.container or MAIN_CONTAINER, "line": text}


class PodPlace(NamedTuple):
    """The place of a pod in its job. rank: Index of the pod in its step, from 0; None for an unknown form of its name."""

    step: str
    rank: int | None


_PROCESS = re.compile(r"\[default(\d{1,4})\]: ?")
"""torchrun's beginning of each line of a node with several processes (`bootstrap` sets PET_TEE)."""
_PLACE = re.compile(r"(.+)-(\d+)-(\d+)")
_RANK = re.compile(r"(\d{1,6})(?:\.(\d{1,4}))?")


def parse_rank(text: str) -> tuple[int, int | None]:
    """Return node and process of a rank such as 1 or 1.3; the process is None for all processes of the node."""
    found = _RANK.fullmatch(text)
    if found is None:
        why = f"invalid rank {text!r} (expected for example 0, or 0.3 for process 3 of node 0)"
        raise Invalid(Problem("--rank", why))
    process = int(found[2]) if found[2] else None
    return int(found[1]), process


def process_of(text: str) -> int | None:
    """Return the local rank of the process that has printed a line; None if the line does not name it."""
    found = _PROCESS.match(text)
    if found is None:
        return None
    return int(found[1])


def pod_place(job: str, pod: str) -> PodPlace:
    """Return the place of a pod of a JobSet, whose name is JOB-STEP-INDEX-INDEX: of the Job in its step, of the pod in the Job.

    A step has several Jobs or several pods in a Job.
    """
    found = _PLACE.fullmatch(pod.removeprefix(f"{job}-"))
    if found is None:
        return PodPlace("", None)
    return PodPlace(found[1], max(int(found[2]), int(found[3])))


def check_rank(jobs: Sequence[ReachedJob], selection: Selection, where: str = "--rank") -> None:
    """Raise Invalid if the jobs do not have the selected node, or if its lines are of other processes."""
    if selection.node is not None:
        if selection.run:  # the status is that of the newest run
            lines = log_lines(jobs, replace(selection, node=None, process=None, lines=None))
            counts = [max((line.place.rank + 1 for line in lines if line.place.rank is not None), default=0)]
        else:
            counts = [_pods(state.status, selection.step) for state in read_states(jobs)]
        _check_node(jobs, counts, selection.node, where)
        _check_process(jobs, selection, where)


def _check_node(jobs: Sequence[ReachedJob], counts: Sequence[int], node: int, where: str) -> None:
    """Raise Invalid if no step of the jobs has so many pods. A job whose pods are not known yet may have that node later."""
    most = max(counts)
    if min(counts) and node >= most:
        only = ["0", "0 and 1", f"0 to {most - 1}"][min(most, 3) - 1]
        why = f"no job has a node {node}"
        if len(jobs) == 1:
            why = f"{jobs[0].label} has no node {node}"
        hint = f"available: {only}"
        if where == "--rank":
            hint = f"{hint}; --rank takes a node, or NODE.PROCESS such as {most - 1}.1"
        raise Invalid(Problem(where, why, hint))


def _check_process(jobs: Sequence[ReachedJob], selection: Selection, where: str) -> None:
    """Raise Invalid if the selected node has printed lines, but the selected process of it has not.

    Which processes a node has is only known from its lines.
    """
    if selection.process is None:
        return
    whole_node = replace(selection, follow=False, process=None, lines=None)
    seen = {line.process for line in log_lines(jobs, whole_node)}
    if not seen or selection.process in seen:
        return
    whole = f"rank={selection.node}"
    if where == "--rank":
        whole = f"`--rank {selection.node}`"
    hint = f"its lines name no process; {whole} shows them"
    processes = sorted(process for process in seen if process is not None)
    if processes:
        hint = f"available: {join_names([f'{selection.node}.{each}' for each in processes], MOST_FOLLOWED)}"
    why = f"no line of process {selection.process} is among the lines of node {selection.node} that were read"
    if len(jobs) == 1:
        why = f"{jobs[0].label}: {why}"
    raise Invalid(Problem(where, why, hint))


def _pods(status: JobStatus | None, step: str) -> int:
    """Return how many pods the largest step of a job has; 0 if none is known yet. step: The only step to count; empty for all."""
    if status is None:
        return 0
    return max((each.count for each in status.steps if step in ("", each.name)), default=0)


def log_lines(jobs: Sequence[ReachedJob], selection: Selection) -> Iterator[LogLine]:
    """Return the selected lines of jobs: job by job, or as they come if several jobs are followed."""
    streams = [filter(selection.shows, _stream(j, selection)) for j in jobs]
    if selection.follow and len(streams) > 1:
        return _merged(streams)
    return chain.from_iterable(streams)


def print_note(text: str) -> None:
    print_line(f"pulumi-trainer: {text}", error=True)


def _stream(job: ReachedJob, selection: Selection) -> Iterator[LogLine]:
    if job.local is not None:
        return _local_lines(job, selection)
    return _cluster_lines(job, selection)


def _cluster_lines(job: ReachedJob, selection: Selection) -> Iterator[LogLine]:
    from pulumi_trainer.provider.targets.kubernetes.logs.pod_logs import LogSelection
    from pulumi_trainer.provider.targets.kubernetes.logs.tail import tail

    assert job.client is not None
    check_own(job)
    run = Run()
    if selection.run:
        known = distinct(read_runs_of(job))
        run = find_run(known, selection.run, "--run")
        if run.id != known[-1].id:
            yield from _recorded_lines(job, run, selection)
            return

    def place_of(pod: str) -> PodPlace:
        return pod_place(job.name, pod.rpartition("-")[0])

    options = LogSelection(
        selection.step,
        selection.lines,
        selection.since,
        selection.earlier,
        filter_of=lambda pod: selection.filter_of(place_of(pod)),
    )
    for line in tail(job.client, job.namespace, job.name, options, follow=selection.follow, note=print_note):
        container = "" if line.alone or line.container == MAIN_CONTAINER else line.container
        yield LogLine(job.label, place_of(line.pod), line.pod, container, line.text, run.id)


def _recorded_lines(job: ReachedJob, run: Run, selection: Selection) -> Iterator[LogLine]:
    """Yield what the record has of the output of an earlier run of a cluster."""
    where, gone = f"{job.label}: run {run.id}", "Kubernetes has removed its Pods, and their logs with them"
    kept = _kept_logs(job, run)
    if not run.message:
        hint = (
            kept
            or f'files in TRAINER_OUTPUT_DIR stay: `pulumi-trainer outputs`; TrainJob(logs="{KEEP}") keeps all lines there'
        )
        raise TargetFault(Problem(where, f"{gone}, and its record has no message ({run.phase})", hint))
    if kept:
        print_note(f"{where}: {kept}")
    print_note(f"{where}: {gone}; its record ends with:")
    texts = run.message.splitlines()
    first = 0 if selection.lines is None else max(0, len(texts) - selection.lines)
    for text in texts[first:]:
        yield LogLine(job.label, PodPlace("", None), job.name, "", text, run.id)


def _kept_logs(job: ReachedJob, run: Run) -> str:
    """Return where all lines of a run with `logs="keep"` are; empty if the run has kept none, or its output is gone."""
    if run.inputs.get(LOGS) != KEEP:
        return ""
    (state,) = read_states([job])
    found = find_output(state, run.id, "--run")
    if found is None or found.output is None:
        return ""
    folder = f"{found.where}/{code.LOGS}/{run.id}"
    if job.local is not None:
        return f"all its lines are in {folder}" if Path(folder).is_dir() else ""
    return f"all its lines are in {folder}: `pulumi-trainer outputs {job.label} --run {run.id} --copy DEST` copies them"


def _local_lines(job: ReachedJob, selection: Selection) -> Iterator[LogLine]:
    """Yield the lines of the selected runs, the newest last; notes say which runs these are if all are selected."""
    assert job.local is not None
    known: list[Run] = []
    if selection.run:
        known = distinct(read_runs_of(job))
    else:
        with suppress(TrainerError):  # the current log of a job whose status is damaged can be read
            known = distinct(job.local.jobs.runs(job.namespace, job.name))
    current = known[-1] if known else Run()
    chosen = [current]
    if selection.run:
        chosen = [find_run(known, selection.run, "--run")]
    elif selection.earlier and known:
        chosen = known
    for run in chosen:
        earlier, is_kept = "", True
        if run is not current:
            earlier = run.id
            is_kept = bool(earlier and job.local.logs.files(job.namespace, job.name, None, earlier))
        about = f"{job.label}: run {run.id or run.run} ({run.phase}, {times_of(run)})"
        if selection.run and not is_kept:
            why = "its logs are not kept: it has printed nothing, or they were removed for those of newer runs"
            hint = _kept_logs(job, run) or "a greater Local(log_bytes=) keeps more of those to come"
            if not run.inputs:  # of which a row is left
                why, hint = (
                    "its logs are not kept: it is older than the last runs",
                    "keep_runs= of the TrainJob keeps more",
                )
            raise TargetFault(Problem(about, why, hint))
        if selection.earlier and known:
            print_note(about if is_kept else f"{about}: its logs are not kept")
        if is_kept:
            yield from _lines_of_run(job, selection, run.id, earlier)


def _lines_of_run(job: ReachedJob, selection: Selection, run: str, earlier: str) -> Iterator[LogLine]:
    """Yield the selected lines of one run. earlier: Its id; empty for the current run."""
    assert job.local is not None
    lines = sys.maxsize if selection.lines is None else selection.lines
    if selection.step and not earlier:
        steps = job.local.logs.steps(job.namespace, job.name)
        if steps and selection.step not in steps:
            hint = f"available: {', '.join(steps)}"
            raise TargetFault(Problem(f"{job.namespace}/{job.name}", f"has no step {selection.step}", hint))
    for pod, size in job.local.logs.dropped(job.namespace, job.name, selection.step or None, earlier):
        print_note(f"{pod}: the first {size:,} bytes of its log were replaced by newer ones")
    for pod, container, text in job.local.logs.tail(
        job.namespace,
        job.name,
        selection.step or None,
        earlier=earlier,
        lines=lines,
        follow=selection.follow,
        filter_of=lambda pod: selection.filter_of(pod_place(job.name, pod)),
    ):
        shown = "" if container == MAIN_CONTAINER else container
        yield LogLine(job.label, pod_place(job.name, pod), pod, shown, text, run)


def _merged(streams: Sequence[Iterator[LogLine]]) -> Iterator[LogLine]:
    """Yield the lines of several streams as they come. Raises what one of them raises."""
    lines: queue.Queue[LogLine | Exception | None] = queue.Queue(256)

    def pump(stream: Iterator[LogLine]) -> None:
        try:
            for line in stream:
                lines.put(line)
            lines.put(None)
        except Exception as error:  # any: without this thread, the reader would wait forever
            lines.put(error)

    for stream in streams:
        threading.Thread(target=pump, args=(stream,), name="job", daemon=True).start()
    left = len(streams)
    while left:
        line = lines.get()
        if isinstance(line, Exception):
            raise line
        if line is None:
            left -= 1
        else:
            yield line
