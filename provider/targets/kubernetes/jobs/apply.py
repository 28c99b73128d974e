"""Sends the objects of a job: marked as ours, owned by the job's record, by server-side apply."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from pulumi_trainer.provider.api.kinds import JOBSET, TRAIN_JOB, of
from pulumi_trainer.provider.api.submission import Submission, main_key
from pulumi_trainer.provider.kube.client.client import ApiError, Client
from pulumi_trainer.provider.kube.client.kinds import SECRET, Kind
from pulumi_trainer.provider.kube.errors import (
    Conflict,
    Invalid,
    Problem,
    TargetFault,
    TrainerError,
)
from pulumi_trainer.provider.targets import keys
from pulumi_trainer.provider.targets.kubernetes import marks
from pulumi_trainer.provider.targets.kubernetes.jobs import admitted, adoption, record
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record

Document = dict[str, Any]

_NEVER = "1"
"""A resourceVersion that no object has: with it an apply creates what is not there, and changes nothing that is."""


def documents(submission: Submission, owner: Record) -> Iterator[tuple[Kind, Document]]:
    """What is to be sent, the job itself last: what its pods refer to is there before them."""
    main = main_key(submission.objects)
    for key, rendered in submission.objects.items():
        if key != main and not _holds_values(submission, key):
            yield of(rendered), marked(rendered, submission, owner)
    yield from _secrets(submission, owner)
    job = marked(submission.main, submission, owner)
    job["metadata"]["annotations"] = {**job["metadata"]["annotations"], **record.notes(submission)}
    yield of(job), job


def _secrets(submission: Submission, owner: Record) -> Iterator[tuple[Kind, Document]]:
    """The Secrets whose values come beside the objects."""
    for name, values in submission.secrets.items():
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "Opaque", "data": data}
        yield SECRET, marked(secret, submission, owner)


def marked(document: Mapping[str, Any], submission: Submission, owner: Record) -> Document:
    """The document with its namespace, our labels and its owner; the one that was given stays as it is."""
    meta = dict(document["metadata"])
    meta["namespace"] = submission.namespace
    meta["labels"] = {**(meta.get("labels") or {}), **record.labels(submission)}
    meta["annotations"] = {**(meta.get("annotations") or {}), marks.RECORD: owner.uid}
    meta["ownerReferences"] = [owner.reference()]
    return {**{k: v for k, v in document.items() if k != "status"}, "metadata": meta}


class Changed(TargetFault):
    """Somebody has changed or deleted an object since it was read."""


def send(
    client: Client,
    submission: Submission,
    owner: Record,
    *,
    live: Mapping[str, Document] = MappingProxyType({}),
    force: bool = False,
) -> Document:
    """Creates or updates all objects; the job itself as the server answers it.

    live: "Kind/name" -> the object that is to be updated, as it is (it is never created anew then). All others are created, or
    are there of an attempt of this run that was cut off. force: take fields over from other managers. Raises Conflict with the
    other manager and the field, or where somebody else's object has the name of one that is to be created, Invalid with the
    fields that the server refuses, Changed where a live object is another one by now.
    """
    answer: Document = {}
    for kind, document in documents(submission, owner):
        if kind is SECRET and _generated(document):
            _create_generated(client, document, live, owner)
        else:
            answer = _applied(client, kind, document, live, owner, force=force)
    return answer


def send_secrets(client: Client, submission: Submission, owner: Record, live: Mapping[str, Document]) -> None:
    """Updates the Secrets of a job alone. Arguments and errors are those of `send`."""
    for kind, document in _secrets(submission, owner):
        _applied(client, kind, document, live, owner)


def _applied(
    client: Client, kind: Kind, document: Document, live: Mapping[str, Document], owner: Record, *, force: bool = False
) -> Document:
    key = f"{kind.kind}/{document['metadata']['name']}"
    if (found := live.get(key)) is None:
        about = {"resourceVersion": _NEVER}
    else:
        about = {part: str(found["metadata"][part]) for part in ("uid", "resourceVersion")}
        document = admitted.kept(document, found) if kind in (JOBSET, TRAIN_JOB) else document
    try:
        return client.apply(kind, {**document, "metadata": {**document["metadata"], **about}}, force=force)
    except ApiError as error:
        heir = kind not in (JOBSET, TRAIN_JOB)
        there = _ours(client, kind, document, owner, heir=heir) if found is None and error.code == 409 else None
        if there is None:
            raise told(error, kind, document, live=found is not None) from None
    return _applied(client, kind, document, {key: there}, owner, force=force)


def _ours(client: Client, kind: Kind, document: Document, owner: Record, *, heir: bool = False) -> Document | None:
    """The object that an attempt of this run has created before; None: there is none of that name. heir: or one that an earlier
    job of this name has left. Raises Conflict where there is somebody else's."""
    namespace, name = document["metadata"]["namespace"], document["metadata"]["name"]
    there = record.look(client, kind, namespace, name)
    if there is None or record.belongs(there, owner.uid) or (heir and record.job_of(there) == owner.name):
        return there
    say = adoption.unasked if kind in (JOBSET, TRAIN_JOB) else record.others
    raise Conflict(say(there, kind.where(namespace, name)))


