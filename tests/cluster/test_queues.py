"""Kueue's objects as resources of a program, on a real control plane with Kueue and its webhooks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiClient
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kueue.api_resources import WORKLOAD
from pulumi_trainer.provider.kueue.objects import GROUP, KINDS, NAMESPACED, NEWEST
from pulumi_trainer.provider.targets.kubernetes.preflight.rbac import queue_admin_permissions
from pulumi_trainer.provider.trainer.kinds import JOBSET
from pulumi_trainer.provider.trainer.labels import MADE_BY

from tests.engine.conftest import pulumi_home  # noqa: F401 (a fixture)

from . import least
from .conftest import USER
from .jobs import until
from .queue_cases import GOOD
from .queue_lab import HEAD, Lab, lab_on


@pytest.fixture
def lab(
    tmp_path: Path,
    pulumi_home: Path,  # noqa: F811
    cluster: Any,
    admin: ApiClient,
    namespace: str,
    user_kubeconfig: Path,
) -> Iterator[Lab]:
    """By a user with what `pulumi-trainer rbac` prints for jobs and for a platform team's queues, and no more."""
    least.grant(admin, namespace, USER, [*least.EVERYTHING, *queue_admin_permissions()])
    made = lab_on(tmp_path / "lab", pulumi_home, user_kubeconfig, namespace)
    made.root_client = open_client({"kubeconfig": str(cluster.kubeconfig)})
    yield made


SET = """
queues = trainer.GpuQueues(
    "{name}", teams={{team: trainer.Team(gpus=4, namespace="{namespace}") for team in {teams}}},
    priorities=["{name}-low", "{name}-normal", "{name}-high"], {more}
)
pulumi.export("quotas", queues.quotas)
pulumi.export("table", queues.table)
"""


def test_ten_teams_are_made_and_go_without_a_trace(lab: Lab) -> None:
    teams = [f"t{i}" for i in range(10)]
    lab.program(lab.text(SET, teams=teams))
    lab.up()
    assert lab.count() == {
        "ResourceFlavor": 1,
        "Cohort": 1,
        "ClusterQueue": 10,
        "LocalQueue": 10,
        "WorkloadPriorityClass": 3,
    }
    lab.preview("--expect-no-changes", "--refresh")
    assert lab.outputs()["quotas"][3]["team"] == "t3"
    assert lab.outputs()["table"][4].split() == ["t3", lab.prefix, "4", "all", "all", "40"]
    lab.destroy()
    assert lab.count() == {}


def test_what_another_stack_has_made_is_not_taken(lab: Lab, tmp_path: Path, user_kubeconfig: Path) -> None:
    lab.program(lab.text(SET, teams=["a"]))
    lab.up()
    before = lab.objects("WorkloadPriorityClass")
    other = lab_on(tmp_path / "other", lab.home, user_kubeconfig, lab.namespace)
    other.prefix, other.stack = lab.prefix, "second"
    assert other.run("stack", "init").code == 0
    other.config("trainer:kubeconfig", str(user_kubeconfig))
    other.program(lab.text(SET, teams=["a", "b"]))
    for refused in (other.preview(ok=False).out, other.up(ok=False).out):
        for kind in ("WorkloadPriorityClass", "Cohort", "ResourceFlavor", "ClusterQueue"):
            assert (
                f"{kind} {lab.prefix}" in refused
                and "belongs to the stack organization/lab/test. Hint: choose" in refused
            )
        assert (
            f"kubectl annotate --overwrite cohorts.kueue.x-k8s.io {lab.prefix} pulumi-trainer.dev/made-by=" in refused
        )
    other.destroy()
    assert lab.objects("WorkloadPriorityClass") == before
    lab.preview("--expect-no-changes", "--refresh")
    lab.destroy()


