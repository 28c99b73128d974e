"""Typed runtime patches: the documents they make, their bounds, and where a program reads of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pulumi
import pulumi_trainer as trainer
import pytest
from pulumi_trainer.args.arguments import Args, nested_problems, walk
from pulumi_trainer.args.naming import schema_at, snake
from pulumi_trainer.plan.trainjob_args import TrainJobArgs
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

from tests.trainer import document_problems

FULL = trainer.RuntimePatch(
    manager="acme.io/platform",
    labels={"a_b": "c"},
    annotations={"note": "x"},
    jobs=[
        trainer.JobPatch(
            name="node",
            labels={"tier": "gold"},
            annotations={"why": "y"},
            pod=trainer.PodPatch(
                labels={"pod_label": "p"},
                annotations={"q": "r"},
                service_account_name="robot",
                volumes=[{"name": "scratch", "empty_dir": {"size_limit": "1Gi"}}],
                init_containers=[trainer.ContainerPatch(name="probe", env={"A": "1"})],
                containers=[
                    trainer.ContainerPatch(
                        name="node",
                        volume_mounts=[{"name": "scratch", "mount_path": "/scratch"}],
                        security_context={"run_as_user": 1000},
                    ),
                    trainer.ContainerPatch(name="side", env=[{"name": "B", "value": "2"}]),
                ],
                image_pull_secrets=[{"name": "registry"}],
                security_context={"fs_group": 1000},
                node_selector={"my_zone": "a"},
                affinity={"node_affinity": {}},
                tolerations=[{"key": "gpu", "operator": "Exists"}],
                scheduling_gates=[{"name": "acme.io/gate"}],
                termination_grace_period_seconds=5,
            ),
        ),
        trainer.JobPatch(name="launcher", pod=trainer.PodPatch(service_account_name="")),
    ],
)


def wrong(*patches: Any) -> list[str]:
    """The problems of a TrainJob with these patches, as the component tells them."""
    args = TrainJobArgs("job", runtime="r", runtime_patches=list(patches))
    found = nested_problems(args)
    document = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "j"},
        "spec": {
            "runtimeRef": {"name": "r"},
            "runtimePatches": [p.document() if isinstance(p, Args) else p for p in patches],
        },
    }
    found += document_problems(document)
    return [f"{args.place(p.where)}: {p.why}" for p in found]


def patch(pod: trainer.PodPatch | None = None, **given: Any) -> trainer.RuntimePatch:
    jobs = [trainer.JobPatch(name="node", pod=pod)] if pod is not None else None
    return trainer.RuntimePatch(**{"manager": "acme.io/a", "jobs": jobs, **given})


def container(**given: Any) -> trainer.RuntimePatch:
    return patch(trainer.PodPatch(containers=[trainer.ContainerPatch(**{"name": "side", **given})]))


def named(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": f"n{i}", **fields} for i in range(count)]


def containers(count: int) -> list[trainer.ContainerPatch]:
    return [trainer.ContainerPatch(name=f"c{i}") for i in range(count)]


def test_a_patch_is_the_document_of_the_api() -> None:
    assert FULL.document() == {
        "manager": "acme.io/platform",
        "trainingRuntimeSpec": {
            "template": {
                "metadata": {"labels": {"a_b": "c"}, "annotations": {"note": "x"}},
                "spec": {
                    "replicatedJobs": [
                        {
                            "name": "node",
                            "template": {
                                "metadata": {"labels": {"tier": "gold"}, "annotations": {"why": "y"}},
                                "spec": {
                                    "template": {
                                        "metadata": {"labels": {"pod_label": "p"}, "annotations": {"q": "r"}},
                                        "spec": {
                                            "serviceAccountName": "robot",
                                            "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}],
                                            "initContainers": [{"name": "probe", "env": [{"name": "A", "value": "1"}]}],
                                            "containers": [
                                                {
                                                    "name": "node",
                                                    "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                                                    "securityContext": {"runAsUser": 1000},
                                                },
                                                {"name": "side", "env": [{"name": "B", "value": "2"}]},
                                            ],
                                            "imagePullSecrets": [{"name": "registry"}],
                                            "securityContext": {"fsGroup": 1000},
                                            "nodeSelector": {"my_zone": "a"},
                                            "affinity": {"nodeAffinity": {}},
                                            "tolerations": [{"key": "gpu", "operator": "Exists"}],
                                            "schedulingGates": [{"name": "acme.io/gate"}],
                                            "terminationGracePeriodSeconds": 5,
                                        },
                                    }
                                },
                            },
                        },
                        {"name": "launcher", "template": {"spec": {"template": {"spec": {"serviceAccountName": ""}}}}},
                    ]
                },
            }
        },
    }
    assert wrong(FULL) == []


def test_empty_levels_are_left_out() -> None:
    assert trainer.PodPatch(labels={}, annotations={}).document() == {}
    assert trainer.RuntimePatch(manager="a.io/b").document() == {"manager": "a.io/b"}
    assert trainer.RuntimePatch(manager="a.io/b", jobs=[trainer.JobPatch(name="node")]).document() == {
        "manager": "a.io/b",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{"name": "node"}]}}},
    }


def test_pulumi_kubernetes_arguments_are_documents() -> None:
    from pulumi_kubernetes.core.v1 import DownwardAPIVolumeSourceArgs, TolerationArgs, VolumeArgs, VolumeMountArgs

    pod = trainer.PodPatch(
        volumes=[VolumeArgs(name="v", downward_api=DownwardAPIVolumeSourceArgs(default_mode=256))],
        tolerations=[TolerationArgs(key="gpu", toleration_seconds=3)],
        containers=[trainer.ContainerPatch(name="side", volume_mounts=[VolumeMountArgs(name="v", mount_path="/v")])],
    )
    assert pod.document() == {
        "spec": {
            "volumes": [{"name": "v", "downwardAPI": {"defaultMode": 256}}],
            "tolerations": [{"key": "gpu", "tolerationSeconds": 3}],
            "containers": [{"name": "side", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        }
    }
    assert trainer.PodPatch(volumes=[{"name": "v", "downward_api": {}}]).document() == {
        "spec": {"volumes": [{"name": "v", "downwardAPI": {}}]}
    }


def test_outputs_stand_where_values_do() -> None:
    async def document() -> dict[str, Any]:
        output = pulumi.Output.from_input("robot")
        found: dict[str, Any] = patch(trainer.PodPatch(service_account_name=output), manager=output).document()
        same: dict[str, Any] = walk(found, lambda _, leaf: leaf is output or leaf)
        return same

    found = asyncio.run(document())
    job = {"name": "node", "template": {"spec": {"template": {"spec": {"serviceAccountName": True}}}}}
    assert found == {"manager": True, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}


LONG = "x" * 254


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (patch(manager=""), "manager: must have at least 1 character"),
        (patch(manager=f"a.io/{LONG}"), "manager: must have at most 253 characters"),
        (patch(manager="acme"), 'manager: must be a domain-prefixed path (such as "acme.io/foo")'),
        (patch(manager="Acme.io/x"), "manager: a lowercase RFC 1123 subdomain"),
        (trainer.RuntimePatch(), "manager: is required"),
        (patch(labels={"a": 1}), "labels.a: must be a string, not 1"),
        (patch(lables={}), "lables: unknown field"),
        (patch(jobs=[trainer.JobPatch()]), "jobs[0].name: is required"),
        (patch(jobs=[trainer.JobPatch(name="")]), "jobs[0].name: must have at least 1 character"),
        (patch(jobs=[trainer.JobPatch(name=LONG)]), "jobs[0].name: must have at most 253 characters"),
        (patch(jobs=[trainer.JobPatch(name="a")] * 2), "jobs: name a is a duplicate"),
        (
            patch(jobs=[trainer.JobPatch(name=f"a{i}") for i in range(101)]),
            "jobs: must have at most 100 items, not 101",
        ),
        (patch(jobs=[trainer.JobPatch(name="a", annotations={"x": 1})]), "jobs[0].annotations.x: must be a string"),
        (patch(jobs=[trainer.JobPatch(name="a", replicas=1)]), "jobs[0].replicas: unknown field"),
        (patch(trainer.PodPatch(labels={"a": 1})), "jobs[0].pod.labels.a: must be a string, not 1"),
        (patch(trainer.PodPatch(service_account_name=LONG)), "jobs[0].pod.service_account_name: must have at most 253"),
        (patch(trainer.PodPatch(volumes=named(129))), "jobs[0].pod.volumes: must have at most 128 items, not 129"),
        (patch(trainer.PodPatch(volumes=named(1) * 2)), "jobs[0].pod.volumes: name n0 is a duplicate"),
        (patch(trainer.PodPatch(volumes=[{}])), "jobs[0].pod.volumes[0].name: is required"),
        (
            patch(trainer.PodPatch(volumes=[{"name": ""}])),
            "jobs[0].pod.volumes[0].name: must have at least 1 character",
        ),
        (patch(trainer.PodPatch(init_containers=containers(65))), "jobs[0].pod.init_containers: must have at most 64"),
        (
            patch(trainer.PodPatch(init_containers=containers(1) * 2)),
            "jobs[0].pod.init_containers: name c0 is a duplicate",
        ),
        (patch(trainer.PodPatch(containers=containers(65))), "jobs[0].pod.containers: must have at most 64 items"),
        (patch(trainer.PodPatch(containers=containers(1) * 2)), "jobs[0].pod.containers: name c0 is a duplicate"),
        (patch(trainer.PodPatch(image_pull_secrets=named(65))), "jobs[0].pod.image_pull_secrets: must have at most 64"),
        (
            patch(trainer.PodPatch(image_pull_secrets=named(1) * 2)),
            "jobs[0].pod.image_pull_secrets: name n0 is a duplicate",
        ),
        (patch(trainer.PodPatch(security_context=[])), "jobs[0].pod.security_context: must be a mapping"),
        (patch(trainer.PodPatch(node_selector={"a": 1})), "jobs[0].pod.node_selector.a: must be a string"),
        (patch(trainer.PodPatch(affinity="x")), "jobs[0].pod.affinity: must be a mapping, not 'x'"),
        (patch(trainer.PodPatch(tolerations=[{}] * 129)), "jobs[0].pod.tolerations: must have at most 128 items"),
        (patch(trainer.PodPatch(scheduling_gates=named(17))), "jobs[0].pod.scheduling_gates: must have at most 16"),
        (
            patch(trainer.PodPatch(scheduling_gates=named(1) * 2)),
            "jobs[0].pod.scheduling_gates: name n0 is a duplicate",
        ),
        (
            patch(trainer.PodPatch(termination_grace_period_seconds=-1)),
            "jobs[0].pod.termination_grace_period_seconds: must be greater than or equal to 0, not -1",
        ),
        (patch(trainer.PodPatch(host_network=True)), "jobs[0].pod.host_network: unknown field"),
        (container(name=""), "jobs[0].pod.containers[0].name: must have at least 1 character"),
        (container(name=LONG), "jobs[0].pod.containers[0].name: must have at most 253 characters"),
        (container(image="x"), "jobs[0].pod.containers[0].image: unknown field"),
        (container(env=named(129, value="")), "jobs[0].pod.containers[0].env: must have at most 128 items"),
        (container(env=named(1) * 2), "jobs[0].pod.containers[0].env: name n0 is a duplicate"),
        (container(env={"A": 1}), "jobs[0].pod.containers[0].env[0].value: must be a string, not int"),
        (
            container(volume_mounts=named(129, mountPath="/x")),
            "jobs[0].pod.containers[0].volume_mounts: must have at most 128 items, not 129",
        ),
        (
            container(volume_mounts=named(1, mountPath="/x") * 2),
            "jobs[0].pod.containers[0].volume_mounts: name n0 is a duplicate",
        ),
        (
            container(volume_mounts=[{"name": "v"}]),
            "jobs[0].pod.containers[0].volume_mounts[0].mount_path: is required",
        ),
        (container(volume_mounts=[{"mountPath": "/"}]), "jobs[0].pod.containers[0].volume_mounts[0].name: is required"),
        (container(security_context=1), "jobs[0].pod.containers[0].security_context: must be a mapping, not 1"),
        (
            container(name="node", env={"A": "1"}),
            "jobs[0].pod.containers[0].env: Trainer does not allow patches of env for container node",
        ),
        (
            container(name="model-initializer", env={"A": "1"}),
            "jobs[0].pod.containers[0].env: Trainer does not allow patches of env",
        ),
    ],
)
def test_what_is_wrong_with_a_patch(given: trainer.RuntimePatch, says: str) -> None:
    found = list(dict.fromkeys(wrong(FULL, given)))
    assert found[0].startswith(f"runtime_patches[1].{says}"), found
    unknown = len([f for f in found if f.endswith(": unknown field")])
    assert len(found) == 1 or unknown == len(found), found


def test_what_is_wrong_with_the_list_of_patches() -> None:
    assert wrong(patch(), patch()) == ["runtime_patches: manager acme.io/a is a duplicate"]
    many = [patch(manager=f"acme.io/{i}") for i in range(17)]
    assert wrong(*many[:16]) == []
    assert wrong(*many) == ["runtime_patches: must have at most 16 items, not 17"]


def test_a_mapping_is_a_patch_too() -> None:
    assert wrong(FULL.document()) == []
    time = {"manager": "a.io/b", "time": "2026-01-01T00:00:00Z"}
    assert wrong(time) == []
    bad = {"manager": "a.io/b", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{"name": ""}]}}}}
    where = "runtime_patches[0].training_runtime_spec.template.spec.replicated_jobs[0].name"
    assert wrong(bad) == [f"{where}: must have at least 1 character"]


def test_init_containers_may_be_called_like_the_main_one() -> None:
    pod = trainer.PodPatch(init_containers=[trainer.ContainerPatch(name="node", env={"A": "1"})])
    assert wrong(patch(pod)) == []


def test_what_is_not_known_yet_is_right() -> None:
    unknown = Unknown("x")
    pod = trainer.PodPatch(
        volumes=[unknown, {"name": unknown}],
        containers=[trainer.ContainerPatch(name=unknown, env={"A": unknown})],
        node_selector=unknown,
        termination_grace_period_seconds=unknown,
    )
    assert wrong(patch(pod, manager=unknown, labels=unknown), unknown) == []


_PATCH = "TrainJob.spec.runtimePatches"
_JOBS = f"{_PATCH}.trainingRuntimeSpec.template.spec.replicatedJobs"
_POD = f"{_JOBS}.template.spec.template.spec"
PAIRS: list[tuple[str, type[Args], set[str]]] = [
    (_PATCH, trainer.RuntimePatch, {"time", "training_runtime_spec"}),  # of the API server; its fields
    (_JOBS.rpartition(".")[0], trainer.RuntimePatch, {"replicated_jobs"}),  # jobs
    (_JOBS, trainer.JobPatch, {"template"}),  # its fields
    (_POD, trainer.PodPatch, set()),
    (f"{_POD}.containers", trainer.ContainerPatch, set()),
]


@pytest.mark.parametrize(("path", "args", "elsewhere"), PAIRS)
def test_every_field_of_a_patch_is_an_argument(path: str, args: type[Args], elsewhere: set[str]) -> None:
    schema = schema_at(path)
    assert set(map(snake, (schema.items or schema).properties)) - elsewhere <= set(args.fields)
    if args is not trainer.ContainerPatch:
        assert {"labels", "annotations"} <= set(args.fields)
