"""The state of one TrainJob in the pipeline.

`core` creates an `Info`, plugins change its Pod sets, and the JobSet plugin writes them back.
Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/runtime.go
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from pulumi_trainer.provider.jobs.nodes import given_nodes
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import items, section, section_if_given
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.views import ReplicatedJob

TRAINER = "trainer"
DATASET_INITIALIZER = "dataset-initializer"
MODEL_INITIALIZER = "model-initializer"
NODE = "node"
"""Name of the container that trains, and usually of its replicated job."""

TRAINER_PORT = 29500
COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


@dataclass
class TrainJob:
    """A TrainJob for plugins. They may change its spec: some rewrite the trainer's command."""

    name: str
    namespace: str
    uid: str
    labels: dict[str, Any]
    annotations: dict[str, Any]
    spec: dict[str, Any]

    @property
    def trainer(self) -> dict[str, Any] | None:
        """`spec.trainer`; None if it is missing, which differs from an empty one."""
        return section_if_given(self.spec, "trainer")

    @property
    def runtime_name(self) -> Any:
        """Name of the runtime."""
        reference = self.spec.get("runtimeRef")
        if isinstance(reference, Unknown):
            return reference
        return section(reference).get("name", "")


@dataclass
class Container:
    """The fields of a container that plugins may change. Empty command and image mean unchanged."""

    name: Any
    image: Any
    command: Any
    env: Any
    ports: Any
    volume_mounts: Any

    @classmethod
    def of(cls, document: dict[str, Any]) -> Container:
        """Return the container of a document."""
        return cls(
            name=document.get("name", ""),
            image=document.get("image", ""),
            command=document.get("command", []),
            env=_list_to_change(document, "env"),
            ports=_list_to_change(document, "ports"),
            volume_mounts=_list_to_change(document, "volumeMounts"),
        )


def _list_to_change(document: dict[str, Any], name: str) -> Any:
    """Return a copy of the list at a field, empty if not found; another value as it is."""
    given = document.get(name)
    if isinstance(given, list):
        return list(given)
    return given or []


@dataclass
class PodSet:
    """The equal Pods of one replicated job.

    Args:
        count: Pods of one Job, also its parallelism and completions.
        job: The replicated job of the JobSet, into which the pod set is written back.
        endpoints: Returns the host names of all Pods; available after PreBuildSync.
    """

    name: str
    ancestor: str | None
    count: int | Unknown
    job: dict[str, Any]
    containers: list[Container]
    init_containers: list[Container]
    volumes: Any
    endpoints: Callable[[], Iterator[str]] = lambda: iter(())

    @property
    def pod_spec(self) -> dict[str, Any]:
        return ReplicatedJob(self.job).pod.spec

    def container(self, name: str) -> Container | None:
        return next((c for c in self.containers if c.name == name), None)

    def remove_env(self, container: Container, names: Collection[str]) -> None:
        """Remove variables of the template, before a plugin adds its own: in their places, `$(X)` may stand before X."""
        container.env = _env_without(container.env, names)
        for document in items(self.pod_spec, "containers"):
            if document.get("name") == container.name and "env" in document:
                document["env"] = _env_without(document["env"], names)


def _env_without(env: Any, names: Collection[str]) -> Any:
    if not isinstance(env, list):
        return env
    return [each for each in env if isinstance(each, Unknown) or each.get("name") not in names]


