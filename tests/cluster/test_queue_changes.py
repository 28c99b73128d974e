"""Changes that Kueue never takes, and queues that leave a program: what a plan says, and what comes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from pulumi_trainer.provider.api.kinds import JOBSET
from pulumi_trainer.provider.kube.client.kinds import NODE
from pulumi_trainer.provider.kueue.resources import WORKLOAD

from tools.cluster import simulation

from .jobs import until
from .queue_lab import Lab
from .test_queues import lab, pulumi_home  # noqa: F401 (fixtures)

TEAMS = """
queues = trainer.GpuQueues(
    "{name}", teams={{"{name}": trainer.Team(gpus=1, namespace="{namespace}")}}, resource="cpu", priorities=(),
    others={{"memory": "1Gi"}}, gpus={{"{name}": {{"pool": "{name}"}}}}, topology={levels},
)
pulumi.export("quotas", queues.quotas)
"""


@pytest.fixture
def node(lab: Lab) -> Iterator[str]:  # noqa: F811
    """With the labels of the test's flavor and of its topologies."""
    made = simulation.node(0, 0, {})
    made["metadata"] |= {"name": lab.prefix, "labels": {
        "kubernetes.io/hostname": lab.prefix, "pool": lab.prefix, "example.com/rack": "r1",
    }}  # fmt: skip
    lab.root_client.create(NODE, made)
    yield lab.prefix
    lab.root_client.delete(NODE, "", lab.prefix, propagation="Background")


def test_other_levels_are_another_topology_and_jobs_go_on(lab: Lab, node: str) -> None:  # noqa: F811
    lab.program(lab.text(TEAMS, levels=["example.com/rack", "kubernetes.io/hostname"]))
    lab.up()
    (before,) = lab.objects("Topology")
    (flavor,) = lab.objects("ResourceFlavor")
    lab.job("first")
    until(lambda: lab.running() == {"first"})
    lab.program(lab.text(TEAMS, levels=["kubernetes.io/hostname"]))
    told = lab.preview().out
    assert re.search(r"\+-.*Topology.*replace", told) and re.search(r"\+-.*ResourceFlavor.*replace", told), told
    lab.up()
    (after,) = lab.objects("Topology")
    assert after != before and lab.objects("Topology")[after]["spec"]["levels"] == [
        {"nodeLabel": "kubernetes.io/hostname"}
    ]
    (moved,) = lab.objects("ResourceFlavor").values()
    assert moved["metadata"]["name"] != flavor and moved["spec"]["topologyName"] == after
    queue = lab.objects("ClusterQueue")[f"{lab.prefix}-{lab.prefix}"]
    assert queue["spec"]["resourceGroups"][0]["flavors"][0]["name"] == moved["metadata"]["name"]
    assert lab.running() == {"first"} and [row["flavor"] for row in lab.outputs()["quotas"]] == [lab.prefix]
    lab.preview("--expect-no-changes", "--refresh")
    lab.root_client.delete(JOBSET, lab.namespace, "first", propagation="Background")
    lab.destroy()
    assert lab.count() == {}


FROZEN = """
topology = trainer.Topology("{name}-t", levels={levels}, name="{name}-t{suffix}")
flavor = trainer.ResourceFlavor("{name}-f", node_labels={{"type": "{label}"}}, topology=topology, name="{name}-f{suffix}")
check = trainer.AdmissionCheck("{name}-c", controller_name="example.com/{label}", name="{name}-c{suffix}",
    parameters=trainer.CheckParameters(api_group="example.com", kind="Licence", name="site"))
trainer.ClusterQueue("{name}", admission_checks=[check], resource_groups=[trainer.ResourceGroup(flavors=[
    trainer.FlavorQuotas(flavor=flavor, resources={{"cpu": 4}})])])
"""


