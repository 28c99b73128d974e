"""Small jobs for the tests of the Kubernetes target."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, JOB, POD, SECRET, SERVICE, Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.client.transport import JSON, Request
from pulumi_trainer.provider.targets.kubernetes.jobs import apply, record
from pulumi_trainer.provider.targets.kubernetes.jobs.record import SUMS_NAME, Record
from pulumi_trainer.provider.trainer.kinds import JOBSET

T = TypeVar("T")
Document = dict[str, Any]

DEFINITION = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", False)


def send(client: Client, method: str, path: str, query: dict[str, str], body: Document) -> Document:
    """Send a request as another tool does, and return the answer; PATCH is a merge patch."""
    form = "application/merge-patch+json" if method == "PATCH" else JSON
    return client._json(Request(method, path, path, query, json.dumps(body).encode(), form))


def jobset(name: str, *, pods: int = 1, simulate: dict[str, str] | None = None, **spec: Any) -> Document:
    """A JobSet with one replicated job `node`; simulate: what becomes of its pods (annotations sim/*)."""
    template = {
        "metadata": {"annotations": {f"sim/{k}": v for k, v in (simulate or {"outcome": "forever"}).items()}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": "trainer:1"}]},
    }
    job = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": job}}], **spec},
    }


def pod_template(document: Document) -> Document:
    """Of the only replicated job."""
    template: Document = document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return template


def submission(
    namespace: str,
    document: Document,
    *,
    owner: str = "owner",
    digest: str = "digest",
    sweep: str = "stack",
    code: bool = True,
    **more: Any,
) -> Submission:
    """A job with a ConfigMap of code and a Secret."""
    name = document["metadata"]["name"]
    objects = {f"{document['kind']}/{name}": copy.deepcopy(document)}
    if code:
        objects[f"ConfigMap/{name}-code"] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{name}-code"},
            "data": {"main.py": "print(1)"},
        }
        more.setdefault("secrets", {f"{name}-env": {"TOKEN": "canary-7d1f"}})
    return Submission(namespace, name, owner, digest, objects, run="1", sweep=sweep, **more)


def slip(client: Client, made: Submission) -> None:
    """A job that would have been refused, had anybody looked: its record, and the job."""
    apply.send(client, made, Record.of(client.create(CONFIG_MAP, record.document(made))))


def until(look: Callable[[], T], seconds: float = 120.0, *, tell: Callable[[], object] = str) -> T:
    """What `look` says once it is true. tell: What a failure shows of the state."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"still {found!r} after {seconds} s\n{tell()}"
        time.sleep(0.05)
    return found


def condition(client: Client, namespace: str, name: str, type_: str) -> bool:
    """Whether a JobSet has the condition."""
    found = client.get(JOBSET, namespace, name) or {}
    return any(c["type"] == type_ and c["status"] == "True" for c in found.get("status", {}).get("conditions", []))


STAYS = ("kube-root-ca.crt", SUMS_NAME)
"""ConfigMaps of a namespace that no job leaves behind: what Kubernetes puts there, and the sums of what its jobs have used."""


def left(client: Client, namespace: str) -> list[str]:
    """What there is in a namespace, of the kinds that a job may leave behind."""
    found = []
    for kind in (CONFIG_MAP, SECRET, SERVICE, JOBSET, JOB, POD):
        names = [each["metadata"]["name"] for each in client.list(kind, namespace)[0]]
        found += [f"{kind.kind}/{name}" for name in names if name not in STAYS]
    return found
