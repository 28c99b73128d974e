"""What Trainer's webhook has against a ClusterTrainingRuntime or a TrainingRuntime.

Source:
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/webhooks/trainingruntime_webhook.go and
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/webhooks/clustertrainingruntime_webhook.go
"""

from __future__ import annotations

from collections.abc import Iterator

from pulumi_trainer.provider.api.labels import ANCESTOR
from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.values.accessors import Document, listed, section
from pulumi_trainer.provider.kube.values.typed import Findings, typed
from pulumi_trainer.provider.kube.values.unknown import Unknown

CLUSTER_WIDE = "ClusterTrainingRuntime"
NAMESPACED = "TrainingRuntime"

_CONTAINERS = {
    "trainer": "node",
    "dataset-initializer": "dataset-initializer",
    "model-initializer": "model-initializer",
}
"""By the step that a replicated job is: the container that it must have."""
_POLICY = "https://trainer.kubeflow.org/en/latest/operator-guides/runtime.html#runtime-deprecation-policy"


def validated(runtime: Document, *, update: bool) -> tuple[list[Problem], list[str]]:
    """Problems and warnings. Runtimes can be exempted by a label; updates of namespaced ones are not looked at."""
    cluster_wide = runtime["kind"] == CLUSTER_WIDE
    labels = section(runtime, "metadata", "labels")
    disabled = labels.get("trainer.kubeflow.org/webhook-validation", "")
    if disabled == "disabled" or isinstance(disabled, Unknown) or "spec" not in runtime:
        return [], _warnings(runtime) if cluster_wide and not update and disabled != "disabled" else []
    findings = Findings()
    typed("TrainingRuntimeSpec", runtime["spec"], (None, "spec"), findings, applied=True)
    if findings.problems:
        return findings.problems, []
    if update and not cluster_wide:
        return [], []
    return [*_job_problems(runtime)], _warnings(runtime) if cluster_wide and not update else []


def deprecated(runtime: Document) -> str:
    """What the server says of a deprecated runtime, after its name; empty for all others."""
    if section(runtime, "metadata", "labels").get("trainer.kubeflow.org/support") != "deprecated":
        return ""
    return f"is deprecated and will be removed in a future release of Kubeflow Trainer. See runtime deprecation policy: {_POLICY}"


def _warnings(runtime: Document) -> list[str]:
    words = deprecated(runtime)
    return [f'ClusterTrainingRuntime "{section(runtime, "metadata").get("name")}" {words}'] if words else []


def _job_problems(runtime: Document) -> Iterator[Problem]:
    for place, job in enumerate(listed(section(runtime, "spec", "template", "spec").get("replicatedJobs"))):
        step = section(job, "template", "metadata", "labels").get(ANCESTOR)
        name = _CONTAINERS.get(step) if isinstance(step, str) else None
        if name is None:
            continue
        at = f"spec.template.spec.replicatedJobs[{place}]"
        replicas = job["replicas"]
        if replicas != 1 and not isinstance(replicas, Unknown):
            yield Problem(f"{at}.replicas", "always must be 1", "more nodes: numNodes")
        containers = section(job, "template", "spec", "template", "spec").get("containers")
        names = [each.get("name") if isinstance(each, dict) else each for each in listed(containers)]
        if name not in names and not any(isinstance(each, Unknown) for each in (containers, *names)):
            why = f"must contain the required container for the ancestor: {step}"
            mend = f"name one of them {name}; init containers do not count"
            yield Problem(f"{at}.template.spec.template.spec.containers", why, mend)
