"""The input of a rule: a runtime, a TrainJob and the objects rendered from them, with accessors for their parts.

Every value may be unknown and then counts as valid: `number` and `words` are None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

from pulumi_trainer.provider.jobs.gpu_memory import Training
from pulumi_trainer.provider.jobs.nodes import given_nodes, nodes_with_launcher
from pulumi_trainer.provider.kubernetes.device_claims import DeviceClaim, claims_of_container, count_gpus
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, items, listed, section, section_if_given
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, any_unknown, first_unknown
from pulumi_trainer.provider.kubernetes.views import ReplicatedJob, replicated_jobs
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.trainer.labels import ancestor_of
from pulumi_trainer.provider.trainer.pipeline import Mode, Release
from pulumi_trainer.provider.trainer.pipeline.info import NODE, TRAINER
from pulumi_trainer.provider.trainer.pipeline.modes import queued_object
from pulumi_trainer.provider.trainer.pipeline.resources import gpus as counted_gpus

Taints = Mapping[str, Sequence[Mapping[str, Any]]]
"""Name of a node or flavor with GPUs -> its taints."""

DEFAULT_NAMESPACE = "default"


class Step(ReplicatedJob):
    """A replicated job, with the roles that Trainer gives it."""

    @cached_property
    def ancestor(self) -> Any:
        """The section of the TrainJob that the step takes."""
        return ancestor_of(self)

    @cached_property
    def node(self) -> Document | None:
        """The container that trains."""
        return next((c.document for c in self.pod.containers if c.name == NODE), None)

    @property
    def waits_for(self) -> list[Any]:
        """Names of the steps in its dependsOn."""
        return [section(other).get("name") for other in listed(self.document.get("dependsOn"))]


def _flat(lists: Iterable[Any]) -> list[Any]:
    return [*chain.from_iterable(map(listed, lists))]


@dataclass(frozen=True)
class SuccessPolicy:
    """Whose completion makes a JobSet complete. steps: Names of the replicated jobs that count."""

    steps: list[Any]
    one_is_enough: bool


@dataclass(frozen=True)
class View:
    """The input of a rule.

    Args:
        runtime: The runtime, with an API server's defaults.
        train_job: The TrainJob, with an API server's defaults.
        taints: Taints of nodes and flavors with GPUs; None if unknown.
        queues: Known objects that decide whether the job starts.
        training: Size of the training; None if it is not known.
        mode: Who makes the objects: Trainer's controller (`trainer`), or this package (`jobset`).
        asked: What several rules need and takes long, by name.
    """

    runtime: Document
    train_job: Document
    objects: tuple[Document, ...]
    release: Release
    siblings: tuple[Document, ...] = ()
    taints: Taints | None = None
    queues: Queues = field(default_factory=Queues)
    mode: Mode = "jobset"
    training: Training | None = None
    asked: dict[str, list[Problem]] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> Any:
        return section(self.train_job, "metadata").get("name")

    @property
    def namespace(self) -> Any:
        return section(self.train_job, "metadata").get("namespace") or DEFAULT_NAMESPACE

    @cached_property
    def jobset(self) -> Document:
        """The rendered JobSet; empty if not found."""
        return next((d for d in self.objects if d.get("kind") == "JobSet"), {})

    @cached_property
    def queued(self) -> Document:
        """The object that Kueue admits, if it has a queue."""
        return queued_object(self.train_job, self.jobset, self.mode)

    @cached_property
    def queue(self) -> Any:
        """The LocalQueue of the job; empty for none, may be unknown."""
        return self.queues.queue_of(self.queued)

    @cached_property
    def steps(self) -> list[Step]:
        """The steps of the rendered JobSet."""
        return steps_of(section(self.jobset, "spec"))

    @cached_property
    def later_steps(self) -> dict[str, list[Step]]:
        """Name of a step -> the steps that begin after its end."""
        found: dict[str, list[Step]] = {}
        for step in self.steps:
            for name in dict.fromkeys(
                str(each.get("name")) for each in step.depends_on if each.get("status") == "Complete"
            ):
                found.setdefault(name, []).append(step)
        return found

    @cached_property
    def template(self) -> list[Step]:
        """The steps of the runtime, before patches and plugins."""
        return steps_of(section(self.runtime, "spec", "template", "spec"))

    @cached_property
    def success_policy(self) -> SuccessPolicy | None:
        """`spec.successPolicy` of the rendered JobSet; None if it is not known."""
        policy = section(self.jobset, "spec", "successPolicy")
        steps = listed(policy.get("targetReplicatedJobs")) or [step.name for step in self.steps]
        if first_unknown([value_or_unknown(self.jobset, "spec", "successPolicy"), *steps]) is not None:
            return None
        return SuccessPolicy(steps, policy.get("operator") == "Any")

    @cached_property
    def steps_known(self) -> bool:
        """Whether all steps and their labels are known."""
        spec = value_or_unknown(self.runtime, "spec", "template", "spec")
        jobs = [value_or_unknown(spec, "replicatedJobs"), value_or_unknown(self.jobset, "spec", "replicatedJobs")]
        if not all(map(all_known, jobs)):
            return False
        for step in self.steps:
            labels = value_or_unknown(step.document, "template", "metadata", "labels")
            if first_unknown([labels, step.name]) is not None:
                return False
        return True

    @cached_property
    def ml_policy(self) -> Document | None:
        """`spec.mlPolicy` of the runtime; None if it is missing, which differs from an empty one."""
        return section_if_given(section(self.runtime, "spec"), "mlPolicy")

    def policy(self, name: str) -> Document | None:
        return section_if_given(self.ml_policy, name)

    def has_policy(self, *names: str) -> bool:
        return any(self.policy(name) is not None for name in names)

    @property
    def trainer(self) -> Document | None:
        """`spec.trainer`; None if it is missing, which differs from an empty one."""
        return section_if_given(section(self.train_job, "spec"), "trainer")

    @property
    def patches(self) -> list[tuple[int, Document]]:
        """`spec.runtimePatches`, each with its index."""
        patches = listed(section(self.train_job, "spec").get("runtimePatches"))
        return [(place, patch) for place, patch in enumerate(patches) if isinstance(patch, dict)]

    @cached_property
    def patches_known(self) -> bool:
        """Whether it is known which Pods the patches change, and their tolerations and mounts."""
        given = value_or_unknown(self.train_job, "spec", "runtimePatches")
        patches = listed(given)
        lists = values_or_unknown(patches, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
        jobs = _flat(lists)
        pods = values_or_unknown(jobs, "template", "spec", "template", "spec")
        lists += [*values_or_unknown(pods, "containers"), *values_or_unknown(pods, "tolerations")]
        inside = _flat(lists)
        mounts = values_or_unknown(inside, "volumeMounts")
        names = values_or_unknown([*jobs, *inside], "name")
        paths = values_or_unknown(_flat(mounts), "mountPath")
        return not any_unknown([given, *patches, *lists, *pods, *mounts, *names, *paths])

    def step(self, name: str) -> Step | None:
        return next((s for s in self.steps if s.name == name), None)

    @cached_property
    def trainers(self) -> list[Step]:
        """The steps with ancestor trainer."""
        return [s for s in self.steps if s.ancestor == TRAINER]

    @property
    def first_trainer(self) -> Step | None:
        """The first step with ancestor trainer; None if not found."""
        return next(iter(self.trainers), None)

    @property
    def trainer_container(self) -> Document | None:
        """The container of the first trainer that trains; None if not found."""
        return None if self.first_trainer is None else self.first_trainer.node

    @cached_property
    def worker(self) -> Step | None:
        """The step whose Pods train: with MPI the nodes, else the trainer."""
        if self.has_policy("mpi"):
            nodes = self.step(NODE)
            if nodes is not None:
                return nodes
        return self.first_trainer

    @property
    def worker_container(self) -> Document | None:
        """The container of the worker that trains; None if not found."""
        return None if self.worker is None else self.worker.node

    @cached_property
    def nodes(self) -> int | None:
        """Number of nodes that train; None if unknown.

        With MPI one may be the launcher, and then there is at least one other node.
        """
        if self.worker is None:
            return None
        count = self.worker.pods
        if count is None:
            return None
        launches = (self.policy("mpi") or {}).get("runLauncherAsNode") is True and self.worker.ancestor != TRAINER
        if not launches:
            return count
        return nodes_with_launcher(count, number(given_nodes(self.trainer)) or 1)

    @property
    def several_nodes(self) -> bool:
        return self.nodes is not None and self.nodes > 1

    @cached_property
    def gpus(self) -> int:
        """GPUs that a node's container requests or claims, as rendered; 0 also if unknown."""
        return gpus(self.worker_container or {}) or self.claimed_gpus or 0

    @cached_property
    def claims(self) -> list[DeviceClaim]:
        """The claims whose devices a node's container gets."""
        if self.worker is None:
            return []
        return claims_of_container(self.worker_container or {}, self.claims_of(self.worker))

    def claims_of(self, step: Step) -> tuple[DeviceClaim, ...]:
        """Return the devices that the Pods of a step claim."""
        return self.queues.claims_of(step.pod, section(self.train_job, "metadata").get("namespace"))

    def may_select(self, selector: Document, namespace: str) -> bool:
        """Return whether a namespaceSelector may match a namespace, whose labels may be unknown."""
        return self.queues.selects(selector, namespace) is not False

    @cached_property
    def claimed_gpus(self) -> int | None:
        """GPUs that a node's container claims; None if their number is not known."""
        return count_gpus(self.claims)

    @property
    def words(self) -> list[str] | None:
        """Command and arguments of the trainer; None if they are unknown, or defined by the image."""
        container = self.trainer_container or {}
        found: list[Any] = []
        for part in ("command", "args"):
            given = container.get(part) or []
            if not isinstance(given, list):
                return None
            found += given
        if not found or not all(isinstance(word, str) for word in found):
            return None
        return found

    @property
    def env(self) -> list[Document]:
        """Environment of the trainer's container."""
        return items(self.trainer_container, "env")

    def variable(self, name: str) -> str:
        """Return the value of a variable of the trainer; empty if it has none, "given" if it is not known here."""
        found = next((each for each in self.env if each.get("name") == name), {})
        if "valueFrom" in found or isinstance(found.get("value"), Unknown):
            return "given"
        return str(found.get("value") or "")


