"""Lists and drains the work of a ClusterQueue, and refuses to delete a queue that still has work.

Every call can be repeated after a crash at any point: only the queue's own stopPolicy is written.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from pulumi_trainer.provider.jobs.status import NAMESAKE
from pulumi_trainer.provider.jobs.submission import Work
from pulumi_trainer.provider.kubernetes.cache.discovery import PLAN_SECONDS, Facts
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.client.transport import FIELD_MANAGER
from pulumi_trainer.provider.kubernetes.errors import Problem, Refused, TargetFault, several
from pulumi_trainer.provider.kubernetes.hand_edits import restoring_patch, with_plugin_as_manager, with_sole_manager
from pulumi_trainer.provider.kubernetes.values.accessors import (
    condition,
    conditions,
    controller_of,
    section,
    true_condition,
)
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity
from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD, api_resource
from pulumi_trainer.provider.kueue.objects import GROUP
from pulumi_trainer.provider.kueue.workload_reasons import priority_class
from pulumi_trainer.provider.targets.kubernetes.field_managers import change_managers
from pulumi_trainer.provider.trainer.labels import MADE_BY, stack_of_mark

Document = dict[str, Any]

SETTLING = 10.0
"""Seconds to wait for jobs that are deleted in the same run."""
_POLL = (0.1, 1.0)
STOPPED = "HoldAndDrain"


class ClusterQueues:
    """The queues of one cluster, as their guards see them."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def list_work(self, name: str, version: str) -> list[Work]:
        """Return the unfinished Workloads of a ClusterQueue, with their quota or that they wait."""
        holders = _holders(self.client.within(PLAN_SECONDS), name, version)
        return [Work(holder.queue, holder.owner, str(holder), holder.priority) for holder in holders]

    def served_versions(self) -> dict[str, list[str]]:
        """Return the versions of Kueue's API, with the plurals that the cluster serves in each."""
        facts = Facts.of(self.client, PLAN_SECONDS)
        return {version: facts.plurals(f"{GROUP}/{version}") for version in facts.served().get(GROUP, [])}

    def reopen(self, name: str, version: str) -> None:
        """Revert the stopPolicy that an interrupted deletion has left; a stopPolicy of another field manager stays."""
        kind = _at(CLUSTER_QUEUE, version)
        found = self.client.get(kind, "", name)
        if found is not None and not found["metadata"].get("deletionTimestamp") and _stopped_by_us(found):
            self.client.apply(kind, _bare(kind, found), force=True)

    def release(
        self,
        name: str,
        version: str,
        *,
        drain: bool,
        seconds: float,
        marks: Sequence[str],
        beside: Sequence[Mapping[str, str]],
    ) -> list[str]:
        """Make sure that a ClusterQueue of that stack has no work, and return notes for the user. beside: The objects that are
        deleted after the queue."""
        places = [(api_resource(each["kind"], each["version"]), each["namespace"], each["name"]) for each in beside]
        _check_owners(self.client, places, marks)
        if drain:
            return _drain(self.client, name, version, seconds, marks)
        kind = _at(CLUSTER_QUEUE, version)
        if _own(self.client, kind, name, marks) is not None:
            left = _emptied(self.client, name, version, SETTLING, waiting=True)
            if left:
                hint = 'end or move these jobs; or give the queue on_delete="drain" and run `pulumi up` before its deletion'
                why = f"is not deleted because it has jobs: {_shown(left)}"
                raise Refused(Problem(kind.where("", name), why, hint))
        return []

    def check_owner(self, objects: Sequence[Mapping[str, str]], marks: Sequence[str]) -> None:
        """Raise Refused if an object that pulumi-kubernetes is about to delete belongs to another stack."""
        _check_owners(self.client, [(_kind(each), each["namespace"], each["name"]) for each in objects], marks)

    def restore(self, objects: Sequence[Mapping[str, Any]]) -> None:
        """Revert what was changed by hand in objects, and make pulumi-kubernetes the manager of these fields and of those of
        adopted objects: it removes only its own.
        """
        for each in objects:
            kind, place = _kind(each), (each["namespace"], each["name"])
            if each.get("adopted"):
                change_managers(self.client, kind, self.client.get(kind, *place), with_sole_manager)
                continue
            live = self.client.patch(kind, *place, restoring_patch(each))
            change_managers(self.client, kind, live, lambda entries: with_plugin_as_manager(entries, FIELD_MANAGER))


