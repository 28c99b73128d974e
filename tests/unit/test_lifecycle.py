"""Identity, changes, and the calls of a provider, on plain data."""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import plain_jobs
import pytest
from pulumi_trainer.provider.jobs.attempts import Attempt
from pulumi_trainer.provider.jobs.identity import digest, job_name, program_of
from pulumi_trainer.provider.jobs.progress import timestamp
from pulumi_trainer.provider.jobs.runs import Identity, Run
from pulumi_trainer.provider.jobs.status import JobStatus, Owner, Presence
from pulumi_trainer.provider.jobs.submission import Submission, from_state, to_state
from pulumi_trainer.provider.kubernetes.errors import Conflict, Problem, Refused, TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import without
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.lifecycle.changes import compare
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs
from pulumi_trainer.provider.pod.code import LAUNCH_FILE, SOURCE_ADDRESS, SOURCE_DIGEST


class Target:
    """Keeps what it is asked to create, and is its own jobs and volumes."""

    def __init__(self, phase: str = "Running") -> None:
        self.phase, self.asked = phase, list[tuple[str, Any]]()
        self.made: dict[str, JobStatus] = {}
        self.elsewhere = False
        self.deleted, self.missing, self.taken = "", tuple[str, ...](), tuple[str, ...]()
        self.unlike = self.not_started = self.another = self.unsent = False
        self.note = self.fault = ""
        self.earlier = list[Run]()
        self.folder: Path | None = None
        self.identity_of_jobs = Identity()

    @property
    def jobs(self) -> Target:
        return self

    volumes = jobs

    def create(self, submission: Submission, *, adopt: bool = False) -> JobStatus:
        self.asked.append(("create", submission))
        self.made[submission.name] = JobStatus(
            submission.name, submission.namespace, "uid-1", submission.owner, submission.digest, self.phase, created=1.0,
            stack=submission.sweep, program=submission.program, identity=self.identity_of_jobs,
        )  # fmt: skip
        return self.made[submission.name]

    def update(self, submission: Submission, *, force: bool = False) -> JobStatus:
        self.asked.append(("update", submission))
        return self.made[submission.name]

    def relabel(self, submission: Submission, was: Owner) -> None:
        self.asked.append(("relabel", (submission.sweep, was)))
        self.made[submission.name].stack = submission.sweep

    def update_secrets(self, submission: Submission) -> None:
        self.asked.append(("update_secrets", submission))

    def status(self, namespace: str, name: str) -> JobStatus | None:
        if self.elsewhere:
            raise Refused("ran on another host")
        return self.made.get(name)

    def progress(self, status: JobStatus) -> dict[str, Any] | None:
        return status.progress

    def runs(self, namespace: str, name: str) -> list[Run]:
        return self.earlier

    def find(self, namespace: str, name: str) -> tuple[dict[str, str], Owner] | None:
        if self.folder is None:
            raise TargetFault("the disk does not answer")
        return {"path": str(self.folder / name)}, Owner("", "")

    def presence(self, namespace: str, name: str, beside: Collection[str]) -> Presence | None:
        self.beside = sorted(beside)
        if self.elsewhere:
            raise Refused("ran on another host")
        job = self.made.get(name)
        return (
            Presence(
                job.whose,
                self.deleted,
                self.missing,
                self.taken,
                self.another,
                not_started=self.not_started,
                note=self.note,
                unsent=self.unsent,
                fault=self.fault,
            )
            if job
            else Presence()
        )

    def check_adoption(self, submission: Submission) -> str:
        if self.elsewhere:
            raise Refused("ran on another host")
        job = self.made.get(submission.name)
        if job is not None and self.unlike:
            raise Conflict(Problem("JobSet", "cannot be adopted: it differs in spec"))
        return f"belongs to {job.whose} and is taken over" if job is not None else ""

    def current_owner(self, namespace: str, name: str) -> Owner | None:
        if self.elsewhere:
            raise Refused("ran on another host")
        return job.whose if (job := self.made.get(name)) else None

    def drift(self, namespace: str, name: str) -> dict[str, Any]:
        return {}

    def identity(self) -> dict[str, str]:
        if self.elsewhere:
            raise Refused("is another cluster")
        return {}

    def delete(
        self, namespace: str, name: str, *, uid: str = "", owner: Owner | None = None, replaced: bool = False
    ) -> Owner | None:
        self.asked.append(("delete", uid))
        if owner and (job := self.made.get(name)) and not owner.owns(job.whose):
            return job.whose
        self.made.pop(name, None)
        return None


def objects(**spec: Any) -> dict[str, Any]:
    pod = {"nodeSelector": {"a": "1"}, "containers": [{"name": "node", "image": spec.pop("image", "x:1")}]}
    step = {"name": "node", "replicas": 1, "template": {"spec": {"template": {"metadata": {}, "spec": pod}}}}
    return {"JobSet/j": {"kind": "JobSet", "metadata": {"name": "j"}, "spec": {"replicatedJobs": [step], **spec}}}


def inputs(**changed: Any) -> dict[str, Any]:
    base = {
        "namespace": "default", "name": "j", "objects": objects(), "digest": "d1", "run": "1",
        "runtime": {"name": "torch", "digest": "r1"}, "target": {"kind": "local", "sweep": "s"}, "interrupt": "refuse",
        "adopt": False, "component": "urn:1",
    }  # fmt: skip
    return JobInputs.from_state({**base, **changed}).to_state()


class TestNamesInUse:
    """Of a job that is new to the stack."""

    @staticmethod
    def failures(owner: Owner, **news: Any) -> tuple[str, ...]:
        target = Target()
        target.made["j"] = JobStatus("j", "default", owner=owner.id, stack=owner.stack, program=owner.program)
        return checked({}, inputs(**news), target).failures

    def test_by_another_program(self) -> None:
        (failure,) = self.failures(Owner("other", "t", "vision/prod"))
        assert failure == (
            "default/j: exists and belongs to the stack vision/prod. "
            "Hint: give the TrainJob another name, or take the job over with"
            " adopt=True"
        )
        assert self.failures(Owner("other", "t"), target={"kind": "local", "sweep": Unknown("sweep")}) != ()

    def test_by_the_run_that_is_replaced(self) -> None:
        assert self.failures(Owner("other", "s", "vision/dev")) == ()
        assert self.failures(Owner("other", ""), retain=True) == ()
        assert self.failures(Owner("other", "")) != ()

    def test_that_is_taken_over(self) -> None:
        assert self.failures(Owner("other", "t"), adopt=True) == ()
        target = Target()
        target.made["j"] = JobStatus("j", "default", owner="other", stack="t")
        target.unlike = True
        assert checked({}, inputs(adopt=True), target).failures == ("JobSet: cannot be adopted: it differs in spec",)
        target.unlike = False
        target.made["j"].program = "vision/prod"
        (note,) = checked({}, inputs(adopt=True), target).notes
        assert note == "default/j: belongs to the stack vision/prod and is taken over"
        target.made["j"].stack, target.unlike = "s", True
        again = checked({}, inputs(adopt=True), target)
        assert (again.failures, again.notes) == ((), ()), "a run of an adopted job is replaced by the next one"
        ours = checked({}, inputs(), Target()).inputs["owner"]
        assert self.failures(Owner(ours, "s")) == (), "a creation that was cut off goes on"

    @pytest.mark.parametrize("unknown", ["namespace", "digest", "component", "target"])
    def test_that_nobody_can_know_of(self, unknown: str) -> None:
        assert self.failures(Owner("other", "t"), **{unknown: Unknown(unknown)}) == ()
        away = Target()
        away.elsewhere = True
        assert checked({}, inputs(), away).failures == ()


def checked(olds: dict[str, Any], news: dict[str, Any], target: Target) -> plain_jobs.Checked[Any]:
    return plain_jobs.check(olds, news, lambda _: target)


