"""The input of a rule: a runtime, a TrainJob and the objects rendered from them, with accessors for their parts.

Every value may be unknown and then counts as valid: `number` and `words` are None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, product
from typing import Any

from pulumi_trainer.provider.api.labels import ancestor_of
from pulumi_trainer.provider.kube.values.accessors import items, listed, section
from pulumi_trainer.provider.kube.values.quantity import Quantity
from pulumi_trainer.provider.kube.values.unknown import Unknown, any_unknown, first_unknown
from pulumi_trainer.provider.kube.views import ReplicatedJob, replicated_jobs
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.pipeline import Mode
from pulumi_trainer.provider.pipeline.info import NODE, TRAINER
from pulumi_trainer.provider.pipeline.resources import gpus as counted_gpus

Document = dict[str, Any]
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
class View:
    """The input of a rule.

    Args:
        runtime: The runtime, with an API server's defaults.
        train_job: The TrainJob, with an API server's defaults.
        objects: The rendered objects; empty if rendering failed.
        siblings: Other JobSets.
        taints: Taints of nodes and flavors with GPUs; None if unknown.
        queues: Known objects of Kueue.
        mode: Who makes the objects: Trainer's controller (`trainer`), or this package (`jobset`).
    """

    runtime: Document
    train_job: Document
    objects: tuple[Document, ...]
    siblings: tuple[Document, ...] = ()
    taints: Taints | None = None
    queues: Queues = field(default_factory=Queues)
    mode: Mode = "jobset"

    @property
    def name(self) -> Any:
        return section(self.train_job, "metadata").get("name")

    @cached_property
    def jobset(self) -> Document:
        """The rendered JobSet; empty if not found."""
        return next((d for d in self.objects if d.get("kind") == "JobSet"), {})

    @cached_property
    def steps(self) -> list[Step]:
        """The steps of the rendered JobSet."""
        return steps_of(section(self.jobset, "spec"))

    @cached_property
    def template(self) -> list[Step]:
        """The steps of the runtime, before patches and plugins."""
        return steps_of(section(self.runtime, "spec", "template", "spec"))

    @cached_property
    def steps_known(self) -> bool:
        """Whether all steps and their labels are known."""
        spec = value_or_unknown(self.runtime, "spec", "template", "spec")
        jobs = [value_or_unknown(spec, "replicatedJobs"), value_or_unknown(self.jobset, "spec", "replicatedJobs")]
        labels = [value_or_unknown(s.document, "template", "metadata", "labels") for s in self.steps]
        return all(map(all_known, jobs)) and not first_unknown([labels, [s.name for s in self.steps]])

    @cached_property
    def ml_policy(self) -> Document | None:
        """`spec.mlPolicy` of the runtime; None if it is missing, which differs from an empty one."""
        policy = section(self.runtime, "spec").get("mlPolicy")
        return policy if isinstance(policy, dict) else None

    def policy(self, name: str) -> Document | None:
        found = (self.ml_policy or {}).get(name)
        return found if isinstance(found, dict) else None

    def has_policy(self, *names: str) -> bool:
        return any(self.policy(name) is not None for name in names)

    @property
    def trainer(self) -> Document | None:
        """`spec.trainer`; None if it is missing, which differs from an empty one."""
        trainer = section(self.train_job, "spec").get("trainer")
        return trainer if isinstance(trainer, dict) else None

    @property
    def patches(self) -> list[tuple[int, Document]]:
        """`spec.runtimePatches`, each with its index."""
        patches = listed(section(self.train_job, "spec").get("runtimePatches"))
        return [(place, patch) for place, patch in enumerate(patches) if isinstance(patch, dict)]

    @cached_property
    def patches_known(self) -> bool:
        """Whether it is known which Pods the patches change, and their tolerations and mounts."""
        given = value_or_unknown(self.train_job, "spec", "runtimePatches")
        lists = [
            value_or_unknown(p, "trainingRuntimeSpec", "template", "spec", "replicatedJobs") for p in listed(given)
        ]
        jobs = _flat(lists)
        pods = [value_or_unknown(job, "template", "spec", "template", "spec") for job in jobs]
        lists += [value_or_unknown(pod, part) for pod, part in product(pods, ("containers", "tolerations"))]
        inside = _flat(lists)
        mounts = [value_or_unknown(item, "volumeMounts") for item in inside]
        names = [value_or_unknown(item, "name") for item in [*jobs, *inside]]
        paths = [value_or_unknown(mount, "mountPath") for mount in _flat(mounts)]
        patches = listed(given)
        return not any_unknown([given, *patches, *lists, *pods, *mounts, *names, *paths])

    def step(self, name: str) -> Step | None:
        return next((s for s in self.steps if s.name == name), None)

    @cached_property
    def trainers(self) -> list[Step]:
        """The steps with ancestor trainer."""
        return [s for s in self.steps if s.ancestor == TRAINER]

    @cached_property
    def worker(self) -> Step | None:
        """The step whose Pods train: with MPI the nodes, else the trainer."""
        nodes = self.step(NODE) if self.has_policy("mpi") else None
        return nodes or next(iter(self.trainers), None)

    @cached_property
    def nodes(self) -> int | None:
        """Number of nodes that train; None if unknown.

        With MPI one may be the launcher, and then there is at least one other node.
        """
        count = self.worker.pods if self.worker else None
        if self.worker is None or count is None:
            return None
        launches = (self.policy("mpi") or {}).get("runLauncherAsNode") is True and self.worker.ancestor != TRAINER
        wanted = number((self.trainer or {}).get("numNodes")) or 1
        return min(count + 1, max(wanted, count)) if launches else count

    @property
    def several_nodes(self) -> bool:
        return self.nodes is not None and self.nodes > 1

    @cached_property
    def gpus(self) -> int:
        """GPUs of a node's container, as rendered; 0 also if unknown."""
        return gpus((self.worker.node or {}) if self.worker else {})

    @property
    def words(self) -> list[str] | None:
        """Command and arguments of the trainer; None if they are unknown, or defined by the image."""
        container = self.trainers[0].node if self.trainers else None
        parts = [(container or {}).get(part) or [] for part in ("command", "args")]
        found = _flat(parts)
        known = all(isinstance(part, list) for part in parts) and all(isinstance(word, str) for word in found)
        return found if known and found else None

    @property
    def env(self) -> list[Document]:
        """Environment of the trainer's container."""
        return items(self.trainers[0].node, "env") if self.trainers else []


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


def number(value: Any) -> int | None:
    """Return a whole number; None for any other value."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def gpus(container: Document) -> int:
    """Return the GPUs that a container requests; 0 also if unknown."""
    given = section(container, "resources")
    try:
        found = counted_gpus({part: {name: _text(n) for name, n in section(given, part).items()} for part in given})
    except ValueError:
        return 0
    return found if isinstance(found, int) else 0


def _text(quantity: Any) -> Any:
    return str(quantity) if isinstance(quantity, int) else quantity


def amount(value: Any) -> Quantity | None:
    """Return a quantity; None if it is unknown or not valid."""
    try:
        return Quantity.parse(str(value)) if isinstance(value, (str, int)) else None
    except ValueError:
        return None