def test_a_namespace_that_is_not_there_is_refused_before_a_queue_moves_to_it(lab: Lab, user_kubeconfig: Path) -> None:
    queues = """
flavor = trainer.ResourceFlavor("{name}")
queue = trainer.ClusterQueue("{name}", resource_groups=[
    trainer.ResourceGroup(flavors=[trainer.FlavorQuotas(flavor=flavor, resources={{"cpu": 10}})])])
"""
    local = 'trainer.LocalQueue("{name}", cluster_queue=queue, namespace=NAMESPACE)\n'
    lab.program(lab.text(queues + local.replace("NAMESPACE", repr(lab.namespace))))
    lab.up()
    lab.program(lab.text(queues + local.replace("NAMESPACE", '"{name}-nowhere"')))
    for refused in (lab.preview(ok=False).out, lab.up(ok=False).out):
        assert f"namespace: namespace {lab.prefix}-nowhere does not exist. Hint: create it" in refused
    assert lab.objects("LocalQueue")[lab.prefix]["metadata"]["namespace"] == lab.namespace
    made = """
import pulumi_kubernetes
space = pulumi_kubernetes.core.v1.Namespace("{name}-later", metadata={{"name": "{name}-later"}},
    opts=pulumi.ResourceOptions(provider=pulumi_kubernetes.Provider("k", kubeconfig=KUBECONFIG)))
"""
    after = local.replace("NAMESPACE)", '"{name}-later", opts=pulumi.ResourceOptions(depends_on=[space]))')
    lab.program(lab.text(queues + made.replace("KUBECONFIG", repr(str(user_kubeconfig))) + after))
    lab.preview()


EVERYTHING = """
place = dict(labels={{"team_x": "nlp"}}, annotations={{"about_it": "a test"}})
topology = trainer.Topology("{name}-t", levels=["cloud/block", "cloud/rack", "kubernetes.io/hostname"], **place)
h100 = trainer.ResourceFlavor(
    "{name}-h100", node_labels={{"gpu_type": "{name}"}}, topology=topology,
    node_taints=[{{"key": "gpu", "value": "h100", "effect": "NoSchedule"}}],
    tolerations=[{{"key": "slow", "operator": "Exists", "effect": "NoExecute", "toleration_seconds": 30}},
                 {{"key": "gpu", "value": "h100"}}], **place,
)
l40 = trainer.ResourceFlavor("{name}-l40", **place)
net = trainer.ResourceFlavor("{name}-net")
provisioning = trainer.ProvisioningRequestConfig(
    "{name}-p", provisioning_class_name="queued.example.com", parameters={{"some_key": "1"}},
    managed_resources=["nvidia.com/gpu"],
    retry_strategy=trainer.RetryStrategy(backoff_limit_count=2, backoff_base_seconds=30, backoff_max_seconds=600),
    node_selector_updates={{"node_pool": "detail"}}, pod_set_merge_policy="IdenticalPodTemplates", **place,
)
worker = trainer.MultiKueueCluster("{name}-w", kubeconfig="worker", location_type="Secret", **place)
other = trainer.MultiKueueCluster("{name}-w2", cluster_profile="profile")
workers = trainer.MultiKueueConfig("{name}-c", clusters=[worker, "{name}-w2"], quota_management="Manual", **place)
trainer.AdmissionCheck("{name}-m", parameters=workers, **place)
nodes = trainer.AdmissionCheck("{name}-n", parameters=provisioning)
licence = trainer.AdmissionCheck(
    "{name}-l", controller_name="example.com/licences",
    parameters=trainer.CheckParameters(api_group="example.com", kind="Licence", name="site"),
)
def shared(flavor, **limits):
    quota = trainer.ResourceQuota(nominal_quota=2, **limits)
    return [trainer.ResourceGroup(flavors=[trainer.FlavorQuotas(flavor=flavor, resources={{"example.com/nic": quota}})])]

trainer.Cohort("{name}-all", fair_sharing=trainer.FairSharing(weight=2), **place)
cohort = trainer.Cohort(
    "{name}-r", parent="{name}-all", resource_groups=shared(net, borrowing_limit=1, lending_limit=1), **place
)
queue = trainer.ClusterQueue(
    "{name}-q",
    resource_groups=[
        trainer.ResourceGroup(
            covered_resources=["nvidia.com/gpu", "cpu"],
            flavors=[
                trainer.FlavorQuotas(flavor=h100, resources={{
                    "cpu": "64", "nvidia.com/gpu": trainer.ResourceQuota(nominal_quota=8, borrowing_limit=8, lending_limit=4),
                }}),
                trainer.FlavorQuotas(flavor="{name}-l40", resources={{"nvidia.com/gpu": 16, "cpu": 128}}),
            ],
        ),
        *shared(net),
    ],
    cohort=cohort, queueing_strategy="BestEffortFIFO",
    namespace_selector={{
        "match_expressions": [{{"key": "a_b", "operator": "In", "values": ["c"]}}], "match_labels": {{"c_d": "e"}},
    }},
    flavor_fungibility=trainer.FlavorFungibility(
        when_can_borrow="TryNextFlavor", when_can_preempt="TryNextFlavor", preference="BorrowingOverPreemption"
    ),
    preemption=trainer.Preemption(
        reclaim_within_cohort="Any", within_cluster_queue="LowerOrNewerEqualPriority",
        borrow_within_cohort=trainer.BorrowWithinCohort(policy="LowerPriority", max_priority_threshold=10),
    ),
    admission_checks=[trainer.AdmissionCheckRule(check_name=nodes, on_flavors=[h100]), licence],
    stop_policy="Hold", fair_sharing=trainer.FairSharing(weight=0.5), admission_mode="UsageBasedAdmissionFairSharing",
    concurrent_admission_policy=trainer.ConcurrentAdmissionPolicy(mode="TryPreferredFlavors", last_acceptable_flavor=l40),
    on_delete="drain", drain_seconds=20, **place,
)
trainer.LocalQueue(
    "{name}-lq", cluster_queue="{name}-q", namespace="{namespace}", stop_policy="Hold",
    fair_sharing=trainer.FairSharing(weight=3), **place,
)
trainer.WorkloadPriorityClass("{name}-high", value=1000, description="first", **place)
"""


