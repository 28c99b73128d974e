"""Reads what a cluster shows of one job, with requests for that job alone."""

from __future__ import annotations

import base64
import contextlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pulumi_trainer.provider.jobs.status import JobStatus, Owner, Phase
from pulumi_trainer.provider.kubernetes.cache.discovery import Facts
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, EVENT, JOB, NODE, POD, SECRET, Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.client.masking import forms_of_values, mask
from pulumi_trainer.provider.kubernetes.errors import TargetFault, TrainerError
from pulumi_trainer.provider.kubernetes.schema.node_fit import reason_without_node
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    condition,
    conditions,
    mappings,
    name_of,
    number,
    section,
    text,
    true_condition,
)
from pulumi_trainer.provider.kubernetes.views import Pod
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD, older
from pulumi_trainer.provider.kueue.occupancy import inactive
from pulumi_trainer.provider.kueue.podsets import PodSet
from pulumi_trainer.provider.kueue.topology_fit import find_unfitting_podset
from pulumi_trainer.provider.kueue.workload_reasons import (
    Judgements,
    closed_flavors,
    flavors_of,
    job_name,
    job_of,
    preemptor,
    waits_for_queue,
)
from pulumi_trainer.provider.lifecycle.diagnosis import JobView, keep
from pulumi_trainer.provider.lifecycle.diagnosis.error_output import explain_failure, is_consequence
from pulumi_trainer.provider.lifecycle.diagnosis.job_view import (
    is_coscheduled,
    lacks_jobs,
    lacks_pods,
    node_of,
    pod_group_of,
    pod_name,
    subject,
    waiting_pod_group,
)
from pulumi_trainer.provider.lifecycle.diagnosis.outcome import FailedContainer, failed_containers
from pulumi_trainer.provider.lifecycle.diagnosis.pod_faults import is_vague
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.pod.code import with_user_tracebacks
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs import record, run_end
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.targets.kubernetes.observe.worker_view import client_of, with_worker
from pulumi_trainer.provider.targets.kubernetes.queues.queue_snapshot import Answer, ask_as_served, read_queues
from pulumi_trainer.provider.targets.kubernetes.storage.classes import explain_unbound
from pulumi_trainer.provider.trainer.job_status import derive_phase
from pulumi_trainer.provider.trainer.kinds import JOBSET, POD_GROUP, TRAIN_JOB, VOLCANO_POD_GROUP
from pulumi_trainer.provider.trainer.labels import JOBSET_NAME

JOB_UID = "kueue.x-k8s.io/job-uid"
"""Label of a Workload: UID of its job."""
LAST_LINES = 300
"""Last lines of a log that are searched for an error: those of torchrun about each of its processes follow it."""
LAST_BYTES = LAST_LINES << 14
"""A container runtime stores a longer line, such as a progress bar, in pieces of 16 KiB, and the API server counts pieces."""
MOST_LOGS = 4
"""Failed containers whose logs are read."""
SEARCHED = 1 << 17
"""Last characters of these lines that are searched."""
_UID = re.compile(r"[0-9a-f]+(?:-[0-9a-f]+)+")
_SUBJECTS = 6
"""Number of objects whose events are requested."""