@dataclass(frozen=True)
class Holder:
    """An unfinished Workload. amounts: Resource -> reserved quota; None if it waits."""

    where: str
    owner: str
    amounts: Mapping[str, str] | None
    since: str = ""
    queue: str = ""
    priority: str = ""

    def __str__(self) -> str:
        if self.amounts is None:
            return f"{self.where} ({self.owner}) waits"
        amounts = ", ".join(f"{amount} {resource}" for resource, amount in self.amounts.items())
        shown = f"{self.where} ({self.owner}) holds {amounts or 'nothing'}"
        if self.since:
            shown += f" since {self.since}"
        return shown


def _kind(guarded: Mapping[str, str]) -> Kind:
    return Kind(guarded["apiVersion"], guarded["kind"], guarded["plural"], bool(guarded["namespace"]))


def _drain(client: Client, name: str, version: str, seconds: float, marks: Collection[str]) -> list[str]:
    """Stop a queue, wait until no job has quota of it any more, and return which jobs were suspended."""
    kind = _at(CLUSTER_QUEUE, version)
    found = _own(client, kind, name, marks)
    if found is None:
        return []
    where = kind.where("", name)
    while found is not None and (found.get("spec") or {}).get("stopPolicy") != STOPPED:
        stopped = {**_bare(kind, found), "spec": {"stopPolicy": STOPPED}}
        stopped["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        try:
            found = client.apply(kind, stopped, force=True)
        except ApiError as error:
            if error.code != 409:
                raise
            found = _own(client, kind, name, marks)  # it has changed, and may belong to another stack
    before = _with_quota(_holders(client, name, version))
    left = _emptied(client, name, version, seconds, waiting=False)
    if left:
        why = f"is not deleted: after {seconds:g} s of {STOPPED}, {_shown(left)}"
        hint = (
            "it stays stopped, so no new jobs start in it; end these jobs and delete it again, or let it admit jobs again:"
            f""" kubectl patch clusterqueue {name} --type merge -p '{{"spec":{{"stopPolicy":"None"}}}}'"""
        )
        raise TargetFault(Problem(where, why, hint))
    if not before:
        return []
    names = join_names([holder.owner for holder in before], 5)
    verb = "is" if len(before) == 1 else "are"
    return [f"{where} was drained: {names} {verb} suspended"]


def _own(client: Client, kind: Kind, name: str, marks: Collection[str]) -> Document | None:
    """Return the queue; None if not found. Raises Refused if the queue belongs to another stack."""
    found, wrong = _owned(client, kind, "", name, marks)
    if wrong:
        raise Refused(*wrong)
    return found


def _check_owners(client: Client, objects: Iterable[tuple[Kind, str, str]], marks: Collection[str]) -> None:
    """Raise Refused if an object belongs to another stack."""
    wrong = [*chain.from_iterable(_owned(client, *place, marks)[1] for place in objects)]
    if wrong:
        raise Refused(*wrong)


def _owned(
    client: Client, kind: Kind, namespace: str, name: str, marks: Collection[str]
) -> tuple[Document | None, list[Problem]]:
    """Return an object, and a problem if it belongs to another stack. marks: Owner marks of this stack."""
    found = client.get(kind, namespace, name)
    if found is None:
        return None, []
    owner = (found["metadata"].get("annotations") or {}).get(MADE_BY)
    if owner is None or owner in marks:
        return found, []
    other = stack_of_mark(owner)
    whose = f"the stack {other} now"
    if other in map(stack_of_mark, marks):
        whose = NAMESAKE
    hint = "make this stack forget it: pulumi state delete --target-dependents URN (pulumi stack --show-urns)"
    return found, [Problem(kind.where(namespace, name), f"belongs to {whose}, and is left alone", hint)]


def _emptied(client: Client, name: str, version: str, seconds: float, *, waiting: bool) -> list[Holder]:
    """Return the Workloads that remain after the time limit; returns early if none remain. waiting: Whether Workloads without
    quota count too."""
    deadline, (pause, longest) = time.monotonic() + seconds, _POLL
    while True:
        left = _holders(client, name, version)
        if not waiting:
            left = _with_quota(left)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(pause)
        pause = min(2 * pause, longest)


def _with_quota(holders: Iterable[Holder]) -> list[Holder]:
    return [holder for holder in holders if holder.amounts is not None]


def _holders(client: Client, name: str, version: str) -> list[Holder]:
    """Return the unfinished Workloads of a ClusterQueue, those with quota first."""
    queues, _ = client.list(_at(LOCAL_QUEUE, version))
    mine = [queue for queue in queues if (queue.get("spec") or {}).get("clusterQueue") == name]
    own = {(queue["metadata"].get("namespace"), queue["metadata"]["name"]) for queue in mine}

    def keep(found: Document) -> Document | None:
        spec, metadata = section(found, "spec"), found["metadata"]
        if true_condition(conditions(found), "Finished"):
            return None
        admission: Document = {}
        if true_condition(conditions(found), "QuotaReserved"):
            admission = section(found, "status", "admission")
        is_in_queue = admission.get("clusterQueue") == name
        if not admission:
            waits = spec.get("active") is not False
            is_in_queue = waits and (metadata.get("namespace"), spec.get("queueName")) in own
        if not is_in_queue:
            return None
        since = condition(conditions(found), "QuotaReserved").get("lastTransitionTime", "")
        given = {"queue": spec.get("queueName"), "priority": priority_class(found)}
        return {"metadata": metadata, "admission": admission, "since": since, **given}

    found, _ = client.list(_at(WORKLOAD, version), keep=keep)
    return sorted(map(_job_as_holder, found), key=lambda h: (h.amounts is None, h.where))


def _job_as_holder(found: Document) -> Holder:
    metadata, admission = found["metadata"], found["admission"]
    owner = controller_of(found)
    where = f"{metadata.get('namespace')}/{metadata['name']}"
    owner_name = where
    if owner:
        owner_name = f"{owner.get('kind')} {metadata.get('namespace')}/{owner.get('name')}"
    queue = f"{metadata.get('namespace')}/{found['queue']}"
    amounts = _amounts(admission) if admission else None
    return Holder(where, owner_name, amounts, found["since"], queue, found["priority"])


def _amounts(admission: Mapping[str, Any]) -> dict[str, str]:
    """Return the reserved quota of extended resources, such as GPUs; of all resources if there are no extended ones."""
    found: dict[str, Quantity] = {}
    for part in admission.get("podSetAssignments") or []:
        for resource, amount in (part.get("resourceUsage") or {}).items():
            read = Quantity.parse(str(amount))
            if resource in found:
                read = found[resource] + read
            found[resource] = read
    extended = {r: q for r, q in found.items() if "/" in r}
    return {r: str(q) for r, q in (extended or found).items()}


def _shown(holders: Iterable[Holder]) -> str:
    return several([*map(str, holders)])


def _at(kind: Kind, version: str) -> Kind:
    return replace(kind, api_version=f"{GROUP}/{version}")


def _bare(kind: Kind, found: Document) -> Document:
    """Return a document that identifies exactly this object by its UID, so that an apply creates no other."""
    about = {"name": found["metadata"]["name"], "uid": found["metadata"]["uid"]}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": about}


def _stopped_by_us(found: Document) -> bool:
    managers = found["metadata"].get("managedFields") or []
    for entry in managers:
        is_apply = entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply"
        if is_apply and "f:spec" in (entry.get("fieldsV1") or {}):
            return True
    return False
