"""The options and help that all commands share."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from pulumi_trainer.provider.cli import commands, job_status, outputs
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.jobs.attempts import Attempt
from pulumi_trainer.provider.jobs.progress import timestamp
from pulumi_trainer.provider.jobs.status import JobStatus, Phase, Step
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.lifecycle.state_format import FORMAT
from pulumi_trainer.provider.service import jobs, logs, stack
from pulumi_trainer.provider.service.jobs import State
from pulumi_trainer.provider.service.reach import ReachedJob, Where
from rich.console import Console


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Any, str]:
    """Return the exit code and the output of a command."""
    monkeypatch.setattr(sys, "argv", ["pulumi-trainer", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code or 0, capsys.readouterr().out


@pytest.mark.parametrize("command", commands.COMMANDS)
def test_each_help_has_an_example(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    code, out = run(monkeypatch, capsys, *command.split(), "-h")
    assert code == 0 and "for example" in out, out
    assert run(monkeypatch, capsys, *command.split(), "--help") == (0, out)


def test_the_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, capsys, "--version") == (0, f"pulumi-trainer {version('pulumi-trainer')}\n")


def test_a_secret_connection_of_the_stack_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else `queues` and `exporter` would read another cluster."""
    asked: list[list[str]] = []

    def pulumi(argv: list[str], *_: object) -> str:
        asked.append(argv)
        shown = {"value": "prod"} if "--show-secrets" in argv else {}
        return json.dumps({"trainer:context": {"secret": True, **shown}, "aws:region": {"value": "x", "secret": False}})

    monkeypatch.setattr(stack, "_pulumi", pulumi)
    monkeypatch.setattr(stack, "in_project", lambda _: True)
    assert stack.cluster_of(None).context == "prod"
    assert asked == [["config", "--json"], ["config", "--json", "--show-secrets"]]
    monkeypatch.setattr(stack, "_pulumi", lambda argv, *_: json.dumps({"aws:token": {"secret": True}}))
    assert stack.cluster_of(None).context == ""
    monkeypatch.setattr(stack, "in_project", lambda _: False)
    with pytest.raises(Invalid, match="--stack: the configuration of organization/lab/prod, which names its cluster"):
        stack.cluster_of("organization/lab/prod")


@pytest.mark.parametrize("named", [{}, {"context": "other"}, {"namespace": "team"}])
def test_all_namespaces_are_those_of_the_cluster_of_the_stack(
    monkeypatch: pytest.MonkeyPatch, named: dict[str, str]
) -> None:
    """Else `queues -A` and `exporter -A` would read the cluster of kubectl's context."""
    monkeypatch.setattr(jobs, "in_project", lambda _: True)
    monkeypatch.setattr(stack, "cluster_of", lambda _: Where("", "ns", "prod", "/kubeconfig"))
    where = jobs.in_cluster_of_stack(Where(everywhere=True, **named))
    assert where == (Where(everywhere=True, **named) if named else Where("", "ns", "prod", "/kubeconfig", True))


