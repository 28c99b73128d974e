"""Training runtimes as objects of a cluster in mode trainer: one document each, by server-side apply.

A runtime belongs to the program that made it, by its annotation; one that somebody else made is
never changed, and what others change in it is taken back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pulumi_trainer.provider.api.kinds import CLUSTER_RUNTIME, TRAIN_JOB, TRAINING_RUNTIME
from pulumi_trainer.provider.api.status import NAMESAKE, Owner
from pulumi_trainer.provider.api.submission import differences
from pulumi_trainer.provider.kube.client import kinds
from pulumi_trainer.provider.kube.client.client import ApiError, Client
from pulumi_trainer.provider.kube.client.transport import FIELD_MANAGER
from pulumi_trainer.provider.kube.errors import (
    Conflict,
    Problem,
    Refused,
    TargetFault,
)
from pulumi_trainer.provider.lifecycle.runtimes import seen
from pulumi_trainer.provider.targets.kubernetes import marks
from pulumi_trainer.provider.targets.kubernetes.jobs.apply import Changed, told

Document = dict[str, Any]

_MEND = "wait until they have, delete them first, or set force=True and run `pulumi up` before it is removed"
GONE_SECONDS = 20.0
"""How long a delete waits for the runtime to be gone: Trainers before 2.3 hold it while TrainJobs refer to it."""
_POLL = 0.2


def apply(client: Client, document: Mapping[str, Any], owner: str, sweep: str) -> str:
    """Makes or updates the runtime, and tells its uid. Safe to repeat. Raises Conflict if it is not ours."""
    kind, namespace, name = place(document)
    marked = _marked(document, owner, sweep)
    deadline = time.monotonic() + client.patience
    while True:
        found = client.get(kind, namespace, name)
        only = {}
        if found is not None:
            _check_ours(found, kind, owner, sweep)
            only = {part: str(found["metadata"][part]) for part in ("uid", "resourceVersion")}
        sent = {**marked, "metadata": {**marked["metadata"], **only}}
        try:
            return str(client.apply(kind, sent, force=True)["metadata"]["uid"])  # the plan has told what others changed
        except ApiError as error:
            fault = told(error, kind, sent)
        if not isinstance(fault, Changed) or time.monotonic() > deadline:
            raise fault


def edited(
    client: Client, document: Mapping[str, Any], applied: Mapping[str, Any], owner: str, sweep: str
) -> list[str] | None:
    """Paths of what others have changed in a runtime, unless it is as `document` says; None: there is none. Raises Conflict if it
    is not ours.

    Where a field differs, the server tells what an apply of what was applied would change: not what a webhook makes of it.
    """
    kind, namespace, name = place(applied)
    if (found := client.get(kind, namespace, name)) is None:
        return None
    _check_ours(found, kind, owner, sweep)
    if any(seen(each, found) == each for each in (document, applied)):
        return []
    only = {part: str(found["metadata"][part]) for part in ("uid", "resourceVersion")}
    marked = _marked(applied, owner, sweep)
    sent = {**marked, "metadata": {**marked["metadata"], **only}}
    try:
        planned = client.apply(kind, sent, force=True, dry_run=True)
    except ApiError:
        return list(differences(applied, seen(applied, found)))
    return list(differences(_told(planned), _told(found)))


def _told(found: Mapping[str, Any]) -> Document:
    """The part of a runtime that programs write."""
    said = {part: found["metadata"].get(part) or {} for part in ("labels", "annotations")}
    return {"metadata": said, "spec": found.get("spec")}


def read(client: Client, kind: str, namespace: str, name: str) -> Document | None:
    """The runtime as the cluster has it; None: there is none, or Trainer is not installed."""
    return client.get(_KINDS[kind], namespace, name)


def delete(client: Client, document: Mapping[str, Any], uid: str, owner: Owner, *, force: bool = False) -> Owner | None:
    """Whose it is by now is returned; nothing happens to one that was made since. Raises Refused while an unfinished TrainJob was
    made from it."""
    kind, namespace, name = place(document)

    def mine(found: Mapping[str, Any]) -> bool:
        if found["metadata"].get("uid") != uid or not owner.owns(whose(found)):
            return False
        if not force and (users := _users(client, kind, namespace, name)):
            shown = ", ".join(users[:5]) + (f" and {len(users) - 5} more" if len(users) > 5 else "")
            why = f"is the runtime of {shown}, which {'has' if len(users) == 1 else 'have'} not finished"
            raise Refused(Problem(kind.where(namespace, name), why, _MEND))
        return True

    left = client.delete_if(kind, namespace, name, mine)
    if left is None or left["metadata"].get("uid") != uid:
        return None
    if not owner.owns(whose(left)):
        return whose(left)
    deadline = time.monotonic() + GONE_SECONDS
    while (found := client.get(kind, namespace, name)) is not None and found["metadata"].get("uid") == uid:
        if time.monotonic() > deadline:
            held = ", ".join(found["metadata"].get("finalizers") or ["nothing that shows"])
            mend = "it goes when that is removed; trainer.kubeflow.org/resource-in-use waits for TrainJobs that refer to it"
            raise TargetFault(Problem(kind.where(namespace, name), f"is being deleted, and held by {held}", mend))
        time.sleep(_POLL)
    return None


def whose(found: Mapping[str, Any]) -> Owner:
    """Return the owner that is written on a runtime."""
    said, labels = found["metadata"].get("annotations") or {}, found["metadata"].get("labels") or {}
    return Owner(str(said.get(marks.OWNER) or ""), str(labels.get(marks.STACK) or ""))


def place(document: Mapping[str, Any]) -> tuple[kinds.Kind, str, str]:
    """Kind, namespace (empty for one of the cluster) and name."""
    metadata = document["metadata"]
    kind = _KINDS[str(document["kind"])]
    return kind, str(metadata.get("namespace") or "") if kind.namespaced else "", str(metadata["name"])


_KINDS = {kind.kind: kind for kind in (CLUSTER_RUNTIME, TRAINING_RUNTIME)}


def _marked(document: Mapping[str, Any], owner: str, sweep: str) -> Document:
    metadata = dict(document["metadata"])
    marks_ = {marks.MANAGED_BY: FIELD_MANAGER, **({marks.STACK: sweep} if sweep else {})}
    metadata["labels"] = {**(metadata.get("labels") or {}), **marks_}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), marks.OWNER: owner}
    return {**document, "metadata": metadata}


def check(client: Client, document: Mapping[str, Any], owner: str, sweep: str | None) -> None:
    """Raises Conflict where the cluster has one of that name that is not ours."""
    kind, namespace, name = place(document)
    if (found := client.get(kind, namespace, name)) is not None:
        _check_ours(found, kind, owner, sweep)


def _check_ours(found: Document, kind: kinds.Kind, owner: str, sweep: str | None) -> None:
    metadata = found["metadata"]
    labels = metadata.get("labels") or {}
    ours = (metadata.get("annotations") or {}).get(marks.OWNER) == owner
    if ours and (sweep is None or labels.get(marks.STACK, sweep) == sweep):
        return
    others = "another program's" if labels.get(marks.MANAGED_BY) == FIELD_MANAGER else "somebody's"
    whose = f"of {NAMESAKE}" if ours else others
    where = kind.where(str(metadata.get("namespace") or ""), metadata["name"])
    mend = f'to use it as it is, give TrainJobs runtime="{metadata["name"]}"; else give this one another name='
    raise Conflict(Problem(where, f"exists and is {whose}", mend))


def _users(client: Client, kind: kinds.Kind, namespace: str, name: str) -> list[str]:
    """Unfinished TrainJobs made from a runtime."""

    def keep(job: Document) -> Document | None:
        ref = (job.get("spec") or {}).get("runtimeRef") or {}
        conditions = (job.get("status") or {}).get("conditions") or []
        ended = any(c.get("type") in ("Complete", "Failed") and c.get("status") == "True" for c in conditions)
        mine = (ref.get("kind", "ClusterTrainingRuntime"), ref.get("name")) == (kind.kind, name)
        return job["metadata"] if mine and not ended else None

    try:
        found, _ = client.list(TRAIN_JOB, namespace, keep=keep)
    except ApiError as error:
        if error.code in (403, 404):  # who may not look at all namespaces leaves it to the cluster
            return []
        raise
    return [f"TrainJob {m.get('namespace')}/{m['name']}" for m in found]
