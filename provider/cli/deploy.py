"""`deploy exporter`: prints what runs the exporter in a cluster, as YAML for `kubectl apply`. Loads no client of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pulumi_trainer.provider.cli import documents
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.names import dns_1123_label
from pulumi_trainer.provider.targets.kubernetes.preflight.rbac import (
    IDENTITY,
    NAME,
    Subject,
    job_permissions,
    objects,
    usage_permissions,
)

Document = dict[str, Any]
PORT = 9400
_RESOURCES = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
_CONTAINER = {
    "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True,
}  # fmt: skip
_POD = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
ALERTS = (
    (
        "PulumiTrainerNoProgress",
        "changes(pulumi_trainer_job_progress_ratio[1h]) == 0 and pulumi_trainer_job_progress_ratio offset 1h >= 0",
        "10m",
        "{{ $labels.namespace }}/{{ $labels.job }} has reported no progress for an hour",
    ),
    (
        "PulumiTrainerQueueInactive",
        "pulumi_trainer_queue_active == 0",
        "10m",
        "ClusterQueue {{ $labels.cluster_queue }} admits nothing: `pulumi-trainer queues` names the reason",
    ),
    (
        "PulumiTrainerQueueStuck",
        "pulumi_trainer_queue_waiting_workloads > 0 and pulumi_trainer_queue_admitted_workloads == 0",
        "1h",
        "jobs have been waiting in ClusterQueue {{ $labels.cluster_queue }} for an hour, and none has its quota",
    ),
    (
        "PulumiTrainerExporterBlind",
        "pulumi_trainer_exporter_kind_readable == 0",
        "10m",
        "the exporter cannot watch {{ $labels.kind }}",
    ),
)
"""Name, expression, duration and summary of each alert."""


def print_exporter(namespace: str, image: str, *, monitored: bool) -> None:
    """Print the objects of the exporter. monitored: With a ServiceMonitor and alerts of the Prometheus Operator."""
    _check(namespace, image)
    name = f"{NAME}-exporter"
    argv = ["exporter", "-A", "--address", "0.0.0.0", "--port", str(PORT)]  # noqa: S104 - in a Pod
    made = [*_account(name, namespace), *_exporter(name, namespace, image, argv)]
    if monitored:
        made += _monitoring(name, namespace)
    documents.print_objects(made, "yaml")


def _check(namespace: str, image: str) -> None:
    wrong = [Problem("--namespace", f"{namespace!r}: {why}") for why in dns_1123_label(namespace)]
    if image.split() != [image]:
        wrong.append(Problem("IMAGE", f"is not the name of an image: {image!r}"))
    if wrong:
        raise Invalid(*wrong)


def _account(name: str, namespace: str) -> Iterator[Document]:
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(name, namespace)}
    subject = Subject("ServiceAccount", name, namespace)
    identity = [each for each in job_permissions() if each.names == (IDENTITY,)]
    yield from objects([*identity, *usage_permissions()], [], [subject], name=name)


def _exporter(name: str, namespace: str, image: str, argv: Sequence[str]) -> Iterator[Document]:
    metadata = _metadata(name, namespace)
    probe = {"httpGet": {"path": "/metrics", "port": "metrics"}, "periodSeconds": 30, "timeoutSeconds": 10}
    ports = [{"name": "metrics", "containerPort": PORT}]
    container = {**_container(image, argv), "ports": ports, "readinessProbe": probe, "env": _HOME}
    template = {"metadata": {"labels": metadata["labels"]}, "spec": _pod_spec(name, container)}
    selector = {"app.kubernetes.io/name": name}
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": selector},
        "template": template,
    }
    yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    exposed = {"selector": selector, "ports": [{"name": "metrics", "port": PORT, "targetPort": "metrics"}]}
    yield {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": exposed}


_HOME = [{"name": "HOME", "value": "/tmp"}]  # noqa: S108 - an emptyDir of the Pod


def _container(image: str, argv: Sequence[str]) -> Document:
    return {
        "name": "pulumi-trainer", "image": image, "args": [*argv], "resources": _RESOURCES, "securityContext": _CONTAINER,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108
    }  # fmt: skip


def _pod_spec(account: str, container: Mapping[str, Any]) -> Document:
    return {
        "serviceAccountName": account, "securityContext": _POD, "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }  # fmt: skip


def _monitoring(name: str, namespace: str) -> Iterator[Document]:
    metadata = _metadata(name, namespace)
    spec = {
        "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
        "endpoints": [{"port": "metrics", "interval": "30s"}],
    }
    yield {"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": metadata, "spec": spec}
    rules = []
    for alert, expression, duration, summary in ALERTS:
        about = {"labels": {"severity": "warning"}, "annotations": {"summary": summary}}
        rules.append({"alert": alert, "expr": expression, "for": duration, **about})
    groups = {"groups": [{"name": NAME, "rules": rules}]}
    yield {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": metadata, "spec": groups}


def _metadata(name: str, namespace: str) -> Document:
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": NAME}
    return {"name": name, "namespace": namespace, "labels": labels}
