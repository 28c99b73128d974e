"""Reads for which times the jobs of a namespace or of the whole cluster have run: from records, JobSets and Workloads.

Each kind is listed once, in pages, and trimmed page by page.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain, filterfalse

from pulumi_trainer.provider.jobs.edited_json import parse
from pulumi_trainer.provider.jobs.runs import Run, read_runs
from pulumi_trainer.provider.jobs.usage import NOTHING_KNOWN, USER, Demand, count_gpus, demand_of, flavor_of, is_gpu
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    epoch_seconds,
    labels_of,
    mappings,
    name_of,
    only,
    place_of,
    section,
    text,
    without,
)
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR, WORKLOAD
from pulumi_trainer.provider.kueue.prices import Amount, Prices, budget_of, gpu_flavors
from pulumi_trainer.provider.kueue.quota import ZERO, amount
from pulumi_trainer.provider.kueue.workload_reasons import JOB_KINDS, owner_of
from pulumi_trainer.provider.lifecycle import usage_report
from pulumi_trainer.provider.lifecycle.diagnosis import keep
from pulumi_trainer.provider.lifecycle.usage_report import ClusterUsage
from pulumi_trainer.provider.lifecycle.usage_sums import Ran, UsageSum, after, booked, read_sums
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs.record import EARLIER, ENDS, SUMS, USAGE, belongs, seconds
from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import JOB_UID, ask_if_readable
from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import workload as workload_of
from pulumi_trainer.provider.targets.kubernetes.queues.queue_snapshot import ask_as_served
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB
from pulumi_trainer.provider.trainer.labels import RENAMED_TO

Place = tuple[str, str]


def read_usage(
    client: Client, namespace: str = "", only_jobs: Collection[Place] | None = None, prices: Prices | None = None
) -> ClusterUsage:
    """Return what jobs have used. prices: By flavor; default: those of the ResourceFlavors, as far as these may be listed."""
    unseen: set[str] = set()
    with ThreadPoolExecutor(4) as threads:  # the server writes one list while another is read
        asked = [
            threads.submit(list_if_readable, client, CONFIG_MAP, namespace, unseen),
            threads.submit(list_if_readable, client, JOBSET, namespace, unseen),
            threads.submit(list_if_readable, client, WORKLOAD, namespace, unseen),
            threads.submit(list_if_readable, client, LOCAL_QUEUE, namespace, unseen),
            # prices are no loss where there are none
            threads.submit(list_if_readable, client, CLUSTER_QUEUE, "", set[str]()),
            threads.submit(list_if_readable, client, RESOURCE_FLAVOR, "", set[str]()),
        ]
    config_maps, jobsets, workloads, queues, cluster_queues, flavors = (each.result() for each in asked)
    if {CONFIG_MAP.plural, JOBSET.plural} <= unseen:
        where = f"namespace {namespace}" if namespace else "all namespaces"
        hint = "`pulumi-trainer rbac --usage` prints the permissions"
        raise TargetFault(Problem("usage", f"neither ConfigMaps nor JobSets of {where} may be listed", hint))
    if any(map(_is_of_train_job, config_maps)):
        jobsets = _with_users(jobsets, list_if_readable(client, TRAIN_JOB, namespace, set[str]()))
    deleted, counted = list[UsageSum](), dict[str, float]()
    for found in filter(_is_sums, config_maps):
        deleted += read_sums(place_of(found)[0], section(found, "data"))
        counted |= booked(section(found, "data"))
    records = [*filterfalse(_is_sums, config_maps)]
    runs = [*_runs(records, jobsets, workloads, counted), *_others(workloads)]
    if only_jobs is not None:
        runs, deleted = [ran for ran in runs if (ran.namespace, ran.name) in only_jobs], []
    prices = prices or Prices.of(flavors)
    behind = {place_of(queue): text(section(queue, "spec").get("clusterQueue")) for queue in queues}
    flavors_of = {name_of(queue): gpu_flavors(queue, is_gpu) for queue in cluster_queues}

    def price_of(used: Ran | UsageSum) -> Amount | None:
        queue = behind.get((used.namespace, used.demand.queue or ""), "")
        found = {*map(prices.find, ({used.demand.flavor} - {""}) or flavors_of.get(queue, set()))}
        return found.pop() if len(found) == 1 else None

    if prices.by_flavor:
        runs = [replace(ran, price=price_of(ran)) for ran in runs]
        deleted = [replace(each, price=price_of(each)) for each in deleted]
    names = [(behind[place_of(each)], section(each, "metadata", "annotations").get(RENAMED_TO)) for each in queues]
    renamed = {cluster_queue: text(name) for cluster_queue, name in names if name}
    teams = {
        place: renamed.get(cluster_queue) or usage_report.team_of(place[1], cluster_queue)
        for place, cluster_queue in behind.items()
    }
    given = [(teams[place_of(queue)], budget_of(queue)) for queue in queues]
    budgets = {team: budget for team, budget in given if budget is not None}
    return ClusterUsage(runs, teams, budgets, sorted(unseen), deleted)


def read_runs_of(client: Client, namespace: str, name: str) -> tuple[Document | None, list[Ran]]:
    """Return the record of a job, None if it has none, and the runs of the job."""
    record = client.get(CONFIG_MAP, namespace, name)
    if record is None:
        return None, []
    jobset = client.get(JOBSET, namespace, name)
    unseen = set[str]()
    workloads = list[Document]()
    if jobset is not None:
        uids = [owner.get("uid") for owner in mappings(jobset["metadata"].get("ownerReferences"))]
        for uid in (jobset["metadata"].get("uid"), *uids):
            found = workload_of(client, namespace, {"metadata": {"uid": uid}}, unseen)
            workloads += filter(None, [found])
    return record, [*_runs([record], [*filter(None, [jobset])], workloads, {})]


def _is_sums(found: Document) -> bool:
    return labels_of(found).get(owner_labels.RECORD) == SUMS


def list_if_readable(client: Client, kind: Kind, namespace: str, unseen: set[str]) -> list[Document]:
    """Return the records and sums, JobSets, Workloads, LocalQueues or TrainJobs, trimmed; none if they may not be listed.

    Args:
        kind: ConfigMap for records and the sums of deleted jobs.
        namespace: Empty for all namespaces.
        unseen: The plural of a kind that may not be listed is added.
    """
    labels, kept = "", _KEPT[kind.kind]
    if kind is CONFIG_MAP:
        labels = f"{owner_labels.RECORD} in (true,{SUMS})"
    ask = partial(ask_as_served, kind, lambda k: client.list(k, namespace, labels=labels, keep=kept)[0])
    return ask_if_readable(ask, [], unseen, kind)


def _kept_record(found: Document) -> Document:
    """Return of a record what usage reads. `Record.of` reads much more, which takes seconds for thousands of records."""
    if _is_sums(found):
        return {**found, "metadata": only(found["metadata"], ("name", "namespace", "labels"))}
    metadata = only(found["metadata"], ("name", "namespace", "uid", "creationTimestamp"))
    return {
        "metadata": metadata,
        "data": only(section(found, "data"), ("job", "phase", "started", "finished", USAGE, EARLIER)),
    }


def _kept_workload(found: Document) -> Document:
    metadata = only(found["metadata"], ("name", "namespace", "uid", "labels", "ownerReferences", "creationTimestamp"))
    return {
        "metadata": metadata,
        "spec": only(section(found, "spec"), ("queueName",)),
        "status": section(found, "status"),
    }


def _kept_queue(found: Document) -> Document:
    return {
        "metadata": only(found["metadata"], ("name", "namespace", "annotations")),
        "spec": only(section(found, "spec"), ("clusterQueue", "resourceGroups")),
    }


def _kept_jobset(found: Document) -> Document:
    return {**keep("JobSet", found), "kind": "JobSet"}


def _kept_train_job(found: Document) -> Document:
    return {
        "metadata": {
            **only(found["metadata"], ("name", "namespace")),
            "annotations": only(section(found, "metadata", "annotations"), (USER,)),
        },
        "status": only(section(found, "status"), ("trainerStatus",)),
    }


_KEPT = {
    "ConfigMap": _kept_record, "JobSet": _kept_jobset, "Workload": _kept_workload, "TrainJob": _kept_train_job,
    **dict.fromkeys(("LocalQueue", "ClusterQueue", "ResourceFlavor"), _kept_queue),
}  # fmt: skip


def _runs(
    records: list[Document], jobsets: list[Document], workloads: list[Document], counted: Mapping[str, float]
) -> Iterator[Ran]:
    """Yield the runs of all jobs with a record or a JobSet. counted: UID of a record -> until when the sums have it."""
    of_jobs = {text(labels_of(w).get(JOB_UID)): w for w in workloads}
    live = {place_of(jobset): jobset for jobset in jobsets}
    for record in records:
        uid = text(record["metadata"].get("uid"))
        made_by_trainer = _is_of_train_job(record)
        jobset = live.get(place_of(record))
        if jobset is not None and (made_by_trainer or belongs(jobset, uid)):
            del live[place_of(record)]
        else:
            jobset = None
        yield from after(counted.get(uid, 0.0), _runs_of_record(record, jobset, of_jobs))
    for place, jobset in live.items():
        uids = [owner.get("uid") for owner in mappings(section(jobset, "metadata").get("ownerReferences"))]
        until = max([0.0, *(counted.get(text(uid), 0.0) for uid in uids)])  # of a record that is gone already
        yield from after(until, _observed(place, NOTHING_KNOWN, jobset, of_jobs))


def _is_of_train_job(record: Document) -> bool:
    return text(section(record, "data").get("job")).startswith(f"{TRAIN_JOB.kind}/")


def _with_users(jobsets: list[Document], train_jobs: list[Document]) -> list[Document]:
    """Return JobSets with the users of the TrainJobs that they belong to."""
    users = {place_of(each): section(each, "metadata", "annotations").get(USER) for each in train_jobs}
    found = list[Document]()
    for jobset in jobsets:
        user = users.get(place_of(jobset))
        if user:
            metadata = section(jobset, "metadata")
            annotations = {**section(metadata, "annotations"), USER: user}
            jobset = {**jobset, "metadata": {**metadata, "annotations": annotations}}
        found.append(jobset)
    return found


def _runs_of_record(record: Document, jobset: Document | None, of_jobs: Mapping[str, Document]) -> Iterator[Ran]:
    place, data = place_of(record), section(record, "data")
    created = epoch_seconds(section(record, "metadata").get("creationTimestamp"))
    demand = Demand.from_text(data.get(USAGE))
    if EARLIER in data:
        yield from usage_report.earlier_runs(*place, read_earlier(data[EARLIER]), created)
    ended = data.get("phase") in ENDS
    if jobset is not None and not (ended and demand.since):
        yield from _observed(place, demand, jobset, of_jobs)
    elif ended:
        if jobset is not None:
            demand = _known(demand, jobset, None)
        yield from usage_report.recorded_run(
            *place, demand, seconds(data.get("started")), seconds(data.get("finished"))
        )
    else:
        yield Ran(*place, demand, 0.0, known=created)


def read_earlier(given: str) -> list[Run]:
    """Return the earlier runs in a record, without their inputs."""
    return read_runs([without(run, "inputs") for run in mappings(parse(given))])


def _observed(place: Place, demand: Demand, jobset: Document, workloads: Mapping[str, Document]) -> Iterator[Ran]:
    """Yield the times of a job whose JobSet exists. workloads: Those of jobs, by the UIDs of the jobs."""
    owners = mappings(section(jobset, "metadata").get("ownerReferences"))
    uids = [text(section(jobset, "metadata").get("uid")), *(text(owner.get("uid")) for owner in owners)]
    workload = next((workloads[uid] for uid in uids if uid in workloads), None)
    yield from usage_report.observed_runs(*place, _known(demand, jobset, workload), jobset, workload)


def _known(demand: Demand, jobset: Document, workload: Document | None) -> Demand:
    """Return a demand with what the record lacks, and with the queue that the job is in now."""
    seen = demand_of(jobset)
    queue = text(section(workload, "spec").get("queueName")) or demand.queue or seen.queue
    gpus, cpus = demand.gpus, demand.cpus
    if gpus is None:
        gpus, cpus = seen.gpus, seen.cpus
    flavor = flavor_of(workload) or demand.flavor
    return replace(demand, queue=queue, gpus=gpus, cpus=cpus, flavor=flavor).with_user_of(jobset)


def _others(workloads: list[Document]) -> Iterator[Ran]:
    """Yield the times of Workloads of other kinds than JobSet and TrainJob."""
    for workload in workloads:
        owner = owner_of(workload)
        if owner.get("kind") not in JOB_KINDS:
            assigned = mappings(section(workload, "status", "admission").get("podSetAssignments"))
            used = [*chain.from_iterable(section(each, "resourceUsage").items() for each in assigned)]
            amounts = [(name, amount(quantity) or ZERO) for name, quantity in used]
            cpus = float(sum(number for name, number in amounts if name == "cpu"))
            queue = text(section(workload, "spec").get("queueName"))
            demand = Demand(queue=queue, gpus=count_gpus(amounts), cpus=cpus, flavor=flavor_of(workload))
            namespace, name = place_of(workload)
            yield from usage_report.other_workload(workload, namespace, text(owner.get("name")) or name, demand)
