"""Sends the objects of a job: marked as ours, owned by the job's record, by server-side apply. Called by `target`."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from pulumi_trainer.provider.api.kinds import of
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
from pulumi_trainer.provider.targets.kubernetes.jobs import admitted, record
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record

Document = dict[str, Any]


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

    live: "Kind/name" -> the object that is to be updated, as it is (it is never created anew then). force: take fields over from
    other managers. Raises Conflict with the other manager and the field, Invalid with the fields that the server refuses, Changed
    where a live object is another one by now.
    """
    answer: Document = {}
    for kind, document in documents(submission, owner):
        if kind is SECRET and _generated(document):
            _create_generated(client, document)
            continue
        if (found := live.get(f"{kind.kind}/{document['metadata']['name']}")) is not None and kind is of(
            submission.main
        ):
            document = admitted.kept(document, found)
        answer = _applied(client, kind, document, live, force=force)
    return answer


def send_secrets(client: Client, submission: Submission, owner: Record, live: Mapping[str, Document]) -> None:
    """Updates the Secrets of a job alone. Arguments and errors are those of `send`."""
    for kind, document in _secrets(submission, owner):
        _applied(client, kind, document, live)


def _applied(
    client: Client, kind: Kind, document: Document, live: Mapping[str, Document], *, force: bool = False
) -> Document:
    if (found := live.get(f"{kind.kind}/{document['metadata']['name']}")) is not None:
        document["metadata"] |= {part: str(found["metadata"][part]) for part in ("uid", "resourceVersion")}
    try:
        return client.apply(kind, document, force=force)
    except ApiError as error:
        raise told(error, kind, document) from None


def told(error: ApiError, kind: Kind, document: Mapping[str, Any]) -> TrainerError:
    """The server's refusal of an apply in the words of the fields that it names."""
    where = kind.where(document["metadata"].get("namespace", ""), document["metadata"]["name"])
    conflicts = [(field, message) for field, reason, message in error.causes if reason == "FieldManagerConflict"]
    if error.code == 409 and not conflicts and "uid" in document["metadata"]:
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


def _create_generated(client: Client, secret: Document) -> None:
    """Keys are made once: a Secret that is there keeps its own."""
    values = keys.generated(secret["data"])
    secret = {**secret, "data": {key: base64.b64encode(value).decode() for key, value in values.items()}}
    try:
        client.create(SECRET, secret)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise told(error, SECRET, secret) from None
