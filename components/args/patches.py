"""Runtime patches in typed arguments: what one manager changes in the runtime of one TrainJob, down to the container.

Fields are those of `RuntimePatch` in pkg/apis/trainer/v1alpha1/trainjob_types.go of kubeflow/trainer v2.3.0, with the
documents' empty levels left out; bounds are those of `provider/api/trainer.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi_trainer.args.arguments import Args, metadata
from pulumi_trainer.args.trainers import env_list
from pulumi_trainer.provider.kube.errors import Problem

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

    name: one that the runtime has. env: a mapping, or a list of EnvVars, at most 128; not for `node`,
    `dataset-initializer` and `model-initializer`, which take theirs from the TrainJob. volume_mounts: at most 128, each
    volume once. security_context: merged into the runtime's.
    """

    name: pulumi.Input[str] | None = None
    env: pulumi.Input[Mapping[str, pulumi.Input[str]]] | Sequence[Mapping[str, Any]] | None = None
    volume_mounts: pulumi.Input[Sequence[pulumi.Input[VolumeMount]]] | None = None
    security_context: pulumi.Input[SecurityContext] | None = None

    api = f"{POD_SPEC}.containers"
    converters = {"env": env_list}


class PodPatch(Args):
    """The pods of a step. Lists are merged with the runtime's by name, new items first; tolerations replace the runtime's.

    volumes: at most 128. init_containers, containers: at most 64 each. image_pull_secrets: at most 64. node_selector,
    affinity, security_context: merged. tolerations: at most 128. scheduling_gates: at most 16.
    termination_grace_period_seconds: at least 0. service_account_name: at most 253 characters; "" clears the runtime's.
    labels, annotations: of the pods.
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
        containers = self.containers if isinstance(self.containers, (list, tuple)) else ()
        for i, container in enumerate(containers):
            if isinstance(container, ContainerPatch) and container.name in OWN_ENV and container.env:
                why = f"the variables of container {container.name} cannot be patched"
                mend = "give them to the trainer" if container.name == "node" else "give them to the initializer"
                found.append(Problem(f"containers[{i}].env", why, mend))
        return found

    def document(self) -> dict[str, Any]:
        spec = Args.document(self)
        return {**metadata(spec.pop("labels", None), spec.pop("annotations", None)), **({"spec": spec} if spec else {})}


class JobPatch(Args):
    """A step of the runtime (`replicatedJobs[]`).

    name: one that the runtime has, such as node or launcher. labels, annotations: of its Jobs. pod: its pods.
    """

    name: pulumi.Input[str] | None = None
    labels: Strings | None = None
    annotations: Strings | None = None
    pod: pulumi.Input[PodPatch] | None = None

    places = {"template.spec.template": "pod", "template.metadata.": ""}

    def document(self) -> dict[str, Any]:
        plain = Args.document(self)
        template = metadata(plain.pop("labels", None), plain.pop("annotations", None))
        if pod := plain.pop("pod", None):
            template["spec"] = {"template": pod}
        return {**plain, **({"template": template} if template else {})}


class RuntimePatch(Args):
    """What one manager changes in the runtime (`spec.runtimePatches[]`); a TrainJob has at most 16.

    manager: who changes it, as a domain and a path such as acme.io/platform; each once in a TrainJob. labels, annotations:
    of the JobSet. jobs: its steps. Patches are merged in their order, after that of this program, which mounts code and
    volumes.
    """

    manager: pulumi.Input[str] | None = None
    labels: Strings | None = None
    annotations: Strings | None = None
    jobs: pulumi.Input[Sequence[JobPatch]] | None = None

    places = {"trainingRuntimeSpec.template.spec.replicatedJobs": "jobs", "trainingRuntimeSpec.template.metadata.": ""}

    def document(self) -> dict[str, Any]:
        plain = Args.document(self)
        template = metadata(plain.pop("labels", None), plain.pop("annotations", None))
        if jobs := plain.pop("jobs", None):
            template["spec"] = {"replicatedJobs": jobs}
        return {**plain, **({"trainingRuntimeSpec": {"template": template}} if template else {})}