def test_each_kind_with_each_field(lab: Lab) -> None:
    """What the server has is what was said, field by field; a refresh finds nothing else."""
    lab.program(lab.text(EVERYTHING))
    lab.up()
    for kind, good in GOOD.items():
        specs = [made["spec"] for made in lab.objects(kind).values()]
        assert {path for spec in specs for path in paths(spec)} >= paths(good), kind
    flavor = lab.objects("ResourceFlavor")[f"{lab.prefix}-h100"]
    assert flavor["spec"]["nodeLabels"] == {"gpu_type": lab.prefix} and flavor["metadata"]["labels"]["team_x"] == "nlp"
    queue = lab.objects("ClusterQueue")[f"{lab.prefix}-q"]["spec"]
    assert [r["name"] for r in queue["resourceGroups"][0]["flavors"][0]["resources"]] == ["nvidia.com/gpu", "cpu"]
    assert queue["cohortName"] == f"{lab.prefix}-r" and queue["fairSharing"]["weight"] == "500m"
    assert lab.objects("WorkloadPriorityClass")[f"{lab.prefix}-high"]["description"] == "first"
    lab.preview("--expect-no-changes", "--refresh")
    lab.destroy()
    assert lab.count() == {}


def paths(value: Any, at: str = "") -> set[str]:
    """Of the fields, without indices and the user's own keys."""
    if isinstance(value, list):
        return {path for item in value for path in paths(item, at)}
    if not isinstance(value, dict) or at.rpartition(".")[2] in ("nodeLabels", "matchLabels", "parameters"):
        return {at}
    return {path for name, item in value.items() for path in paths(item, f"{at}.{name}")}


WORK = """
flavor = trainer.ResourceFlavor("{name}")
queue = trainer.ClusterQueue(
    "{name}", resource_groups=[trainer.ResourceGroup(flavors=[trainer.FlavorQuotas(flavor=flavor, resources={{"cpu": 1}})])],
    {more}
)
trainer.LocalQueue("{name}", cluster_queue=queue)
"""


