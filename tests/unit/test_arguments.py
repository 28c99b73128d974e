"""The typed arguments cover the API, and say in Python's words what is wrong."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pulumi_trainer as trainer
import pytest
from pulumi_trainer.args import policies, template, trainers
from pulumi_trainer.args.arguments import Args, nested_problems, python_path, to_document
from pulumi_trainer.args.naming import camel, schema_at, snake
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.runtime import RuntimeArgs

from tests.trainer import document_problems

PAIRS: list[tuple[str, type[Args], set[str]]] = [
    ("TrainJob.spec", TrainJobArgs, {"runtime_ref"}),  # runtime=
    ("TrainJob.spec.trainer", trainers.Trainer, set()),
    ("TrainJob.spec.trainer", trainers.CustomTrainer, set()),
    ("TrainJob.spec.initializer.dataset", trainer.DataSource, set()),
    ("TrainJob.spec.initializer", trainer.Initializer, set()),
    ("ClusterTrainingRuntime.spec", RuntimeArgs, set()),
    ("ClusterTrainingRuntime.spec.mlPolicy.torch", policies.TorchPolicy, set()),
    ("ClusterTrainingRuntime.spec.mlPolicy.torch.envInjection.targets", policies.EnvInjectionTarget, set()),
    ("JobSet.spec", template.JobSetTemplate, {"suspend"}),  # of the TrainJob
    ("JobSet.spec.replicatedJobs", template.ReplicatedJob, {"template"}),  # its fields stand beside the others
    ("JobSet.spec.replicatedJobs.dependsOn", template.DependsOn, set()),
    ("JobSet.spec.successPolicy", template.SuccessPolicy, set()),
    ("JobSet.spec.failurePolicy", template.FailurePolicy, set()),
    ("JobSet.spec.failurePolicy.rules", template.FailurePolicyRule, set()),
    ("JobSet.spec.network", template.Network, {"enable_d_n_s_hostnames"}),
    ("JobSet.spec.replicatedJobs.template.spec.podFailurePolicy", template.PodFailurePolicy, set()),
    ("JobSet.spec.replicatedJobs.template.spec.podFailurePolicy.rules", template.PodFailurePolicyRule, set()),
    ("JobSet.spec.replicatedJobs.template.spec.podFailurePolicy.rules.onExitCodes", template.OnExitCodes, set()),
    ("JobSet.spec.replicatedJobs.template.spec.podFailurePolicy.rules.onPodConditions", template.OnPodCondition, set()),
]


@pytest.mark.parametrize(("path", "args", "elsewhere"), PAIRS)
def test_every_field_of_the_api_is_an_argument(path: str, args: type[Args], elsewhere: set[str]) -> None:
    schema = schema_at(path)
    assert set(map(snake, (schema.items or schema).properties)) - elsewhere <= set(args.fields)


def test_a_typed_template_is_the_document_of_the_api() -> None:
    typed = trainer.JobSetTemplate(
        labels={"my_label": "x"},
        ttl_seconds_after_finished=60,
        network=trainer.Network(enable_dns_hostnames=True),
        success_policy=trainer.SuccessPolicy(operator="All", target_replicated_jobs=["node"]),
        failure_policy=trainer.FailurePolicy(
            max_restarts=2,
            rules=[trainer.FailurePolicyRule(action="FailJobSet", on_job_failure_reasons=["FailedIndexes"])],
        ),
        replicated_jobs=[
            trainer.ReplicatedJob(
                name="node",
                backoff_limit=3,
                depends_on=[trainer.DependsOn(name="dataset-initializer", status="Complete")],
                pod_failure_policy=trainer.PodFailurePolicy(
                    rules=[
                        trainer.PodFailurePolicyRule(
                            action="FailJob", on_exit_codes=trainer.OnExitCodes(operator="In", values=[3])
                        )
                    ]
                ),
                pod_labels={"a_b": "c"},
                pod_spec={
                    "restart_policy": "Never",
                    "node_selector": {"my_zone": "a"},
                    "containers": [{"name": "node", "image": "x", "volume_mounts": [{"name": "v", "mountPath": "/v"}]}],
                },
            )
        ],
    )
    document = to_document(typed)
    assert document == {
        "metadata": {"labels": {"my_label": "x"}},
        "spec": {
            "ttlSecondsAfterFinished": 60,
            "network": {"enableDNSHostnames": True},
            "successPolicy": {"operator": "All", "targetReplicatedJobs": ["node"]},
            "failurePolicy": {
                "maxRestarts": 2,
                "rules": [{"action": "FailJobSet", "onJobFailureReasons": ["FailedIndexes"]}],
            },
            "replicatedJobs": [
                {
                    "name": "node",
                    "dependsOn": [{"name": "dataset-initializer", "status": "Complete"}],
                    "template": {
                        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                        "spec": {
                            "backoffLimit": 3,
                            "podFailurePolicy": {
                                "rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}]
                            },
                            "template": {
                                "metadata": {"labels": {"a_b": "c"}},
                                "spec": {
                                    "restartPolicy": "Never",
                                    "nodeSelector": {"my_zone": "a"},
                                    "containers": [
                                        {
                                            "name": "node",
                                            "image": "x",
                                            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                                        }
                                    ],
                                },
                            },
                        },
                    },
                }
            ],
        },
    }
    assert document_problems({"kind": "JobSet", "metadata": {"name": "r"}, "spec": document["spec"]}) == []


def test_pulumi_kubernetes_arguments_are_documents_too() -> None:
    from pulumi_kubernetes.core.v1 import ContainerArgs, PodSpecArgs, VolumeMountArgs

    spec = PodSpecArgs(
        restart_policy="Never",
        host_ipc=True,
        node_selector={"my_zone": "a"},
        containers=[
            ContainerArgs(name="node", volume_mounts=[VolumeMountArgs(name="v", mount_path="/v", read_only=True)])
        ],
    )
    assert to_document(spec) == {
        "restartPolicy": "Never",
        "hostIPC": True,
        "nodeSelector": {"my_zone": "a"},
        "containers": [{"name": "node", "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": True}]}],
    }


def test_short_forms_of_resources() -> None:
    given = trainer.CustomTrainer(resources_per_node={"gpu": 2, "CPU": 3, "memory": "3Gi", "storage": "1Gi"})
    full = {"nvidia.com/gpu": 2, "cpu": 3, "memory": "3Gi", "ephemeral-storage": "1Gi"}
    assert given.document()["resourcesPerNode"] == {"limits": full, "requests": full}
    mig = trainer.CustomTrainer(resources_per_node={"mig-1g.5gb": 1}).document()["resourcesPerNode"]
    assert mig["limits"] == {"nvidia.com/mig-1g.5gb": 1}
    raw = {"limits": {"cpu": 1}}
    assert trainer.Trainer(resources_per_node=raw).document()["resourcesPerNode"] == raw


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (trainer.CustomTrainer(func=print, num_node=2), "num_node: unknown field. Hint: did you mean num_nodes?"),
        (
            trainer.CustomTrainer(func=print, numNodes=2),
            "numNodes: unknown field numNodes. Hint: did you mean num_nodes?",
        ),
        (trainer.CustomTrainer(), "takes exactly one of func, script, module and command, not none"),
        (trainer.CustomTrainer(func=print, script="x"), "not func and script"),
        (trainer.CustomTrainer(script="x", func_args={}), "func_args: requires func"),
        (trainer.CustomTrainer(func=print, resources_per_node={"gpu": 1, "mig-1g.5gb": 1}), "both gpu and"),
        (
            trainer.CustomTrainer(func=print, resources_per_node={"mig-1g.5gb": 1, "mig-2g.10gb": 1}),
            "more than one MIG",
        ),
        (trainer.HuggingFaceDatasetInitializer(storage_uri="s3://x"), "must start with hf://"),
        (trainer.S3ModelInitializer(storage_uri="s3://x", secret_access_key="plain"), "is a plain-text secret"),
        (trainer.DataSource(), "storage_uri: is required"),
        (trainer.Initializer(dataset=trainer.DataSource(uri="x")), "dataset.uri: unknown field"),
    ],
)
def test_what_is_wrong_with_arguments(given: Args, says: str) -> None:
    assert says in "\n".join(str(p) for p in nested_problems(given))


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("dataset", "use initializer=Initializer(dataset=...)"),
        ("model", "use initializer=Initializer(model=...)"),
        ("datasets", "did you mean initializer=Initializer(dataset=...)?"),
        ("queue_name", "did you mean queue?"),
        ("timeout", "did you mean timeouts?"),
        ("mounts", "known: resource_name, runtime, "),
        ("volumes", "known: resource_name, runtime, "),
    ],
)
def test_an_unknown_argument_has_the_hint_for_what_is_meant_or_the_list(field: str, hint: str) -> None:
    (problem,) = TrainJobArgs("job", runtime="plain", **{field: 1}).misnamed
    assert problem.hint.startswith(hint), problem


def test_arguments_do_not_show_their_values() -> None:
    assert "canary" not in repr(trainer.S3ModelInitializer(secret_access_key="canary"))


def document(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "j"},
        "spec": {"runtimeRef": {"name": "torch"}, **spec},
    }


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"trainer": {"numNodes": "two"}}, "spec.trainer.numNodes: must be a whole number, not 'two'"),
        ({"trainer": {"numNodes": True}}, "spec.trainer.numNodes"),
        ({"trainer": {"numNodes": -1}}, "spec.trainer.numNodes"),
        ({"trainer": {"numProcPerNode": 0}}, "spec.trainer.numProcPerNode"),
        ({"trainer": {"numNode": 1}}, "spec.trainer.numNode: unknown field. Hint: did you mean numNodes?"),
        ({"trainer": {"env": [{"name": "A", "value": 1}]}}, "spec.trainer.env[0].value: must be a string, not int"),
        ({"trainer": {"resourcesPerNode": {"limits": {"cpu": "3 x"}}}}, "'3 x'"),
        ({"trainer": {"resourcesPerNode": {"limits": {"cpu": 0.5}}}}, "cpu"),
        ({"initializer": {"dataset": {"storageUri": "x"}}}, "spec.initializer.dataset.storageUri"),
        ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds"),
        ({"suspend": "yes"}, "spec.suspend: must be true or false, not 'yes'"),
    ],
)
def test_what_is_wrong_with_a_document(spec: dict[str, Any], says: str) -> None:
    found = [str(p) for p in document_problems(document(**spec))]
    assert len(found) == 1 and says in found[0], found


def test_an_unknown_leaf_is_right_anywhere() -> None:
    unknown = Unknown("x")
    spec = {
        "suspend": unknown,
        "trainer": {
            "numNodes": unknown,
            "image": unknown,
            "command": ["a", unknown],
            "env": unknown,
            "resourcesPerNode": {"limits": {"cpu": unknown}},
        },
    }
    assert document_problems(document(**spec)) == []


def test_names_go_both_ways() -> None:
    for name in ("num_nodes", "resources_per_node", "image"):
        assert snake(camel(name)) == name
    assert python_path("spec.trainer.resourcesPerNode.limits['nvidia.com/gpu']").startswith(
        "spec.trainer.resources_per_node"
    )


def test_importing_below_provider_loads_neither_pulumi_nor_a_cluster_client() -> None:
    code = (
        "import sys; from pulumi_trainer.provider.cli import main as cli;"
        "print([m for m in ('pulumi', 'kubernetes', 'pulumi_kubernetes') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_everything_that_is_exported_is_there() -> None:
    assert {type(getattr(trainer, name)) for name in trainer.__all__}
    with pytest.raises(AttributeError, match="no attribute 'TrainJobs'"):
        _ = trainer.TrainJobs
