"""A cluster with Volcano and KAI beside the other schedulers, and what tests/cluster has for its tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.client import Client

from tests.cluster.conftest import admin, namespace, root, user_kubeconfig  # noqa: F401 (fixtures)
from tests.cluster.gangs_support import made_nodes  # noqa: F401 (the fixture add_nodes)
from tools.cluster import ALL, GANGS, Cluster

from .lab import Gangs


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Shared, with its own nodes for each test."""
    made = Cluster.start(tmp_path_factory.mktemp("cluster"), components=[*ALL, *GANGS])
    yield made
    made.stop(remove=not request.session.testsfailed)
    if request.session.testsfailed:
        shutil.rmtree(made.folder / "run", ignore_errors=True)
        print(f"\nthe logs of the cluster are in {made.logs}")


@pytest.fixture(params=["jobset", "trainer"])
def gangs(
    request: pytest.FixtureRequest,
    root: Client,  # noqa: F811
    user_kubeconfig: Path,  # noqa: F811
    namespace: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Gangs]:
    """In both modes; afterwards no gang is left that waits in the queue of the next test."""
    client = open_client({"kubeconfig": str(user_kubeconfig)})
    made = Gangs(root, client, namespace, monkeypatch, request.param)
    yield made
    made.target.sweep("stack")
