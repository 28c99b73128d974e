"""Jobs of this machine that `pulumi-trainer` suspends, resumes, stops and runs again."""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from local_support import NAMESPACE, config, container, jobset, log, python, run, step, submission, wait
from pulumi_trainer.provider.api.manual import Override, stop_note
from pulumi_trainer.provider.api.status import Owner
from pulumi_trainer.provider.cli import operations
from pulumi_trainer.provider.cli.reach import Job, Where
from pulumi_trainer.provider.initializers import manifest
from pulumi_trainer.provider.initializers.manifest import FetchedFile, Manifest
from pulumi_trainer.provider.initializers.source import Patterns
from pulumi_trainer.provider.kubernetes.errors import Conflict, Problem, Refused, TargetFault
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
    assert Record.read(folder).known_identity == made.identity and made.identity.id


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
    job = Job(NAMESPACE, "job", local=local, owner=OWNER, submission=submission(document))
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


def test_a_rerun_does_without_the_file_beside_its_output(local: LocalTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    document = jobset(step())
    run(local, document)

    def fail(*_: Any) -> None:
        raise TargetFault(Problem("volumes", "cannot be written"))

    monkeypatch.setattr(Record, "write_run_manifest", fail)
    local.jobs.rerun(submission(document))
    assert wait(local).phase == "Succeeded"
    assert [run.phase for run in local.jobs.runs(NAMESPACE, "job")] == ["Succeeded", "Succeeded"]


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
