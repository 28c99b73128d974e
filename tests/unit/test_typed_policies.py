"""Typed policies of runtimes: the documents they make, and what is wrong with them in the words of the program."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pulumi
import pulumi_trainer as trainer
import pytest
from pulumi_trainer.args import policies
from pulumi_trainer.args.arguments import Args, nested_problems
from pulumi_trainer.args.naming import schema_at, snake
from pulumi_trainer.plugins import Policy
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.runtime import RuntimeArgs, runtime_document

from tests.trainer import document_problems, fields

TEMPLATE = trainer.JobSetTemplate(replicated_jobs=[trainer.ReplicatedJob(name="node", pod_spec={"containers": []})])


def wrong(**given: Any) -> list[str]:
    """The problems of a runtime, as the component tells them."""
    args = RuntimeArgs("r", **{"template": TEMPLATE, **given})
    found = nested_problems(args)
    document = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "r"},
        "spec": args.document(),
    }
    found += document_problems(document)
    return [f"{args.place(p.where.removeprefix('spec.'))}: {p.why}" for p in found]


def target(job: Any = "node", *containers: Any) -> trainer.EnvInjectionTarget:
    return trainer.EnvInjectionTarget(job_name=job, container_names=list(containers) or ["side"])


POLICIES: list[tuple[Args, dict[str, Any]]] = [
    (trainer.PlainPolicy(), {}),
    (trainer.PlainPolicy(num_nodes=2), {"numNodes": 2}),
    (trainer.TorchPolicy(), {"torch": {}}),
    (
        trainer.TorchPolicy(num_nodes=2, env_injection=[target("data", "a", "b")]),
        {"numNodes": 2, "torch": {"envInjection": {"targets": [{"jobName": "data", "containerNames": ["a", "b"]}]}}},
    ),
    (trainer.MPIPolicy(), {"mpi": {}}),
    (
        trainer.MPIPolicy(
            num_nodes=3,
            num_proc_per_node=2,
            mpi_implementation="OpenMPI",
            ssh_auth_mount_path="/home/mpiuser/.ssh",
            run_launcher_as_node=False,
        ),
        {
            "numNodes": 3,
            "mpi": {
                "numProcPerNode": 2,
                "mpiImplementation": "OpenMPI",
                "sshAuthMountPath": "/home/mpiuser/.ssh",
                "runLauncherAsNode": False,
            },
        },
    ),
    (trainer.JAXPolicy(num_nodes=2), {"numNodes": 2, "jax": {}}),
    (trainer.XGBoostPolicy(), {"xgboost": {}}),
    (trainer.FluxPolicy(num_proc_per_node=4), {"flux": {"numProcPerNode": 4}}),
    (trainer.CoschedulingPolicy(), {"coscheduling": {}}),
    (trainer.CoschedulingPolicy(schedule_timeout_seconds=0), {"coscheduling": {"scheduleTimeoutSeconds": 0}}),
    (trainer.CoschedulingPolicy(scheduler_name="second"), {"coscheduling": {}}),
    (trainer.VolcanoPolicy(), {"volcano": {}}),
    (trainer.KAIPolicy(queue="research"), {}),
    (
        trainer.VolcanoPolicy(network_topology=trainer.VolcanoNetworkTopology(mode="soft", highest_tier_allowed=2)),
        {"volcano": {"networkTopology": {"mode": "soft", "highestTierAllowed": 2}}},
    ),
]


@pytest.mark.parametrize(("policy", "document"), POLICIES, ids=lambda v: type(v).__name__)
def test_a_policy_is_the_document_of_the_api(policy: Args, document: dict[str, Any]) -> None:
    assert policy.document() == document
    field = "pod_group_policy" if isinstance(policy, policies.PodGroupPolicy) else "ml_policy"
    assert wrong(**{field: policy}) == []


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (trainer.MPIPolicy(num_proc_per_node=0), ["num_proc_per_node: must be greater than or equal to 1"]),
        (trainer.MPIPolicy(mpi_implementation="MPICH"), ["mpi_implementation: must be 'OpenMPI' or '', not 'MPICH'"]),
        (trainer.MPIPolicy(ssh_auth_mount_path="x" * 4097), ["ssh_auth_mount_path: must have at most 4096 characters"]),
        (trainer.MPIPolicy(run_launcher_as_node="yes"), ["run_launcher_as_node: must be true or false, not 'yes'"]),
        (trainer.MPIPolicy(num_procs=1), ["num_procs: unknown field"]),
        (trainer.FluxPolicy(num_proc_per_node=0), ["num_proc_per_node: NumProcPerNode in fluxPolicy must be >= 1"]),
        (trainer.TorchPolicy(num_nodes="2"), ["num_nodes: must be a whole number, not '2'"]),
        (trainer.TorchPolicy(num_nodes=2**31), [f"num_nodes: must be less than or equal to {2**31 - 1}, not {2**31}"]),
        (
            trainer.TorchPolicy(env_injection=[target(str(i)) for i in range(17)]),
            ["env_injection: must have at most 16"],
        ),
        (trainer.TorchPolicy(env_injection=[target(), target()]), ["env_injection: jobName node is a duplicate"]),
        (trainer.TorchPolicy(env_injection=[target("")]), ["env_injection[0].job_name: must have at least 1"]),
        (trainer.TorchPolicy(env_injection=[target("x" * 254)]), ["env_injection[0].job_name: must have at most 253"]),
        (
            trainer.TorchPolicy(env_injection=[target(), trainer.EnvInjectionTarget(job_name="b", container_names=[])]),
            ["env_injection[1].container_names: must have at least 1 item"],
        ),
        (
            trainer.TorchPolicy(env_injection=[target("node", *"abcdefghi")]),
            ["env_injection[0].container_names: must have at most 8 items"],
        ),
        (
            trainer.TorchPolicy(env_injection=[target("node", "a", "a")]),
            ["env_injection[0].container_names: a is a duplicate"],
        ),
        (
            trainer.TorchPolicy(env_injection=[target("node", "a", "x" * 64)]),
            ["env_injection[0].container_names[1]: must have at most 63 characters"],
        ),
        (
            trainer.TorchPolicy(env_injection=[target("node", "node")]),
            ["env_injection[0].container_names: containerNames must not include the main node container"],
        ),
    ],
)
def test_what_is_wrong_with_a_framework_policy(policy: Args, says: list[str]) -> None:
    found = list(dict.fromkeys(wrong(ml_policy=policy)))
    assert len(found) == len(says), found
    for line, text in zip(found, says, strict=True):
        assert line.startswith(f"ml_policy.{text}")


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (
            trainer.CoschedulingPolicy(schedule_timeout_seconds="1m"),
            "pod_group_policy.schedule_timeout_seconds: must be a whole number, not '1m'",
        ),
        (
            trainer.VolcanoPolicy(network_topology=trainer.VolcanoNetworkTopology(mode="near")),
            "pod_group_policy.network_topology.mode: must be 'hard' or 'soft', not 'near'",
        ),
        (
            trainer.VolcanoPolicy(network_topology=trainer.VolcanoNetworkTopology(highest_tier_allowed="1")),
            "pod_group_policy.network_topology.highest_tier_allowed: must be a whole number, not '1'",
        ),
        (trainer.VolcanoPolicy(queue="q"), "pod_group_policy.queue: unknown field"),
        ({"volcano": {"queue": "q"}}, "pod_group_policy.volcano.queue: unknown field"),
        (
            trainer.TorchPolicy(),
            "pod_group_policy: must be one of CoschedulingPolicy, KAIPolicy, VolcanoPolicy, not TorchPolicy",
        ),
    ],
)
def test_what_is_wrong_with_a_gang_policy(policy: Any, says: str) -> None:
    assert wrong(pod_group_policy=policy)[0] == says


def test_one_framework_only() -> None:
    assert wrong(ml_policy={"torch": {}, "mpi": {}, "numNodes": 1}) == [
        "ml_policy: Only one of the policy can be configured"
    ]
    assert wrong(ml_policy={"torch": None, "mpi": {}}) == []


def test_what_is_wrong_with_a_template_is_told_by_its_arguments() -> None:
    step = trainer.ReplicatedJob(
        name="node", replicas=-1, backoff_limit="x", labels={"a": 1}, pod_labels={"b": 2}, pod_spec=3
    )
    template = trainer.JobSetTemplate(
        replicated_jobs=[step], labels={"c": 3}, ttl_seconds_after_finished=-1, network=trainer.Network(subdomain=1)
    )
    assert {line.partition(":")[0] for line in wrong(template=template)} == {
        "template.labels.c",
        "template.ttl_seconds_after_finished",
        "template.network.subdomain",
        "template.replicated_jobs[0].replicas",
        "template.replicated_jobs[0].backoff_limit",
        "template.replicated_jobs[0].labels.a",
        "template.replicated_jobs[0].pod_labels.b",
        "template.replicated_jobs[0].pod_spec",
    }


def test_what_is_not_known_yet_is_right() -> None:
    unknown = Unknown("x")
    mpi = trainer.MPIPolicy(num_nodes=unknown, num_proc_per_node=unknown, mpi_implementation=unknown)
    torch = trainer.TorchPolicy(env_injection=[target(unknown, unknown, unknown), target(unknown)])
    topology = trainer.VolcanoNetworkTopology(mode=unknown, highest_tier_allowed=unknown)
    for policy in (mpi, torch, unknown):
        assert wrong(ml_policy=policy, pod_group_policy=trainer.VolcanoPolicy(network_topology=topology)) == []


_SPEC = "ClusterTrainingRuntime.spec"
_POD = "trainingRuntimeSpec.template.spec.replicatedJobs.template.spec.template.spec"
GO: list[tuple[str, str]] = [
    (_SPEC, "TrainingRuntimeSpec"),
    (f"{_SPEC}.mlPolicy", "MLPolicy"),
    (f"{_SPEC}.mlPolicy.torch", "TorchMLPolicySource"),
    (f"{_SPEC}.mlPolicy.torch.envInjection", "EnvInjection"),
    (f"{_SPEC}.mlPolicy.torch.envInjection.targets", "EnvInjectionTarget"),
    (f"{_SPEC}.mlPolicy.mpi", "MPIMLPolicySource"),
    (f"{_SPEC}.mlPolicy.flux", "FluxMLPolicySource"),
    (f"{_SPEC}.mlPolicy.jax", "JAXMLPolicySource"),
    (f"{_SPEC}.mlPolicy.xgboost", "XGBoostMLPolicySource"),
    (f"{_SPEC}.podGroupPolicy", "PodGroupPolicy"),
    (f"{_SPEC}.podGroupPolicy.coscheduling", "CoschedulingPodGroupPolicySource"),
    (f"{_SPEC}.podGroupPolicy.volcano", "VolcanoPodGroupPolicySource"),
    (f"{_SPEC}.podGroupPolicy.volcano.networkTopology", "NetworkTopologySpec"),
    ("TrainJob.spec", "TrainJobSpec"),
    ("TrainJob.spec.trainer", "Trainer"),
    ("TrainJob.spec.trainer.env", "EnvVar"),
    ("TrainJob.spec.runtimePatches", "RuntimePatch"),
    (f"TrainJob.spec.runtimePatches.{_POD}", "PodSpecPatch"),
    (f"TrainJob.spec.runtimePatches.{_POD}.containers", "ContainerPatch"),
    (f"TrainJob.spec.runtimePatches.{_POD}.containers.volumeMounts", "VolumeMount"),
]


def properties(path: str) -> set[str]:
    schema = schema_at(path)
    return set((schema.items or schema).properties)


@pytest.mark.parametrize(("path", "go"), GO)
def test_the_schemas_have_the_fields_of_the_go_types(path: str, go: str) -> None:
    assert properties(path) == set(fields(go))


PAIRS: list[tuple[str, type[Args]]] = [
    ("mlPolicy.torch", trainer.TorchPolicy),
    ("mlPolicy.torch.envInjection.targets", trainer.EnvInjectionTarget),
    ("mlPolicy.mpi", trainer.MPIPolicy),
    ("mlPolicy.flux", trainer.FluxPolicy),
    ("mlPolicy.jax", trainer.JAXPolicy),
    ("mlPolicy.xgboost", trainer.XGBoostPolicy),
    ("podGroupPolicy.coscheduling", trainer.CoschedulingPolicy),
    ("podGroupPolicy.volcano", trainer.VolcanoPolicy),
    ("podGroupPolicy.volcano.networkTopology", trainer.VolcanoNetworkTopology),
]


@pytest.mark.parametrize(("path", "args"), PAIRS)
def test_every_field_of_a_policy_is_an_argument(path: str, args: type[Args]) -> None:
    nodes = {"num_nodes"} if issubclass(args, policies.MLPolicy) else set()
    assert set(args.fields) - args.shipped == set(map(snake, properties(f"{_SPEC}.{path}"))) | nodes


def test_every_policy_of_the_api_has_a_class() -> None:
    known = {p.framework for p in vars(policies).values() if isinstance(p, type) and issubclass(p, policies.MLPolicy)}
    plugins = {"tensorflow", "paddle"}  # of this package, not of the API
    assert known - {""} - plugins == properties(f"{_SPEC}.mlPolicy") - {"numNodes"}
    gangs = {p.scheduler for p in policies.PodGroupPolicy.__subclasses__()}
    assert gangs - {""} == properties(f"{_SPEC}.podGroupPolicy")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"ml_policy": trainer.MPIPolicy}, "ml_policy: is a class. Hint: give an instance: MPIPolicy(...)"),
        ({"labels": "x"}, "labels: must be a mapping, not str"),
        ({"labels": pulumi.Output.from_input({})}, "labels: must be a mapping, not Output"),
        ({"template": trainer.JobSetTemplate(labels=["a"])}, "template.labels: must be a mapping, not list"),
        (
            {"template": trainer.JobSetTemplate(replicated_jobs=[trainer.ReplicatedJob(name="node", labels=["a"])])},
            "template.replicated_jobs[0].labels: must be a mapping, not list",
        ),
    ],
)
def test_a_runtime_of_the_wrong_shape(given: dict[str, Any], says: str) -> None:
    _, found = runtime_document("ClusterTrainingRuntime", RuntimeArgs("r", **{"template": {}, **given}))
    assert [str(p) for p in found] == [says]


def runtime_of(policy: Any, *steps: trainer.ReplicatedJob, **template: Any) -> dict[str, Any]:
    args = RuntimeArgs(
        "r", template=trainer.JobSetTemplate(replicated_jobs=list(steps), **template), pod_group_policy=policy
    )
    document, found = runtime_document("ClusterTrainingRuntime", args)
    assert found == []
    assert document_problems(document) == []
    return document


class TestSchedulers:
    """The scheduler that a policy names, in the pods of the template."""

    NODE = trainer.ReplicatedJob(name="node", pod_spec={"containers": []}, pod_labels={"a": "b"})

    def pods(self, document: dict[str, Any]) -> list[dict[str, Any]]:
        jobs = document["spec"]["template"]["spec"]["replicatedJobs"]
        return [job["template"]["spec"]["template"] for job in jobs]

    def test_left_alone(self) -> None:
        (pod,) = self.pods(runtime_of(trainer.VolcanoPolicy(), self.NODE))
        assert pod == {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}

    @pytest.mark.parametrize("policy", [trainer.CoschedulingPolicy, trainer.VolcanoPolicy, trainer.KAIPolicy])
    def test_of_the_pods_that_name_none(self, policy: Any) -> None:
        own = trainer.ReplicatedJob(name="own", pod_spec={"schedulerName": "mine", "containers": []})
        pods = self.pods(runtime_of(policy(scheduler_name="second"), self.NODE, own))
        assert [pod["spec"]["schedulerName"] for pod in pods] == ["second", "mine"]

    def test_kai_is_no_policy_of_trainer(self) -> None:
        document = runtime_of(trainer.KAIPolicy(queue="research"), self.NODE, labels={"c": "d"})
        assert "podGroupPolicy" not in document["spec"]
        assert document["spec"]["template"]["metadata"] == {"labels": {"c": "d", "kai.scheduler/queue": "research"}}
        (pod,) = self.pods(document)
        assert pod["spec"]["schedulerName"] == "kai-scheduler"
        assert pod["metadata"]["labels"] == {"a": "b", "kai.scheduler/queue": "research"}

    def test_kai_takes_steps_that_wait_for_others_one_by_one(self) -> None:
        after = trainer.ReplicatedJob(
            name="more",
            ancestor="more",
            pod_spec={"containers": []},
            depends_on=[trainer.DependsOn(name="node", status="Complete")],
        )
        about = runtime_of(trainer.KAIPolicy(), self.NODE, after)["spec"]["template"]["metadata"]
        assert about == {"annotations": {"kai.scheduler/batch-min-member": "1"}}
        assert "metadata" not in runtime_of(trainer.KAIPolicy(), self.NODE)["spec"]["template"]

    def test_what_is_not_as_it_should_be_is_told_by_others(self) -> None:
        for template in (
            {"spec": {"replicatedJobs": [3, {"name": "x"}, {"template": {"spec": {"template": 1}}}]}},
            {"spec": 1},
        ):
            args = RuntimeArgs("r", template=template, pod_group_policy=trainer.KAIPolicy(queue="q"))
            document, _ = runtime_document("ClusterTrainingRuntime", args)
            assert document_problems(document) != []


def test_parts_of_a_plugins_policy_have_their_class_and_its_defaults() -> None:
    class Servers(Policy):
        replicas: int = 1
        mem_size: str = "1Gi"

    class Strategy(Policy):
        serves = "mlPolicy.strategy"
        ps: Servers
        others: list[Servers] = []
        spare: Servers | None = None

    given = {"ps": {"replicas": 3}, "others": [{"memSize": "2Gi"}], "spare": Unknown("x")}
    read = Strategy.read(SimpleNamespace(ml_policy={"strategy": given}))
    assert read is not None and isinstance(read.ps, Servers) and isinstance(read.spare, Unknown)
    assert (read.ps.replicas, read.ps.mem_size, read.others[0].mem_size) == (3, "1Gi", "2Gi")
