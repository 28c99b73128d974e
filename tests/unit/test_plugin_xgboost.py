"""XGBoost: tracker and number of workers, and reserved names."""

from __future__ import annotations

from typing import Any

import pytest
from plugin_support import container, env, job, main, named, pod, pods, problems, rendered, runtime, train_job
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

GPU = "nvidia.com/gpu"
RANK = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}


def xgboost(*jobs: dict[str, Any], nodes: int = 2) -> dict[str, Any]:
    return runtime({"xgboost": {}, "numNodes": nodes}, *jobs)


def workers(trainer: dict[str, Any], *jobs: dict[str, Any]) -> Any:
    return env(main(rendered(xgboost(*jobs), train_job(trainer))))["DMLC_NUM_WORKER"]


def test_environment_and_port() -> None:
    node = main(rendered(xgboost(), train_job({})))
    assert node["env"] == [
        {"name": "DMLC_TRACKER_URI", "value": "digits-node-0-0.digits"},
        {"name": "DMLC_TRACKER_PORT", "value": "29500"},
        {"name": "DMLC_TASK_ID", "valueFrom": RANK},
        {"name": "DMLC_NUM_WORKER", "value": "2"},
    ]
    assert node["ports"] == [{"containerPort": 29500}]


@pytest.mark.parametrize(
    ("resources", "wanted"),
    [
        ({"limits": {GPU: 4}}, "8"),
        ({"requests": {GPU: 0}, "limits": {GPU: 4}}, "8"),
        ({"requests": {"amd.com/gpu": "1500m"}}, "4"),
        ({"limits": {GPU: -4}}, "2"),
        ({"requests": {GPU: -4}, "limits": {GPU: 4}}, "2"),
        ({"limits": {"nvidia.com/mig-1g.5gb": 4, "cpu": 8}}, "2"),
        ({"limits": {GPU: 2**31}}, "0"),
    ],
)
def test_a_worker_a_gpu(resources: dict[str, Any], wanted: str) -> None:
    assert workers({"resourcesPerNode": resources}) == wanted


def test_gpus_of_the_runtime_are_hidden_by_resources_of_the_job() -> None:
    node = job("node", None, container(resources={"limits": {GPU: 4}}))
    assert workers({"numNodes": 3}, node) == "12"
    tj = train_job({"numNodes": 3, "resourcesPerNode": {"limits": {"cpu": 1}}})
    objects = rendered(xgboost(node), tj)
    assert env(main(objects))["DMLC_NUM_WORKER"] == "3"
    assert main(objects)["resources"] == {"limits": {"cpu": "1", GPU: "4"}}


def test_which_gpus_of_the_runtime_count() -> None:
    """Those of a container called node, in a job called node or one that trains: the first of these."""
    many = {"limits": {GPU: 9}}
    side, trains = container("side", resources=many), container(resources={"limits": {GPU: 4}})
    two = [job("aux", "", container(resources=many)), job("node", None, side, trains)]
    found = named(pod(rendered(xgboost(*two), train_job({})))["containers"], "node")
    assert env(found)["DMLC_NUM_WORKER"] == "8"
    jobs = [job("node", "", container(resources={"limits": {GPU: 3}})), job("work", None, trains)]
    assert env(main(rendered(xgboost(*jobs), train_job({})), "work"))["DMLC_NUM_WORKER"] == "6"
    assert env(main(rendered(xgboost(*reversed(jobs)), train_job({})), "work"))["DMLC_NUM_WORKER"] == "8"


def test_only_with_a_trainer_section_job_and_container() -> None:
    assert "env" not in main(rendered(xgboost(), train_job()))
    assert "env" not in main(rendered(xgboost(job("node", "")), train_job({})))
    assert "env" not in main(rendered(xgboost(job("node", None, container("x"))), train_job({})))


def test_the_jobs_env_and_nodes() -> None:
    objects = rendered(xgboost(), train_job({"numNodes": 5, "env": [{"name": "A", "value": "1"}]}))
    assert env(main(objects))["A"] == "1"
    assert pods(objects)["parallelism"] == 5


def test_reserved_names_are_forbidden_one_by_one() -> None:
    names = ["A", "DMLC_TASK_ID", "DMLC_NUM_WORKER", "DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_ROLE"]
    tj = train_job({"env": [{"name": name} for name in names]})
    assert problems(xgboost(), tj) == [
        Problem(f"spec.trainer.env[{place}]", f"{name} is reserved for the XGBoost runtime", type="FieldValueForbidden")
        for place, name in enumerate(names)
        if 0 < place < 5
    ]
    assert problems(runtime({"jax": {}}), tj) == []
    assert problems(xgboost(), train_job()) == []


def test_unknown_values() -> None:
    unknown = Unknown("n")
    assert workers({"numNodes": unknown}) is unknown
    assert workers({"resourcesPerNode": {"limits": {GPU: unknown}}}) is unknown
    given = [unknown, {"name": unknown}, {"name": "DMLC_TASK_ID"}]
    assert [p.where for p in problems(xgboost(), train_job({"env": given}))] == ["spec.trainer.env[2]"]
    assert problems(xgboost(), train_job({"env": unknown})) == []
