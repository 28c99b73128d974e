"""Runtime patches in typed arguments: what one manager changes in the runtime of one TrainJob, down to the container.

Fields are those of `RuntimePatch` in pkg/apis/trainer/v1alpha1/trainjob_types.go of kubeflow/trainer v2.3.0, with the
documents' empty levels left out; bounds are those of the CRDs and of `provider/trainer/admission/document_checks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi_trainer.args.arguments import Args, as_sequence, metadata
from pulumi_trainer.args.trainers import env_list
from pulumi_trainer.provider.kubernetes.errors import Problem

if TYPE_CHECKING:
    from pulumi_kubernetes.core.v1 import (
        AffinityArgs,
        LocalObjectReferenceArgs,
        PodSchedulingGateArgs,
        PodSecurityContextArgs,
        SecurityContextArgs,
        TolerationArgs,
        VolumeArgs,
        VolumeMountArgs,
    )

    Affinity = AffinityArgs | Mapping[str, Any]
    PodSecurityContext = PodSecurityContextArgs | Mapping[str, Any]
    PullSecret = LocalObjectReferenceArgs | Mapping[str, Any]
    SchedulingGate = PodSchedulingGateArgs | Mapping[str, Any]
    SecurityContext = SecurityContextArgs | Mapping[str, Any]
    Toleration = TolerationArgs | Mapping[str, Any]
    Volume = VolumeArgs | Mapping[str, Any]
    VolumeMount = VolumeMountArgs | Mapping[str, Any]

Strings = pulumi.Input[Mapping[str, pulumi.Input[str]]]

POD_SPEC = "TrainJob.spec.runtimePatches.trainingRuntimeSpec.template.spec.replicatedJobs.template.spec.template.spec"

OWN_ENV = ("node", "dataset-initializer", "model-initializer")
"""Containers whose variables come from the TrainJob's trainer and initializer, and from no patch."""


class ContainerPatch(Args):
    """A container or init container of the runtime.

    Args:
        name: Container of the runtime (`name`).
        env: Environment variables, as a mapping or a list of at most 128 EnvVars. Not for `node`, `dataset-initializer`
            and `model-initializer`, whose variables come from the TrainJob (`env`).
        volume_mounts: Volume mounts, at most 128, each volume once (`volumeMounts`).
        security_context: Security context, merged into the runtime's (`securityContext`).
    """

    name: pulumi.Input[str] | None = None
    env: pulumi.Input[Mapping[str, pulumi.Input[str]]] | Sequence[Mapping[str, Any]] | None = None
    volume_mounts: pulumi.Input[Sequence[pulumi.Input[VolumeMount]]] | None = None
    security_context: pulumi.Input[SecurityContext] | None = None

    api = f"{POD_SPEC}.containers"
    converters = {"env": env_list}


class PodPatch(Args):
    """The pods of a replicated job (`template.spec.template`).

    Lists are merged with the runtime's by name, new items first.

    Args:
        labels: Labels of the pods.
        annotations: Annotations of the pods.
        service_account_name: ServiceAccount, at most 253 characters; "" clears the runtime's (`serviceAccountName`).
        volumes: Volumes, at most 128 (`volumes`).
        init_containers: Patches of init containers, at most 64 (`initContainers`).
        containers: Patches of containers, at most 64 (`containers`).
        image_pull_secrets: Secrets for pulling images, at most 64 (`imagePullSecrets`).
        security_context: Security context, merged into the runtime's (`securityContext`).
        node_selector: Node labels, merged with the runtime's (`nodeSelector`).
        affinity: Affinity, merged with the runtime's (`affinity`).
        tolerations: Tolerations, at most 128, which replace the runtime's (`tolerations`).
        scheduling_gates: Scheduling gates, at most 16 (`schedulingGates`).
        termination_grace_period_seconds: Seconds between SIGTERM and SIGKILL, at least 0
            (`terminationGracePeriodSeconds`).
    """

    labels: Strings | None = None
    annotations: Strings | None = None
    service_account_name: pulumi.Input[str] | None = None
    volumes: pulumi.Input[Sequence[pulumi.Input[Volume]]] | None = None
    init_containers: pulumi.Input[Sequence[ContainerPatch]] | None = None
    containers: pulumi.Input[Sequence[ContainerPatch]] | None = None
    image_pull_secrets: pulumi.Input[Sequence[pulumi.Input[PullSecret]]] | None = None
    security_context: pulumi.Input[PodSecurityContext] | None = None
    node_selector: Strings | None = None
    affinity: pulumi.Input[Affinity] | None = None
    tolerations: pulumi.Input[Sequence[pulumi.Input[Toleration]]] | None = None
    scheduling_gates: pulumi.Input[Sequence[pulumi.Input[SchedulingGate]]] | None = None
    termination_grace_period_seconds: pulumi.Input[int] | None = None

    api = POD_SPEC
    places = {"metadata.": "", "spec.": ""}

    def check(self) -> list[Problem]:
        found = super().check()
        for i, container in enumerate(as_sequence(self.containers)):
            if isinstance(container, ContainerPatch) and container.name in OWN_ENV and container.env:
                why = f"Trainer does not allow patches of env for container {container.name}"
                hint = "set them in env of the initializer"
                if container.name == "node":
                    hint = "set them in env of the trainer"
                found.append(Problem(f"containers[{i}].env", why, hint))
        return found

    def document(self) -> dict[str, Any]:
        spec = Args.document(self)
        made = metadata(spec.pop("labels", None), spec.pop("annotations", None))
        if spec:
            made["spec"] = spec
        return made


class JobPatch(Args):
    """A replicated job of the runtime (`replicatedJobs[]`).

    Args:
        name: Replicated job of the runtime, such as node or launcher (`name`).
        labels: Labels of its Jobs.
        annotations: Annotations of its Jobs.
        pod: Patch of its pods (`template.spec.template`).
    """

    name: pulumi.Input[str] | None = None
    labels: Strings | None = None
    annotations: Strings | None = None
    pod: pulumi.Input[PodPatch] | None = None

    paths = {
        "labels": "template.metadata.labels",
        "annotations": "template.metadata.annotations",
        "pod": "template.spec.template",
    }


class RuntimePatch(Args):
    """What one manager changes in the runtime (`spec.runtimePatches[]`); a TrainJob has at most 16.

    Patches are merged in their order, after that of this program, which mounts code and volumes.

    Args:
        manager: Who changes it, as a domain and a path such as acme.io/platform; each once in a TrainJob (`manager`).
        labels: Labels of the JobSet.
        annotations: Annotations of the JobSet.
        jobs: Patches of replicated jobs.
    """

    manager: pulumi.Input[str] | None = None
    labels: Strings | None = None
    annotations: Strings | None = None
    jobs: pulumi.Input[Sequence[JobPatch]] | None = None

    paths = {
        "labels": "trainingRuntimeSpec.template.metadata.labels",
        "annotations": "trainingRuntimeSpec.template.metadata.annotations",
        "jobs": "trainingRuntimeSpec.template.spec.replicatedJobs",
    }
