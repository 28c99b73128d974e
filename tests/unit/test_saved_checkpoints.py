"""Which checkpoints a plan finds in S3, and what it says if it cannot look there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import boto3
import pytest
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.kubernetes.errors import TargetFault
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs
from pulumi_trainer.provider.lifecycle.saved_checkpoints import environment_of, saved_checkpoints

from tests.moto_server import moto_server

KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture
def bucket(moto: str) -> Any:
    client = boto3.client(
        "s3", endpoint_url=moto, aws_access_key_id="x", aws_secret_access_key="x", region_name="us-east-1"
    )
    name = f"b-{uuid4().hex[:12]}"
    client.create_bucket(Bucket=name)

    def put(key: str, document: Any) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        client.put_object(Bucket=name, Key=f"p/dev/team/j/t4kz1f/manifests/{key}", Body=body)

    return name, put


def inputs(url: str, secret: Any = "x") -> JobInputs:
    """The inputs of a job whose secret key is in its Secret."""
    given = {**KEYS, "AWS_ENDPOINT_URL": url, "TRAINER_CHECKPOINT_TO": "s3://b/p"}
    env: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in given.items()]
    env.append({"name": "AWS_SECRET_ACCESS_KEY", "valueFrom": {"secretKeyRef": {"name": "j-env", "key": "key"}}})
    pod = {"spec": {"containers": [{"name": "sidecar"}, {"name": "node", "env": env}]}}
    node = {"name": "node", "template": {"spec": {"template": pod}}}
    jobset = {"kind": "JobSet", "metadata": {"name": "j"}, "spec": {"replicatedJobs": [node]}}
    secrets = {"j-env": {"key": secret}}
    return JobInputs(
        namespace="team", name="j", digest="d", run="1", objects={"JobSet/j": jobset}, secrets=secrets, target={}
    )


def steps(url: str, bucket: str, secret: Any = "x") -> list[int]:
    run = Run("1", "Failed", id="t4kz1f", lineage="t4kz1f", place=f"s3://{bucket}/p/dev/team/j")
    return [*saved_checkpoints(inputs(url, secret), run, None)]  # type: ignore[arg-type]


def test_checkpoints_whose_manifests_are_complete(moto: str, bucket: Any) -> None:
    name, put = bucket
    assert steps(moto, name) == []
    put("step-20/node-0.json", {"nodes": 1})
    put("step-10/node-0.json", {"nodes": 2})
    put("step-10/node-1.json", {"nodes": 2})
    put("step-30/node-0.json", {"nodes": 2})
    put("step-40/node-1.json", {"nodes": 2})
    put("step-45/node-0.json", {"nodes": 2})
    put("step-45/node-2.json", {"nodes": 2})
    put("step-50/node-0.json", {"nodes": "many"})
    put("step-60/node-0.json", ["nodes"])
    put("step-70.tmp/node-0.json", {"nodes": 1})
    put("other.json", {"nodes": 1})
    assert steps(moto, name) == [10, 20]
    assert environment_of(inputs(moto))["AWS_SECRET_ACCESS_KEY"] == "x"


def test_what_is_not_known(moto: str, bucket: Any) -> None:
    name, put = bucket
    with pytest.raises(TargetFault, match="the plan does not know the credentials"):
        steps(moto, name, secret=None)
    with pytest.raises(TargetFault, match="Connection refused"):
        steps("http://127.0.0.1:1", name)
    with pytest.raises(TargetFault, match="NoSuchBucket"):
        steps(moto, "b-nobody-has-made")
    put("step-20/node-0.json", b"{")
    with pytest.raises(TargetFault, match="t4kz1f: Expecting property name"):
        steps(moto, name)
