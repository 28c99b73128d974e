"""Sends the objects of a job by server-side apply, with owner labels and an owner reference to the job's record."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pulumi_trainer.provider import source_archives
from pulumi_trainer.provider.jobs.lineage import identified
from pulumi_trainer.provider.jobs.submission import Submission, main_key
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, SECRET, Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.client.transport import FIELD_MANAGER
from pulumi_trainer.provider.kubernetes.errors import Conflict, Invalid, Problem, TargetFault, TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import section, without
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.pod.code import SOURCE_FILE
from pulumi_trainer.provider.targets import generated_secrets
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs import admitted, adoption, record
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.trainer.admission.defaults import without_job_defaults
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB, kind_of
from pulumi_trainer.provider.trainer.labels import KAI_QUEUE, KAI_SCHEDULER

Document = dict[str, Any]

_CONFLICT = "FieldManagerConflict"
"""Reason of the cause that another manager owns a field."""
_NEVER = "1"
"""A resourceVersion that no object has: an apply with it creates a missing object and never changes an existing one."""


def documents(submission: Submission, owner: Record) -> Iterator[tuple[Kind, Document]]:
    """Yield kind and document of each object to send; the job is last, so that everything its Pods refer to exists before it."""
    yield from _beside(submission, owner)
    job = add_owner_metadata(identified(submission, owner.identity).main, submission, owner)
    job["metadata"]["annotations"] = {**job["metadata"]["annotations"], **record.job_annotations(submission)}
    if _must_be_top_owner(job):
        del job["metadata"]["ownerReferences"]
    yield kind_of(job), job


def _beside(submission: Submission, owner: Record) -> Iterator[tuple[Kind, Document]]:
    """Yield kind and document of each object except the job itself."""
    main = main_key(submission.objects)
    for key, rendered in submission.objects.items():
        kind, _, name = key.partition("/")
        has_values = kind == "Secret" and name in submission.secrets  # `_secrets` yields it with them
        if key != main and not has_values:
            yield kind_of(rendered), add_owner_metadata(rendered, submission, owner)
    yield from _secrets(submission, owner)


def _must_be_top_owner(job: Document) -> bool:
    """Return whether the Pods of a job may be KAI's, which groups Pods by the topmost owner that it finds.

    It knows TrainJobs and JobSets; all Pods below a ConfigMap would start one by one. A deletion does not need the reference:
    it deletes what the garbage collector leaves (`end_train_jobs`, `KubernetesTarget.delete`).
    Source: https://github.com/kai-scheduler/KAI-scheduler/blob/v0.13.1/pkg/podgrouper/podgrouper/podgrouper.go
    """
    if kind_of(job) is TRAIN_JOB:  # its Pods are known to its runtime only
        return True
    return any(
        each.pod.spec.get("schedulerName") == KAI_SCHEDULER or KAI_QUEUE in section(each.template, "metadata", "labels")
        for each in jobs_of(job)
    )


def _secrets(submission: Submission, owner: Record) -> Iterator[tuple[Kind, Document]]:
    for name, values in submission.secrets.items():
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "Opaque", "data": data}
        yield SECRET, add_owner_metadata(secret, submission, owner)


def add_owner_metadata(document: Mapping[str, Any], submission: Submission, owner: Record) -> Document:
    """Return a copy of the document with namespace, labels, annotations and owner reference of its job."""
    meta = dict(document["metadata"])
    meta["namespace"] = submission.namespace
    meta["labels"] = {**(meta.get("labels") or {}), **record.labels(submission)}
    if owner.identity.id:
        meta["labels"][owner_labels.RUN_ID] = owner.identity.id
    meta["annotations"] = {**(meta.get("annotations") or {}), owner_labels.RECORD: owner.uid}
    meta["ownerReferences"] = [owner.owner_reference()]
    return {**without(document, "status"), "metadata": meta}


class Changed(TargetFault):
    """An object was changed or deleted since it was read."""


def send(
    client: Client,
    submission: Submission,
    owner: Record,
    *,
    live: Mapping[str, Document] = MappingProxyType({}),
    force: bool = False,
) -> Document:
    """Create or update all objects of a job.

    Args:
        live: "Kind/name" -> the object to update, as it was read. Such an object is never created anew; all others are created,
            or exist because of an interrupted attempt of the same run.

    Returns:
        The job as the server returned it.

    Raises:
        Conflict: Another manager owns a field, or an object of another owner has the name of one to create.
        Changed: A live object was replaced or changed since it was read.
    """
    answer: Document = {}
    for kind, document in documents(submission, owner):
        answer = _sent(client, kind, document, live, owner, force=force)
    return answer


def send_beside(client: Client, submission: Submission, owner: Record) -> None:
    """Create or update the objects of a job except the job itself. Arguments and errors are those of `send`."""
    for kind, document in _beside(submission, owner):
        _sent(client, kind, document, {}, owner)


def _sent(
    client: Client, kind: Kind, document: Document, live: Mapping[str, Document], owner: Record, *, force: bool = False
) -> Document:
    """Create or update an object, and return it as the server does; empty for a Secret with generated keys."""
    if kind is SECRET and generated_secrets.keys_to_generate(document.get("data") or {}):
        _create_generated(client, document, live, owner)
        return {}
    return _applied(client, kind, document, live, owner, force=force)


def send_secrets(client: Client, submission: Submission, owner: Record, live: Mapping[str, Document]) -> None:
    """Update only the Secrets of a job. Arguments and errors are those of `send`."""
    for kind, document in _secrets(submission, owner):
        _applied(client, kind, document, live, owner)


def _applied(
    client: Client, kind: Kind, document: Document, live: Mapping[str, Document], owner: Record, *, force: bool = False
) -> Document:
    key = f"{kind.kind}/{document['metadata']['name']}"
    is_job = kind in (JOBSET, TRAIN_JOB)
    found = live.get(key)
    digest = source_archives.digest_of(document)
    if digest:
        document = _with_archive(document, digest, found)
    if found is None:
        about = {"resourceVersion": _NEVER}
    else:
        about = {part: str(found["metadata"][part]) for part in ("uid", "resourceVersion")}
        if is_job:
            document = _as_in_cluster(document, found, owner)
    try:
        return client.apply(kind, {**document, "metadata": {**document["metadata"], **about}}, force=force)
    except ApiError as error:
        if not force and _conflicts_with_override(error):
            return _applied(client, kind, document, live, owner, force=True)
        there: Document | None = None
        if found is None and error.code == 409:
            there = _existing(client, kind, document, owner, heir=not is_job)
        if there is None:
            raise apply_error(error, kind, document, live=found is not None) from None
    return _applied(client, kind, document, {key: there}, owner, force=force)


def _as_in_cluster(document: Document, found: Document, owner: Record) -> Document:
    """Return the job to apply, without changes of what Kueue has written or a user has overridden."""
    document = without_job_defaults(admitted.keep_kueue_fields(document, found), found)
    if owner.override is None or not owner.override.differs(document["spec"].get("suspend")):
        return document
    return {**document, "spec": without(document["spec"], "suspend")}


def is_overridden(submission: Submission, owner: Record) -> bool:
    """Return whether a user has given the job another `suspend` than the program has. Of a job with a queue, the program has
    none."""
    suspend = section(submission.main, "spec").get("suspend")
    queued = QUEUE in section(submission.main, "metadata", "labels")
    return owner.override is not None and (queued or owner.override.differs(suspend))


def _conflicts_with_override(error: ApiError) -> bool:
    """Return whether an apply conflicts only with `suspend` as `pulumi-trainer suspend` or `resume` has patched it."""
    conflicts = _conflicts(error)
    for field, message in conflicts:
        if field != ".spec.suspend" or f'"{FIELD_MANAGER}"' not in message:
            return False
    return bool(conflicts)


def _conflicts(error: ApiError) -> list[tuple[str, str]]:
    """Return field and message of each field that another manager owns."""
    return [(field, message) for field, reason, message in error.causes if reason == _CONFLICT]


def with_archives(client: Client, submission: Submission) -> Submission:
    """Return a job with the archive of its project, as this machine has it, else as the cluster does. Raise TargetFault if
    neither has it, or if it cannot be written to S3."""
    objects = dict(submission.objects)
    for key, document in submission.objects.items():
        digest = source_archives.digest_of(document)
        if digest:
            found = client.get(CONFIG_MAP, submission.namespace, document["metadata"]["name"])
            objects[key] = _with_archive(document, digest, found)
    return replace(submission, objects=objects)


def _with_archive(document: Document, digest: str, found: Document | None) -> Document:
    """Return a ConfigMap with the archive of its project: that of this machine, else the one that the cluster has, which
    somebody may have damaged.
    """
    if SOURCE_FILE in section(document, "binaryData"):
        return document
    address = source_archives.address_of(document)
    if address:
        source_archives.upload(address, digest)
        return document
    try:
        archive = base64.b64encode(source_archives.read(digest)).decode()
    except TargetFault:
        archive = ""
        if source_archives.digest_of(found or {}) == digest:
            archive = section(found, "binaryData").get(SOURCE_FILE) or ""
        if not archive:
            raise
    return source_archives.with_archive(document, archive)


def _existing(client: Client, kind: Kind, document: Document, owner: Record, *, heir: bool = False) -> Document | None:
    """Return the object that an earlier attempt of this run has created; None if not found.

    Args:
        heir: Whether to accept an object of an earlier job of this name too.

    Raises:
        Conflict: A foreign object has the name.
    """
    namespace, name = document["metadata"]["namespace"], document["metadata"]["name"]
    there = record.get_metadata(client, kind, namespace, name)
    if there is None or record.belongs(there, owner.uid) or (heir and record.job_name_of(there) == owner.name):
        return there
    problem = adoption.unadopted_problem if kind in (JOBSET, TRAIN_JOB) else record.name_taken_problem
    raise Conflict(problem(there, kind.where(namespace, name)))


def apply_error(error: ApiError, kind: Kind, document: Mapping[str, Any], *, live: bool = False) -> TrainerError:
    """Return the error for a rejected apply, with a problem for each field that the server names. live: Whether the apply was a
    change of an object that was read before."""
    where = kind.where(document["metadata"].get("namespace", ""), document["metadata"]["name"])
    conflicts = _conflicts(error)
    if error.code == 409 and not conflicts and live:
        return Changed(Problem(where, "another client keeps changing it", "run the same command again"))
    if live and f"metadata.labels[{QUEUE}]" in error.message:  # the check has found the job waiting
        hint = "Kueue has admitted the job in the meantime; `pulumi preview` shows what a change of the queue does now"
        return Invalid(Problem(where, error.message, hint))
    if kind is SECRET and error.code not in (401, 403):  # the message may contain the values that were sent
        fields = ", ".join(field for field, _, _ in error.causes) or error.reason
        return Invalid(Problem(where, f"the server rejects it ({fields})"))
    if error.code == 409 and conflicts:
        hint = "undo that change, or make the same change in the program, or take the field over with adopt=True"
        return Conflict(
            *[Problem(f"{where} {field}", f"is managed by {_manager(message)}", hint) for field, message in conflicts]
        )
    if error.code in (400, 422) and error.causes:
        return Invalid(*[Problem(f"{where} {field}".strip(), message) for field, _, message in error.causes])
    if error.code == 404 and error.details.get("kind") == "namespaces":
        hint = "create it, or let the job depend on it (pulumi.ResourceOptions(depends_on=...))"
        return Invalid(Problem(where, error.message, hint))
    if error.code == 404:
        hint = f"is {kind.group} installed in this cluster, in version {kind.api_version.rpartition('/')[2]}?"
        return Invalid(Problem(where, f"the cluster does not serve {kind.kind} ({kind.api_version})", hint))
    return error


def _manager(message: str) -> str:
    """`conflict with "kubectl-edit" using v1: .data.x` -> "kubectl-edit"."""
    found = re.search(r'conflict with "([^"]*)"', message)
    if not found:
        return message
    return f'the field manager "{found[1]}"'


def _create_generated(client: Client, secret: Document, live: Mapping[str, Document], owner: Record) -> None:
    """Create a Secret with generated keys; an existing Secret of the job keeps its keys."""
    values = generated_secrets.generate_values(secret["data"])
    secret = {**secret, "data": {key: base64.b64encode(value).decode() for key, value in values.items()}}
    try:
        client.create(SECRET, secret)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise apply_error(error, SECRET, secret) from None
        if f"{SECRET.kind}/{secret['metadata']['name']}" not in live:
            _existing(client, SECRET, secret, owner)
