"""Counts what a job has used in the monthly sums of its namespace, before the record of the job is deleted."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.client.transport import FIELD_MANAGER
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault, TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import Document, only, section
from pulumi_trainer.provider.lifecycle.usage_sums import Ran, sums_patch
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs.record import SUMS, SUMS_NAME, Record
from pulumi_trainer.provider.targets.kubernetes.observe.job_usage import read_runs_of

_TRIES = 5
"""How often sums are written while others write them."""


class UsageLedger:
    """The monthly sums of the namespaces of a cluster. Jobs that are deleted at the same time are written together."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._added: dict[str, dict[str, list[Ran]]] = defaultdict(dict)
        self._faults: dict[str, str] = {}

    def book(self, namespace: str, names: Sequence[str], mine: Callable[[Record], bool]) -> str:
        """Count what jobs have used so far whose record is accepted. Return why it could not be counted; empty if it was."""
        found: dict[str, list[Ran]] = {}
        try:
            for name in names:
                found |= self._runs_of(namespace, name, mine)
        except TrainerError as error:
            return _note(error)
        if not found:
            return ""
        with self._lock:
            self._added[namespace] |= found
        with self._writing:
            with self._lock:
                added = self._added.pop(namespace, {})
            if added:
                fault = self._write(namespace, added)
                self._faults |= dict.fromkeys(added, fault)
        return next(filter(None, (self._faults.pop(uid, "") for uid in found)), "")

    def _runs_of(self, namespace: str, name: str, mine: Callable[[Record], bool]) -> dict[str, list[Ran]]:
        """Return the UID of the record of a job -> the times for which it has run; empty if there are none."""
        document, runs = read_runs_of(self._client, namespace, name)
        if document is None or not mine(Record.of(document)) or not runs:
            return {}
        return {str(document["metadata"]["uid"]): runs}

    def _write(self, namespace: str, added: Mapping[str, Sequence[Ran]]) -> str:
        fault = ""
        for _ in range(_TRIES):
            try:
                self._write_once(namespace, added)
                return ""
            except ApiError as error:
                if error.code != 409:
                    return _note(error)
                fault = _note(error)
            except TrainerError as error:
                return _note(error)
        return fault

    def _write_once(self, namespace: str, added: Mapping[str, Sequence[Ran]]) -> None:
        """Raises ApiError 409 if somebody else has created or changed the sums meanwhile."""
        found = self._client.get(CONFIG_MAP, namespace, SUMS_NAME)
        if found is None:
            self._client.create(CONFIG_MAP, _new_sums(namespace, added))
            return
        if section(found, "metadata", "labels").get(owner_labels.RECORD) != SUMS:
            raise TargetFault(
                Problem("", f"a ConfigMap {namespace}/{SUMS_NAME} exists and was not created by this program")
            )
        meta = only(found["metadata"], ("uid", "resourceVersion"))
        data = sums_patch(namespace, section(found, "data"), added, time.time())
        self._client.patch(CONFIG_MAP, namespace, SUMS_NAME, {"metadata": meta, "data": data})


def _new_sums(namespace: str, added: Mapping[str, Sequence[Ran]]) -> Document:
    labels = {owner_labels.MANAGED_BY: FIELD_MANAGER, owner_labels.RECORD: SUMS}
    metadata = {"name": SUMS_NAME, "namespace": namespace, "labels": labels}
    kind = {"apiVersion": CONFIG_MAP.api_version, "kind": CONFIG_MAP.kind}
    return {**kind, "metadata": metadata, "data": sums_patch(namespace, {}, added, time.time())}


def _note(error: TrainerError) -> str:
    return f"what it has used is not in the sums of its namespace, as `pulumi-trainer usage` shows them: {error}"