@dataclass
class Info:
    """A TrainJob and its runtime, merged.

    Args:
        labels: Labels of the JobSet.
        annotations: Annotations of the JobSet.
        pod_labels: Labels added to every Pod.
        pod_annotations: Annotations added to every Pod.
        ml_policy: `spec.mlPolicy`; None if it is missing, which differs from an empty one.
        spec: Spec of the JobSet, as an apply configuration.
        exists: Returns whether the cluster has an object of a kind, namespace and name; None if unknown.
        status_server_ca: Certificate of the server to which jobs report; None if they do not.
        incomplete: Whether the template, or the patches, are not known yet.
        counts_claims: Whether claimed devices decide the number of processes, which Trainer's controller ignores.
    """

    labels: dict[str, Any]
    annotations: dict[str, Any]
    ml_policy: dict[str, Any] | None
    pod_group_policy: dict[str, Any] | None
    spec: dict[str, Any]
    pod_sets: list[PodSet]
    pod_labels: dict[str, Any] = field(default_factory=dict)
    pod_annotations: dict[str, Any] = field(default_factory=dict)
    exists: Callable[[str, str, str], bool] | None = None
    status_server_ca: str | None = None
    incomplete: bool = False
    counts_claims: bool = False

    def policy(self, name: str) -> dict[str, Any] | None:
        """Return one framework's part of `spec.mlPolicy`."""
        return section_if_given(self.ml_policy, name)

    def gang(self, name: str) -> dict[str, Any] | None:
        """Return one scheduler's part of `spec.podGroupPolicy`."""
        return section_if_given(self.pod_group_policy, name)

    def take_nodes(self, train_job: TrainJob) -> None:
        """Set the number of Pods that train: the TrainJob's number of nodes, else the runtime's."""
        nodes = given_nodes(train_job.trainer)
        if nodes is not None and self.trainer_pod_set:
            self.trainer_pod_set.count = nodes

    def pod_set(self, name: str) -> PodSet | None:
        return next((pod_set for pod_set in self.pod_sets if pod_set.name == name), None)

    def may_have_more(self) -> bool:
        """Return whether unknown parts may contain further jobs or containers."""
        jobs = self.spec.get("replicatedJobs", [])
        return self.incomplete or isinstance(jobs, Unknown) or any(map(_hides_containers, jobs))

    @property
    def trainer_pod_set(self) -> PodSet | None:
        """The first Pod set with ancestor trainer."""
        return next((ps for ps in self.pod_sets if ps.ancestor == TRAINER), None)

    @property
    def trainer_container(self) -> Container | None:
        pod_set = self.trainer_pod_set
        if pod_set is None:
            return None
        return pod_set.container(NODE)

    def find_container(self, pod_set: str, name: str) -> Container | None:
        """Return a container by the names of its Pod set and itself, regular containers before init containers."""
        found = self.pod_set(pod_set)
        if not found:
            return None
        return next((c for c in [*found.containers, *found.init_containers] if c.name == name), None)


def is_unknown_at(document: Any, *path: str) -> bool:
    """Return whether the value at a path, or one of its parents, is unknown."""
    for name in path:
        if isinstance(document, dict):
            document = document.get(name)
    return isinstance(document, Unknown)


def _hides_containers(job: Any) -> bool:
    if is_unknown_at(job, "name") or is_unknown_at(job, "template", "spec", "template", "spec"):
        return True
    spec = ReplicatedJob(job).pod.spec
    return _hides_names(spec.get("containers", [])) or _hides_names(spec.get("initContainers", []))


def _hides_names(containers: Any) -> bool:
    return isinstance(containers, Unknown) or any(is_unknown_at(container, "name") for container in containers)


def defaulted_field(policy: dict[str, Any], place: str) -> Any:
    """Return a field that an API server defaults."""
    value = policy.get(place.rpartition(".")[2])
    if value is None:
        why = "is missing: an API server would set the default, and Trainer's controller fails without it"
        raise Invalid(Problem(f"spec.{place}", why, "write it into the runtime"))
    return value


def head_node(train_job: TrainJob) -> str:
    """Return the host name of Pod 0 of a job called node, whatever the names of the trainer's job and the subdomain."""
    return f"{train_job.name}-{NODE}-0-0.{train_job.name}"


def text(value: int | str | Unknown) -> str | Unknown:
    """Return a number as the value of an environment variable."""
    if isinstance(value, Unknown):
        return value
    return str(value)


def metadata(name: str, train_job: TrainJob) -> dict[str, Any]:
    """Return the metadata of an object beside the JobSet."""
    if train_job.namespace:
        return {"name": name, "namespace": train_job.namespace}
    return {"name": name}
