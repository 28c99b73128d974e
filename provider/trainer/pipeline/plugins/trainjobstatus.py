"""TrainJobStatus: the address to which trainers report progress. Behind a feature gate of Trainer that is off by default.

Source: https://github.com/kubeflow/trainer/blob/8c0f5059bd51/pkg/runtime/framework/plugins/trainjobstatus/trainjobstatus.go
(2.3.0 writes these variables before or after those of the framework, at random)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.trainer.pipeline.apply import upsert
from pulumi_trainer.provider.trainer.pipeline.info import Info, TrainJob, metadata
from pulumi_trainer.provider.trainer.pipeline.interface import ComponentBuilderPlugin, EnforcePodSpecPlugin

SERVER = "https://kubeflow-trainer-controller-manager.kubeflow-system.svc:10443"
API = "trainer.kubeflow.org/v1alpha1"
FOLDER = "/var/run/secrets/kubeflow/trainer"
VOLUME = "kubeflow-trainer-token"
CERTIFICATE = "ca.crt"
TOKEN = "token"  # noqa: S105 - the name of a file
TOKEN_SECONDS = 3600


class TrainJobStatus(EnforcePodSpecPlugin, ComponentBuilderPlugin):
    """Mounts token and certificate for reports to Trainer's status server."""

    name = "TrainJobStatus"
    policies = ()

    def enforce_pod_spec(self, info: Info, train_job: TrainJob) -> None:
        """Set the variables and mounts in all containers of the trainer's Pods, sidecars included."""
        pod_set = info.trainer_pod_set
        if info.status_server_ca is None or pod_set is None:
            return
        unknown = first_unknown(train_job.namespace)
        path = unknown or f"{API}/namespaces/{train_job.namespace}/trainjobs/{train_job.name}/status"
        env = [
            {"name": "KUBEFLOW_TRAINER_SERVER_URL", "value": unknown or f"{SERVER}/apis/{path}"},
            {"name": "KUBEFLOW_TRAINER_SERVER_CA_CERT", "value": f"{FOLDER}/{CERTIFICATE}"},
            {"name": "KUBEFLOW_TRAINER_SERVER_TOKEN", "value": f"{FOLDER}/{TOKEN}"},
        ]
        mount = {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}
        for container in pod_set.containers:
            container.env = upsert(container.env, env, "name")
            container.volume_mounts = upsert(container.volume_mounts, [mount], "mountPath")
        token = {"audience": path, "expirationSeconds": TOKEN_SECONDS, "path": TOKEN}
        certificate = {"name": _config(train_job), "items": [{"key": CERTIFICATE, "path": CERTIFICATE}]}
        sources = [{"serviceAccountToken": token}, {"configMap": certificate}]
        pod_set.volumes = upsert(pod_set.volumes, [{"name": VOLUME, "projected": {"sources": sources}}], "name")

    def build(self, info: Info, train_job: TrainJob) -> Iterator[dict[str, Any]]:
        if info.status_server_ca is not None:
            name = metadata(_config(train_job), train_job)
            yield {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": name,
                "data": {CERTIFICATE: info.status_server_ca},
            }


def _config(train_job: TrainJob) -> str:
    return f"{train_job.name}-tls-config"
