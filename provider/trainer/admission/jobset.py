"""Whether a JobSet would be taken, and could run: what its CRD, its webhook and then the Job API would refuse.

Called for every rendered JobSet at preview, and by the Local target's callers before anything starts. Rules: `jobset_rules`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, section
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.views import Pod, jobs_of
from pulumi_trainer.provider.trainer.admission.defaults import stored_jobset
from pulumi_trainer.provider.trainer.admission.document_checks import document_problems
from pulumi_trainer.provider.trainer.admission.jobset_rules import broken_rules, later_rules
from pulumi_trainer.provider.trainer.admission.pod_names import pod_name_problems
from pulumi_trainer.provider.trainer.admission.server import review
from pulumi_trainer.provider.trainer.pipeline.release import Release


def review_jobset(jobset: Document, release: Release) -> list[Problem]:
    """Return what is wrong with a JobSet, defaulted or not; unknown leaves count as right.

    Field paths are the JobSet's own: `spec.replicatedJobs[0].name`. While values by themselves are wrong, the rest is not
    looked at. The rules are in the server's words.
    """
    name = section(jobset, "metadata").get("name")
    found = [] if isinstance(name, (str, Unknown)) else [Problem("metadata.name", "must be a string")]
    verdict = review(jobset, release)
    found += document_problems(jobset, release, verdict)
    for job in jobs_of(jobset):
        found += _check_pod(job.pod)
    if found:
        return found
    broken = broken_rules(verdict.stored or stored_jobset(jobset, release), release.go)
    found += dict.fromkeys(rule.author_problem for rule in broken)
    if verdict.stage != "validating-webhook":
        found += verdict.problems()
    return found


def pod_refusals(jobset: Document, release: Release) -> list[Problem]:
    """Return what the API server will have against the JobSet's Jobs, and names and paths of its Pods, when they are made."""
    pods = [job.pod for job in jobs_of(jobset)]
    return [
        *chain.from_iterable(pod_name_problems(pod.spec, pod.at) for pod in pods),
        *(rule.author_problem for rule in later_rules(jobset, release.go)),
    ]


def _check_pod(pod: Pod) -> Iterator[Problem]:
    yield from pod_name_problems(pod.spec, pod.at)
    if not pod.spec.get("containers"):
        yield Problem(f"{pod.at}.containers", "must have a container")
    for container in pod.all_containers:
        if not container.document.get("image"):
            yield Problem(f"{container.at}.image", "is required")
