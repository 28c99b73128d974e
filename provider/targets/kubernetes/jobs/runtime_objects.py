"""Applies, compares and deletes training runtimes in a cluster in mode trainer.

A runtime has the id of its owner in an annotation. A runtime of another owner is never changed; external changes to an own one
are reverted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from pulumi_trainer.provider.jobs.status import NAMESAKE, Owner
from pulumi_trainer.provider.jobs.submission import EXISTING
from pulumi_trainer.provider.jobs.submission import differences as differing_paths
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.client.transport import FIELD_MANAGER
from pulumi_trainer.provider.kubernetes.errors import Conflict, Problem, Refused, TargetFault, several
from pulumi_trainer.provider.kubernetes.hand_edits import with_sole_manager
from pulumi_trainer.provider.kubernetes.values.accessors import conditions, only, section, true_condition
from pulumi_trainer.provider.kubernetes.values.wording import join_names
from pulumi_trainer.provider.lifecycle.runtimes import current_fields
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.field_managers import change_managers
from pulumi_trainer.provider.targets.kubernetes.jobs.apply import Changed, apply_error
from pulumi_trainer.provider.trainer.admission import review
from pulumi_trainer.provider.trainer.kinds import CLUSTER_RUNTIME, TRAIN_JOB, TRAINING_RUNTIME
from pulumi_trainer.provider.trainer.pipeline import Release

Document = dict[str, Any]

_HINT = "wait until they have, delete them first, or set force=True and run `pulumi up` before it is removed"
GONE_SECONDS = 20.0
"""How long a delete waits until the runtime is gone: Trainers before 2.3 keep it while TrainJobs refer to it."""
_POLL = 0.2


class RuntimeObjects:
    def __init__(self, client: Client, reachable: Callable[[], Client], release: Callable[[], Release]) -> None:
        self.client = client
        self._reachable = reachable
        self._release = release

    def apply(self, document: Mapping[str, Any], owner: str, sweep: str, *, adopt: bool | str = False) -> str:
        """Create or update a runtime, and return its UID. Safe to repeat. adopt: As for `check`."""
        kind, namespace, name = locate(document)
        marked = _marked(document, owner, sweep)
        deadline = time.monotonic() + self.client.patience
        while True:
            found = self.client.get(kind, namespace, name)
            sent, taken_over = marked, False
            if found is not None:
                taken_over = self._is_adopted(document, found, adopt)
                if not taken_over:
                    _raise_if_foreign(found, kind, owner, sweep)
                sent = _with_version(marked, found)
            try:
                applied = self.client.apply(kind, sent, force=True)  # the plan shows external changes
                if taken_over:
                    change_managers(
                        self.client, kind, applied, lambda entries: with_sole_manager(entries, FIELD_MANAGER)
                    )
                return str(applied["metadata"]["uid"])
            except ApiError as error:
                fault = apply_error(error, kind, sent)
            if not isinstance(fault, Changed) or time.monotonic() > deadline:
                raise fault

    def check(self, document: Mapping[str, Any], owner: str, sweep: str | None, *, adopt: bool | str = False) -> str:
        """Return when a runtime was created that is taken over; empty if none is.

        Args:
            sweep: None if not known yet.
            adopt: Whether a runtime that belongs to no program is taken over, if it is equal; `EXISTING`: it has to be there.

        Raises:
            Conflict: A runtime of that name exists and belongs to another owner, or differs.
        """
        kind, namespace, name = locate(document)
        found = self.client.get(kind, namespace, name)
        if found is None and adopt == EXISTING:
            hint = "remove the runtime from the program, or leave adopt out: then an update creates it"
            raise Conflict(Problem(kind.where(namespace, name), "does not exist", hint))
        if found is None:
            return ""
        if self._is_adopted(document, found, adopt):
            return str(found["metadata"].get("creationTimestamp"))
        _raise_if_foreign(found, kind, owner, sweep)
        return ""

    def _is_adopted(self, document: Mapping[str, Any], found: Document, adopt: bool | str) -> bool:
        """Return whether a runtime belongs to no program and is taken over. Raises Conflict if it differs."""
        if not adopt or owner_labels.OWNER in section(found, "metadata", "annotations"):
            return False
        wanted = review({**document}, self._release()).stored or document
        changes = [*differing_paths(_written_part(found, wanted), _written_part(wanted))]  # values may be secret
        if changes:
            kind, namespace, name = locate(document)
            why = f"is not taken over, as the program would change it: {several(changes)}"
            hint = "write the values of the cluster into the program, or change the runtime first"
            raise Conflict(Problem(kind.where(namespace, name), why, hint))
        return True

    def edited(
        self, document: Mapping[str, Any], applied: Mapping[str, Any], owner: str, sweep: str
    ) -> list[str] | None:
        """Return the paths of what was changed externally in a runtime; None if not found.

        If a field differs, a dry run of the last apply shows what it would change, so that changes of webhooks do not count.

        Args:
            document: The runtime of the program; empty result if the live one is equal to it.
            applied: The runtime as it was last applied.
        """
        kind, namespace, name = locate(applied)
        client = self._reachable()
        found = client.get(kind, namespace, name)
        if found is None:
            return None
        _raise_if_foreign(found, kind, owner, sweep)
        if any(current_fields(each, found) == each for each in (document, applied)):
            return []
        sent = _with_version(_marked(applied, owner, sweep), found)
        try:
            planned = client.apply(kind, sent, force=True, dry_run=True)
        except ApiError:
            return list(differing_paths(applied, current_fields(applied, found)))
        return list(differing_paths(_written_part(planned), _written_part(found)))

    def find(self, kind: str, namespace: str, name: str) -> Document | None:
        """Return the runtime as the cluster has it; None if not found, or if Trainer is not installed."""
        return self.client.get(_KINDS[kind], namespace, name)

    def owner(self, found: Mapping[str, Any]) -> Owner:
        return owner_labels.owner_of(found)

    def delete(self, document: Mapping[str, Any], uid: str, owner: Owner, *, force: bool = False) -> Owner | None:
        """Delete a runtime and wait until it is gone. One that was created since, or belongs to another owner, is left alone.
        Return the current owner if it is another one; None otherwise."""
        kind, namespace, name = locate(document)

        def mine(found: Mapping[str, Any]) -> bool:
            if found["metadata"].get("uid") != uid or not owner.owns(owner_labels.owner_of(found)):
                return False
            if force:
                return True
            users = _users(self.client, kind, namespace, name)
            if users:
                verb = "has" if len(users) == 1 else "have"
                why = f"is the runtime of {join_names(users, 5)}, which {verb} not finished"
                raise Refused(Problem(kind.where(namespace, name), why, _HINT))
            return True

        left = self.client.delete_if(kind, namespace, name, mine)
        if left is None or left["metadata"].get("uid") != uid:
            return None
        if not owner.owns(owner_labels.owner_of(left)):
            return owner_labels.owner_of(left)
        deadline = time.monotonic() + GONE_SECONDS
        while True:
            found = self.client.get(kind, namespace, name)
            if found is None or found["metadata"].get("uid") != uid:
                return None
            if time.monotonic() > deadline:
                finalizers = ", ".join(found["metadata"].get("finalizers") or ["an unknown cause"])
                hint = (
                    "remove the cause; trainer.kubeflow.org/resource-in-use waits for the TrainJobs that refer to the"
                    " runtime"
                )
                raise TargetFault(
                    Problem(kind.where(namespace, name), f"is being deleted, but blocked by {finalizers}", hint)
                )
            time.sleep(_POLL)


def _with_version(document: Document, found: Document) -> Document:
    """Return the document to apply to exactly this state of an object."""
    version = {part: str(found["metadata"][part]) for part in ("uid", "resourceVersion")}
    return {**document, "metadata": {**document["metadata"], **version}}


def _written_part(found: Mapping[str, Any], wanted: Mapping[str, Any] | None = None) -> Document:
    """Return the part of a runtime that programs write; of labels and annotations only those of another one, if it is given."""
    metadata = {part: section(found, "metadata", part) for part in ("labels", "annotations")}
    if wanted is not None:
        metadata = {part: only(own, section(wanted, "metadata", part)) for part, own in metadata.items()}
    return {"metadata": metadata, "spec": found.get("spec")}


def locate(document: Mapping[str, Any]) -> tuple[kinds.Kind, str, str]:
    """Return kind, namespace (empty for a cluster-scoped runtime) and name of a runtime."""
    metadata = document["metadata"]
    kind = _KINDS[str(document["kind"])]
    namespace = ""
    if kind.namespaced:
        namespace = str(metadata.get("namespace") or "")
    return kind, namespace, str(metadata["name"])


_KINDS = {kind.kind: kind for kind in (CLUSTER_RUNTIME, TRAINING_RUNTIME)}


def _marked(document: Mapping[str, Any], owner: str, sweep: str) -> Document:
    metadata = dict(document["metadata"])
    labels = {**(metadata.get("labels") or {}), owner_labels.MANAGED_BY: FIELD_MANAGER}
    if sweep:
        labels[owner_labels.STACK] = sweep
    metadata["labels"] = labels
    metadata["annotations"] = {**(metadata.get("annotations") or {}), owner_labels.OWNER: owner}
    return {**document, "metadata": metadata}


def _raise_if_foreign(found: Document, kind: kinds.Kind, owner: str, sweep: str | None) -> None:
    metadata = found["metadata"]
    labels = metadata.get("labels") or {}
    own = (metadata.get("annotations") or {}).get(owner_labels.OWNER) == owner
    if own and (sweep is None or labels.get(owner_labels.STACK, sweep) == sweep):
        return
    if own:
        whose = f"of {NAMESAKE}"
    elif labels.get(owner_labels.MANAGED_BY) == FIELD_MANAGER:
        whose = "another program's"
    else:
        whose = "somebody's"
    where = kind.where(str(metadata.get("namespace") or ""), metadata["name"])
    hint = f'to use the existing runtime, give TrainJobs runtime="{metadata["name"]}"; else give this one another name='
    if owner_labels.OWNER not in section(metadata, "annotations"):
        hint += ", or take an equal one over with adopt=True"
    raise Conflict(Problem(where, f"exists and is {whose}", hint))


def _users(client: Client, kind: kinds.Kind, namespace: str, name: str) -> list[str]:
    """Return the unfinished TrainJobs that were created from a runtime."""

    def keep(job: Document) -> Document | None:
        ref, found = section(job, "spec", "runtimeRef"), conditions(job)
        ended = true_condition(found, "Complete") or true_condition(found, "Failed")
        mine = (ref.get("kind", "ClusterTrainingRuntime"), ref.get("name")) == (kind.kind, name)
        if ended or not mine:
            return None
        metadata: Document = job["metadata"]
        return metadata

    try:
        found, _ = client.list(TRAIN_JOB, namespace, keep=keep)
    except ApiError as error:
        if error.code in (403, 404):  # without the permission to list all namespaces, the cluster itself refuses
            return []
        raise
    return [f"TrainJob {m.get('namespace')}/{m['name']}" for m in found]
