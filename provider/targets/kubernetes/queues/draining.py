"""The work of a ClusterQueue: who has it, how it is taken away, and the refusal to delete a queue that has some.

Every call may be repeated after a crash at
any place: the queue's own stopPolicy is all that is written.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pulumi_trainer.provider.api.labels import MADE_BY
from pulumi_trainer.provider.api.submission import Work
from pulumi_trainer.provider.kube.cache.discovery import Facts
from pulumi_trainer.provider.kube.client.client import ApiError, Client
from pulumi_trainer.provider.kube.client.kinds import Kind
from pulumi_trainer.provider.kube.client.transport import FIELD_MANAGER
from pulumi_trainer.provider.kube.errors import (
    Problem,
    Refused,
    TargetFault,
    several,
)
from pulumi_trainer.provider.kube.values.quantity import Quantity
from pulumi_trainer.provider.kueue.objects import GROUP, KINDS, NAMESPACED
from pulumi_trainer.provider.kueue.resources import CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD

Document = dict[str, Any]

SETTLING = 10.0
"""Seconds for work that is on its way out: jobs that are deleted in the same run."""
_POLL = (0.1, 1.0)
_FEW = 5
STOPPED = "HoldAndDrain"


@dataclass(frozen=True)
class Holder:
    """A Workload. amounts: resource -> what it holds; None: it waits. owner: the job that it stands for. since: when it got
    the quota. queue: namespace and name of its LocalQueue."""

    where: str
    owner: str
    amounts: Mapping[str, str] | None
    since: str = ""
    queue: str = ""

    def __str__(self) -> str:
        if self.amounts is None:
            return f"{self.where} ({self.owner}) waits"
        held = ", ".join(f"{amount} {resource}" for resource, amount in self.amounts.items())
        return f"{self.where} ({self.owner}) holds {held or 'nothing'}" + (f" since {self.since}" if self.since else "")


def work(client: Client, name: str, version: str) -> list[Work]:
    """Return what the unfinished Workloads of a ClusterQueue hold, or that they wait."""
    return [Work(holder.queue, holder.owner, str(holder)) for holder in _holders(client, name, version)]


def versions(client: Client, patience: float) -> dict[str, list[str]]:
    """Version of Kueue's API -> the plurals that the cluster has in it. patience: seconds for an answer."""
    facts = Facts.of(client, patience)
    return {version: facts.plurals(f"{GROUP}/{version}") for version in facts.served().get(GROUP, [])}


def reopen(client: Client, name: str, version: str) -> None:
    """Takes back the stop of a deletion that did not come to its end; one that is somebody else's stays."""
    kind = _at(CLUSTER_QUEUE, version)
    found = client.get(kind, "", name)
    if found is not None and not found["metadata"].get("deletionTimestamp") and _stopped_by_us(found):
        client.apply(kind, _bare(kind, found), force=True)


