"""The logs of earlier runs on this machine: what keeps them, what bounds them, and what `logs` shows of them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from local_support import NAMESPACE, QUICK, jobset, log, python, run, step, submission, wait
from pulumi_trainer.provider.cli import logs as command
from pulumi_trainer.provider.jobs.lineage import ASSIGNED
from pulumi_trainer.provider.jobs.runs import Identity, Run
from pulumi_trainer.provider.jobs.status import Owner
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.errors import Invalid, Refused, TargetFault
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs
from pulumi_trainer.provider.pod.code import OUTPUT_PATH
from pulumi_trainer.provider.service import logs, outputs, runs
from pulumi_trainer.provider.service.jobs import State
from pulumi_trainer.provider.service.logs import Selection
from pulumi_trainer.provider.service.reach import ReachedJob, Where
from pulumi_trainer.provider.targets.kubernetes.jobs import record
from pulumi_trainer.provider.targets.kubernetes.storage import claims
from pulumi_trainer.provider.targets.local.store import JobFolder
from pulumi_trainer.provider.targets.local.target import LocalTarget

OWNER = Owner("owner-1", "stack-1")


def printing(text: str, pods: int = 1) -> dict[str, Any]:
    return jobset(step(command=python(f"print('{text}', flush=True)"), pods=pods))


def replace_job(local: LocalTarget, document: dict[str, Any]) -> None:
    """Run another program in the place of the job, as the engine does."""
    earlier = tuple(local.jobs.runs(NAMESPACE, "job"))
    assert local.jobs.delete(NAMESPACE, "job", owner=OWNER, replaced=True) is None
    run(local, document, earlier=earlier)


def shown(local: LocalTarget, **selection: Any) -> list[tuple[str, str]]:
    """Run and text of the lines."""
    job = ReachedJob(NAMESPACE, "job", local=local)
    return [(line.run, line.text) for line in logs.log_lines([job], Selection(**selection))]


def ids(local: LocalTarget) -> list[str]:
    return [each.id for each in local.jobs.runs(NAMESPACE, "job")]


def kept(local: LocalTarget) -> list[Path]:
    return sorted(local.root.glob("earlier-logs/*/*/*"))


def test_a_rerun_and_a_replacement_keep_the_logs(local: LocalTarget, capsys: pytest.CaptureFixture[str]) -> None:
    run(local, printing("one"))
    local.jobs.rerun(submission(printing("one")))
    wait(local)
    replace_job(local, printing("three"))
    first, second, third = ids(local)
    assert shown(local) == [(third, "three")] and log(local) == "three\n"
    assert shown(local, run=first) == [(first, "one")] and shown(local, run=third) == [(third, "three")]
    capsys.readouterr()
    assert shown(local, earlier=True) == [(first, "one"), (second, "one"), (third, "three")]
    notes = capsys.readouterr().err.splitlines()
    heads = [note.partition(", created")[0] for note in notes]
    assert heads == [f"pulumi-trainer: job: run {each} (Succeeded" for each in (first, second, third)]
    with pytest.raises(Invalid, match=f"--run: no run '{first}x' is recorded for this job. Hint: did you mean"):
        shown(local, run=f"{first}x")
    assert local.jobs.delete(NAMESPACE, "job", owner=OWNER) is None
    assert kept(local) == []


def test_a_run_that_goes_on_has_one_log(local: LocalTarget) -> None:
    marker = local.root.parent / "second"
    code = f"import pathlib, time; m = pathlib.Path({str(marker)!r}); done = m.exists(); m.touch()"
    document = jobset(
        step(command=python(f"{code}; print('done' if done else 'begun', flush=True); done or time.sleep(600)"))
    )
    local.jobs.create(submission(document))
    wait(local, until=lambda status: "begun" in log(local))
    local.jobs.stop(NAMESPACE, "job", OWNER, "stopped by ann")
    local.jobs.rerun(submission(document))
    wait(local)
    (before, after) = ids(local)
    assert before == after and [text for _, text in shown(local, run=after)] == ["begun", "done"]
    assert shown(local, earlier=True) == shown(local) and kept(local) == []


def test_ranks_and_ends_of_an_earlier_run(local: LocalTarget) -> None:
    run(local, printing("a\\nb", pods=2))
    replace_job(local, printing("c"))
    first, _ = ids(local)
    assert shown(local, run=first, node=1, lines=1) == [(first, "b")]
    selection = Selection(run=first, node=2)
    with pytest.raises(Invalid, match=r"--rank: job has no node 2. Hint: available: 0 and 1; --rank takes a node"):
        logs.check_rank([ReachedJob(NAMESPACE, "job", local=local)], selection)


def test_the_oldest_logs_go_first(local: LocalTarget) -> None:
    """All earlier runs together take as much as the log of each container may."""
    local.jobs.tuning = replace(QUICK, log_bytes=4000, log_files=2)
    for letter in "abcd":
        text = letter * 2999
        if letter == "a":
            run(local, printing(text))
        else:
            replace_job(local, printing(text))
    *_, second, third, fourth = ids(local)
    assert [folder.name for folder in kept(local)] == [second, third]
    assert [text[0] for _, text in shown(local, earlier=True)] == ["b", "c", "d"]
    assert shown(local, run=fourth)[0][1] == "d" * 2999


def test_runs_without_a_log_are_named(local: LocalTarget, capsys: pytest.CaptureFixture[str]) -> None:
    former = Run("1", "Failed", created=1.0)
    run(
        local,
        printing("new"),
        earlier=(former, Run("1", "Failed", id="top2v4", lineage="top2v4", created=1.0, inputs={"nodes": "1"})),
    )
    assert [text for _, text in shown(local, earlier=True)] == ["new"]
    assert (
        "job: run top2v4 (Failed, created 1970-01-01 00:00:01 UTC): its logs are not kept\n" in capsys.readouterr().err
    )
    with pytest.raises(TargetFault, match=r"run top2v4 .*: its logs are not kept: it has printed nothing, or"):
        shown(local, run="top2v4")


def test_logs_of_runs_that_nobody_knows_go(local: LocalTarget) -> None:
    """A failed replacement has deleted the job; then its program, or its stack, was changed."""
    for end in ("create", "sweep", "delete"):
        run(local, printing("one"))
        local.jobs.delete(NAMESPACE, "job", owner=OWNER, replaced=True)
        assert len(kept(local)) == 1
        if end == "create":
            run(local, printing("other"))
        elif end == "sweep":
            local.sweep("stack-1")
        else:
            local.jobs.delete(NAMESPACE, "job", owner=OWNER)
        assert kept(local) == [], end
        local.jobs.delete(NAMESPACE, "job", owner=OWNER)


def test_the_time_to_live_counts_for_all_logs(local: LocalTarget) -> None:
    run(local, printing("one"))
    replace_job(local, {**printing("two"), "spec": {**printing("two")["spec"], "ttlSecondsAfterFinished": 0}})
    local.jobs.status(NAMESPACE, "job")
    assert kept(local) == [] and log(local) == ""


@pytest.mark.parametrize("above", [0, 1, 2])
def test_a_link_leads_to_nothing_that_is_removed(local: LocalTarget, tmp_path: Path, above: int) -> None:
    """above: Which folder is a link: that of the job, its namespace, or all."""
    link = JobFolder.of(local.root, NAMESPACE, "job").earlier_logs
    place = tmp_path / "mine"
    for name in [NAMESPACE, "job"][2 - above :]:
        place /= name
    thesis = place / "thesis"
    thesis.mkdir(parents=True)
    link = [link, *link.parents][above]
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "mine")
    run(local, printing("one"))
    with pytest.raises(Refused, match="leads out of its folder"):
        local.jobs.delete(NAMESPACE, "job", owner=OWNER, replaced=True)
    local.jobs.delete(NAMESPACE, "job", owner=OWNER)
    local.sweep("stack-1")
    assert thesis.is_dir()


def test_a_run_of_a_cluster(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its Pods are gone with their logs; its record has the message of its end."""
    failed = Run("1", "Failed", id="r1", message="exit code 1\n  ValueError: bad")
    known = [failed, Run("1", "Interrupted", id="r2"), Run("1", "Running", id="r3")]
    monkeypatch.setattr(logs, "check_own", lambda _: None)
    monkeypatch.setattr(logs, "read_runs_of", lambda _: known)
    job = ReachedJob("team", "digits", client=cast(Client, object()))
    lines = [*logs.log_lines([job], Selection(run="r1"))]
    assert [(line.run, line.text) for line in lines] == [("r1", "exit code 1"), ("r1", "  ValueError: bad")]
    assert [line.text for line in logs.log_lines([job], Selection(run="r1", lines=1))] == ["  ValueError: bad"]
    note = "digits: run r1: Kubernetes has removed its Pods, and their logs with them; its record ends with:\n"
    assert capsys.readouterr().err == f"pulumi-trainer: {note}" * 2
    with pytest.raises(TargetFault, match=r"run r2: Kubernetes has removed its Pods, .* no message \(Interrupted\)"):
        [*logs.log_lines([job], Selection(run="r2"))]
    with pytest.raises(Invalid, match="did you mean r3"):
        [*logs.log_lines([job], Selection(run="r33"))]
    assert Run.from_dict({**failed.to_dict(), "message": "a\x1b[2Jb" + "x" * 5000}).message.startswith("a")


