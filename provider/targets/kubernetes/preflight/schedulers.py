"""Whether the schedulers that pods name are running: a pod of one that is not stays Pending without a word.

A scheduler shows itself by its Lease (leader election), as a Deployment, and by the pods that it has placed. Who may not look
through all namespaces, as the least role may not, is told nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from pulumi_trainer.provider.api.submission import Objects
from pulumi_trainer.provider.kube.cache.discovery import Facts
from pulumi_trainer.provider.kube.client.kinds import DEPLOYMENT, LEASE, POD
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.values.accessors import (
    Document,
    number,
    rows,
    seconds,
    section,
    text,
)
from pulumi_trainer.provider.kube.values.names import dns_1123_subdomain
from pulumi_trainer.provider.kube.values.wording import duration

DEFAULT = "default-scheduler"
_DEPLOYMENTS = {"volcano": "volcano-scheduler", "kai-scheduler": "kai-scheduler-default"}
"""schedulerName -> its Deployment as usually installed, where that is called otherwise."""
_MEND = "is it installed and running? Its pods would stay Pending, and no event would say why"


def idle(facts: Facts, objects: Objects) -> list[Problem]:
    """One problem for each scheduler that shows itself, and does not run."""
    found = dict(reversed([*_named(objects)]))
    return [Problem(where, why, _MEND) for name, where in found.items() if (why := _why_not(facts, name))]


def _named(objects: Objects) -> Iterator[tuple[str, str]]:
    """Scheduler, and the field that names it. Not the default one: a cluster without it runs nothing at all."""
    for key, document in objects.items():
        if document.get("kind") != "JobSet":
            continue
        for i, job in enumerate(rows(section(document, "spec").get("replicatedJobs"))):
            name = text(section(job, "template", "spec", "template", "spec").get("schedulerName"))
            if name != DEFAULT and not [*dns_1123_subdomain(name)]:
                yield name, f"{key}.spec.replicatedJobs[{i}].template.spec.template.spec.schedulerName"


def _why_not(facts: Facts, name: str) -> str:
    """Why it does not run; empty: it does, or nobody knows."""
    deployments = facts.everywhere(DEPLOYMENT, f"metadata.name={_DEPLOYMENTS.get(name, name)}")
    if any(number(section(d, "status").get("availableReplicas")) for d in deployments or ()):
        return ""
    leases = facts.everywhere(LEASE, f"metadata.name={name}")
    if leases:
        last, patience = max(map(_beat, leases))
        silent = time.time() - last
        return (
            f"scheduler {name} has shown itself {duration(silent)} ago for the last time" if silent > patience else ""
        )
    if deployments:
        about = section(deployments[0], "metadata")
        where = f"{text(about.get('namespace'))}/{text(about.get('name'))}"
        return f"scheduler {name} does not run: its Deployment {where} has no pod that is available"
    placed = facts.everywhere(POD, f"spec.schedulerName={name},spec.nodeName!=", most=1)
    if deployments == leases == placed == []:
        return f"nothing shows a scheduler {name}: no Deployment, no Lease, and no pod that it has placed"
    return ""


def _beat(lease: Document) -> tuple[float, float]:
    """When it was last renewed, and for how long that counts (three times over: clocks differ)."""
    spec: Mapping[str, Any] = section(lease, "spec")
    return seconds(spec.get("renewTime")), 3.0 * number(spec.get("leaseDurationSeconds"), 15)