def test_a_queue_with_work_is_not_deleted_unless_it_is_to_be_drained(lab: Lab) -> None:
    """It has room for one of two jobs. The refusal touches nothing."""
    lab.program(lab.text(WORK))
    lab.up()
    lab.job("first")
    until(lambda: lab.running() == {"first"})
    lab.job("second")
    until(lambda: len(lab.root_client.list(WORKLOAD, lab.namespace)[0]) == 2)
    told = lab.destroy(ok=False).out
    assert f"(JobSet {lab.namespace}/first) holds 1 cpu since 20" in told and f"{lab.namespace}/second) waits" in told
    assert f"ClusterQueue {lab.prefix}: is not deleted because it has jobs" in told and 'on_delete="drain"' in told
    assert lab.count() == {"ResourceFlavor": 1, "ClusterQueue": 1, "LocalQueue": 1} and lab.running() == {"first"}
    assert lab.objects("ClusterQueue")[lab.prefix]["metadata"]["generation"] == 1
    lab.program(lab.text(WORK.replace('"cpu": 1', '"cpu": -1')))
    assert "must be greater than or equal to 0" in lab.up(ok=False).out
    assert lab.objects("ClusterQueue")[lab.prefix]["metadata"]["generation"] == 1, "nothing has changed"
    lab.program(lab.text(WORK, more='on_delete="drain",'))
    assert "2 updated" in lab.up().out, "what guards the queue, and the mark on it"
    told = lab.destroy().out
    assert f"was drained: JobSet {lab.namespace}/first is suspended" in told
    assert lab.count() == {}
    until(lambda: lab.running() == set())
    assert all(j["spec"]["suspend"] for j in lab.root_client.list(JOBSET, lab.namespace)[0])


def test_a_job_that_waits_in_a_deleted_queue(lab: Lab) -> None:
    """Its plan warns although nothing changes, and the wait says that it is in vain."""
    train = """
trainer.TrainJob(
    "train", runtime="torch-distributed", queue="{name}", target=trainer.Kubernetes(), {more} trainer=trainer.Trainer(
        image="trainer:1", command=["python", "x.py"], num_nodes=1, resources_per_node={{"cpu": 1}}))
"""
    queue, job = lab.text(WORK), lab.text(train).removeprefix(HEAD)
    lab.program(queue)
    lab.up()
    lab.job("first")
    until(lambda: lab.running() == {"first"})
    lab.program(queue + job)
    lab.up()
    gone = f"queue: LocalQueue {lab.prefix} does not exist in namespace {lab.namespace}: its jobs never start. Hint: create it"
    assert gone not in lab.preview("--expect-no-changes").out
    local = Kind(f"{GROUP}/{NEWEST}", "LocalQueue", KINDS["LocalQueue"], True)
    lab.root_client.delete(local, lab.namespace, lab.prefix)
    until(lambda: lab.root_client.get(local, lab.namespace, lab.prefix) is None)
    assert gone in " ".join(lab.preview("--expect-no-changes").out.split())
    waits = 'wait_for="running", timeouts={"running": 3},'
    lab.program(queue + lab.text(train, more=waits).removeprefix(HEAD))
    told = " ".join(lab.up(ok=False).out.split())
    assert f"LocalQueue {lab.prefix} doesn't exist; Kueue will never admit it as it is" in told, told
    lab.refresh()
    lab.program(queue + job)
    assert gone in " ".join(lab.up().out.split())
    assert gone not in lab.preview("--expect-no-changes").out
    lab.root_client.delete(JOBSET, lab.namespace, "first", propagation="Background")
    until(lambda: len(lab.running()) == 1 and "first" not in lab.running())
    lab.destroy()
    assert lab.count() == {}


def test_a_job_of_the_same_stack_goes_with_its_queue(lab: Lab) -> None:
    """Both deletions begin at once; the queue waits for what is on its way out."""
    lab.program(lab.text(WORK))
    lab.up()
    lab.program(
        lab.text(
            WORK
            + """
trainer.TrainJob(
    "train", runtime="torch-distributed", queue="{name}", target=trainer.Kubernetes(), trainer=trainer.Trainer(
        image="trainer:1", command=["train"], num_nodes=1, resources_per_node={{"cpu": 1}},
    ),
)
"""
        )
    )
    lab.up()
    until(lambda: len(lab.root_client.list(WORKLOAD, lab.namespace)[0]) == 1)
    lab.destroy()
    assert lab.count() == {}


