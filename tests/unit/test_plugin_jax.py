"""JAX: where the golden cases do not reach."""

from __future__ import annotations

from typing import Any

from plugin_support import env, job, main, pods, rendered, runtime, train_job
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown


def jax(*jobs: dict[str, Any], nodes: int | None = None, **template: Any) -> dict[str, Any]:
    return runtime({"jax": {}, **({} if nodes is None else {"numNodes": nodes})}, *jobs, **template)


def test_the_address_says_node_and_the_jobs_name() -> None:
    objects = rendered(jax(job("work"), network={"subdomain": "net"}), train_job({}))
    assert env(main(objects, "work"))["JAX_COORDINATOR_ADDRESS"] == "digits-node-0-0.digits:29500"


def test_unknown_nodes() -> None:
    unknown = Unknown("n")
    objects = rendered(jax(), train_job({"numNodes": unknown}))
    assert pods(objects)["parallelism"] is env(main(objects))["JAX_NUM_PROCESSES"] is unknown