def release(client: Client, name: str, version: str, *, drain: bool, seconds: float, stack: str = "") -> list[str]:
    """Returns once nothing holds quota of the queue any more; what to tell then. seconds: how long a drained job may take. stack:
    the owner that must be written on the queue; empty: any.

    Raises Refused where it belongs to another stack, or has work and is not to be drained; TargetFault with who still holds
    what."""
    kind = _at(CLUSTER_QUEUE, version)
    found = _own(client, kind, name, stack)
    if found is None:
        return []
    where = kind.where("", name)
    if not drain:
        if left := _emptied(client, name, version, SETTLING, waiting=True):
            mend = 'end or move these jobs; or give the queue on_delete="drain" and run `pulumi up` before it goes'
            raise Refused(Problem(where, f"is not deleted, as it has work: {_shown(left)}", mend))
        return []
    while found is not None and (found.get("spec") or {}).get("stopPolicy") != STOPPED:
        stopped = {**_bare(kind, found), "spec": {"stopPolicy": STOPPED}}
        stopped["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        try:
            found = client.apply(kind, stopped, force=True)
        except ApiError as error:
            if error.code != 409:
                raise
            found = _own(client, kind, name, stack)  # it has changed since it was read: another stack may have it
    before = [holder for holder in _holders(client, name, version) if holder.amounts is not None]
    if left := [h for h in _emptied(client, name, version, seconds, waiting=False) if h.amounts is not None]:
        why = f"is not deleted: after {seconds:g} s of {STOPPED}, {_shown(left)}"
        mend = (
            f"it stays stopped, so nothing new starts in it; end these jobs and delete it again, or let it go on: kubectl "
            f"""patch clusterqueue {name} --type merge -p '{{"spec":{{"stopPolicy":"None"}}}}'"""
        )
        raise TargetFault(Problem(where, why, mend))
    names = ", ".join(h.owner for h in before[:_FEW]) + (
        f" and {len(before) - _FEW} more" if len(before) > _FEW else ""
    )
    return [f"{where} was drained: {names} {'is' if len(before) == 1 else 'are'} suspended"] if before else []


def _own(client: Client, kind: Kind, name: str, stack: str) -> Document | None:
    """The queue, if there is one. Raises Refused if it belongs to another stack."""
    found, wrong = _owned(client, kind, "", name, stack)
    if wrong:
        raise Refused(*wrong)
    return found


def check_owner(client: Client, objects: Iterable[Mapping[str, str]], stack: str) -> None:
    """Raises Refused if some of these objects of Kueue's belong to another stack by now."""
    wrong = []
    for each in objects:
        kind, namespaced = each["kind"], each["kind"] == NAMESPACED
        of = Kind(f"{GROUP}/{each['version']}", kind, KINDS[kind], namespaced)
        wrong += _owned(client, of, each["namespace"], each["name"], stack)[1]
    if wrong:
        raise Refused(*wrong)


def _owned(client: Client, kind: Kind, namespace: str, name: str, stack: str) -> tuple[Document | None, list[Problem]]:
    """Return an object, and that it belongs to another stack."""
    found = client.get(kind, namespace, name)
    owner = (found["metadata"].get("annotations") or {}).get(MADE_BY) if found is not None else None
    if not stack or owner in (None, stack):
        return found, []
    hint = "make this stack forget it: pulumi state delete --target-dependents URN (pulumi stack --show-urns)"
    return found, [Problem(kind.where(namespace, name), f"belongs to the stack {owner} now, and is left alone", hint)]


def _emptied(client: Client, name: str, version: str, seconds: float, *, waiting: bool) -> list[Holder]:
    """Who is left after that time; nobody, as soon as nobody is. waiting: jobs without quota count too."""
    deadline, (pause, longest) = time.monotonic() + seconds, _POLL
    while True:
        left = [h for h in _holders(client, name, version) if waiting or h.amounts is not None]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(pause)
        pause = min(2 * pause, longest)


def _holders(client: Client, name: str, version: str) -> list[Holder]:
    """The unfinished Workloads of a ClusterQueue: those with quota first."""
    queues, _ = client.list(_at(LOCAL_QUEUE, version), keep=lambda found: _queue_of(found, name))
    own = {(q["metadata"].get("namespace"), q["metadata"]["name"]) for q in queues}

    def keep(found: Document) -> Document | None:
        spec, status, metadata = found.get("spec") or {}, found.get("status") or {}, found["metadata"]
        conditions = {c.get("type"): c for c in status.get("conditions") or []}
        if (conditions.get("Finished") or {}).get("status") == "True":
            return None
        reserved = (conditions.get("QuotaReserved") or {}).get("status") == "True"
        admission = status.get("admission") or {} if reserved else {}
        mine = (
            admission.get("clusterQueue") == name
            if admission
            else ((metadata.get("namespace"), spec.get("queueName")) in own and spec.get("active") is not False)
        )
        since = (conditions.get("QuotaReserved") or {}).get("lastTransitionTime", "")
        kept = {"metadata": metadata, "admission": admission, "since": since, "queue": spec.get("queueName")}
        return kept if mine else None

    found, _ = client.list(_at(WORKLOAD, version), keep=keep)
    holders = [_holder(each) for each in found]
    return sorted(holders, key=lambda h: (h.amounts is None, h.where))


def _queue_of(found: Document, name: str) -> Document | None:
    return found if (found.get("spec") or {}).get("clusterQueue") == name else None


def _holder(found: Document) -> Holder:
    metadata, admission = found["metadata"], found["admission"]
    owner = next((o for o in metadata.get("ownerReferences") or [] if o.get("controller")), None)
    where = f"{metadata.get('namespace')}/{metadata['name']}"
    said = f"{owner.get('kind')} {metadata.get('namespace')}/{owner.get('name')}" if owner else where
    queue = f"{metadata.get('namespace')}/{found['queue']}"
    return Holder(where, said, _amounts(admission) if admission else None, found["since"] if admission else "", queue)


def _amounts(admission: Mapping[str, Any]) -> dict[str, str]:
    """What it holds of extended resources, such as GPUs; where it has none, of all."""
    found: dict[str, Quantity] = {}
    for part in admission.get("podSetAssignments") or []:
        for resource, amount in (part.get("resourceUsage") or {}).items():
            read = Quantity.parse(str(amount))
            found[resource] = found[resource] + read if resource in found else read
    extended = {r: q for r, q in found.items() if "/" in r}
    return {r: str(q) for r, q in (extended or found).items()}


def _shown(holders: Iterable[Holder]) -> str:
    return several([str(holder) for holder in holders])


def _at(kind: Kind, version: str) -> Kind:
    return replace(kind, api_version=f"{GROUP}/{version}")


def _bare(kind: Kind, found: Document) -> Document:
    """Of that very object, so that an apply makes no other."""
    about = {"name": found["metadata"]["name"], "uid": found["metadata"]["uid"]}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": about}


def _stopped_by_us(found: Document) -> bool:
    managers = found["metadata"].get("managedFields") or []
    return any(
        m.get("manager") == FIELD_MANAGER and m.get("operation") == "Apply" and "f:spec" in (m.get("fieldsV1") or {})
        for m in managers
    )
