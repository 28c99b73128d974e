"""A platform and its first job in one program: namespace, queues and job come up with a plain `preview` and a plain `up`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import NAMESPACE
from pulumi_trainer.provider.trainer.kinds import JOBSET

from tests.engine.conftest import pulumi_home  # noqa: F401 (a fixture)

from .jobs import until
from .queue_lab import Lab, lab_on
from .test_up import head

TEAM = """
import pulumi_kubernetes as kubernetes

cluster = kubernetes.Provider("cluster", kubeconfig=pulumi.Config("trainer").require("kubeconfig"))
team = kubernetes.core.v1.Namespace(
    "team", metadata={"name": "NAME"}, opts=pulumi.ResourceOptions(provider=cluster)
)
after = pulumi.ResourceOptions(depends_on=[team])
"""
FLAVOR = """
flavor = trainer.ResourceFlavor("NAME", node_labels={"sim/pool": "gpu"})
quota = trainer.ResourceGroup(flavors=[trainer.FlavorQuotas(flavor=flavor, resources={"cpu": 8})])
gpus = trainer.ClusterQueue("NAME", resource_groups=[quota])
"""
OWN = FLAVOR + 'queue = trainer.LocalQueue("NAME", cluster_queue=gpus, namespace="NAME", opts=after)\n'
SET = """
queues = trainer.GpuQueues(
    "NAME", teams={"NAME": 8}, resource="cpu", gpus={"NAME": {"sim/pool": "gpu"}}, priorities=(), opts=after
)
queue = queues.queues["NAME"]
"""
OTHERS = (
    FLAVOR
    + """
local = kubernetes.apiextensions.CustomResource(
    "NAME", api_version="kueue.x-k8s.io/v1beta2", kind="LocalQueue", metadata={"name": "NAME", "namespace": "NAME"},
    spec={"clusterQueue": gpus.name}, opts=pulumi.ResourceOptions(provider=cluster, depends_on=[team, gpus]),
)
queue, after = "NAME", pulumi.ResourceOptions(depends_on=[local])
"""
)
KINDS = """
kinds = {"NAME-a": {"sim/pool": "nowhere"}, "NAME-b": {"sim/pool": "gpu"}}
queues = trainer.GpuQueues(
    "NAME", teams={"NAME": dict.fromkeys(kinds, 8)}, resource="cpu", gpus=kinds, priorities=(), opts=after
)
queue = queues.queues["NAME"]
"""
JOB = """
trainer.TrainJob(
    "job", name="job", runtime=simulated, queue=queue, wait_for="running", timeouts={"running": 90},
    trainer=trainer.Trainer(command=["true"], num_nodes=2, resources_per_node={"cpu": 1}), OPTS
)
"""
PROGRAMS = {
    "a LocalQueue that depends on the namespace": OWN + JOB.replace("OPTS", ""),
    "teams whose queues depend on the namespace": SET + JOB.replace("OPTS", ""),
    "the second kind of a team's GPUs": KINDS + JOB.replace("OPTS", 'flavors=["NAME-b"]'),
    "a LocalQueue of pulumi-kubernetes": OTHERS + JOB.replace("OPTS", "opts=after"),
}


@pytest.fixture
def lab(tmp_path: Path, pulumi_home: Path, cluster: Any) -> Iterator[Lab]:  # noqa: F811
    made = lab_on(tmp_path / "lab", pulumi_home, cluster.kubeconfig, "")
    made.namespace = made.prefix
    made.config("trainer:target", "kubernetes")
    made.config("trainer:namespace", made.prefix)
    yield made
    made.destroy()


@pytest.mark.parametrize("program", PROGRAMS)
def test_namespace_queues_and_job_of_one_program(lab: Lab, program: str) -> None:
    assert lab.root_client.get(NAMESPACE, "", lab.prefix) is None
    lab.program((TEAM + PROGRAMS[program]).replace("NAME", lab.prefix), head())
    planned = lab.preview().out
    assert "does not exist" not in planned, planned
    lab.plain_up()
    assert until(lambda: lab.root_client.get(JOBSET, lab.prefix, "job")) and lab.running() == {"job"}
    lab.preview("--expect-no-changes")


def test_a_namespace_that_nothing_creates_is_missed_still(lab: Lab) -> None:
    lab.program(
        (TEAM.replace('"name": "NAME"', '"name": "NAME-b"') + OWN + JOB.replace("OPTS", "")).replace(
            "NAME", lab.prefix
        ),
        head(),
    )
    refused = lab.preview(ok=False).out
    assert f"namespace {lab.prefix} does not exist" in refused
