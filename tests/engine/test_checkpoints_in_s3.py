"""Checkpoints in S3 on this machine: nodes share no folder, and what a node has saved ends with its Pod."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.targets.local import LocalTarget

from tests.moto_server import moto_server

from .conftest import Project, eventually
from .test_checkpoints import bootstrap_of, run_cli, total

JOB = """
def train(steps, pause):
    import os, time
    from pulumi_trainer import training

    node, points = os.environ["JOB_COMPLETION_INDEX"], training.checkpoints()
    found = points.load() or {"step": 0, "total": 0}
    start, total = found["step"], found["total"]
    print(f"node {node} starts at step {start}", flush=True)
    for step in range(start + 1, steps + 1):
        total = (total * 31 + step) % 1_000_003
        time.sleep(pause)
        stop = training.should_stop()
        if node == "0" and (stop or points.due(step)):
            assert points.save({"total": total}, step=step)
        training.progress(step=step, total=steps)
        if stop:
            print(f"node {node} stops at step {step}", flush=True)
            return
    print(f"node {node} total {total}", flush=True)

def job(**more):
    return trainer.TrainJob(
        "long",
        runtime=plain,
        trainer=trainer.CustomTrainer(
            func=train, func_args={"steps": 120, "pause": 0.1}, num_nodes=2,
            env={
                "AWS_ENDPOINT_URL": "SERVER",
                "AWS_ACCESS_KEY_ID": pulumi.Output.secret("AKIACANARY"),
                "AWS_SECRET_ACCESS_KEY": pulumi.Output.secret("canary-secret"),
            },
        ),
        checkpoint=trainer.CheckpointPolicy(steps=10, grace=20, to=pulumi.Output.concat("s3://", "ckpt", "/prefix")),
        **more,
    )

"""

MEET = """
    open({folder!r} + "/" + node, "w").close()
    while len(os.listdir({folder!r})) < 2:  # as collective operations do: no node saves before all have started
        time.sleep(0.01)
"""


@contextmanager
def open_bucket() -> Iterator[Any]:
    """Yield the bucket `ckpt` of moto's server, which then ends."""
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    with moto_server() as url:
        client = boto3.client("s3", endpoint_url=url, **keys)
        client.create_bucket(Bucket="ckpt")
        yield client


@pytest.fixture
def bucket() -> Iterator[Any]:
    with open_bucket() as client:
        yield client


def program(project: Project, bucket: Any, call: str) -> None:
    project.program(JOB.replace("SERVER", bucket.meta.endpoint_url) + call)


def manifests(bucket: Any) -> list[str]:
    listed = bucket.list_objects_v2(Bucket="ckpt", Prefix="prefix/lab/test/default/")
    keys = [each["Key"] for each in listed.get("Contents", [])]
    return [key for key in keys if "/manifests/" in key]


def starts(log: str) -> list[tuple[str, str]]:
    return re.findall(r"node (\d) starts at step (\d+)$", log, re.M)


@pytest.mark.core
def test_a_job_goes_on_from_s3(project: Project, bucket: Any) -> None:
    program(project, bucket, 'job(wait_for="running")\n')
    preview = project.preview("--diff").out
    for line in ("s3://ckpt/prefix", "lab/test/default/long-", "emptyDir", "TRAINER_NUM_NODES"):
        assert line in preview
    assert "PersistentVolumeClaim" not in preview and "canary-secret" not in preview
    project.up()
    eventually(lambda: manifests(bucket), 60, "a first checkpoint")
    os.kill(bootstrap_of(project, 0).pid, signal.SIGTERM)
    eventually(lambda: len(starts(project.logs("long"))) == 4, 60, "the next attempt")
    log = project.logs("long")
    stopped = log.partition("node 0 stops at step ")[2].split()[0]
    assert sorted(starts(log)) == sorted((node, step) for node in "01" for step in ("0", stopped)), (
        "no step is done twice"
    )

    before = {key.split("/")[-2] for key in manifests(bucket)}
    eventually(lambda: {key.split("/")[-2] for key in manifests(bucket)} - before, 60, "another checkpoint")
    first = bootstrap_of(project, 1)
    for process in [*psutil.Process(first.pid).children(recursive=True), first]:
        process.kill()
    status = eventually(lambda: s if (s := project.job("long")) and s.terminal else None)
    log = project.logs("long")
    assert (status.phase, status.restarts) == ("Succeeded", 2), (status, log)
    assert log.count(f" total {total(120)}") == 2
    third = {int(step) for _, step in starts(log)} - {0, int(stopped)}
    assert len(starts(log)) == 6 and len(third) == 1 and third.pop() > int(stopped), log
    assert status.progress["checkpoint"]["step"] >= 100, "what was in S3 when the last line was printed"
    steps = sorted(int(key.split("/")[-2].removeprefix("step-")) for key in manifests(bucket))
    assert len(steps) == 3 and steps[-1] == 120, "keep=3 is the default"
    assert not [*project.root.glob("volumes/*/*")]
    assert "canary-secret" not in project.stack_text()


