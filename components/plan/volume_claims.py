"""Volumes of the program: outputs of TrainJobs and what initializers have fetched, and how a pod mounts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

import pulumi
from pulumi_trainer.args.arguments import Args, said
from pulumi_trainer.plan.outputs import put_back
from pulumi_trainer.provider import dynamic
from pulumi_trainer.provider.api.model import quantity_problems
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.values.unknown import first_unknown

RUN_ENV = "TRAINER_RUN"
_RUN_LABEL = "metadata.labels['jobset.sigs.k8s.io/jobset-uid']"


ONE, MANY = "ReadWriteOnce", "ReadWriteMany"
ACCESS_MODES = (ONE, MANY, "ReadWriteOncePod")
"""Of volumes that are written to."""


class VolumeArgs(Args):
    """What a cluster is asked for; on this machine a volume is a folder, and none of it matters.

    size: default 20Gi. storage_class: default the cluster's. access_mode: default ReadWriteOnce, and ReadWriteMany where
    more than one node mounts the volume.
    """

    size: pulumi.Input[str] | None = None
    storage_class: pulumi.Input[str] | None = None
    access_mode: pulumi.Input[str] | None = None

    def check(self) -> list[Problem]:
        found = super().check()
        found += [p.below("size") for p in quantity_problems(self.size)]
        for name in ("size", "storage_class"):
            value = self.__dict__.get(name)
            if value is not None and not isinstance(value, (str, int, float, pulumi.Output)):
                found.append(Problem(name, f"must be a string, not {type(value).__name__}"))
        mode = self.access_mode
        if mode is not None and not isinstance(mode, pulumi.Output) and mode not in ACCESS_MODES:
            found.append(Problem("access_mode", f"must be one of {', '.join(ACCESS_MODES)}, not {mode!r}"))
        return found

    def claim(self, *, several: bool) -> dict[str, Any]:
        """What stands in a claim; several: more than one node mounts it."""
        given = {"size": self.size, "storageClass": self.storage_class, "accessMode": self.access_mode}
        found = {k: v for k, v in given.items() if v is not None}
        return {**found, "chosen": True} if "accessMode" in found else {**found, "accessMode": MANY if several else ONE}


class OutputVolume(VolumeArgs):
    """The volume at /workspace/output of a TrainJob. It belongs to the TrainJob as a resource and outlives restarts and
    replacements.

    retain: keep it when the TrainJob is destroyed; default: it goes too. The others are of `VolumeArgs`.
    """

    retain: bool | None = None

    def check(self) -> list[Problem]:
        found = super().check()
        if not isinstance(self.retain, (bool, NoneType)):
            found.append(Problem("retain", f"must be True or False, not {said(self.retain)}"))
        return found


@dataclass(frozen=True)
class Claim:
    """A volume that a job needs and that outlives its runs.

    digest: the volume is replaced when it changes, and by nothing else: not by a renamed stack. former: the digest by which an
    earlier version made the volume, where that was another one. spec: what a cluster is
    asked for (`VolumeArgs.claim`), its unknown values in `unknown`; empty on this machine.
    """

    resource_name: str
    name: str
    digest: str = ""
    former: str = ""
    retain: bool = False
    spec: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[str, pulumi.Output[Any]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Among the objects of a cluster."""
        return f"PersistentVolumeClaim/{self.name}"

    def review(
        self, target: Mapping[str, Any], namespace: Any, job: str, owner: str, *, adopt: bool
    ) -> tuple[list[Problem], list[Problem]]:
        """What a cluster cannot give, and what it warns of. job: which mounts it. owner: URN of its component. adopt: whether
        the job may be one that others have made."""
        if not self.spec or not isinstance(namespace, str) or first_unknown(dict(self.spec)):
            return [], []
        return dynamic.review_volume(target, namespace, self.name, self.spec, job, owner, adopt=adopt)

    def resource(
        self, target: Any, namespace: Any, parent: pulumi.Resource, depends_on: pulumi.Resource, urn: str
    ) -> dynamic.Volume:
        """The volume as a resource; its `name` is the one it was once created with."""
        options = pulumi.ResourceOptions(parent=parent, depends_on=[depends_on], retain_on_delete=self.retain)
        props = {"namespace": namespace, "name": self.name, "digest": self.digest, "target": target}
        if self.former:
            props["formerDigest"] = self.former
        if self.retain:
            props["retain"] = True
        if self.spec:
            props["claim"] = put_back({**self.spec, **({"retain": True} if self.retain else {})}, dict(self.unknown))
        return dynamic.Volume(self.resource_name, {**props, "component": urn}, options)


class FetchedData:
    """A dataset or a model of the program that jobs mount.

    label: its name in the program. where: it stands there. volume: name of its claim, once all of the data is in it. claim: what
    is asked of a target, once that is decided. writable: whether jobs may change the data.
    """

    label: str
    where: str
    volume: pulumi.Output[str]
    claim: Claim | None = None
    writable: bool


def pod_volume(name: str, claim: Any, read_only: bool = False) -> dict[str, Any]:
    """A pod's volume for a claim."""
    return {"name": name, "persistentVolumeClaim": {"claimName": claim, **({"readOnly": True} if read_only else {})}}


def mount(name: str, path: str, *, read_only: bool = False, run_folder: bool = False) -> dict[str, Any]:
    """A container's mount; run_folder: a folder of its own for each run, named by the JobSet's uid."""
    extra: dict[str, Any] = {"readOnly": True} if read_only else {}
    if run_folder:
        extra["subPathExpr"] = f"$({RUN_ENV})"
    return {"name": name, "mountPath": path, **extra}


def run_env() -> dict[str, Any]:
    """The variable that `run_folder` needs."""
    return {"name": RUN_ENV, "valueFrom": {"fieldRef": {"fieldPath": _RUN_LABEL}}}


def mounters(jobset: Mapping[str, Any], claim: Any) -> int:
    """How many pods of a rendered JobSet mount a claim."""
    found = 0
    for job in jobset["spec"]["replicatedJobs"]:
        spec = job["template"]["spec"]
        mounted = [v["persistentVolumeClaim"]["claimName"] for v in _volumes(spec) if v.get("persistentVolumeClaim")]
        counts = [job.get("replicas", 1), spec.get("parallelism", 1)]
        if claim in mounted:
            found += counts[0] * counts[1] if all(isinstance(n, int) for n in counts) else 1
    return found


def _volumes(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    volumes = spec["template"]["spec"].get("volumes")
    return [v for v in volumes if isinstance(v, dict)] if isinstance(volumes, list) else []
