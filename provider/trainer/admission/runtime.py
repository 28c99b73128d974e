"""Trainer's validating webhook for a ClusterTrainingRuntime or a TrainingRuntime.

Sources: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/webhooks/trainingruntime_webhook.go and
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/webhooks/clustertrainingruntime_webhook.go
"""

from __future__ import annotations

from collections.abc import Iterator

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, listed, section
from pulumi_trainer.provider.kubernetes.values.typed import Findings, GoTypes
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, any_unknown
from pulumi_trainer.provider.kubernetes.views import replicated_jobs
from pulumi_trainer.provider.trainer.labels import ancestor_of

CLUSTER_WIDE = "ClusterTrainingRuntime"
NAMESPACED = "TrainingRuntime"

_CONTAINERS = {
    "trainer": "node",
    "dataset-initializer": "dataset-initializer",
    "model-initializer": "model-initializer",
}
"""By the step that a replicated job is: the container that it must have."""
_POLICY = "https://trainer.kubeflow.org/en/latest/operator-guides/runtime.html#runtime-deprecation-policy"


def validate(runtime: Document, go: GoTypes, *, update: bool) -> tuple[list[Problem], list[str]]:
    """Return problems and warnings. Updates of TrainingRuntimes are not checked, and a label can exempt a runtime."""
    cluster_wide = runtime["kind"] == CLUSTER_WIDE
    labels = section(runtime, "metadata", "labels")
    disabled = labels.get("trainer.kubeflow.org/webhook-validation", "")
    if disabled == "disabled":
        return [], []
    warnings: list[str] = []
    if cluster_wide and not update:
        warnings = _warnings(runtime)
    if isinstance(disabled, Unknown) or "spec" not in runtime:
        return [], warnings
    findings = Findings()
    go.as_struct("TrainingRuntimeSpec", runtime["spec"], (None, "spec"), findings, applied=True)
    if findings.problems:
        return findings.problems, []
    if update and not cluster_wide:
        return [], []
    return [*_job_problems(runtime)], warnings


def deprecated(runtime: Document) -> str:
    """Return the server's text about a deprecated runtime, which follows its name; empty for other runtimes."""
    if section(runtime, "metadata", "labels").get("trainer.kubeflow.org/support") != "deprecated":
        return ""
    return f"is deprecated and will be removed in a future release of Kubeflow Trainer. See runtime deprecation policy: {_POLICY}"


def _warnings(runtime: Document) -> list[str]:
    words = deprecated(runtime)
    if not words:
        return []
    return [f'ClusterTrainingRuntime "{section(runtime, "metadata").get("name")}" {words}']


def _job_problems(runtime: Document) -> Iterator[Problem]:
    for job in replicated_jobs(section(runtime, "spec", "template", "spec"), "spec.template.spec"):
        step = ancestor_of(job)
        if not isinstance(step, str) or step not in _CONTAINERS:
            continue
        name = _CONTAINERS[step]
        replicas = job.document["replicas"]
        if replicas != 1 and not isinstance(replicas, Unknown):
            yield Problem(f"{job.at}.replicas", "always must be 1", "set the number of nodes with numNodes")
        containers = job.pod.spec.get("containers")
        names = [each.get("name") if isinstance(each, dict) else each for each in listed(containers)]
        if name not in names and not any_unknown((containers, *names)):
            why = f"must contain the required container for the ancestor: {step}"
            hint = f"name one of them {name}; init containers do not count"
            yield Problem(f"{job.pod.at}.containers", why, hint)
