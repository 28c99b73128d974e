"""What a cluster shows of one job, by direct questions."""

from __future__ import annotations

import base64
import contextlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pulumi_trainer.provider.api.kinds import JOBSET, POD_GROUP, TRAIN_JOB, VOLCANO_POD_GROUP
from pulumi_trainer.provider.api.status import JobStatus, Owner, Phase
from pulumi_trainer.provider.kube.client.client import ApiError, Client, Unreachable
from pulumi_trainer.provider.kube.client.kinds import EVENT, JOB, POD, SECRET, Kind
from pulumi_trainer.provider.kube.client.masking import forms_of_values, mask
from pulumi_trainer.provider.kube.errors import TargetFault
from pulumi_trainer.provider.kube.values.accessors import (
    Document,
    labels_of,
    name_of,
    number,
    rows,
    section,
    text,
)
from pulumi_trainer.provider.kueue.podsets import PodSet
from pulumi_trainer.provider.kueue.resources import WORKLOAD
from pulumi_trainer.provider.kueue.topology_fit import cramped
from pulumi_trainer.provider.kueue.workload_reasons import crowded, preemptor
from pulumi_trainer.provider.lifecycle.diagnosis import Seen, keep
from pulumi_trainer.provider.lifecycle.diagnosis.outcome import suspect
from pulumi_trainer.provider.lifecycle.diagnosis.pods import vague
from pulumi_trainer.provider.lifecycle.diagnosis.seen import (
    JOBSET_NAME,
    gang_of,
    lacks_jobs,
    lacks_pods,
    of_coscheduling,
    pod_name,
    subject,
    waiting_gang,
)
from pulumi_trainer.provider.lifecycle.status import observed
from pulumi_trainer.provider.targets.kubernetes import marks
from pulumi_trainer.provider.targets.kubernetes.jobs import record
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.targets.kubernetes.queues import queues

JOB_UID = "kueue.x-k8s.io/job-uid"
"""Label of a Workload: UID of the object that it stands for."""
OLDER_WORKLOAD = replace(WORKLOAD, api_version="kueue.x-k8s.io/v1beta1")
"""What Kueue served before 0.15; its conditions are the same."""
LAST_LINES = 20
LAST_BYTES = 16384
_UID = re.compile(r"[0-9a-f]+(?:-[0-9a-f]+)+")
_SUBJECTS = 6
"""Objects whose events are asked for."""


def snapshot(client: Client, namespace: str, name: str, owner: Record | None = None) -> Seen:
    """The job of that name, whoever has made it. owner: its record, if that has been read already.

    Kinds that the cluster does not have, or that we may not read, are left out (`Seen.unseen`). Raises ApiError where the job
    itself may not be read, and Unreachable.
    """
    if owner is None:
        owner = record.find(client, namespace, name)
        owner = owner if owner is not None and owner.ours else None
    unseen: set[str] = set()
    jobset = _one(client, JOBSET, namespace, name)
    made = any(o.get("kind") == "TrainJob" for o in rows(section(jobset, "metadata").get("ownerReferences")))
    asked = made or jobset is None or (owner is not None and owner.kind is TRAIN_JOB)
    train_job = _maybe(lambda: _one(client, TRAIN_JOB, namespace, name), None, unseen, TRAIN_JOB) if asked else None
    remembered = owner.without_job() if owner is not None else None
    seen = without_stranger(Seen(namespace, name, jobset=jobset, train_job=train_job, remembered=remembered), owner)
    labels = f"{JOBSET_NAME}={name}"
    there = seen.jobset is not None
    jobs = _maybe(lambda: _all(client, JOB, namespace, labels=labels), [], unseen, JOB) if there else []
    pods = _maybe(lambda: _all(client, POD, namespace, labels=labels), [], unseen, POD) if there else []
    seen = replace(seen, jobs=jobs, pods=pods)
    if seen.queue and seen.main is not None:
        work = workload(client, namespace, seen.main, unseen)
        seen = replace(seen, workload=work, preemptor=_preemptor(client, namespace, work))
    seen = replace(seen, pod_group=_pod_group(client, namespace, pods, unseen))
    phase = observed(seen.jobset, seen.train_job).phase
    if phase not in (Phase.RUNNING, Phase.SUCCEEDED, Phase.SUSPENDED, Phase.QUEUED) or _troubled(seen):
        events = _maybe(lambda: _events(client, seen), [], unseen, EVENT)
        seen = replace(seen, events=events)
    return replace(seen, unseen=frozenset(unseen))


