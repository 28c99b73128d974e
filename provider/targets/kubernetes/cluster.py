"""A cluster as all calls of its target see it: the client, what it remembers of jobs, and whether it answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pulumi_trainer.provider.kubernetes.cache.discovery import PLAN_SECONDS, Facts
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.errors import TargetFault
from pulumi_trainer.provider.targets.kubernetes.observe.overview import Overview
from pulumi_trainer.provider.targets.kubernetes.preflight.trainer_release import nearest_release
from pulumi_trainer.provider.trainer.admission.cel_rules import PREDICATES
from pulumi_trainer.provider.trainer.kinds import JOBSET, TRAIN_JOB
from pulumi_trainer.provider.trainer.pipeline import Release
from pulumi_trainer.provider.trainer.releases import known_release

Document = dict[str, Any]


class Cluster:
    def __init__(
        self, client: Client, *, cluster: Callable[[], str], mode: str = "jobset", namespace: str = "default"
    ) -> None:
        self.client = client
        self.mode = mode
        self.namespace = namespace
        self._cluster = cluster
        self._overviews: dict[str, Overview] = {}
        self._lock = threading.Lock()

    @property
    def kind(self) -> kinds.Kind:
        return TRAIN_JOB if self.mode == "trainer" else JOBSET

    def identity(self) -> dict[str, str]:
        """Return the identity of the cluster: the UID of its namespace kube-system."""
        return {"cluster": self._cluster()}

    def reachable_client(self, namespace: str = "") -> Client:
        """Return a client with a short timeout, for requests of a program."""
        overview = self.overview(namespace or self.namespace)
        overview.record("")
        if overview.fault is not None and not isinstance(overview.fault, ApiError):
            raise overview.fault
        return self.client.within(PLAN_SECONDS)

    def trainer_version(self) -> str:
        """Return the version of the known release of Trainer that is nearest to the cluster's; empty if it has no TrainJobs."""
        served = Facts.of(self.reachable_client(), PLAN_SECONDS).schema(TRAIN_JOB, PREDICATES)
        return "" if served is None else nearest_release(served).version

    def trainer_release(self) -> Release:
        """Return the release of Trainer of the cluster's TrainJobs; the default one in mode jobset, or if it cannot be read."""
        if self.mode != "trainer":
            return known_release("")
        try:
            return known_release(self.trainer_version())
        except TargetFault:
            return known_release("")

    def overview(self, namespace: str) -> Overview:
        """Return the cached status of the jobs of a namespace."""
        kind = self.kind
        with self._lock:
            return self._overviews.setdefault(namespace, Overview(self.client, namespace, kind))
