"""What the phases of the pipeline share about one TrainJob.

`core` makes an `Info` of the documents, plugins change its Pod sets, the JobSet plugin writes them back.
As upstream: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/runtime.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pulumi_trainer.provider.kube.errors import Invalid, Problem
from pulumi_trainer.provider.kube.values.accessors import section
from pulumi_trainer.provider.kube.values.unknown import Unknown

TRAINER = "trainer"
DATASET_INITIALIZER = "dataset-initializer"
MODEL_INITIALIZER = "model-initializer"
NODE = "node"
"""Name of the container that trains, and usually of its replicated job."""

TRAINER_PORT = 29500
COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


@dataclass
class TrainJob:
    """A TrainJob as plugins see it. They may change its spec: some rewrite the trainer's command."""

    name: str
    namespace: str
    uid: str
    labels: dict[str, Any]
    annotations: dict[str, Any]
    spec: dict[str, Any]

    @property
    def trainer(self) -> dict[str, Any] | None:
        """`spec.trainer`; None if there is none, which is not the same as an empty one."""
        trainer = self.spec.get("trainer")
        return trainer if isinstance(trainer, dict) else None

    @property
    def runtime_name(self) -> Any:
        reference = self.spec.get("runtimeRef")
        return reference if isinstance(reference, Unknown) else section(reference).get("name", "")


@dataclass
class Container:
    """What plugins may change of a container. command and image: empty for unchanged."""

    name: Any
    image: Any
    command: Any
    env: Any
    ports: Any
    volume_mounts: Any

    @classmethod
    def of(cls, document: dict[str, Any]) -> Container:
        given = (document.get(k) for k in ("env", "ports", "volumeMounts"))
        lists = (list(each) if isinstance(each, list) else each or [] for each in given)
        return cls(document.get("name", ""), document.get("image", ""), document.get("command", []), *lists)


@dataclass
class PodSet:
    """The equal Pods of one replicated job.

    count: Pods of one Job, also its parallelism and completions. job: the replicated job of the JobSet it is
    written back to. endpoints: host names of all Pods, known after PreBuildSync.
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
        return pod_spec(self.job)

    def container(self, name: str) -> Container | None:
        return next((c for c in self.containers if c.name == name), None)


@dataclass
class Info:
    """A TrainJob and its runtime, merged.

    labels, annotations: of the JobSet; pod_labels, pod_annotations: added to every Pod. ml_policy: None if
    there is none, which is not the same as an empty one. spec: of the JobSet, as an apply configuration. exists:
    whether the cluster has an object of that kind, namespace and name; None: nobody knows. status_server_ca: of the
    server that jobs report to; None: they do not. incomplete: the template, or the patches, are not known yet.
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

    def policy(self, name: str) -> dict[str, Any] | None:
        """One framework's part of `spec.mlPolicy`."""
        found = (self.ml_policy or {}).get(name)
        return found if isinstance(found, dict) else None

    def gang(self, name: str) -> dict[str, Any] | None:
        """One scheduler's part of `spec.podGroupPolicy`."""
        found = (self.pod_group_policy or {}).get(name)
        return found if isinstance(found, dict) else None

    def take_num_nodes(self, train_job: TrainJob) -> None:
        """The TrainJob's number of nodes, over the runtime's, for the Pods that train."""
        nodes = (train_job.trainer or {}).get("numNodes")
        if nodes is not None and self.trainer_pod_set:
            self.trainer_pod_set.count = nodes

    def pod_set(self, name: str) -> PodSet | None:
        return next((pod_set for pod_set in self.pod_sets if pod_set.name == name), None)

    def may_have_more(self) -> bool:
        """Whether a job or a container that is not found may be among what is not known yet."""
        jobs = self.spec.get("replicatedJobs", [])
        return self.incomplete or isinstance(jobs, Unknown) or any(_hides_containers(job) for job in jobs)

    @property
    def trainer_pod_set(self) -> PodSet | None:
        """The first with ancestor trainer: where trainers work."""
        return next((ps for ps in self.pod_sets if ps.ancestor == TRAINER), None)

    @property
    def trainer_container(self) -> Container | None:
        pod_set = self.trainer_pod_set
        return pod_set.container(NODE) if pod_set else None

    def find_container(self, pod_set: str, name: str) -> Container | None:
        """By the names of its Pod set and itself, regular ones before init containers."""
        found = self.pod_set(pod_set)
        return next((c for c in [*found.containers, *found.init_containers] if c.name == name), None) if found else None


def hidden(document: Any, *path: str) -> bool:
    """Whether what stands at `path` is not known yet, or what would hold it."""
    for name in path:
        document = document.get(name) if isinstance(document, dict) else document
    return isinstance(document, Unknown)


def _hides_containers(job: Any) -> bool:
    if hidden(job, "name") or hidden(job, "template", "spec", "template", "spec"):
        return True
    spec = pod_spec(job)
    lists = [spec.get("containers", []), spec.get("initContainers", [])]
    return any(isinstance(each, Unknown) or any(hidden(container, "name") for container in each) for each in lists)


def pod_spec(job: dict[str, Any]) -> dict[str, Any]:
    """The Pod spec of a replicated job."""
    return section(job, "template", "spec", "template", "spec")


def defaulted(policy: dict[str, Any], place: str) -> Any:
    """A field that an API server fills in. Raises Invalid: it is not there, as in a snapshot that somebody wrote."""
    value = policy.get(place.rpartition(".")[2])
    if value is None:
        why = "is missing, without which Trainer's controller fails for ever: an API server would have filled it in"
        raise Invalid(Problem(f"spec.{place}", why, "write it into the runtime"))
    return value


def head_node(train_job: TrainJob) -> str:
    """Host name of Pod 0 of a job called node, whatever the trainer's job or the subdomain is called."""
    return f"{train_job.name}-{NODE}-0-0.{train_job.name}"


def text(value: int | str | Unknown) -> str | Unknown:
    """A number as the value of an environment variable."""
    return value if isinstance(value, Unknown) else str(value)


def metadata(name: str, train_job: TrainJob) -> dict[str, Any]:
    """Of an object beside the JobSet."""
    return {"name": name, "namespace": train_job.namespace} if train_job.namespace else {"name": name}
