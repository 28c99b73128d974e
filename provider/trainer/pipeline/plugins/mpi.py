"""MPI: SSH keys for all Pods, and a hostfile and Open MPI's environment for the launcher.

As upstream: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/mpi/mpi.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_trainer.provider.jobs.nodes import given_nodes, workers_of
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import items, section
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.trainer.generated import SSH_PRIVATE_KEY, SSH_PUBLIC_KEY
from pulumi_trainer.provider.trainer.pipeline.apply import upsert
from pulumi_trainer.provider.trainer.pipeline.info import NODE, Info, PodSet, TrainJob, defaulted_field, metadata, text
from pulumi_trainer.provider.trainer.pipeline.interface import (
    ComponentBuilderPlugin,
    CustomValidationPlugin,
    EnforceMLPolicyPlugin,
)
from pulumi_trainer.provider.trainer.pipeline.resources import gpus, int32, resources_per_node

LAUNCHER = "launcher"
OPEN_MPI = "OpenMPI"

SSH_VOLUME = "mpi-ssh-auth"
HOSTFILE_VOLUME = "mpi-hostfile"
HOSTFILE_FOLDER = "/etc/mpi"
HOSTFILE = "hostfile"

HOSTFILE_LOCATION = "OMPI_MCA_orte_default_hostfile"
KEEP_FQDN = "OMPI_MCA_orte_keep_fqdn_hostnames"
DEFAULT_SLOTS = "OMPI_MCA_orte_set_default_slots"
RSH_ARGS = "OMPI_MCA_plm_rsh_args"
RESERVED = frozenset({HOSTFILE_LOCATION, KEEP_FQDN, DEFAULT_SLOTS, RSH_ARGS})
OPEN_MPI_5 = {
    HOSTFILE_LOCATION: "PRTE_MCA_prte_default_hostfile",
    KEEP_FQDN: "PRTE_MCA_prte_keep_fqdn_hostnames",
    DEFAULT_SLOTS: "PRTE_MCA_prte_set_default_slots",
    RSH_ARGS: "PRTE_MCA_plm_ssh_args",
}
"""Variable of Open MPI 4 -> the one of Open MPI 5, whose launcher PRRTE ignores the former. Trainer sets both since v2.4.0:
https://github.com/kubeflow/trainer/pull/4029"""

_LARGEST = 1024 * 1024
"""Maximum bytes of a ConfigMap."""


class MPI(EnforceMLPolicyPlugin, ComponentBuilderPlugin, CustomValidationPlugin):
    """Implements `mlPolicy.mpi`."""

    name = "MPI"
    policies = ("mlPolicy.mpi",)

    def validate(self, info: Info, train_job: TrainJob) -> Iterator[Problem]:
        policy, trainer = info.policy("mpi"), train_job.trainer
        if policy is None or trainer is None:
            return
        nodes: Any = trainer.get("numNodes", 1)
        several = isinstance(nodes, int) and nodes >= 2
        if (
            several
            and policy.get("runLauncherAsNode") is True
            and not {LAUNCHER, NODE} <= {p.name for p in info.pod_sets}
            and not info.may_have_more()
        ):
            why = "must have 1 when MPI trainingRuntime with enabled runLauncherAsNode does not have either launcher and node"
            yield Problem("spec.trainer.numNodes", why)
        names = {env.get("name") for env in items(trainer, "env")}
        reserved = sorted(RESERVED & names)
        if reserved:
            why = f"must not have reserved envs, invalid envs configured: [{' '.join(reserved)}]"
            yield Problem("spec.trainer.env", why)

    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
        policy = info.policy("mpi")
        if policy is None:
            return
        nodes = given_nodes(train_job.trainer)
        if nodes is not None and (pod_set := info.pod_set(NODE)):
            pod_set.count = workers_of(nodes, policy)
        slots = _slots(policy, info, train_job)
        for pod_set in info.pod_sets:
            if pod_set.name in (NODE, LAUNCHER):
                _set_up_ssh(pod_set, policy, train_job, slots)

    def build(self, info: Info, train_job: TrainJob) -> Iterator[dict[str, Any]]:
        policy = info.policy("mpi")
        if policy is None:
            return
        yield {
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata(f"{train_job.name}-{SSH_VOLUME}", train_job),
            "type": "kubernetes.io/ssh-auth", "immutable": True,
            "data": {"ssh-privatekey": SSH_PRIVATE_KEY, "ssh-publickey": SSH_PUBLIC_KEY},
        }  # fmt: skip
        data = {HOSTFILE: _hostfile(policy, info, train_job)}
        name = f"{train_job.name}-{HOSTFILE_VOLUME}"
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(name, train_job), "data": data}


