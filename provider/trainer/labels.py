"""Labels and annotations of Kubeflow Trainer and of this package.

Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/constants/constants.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulumi_trainer.provider.kubernetes.values.accessors import items, section
from pulumi_trainer.provider.kubernetes.views import ReplicatedJob, jobs_of, replicated_jobs

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
"""On a Job template: which section of a TrainJob it takes (trainer, dataset-initializer, model-initializer)."""


def ancestor_of(job: ReplicatedJob) -> Any:
    """Return the section of a TrainJob that a replicated job takes; None if not found."""
    return job.labels.get(ANCESTOR)


NODE_OFFSET = "TRAINER_NODE_OFFSET"
"""Variable of containers that train: number of nodes in steps before this one. `provider/pod` adds the index of the Pod."""


def trainer_step(jobset: Mapping[str, Any]) -> str:
    """Return the step whose first pod is rank 0: the one labelled as the trainer, else `node`, else the last."""
    steps = jobs_of(jobset)
    trainers = [step for step in steps if ancestor_of(step) == "trainer"]
    leading = [step for step in trainers if not _follows(step)]
    nodes = [step for step in steps if step.name == "node"]
    return str((leading or trainers or nodes or steps[-1:])[0].name)


def _follows(step: ReplicatedJob) -> bool:
    """Return whether its nodes come after those of another step."""
    for container in step.pod.containers:
        for env in items(container.document, "env"):
            if env.get("name") == NODE_OFFSET:
                return True
    return False


def patched_jobs(patch: Any, at: str = "") -> list[ReplicatedJob]:
    """Return the replicated jobs that a runtimePatch of a TrainJob changes."""
    spec = section(patch, "trainingRuntimeSpec", "template", "spec")
    return replicated_jobs(spec, f"{at}.trainingRuntimeSpec.template.spec")


FRAMEWORK = "trainer.kubeflow.org/framework"
"""On a runtime: its framework."""


RELEASE = "pulumi-trainer.dev/release"
"""Label and annotation of a runtime of a catalogue, and label of the jobs that were made from it: its release."""

JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
"""Label of the Pods and other objects of a JobSet: its name."""

MADE_BY = "pulumi-trainer.dev/made-by"
"""Annotation of a queue, a PodGroup or a NetworkPolicy: ORGANIZATION/PROJECT/STACK/RANDOM of the stack that it belongs to. A mark
that was given by hand has no random part."""


def stack_of_mark(mark: str) -> str:
    """Return ORGANIZATION/PROJECT/STACK of an owner mark."""
    return "/".join(mark.split("/")[:3])


def random_of_mark(mark: str) -> str:
    """Return the random part of an owner mark; empty if it has none."""
    return "/".join(mark.split("/")[3:])


HARDENING = "pulumi-trainer.dev/hardening"
"""Annotation of a namespace: "restricted" if new runs of its jobs are hardened unless their job or stack says otherwise."""

KEPT = "pulumi-trainer.dev/kept-fields"
"""Annotation of an object with `drift="keep"`: JSON with the paths of the fields that are applied as others have changed them."""

ON_DELETE = "pulumi-trainer.dev/on-delete"
"""Annotation of an object of Kueue's: what becomes of it when it leaves its program: "drain", "retain"; none: it is deleted, a
ClusterQueue only without work."""

RECORD = "pulumi-trainer.dev/record"
"""Label of the ConfigMap that is a job's record; its value is "true". Annotation of a job's other objects: the record's uid,
which stays if a user deletes only the record."""

RUNTIME = "pulumi-trainer.dev/runtime"
"""Label of a job: the name of its runtime."""

RENAMED_TO = "pulumi-trainer.dev/renamed-to"
"""Annotation of a LocalQueue: the name of the LocalQueue that jobs of the same team name now."""

KAI_SCHEDULER = "kai-scheduler"
"""Name of the KAI scheduler in its chart."""
KAI_QUEUE = "kai.scheduler/queue"
"""Label of a JobSet and its Pods with their queue in KAI."""