def without_stranger(seen: Seen, owner: Record | None) -> Seen:
    """Return what is seen of a job without another one of its name, which is none of its record's."""
    if owner is None:
        return seen
    main = seen.train_job if owner.kind is TRAIN_JOB else seen.jobset
    if main is None or record.belongs(main, owner.uid):
        return seen
    remembered = seen.remembered or owner.without_job()
    if remembered.phase == Phase.DELETED:
        another = f"; the {owner.kind.kind} of that name is another one, which is left alone"
        remembered = replace(remembered, message=remembered.message + another)
    known: dict[str, Any] = {"remembered": remembered, "awaited": seen.awaited, "unseen": seen.unseen}
    return Seen(seen.namespace, seen.name, another=not seen.awaited, **known)


def without_others(seen: Seen, whose: Owner) -> Seen:
    """Return what is seen of a job of a stack, which has lost its record, without another job that has its name.

    whose: the job is, as the state of its stack has it.
    """
    if seen.main is None or seen.remembered is not None:
        return seen
    stack = text(labels_of(seen.main).get(marks.STACK))
    if whose.owns(Owner(text(section(seen.main, "metadata", "annotations").get(marks.OWNER)), stack)):
        return seen
    kind = "JobSet" if seen.train_job is None else "TrainJob"
    why = f"its record is gone; the {kind} of that name is another one, which is left alone"
    remembered = JobStatus(seen.name, seen.namespace, phase=Phase.DELETED.value, reason="RecordGone", message=why)
    return Seen(seen.namespace, seen.name, remembered=remembered, another=True, unseen=seen.unseen)


def with_lines(client: Client, seen: Seen) -> Seen:
    """The same, with the last lines of the container that has failed first, if it is there and has a log."""
    found = suspect(seen)
    if found is None:
        return seen
    pod, container, previous = found
    return replace(seen, lines={pod: last_lines(client, seen.namespace, pod, container, previous=previous)})


def with_room(client: Client, seen: Seen) -> Seen:
    """The same, with why a job that waits for room in a topology waits in vain, if it does and nodes and queues may be seen."""
    if not crowded(seen.workload):
        return seen
    with contextlib.suppress(TargetFault):
        name = text(section(seen.workload, "metadata").get("name"))
        work = client.get(WORKLOAD, seen.namespace, name) or client.get(OLDER_WORKLOAD, seen.namespace, name)
        there = queues.known(client, seen.namespace, seen.queue)
        local = there.find("LocalQueue", seen.queue, seen.namespace)
        behind = there.find("ClusterQueue", section(local, "spec").get("clusterQueue"))
        sets = [
            PodSet(text(each.get("name")), "", number(each.get("count"), 1), dict(section(each, "template")))
            for each in rows(section(work, "spec").get("podSets"))
        ]
        found = cramped(sets, behind, there) if behind is not None else None
        return replace(seen, cramped=str(found or ""))
    return seen


def last_lines(client: Client, namespace: str, pod: str, container: str, *, previous: bool = False) -> Sequence[str]:
    """The newest lines of a container's log; none where there is no log. The values of Secrets that its pod names are hidden, if
    they may be read. previous: of the run before this one."""
    query = {"container": container, "tailLines": str(LAST_LINES)}
    if previous:
        query["previous"] = "true"
    try:
        found = client.log_tail(namespace, pod, query, LAST_BYTES)
    except (ApiError, Unreachable):
        return ()
    if len(found) >= LAST_BYTES:  # the last line is cut, perhaps within a secret
        found = found[: max(found.rfind(b"\n"), found.rfind(b"\r")) + 1]
    shown = mask(found.decode(errors="replace"), forms_of_values(_secret_values(client, namespace, pod)))
    return [line[:500] for line in shown.splitlines() if line.strip()][-LAST_LINES:]


def _secret_values(client: Client, namespace: str, pod: str) -> list[str]:
    """The values of the Secrets that a pod names; none where they may not be read."""
    values: list[str] = []
    with contextlib.suppress(ApiError, Unreachable, ValueError):
        found, _ = client.list(POD, namespace, fields=f"metadata.name={pod}")
        for name in sorted({name for each in found for name in _secret_names(section(each, "spec"))} - {""}):
            for secret in client.list(SECRET, namespace, fields=f"metadata.name={name}")[0]:
                data = section(secret, "data").values()
                values += [base64.b64decode(v).decode(errors="replace") for v in data if isinstance(v, str)]
    return values


def _secret_names(spec: Document) -> Iterator[str]:
    for each in (*rows(spec.get("initContainers")), *rows(spec.get("containers"))):
        for source in rows(each.get("envFrom")):
            yield text(section(source, "secretRef").get("name"))
        for variable in rows(each.get("env")):
            yield text(section(variable, "valueFrom", "secretKeyRef").get("name"))
    for volume in rows(spec.get("volumes")):
        yield text(section(volume, "secret").get("secretName"))
        for source in rows(section(volume, "projected").get("sources")):
            yield text(section(source, "secret").get("name"))


