"""Flux: a broker in every node, and the job's command submitted from node 0.

An init container copies Flux into a shared volume; two scripts (flux_init.sh, flux_entrypoint.sh) configure and start it.
Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/flux/flux.go
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import items
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.trainer.generated import CURVE_CERT
from pulumi_trainer.provider.trainer.pipeline.apply import upsert
from pulumi_trainer.provider.trainer.pipeline.info import (
    NODE,
    Container,
    Info,
    PodSet,
    TrainJob,
    defaulted_field,
    metadata,
)
from pulumi_trainer.provider.trainer.pipeline.interface import (
    ComponentBuilderPlugin,
    CustomValidationPlugin,
    EnforceMLPolicyPlugin,
)
from pulumi_trainer.provider.trainer.pipeline.resources import gpus, int32, resources_per_node

INSTALLER = "flux-installer"
CONFIG_FOLDER = "/etc/flux-config"

_SETTINGS = {
    "FLUX_VIEW_IMAGE": "ghcr.io/converged-computing/flux-view-ubuntu:tag-jammy",
    "FLUX_NETWORK_DEVICE": "eth0",
    "FLUX_QUEUE_POLICY": "fcfs",
}
"""Environment variable of the trainer that configures Flux -> default."""


class Flux(EnforceMLPolicyPlugin, ComponentBuilderPlugin, CustomValidationPlugin):
    """Implements `mlPolicy.flux`."""

    name = "Flux"
    policies = ("mlPolicy.flux",)

    def __init__(self, *, refuses_no_process: bool = False) -> None:
        """refuses_no_process: Whether its webhook refuses fewer than one process; in later releases the CRD does."""
        self._refuses_no_process = refuses_no_process

    def validate(self, info: Info, train_job: TrainJob) -> Iterator[Problem]:
        policy = info.policy("flux")
        if policy is None:
            return
        processes = _trainer(train_job).get("numProcPerNode", policy.get("numProcPerNode"))
        if self._refuses_no_process and isinstance(processes, int) and processes < 1:
            why = "must be greater than or equal to 1 for Flux TrainJob"
            yield Problem("spec.trainer.numProcPerNode", why)
        for pod_set in info.pod_sets:
            if pod_set.name != NODE:
                continue
            for container in pod_set.init_containers:
                if container.name == INSTALLER:
                    yield Problem("spec.trainer.initContainers", f"InitContainer '{INSTALLER}' is reserved")

    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
        if info.policy("flux") is None:
            return
        trainer = _trainer(train_job)
        if trainer.get("numNodes") is None:
            why = "is required with Flux: without it Trainer's controller never creates the objects"
            raise Invalid(Problem("spec.trainer.numNodes", why, "set it, also for one node (1)"))
        image = _settings(info, trainer)["FLUX_VIEW_IMAGE"]
        trainer["command"] = ["/bin/bash", f"{CONFIG_FOLDER}/entrypoint.sh", _command(info, trainer)]
        trainer.pop("args", None)  # they are part of that word; those of the runtime stay
        for pod_set in info.pod_sets:
            if pod_set.name == NODE:
                _mount_flux(pod_set, f"{train_job.name}-flux-entrypoint", f"{train_job.name}-flux-curve", image)

    def build(self, info: Info, train_job: TrainJob) -> Iterator[dict[str, Any]]:
        policy, trainer = info.policy("flux"), _trainer(train_job)
        if policy is None:
            return
        name = metadata(f"{train_job.name}-flux-curve", train_job)
        yield {"apiVersion": "v1", "kind": "Secret", "metadata": name, "data": {"curve.cert": CURVE_CERT}}
        data = {
            "entrypoint.sh": _entrypoint(policy, info, train_job, trainer),
            "init.sh": _init_script(info, train_job, trainer),
        }
        name = metadata(f"{train_job.name}-flux-entrypoint", train_job)
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": data}


def _trainer(train_job: TrainJob) -> dict[str, Any]:
    """Return nodes, processes and environment of the trainer; unknown if the trainer is."""
    given: dict[str, Any] | Unknown = train_job.spec.get("trainer", {})
    if isinstance(given, Unknown):
        parts = ("numNodes", "numProcPerNode", "env", "command", "args", "resourcesPerNode")
        return dict.fromkeys(parts, given)
    return given


def _mount_flux(pod_set: PodSet, config: str, curve: str, image: Any) -> None:
    volumes = [
        {"name": "spack-install", "emptyDir": {}},
        {"name": "flux-install", "emptyDir": {}},
        {"name": config, "configMap": {"name": config, "defaultMode": 0o755}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        {"name": "flux-curve", "secret": {"secretName": curve, "defaultMode": 0o400}},
    ]
    pod_set.volumes = upsert(pod_set.volumes, volumes, "name")
    installed: dict[str, Any] = {"name": "flux-install", "mountPath": "/mnt/flux"}
    scripts = {"name": config, "mountPath": CONFIG_FOLDER, "readOnly": True}
    command = ["/bin/bash", f"{CONFIG_FOLDER}/init.sh"]
    pod_set.init_containers.append(Container(INSTALLER, image, command, [], [], [installed, scripts]))
    mounts = [
        installed,
        {"name": "spack-install", "mountPath": "/opt/software"},
        scripts,
        {"name": "flux-curve", "mountPath": "/curve", "readOnly": True},
        {"name": "shared-memory", "mountPath": "/dev/shm", "readOnly": True},  # noqa: S108
    ]
    for container in pod_set.containers:
        if container.name == NODE:
            container.volume_mounts = upsert(container.volume_mounts, mounts, "mountPath")


def _settings(info: Info, trainer: dict[str, Any]) -> dict[str, Any]:
    """Return the env of the trainer container, overridden by the TrainJob's."""
    container = info.trainer_container
    own: Any = []
    if container:
        own = container.env
    for given in (own, trainer.get("env")):
        if isinstance(given, Unknown):
            return dict.fromkeys(_SETTINGS, given)
    valued = [env for env in items({"env": own}, "env") if "value" in env]
    settings: dict[str, Any] = {**_SETTINGS}
    for env in (*valued, *items(trainer, "env")):
        name = env.get("name")
        if name in _SETTINGS:
            settings[name] = env.get("value", "")
    return settings