def test_what_never_changes_is_said_in_the_plan_and_another_name_mends_it(lab: Lab) -> None:  # noqa: F811
    hosts, zones = ["kubernetes.io/hostname"], ["example.com/zone", "kubernetes.io/hostname"]
    lab.program(lab.text(FROZEN, levels=hosts, label="a", suffix=""))
    lab.up()
    lab.program(lab.text(FROZEN, levels=zones, label="b", suffix=""))
    for told in (lab.preview(ok=False).out, lab.up(ok=False).out):
        assert f'Topology("{lab.prefix}-t") (__main__.py:' in told and "immutable" not in told
        for said in (
            "levels: never changes, and is kubernetes.io/hostname in the cluster; give this Topology another name (name=)",
            'node_labels: never changes while the flavor has a topology, and is {"type": "a"} in the cluster',
            "controller_name: never changes, and is example.com/a in the cluster; give this AdmissionCheck another name",
        ):
            assert said in told, told
    assert "generation': 1" in str(lab.objects("Topology"))
    lab.program(lab.text(FROZEN, levels=zones, label="b", suffix="2"))
    lab.up()
    assert [*lab.objects("Topology")] == [f"{lab.prefix}-t2"] and [*lab.objects("ResourceFlavor")] == [
        f"{lab.prefix}-f2"
    ]
    assert [*lab.objects("AdmissionCheck")] == [f"{lab.prefix}-c2"]
    lab.preview("--expect-no-changes", "--refresh")
    lab.destroy()
    assert lab.count() == {}


LEAVING = """
trainer.ResourceFlavor("{name}-f")
def team(name, **more):
    quotas = trainer.FlavorQuotas(flavor="{name}-f", resources={{"cpu": 1}})
    trainer.ClusterQueue(name, resource_groups=[trainer.ResourceGroup(flavors=[quotas])], **more)
for name, more in {teams}.items():
    team(name, **more)
for name, queue in {queues}.items():
    trainer.LocalQueue(name, cluster_queue=queue)
"""


def test_a_plan_says_what_work_a_queue_has_that_leaves(lab: Lab) -> None:  # noqa: F811
    name = lab.prefix
    said = f"(JobSet {lab.namespace}/first) holds 1 cpu since 20"

    def told(teams: dict[str, dict[str, str]], queues: dict[str, str], *, ok: bool = True) -> str:
        lab.program(lab.text(LEAVING, teams=teams, queues=queues))
        return " ".join(lab.preview(ok=ok).out.split())

    lab.up_of(lab.text(LEAVING, teams={name: {}, f"{name}-idle": {}}, queues={name: name, f"{name}-other": name}))
    lab.job("first")
    lab.job("second")
    until(lambda: lab.running() == {"first"} and len(lab.root_client.list(WORKLOAD, lab.namespace)[0]) == 2)
    assert f"{name}: is no longer" not in told({name: {}}, {name: name})

    before = lab.objects("ClusterQueue")[name]["metadata"]["generation"]
    found = told({}, {}, ok=False)
    assert "is no longer in the program" in lab.up(ok=False).out and lab.count()["ClusterQueue"] == 2, (
        "nothing is touched"
    )
    assert lab.objects("ClusterQueue")[name]["metadata"]["generation"] == before
    assert f"ClusterQueue {name}: is no longer in the program, and its deletion is refused while it has work: " in found
    assert (
        said in found
        and f"(JobSet {lab.namespace}/second) waits" in found
        and f"LocalQueue {lab.namespace}/" not in found
    )
    found = told({name: {}}, {})
    assert f"LocalQueue {lab.namespace}/{name}: is no longer in the program, and goes while it has work" in found
    assert said in found and f"{name}-other: is" not in found

    lab.up_of(lab.text(LEAVING, teams={name: {"on_delete": "drain"}}, queues={name: name}))
    found = told({}, {})
    assert (
        f"ClusterQueue {name}: is no longer in the program, and is drained before it is deleted: " in found
        and said in found
    )
    lab.up()
    assert lab.count() == {"ResourceFlavor": 1}
    until(lambda: lab.running() == set())
