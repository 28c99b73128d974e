"""What a runtime says about frameworks and gangs: `ml_policy` and `pod_group_policy` in typed arguments.

One class a policy of the API, with the fields and defaults of pkg/apis/trainer/v1alpha1/trainingruntime_types.go of
kubeflow/trainer v2.3.0; bounds are those of `provider/api/trainer.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import pulumi
from pulumi_trainer.args.arguments import Args


class MLPolicy(Args):
    """Base of the policies for a framework (`spec.mlPolicy`).

    framework: the policy's name in `spec.mlPolicy`, and the runtime's label `trainer.kubeflow.org/framework` where the
    runtime gives none. num_nodes: of jobs that don't say; default 1.
    """

    num_nodes: pulumi.Input[int] | None = None

    framework: ClassVar[str] = ""

    def document(self) -> dict[str, Any]:
        plain = Args.document(self)
        nodes = {"numNodes": plain.pop("numNodes")} if "numNodes" in plain else {}
        return {**nodes, self.framework: self.policy(plain)} if self.framework else nodes

    def policy(self, plain: dict[str, Any]) -> dict[str, Any]:
        """The policy's own part of the document."""
        return plain

    def place(self, where: str) -> str:
        own = where.removeprefix(f"{self.framework}.")
        return "" if own == self.framework else super().place(own)


class PlainPolicy(MLPolicy):
    """No framework: nodes get what the TrainJob says and no more (`mlPolicy` without a framework)."""


class EnvInjectionTarget(Args):
    """Containers that get PET_* beside the main one (`mlPolicy.torch.envInjection.targets[]`).

    job_name: the step, at most one target each. container_names: 1 to 8 of its containers or init containers, other
    than `node`, which always gets them.
    """

    job_name: pulumi.Input[str] | None = None
    container_names: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None


class TorchPolicy(MLPolicy):
    """PyTorch: `torchrun`'s PET_* environment on every node (`mlPolicy.torch`).

    env_injection: containers beside `node` that get PET_* too; at most 16 targets.
    """

    env_injection: pulumi.Input[Sequence[EnvInjectionTarget]] | None = None

    framework = "torch"
    places = {"envInjection.targets": "env_injection"}

    def policy(self, plain: dict[str, Any]) -> dict[str, Any]:
        return {"envInjection": {"targets": plain["envInjection"]}} if "envInjection" in plain else {}


class MPIPolicy(MLPolicy):
    """MPI (`mlPolicy.mpi`): SSH keys in all pods of the steps `node` and `launcher`, and a hostfile at /etc/mpi/hostfile in
    the launcher. DeepSpeed and MLX run on it.

    num_proc_per_node: slots a node in the hostfile, at least 1; default 1. mpi_implementation: OpenMPI, the only one.
    ssh_auth_mount_path: where the keys are mounted, default /root/.ssh. run_launcher_as_node: the launcher trains as
    well; default false.
    """

    num_proc_per_node: pulumi.Input[int] | None = None
    mpi_implementation: pulumi.Input[Literal["OpenMPI"]] | None = None
    ssh_auth_mount_path: pulumi.Input[str] | None = None
    run_launcher_as_node: pulumi.Input[bool] | None = None

    framework = "mpi"


class JAXPolicy(MLPolicy):
    """JAX: JAX_NUM_PROCESSES, JAX_PROCESS_ID and JAX_COORDINATOR_ADDRESS on every node (`mlPolicy.jax`)."""

    framework = "jax"


class XGBoostPolicy(MLPolicy):
    """XGBoost: the tracker's DMLC_* environment on every node, a worker a GPU or else a node (`mlPolicy.xgboost`)."""

    framework = "xgboost"


class FluxPolicy(MLPolicy):
    """Flux: a broker in every node, and the job's command submitted to it (`mlPolicy.flux`). Every TrainJob has to say
    `num_nodes`.

    num_proc_per_node: tasks a node, at least 1; default 1.
    """

    num_proc_per_node: pulumi.Input[int] | None = None

    framework = "flux"


class PodGroupPolicy(Args):
    """Base of the policies for gangs: all pods of a job are scheduled together or none (`spec.podGroupPolicy`). In mode
    jobset those that start together: a gang does not wait for initializers.

    scheduler_name: the gang scheduler, for all pods of the runtime that name none; default: left to the template, as
    Trainer does, where pods without one go to the cluster's default scheduler.
    """

    scheduler_name: pulumi.Input[str] | None = None

    scheduler: ClassVar[str] = ""
    shipped = frozenset({"scheduler_name"})

    def document(self) -> dict[str, Any]:
        return {self.scheduler: Args.document(self)}

    def place(self, where: str) -> str:
        own = where.removeprefix(f"{self.scheduler}.")
        return "" if own == self.scheduler else super().place(own)

    def template(self, document: Any) -> Any:
        """The runtime's template as the policy wants it."""
        return document if self.scheduler_name is None else _in_pods(document, self._schedule)

    def _schedule(self, pod: dict[str, Any]) -> dict[str, Any]:
        return {**pod, "spec": {"schedulerName": self.scheduler_name, **pod["spec"]}}


