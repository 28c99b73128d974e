"""How much one call checks and renders: a short TrainJob makes many replicated jobs of a runtime."""

from __future__ import annotations

from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import section

MOST_REPLICATED_JOBS = 50_000
"""Replicated jobs that one call checks or renders; 10,000 TrainJobs of a runtime with initializers have 30,000."""
_SIZE_OF_ONE = 4096
"""Characters of a document that take about as long as a replicated job."""


class RenderLimit:
    """Counts the replicated jobs that a call checks and renders, in all its offline clusters."""

    def __init__(self) -> None:
        self._replicated_jobs = 0

    def add(self, where: str, runtime: dict[str, Any], train_job: dict[str, Any] | None = None) -> None:
        """Count the replicated jobs of a runtime, for a TrainJob if it is rendered; a long document counts as several."""
        jobs = section(runtime, "spec", "template", "spec").get("replicatedJobs")
        count = 1
        if isinstance(jobs, list):
            count = len(jobs)
        self._replicated_jobs += max(1, count, _size(runtime)) + _size(train_job or {})
        if self._replicated_jobs > MOST_REPLICATED_JOBS:
            why = f"all documents up to here have more than {MOST_REPLICATED_JOBS:,} replicated jobs to render"
            hint = "check the files in several calls; a document of more than 4 KiB counts as several replicated jobs"
            raise Invalid(Problem(where, why, hint))


def _size(document: dict[str, Any]) -> int:
    return len(repr(document)) // _SIZE_OF_ONE
