"""Jobs of a cluster that `pulumi-trainer` suspends, resumes, stops and runs again, on a small API server in memory."""

from __future__ import annotations

import base64
import copy
import gzip
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pulumi_trainer.provider import source_archives
from pulumi_trainer.provider.cli import operations as commands
from pulumi_trainer.provider.jobs.attempts import Attempt
from pulumi_trainer.provider.jobs.manual import Override
from pulumi_trainer.provider.jobs.metrics import Metric
from pulumi_trainer.provider.jobs.runs import MOST_RUNS, Identity, Run
from pulumi_trainer.provider.jobs.status import Owner, describe
from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, EVENT, POD, Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError
from pulumi_trainer.provider.kubernetes.errors import Conflict, Invalid, Problem, Refused, TargetFault, TrainerError
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD
from pulumi_trainer.provider.lifecycle.diagnosis import JobView, diagnose
from pulumi_trainer.provider.lifecycle.diagnosis.outcome import FailedContainer
from pulumi_trainer.provider.pod.code import SOURCE_DIGEST
from pulumi_trainer.provider.service import jobs as states
from pulumi_trainer.provider.service.reach import ReachedJob, Where
from pulumi_trainer.provider.service.runs import read_runs_of, read_runs_of_all, times_of
from pulumi_trainer.provider.targets.kubernetes import operations, owner_labels
from pulumi_trainer.provider.targets.kubernetes.job_writer import JobWriter
from pulumi_trainer.provider.targets.kubernetes.jobs import apply, deletion, run_end
from pulumi_trainer.provider.targets.kubernetes.jobs import record as records
from pulumi_trainer.provider.targets.kubernetes.observe import job_snapshot, owned_objects, training_progress, watch
from pulumi_trainer.provider.targets.kubernetes.observe.listing import snapshot_jobs
from pulumi_trainer.provider.targets.kubernetes.observe.watch import Observer
from pulumi_trainer.provider.targets.kubernetes.preflight import server_review
from pulumi_trainer.provider.targets.kubernetes.storage import claims
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB

from tests.trainer import review

Document = dict[str, Any]
OWNER = Owner("owner", "stack")
SUSPEND, RESUME = Override(True, "ann", 1.0), Override(False, "ann", 2.0)
QUEUE = {"kueue.x-k8s.io/queue-name": "research"}


class Server:
    """Stores objects by kind, namespace and name; an apply is a merge. In it, no controller runs."""

    host = "https://server"
    patience = 1.0
    workers: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Document] = {}
        self.numbers = itertools.count(1)
        self.conflicts: list[ApiError] = []
        self.forced: list[bool] = []

    def within(self, _: float) -> Server:
        return copy.copy(self)

    def get(self, kind: Kind, namespace: str, name: str, **_: Any) -> Document | None:
        return copy.deepcopy(self.objects.get((kind.kind, namespace, name)))

    def list(
        self, kind: Kind, namespace: str = "", *, keep: Callable[[Document], Any] = lambda d: d, **_: Any
    ) -> tuple[list[Any], str]:
        found = [keep(copy.deepcopy(d)) for key, d in self.objects.items() if key[:2] == (kind.kind, namespace)]
        return found, "1"

    def create(self, kind: Kind, document: Document) -> Document:
        if self.get(kind, document["metadata"]["namespace"], document["metadata"]["name"]) is not None:
            raise fault(409, "AlreadyExists")
        return self._store(kind, {}, document)

    def apply(self, kind: Kind, document: Document, *, force: bool = False, **_: Any) -> Document:
        if self.conflicts and not force:
            raise self.conflicts[0]
        self.forced.append(force)
        known = self.get(kind, document["metadata"]["namespace"], document["metadata"]["name"])
        if known is not None and document["metadata"]["resourceVersion"] != known["metadata"]["resourceVersion"]:
            raise fault(409, "Conflict")
        return self._store(kind, known or {}, document)

    def patch(self, kind: Kind, namespace: str, name: str, change: Document) -> Document:
        known = self.get(kind, namespace, name)
        if known is None:
            raise fault(404, "NotFound")
        for part in ("uid", "resourceVersion"):
            if change.get("metadata", {}).get(part, known["metadata"][part]) != known["metadata"][part]:
                raise fault(409, "Conflict")
        return self._store(kind, known, change)

    def delete_if(
        self, kind: Kind, namespace: str, name: str, mine: Callable[[Document], bool], **_: Any
    ) -> Document | None:
        found = self.get(kind, namespace, name)
        if found is not None and mine(found):
            del self.objects[kind.kind, namespace, name]
        return found

    def _store(self, kind: Kind, known: Document, change: Document) -> Document:
        made = merged(known, change)
        meta = made["metadata"]
        meta["uid"] = known["metadata"]["uid"] if known else f"uid-{next(self.numbers)}"
        meta["resourceVersion"] = str(next(self.numbers))
        meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        self.objects[kind.kind, meta["namespace"], meta["name"]] = made
        return copy.deepcopy(made)


class Killed(BaseException):
    """The process ends here."""


def kill() -> None:
    raise Killed


def merged(known: Document, change: Document) -> Document:
    """A JSON merge patch."""
    made = copy.deepcopy(known)
    for key, value in change.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, dict):
            made[key] = merged(made.get(key) if isinstance(made.get(key), dict) else {}, value)  # type: ignore[arg-type]
        else:
            made[key] = value
    return made


def fault(code: int, reason: str, *causes: Document) -> ApiError:
    return ApiError(Problem("job", reason), code, {"reason": reason, "details": {"causes": list(causes)}})


