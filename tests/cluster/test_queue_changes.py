"""Changes that Kueue never takes, and queues that leave a program: what a plan says, and what comes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import NODE
from pulumi_trainer.provider.kueue.api_resources import WORKLOAD
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.kueue.occupancy import occupancy
from pulumi_trainer.provider.targets.kubernetes.queues.queue_snapshot import overview
from pulumi_trainer.provider.trainer.kinds import JOBSET

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
    until(lambda: used_of(lab, queue["metadata"]["name"]) == [(moved["metadata"]["name"], "1", "1")])
    lab.preview("--expect-no-changes", "--refresh")
    lab.root_client.delete(JOBSET, lab.namespace, "first", propagation="Background")
    lab.destroy()
    assert lab.count() == {}


def used_of(lab: Lab, queue: str) -> list[tuple[str, str, str]]:  # noqa: F811
    """Flavor, usage and quota of the cpu of a ClusterQueue, as `queues` counts them."""
    (found,) = [q for q in occupancy(*overview(lab.root_client)).cluster_queues if q.name == queue]
    shares = [share.to_dict() for share in found.shares if share.resource == "cpu"]
    return [(share["flavor"], share["used"], share["nominal"]) for share in shares]


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
        assert f'Topology("{lab.prefix}-t") (__main__.py:' in told and "field is immutable" not in told
        for said in (
            "levels: is immutable before Kueue 0.20, and is kubernetes.io/hostname in the cluster. Hint: give this"
            " Topology another name (name=)",
            'node_labels: is immutable while the flavor has a topology before Kueue 0.20, and is {"type": "a"} in the cluster',
            "controller_name: is immutable, and is example.com/a in the cluster. Hint: give this AdmissionCheck another name",
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


NO_QUEUES = """
trainer.RuntimeChannel("stable", release="torch-distributed@2.3.0")
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
    assert f"{name}: was removed" not in told({name: {}}, {name: name})

    before = lab.objects("ClusterQueue")[name]["metadata"]["generation"]
    found = told({}, {}, ok=False)
    assert "was removed from the program" in lab.up(ok=False).out and lab.count()["ClusterQueue"] == 2, (
        "nothing is touched"
    )
    assert lab.objects("ClusterQueue")[name]["metadata"]["generation"] == before
    assert f"ClusterQueue {name}: was removed from the program, but is not deleted while it has jobs: " in found
    assert (
        said in found
        and f"(JobSet {lab.namespace}/second) waits" in found
        and f"LocalQueue {lab.namespace}/" not in found
    )
    lab.program(lab.text(NO_QUEUES))
    undeclared = " ".join(lab.preview(ok=False).out.split())
    assert f"ClusterQueue {name}: was removed from the program, but is not deleted while it has jobs: " in undeclared
    assert said in undeclared
    found = told({name: {}}, {})
    assert (
        f"LocalQueue {lab.namespace}/{name}: was removed from the program, and is deleted although it has jobs" in found
    )
    assert said in found and f"{name}-other: is" not in found

    lab.up_of(lab.text(LEAVING, teams={name: {"on_delete": "drain"}}, queues={name: name}))
    found = told({}, {})
    assert (
        f"ClusterQueue {name}: was removed from the program, and is drained before its deletion: " in found
        and said in found
    )
    lab.program(lab.text(NO_QUEUES))
    undeclared = " ".join(lab.preview().out.split())
    assert f"ClusterQueue {name}: was removed from the program, and is drained before its deletion: " in undeclared
    lab.up()
    assert lab.count() == {}
    until(lambda: lab.running() == set())
    assert "queue" not in lab.preview("--expect-no-changes").out.lower()


SHARED = """
trainer.ResourceFlavor("{name}-f")
def quotas(cpu):
    return [trainer.ResourceGroup(flavors=[trainer.FlavorQuotas(flavor="{name}-f", resources={{"cpu": cpu}})])]
reclaim = trainer.Preemption(reclaim_within_cohort="Any")
trainer.Cohort("{name}")
trainer.ClusterQueue("{name}", resource_groups=quotas({cpu}), cohort="{name}")
trainer.ClusterQueue("{name}-other", resource_groups=quotas({other}), cohort="{name}", preemption=reclaim)
trainer.LocalQueue("{name}", cluster_queue="{name}")
"""


