"""Prepares the volumes of a pod as folders.

emptyDir               <job>/pods/<pod>/volumes/<name>, empty for each new pod
configMap, downwardAPI,
projected              the same, filled with files
secret                 a folder in memory (/dev/shm), mode 0700, removed when the job ends; never on a disk
persistentVolumeClaim  <root>/volumes/<namespace>/<claim>/data, created if it is missing
hostPath               the path itself
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from stat import S_IMODE, S_IWGRP, S_IWOTH, S_IWUSR
from typing import Any

from pulumi_trainer.provider.jobs.submission import Objects
from pulumi_trainer.provider.kubernetes.views import Pod, jobs_of
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.targets.local import remote
from pulumi_trainer.provider.targets.local.environment import PodFacts, Texts
from pulumi_trainer.provider.targets.local.paths import FILE_MODE, inside, make_folder, remove_tree
from pulumi_trainer.provider.targets.local.rewrite import Rewriter

KINDS = ("emptyDir", "configMap", "secret", "downwardAPI", "projected", "persistentVolumeClaim", "hostPath")
MEMORY = Path("/dev/shm")  # noqa: S108
"""A file system in memory, on Linux."""

Spec = Mapping[str, Any]


def pod_volumes(jobset: Spec, pod: Spec) -> list[dict[str, Any]]:
    """Return the pod's own volumes, and those that JobSet adds for `volumeClaimPolicies` (claim `<template>-<jobset>`)."""
    own = list(pod.get("volumes") or [])
    mounted = {mount["name"] for mount in Pod({**pod}).mounts}
    for template, _ in claim_templates(jobset):
        if template in mounted and all(v["name"] != template for v in own):
            claim = _claim_name(template, jobset["metadata"]["name"])
            own.append({"name": template, "persistentVolumeClaim": {"claimName": claim}})
    return own


def claim_templates(jobset: Spec) -> list[tuple[str, bool]]:
    """Return the name of each template of `volumeClaimPolicies`, and whether its claim is deleted with the JobSet."""
    found = []
    for policy in jobset["spec"].get("volumeClaimPolicies") or []:
        deleted = (policy.get("retentionPolicy") or {}).get("whenDeleted", "Delete") == "Delete"
        for template in policy.get("templates") or []:
            found.append((template["metadata"]["name"], deleted))
    return found


def template_claims(jobset: Spec, name: str) -> list[tuple[str, bool]]:
    """Return the claims of a JobSet's `volumeClaimPolicies`, and whether each is deleted with the JobSet."""
    return [(_claim_name(template, name), goes) for template, goes in claim_templates(jobset)]


def _claim_name(template: str, jobset: str) -> str:
    return f"{template}-{jobset}"


def claims(jobset: Spec, steps: Collection[str] | None = None) -> set[str]:
    """Return the names of all claims that pods of a JobSet mount. steps: Names of the replicated jobs that count; None for
    all."""
    found = set()
    for job in jobs_of(jobset):
        if steps is not None and job.name not in steps:
            continue
        for volume in pod_volumes(jobset, job.pod.spec):
            claim = volume.get("persistentVolumeClaim")
            if claim:
                found.add(claim["claimName"])
    return found


def claim_folder(root: Path, namespace: str, claim: str) -> Path:
    return root / "volumes" / namespace / claim


def memory_folder(uid: str) -> Path:
    return inside(MEMORY, f"pulumi-trainer-{os.getuid()}-{uid}")


def mpi_folder(uid: str) -> Path:
    """Return the folder of the nodes' sockets and of what the daemons of `mpirun` write."""
    return memory_folder(uid) / "mpi"


def host_paths(jobset: Spec) -> list[Path]:
    """Return the hostPaths of all pods of a JobSet, a folder before those within it."""
    found = list[Path]()
    for job in jobs_of(jobset):
        found += [Path(v["hostPath"]["path"]) for v in pod_volumes(jobset, job.pod.spec) if v.get("hostPath")]
    return sorted(found, key=lambda path: len(path.parts))


