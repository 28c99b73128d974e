"""Lists the jobs of a namespace or of the whole cluster, whoever created them, and the events about one job.

Each kind is listed once, whatever the number of jobs, and all kinds at the same time.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from pulumi_trainer.provider.jobs.status import JobStatus, Loss
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, EVENT, JOB, POD, Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.errors import NotFound, Problem
from pulumi_trainer.provider.kubernetes.terminal import plain_field
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    labels_of,
    name_of,
    place_of,
    section,
    text,
    without,
)
from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.kueue.api_resources import WORKLOAD
from pulumi_trainer.provider.kueue.workload_reasons import job_of, preemptor
from pulumi_trainer.provider.lifecycle.diagnosis import JobView, keep
from pulumi_trainer.provider.lifecycle.diagnosis.job_view import lacks_jobs, lacks_pods
from pulumi_trainer.provider.lifecycle.events import JobEvent, fold, is_about, object_pattern
from pulumi_trainer.provider.targets.kubernetes.jobs.record import SELECTOR, Record
from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import (
    JOB_UID,
    ask_if_readable,
    snapshot,
    with_queue,
    without_stranger,
)
from pulumi_trainer.provider.targets.kubernetes.observe.worker_view import with_worker
from pulumi_trainer.provider.targets.kubernetes.owner_labels import RUN_ID
from pulumi_trainer.provider.targets.kubernetes.queues.queue_snapshot import ask_as_served
from pulumi_trainer.provider.targets.kubernetes.storage import claims as volumes
from pulumi_trainer.provider.trainer.job_status import derive_phase
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB
from pulumi_trainer.provider.trainer.labels import JOBSET_NAME

Place = volumes.Place


def snapshot_jobs(client: Client, namespace: str = "") -> list[JobView]:
    """Return all jobs, by namespace and name. Of events only those that explain missing JobSets, Jobs or pods are read."""
    unreadable: set[str] = set()
    with ThreadPoolExecutor(6) as threads:  # the server writes one list while another is read
        listed = {
            "jobsets": threads.submit(_list_as_served, client, JOBSET, namespace),
            "train_jobs": threads.submit(_list_if_readable, client, TRAIN_JOB, namespace, unreadable),
            "records": threads.submit(_list_if_readable, client, CONFIG_MAP, namespace, set(), SELECTOR),
            "jobs": threads.submit(_list_if_readable, client, JOB, namespace, unreadable, JOBSET_NAME),
            "pods": threads.submit(_list_if_readable, client, POD, namespace, unreadable, JOBSET_NAME),
            "workloads": threads.submit(_list_if_readable, client, WORKLOAD, namespace, unreadable),
        }
    jobsets, train_jobs, records = (_by_name(listed[kind].result()) for kind in ("jobsets", "train_jobs", "records"))
    jobs, pods = (_by_job(listed[kind].result()) for kind in ("jobs", "pods"))
    oldest_first = sorted(
        listed["workloads"].result(), key=lambda w: text(section(w, "metadata").get("creationTimestamp"))
    )
    named = {text(section(w, "metadata").get("uid")): job_of(w) for w in oldest_first}
    works = {text(labels_of(w).get(JOB_UID)): w for w in oldest_first}
    found = []
    for place in sorted({*jobsets, *train_jobs, *records}):
        record: Record | None = None
        recorded: JobStatus | None = None
        if place in records:
            record = Record.of(records[place])
            recorded = record.last_status()
        view = JobView(
            *place,
            jobset=_keep_if_found("JobSet", jobsets.get(place)),
            train_job=_keep_if_found("TrainJob", train_jobs.get(place)),
            jobs=jobs.get(place, ()),
            pods=pods.get(place, ()),
            recorded=recorded,
            unreadable=frozenset(unreadable),
        )
        view = without_stranger(view, record)
        uid = text(section(view.main, "metadata").get("uid"))
        override = ""
        if record is not None and view.main is not None:
            override = record.override_note(view.main)
        work = works.get(uid)
        by = (preemptor(work) or ("", ""))[0]
        preempting = named.get(by, "")
        if record is not None and not preempting:
            preempting = record.preemptor.get(by, "")
        work = _keep_if_found("Workload", work)
        found.append(replace(view, workload=work, preemptor=preempting, override=override))
    fresh = client.within(client.patience)  # a copy: what was read of queues before counts no more
    return [with_worker(client, with_queue(fresh, view)) for view in _with_refusals(client, namespace, found)]


def with_losses(client: Client, found: Sequence[JobView], namespace: str = "") -> list[JobView]:
    """Return the jobs with the volumes that were deleted externally.

    Of an ended job only the volume of its output counts, because the other volumes are replaced when new data is fetched.
    """
    mounted = [*map(_claims, found)]
    if not any(mounted):
        return list(found)
    try:
        there = volumes.list_claims(client, namespace)
    except ApiError as error:
        if error.code != 403:
            raise
        return list(found)
    views: list[JobView] = []
    for view, claims in zip(found, mounted, strict=True):
        views.append(replace(view, losses=list(_lost_outputs(view, claims, there))))
    return views


def _claims(view: JobView) -> list[str]:
    names: set[str] = set()
    if view.recorded is not None:
        names.add(view.recorded.output.removeprefix(volumes.path("")).partition("/")[0])
    if view.jobset is not None and not _ended(view):
        names |= volumes.claims_of(view.jobset)
    return sorted(names - {""})


def _lost_outputs(view: JobView, claims: Sequence[str], there: Mapping[volumes.Place, Document]) -> Iterator[str]:
    for claim in claims:
        lost = volumes.loss_of(there, (view.namespace, claim))
        if lost is Loss.GONE:
            yield f"volume {claim} is gone with its content"
        elif lost is Loss.LEAVING:
            yield f"somebody has deleted volume {claim}: it disappears with its content when no Pod mounts it any more"


def _with_refusals(client: Client, namespace: str, found: list[JobView]) -> list[JobView]:
    """Return the views with the events about rejected JobSets, Jobs and pods."""
    lists: list[Document] = []
    if any(map(lacks_pods, chain.from_iterable(view.jobs for view in found))):
        lists += _list_if_readable(
            client, EVENT, namespace, set(), fields="type=Warning,reason=FailedCreate,involvedObject.kind=Job"
        )
    if any(view.jobset is not None and not _ended(view) and lacks_jobs(view) for view in found):
        lists += _list_if_readable(client, EVENT, namespace, set(), fields="type=Warning,involvedObject.kind=JobSet")
    if any(view.train_job is not None and view.jobset is None for view in found):
        lists += _list_if_readable(client, EVENT, namespace, set(), fields="type=Warning,involvedObject.kind=TrainJob")
    events: dict[Place, list[Document]] = {}
    for event in lists:
        involved = section(event, "involvedObject")
        place = text(involved.get("namespace")), text(involved.get("name"))
        events.setdefault(place, []).append(keep("Event", event))
    return [replace(view, events=_events_of_job(view, events)) for view in found]


def _ended(view: JobView) -> bool:
    return derive_phase(view.jobset, view.train_job).phase.terminal


def _events_of_job(view: JobView, events: Mapping[Place, Sequence[Document]]) -> list[Document]:
    found: list[Document] = []
    for name in (view.name, *map(name_of, view.jobs)):
        found += events.get((view.namespace, name), ())
    return found


def snapshot_job(client: Client, namespace: str, name: str, kind: Kind | None = None) -> JobView:
    view = snapshot(client, namespace, name)
    there = {JOBSET: view.jobset, TRAIN_JOB: view.train_job}
    if (kind is None and (view.main is not None or view.recorded is not None)) or (kind and there[kind] is not None):
        return view
    if kind is None and view.jobset is not None:
        return view
    raise NotFound(_not_found_problem(client, namespace, name, kind))


def list_events(client: Client, namespace: str, name: str, kind: Kind | None = None) -> list[JobEvent]:
    """Return the events about a job's objects; a deleted job may still have some."""
    view = snapshot(client, namespace, name)
    objects = object_pattern(view)

    def kept(event: dict[str, Any]) -> dict[str, Any] | None:
        if not is_about(event, objects, view.created):
            return None
        about = {"source": event.get("source"), "reportingComponent": event.get("reportingComponent")}
        return {**keep("Event", event), **about}

    found, _ = client.list(EVENT, namespace, keep=kept)
    if not found:
        snapshot_job(client, namespace, name, kind)
    run = plain_field(labels_of(view.main or {}).get(RUN_ID), 16)  # events of earlier runs are left out
    return [replace(each, run=run) for each in fold(found, name)]


