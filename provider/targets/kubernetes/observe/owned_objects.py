"""Lists the objects of a cluster that stacks have created: jobs, volumes, runtimes, and Kueue's objects."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pulumi_trainer.provider.jobs.status import Owner
from pulumi_trainer.provider.kubernetes.client.api_resources import CLAIM, CONFIG_MAP, Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.values.accessors import Document, labels_of, place_of, section, text
from pulumi_trainer.provider.kueue.api_resources import api_resource
from pulumi_trainer.provider.kueue.objects import GROUP, KINDS
from pulumi_trainer.provider.lifecycle.ownership import ADOPT, JOB, UP, VOLUME, Found
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs.record import SELECTOR, Record
from pulumi_trainer.provider.targets.kubernetes.observe.job_store import FOLLOWS
from pulumi_trainer.provider.targets.kubernetes.queues.queue_snapshot import ask_as_served
from pulumi_trainer.provider.targets.kubernetes.storage import claims
from pulumi_trainer.provider.trainer.kinds import CLUSTER_RUNTIME, JOBSET, TRAIN_JOB, TRAINING_RUNTIME
from pulumi_trainer.provider.trainer.labels import MADE_BY, random_of_mark, stack_of_mark

_KEPT = ("name", "namespace", "uid", "labels", "annotations")


@dataclass(frozen=True)
class Owned:
    objects: list[Found]
    unread: set[str]


def list_owned(
    client: Client, where: str, namespaces: list[str], program: str, kubectl: str, label: str = "", random: str = ""
) -> Owned:
    """Return the objects that stacks have created.

    Args:
        namespaces: The namespaces to list; a single empty one for all.
        label: Label of the stack in this cluster; empty if it has none yet, or several.
        random: Random part of the stack's owner mark; empty if it has none yet.
    """
    found, unread = list[Found](), set[str]()

    def read(kind: str, listing: Callable[[], list[Found]]) -> None:
        try:
            found.extend(listing())
        except ApiError as error:
            if error.code not in (403, 404):
                raise
            if error.code == 403:
                unread.add(kind)

    for namespace in namespaces:
        read(JOB, lambda: _jobs(client, where, namespace, kubectl))  # noqa: B023 (called at once)
        read(VOLUME, lambda: _volumes(client, where, namespace, kubectl, label))  # noqa: B023
        read(TRAINING_RUNTIME.kind, lambda: _runtimes(client, where, TRAINING_RUNTIME, namespace, kubectl))  # noqa: B023
    read(CLUSTER_RUNTIME.kind, lambda: _runtimes(client, where, CLUSTER_RUNTIME, "", kubectl))
    for kind in KINDS:
        read(kind, lambda: [*_of_stacks(_served(client, kind), where, kind, program, kubectl, random)])  # noqa: B023
    return Owned(found, unread)


def _jobs(client: Client, where: str, namespace: str, kubectl: str) -> list[Found]:
    """Return the jobs with a record, and JobSets whose record is gone."""
    records = [*map(Record.of, client.list(CONFIG_MAP, namespace, labels=SELECTOR)[0])]
    jobs = {JOBSET: client.list(JOBSET, namespace, labels=owner_labels.JOB, keep=_metadata, whole=False)[0]}
    if any(each.kind == TRAIN_JOB for each in records):
        jobs[TRAIN_JOB] = client.list(TRAIN_JOB, namespace, keep=_metadata, whole=False)[0]
    there = {kind: {*map(place_of, listed)} for kind, listed in jobs.items()}
    found = []
    for each in records:
        delete = f"{kubectl} delete {each.kind.kind.lower()},configmap -n {each.namespace} {each.name}"
        lost = ""
        if (each.namespace, each.name) not in there[each.kind] and not each.removes_itself and not _follows(each):
            lost = each.last_status().message
        at = where, JOB, each.namespace, each.name
        found.append(Found(*at, each.whose, each.uid, delete, ADOPT, fault=each.fault, lost=lost))
    known = {(each.namespace, each.name) for each in records}
    for document in jobs[JOBSET]:
        place = place_of(document)
        if place not in known and section(document, "metadata", "annotations").get(owner_labels.OWNER):
            delete = f"{kubectl} delete jobset -n {' '.join(place)}"
            found.append(
                Found(where, JOB, *place, owner_labels.owner_of(document), _uid(document), delete, ADOPT, True)
            )
    return found


def _follows(record: Record) -> bool:
    """Return whether a record needs no job: it has ended, or was just created, and the job follows."""
    return record.terminal or time.time() - record.created < FOLLOWS


def _volumes(client: Client, where: str, namespace: str, kubectl: str, label: str) -> list[Found]:
    """Return the claims of programs. label: Label of this stack; empty if it has none yet, or several."""
    found = []
    for each in client.list(CLAIM, namespace, labels=owner_labels.MANAGED_BY, keep=_metadata, whole=False)[0]:
        generation = text(section(each, "metadata", "annotations").get(claims.GENERATION))
        if generation:
            place = place_of(each)
            stack = Owner("", _stack(each))
            delete = f"{kubectl} delete pvc -n {' '.join(place)}"
            mark = f"{owner_labels.STACK}={label}"
            take = f"{kubectl} label --overwrite pvc -n {' '.join(place)} {mark}" if label else ""
            found.append(Found(where, VOLUME, *place, stack, generation, delete, take))
    return found


def _runtimes(client: Client, where: str, kind: Kind, namespace: str, kubectl: str) -> list[Found]:
    found = []
    for each in client.list(kind, namespace, labels=owner_labels.MANAGED_BY, keep=_metadata, whole=False)[0]:
        place = place_of(each)
        delete = f"{kubectl} delete {kind.plural} {_in(place[0])}{place[1]}"
        found.append(Found(where, kind.kind, *place, owner_labels.owner_of(each), _uid(each), delete, UP))
    return found


def _served(client: Client, kind: str) -> list[Document]:
    return ask_as_served(api_resource(kind), lambda k: client.list(k)[0])


def _of_stacks(
    listed: list[Document], where: str, kind: str, program: str, kubectl: str, random: str
) -> Iterator[Found]:
    """Yield Kueue's objects of stacks; only their annotation names the stack, so that it is the owner."""
    for each in listed:
        mark = text(section(each, "metadata", "annotations").get(MADE_BY))
        maker, label = stack_of_mark(mark), random_of_mark(mark)
        (namespace, name), resource = place_of(each), f"{KINDS[kind]}.{GROUP}"
        organization, _, made_by = maker.partition("/")
        own = f"{MADE_BY}={organization or 'organization'}/{program}"
        take = f"{kubectl} annotate --overwrite {resource} {_in(namespace)}{name} {own}"
        if made_by == program and label in ("", random):
            take = UP
        delete = f"{kubectl} delete {resource} {_in(namespace)}{name}"
        yield Found(where, kind, namespace, name, Owner(made_by, label, made_by), "", delete, take, live=each)


def _metadata(found: dict[str, Any]) -> Document:
    return {"metadata": {part: found["metadata"].get(part) for part in _KEPT}}


def _stack(document: Document) -> str:
    return text(labels_of(document).get(owner_labels.STACK))


def _uid(document: Document) -> str:
    return text(section(document, "metadata").get("uid"))


def _in(namespace: str) -> str:
    return f"-n {namespace} " if namespace else ""
