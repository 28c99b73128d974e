"""Jobs of this machine that `pulumi-trainer` suspends, resumes, stops and runs again."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from local_support import NAMESPACE, config, container, jobset, log, python, run, step, submission, wait
from pulumi_trainer.provider.cli import operations, outputs
from pulumi_trainer.provider.jobs.lineage import ASSIGNED
from pulumi_trainer.provider.jobs.manual import Override, stop_note
from pulumi_trainer.provider.jobs.runs import Identity, Run
from pulumi_trainer.provider.jobs.status import Owner
from pulumi_trainer.provider.kubernetes.errors import Conflict, Problem, Refused, TargetFault, Unreadable
from pulumi_trainer.provider.pod.initializers import manifest
from pulumi_trainer.provider.pod.initializers.manifest import FetchedFile, Manifest
from pulumi_trainer.provider.pod.initializers.source import Patterns
from pulumi_trainer.provider.service.reach import ReachedJob, Where
from pulumi_trainer.provider.targets.local import LocalTarget
from pulumi_trainer.provider.targets.local.claims import Claim
from pulumi_trainer.provider.targets.local.record import Record
from pulumi_trainer.provider.targets.local.store import JobFolder

OWNER = Owner("owner-1", "stack-1")
SUSPEND, RESUME = Override(True, "ann", 1.0), Override(False, "ann", 2.0)
WAITS = python("import time; print('started', flush=True); time.sleep(600)")


def running(local: LocalTarget, **spec: object) -> None:
    local.jobs.create(submission(jobset(step(command=WAITS), **spec)))
    wait(local, until=lambda s: s.phase == "Running")


def test_a_change_in_place_keeps_the_id_of_the_run(local: LocalTarget) -> None:
    folder = JobFolder(local.root / "jobs" / NAMESPACE / "job")
    made = local.jobs.create(submission(jobset(step(command=WAITS), suspend=True)))
    time.sleep(1.1)  # another id would be that of another second
    local.jobs.update(
        submission(jobset(step(command=WAITS), suspend=True, ttlSecondsAfterFinished=9), digest="digest-2")
    )
    assert Record.read(folder).identity == made.identity and made.identity.id


def test_suspend_and_resume(local: LocalTarget) -> None:
    running(local)
    local.jobs.set_suspend(NAMESPACE, "job", OWNER, SUSPEND)
    status = wait(local, until=lambda s: s.phase == "Suspended")
    assert status.reason == "SuspendedByUser"
    assert status.message == "suspended by ann with `pulumi-trainer suspend` at 1970-01-01 00:00:01 UTC;" \
        " `pulumi-trainer resume` continues it"  # fmt: skip
    presence = local.jobs.presence(NAMESPACE, "job")
    assert presence is not None and presence.note == status.message
    local.jobs.set_suspend(NAMESPACE, "job", OWNER, RESUME, submission(jobset(step(command=WAITS))))
    assert wait(local, until=lambda s: s.phase == "Running").message == ""
    presence = local.jobs.presence(NAMESPACE, "job")
    assert presence is not None and presence.note == ""


def test_an_update_keeps_the_override_until_the_program_says_the_same(local: LocalTarget) -> None:
    running(local)
    local.jobs.set_suspend(NAMESPACE, "job", OWNER, SUSPEND)
    wait(local, until=lambda s: s.phase == "Suspended")
    labelled = jobset(step(command=WAITS), ttlSecondsAfterFinished=60)
    assert local.jobs.update(submission(labelled)).phase == "Suspended"
    assert local.jobs.update(submission(jobset(step(command=WAITS), suspend=True))).message == ""
    local.jobs.update(submission(labelled))
    wait(local, until=lambda s: s.phase == "Running")


def test_resume_although_the_program_suspends(local: LocalTarget) -> None:
    local.jobs.create(submission(jobset(step(command=WAITS), suspend=True)))
    local.jobs.set_suspend(NAMESPACE, "job", OWNER, RESUME, submission(jobset(step(command=WAITS), suspend=True)))
    wait(local, until=lambda s: s.phase == "Running")


def said(local: LocalTarget, operation: operations.Operation, document: dict[str, object]) -> str:
    """Return what `pulumi-trainer` prints of an operation."""
    job = ReachedJob(NAMESPACE, "job", local=local, owner=OWNER, submission=submission(document))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out:
        patch.setattr(operations, "find_job", lambda *_: job)
        operations.operate(operation, "job", Where())
    return out.getvalue()


def test_a_new_run_of_a_job_that_the_program_suspends_is_suspended(local: LocalTarget) -> None:
    document = jobset(step(command=WAITS), suspend=True)
    local.jobs.create(submission(document))
    local.jobs.stop(NAMESPACE, "job", OWNER, "stopped by ann")
    assert said(local, "rerun", document) == (
        "job has a new run, which is suspended (suspend is true); `pulumi-trainer resume` starts it\n"
    )
    assert said(local, "resume", document) == "job is resumed\n"
    wait(local, until=lambda s: s.phase == "Running")
    local.jobs.stop(NAMESPACE, "job", OWNER, "stopped by ann")
    assert said(local, "rerun", jobset(step(command=WAITS))) == "job runs again\n"


def test_a_job_that_is_not_suspended_cannot_be_resumed(local: LocalTarget) -> None:
    document = jobset(step(command=WAITS))
    running(local)
    assert said(local, "resume", document) == "job is not suspended: it is Running\n"
    said(local, "suspend", document)
    assert said(local, "resume", document) == "job is resumed\n", "also while its processes end"


def test_a_job_that_is_suspended_again_keeps_who_has_suspended_it(local: LocalTarget) -> None:
    running(local)
    local.jobs.set_suspend(NAMESPACE, "job", OWNER, SUSPEND)
    assert said(local, "suspend", jobset(step(command=WAITS))) == (
        "job is already suspended by ann since 1970-01-01 00:00:01 UTC; `pulumi-trainer resume` continues it\n"
    )
    presence = local.jobs.presence(NAMESPACE, "job")
    assert presence is not None and presence.note == SUSPEND.note


def test_a_job_that_its_program_has_suspended_is_suspended_by_no_user(local: LocalTarget) -> None:
    document = jobset(step(command=WAITS), suspend=True)
    local.jobs.create(submission(document))
    assert said(local, "suspend", document) == "job is already suspended; `pulumi-trainer resume` continues it\n"


def test_stop_ends_the_job_for_good(local: LocalTarget) -> None:
    ends = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: (print('bye', flush=True), sys.exit()))"
    command = python(f"{ends}; print('started', flush=True); time.sleep(600)")
    local.jobs.create(submission(jobset(step(command=command))))
    wait(local, until=lambda s: s.phase == "Running" and "started" in log(local))
    status = local.jobs.stop(NAMESPACE, "job", OWNER, stop_note("ann", 1.0))
    assert (status.phase, status.reason, status.steps[0].phase) == ("Failed", "Stopped", "Failed")
    assert status.message.startswith("stopped by ann") and "bye" in log(local) and status.finished
    again = submission(jobset(step(command=command)))
    assert local.jobs.create(again).reason == "Stopped", "nothing starts it silently"
    assert local.jobs.update(again).reason == "Stopped"
    presence = local.jobs.presence(NAMESPACE, "job")
    assert presence is not None and presence.note == status.message


@pytest.mark.parametrize("suspended", [True, False])
def test_stop_without_a_supervisor(local: LocalTarget, suspended: bool) -> None:
    if suspended:
        local.jobs.create(submission(jobset(step(command=WAITS), suspend=True)))
    else:
        run(local, jobset(step()))
    status = local.jobs.stop(NAMESPACE, "job", OWNER, "stopped by ann")
    assert (status.phase, status.reason) == (("Failed", "Stopped") if suspended else ("Succeeded", status.reason))
    assert local.jobs.stop(NAMESPACE, "job", OWNER, "stopped again") == status


def test_rerun_is_another_run_that_the_stack_knows(local: LocalTarget) -> None:
    code = config("code", {"main.py": "1"})
    document = jobset(step(command=python("import os; print('run', os.environ['V'], flush=True)"), container_fields={
        "env": [{"name": "V", "valueFrom": {"secretKeyRef": {"name": "job-env", "key": "v"}}}]}))  # fmt: skip
    first = run(local, document, code, secrets={"job-env": {"v": "one"}})
    record = local.root / "jobs" / NAMESPACE / "job" / "record.json"
    uid = json.loads(record.read_text())["uid"]
    local.jobs.rerun(submission(document, code, secrets={"job-env": {"v": "two"}}))
    again = wait(local)
    assert again.phase == "Succeeded" and again.uid == first.uid and again.created > first.created
    assert json.loads(record.read_text())["uid"] != uid, "a folder of an output is named by it"
    assert [run.phase for run in local.jobs.runs(NAMESPACE, "job")] == ["Succeeded", "Succeeded"]
    assert log(local).count("run") == 1 and "two" not in record.read_text()
    assert local.jobs.delete(NAMESPACE, "job", uid=first.uid, owner=OWNER) is None
    assert local.jobs.status(NAMESPACE, "job") is None


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_run_that_goes_on_keeps_what_its_first_start_has_recorded(local: LocalTarget, goes_on: bool) -> None:
    """One that its program has failed is another run."""
    document = jobset(step(command=WAITS if goes_on else python("raise SystemExit(3)")))
    before = [Run("1", "Failed", id=name, lineage=name, place="out") for name in ("a", "b")]
    sent = replace(submission(document), earlier=before, identity=Identity(place="out"), keep_runs=2)
    first = local.jobs.create(sent).identity
    assert first.removed == "a"
    if goes_on:
        wait(local, until=lambda s: s.phase == "Running")
        local.jobs.stop(NAMESPACE, "job", OWNER, "stopped by ann")
    wait(local)
    done = {"type": "x", "step": 300, "resumedFrom": 300, "progressPercentage": 100}
    last = jobset(step(command=python(f"print({json.dumps(json.dumps({'trainerStatus': done}))})")))
    again = local.jobs.rerun(replace(sent, objects=submission(last).objects))
    numbers = [1] if goes_on else []
    assert [each.number for each in again.attempts] == numbers and (again.identity == first) is goes_on
    assert bool(again.identity.removed) is goes_on
    status = wait(local)
    assert [(each.number, each.cause) for each in status.attempts][:-1] == [(1, "Stopped")] * len(numbers)
    assert status.attempts[-1].number == len(numbers) + 1 and status.attempts[-1].cause == "Succeeded"
    assert bool(status.note) is not goes_on, "the steps that it has done before the interruption are its own"


class Killed(BaseException):
    """The process ends here."""


def test_a_rerun_that_is_killed_adds_no_run(local: LocalTarget) -> None:
    document = jobset(step())
    run(local, document)
    (used,) = local.jobs.usage(NAMESPACE, "job")
    for _ in range(3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(JobFolder, "forget_run", lambda *_: kill())
            with pytest.raises(Killed):
                local.jobs.rerun(submission(document))
        (only,) = local.jobs.runs(NAMESPACE, "job")
        assert only.phase == "Succeeded" and only.created < only.finished
        (same,) = local.jobs.usage(NAMESPACE, "job")
        assert (same.begin, same.end) == (used.begin, used.end)
    local.jobs.rerun(submission(document))
    assert wait(local).phase == "Succeeded"
    first, second = local.jobs.runs(NAMESPACE, "job")
    assert first == only and second.created > first.finished


def kill() -> None:
    raise Killed


def test_a_rerun_that_is_killed_leaves_no_run_to_continue(local: LocalTarget) -> None:
    document = jobset(step(command=python("raise SystemExit(3)")))
    local.jobs.create(submission(document))
    wait(local)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JobFolder, "forget_run", lambda *_: kill())
        with pytest.raises(Killed):
            local.jobs.rerun(submission(document))
    local.jobs.rerun(submission(document))
    wait(local)
    first, second = local.jobs.runs(NAMESPACE, "job")
    assert second.parent == first.id, "not the run that has never begun"


def test_a_rerun_does_without_the_file_beside_its_output(local: LocalTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    document = jobset(step())
    run(local, document)

    def fail(*_: Any) -> None:
        raise TargetFault(Problem("volumes", "cannot be written"))

    monkeypatch.setattr(Record, "write_run_manifest", fail)
    local.jobs.rerun(submission(document))
    assert wait(local).phase == "Succeeded"
    assert [run.phase for run in local.jobs.runs(NAMESPACE, "job")] == ["Succeeded", "Succeeded"]


RUN = {"run": "1", "phase": "Failed", "id": "t4kz1f", "lineage": "t4kz1f", "created": 1.0, "inputs": {}}
NOT_A_RUN = "not the id of a run that the record has"


@pytest.mark.parametrize(
    ("edited", "why"),
    [
        ({"identity": [1]}, "identity is [1], not an object"),
        ({"identity": None}, "identity is None, not an object"),
        ({"identity": {"id": "../x"}}, "identity.id is '../x', not the id of a run, such as 't4kz1f'"),
        ({"identity": {"id": "t4kz2f", "parent": "t4kz1g"}}, f"identity.parent is 't4kz1g', {NOT_A_RUN}"),
        ({"identity": {"id": "t4kz2f", "lineage": "t4kz1g"}}, f"identity.lineage is 't4kz1g', {NOT_A_RUN}"),
        ({"identity": {"id": "t4kz2f", "cause": 3}}, "identity.cause is 3, not a text"),
        ({"earlier": "none"}, "earlier is 'none', not a list"),
        ({"earlier": [RUN, 3]}, "earlier[1] is 3, not an object with the fields of a run"),
        ({"earlier": [{**RUN, "created": "now"}]}, "earlier[0].created is 'now', not seconds since the epoch"),
        ({"earlier": [{**RUN, "inputs": [1]}]}, "earlier[0].inputs is [1], not an object"),
        (
            {"earlier": [RUN, {**RUN, "id": "t4kz2a", "parent": "zzzzzz"}]},
            f"earlier[1].parent is 'zzzzzz', {NOT_A_RUN}",
        ),
        ({"created": "yesterday"}, "created is 'yesterday', not seconds since the epoch"),
        ({"created": True}, "created is True, not seconds since the epoch"),
        ({"inputs": []}, "inputs is [], not an object"),
        ({"program": 5}, "program is 5, not a text"),
    ],
)
def test_an_edited_record_is_a_clear_problem(local: LocalTarget, edited: dict[str, Any], why: str) -> None:
    document = jobset(step())
    run(local, document)
    file = local.root / "jobs" / NAMESPACE / "job" / "record.json"
    written = json.loads(file.read_text())
    for known in ({}, {"earlier": [RUN], "identity": {"id": "t4kz2f", "lineage": "t4kz1f", "parent": "t4kz1f"}}):
        file.write_text(json.dumps({**written, **known}))
        assert local.jobs.runs(NAMESPACE, "job")[-1].phase == "Succeeded"
    old = {"id": "t4kz2f", "lineage": "t3aaaa", "parent": "t3aaab"}
    file.write_text(json.dumps({**written, "earlier": [RUN], "identity": old}))
    assert local.jobs.runs(NAMESPACE, "job")[-1].parent == "t3aaab", "older than all that the record keeps"
    file.write_text(json.dumps({**written, **edited}))
    for ask in (local.jobs.runs, local.jobs.status, local.jobs.presence, local.jobs.current_owner):
        with pytest.raises(Unreadable) as fault:
            ask(NAMESPACE, "job")
        assert f"{file}: is not a valid record of a job: {why}" in str(fault.value)
    status = local.jobs.cached_status(NAMESPACE, "job", "", "Running", OWNER)
    assert status is not None and status.record_lost and why in status.message
    (listed,) = local.jobs.list_all()
    assert listed.record_lost and why in listed.message
    for change in (local.jobs.create, local.jobs.rerun):
        with pytest.raises(Unreadable):
            change(submission(document))
    file.write_text(json.dumps(written))


@pytest.mark.parametrize("reports", [True, False], ids=["steps", "nothing"])
def test_the_file_beside_an_output_names_the_run_that_wrote_it(
    local: LocalTarget, tmp_path: Path, reports: bool
) -> None:
    """A run that resumes at its last step leaves what is there."""
    local.volumes.create(NAMESPACE, "out", "urn:a", "")
    says = tmp_path / "says"
    code = f"import json, sys; said = json.load(open({str(says)!r})); print(json.dumps(said[0]), flush=True); sys.exit(said[1])"
    volumes = [{"name": "output", "persistentVolumeClaim": {"claimName": "out"}}]
    mounts = [{"name": "output", "mountPath": "/workspace/output", "subPath": ASSIGNED}]
    document = jobset(step(command=python(code), pod={"volumes": volumes}, container_fields={"volumeMounts": mounts}))
    sent = replace(submission(document), identity=Identity(cause="created", place="out"))

    def named(start: Callable[[Any], Any], exit_code: int, **report: Any) -> bool:
        """Run the job, and return whether its run is named, and by a copy as well."""
        says.write_text(json.dumps([{"trainerStatus": report} if reports else {}, exit_code]))
        made = start(sent).identity
        wait(local)
        (manifest,) = Path(local.volumes.find(NAMESPACE, "out")[0]["path"]).glob(".*.run.json")  # type: ignore[index]
        name = json.loads(manifest.read_text())["id"]
        assert outputs._writer(local.jobs.runs(NAMESPACE, "job"), f"x/{made.lineage}").id == name
        return bool(name == made.id)

    assert named(local.jobs.create, 1, step=4), "the first one, in any case"
    assert named(local.jobs.rerun, 1, step=4, resumedFrom=4) is not reports
    assert named(local.jobs.rerun, 1, step=6, resumedFrom=4)
    assert named(local.jobs.rerun, 0, step=6, resumedFrom=6, progressPercentage=100) is not reports
    notes = [run.note for run in local.jobs.runs(NAMESPACE, "job")]
    undone = ["0 steps were done after the checkpoint of step 4", "nothing was left to do (0 steps)"]
    assert notes == (["", undone[0], "", undone[1]] if reports else [""] * 4)


def test_a_rerun_keeps_the_revisions_that_the_run_before_has_fetched(local: LocalTarget, tmp_path: Path) -> None:
    """A volume of the user whose path only begins like that of the dataset is not mistaken for it."""
    workspace = tmp_path / "workspace"
    (workspace / "dataset").mkdir(parents=True)
    (workspace / "dataset" / "a.csv").touch()
    fetched = Manifest(
        "hf", "hf://org/digits", "5d72ab01", Patterns((), ()), [FetchedFile("a.csv", 0, "0" * 64, "1")], complete=True
    )
    manifest.write(workspace / "dataset", fetched, workspace)
    volumes = [{"name": "all", "hostPath": {"path": str(workspace)}}, {"name": "own", "emptyDir": {}}]
    mounts = [{"name": "own", "mountPath": "/workspace/data"}, {"name": "all", "mountPath": "/workspace"}]
    document = jobset(step(pod={"volumes": volumes}, container_fields={"volumeMounts": mounts}))
    run(local, document, inputs={"dataset": "hf://org/digits"})
    local.jobs.rerun(submission(document, inputs={"dataset": "hf://org/digits"}))
    wait(local)
    assert [each.inputs["dataset"] for each in local.jobs.runs(NAMESPACE, "job")] == ["hf://org/digits 5d72ab01"] * 2


def in_workspace(workspace: Path, **pod: Any) -> dict[str, Any]:
    """A JobSet of one pod that mounts the folder at /workspace; pod: of its spec."""
    volumes = [{"name": "all", "hostPath": {"path": str(workspace)}}]
    mounts = [{"name": "all", "mountPath": "/workspace"}]
    return jobset(step(pod={"volumes": volumes, **pod}, container_fields={"volumeMounts": mounts}))


def test_data_that_an_init_container_of_the_nodes_fetches_is_recorded(local: LocalTarget, tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    made = tmp_path / "made" / "dataset"
    made.mkdir(parents=True)
    (made / "a.csv").touch()
    file = FetchedFile("a.csv", 0, "0" * 64, "1")
    manifest.write(
        made, Manifest("hf", "hf://org/digits", "5d72ab01", Patterns((), ()), [file], complete=True), made.parent
    )
    code = f"import shutil; shutil.copytree({str(made.parent)!r}, {str(tmp_path / 'workspace')!r}, dirs_exist_ok=True)"
    document = in_workspace(tmp_path / "workspace", initContainers=[container(python(code), name="fetch")])
    run(local, document, inputs={"dataset": "hf://org/digits"})
    assert local.jobs.runs(NAMESPACE, "job")[0].inputs["dataset"] == "hf://org/digits 5d72ab01"


def test_a_pipe_instead_of_a_manifest_blocks_no_supervisor(local: LocalTarget, tmp_path: Path) -> None:
    (tmp_path / "dataset").mkdir()
    os.mkfifo(tmp_path / "dataset" / ".pulumi-trainer.json")
    assert run(local, in_workspace(tmp_path), inputs={"dataset": "x"}).phase == "Succeeded"


def test_a_rerun_makes_the_volume_of_a_step_that_has_not_started(local: LocalTarget, tmp_path: Path) -> None:
    first = step("fetch", python(f"import os, sys; sys.exit(not os.path.exists({str(tmp_path / 'ok')!r}))"))
    volumes = [{"name": "out", "persistentVolumeClaim": {"claimName": "team-output"}}]
    mounts = {"volumeMounts": [{"name": "out", "mountPath": "/out"}]}
    after = [{"name": "fetch", "status": "Complete"}]
    document = jobset(first, step("node", pod={"volumes": volumes}, container_fields=mounts, dependsOn=after))
    assert run(local, document).phase == "Failed"
    (tmp_path / "ok").touch()
    local.jobs.rerun(submission(document))
    assert wait(local).phase == "Succeeded"


def test_a_rerun_never_gets_an_empty_volume_in_place_of_one_that_was_deleted(local: LocalTarget) -> None:
    """A changed dataset is another volume, and `up` deletes the old one once no job runs on it."""
    claim = Claim(local.root, NAMESPACE, "data-1")
    claim.create("urn", "")
    (claim.data / "a.txt").write_text("1")
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-1"}}]
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    document = jobset(step(pod={"volumes": volumes}, container_fields=mounts))
    run(local, document)
    local.jobs.rerun(submission(document))
    assert wait(local).phase == "Succeeded"
    shutil.rmtree(claim.folder)
    with pytest.raises(
        Refused, match=r"default/job: volume data-1 was deleted or replaced .* Hint: set another run= key"
    ):
        local.jobs.rerun(submission(document))
    status = local.jobs.status(NAMESPACE, "job")
    assert status is not None and status.phase == "Succeeded" and not claim.folder.exists()


def test_rerun_of_a_stopped_job(local: LocalTarget) -> None:
    running(local)
    job = submission(jobset(step(command=WAITS)))
    with pytest.raises(Refused, match=r"is Running. Hint: `pulumi-trainer stop` ends it"):
        local.jobs.rerun(job)
    local.jobs.stop(NAMESPACE, "job", OWNER, "stopped by ann")
    local.jobs.rerun(job)
    wait(local, until=lambda s: s.phase == "Running")


def test_jobs_of_others_and_no_jobs(local: LocalTarget) -> None:
    run(local, jobset(step()))
    other = submission(jobset(step()), owner="owner-2")
    with pytest.raises(Conflict, match="belongs to"):
        local.jobs.stop(NAMESPACE, "job", Owner("owner-2"), "stopped")
    with pytest.raises(Conflict, match="belongs to"):
        local.jobs.rerun(other)
    with pytest.raises(Conflict, match="belongs to"):
        local.jobs.set_suspend(NAMESPACE, "job", Owner("owner-2"), SUSPEND)
    with pytest.raises(TargetFault, match="is gone"):
        local.jobs.stop(NAMESPACE, "none", OWNER, "stopped")


def test_an_ended_job_is_not_suspended(local: LocalTarget) -> None:
    done = run(local, jobset(step()))
    assert local.jobs.set_suspend(NAMESPACE, "job", OWNER, SUSPEND) == done


@pytest.mark.parametrize("text", ["", "1", "[]", '{"suspend": 1, "by": "a", "at": 1}', '{"suspend": true, "by": "a"}'])
def test_overrides_that_were_edited(text: str) -> None:
    assert Override.from_text(text) is None
    assert "unknown time" in Override(True, "a", float("nan")).note
    assert Override.from_text(json.dumps(Override(True, "a\x1b[0m", time.time()).to_dict())).by.isprintable()  # type: ignore[union-attr]
