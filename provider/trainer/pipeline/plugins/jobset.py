"""JobSet: writes the Pod sets back into the runtime's template, then initializers and trainer, and builds the JobSet.

Sources: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/jobset/jobset.go
and https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/jobset/builder.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import items, section
from pulumi_trainer.provider.kubernetes.values.names import domain_prefixed_path
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.views import Pod, ReplicatedJob
from pulumi_trainer.provider.trainer.labels import patched_jobs
from pulumi_trainer.provider.trainer.pipeline.apply import env_vars, upsert, upsert_ports
from pulumi_trainer.provider.trainer.pipeline.info import (
    DATASET_INITIALIZER,
    MODEL_INITIALIZER,
    NODE,
    TRAINER,
    Container,
    Info,
    PodSet,
    TrainJob,
    is_unknown_at,
)
from pulumi_trainer.provider.trainer.pipeline.interface import (
    ComponentBuilderPlugin,
    CustomValidationPlugin,
    PreComponentBuilderPlugin,
)

API_VERSION = "jobset.x-k8s.io/v1alpha2"
STORAGE_URI = "STORAGE_URI"
INITIALIZER_VOLUME = "initializer"

_INITIALIZERS = {"dataset": DATASET_INITIALIZER, "model": MODEL_INITIALIZER}
"""Field of spec.initializer -> its ancestor step, which is also the name of its job and container."""


class JobSet(PreComponentBuilderPlugin, ComponentBuilderPlugin, CustomValidationPlugin):
    """Builds the JobSet of every TrainJob."""

    name = "JobSet"
    policies = ()

    def validate(self, info: Info, train_job: TrainJob) -> Iterator[Problem]:
        initializer = section(train_job.spec, "initializer")
        for kind, step in _INITIALIZERS.items():
            if kind in initializer and not info.may_have_more():
                yield from _check_initializer(info, kind, step)
        yield from _check_patches(train_job)

    def pre_build_sync(self, info: Info, train_job: TrainJob) -> None:
        """Set the host names of all Pods, and parallelism and completions from each Pod set's count."""
        subdomain = section(info.spec, "network").get("subdomain", train_job.name)
        for pod_set in info.pod_sets:
            pod_set.endpoints = _endpoints(pod_set, train_job.name, subdomain)
            spec = ReplicatedJob(pod_set.job).job
            spec["parallelism"] = spec["completions"] = pod_set.count

    def build(self, info: Info, train_job: TrainJob) -> Iterator[dict[str, Any]]:
        for pod_set in info.pod_sets:
            _write_back(pod_set)
            _initialize(pod_set, train_job)
            _train(pod_set, info, train_job)
            _mark_pods(pod_set, info)
        metadata: dict[str, Any] = {"name": train_job.name}
        if train_job.namespace:
            metadata["namespace"] = train_job.namespace
        if info.labels:
            metadata["labels"] = dict(sorted(info.labels.items()))
        if info.annotations:
            metadata["annotations"] = dict(sorted(info.annotations.items()))
        spec = dict(info.spec)
        spec.pop("suspend", None)
        suspend = train_job.spec.get("suspend")
        if suspend is not None:
            spec["suspend"] = suspend
        yield {"apiVersion": API_VERSION, "kind": "JobSet", "metadata": metadata, "spec": spec}


def _endpoints(pod_set: PodSet, name: str, subdomain: str | Unknown) -> Callable[[], Iterator[str]]:
    def endpoints() -> Iterator[str]:
        replicas, count = pod_set.job.get("replicas", 1), pod_set.count
        if isinstance(replicas, Unknown) or isinstance(count, Unknown) or isinstance(subdomain, Unknown):
            return
        for replica in range(replicas):
            for pod in range(count):
                yield f"{name}-{pod_set.name}-{replica}-{pod}.{subdomain}"

    return endpoints


def _write_back(pod_set: PodSet) -> None:
    """Write the changes of plugins into the template. Ports are merged one by one, so two without a name become one, twice."""
    spec = pod_set.pod_spec
    _set(spec, "volumes", upsert(spec.get("volumes", []), pod_set.volumes, "name"))
    for document, container in zip(items(spec, "containers"), pod_set.containers, strict=True):
        _write_container(document, container)
    documents = items(spec, "initContainers")
    added = [{"name": c.name} for c in pod_set.init_containers[len(documents) :]]
    for document, container in zip([*documents, *added], pod_set.init_containers, strict=True):
        _write_container(document, container)
    before = spec.get("initContainers", [])
    if added and not isinstance(before, Unknown):
        spec["initContainers"] = [*before, *added]


def _write_container(document: dict[str, Any], container: Container) -> None:
    if container.command:
        document["command"] = container.command
    if container.image:
        document["image"] = container.image
    _set(document, "env", upsert(document.get("env", []), container.env, "name"))
    _set(document, "ports", upsert_ports(document.get("ports", []), container.ports))
    mounts = upsert(document.get("volumeMounts", []), container.volume_mounts, "mountPath")
    _set(document, "volumeMounts", mounts)