def runs_of(project: Project) -> list[Run]:
    job = project.job("long")
    return LocalTarget(project.root).jobs.runs(job.namespace, job.name)


def test_what_a_run_continues_and_where_its_checkpoints_are(project: Project, bucket: Any) -> None:
    meeting = project.folder / "meeting"
    once = JOB.replace('"steps": 120, "pause": 0.1', '"steps": 10, "pause": 0')
    once = once.replace("    for step in", MEET.format(folder=str(meeting)) + "    for step in")
    said_so = {
        'run="1"': "",
        'run="2"': "the new run starts anew: run {0} has succeeded; resume=True continues it",
        'run="3", resume=True': "the new run continues run {1} from its newest checkpoint",
        'run="4", resume=False': "the new run starts anew: resume=False",
    }
    for call, sentence in said_so.items():
        shutil.rmtree(meeting, ignore_errors=True)
        meeting.mkdir()
        project.program(once.replace("SERVER", bucket.meta.endpoint_url) + f'job(wait_for="complete", {call})\n')
        said, known = project.up().out, [each.id for each in runs_of(project)]
        assert sentence.format(*known) in said, said
        assert {step for _, step in starts(project.logs("long"))} == {"10" if "True" in call else "0"}, call
    first, second, third, fourth = runs_of(project)
    assert [each.parent for each in (first, second, third, fourth)] == ["", "", second.id, ""]
    assert (third.lineage, fourth.lineage) == (second.id, fourth.id)
    folders = {key.partition("/manifests/")[0] for key in manifests(bucket)}
    assert {folder.split("/")[5] for folder in folders} == {first.id, second.id, fourth.id}, folders


ALONE = """
def train(steps, who, loads):
    from pulumi_trainer import training

    points = training.checkpoints()
    found = (points.load() if loads else None) or {"step": 0, "who": "nobody"}
    print(f"starts at {found['step']} from a state of {found['who']}", flush=True)
    for step in range(found["step"] + 10, steps + 1, 10):
        assert points.save({"who": who}, step=step)

def job(steps, who, loads=True, **more):
    return trainer.TrainJob(
        "alone",
        runtime=plain,
        trainer=trainer.CustomTrainer(
            func=train, func_args={"steps": steps, "who": who, "loads": loads},
            env={
                "AWS_ENDPOINT_URL": "SERVER",
                "AWS_ACCESS_KEY_ID": pulumi.Output.secret("AKIACANARY"),
                "AWS_SECRET_ACCESS_KEY": pulumi.Output.secret("canary-secret"),
            },
        ),
        checkpoint=trainer.CheckpointPolicy(grace=20, to="s3://ckpt/prefix"), wait_for="complete", **more,
    )

"""


def alone(project: Project, bucket: Any, call: str) -> None:
    project.program(ALONE.replace("SERVER", bucket.meta.endpoint_url) + call + "\n")


def test_a_plan_whose_bucket_does_not_answer_says_that_it_does_not_know(project: Project) -> None:
    with open_bucket() as bucket:
        alone(project, bucket, 'job(20, "first")')
        project.up()
        (first,) = json.loads(run_cli(project, "runs", "alone", "-o", "json"))
    silent = "s3://ckpt/prefix/lab/test/default/alone-[^:]+: .*(refused|connect|closed)"
    for call, sentence in {
        "resume=True": f"continues run {first['id']} from its newest checkpoint; whether it has one is not known: {silent}",
        f'fork=trainer.Fork("{first["id"]}", step=10)': f"starts anew from the checkpoint of step 10 of run {first['id']}, "
        f"if it is there: {silent}",
    }.items():
        alone(project, bucket, f'job(30, "second", {call})')
        assert re.search(sentence, plan := project.preview().out), plan


def saved(bucket: Any) -> dict[str, str]:
    """Checkpoint -> whose state is in it."""
    found = {}
    for key in manifests(bucket):
        name, text = key.split("/")[-2], bucket.get_object(Bucket="ckpt", Key=key)["Body"].read()
        state = f"{key.partition('/manifests/')[0]}/{name}/{json.loads(text)['folder']}/state.json"
        found[name] = json.loads(bucket.get_object(Bucket="ckpt", Key=state)["Body"].read())["who"]
    return found


