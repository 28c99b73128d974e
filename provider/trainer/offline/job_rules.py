"""Judges the TrainJobs of an offline cluster by the rules of a platform team."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from pulumi_trainer.provider.jobs.nodes import nodes_of
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kubernetes.values.documents import Document
from pulumi_trainer.provider.trainer.offline.cluster import Cluster, Result
from pulumi_trainer.provider.trainer.offline.verdicts import Verdicts
from pulumi_trainer.provider.trainer.pipeline.modes import queued_object
from pulumi_trainer.provider.trainer.policy.rules import JobRules, find_beyond_team, find_broken
from pulumi_trainer.provider.trainer.policy.summary import summarize

_FIELDS = {
    "gpus": "spec.trainer.resourcesPerNode",
    "queue": "metadata.labels",
    "runtime": "spec.runtimeRef",
    "checkpoints": "spec.trainer.env",
}


def judge_by_rules(
    judged: Iterable[tuple[Document, Result]], rules: JobRules, cluster: Cluster, verdicts: Verdicts
) -> Iterator[tuple[Document, Result]]:
    """Yield each document with its result; an admitted TrainJob that breaks a rule is refused, or gets a warning."""
    if rules.channels:
        why = "channels are not checked: a TrainJob does not name the channel of its runtime"
        verdicts.notes.append(Problem("policy", why, "plans check them"))
    gpus = dict[tuple[str, str], int]()
    for document, result in judged:
        if result.kind == "TrainJob" and result.admitted:
            found = [*_find_problems(replace(rules, channels=()), document.content, result, cluster, gpus)]
            if found and rules.action == "deny":
                result.refuse("policy", found)
                verdicts.refused.append(result)
            else:
                result.found += tuple(found)
        yield document, result


def _find_problems(
    rules: JobRules, train_job: dict[str, Any], result: Result, cluster: Cluster, gpus: dict[tuple[str, str], int]
) -> Iterator[Problem]:
    objects = result.objects or cluster.render_elsewhere(train_job)
    jobset = next((each for each in objects if each["kind"] == "JobSet"), None)
    if jobset is None:
        yield Problem("spec", "nothing is built of it, so no rule can be checked")
        return
    queued = queued_object(train_job, jobset, cluster.mode)
    reference = section(train_job, "spec", "runtimeRef")
    nodes = nodes_of(section(train_job, "spec", "trainer"), None)
    job = summarize(jobset, queued, nodes, {"name": reference.get("name", "")}, cluster.known_objects())
    for broken in find_broken(rules, job):
        yield Problem(_FIELDS.get(broken.where, "spec"), f"{broken.why} ({broken.rule})", broken.hint)
    gpus[result.namespace, result.name] = job.get("gpus", 0)
    together = sum(count for (namespace, _), count in gpus.items() if namespace == result.namespace)
    for why in find_beyond_team(rules, {result.namespace: together}).values():
        yield Problem(_FIELDS["gpus"], f"{why} (teamGpus)", "fewer GPUs")
