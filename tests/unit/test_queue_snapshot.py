"""What a plan reads from a cluster about queues, in as few requests as possible."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.targets.kubernetes.queues.queue_snapshot import read_queues
from warnings_support import Document, found, job, runtime

CONFIG_MAP = ("ConfigMap", "kueue-system", "kueue-manager-config")
SETTINGS: Document = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
    "integrations": {"frameworks": ["batch/job"]}, "manageJobsWithoutQueueName": True,
}  # fmt: skip


class Server:
    """An API server with Kueue, its queues and its ConfigMap.

    Args:
        objects: Kind, namespace and name -> spec or data.
        forbidden: Kinds that may not be read.
    """

    host = "https://server"
    patience = 1.0

    def __init__(self, objects: dict[tuple[str, str, str], Document], *forbidden: str, kueue: bool = True) -> None:
        self.objects, self.forbidden, self.kueue = objects, forbidden, kueue
        self.seen: list[tuple[str, str, str]] = []

    def within(self, _: float) -> Server:
        return self

    def read(self, path: str, *_: Any) -> Document:
        groups = [{"name": "kueue.x-k8s.io", "versions": [{"version": "v1beta2"}]}] if self.kueue else []
        return {"groups": groups}

    def get(self, kind: Kind, namespace: str, name: str, **_: Any) -> Document | None:
        self._ask(kind, namespace, name)
        return self._object((kind.kind, namespace, name))

    def list(self, kind: Kind, namespace: str = "", *, keep: Callable[[Document], Any], **_: Any) -> Any:
        self._ask(kind, namespace, "")
        keys = [key for key in self.objects if key[0] == kind.kind and namespace in ("", key[1])]
        return [keep(self._object(key) or {}) for key in keys], ""

    def _ask(self, kind: Kind, namespace: str, name: str) -> None:
        self.seen.append((kind.kind, namespace, name))
        if kind.kind in self.forbidden:
            raise ApiError(Problem(kind.kind, "is forbidden"), 403, {})

    def _object(self, key: tuple[str, str, str]) -> Document | None:
        if key not in self.objects:
            return None
        kind, namespace, name = key
        metadata = {"name": name, "namespace": namespace}
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **self.objects[key]}


def in_config_map(**settings: Any) -> Document:
    return {"data": {"controller_manager_config.yaml": json.dumps({**SETTINGS, **settings})}}


QUEUES: dict[tuple[str, str, str], Document] = {
    ("LocalQueue", "team", "q"): {"spec": {"clusterQueue": "cq"}},
    ("ClusterQueue", "", "cq"): {"spec": {"namespaceSelector": {}}},
}


def codes(queues: Queues, labels: Document, mode: Any = "jobset") -> set[str]:
    train_job = {**job({}), "metadata": {"name": "job", "namespace": "team", "labels": labels}}
    return {each.code for each in found(runtime({"torch": {}}), train_job, mode, queues=queues)}


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_the_configuration_of_the_cluster_is_read_once(mode: Any) -> None:
    server: Any = Server({**QUEUES, CONFIG_MAP: in_config_map()})
    for queue in ("q", "", "q"):
        known = read_queues(server, "team", queue)
        assert "PT226" in codes(known, {QUEUE: "q"}, mode)
    everything = Server({**QUEUES, CONFIG_MAP: in_config_map(integrations={"frameworks": ["jobset.x-k8s.io/jobset"]})})
    assert "PT227" in codes(read_queues(everything, "team"), {})  # type: ignore[arg-type]
    assert server.seen.count(CONFIG_MAP) == 1 and len(server.seen) == len({*server.seen})


@pytest.mark.parametrize(
    "server",
    [
        Server({**QUEUES, CONFIG_MAP: in_config_map()}, "ConfigMap"),
        Server({**QUEUES, CONFIG_MAP: {"data": {"controller_manager_config.yaml": "a: [1"}}}),
        Server({**QUEUES, CONFIG_MAP: {"data": {"other": "x"}}}),
        Server(QUEUES),
    ],
)
def test_a_configuration_that_cannot_be_read_is_unknown(server: Any) -> None:
    known = read_queues(server, "team", "q")
    assert known.configuration is None and known.find("ClusterQueue", "cq") is not None
    assert codes(known, {QUEUE: "q"}) & {"PT225", "PT226", "PT227", "PT228"} == set()


def test_a_cluster_without_kueue_is_not_asked_for_its_objects() -> None:
    server: Any = Server({("Node", "", "a"): {}}, kueue=False)
    assert read_queues(server, "team").has_all("Node")
    assert {kind for kind, *_ in server.seen} & {"LocalQueue", "ConfigMap", "ClusterQueue"} == set()


def test_the_queues_are_known_after_a_job_without_a_queue_in_the_same_namespace() -> None:
    server: Any = Server(QUEUES)
    assert read_queues(server, "team").find("ClusterQueue", "cq") is None
    assert read_queues(server, "team", "q").find("ClusterQueue", "cq") is not None


def test_the_default_queue_of_a_namespace_is_that_of_jobs_without_one() -> None:
    default = {("LocalQueue", "team", "default"): {"spec": {"clusterQueue": "lost"}}}
    server: Any = Server({**QUEUES, **default})
    assert "PT201" in codes(read_queues(server, "team"), {})
    assert "PT201" not in codes(read_queues(server, "other"), {})