def snapshot(client: Client, namespace: str, name: str, owner: Record | None = None) -> JobView:
    """Return the documents of the job of that name, whoever created it.

    Kinds that the cluster does not have or that the credentials may not read are left out (`JobView.unreadable`). Who has
    preempted the job is written into its record.
    """
    if owner is None:
        owner = record.find(client, namespace, name)
        if owner is not None and not owner.is_record:
            owner = None
    unreadable: set[str] = set()
    jobset = _get_as_served(client, JOBSET, namespace, name)
    made = any(o.get("kind") == "TrainJob" for o in mappings(section(jobset, "metadata").get("ownerReferences")))
    asked = made or jobset is None or (owner is not None and owner.kind is TRAIN_JOB)
    train_job: Document | None = None
    if asked:
        train_job = ask_if_readable(
            lambda: _get_as_served(client, TRAIN_JOB, namespace, name), None, unreadable, TRAIN_JOB
        )
    recorded: JobStatus | None = None
    if owner is not None:
        recorded = owner.last_status()
    view = without_stranger(JobView(namespace, name, jobset=jobset, train_job=train_job, recorded=recorded), owner)
    jobs: list[Document] = []
    pods: list[Document] = []
    if view.jobset is not None:
        labels = f"{JOBSET_NAME}={name}"
        jobs = ask_if_readable(lambda: _all(client, JOB, namespace, labels=labels), [], unreadable, JOB)
        pods = ask_if_readable(lambda: _all(client, POD, namespace, labels=labels), [], unreadable, POD)
    override = ""
    if owner is not None and view.main is not None:
        override = owner.override_note(view.main)
    view = replace(view, jobs=jobs, pods=pods, override=override)
    if view.queue and view.main is not None:
        work = workload(client, namespace, view.main, unreadable)
        view = replace(view, workload=work, preemptor=_preemptor(client, namespace, work, owner))
        if owner is not None:
            run_end.write_preemptor(client, owner, view)
    view = replace(view, pod_group=_pod_group(client, namespace, pods, unreadable))
    phase = derive_phase(view.jobset, view.train_job).phase
    if phase not in (Phase.RUNNING, Phase.SUCCEEDED, Phase.SUSPENDED, Phase.QUEUED) or _troubled(view):
        events: list[Document] = ask_if_readable(lambda: _events(client, view), [], unreadable, EVENT)
        view = replace(view, events=events)
    return with_worker(client, replace(view, unreadable=frozenset(unreadable)))


def without_stranger(view: JobView, owner: Record | None) -> JobView:
    """Return the view without a job that has the same name but does not belong to the record."""
    if owner is None:
        return view
    view = replace(view, record_fault=owner.fault)
    main = view.train_job if owner.kind is TRAIN_JOB else view.jobset
    if main is None or record.belongs(main, owner.uid):
        return view
    recorded = view.recorded or owner.last_status()
    if recorded.phase == Phase.DELETED:
        another = f"; the {owner.kind.kind} of that name is another one, which is left alone"
        recorded = replace(recorded, message=recorded.message + another)
    return JobView(
        view.namespace,
        view.name,
        recorded=recorded,
        awaited=view.awaited,
        another=not view.awaited,
        unreadable=view.unreadable,
        record_fault=view.record_fault,
    )


def without_others(view: JobView, whose: Owner) -> JobView:
    """Return the view of a stack's job whose record is gone, without another job of the same name."""
    if view.main is None or view.recorded is not None:
        return view
    if whose.owns(owner_labels.owner_of(view.main)):
        return view
    kind = "JobSet" if view.train_job is None else "TrainJob"
    why = f"its record is gone; the {kind} of that name is another one, which is left alone"
    recorded = JobStatus(view.name, view.namespace, phase=Phase.DELETED.value, reason="RecordGone", message=why)
    return JobView(view.namespace, view.name, recorded=recorded, another=True, unreadable=view.unreadable)


def with_lines(client: Client, view: JobView) -> JobView:
    """Return the view with what the logs of its failed containers explain, up to one that did not fail because of another one."""
    client, lines = client_of(client, view), dict(view.lines)
    for failed in failed_containers(view)[:MOST_LOGS]:
        found = last_lines(client, view.namespace, failed)
        if found:  # otherwise the Pod was just deleted: what was read before explains it as well
            lines[failed.pod] = found
        if found and not is_consequence(found):
            break
    return replace(view, lines=lines)


