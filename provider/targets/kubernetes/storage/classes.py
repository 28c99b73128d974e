"""What is known of a cluster's StorageClasses before a volume is asked of them.

Whether a class can do what is asked only shows in events of a claim that stays Pending, so what is certain is said before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.kube.client import kinds
from pulumi_trainer.provider.kube.client.client import ApiError, Client
from pulumi_trainer.provider.kube.errors import Problem

MANY = "ReadWriteMany"
_DEFAULT = "storageclass.kubernetes.io/is-default-class"


@dataclass(frozen=True)
class OneNode:
    """A provisioner of volumes for one node at a time. source: where its authors say so. shared: the setting with which
    it serves several nodes all the same; no API tells whether it is made."""

    source: str
    shared: str = ""


ONE_NODE: Mapping[str, OneNode] = {
    "ebs.csi.aws.com": OneNode("https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volumes-multi.html"),
    "kubernetes.io/aws-ebs": OneNode("https://kubernetes.io/docs/concepts/storage/persistent-volumes/#access-modes"),
    "pd.csi.storage.gke.io": OneNode("https://cloud.google.com/kubernetes-engine/docs/concepts/persistent-volumes"),
    "kubernetes.io/gce-pd": OneNode("https://kubernetes.io/docs/concepts/storage/persistent-volumes/#access-modes"),
    "disk.csi.azure.com": OneNode("https://learn.microsoft.com/azure/aks/azure-csi-disk-storage-provision"),
    "kubernetes.io/azure-disk": OneNode("https://kubernetes.io/docs/concepts/storage/persistent-volumes/#access-modes"),
    "cinder.csi.openstack.org": OneNode("https://github.com/kubernetes/cloud-provider-openstack"),
    "dobs.csi.digitalocean.com": OneNode("https://docs.digitalocean.com/products/kubernetes/how-to/add-volumes/"),
    "csi.hetzner.cloud": OneNode("https://github.com/hetznercloud/csi-driver"),
    "linodebs.csi.linode.com": OneNode("https://github.com/linode/linode-blockstorage-csi-driver"),
    "rbd.csi.ceph.com": OneNode("https://docs.ceph.com/en/latest/rbd/rbd-kubernetes/"),
    "topolvm.io": OneNode("https://github.com/topolvm/topolvm/blob/main/docs/limitations.md"),
    "openebs.io/local": OneNode("https://openebs.io/docs/concepts/data-engines/localstorage"),
    "rancher.io/local-path": OneNode(
        "https://github.com/rancher/local-path-provisioner#definition", "sharedFileSystemPath in its configuration"
    ),
}
"""Provisioner -> why a file system of it cannot be mounted for writing by several nodes."""


Verdict = tuple[list[Problem], list[Problem]]
"""Refusals: certainly wrong. Warnings: wrong unless something comes with the program or is set elsewhere."""


def review(client: Client, where: str, storage_class: str, access_mode: str, *, chosen: bool) -> Verdict:
    """Whether a class can give a volume with that access mode. storage_class: empty for the cluster's default.
    chosen: the user wrote the access mode, and may know more than we do."""
    if (found := _classes(client)) is None:
        return [], []
    if storage_class and (missing := _missing(found, where, storage_class)):
        return [missing], []
    name, provisioner = _picked(found, storage_class)
    if not name:
        why = "names no StorageClass, and the cluster has no default one"
        mend = f"give storage_class= ({_names(found)})" if found else "make one, or a PersistentVolume"
        return [], [Problem(where, why, mend)]
    known = ONE_NODE.get(provisioner)
    if access_mode != MANY or known is None:
        return [], []
    why = f"several nodes mount it, which StorageClass {name} cannot do: {provisioner} serves one at a time ({known.source})"
    mend = "give storage_class= with a shared file system, such as NFS, CephFS, EFS, Filestore or Azure Files"
    if known.shared:
        mend = f"{mend}; with {known.shared}, say access_mode={MANY!r} yourself"
    problem = Problem(where, why, mend)
    return ([], [problem]) if known.shared and chosen else ([problem], [])


def missing(client: Client, where: str, storage_class: str) -> Problem | None:
    """What to say of a class that the cluster does not have."""
    found = _classes(client) if storage_class else None
    return None if found is None else _missing(found, where, storage_class)


def _classes(client: Client) -> list[dict[str, Any]] | None:
    """None where nobody may look."""
    try:
        return client.list(kinds.STORAGE_CLASS)[0]
    except ApiError as error:
        if error.code in (403, 404):
            return None
        raise


def _missing(classes: Sequence[Mapping[str, Any]], where: str, wanted: str) -> Problem | None:
    if wanted in map(_name, classes):
        return None
    return Problem(where, f"there is no StorageClass {wanted!r}", f"the cluster has {_names(classes) or 'none'}")


def _names(classes: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(sorted(map(_name, classes)))


def _picked(classes: Sequence[Mapping[str, Any]], wanted: str) -> tuple[str, str]:
    """Name and provisioner of the class that a claim gets; empty if there is none."""
    for found in classes:
        annotations = found["metadata"].get("annotations") or {}
        if _name(found) == wanted if wanted else annotations.get(_DEFAULT) == "true":
            return _name(found), str(found.get("provisioner"))
    return "", ""


def _name(document: Mapping[str, Any]) -> str:
    return str(document["metadata"]["name"])
