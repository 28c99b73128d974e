"""`pulumi_trainer.client` without a stack: places of pods, waiting, and which modules it loads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer import client
from pulumi_trainer.client import Jobs
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.jobs.status import JobStatus, Step
from pulumi_trainer.provider.kubernetes.errors import NotFound, Problem
from pulumi_trainer.provider.service import jobs as commands
from pulumi_trainer.provider.service import logs
from pulumi_trainer.provider.service.jobs import State
from pulumi_trainer.provider.service.logs import LogLine, PodPlace, pod_place
from pulumi_trainer.provider.service.reach import ReachedJob

FOUND = ReachedJob("team", "digits", resource="digits")


@pytest.mark.parametrize(
    ("pod", "place"),
    [
        ("digits-node-0-3", PodPlace("node", 3)),
        ("digits-worker-2-0", PodPlace("worker", 2)),
        ("digits-dataset-initializer-0-0", PodPlace("dataset-initializer", 0)),
        ("strange", PodPlace("", None)),
    ],
)
def test_places_of_pods(pod: str, place: PodPlace) -> None:
    assert pod_place("digits", pod) == place


@pytest.fixture
def phases(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The phases of the job, one after the other; the last one stays."""
    coming: list[str] = []

    def states(_: Sequence[ReachedJob]) -> Iterator[State]:
        phase = coming.pop(0) if len(coming) > 1 else coming[0]
        yield State(FOUND, JobStatus("digits", "team", phase=phase, reason="Because", message="of this"))

    def chosen(*_: Any, **__: Any) -> list[ReachedJob]:
        return [FOUND]

    monkeypatch.setattr(commands, "chosen_jobs", chosen)
    monkeypatch.setattr(commands, "read_states", states)
    return coming


def jobs() -> Jobs:
    return client.connect(namespace="team")


@pytest.mark.parametrize(
    ("found", "until", "phase"),
    [
        (["Pending", "Suspended", "Running", "Succeeded"], "finished", "Succeeded"),
        (["Queued", "Running", "Succeeded"], "running", "Running"),
        (["Succeeded"], "running", "Succeeded"),
    ],
)
def test_waiting(phases: list[str], found: list[str], until: Any, phase: str) -> None:
    phases.extend(found)
    assert jobs().wait("digits", until=until, interval=0).phase == phase


@pytest.mark.parametrize("phase", ["Failed", "Deleted"])
@pytest.mark.parametrize("until", ["running", "finished"])
def test_waiting_for_a_job_that_fails(phases: list[str], phase: str, until: Any) -> None:
    phases.extend(["Pending", phase])
    with pytest.raises(client.JobFailed, match=rf"team/digits: is {phase} \(Because\): of this") as caught:
        jobs().wait("digits", until=until, interval=0)
    assert caught.value.job.phase == phase and isinstance(caught.value, client.TrainerError)


