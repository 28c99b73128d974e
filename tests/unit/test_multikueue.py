"""Which jobs MultiKueue sends elsewhere, by the queues of a program and of a cluster."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kueue.queue_state import Queues, complete_queues
from pulumi_trainer.provider.trainer.admission.multikueue import find_dispatch

Document = dict[str, Any]
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
FOUND = "w1, w2 (AdmissionCheck mk of ClusterQueue gpus)"


def named(kind: str, name: str, spec: Any, namespace: str = "") -> Document:
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name, **place}, "spec": spec}


LOCAL = named("LocalQueue", "team", {"clusterQueue": "gpus"}, "nlp")
QUEUE = named(
    "ClusterQueue", "gpus", {"admissionChecksStrategy": {"admissionChecks": [{"name": "cost"}, {"name": "mk"}]}}
)
OLDER = named("ClusterQueue", "gpus", {"admissionChecks": ["cost", "mk"]})
PARAMETERS = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "workers"}
CHECK = named("AdmissionCheck", "mk", {"controllerName": MULTIKUEUE, "parameters": PARAMETERS})
COST = named("AdmissionCheck", "cost", {"controllerName": "example.com/cost"})
CONFIG = named("MultiKueueConfig", "workers", {"clusters": ["w1", "w2"]})
ALL = (LOCAL, QUEUE, CHECK, COST, CONFIG)


def said_of(train_job: Document, queues: Queues) -> str:
    return str(find_dispatch(train_job, queues) or "")


def job(queue: Any = "team", **spec: Any) -> Document:
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return {"kind": "TrainJob", "metadata": {"name": "job", "namespace": "nlp", "labels": labels}, "spec": spec}


@pytest.mark.parametrize("program", range(len(ALL) + 1))
def test_queues_of_a_program_of_a_cluster_and_of_both(program: int) -> None:
    assert said_of(job(), Queues(complete_queues(ALL[:program]).documents, below=Queues(ALL[program:]))) == FOUND


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ((LOCAL, OLDER, CHECK, CONFIG), FOUND),
        ((LOCAL, QUEUE, CHECK), "the worker clusters of MultiKueue (AdmissionCheck mk of ClusterQueue gpus)"),
        ((LOCAL, QUEUE, COST), ""),
        ((LOCAL, CHECK, CONFIG), ""),
        ((QUEUE, CHECK, CONFIG), ""),
        ((LOCAL, QUEUE, named("AdmissionCheck", "mk", Unknown("1"))), ""),
        ((LOCAL, named("ClusterQueue", "gpus", {"admissionChecksStrategy": Unknown("1")}), CHECK), ""),
        ((), ""),
    ],
)
def test_what_is_known_decides(documents: tuple[Document, ...], said: str) -> None:
    assert said_of(job(), Queues(documents)) == said


def test_a_job_of_another_queue_or_of_none_stays() -> None:
    for queue in ("", "other", Unknown("1")):
        assert said_of(job(queue), Queues(ALL)) == ""


def test_a_job_that_says_so_itself_is_sent_away() -> None:
    assert (
        said_of(job("", managedBy=MULTIKUEUE), Queues())
        == f"the worker clusters of MultiKueue (managedBy: {MULTIKUEUE})"
    )
