"""Which objects of a job belong to its record by an owner reference: not a job whose Pods KAI groups by their topmost owner."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi_trainer.provider.api.submission import Submission
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
