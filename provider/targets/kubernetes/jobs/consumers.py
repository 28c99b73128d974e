"""Finds the jobs of a cluster that use a runtime, by the labels of their records."""

from __future__ import annotations

from typing import Any

from pulumi_trainer.provider.jobs.submission import Consumer
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.targets.kubernetes.jobs.record import SELECTOR, Record
from pulumi_trainer.provider.trainer.labels import RUNTIME


def list_consumers(client: Client, runtime: str, namespace: str) -> tuple[list[Consumer], str]:
    """Return the jobs that use a runtime, and a note if only the jobs of `namespace` could be listed (empty: of all
    namespaces)."""
    selector = f"{SELECTOR},{RUNTIME}={runtime}"
    try:
        return _list_consumers(client, "", selector), ""
    except ApiError as error:
        if error.code != 403:
            raise
    note = f"only jobs of namespace {namespace} could be seen; listing ConfigMaps of all namespaces is not allowed"
    return _list_consumers(client, namespace, selector), note


def _list_consumers(client: Client, namespace: str, selector: str) -> list[Consumer]:
    def keep(document: dict[str, Any]) -> Any:
        record = Record.of(document)
        if record.deleting:
            return None
        return Consumer(
            f"{record.namespace}/{record.name}", record.runtime, record.release, record.channel, record.follow,
            record.stack, record.terminal, record.channel_of,
        )  # fmt: skip

    found: list[Any] = client.list(CONFIG_MAP, namespace, labels=selector, keep=keep)[0]
    return sorted(found, key=lambda c: str(c.where))
