"""Whom a change of one of Kueue's objects by hand affects."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.errors import TargetFault
from pulumi_trainer.provider.targets import queries
from pulumi_trainer.provider.targets.kubernetes.queues.draining import ClusterQueues
from pulumi_trainer.queues.affected_jobs import affected_jobs
from test_queue_snapshot import Server
from test_start_answers import Document, kueue, team, workload

WORKS = [
    workload("nlp", "llama", 8, "2026-11-01T08:00:00Z", rank="high"),
    workload("vision", "vit", 8, "2026-11-01T08:00:00Z", runs=False),
]


class Lists(Server):
    """documents: What each kind has."""

    documents: list[Document]

    def list(self, kind: Kind, namespace: str = "", *, keep: Callable[[Document], Any] = dict, **_: Any) -> Any:
        self._ask(kind, namespace, "")
        kept = [keep(each) for each in self.documents if each["kind"] == kind.kind]
        return [each for each in kept if each is not None], ""


@pytest.fixture
def affected(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The jobs that a change of an object affects."""

    def ask(
        kind: str, name: str, *documents: Document, forbidden: tuple[str, ...] = (), version: str = "v1beta2"
    ) -> Any:
        server: Any = Lists({}, *forbidden)
        server.documents = [*WORKS, *documents]
        cluster = SimpleNamespace(client=server, queues=ClusterQueues(server), reachable_client=lambda: server)
        monkeypatch.setattr(queries, "_cluster", lambda _: cluster)
        (live,) = (each for each in documents if (each["kind"], each["metadata"]["name"]) == (kind, name))
        return [each.partition(" (")[0] for each in affected_jobs({}, live, kind, version)]

    return ask


def test_a_priority_concerns_those_that_have_it(affected: Callable[..., list[str]]) -> None:
    queues = [*team("nlp", 8), *team("vision", 8)]
    ranks = [kueue("WorkloadPriorityClass", name, value=1) for name in ("high", "low")]
    assert affected("WorkloadPriorityClass", "high", *queues, *ranks) == ["nlp/jobset-llama"]
    assert affected("WorkloadPriorityClass", "low", *queues, *ranks) == []


@pytest.mark.parametrize(("version", "field"), [("v1beta2", "cohortName"), ("v1beta1", "cohort")])
def test_a_cohort_concerns_its_queues(affected: Callable[..., list[str]], version: str, field: str) -> None:
    nlp, vision = team("nlp", 8), team("vision", 8)
    nlp[0]["spec"][field] = nlp[0]["spec"].pop("cohortName")
    vision[0]["spec"].pop("cohortName")
    found = affected("Cohort", "gpus", *nlp, *vision, kueue("Cohort", "gpus", spec={}), version=version)
    assert found == ["nlp/jobset-llama"]


@pytest.mark.parametrize("field", ["cohortName", "cohort"])
def test_a_cluster_queue_concerns_those_that_borrow_from_it(affected: Callable[..., list[str]], field: str) -> None:
    """A quota that was raised by hand is put back: borrowers lose it."""
    nlp, vision, other = team("nlp", 8), team("vision", 8), team("other", 8)
    for queue in (nlp[0], vision[0]):
        queue["spec"][field] = queue["spec"].pop("cohortName")
    assert affected("ClusterQueue", "gpus-vision", *nlp, *vision, *other) == ["vision/jobset-vit"]
    for borrowed, expected in (("4", ["vision/jobset-vit", "nlp/jobset-llama"]), ("0", ["vision/jobset-vit"])):
        used = {"name": "h100", "resources": [{"name": "nvidia.com/gpu", "total": "12", "borrowed": borrowed}]}
        nlp[0]["status"] = {"flavorsUsage": [used]}
        assert affected("ClusterQueue", "gpus-vision", *nlp, *vision, *other) == expected


def test_settings_of_an_admission_check_concern_the_queues_that_have_it(affected: Callable[..., list[str]]) -> None:
    checks = {"admissionChecks": [{"name": "nodes"}]}
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "gke"}
    documents = [
        *team("nlp", 8, admissionChecksStrategy=checks),
        *team("vision", 8),
        kueue("AdmissionCheck", "nodes", spec={"parameters": parameters}),
        kueue("ProvisioningRequestConfig", "gke", spec={}),
    ]
    assert affected("ProvisioningRequestConfig", "gke", *documents) == ["nlp/jobset-llama"]


def test_a_local_queue_concerns_the_jobs_in_it(affected: Callable[..., list[str]]) -> None:
    other = kueue("LocalQueue", "other", "nlp", spec={"clusterQueue": "gpus-nlp"})
    assert affected("LocalQueue", "gpus", *team("nlp", 8), other) == ["nlp/jobset-llama"]
    assert affected("LocalQueue", "other", *team("nlp", 8), other) == []


def test_only_jobs_that_have_not_ended_are_affected(monkeypatch: pytest.MonkeyPatch) -> None:
    server: Any = Lists({})
    server.documents = [
        {"kind": "JobSet", "metadata": {"name": "ended"}, "status": {"terminalState": "Completed"}},
        {"kind": "JobSet", "metadata": {"name": "runs"}, "status": {}},
    ]
    monkeypatch.setattr(queries, "_cluster", lambda _: SimpleNamespace(reachable_client=lambda _: server))
    assert [each["metadata"]["name"] for each in queries.list_unfinished_jobs({}, "team")] == ["runs"]


def test_whom_it_affects_is_not_known_if_queues_may_not_be_listed(affected: Callable[..., list[str]]) -> None:
    with pytest.raises(TargetFault, match="ClusterQueue"):
        affected("Cohort", "gpus", *team("nlp", 8), kueue("Cohort", "gpus", spec={}), forbidden=("ClusterQueue",))
