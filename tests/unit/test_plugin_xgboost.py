"""XGBoost: tracker and number of workers, and reserved names."""

from __future__ import annotations

from typing import Any

import pytest
from plugin_support import container, env, job, main, named, pod, problems, rendered, runtime, train_job
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

GPU = "nvidia.com/gpu"


def xgboost(*jobs: dict[str, Any], nodes: int = 2) -> dict[str, Any]:
    return runtime({"xgboost": {}, "numNodes": nodes}, *jobs)


def workers(trainer: dict[str, Any], *jobs: dict[str, Any]) -> Any:
    return env(main(rendered(xgboost(*jobs), train_job(trainer))))["DMLC_NUM_WORKER"]


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


def test_unknown_values() -> None:
    unknown = Unknown("n")
    assert workers({"numNodes": unknown}) is unknown
    assert workers({"resourcesPerNode": {"limits": {GPU: unknown}}}) is unknown
    given = [unknown, {"name": unknown}, {"name": "DMLC_TASK_ID"}]
    assert [p.where for p in problems(xgboost(), train_job({"env": given}))] == ["spec.trainer.env[2]"]
    assert problems(xgboost(), train_job({"env": unknown})) == []
