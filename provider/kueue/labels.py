"""Labels and annotations of Kueue.

Source: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/constants/constants.go
"""

from __future__ import annotations

QUEUE = "kueue.x-k8s.io/queue-name"
"""On a job: the LocalQueue of its namespace that admits it."""

PRIORITY = "kueue.x-k8s.io/priority-class"
"""On a job: its WorkloadPriorityClass."""

MAX_EXECUTION = "kueue.x-k8s.io/max-exec-time-seconds"
"""On a job: seconds after which Kueue takes its quota away, counted from its admission."""

REQUIRED, PREFERRED, UNCONSTRAINED = (
    f"kueue.x-k8s.io/podset-{how}-topology" for how in ("required", "preferred", "unconstrained")
)
"""On pod templates: all pods must, or should, run in one domain of a level; or anywhere in the topology."""

SLICE_LEVEL, SLICE_SIZE = "kueue.x-k8s.io/podset-slice-required-topology", "kueue.x-k8s.io/podset-slice-size"
"""On pod templates: each so many pods share a domain of a level."""

SLICES = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
"""On pod templates: the same for several levels, as JSON."""

TOGETHER = "kueue.x-k8s.io/podset-group-name"
"""On the pod templates of two replicated jobs: their pods share the domain."""

DOMAIN = "kueue.x-k8s.io/"
_OTHERS = (
    "elastic-job", "job-min-parallelism", "job-completions-equal-parallelism", "podset", "managed", "workload", "topology",
    "prebuilt-workload-name", "pod-suspending-parent", "pod-index-offset", "retriable-in-group", "role-hash",
    "safe-to-forcefully-delete", "workload-allowed-resource-flavors", "admission-gated-by", "wait-for-pods-ready",
)  # fmt: skip
KEYS = {
    QUEUE, PRIORITY, MAX_EXECUTION, REQUIRED, PREFERRED, UNCONSTRAINED, SLICE_LEVEL, SLICE_SIZE, SLICES, TOGETHER,
    *(f"{DOMAIN}{name}" for name in _OTHERS),
}  # fmt: skip
"""Labels and annotations that Kueue 0.19, or 0.20, reads or writes at jobs and Pods, except those of `FAMILIES`."""
FAMILIES = tuple(f"{DOMAIN}{name}-" for name in ("pod-group", "multikueue", "workload-slice"))
"""Beginnings of others."""
