"""Settings for queues that have no effect, and what Kueue's Configuration says about a job."""

from __future__ import annotations

import copy
import json
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
    return {**job(spec.pop("trainer", {}), **spec), "metadata": {"name": "job", "namespace": "team", **metadata}}


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
    for mode in ("trainer", "jobset"):  # Kueue 0.19 counts the replicas of all steps of both kinds
        (warned,) = told("PT225", waiting(), queued, mode=mode, queues=known)
        assert "node starts after data" in warned and "after 5m00s: if data takes longer, it starts again" in warned
    assert told("PT225", waiting("Ready"), queued, mode="trainer", queues=known) == []
    assert told("PT225", waiting(), named(), mode="trainer", queues=known) == []
    assert told("PT225", waiting(), queued, mode="trainer") == []
    own = named({QUEUE: "q"}, {"kueue.x-k8s.io/wait-for-pods-ready": "2h"})
    assert told("PT225", waiting(), own, mode="trainer", queues=known) == []


@pytest.mark.parametrize(
    ("version", "waits", "expected"),
    [
        ("v1beta2", {}, 1800), ("v1beta2", {"timeout": "1h30m"}, 5400), ("v1beta2", {"timeout": "0s"}, 1800),
        ("v1beta2", None, None), ("v1beta2", {"timeout": "soon"}, None), ("v1beta1", {"enable": True}, 300),
        ("v1beta1", {"enable": False, "timeout": "5m"}, None), ("v1beta1", {"timeout": "5m"}, None),
    ],
)  # fmt: skip
def test_timeouts(version: str, waits: Any, expected: int | None) -> None:
    given = {**configuration(waitForPodsReady=waits), "apiVersion": f"config.kueue.x-k8s.io/{version}"}
    assert pods_ready_timeout(given) == expected
    assert pods_ready_timeout({**given, "featureGates": {"DisableWaitForPodsReady": True}}) is None


def in_config_map(**settings: Any) -> Document:
    data = {"controller_manager_config.yaml": json.dumps(configuration(**settings))}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kueue-manager-config"}, "data": data}


def test_the_defaults_of_a_configuration_in_its_config_map() -> None:
    whole = Queues((configuration_of(in_config_map()),))
    part = Queues((configuration_of(configuration()),))
    queued = named({QUEUE: "q"})
    (warned,) = told("PT225", waiting(), queued, queues=whole)
    assert "waitForPodsReady (on by default since 0.19) evicts" in warned and "after 30m00s" in warned
    assert len(told("PT226", waiting(), queued, queues=whole)) == 1, "by default Kueue manages Jobs alone"
    listed = Queues((configuration_of(in_config_map(integrations={"frameworks": ["jobset.x-k8s.io/jobset"]})),))
    assert told("PT226", waiting(), queued, queues=listed) == []
    for code in ("PT225", "PT226"):
        assert told(code, waiting(), queued, queues=part) == [], "a part of the file does not say"


MANAGED = {"managedJobsNamespaceSelector": {"matchLabels": {"kueue": "on"}}}
ALL = {"integrations": {"frameworks": ["trainer.kubeflow.org/trainjob", "jobset.x-k8s.io/jobset"]}}


def space(name: str = "team", **labels: str) -> Document:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def known(*documents: Document, **settings: Any) -> Queues:
    """Return a set of documents with Kueue's Configuration."""
    return complete_queues([configuration_of(configuration(**settings)), *documents])


@pytest.mark.parametrize("mode", ["trainer", "jobset"])
def test_jobs_without_a_queue_that_kueue_holds(mode: Any) -> None:
    plain, holds = runtime(TORCH), {"manageJobsWithoutQueueName": True}
    (warned,) = told("PT227", plain, named(), mode=mode, queues=known(**holds, **ALL))
    assert warned.startswith(f"metadata.labels[{QUEUE}]: is missing") and "never starts" in warned
    unknown = named(Unknown("labels"))
    for silent, train_job in (
        (known(**ALL), named()),
        (known(**holds, **ALL), named({QUEUE: "q"})),
        (known(**holds, **ALL), unknown),
        (known(**holds, integrations={"frameworks": ["batch/job"]}), named()),
        (known(**holds, **ALL, **MANAGED), named()),
        (known(space(), **holds, **ALL, **MANAGED), named()),
        (known(kueue("LocalQueue", "default", clusterQueue="cq"), **holds, **ALL), named()),
        (Queues(), named()),
    ):
        assert told("PT227", plain, train_job, mode=mode, queues=silent) == []
    assert told("PT227", plain, named(), mode=mode, queues=known(space(kueue="on"), **holds, **ALL, **MANAGED))


