"""Reflects the objects of a kind: lists them, then watches them, and resumes the watch after faults.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import Document

SECONDS = 50, 60
"""How long one request watches: a connection that has died silently is noticed after it."""
FIRST, LONGEST = 0.1, 8.0
"""Seconds between two attempts: they double."""
ABSENT = 60.0
"""Seconds after which a kind that does not exist, or may not be read, is requested again."""
LIST_SECONDS = 5.0
"""Seconds for which a list is retried; after that the fault is reported."""
EXPIRED = 410


class Stream:
    """The objects of a kind in a namespace, by labels and fields.

    `fault` is the reason why no news arrives, and its begin (`time.monotonic`); None for no fault. `absent` is true if the
    cluster does not have the kind, or if the user may not read it.

    Args:
        keep: Returns what to keep of an object; None drops it.
        listed: Called with all objects, each time they are listed.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        namespace: str,
        *,
        keep: Callable[[Document], Document | None],
        listed: Callable[[list[Document]], None],
        changed: Callable[[str, Document], None],
        faulty: Callable[[Stream], None],
        labels: str = "",
        fields: str = "",
    ) -> None:
        self._client = client.within(LIST_SECONDS)
        self.kind = kind
        self._namespace, self._labels, self._fields = namespace, labels, fields
        self._keep, self._listed, self._changed, self._faulty = keep, listed, changed, faulty
        self.fault: tuple[TrainerError, float] | None = None
        self.absent = False
        self.synced = threading.Event()
        self._version = ""

    def run(self, stop: threading.Event) -> None:
        """List and watch until `stop` is set; never raises a fault of the cluster."""
        pause = FIRST
        while not stop.is_set():
            begun = time.monotonic()
            try:
                if not self._version:
                    self._list()
                self._watch(stop)
                # A proxy may end each watch at once.
                if time.monotonic() - begun > 1:
                    pause = FIRST
                else:
                    pause = min(pause * 2, LONGEST)
                wait = 0.0 if pause == FIRST else pause
            except TrainerError as fault:
                if self.fault is None:
                    pause = FIRST
                wait = self._broken(fault) or pause
                pause = min(pause * 2, LONGEST)
            stop.wait(wait * random.uniform(0.5, 1.0))  # noqa: S311 (no secret)

    def _list(self) -> None:
        found, version = self._client.list(
            self.kind, self._namespace, labels=self._labels, fields=self._fields, keep=self._keep
        )
        self._listed(found)
        self._version = version
        self._end_fault()

    def _watch(self, stop: threading.Event) -> None:
        """Watch with one request, until the server ends it."""
        seconds = random.randint(*SECONDS)  # noqa: S311 (no secret)
        for event in self._client.watch(
            self.kind, self._namespace, self._version, labels=self._labels, fields=self._fields, seconds=seconds
        ):
            document = event["object"]
            if event["type"] != "BOOKMARK":
                kept = self._keep(document)
                if kept is not None:
                    self._changed(event["type"], kept)
            self._version = str(document["metadata"].get("resourceVersion") or self._version)
            self._end_fault()
            if stop.is_set():
                return
        self._end_fault()

    def _end_fault(self) -> None:
        if self.fault is not None:
            self.fault, self.absent = None, False
            self._faulty(self)
        self.synced.set()

    def _broken(self, fault: TrainerError) -> float:
        """Record a fault, and return the seconds to wait; 0 for the usual back-off."""
        refused = fault if isinstance(fault, ApiError) else None
        if refused is not None and refused.code == EXPIRED:
            self._version = ""
            return FIRST
        before, absent = self.fault, refused is not None and (refused.absent or refused.code == 403)
        self.fault = fault, before[1] if before else time.monotonic()
        self.absent = absent
        if absent:
            self._version = ""
            self.synced.set()
        if before is None or str(before[0]) != str(fault):
            self._faulty(self)
        return ABSENT if absent else 0.0
