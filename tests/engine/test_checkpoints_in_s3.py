"""Checkpoints in S3 on this machine: nodes share no folder, and what a node has saved ends with its Pod."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Iterator
from typing import Any

import boto3
import psutil
import pytest

from tests.moto_server import moto_server

from .conftest import Project, eventually
from .test_checkpoints import bootstrap_of, total

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


@pytest.fixture
def bucket() -> Iterator[Any]:
    """The bucket `ckpt` of moto's server."""
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    with moto_server() as url:
        client = boto3.client("s3", endpoint_url=url, **keys)
        client.create_bucket(Bucket="ckpt")
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


def test_each_run_has_its_own_checkpoints_unless_it_resumes(project: Project, bucket: Any) -> None:
    meeting = project.folder / "meeting"
    once = JOB.replace('"steps": 120, "pause": 0.1', '"steps": 10, "pause": 0')
    once = once.replace("    for step in", MEET.format(folder=str(meeting)) + "    for step in")
    for number, call in enumerate(('run="1"', 'run="2"', 'run="3", resume=False', 'run="4", resume=False'), 1):
        shutil.rmtree(meeting, ignore_errors=True)
        meeting.mkdir()
        project.program(once.replace("SERVER", bucket.meta.endpoint_url) + f'job(wait_for="complete", {call})\n')
        said = project.up().out
        assert ("the new run continues from the newest checkpoint of the runs before it" in said) is (number == 2), said
        assert {step for _, step in starts(project.logs("long"))} == {"10" if number == 2 else "0"}, call
    folders = {key.partition("/manifests/")[0] for key in manifests(bucket)}
    assert len(folders) == 3 and len({folder.split("/")[4] for folder in folders}) == 1, folders


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