def steps_of(spec: Document) -> list[Step]:
    """Return the steps of a JobSet's spec, with their paths in the runtime."""
    return [Step(job.document, job.place, job.at) for job in replicated_jobs(spec, "spec.template.spec")]


def all_known(jobs: Any) -> bool:
    """Return whether neither a list of replicated jobs nor one of its items is unknown as a whole."""
    return not any_unknown([jobs, *listed(jobs)])


def value_or_unknown(document: Any, *path: str) -> Any:
    """Return the value at a path, or its innermost unknown parent; None if not found."""
    for name in path:
        if isinstance(document, Unknown):
            return document
        document = section(document).get(name)
    return document


def values_or_unknown(documents: Iterable[Any], *path: str) -> list[Any]:
    """Return the value of each document at a path, as `value_or_unknown` does."""
    return [value_or_unknown(document, *path) for document in documents]


def listed_or_unknown(value: Any) -> list[Any]:
    """Return a list, or one with an unknown value in its place; empty for any other value."""
    return [value] if isinstance(value, Unknown) else listed(value)


def number(value: Any) -> int | None:
    """Return a whole number; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value


def gpus(container: Document) -> int:
    """Return the GPUs that a container requests; 0 also if unknown."""
    given = section(container, "resources")
    amounts: Document = {}
    try:
        for part in given:
            amounts[part] = {name: _text(n) for name, n in section(given, part).items()}
        found = counted_gpus(amounts)
    except ValueError:
        return 0
    if not isinstance(found, int):
        return 0
    return found


def _text(quantity: Any) -> Any:
    if isinstance(quantity, int):
        return str(quantity)
    return quantity


def amount(value: Any) -> Quantity | None:
    """Return a quantity; None if it is unknown or not valid."""
    if not isinstance(value, (str, int)):
        return None
    try:
        return Quantity.parse(str(value))
    except ValueError:
        return None
