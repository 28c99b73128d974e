"""`deploy`: prints what runs the exporter or `doctor` in a cluster, as YAML for `kubectl apply`. Loads no client of a cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pulumi_trainer.provider.cli import documents
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document
from pulumi_trainer.provider.kubernetes.values.names import dns_1123_label, dns_1123_subdomain, name_problems
from pulumi_trainer.provider.targets.kubernetes.preflight.rbac import (
    IDENTITY,
    NAME,
    Permission,
    Subject,
    doctor_permissions,
    job_permissions,
    objects,
    usage_permissions,
)

PORT = 9400
_RESOURCES = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
_CONTAINER = {
    "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True,
}  # fmt: skip
_POD = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_KUBECONFIG = "/etc/pulumi-trainer"
_STACK = re.compile(r"[\w.-]+/[\w.-]+/[\w.-]+")
_BACKEND = re.compile(r"(?!file:)[a-z][a-z0-9+]*://\S+")
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
    made = [*_account(name, namespace, usage_permissions()), *_exporter(name, namespace, image, argv)]
    if monitored:
        monitor = {
            "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
            "endpoints": [{"port": "metrics", "interval": "30s"}],
        }
        metadata = _metadata(name, namespace)
        made.append({
            "apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": metadata, "spec": monitor,
        })  # fmt: skip
        made.append(_alerts(name, namespace, ALERTS))
    documents.print_objects(made, "yaml")


def print_doctor(namespace: str, image: str, stack: str, backend: str, secret: str, *, monitored: bool) -> None:
    """Print a CronJob that runs `doctor` for a stack each hour; its Job fails if something differs.

    Args:
        secret: Secret whose keys are the variables with the credentials of the backend.
    """
    wrong = name_problems("--secret", secret, dns_1123_subdomain)
    if not _STACK.fullmatch(stack):
        why = f"is not the full name of a stack: {stack!r}"
        wrong.append(Problem("--stack", why, "for example organization/platform/prod; `pulumi stack ls` lists them"))
    if not _BACKEND.fullmatch(backend):
        hint = "for example s3://states?region=eu-west-1, or https://api.pulumi.com"
        wrong.append(Problem("--backend", f"is not a URL that a Pod can reach: {backend!r}", hint))
    _check(namespace, image, wrong)
    name = f"{NAME}-doctor"
    made = [*_account(name, namespace, doctor_permissions()), *_doctor(name, namespace, image, stack, backend, secret)]
    if monitored:
        pattern = f'kube_job_status_failed{{namespace="{namespace}",job_name=~"{name}-.*"}} > 0'
        logs = f"`kubectl logs -n {namespace} job/{{{{ $labels.job_name }}}}`"
        summary = f"`pulumi-trainer doctor` of {stack} has found a difference, or could not look: {logs}"
        made.append(_alerts(name, namespace, [("PulumiTrainerDrift", pattern, "1m", summary)]))
    documents.print_objects(made, "yaml")


def _check(namespace: str, image: str, wrong: Sequence[Problem] = ()) -> None:
    found = name_problems("--namespace", namespace, dns_1123_label)
    if image.split() != [image]:
        found.append(Problem("IMAGE", f"is not the name of an image: {image!r}"))
    if found or wrong:
        raise Invalid(*found, *wrong)


def _account(name: str, namespace: str, permissions: Sequence[Permission]) -> Iterator[Document]:
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(name, namespace)}
    subject = Subject("ServiceAccount", name, namespace)
    identity = [each for each in job_permissions() if each.names == (IDENTITY,)]
    yield from objects([*identity, *permissions], [], [subject], name=name)


def _doctor(name: str, namespace: str, image: str, stack: str, backend: str, secret: str) -> Iterator[Document]:
    """Yield the CronJob, and the kubeconfig with its service account in place of the connection that the state names."""
    metadata = _metadata(name, namespace)
    cluster = {"server": "https://kubernetes.default.svc", "certificate-authority": f"{_ACCOUNT}/ca.crt"}
    kubeconfig = {
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"tokenFile": f"{_ACCOUNT}/token"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
    }  # fmt: skip
    data = {"config": json.dumps(kubeconfig, indent=2)}
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    argv = ["doctor", "-A", "--stack", stack, "--kubeconfig", f"{_KUBECONFIG}/config", "--context", name]
    container = _container(image, argv)
    container["env"] = [
        *_HOME, {"name": "PULUMI_BACKEND_URL", "value": backend}, {"name": "PULUMI_SKIP_UPDATE_CHECK", "value": "true"},
    ]  # fmt: skip
    container["envFrom"] = [{"secretRef": {"name": secret}}]
    container["volumeMounts"].append({"name": "kubeconfig", "mountPath": _KUBECONFIG})
    pod = {**_pod_spec(name, container), "restartPolicy": "Never"}
    pod["volumes"].append({"name": "kubeconfig", "configMap": {"name": name}})
    labels = {"labels": metadata["labels"]}
    # A failed Job stays until the next one has ended, so that an alert goes on until a Job has succeeded.
    job = {
        "backoffLimit": 0, "activeDeadlineSeconds": 900, "ttlSecondsAfterFinished": 4800,
        "template": {"metadata": labels, "spec": pod},
    }  # fmt: skip
    spec = {"schedule": "17 * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": {"metadata": labels, "spec": job}}
    yield {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}


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


def _alerts(name: str, namespace: str, alerts: Sequence[tuple[str, str, str, str]]) -> Document:
    """Return a PrometheusRule. alerts: Name, expression, duration and summary of each."""
    rules = []
    for alert, expression, duration, summary in alerts:
        about = {"labels": {"severity": "warning"}, "annotations": {"summary": summary}}
        rules.append({"alert": alert, "expr": expression, "for": duration, **about})
    groups = {"groups": [{"name": NAME, "rules": rules}]}
    metadata = _metadata(name, namespace)
    return {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": metadata, "spec": groups}


def _metadata(name: str, namespace: str) -> Document:
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": NAME}
    return {"name": name, "namespace": namespace, "labels": labels}
