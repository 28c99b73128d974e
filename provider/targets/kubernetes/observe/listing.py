"""The jobs of a namespace or of the whole cluster, whoever has made them, and what happened to one.

A list of each kind, whatever the number of jobs; all kinds at once.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from pulumi_trainer.provider.api.kinds import JOBSET, TRAIN_JOB
from pulumi_trainer.provider.api.status import Loss
from pulumi_trainer.provider.kube.client.client import ApiError, Client
from pulumi_trainer.provider.kube.client.kinds import CONFIG_MAP, EVENT, JOB, POD, Kind
from pulumi_trainer.provider.kube.errors import Problem, TargetFault
from pulumi_trainer.provider.kube.values.accessors import (
    Document,
    labels_of,
    name_of,
    section,
    text,
)
from pulumi_trainer.provider.kueue.resources import WORKLOAD
from pulumi_trainer.provider.lifecycle.diagnosis import Seen, keep
from pulumi_trainer.provider.lifecycle.diagnosis.seen import JOBSET_NAME, lacks_jobs, lacks_pods
from pulumi_trainer.provider.lifecycle.events import (
    Happened,
    about,
    belongs,
    folded,
)
from pulumi_trainer.provider.lifecycle.status import observed
from pulumi_trainer.provider.targets.kubernetes.jobs.record import SELECTOR, Record
from pulumi_trainer.provider.targets.kubernetes.observe.seen import (
    JOB_UID,
    OLDER_WORKLOAD,
    snapshot,
    without_stranger,
)
from pulumi_trainer.provider.targets.kubernetes.storage import claims as volumes

Place = volumes.Place


def seen_all(client: Client, namespace: str = "") -> list[Seen]:
    """All jobs, by namespace and name. namespace: empty: of all. Of events those alone that say why Jobs or pods are missing.

    Raises ApiError where neither JobSets nor TrainJobs may be listed.
    """
    unseen: set[str] = set()
    with ThreadPoolExecutor(6) as threads:  # the server writes one list while another is read
        listed = {
            "jobsets": threads.submit(_all, client, JOBSET, namespace),
            "train_jobs": threads.submit(_maybe, client, TRAIN_JOB, namespace, unseen),
            "records": threads.submit(_maybe, client, CONFIG_MAP, namespace, set(), SELECTOR),
            "jobs": threads.submit(_maybe, client, JOB, namespace, unseen, JOBSET_NAME),
            "pods": threads.submit(_maybe, client, POD, namespace, unseen, JOBSET_NAME),
            "workloads": threads.submit(_workloads, client, namespace, unseen),
        }
    jobsets, train_jobs, records = (_by_name(listed[kind].result()) for kind in ("jobsets", "train_jobs", "records"))
    jobs, pods = (_by_job(listed[kind].result()) for kind in ("jobs", "pods"))
    works = {text(labels_of(w).get(JOB_UID)): w for w in listed["workloads"].result()}
    found = []
    for place in sorted({*jobsets, *train_jobs, *records}):
        record = Record.of(records[place]) if place in records else None
        seen = Seen(
            *place,
            jobset=_kept("JobSet", jobsets.get(place)),
            train_job=_kept("TrainJob", train_jobs.get(place)),
            jobs=jobs.get(place, ()),
            pods=pods.get(place, ()),
            remembered=record.without_job() if record is not None else None,
            unseen=frozenset(unseen),
        )
        seen = without_stranger(seen, record)
        uid = text(section(seen.main, "metadata").get("uid"))
        found.append(replace(seen, workload=_kept("Workload", works.get(uid))))
    return _with_refusals(client, namespace, found)


def with_losses(client: Client, found: Sequence[Seen], namespace: str = "") -> list[Seen]:
    """The same jobs, with what has become of the volumes that somebody has deleted: of one that has ended, the volume of its
    output alone, as others go when new data are fetched. namespace: empty: of all."""
    mounted = [_claims(seen) for seen in found]
    if not any(mounted):
        return list(found)
    try:
        there = volumes.claims_there(client, namespace)
    except ApiError as error:
        if error.code != 403:
            raise
        return list(found)
    return [
        replace(seen, losses=list(_losses(seen, claims, there))) for seen, claims in zip(found, mounted, strict=True)
    ]


def _claims(seen: Seen) -> list[str]:
    known = seen.remembered
    output = known.output.removeprefix(volumes.path("")).partition("/")[0] if known is not None else ""
    mounted = volumes.claims_of(seen.jobset) if seen.jobset is not None and not _ended(seen) else set[str]()
    return sorted({*mounted, output} - {""})


def _losses(seen: Seen, claims: Sequence[str], there: Mapping[volumes.Place, Document]) -> Iterator[str]:
    for claim in claims:
        lost = volumes.loss(there, (seen.namespace, claim))
        if lost is Loss.GONE:
            yield f"volume {claim} is gone, with what was in it"
        elif lost is Loss.LEAVING:
            yield f"somebody has deleted volume {claim}: it goes, with what is in it, when no Pod mounts it any more"


def _with_refusals(client: Client, namespace: str, found: list[Seen]) -> list[Seen]:
    """The same, with what the API server has refused for those that lack Jobs or pods."""
    lists: list[Document] = []
    if any(lacks_pods(job) for seen in found for job in seen.jobs):
        lists += _maybe(
            client, EVENT, namespace, set(), fields="type=Warning,reason=FailedCreate,involvedObject.kind=Job"
        )
    if any(seen.jobset is not None and not _ended(seen) and lacks_jobs(seen) for seen in found):
        lists += _maybe(client, EVENT, namespace, set(), fields="type=Warning,involvedObject.kind=JobSet")
    events: dict[Place, list[Document]] = {}
    for event in lists:
        about = section(event, "involvedObject")
        events.setdefault((text(about.get("namespace")), text(about.get("name"))), []).append(keep("Event", event))
    return [replace(seen, events=_about(seen, events)) for seen in found]


def _ended(seen: Seen) -> bool:
    return observed(seen.jobset, seen.train_job).phase.terminal


def _about(seen: Seen, events: Mapping[Place, Sequence[Document]]) -> list[Document]:
    names = [seen.name, *map(name_of, seen.jobs)]
    return [event for name in names for event in events.get((seen.namespace, name), ())]


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


def _all(client: Client, kind: Kind, namespace: str, labels: str = "", fields: str = "") -> list[dict[str, Any]]:
    def kept(document: dict[str, Any]) -> dict[str, Any]:
        if kind in (JOB, POD):
            return keep(kind.kind, document)
        metadata = {k: v for k, v in document["metadata"].items() if k != "managedFields"}
        return {**document, "metadata": metadata}

    return client.list(kind, namespace, labels=labels, fields=fields, keep=kept)[0]


def _maybe(
    client: Client, kind: Kind, namespace: str, unseen: set[str], labels: str = "", fields: str = ""
) -> list[dict[str, Any]]:
    try:
        return _all(client, kind, namespace, labels, fields)
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
