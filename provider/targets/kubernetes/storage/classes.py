"""Checks whether a StorageClass can provide a volume, before the claim is created.

Otherwise only the events of a claim that stays Pending would show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import section

MANY = "ReadWriteMany"
_DEFAULT = "storageclass.kubernetes.io/is-default-class"


@dataclass(frozen=True)
class OneNode:
    """A provisioner of volumes that only one node can mount at a time.

    Args:
        shared: The provisioner's setting that lets several nodes mount a volume; no API shows it. Empty if none.
    """

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
"""Provisioner -> why several nodes cannot mount one of its file systems for writing."""


Verdict = tuple[list[Problem], list[Problem]]
"""Refusals: certainly wrong. Warnings: wrong unless something comes with the program or is set elsewhere."""


def review(client: Client, where: str, storage_class: str, access_mode: str, *, chosen: bool) -> Verdict:
    """Return whether a class can provide a volume with that access mode, as refusals and warnings. chosen: Whether the user has
    set the access mode, and may know more about the class."""
    found = _classes(client)
    if found is None:
        return [], []
    if storage_class:
        absent = _missing(found, where, storage_class)
        if absent:
            return [absent], []
    name, provisioner = _picked(found, storage_class)
    if not name:
        return [], [_no_default(found, where)]
    known = ONE_NODE.get(provisioner)
    if access_mode != MANY or known is None:
        return [], []
    why = (
        f"several nodes mount it, which StorageClass {name} does not support: {provisioner} serves one node at a"
        f" time ({known.source})"
    )
    hint = "give storage_class= with a shared file system, such as NFS, CephFS, EFS, Filestore or Azure Files"
    if known.shared:
        hint = f"{hint}; with {known.shared}, set access_mode={MANY!r} yourself"
    problem = Problem(where, why, hint)
    if known.shared and chosen:
        return [], [problem]
    return [problem], []


def explain_unbound(client: Client, namespace: str, claims: Sequence[str]) -> Problem | None:
    """Return why one of the claims of a Pod is not bound; None if all are, or if it cannot be known."""
    found = _classes(client)
    for name in claims:
        where = f"PersistentVolumeClaim {name}"
        claim = client.get(kinds.CLAIM, namespace, name)
        if claim is None:
            return Problem(where, "does not exist", "create it: the Pods wait for it")
        wanted = section(claim, "spec").get("storageClassName")
        if found is None or wanted == "" or section(claim, "status").get("phase") == "Bound":
            continue
        if wanted is None and not _picked(found, "")[0]:
            return _no_default(found, where)
        if wanted is not None and _missing(found, where, wanted):
            return _missing(found, where, wanted)
    return None


def missing(client: Client, where: str, storage_class: str) -> Problem | None:
    """Return the problem that the cluster does not have a class; None if it does, or if classes may not be listed."""
    if not storage_class:
        return None
    found = _classes(client)
    if found is None:
        return None
    return _missing(found, where, storage_class)


def _classes(client: Client) -> list[dict[str, Any]] | None:
    """Return the StorageClasses; None if they may not be listed."""
    try:
        return client.list(kinds.STORAGE_CLASS)[0]
    except ApiError as error:
        if error.code in (403, 404):
            return None
        raise


def _missing(classes: Sequence[Mapping[str, Any]], where: str, wanted: str) -> Problem | None:
    if wanted in map(_name, classes):
        return None
    return Problem(where, f"StorageClass {wanted!r} does not exist", f"the cluster has {_names(classes) or 'none'}")


def _no_default(classes: Sequence[Mapping[str, Any]], where: str) -> Problem:
    hint = "create a StorageClass or a PersistentVolume"
    if classes:
        hint = f"give storage_class= ({_names(classes)})"
    return Problem(where, "names no StorageClass, and the cluster has no default one", hint)


def _names(classes: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(sorted(map(_name, classes)))


def _picked(classes: Sequence[Mapping[str, Any]], wanted: str) -> tuple[str, str]:
    """Return name and provisioner of the class that a claim gets; empty strings if none."""
    for found in classes:
        if wanted:
            is_picked = _name(found) == wanted
        else:
            annotations = found["metadata"].get("annotations") or {}
            is_picked = annotations.get(_DEFAULT) == "true"
        if is_picked:
            return _name(found), str(found.get("provisioner"))
    return "", ""


def _name(document: Mapping[str, Any]) -> str:
    return str(document["metadata"]["name"])
