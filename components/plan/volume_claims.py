"""The volumes of the program: outputs of TrainJobs, fetched data, and their mounts in pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

import pulumi
from pulumi_trainer.args.arguments import Args, shown_value
from pulumi_trainer.plan.outputs import restore_outputs
from pulumi_trainer.provider.engine import dynamic
from pulumi_trainer.provider.kubernetes.errors import Problem, problems_below
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kubernetes.values.quantity import quantity_problems
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.targets import queries

ONE, MANY = "ReadWriteOnce", "ReadWriteMany"
ACCESS_MODES = (ONE, MANY, "ReadWriteOncePod")
"""Access modes of volumes that jobs write to."""


class VolumeArgs(Args):
    """The claim of a volume in a cluster; on this machine a volume is a folder.

    Args:
        size: Size of the claim as a quantity; default: 20Gi. Ignored on this machine.
        storage_class: StorageClass; default: that of the cluster. Ignored on this machine.
        access_mode: Access mode; default: ReadWriteOnce, or ReadWriteMany if more than one node mounts the volume.
    """

    size: pulumi.Input[str] | None = None
    storage_class: pulumi.Input[str] | None = None
    access_mode: pulumi.Input[str] | None = None

    def check(self) -> list[Problem]:
        found = super().check()
        found += problems_below("size", quantity_problems(self.size))
        for name in ("size", "storage_class"):
            value = self.__dict__.get(name)
            if value is not None and not isinstance(value, (str, int, float, pulumi.Output)):
                found.append(Problem(name, f"must be a string, not {type(value).__name__}"))
        mode = self.access_mode
        if mode is not None and not isinstance(mode, pulumi.Output) and mode not in ACCESS_MODES:
            found.append(Problem("access_mode", f"must be one of {', '.join(ACCESS_MODES)}, not {mode!r}"))
        return found

    def output_problems(self, claim: Mapping[str, Any]) -> list[Problem]:
        """Return the problems of the fields that are Outputs, as far as their values are known. claim: `claim`, resolved."""
        names = {"size": "size", "storage_class": "storageClass", "access_mode": "accessMode"}
        resolved = {}
        for argument, name in names.items():
            value = claim.get(name)
            is_output = isinstance(self.__dict__.get(argument), pulumi.Output)
            if is_output and not isinstance(value, Unknown):
                resolved[argument] = value
        return VolumeArgs(**resolved).check()

    def claim(self, *, several: bool) -> dict[str, Any]:
        """Return the spec of the claim."""
        given = {"size": self.size, "storageClass": self.storage_class, "accessMode": self.access_mode}
        found = {k: v for k, v in given.items() if v is not None}
        if "accessMode" in found:
            return {**found, "chosen": True}
        if several:
            return {**found, "accessMode": MANY}
        return {**found, "accessMode": ONE}


class OutputVolume(VolumeArgs):
    """The volume at /workspace/output of a TrainJob. It belongs to the TrainJob as a resource and outlives restarts and
    replacements.

    Args:
        size: Size of the claim as a quantity; default: 20Gi. Ignored on this machine.
        storage_class: StorageClass; default: that of the cluster. Ignored on this machine.
        access_mode: Access mode; default: ReadWriteOnce, or ReadWriteMany if more than one node mounts the volume.
        retain: Whether to keep the volume when the TrainJob is destroyed; default: False, unless the TrainJob has the
            option `retain_on_delete`.
    """

    retain: bool | None = None

    def check(self) -> list[Problem]:
        found = super().check()
        if not isinstance(self.retain, (bool, NoneType)):
            found.append(Problem("retain", f"must be True or False, not {shown_value(self.retain)}"))
        return found


@dataclass(frozen=True)
class Claim:
    """A volume that a job needs and that outlives its runs.

    Attributes:
        digest: Another digest replaces the volume; a renamed stack does not.
        spec: Spec of the claim in a cluster (`VolumeArgs.claim`); empty on this machine.
        unknown: Token of an unknown leaf of `spec` -> its Output.
    """

    resource_name: str
    name: str
    digest: str = ""
    retain: bool = False
    spec: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[str, pulumi.Output[Any]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Return "Kind/name" of the claim."""
        return f"PersistentVolumeClaim/{self.name}"

    def review(
        self, target: Mapping[str, Any], namespace: Any, job: str, owner: str, *, adopt: bool
    ) -> tuple[list[Problem], list[Problem]]:
        """Return the cluster's problems and warnings for the claim."""
        if not self.spec or not isinstance(namespace, str) or first_unknown(dict(self.spec)):
            return [], []
        return queries.review_volume(target, namespace, self.name, self.spec, job, owner, adopt=adopt)

    def resource(
        self,
        target: Any,
        namespace: Any,
        parent: pulumi.Resource,
        depends_on: pulumi.Resource,
        urn: str,
        *,
        adopt: bool = False,
    ) -> dynamic.Volume:
        """Return the volume as a resource; its `name` stays the one of its creation.

        Args:
            urn: URN of the job's component, which the state names as the owner.
            adopt: Whether the job may belong to another owner; default: it may not.
        """
        options = pulumi.ResourceOptions(parent=parent, depends_on=[depends_on], retain_on_delete=self.retain)
        claim = None
        if self.spec:
            kept = {"retain": True} if self.retain else {}
            claim = restore_outputs({**self.spec, **kept}, dict(self.unknown))
        inputs = dynamic.VolumeInputs(
            namespace=namespace,
            name=self.name,
            digest=self.digest,
            target=target,
            retain=self.retain,
            adopt=adopt,
            claim=claim,
            component=urn,
        )
        return dynamic.Volume(self.resource_name, inputs, options)


class FetchedData:
    """A dataset or a model of the program that jobs mount. volume: Name of its claim, once all of the data is in it."""

    label: str
    where: str
    volume: pulumi.Output[str]
    claim: Claim | None = None
    writable: bool


def pod_volume(name: str, claim: Any, read_only: bool = False) -> dict[str, Any]:
    """Return a pod's volume for a claim."""
    source = {"claimName": claim}
    if read_only:
        source["readOnly"] = True
    return {"name": name, "persistentVolumeClaim": source}


def mount(name: str, path: str, *, read_only: bool = False, folder: str = "") -> dict[str, Any]:
    """Return a container's mount."""
    found: dict[str, Any] = {"name": name, "mountPath": path}
    if read_only:
        found["readOnly"] = True
    if folder:
        found["subPath"] = folder
    return found


def count_mounting_pods(jobset: Mapping[str, Any], claim: Any) -> int:
    """Return how many pods of a rendered JobSet mount a claim."""
    found = 0
    for job in jobs_of(jobset):
        mounted = [section(volume, "persistentVolumeClaim").get("claimName") for volume in job.pod.volumes]
        if claim not in mounted:
            continue
        pods = job.pods
        if pods is None:
            pods = 1
        found += pods
    return found