class CoschedulingPolicy(PodGroupPolicy):
    """Gangs by the coscheduling plugin of Kubernetes' scheduler-plugins (`podGroupPolicy.coscheduling`).

    scheduler_name: `scheduler-plugins-scheduler`, as its chart calls it. schedule_timeout_seconds: how long a gang may wait
    for its last pod; default 60, and 0 means the default.
    """

    schedule_timeout_seconds: pulumi.Input[int] | None = None

    scheduler = "coscheduling"


class KAIPolicy(PodGroupPolicy):
    """Gangs by NVIDIA's KAI scheduler, which makes PodGroups of its own of the JobSets that it meets; nothing of it stands in
    `podGroupPolicy`, so that mode trainer knows it as well.

    queue: KAI's queue, the label `kai.scheduler/queue` of the JobSet and its pods; default: KAI's own. scheduler_name: default
    `kai-scheduler`. Where steps depend on others, the JobSet is marked so that each step is a gang by itself
    (`kai.scheduler/batch-min-member`; KAI looks at `startupPolicy` and not at `dependsOn`:
    https://github.com/kai-scheduler/KAI-Scheduler/blob/main/pkg/podgrouper/podgrouper/plugins/jobset/jobset_grouper.go).
    """

    queue: pulumi.Input[str] | None = None

    shipped = frozenset({"scheduler_name", "queue"})

    def document(self) -> dict[str, Any]:
        return {}

    def template(self, document: Any) -> Any:
        made = _in_pods(document, self._schedule)
        if not isinstance(made, Mapping):
            return made
        about, spec = made.get("metadata") or {}, made.get("spec")
        if isinstance(about, Mapping) and self.queue is not None:
            about = {**about, "labels": {KAI_QUEUE: self.queue, **(about.get("labels") or {})}}
        if isinstance(about, Mapping) and any(step.get("dependsOn") for step in _steps(spec)):
            about = {**about, "annotations": {KAI_LEAST: "1", **(about.get("annotations") or {})}}
        return {**made, "metadata": about} if about else made

    def _schedule(self, pod: dict[str, Any]) -> dict[str, Any]:
        name = "kai-scheduler" if self.scheduler_name is None else self.scheduler_name
        made = {**pod, "spec": {"schedulerName": name, **pod["spec"]}}
        about = pod.get("metadata") or {}
        if self.queue is not None and isinstance(about, Mapping):
            made["metadata"] = {**about, "labels": {KAI_QUEUE: self.queue, **(about.get("labels") or {})}}
        return made


KAI_QUEUE = "kai.scheduler/queue"
KAI_LEAST = "kai.scheduler/batch-min-member"


def _steps(spec: Any) -> list[Mapping[str, Any]]:
    jobs = spec.get("replicatedJobs") if isinstance(spec, Mapping) else None
    return [job for job in jobs if isinstance(job, Mapping)] if isinstance(jobs, (list, tuple)) else []


def _in_pods(template: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """A copy of a template with changed pod templates. What is not known yet, or not as it should be, stays."""
    if not isinstance(template, Mapping) or not _steps(template.get("spec")):
        return template

    def changed(job: Any) -> Any:
        inner = job.get("template") if isinstance(job, Mapping) else None
        spec = inner.get("spec") if isinstance(inner, Mapping) else None
        pod = spec.get("template") if isinstance(spec, Mapping) else None
        if not isinstance(inner, Mapping) or not isinstance(spec, Mapping) or not isinstance(pod, Mapping):
            return job
        if not isinstance(pod.get("spec"), Mapping):
            return job
        return {**job, "template": {**inner, "spec": {**spec, "template": change(dict(pod))}}}

    spec = template["spec"]
    return {**template, "spec": {**spec, "replicatedJobs": [changed(job) for job in spec["replicatedJobs"]]}}


class VolcanoNetworkTopology(Args):
    """How far apart a gang's nodes may be (`podGroupPolicy.volcano.networkTopology`).

    mode: hard (default): the gang waits until it fits; soft: as near as possible. highest_tier_allowed: the highest tier
    of the network that it may span; default 1.
    """

    mode: pulumi.Input[Literal["hard", "soft"]] | None = None
    highest_tier_allowed: pulumi.Input[int] | None = None


class VolcanoPolicy(PodGroupPolicy):
    """Gangs by Volcano (`podGroupPolicy.volcano`). The queue is the annotation `scheduling.volcano.sh/queue-name` of the
    template, the priority that of its pods. scheduler_name: `volcano`, as its chart calls it."""

    network_topology: pulumi.Input[VolcanoNetworkTopology] | None = None

    scheduler = "volcano"