PROVIDER = """
from pathlib import Path
import pulumi_kubernetes as kubernetes

provider = kubernetes.Provider("own", kubeconfig=pulumi.Output.secret(Path("{kubeconfig}").read_text()), namespace="{namespace}")
flavor = trainer.ResourceFlavor("{name}", opts=pulumi.ResourceOptions(provider=provider))
quotas = trainer.FlavorQuotas(flavor=flavor, resources={{"cpu": pulumi.Output.from_input(4)}})
trainer.ClusterQueue(
    "{name}", resource_groups=[trainer.ResourceGroup(flavors=[quotas])], opts=pulumi.ResourceOptions(provider=provider)
)
trainer.LocalQueue("{name}", cluster_queue="{name}", target=trainer.Kubernetes(provider=provider))
"""


def test_the_cluster_of_a_provider_of_the_program(lab: Lab, user_kubeconfig: Path) -> None:
    """Nothing else says which; the content of its kubeconfig is secret, and nowhere in clear."""
    lab.run("config", "rm", "trainer:kubeconfig")
    lab.run("config", "rm", "trainer:namespace")
    lab.program(lab.text(PROVIDER, kubeconfig=user_kubeconfig))
    lab.preview()
    lab.up()
    assert lab.objects("LocalQueue")[lab.prefix]["metadata"]["namespace"] == lab.namespace
    token = yaml.safe_load(user_kubeconfig.read_text())["users"][0]["user"]["token"]
    assert token not in "".join(p.read_text(errors="replace") for p in (lab.folder / "state").rglob("*") if p.is_file())
    lab.destroy()
    assert lab.count() == {}


DISPATCHED = """
flavor = trainer.ResourceFlavor("{name}")
check = {check}
queue = trainer.ClusterQueue(
    "{name}", admission_checks=[check],
    resource_groups=[trainer.ResourceGroup(flavors=[trainer.FlavorQuotas(flavor=flavor, resources={{"cpu": 8}})])],
)
local = trainer.LocalQueue("{name}", cluster_queue=queue)

def train():
    pass

trainer.TrainJob(
    "job", name="job", runtime="torch-distributed", queue=local, output=True, target=trainer.Kubernetes(),
    trainer=trainer.CustomTrainer(func=train, env={{"TOKEN": pulumi.Output.secret("canary-91bc")}}),
)
"""
OWN_CHECK = """trainer.AdmissionCheck("{name}", parameters=trainer.MultiKueueConfig("{name}", clusters=[
    trainer.MultiKueueCluster("{name}", kubeconfig="workers"),
]))"""


@pytest.mark.parametrize("own", [True, False], ids=["of the program", "of the cluster"])
def test_a_job_that_multikueue_sends_away_without_what_it_needs_is_refused(lab: Lab, own: bool) -> None:
    """Nothing is made, and the plan says what stays here."""
    check = OWN_CHECK.format(name=lab.prefix) if own else f'"{lab.prefix}"'
    kinds = ("MultiKueueCluster", "MultiKueueConfig", "AdmissionCheck")
    specs: tuple[Any, ...] = (
        {"clusterSource": {"kubeConfig": {"location": "workers", "locationType": "Secret"}}},
        {"clusters": [lab.prefix]},
        {
            "controllerName": "kueue.x-k8s.io/multikueue",
            "parameters": {"apiGroup": GROUP, "kind": "MultiKueueConfig", "name": lab.prefix},
        },
    )
    of = {kind: Kind(f"{GROUP}/{NEWEST}", kind, KINDS[kind], False) for kind in kinds}
    for kind, spec in zip(kinds, specs, strict=True) if not own else ():
        about = {"apiVersion": of[kind].api_version, "kind": kind, "metadata": {"name": lab.prefix}, "spec": spec}
        lab.root_client.create(of[kind], about)
    try:
        lab.program(lab.text(DISPATCHED, check=check))
        own_objects = "ConfigMap job-code, PersistentVolumeClaim job-output, Secret job-env"
        told = f"but these objects, which its pods need, stay in this cluster: {own_objects}"
        for refused in (lab.preview(ok=False).out, lab.up(ok=False).out):
            where = (
                f"MultiKueue sends the job to {lab.prefix} (AdmissionCheck {lab.prefix} of ClusterQueue {lab.prefix}),"
            )
            assert f"{where} {told}. Hint: name {lab.prefix} in target=Kubernetes(workers=...)" in refused, refused
        assert lab.root_client.list(JOBSET, lab.namespace)[0] == []
    finally:
        for kind in reversed(kinds) if not own else ():
            lab.root_client.delete(of[kind], "", lab.prefix, propagation="Background")
        lab.destroy()