def _initialize(pod_set: PodSet, train_job: TrainJob) -> None:
    """Write URI, env and Secret of the TrainJob's initializer into the container named as the step."""
    kind = next((kind for kind, step in _INITIALIZERS.items() if step == pod_set.ancestor), None)
    if kind is None:
        return
    pod_set.job["replicas"] = 1
    source = section(train_job.spec, "initializer").get(kind)
    if not isinstance(source, dict):
        return
    for container in items(pod_set.pod_spec, "containers"):
        if container.get("name") == pod_set.ancestor:
            _set_source(container, source)


def _set_source(container: dict[str, Any], source: dict[str, Any]) -> None:
    env = container.get("env", [])
    uri = source.get("storageUri")
    if uri is not None:
        env = upsert(env, [{"name": STORAGE_URI, "value": uri}], "name")
    _set(container, "env", upsert(env, env_vars(source.get("env")), "name"))
    secret = source.get("secretRef")
    if secret is None:
        return
    name = secret
    if not isinstance(secret, Unknown):
        name = secret.get("name", "")
    container["envFrom"] = [*container.get("envFrom", []), {"secretRef": {"name": name}}]


def _train(pod_set: PodSet, info: Info, train_job: TrainJob) -> None:
    """Write image, command and args of the TrainJob's trainer if given, even if empty; its env overrides all others."""
    trains = pod_set.ancestor == TRAINER
    if trains:
        pod_set.job["replicas"] = 1
    trainer = train_job.trainer
    launcher_is_node = (info.policy("mpi") or {}).get("runLauncherAsNode") is True and pod_set.name == NODE
    if trainer is None or not (trains or launcher_is_node):
        return
    for container in items(pod_set.pod_spec, "containers"):
        if container.get("name") == NODE:
            if trains:
                _set_command(container, trainer)
            env = upsert(container.get("env", []), env_vars(trainer.get("env")), "name")
            _set(container, "env", env)


def _set_command(container: dict[str, Any], trainer: dict[str, Any]) -> None:
    for field in ("image", "command", "args"):
        if trainer.get(field) is not None:
            container[field] = trainer[field]
        if container.get(field) == []:
            del container[field]


def _mark_pods(pod_set: PodSet, info: Info) -> None:
    for name, values in (("labels", info.pod_labels), ("annotations", info.pod_annotations)):
        metadata = section(pod_set.job, "template", "spec", "template", "metadata")
        if values and not isinstance(metadata.get(name), Unknown):
            metadata[name] = {**metadata.get(name, {}), **values}


def _set(document: dict[str, Any], name: str, value: Any) -> None:
    if value or name in document:
        document[name] = value


WITH_INITIALIZERS = "torchtune-llama3.2-1b"
"""A runtime of the catalogue that fetches datasets and models inside the job."""


def _check_initializer(info: Info, kind: str, step: str) -> Iterator[Problem]:
    """Yield problems of an initializer, by the job's name; rendering uses its ancestor label, as upstream."""
    pod_set = info.pod_set(step)
    if pod_set is None:
        why = f"must have {step} job when trainJob is configured with input {kind}Config"
        yield Problem(
            "spec.runtimeRef", why, f"use a runtime with this replicated job, for example {WITH_INITIALIZERS}"
        )
        return
    containers = [container for container in Pod(pod_set.pod_spec).all_containers if container.name == step]
    if not containers:
        yield Problem("spec.runtimeRef", f"must have container with name - {step} in the {step} job")
    elif not any(_mounts(c.document, INITIALIZER_VOLUME) for c in containers if not c.is_init):
        why = f"must have volumeMount with name - {INITIALIZER_VOLUME} in container {step} of the {step} job"
        yield Problem("spec.runtimeRef", why)


def _mounts(container: dict[str, Any], volume: str) -> bool:
    mounts = container.get("volumeMounts", [])
    if isinstance(mounts, Unknown):
        return True
    return any(is_unknown_at(mount, "name") or mount.get("name") == volume for mount in mounts)


def _check_patches(train_job: TrainJob) -> Iterator[Problem]:
    """Yield problems of patches. Unknown jobs and containers pass, as upstream: once merged in, they are known."""
    reserved = {DATASET_INITIALIZER, MODEL_INITIALIZER, NODE}
    for patch in items(train_job.spec, "runtimePatches"):
        manager = patch.get("manager", "")
        if isinstance(manager, str):
            for why in domain_prefixed_path(manager):
                yield Problem("spec.runtimePatches.manager", why)
        for job in patched_jobs(patch):
            for container in job.pod.containers:
                if container.document.get("env") and container.name in reserved:
                    why = "must not have envs for the dataset-initializer, model-initializer, node containers"
                    yield Problem("spec.runtimePatches", why, "give them in spec.trainer or spec.initializer")
