"""Changes which field managers an object has: an apply removes only fields of its own manager."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.values.accessors import Document, text

_SETTLING = 10.0
"""Seconds of attempts while controllers write the same object."""


def change_managers(
    client: Client, kind: Kind, live: Document | None, changed_entries: Callable[[Sequence[Document]], Sequence[Any]]
) -> None:
    """Replace the managedFields of an object. changed_entries: Returns the new ones, of those that it has."""
    deadline = time.monotonic() + _SETTLING
    while live is not None:
        about = live["metadata"]
        place = text(about.get("namespace")), about["name"]
        given = changed_entries(about.get("managedFields") or [])
        try:
            changed = {"managedFields": given, "resourceVersion": about.get("resourceVersion")}
            client.patch(kind, *place, {"metadata": changed})
            return
        except ApiError as error:  # a controller writes the status
            if error.code != 409 or time.monotonic() > deadline:
                raise
        live = client.get(kind, *place)