def test_a_plan_says_whom_less_quota_affects(lab: Lab) -> None:  # noqa: F811
    name = lab.prefix
    lab.up_of(lab.text(SHARED, cpu=2, other=1))
    for job in ("first", "second"):
        lab.job(job)
    until(lambda: lab.running() == {"first", "second"})
    lab.job("large", cpu="3")
    until(lambda: len(lab.root_client.list(WORKLOAD, lab.namespace)[0]) == 3)
    lab.preview("--expect-no-changes")

    lab.program(lab.text(SHARED, cpu=1, other=1))
    told = " ".join(lab.preview().out.split())
    over = re.search(
        rf"PT215: ClusterQueue {name}: spec.resourceGroups: jobs use 2 cpu in flavor {name}-f, .*?PT215", told
    )
    assert over and "1 more than the new quota of 1" in over[0], told
    assert len(re.findall(rf"{lab.namespace}/(?:first|second)", over[0])) == 1, "the one that Kueue preempts first"
    assert f"unless Kueue preempts them for jobs of {name}-other, which take back their quota" in over[0]
    assert f"waiting jobs would never fit: {lab.namespace}/large (couldn't assign flavors" in told
    lab.up()
    assert lab.running() == {"first", "second"}, "they run until they end"
    lab.preview("--expect-no-changes")
    for job in ("first", "second", "large"):
        lab.root_client.delete(JOBSET, lab.namespace, job, propagation="Background")
    lab.destroy()


WITH_JOB = """
job = trainer.TrainJob(
    "{name}-asks", runtime=trainer.ClusterTrainingRuntime("torch-distributed", release="2.3.0"), queue="{name}",
    wait_for="created",
    trainer=trainer.Trainer(image="example.com/train:1", command=["train"], resources_per_node={{"cpu": {asked}}}),
)
"""


def test_a_plan_says_what_kueue_would_do_with_a_new_job(lab: Lab) -> None:  # noqa: F811
    name = lab.prefix
    lab.config("trainer:target", "kubernetes")
    lab.up_of(lab.text(SHARED, cpu=2, other=1))

    def line(asked: int) -> str:
        lab.program(lab.text(SHARED + WITH_JOB, cpu=2, other=1, asked=asked))
        return " ".join(lab.preview().out.split())

    assert f": starts now: 2 cpu in {name}-f of {name} " in line(2)
    borrows = f"1 cpu in {name}-f of it borrowed from {name}-other (they may take it back)"
    assert f"starts now: 3 cpu in {name}-f of {name}, {borrows}" in line(3)
    lab.job("first")
    until(lambda: lab.running() == {"first"})
    waits = f"waits behind {lab.namespace}/first (1 cpu in {name}-f): 1 cpu in {name}-f more must become free"
    assert waits in line(3)
    assert ": starts now: 2 cpu" in line(2)
    lab.up()
    told = " ".join(lab.preview("--expect-no-changes").out.split())
    assert "starts now" not in told, "a job that has started is not asked about"
    lab.root_client.delete(JOBSET, lab.namespace, "first", propagation="Background")
    lab.destroy()


def test_a_plan_says_behind_whom_a_job_waits(lab: Lab) -> None:  # noqa: F811
    name = lab.prefix
    lab.config("trainer:target", "kubernetes")
    lab.up_of(lab.text(SHARED, cpu=1, other=0))
    lab.job("first")
    until(lambda: lab.running() == {"first"})
    lab.up_of(lab.text(SHARED + WITH_JOB, cpu=1, other=0, asked=1))
    told = " ".join(lab.preview("--expect-no-changes").out.split())
    behind = f"behind {lab.namespace}/first (1 cpu in {name}-f): 1 cpu in {name}-f more must become free"
    assert f": waits {behind}; when it starts is open: {lab.namespace}/first has no time limit" in told
    lab.root_client.delete(JOBSET, lab.namespace, "first", propagation="Background")
    until(lambda: any(job.startswith(f"{name}-asks") for job in lab.running()))
    assert "waits" not in lab.preview("--expect-no-changes").out
    lab.destroy()