def in_memory(volume: Spec) -> bool:
    """Return whether a volume contains a Secret, so that it must not be written to a disk."""
    sources = (volume.get("projected") or {}).get("sources") or []
    return bool(volume.get("secret")) or any(s.get("secret") for s in sources)


def location(volume: Spec, folder: Path, memory: Path, claims_folder: Path) -> Path:
    claim = volume.get("persistentVolumeClaim")
    if claim:
        return inside(claims_folder, str(claim["claimName"]), "data")
    host = volume.get("hostPath")
    if host:
        return Path(host["path"])
    if in_memory(volume):
        return inside(memory, str(volume["name"]))
    return inside(folder, str(volume["name"]))


def prepare(
    volume: Spec, place: Path, root: Path, objects: Objects, secrets: Texts, facts: PodFacts, rewriter: Rewriter
) -> None:
    """Create the folder of a volume and its files.

    Args:
        root: The folder below which the volume is created.
        rewriter: Rewrites the files of this package and of Trainer.
    """
    if volume.get("hostPath"):
        return
    claim = volume.get("persistentVolumeClaim")
    if claim:
        make_folder(place, root)
        if code.manifest_of(place).exists():
            set_writable(place, not claim.get("readOnly"))
        return
    inside(root, *place.relative_to(root).parts[:-1])
    remove_tree(place)
    make_folder(place, root)
    for name, content, mode in files(volume, objects, secrets, facts):
        path = inside(place, name)
        make_folder(path.parent, root)
        flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, FILE_MODE), "wb") as file:
            file.write(_rewritten(path.name, content, rewriter))
        path.chmod(mode)


def set_writable(data: Path, writable: bool) -> None:
    """Remove or restore the write permission of a claim's data, because a folder cannot be mounted read-only.

    Only used for fetched data, which only the fetch writes.
    """
    if bool(data.stat().st_mode & S_IWUSR) == writable:  # the folder is changed last, so its content is done
        return
    for folder, _, files in os.walk(data, topdown=False):
        for path in (*(Path(folder, name) for name in files), Path(folder)):
            if path.is_symlink():
                continue
            mode = S_IMODE(path.stat().st_mode)
            if writable:
                path.chmod(mode | S_IWUSR)
            else:
                path.chmod(mode & ~(S_IWUSR | S_IWGRP | S_IWOTH))


def _rewritten(name: str, content: bytes, rewriter: Rewriter) -> bytes:
    """Return the content of a file with rewritten paths or hosts; files of users do not change."""
    if name == remote.HOSTFILE:
        return rewriter.hosts(content.decode()).encode()
    if name not in (code.ARGS_FILE, code.LAUNCH_FILE):
        return content
    try:
        document = json.loads(content)
    except ValueError:
        return content
    rewritten = rewriter.document(document)
    if rewritten == document:
        return content
    return json.dumps(rewritten).encode()


def files(volume: Spec, objects: Objects, secrets: Texts, facts: PodFacts) -> Iterator[tuple[str, bytes, int]]:
    """Yield path, content and mode of each file of a configMap, secret, downwardAPI or projected volume."""
    projected = volume.get("projected") or {}
    for source in projected.get("sources") or [volume]:
        for kind in ("configMap", "secret", "downwardAPI"):
            given = source.get(kind)
            if given:
                default = given.get("defaultMode") or projected.get("defaultMode") or 0o644
                yield from _files(kind, given, default, objects, secrets, facts)


def _files(
    kind: str, given: Spec, default: int, objects: Objects, secrets: Texts, facts: PodFacts
) -> Iterator[tuple[str, bytes, int]]:
    if kind == "downwardAPI":
        for item in given.get("items") or []:
            ref = item.get("fieldRef")
            if ref:
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
    """Return key -> content of a ConfigMap; {} if it is not an object of the job."""
    config = objects.get(f"ConfigMap/{name}") or {}
    contents = {k: str(v).encode() for k, v in (config.get("data") or {}).items()}
    for key, value in (config.get("binaryData") or {}).items():
        if isinstance(value, bytes):
            contents[key] = value
        else:
            contents[key] = base64.b64decode(value)
    return contents
