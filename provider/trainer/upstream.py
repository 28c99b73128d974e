"""The products that this package builds on: the version that it follows, the one that tests run against, what others change.

Whoever follows another version changes this table; `docs/support.md` and `pulumi-trainer version` show it, and
`tests/unit/test_upstream.py` compares it with what the code is generated from and what the tests start.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Upstream:
    """A product.

    Args:
        followed: The version whose rules this package applies; of Pulumi the newest whose private parts it knows.
        differences: What is known to differ in another version, each beginning with that version.
    """

    name: str
    needed: str
    followed: str
    tested: str
    least: str = ""
    differences: tuple[str, ...] = ()


UPSTREAM = {
    product.name: product
    for product in (
        Upstream("Kubernetes", "a cluster", "1.36.3", "1.36.3", "", ("1.37: not compared",)),
        Upstream(
            "JobSet", "each job in a cluster", "0.12.0", "0.12.0", "0.9",
            ("0.9: without onJobFailureMessagePatterns, which `checkpoint=` needs",),
        ),
        Upstream(
            "Kubeflow Trainer", '`mode="trainer"`', "2.3.0, and commit 8c0f5059b", "2.3.0", "2.2",
            (
                "8c0f5059b (2026-08-21, 58 commits after 2.3.0; `trainer:version`): CRDs refuse a negative numNodes and"
                " numProcPerNode below 1; a failed TrainJob stays so after the TTL of its JobSet (PT138)",
                "2.4: names of replicated jobs have at most 20 characters; the image of an MPI job is set on launcher and nodes;"
                " the launcher has the variables of Open MPI 5, as in mode jobset",
            ),
        ),
        Upstream(
            "Kueue", "`queue=`, `GpuQueues`", "0.19.2", "0.19.2", "0.15",
            (
                "0.20: kueue.x-k8s.io/v1beta1 is not served; documents of this package are v1beta2",
                "0.20: levels of a Topology whose last one is kubernetes.io/hostname, and nodeLabels and tolerations of a flavor"
                " with a topology, may change",
                "0.20: the WorkloadPriorityClass `default` counts for jobs without one (gate WorkloadPriorityClassDefaulting)",
                "0.20: with the gate TASNodeFeasibilityForAllLevels taints of nodes count in each topology; before, only in those"
                " whose last level is kubernetes.io/hostname (PT302)",
                "0.20: tolerations of a flavor are added to those of a TrainJob's runtime; before, they replace them (PT303)",
                "0.20: QuotaReserved may have a reason for each cause (gate UnadmittedWorkloadsExplicitStatus); `status` reads"
                " the messages. Not compared",
                "0.20: TrainJobs need Trainer 2.3",
            ),
        ),
        Upstream("scheduler-plugins", "`CoschedulingPolicy`", "0.34.7", "0.34.7"),
        Upstream("Volcano", "`VolcanoPolicy`", "1.13.0", "1.14.1"),
        Upstream("KAI", "`KAIPolicy`", "0.13.1", "0.13.1"),
        Upstream(
            "Pulumi", "each program", "3.272.0", "3.246.0 and 3.272.0", "3.246",
            (
                "3.260: its host of dynamic providers answers with tracebacks in place of errors, which this package prevents",
                "newer: not compared; an error names a private part of its SDK that is gone",
            ),
        ),
    )
}  # fmt: skip
"""Name -> product."""