def _command(info: Info, trainer: dict[str, Any]) -> str | Unknown:
    """Return the command of the job without Flux, as one word."""
    container = info.trainer_container
    default: Any = []
    if container:
        default = container.command
    words = [trainer.get("command", default), trainer.get("args", [])]
    return first_unknown(words) or " ".join(chain.from_iterable(words)).strip()


def _entrypoint(policy: dict[str, Any], info: Info, train_job: TrainJob, trainer: dict[str, Any]) -> str | Unknown:
    nodes, tasks = trainer["numNodes"], trainer.get("numProcPerNode")
    if tasks is None:
        tasks = defaulted_field(policy, "mlPolicy.flux.numProcPerNode")
    accelerators: Any = gpus(resources_per_node(info, train_job))
    unknown = first_unknown([nodes, tasks, accelerators])
    if unknown:
        return unknown
    resources = [f"--cores={_range(tasks)}"]
    flags = ["-N", str(nodes), "-n", str(int32(tasks * nodes))]
    if accelerators > 0:
        resources.append(f"--gpu={_range(accelerators)}")
        flags += ["-g", str(accelerators)]
    head = f"head_node={shlex.quote(f'{train_job.name}-{NODE}-0-0')}"
    return _script("flux_entrypoint.sh", head, f"resources=({shlex.join(resources)})", f"flags=({shlex.join(flags)})")


def _init_script(info: Info, train_job: TrainJob, trainer: dict[str, Any]) -> str | Unknown:
    settings = _settings(info, trainer)
    nodes = trainer["numNodes"]
    unknown = first_unknown(
        [nodes, train_job.namespace, settings["FLUX_NETWORK_DEVICE"], settings["FLUX_QUEUE_POLICY"]]
    )
    if unknown:
        return unknown
    hosts = f"{train_job.name}-{NODE}-0-[{_range(nodes)}]"
    broker = _broker(hosts, f"{train_job.name}.{train_job.namespace}.svc.cluster.local", settings)
    return _script("flux_init.sh", f"hosts={shlex.quote(hosts)}", f"broker={shlex.quote(broker)}")


def _broker(hosts: str, domain: str, settings: dict[str, Any]) -> str:
    """Return Flux's broker.toml. %p and %h are Flux's placeholders for port and host."""
    bind, connect = f"tcp://{settings['FLUX_NETWORK_DEVICE']}:%p", f"tcp://%h.{domain}:%p"
    tables: dict[str, dict[str, Any]] = {
        "access": {"allow-guest-user": True, "allow-root-owner": True},
        "resource": {"path": "/mnt/flux/config/etc/flux/system/R"},
        "bootstrap": {
            "curve_cert": "/mnt/flux/config/etc/curve/curve.cert", "default_port": 8050, "default_bind": bind,
            "default_connect": connect,
        },
        "archive": {
            "dbpath": "/mnt/flux/config/var/lib/flux/job-archive.sqlite", "period": "1m", "busytimeout": "50s",
        },
        "sched-fluxion-qmanager": {"queue-policy": settings["FLUX_QUEUE_POLICY"]},
    }  # fmt: skip
    lines: list[str] = []
    for table, values in tables.items():
        # JSON's strings, numbers and booleans are TOML's.
        lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
        if table == "bootstrap":
            lines.append(f"hosts = [{{ host = {json.dumps(hosts)} }}]")
    return "\n".join(lines)


def _range(size: int) -> str:
    """Return upstream's range of indices, also for zero nodes."""
    return "0" if size == 1 else f"0-{size - 1}"


def _script(name: str, *settings: str) -> str:
    """Return the script with its parameters before it."""
    return "\n".join(["#!/bin/bash", *settings, _text(name)])


@cache
def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")