def with_topology_reason(client: Client, view: JobView) -> JobView:
    """Return the view with why a pending job can never fit its topology request, if it cannot and nodes and queues are
    readable.
    """
    if view.workload is None or true_condition(conditions(view.workload), "QuotaReserved"):
        return view
    with contextlib.suppress(TargetFault):
        name = text(section(view.workload, "metadata").get("name"))
        work = client.get(WORKLOAD, view.namespace, name) or client.get(older(WORKLOAD), view.namespace, name)
        there = read_queues(client, view.namespace, view.queue)
        local = there.find("LocalQueue", view.queue, view.namespace)
        behind = there.find("ClusterQueue", section(local, "spec").get("clusterQueue"))
        if behind is None:
            return replace(view, no_fit=None)
        sets: list[PodSet] = []
        for each in mappings(section(work, "spec").get("podSets")):
            count, template = number(each.get("count"), 1), dict(section(each, "template"))
            sets.append(PodSet(text(each.get("name")), "", count, template))
        return replace(
            view, no_fit=find_unfitting_podset(sets, behind, there, closed_flavors(view.workload, flavors_of(behind)))
        )
    return view


def with_node_reason(client: Client, view: JobView) -> JobView:
    """Return the view with why no node takes pods that the scheduler cannot place, even an empty one, or which of their claims is
    not bound; unchanged if nodes may, or if that cannot be read.
    """
    refused = [condition(conditions(p), "PodScheduled") for p in view.live if not node_of(p)]
    if not any(each.get("reason") == "Unschedulable" for each in refused):
        return view
    client = client_of(client, view)
    with contextlib.suppress(TargetFault):
        pods, _ = client.list(POD, view.namespace, labels=f"{JOBSET_NAME}={view.name}")
        nodes = Facts.of(client).all(NODE)
        for pod in pods:
            if node_of(pod):
                continue
            spec = section(pod, "spec")
            if any("persistentvolumeclaim" in text(each.get("message")).lower() for each in refused):
                unbound = explain_unbound(client, view.namespace, _claim_names(spec))
                if unbound is not None:
                    return replace(view, unbound=unbound)
            found = reason_without_node(spec, nodes or [])
            if found is not None:
                return replace(view, no_node=found)
    return view


def _claim_names(spec: Document) -> list[str]:
    names = []
    for volume in mappings(spec.get("volumes")):
        name = text(section(volume, "persistentVolumeClaim").get("claimName"))
        if name:
            names.append(name)
    return names


def with_queue(client: Client, view: JobView) -> JobView:
    """Return the view with what decides of a waiting job in its queue, as far as that is readable: why the ClusterQueue admits no
    jobs, its flavors, and if Kueue has not judged the job, whether it has judged another one, or an equal one.
    """
    quota = condition(conditions(view.workload), "QuotaReserved")
    if view.workload is None or quota.get("status") == "True":
        return view
    facts = Facts.of(client)
    with contextlib.suppress(TargetFault):
        local = facts.find(LOCAL_QUEUE, view.namespace, view.queue)
        name = text(section(local, "spec").get("clusterQueue"))
        behind = name and facts.find(CLUSTER_QUEUE, "", name)
        if isinstance(behind, dict):
            view = replace(view, queue_flavors=flavors_of(behind))
            if waits_for_queue(view.workload):
                view = replace(view, queue_inactive=inactive(behind))
        if not quota.get("message"):
            works, said = facts.ask_once(("judged", view.namespace), lambda: _judged(facts, view.namespace))
            own = works.get(section(view.workload, "metadata").get("uid"))
            if own is not None:
                view = replace(view, peer=said.peer_of(own), turn=said.is_later(own))
    return view


def _judged(facts: Facts, namespace: str) -> tuple[dict[Any, Document], Judgements]:
    """Return the Workloads of a namespace by UID, and what Kueue has said of them."""
    works = facts.all(WORKLOAD, namespace) or facts.all(older(WORKLOAD), namespace) or []
    return {section(each, "metadata").get("uid"): each for each in works}, Judgements.of(works)


def last_lines(client: Client, namespace: str, failed: FailedContainer) -> Sequence[str]:
    """Return what the log of a failed container explains, with the values of the Secrets that its pod references masked; empty
    if not readable."""
    query = {"container": failed.container, "tailLines": str(LAST_LINES)}
    if failed.previous:
        query["previous"] = "true"
    try:
        found = client.log_tail(namespace, failed.pod, query, LAST_BYTES)
        secrets = _secret_values(client, namespace, failed.pod)
    except TrainerError:
        return ()
    if secrets is None:
        return ()
    if len(found) >= LAST_BYTES:  # the last line is cut, perhaps within a secret
        found = found[: max(found.rfind(b"\n"), found.rfind(b"\r")) + 1]
    shown = with_user_tracebacks(mask(found.decode(errors="replace"), forms_of_values(secrets)))
    return explain_failure(shown[-SEARCHED:], failed.node)