def submission(*, suspend: bool | None = None, labels: Document | None = None, owner: str = "owner") -> Submission:
    template = {"spec": {"containers": [{"name": "node", "image": "a"}], "restartPolicy": "Never"}}
    job = {"parallelism": 1, "completions": 1, "template": template}
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "job", "namespace": "team", **({"labels": labels} if labels else {})},
        "spec": {
            "replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}],
            **({} if suspend is None else {"suspend": suspend}),
        },
    }
    return Submission("team", "job", owner, "digest", {"JobSet/job": jobset}, sweep="stack")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(server_review, "missing", lambda *_: [])
    return Server()


def target(server: Server) -> KubernetesTarget:
    return KubernetesTarget(server, cluster=lambda: "uid", namespace="team")  # type: ignore[arg-type]


def jobset(server: Server) -> Document:
    found = server.get(JOBSET, "team", "job")
    assert found is not None
    return found


def record(server: Server) -> Document:
    found = server.get(CONFIG_MAP, "team", "job")
    assert found is not None
    return found


def end(server: Server, type_: str) -> None:
    server.patch(JOBSET, "team", "job", {"status": {"conditions": [{"type": type_, "status": "True"}]}})


def set_suspend(server: Server, override: Override, owner: Owner | None = OWNER) -> Any:
    return operations.set_suspend(server, "team", "job", override, owner)  # type: ignore[arg-type]


def stop(server: Server, owner: Owner | None = OWNER) -> Any:
    return operations.stop(server, "team", "job", owner, "stopped by ann")  # type: ignore[arg-type]


def rerun(server: Server, **more: Any) -> Any:
    return operations.rerun(server, submission(**more))  # type: ignore[arg-type]


def test_suspend_is_told_in_status_and_plan_and_is_no_drift(server: Server) -> None:
    target(server).jobs.create(submission())
    set_suspend(server, SUSPEND)
    assert jobset(server)["spec"]["suspend"] is True
    status, presence = target(server).jobs.status("team", "job"), target(server).jobs.presence("team", "job")
    assert status is not None and (status.phase, status.message) == ("Suspended", SUSPEND.note)
    assert presence is not None and presence.note == SUSPEND.note
    assert target(server).jobs.drift("team", "job") == {}
    set_suspend(server, RESUME)
    assert jobset(server)["spec"]["suspend"] is False
    assert owner_labels.OVERRIDE not in record(server)["metadata"]["annotations"]
    presence = target(server).jobs.presence("team", "job")
    assert presence is not None and presence.note == ""


def test_an_override_is_not_told_if_somebody_has_reverted_it(server: Server) -> None:
    target(server).jobs.create(submission())
    set_suspend(server, SUSPEND)
    server.patch(JOBSET, "team", "job", {"spec": {"suspend": False}})
    presence = target(server).jobs.presence("team", "job")
    assert presence is not None and presence.note == ""


def test_an_update_keeps_the_override_until_the_program_says_the_same(server: Server) -> None:
    target(server).jobs.create(submission())
    set_suspend(server, SUSPEND)
    target(server).jobs.update(submission(labels={"team": "a"}, suspend=False))
    assert jobset(server)["spec"]["suspend"] is True and jobset(server)["metadata"]["labels"]["team"] == "a"
    assert json.loads(record(server)["metadata"]["annotations"][owner_labels.OVERRIDE])["by"] == "ann"
    target(server).jobs.update(submission(suspend=True))
    assert owner_labels.OVERRIDE not in record(server)["metadata"]["annotations"]
    target(server).jobs.update(submission(suspend=False))
    assert jobset(server)["spec"]["suspend"] is False


@pytest.mark.parametrize(("manager", "taken"), [("pulumi-trainer", True), ("kubectl-edit", False)])
def test_only_our_own_change_of_suspend_is_taken_over(server: Server, manager: str, taken: bool) -> None:
    target(server).jobs.create(submission())
    cause = {
        "reason": "FieldManagerConflict", "field": ".spec.suspend",
        "message": f'conflict with "{manager}" using jobset.x-k8s.io/v1alpha2',
    }  # fmt: skip
    server.conflicts, server.forced = [fault(409, "Conflict", cause)], []
    if taken:
        target(server).jobs.update(submission(suspend=True))
    else:
        with pytest.raises(Conflict, match="kubectl-edit"):
            target(server).jobs.update(submission(suspend=True))
    assert server.forced == ([True] if taken else [])


def test_a_job_in_a_queue_is_suspended_by_its_workload(server: Server) -> None:
    target(server).jobs.create(submission(labels=QUEUE))
    server.patch(JOBSET, "team", "job", {"spec": {"suspend": True}})
    with pytest.raises(Refused, match="has no Workload"):
        set_suspend(server, SUSPEND)
    assert owner_labels.OVERRIDE not in record(server)["metadata"]["annotations"]
    server.create(
        WORKLOAD, {"metadata": {"namespace": "team", "name": "jobset-job"}, "spec": {"queueName": "research"}}
    )
    set_suspend(server, SUSPEND)
    assert server.objects["Workload", "team", "jobset-job"]["spec"]["active"] is False
    status = target(server).jobs.status("team", "job")
    assert status is not None and (status.reason, status.message) == ("Deactivated", SUSPEND.note)
    target(server).jobs.update(submission(labels=QUEUE))
    assert owner_labels.OVERRIDE in record(server)["metadata"]["annotations"]
    set_suspend(server, RESUME)
    assert server.objects["Workload", "team", "jobset-job"]["spec"]["active"] is True
    assert owner_labels.OVERRIDE not in record(server)["metadata"]["annotations"]


