"""A platform and its first job in one program: namespace, queues and job come up with a plain `preview` and a plain `up`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import NAMESPACE, POD, Kind
from pulumi_trainer.provider.trainer.kinds import JOBSET

from tests.engine.conftest import pulumi_home  # noqa: F401 (a fixture)

from .jobs import until
from .queue_lab import Lab, lab_on
from .test_up import head, second

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
DECLARED = """
team = trainer.TeamNamespace(
    "NAME", share=trainer.Team(gpus=8), groups=["NAME-team"], quota={"pods": 20}, pod_security="privileged"
)
queues = trainer.GpuQueues("NAME", teams=[team], resource="cpu", gpus={"NAME": {"sim/pool": "gpu"}}, priorities=())
queue = queues.queues["NAME"]
"""
JOB = """
trainer.TrainJob(
    "job", name="job", runtime=simulated, queue=queue, wait_for="running", timeouts={"running": 90},
    trainer=trainer.Trainer(command=["true"], num_nodes=2, resources_per_node={"cpu": 1}), OPTS
)
"""
PROGRAMS = {
    "a LocalQueue that depends on the namespace": TEAM + OWN + JOB.replace("OPTS", ""),
    "teams whose queues depend on the namespace": TEAM + SET + JOB.replace("OPTS", ""),
    "the second kind of a team's GPUs": TEAM + KINDS + JOB.replace("OPTS", 'flavors=["NAME-b"]'),
    "a LocalQueue of pulumi-kubernetes": TEAM + OTHERS + JOB.replace("OPTS", "opts=after"),
    "a team in one declaration": DECLARED + JOB.replace("OPTS", ""),
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
    lab.program(PROGRAMS[program].replace("NAME", lab.prefix), head())
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


def test_a_team_that_leaves_keeps_its_namespace_while_another_stays_out_of_it(lab: Lab) -> None:
    """Its members may run jobs in its namespace alone; a team with work is not taken out."""
    program = (DECLARED + JOB.replace("OPTS", "")).replace("NAME", lab.prefix)
    lab.program(program, head())
    lab.plain_up()
    until(lambda: lab.running() == {"job"})
    assert may_create_jobs(lab, lab.prefix) and not may_create_jobs(lab, "default")
    lab.job("other")  # somebody else's, which the program cannot end
    another = DECLARED.replace("NAME", f"{lab.prefix}b")
    lab.program(another, head())
    refused = lab.preview(ok=False).out
    assert "was removed from the program, but is not deleted while it has jobs" in refused, refused
    assert "other) holds 1 cpu" in refused and "/job)" not in refused, "its own job leaves with it"
    lab.root_client.delete(JOBSET, lab.namespace, "other", propagation="Background")
    until(lambda: lab.root_client.get(JOBSET, lab.namespace, "other") is None)
    lab.program(DECLARED.replace("NAME", lab.prefix), head())
    lab.plain_up()
    lab.program("", head())
    lab.plain_up()
    assert lab.root_client.get(NAMESPACE, "", lab.prefix) is not None
    assert not may_create_jobs(lab, lab.prefix)


def test_a_team_hardens_the_jobs_in_its_namespace(lab: Lab) -> None:
    """Those of its program, and those of others, by the live namespace; a job, or its stack, may say otherwise."""
    declared = DECLARED.replace('pod_security="privileged"', 'hardening="restricted"').replace("NAME", lab.prefix)
    job = JOB.replace("NAME", lab.prefix)
    lab.program(declared + job.replace("OPTS", ""), head())
    planned = " ".join(lab.preview().out.split())
    notice = f'New runs in namespace {lab.prefix} are hardened: TeamNamespace("{lab.prefix}") (__main__.py:'
    assert notice in planned and 'has hardening="restricted"' in planned, planned
    lab.plain_up()
    assert runs_hardened(lab, "job")
    lab.preview("--expect-no-changes")

    second(lab)
    other = job.replace('"job", name="job"', '"other", name="other"').replace("queue=queue", f'queue="{lab.prefix}"')
    lab.program(other.replace("OPTS", ""), head())
    planned = " ".join(lab.preview().out.split())
    assert f"New runs in namespace {lab.prefix} are hardened: its annotation pulumi-trainer.dev/hardening" in planned
    lab.plain_up()
    assert runs_hardened(lab, "other")
    lab.program(other.replace("OPTS", 'run="2", interrupt="allow", hardening="none"'), head())
    refused = " ".join(lab.preview(ok=False).out.split())
    assert "violates PodSecurity" in refused and "are hardened" not in refused
    lab.destroy()
    lab.stack = "test"


def runs_hardened(lab: Lab, name: str) -> bool:
    pods = [pod for pod in lab.root_client.list(POD, lab.prefix)[0] if pod["metadata"]["name"].startswith(f"{name}-")]
    users = {(pod["spec"].get("securityContext") or {}).get("runAsUser") for pod in pods}
    assert len(pods) == 2
    return users == {1000}


def may_create_jobs(lab: Lab, namespace: str) -> bool:
    asked = {"namespace": namespace, "verb": "create", "group": "jobset.x-k8s.io", "resource": "jobsets"}
    review = {"user": "somebody", "groups": [f"{lab.prefix}-team"], "resourceAttributes": asked}
    kind = Kind("authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", False)
    about = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": review}
    return bool(lab.root_client.post(kind, about)["status"]["allowed"])