def _not_found_problem(client: Client, namespace: str, name: str, kind: Kind | None) -> Problem:
    kinds = (kind,) if kind else (JOBSET, TRAIN_JOB)
    names: set[str] = set()
    for each in kinds:
        names |= {*map(name_of, _list_if_readable(client, each, namespace, set()))}
    what = " or ".join(k.kind for k in kinds)
    near = difflib.get_close_matches(name, names, 3, 0.5) or sorted(n for n in names if name in n)[:3]
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif names:
        hint = f"available: {join_names(sorted(names), 10)}"
    else:
        hint = f"namespace {namespace} was searched; -n NAMESPACE searches another one"
    return Problem(f"{namespace}/{name}", f"no such {what} in {client.host}", hint)


def _list_as_served(
    client: Client, kind: Kind, namespace: str, labels: str = "", fields: str = ""
) -> list[dict[str, Any]]:
    def kept(document: dict[str, Any]) -> dict[str, Any]:
        if kind in (JOB, POD):
            return keep(kind.kind, document)
        metadata = without(document["metadata"], "managedFields")
        return {**document, "metadata": metadata}

    return ask_as_served(kind, lambda k: client.list(k, namespace, labels=labels, fields=fields, keep=kept)[0])


def _list_if_readable(
    client: Client, kind: Kind, namespace: str, unreadable: set[str], labels: str = "", fields: str = ""
) -> list[dict[str, Any]]:
    return ask_if_readable(partial(_list_as_served, client, kind, namespace, labels, fields), [], unreadable, kind)


def _keep_if_found(kind: str, document: Document | None) -> Document | None:
    if document is None:
        return None
    return keep(kind, document)


def _by_name(documents: Sequence[dict[str, Any]]) -> dict[Place, dict[str, Any]]:
    return {place_of(d): d for d in documents}


def _by_job(documents: Sequence[dict[str, Any]]) -> dict[Place, list[dict[str, Any]]]:
    found: dict[Place, list[dict[str, Any]]] = {}
    for document in documents:
        place = place_of(document)[0], text(labels_of(document).get(JOBSET_NAME))
        found.setdefault(place, []).append(document)
    return found