@pytest.mark.parametrize(
    "words",
    [
        ("stop", ""), ("suspend", "", "-n", "team"), ("resume", ""), ("rerun", ""), ("status", ""), ("why", ""), ("logs", ""),
        ("outputs", ""), ("outputs", "digits", "--copy", ""), ("cache", "prune", "--yes", "--older-than="),
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_empty_argument_selects_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """Most likely it is a variable of the shell that is not set."""
    monkeypatch.setattr(sys, "argv", ["pulumi-trainer", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2 and re.search(r"argument (JOB|--copy|--older-than): is empty", said), said


def test_a_fault_of_one_log_ends_all() -> None:
    def broken() -> Iterator[Any]:
        yield "a line"
        raise ValueError("broken")

    def quiet() -> Iterator[Any]:
        yield from ()

    with pytest.raises(ValueError, match="broken"):
        [*logs._merged([quiet(), broken()])]


def test_yaml_and_json_are_the_same_data(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    as_json, as_yaml = (run(monkeypatch, capsys, "runtime", "list", "-o", form)[1] for form in ("json", "yaml"))
    assert json.loads(as_json) == yaml.safe_load(as_yaml) != []


NOW = 1_800_000_000.0
STATUS = JobStatus("digits", "team", phase=Phase.RUNNING.value, steps=[Step("node", count=2, ready=1, restarts=3)])


@pytest.mark.parametrize(("restarts", "shown"), [(0, "node 1/2  3 in pods\n"), (2, "node 1/2  2 + 3 in pods\n")])
def test_status_shows_restarts_in_pods(
    restarts: int, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    STATUS.restarts = restarts
    monkeypatch.setattr(job_status, "find_states", lambda *_: [State(ReachedJob("team", "digits"), STATUS)])
    job_status.status("digits", Where(namespace="team"), output="table")
    assert shown in capsys.readouterr().out
    job_status.status("digits", Where(namespace="team"), output="yaml")
    (entry,) = yaml.safe_load(capsys.readouterr().out)
    assert (entry["restarts"], entry["steps"][0]["restarts"]) == (restarts, 3)


@pytest.mark.parametrize(
    ("attempts", "shown"),
    [
        ([Attempt(1, NOW - 90, NOW - 87, cause="Suspended")], "3s"),
        ([Attempt(1, NOW - 90, NOW - 87, cause="Suspended"), Attempt(2, NOW - 60, NOW - 50, cause="Suspended")], "13s"),
        ([Attempt(1, NOW - 90, NOW - 87, cause="Suspended"), Attempt(2, cause="NotObserved")], "1m30s"),
        ([], "1m30s"),
    ],
)
def test_time_in_which_a_job_is_suspended_or_queued_is_not_time_that_it_ran(
    attempts: list[Attempt], shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job_status.time, "time", lambda: NOW)
    found = JobStatus("b", "team", phase=Phase.QUEUED.value, created=NOW - 120, started=NOW - 90, attempts=attempts)
    monkeypatch.setattr(job_status, "find_states", lambda *_: [State(ReachedJob("team", "b"), found)])
    job_status.status("b", Where(namespace="team"), output="table")
    assert capsys.readouterr().out.splitlines()[1].split()[-2:] == ["2m00s", shown]


def waiting(name: str, message: str, phase: Phase = Phase.QUEUED, queue: str = "") -> State:
    return State(
        ReachedJob("team", name), JobStatus(name, "team", phase=phase.value, reason="Full", message=message), queue
    )


def test_status_shows_what_jobs_wait_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [
        waiting("runs", "is running", Phase.RUNNING),
        waiting("waits", "waits for the only place (max_parallel=1): behind runs", queue="research"),
        waiting("needs", "needs 2 of 4 GPUs\nothers use them", Phase.PENDING),
        waiting("long", f"behind {'a' * 500}"),
    ]
    monkeypatch.setattr(job_status, "find_states", lambda *_: jobs)
    job_status.status(None, Where(namespace="team"), output="table")
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[-2:] == ["queue", "why"]
    assert rows[0].split()[-2:] == ["Running", "Full"]
    assert rows[1].endswith(" research  waits for the only place (max_parallel=1): behind runs")
    assert rows[2].endswith(" needs 2 of 4 GPUs others use them")
    assert rows[3].endswith("aaa...") and len(rows[3].partition("behind")[2]) < 160
    job_status.status(None, Where(namespace="team"), output="json")
    assert "a" * 500 in capsys.readouterr().out


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_terminal_shows_what_jobs_wait_for_below_the_table(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Console(width=width, markup=False, emoji=False)
    monkeypatch.setattr(job_status, "table_console", lambda _: terminal)
    reason = "waits for one of 4 places (max_parallel=4): behind digits, sweep-3, sweep-4 and 3 more"
    monkeypatch.setattr(job_status, "find_states", lambda *_: [waiting("sweep-7", reason), waiting("new", "")])
    job_status.status(None, Where(namespace="team"), output="table")
    table, _, below = capsys.readouterr().out.partition("\n\n")
    if width == 120:
        assert not below and "waits for one of 4 places (max_parallel=4): behind digit..." in table
    else:
        assert below == f"sweep-7: {reason}\n" and "why" not in table
    assert all(len(line) <= width for line in table.splitlines())


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.FAILED])
def test_status_has_no_reasons_where_no_job_waits(
    phase: Phase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job_status, "find_states", lambda *_: [waiting("digits", "words", phase), waiting("new", "")])
    job_status.status(None, Where(namespace="team"), output="table")
    assert "why" not in capsys.readouterr().out


def ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Return the exit code of a command, its output and its errors."""
    monkeypatch.setattr(sys, "argv", ["pulumi-trainer", *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


@pytest.mark.parametrize(
    "command", ["status", "status --history", "why", "events", "runs", "outputs", "logs", "render"]
)
def test_every_command_reports_a_stack_without_jobs(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stack, "resources", lambda *_args, **_options: [])
    text, read_by_programs = "The stack has no jobs.\n", command in ("logs", "render")
    printed = ("", text) if read_by_programs else (text, "")
    assert ended(monkeypatch, capsys, *command.split(), "-s", "dev") == (0, *printed)
    if command not in ("logs", "render"):
        assert ended(monkeypatch, capsys, *command.split(), "-s", "dev", "-o", "json") == (0, "[]\n", "")


@pytest.mark.parametrize("command", ["status", "status --history", "why", "events", "runs", "outputs", "logs"])
def test_every_command_reports_a_namespace_without_jobs(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (jobs, outputs):
        monkeypatch.setattr(module, "list_all", lambda _: [])
    hint = "-n NAMESPACE searches another one, `pulumi-trainer status -A` searches all"
    error = f"error: namespace team: has no JobSets and no TrainJobs. Hint: {hint}\n"
    assert ended(monkeypatch, capsys, *command.split(), "-n", "team") == (1, "", error)


@pytest.mark.parametrize("command", ["status", "doctor", "render", "rerun digits", "queues -s dev"])
def test_a_command_that_needs_the_pulumi_cli_prints_where_to_get_it(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: lab\nruntime: python\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ended(monkeypatch, capsys, *command.split()) == (
        1, "", "error: pulumi: the Pulumi CLI is not on PATH. Hint: install it from "
        'https://www.pulumi.com/docs/iac/download-install/, or run eval "`make -s env`" in a clone\n',
    )  # fmt: skip


def test_rerun_outside_a_project_needs_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ended(monkeypatch, capsys, "rerun", "digits") == (
        1, "", "error: digits: only the state of its stack has what was submitted. "
        "Hint: run the command in its Pulumi project, or name the stack with --stack\n",
    )  # fmt: skip


@pytest.mark.parametrize("option", ["-n team", "--namespace team", "--context gpu", "--kubeconfig nosuch"])
def test_rerun_refuses_the_options_of_a_cluster(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: lab\nruntime: python\n")
    monkeypatch.chdir(tmp_path)
    assert ended(monkeypatch, capsys, "rerun", "digits", *option.split()) == (
        1, "", "error: digits: only the state of its stack has what was submitted. Hint: leave out -n, --context and"
        " --kubeconfig, and run the command in its Pulumi project, or name the stack with --stack\n",
    )  # fmt: skip
    both = ended(monkeypatch, capsys, "rerun", "digits", "-s", "dev", *option.split())[2]
    assert both.startswith("error: --stack: names a stack, but -n, ")


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("status --nope", "status: no such option --nope. Hint: `pulumi-trainer status -h` lists its options"),
        ("status --ouput json", "status: no such option --ouput. Hint: did you mean --output?"),
        ("status a b", "status: takes no argument 'b'. Hint: `pulumi-trainer status -h` lists its options"),
        ("run t.py --lr 3", "run: no such option --lr. Hint: `pulumi-trainer run -h` lists its options; arguments of the script"
                            " follow --, as in `run train.py -- --lr 0.1`"),
        ("run t.py --nodes 0", "run: argument --nodes: invalid value '0' (expected a whole number, 1 or more). "
                               "Hint: `pulumi-trainer run -h` lists its options"),
        ("statsu", "no such command 'statsu'. Hint: did you mean 'status'?"),
        ("cache prne", "cache: no such command 'prne'. Hint: did you mean 'prune'?"),
        ("rerun", "rerun: the following arguments are required: JOB. Hint: `pulumi-trainer rerun -h` lists its options"),
        ("validate --nope", "validate: no such option --nope. Hint: `pulumi-trainer validate -h` lists its options"),
        ("rbac --user", "rbac: argument --user: expected one argument. Hint: `pulumi-trainer rbac -h` lists its options"),
        ("runtime diff a", "runtime diff: the following arguments are required: RUNTIME. "
                           "Hint: `pulumi-trainer runtime diff -h` lists its options"),
    ],
)  # fmt: skip
def test_wrong_words_are_one_line(
    command: str, error: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, capsys, *command.split()) == (2, "", f"error: {error}\n")


@pytest.mark.parametrize("command", ["", "cache"])
def test_a_group_of_commands_prints_its_help(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = ended(monkeypatch, capsys, *command.split())
    assert (code, err) == (2, "") and "usage: pulumi-trainer" in out


def test_runtimes_of_a_catalogue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = "runtime", "list", "--catalog", str(tmp_path)
    assert ended(monkeypatch, capsys, *listed, "-o", "json") == (0, "[]\n", "")
    assert "creates one" in ended(monkeypatch, capsys, *listed)[1]
    source = "--from", "torch-distributed", "--catalog", str(tmp_path)
    assert ended(monkeypatch, capsys, "runtime", "new", "torch-team@1.0.0", *source)[0] == 0
    assert "torch-team  1.0.0*    torch" in ended(monkeypatch, capsys, *listed)[1]
    (tmp_path / "about.yaml").write_text("torch-team: {devices: [gpu], nodes: one, purpose: Ours}")
    (entry,) = json.loads(ended(monkeypatch, capsys, *listed, "-o", "json")[1])
    assert (entry["name"], entry["devices"], entry["nodes"], entry["purpose"]) == ("torch-team", ["gpu"], "1", "Ours")
    (tmp_path / "about.yaml").write_text("torch-team: {devices: 3, nodes: [x], purpose: {}}")
    (entry,) = json.loads(ended(monkeypatch, capsys, *listed, "-o", "json")[1])
    assert (entry["devices"], entry["nodes"], entry["purpose"]) == ([], "1 or more", "")


def test_a_misspelt_job_of_the_stack(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = {
        "format": FORMAT,
        "name": "digits-1",
        "namespace": "team",
        "objects": {},
        "digest": "d",
        "run": "1",
        "target": {},
    }
    job = {
        "type": "pulumi-python:dynamic/trainer:JobSet",
        "urn": "urn:pulumi:dev::lab::x::classifier",
        "inputs": inputs,
    }
    state = json.dumps({"deployment": {"resources": [job]}})
    monkeypatch.setattr(stack, "_pulumi", lambda *_: state)
    hint = "did you mean classifier? available: classifier"
    error = f"error: clasifier: no such job in the stack. Hint: {hint}\n"
    assert ended(monkeypatch, capsys, "why", "clasifier", "-s", "dev") == (1, "", error)


def test_why_says_when_a_running_job_last_reported_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = {"progressPercentage": 40, "step": 1200, "lastUpdatedTime": timestamp(time.time() - 90)}
    running = JobStatus("digits", "team", phase=Phase.RUNNING.value, progress=progress)
    monkeypatch.setattr(jobs, "_local_status", lambda *_: running)
    explained = jobs.why(ReachedJob("team", "digits", local=cast(Any, object()))).text
    assert re.search(r"its processes run. It reported progress 1m ?3\ds ago: 40% step 1,200.", explained), explained
    running.steps = [Step("node", Phase.RUNNING.value, count=3, active=1, succeeded=2)]
    explained = jobs.why(ReachedJob("team", "digits", local=cast(Any, object()))).text
    assert "2 of 3 Pods of node ended with exit code 0 and count as complete, while others run. If SIGTERM" in explained
    in_turns = Step("node", Phase.RUNNING.value, count=1, active=1, succeeded=3)
    running.steps = [in_turns]
    assert "SIGTERM" not in jobs.why(ReachedJob("team", "digits", local=cast(Any, object()))).text, "they run in turns"
    running.phase = Phase.SUCCEEDED.value
    ended = jobs.why(ReachedJob("team", "digits", local=cast(Any, object()))).text
    assert "reported progress" not in ended and "SIGTERM" not in ended
    running.progress = {"step": 0}
    ended = jobs.why(ReachedJob("team", "digits", local=cast(Any, object()))).text
    assert "0 steps were done, as its program has reported: its result is not trained. Look at the size" in ended
    running.progress = {"step": 9, "resumedFrom": 9, "progressPercentage": 100}
    ended = jobs.why(ReachedJob("team", "digits", local=cast(Any, object()))).text
    assert "Nothing was left to do (0 steps), as its program has reported: it has resumed from the last step." in ended
    for progress, shown in (
        (
            {"metrics": {"loss": "nan"}},
            "Its last loss is NaN, as its program has reported: its result may be of no use.",
        ),
        (
            {"metrics": {}},
            "No step was reported: whether it trained is not known. `pulumi_trainer.training.progress(step=",
        ),
    ):
        running.progress = progress
        assert shown in jobs.why(ReachedJob("team", "digits", local=cast(Any, object()))).text
    running.phase = Phase.RUNNING.value
    running.progress = {"metrics": {}, "lastUpdatedTime": timestamp(time.time() - 90)}
    assert "reported" not in jobs.why(ReachedJob("team", "digits", local=cast(Any, object()))).text