def workload(client: Client, namespace: str, job: Document, unseen: set[str]) -> Document | None:
    """Kueue's Workload for a job, the newest one."""
    labels = f"{JOB_UID}={text(section(job, 'metadata').get('uid'))}"
    for kind in (WORKLOAD, OLDER_WORKLOAD):
        refused: set[str] = set()
        found = _maybe(partial(_all, client, kind, namespace, labels), None, refused, kind)
        if found is not None:
            return max(found, key=lambda w: text(section(w, "metadata").get("creationTimestamp")), default=None)
    unseen.add(WORKLOAD.plural)
    return None


def _preemptor(client: Client, namespace: str, work: Document | None) -> str:
    """The job that a preempted one had to make room for, as far as it is there and we may see it: it may be of another team."""
    uids = preemptor(work)
    if uids is None:
        return ""
    uid, job = uids
    labels = f"{JOB_UID}={job}" if _UID.fullmatch(job) else ""
    for where, kind in itertools.product(("", namespace), (WORKLOAD, OLDER_WORKLOAD)):
        found = _maybe(partial(_all, client, kind, where, labels), None, set(), kind)
        if found is not None:
            return next((_job_of(each) for each in found if section(each, "metadata").get("uid") == uid), "")
    return ""


def _job_of(work: Document) -> str:
    about = section(work, "metadata")
    owner = next((o for o in rows(about.get("ownerReferences")) if o.get("controller")), {"kind": "Workload", **about})
    return f"{text(owner.get('kind'))} {text(about.get('namespace'))}/{text(owner.get('name'))}"


def _one(client: Client, kind: Kind, namespace: str, name: str) -> Document | None:
    found = client.get(kind, namespace, name)
    return keep(kind.kind, found) if found is not None else None


def _all(client: Client, kind: Kind, namespace: str, labels: str = "", fields: str = "") -> list[Document]:
    found, _ = client.list(kind, namespace, labels=labels, fields=fields, keep=lambda d: keep(kind.kind, d))
    return list(found)


def _maybe(ask: Callable[[], Any], otherwise: Any, unseen: set[str], kind: Kind) -> Any:
    """An answer that a diagnosis can do without."""
    try:
        return ask()
    except ApiError as error:
        if error.code not in (403, 404):
            raise
        unseen.add(kind.plural)
        return otherwise


def _pod_group(client: Client, namespace: str, pods: Sequence[Document], unseen: set[str]) -> Document | None:
    name = waiting_gang(pods)
    if not name:
        return None
    kind = group_of(pods, name)
    found: Document | None = _maybe(partial(_one, client, kind, namespace, name), None, unseen, kind)
    return found


def _troubled(seen: Seen) -> bool:
    waiting = any(section(p, "status").get("phase") in ("Pending", None) for p in seen.pods)
    return waiting or lacks_jobs(seen) or any(map(lacks_pods, seen.jobs))


def _events(client: Client, seen: Seen) -> list[Document]:
    """Warnings about the job, its Jobs and the pods that do not run; of some of them, as a namespace may have thousands."""
    waiting = [p for p in seen.pods if section(p, "status").get("phase") in ("Pending", "Failed", None)]
    subjects = [("JobSet", seen.name)] if seen.jobset is not None else [("TrainJob", seen.name)]
    subjects += [("Job", name_of(j)) for j in itertools.islice(filter(lacks_pods, seen.jobs), 2)]
    subjects += [("Pod", pod_name(p)) for p in waiting]
    found: list[Document] = []
    for kind, name in subjects[:_SUBJECTS]:
        fields = f"type=Warning,involvedObject.kind={kind},involvedObject.name={name}"
        found += _all(client, EVENT, seen.namespace, fields=fields)
    return [*found, *_of_gang(client, seen)]


def _of_gang(client: Client, seen: Seen) -> Sequence[Document]:
    """What a gang's pods lack stands in an event of any of them."""
    if not waiting_gang(seen.pods):
        return []
    names = {pod_name(p) for p in seen.pods}

    def kept(event: dict[str, Any]) -> dict[str, Any] | None:
        own = subject(event) in names and not vague(text(event.get("message")))
        return keep(EVENT.kind, event) if own else None

    fields = "type=Warning,reason=FailedScheduling,involvedObject.kind=Pod"
    return client.list(EVENT, seen.namespace, fields=fields, keep=kept)[0]


def group_of(pods: Iterable[dict[str, Any]], name: str) -> Kind:
    """The kind of the PodGroup of that name, as the pods have it that name it."""
    members = (pod for pod in pods if gang_of(pod) == name)
    return POD_GROUP if any(map(of_coscheduling, members)) else VOLCANO_POD_GROUP
