"""Which objects of a job belong to its record by an owner reference: not a job whose Pods KAI groups by their topmost owner."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pulumi_trainer.provider.jobs.lineage import ASSIGNED
from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.targets.kubernetes.jobs import apply
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record

RECORD = Record.of({"metadata": {"namespace": "team", "name": "job", "uid": "u-1"}, "data": {}})


def jobset(labels: dict[str, str], **pod: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": labels}, "spec": {"containers": [], **pod}}
    job = {"name": "node", "template": {"spec": {"template": template}}}
    metadata = {"name": "job"}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"replicatedJobs": [job]},
    }


def owned(main: dict[str, Any]) -> dict[str, bool]:
    """Kind -> whether the record owns the object."""
    code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "job-code"}}
    objects = {f"{main['kind']}/job": main, "ConfigMap/job-code": code}
    sent = apply.documents(Submission("team", "job", "owner", "digest", objects), RECORD)
    return {kind.kind: "ownerReferences" in document["metadata"] for kind, document in sent}


def test_a_record_owns_its_job() -> None:
    assert owned(jobset({}, schedulerName="volcano")) == {"ConfigMap": True, "JobSet": True}


@pytest.mark.parametrize(
    "main", [jobset({}, schedulerName="kai-scheduler"), jobset({"kai.scheduler/queue": "q"}, schedulerName="shard-2")]
)
def test_a_gang_of_kai_is_the_topmost_owner_of_its_pods(main: dict[str, Any]) -> None:
    assert owned(main) == {"ConfigMap": True, "JobSet": False}


def test_the_pods_of_a_train_job_may_be_kais() -> None:
    main = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "job"}, "spec": {}}
    assert owned(main) == {"ConfigMap": True, "TrainJob": False}


def test_the_objects_that_are_sent_have_the_names_that_the_record_has_given() -> None:
    identity = {"id": "t4kz1f", "lineage": "t4kz1a"}
    record = Record.of({"metadata": {"name": "job", "uid": "u-1"}, "data": {"identity": json.dumps(identity)}})
    env = [{"name": "TRAINER_RUN_ID", "value": ASSIGNED}]
    mounts = [{"name": "trainer-output", "mountPath": "/workspace/output", "subPath": ASSIGNED}]
    main = jobset({}, containers=[{"name": "node", "env": env, "volumeMounts": mounts}])
    ((_, sent),) = apply.documents(Submission("team", "job", "owner", "digest", {"JobSet/job": main}), record)
    (container,) = sent["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    assert (container["env"][0]["value"], container["volumeMounts"][0]["subPath"]) == ("t4kz1f", "t4kz1a")
    assert sent["metadata"]["labels"]["pulumi-trainer.dev/run-id"] == "t4kz1f"
