"""One kind of objects as a cluster has them: a list, then a watch that goes on from where it broke.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from pulumi_trainer.provider.kube.client.client import ApiError, Client
from pulumi_trainer.provider.kube.client.kinds import Kind
from pulumi_trainer.provider.kube.errors import TrainerError

Document = dict[str, Any]

SECONDS = 50, 60
"""How long one request watches: a connection that has died without a word is noticed after it."""
FIRST, LONGEST = 0.1, 8.0
"""Seconds between two attempts: they double."""
ABSENT = 60.0
"""Seconds after which a kind that is not there, or may not be read, is asked for again."""
PATIENCE = 5.0
"""Seconds that one list goes on trying; after that it is told that there is no answer."""
EXPIRED = 410


class Stream:
    """All objects of a kind in a namespace that labels and fields choose.

    keep: what is remembered of an object (None: nothing). listed: is given all of them, each time they are listed. changed: is
    given the type of an event (ADDED, MODIFIED, DELETED) and its object. faulty: is called when the state of `fault` changes.
    fault: why there is no news, and since when (`time.monotonic`); None: all is well. absent: this cluster does not have the
    kind, or we may not read it.
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
        self._client = client.within(PATIENCE)
        self.kind = kind
        self._namespace, self._labels, self._fields = namespace, labels, fields
        self._keep, self._listed, self._changed, self._faulty = keep, listed, changed, faulty
        self.fault: tuple[TrainerError, float] | None = None
        self.absent = False
        self.synced = threading.Event()
        self._version = ""

    def run(self, stop: threading.Event) -> None:
        """Until it is told to stop; never raises a fault of the cluster."""
        pause = FIRST
        while not stop.is_set():
            begun = time.monotonic()
            try:
                if not self._version:
                    self._list()
                self._watch(stop)
                # Something in between may end each watch at once.
                pause = FIRST if time.monotonic() - begun > 1 else min(pause * 2, LONGEST)
                wait = 0.0 if pause == FIRST else pause
            except TrainerError as fault:
                pause = FIRST if self.fault is None else pause
                wait = self._broken(fault) or pause
                pause = min(pause * 2, LONGEST)
            stop.wait(wait * random.uniform(0.5, 1.0))  # noqa: S311 (no secret)

    def _list(self) -> None:
        found, version = self._client.list(
            self.kind, self._namespace, labels=self._labels, fields=self._fields, keep=self._keep
        )
        self._listed(found)
        self._version = version
        self._well()

    def _watch(self, stop: threading.Event) -> None:
        """One request, until the server ends it."""
        seconds = random.randint(*SECONDS)  # noqa: S311 (no secret)
        for event in self._client.watch(
            self.kind, self._namespace, self._version, labels=self._labels, fields=self._fields, seconds=seconds
        ):
            document = event["object"]
            if event["type"] != "BOOKMARK" and (kept := self._keep(document)) is not None:
                self._changed(event["type"], kept)
            self._version = str(document["metadata"].get("resourceVersion") or self._version)
            self._well()
            if stop.is_set():
                return
        self._well()

    def _well(self) -> None:
        if self.fault is not None:
            self.fault, self.absent = None, False
            self._faulty(self)
        self.synced.set()

    def _broken(self, fault: TrainerError) -> float:
        """Notes it; the seconds to wait where that is not a matter of back-off."""
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