TWO_TEAMS = """
queues = trainer.GpuQueues(
    "{name}", resource="cpu", priorities=(), others={{"memory": "1Gi"}}, gpus={{"{name}": None}}, teams={{
        "{name}{suffix}": trainer.Team(gpus=1, namespace="{namespace}", borrowing=False, {given}),
        "{name}-b": trainer.Team(gpus=1, namespace="{namespace}"),
    }},
)
"""


def test_a_team_is_held_and_renamed_while_it_has_jobs(lab: Lab) -> None:  # noqa: F811
    """Running jobs go on, waiting ones keep their place, and a job moves to the new name while it waits."""
    name = lab.prefix

    def program(suffix: str = "", given: str = "") -> str:
        return lab.text(TWO_TEAMS, suffix=suffix, given=given)

    def queues_of(job: str) -> str:
        (found,) = [w for w in lab.root_client.list(WORKLOAD, lab.namespace)[0] if job in w["metadata"]["name"]]
        return str(found["spec"]["queueName"])

    lab.up_of(program())
    cluster_queue = lab.objects("ClusterQueue")[f"{name}-{name}"]["metadata"]["uid"]
    lab.job("first")
    until(lambda: lab.running() == {"first"})
    lab.job("second")
    until(lambda: len(lab.root_client.list(WORKLOAD, lab.namespace)[0]) == 2)

    renamed = f'renamed_from="{name}"'
    lab.program(program("-new", renamed))
    assert "to delete" not in lab.preview().out
    lab.up()
    assert {*lab.objects("LocalQueue")} >= {name, f"{name}-new"} and lab.running() == {"first"}
    assert lab.objects("ClusterQueue")[f"{name}-{name}"]["metadata"]["uid"] == cluster_queue
    assert lab.objects("LocalQueue")[name]["metadata"]["annotations"]["pulumi-trainer.dev/renamed-to"] == f"{name}-new"
    lab.preview("--expect-no-changes", "--refresh")

    second = {"apiVersion": JOBSET.api_version, "kind": "JobSet", "metadata": {
        "name": "second", "namespace": lab.namespace, "labels": {QUEUE: f"{name}-new"},
    }}  # fmt: skip
    lab.root_client.apply(JOBSET, second, force=True)
    until(lambda: queues_of("second") == f"{name}-new")
    lab.program(program("-new", f"{renamed}, hold=True"))
    lab.up()
    lab.root_client.delete(JOBSET, lab.namespace, "first", propagation="Background")
    held = {"status": "False", "reason": "Stopped"}
    until(lambda: held.items() <= active(lab, f"{name}-new").items())
    until(lambda: lab.running() == set())
    lab.job("guest", queue=f"{name}-b", cpu="2")
    until(lambda: lab.running() == {"guest"})  # it borrows the quota of the team that is held
    lab.root_client.delete(JOBSET, lab.namespace, "guest", propagation="Background")

    lab.program(program("-new", renamed))
    lab.up()
    until(lambda: lab.running() == {"second"})

    lab.program(program("-new"))
    refused = lab.preview(ok=False).out
    assert f"ClusterQueue {name}-{name}: was removed from the program, but is not deleted while it has jobs" in refused
    lab.root_client.delete(JOBSET, lab.namespace, "second", propagation="Background")
    until(lambda: not lab.root_client.list(WORKLOAD, lab.namespace)[0])
    lab.up()
    assert name not in lab.objects("LocalQueue") and f"{name}-{name}-new" in lab.objects("ClusterQueue")
    lab.destroy()
    assert lab.count() == {}


def active(lab: Lab, queue: str) -> dict[str, str]:  # noqa: F811
    conditions = (lab.objects("LocalQueue")[queue].get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == "Active"), {})