def test_a_run_that_loads_nothing_has_its_checkpoints_in_s3(project: Project, bucket: Any) -> None:
    alone(project, bucket, 'job(100, "first")')
    project.up()
    assert saved(bucket)["step-00000100"] == "first"
    alone(project, bucket, 'job(80, "second", loads=False, resume=True)')
    project.up()
    found = saved(bucket)
    assert found["step-00000080"] == "second" and found["step-00000100"] == "first", found
    assert "the program has saved step-000000" in project.logs("alone")
    assert "and has not continued from step-00000100, which stays in s3://ckpt/prefix/" in project.logs("alone")


@pytest.mark.core
def test_a_folder_belongs_to_one_stack(project: Project, bucket: Any, tmp_path: Path) -> None:
    """Two people have stacks of one name, each in a backend of its own."""
    other = replace(project, folder=tmp_path / "other")
    (other.folder / "state").mkdir(parents=True)
    shutil.copy(project.folder / "Pulumi.yaml", other.folder)
    assert other.run("stack", "init").code == 0
    alone(project, bucket, 'job(100, "alice")')
    first = project.preview("--diff").out
    assert "belongs to" not in first, "nothing is there, so there is nothing to note"
    project.up()
    project.preview("--expect-no-changes")
    alone(other, bucket, 'job(200, "bob")')
    folder = "s3://ckpt/prefix/lab/test/default/alone-"
    for refused in (other.preview(ok=False).out, other.up(ok=False).out):
        assert f"checkpoint.to: {folder}" in refused, refused
        assert "/ belongs to another stack of this name: in another backend" in refused, refused
        assert "Hint: give another to=, or take the folder over with adopt=True on the TrainJob" in refused, refused
    assert {*saved(bucket).values()} == {"alice"}

    alone(other, bucket, 'job(200, "bob", adopt=True)')
    note = other.preview().out
    assert "belongs to another stack of this name" in note and "and is taken over" in note
    other.up()
    assert "starts at 0 from a state of nobody" in other.logs("alone"), "a new job continues nobody's run"
    before = saved(bucket)
    assert before["step-00000200"] == "bob" and before["step-00000100"] == "alice"

    alone(project, bucket, 'job(300, "alice")')
    assert "/ belongs to another stack of this name" in project.preview(ok=False).out
    alone(project, bucket, 'job(300, "alice", resume=False)')
    assert "/ belongs to another stack of this name" in project.preview(ok=False).out
    run_cli(project, "rerun", "alone")  # without a plan: the container looks again
    status = eventually(lambda: s if (s := project.job("alone")).phase == "Failed" else None)
    assert "exit code 1" in status.message, status
    assert "/ belongs to another stack of this name: in another backend" in project.logs("alone")
    assert saved(bucket) == before


def test_a_new_job_starts_anew_in_a_folder_with_checkpoints(project: Project, bucket: Any) -> None:
    alone(project, bucket, 'job(100, "first")')
    project.up()
    project.destroy()
    place = next(key.rpartition("/manifests/")[0].rpartition("/")[0] for key in manifests(bucket))
    bucket.delete_object(Bucket="ckpt", Key=f"{place}/owner.json")
    project.up()
    assert "starts at 0 from a state of nobody" in project.logs("alone")
    assert len({key.partition("/manifests/")[0] for key in manifests(bucket)}) == 2, "nothing of the first is lost"
    bucket.put_object(Bucket="ckpt", Key=f"{place}/owner.json", Body=b"{")
    project.destroy()
    unknown = "whose folder it is, is not known: owner.json is not valid JSON. The job looks when it starts"
    assert unknown in project.preview().out


def test_what_cannot_be_uploaded_is_a_problem(project: Project) -> None:
    head, trains = "def run():\n    pass\n\n", "trainer=trainer.CustomTrainer(func=run)"
    job = head + 'trainer.TrainJob("job", checkpoint=trainer.CheckpointPolicy(to={}), {})\n'
    fine = '"s3://bucket/x"'
    for text, why in (
        (
            job.format('pulumi.Output.from_input("s3:/bucket")', f"runtime=plain, {trains}"),
            "expected: s3://BUCKET/PREFIX",
        ),
        (job.format(fine, 'runtime=plain, trainer=trainer.Trainer(command=["true"])'), "with an image's own command"),
        (job.format(fine, f'runtime="deepspeed-distributed", {trains}'), "is not supported with MPI"),
    ):
        project.program(text)
        out = project.preview(ok=False).out
        assert "checkpoint.to: " in out and why in out and "Traceback" not in out, out
    project.program(job.format(fine, f"runtime=plain, {trains}"))
    assert "checkpoint.to: the job has no credentials for S3" in project.preview().out