def test_a_job_that_is_gone_while_it_is_waited_for_has_failed(
    phases: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that `kubectl` or the SDK has made has no record of its end."""
    phases.append("Running")
    read = commands.read_states

    def states(given: Sequence[ReachedJob]) -> Iterator[State]:
        monkeypatch.setattr(commands, "read_states", gone)
        return read(given)

    def gone(_: Sequence[ReachedJob]) -> Iterator[State]:
        raise NotFound(Problem("team/digits", "no such JobSet"))

    monkeypatch.setattr(commands, "read_states", states)
    with pytest.raises(client.JobFailed, match="team/digits: is Deleted: it is gone"):
        jobs().wait("digits", interval=0)
    with pytest.raises(NotFound):
        jobs().wait("digits", interval=0)


def test_no_name_and_no_folder(phases: list[str]) -> None:
    with pytest.raises(client.Invalid, match="name: is empty"):
        jobs().status("")
    with pytest.raises(client.Invalid, match="project_dir: no such folder: projj"):
        client.connect(stack="dev", project_dir="projj")


def test_messages_name_the_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(client.Invalid) as told:
        client.connect(stack="dev", namespace="team")
    assert str(told.value) == (
        "stack=: names a stack, but namespace=, context= and kubeconfig= name a cluster. Hint: pass only one of the two"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(client.TrainerError, match=r"Hint: set KUBECONFIG, or pass kubeconfig=$"):
        client.connect(namespace="team").status("digits")
    with pytest.raises(client.TrainerError, match=f"no Pulumi.yaml in {tmp_path} .*as project_dir=, or set KUBECONFIG"):
        client.connect(project_dir=str(tmp_path)).jobs()
    with pytest.raises(client.TrainerError, match=r"Hint: give the path of another file: kubeconfig=$"):
        client.connect(kubeconfig="/nosuch").jobs()
    with pytest.raises(client.TrainerError, match="trainjob/NAME; namespace= names its namespace"):
        client.connect(namespace="team").why("pod/digits")
    with pytest.raises(client.TrainerError, match="leave out namespace=, context= and kubeconfig=, and pass"):
        client.connect(namespace="team").rerun("digits")


def test_waiting_too_long(phases: list[str]) -> None:
    phases.append("Queued")
    with pytest.raises(TimeoutError, match=r"team/digits is Queued \(Because; of this\) and not finished after 0 s"):
        jobs().wait("digits", timeout=0)
    with pytest.raises(client.Invalid, match="must be 'running' or 'finished', not 'done'"):
        jobs().wait("digits", until="done")  # type: ignore[arg-type]


def test_a_rank_that_the_job_has_not_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [Step("node", count=2), Step("launcher", count=1)]

    def states(_: Sequence[ReachedJob]) -> Iterator[State]:
        yield State(FOUND, JobStatus("digits", "team", phase="Running", steps=steps))

    monkeypatch.setattr(commands, "chosen_jobs", lambda *_, **__: [FOUND])
    monkeypatch.setattr(logs, "read_states", states)
    monkeypatch.setattr(logs, "log_lines", lambda *_: iter(()))
    assert [*jobs().logs("digits", rank=1)] == []
    for rank, step in ((2, None), (1, "launcher")):
        with pytest.raises(client.Invalid, match=f"rank: digits has no node {rank}. Hint: available: 0( and 1)?$"):
            [*jobs().logs("digits", rank=rank, step=step)]


def test_inputs_of_a_run_have_an_order() -> None:
    given = {"runtime": "r", "model": "m", "image": "i", "dataset": "d", "code": "c"}
    assert [*Run.from_dict({"inputs": given}).inputs] == ["code", "image", "runtime", "dataset", "model"]


def test_rerun_needs_the_stack(phases: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from pulumi_trainer.provider.service import operations

    monkeypatch.setattr(operations, "chosen_jobs", lambda *_, **__: [FOUND])
    with pytest.raises(client.TrainerError, match="only the state of its stack has what was submitted"):
        jobs().rerun("digits")


def test_the_import_loads_neither_pulumi_nor_a_client_of_a_cluster() -> None:
    code = "import sys, pulumi_trainer.client; print([*sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path("/"))
    loaded = {name.strip("' ").partition(".")[0] for name in done.stdout.strip("[]\n").split(",")}
    assert "pulumi_trainer" in loaded and not loaded & {"pulumi", "pulumi_kubernetes", "kubernetes", "urllib3"}


@pytest.mark.parametrize("rank", [-1, "", "x", "0.", "1.2.3", 1.1, True])
def test_a_rank_that_is_not_valid(rank: Any) -> None:
    with pytest.raises(client.Invalid, match=rf'^rank: invalid rank {rank!r} \(expected for example 0, or "0.3"'):
        list(jobs().logs("digits", rank=rank))


def test_a_rank_may_name_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def lines(_: Sequence[ReachedJob], selection: logs.Selection) -> Iterator[LogLine]:
        printed = [LogLine("digits", PodPlace("node", 1), "pod", "", f"[default{n}]:{n}") for n in range(2)]
        return filter(selection.shows, printed)

    monkeypatch.setattr(commands, "chosen_jobs", lambda *_, **__: [FOUND])
    monkeypatch.setattr(logs, "read_states", lambda _: [State(FOUND, None)])
    monkeypatch.setattr(logs, "log_lines", lines)
    assert [*jobs().logs("digits", rank="1.1")] == ["[default1]:1"]
    assert [*jobs().logs("digits", rank="1")] == [*jobs().logs("digits", rank=1)] == ["[default0]:0", "[default1]:1"]
    with pytest.raises(client.Invalid, match=r"^rank: digits: no line of process 2 .* Hint: available: 1\.0, 1\.1$"):
        list(jobs().logs("digits", rank="1.2"))
