"""Requests to the API server while a cluster is set up. Tests and the product have the official client; that takes a second to
load. Called by cluster.py, simulation.py and nodes.py.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

Object = dict[str, Any]
PLURALS = {
    "CustomResourceDefinition": "customresourcedefinitions", "Namespace": "namespaces", "Node": "nodes", "Lease": "leases",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
    "ClusterTrainingRuntime": "clustertrainingruntimes", "ClusterLogs": "clusterlogs", "Logs": "logs", "Service": "services",
    "ConfigMap": "configmaps", "Deployment": "deployments", "ServiceAccount": "serviceaccounts",
    "ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings", "Pod": "pods", "PriorityClass": "priorityclasses",
}  # fmt: skip

BUSY = 120
"""Seconds to wait for an answer to a write: CRDs are large, and the machine may be busy."""


class Refused(Exception):
    """The server's own words, and its status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True)
class Api:
    """One user at one server."""

    port: int
    ca: Path
    token: str

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))

    def call(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", timeout: float = 10
    ) -> Any:
        """The answer's JSON, or its text.

        Raises: Refused, OSError where there is no server.
        """
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=self._tls)
        try:
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind, "Accept": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        except http.client.HTTPException as error:
            raise OSError(f"{type(error).__name__}: {error}") from None
        finally:
            connection.close()
        try:
            content = json.loads(text)
        except ValueError:
            content = text
        if answer.status >= 400:
            raise Refused(answer.status, content.get("message", text) if isinstance(content, dict) else text)
        return content

    def create(self, objects: Iterable[Object]) -> None:
        """Creates each, in no particular order; half the work of `apply` for the server where a CRD is large."""

        def one(item: Object) -> None:
            self.call("POST", path(item).rpartition("/")[0], item, timeout=BUSY)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(one, objects))

    def apply(self, objects: Iterable[Object]) -> bool:
        """Server-side apply of each, in no particular order; true."""

        def one(item: Object) -> None:
            query = "?fieldManager=test-cluster&force=true"
            self.call("PATCH", path(item) + query, item, "application/apply-patch+yaml", timeout=BUSY)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(one, objects))
        return True


def path(item: Mapping[str, Any]) -> str:
    """Where an object lies on the server."""
    version, name = item["apiVersion"], item["metadata"].get("name", "")
    namespace = item["metadata"].get("namespace")
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    middle = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{middle}/{PLURALS[item['kind']]}/{name}".rstrip("/")