def test_the_command_says_whether_there_was_something_to_resume(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(operation: commands.Operation) -> str:
        commands.operate(operation, "job", Where())
        return capsys.readouterr().out

    def find(*_: object) -> ReachedJob:
        return ReachedJob("team", "job", client=server, owner=OWNER, submission=given)  # type: ignore[arg-type]

    monkeypatch.setattr(commands, "find_job", find)
    given = submission(suspend=True)
    target(server).jobs.create(given)
    assert said("resume") == "job is resumed\n"
    assert said("resume") == "job is not suspended: it is Pending (NoController)\n"
    stop(server)
    assert "is suspended (suspend is true); `pulumi-trainer resume` starts it" in said("rerun")
    stop(server)
    given = submission(labels=QUEUE)
    assert said("rerun") == "job runs again\n"
    server.patch(JOBSET, "team", "job", {"spec": {"suspend": True}})
    work = {"metadata": {"namespace": "team", "name": "jobset-job"}, "spec": {"queueName": "research"}}
    server.create(WORKLOAD, work)
    assert said("resume") == "job is not suspended: it is Queued (NoAnswer)\n"
    said("suspend")
    assert said("resume") == "job is resumed\n"


@pytest.mark.parametrize("queued", [False, True])
def test_a_job_that_is_suspended_again_keeps_who_has_suspended_it(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], queued: bool
) -> None:
    job = ReachedJob("team", "job", client=server, owner=OWNER)  # type: ignore[arg-type]
    monkeypatch.setattr(commands, "find_job", lambda *_: job)
    if queued:
        target(server).jobs.create(submission(labels=QUEUE))
        work = {"metadata": {"namespace": "team", "name": "jobset-job"}, "spec": {"queueName": "research"}}
        server.create(WORKLOAD, work)
    else:
        target(server).jobs.create(submission())
    set_suspend(server, SUSPEND)
    before = record(server)
    commands.operate("suspend", "job", Where())
    assert capsys.readouterr().out == (
        "job is already suspended by ann since 1970-01-01 00:00:01 UTC; `pulumi-trainer resume` continues it\n"
    )
    assert record(server) == before, "the override and the attempts stay"


@pytest.mark.parametrize(("program", "result"), [(True, "is already suspended;"), (False, "is being suspended;")])
def test_a_suspension_that_had_no_effect_or_was_reverted_is_repeated(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], program: bool, result: str
) -> None:
    """After a crash of the command, or after `kubectl`."""
    job = ReachedJob("team", "job", client=server, owner=OWNER)  # type: ignore[arg-type]
    monkeypatch.setattr(commands, "find_job", lambda *_: job)
    target(server).jobs.create(submission(suspend=program))
    set_suspend(server, SUSPEND)
    server.patch(JOBSET, "team", "job", {"spec": {"suspend": program}})
    commands.operate("suspend", "job", Where())
    assert capsys.readouterr().out.startswith(f"job {result}")
    assert jobset(server)["spec"]["suspend"] is True
    override = record(server)["metadata"]["annotations"].get(owner_labels.OVERRIDE)
    assert override is None if program else json.loads(override)["by"] != "ann"


def test_stop_deletes_the_job_and_keeps_its_end(server: Server) -> None:
    target(server).jobs.create(submission())
    status = stop(server)
    assert (status.phase, status.reason, status.message) == ("Failed", "Stopped", "stopped by ann")
    assert server.get(JOBSET, "team", "job") is None
    presence = target(server).jobs.presence("team", "job")
    assert presence is not None and (presence.note, presence.deleted) == ("stopped by ann", "")
    assert target(server).jobs.create(submission()).reason == "Stopped", "nothing starts it silently"
    assert target(server).jobs.update(submission(labels={"a": "b"})).reason == "Stopped"
    assert server.get(JOBSET, "team", "job") is None
    assert stop(server).reason == "Stopped"


def test_stop_after_a_crash(server: Server) -> None:
    """The record had the end, and the JobSet was not deleted."""
    target(server).jobs.create(submission())
    job = server.objects["JobSet", "team", "job"]
    stop(server)
    server.objects["JobSet", "team", "job"] = job
    assert stop(server).reason == "Stopped" and server.get(JOBSET, "team", "job") is None


def test_an_ended_job_stays_as_it_is(server: Server) -> None:
    target(server).jobs.create(submission())
    end(server, "Completed")
    assert stop(server).phase == "Succeeded" and set_suspend(server, SUSPEND).phase == "Succeeded"
    assert server.get(JOBSET, "team", "job") is not None


@pytest.mark.parametrize("how", ["Completed", "Failed", "stopped"])
def test_rerun(server: Server, how: str) -> None:
    target(server).jobs.create(submission())
    uids = record(server)["metadata"]["uid"], jobset(server)["metadata"]["uid"]
    with pytest.raises(Refused, match=r"is Pending. Hint: `pulumi-trainer stop` ends it"):
        rerun(server)
    if how == "stopped":
        stop(server)
    else:
        end(server, how)
        target(server).jobs.status("team", "job")
    assert rerun(server).phase == "Pending"
    assert record(server)["metadata"]["uid"] == uids[0] and jobset(server)["metadata"]["uid"] != uids[1]
    assert not {"phase", "reason", "message", "finished"} & set(record(server)["data"])
    ended = "Succeeded" if how == "Completed" else "Failed"
    assert [run.phase for run in target(server).jobs.runs("team", "job")] == [ended, "Pending"]
    target(server).jobs.update(submission(suspend=True))
    assert len(target(server).jobs.runs("team", "job")) == 2
    status = target(server).jobs.status("team", "job")
    assert status is not None and status.phase == "Suspended" and status.uid == uids[0]


@pytest.mark.parametrize("how", ["stopped", "Failed"])
def test_a_run_that_goes_on_keeps_what_its_first_start_has_recorded(server: Server, how: str) -> None:
    """One that its program has failed is another run."""
    sent = replace(submission(), earlier=[Run("1", "Failed", id=n, lineage=n, place="out") for n in ("a", "b")])
    first = target(server).jobs.create(replace(sent, identity=Identity(place="out"), keep_runs=2))
    assert first.identity.removed == "a"
    attempts = run_end.attempts_as_data([Attempt(1, 5.0, 9.0, "OOMKilled"), Attempt(2, 10.0)])
    server.patch(CONFIG_MAP, "team", "job", {"data": attempts})
    if how == "stopped":
        stop(server)
    else:
        end(server, how)
    again = rerun(server)
    goes_on = how == "stopped"
    assert (again.identity == first.identity) is goes_on and bool(again.identity.removed) is goes_on
    assert [each.number for each in again.attempts] == ([1, 2] if goes_on else [])
    assert not goes_on or (again.attempts[-1].ended and again.attempts[-1].rerun)


