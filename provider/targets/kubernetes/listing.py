"""The jobs of a namespace or of the whole cluster, whoever has made them, and what happened to one. Called by the command line.

A list of each kind, whatever the number of jobs.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pulumi_trainer.provider.api.errors import Problem, TargetFault
from pulumi_trainer.provider.lifecycle.diagnosis import Seen, keep
from pulumi_trainer.provider.lifecycle.diagnosis.seen import JOBSET_NAME
from pulumi_trainer.provider.lifecycle.events import Happened, about, belongs, folded
from pulumi_trainer.provider.lifecycle.reading import Document, labels_of, name_of, section, text

from .client import ApiError, Client
from .kinds import CONFIG_MAP, EVENT, JOB, JOBSET, POD, TRAIN_JOB, WORKLOAD, Kind
from .record import SELECTOR, Record
from .seen import JOB_UID, OLDER_WORKLOAD, snapshot

Place = tuple[str, str]
"""(namespace, name)"""


def seen_all(client: Client, namespace: str = "") -> list[Seen]:
    """All jobs, by namespace and name. namespace: empty: of all. Without events.

    Raises ApiError where neither JobSets nor TrainJobs may be listed.
    """
    unseen: set[str] = set()
    jobsets = _by_name(_all(client, JOBSET, namespace))
    train_jobs = _by_name(_maybe(client, TRAIN_JOB, namespace, unseen))
    records = _by_name(_maybe(client, CONFIG_MAP, namespace, set(), labels=SELECTOR))
    jobs = _by_job(_maybe(client, JOB, namespace, unseen, labels=JOBSET_NAME))
    pods = _by_job(_maybe(client, POD, namespace, unseen, labels=JOBSET_NAME))
    works = {text(labels_of(w).get(JOB_UID)): w for w in _workloads(client, namespace, unseen)}
    found = []
    for place in sorted({*jobsets, *train_jobs, *records}):
        seen = Seen(
            *place,
            jobset=_kept("JobSet", jobsets.get(place)),
            train_job=_kept("TrainJob", train_jobs.get(place)),
            jobs=jobs.get(place, ()),
            pods=pods.get(place, ()),
            remembered=Record.of(records[place]).without_job() if place in records else None,
            unseen=frozenset(unseen),
        )
        uid = text(section(seen.main, "metadata").get("uid"))
        found.append(replace(seen, workload=_kept("Workload", works.get(uid))))
    return found


def seen_one(client: Client, namespace: str, name: str, kind: Kind | None = None) -> Seen:
    """One job. kind: JOBSET or TRAIN_JOB, if it has to be one. Raises TargetFault that names those that are there."""
    seen = snapshot(client, namespace, name)
    there = {JOBSET: seen.jobset, TRAIN_JOB: seen.train_job}
    if (kind is None and (seen.main is not None or seen.remembered is not None)) or (kind and there[kind] is not None):
        return seen
    if kind is None and seen.jobset is not None:
        return seen
    raise TargetFault(_nothing(client, namespace, name, kind))


def happened(client: Client, namespace: str, name: str, kind: Kind | None = None) -> list[Happened]:
    """Events about a job's objects. One that has been deleted may still have some. Raises TargetFault if there is nothing."""
    seen = snapshot(client, namespace, name)
    objects = about(seen)

    def kept(event: dict[str, Any]) -> dict[str, Any] | None:
        return _event(event) if belongs(event, objects, seen.created) else None

    found, _ = client.list(EVENT, namespace, keep=kept)
    if not found:
        seen_one(client, namespace, name, kind)
    return folded(found, name)


def _nothing(client: Client, namespace: str, name: str, kind: Kind | None) -> Problem:
    kinds = (kind,) if kind else (JOBSET, TRAIN_JOB)
    names: set[str] = set()
    for each in kinds:
        names |= {name_of(d) for d in _maybe(client, each, namespace, set())}
    what = " or ".join(k.kind for k in kinds)
    near = difflib.get_close_matches(name, names, 3, 0.5) or sorted(n for n in names if name in n)[:3]
    if near:
        mend = f"did you mean {' or '.join(near)}?"
    elif names:
        mend = f"it has: {', '.join(sorted(names)[:10])}" + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    else:
        mend = f"there is none in namespace {namespace}; -n NAMESPACE looks elsewhere"
    return Problem(f"{namespace}/{name}", f"no such {what} in {client.host}", mend)


def _event(event: dict[str, Any]) -> dict[str, Any]:
    kept = keep("Event", event)
    return {**kept, "source": event.get("source"), "reportingComponent": event.get("reportingComponent")}


def _all(client: Client, kind: Kind, namespace: str, labels: str = "") -> list[dict[str, Any]]:
    def kept(document: dict[str, Any]) -> dict[str, Any]:
        if kind in (JOB, POD):
            return keep(kind.kind, document)
        metadata = {k: v for k, v in document["metadata"].items() if k != "managedFields"}
        return {**document, "metadata": metadata}

    return client.list(kind, namespace, labels=labels, keep=kept)[0]


def _maybe(client: Client, kind: Kind, namespace: str, unseen: set[str], labels: str = "") -> list[dict[str, Any]]:
    try:
        return _all(client, kind, namespace, labels)
    except ApiError as error:
        if error.code not in (403, 404):
            raise
        unseen.add(kind.plural)
        return []


def _workloads(client: Client, namespace: str, unseen: set[str]) -> list[dict[str, Any]]:
    refused: set[str] = set()
    found = _maybe(client, WORKLOAD, namespace, refused)
    if refused:
        refused.clear()
        found = _maybe(client, OLDER_WORKLOAD, namespace, refused)
    unseen |= refused
    return sorted(found, key=lambda w: text(section(w, "metadata").get("creationTimestamp")))


def _kept(kind: str, document: Document | None) -> Document | None:
    return keep(kind, document) if document is not None else None


def _place(document: Document, name: str = "") -> Place:
    return text(section(document, "metadata").get("namespace")), name or name_of(document)


def _by_name(documents: Sequence[dict[str, Any]]) -> dict[Place, dict[str, Any]]:
    return {_place(d): d for d in documents}


def _by_job(documents: Sequence[dict[str, Any]]) -> dict[Place, list[dict[str, Any]]]:
    found: dict[Place, list[dict[str, Any]]] = {}
    for document in documents:
        found.setdefault(_place(document, text(labels_of(document).get(JOBSET_NAME))), []).append(document)
    return found