def _secret_values(client: Client, namespace: str, pod: str) -> list[str] | None:
    """Return what is secret in the Secrets that a pod references, if they may be read; None if the pod was deleted meanwhile, so
    that nobody knows. Raises if the server does not answer."""
    values: list[str] = []
    with contextlib.suppress(ApiError, ValueError):
        found, _ = client.list(POD, namespace, fields=f"metadata.name={pod}")
        if not found:
            return None
        spec = section(found[0], "spec")
        for name in sorted({*_secret_names(spec)} - {""}):
            data = section(client.get(SECRET, namespace, name), "data").items()
            texts: dict[str, str] = {}
            for key, value in data:
                if isinstance(value, str):
                    texts[key] = base64.b64decode(value).decode(errors="replace")
            launch = ""
            if code.ARGS_FILE in texts:
                launch = _launch_file(client, namespace, spec)
            values += code.secret_texts(texts, launch)
    return values


def _launch_file(client: Client, namespace: str, spec: Document) -> str:
    """Return the text of the launch file beside a pod's code; empty if it is not readable."""
    for volume in mappings(spec.get("volumes")):
        for source in mappings(section(volume, "projected").get("sources")):
            name = text(section(source, "configMap").get("name"))
            if volume.get("name") == code.CODE_VOLUME and name:
                with contextlib.suppress(ApiError):
                    return text(section(client.get(CONFIG_MAP, namespace, name), "data").get(code.LAUNCH_FILE))
    return ""


def _secret_names(spec: Document) -> Iterator[str]:
    for container in Pod(spec).all_containers:
        for source in mappings(container.document.get("envFrom")):
            yield text(section(source, "secretRef").get("name"))
        for variable in container.env:
            yield text(section(variable, "valueFrom", "secretKeyRef").get("name"))
    for volume in mappings(spec.get("volumes")):
        yield text(section(volume, "secret").get("secretName"))
        for source in mappings(section(volume, "projected").get("sources")):
            yield text(section(source, "secret").get("name"))


def workload(client: Client, namespace: str, job: Document, unreadable: set[str]) -> Document | None:
    """Return Kueue's newest Workload of a job; None if not found."""
    labels = f"{JOB_UID}={text(section(job, 'metadata').get('uid'))}"
    found: list[Document] = ask_if_readable(lambda: _all(client, WORKLOAD, namespace, labels), [], unreadable, WORKLOAD)
    return max(found, key=lambda w: text(section(w, "metadata").get("creationTimestamp")), default=None)


def _preemptor(client: Client, namespace: str, work: Document | None, owner: Record | None) -> str:
    """Return the job that preempted this one; empty if not found.

    It may be gone, or belong to another team and not be readable. Then its record may have the name.
    """
    uids = preemptor(work)
    if uids is None:
        return ""
    uid, job = uids
    if owner is not None and uid in owner.preemptor:
        return owner.preemptor[uid]
    labels = ""
    if _UID.fullmatch(job):
        labels = f"{JOB_UID}={job}"
    for where in ("", namespace):
        found = ask_if_readable(partial(_all, client, WORKLOAD, where, labels), None, set(), WORKLOAD)
        if found is None:
            continue
        for each in found:
            if section(each, "metadata").get("uid") == uid:
                return job_of(each)
        return ""
    return ""


def recorded_preemptors(client: Client, workloads: Sequence[Document]) -> dict[str, str]:
    """Return the jobs that have preempted others and are not among some Workloads, by the UIDs of theirs: those that the records
    of the preempted jobs name.

    Args:
        workloads: With their kind; of which at most `_MOST_RECORDS` records are read.
    """
    known = {text(section(each, "metadata").get("uid")) for each in workloads}
    found: dict[str, str] = {}
    asked = 0
    for each in workloads:
        uid, name = (preemptor(each) or ("", ""))[0], job_name(each)
        if not uid or uid in known or not name or asked == _MOST_RECORDS:
            continue
        asked += 1
        namespace = text(section(each, "metadata").get("namespace"))
        of = ask_if_readable(partial(record.find, client, namespace, name), None, set(), CONFIG_MAP)
        if of is not None and of.is_record and uid in of.preemptor:
            found[uid] = of.preemptor[uid]
    return found