def first(target: Target, **given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and outputs of a job that was created."""
    made = checked({}, inputs(**given), target).inputs
    return made, plain_jobs.create(made, lambda _: target)[1]


def test_another_record_of_the_same_inputs_is_no_change() -> None:
    target = Target()
    made, outputs = first(target, runInputs={"code": "12ae32cb1ec0", "arguments": "{}"})
    again = checked(made, inputs(runInputs={"code": "trl sft", "arguments": "{}", "packages": "trl@1.16.0"}), target)
    assert (again.inputs, again.failures, again.notes) == (made, (), ())
    assert plain_jobs.diff(outputs, again.inputs) == plain_jobs.Diff(False)


def test_a_plan_names_the_inputs_in_which_a_new_run_differs() -> None:
    target = Target("Succeeded")
    before = {"code": "12ae32cb1ec0", "commit": "1a", "arguments": '{"lr": 0.1, "n": 1}', "packages": "torch"}
    made, _ = first(target, runInputs=before)
    news = inputs(objects=objects(image="x:2"), digest="d2")
    after = {**before, "commit": "2b", "arguments": '{"lr": 0.2, "n": 1}', "packages": "torch jax"}
    (note,) = checked(made, {**news, "runInputs": after}, target).notes
    assert note == 'default/j: arguments {"lr": 0.1} -> {"lr": 0.2}; packages torch -> torch jax'
    unknown = {**news, "digest": Unknown("x"), "runInputs": {"packages": "jax"}}
    assert checked(made, unknown, target).notes[0] == "default/j: packages torch -> jax", "the others are not known"
    assert checked(made, {**news, "digest": "d1", "objects": objects(), "runInputs": after}, target).notes == ()


@pytest.mark.parametrize(
    ("phase", "kept"), [("Running", "Interrupted"), ("Failed", "Failed"), ("Suspended", "Interrupted")]
)
def test_a_new_run_keeps_the_runs_before_it(phase: str, kept: str) -> None:
    target = Target(phase)
    first(target)
    target.earlier = [Run("1", "Succeeded", inputs={"code": "a"}), Run("2", phase, inputs={"code": "b"})]
    found = checked({}, inputs(), target).inputs[
        "earlierRuns"
    ]  # the engine checks a replacement without its old inputs
    assert [run["phase"] for run in found] == ["Succeeded", kept]


def test_the_owner_is_computed_once_and_kept() -> None:
    target = Target("Succeeded")
    made, _ = first(target)
    again = checked({}, inputs(), target).inputs
    assert made["owner"] == again["owner"]  # a create that crashed finds its own object
    assert checked({}, inputs(component="urn:2"), target).inputs["owner"] != made["owner"]
    renamed = checked(made, inputs(component="urn:2", digest="d2", objects=objects(image="x:2")), target).inputs
    assert renamed["owner"] == made["owner"]


def test_an_unknown_digest_makes_an_unknown_owner() -> None:
    assert isinstance(checked({}, inputs(digest=Unknown("x")), Target()).inputs["owner"], Unknown)


def test_objects_are_kept_as_text_where_they_are_known() -> None:
    other = {"kind": "ConfigMap", "data": {"a": "\u00e4", "b": Unknown("x")}}
    kept = to_state({**objects(), "ConfigMap/c": other})
    assert isinstance(kept["JobSet/j"], str) and kept["ConfigMap/c"] == other
    assert from_state(kept) == {**objects(), "ConfigMap/c": other}


def test_the_same_digest_keeps_the_old_objects_whatever_is_rendered_now() -> None:
    target = Target("Succeeded")
    made, outs = first(target)
    result = checked(made, inputs(name="j-other", objects=objects(image="newer:2"), component="urn:2"), target)
    assert result.inputs == made
    assert plain_jobs.diff(outs, result.inputs).changes is False


def test_a_newer_runtime_is_a_note() -> None:
    target = Target("Succeeded")
    made, _ = first(target)
    result = checked(made, inputs(runtime={"name": "torch", "digest": "r2"}), target)
    assert result.inputs == made and "torch has changed since" in result.notes[0]


def test_a_change_of_the_code_replaces() -> None:
    target = Target("Succeeded")
    made, outs = first(target)
    result = checked(made, inputs(digest="d2", objects=objects(image="x:2")), target)
    assert not result.failures
    diff = plain_jobs.diff(outs, result.inputs)
    assert diff.changes and diff.replaces == ("generation",)


@pytest.mark.parametrize(
    ("news", "reason"),
    [
        ({"digest": "d2", "objects": objects(image="x:2")}, "containers[node].image"),
        ({"digest": "d2", "run": "2"}, "run '1' => '2'"),
        ({"digest": "d2", "name": "k"}, "name default/j => default/k"),
    ],
)
def test_running_work_is_not_interrupted_by_accident(news: dict[str, Any], reason: str) -> None:
    target = Target("Running")
    made, _ = first(target)
    result = checked(made, inputs(**news), target)
    assert len(result.failures) == 1
    assert reason in result.failures[0] and "is Running since 1970-01-01 00:00:01 UTC" in result.failures[0]
    assert 'interrupt="allow"' in result.failures[0]
    assert not checked(made, inputs(**news, interrupt="allow"), target).failures
    target.made["j"].phase = "Failed"
    assert not checked(made, inputs(**news), target).failures
    assert [what for what, _ in target.asked] == ["create"]  # nothing was touched


def with_policy(grace: int = 310) -> dict[str, Any]:
    found = objects()
    pod = found["JobSet/j"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = grace
    pod["containers"][0]["env"] = [{"name": "TRAINER_CHECKPOINT_DIR", "value": "/workspace/output/checkpoints"}]
    return found


def test_a_refusal_says_what_a_stop_would_lose() -> None:
    target = Target("Running")
    made, _ = first(target, objects=with_policy())
    target.made["j"].progress = {"step": 5012, "checkpoint": {"step": 4800, "time": timestamp(time.time() - 185)}}
    (refusal,) = checked(made, inputs(objects=with_policy(), run="2", digest="d2"), target).failures
    assert "run '1' => '2'. It would lose at most 212 steps (3m0" in refusal, refusal
    assert refusal.endswith(
        'since the checkpoint of step 4,800. Wait until it has finished, or set interrupt="allow" on the TrainJob, or'
        ' interrupt="checkpoint" to save a checkpoint first'
    )
    target.made["j"].phase = "Suspended"
    (refusal,) = checked(made, inputs(objects=with_policy(), run="2", digest="d2"), target).failures
    assert "lose" not in refusal and 'interrupt="checkpoint"' not in refusal
    assert "It has a checkpoint of step 4,800. " in refusal, refusal


def test_a_run_with_a_checkpoint_policy_is_ended_after_a_checkpoint() -> None:
    target = Target("Running")
    made, outputs = first(target, objects=with_policy(), place="j-output")
    target.made["j"].checkpoints, target.made["j"].progress = True, {"step": 1}
    target.earlier = [a_run("Running")]
    changed = {"objects": with_policy(), "run": "2", "digest": "d2", "interrupt": "checkpoint", "place": "j-output"}
    result = checked(made, inputs(**changed), target)
    assert not result.failures and plain_jobs.diff(outputs, result.inputs).replaces == ("generation",)
    ends, continues = result.notes
    assert (
        "its Pods get SIGTERM, and up to 310 s to save a checkpoint; it would lose all 1 step if it saves nothing when it is"
        in ends
    )
    assert "the new run continues run t4kz1f from its newest checkpoint" in continues
    target.made["j"].phase = "Queued"
    ends, continues = checked(made, inputs(**changed), target).notes
    assert ends.endswith("this change ends it") and "continues run t4kz1f" in continues


def test_the_loss_counts_from_the_checkpoint_that_the_new_run_continues_from(tmp_path: Path) -> None:
    target = Target("Running")
    made, _ = first(target, objects=with_policy(), place="j-output")
    job = target.made["j"]
    job.checkpoints, job.started, job.attempts = True, time.time() - 60, [Attempt(1, time.time() - 60)]
    job.progress = {"step": 52, "checkpoint": {"step": 40, "time": timestamp(time.time() - 9)}}
    target.earlier, target.folder = [a_run("Running")], tmp_path
    save(tmp_path, 20)
    save(tmp_path, 50)
    save(tmp_path, 51, complete=False)
    news = inputs(objects=with_policy(), digest="d2", run="2", place="j-output", interrupt="allow")

    def notes(**changed: Any) -> tuple[str, ...]:
        result = checked(made, {**news, **changed}, target)
        assert not result.failures, result
        return result.notes

    ends, continues = notes()
    assert (
        "get SIGTERM, and up to 310 s to save a checkpoint; it would lose at most 2 steps (" in ends
        and ends.endswith("since the checkpoint of step 50")
    ), ends
    assert "continues run t4kz1f from its newest checkpoint, which is of step 50 now" in continues
    ends, forks = notes(fork={"run": "t4kz1f", "step": 20})
    assert "it would lose at most 32 steps (" in ends and ends.endswith("since the checkpoint of step 20"), (
        ends,
        forks,
    )
    other = Run("1", "Failed", id="t4kz0a", lineage="t4kz0a", place="j-output", inputs={"code": "a"})
    target.earlier = [other, *target.earlier]
    save(tmp_path, 30, "t4kz0a")
    for anew in (
        {"resume": False},
        {"resume": "t4kz0a"},
        {"fork": {"run": "t4kz0a"}},
        {"place": "other-output"},
        {"name": "k"},
    ):
        ends, _ = notes(**anew)
        assert "it would lose all 52 steps (1m0" in ends and "the new run " in ends, (anew, ends)
        assert "since" not in ends.partition("it would lose")[2], (anew, ends)
    ends, _ = notes(place=Unknown("place"))
    assert ends.endswith("this change ends it"), "which run the new one continues is not known"
    job.phase, job.attempts = "Suspended", [Attempt(1, 100.0, 200.0)]
    ends, _ = notes()
    assert ends.endswith("it has a checkpoint of step 50")
    ends, _ = notes(resume=False)
    assert ends.endswith("it would lose all 52 steps (1m40s): the new run starts anew")
    for left in (tmp_path / "j-output" / "t4kz1f" / "checkpoints").iterdir():
        (left / ".complete").unlink(missing_ok=True)
    ends, _ = notes()
    assert ends.endswith("it has done 52 steps and has no complete checkpoint"), "whatever it has reported"
    job.progress = {"step": 52, "resumedFrom": 30}
    ends, _ = notes(resume=False)
    assert ends.endswith("it would lose all 52 steps: the new run starts anew"), (
        "an earlier run took time for 30 of them"
    )


def test_a_plan_that_may_end_a_job_says_what_that_loses() -> None:
    target = Target("Running")
    made, _ = first(target, objects=with_policy(), place="j-output")
    target.made["j"].checkpoints, target.earlier = True, [a_run("Running")]
    target.made["j"].progress = {"step": 92, "checkpoint": {"step": 80, "time": timestamp(time.time() - 5)}}
    news = inputs(objects=with_policy(), digest="d2", run="2", place="j-output", resume=False, interrupt="allow")
    ends, anew = checked(made, news, target).notes
    assert (
        "default/j is Running since 1970-01-01 00:00:01 UTC, and this change ends it: it would lose all 92 steps: "
        in ends
    )
    assert ends.endswith("the new run starts anew") and "starts anew: resume=False" in anew
    news = without(news, "resume")
    ends, _ = checked(made, news, target).notes
    assert "it would lose at most 12 steps (" in ends and "since the checkpoint of step 80" in ends
    suspended = target.made["j"]
    suspended.phase, suspended.attempts = "Suspended", [Attempt(1, 100.0, 200.0)]
    for interrupt in ("allow", "checkpoint"):
        ends, anew = checked(made, {**news, "interrupt": interrupt}, target).notes
        why = "default/j is Suspended since 1970-01-01 00:03:20 UTC, and this change ends it: it has a checkpoint of step 80"
        assert ends == why
    suspended.progress = {"step": 92}
    ends, _ = checked(made, news, target).notes
    assert ends.endswith("it has done 92 steps and has reported no checkpoint")
    target.elsewhere = True
    unknown = plain_jobs.interrupt(made, news, lambda _: target)
    assert "cannot find out whether default/j is still running" in unknown.notes[0] and not unknown.failures


def a_run(phase: str, name: str = "t4kz1f", lineage: str = "t4kz1f", place: str = "j-output") -> Run:
    return Run("1", phase, id=name, lineage=lineage, place=place, inputs={"code": "a"})


SAVED: dict[str, Any] = {"progress": {"step": 230, "checkpoint": {"step": 225, "time": "2026-11-28T00:00:00Z"}}}


@pytest.mark.parametrize(
    ("phase", "resume", "sentence", "continues"),
    [
        (
            "Failed",
            "unfinished",
            "the new run continues run t4kz1f from its newest checkpoint, of step 225 as far as the job has reported",
            True,
        ),
        ("Running", "unfinished", "the new run continues run t4kz1f", True),
        ("Suspended", "unfinished", "the new run continues run t4kz1f", True),
        (
            "Succeeded",
            "unfinished",
            "the new run starts anew: run t4kz1f has succeeded; resume=True continues it, for more steps or epochs of the same"
            ' training, and resume="ID" another run; fork=Fork("t4kz1f", step, reset=["lr"]) starts anew from its checkpoint',
            False,
        ),
        ("Succeeded", True, "the new run continues run t4kz1f", True),
        ("Succeeded", "t4kz1f", "the new run continues run t4kz1f", True),
        ("Failed", False, "the new run starts anew: resume=False", False),
    ],
)
def test_what_continues_what(phase: str, resume: Any, sentence: str, continues: bool) -> None:
    target = Target(phase)
    made, _ = first(target, objects=with_policy(), place="j-output")
    target.made["j"].progress, target.earlier = SAVED["progress"], [a_run(phase)]
    news = inputs(objects=with_policy(320), digest="d2", interrupt="allow", place="j-output", resume=resume)
    result = checked(made, news, target)
    ends = phase in ("Running", "Suspended")
    assert not result.failures and len(result.notes) == 1 + ends and sentence in result.notes[-1], result
    assert not ends or f"default/j is {phase} since 1970-01-01 00:00:01 UTC, and this change ends it" in result.notes[0]
    identity = checked({}, news, target).inputs["identity"]  # the engine checks a replacement without its old inputs
    assert (identity["parent"], identity["lineage"]) == (("t4kz1f", "t4kz1f") if continues else ("", ""))
    assert (identity["cause"], identity["place"]) == ("changed", "j-output")


def save(volumes: Path, step: int, lineage: str = "t4kz1f", complete: bool = True) -> None:
    folder = volumes / "j-output" / lineage / "checkpoints" / f"step-{step:08}"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text("{}")
    if complete:
        (folder / ".complete").write_text('{"files": {"state.json": 2}}')


def test_the_plan_names_the_checkpoint_that_is_there(tmp_path: Path) -> None:
    target = Target("Failed")
    made, _ = first(target, objects=with_policy(), place="j-output")
    target.earlier, target.folder = [a_run("Failed")], tmp_path
    news = inputs(objects=with_policy(320), digest="d2", place="j-output")
    target.made["j"].progress = SAVED["progress"]
    (note,) = checked(made, news, target).notes
    assert "continues run t4kz1f in its folder, which has no complete checkpoint: training starts at step 0" in note
    save(tmp_path, 75)
    save(tmp_path, 300, complete=False)
    save(tmp_path, 999, lineage="t4kz1a")
    (note,) = checked(made, news, target).notes
    assert "from its newest checkpoint, which is of step 75. resume=False" in note, "although the job has reported 225"
    target.made["j"].phase = "Running"
    assert "of step 75 now." in checked(made, {**news, "interrupt": "allow"}, target).notes[-1]


def test_a_run_that_continues_after_the_last_step_has_nothing_to_do(tmp_path: Path) -> None:
    target = Target("Succeeded")
    made, _ = first(target, objects=with_policy(), place="j-output")
    target.earlier, target.folder = [a_run("Succeeded")], tmp_path
    save(tmp_path, 300)
    target.made["j"].progress = {"step": 300, "progressPercentage": 100}
    (note,) = checked(made, inputs(objects=with_policy(320), digest="d2", place="j-output", resume=True), target).notes
    assert "of step 300 and its last: unless this run has more steps or epochs, nothing is left to do" in note
    for arguments, says in (
        ('{"max_steps": 100}', ", but max_steps is 100: nothing is left to do. resume=False"),
        ('{"config": {"max_steps": 300}}', ", but max_steps is 300: nothing is left to do. resume=False"),
        ('{"max_steps": 400}', " of 400. resume=False"),
    ):
        more = {"runInputs": {"arguments": arguments}, "digest": "d2", "place": "j-output", "resume": True}
        *_, note = checked(made, inputs(objects=with_policy(320), **more), target).notes
        assert f"from its newest checkpoint, which is of step 300{says}" in note


def test_a_run_keeps_the_commit_that_it_was_created_at() -> None:
    target = Target("Running")
    made, _ = first(target, runInputs={"code": "a", "commit": "1a"})
    news = inputs(runInputs={"code": "a", "commit": "2b"})
    unchanged = checked(made, news, target)
    assert unchanged.inputs["runInputs"] == {"code": "a", "commit": "1a"} and not unchanged.notes
    in_place = checked(made, {**news, "digest": "d2", "objects": objects(suspend=True)}, target)
    assert in_place.inputs["generation"] == 1 and in_place.inputs["runInputs"] == {"code": "a", "commit": "1a"}
    another = checked(made, {**news, "digest": "d2", "run": "2", "interrupt": "allow"}, target)
    assert another.inputs["runInputs"]["commit"] == "2b"


def test_a_fork_names_the_checkpoint_that_it_starts_from(tmp_path: Path) -> None:
    target = Target("Succeeded")
    made, _ = first(target, objects=with_policy(), place="j-output")
    target.earlier = [a_run("Succeeded", "t4kz1a", "t4kz1a"), a_run("Succeeded")]
    news = inputs(objects=with_policy(320), digest="d2", place="j-output", fork={"run": "t4kz1a", "step": 20})
    (note,) = checked(made, news, target).notes
    assert "from the checkpoint of step 20 of run t4kz1a, if it is there: the disk does not answer" in note
    target.folder = tmp_path
    (why,) = checked(made, news, target).failures
    assert "fork.run: run t4kz1a has no complete checkpoint" in why
    save(tmp_path, 10, "t4kz1a")
    save(tmp_path, 30, "t4kz1a")
    (why,) = checked(made, news, target).failures
    assert "fork.step: run t4kz1a has no complete checkpoint of step 20" in why and "those of steps 10, 30" in why
    newest = {**news, "fork": {"run": "t4kz1a"}}
    result = checked(made, newest, target)
    assert "starts anew from the newest checkpoint, of step 30, of run t4kz1a" in result.notes[0]
    identity = checked({}, newest, target).inputs["identity"]
    assert identity == {**NO_IDENTITY, "parent": "t4kz1a", "fork": "t4kz1a", "origin": "t4kz1a"}
    target.earlier.append(replace(a_run("Failed", "t4kz1z", "t4kz1z"), fork="t4kz1a", origin="t4kz1a"))
    identity = checked({}, newest, target).inputs["identity"]
    same = {"parent": "t4kz1z", "lineage": "t4kz1z", "fork": "t4kz1a", "origin": "t4kz1a"}
    assert identity == {**NO_IDENTITY, **same}, "the same fork goes on"
    target.earlier[-1] = replace(target.earlier[-1], phase="Succeeded")
    identity = checked({}, newest, target).inputs["identity"]
    again = {"parent": "t4kz1a", "fork": "t4kz1a", "origin": "t4kz1a"}
    assert identity == {**NO_IDENTITY, **again}, "after one that has succeeded, another fork"
    (why,) = checked(made, {**news, "place": "other"}, target).failures
    assert "run t4kz1a kept its checkpoints in j-output, which this run does not use" in why
    (why,) = checked({}, {**newest, "name": "k"}, Target()).failures
    assert "no run 't4kz1a' is recorded" in why


def in_one_lineage(target: Target, volumes: Path) -> None:
    """Run a saved steps 10 and 20; run b, which continues it, step 30."""
    runs = [replace(a_run("Succeeded", f"t4kz1{name}", "t4kz1a"), created=at) for name, at in (("a", 1e9), ("b", 2e9))]
    target.earlier, target.folder = runs, volumes
    for step, at in ((10, 1.1e9), (20, 1.2e9), (30, 2.1e9)):
        save(volumes, step, "t4kz1a")
        os.utime(volumes / "j-output" / "t4kz1a" / "checkpoints" / f"step-{step:08}" / ".complete", (at, at))


def test_a_fork_takes_no_checkpoint_of_the_run_that_came_next(tmp_path: Path) -> None:
    target = Target("Succeeded")
    made, _ = first(target, objects=with_policy(), place="j-output")
    in_one_lineage(target, tmp_path)

    def forked(run: str, **step: int) -> plain_jobs.Checked[Any]:
        news = inputs(objects=with_policy(320), digest="d2", place="j-output", fork={"run": run, **step})
        return checked(made, news, target)

    assert "from the checkpoint of step 20 of run t4kz1a" in forked("t4kz1a", step=20).notes[0]
    (why,) = forked("t4kz1a", step=30).failures
    assert "the checkpoint of step 30 was saved after run t4kz1a, by run t4kz1b" in why and "run t4kz1a: 10, 20" in why
    (why,) = forked("t4kz1a").failures
    assert "run t4kz1b went on in the folder of run t4kz1a" in why and "step=20 is the newest of run t4kz1a" in why
    assert "of step 30, of run t4kz1b" in forked("t4kz1b").notes[0]
    (why,) = forked("t4kz1a", step=15).failures
    assert "it has those of steps 10, 20" in why
    again = inputs(objects=with_policy(320), digest="d2", place="j-output", resume="t4kz1a")
    (note,) = checked(made, again, target).notes
    assert "continues run t4kz1b from its newest checkpoint, which is of step 30" in note, "the last one in that folder"


def test_a_fork_that_has_saved_nothing_starts_from_its_checkpoint_again(tmp_path: Path) -> None:
    target = Target("Failed")
    made, _ = first(target, objects=with_policy(), place="j-output")
    failed = replace(a_run("Failed", "t4kz1z", "t4kz1z"), fork="t4kz1a@20", origin="t4kz1a", parent="t4kz1a")
    target.earlier, target.folder = [a_run("Succeeded", "t4kz1a", "t4kz1a"), failed], tmp_path
    save(tmp_path, 20, "t4kz1a")
    news = inputs(objects=with_policy(320), digest="d2", place="j-output", fork={"run": "t4kz1a", "step": 20})
    (note,) = checked(made, news, target).notes
    assert "continues run t4kz1z in its folder, which has no complete checkpoint: " in note
    assert "training starts from the checkpoint of step 20 of run t4kz1a" in note


def test_the_plan_says_whose_folders_a_new_run_removes() -> None:
    target = Target("Failed")
    made, _ = first(target, objects=with_policy(), place="j-output")
    target.earlier = [a_run("Failed", name, name) for name in ("t4kz1a", "t4kz1b", "t4kz1c")]
    news = inputs(objects=with_policy(320), digest="d2", place="j-output", resume=False, keepRuns=2)
    (note,) = checked(made, news, target).notes
    whose = "2 runs: t4kz1a, t4kz1b (keep_runs=2)"
    assert note.endswith(f"It removes output, checkpoints, logs and inputs of {whose}")
    (note,) = checked(made, {**news, "keepRuns": 3, "resume": True}, target).notes
    assert "continues run t4kz1c" in note and note.endswith("It removes logs and inputs of 1 run: t4kz1a (keep_runs=3)")
    assert "removes" not in checked(made, {**news, "keepRuns": 4}, target).notes[0]
    elsewhere = {**news["target"], "workers": {"b": {}}}
    note = checked(made, {**news, "target": elsewhere}, target).notes[-1]
    assert note.endswith(f"It removes logs and inputs of {whose}"), "in clusters of MultiKueue, folders stay"
    target.earlier[0] = replace(target.earlier[0], phase="Succeeded")
    (note,) = checked(made, news, target).notes
    assert note.endswith(f"of 1 run: t4kz1b; logs and inputs of {whose}"), "the output of the last success stays"


def test_the_plan_says_whose_logs_the_new_run_of_a_job_without_folders_removes() -> None:
    target = Target("Failed")
    made, _ = first(target)
    target.earlier = [a_run("Failed", name, name) for name in ("t4kz1a", "t4kz1b")]
    news = inputs(objects=with_policy(320), digest="d2", resume=False, keepRuns=2)
    (note,) = checked(made, news, target).notes
    assert note.endswith("the new run removes logs and inputs of 1 run: t4kz1a (keep_runs=2)")
    assert checked(made, {**news, "keepRuns": 3}, target).notes == ()


def test_another_keep_runs_changes_the_state_alone() -> None:
    target = Target("Running")
    made, outputs = first(target)
    found = checked(made, inputs(keepRuns=5), target)
    assert not found.failures and found.inputs["generation"] == 1
    assert not plain_jobs.diff(outputs, found.inputs).changes, "the engine writes the inputs of what stays the same"
    assert plain_jobs.submission(found.inputs).keep_runs == 5


def test_a_batch_that_moves_the_step_of_a_checkpoint_is_refused(tmp_path: Path) -> None:
    target = Target("Failed")
    made, _ = first(target, objects=with_policy(), place="j-output")
    target.folder = tmp_path
    target.earlier = [replace(a_run("Failed"), inputs={"batch": "8 per device * 2 ranks"})]
    news = inputs(objects=with_policy(320), digest="d2", place="j-output")
    (why,) = checked(made, {**news, "runInputs": {"batch": "8 per device * 4 ranks"}}, target).failures
    assert "run t4kz1f had batches of 8 per device * 2 ranks, this one has 8 per device * 4 ranks" in why
    assert "Hint: keep ranks, batch size and accumulation, or give max_steps in place of epochs" in why
    for same in ({"batch": "8 per device * 2 ranks"}, {"arguments": "max_steps"}):
        assert not checked(made, {**news, "runInputs": same}, target).failures
    anew = {**news, "runInputs": {"batch": "8 per device * 4 ranks"}, "resume": False}
    assert not checked(made, anew, target).failures


NO_IDENTITY = {"id": "", "lineage": "", "parent": "", "cause": "changed", "place": "j-output"}


def test_a_run_whose_checkpoints_are_elsewhere_is_not_continued() -> None:
    target = Target("Failed")
    made, _ = first(target, objects=with_policy(), place="j-output")
    target.earlier = [a_run("Failed")]
    for place in ("s3://bucket/p/dev/team/j", ""):
        changed = inputs(objects=with_policy(320), digest="d2", place=place)
        (why,) = checked(made, changed, target).failures
        assert "default/j keeps its checkpoints in the volume j-output, which would be deleted" in why
        (note,) = checked(made, {**changed, "interrupt": "allow"}, target).notes
        assert note.endswith("starts anew: run t4kz1f kept its checkpoints in j-output, which this run does not use")
    kept = with_policy(320)
    kept["JobSet/j"]["spec"]["volume"] = {"persistentVolumeClaim": {"claimName": "j-output"}}
    result = checked(made, inputs(objects=kept, digest="d2", place="s3://bucket/p/dev/team/j"), target)
    assert not result.failures and "starts anew" in result.notes[0]
    target.earlier = [a_run("Succeeded")]
    assert not checked(made, inputs(objects=with_policy(320), digest="d2", place=""), target).failures


def test_the_plan_says_that_it_does_not_know_which_run_is_continued() -> None:
    target = Target("Failed")
    made, _ = first(target, objects=with_policy(), place="j-output")
    target.earlier = [a_run("Failed")]
    changed = {"objects": with_policy(320), "digest": "d2"}
    (note,) = checked(made, inputs(**changed, place=Unknown("place")), target).notes
    assert "which run the new run continues is known when the place of its checkpoints is" in note
    (note,) = checked(made, inputs(**changed, place="j-output"), target).notes
    assert "whether it has one is not known: the disk does not answer" in note
    assert "j-output" in checked(made, inputs(**changed, name="k", place="k-output"), target).failures[0]
    target.earlier = [a_run("Succeeded")]
    (note,) = checked(made, inputs(**changed, name="k", place="k-output"), target).notes
    assert note == "default/k starts anew: the runs of default/j belong to a job of another name"


def test_a_run_that_is_not_recorded_cannot_be_continued() -> None:
    target = Target("Failed")
    made, _ = first(target, place="j-output")
    target.earlier = [a_run("Succeeded", "t4kz1a", "t4kz1a"), a_run("Failed")]
    (why,) = checked(made, inputs(digest="d2", run="2", place="j-output", resume="t4kz1e"), target).failures
    assert "no run 't4kz1e' is recorded for this job" in why
    assert "did you mean t4kz1f? the job has the runs t4kz1a, t4kz1f" in why
    (why,) = checked({}, inputs(name="k", place="k-output", resume="t4kz1f"), Target()).failures
    assert "the job has not run yet" in why


@pytest.mark.parametrize(("declared", "seconds"), [({"terminationGracePeriodSeconds": 310}, 310), ({}, 30)])
def test_the_grace_period_of_mode_trainer_is_in_a_patch(declared: dict[str, int], seconds: int) -> None:
    env = [{"name": "TRAINER_CHECKPOINT_DIR", "value": "/workspace/output/checkpoints"}]
    node = {"name": "node", "template": {"spec": {"template": {"spec": declared}}}}
    patch = {"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [node]}}}}
    spec = {"trainer": {"env": env}, "runtimePatches": [patch]}
    own = {"TrainJob/j": {"kind": "TrainJob", "metadata": {"name": "j"}, "spec": spec}}
    target = Target("Running")
    made, _ = first(target, objects=own)
    (note,) = checked(made, inputs(objects=own, run="2", digest="d2", interrupt="checkpoint"), target).notes
    assert f"up to {seconds} s to save" in note


def test_a_run_without_a_checkpoint_policy_saves_none() -> None:
    target = Target("Running")
    made, _ = first(target)
    (refusal,) = checked(made, inputs(run="2", digest="d2", interrupt="checkpoint"), target).failures
    assert refusal.endswith(
        'or set interrupt="allow" on the TrainJob: interrupt="checkpoint" needs a checkpoint policy, which this run does'
        " not have (checkpoint=)"
    )
    target.made["j"].phase = "Succeeded"
    assert not checked(made, inputs(run="2", digest="d2", interrupt="checkpoint"), target).failures


def test_a_job_of_another_host_is_not_replaced() -> None:
    target = Target()
    made, _ = first(target)
    target.elsewhere = True
    assert checked(made, inputs(digest="d2", objects=objects(image="x:2")), target).failures == ("ran on another host",)


def test_suspending_is_an_update_in_place() -> None:
    target = Target("Running")
    made, outs = first(target)
    result = checked(made, inputs(digest="d2", objects=objects(suspend=True)), target)
    assert not result.failures
    diff = plain_jobs.diff(outs, result.inputs)
    assert diff.changes and not diff.replaces
    assert plain_jobs.update(outs, result.inputs, lambda _: target)["digest"] == "d2"


def test_an_unknown_value_is_no_difference_yet() -> None:
    target = Target("Running")
    made, outs = first(target)
    result = checked(made, inputs(digest=Unknown("x"), objects=objects(image=Unknown("x"))), target)
    assert not result.failures
    assert plain_jobs.diff(outs, result.inputs).changes is None


SECRET = {"j-env": {"trainer.A": "one-secret", "trainer.B": "same-secret"}}
ROTATED = {"j-env": {"trainer.A": "another-secret", "trainer.B": "same-secret"}}


@pytest.mark.parametrize(
    ("phase", "when"), [("Running", "at the next run"), ("Succeeded", "at the next run"), ("Queued", "when it starts")]
)
def test_a_rotated_secret_changes_the_secret_alone(phase: str, when: str) -> None:
    target = Target(phase)
    made = checked({}, inputs(secrets=SECRET), target).inputs
    _, outs = plain_jobs.create(made, lambda _: target)
    rotated = checked(made, inputs(secrets=ROTATED, objects=objects(image="newer:2")), target)
    assert (
        rotated.inputs == {**made, "secrets": ROTATED, "secretRevisions": {"j-env/trainer.A": 1}}
        and not rotated.failures
    )
    (note,) = rotated.notes
    assert "new secret value in Secret j-env/trainer.A; " in note and f"the job is {phase}: applies {when}" in note
    diff = plain_jobs.diff(outs, rotated.inputs)
    assert diff.changes and not diff.replaces
    updated = plain_jobs.update(outs, rotated.inputs, lambda _: target)
    what, submission = target.asked[-1]
    assert what == "update_secrets" and submission.secrets == ROTATED
    assert not plain_jobs.diff(updated, rotated.inputs).changes and updated["generation"] == 1
    again = checked(rotated.inputs, inputs(secrets=ROTATED), target)
    assert again.inputs == rotated.inputs and not plain_jobs.diff(updated, again.inputs).changes
    third = checked(rotated.inputs, inputs(secrets=SECRET), target).inputs
    assert third["secretRevisions"] == {"j-env/trainer.A": 2} and plain_jobs.diff(updated, third).changes
    assert plain_jobs.read(updated, lambda _: target) == (updated, [])
    for text in (note, str(outs), str(updated)):
        assert "-secret" not in text


def test_a_rotated_secret_beside_another_change() -> None:
    """What decides is the other change."""
    target = Target("Running")
    made = checked({}, inputs(secrets=SECRET), target).inputs
    _, outs = plain_jobs.create(made, lambda _: target)
    held = checked(made, inputs(digest="d2", objects=objects(suspend=True), secrets=ROTATED), target)
    assert not held.failures and not plain_jobs.diff(outs, held.inputs).replaces
    updated = plain_jobs.update(outs, held.inputs, lambda _: target)
    assert target.asked[-1][0] == "update" and target.asked[-1][1].secrets == ROTATED
    assert not plain_jobs.diff(updated, held.inputs).changes
    other = checked(made, inputs(digest="d2", objects=objects(image="x:2"), secrets=ROTATED), target)
    assert "containers[node].image" in other.failures[0] and "secret" not in other.failures[0]
    target.made["j"].phase = "Failed"
    again = checked(made, inputs(digest="d2", run="2", secrets=ROTATED), target)
    assert plain_jobs.diff(outs, again.inputs).replaces == ("generation",)


def test_a_secret_that_is_not_known_yet_replaces_nothing() -> None:
    target = Target("Running")
    made = checked({}, inputs(secrets=SECRET), target).inputs
    _, outs = plain_jobs.create(made, lambda _: target)
    result = checked(made, inputs(secrets={"j-env": {"trainer.A": Unknown("x"), "trainer.B": "same-secret"}}), target)
    diff = plain_jobs.diff(outs, result.inputs)
    assert not result.failures and diff.changes and not diff.replaces and not result.notes


def test_a_secret_is_rotated_where_the_job_cannot_be_seen() -> None:
    target = Target("Succeeded")
    made = checked({}, inputs(secrets=SECRET), target).inputs
    target.elsewhere = True
    (note,) = checked(made, inputs(secrets=ROTATED), target).notes
    assert "a job reads it when its Pods start" in note


def test_a_job_that_somebody_has_deleted_is_made_again_as_the_same_run() -> None:
    """So that it finds its checkpoints."""
    target = Target("Deleted")
    target.identity_of_jobs = known = Identity(
        id="t4kz1f", lineage="t4kz1a", parent="t4kz1a", cause="changed", place="j-output"
    )
    made, outs = first(target, interrupt="allow")
    target.deleted = "mark"
    news = checked(made, inputs(interrupt="allow"), target).inputs
    assert outs["identity"] == known.to_dict() and news["again"] == "mark"
    plain_jobs.update(outs, news, lambda _: target)
    what, submitted = target.asked[-1]
    assert (what, submitted.identity) == ("create", known)


def test_a_job_that_somebody_has_deleted_is_made_again_with_the_rotated_secret() -> None:
    target = Target("Deleted")
    made = checked({}, inputs(secrets=SECRET, interrupt="allow"), target).inputs
    _, outs = plain_jobs.create(made, lambda _: target)
    target.deleted = "mark"
    news = checked(made, inputs(secrets=ROTATED, interrupt="allow"), target).inputs
    assert news["again"] == "mark" and news["secrets"] == ROTATED
    plain_jobs.update(outs, news, lambda _: target)
    assert target.asked[-1][0] == "create"


@pytest.mark.parametrize("policy", ["refuse", "checkpoint"])
def test_a_job_that_may_have_ended_when_somebody_deleted_it_runs_again_only_if_asked(policy: str) -> None:
    """Its end was not read. interrupt="checkpoint" asks for nothing where no checkpoint is saved."""
    target = Target("Running")
    made, outs = first(target, interrupt=policy)
    target.made["j"].phase, target.deleted = "Deleted", "mark"
    same = checked(made, inputs(interrupt=policy), target)
    assert "again" not in same.inputs and plain_jobs.diff(outs, same.inputs) == plain_jobs.Diff(False)
    in_place = checked(made, inputs(digest="d2", objects=objects(suspend=True), interrupt=policy), target)
    assert in_place.inputs["generation"] == 1 and "again" not in in_place.inputs
    for asked in ({"digest": "d2", "run": "2"}, {"digest": "d2", "objects": objects(image="x:2")}):
        assert checked(made, inputs(interrupt=policy, **asked), target).inputs["generation"] == 2
    again = checked(made, inputs(interrupt="allow"), target)
    (note,) = plain_jobs.diff(outs, again.inputs).notes
    assert "it is not known whether it had ended; it is created again, as interrupt= allows" in note


def test_a_job_whose_record_somebody_has_edited_is_left_alone() -> None:
    target = Target("Succeeded")
    made, outs = first(target)
    target.fault = "ConfigMap default/j: is not a valid record of a job"
    same = checked(made, inputs(), target)
    assert (
        same.notes == (target.fault,)
        and not same.failures
        and plain_jobs.diff(outs, same.inputs) == plain_jobs.Diff(False)
    )
    new_run = checked(made, inputs(digest="d2", run="2"), target)
    assert new_run.failures == (target.fault,), "it would have no runs before it"


def test_a_run_that_was_recorded_and_never_created_is_created() -> None:
    target = Target("Running")
    made, outs = first(target)
    target.made["j"].phase, target.deleted, target.unsent = "Deleted", "mark", True
    again = checked(made, inputs(), target)
    diff = plain_jobs.diff(outs, again.inputs)
    assert diff.changes and "its new run was recorded, but not created; this update creates it" in diff.notes[0]
    plain_jobs.update(outs, again.inputs, lambda _: target)
    assert target.asked[-1][0] == "create"


def test_read_and_delete() -> None:
    target = Target("Succeeded")
    _, outs = first(target)
    assert plain_jobs.read(outs, lambda _: target) == (outs, [])
    assert plain_jobs.delete(outs, lambda _: target) == []
    assert target.asked[-1] == ("delete", "uid-1")
    gone, (note,) = plain_jobs.read(outs, lambda _: target)
    assert gone is None and "default/j is gone" in note


ADOPTED = {"id": {"owner": "another"}, "stack of the same name": {"stack": "s-other"}}
URN = "urn:pulumi:prod::vision::trainer:index:TrainJob$trainer:JobSet::j"


@pytest.fixture(params=ADOPTED.values(), ids=ADOPTED.keys())
def lost(request: pytest.FixtureRequest) -> tuple[Target, dict[str, Any], dict[str, Any]]:
    """A job that another stack has adopted since; with inputs and outputs."""
    target = Target("Running")
    made, outs = first(target)
    for field, value in {**request.param, "program": "vision/prod"}.items():
        setattr(target.made["j"], field, value)
    target.asked.clear()
    return target, made, outs


def whose(target: Target) -> str:
    """What a stack is told of a job that it has lost: no stack adopts its own jobs."""
    if target.made["j"].owner == "another":
        return "belongs to the stack vision/prod now, which has adopted it"
    return "belongs to another stack of this name"


Lost = tuple[Target, dict[str, Any], dict[str, Any]]


def test_an_adopted_job_stays_as_it_is_in_the_plan(lost: Lost) -> None:
    target, made, outs = lost
    result = checked(made, inputs(), target)
    assert result.inputs == made and not result.failures
    assert plain_jobs.diff(outs, result.inputs) == plain_jobs.Diff(False)


@pytest.mark.parametrize("news", [{"digest": "d2", "run": "2"}, {"digest": "d2", "objects": objects(suspend=True)}])
def test_a_change_of_an_adopted_job_is_refused(lost: Lost, news: dict[str, Any]) -> None:
    target, made, _ = lost
    (failure,) = checked(made, inputs(**news, interrupt="allow"), target).failures
    assert f"default/j {whose(target)}" in failure and "adopt=True" in failure


def test_refresh_and_destroy_leave_an_adopted_job(lost: Lost) -> None:
    target, _, outs = lost
    found, (note,) = plain_jobs.read(outs, lambda _: target)
    assert found is None and f"default/j {whose(target)}" in note
    (note,) = plain_jobs.delete(outs, lambda _: target)
    assert whose(target) in note and "left alone" in note
    assert "j" in target.made


def test_the_program_of_a_job_is_that_of_its_component() -> None:
    target = Target()
    plain_jobs.create(checked({}, inputs(component=URN), target).inputs, lambda _: target)
    assert target.asked[-1][1].program == "vision/prod"
    assert [program_of(each) for each in ("", "urn:1", "urn:pulumi:a", "a::b::c")] == [""] * 4


def lose(target: Target, outs: dict[str, Any], phase: str) -> dict[str, Any]:
    """The record goes; the outputs of a stack that saw that phase at last."""
    target.made.clear()
    target.asked.clear()
    return {**outs, "phase": phase}


@pytest.mark.parametrize(
    ("kind", "phase"),
    [
        *(("kubernetes", phase) for phase in ("Pending", "Queued", "Running", "Suspended", "Deleted")),
        ("local", "Pending"),
        ("local", "Suspended"),
    ],
)
def test_a_job_whose_record_is_gone_is_made_again(kind: str, phase: str) -> None:
    """On this machine one that has not started, as far as its stack has seen."""
    target = Target()
    there = {"target": {"kind": kind, "sweep": "s"}}
    made = checked({}, inputs(**there), target).inputs
    _, outs = plain_jobs.create(made, lambda _: target)
    for _ in range(2):
        outs = lose(target, outs, phase)
        result = checked(made, inputs(**there), target)
        diff = plain_jobs.diff(outs, result.inputs)
        assert diff.changes and not diff.replaces
        assert f"the job was {phase}: it counts as unfinished" in diff.notes[0] and "suspend=True" in diff.notes[0]
        outs = plain_jobs.update(outs, result.inputs, lambda _: target)
        assert [what for what, _ in target.asked] == ["create"] and target.made["j"].owner == made["owner"]
        made = result.inputs
        again = checked(made, inputs(**there), target)
        assert again.inputs == made and plain_jobs.diff(outs, again.inputs) == plain_jobs.Diff(False)


def test_a_job_that_a_user_has_suspended_may_have_ended_when_its_folder_is_gone() -> None:
    """The user may have resumed it meanwhile."""
    target = Target("Suspended")
    made, outs = first(target)
    target.made["j"].reason = "SuspendedByUser"
    seen, _ = plain_jobs.read(outs, lambda _: target)
    assert seen is not None
    target.made.clear()
    assert plain_jobs.diff(seen, checked(made, inputs(), target).inputs) == plain_jobs.Diff(False)


@pytest.mark.parametrize("phase", ["Starting", "Queued", "Running", "Restarting", "Deleted", "SuspendedByUser"])
def test_a_job_whose_folder_is_gone_runs_again_only_if_asked(phase: str) -> None:
    """It may have ended since its stack saw that phase."""
    target = Target()
    made, outs = first(target)
    outs = lose(target, outs, phase)
    for _ in range(2):
        result = checked(made, inputs(), target)
        assert plain_jobs.diff(outs, result.inputs) == plain_jobs.Diff(False) and not result.failures
        made = result.inputs
    in_place = checked(made, inputs(digest="d2", objects=objects(suspend=True)), target)
    assert plain_jobs.diff(outs, in_place.inputs) == plain_jobs.Diff(True), (
        "what only changes in place does not run it again"
    )
    assert plain_jobs.update(outs, in_place.inputs, lambda _: target)["digest"] == "d2"
    assert not target.asked
    assert plain_jobs.read(outs, lambda _: target) == ({**outs, "phase": "Deleted"}, []), "a refresh does not forget it"
    for asked in ({"digest": "d2", "run": "2"}, {"digest": "d2", "objects": objects(image="x:2")}):
        assert checked(made, inputs(**asked), target).inputs["generation"] == 2
    again = checked(made, inputs(interrupt="allow"), target)
    (note,) = plain_jobs.diff(outs, again.inputs).notes
    why = "somebody has deleted it, and it is not known whether it had ended; it is created again, as interrupt= allows"
    assert note == f"default/j: {why}"
    outs = plain_jobs.update(outs, again.inputs, lambda _: target)
    assert [what for what, _ in target.asked] == ["create"]
    assert plain_jobs.diff(outs, checked(again.inputs, inputs(interrupt="allow"), target).inputs) == plain_jobs.Diff(
        False
    )


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_job_that_was_seen_to_end_is_not_run_again_without_its_record(phase: str) -> None:
    target = Target()
    made, outs = first(target)
    outs = lose(target, outs, phase)
    for _ in range(2):
        result = checked(made, inputs(), target)
        diff = plain_jobs.diff(outs, result.inputs)
        assert diff.changes is False and "another run= key" in diff.notes[0]
        made = result.inputs
    moved = {**result.inputs, "target": {**made["target"], "kubeconfig": "new"}}
    plain_jobs.update(outs, moved, lambda _: target)
    assert not target.asked


@pytest.mark.parametrize("news", [{"run": "2"}, {"objects": objects(suspend=True)}])
def test_a_changed_job_whose_record_is_gone_is_a_new_run(news: dict[str, Any]) -> None:
    target = Target()
    there = {"target": {"kind": "kubernetes", "sweep": "s"}}
    made = checked({}, inputs(**there), target).inputs
    _, outs = plain_jobs.create(made, lambda _: target)
    lose(target, outs, "Running")
    result = checked(made, inputs(digest="d2", **news, **there), target)
    assert not result.failures and plain_jobs.diff(outs, result.inputs).replaces == ("generation",)


@pytest.mark.parametrize("asked", [{"resume": True}, {"resume": "t4kz1f"}, {"fork": {"run": "t4kz1f", "step": 3}}])
def test_a_plan_does_not_deny_the_runs_of_a_job_whose_record_is_gone(asked: dict[str, Any]) -> None:
    target = Target()
    made, outs = first(target, place="data")
    lose(target, outs, "Running")
    changed = {"digest": "d2", "run": "2", "place": "data"}
    (note,) = [each for each in checked(made, inputs(**changed), target).notes if "starts anew" in each]
    assert note.endswith("the record of the earlier runs is gone, and with it which checkpoints they have")
    (why,) = checked(made, inputs(**changed, **asked), target).failures
    assert f"{next(iter(asked))}: cannot be followed: the record of the earlier runs is gone. Hint: without" in why


def test_what_cannot_be_seen_is_as_the_stack_says() -> None:
    target = Target()
    made, outs = first(target)
    target.made.clear()
    for there in (inputs(target={"kind": "local", "sweep": "s", "host": "another"}), inputs()):
        target.elsewhere = "host" not in there["target"]
        result = checked(made, there, target)
        assert plain_jobs.diff(outs, result.inputs).changes is False


def test_what_somebody_has_deleted_beside_a_job_is_made_again() -> None:
    target = Target()
    code = {"kind": "ConfigMap", "metadata": {"name": "j-code"}}
    given = {"objects": to_state({**objects(), "ConfigMap/j-code": code}), "secrets": {"j-env": {"A": "b"}}}
    made = checked({}, inputs(**given), target).inputs
    _, outs = plain_jobs.create(made, lambda _: target)
    for count in (1, 2):
        target.missing = ("ConfigMap/j-code", "Secret/j-env")
        result = checked(made, inputs(**given), target)
        assert target.beside == ["ConfigMap/j-code", "Secret/j-env"]
        diff = plain_jobs.diff(outs, result.inputs)
        assert diff.changes and not diff.replaces and result.inputs["again"].startswith(f"missing-{count} ")
        assert (
            "its ConfigMap/j-code, Secret/j-env, which is created again; the job itself is unchanged" in diff.notes[0]
        )
        outs, made = plain_jobs.update(outs, result.inputs, lambda _: target), result.inputs
        assert target.asked[-1][0] == "create"
        target.missing = ()
        assert plain_jobs.diff(outs, checked(made, inputs(**given), target).inputs) == plain_jobs.Diff(False)


@pytest.mark.parametrize("taken", [(), ("ConfigMap/j-code",)])
def test_a_running_job_without_one_of_its_objects_is_not_interrupted_by_accident(taken: tuple[str, ...]) -> None:
    target = Target()
    made, outs = first(target)
    target.missing, target.taken = ("ConfigMap/j-code",), taken
    news = inputs(digest="d2", run="2")
    assert "is Running since" in checked(made, news, target).failures[0]
    assert not checked(made, {**news, "interrupt": "allow"}, target).failures
    labelled = copy.deepcopy(objects())
    labelled["JobSet/j"]["metadata"]["labels"] = {"team": "b"}
    result = checked(made, inputs(digest="d2", objects=to_state(labelled)), target)
    assert not result.failures and not plain_jobs.diff(outs, result.inputs).replaces


def test_code_that_waits_for_the_next_run_does_not_reach_a_job_without_one_of_its_objects() -> None:
    target = Target()
    made, outs = first(target, withoutCode="w", rerunOn=["data"])
    target.missing = ("ConfigMap/j-code",)
    result = checked(made, inputs(withoutCode="w", rerunOn=["data"], digest="d9"), target)
    assert result.inputs["digest"] == made["digest"] and "(rerun_on)" in result.notes[0]
    diff = plain_jobs.diff(outs, result.inputs)
    assert diff.changes and not diff.replaces


def test_a_job_that_nothing_has_started_is_started_by_an_update() -> None:
    target = Target()
    made, outs = first(target)
    for count in (1, 2):
        target.not_started = True
        result = checked(made, inputs(), target)
        diff = plain_jobs.diff(outs, result.inputs)
        assert diff.changes and not diff.replaces and "this update starts it" in diff.notes[0]
        assert result.inputs == {**made, "again": f"not-started-{count}"}
        outs, made = plain_jobs.update(outs, result.inputs, lambda _: target), result.inputs
        assert target.asked[-1][0] == "update"
        target.not_started = False
        assert plain_jobs.diff(outs, checked(made, inputs(), target).inputs) == plain_jobs.Diff(False)


@pytest.mark.parametrize(("started", "refused"), [(0.0, False), (5.0, True)])
def test_a_job_that_has_not_begun_is_not_interrupted(started: float, refused: bool) -> None:
    """A resumed one has."""
    target = Target()
    made, _ = first(target)
    target.not_started = True
    target.made["j"].reason, target.made["j"].started = "NotStarted", started
    result = checked(made, inputs(digest="d2", run="2"), target)
    assert bool(result.failures) is refused and result.inputs["generation"] == 2
    assert not refused or "`pulumi up` without this change, which starts it" in result.failures[0]


def test_a_suspended_job_that_has_begun_has_to_be_resumed() -> None:
    target = Target("Suspended")
    made, _ = first(target)
    (refused,) = checked(made, inputs(digest="d2", run="2"), target).failures
    assert "Resume it without this change (suspend=False). Wait until it has finished, or set" in refused


def test_a_plan_tells_who_has_suspended_or_stopped_a_job() -> None:
    target = Target("Suspended")
    made, outs = first(target)
    target.note, target.made["j"].reason = "suspended by ann", "SuspendedByUser"
    same = checked(made, inputs(), target)
    assert "was suspended by ann" in same.notes[0] and plain_jobs.diff(outs, same.inputs) == plain_jobs.Diff(False)
    (refused,) = checked(made, inputs(digest="d2", run="2"), target).failures
    assert "Run `pulumi-trainer resume` and `pulumi up` without this change. Wait until it has finished" in refused
    target.note, target.made["j"].phase = "stopped by ann", "Failed"
    assert "was stopped by ann" in checked(made, inputs(), target).notes[0]
    again = checked(made, inputs(digest="d2", run="2"), target)
    assert again.inputs["generation"] == 2 and not again.failures and not again.notes


@pytest.mark.parametrize(
    ("kind", "lost"), [("local", "its folder was removed"), ("kubernetes", "its namespace was deleted")]
)
@pytest.mark.parametrize("phase", ["Pending", "Failed"])
def test_how_a_record_is_lost_depends_on_the_target(kind: str, lost: str, phase: str) -> None:
    target = Target()
    made = checked({}, inputs(target={"kind": kind}), target).inputs
    _, outs = plain_jobs.create(made, lambda _: target)
    outs = lose(target, outs, phase)
    (note,) = plain_jobs.diff(outs, checked(made, inputs(target={"kind": kind}), target).inputs).notes
    assert f"its record is gone, for example because {lost}" in note and phase in note


def test_what_others_have_put_in_its_place_is_told() -> None:
    target = Target()
    made, outs = first(target)
    target.missing = target.taken = ("Secret/j-env",)
    result = checked(made, inputs(), target)
    (note,) = plain_jobs.diff(outs, result.inputs).notes
    assert "its Secret/j-env, and another object has that name" in note and "created again" not in note


def test_a_job_whose_name_another_has_now_is_refused() -> None:
    target = Target()
    made, _ = first(target)
    target.another = True
    result = checked(made, inputs(), target)
    (failure,) = result.failures
    assert "default/j: somebody has deleted it, and another job has the same name now" in failure
    assert "delete the other job" in failure and "again" not in result.inputs


def test_a_mark_that_somebody_has_edited_is_a_mark() -> None:
    target = Target()
    made, outs = first(target)
    outs = lose(target, {**outs, "again": "no-record-x"}, "Pending")
    result = checked({**made, "again": "no-record-x"}, inputs(), target)
    assert plain_jobs.diff(outs, result.inputs).changes


EDITS = [
    ("spec.suspend", "update", False),
    ("spec.ttlSecondsAfterFinished", "update", False),
    ("metadata.labels.team", "update", False),
    ("spec.replicatedJobs.0.template.spec.template.spec.nodeSelector.a", "replace", False),
    ("spec.replicatedJobs.0.template.spec.template.spec.nodeSelector.a", "update", True),
    ("spec.replicatedJobs.0.template.spec.template.metadata.labels.x", "update", True),
    ("spec.replicatedJobs.0.template.spec.template.spec.tolerations", "update", True),
    ("spec.replicatedJobs.0.template.spec.template.spec.containers.0.image", "replace", True),
    ("spec.replicatedJobs.0.replicas", "replace", True),
    ("spec.successPolicy.operator", "replace", False),
    ("spec.failurePolicy", "update", False),
    ("spec.network.subdomain", "replace", False),
]


@pytest.mark.parametrize(("path", "effect", "suspended"), EDITS)
def test_what_may_change_in_place(path: str, effect: str, suspended: bool) -> None:
    old = objects(suspend=suspended)
    new = copy.deepcopy(old)
    *parents, last = path.split(".")
    value: Any = new["JobSet/j"]
    for part in parents:
        value = value[int(part)] if isinstance(value, list) else value.setdefault(part, {})
    value[last] = True if last == "suspend" else "changed"
    (change,) = compare(old, new)
    assert change.effect == effect, change


def code_of(source: str, file: str = "main.py", requirements: str = "", **stored: Any) -> dict[str, Any]:
    launch = {"install": [], "launcher": ["python3"], "source": source, "entry": [file], **stored}
    annotations = {SOURCE_DIGEST: source}
    if stored:
        annotations[SOURCE_ADDRESS] = stored["address"]
    metadata = {"name": "j-code", "annotations": annotations}
    data = {LAUNCH_FILE: json.dumps(launch), "requirements.txt": requirements}
    return {"ConfigMap/j-code": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}}


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        (code_of("1"), code_of("2"), []),
        (code_of("1", address="s3://b/1", limit=1), code_of("2", address="s3://b/2", limit=2), []),
        (code_of("1"), code_of("2", "other.py"), ["data.launch.json"]),
        (code_of("1"), code_of("2", requirements="torch"), ["data.requirements.txt"]),
    ],
)
def test_a_changed_project_is_one_reason(old: dict[str, Any], new: dict[str, Any], fields: list[str]) -> None:
    why = "read once, when pods start"
    expected = [f"the project has changed ({why})", *(f"ConfigMap/j-code: {each} ({why})" for each in fields)]
    assert [*map(str, compare(old, new))] == expected
    assert {each.effect for each in compare(old, new)} == {"replace"} and not compare(old, old)


def test_the_place_of_the_same_project_is_a_reason() -> None:
    fields = [str(each).partition(" (")[0] for each in compare(code_of("1"), code_of("1", address="s3://b/1", limit=1))]
    assert fields == [
        "ConfigMap/j-code: data.launch.json", f"ConfigMap/j-code: metadata.annotations.{SOURCE_ADDRESS}",
    ]  # fmt: skip


def patched(labels: dict[str, str] | None = None, **pod: Any) -> dict[str, Any]:
    node = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    patch = {"manager": "example.io/me", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [node]}}}}
    spec = {"suspend": True, "runtimePatches": [patch] if pod else []}
    return {"TrainJob/j": {"kind": "TrainJob", "metadata": {"name": "j", "labels": labels or {}}, "spec": spec}}


@pytest.mark.parametrize(
    ("before", "after", "effect"),
    [
        ({"nodeSelector": {"a": "1"}}, {"nodeSelector": {"a": "2"}}, "update"),
        ({}, {"nodeSelector": {"a": "2"}}, "update"),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, "update"),
        ({"nodeSelector": {"a": "1"}}, {"nodeSelector": {"a": "1"}, "serviceAccountName": "b"}, "replace"),
        ({"affinity": {"nodeAffinity": 1}}, {"affinity": {"nodeAffinity": 2}}, "replace"),
        ({}, {"affinity": {"nodeAffinity": 2}}, "replace"),
        ({"volumes": [{"name": "v"}], "nodeSelector": {}}, {"nodeSelector": {}}, ""),
        ({"volumes": [{"name": "v", "emptyDir": {"medium": ""}}]}, {"nodeSelector": {"a": "1"}}, "replace"),
    ],
)
def test_a_patch_changes_in_place_where_its_jobset_does(
    before: dict[str, Any], after: dict[str, Any], effect: str
) -> None:
    """The server admits more than that, and the controller then fails forever."""
    effects = {change.effect for change in compare(patched(**before), patched(**after))}
    assert ("replace" in effects) is (effect == "replace") and (effect in effects or not effect), effects
    queue = {"kueue.x-k8s.io/queue-name": "red"}
    waiting = {"TrainJob/j": copy.deepcopy(patched(queue, **before)["TrainJob/j"])}
    now = {"TrainJob/j": copy.deepcopy(patched(queue, **after)["TrainJob/j"])}
    for each in (waiting, now):
        del each["TrainJob/j"]["spec"]["suspend"]
    effects = {change.effect for change in compare(waiting, now)}
    assert ("waiting" in effects) if effect == "update" else effects <= {"replace", "waiting"}


def test_what_is_not_known_in_a_patch_is_no_difference_yet() -> None:
    old = patched(nodeSelector={"a": "1"}, affinity={"nodeAffinity": 1})
    assert not compare(old, patched(nodeSelector=Unknown("x"), affinity={"nodeAffinity": Unknown("y")}))
    later = copy.deepcopy(old)
    later["TrainJob/j"]["spec"]["runtimePatches"] = Unknown("x")
    assert not compare(old, later)
    known = patched(nodeSelector={"team": "a", "team-zone": "1"})
    (change,) = compare(known, patched(nodeSelector={"team": Unknown("x"), "team-zone": "2"}))
    assert change.path.endswith("nodeSelector.team-zone"), "its name begins like the unknown one"


def test_a_failure_policy_comes_and_goes_and_stays_what_it_is() -> None:
    none, one, two = objects(), objects(failurePolicy={"maxRestarts": 1}), objects(failurePolicy={"maxRestarts": 2})
    for old, new, effect in ((none, one, "update"), (one, none, "update"), (one, two, "replace")):
        assert [c.effect for c in compare(old, new)] == [effect]


QUEUED = {"kueue.x-k8s.io/queue-name": "red", "kueue.x-k8s.io/priority-class": "low"}
LEVEL = "kueue.x-k8s.io/podset-required-topology"


def of_queue(
    labels: dict[str, str] | None = None, *, level: str = "", selector: str = "1", **spec: Any
) -> dict[str, Any]:
    found = objects(**spec)
    found["JobSet/j"]["metadata"]["labels"] = QUEUED if labels is None else labels
    template = found["JobSet/j"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["spec"]["nodeSelector"] = {"a": selector}
    template["metadata"] = {"annotations": {LEVEL: level}} if level else {}
    return found


@pytest.mark.parametrize(
    ("change", "effect", "why"),
    [
        ({"kueue.x-k8s.io/queue-name": "blue"}, "waiting", "while the job waits"),
        ({"kueue.x-k8s.io/queue-name": ""}, "replace", "without its queue nothing would resume the job"),
        ({"kueue.x-k8s.io/priority-class": "high"}, "update", "at any time"),
        ({"kueue.x-k8s.io/priority-class": ""}, "replace", "cannot be taken"),
        ({"kueue.x-k8s.io/max-exec-time-seconds": "60"}, "waiting", "while the job waits"),
        ({"team": "red"}, "update", "at any time"),
    ],
)
def test_what_may_change_in_a_queue(change: dict[str, str], effect: str, why: str) -> None:
    """Held against the real server in tests/cluster/test_teams.py."""
    labels = {k: v for k, v in {**QUEUED, **change}.items() if v}
    (found,) = compare(of_queue(), of_queue(labels))
    assert found.effect == effect and why in found.why


def test_a_job_does_not_join_a_queue_later() -> None:
    (found,) = compare(of_queue({"team": "red"}), of_queue({"team": "red", "kueue.x-k8s.io/queue-name": "red"}))
    assert found.effect == "replace" and "from the start" in found.why


def test_kueue_reads_a_topology_once() -> None:
    (found,) = compare(of_queue(level="rack"), of_queue(level="block"))
    assert found.effect == "replace" and LEVEL in found.path and "reads it only once" in found.why
    (found,) = compare(of_queue(), of_queue(level="block"))
    assert found.effect == "replace"
    (found,) = compare(of_queue(level="rack"), of_queue(level="rack", selector="2"))
    assert found.effect == "waiting" and "nodeSelector" in found.path
    unknown = of_queue(level="rack")
    unknown["JobSet/j"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] = Unknown("u")
    assert compare(of_queue(level="rack"), unknown) == []


@pytest.mark.parametrize(
    ("phase", "replaced"), [("Queued", False), ("Running", True), ("Admitted", True), ("Succeeded", True)]
)
def test_what_only_a_waiting_job_may_change_depends_on_whether_it_waits(phase: str, replaced: bool) -> None:
    target = Target(phase)
    made = checked({}, inputs(objects=of_queue()), target).inputs
    plain_jobs.create(made, lambda _: target)
    blue = {**QUEUED, "kueue.x-k8s.io/queue-name": "blue"}
    news = inputs(objects=of_queue(blue), digest="d2", interrupt="allow")
    found = checked(made, news, target)
    assert (found.inputs["generation"] == 2) is replaced
    assert ("waits in queue red and moves to queue blue without a new run" in str(found.notes)) is not replaced
    refused = checked(made, {**news, "interrupt": "refuse"}, target).failures
    assert bool(refused) == (replaced and phase != "Succeeded")
    if refused:
        assert "queue-name] (may change only while the job waits)" in refused[0]
    target.elsewhere = True
    assert checked(made, {**news, "interrupt": "refuse"}, target).failures == ("ran on another host",)


def test_names_fit_and_tell_stacks_apart() -> None:
    name = job_name("My_Job.2", "project", "dev")
    assert name.startswith("my-job-2-") and name != job_name("My_Job.2", "project", "prod")
    assert job_name("7b", "p", "s")[0].isalpha()
    assert digest({"b": 1, "a": [2]}) == digest({"a": [2], "b": 1})


def reached(**way: str) -> dict[str, Any]:
    return {"kind": "kubernetes", "cluster": "u-1", "sweep": "s", **way}


def test_another_way_to_the_cluster_is_written_down_and_nothing_is_sent() -> None:
    target = Target()
    made = checked({}, inputs(target=reached(content="old", context="c")), target).inputs
    outs = plain_jobs.create(made, lambda _: target)[1]
    assert outs["target"] == {"kind": "kubernetes", "cluster": "u-1", "content": "old", "context": "c", "sweep": "s"}
    news = checked(made, inputs(target=reached(kubeconfig="new")), target).inputs
    assert news["target"] == reached(kubeconfig="new")  # the engine would store what was secret in clear
    assert plain_jobs.diff(outs, news) == plain_jobs.Diff(True)
    after = plain_jobs.update(outs, news, lambda _: target)
    assert after == {**outs, "target": {"kind": "kubernetes", "cluster": "u-1", "kubeconfig": "new", "sweep": "s"}}
    assert [call for call, _ in target.asked] == ["create"]
    assert plain_jobs.diff(after, news) == plain_jobs.Diff(False)


def test_a_way_to_another_cluster_is_not_written_down() -> None:
    target = Target()
    made = checked({}, inputs(target=reached()), target).inputs
    outs = plain_jobs.create(made, lambda _: target)[1]
    news = checked(made, inputs(target=reached(kubeconfig="new")), target).inputs
    target.elsewhere = True
    with pytest.raises(Refused, match="another cluster"):
        plain_jobs.update(outs, news, lambda _: target)


def data(version: str, kind: str = "dataset") -> dict[str, Any]:
    return {"data": {kind: {"name": "digits", "version": version}}}


def mounting(claim: str) -> dict[str, Any]:
    """Objects as stacks kept them whose jobs remembered no data."""
    found = objects()
    pod = found["JobSet/j"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "trainer-dataset", "persistentVolumeClaim": {"claimName": claim}}]
    return to_state(found)


@pytest.mark.parametrize(
    ("before", "now", "note"),
    [
        (inputs(**data("5d72a1bc")), inputs(**data("91fc0def")), 'digits 5d72a -> 91fc0; run="2" trains on it'),
        (inputs(**data("5d72a1bc")), inputs(**data("")), 'digits 5d72a -> unreadable; run="2" trains on it'),
        (inputs(**data("5d72a1bc")), inputs(**data("5d72a1bc")), ""),
        (inputs(**data("5d72a1bc")), inputs(**data("unknown")), ""),
        (inputs(**data("5d72a1bc")), inputs(data=Unknown("x")), ""),
        (inputs(**data("5d72a1bc")), inputs(), ""),
        (inputs(), inputs(**data("91fc0def")), ""),
        (inputs(run="b", **data("5d72a1bc")), inputs(run="b", **data("91fc0def")), "; another run= trains on it"),
    ],
)
def test_data_that_has_changed_since_is_a_note(before: dict[str, Any], now: dict[str, Any], note: str) -> None:
    target = Target("Succeeded")
    made = checked({}, before, target).inputs
    outs = plain_jobs.create(made, lambda _: target)[1]
    result = checked(made, now, target)
    assert result.inputs == made and not plain_jobs.diff(outs, result.inputs).changes, "what it was started with stays"
    assert all(n.startswith("default/j: dataset digits ") and note in n for n in result.notes)
    assert bool(result.notes) is bool(note)


def started(target: Target, **given: Any) -> dict[str, Any]:
    """Inputs of a job that was created."""
    made = checked({}, inputs(**given), target).inputs
    plain_jobs.create(made, lambda _: target)
    return made


def test_another_run_remembers_the_data_of_now_and_a_change_in_place_what_it_runs_on() -> None:
    target = Target("Succeeded")
    made = started(target, **data("5d72a1bc"))
    again = checked(made, inputs(run="2", digest="d2", **data("91fc0def")), target)
    assert again.inputs["data"] == data("91fc0def")["data"] and again.notes == ()
    in_place = checked(made, inputs(digest="d2", objects=objects(suspend=True), **data("91fc0def")), target)
    assert in_place.inputs["generation"] == 1 and in_place.inputs["data"] == data("5d72a1bc")["data"]


def test_a_job_that_somebody_has_deleted_is_made_again_with_the_volume_that_there_is() -> None:
    target = Target("Running")
    made = started(target, objects=mounting("digits-b3ff0-5d72a1bc"), interrupt="allow", **data("5d72a1bc"))
    news = inputs(objects=mounting("digits-b3ff0-91fc0def"), interrupt="allow", **data("91fc0def"))
    target.deleted = "mark"
    result = checked(made, news, target)
    kept = {name: made[name] for name in ("owner", "identity")}
    assert result.inputs == {**news, **kept, "generation": 1, "again": "mark"} and not result.notes
    assert checked(made, {**news, **data("5d72a1bc")}, target).inputs["objects"] == made["objects"]
    target.made.clear()
    unknown = checked(made, news, target)
    assert unknown.inputs["objects"] == news["objects"] and unknown.inputs["data"] == made["data"]
    assert "trains on it" in unknown.notes[0], "it may have ended, and then it stays so"


def fetch(image: str = "fetch:1", **more: Any) -> dict[str, Any]:
    where = {**inputs()["target"], "kind": "kubernetes"}
    return inputs(**{"fills": "g1", "target": where, "objects": objects(image=image), **more})


@pytest.mark.parametrize(
    ("phase", "change", "again"),
    [
        ("Failed", {"secrets": ROTATED}, True), ("Failed", {"image": "fetch:2"}, True), ("Failed", {}, False),
        ("Starting", {"image": "fetch:2"}, True), ("Starting", {"secrets": ROTATED}, False),
        ("Running", {"image": "fetch:2"}, False), ("Succeeded", {"image": "fetch:2"}, False),
        ("Succeeded", {"secrets": ROTATED}, False),
    ],
)  # fmt: skip
def test_a_fetch_that_has_failed_is_tried_again_when_its_secret_or_image_changes(
    phase: str, change: dict[str, Any], again: bool
) -> None:
    target = Target(phase)
    made = checked({}, fetch(secrets=SECRET), target).inputs
    plain_jobs.create(made, lambda _: target)
    result = checked(made, fetch(**{"secrets": SECRET, **change}), target)
    assert result.inputs["generation"] == (2 if again else 1) and not result.failures
    assert bool(result.notes) is bool(change)
    if "image" in change and not again:
        assert "with the image fetch:1; image=fetch:2 is for the next fetch" in result.notes[0]
        assert result.inputs["objects"] == made["objects"]


def test_the_image_of_a_job_that_carries_its_files_is_not_reported() -> None:
    target = Target("Succeeded")
    packed = {"ConfigMap/j-files": {"data": {}}}
    made = checked({}, fetch(objects={**objects(image="a:1"), **packed}), target).inputs
    plain_jobs.create(made, lambda _: target)
    assert not checked(made, fetch(objects={**objects(image="a:2"), **packed}), target).notes


def test_a_fetch_runs_again_into_a_volume_that_was_made_anew() -> None:
    target = Target("Succeeded")
    made = started(target, fills="g1")
    assert checked(made, inputs(fills="g1"), target).inputs == made
    for fills in ("g2", Unknown("x")):
        assert checked(made, inputs(fills=fills), target).inputs["generation"] == 2
    older = started(target)
    assert checked(older, inputs(fills="g1"), target).inputs == older, "a stack that did not know of it"


THERE, HERE = "urn:pulumi:old::lab::t::j", "urn:pulumi:new::lab::t::j"


def at(label: Any) -> dict[str, Any]:
    return {"kind": "local", "sweep": label}


def running(component: str = HERE) -> tuple[Target, dict[str, Any], dict[str, Any]]:
    target = Target("Running")
    made = checked({}, inputs(component=component), target).inputs
    _, outs = plain_jobs.create(made, lambda _: target)
    target.asked.clear()
    return target, made, outs


@pytest.mark.parametrize("change", [{}, {"digest": "d2", "objects": objects(suspend=True)}])
def test_a_job_keeps_the_label_that_it_has_in_its_target(change: dict[str, Any]) -> None:
    target, made, outs = running()
    result = checked(made, inputs(component=HERE, target=at("s-2"), **change), target)
    assert result.inputs["target"] == at("s") and not result.failures
    assert plain_jobs.diff(outs, result.inputs).changes is bool(change)
    assert plain_jobs.update(outs, result.inputs, lambda _: target)["target"] == at("s")
    assert not change or target.asked[-1][1].sweep == "s"


def test_a_new_run_has_the_label_of_its_target() -> None:
    target, made, _ = running()
    news = inputs(component=HERE, target=at("s-2"), digest="d2", run="2", interrupt="allow")
    result = checked(made, news, target)
    assert result.inputs["target"] == at("s-2") and result.inputs["generation"] == 2
    assert checked({}, news, target).failures, "nothing says that the other label is ours"
    assert not plain_jobs.check({}, news, lambda _: target, {"s"}).failures


@pytest.mark.parametrize("label", ["s-2", Unknown("sweep")])
def test_a_job_from_another_stack_gets_a_label_of_this_one(label: Any) -> None:
    target, made, outs = running(THERE)
    result = checked(made, inputs(component=HERE, target=at(label)), target)
    assert plain_jobs.diff(outs, result.inputs).changes is True and not result.failures
    assert result.inputs == {**made, "component": HERE, "target": at(label)}
    if label == "s-2":
        after = plain_jobs.update(outs, result.inputs, lambda _: target)
        assert after == {**outs, "target": at("s-2")}
        assert target.asked == [("relabel", ("s-2", Owner(made["owner"], "s")))]
        again = checked(result.inputs, inputs(component=HERE, target=at("s-2")), target).inputs
        assert again == result.inputs and plain_jobs.diff(after, again).changes is False


def test_a_renamed_stack_keeps_its_label() -> None:
    target, made, outs = running(THERE)
    result = checked(made, inputs(component=HERE), target)
    assert result.inputs == made and plain_jobs.diff(outs, result.inputs).changes is False


def test_a_job_that_goes_on_in_another_stack_out_of_reach_keeps_its_label() -> None:
    target, made, _ = running(THERE)
    target.elsewhere = True
    assert checked(made, inputs(component=HERE, target=at("s-2")), target).inputs == made


def test_a_label_that_an_interrupted_update_has_left_is_put_right() -> None:
    """The record has the label of the job's target, and the state that of another target of the stack."""
    target, made, outs = running()
    wrong = [{**each, "target": at("s-1")} for each in (made, outs)]
    result = checked(wrong[0], inputs(component=HERE, digest="d2", objects=objects(suspend=True)), target)
    assert result.inputs["target"] == at("s") and not result.failures
    assert plain_jobs.update(wrong[1], result.inputs, lambda _: target)["target"] == at("s")


def test_a_suspended_job_that_is_replaced_is_named() -> None:
    target = Target("Suspended")
    made, _ = first(target)
    target.note = "suspended by ada"
    refused = checked(made, inputs(digest="d2", objects=objects(image="x:2")), target)
    assert refused.failures and not any("starts nevertheless" in note for note in refused.notes)
    changed = checked(made, inputs(digest="d2", objects=objects(image="x:2"), interrupt="allow"), target)
    assert changed.inputs["generation"] == 2
    assert "default/j was suspended by ada; the new run starts nevertheless" in changed.notes
    assert changed.notes[0].startswith("default/j is Suspended") and changed.notes[0].endswith("this change ends it")
