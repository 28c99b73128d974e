"""What a run of a job requests and for whom, as records keep it for `pulumi-trainer usage`."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from itertools import chain
from typing import Any

from pulumi_trainer.provider.jobs.edited_json import parse
from pulumi_trainer.provider.jobs.nodes import given_nodes
from pulumi_trainer.provider.kubernetes.terminal import plain, plain_field
from pulumi_trainer.provider.kubernetes.values.accessors import labels_of, mappings, plausible_seconds, section, text
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.kueue.podsets import claimed_gpus, pod_sets

UNKNOWN_USER = "an unknown user"
USER = "pulumi-trainer.dev/user"
"""Annotation of a JobSet or TrainJob: who has created it. The policy of `policy render --users` writes it, else anybody can."""
_LONGEST = 253
_MOST = 1e15
"""GPUs or CPUs that no cluster has."""


@dataclass(frozen=True)
class Demand:
    """What a run of a job requests. None means unknown.

    Args:
        user: Account that has created or last updated the job; empty if unknown.
        annotated: Whether the user is that of the job's annotation; else it is the account on the machine of `pulumi up`.
        gpus: GPUs of all Pods that run at the same time.
        cpus: CPUs of all Pods that run at the same time; None also if none of them requests any.
        since: When the run began to run, in seconds since the epoch; 0 if not known (yet).
        flavor: Kueue's flavor of its GPUs; empty if it is not known, or if there are several.
    """

    user: str = ""
    queue: str | None = None
    gpus: float | None = None
    cpus: float | None = None
    since: float = 0.0
    flavor: str = ""
    annotated: bool = False

    def to_dict(self) -> dict[str, Any]:
        document = asdict(self)
        for name in ("since", "flavor", "annotated"):
            if not document[name]:
                del document[name]
        return {name: value for name, value in document.items() if value is not None}

    @classmethod
    def from_dict(cls, given: Any) -> Demand:
        """Return the demand in JSON that anybody may have written."""
        known = section(given)
        queue = known.get("queue")
        return cls(
            user=plain_field(known.get("user"), _LONGEST),
            queue=plain_field(queue, _LONGEST) if isinstance(queue, str) else None,
            gpus=_amount(known.get("gpus")),
            cpus=_amount(known.get("cpus")),
            flavor=plain_field(known.get("flavor"), _LONGEST),
            since=plausible_seconds(known.get("since")),
            annotated=known.get("annotated") is True,
        )

    def with_user_of(self, job: Mapping[str, Any] | None) -> Demand:
        """Return the demand with the user in the annotation of the job, if it has one."""
        user = plain_field(section(job, "metadata", "annotations").get(USER), _LONGEST)
        return replace(self, user=user, annotated=True) if user else self

    @property
    def user_shown(self) -> str:
        """The user as reports show it; empty if unknown."""
        return f"{self.user} (annotated)" if self.annotated else self.user

    @classmethod
    def from_text(cls, given: Any) -> Demand:
        """Return the demand in a text that anybody may have written."""
        return cls.from_dict(parse(given))

    def to_text(self) -> str:
        return json.dumps(self.to_dict(), separators=(",", ":"))


NOTHING_KNOWN = Demand()
"""The demand of a run that nothing is known of."""


def demand_of(job: Mapping[str, Any], user: str = "") -> Demand:
    """Return what a JobSet or TrainJob requests. Of a TrainJob only what it sets itself is known, of claims no devices."""
    claimed: int | None = 0
    if job.get("kind") == "TrainJob":
        requests = _of_train_job(job)
    else:
        requests, claimed = _of_jobset(job), claimed_gpus(pod_sets(dict(job)), is_gpu)
    queue = labels_of(dict(job)).get(QUEUE, "")
    if not isinstance(queue, str):
        queue = None
    if requests is None:
        return Demand(user, queue)
    gpus = None if claimed is None else count_gpus(requests.items()) + claimed
    return Demand(user, queue, gpus, float(requests["cpu"]) if "cpu" in requests else None)


def count_gpus(amounts: Iterable[tuple[str, Fraction]]) -> float:
    """Return the number of GPUs among amounts of resources: `VENDOR/gpu`, and `VENDOR/mig-...`, each of which counts as one."""
    return float(sum(amount for name, amount in amounts if is_gpu(name)))


def flavor_of(workload: Mapping[str, Any] | None) -> str:
    """Return the flavor of the GPUs of a Workload; empty if it has none, or several."""
    assigned = mappings(section(workload, "status", "admission").get("podSetAssignments"))
    pairs = chain.from_iterable(section(each, "flavors").items() for each in assigned)
    found = {text(flavor) for resource, flavor in pairs if is_gpu(resource)}
    return found.pop() if len(found) == 1 else ""


def current_user() -> str:
    """Return the name of this account, for records and messages."""
    try:
        return plain(getpass.getuser())[:_LONGEST]
    except (OSError, KeyError):
        return UNKNOWN_USER


def is_gpu(resource: str) -> bool:
    """Return whether a resource is a GPU, or a part of one (MIG)."""
    name = resource.rpartition("/")[2]
    return "/" in resource and (name == "gpu" or name.startswith("mig-"))


def _of_jobset(jobset: Mapping[str, Any]) -> dict[str, Fraction] | None:
    total: dict[str, Fraction] = {}
    for pods in pod_sets(dict(jobset)):
        requests = pods.requests()
        if requests is None or not pods.spec.get("containers"):
            return None
        for resource, amount in requests.items():
            total[resource] = total.get(resource, Fraction(0)) + amount
    return total


def _of_train_job(train_job: Mapping[str, Any]) -> dict[str, Fraction] | None:
    trainer = section(dict(train_job), "spec", "trainer")
    nodes, resources = given_nodes(trainer), section(trainer, "resourcesPerNode")
    if not isinstance(nodes, int) or not resources:
        return None
    each = {**section(resources, "limits"), **section(resources, "requests")}
    try:
        return {name: Quantity.parse(str(amount)).amount * nodes for name, amount in each.items()}
    except ValueError:
        return None


def _amount(value: Any) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < _MOST:
        return None
    return float(value)