def test_a_run_of_a_cluster_that_has_kept_its_logs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keeps = {"logs": "keep"}
    failed = Run("1", "Failed", id="r1", message="exit code 1", inputs=keeps)
    known = [failed, Run("1", "Interrupted", id="r2", lineage="r1", inputs=keeps), Run("1", "Running", id="r3")]
    job, asked = ReachedJob("team", "digits", client=cast(Client, object())), list[str]()

    def find_output(_: object, run: str, __: str) -> outputs.Found | None:
        asked.append(run)
        where = "pvc://digits-output/r1"
        volume = None if gone else outputs.Output(where, 1)
        return outputs.Found(State(job, None), where, volume)

    gone = False
    monkeypatch.setattr(logs, "check_own", lambda _: None)
    monkeypatch.setattr(logs, "read_runs_of", lambda _: known)
    monkeypatch.setattr(logs, "read_states", lambda _: [State(job, None)])
    monkeypatch.setattr(logs, "find_output", find_output)
    assert [line.text for line in logs.log_lines([job], Selection(run="r1"))] == ["exit code 1"]
    copies = "`pulumi-trainer outputs digits --run {0} --copy DEST` copies them"
    place = f"all its lines are in pvc://digits-output/r1/logs/{{0}}: {copies}"
    assert f"digits: run r1: {place.format('r1')}\n" in capsys.readouterr().err
    with pytest.raises(TargetFault, match=re.escape(f"(Interrupted). Hint: {place.format('r2')}")):
        [*logs.log_lines([job], Selection(run="r2"))]
    assert asked == ["r1", "r2"]
    gone = True
    assert [*logs.log_lines([job], Selection(run="r1"))] and "all its lines" not in capsys.readouterr().err
    with pytest.raises(TargetFault, match="files in TRAINER_OUTPUT_DIR stay"):
        [*logs.log_lines([job], Selection(run="r2"))]


