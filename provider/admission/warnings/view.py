"""What a rule of this folder looks at: a runtime, a TrainJob and the objects rendered from them, taken apart.

Every value may be unknown, which counts as right: `number` and `words` are None then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pulumi_trainer.provider.api.labels import ANCESTOR
from pulumi_trainer.provider.kube.values.accessors import listed, section
from pulumi_trainer.provider.kube.values.quantity import Quantity
from pulumi_trainer.provider.kube.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.pipeline.info import NODE, TRAINER
from pulumi_trainer.provider.pipeline.resources import gpus as counted_gpus

Document = dict[str, Any]
Taints = Mapping[str, Sequence[Mapping[str, Any]]]
"""Node or flavor with GPUs -> its taints."""

TEMPLATE = "spec.template.spec.replicatedJobs"
DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True)
class Step:
    """A replicated job. place: its number in the list."""

    place: int
    document: Document

    @property
    def name(self) -> Any:
        return self.document.get("name", "")

    @property
    def at(self) -> str:
        """Its path in the runtime."""
        return f"{TEMPLATE}[{self.place}]"

    @property
    def ancestor(self) -> Any:
        return section(self.document, "template", "metadata", "labels").get(ANCESTOR)

    @property
    def job(self) -> Document:
        return section(self.document, "template", "spec")

    @property
    def pod(self) -> Document:
        return section(self.job, "template", "spec")

    @property
    def count(self) -> int | None:
        """Pods of one of its Jobs."""
        return number(self.job.get("parallelism", 1))

    @property
    def pods(self) -> int | None:
        """Pods of all its Jobs."""
        replicas = number(self.document.get("replicas", 1))
        return None if self.count is None or replicas is None else self.count * replicas

    @property
    def containers(self) -> list[Document]:
        return [c for c in listed(self.pod.get("containers")) if isinstance(c, dict)]

    @property
    def init_containers(self) -> list[Document]:
        return [c for c in listed(self.pod.get("initContainers")) if isinstance(c, dict)]

    @property
    def node(self) -> Document | None:
        """The container that trains."""
        return next((c for c in self.containers if c.get("name") == NODE), None)

    @property
    def volumes(self) -> list[Document]:
        return [v for v in listed(self.pod.get("volumes")) if isinstance(v, dict)]

    @property
    def waits_for(self) -> list[Any]:
        """Names of the steps in its dependsOn."""
        return [section(other).get("name") for other in listed(self.document.get("dependsOn"))]


@dataclass(frozen=True)
class View:
    """runtime, train_job: with an API server's defaults. objects: rendered from them; none where rendering failed.
    siblings: other JobSets. taints: of all places that have GPUs; None: nobody knows. queues: what is known of Kueue's."""

    runtime: Document
    train_job: Document
    objects: tuple[Document, ...]
    siblings: tuple[Document, ...] = ()
    taints: Taints | None = None
    queues: Queues = field(default_factory=Queues)

    @property
    def name(self) -> Any:
        return section(self.train_job, "metadata").get("name")

    @cached_property
    def jobset(self) -> Document:
        """Empty where there is none."""
        return next((d for d in self.objects if d.get("kind") == "JobSet"), {})

    @cached_property
    def steps(self) -> list[Step]:
        """Of the rendered JobSet."""
        return steps_of(section(self.jobset, "spec"))

    @cached_property
    def template(self) -> list[Step]:
        """Of the runtime, before patches and plugins."""
        return steps_of(section(self.runtime, "spec", "template", "spec"))

    @cached_property
    def sure(self) -> bool:
        """Whether it is known which steps there are, and what they are for."""
        spec = reached(self.runtime, "spec", "template", "spec")
        jobs = [reached(spec, "replicatedJobs"), reached(self.jobset, "spec", "replicatedJobs")]
        labels = [reached(s.document, "template", "metadata", "labels") for s in self.steps]
        return all(map(all_known, jobs)) and not first_unknown([labels, [s.name for s in self.steps]])

    @property
    def ml_policy(self) -> Document | None:
        """None where there is none, which is not the same as an empty one."""
        policy = section(self.runtime, "spec").get("mlPolicy")
        return policy if isinstance(policy, dict) else None

    def policy(self, name: str) -> Document | None:
        found = (self.ml_policy or {}).get(name)
        return found if isinstance(found, dict) else None

    def has_policy(self, *names: str) -> bool:
        return any(self.policy(name) is not None for name in names)

    @property
    def trainer(self) -> Document | None:
        """`spec.trainer`; None if there is none, which is not the same as an empty one."""
        trainer = section(self.train_job, "spec").get("trainer")
        return trainer if isinstance(trainer, dict) else None

    @property
    def patches(self) -> list[tuple[int, Document]]:
        """`spec.runtimePatches`, each with its place."""
        patches = listed(section(self.train_job, "spec").get("runtimePatches"))
        return [(place, patch) for place, patch in enumerate(patches) if isinstance(patch, dict)]

    @cached_property
    def patches_known(self) -> bool:
        """Whether it is known which Pods they change, and what these bear and mount."""
        given = reached(self.train_job, "spec", "runtimePatches")
        lists = [reached(p, "trainingRuntimeSpec", "template", "spec", "replicatedJobs") for p in listed(given)]
        jobs = [job for each in lists for job in listed(each)]
        pods = [reached(job, "template", "spec", "template", "spec") for job in jobs]
        lists += [reached(pod, part) for pod in pods for part in ("containers", "tolerations")]
        inside = [item for each in lists for item in listed(each)]
        mounts = [reached(item, "volumeMounts") for item in inside]
        names = [reached(item, "name") for item in [*jobs, *inside]]
        paths = [reached(mount, "mountPath") for each in mounts for mount in listed(each)]
        patches = listed(given)
        return not any(isinstance(one, Unknown) for one in [given, *patches, *lists, *pods, *mounts, *names, *paths])

    def step(self, name: str) -> Step | None:
        return next((s for s in self.steps if s.name == name), None)

    @cached_property
    def trainers(self) -> list[Step]:
        return [s for s in self.steps if s.ancestor == TRAINER]

    @cached_property
    def worker(self) -> Step | None:
        """The step whose Pods train: with MPI the nodes, else the trainer."""
        nodes = self.step(NODE) if self.has_policy("mpi") else None
        return nodes or next(iter(self.trainers), None)

    @cached_property
    def nodes(self) -> int | None:
        """How many nodes train; None if nobody knows. With MPI one may be the launcher, and then there is always another."""
        if self.worker is None or self.worker.count is None:
            return None
        launches = (self.policy("mpi") or {}).get("runLauncherAsNode") is True and self.worker.ancestor != TRAINER
        wanted = number((self.trainer or {}).get("numNodes")) or 1
        return min(self.worker.count + 1, max(wanted, self.worker.count)) if launches else self.worker.count

    @property
    def several_nodes(self) -> bool:
        return self.nodes is not None and self.nodes > 1

    @cached_property
    def gpus(self) -> int:
        """Of a node's container, as rendered; 0 too if nobody knows."""
        return gpus((self.worker.node or {}) if self.worker else {})

    @property
    def words(self) -> list[str] | None:
        """Command and arguments of the trainer; None if they are not known, or if the image decides."""
        container = self.trainers[0].node if self.trainers else None
        parts = [(container or {}).get(part) or [] for part in ("command", "args")]
        found = [word for part in parts for word in listed(part)]
        known = all(isinstance(part, list) for part in parts) and all(isinstance(word, str) for word in found)
        return found if known and found else None

    @property
    def env(self) -> list[Document]:
        """Of the trainer's container."""
        container = self.trainers[0].node if self.trainers else None
        return [e for e in listed((container or {}).get("env")) if isinstance(e, dict)]


