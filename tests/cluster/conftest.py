"""A cluster for all tests of a session, a namespace for each, and users.

`KUBECONFIG=path PULUMI_TRAINER_TEST_CONTEXT=name` uses that cluster instead of one that is started here; tests that break a
cluster start one of their own in any case.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config
from kubernetes.client import ApiClient, ApiException
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.client import Client

from tools.cluster import Cluster
from tools.cluster.existing import Existing

from . import least

USER = "trainer-user"
"""The service account of `user_kubeconfig`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts clusters of its own comes last, so that the others do not wait for it."""
    items.sort(key=lambda item: "own_cluster" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster | Existing]:
    """Shared: whoever kills a part of it breaks all other tests."""
    folder = tmp_path_factory.mktemp("cluster")
    context = os.environ.get("PULUMI_TRAINER_TEST_CONTEXT")
    if context:
        yield Existing.of(Path(os.environ["KUBECONFIG"]), context, folder)
        return
    made = Cluster.start(folder)
    yield made
    made.stop(remove=not request.session.testsfailed)
    if request.session.testsfailed:
        shutil.rmtree(folder / "run", ignore_errors=True)
        print(f"\nthe logs of the cluster are in {made.logs}")


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Nobody else's; it may be broken."""
    made = Cluster.start(tmp_path / "cluster")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def admin(cluster: Cluster | Existing) -> Iterator[ApiClient]:
    """A client that may do everything, for what tests arrange; the product is tested as `user_kubeconfig`."""
    with config.new_client_from_config(str(cluster.kubeconfig)) as made:
        yield made


@pytest.fixture
def root(cluster: Cluster | Existing) -> Client:
    """The same in the words of the Kubernetes target."""
    return open_client({"kubeconfig": str(cluster.kubeconfig)})


@pytest.fixture
def namespace(admin: ApiClient) -> Iterator[str]:
    """A new one, where pods can be made; it goes with everything in it, later."""
    api, name = client.CoreV1Api(admin), f"test-{secrets.token_hex(4)}"
    api.create_namespace({"metadata": {"name": name}})
    for _ in range(600):
        try:
            api.read_namespaced_service_account("default", name)
            break
        except ApiException:
            time.sleep(0.05)
    yield name
    try:
        api.delete_namespace(name)
    except ApiException as error:
        if error.status not in (404, 409):  # a test has deleted it
            raise


@pytest.fixture
def user_kubeconfig(cluster: Cluster | Existing, admin: ApiClient, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """Of a user with the least rights, in this namespace: what `pulumi-trainer rbac` prints."""
    with least_user(cluster.kubeconfig, admin, namespace, tmp_path / "kubeconfig-user") as file:
        yield file


@contextmanager
def least_user(kubeconfig: Path, admin: ApiClient, namespace: str, file: Path) -> Iterator[Path]:
    """Writes the kubeconfig of a new service account with the least rights in a namespace.

    Args:
        kubeconfig: That of the cluster.
        admin: Client of the cluster.
        namespace: The namespace.
        file: Where the new kubeconfig is written.
    """
    api = client.CoreV1Api(admin)
    api.create_namespaced_service_account(namespace, {"metadata": {"name": USER}})
    binding = least.grant(admin, namespace, USER)
    asked: Any = {"spec": {"expirationSeconds": 3600, "audiences": []}}
    token = api.create_namespaced_service_account_token(USER, namespace, asked).status.token
    content = yaml.safe_load(kubeconfig.read_text())
    content["users"] = [{"name": "user", "user": {"token": token}}]
    content["contexts"] = [{"name": "test", "context": {"cluster": "test", "user": "user", "namespace": namespace}}]
    file.write_text(json.dumps(content))
    yield file
    least.revoke(admin, namespace, binding)
