"""The arguments `ml_policy` and `pod_group_policy` of a runtime: one class for each policy of the API.

Fields and defaults are those of pkg/apis/trainer/v1alpha1/trainingruntime_types.go of kubeflow/trainer v2.3.0; bounds are those
of the CRDs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import pulumi
from pulumi_trainer.args.arguments import Args, as_mapping, as_sequence
from pulumi_trainer.provider.trainer.labels import KAI_QUEUE, KAI_SCHEDULER


class MLPolicy(Args):
    """Base of the policies for a framework (`spec.mlPolicy`).

    Attributes:
        framework: Name of the policy in `spec.mlPolicy`, and default of the runtime's label `trainer.kubeflow.org/framework`.
        num_nodes: Nodes of jobs without `num_nodes`; default: 1.
    """

    num_nodes: pulumi.Input[int] | None = None

    framework: ClassVar[str] = ""

    def document(self) -> dict[str, Any]:
        plain = Args.document(self)
        nodes: dict[str, Any] = {}
        if "numNodes" in plain:
            nodes["numNodes"] = plain.pop("numNodes")
        if not self.framework:
            return nodes
        return {**nodes, self.framework: plain}

    def place(self, where: str) -> str:
        own = where.removeprefix(f"{self.framework}.")
        if own == self.framework:
            return ""
        return super().place(own)


class PlainPolicy(MLPolicy):
    """No framework: nodes get what the TrainJob declares and no more (`mlPolicy` without a framework).

    Args:
        num_nodes: Nodes of jobs without `num_nodes`; default: 1 (`numNodes`).
    """


class EnvInjectionTarget(Args):
    """Containers that get PET_* beside the main one (`mlPolicy.torch.envInjection.targets[]`).

    Args:
        job_name: Replicated job, with at most one target each (`jobName`).
        container_names: 1 to 8 of its containers or init containers, other than `node`, which always gets them
            (`containerNames`).
    """

    job_name: pulumi.Input[str] | None = None
    container_names: pulumi.Input[Sequence[pulumi.Input[str]]] | None = None


class TorchPolicy(MLPolicy):
    """PyTorch: `torchrun`'s PET_* environment on every node (`mlPolicy.torch`).

    Args:
        num_nodes: Nodes of jobs without `num_nodes`; default: 1 (`numNodes`).
        env_injection: Other containers that get PET_*, at most 16 targets (`envInjection.targets`).
    """

    env_injection: pulumi.Input[Sequence[EnvInjectionTarget]] | None = None

    framework = "torch"
    paths = {"env_injection": "envInjection.targets"}


class MPIPolicy(MLPolicy):
    """MPI (`mlPolicy.mpi`), on which DeepSpeed and MLX run.

    All pods of the replicated jobs `node` and `launcher` get SSH keys, and the launcher a hostfile at /etc/mpi/hostfile.

    Args:
        num_nodes: Nodes of jobs without `num_nodes`; default: 1 (`numNodes`).
        num_proc_per_node: Slots per node in the hostfile, at least 1; default: 1 (`numProcPerNode`).
        mpi_implementation: `OpenMPI`, the only one (`mpiImplementation`).
        ssh_auth_mount_path: Where the keys are mounted; default: /root/.ssh (`sshAuthMountPath`).
        run_launcher_as_node: Whether the launcher trains as well; default: False (`runLauncherAsNode`).
    """

    num_proc_per_node: pulumi.Input[int] | None = None
    mpi_implementation: pulumi.Input[Literal["OpenMPI"]] | None = None
    ssh_auth_mount_path: pulumi.Input[str] | None = None
    run_launcher_as_node: pulumi.Input[bool] | None = None

    framework = "mpi"


class JAXPolicy(MLPolicy):
    """JAX: JAX_NUM_PROCESSES, JAX_PROCESS_ID and JAX_COORDINATOR_ADDRESS on every node (`mlPolicy.jax`).

    Args:
        num_nodes: Nodes of jobs without `num_nodes`; default: 1 (`numNodes`).
    """

    framework = "jax"


class XGBoostPolicy(MLPolicy):
    """XGBoost: the tracker's DMLC_* environment on every node, a worker per GPU or else per node (`mlPolicy.xgboost`).

    Args:
        num_nodes: Nodes of jobs without `num_nodes`; default: 1 (`numNodes`).
    """

    framework = "xgboost"


class FluxPolicy(MLPolicy):
    """Flux: a broker in every node, and the job's command submitted to it (`mlPolicy.flux`).

    Args:
        num_nodes: Not enough by itself: each TrainJob must give its own `num_nodes` (`numNodes`).
        num_proc_per_node: Tasks per node, at least 1; default: 1 (`numProcPerNode`).
    """

    num_proc_per_node: pulumi.Input[int] | None = None

    framework = "flux"


class TensorFlowPolicy(MLPolicy):
    """TensorFlow: TF_CONFIG for the tasks of each role (`mlPolicy.tensorflow`); not in mode trainer.

    The roles are replicated jobs with the ancestor `trainer`. The runtime's template needs that of the workers; a role without
    one of its own name gets a copy. The job ends with its chief, else with its workers.

    Args:
        workers: Workers of jobs without `num_nodes`; default: 1 (`numNodes`).
        ps: Parameter servers; default: 0 (`ps`). `tf.distribute.ParameterServerStrategy` needs a chief too.
        chief: 1 for a task that coordinates the others, beside the workers; default: 0 (`chief`).
        evaluator: 1 for a task that evaluates beside the training; default: 0 (`evaluator`).
        port: Port of the first task; each further task listens on the next one. 1024 to 32767, default: 2222 (`port`).
    """

    workers: pulumi.Input[int] | None = None
    ps: pulumi.Input[int] | None = None
    chief: pulumi.Input[int] | None = None
    evaluator: pulumi.Input[int] | None = None
    port: pulumi.Input[int] | None = None

    framework = "tensorflow"
    paths = {"workers": "numNodes"}
    without = frozenset({"num_nodes"})
    elsewhere = {"num_nodes": "workers"}


class PaddlePolicy(MLPolicy):
    """PaddlePaddle: the variables of `paddle.distributed.launch` on every node (`mlPolicy.paddle`); not in mode trainer.

    Args:
        num_nodes: Nodes of jobs without `num_nodes`; default: 1 (`numNodes`).
        port: Port of the first node at which the nodes meet, 1024 to 32767; default: 6170 (`port`).
    """

    port: pulumi.Input[int] | None = None

    framework = "paddle"


class PodGroupPolicy(Args):
    """Base of the policies for gangs: all pods of a job are scheduled together or none (`spec.podGroupPolicy`).

    In mode jobset a gang is the pods that start together: it does not wait for initializers.

    Attributes:
        scheduler_name: Gang scheduler of all pods of the runtime that name none; default: that of the template. Pods without a
            scheduler use the cluster's default scheduler, as in Trainer.
    """

    scheduler_name: pulumi.Input[str] | None = None

    scheduler: ClassVar[str] = ""
    shipped = frozenset({"scheduler_name"})

    def document(self) -> dict[str, Any]:
        return {self.scheduler: Args.document(self)}

    def place(self, where: str) -> str:
        own = where.removeprefix(f"{self.scheduler}.")
        if own == self.scheduler:
            return ""
        return super().place(own)

    def template(self, document: Any) -> Any:
        """Return the runtime's template with the changes of the policy."""
        if self.scheduler_name is None:
            return document
        return _in_pods(document, self._schedule)

    def _schedule(self, pod: dict[str, Any]) -> dict[str, Any]:
        return {**pod, "spec": {"schedulerName": self.scheduler_name, **pod["spec"]}}


