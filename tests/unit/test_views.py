"""The view of a JobSet reads documents that may hold anything."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi_trainer.plan.volume_claims import count_mounting_pods
from pulumi_trainer.provider.jobs.status import Phase
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.views import Pod, ReplicatedJob, completions, entries, jobs_of, replicated_jobs
from pulumi_trainer.provider.kueue.podsets import pod_sets
from pulumi_trainer.provider.targets.local.jobset_controller import peak_of
from pulumi_trainer.provider.targets.local.record import Record, Tuning
from pulumi_trainer.provider.trainer.admission.warnings.view import View
from pulumi_trainer.provider.trainer.releases import DEFAULT


def job(pod: Any = None, replicas: Any = None, **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {**spec, "template": {"spec": pod or {}}}}
    return {"name": "node", **({} if replicas is None else {"replicas": replicas}), "template": template}


@pytest.mark.parametrize(
    ("given", "pods"),
    [
        (job(), 1),
        (job(parallelism=3), 3),
        (job(parallelism=3, completions=2), 2),
        (job(parallelism=3, completions=None), 3),
        (job(parallelism=3, completions=4, replicas=2), 6),
        (job(replicas=0), 0),
        (job(parallelism=Unknown("n")), None),
        (job(replicas=Unknown("n")), None),
        (job(parallelism="3"), None),
        (job(parallelism=True), None),
        ({}, 1),
    ],
)
def test_pods_of_a_replicated_job(given: dict[str, Any], pods: int | None) -> None:
    assert ReplicatedJob(given).pods == pods


def test_everything_that_counts_pods_counts_the_same() -> None:
    """Four Pods at a time of which one has to succeed are one Pod, as the Job controller never makes more."""
    pod = {"containers": [{"name": "node"}], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    given = job(pod, parallelism=4, completions=1, completionMode="Indexed")
    given["template"]["metadata"]["labels"] = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    document = {"kind": "JobSet", "metadata": {"name": "job"}, "spec": {"replicatedJobs": [given]}}
    record = Record(
        namespace="default", name="job", owner="o", digest="d", run="1", stack="", objects={"JobSet/job": document}, root="/",
        python="python3", environments="/", tuning=Tuning(),
    )  # fmt: skip
    (local,) = record.status(Phase.PENDING).steps
    counted = {
        "volumes": count_mounting_pods(document, "c"),
        "warnings": View({}, {}, (document,), DEFAULT).nodes,
        "Kueue": pod_sets(document)[0].count,
        "Local": local.count,
        "Local at one time": peak_of(document, lambda _: 1),
    }
    assert set(counted.values()) == {1}, counted


def test_completions_are_as_many_as_run_at_once_where_nothing_else_is_declared() -> None:
    assert completions({"parallelism": 3}) == 3
    assert completions({"parallelism": 3, "completions": 5}) == 5


@pytest.mark.parametrize(
    "spec", [None, 1, "a", [], Unknown("x"), {"replicatedJobs": Unknown("x")}, {"replicatedJobs": 1}]
)
def test_what_is_not_known_or_of_another_type_is_empty(spec: Any) -> None:
    assert replicated_jobs(spec) == [] == jobs_of({"spec": spec})


def test_paths_count_what_is_skipped() -> None:
    pod = {"containers": [Unknown("x"), {"name": "node"}], "initContainers": [{"restartPolicy": "Always"}]}
    (found,) = jobs_of({"spec": {"replicatedJobs": [1, job(pod)]}})
    assert (found.place, found.at, found.labels) == (1, "spec.replicatedJobs[1]", {"a": "b"})
    at = "spec.replicatedJobs[1].template.spec.template.spec"
    assert [container.at for container in found.pod.all_containers] == [
        f"{at}.initContainers[0]",
        f"{at}.containers[1]",
    ]
    assert [container.is_sidecar for container in found.pod.all_containers] == [True, False]


def test_lists_of_containers_together() -> None:
    one = {"name": "a", "volumeMounts": [{"name": "v"}], "ports": [{"containerPort": 1}], "env": Unknown("x")}
    pod = Pod({"containers": [one], "initContainers": [{"name": "b", "volumeMounts": Unknown("x")}], "volumes": [1]})
    assert (pod.mounts, pod.ports, pod.volumes) == ([{"name": "v"}], [{"containerPort": 1}], [])
    assert [container.env for container in pod.containers] == [[]]
    assert [*entries({"a": [1, {}]}, "a", "")] == [("a[1]", {})]