@pytest.mark.parametrize("how", ["Completed", "Failed"])
def test_a_rerun_that_is_killed_after_the_deletion_keeps_the_end_that_nobody_has_watched(
    server: Server, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    target(server).jobs.create(submission())
    end(server, how)
    with monkeypatch.context() as patch:
        patch.setattr(operations, "delete_job", lambda *given: (deletion.delete_job(*given), kill()))
        with pytest.raises(Killed):
            rerun(server)
    assert server.get(JOBSET, "team", "job") is None
    status, ended = target(server).jobs.status("team", "job"), "Succeeded" if how == "Completed" else "Failed"
    assert status is not None and status.phase == ended
    presence = target(server).jobs.presence("team", "job")
    assert presence is not None and not presence.deleted
    target(server).jobs.create(submission())
    assert server.get(JOBSET, "team", "job") is None, "`pulumi up` does not run a finished job again"
    rerun(server)
    assert [run.phase for run in target(server).jobs.runs("team", "job")] == [ended, "Pending"]


@pytest.mark.parametrize("next_", ["rerun", "up", "up, killed before it writes the record"])
def test_a_rerun_that_has_sent_nothing_is_not_a_run(
    server: Server, monkeypatch: pytest.MonkeyPatch, next_: str
) -> None:
    target(server).jobs.create(submission())
    end(server, "Completed")
    for _ in range(MOST_RUNS + 1):
        with monkeypatch.context() as patch:
            patch.setattr(server, "conflicts", [fault(500, "InternalError")])
            with pytest.raises(ApiError, match="InternalError"):
                rerun(server)
    assert [run.phase for run in target(server).jobs.runs("team", "job")] == ["Succeeded"]
    if next_ == "rerun":
        rerun(server)
    elif next_ == "up":
        target(server).jobs.create(submission())
    else:
        with monkeypatch.context() as patch:
            patch.setattr(JobWriter, "_write", lambda *_, **__: kill())
            with pytest.raises(Killed):
                target(server).jobs.create(submission())
        target(server).jobs.create(submission())
    assert [run.phase for run in target(server).jobs.runs("team", "job")] == ["Succeeded", "Pending"]
    del server.objects["JobSet", "team", "job"]  # this run has existed
    rerun(server)
    assert [run.phase for run in target(server).jobs.runs("team", "job")] == ["Succeeded", "Deleted", "Pending"]


def test_a_list_explains_a_train_job_without_a_jobset_as_why_does(server: Server) -> None:
    about = {"namespace": "team", "name": "job"}
    spec = {"runtimeRef": {"name": "plain"}}
    server.create(TRAIN_JOB, {"kind": "TrainJob", "metadata": dict(about), "spec": spec})
    refused = {"kind": "TrainJob", **about}
    server.create(EVENT, {
        "kind": "Event", "metadata": {"namespace": "team", "name": "job.1"}, "involvedObject": refused, "type": "Warning",
        "reason": "TrainJobResourcesCreationFailed", "message": 'failed calling webhook "vjobset.kb.io": refused',
    })  # fmt: skip
    (listed,), alone = snapshot_jobs(server, "team"), job_snapshot.snapshot(server, "team", "job")  # type: ignore[arg-type]
    reasons = [diagnose(view, time.time()).reason for view in (listed, alone)]
    assert reasons == ["TrainJobResourcesCreationFailed"] * 2


def queued(server: Server, name: str, message: str = "") -> None:
    """Store a job that waits since 2026-01-01, and its Workload. message: Why, if Kueue has judged it."""
    about = {"namespace": "team", "name": name}
    made = server.create(JOBSET, {"kind": "JobSet", "metadata": {**about, "labels": QUEUE}, "spec": {"suspend": True}})
    owner = {"kind": "JobSet", "name": name, "uid": made["metadata"]["uid"], "controller": True}
    labels = {"kueue.x-k8s.io/job-uid": made["metadata"]["uid"]}
    spec = {"queueName": "research", "podSets": [{"name": "node", "count": 2}]}
    reserved = {"type": "QuotaReserved", "status": "False", "message": message}
    server.create(WORKLOAD, {
        "kind": "Workload", "metadata": {**about, "labels": labels, "ownerReferences": [owner]}, "spec": spec,
        "status": {"conditions": [reserved] if message else []},
    })  # fmt: skip


def test_a_list_has_the_reason_of_an_equal_workload_as_it_is_now(server: Server) -> None:
    of_queue = {"metadata": {"namespace": "team", "name": "research"}, "spec": {"clusterQueue": "gpus"}}
    server.create(LOCAL_QUEUE, {"kind": "LocalQueue", **of_queue})
    flavors = [{"name": "h100"}, {"name": "l40s"}]
    behind = {"metadata": {"namespace": "", "name": "gpus"}, "spec": {"resourceGroups": [{"flavors": flavors}]}}
    server.create(CLUSTER_QUEUE, {"kind": "ClusterQueue", **behind})
    over = "insufficient unused quota for nvidia.com/gpu in flavor h100, {} more needed"
    queued(server, "first", over.format(8))
    queued(server, "second")

    def why() -> str:
        (view,) = (each for each in snapshot_jobs(server, "team") if each.name == "second")  # type: ignore[arg-type]
        return diagnose(view, time.time()).message

    assert "8 more needed" in why()
    server.patch(WORKLOAD, "team", "first", {"status": {"conditions": [
        {"type": "QuotaReserved", "status": "False", "message": over.format(4)},
    ]}})  # fmt: skip
    assert "4 more needed" in why(), "not what the first list has seen"


def test_a_rerun_whose_record_changes_meanwhile_succeeds(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short job may end, and a watcher write its end, before `rerun` returns."""
    target(server).jobs.create(submission())
    end(server, "Completed")
    send = apply.send

    def end_at_once(*given: Any) -> Document:
        answer = send(*given)
        end(server, "Completed")
        target(server).jobs.status("team", "job")
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(apply, "send", end_at_once)
        assert rerun(server).phase == "Succeeded"
    assert [run.phase for run in target(server).jobs.runs("team", "job")] == ["Succeeded", "Succeeded"]


def test_a_rerun_without_something_that_its_pods_need_changes_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed dataset is another volume, and `up` deletes the old one once no job runs on it."""
    target(server).jobs.create(submission())
    end(server, "Completed")
    target(server).jobs.status("team", "job")
    before = copy.deepcopy(server.objects)
    absent = Problem("PersistentVolumeClaim/data-1", "does not exist in the namespace team")
    monkeypatch.setattr(server_review, "missing", lambda *_: [absent])
    with pytest.raises(Invalid, match="PersistentVolumeClaim/data-1: does not exist"):
        rerun(server)
    assert server.objects == before


def test_a_rerun_says_when_it_began(server: Server) -> None:
    target(server).jobs.create(submission())
    end(server, "Completed")
    target(server).jobs.status("team", "job")
    before = time.time()
    rerun(server)
    first, second = target(server).jobs.runs("team", "job")
    assert first.created < before <= second.created


@pytest.mark.parametrize(
    "where", ["cluster", "machine", "both, damaged in the cluster", "both, damaged on the machine", "nowhere"]
)
def test_a_rerun_without_the_archive_of_its_project_changes_nothing(
    server: Server, where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever runs a job again may sit at another machine than the one that has sent the project."""
    monkeypatch.setenv("HOME", str(tmp_path))
    digest = "a" * 64
    code = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "code", "annotations": {SOURCE_DIGEST: digest}},
    }
    sent = submission()
    sent = replace(sent, objects={"ConfigMap/code": code, **sent.objects})
    archive = gzip.compress(b"archive")
    source_archives.store(digest, lambda: archive)
    target(server).jobs.create(sent)
    end(server, "Completed")
    assert target(server).jobs.status("team", "job").phase == "Succeeded"  # type: ignore[union-attr]
    if where in ("cluster", "nowhere"):
        source_archives.archive_path(digest).unlink()
    if where in ("machine", "nowhere"):
        del server.objects["ConfigMap", "team", "code"]
    if where == "both, damaged on the machine":
        source_archives.archive_path(digest).write_bytes(archive[:-9])
    if where == "both, damaged in the cluster":
        server.objects["ConfigMap", "team", "code"]["binaryData"]["source.tar.gz"] = "bm8="
    before = copy.deepcopy(server.objects)
    if where == "nowhere":
        why = r"the archive of the project \(aaaaaaaaaaaa\) is not on this machine"
        hint = r"`pulumi up` makes it again if the files of the project are as they were .*another run= key"
        with pytest.raises(TargetFault, match=rf"{why}. Hint: {hint}"):
            operations.rerun(server, sent)  # type: ignore[arg-type]
        assert server.objects == before
        return
    assert operations.rerun(server, sent).phase == "Pending"  # type: ignore[arg-type]
    stored = server.get(CONFIG_MAP, "team", "code")
    assert stored and base64.b64decode(stored["binaryData"]["source.tar.gz"]) == archive


HUGE = "1" + "0" * 400
EDITED: list[dict[str, Any]] = [
    {"annotations": {owner_labels.OVERRIDE: f'{{"suspend": true, "by": "x", "at": {HUGE}}}'}},
    {"data": {"earlier": f'[{{"run": "1", "created": {HUGE}, "finished": 1e300, "started": NaN}}]'}},
    {"data": {"earlier": '[{"run": "1", "created": 1e12, "finished": -1e15}]'}},
    {"data": {"usage": f'{{"gpus": {HUGE}, "cpus": Infinity, "since": 1e300}}'}},
    {"data": {"attempts": f'[{{"number": 1, "started": {HUGE}}}]'}},
    {
        "data": {
            "phase": "Succeeded",
            "started": "1e300",
            "progress": f'{{"step": {HUGE}, "metrics": [1, {{"name": 2}}]}}',
        }
    },
]


@pytest.mark.parametrize("edited", EDITED)
def test_a_record_that_somebody_has_edited_costs_itself_alone(server: Server, edited: dict[str, Any]) -> None:
    target(server).jobs.create(submission())
    labels = {owner_labels.RECORD: "true"}
    about = {"name": "odd", "namespace": "team", "labels": labels, "annotations": edited.get("annotations", {})}
    server.create(CONFIG_MAP, {"metadata": about, "data": edited.get("data", {})})
    assert target(server).jobs.presence("team", "job") is not None
    odd = records.find(server, "team", "odd")  # type: ignore[arg-type]
    assert odd is not None
    status = odd.last_status()
    for run in odd.runs(status):
        assert times_of(run)
    assert describe(status) and (odd.override is None or "at an unknown time" in odd.override.note)


@pytest.mark.parametrize(
    ("edited", "why"),
    [
        ({"identity": "{"}, "identity is '{', not JSON"),
        ({"identity": "[]"}, "identity is [], not an object with the fields of a run"),
        ({"identity": '{"id": "t4kz2f", "parent": "t4kz1g"}'}, "identity.parent is 't4kz1g', not the id of a run that"),
        ({"earlier": '{"a": 1}'}, "earlier is {'a': 1}, not a list of runs"),
        ({"earlier": '[{"id": "a", "created": "now"}]'}, "earlier[0].created is 'now', not seconds since the epoch"),
        ({"begun": "soon"}, "begun is 'soon', not seconds since the epoch"),
    ],
)
def test_the_runs_of_an_edited_record_are_a_clear_problem(
    server: Server, edited: dict[str, str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target(server).jobs.create(submission())
    known = target(server).jobs.presence("team", "job")
    assert known is not None and not known.fault
    server.patch(CONFIG_MAP, "team", "job", {"data": edited})
    why = f"ConfigMap team/job: is not a valid record of a job: {why}"
    with pytest.raises(TrainerError) as fault:
        target(server).jobs.runs("team", "job")
    assert why in str(fault.value)
    presence = target(server).jobs.presence("team", "job")
    assert presence is not None and why in presence.fault and not presence.deleted and presence.owner == known.owner
    job = ReachedJob("team", "job", client=server, owner=OWNER)  # type: ignore[arg-type]
    (state,) = states.read_states([job])
    assert state.status is not None and state.status.phase == "Pending" and why in state.status.message
    assert why in states.why(job).text
    with pytest.raises(TrainerError, match="is not a valid record of a job"):
        read_runs_of(job)
    other = ReachedJob("team", "other", client=server, owner=OWNER)  # type: ignore[arg-type]
    assert [each for each, _ in read_runs_of_all([job, other])] == [other], "it costs itself alone"
    assert why in capsys.readouterr().err
    (found,) = owned_objects._jobs(server, "here", "team", "kubectl")  # type: ignore[arg-type]
    assert why in found.fault
    stop(server)
    with pytest.raises(TrainerError, match="is not a valid record of a job"):
        rerun(server)


LOSSES = b"".join(
    b'2026-03-04T05:06:07Z {"trainerStatus": {"step": %d, "metrics": [{"name": "loss", "value": %d}]}}\n' % (i, 3 - i)
    for i in range(3)
)


@pytest.mark.parametrize("how", ["ended", "stopped"])
def test_the_record_keeps_the_metrics_of_a_run_and_of_the_runs_before(
    server: Server, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def last_reports(*_: object) -> tuple[list[dict[str, Any]], bool]:
        return [*filter(None, map(training_progress._stamped_progress, LOSSES.split(b"\n")))], True

    monkeypatch.setattr(training_progress, "_last_reports", last_reports)
    target(server).jobs.create(submission())
    if how == "stopped":
        stop(server)
    else:
        end(server, "Completed")
        target(server).jobs.status("team", "job")
    monkeypatch.setattr(training_progress, "_last_reports", lambda *_: ([], True))
    (only,) = target(server).jobs.runs("team", "job")
    assert only.metrics == {"loss": Metric("3", "1", "1", "1", "3")}
    rerun(server)
    first, second = target(server).jobs.runs("team", "job")
    goes_on = how == "stopped"
    assert (first.id == second.id) is goes_on and first.metrics == only.metrics
    assert second.metrics == (only.metrics if goes_on else {})
    assert [point.step for point in first.history["loss"]] == [0, 1, 2]
    created = replace(submission(), earlier=target(server).jobs.runs("team", "job"))
    assert records.document(created)["data"][f"{records.METRICS}{first.id}"] == first.history_text, (
        "also after a new `up`"
    )


def test_jobs_of_others(server: Server) -> None:
    target(server).jobs.create(submission())
    for operate in (lambda: set_suspend(server, SUSPEND, Owner("x", "y")), lambda: stop(server, Owner("x", "y"))):
        with pytest.raises(Conflict, match="belongs to"):
            operate()
    end(server, "Failed")
    with pytest.raises(Conflict, match="belongs to"):
        rerun(server, owner="other")
    assert jobset(server)["spec"].get("suspend") is None


def test_a_suspension_that_the_server_refuses_leaves_nothing_behind(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with the role of `rbac`, which lets nobody change a Workload."""
    target(server).jobs.create(submission(labels=QUEUE))
    server.create(
        WORKLOAD, {"metadata": {"namespace": "team", "name": "jobset-job"}, "spec": {"queueName": "research"}}
    )
    before, patch = record(server), server.patch

    def refuse(kind: Kind, *others: Any) -> Document:
        if kind.kind == "Workload":
            raise fault(403, "Forbidden")
        return patch(kind, *others)

    monkeypatch.setattr(server, "patch", refuse)
    with pytest.raises(ApiError, match="Forbidden"):
        set_suspend(server, SUSPEND)
    for document in (before, after := record(server)):
        del document["metadata"]["resourceVersion"]
    assert after == before


def test_a_late_end_of_a_run_is_not_that_of_the_run_after_it(server: Server) -> None:
    target(server).jobs.create(submission())
    end(server, "Failed")
    found = records.find(server, "team", "job")  # type: ignore[arg-type]
    status = target(server).jobs.status("team", "job")
    assert found is not None and status is not None
    server.patch(CONFIG_MAP, "team", "job", {"data": run_end.no_end()})
    server.patch(CONFIG_MAP, "team", "job", {"data": {"attempts": "[]"}})
    run_end.write_end(server, found, status, JobView("team", "job"))  # type: ignore[arg-type]
    assert record(server)["data"]["phase"] == "Failed", "what others have written meanwhile does not keep it out"
    server.patch(CONFIG_MAP, "team", "job", {"data": {"phase": "Succeeded"}})
    run_end.write_end(server, found, status, JobView("team", "job"))  # type: ignore[arg-type]
    assert record(server)["data"]["phase"] == "Succeeded", "the first end stays"
    server.patch(CONFIG_MAP, "team", "job", {"data": run_end.no_end()})
    found = records.find(server, "team", "job")  # type: ignore[arg-type]
    assert found is not None
    rerun(server)
    run_end.write_end(server, found, status, JobView("team", "job"))  # type: ignore[arg-type]
    assert "phase" not in record(server)["data"]


PLUGIN_FAILS = TargetFault(Problem("kubeconfig user ann: aws", "ended with exit code 1"))
"""Neither an answer nor a missing one: the credentials for the request could not be had."""


def test_a_status_is_told_although_its_end_cannot_be_written(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    target(server).jobs.create(submission())
    end(server, "Completed")

    def patch(*_: Any) -> Document:
        raise PLUGIN_FAILS

    monkeypatch.setattr(server, "patch", patch)
    status = target(server).jobs.status("team", "job")
    assert status is not None and status.phase == "Succeeded"


@pytest.mark.parametrize("fault", [PLUGIN_FAILS, Refused(*PLUGIN_FAILS.problems), fault(500, "InternalError")])
def test_a_deletion_is_noticed_after_the_cluster_could_not_be_asked(
    monkeypatch: pytest.MonkeyPatch, fault: TrainerError
) -> None:
    class Cluster:
        faults: ClassVar = [fault]

        def list(self, *_: Any, **__: Any) -> tuple[list[Any], str]:
            if self.faults:
                raise self.faults.pop()
            return [], "1"

        def watch(self, *_: Any, **__: Any) -> Iterator[Document]:
            time.sleep(0.05)
            yield {"type": "BOOKMARK"}

    monkeypatch.setattr(deletion, "LINGER_SECONDS", 0.0)
    departures = deletion.watch_record_deletions(Cluster(), "team")  # type: ignore[arg-type]
    assert departures.wait("uid-1", time.monotonic(), 10)


def test_a_rerun_that_stops_half_way_is_no_job_that_its_ttl_has_removed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_ttl = submission()
    with_ttl.main["spec"]["ttlSecondsAfterFinished"] = 60
    target(server).jobs.create(with_ttl)
    end(server, "Failed")
    with monkeypatch.context() as patch:
        patch.setattr(server, "conflicts", [fault(500, "InternalError")])
        with pytest.raises(ApiError, match="InternalError"):
            operations.rerun(server, with_ttl)  # type: ignore[arg-type]
    presence = target(server).jobs.presence("team", "job")
    assert presence is not None and presence.deleted and presence.unsent
    target(server).jobs.create(with_ttl)
    assert server.get(JOBSET, "team", "job") is not None
    del server.objects["JobSet", "team", "job"]
    presence = target(server).jobs.presence("team", "job")
    assert presence is not None and not presence.deleted, "removed by its TTL"


def test_an_update_creates_no_job_that_may_have_ended_when_somebody_deleted_it(server: Server) -> None:
    target(server).jobs.create(submission())
    end(server, "Completed")  # which nobody reads
    del server.objects["JobSet", "team", "job"]
    presence = target(server).jobs.presence("team", "job")
    assert presence is not None and presence.deleted and not presence.unsent
    for status in (
        target(server).jobs.status("team", "job"),
        target(server).jobs.update(submission(labels={"team": "a"})),
    ):
        assert status is not None and (status.phase, status.reason) == ("Deleted", "OutcomeUnknown")
        assert status.message == "somebody has deleted it, and it is not known whether it had ended"
    assert server.get(JOBSET, "team", "job") is None
    assert rerun(server).phase != "Deleted" and server.get(JOBSET, "team", "job") is not None


def test_a_job_with_a_ttl_whose_creation_stopped_before_its_record_is_complete(server: Server) -> None:
    with_ttl = submission()
    with_ttl.main["spec"]["ttlSecondsAfterFinished"] = 60
    target(server).jobs.create(with_ttl)
    server.patch(CONFIG_MAP, "team", "job", {"data": {records.SENT: None}})
    target(server).jobs.create(with_ttl)
    del server.objects["JobSet", "team", "job"]
    presence = target(server).jobs.presence("team", "job")
    assert presence is not None and not presence.deleted


@pytest.mark.parametrize("how", ["ended", "unfinished"])
def test_an_update_leaves_a_job_alone_that_somebody_has_created_in_its_place(server: Server, how: str) -> None:
    target(server).jobs.create(submission())
    if how == "ended":
        end(server, "Completed")
        target(server).jobs.status("team", "job")
    del server.objects["JobSet", "team", "job"]
    theirs = server.create(JOBSET, submission(labels={"whose": "theirs"}).main)
    if how == "ended":
        assert target(server).jobs.update(submission(labels={"team": "a"})).phase == "Succeeded"
        assert target(server).jobs.create(submission()).phase == "Succeeded"
    else:
        with pytest.raises(Conflict, match="another job has the same name now, which is left alone"):
            target(server).jobs.update(submission(labels={"team": "a"}))
    assert jobset(server) == theirs


def test_jobs_without_a_record(server: Server) -> None:
    server.create(JOBSET, submission().main)
    with pytest.raises(TargetFault, match="is gone"):
        set_suspend(server, SUSPEND)
    set_suspend(server, SUSPEND, owner=None)
    assert jobset(server)["spec"]["suspend"] is True
    with pytest.raises(Refused, match="was not created by pulumi-trainer"):
        stop(server, owner=None)
    assert server.get(JOBSET, "team", "job") is not None


def test_the_train_job_of_a_jobset_is_suspended(server: Server) -> None:
    made = server.create(TRAIN_JOB, {"metadata": {"namespace": "team", "name": "job"}, "spec": {}})
    owner = {"kind": "TrainJob", "name": "job", "uid": made["metadata"]["uid"], "controller": True}
    document = copy.deepcopy(submission().main)
    server.create(JOBSET, {**document, "metadata": {**document["metadata"], "ownerReferences": [owner]}})
    set_suspend(server, SUSPEND, owner=None)
    assert server.objects["TrainJob", "team", "job"]["spec"]["suspend"] is True
    assert "suspend" not in jobset(server)["spec"]


def test_a_retained_claim_that_is_taken_over_is_what_the_program_has_now(server: Server) -> None:
    def create(**claim: Any) -> dict[str, str]:
        given = {"accessMode": "ReadWriteOnce", **claim}
        return claims.create(server, "team", "out", "owner", "stack", given)  # type: ignore[arg-type]

    def requested() -> Any:
        return server.objects["PersistentVolumeClaim", "team", "out"]["spec"]["resources"]["requests"]["storage"]

    made = create(size="20Gi", retain=True)
    annotations = server.objects["PersistentVolumeClaim", "team", "out"]["metadata"]["annotations"]
    assert annotations[owner_labels.RETAIN] == "true" and requested() == "20Gi"
    assert create(size="500Gi")["path"] == made["path"]
    annotations = server.objects["PersistentVolumeClaim", "team", "out"]["metadata"]["annotations"]
    assert owner_labels.RETAIN not in annotations and requested() == "500Gi"
    create(size="500Gi", retain=True)
    create()
    assert requested() == "500Gi", "without a size the claim keeps its own"


def test_a_job_that_changes_while_it_is_adopted_is_adopted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.create(JOBSET, review(submission().main).stored or {})
    apply = server.apply

    def apply_after_a_change(kind: Kind, document: Document, **more: Any) -> Document:
        monkeypatch.setattr(server, "apply", apply)
        server.patch(JOBSET, "team", "job", {"status": {"restarts": 1}})
        return apply(kind, document, **more)

    monkeypatch.setattr(server, "apply", apply_after_a_change)
    target(server).jobs.create(submission(), adopt=True)
    assert jobset(server)["metadata"]["annotations"][owner_labels.RECORD] == record(server)["metadata"]["uid"]


@pytest.mark.parametrize("replaced", [False, True])
def test_an_ended_job_that_goes_during_an_update_is_not_started_again(
    server: Server, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    target(server).jobs.create(submission())
    end(server, "Completed")
    target(server).jobs.status("team", "job")
    apply, theirs = server.apply, submission(labels={"whose": "theirs"}).main

    def apply_after_its_deletion(kind: Kind, document: Document, **more: Any) -> Document:
        monkeypatch.setattr(server, "apply", apply)
        del server.objects["JobSet", "team", "job"]
        if replaced:
            server.create(JOBSET, theirs)
        raise fault(409, "Conflict")

    monkeypatch.setattr(server, "apply", apply_after_its_deletion)
    with pytest.raises(TargetFault, match="run the same command again"):
        target(server).jobs.update(submission(labels={"team": "a"}))
    found = server.get(JOBSET, "team", "job")
    assert (found is not None and found["metadata"]["labels"] == {"whose": "theirs"}) if replaced else found is None


def test_a_job_that_somebody_has_created_in_place_of_another_is_no_drift(server: Server) -> None:
    target(server).jobs.create(submission(suspend=False))
    del server.objects["JobSet", "team", "job"]
    server.create(JOBSET, submission(suspend=True).main)
    assert target(server).jobs.drift("team", "job") == {}


@pytest.mark.parametrize("rerun_meanwhile", [True, False])
def test_a_waiting_program_writes_the_end_of_the_run_that_it_has_seen(
    server: Server, monkeypatch: pytest.MonkeyPatch, rerun_meanwhile: bool
) -> None:
    target(server).jobs.create(submission())
    if rerun_meanwhile:
        end(server, "Completed")
        rerun(server)  # so that the record has an earlier run before
    end(server, "Failed")
    observer = Observer(server, "team")  # type: ignore[arg-type]
    observer._record_changed("ADDED", record(server))
    observer._changed(JOBSET, "ADDED", jobset(server))

    def read_logs(_client: Any, view: JobView) -> JobView:
        if rerun_meanwhile:
            rerun(server)
            observer._record_changed("MODIFIED", record(server))
        else:
            server.patch(CONFIG_MAP, "team", "job", {"data": {"note": "somebody else's"}})
        return view

    monkeypatch.setattr(watch, "with_output", read_logs)
    status = observer.conclude("job")
    assert status is not None and status.phase == "Failed"
    assert record(server)["data"].get("phase") == (None if rerun_meanwhile else "Failed")


@pytest.mark.parametrize("first", ["status", "waiting"])
def test_the_record_keeps_the_end_that_explains_most(
    server: Server, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Who looks first may come too late for the log of the pod, or too early."""
    target(server).jobs.create(submission())
    end(server, "Failed")
    ended = {"name": "node", "state": {"terminated": {"exitCode": 1}}}
    labels = {"jobset.sigs.k8s.io/jobset-name": "job"}
    pod = {"kind": "Pod", "metadata": {"name": "job-a", "namespace": "team", "labels": labels}}
    server.create(POD, {**pod, "status": {"phase": "Failed", "containerStatuses": [ended]}})
    asked: list[str] = []

    def read(_client: Any, _namespace: str, failed: FailedContainer) -> list[str]:
        asked.append(failed.pod)
        return ["KeyError: 'k'"] if first == "status" or len(asked) > 1 else []

    monkeypatch.setattr(job_snapshot, "last_lines", read)
    for _ in range(3):
        status = target(server).jobs.status("team", "job")
        assert status is not None and status.phase == "Failed"
    assert asked == ["job-a"], "a status asks once, before the end is recorded"
    assert ("KeyError: 'k'" in record(server)["data"]["message"]) == (first == "status")
    observer = Observer(server, "team")  # type: ignore[arg-type]
    observer._record_changed("ADDED", record(server))
    observer._changed(JOBSET, "ADDED", jobset(server))
    observer._changed(POD, "ADDED", server.objects["Pod", "team", "job-a"])
    concluded = observer.conclude("job")
    assert concluded is not None and "KeyError: 'k'" in concluded.message
    assert record(server)["data"]["message"] == concluded.message
