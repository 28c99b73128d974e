"""Volumes as folders: where each volume of a pod lies, and what is put into it before the pod starts.

    emptyDir               <job>/pods/<pod>/volumes/<name>, empty for each new pod
    configMap, downwardAPI,
    projected              the same, filled with files
    secret                 a folder in memory (/dev/shm), mode 0700, gone when the job ends; never on a disk
    persistentVolumeClaim  <root>/volumes/<namespace>/<claim>/data, made where it is missing
    hostPath               the path itself

Called by `plan` (where), `run` (contents) and `review` (what cannot be done).
"""

from __future__ import annotations

import base64
import errno
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from stat import S_IFDIR
from typing import Any

from pulumi_trainer.provider.api import code
from pulumi_trainer.provider.api.submission import Objects

from . import remote
from .environment import PodFacts, Texts
from .rewrite import Rewriter
from .store import remove_tree

KINDS = ("emptyDir", "configMap", "secret", "downwardAPI", "projected", "persistentVolumeClaim", "hostPath")
MEMORY = Path("/dev/shm")  # noqa: S108
"""A file system in memory, on Linux."""

Spec = Mapping[str, Any]


def pod_volumes(jobset: Spec, pod: Spec) -> list[dict[str, Any]]:
    """The pod's own volumes, and those that JobSet adds for `volumeClaimPolicies` (claim `<template>-<jobset>`)."""
    own = list(pod.get("volumes") or [])
    mounted = {m["name"] for c in containers(pod) for m in c.get("volumeMounts") or []}
    for template, _ in claim_templates(jobset):
        if template in mounted and all(v["name"] != template for v in own):
            claim = f"{template}-{jobset['metadata']['name']}"
            own.append({"name": template, "persistentVolumeClaim": {"claimName": claim}})
    return own


def claim_templates(jobset: Spec) -> list[tuple[str, bool]]:
    """Name of each template of `volumeClaimPolicies`, and whether its claim goes with the JobSet."""
    return [
        (template["metadata"]["name"], (policy.get("retentionPolicy") or {}).get("whenDeleted", "Delete") == "Delete")
        for policy in jobset["spec"].get("volumeClaimPolicies") or []
        for template in policy.get("templates") or []
    ]


def claims(jobset: Spec) -> set[str]:
    """Every claim that some pod of the JobSet mounts."""
    found = set()
    for job in jobset["spec"].get("replicatedJobs") or []:
        for volume in pod_volumes(jobset, job["template"]["spec"]["template"]["spec"]):
            if claim := volume.get("persistentVolumeClaim"):
                found.add(claim["claimName"])
    return found


def containers(pod: Spec) -> list[dict[str, Any]]:
    return [*(pod.get("initContainers") or []), *(pod.get("containers") or [])]


def claim_folder(root: Path, namespace: str, claim: str) -> Path:
    return root / "volumes" / namespace / claim


def memory_folder(uid: str) -> Path:
    """Where the secret volumes of a job lie."""
    return MEMORY / f"pulumi-trainer-{os.getuid()}-{uid}"


def make_private(folder: Path) -> None:
    """For our eyes only, also where somebody else has been there first. Raises OSError."""
    folder.mkdir(mode=0o700, exist_ok=True)
    stat = folder.lstat()
    if stat.st_uid != os.getuid() or stat.st_mode & 0o177777 != S_IFDIR | 0o700:
        raise PermissionError(errno.EPERM, "is not ours alone", str(folder))


def in_memory(volume: Spec) -> bool:
    """It holds a Secret, so it must not touch a disk."""
    sources = (volume.get("projected") or {}).get("sources") or []
    return bool(volume.get("secret")) or any(s.get("secret") for s in sources)


def location(volume: Spec, folder: Path, memory: Path, claims_folder: Path) -> Path:
    """folder: of the pod's volumes; memory: the same for secret ones; claims_folder: of the namespace's claims."""
    if claim := volume.get("persistentVolumeClaim"):
        return claims_folder / str(claim["claimName"]) / "data"
    if host := volume.get("hostPath"):
        return Path(host["path"])
    return (memory if in_memory(volume) else folder) / str(volume["name"])


def prepare(volume: Spec, place: Path, objects: Objects, secrets: Texts, facts: PodFacts, rewriter: Rewriter) -> None:
    """Makes the folder and puts in what the volume holds. OSErrors are the caller's."""
    if volume.get("hostPath"):
        return
    if volume.get("persistentVolumeClaim"):
        place.mkdir(parents=True, exist_ok=True)
        return
    remove_tree(place)
    place.mkdir(parents=True)
    for name, content, mode in files(volume, objects, secrets, facts):
        path = place / name
        content = _rewritten(path.name, content, rewriter)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)


def _rewritten(name: str, content: bytes, rewriter: Rewriter) -> bytes:
    """The files that are ours or Trainer's, and name paths or hosts; a user's own file stays as it is."""
    if name == remote.HOSTFILE:
        return rewriter.hosts(content.decode()).encode()
    if name not in (code.ARGS_FILE, code.LAUNCH_FILE):
        return content
    try:
        document = json.loads(content)
    except ValueError:
        return content
    done = rewriter.document(document)
    return content if done == document else json.dumps(done).encode()


def files(volume: Spec, objects: Objects, secrets: Texts, facts: PodFacts) -> Iterator[tuple[str, bytes, int]]:
    """Path, content and mode of each file of a configMap, secret, downwardAPI or projected volume."""
    projected = volume.get("projected") or {}
    for source in projected.get("sources") or [volume]:
        for kind in ("configMap", "secret", "downwardAPI"):
            if given := source.get(kind):
                default = given.get("defaultMode") or projected.get("defaultMode") or 0o644
                yield from _files(kind, given, default, objects, secrets, facts)


def _files(
    kind: str, given: Spec, default: int, objects: Objects, secrets: Texts, facts: PodFacts
) -> Iterator[tuple[str, bytes, int]]:
    if kind == "downwardAPI":
        for item in given.get("items") or []:
            if ref := item.get("fieldRef"):
                yield item["path"], facts.field(ref["fieldPath"]).encode(), item.get("mode") or default
        return
    name = given.get("secretName") or given.get("name", "")
    if kind == "secret":
        contents = {k: v.encode() for k, v in secrets.get(name, {}).items()}
    else:
        contents = config_files(objects, name)
    everything: list[dict[str, Any]] = [{"key": key, "path": key} for key in contents]
    for item in given.get("items") or everything:
        if item["key"] in contents:
            yield item["path"], contents[item["key"]], item.get("mode") or default


def config_files(objects: Objects, name: str) -> dict[str, bytes]:
    """Keys of a ConfigMap; empty where it is not one of the job's objects."""
    config = objects.get(f"ConfigMap/{name}") or {}
    texts = {k: str(v).encode() for k, v in (config.get("data") or {}).items()}
    return {**texts, **{k: base64.b64decode(v) for k, v in (config.get("binaryData") or {}).items()}}
