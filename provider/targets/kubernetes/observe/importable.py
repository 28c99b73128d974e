"""Reads what `import` writes a program for: queues, runtimes and jobs of a cluster, in one list call for each kind."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    controller_of,
    labels_of,
    mappings,
    place_of,
    section,
    text,
    without,
)
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.kueue.api_resources import WORKLOAD, api_resource
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.kueue.objects import KINDS, NAMESPACED
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs.admitted import written_spec
from pulumi_trainer.provider.targets.kubernetes.jobs.drift import KEYED, LISTS
from pulumi_trainer.provider.targets.kubernetes.queues.queue_snapshot import ask_as_served
from pulumi_trainer.provider.trainer.admission.training_operator import KINDS as V1_KINDS
from pulumi_trainer.provider.trainer.kinds import CLUSTER_RUNTIME, JOBSET, TRAIN_JOB, TRAINING_RUNTIME
from pulumi_trainer.provider.trainer.labels import MADE_BY, stack_of_mark

OLD_JOBS = (
    *(Kind("kubeflow.org/v1", kind, f"{kind.lower()}s") for kind in V1_KINDS),
    Kind("kubeflow.org/v2beta1", "MPIJob", "mpijobs"),
)
"""Jobs of Training Operator v1, and that of MPI Operator."""


@dataclass
class Importable:
    """What a cluster has.

    Attributes:
        objects: Queues, runtimes and jobs that belong to no stack.
        old_jobs: Jobs of Training Operator v1 and MPI Operator, which no program can take over.
        runtimes: The ClusterTrainingRuntimes, whoever they belong to: jobs refer to them.
        left: Objects of stacks and of controllers -> whose they are.
        unread: Plurals of the kinds that may not be listed.
    """

    objects: list[Document] = field(default_factory=list)
    old_jobs: list[Document] = field(default_factory=list)
    runtimes: list[Document] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)


def read_importable(client: Client, namespace: str) -> Importable:
    """Return what a cluster has. namespace: Only what is in it, with the runtimes of its jobs; empty for the whole cluster."""
    found = Importable()
    for kind in KINDS:
        if not namespace or kind == NAMESPACED:
            _add(found, _listed(client, api_resource(kind), namespace, found.unread))
    found.runtimes = _listed(client, CLUSTER_RUNTIME, namespace, found.unread)
    if not namespace:
        _add(found, found.runtimes)
    _add(found, _listed(client, TRAINING_RUNTIME, namespace, found.unread))
    _add(found, map(_without_changes_of_kueue, _listed(client, TRAIN_JOB, namespace, found.unread)))
    jobsets = _listed(client, JOBSET, namespace, found.unread)
    workloads = list[Document]()
    if any(map(_is_changed_by_kueue, jobsets)):
        workloads = _listed(client, WORKLOAD, namespace, found.unread)
    _add(found, _as_submitted(jobsets, workloads))
    for old in OLD_JOBS:
        found.old_jobs += _listed(client, old, namespace, found.unread)
    return found


def _listed(client: Client, kind: Kind, namespace: str, unread: list[str]) -> list[Document]:
    """Return the objects of a kind; none of one that the cluster does not serve, or that may not be listed."""
    try:
        listed, _ = ask_as_served(kind, lambda each: client.list(each, namespace if each.namespaced else ""))
    except ApiError as error:
        if error.code not in (403, 404):
            raise
        if error.code == 403:
            unread.append(kind.plural)
        return []
    return [{"apiVersion": kind.api_version, "kind": kind.kind, **each} for each in listed]


def _add(found: Importable, listed: Iterable[Document]) -> None:
    for each in listed:
        controller = controller_of(each)
        if "deletionTimestamp" in section(each, "metadata") or controller.get("kind") == "TrainJob":
            continue
        owner = _owner_of(each)
        if controller:
            owner = f"{controller.get('kind')} {controller.get('name')}"
        if owner:
            found.left[f"{each['kind']} {'/'.join(filter(None, place_of(each)))}"] = owner
        else:
            found.objects.append(_without_manager(each))


def _without_manager(document: Document) -> Document:
    """Return an object without the label that jobs and runtimes of a program get another value of."""
    about, labels = document["metadata"], labels_of(document)
    if document["apiVersion"].startswith("kueue.") or owner_labels.MANAGED_BY not in labels:
        return document
    return {**document, "metadata": {**about, "labels": without(labels, owner_labels.MANAGED_BY)}}


def _owner_of(document: Document) -> str:
    """Return the stack that an object belongs to; empty if it belongs to none."""
    annotations = section(document, "metadata", "annotations")
    mark = text(annotations.get(MADE_BY))
    if mark:
        return f"the stack {stack_of_mark(mark)}"
    if annotations.get(owner_labels.OWNER):
        return "another stack, whose name is not recorded"
    return ""


def _without_changes_of_kueue(job: Document) -> Document:
    """Return a TrainJob without Kueue's runtimePatches, and not suspended if Kueue alone suspends it."""
    spec = written_spec(job)
    if QUEUE in labels_of(job):
        spec.pop("suspend", None)
    return {**job, "spec": spec}


def _is_changed_by_kueue(jobset: Document) -> bool:
    return QUEUE in labels_of(jobset) and not section(jobset, "spec").get("suspend") and not controller_of(jobset)


def _as_submitted(jobsets: Sequence[Document], workloads: Iterable[Document]) -> Iterator[Document]:
    """Yield JobSets without what Kueue has added to their Pod templates on admission: their Workloads have what was submitted."""
    by_owner: dict[str, Document] = {}
    for workload in workloads:
        by_owner[text(controller_of(workload).get("uid"))] = workload
    for jobset in jobsets:
        if QUEUE in labels_of(jobset):
            jobset = {**jobset, "spec": without(jobset["spec"], "suspend")}
        submitted = by_owner.get(text(jobset["metadata"].get("uid")))
        if submitted is not None:
            jobset = _with_templates(jobset, submitted)
        yield jobset


def _with_templates(jobset: Document, workload: Document) -> Document:
    pods = {text(each.get("name")): each for each in mappings(section(workload, "spec").get("podSets"))}
    made = copy.deepcopy(jobset)
    for job in jobs_of(made):
        template = section(pods.get(job.name), "template")
        if not template:
            continue
        for part, name in (*KEYED, *LISTS):
            live, submitted = job.template.setdefault(part, {}), section(template, part)
            live.pop(name, None)
            if submitted.get(name):
                live[name] = submitted[name]
    return made
