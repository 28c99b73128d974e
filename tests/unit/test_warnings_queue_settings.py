"""Settings for queues that have no effect, and what Kueue's Configuration says about a job."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kueue.configuration import configuration_of, pods_ready_timeout
from pulumi_trainer.provider.kueue.labels import MAX_EXECUTION, PRIORITY, QUEUE, REQUIRED
from pulumi_trainer.provider.kueue.queue_state import Queues, complete_queues
from warnings_support import Document, found, job, runtime, step

MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
KAI = "kai.scheduler/queue"
TORCH: Document = {"torch": {}}


def named(labels: Any = None, annotations: Any = None, **spec: Any) -> Document:
    given = {"labels": labels, "annotations": annotations}
    metadata = {key: value for key, value in given.items() if value is not None}
    return {**job({}, **spec), "metadata": {"name": "job", "namespace": "team", **metadata}}


def in_pods(**metadata: Any) -> Document:
    given = step()
    given["template"]["spec"]["template"]["metadata"] = metadata
    return runtime(TORCH, given)


def in_jobset(**metadata: Any) -> Document:
    given = runtime(TORCH)
    given["spec"]["template"]["metadata"] = metadata
    return given


def of_runtime(**metadata: Any) -> Document:
    given = runtime(TORCH)
    given["metadata"].update(metadata)
    return given


def told(code: str, given: Document, train_job: Document, **known: Any) -> list[str]:
    warned = found(copy.deepcopy(given), copy.deepcopy(train_job), **known)
    return [f"{w.where}: {w.why}" for w in warned if w.code == code]


def kueue(kind: str, name: str, **spec: Any) -> Document:
    metadata = {"name": name, "namespace": "team"}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("mode", ["trainer", "jobset"])
@pytest.mark.parametrize(
    ("given", "train_job", "where"),
    [
        (runtime(TORCH), named(annotations={PRIORITY: "high"}), f"metadata.annotations[{PRIORITY}]"),
        (runtime(TORCH), named({QUEUE: "q"}, {MAX_EXECUTION: "60"}), f"metadata.annotations[{MAX_EXECUTION}]"),
        (runtime(TORCH), named(annotations={KAI: "team"}), f"metadata.annotations[{KAI}]"),
        (runtime(TORCH), named({QUEUE: "q"}, {REQUIRED: "rack"}), f"metadata.annotations[{REQUIRED}]"),
        (runtime(TORCH), named({QUEUE: "q", REQUIRED: "rack"}), f"metadata.labels[{REQUIRED}]"),
        (runtime(TORCH), named({QUEUE: "q"}, {MIN_PARALLELISM: "2"}), f"metadata.annotations[{MIN_PARALLELISM}]"),
        (in_pods(annotations={QUEUE: "q"}), named(), f"metadata.annotations[{QUEUE}]"),
        (in_pods(labels={PRIORITY: "high"}), named({QUEUE: "q"}), f"metadata.labels[{PRIORITY}]"),
        (in_pods(labels={QUEUE: "q"}), named({QUEUE: "other"}), f"metadata.labels[{QUEUE}]"),
        (in_jobset(annotations={REQUIRED: "rack"}), named({QUEUE: "q"}), f"metadata.annotations[{REQUIRED}]"),
        (of_runtime(labels={QUEUE: "q"}), named(), f"metadata.labels[{QUEUE}]"),
    ],
)
def test_settings_where_nobody_reads_them(given: Document, train_job: Document, where: str, mode: str) -> None:
    (warned,) = told("PT223", given, train_job, mode=mode)
    assert warned.partition(": has no effect there")[0].endswith(where)


@pytest.mark.parametrize(
    ("given", "train_job"),
    [
        (runtime(TORCH), named({QUEUE: "q", PRIORITY: "high", MAX_EXECUTION: "60"})),
        (runtime(TORCH), named({QUEUE: "q"}, {QUEUE: "q"})),
        (in_pods(labels={QUEUE: "q"}), named({QUEUE: "q"})),
        (in_pods(annotations={REQUIRED: "rack"}), named({QUEUE: "q"})),
        (in_pods(labels={KAI: "team"}), named({KAI: "team"})),
        (of_runtime(labels={"team": "nlp"}), named(annotations={"team": "nlp"})),
        (in_pods(labels={QUEUE: "q"}), named(Unknown("labels"))),
    ],
)
def test_settings_where_they_belong(given: Document, train_job: Document) -> None:
    assert told("PT223", given, train_job, mode="trainer") == told("PT223", given, train_job, mode="jobset") == []


def test_the_queue_of_the_jobset_counts_in_mode_jobset() -> None:
    given = in_jobset(labels={QUEUE: "q"})
    assert told("PT223", given, named(), mode="jobset") == []
    (warned,) = told("PT223", given, named(), mode="trainer")
    assert warned.endswith("Kueue reads it as a label of the TrainJob, so the job is not in queue q")
    (warned,) = told("PT223", in_pods(labels={QUEUE: "q"}), named({QUEUE: "other"}))
    assert warned.endswith("so the job is in queue other")


@pytest.mark.parametrize("mode", ["trainer", "jobset"])
def test_what_suspend_holds(mode: str) -> None:
    queued = named({QUEUE: "q"}, suspend=True)
    cluster_queue = kueue("ClusterQueue", "cq", stopPolicy="Hold")
    (warned,) = told("PT222", runtime(TORCH), queued, mode=mode)
    assert warned.startswith("spec.suspend: does not hold a job with queue q")
    assert told("PT222", runtime(TORCH), named(suspend=True), mode=mode) == []
    assert told("PT222", runtime(TORCH), named({QUEUE: "q"}, suspend=False), mode=mode) == []
    assert told("PT222", runtime(TORCH), named({QUEUE: Unknown("q")}, suspend=True), mode=mode) == []
    held = complete_queues([kueue("LocalQueue", "q", clusterQueue="cq"), cluster_queue])
    assert told("PT222", runtime(TORCH), queued, mode=mode, queues=held) == []
    of_kueue = named({QUEUE: "q"}, suspend=True, runtimePatches=[{"manager": "kueue.x-k8s.io/manager"}])
    assert told("PT222", runtime(TORCH), of_kueue, mode=mode) == [], "a queued TrainJob as the server has it"


EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}


def test_the_exclusive_topology_of_jobset_beside_that_of_kueue() -> None:
    flavors = [{"name": "a"}]
    queues = [
        kueue("LocalQueue", "q", clusterQueue="cq"),
        kueue("ClusterQueue", "cq", resourceGroups=[{"coveredResources": ["cpu"], "flavors": flavors}]),
    ]
    topology = complete_queues([*queues, kueue("ResourceFlavor", "a", topologyName="dc")])
    plain = complete_queues([*queues, kueue("ResourceFlavor", "a")])
    given = in_jobset(annotations=EXCLUSIVE)
    of_step = runtime(TORCH)
    of_step["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["metadata"]["annotations"] = EXCLUSIVE
    for each in (given, of_step):
        assert len(told("PT224", each, named({QUEUE: "q"}), queues=topology)) == 1
        assert told("PT224", each, named({QUEUE: "q"}), queues=plain) == []
        assert told("PT224", each, named(), queues=topology) == []


def waiting(status: str = "Complete") -> Document:
    data = step("data", "")
    return runtime(TORCH, data, step(dependsOn=[{"name": "data", "status": status}]))


def configuration(**settings: Any) -> Document:
    return {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **settings}


READY = {"waitForPodsReady": {"timeout": "5m0s"}}


def test_who_waits_for_pods_that_cannot_be_ready() -> None:
    known = Queues((configuration_of(configuration(**READY)),))
    queued = named({QUEUE: "q"})
    (warned,) = told("PT225", waiting(), queued, mode="trainer", queues=known)
    assert "node starts after data" in warned and "after 5m00s: then data starts again" in warned
    assert told("PT225", waiting(), queued, mode="jobset", queues=known) == []
    assert told("PT225", waiting("Ready"), queued, mode="trainer", queues=known) == []
    assert told("PT225", waiting(), named(), mode="trainer", queues=known) == []
    assert told("PT225", waiting(), queued, mode="trainer") == []
    own = named({QUEUE: "q"}, {"kueue.x-k8s.io/wait-for-pods-ready": "2h"})
    assert told("PT225", waiting(), own, mode="trainer", queues=known) == []


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        ({}, 300), ({"timeout": "1h30m"}, 5400), ({"enable": True}, 300), ({"enable": False, "timeout": "5m"}, None),
        (None, None), ({"timeout": "soon"}, None),
    ],
)  # fmt: skip
def test_timeouts(waits: Any, expected: int | None) -> None:
    assert pods_ready_timeout(configuration(waitForPodsReady=waits)) == expected