class CoschedulingPolicy(PodGroupPolicy):
    """Gangs by the coscheduling plugin of Kubernetes' scheduler-plugins (`podGroupPolicy.coscheduling`).

    Args:
        scheduler_name: Scheduler of pods without a `schedulerName`, `scheduler-plugins-scheduler` in its chart; default: that of
            the template.
        schedule_timeout_seconds: Seconds that a gang may wait for its last pod; default: 60, also for 0
            (`scheduleTimeoutSeconds`).
    """

    schedule_timeout_seconds: pulumi.Input[int] | None = None

    scheduler = "coscheduling"


class KAIPolicy(PodGroupPolicy):
    """Gangs by NVIDIA's KAI scheduler, which creates the PodGroups of JobSets itself; `podGroupPolicy` stays empty.

    If replicated jobs depend on others, the JobSet is annotated so that each replicated job is a gang by itself
    (`kai.scheduler/batch-min-member`; KAI reads `startupPolicy` and not `dependsOn`:
    https://github.com/kai-scheduler/KAI-Scheduler/blob/main/pkg/podgrouper/podgrouper/plugins/jobset/jobset_grouper.go).

    Args:
        scheduler_name: Scheduler of pods without a `schedulerName`; default: `kai-scheduler`.
        queue: Queue of KAI, the label `kai.scheduler/queue` of the JobSet and its pods; default: that of KAI.
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
        if not about:
            return made
        return {**made, "metadata": about}

    def _schedule(self, pod: dict[str, Any]) -> dict[str, Any]:
        name = KAI_SCHEDULER if self.scheduler_name is None else self.scheduler_name
        made = {**pod, "spec": {"schedulerName": name, **pod["spec"]}}
        about = pod.get("metadata") or {}
        if self.queue is not None and isinstance(about, Mapping):
            made["metadata"] = {**about, "labels": {KAI_QUEUE: self.queue, **(about.get("labels") or {})}}
        return made


KAI_LEAST = "kai.scheduler/batch-min-member"


def _steps(spec: Any) -> list[Mapping[str, Any]]:
    jobs = as_sequence(as_mapping(spec).get("replicatedJobs"))
    return [job for job in jobs if isinstance(job, Mapping)]


def _in_pods(template: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return a copy of a template with `change` applied to its pod templates; unknown and malformed parts stay."""
    if not isinstance(template, Mapping) or not _steps(template.get("spec")):
        return template

    def changed(job: Any) -> Any:
        inner = as_mapping(job).get("template")
        spec = as_mapping(inner).get("spec")
        pod = as_mapping(spec).get("template")
        if not isinstance(inner, Mapping) or not isinstance(spec, Mapping) or not isinstance(pod, Mapping):
            return job
        if not isinstance(pod.get("spec"), Mapping):
            return job
        return {**job, "template": {**inner, "spec": {**spec, "template": change(dict(pod))}}}

    spec = template["spec"]
    return {**template, "spec": {**spec, "replicatedJobs": [*map(changed, spec["replicatedJobs"])]}}


class VolcanoNetworkTopology(Args):
    """How far apart a gang's nodes may be (`podGroupPolicy.volcano.networkTopology`).

    Args:
        mode: `hard` (default; the gang waits until it fits) or `soft` (as near as possible) (`mode`).
        highest_tier_allowed: Highest tier of the network that the gang may span; default: 1 (`highestTierAllowed`).
    """

    mode: pulumi.Input[Literal["hard", "soft"]] | None = None
    highest_tier_allowed: pulumi.Input[int] | None = None


class VolcanoPolicy(PodGroupPolicy):
    """Gangs by Volcano (`podGroupPolicy.volcano`).

    The queue is the annotation `scheduling.volcano.sh/queue-name` of the template, the priority that of its pods.

    Args:
        scheduler_name: Scheduler of pods without a `schedulerName`, `volcano` in its chart; default: that of the template.
        network_topology: How far apart the nodes of a gang may be; default: anywhere (`networkTopology`).
    """

    network_topology: pulumi.Input[VolcanoNetworkTopology] | None = None

    scheduler = "volcano"