def told(error: ApiError, kind: Kind, document: Mapping[str, Any], *, live: bool = False) -> TrainerError:
    """The server's refusal of an apply in the words of the fields that it names. live: of a change of what was there."""
    where = kind.where(document["metadata"].get("namespace", ""), document["metadata"]["name"])
    conflicts = [(field, message) for field, reason, message in error.causes if reason == "FieldManagerConflict"]
    if error.code == 409 and not conflicts and live:
        return Changed(Problem(where, "somebody else changes it again and again", "run the same command again"))
    if kind is SECRET and error.code not in (401, 403):  # what it says may hold what was sent
        fields = ", ".join(field for field, _, _ in error.causes) or error.reason
        return Invalid(Problem(where, f"the server refuses it ({fields})"))
    if error.code == 409 and conflicts:
        mend = "undo that change, or say the same in the program, or take the field over with adopt=True"
        return Conflict(
            *[Problem(f"{where} {field}", f"is held by {_manager(said)}", mend) for field, said in conflicts]
        )
    if error.code in (400, 422) and error.causes:
        return Invalid(*[Problem(f"{where} {field}".strip(), said) for field, _, said in error.causes])
    if error.code == 404 and error.details.get("kind") == "namespaces":
        mend = "create it, or let the job depend on it (pulumi.ResourceOptions(depends_on=...))"
        return Invalid(Problem(where, error.message, mend))
    if error.code == 404:
        mend = f"is {kind.group} installed in this cluster, in version {kind.api_version.rpartition('/')[2]}?"
        return Invalid(Problem(where, f"the cluster knows no {kind.kind} ({kind.api_version})", mend))
    return error


def _manager(message: str) -> str:
    """`conflict with "kubectl-edit" using v1: .data.x` -> "kubectl-edit"."""
    found = re.search(r'conflict with "([^"]*)"', message)
    return f'the field manager "{found[1]}"' if found else message


def _holds_values(submission: Submission, key: str) -> bool:
    """A rendered Secret whose values come beside the objects."""
    kind, _, name = key.partition("/")
    return kind == "Secret" and name in submission.secrets


def _generated(secret: Mapping[str, Any]) -> bool:
    return bool(keys.placeholders(secret.get("data") or {}))


def _create_generated(client: Client, secret: Document, live: Mapping[str, Document], owner: Record) -> None:
    """Keys are made once: a Secret of the job that is there keeps its own."""
    values = keys.generated(secret["data"])
    secret = {**secret, "data": {key: base64.b64encode(value).decode() for key, value in values.items()}}
    try:
        client.create(SECRET, secret)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise told(error, SECRET, secret) from None
        if f"{SECRET.kind}/{secret['metadata']['name']}" not in live:
            _ours(client, SECRET, secret, owner)
