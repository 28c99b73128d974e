"""Labels of Kubeflow Trainer, of Kueue and of ours that several layers read.

Source: https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/constants/constants.go,
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/constants/constants.go
"""

from __future__ import annotations

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
"""On a Job template: which section of a TrainJob it takes (trainer, dataset-initializer, model-initializer)."""

FRAMEWORK = "trainer.kubeflow.org/framework"
"""On a runtime: its framework."""

QUEUE = "kueue.x-k8s.io/queue-name"
"""On a job: the LocalQueue of its namespace that admits it."""

PRIORITY = "kueue.x-k8s.io/priority-class"
"""On a job: its WorkloadPriorityClass."""

RELEASE = "pulumi-trainer.dev/release"
"""Label and annotation of a runtime of a catalogue, and label of the jobs that were made from it: its release."""

MADE_BY = "pulumi-trainer.dev/made-by"
"""Annotation of an object of Kueue's: ORGANIZATION/PROJECT/STACK of the stack that it belongs to."""

ON_DELETE = "pulumi-trainer.dev/on-delete"
"""Annotation of an object of Kueue's: what becomes of it when it leaves its program: "drain", "retain"; none: it is deleted, a
ClusterQueue only without work."""

RECORD = "pulumi-trainer.dev/record"
"""Label of the ConfigMap that is a job's record; its value is "true". Annotation of a job's other objects: the record's uid,
which stays where somebody removes the record alone."""

RUNTIME = "pulumi-trainer.dev/runtime"
"""Label of a job: the name of its runtime."""

MAX_EXECUTION = "kueue.x-k8s.io/max-exec-time-seconds"
"""On a job: seconds after which Kueue takes its quota away, counted from its admission."""

REQUIRED, PREFERRED, UNCONSTRAINED = (
    f"kueue.x-k8s.io/podset-{how}-topology" for how in ("required", "preferred", "unconstrained")
)
"""On pod templates: one domain of a level must, or should, hold all its pods; any place in the topology will do."""

SLICE_LEVEL, SLICE_SIZE = "kueue.x-k8s.io/podset-slice-required-topology", "kueue.x-k8s.io/podset-slice-size"
"""On pod templates: each so many pods share a domain of a level."""

SLICES = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
"""On pod templates: the same for several levels, as JSON."""

TOGETHER = "kueue.x-k8s.io/podset-group-name"
"""On the pod templates of two replicated jobs: their pods share the domain."""
