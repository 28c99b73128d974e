"""Checks whether the schedulers that pods name are running: pods of another scheduler stay Pending without an event.

A running scheduler is recognized by its Lease (leader election), its Deployment, or the pods that it has placed. Users who may
not list all namespaces get no warning.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from pulumi_trainer.provider.jobs.submission import Objects
from pulumi_trainer.provider.kubernetes.cache.discovery import Facts
from pulumi_trainer.provider.kubernetes.client.api_resources import DEPLOYMENT, LEASE, POD
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, epoch_seconds, number, section, text
from pulumi_trainer.provider.kubernetes.values.names import dns_1123_subdomain
from pulumi_trainer.provider.kubernetes.values.wording import duration
from pulumi_trainer.provider.kubernetes.views import jobs_of

DEFAULT = "default-scheduler"
_DEPLOYMENTS = {"volcano": "volcano-scheduler", "kai-scheduler": "kai-scheduler-default"}
"""schedulerName -> name of its usual Deployment, if the two differ."""
_HINT = "is it installed and running? Without it the job's pods stay Pending, and no event shows why"


def scheduler_problems(facts: Facts, objects: Objects) -> list[Problem]:
    """Return one problem for each scheduler that certainly does not run."""
    found = dict(reversed([*_named(objects)]))
    problems: list[Problem] = []
    for name, where in found.items():
        why = _why_not(facts, name)
        if why:
            problems.append(Problem(where, why, _HINT))
    return problems


def _named(objects: Objects) -> Iterator[tuple[str, str]]:
    """Yield schedulers and the fields that name them, except the default scheduler, without which a cluster runs nothing at
    all."""
    for key, document in objects.items():
        if document.get("kind") != "JobSet":
            continue
        for job in jobs_of(document):
            name = text(job.pod.spec.get("schedulerName"))
            if name != DEFAULT and not [*dns_1123_subdomain(name)]:
                yield name, f"{key}.{job.pod.at}.schedulerName"


def _why_not(facts: Facts, name: str) -> str:
    """Return why a scheduler does not run; empty if it does, or if that is unknown."""
    deployments = facts.everywhere(DEPLOYMENT, f"metadata.name={_DEPLOYMENTS.get(name, name)}")
    if any(number(section(d, "status").get("availableReplicas")) for d in deployments or ()):
        return ""
    leases = facts.everywhere(LEASE, f"metadata.name={name}")
    if leases:
        last, patience = max(map(_beat, leases))
        silent = time.time() - last
        if silent > patience:
            return f"scheduler {name} last renewed its Lease {duration(silent)} ago"
        return ""
    if deployments:
        about = section(deployments[0], "metadata")
        where = f"{text(about.get('namespace'))}/{text(about.get('name'))}"
        return f"scheduler {name} does not run: its Deployment {where} has no available pod"
    placed = facts.everywhere(POD, f"spec.schedulerName={name},spec.nodeName!=", most=1)
    if deployments == leases == placed == []:
        return f"scheduler {name} not found: it has no Deployment and no Lease, and has placed no pod"
    return ""


def _beat(lease: Document) -> tuple[float, float]:
    """Return when a Lease was last renewed, and for how long it is valid (three times its duration, because clocks differ)."""
    spec: Mapping[str, Any] = section(lease, "spec")
    return epoch_seconds(spec.get("renewTime")), 3.0 * number(spec.get("leaseDurationSeconds"), 15)
