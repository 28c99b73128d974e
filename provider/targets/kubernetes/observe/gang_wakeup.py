"""Makes the scheduler try pending gangs again after nodes were added.

The coscheduling plugin tries a gang again when its pods or its PodGroup change, and for new nodes only after some minutes
(https://github.com/kubernetes-sigs/scheduler-plugins/blob/v0.34.7/pkg/coscheduling/coscheduling.go, EventsToRegister). A changed
annotation of the PodGroup is such a change; nothing else reads the annotation.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from pulumi_trainer.provider.kubernetes.client.api_resources import NODE
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, number, section
from pulumi_trainer.provider.trainer.kinds import POD_GROUP

WOKEN = "pulumi-trainer.dev/woken"
"""Annotation of a PodGroup: when it was last annotated."""
LOOK = 5.0
"""Seconds between two counts of the nodes while a gang is pending."""
AGAIN = 15.0
"""Seconds between two annotations after nodes were added: the GPUs of a new node are not usable at once."""
SETTLES = 300.0
"""Seconds after which a new node is usable, or never; also the retry interval of the scheduler itself."""
OLD = 30.0
"""Seconds after which a pending gang is annotated in any case: it may wait for nodes that were added before the first count, or
for deleted pods, which the scheduler does not watch either. Kueue starts a job as soon as another one is being deleted."""


class Waker:
    """Annotates the pending gangs of one namespace. It sends no request while no gang is pending, and none after a rejection."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client.within(LOOK), namespace
        self._refused = False
        self._touched: dict[str, float] = {}
        self._nodes: int | None = None
        self._next = self._until = self._touch = 0.0

    def wake(self, gangs: Mapping[str, float]) -> None:
        """Annotate the gangs that may be schedulable by now. gangs: Pending PodGroups, and when their first pod was created
        (seconds since the epoch)."""
        now = time.monotonic()
        if not gangs:
            self._nodes = None
        if not gangs or self._refused or now < self._next:
            return
        self._next = now + LOOK
        try:
            self._woken(gangs, now)
        except ApiError as error:
            self._refused = error.code == 403
        except TrainerError:
            return  # the watches report a cluster that does not answer

    def _woken(self, gangs: Mapping[str, float], now: float) -> None:
        last = {name: max(since, self._touched.get(name, 0.0)) for name, since in gangs.items()}
        old = {name for name, then in last.items() if time.time() - then > OLD}
        for name in old:
            self._wake(name)
        nodes = self._count()
        if self._nodes is not None and nodes > self._nodes:
            self._until, self._touch = now + SETTLES, now
        self._nodes = nodes
        if self._touch <= now < self._until:
            self._touch = now + AGAIN
            for name in gangs.keys() - old:
                self._wake(name)

    def _count(self) -> int:
        """Return the number of nodes, from a list of one node and the count of the remaining ones."""
        answer = self._client.read(NODE.path(), {"limit": "1"})
        return len(mappings(answer.get("items"))) + number(section(answer, "metadata").get("remainingItemCount"))

    def _wake(self, name: str) -> None:
        self._touched[name] = time.time()
        try:
            change = {"metadata": {"annotations": {WOKEN: str(int(time.time()))}}}
            self._client.patch(POD_GROUP, self._namespace, name, change)
        except ApiError as error:
            if error.code != 404:  # the job was deleted
                raise