@pytest.mark.parametrize("mode", ["trainer", "jobset"])
def test_a_queue_in_a_namespace_that_kueue_does_not_manage(mode: Any) -> None:
    plain, queued = runtime(TORCH), named({QUEUE: "q"})
    (warned,) = told("PT228", plain, queued, mode=mode, queues=known(space(), **MANAGED))
    assert "does not select namespace team" in warned
    by_name = {"managedJobsNamespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}
    assert len(told("PT228", plain, queued, mode=mode, queues=known(**by_name))) == 1
    for silent in (known(space(kueue="on"), **MANAGED), known(**MANAGED), known(space()), complete_queues([space()])):
        assert told("PT228", plain, queued, mode=mode, queues=silent) == []
    assert told("PT228", plain, named(), mode=mode, queues=known(space(), **MANAGED)) == []


DEFAULT = [
    kueue("LocalQueue", "default", clusterQueue="cq"),
    kueue("ClusterQueue", "cq", namespaceSelector={}, resourceGroups=[
        {"coveredResources": ["cpu"], "flavors": [{"name": "a", "resources": [{"name": "cpu", "nominalQuota": 1}]}]},
    ]),
    kueue("ResourceFlavor", "a"),
]  # fmt: skip
ASKING = {"resourcesPerNode": {"requests": {"cpu": 4}}}


@pytest.mark.parametrize("mode", ["trainer", "jobset"])
def test_a_job_without_a_queue_is_in_the_default_queue_of_its_namespace(mode: Any) -> None:
    """As `ApplyDefaultLocalQueueWithManagedJobsNamespaceSelector` of Kueue 0.19.2."""
    plain, asking = runtime(TORCH), named(trainer=ASKING)
    queues = complete_queues(DEFAULT)
    (warned,) = told("PT203", plain, asking, mode=mode, queues=queues)
    assert warned.startswith(
        f"metadata.labels[{QUEUE}]: is missing, so its queue is LocalQueue default of the namespace: it requests more"
    )
    assert len(told("PT222", plain, named(suspend=True), mode=mode, queues=queues)) == 1
    assert told("PT207", plain, named({PRIORITY: "high"}), mode=mode, queues=queues) == []
    (unused,) = told("PT207", plain, named({PRIORITY: "high"}), mode=mode, queues=complete_queues(DEFAULT[1:]))
    assert unused.endswith("has no effect without a queue")
    others = [{**DEFAULT[0], "metadata": {"name": "default", "namespace": "other"}}, *DEFAULT[1:]]
    system = {**asking, "metadata": {"name": "job", "namespace": "kube-system"}}
    held = [{**DEFAULT[0], "spec": {"clusterQueue": "cq", "stopPolicy": "Hold"}}, *DEFAULT[1:]]
    of_system = [{**DEFAULT[0], "metadata": {"name": "default", "namespace": "kube-system"}}, *DEFAULT[1:]]
    for silent, train_job in (
        (complete_queues(others), asking),
        (complete_queues(held), asking),
        (complete_queues(of_system), system),
        (known(*DEFAULT, **MANAGED), asking),
        (known(*DEFAULT, integrations={"frameworks": ["batch/job"]}), asking),
        (queues, named(Unknown("labels"), trainer=ASKING)),
    ):
        assert told("PT203", plain, train_job, mode=mode, queues=silent) == []
    assert (
        len(told("PT203", plain, asking, mode=mode, queues=known(space(kueue="on"), *DEFAULT, **MANAGED, **ALL))) == 1
    )


def test_the_queue_of_the_runtimes_jobset_counts_for_quota_in_mode_jobset() -> None:
    given, asking = in_jobset(labels={QUEUE: "default"}), named(trainer=ASKING)
    other = [{**DEFAULT[0], "metadata": {"name": "q", "namespace": "team"}}, *DEFAULT[1:]]
    assert len(told("PT203", given, asking, queues=complete_queues(DEFAULT))) == 1
    in_other = in_jobset(labels={QUEUE: "q"})
    assert len(told("PT203", in_other, asking, queues=complete_queues(other))) == 1
    assert told("PT203", in_other, asking, mode="trainer", queues=complete_queues(other)) == []