_MOST_RECORDS = 50


def _get_as_served(client: Client, kind: Kind, namespace: str, name: str) -> Document | None:
    found = client.get(kind, namespace, name)
    if found is None:
        return None
    return keep(kind.kind, found)


def _all(client: Client, kind: Kind, namespace: str, labels: str = "", fields: str = "") -> list[Document]:
    kept = partial(keep, kind.kind)
    return ask_as_served(kind, lambda k: client.list(k, namespace, labels=labels, fields=fields, keep=kept)[0])


def ask_if_readable(ask: Callable[[], Answer], otherwise: Answer, unreadable: set[str], kind: Kind) -> Answer:
    """Return the answer to a request; `otherwise` if the kind does not exist or may not be read."""
    try:
        return ask()
    except ApiError as error:
        if error.code not in (403, 404):
            raise
        unreadable.add(kind.plural)
        return otherwise


def _pod_group(client: Client, namespace: str, pods: Sequence[Document], unreadable: set[str]) -> Document | None:
    name = waiting_pod_group(pods)
    if not name:
        return None
    kind = pod_group_kind(pods, name)
    return ask_if_readable(partial(_get_as_served, client, kind, namespace, name), None, unreadable, kind)


def _troubled(view: JobView) -> bool:
    waiting = any(section(p, "status").get("phase") in ("Pending", None) for p in view.pods)
    return waiting or lacks_jobs(view) or any(map(lacks_pods, view.jobs))


def _events(client: Client, view: JobView) -> list[Document]:
    """Return warnings about the job, its Jobs and the pods that do not run, limited to `_SUBJECTS` objects."""
    waiting = [p for p in view.pods if section(p, "status").get("phase") in ("Pending", "Failed", None)]
    main_kind = "JobSet" if view.jobset is not None else "TrainJob"
    subjects = [(main_kind, view.name)]
    subjects += [("Job", name_of(j)) for j in itertools.islice(filter(lacks_pods, view.jobs), 2)]
    subjects += [("Pod", pod_name(p)) for p in waiting]
    found: list[Document] = []
    for kind, name in subjects[:_SUBJECTS]:
        fields = f"type=Warning,involvedObject.kind={kind},involvedObject.name={name}"
        found += _all(client, EVENT, view.namespace, fields=fields)
    return [*found, *_of_gang(client, view)]


def _of_gang(client: Client, view: JobView) -> Sequence[Document]:
    """Return the scheduling events of a gang's pods: an event of any of them names what the gang lacks."""
    group = waiting_pod_group(view.pods)
    if not group:
        return []
    names = {*map(pod_name, view.pods)}

    def kept(event: dict[str, Any]) -> dict[str, Any] | None:
        if subject(event) not in names or is_vague(text(event.get("message"))):
            return None
        return keep(EVENT.kind, event)

    fields = "type=Warning,reason=FailedScheduling,involvedObject.kind=Pod"
    found = client.list(EVENT, view.namespace, fields=fields, keep=kept)[0]
    if pod_group_kind(view.pods, group) is VOLCANO_POD_GROUP:  # why its queue does not take it is no warning
        fields = f"type=Normal,reason=Unschedulable,involvedObject.kind=PodGroup,involvedObject.name={group}"
        found += _all(client, EVENT, view.namespace, fields=fields)
    return found


def pod_group_kind(pods: Iterable[dict[str, Any]], name: str) -> Kind:
    """Return the kind of the PodGroup of that name, as the pods reference it."""
    for pod in pods:
        if pod_group_of(pod) == name and is_coscheduled(pod):
            return POD_GROUP
    return VOLCANO_POD_GROUP
