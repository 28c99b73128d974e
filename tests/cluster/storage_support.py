"""StorageClasses and PersistentVolumes of a test; simulated nodes mount nothing, so a volume's path is never looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import Client

VOLUME = Kind("v1", "PersistentVolume", "persistentvolumes", False)


@contextmanager
def storage_class(
    root: Client, name: str, provisioner: str = "kubernetes.io/no-provisioner", volumes: int = 0
) -> Iterator[str]:
    """A class, and as many volumes of it as asked, which claims are bound to."""
    about = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    root.create(kinds.STORAGE_CLASS, {**about, "provisioner": provisioner, "allowVolumeExpansion": True})
    for i in range(volumes):
        spec: dict[str, Any] = {
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
            "storageClassName": name,
            "hostPath": {"path": "/nowhere"},
        }
        document = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"{name}-{i}"}, "spec": spec}
        root.create(VOLUME, document)
    try:
        yield name
    finally:
        root.delete(kinds.STORAGE_CLASS, "", name, propagation="Background")
        for i in range(volumes):
            root.patch(VOLUME, "", f"{name}-{i}", {"metadata": {"finalizers": None}})
            root.delete(VOLUME, "", f"{name}-{i}", propagation="Background")