def test_the_command_takes_one_job(local: LocalTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    both = [ReachedJob(NAMESPACE, name, local=local) for name in ("a", "b")]
    monkeypatch.setattr(command, "chosen_jobs", lambda *_: both)
    with pytest.raises(Invalid, match="--run"):
        command.logs(None, Where(), Selection(run="top2v4"))


def test_the_runs_and_the_output_of_a_job_of_a_cluster_whose_record_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of the state of its stack, as on this machine."""
    mount = {"name": "out", "mountPath": OUTPUT_PATH, "subPath": ASSIGNED}
    volume = {"name": "out", "persistentVolumeClaim": {"claimName": "digits-output"}}
    pod = {"containers": [{"name": "node", "image": "x", "volumeMounts": [mount]}], "volumes": [volume]}
    step = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    jobset = {"kind": "JobSet", "metadata": {"name": "digits"}, "spec": {"replicatedJobs": [step]}}
    earlier = {"run": "1", "phase": "Succeeded", "id": "t4kz0a", "lineage": "t4kz0a", "place": "digits-output"}
    identity = {"id": "t4kz1f", "lineage": "t4kz1f", "cause": "changed", "place": "digits-output"}
    stored = JobInputs(
        namespace="team", name="digits", digest="d", objects={"JobSet/digits": jobset}, run="2", identity=identity,
        run_inputs={"code": "b"}, earlier_runs=[earlier], target={"kind": "kubernetes"},
    )  # fmt: skip
    client: Any = object()
    job = ReachedJob("team", "digits", client=client, phase="Running", stored=stored)
    monkeypatch.setattr(record, "find", lambda *_: None)
    monkeypatch.setattr(claims, "output", lambda _, __, uri: outputs.Output(uri, 1))
    known = runs.stored_runs_of(job)
    assert [(run.id, run.phase, run.created) for run in known] == [
        ("t4kz0a", "Succeeded", 0.0),
        ("t4kz1f", "Deleted", float(int("t4kz1f", 36))),
    ]
    assert known[-1].note == "it is not known whether it had ended" and known[-1].identity == Identity.from_dict(
        identity
    )
    monkeypatch.setattr(outputs, "read_runs_of", runs.stored_runs_of)
    for asked, folder, phase in (
        ("", "t4kz0a", "Deleted"),
        ("t4kz1f", "t4kz1f", "Deleted"),
        ("t4kz0a", "t4kz0a", "Succeeded"),
    ):
        found = outputs.find_output(State(job, None), asked, "--run")
        assert found is not None and (found.where, found.phase) == (f"pvc://digits-output/{folder}", phase)
    ended = replace(job, phase="Failed")
    assert runs.stored_runs_of(ended)[-1].phase == "Failed", "the stack has seen its end"
