"""JAX: counts, environment and port of the trainer."""

from __future__ import annotations

from typing import Any

import pytest
from plugin_support import container, env, job, main, pods, problems, rendered, runtime, train_job
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

RANK = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}


def jax(*jobs: dict[str, Any], nodes: int | None = None, **template: Any) -> dict[str, Any]:
    return runtime({"jax": {}, **({} if nodes is None else {"numNodes": nodes})}, *jobs, **template)


def test_environment_and_port() -> None:
    node = main(rendered(jax(nodes=2), train_job({})))
    assert node["env"] == [
        {"name": "JAX_NUM_PROCESSES", "value": "2"},
        {"name": "JAX_PROCESS_ID", "valueFrom": RANK},
        {"name": "JAX_COORDINATOR_ADDRESS", "value": "digits-node-0-0.digits:29500"},
    ]
    assert node["ports"] == [{"containerPort": 29500}]


def test_the_jobs_nodes_win() -> None:
    objects = rendered(jax(nodes=2), train_job({"numNodes": 3}))
    assert pods(objects)["completions"] == 3
    assert env(main(objects))["JAX_NUM_PROCESSES"] == "3"


@pytest.mark.parametrize("trainer", [None, {}])
def test_only_with_a_trainer_section(trainer: Any) -> None:
    assert ("env" in main(rendered(jax(), train_job(trainer)))) == (trainer is not None)


def test_the_jobs_env_comes_later_and_wins() -> None:
    tj = train_job({"env": [{"name": "A", "value": "1"}, {"name": "JAX_NUM_PROCESSES", "value": "9"}]})
    node = main(rendered(jax(), tj))
    assert [e["name"] for e in node["env"]][-1] == "A"
    assert env(node)["JAX_NUM_PROCESSES"] == "9"
    assert problems(jax(), tj) == []


def test_the_address_says_node_and_the_jobs_name() -> None:
    objects = rendered(jax(job("work"), network={"subdomain": "net"}), train_job({}))
    assert env(main(objects, "work"))["JAX_COORDINATOR_ADDRESS"] == "digits-node-0-0.digits:29500"


def test_without_trainer_job_or_container() -> None:
    assert "env" not in main(rendered(jax(job("node", "")), train_job({"numNodes": 3})))
    objects = rendered(jax(job("node", None, container("other"))), train_job({"numNodes": 3}))
    assert "env" not in main(objects)
    assert pods(objects)["parallelism"] == 3


def test_gpus_and_processes_do_not_count() -> None:
    trainer = {"numNodes": 2, "numProcPerNode": 4, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}
    assert env(main(rendered(jax(), train_job(trainer))))["JAX_NUM_PROCESSES"] == "2"


def test_unknown_nodes() -> None:
    unknown = Unknown("n")
    objects = rendered(jax(), train_job({"numNodes": unknown}))
    assert pods(objects)["parallelism"] is env(main(objects))["JAX_NUM_PROCESSES"] is unknown