def _set_up_ssh(pod_set: PodSet, policy: dict[str, Any], train_job: TrainJob, slots: int | Unknown) -> None:
    launches = pod_set.name == LAUNCHER
    volumes = [_ssh_volume(train_job)]
    if launches:
        volumes.append(_hostfile_volume(train_job))
    pod_set.volumes = upsert(pod_set.volumes, volumes, "name")
    for container in pod_set.containers:
        if container.name != NODE:
            continue
        mounts = [{"name": SSH_VOLUME, "mountPath": defaulted_field(policy, "mlPolicy.mpi.sshAuthMountPath")}]
        if launches:
            if not _is_open_mpi(policy):
                why = f"is not {OPEN_MPI}, so Trainer's controller never creates the objects"
                raise Invalid(Problem("spec.mlPolicy.mpi.mpiImplementation", why, f"use {OPEN_MPI} in the runtime"))
            mounts.append({"name": HOSTFILE_VOLUME, "mountPath": HOSTFILE_FOLDER})
            env = [
                {"name": HOSTFILE_LOCATION, "value": f"{HOSTFILE_FOLDER}/{HOSTFILE}"},
                {"name": KEEP_FQDN, "value": "true"},
                {"name": DEFAULT_SLOTS, "value": text(slots)},
                {"name": RSH_ARGS, "value": "-o ConnectionAttempts=10"},
            ]
            container.env = upsert(container.env, env, "name")
        container.volume_mounts = upsert(container.volume_mounts, mounts, "mountPath")


def _ssh_volume(train_job: TrainJob) -> dict[str, Any]:
    items = [
        {"key": "ssh-privatekey", "path": "id_rsa", "mode": 0o640},
        {"key": "ssh-publickey", "path": "id_rsa.pub", "mode": 0o644},
        {"key": "ssh-publickey", "path": "authorized_keys", "mode": 0o644},
    ]
    secret = {"secretName": f"{train_job.name}-{SSH_VOLUME}", "defaultMode": 0o400, "items": items}
    return {"name": SSH_VOLUME, "secret": secret}


def _hostfile_volume(train_job: TrainJob) -> dict[str, Any]:
    items = [{"key": HOSTFILE, "path": HOSTFILE, "mode": 0o444}]
    return {"name": HOSTFILE_VOLUME, "configMap": {"name": f"{train_job.name}-{HOSTFILE_VOLUME}", "items": items}}


def _slots(policy: dict[str, Any], info: Info, train_job: TrainJob) -> int | Unknown:
    """Return the processes of a node: the TrainJob's, else the runtime's; 1 is replaced by the number of GPUs."""
    given: int | Unknown | None = (train_job.trainer or {}).get("numProcPerNode")
    if given is not None:
        return given
    own: int | Unknown = defaulted_field(policy, "mlPolicy.mpi.numProcPerNode")
    if own != 1:
        return own
    accelerators = gpus(resources_per_node(info, train_job))
    if isinstance(accelerators, Unknown):
        return accelerators
    if accelerators > 1:
        return int32(accelerators)
    return own


def _is_open_mpi(policy: dict[str, Any]) -> bool:
    implementation = defaulted_field(policy, "mlPolicy.mpi.mpiImplementation")
    return isinstance(implementation, Unknown) or implementation == OPEN_MPI


def _hostfile(policy: dict[str, Any], info: Info, train_job: TrainJob) -> str | Unknown:
    """Return the hostfile: a line for each Pod that ranks run on, in the order of the template."""
    slots = _slots(policy, info, train_job)
    lines: list[str] = []
    size = 0
    for pod_set in info.pod_sets:
        if pod_set.name != NODE and not (pod_set.name == LAUNCHER and policy.get("runLauncherAsNode") is True):
            continue
        if not _is_open_mpi(policy):
            continue
        network = section(info.spec, "network").get("subdomain")
        unknown = first_unknown([slots, pod_set.count, pod_set.job.get("replicas"), network])
        if unknown:
            return unknown
        for endpoint in pod_set.endpoints():
            lines.append(f"{endpoint} slots={slots}\n")
            size += len(lines[-1])
            if size > _LARGEST:
                why = "gives a hostfile that is larger than a ConfigMap may be (1 MiB)"
                raise Invalid(Problem("spec.trainer.numNodes", why, "use fewer nodes"))
    return "".join(lines)
