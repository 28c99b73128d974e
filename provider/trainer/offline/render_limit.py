"""How much one call checks and renders: a short TrainJob makes many replicated jobs of a runtime."""

from __future__ import annotations

from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import section

MOST_REPLICATED_JOBS = 50_000
"""Replicated jobs that one call checks or renders; 10,000 TrainJobs of a runtime with initializers have 30,000."""
_SIZE_OF_ONE = 4096
"""Characters of a document that take about as long as a replicated job."""
_OBJECTS = 50
"""Nodes, queues and other objects of the documents with which a job is compared in about the time of a replicated job."""
_EARLIER = 10
"""Jobs before a job for which the start of a job is computed in about the time of a replicated job."""


class RenderLimit:
    """Counts the replicated jobs that a call checks and renders, in all its offline clusters."""

    def __init__(self) -> None:
        self._replicated_jobs = 0

    def add(
        self,
        where: str,
        runtime: dict[str, Any],
        train_job: dict[str, Any] | None = None,
        *,
        objects: int = 0,
        earlier: int = 0,
    ) -> None:
        """Count the replicated jobs of a runtime; a long document counts as several.

        Args:
            objects: How many nodes, queues and other objects the job is compared with.
            earlier: How many jobs before it are to start.
        """
        jobs = section(runtime, "spec", "template", "spec").get("replicatedJobs")
        count = 1
        if isinstance(jobs, list):
            count = len(jobs)
        self._replicated_jobs += max(1, count, _size(runtime)) + _size(train_job or {})
        self._replicated_jobs += objects // _OBJECTS + earlier // _EARLIER
        if self._replicated_jobs > MOST_REPLICATED_JOBS:
            why = f"all documents up to here have more than {MOST_REPLICATED_JOBS:,} replicated jobs to render"
            hint = "check the files in several calls; a document of more than 4 KiB counts as several replicated jobs, and so"
            hint += " does a TrainJob beside many nodes and other objects, or after many others if there are Workloads"
            raise Invalid(Problem(where, why, hint))


def _size(document: dict[str, Any]) -> int:
    return len(repr(document)) // _SIZE_OF_ONE