TAKEN = """
flavor = trainer.ResourceFlavor("{name}")
queue = trainer.ClusterQueue(
    "{name}", resource_groups=[trainer.ResourceGroup(flavors=[trainer.FlavorQuotas(flavor=flavor, resources={{"cpu": 1}})])],
)
trainer.LocalQueue("{name}", cluster_queue=queue)
{more}
"""


def test_what_another_stack_has_taken_over_is_left_alone(lab: Lab) -> None:
    """By an update that no longer has it, and by a destroy."""
    high = f'trainer.WorkloadPriorityClass("{lab.prefix}", value=7)'
    lab.program(lab.text(TAKEN, more=high))
    lab.up()
    of = {kind: Kind(f"{GROUP}/{NEWEST}", kind, KINDS[kind], kind == NAMESPACED) for kind in KINDS}

    def give(kind: str, owner: str) -> None:
        where = lab.namespace if kind == "LocalQueue" else ""
        lab.root_client.patch(of[kind], where, lab.prefix, {"metadata": {"annotations": {MADE_BY: owner}}})

    give("WorkloadPriorityClass", "organization/lab/second")
    lab.program(lab.text(TAKEN))
    gone = f"WorkloadPriorityClass {lab.prefix}: was removed from the program, but belongs to the stack organization/lab/second"
    for refused in (lab.preview(ok=False).out, lab.up(ok=False).out):
        assert gone in refused and "pulumi state delete 'urn:pulumi:test::lab::" in refused, refused
    give("WorkloadPriorityClass", "organization/lab/test")
    lab.up()
    before = lab.count()
    for kind in ("LocalQueue", "ResourceFlavor"):
        give(kind, "organization/lab/second")
        refused = lab.destroy(ok=False).out
        assert (
            f"{kind} " in refused and "belongs to the stack organization/lab/second now, and is left alone" in refused
        )
        assert lab.count() == before
        give(kind, "organization/lab/test")
    lab.destroy()
    assert lab.count() == {}


def test_queues_of_a_namespace_that_is_not_known_yet(lab: Lab) -> None:
    job = """
job = trainer.TrainJob("job", runtime="torch-distributed", suspend=True, target=trainer.Kubernetes(),
                       trainer=trainer.Trainer(image="trainer:1", command=["true"]))
for name in ("a", "b"):
    trainer.LocalQueue(f"{name}-{{name}}", cluster_queue=queue, namespace=job.phase.apply(lambda _: "{namespace}"))
"""
    more = job.replace("{namespace}", lab.namespace).replace("{name}-{{name}}", f"{lab.prefix}-{{name}}")
    lab.program(lab.text(TAKEN, more=more))
    assert "LocalQueue" in lab.preview().out
    lab.up()
    assert lab.count()["LocalQueue"] == 3
    (guard,) = lab.resources("QueueGuard")
    places = [(each["kind"], each["name"]) for each in guard["outputs"]["beside"]]
    assert places == [
        ("LocalQueue", lab.prefix),
        ("LocalQueue", f"{lab.prefix}-a"),
        ("LocalQueue", f"{lab.prefix}-b"),
        ("ResourceFlavor", lab.prefix),
    ]
    lab.destroy()
