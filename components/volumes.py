"""Volumes of the program: outputs of TrainJobs and what initializers have fetched, and how a pod mounts them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_trainer.provider import dynamic

from .arguments import Args

RUN_ENV = "TRAINER_RUN"
_RUN_LABEL = "metadata.labels['jobset.sigs.k8s.io/jobset-uid']"


class OutputVolume(Args):
    """The volume at /workspace/output of a TrainJob. It belongs to the TrainJob as a resource and outlives restarts and
    replacements.

    retain: keep it when the TrainJob is destroyed; default: it goes too.
    """

    retain: bool | None = None


@dataclass(frozen=True)
class Claim:
    """A volume that a job needs and that outlives its runs.

    digest: the volume is replaced when it changes, and by nothing else: not by a renamed stack.
    """

    resource_name: str
    name: str
    digest: str = ""
    retain: bool = False

    def resource(
        self, target: Any, namespace: Any, parent: pulumi.Resource, depends_on: pulumi.Resource, urn: str
    ) -> dynamic.Volume:
        """The volume as a resource; its `name` is the one it was once created with."""
        options = pulumi.ResourceOptions(parent=parent, depends_on=[depends_on], retain_on_delete=self.retain)
        props = {"namespace": namespace, "name": self.name, "digest": self.digest, "target": target}
        return dynamic.Volume(self.resource_name, {**props, "component": urn}, options)


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
