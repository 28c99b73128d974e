"""PaddlePaddle's collective training as a framework of pulumi-trainer: the PADDLE_* environment of every node.

https://github.com/PaddlePaddle/Paddle/blob/v3.2.0/python/paddle/distributed/parallel.py
"""

from collections.abc import Iterator
from typing import Annotated

from pulumi_trainer.plugins import (
    COMPLETION_INDEX,
    CustomValidationPlugin,
    Info,
    Policy,
    PreComponentBuilderPlugin,
    Problem,
    TrainJob,
    first_unknown,
    items,
    upsert,
    upsert_ports,
)
from pydantic import Field, model_validator

Port = Annotated[int, Field(ge=1024, le=65535)]


class PaddlePolicy(Policy):
    """`mlPolicy.paddle`. port: on which every trainer listens. master_port: of the store, on the first node."""

    serves = "mlPolicy.paddle"
    port: Port = 6070
    master_port: Port = 6071

    @model_validator(mode="after")
    def _two_ports(self) -> "PaddlePolicy":
        if self.port == self.master_port:
            raise ValueError("port and masterPort must differ: the first node listens on both")
        return self


class Paddle(CustomValidationPlugin, PreComponentBuilderPlugin):
    name = "Paddle"
    policies = (PaddlePolicy,)
    launcher = ("python3",)

    def validate(self, info: Info, train_job: TrainJob) -> Iterator[Problem]:
        names = {env.get("name", "") for env in items(train_job.trainer, "env")}
        if PaddlePolicy.read(info) and (taken := sorted(names & {env["name"] for env in _env("", "", "", "")})):
            yield Problem("spec.trainer.env", f"{', '.join(taken)} come from the runtime", "leave them out")

    def pre_build_sync(self, info: Info, train_job: TrainJob) -> None:
        policy, pods, container = PaddlePolicy.read(info), info.trainer_pod_set, info.trainer_container
        if policy is None or pods is None or container is None:
            return
        if unknown := first_unknown([pods.count, policy.port, policy.master_port]):
            env = _env(unknown, unknown, unknown, unknown)
        else:
            hosts = list(pods.endpoints())
            name, _, domain = hosts[0].partition(".")
            mine = f"{name.removesuffix('0')}$(PADDLE_TRAINER_ID).{domain}"
            endpoints = ",".join(f"{host}:{policy.port}" for host in hosts)
            env = _env(str(pods.count), endpoints, f"{mine}:{policy.port}", f"{hosts[0]}:{policy.master_port}")
        container.env = upsert(container.env, env, "name")
        ports = {"trainer": policy.port, "master": policy.master_port}
        declared = [{"name": name, "containerPort": port} for name, port in ports.items()]
        container.ports = upsert_ports(container.ports, declared)


def _env(count, endpoints, mine, master):
    return [
        {"name": "PADDLE_TRAINER_ID", "valueFrom": {"fieldRef": {"fieldPath": COMPLETION_INDEX}}},
        {"name": "PADDLE_TRAINERS_NUM", "value": count},
        {"name": "PADDLE_TRAINER_ENDPOINTS", "value": endpoints},
        {"name": "PADDLE_CURRENT_ENDPOINT", "value": mine},
        {"name": "PADDLE_MASTER", "value": master},
    ]