def steps_of(spec: Document) -> list[Step]:
    jobs = enumerate(listed(spec.get("replicatedJobs")))
    return [Step(place, job) for place, job in jobs if isinstance(job, dict)]


def all_known(jobs: Any) -> bool:
    """Whether no replicated job of a list, and not the list, is unknown as a whole."""
    return not any(isinstance(job, Unknown) for job in [jobs, *listed(jobs)])


def reached(document: Any, *path: str) -> Any:
    """The value at a path, or the unknown value that holds it; None where there is none."""
    for name in path:
        if isinstance(document, Unknown):
            return document
        document = document.get(name) if isinstance(document, dict) else None
    return document


def number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def gpus(container: Document) -> int:
    """GPUs that a container asks for; 0 too if nobody knows."""
    given = section(container, "resources")
    try:
        found = counted_gpus({part: {name: _text(n) for name, n in section(given, part).items()} for part in given})
    except ValueError:
        return 0
    return found if isinstance(found, int) else 0


def _text(quantity: Any) -> Any:
    return str(quantity) if isinstance(quantity, int) else quantity


def amount(value: Any) -> Quantity | None:
    """A quantity; None if it is not known, or none."""
    try:
        return Quantity.parse(str(value)) if isinstance(value, (str, int)) else None
    except ValueError:
        return None
