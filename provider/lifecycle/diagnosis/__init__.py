"""Diagnoses a job on a cluster: what it is doing and why, from its documents alone.

`job_view` lists what is read, `phase` decides, and each other module covers one kind of fault.
"""

from pulumi_trainer.provider.lifecycle.diagnosis.job_view import KEPT, JobView, keep
from pulumi_trainer.provider.lifecycle.diagnosis.phase import best_finding, diagnose, explain

__all__ = ["KEPT", "JobView", "best_finding", "diagnose", "explain", "keep"]
