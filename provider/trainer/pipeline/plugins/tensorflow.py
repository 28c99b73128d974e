"""TensorFlow: TF_CONFIG for the roles chief, worker, ps and evaluator. Kubeflow Trainer does not have this policy.

https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Annotated, Any

from pulumi_trainer.provider.jobs.nodes import given_nodes, nodes_of
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import items
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.trainer.labels import NODE_OFFSET
from pulumi_trainer.provider.trainer.pipeline.apply import upsert, upsert_ports
from pulumi_trainer.provider.trainer.pipeline.info import (
    COMPLETION_INDEX,
    NODE,
    TRAINER,
    Container,
    Info,
    PodSet,
    TrainJob,
)
from pulumi_trainer.provider.trainer.pipeline.interface import (
    CustomValidationPlugin,
    EnforceMLPolicyPlugin,
    PreComponentBuilderPlugin,
)
from pulumi_trainer.provider.trainer.pipeline.policy import Policy
from pydantic import Field

CLUSTER = ("chief", "worker", "ps")
ROLES = (*CLUSTER, "evaluator")
"""The evaluator knows the cluster, but is not part of it."""
CONFIG = "TF_CONFIG"
INDEX = "TRAINER_TASK_INDEX"
VARIABLES = (INDEX, CONFIG, NODE_OFFSET)


class TensorFlowPolicy(Policy):  # type: ignore[metaclass]  # that of pydantic has no public name
    """`mlPolicy.tensorflow`; `numNodes` counts the workers. port: The first task's; below the ephemeral ports of Linux."""

    serves = "mlPolicy.tensorflow"
    ps: Annotated[int, Field(ge=0)] = 0
    chief: Annotated[int, Field(ge=0, le=1)] = 0
    evaluator: Annotated[int, Field(ge=0, le=1)] = 0
    port: Annotated[int, Field(ge=1024, le=32767)] = 2222


class TensorFlow(CustomValidationPlugin, EnforceMLPolicyPlugin, PreComponentBuilderPlugin):
    """Makes a replicated job for each role: the runtime's of this name, else a copy of that of the workers."""

    name = "TensorFlow"
    policies = (TensorFlowPolicy,)

    def validate(self, info: Info, train_job: TrainJob) -> Iterator[Problem]:
        policy = TensorFlowPolicy.read(info)
        if policy is None:
            return
        given = {env.get("name") for env in items(train_job.trainer, "env")}
        taken = [name for name in VARIABLES if name in given]
        if taken:
            yield Problem("spec.trainer.env", f"the runtime's policy sets {', '.join(taken)}", "leave out what it sets")
        workers = _pods_of_roles(info).get("worker", [])
        if len(workers) > 1:
            names = ", ".join(pods.name for pods in workers)
            why = f"only one replicated job with the ancestor trainer may run the workers, and {names} would"
            yield Problem("spec.runtimeRef", why, "name the others after their roles: chief, ps, evaluator")
        if not workers and not info.may_have_more():
            why = "must have a replicated job with the ancestor trainer, from which the roles of TensorFlow are made"
            yield Problem("spec.runtimeRef", why)
        for pods in info.pod_sets:
            if pods.name in ROLES and pods.ancestor != TRAINER:
                why = (
                    f"the replicated job {pods.name} must have the ancestor trainer, as it runs the TrainJob's program"
                )
                yield Problem("spec.runtimeRef", why, "declare the ancestor of each replicated job that trains")
        yield from _count_problems(policy, info, train_job)

    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
        """Set the Pods of each role, and which roles end the job: parameter servers never end, workers wait for the chief."""
        policy, workers = TensorFlowPolicy.read(info), _workers(info)
        if policy is None or workers is None:
            return
        workers.count = nodes_of(train_job.trainer, info.ml_policy)
        roles = {"chief": policy.chief, "ps": policy.ps, "evaluator": policy.evaluator}
        for role, count in roles.items():
            pods = info.pod_set(role)
            if pods is None and count != 0:
                pods = _copy_pods(workers, role)
                place = 0 if role == "chief" else len(info.pod_sets)  # the first trainer is rank 0, whose metrics count
                info.pod_sets.insert(place, pods)
            if pods is not None:
                pods.count = count
        info.pod_sets = [pods for pods in info.pod_sets if pods.count != 0]
        info.spec["replicatedJobs"] = [pods.job for pods in info.pod_sets]
        if any(count != 0 for count in roles.values()):
            last = workers.name
            if policy.chief != 0:
                last = "chief"
            info.spec.setdefault("successPolicy", {"operator": "All", "targetReplicatedJobs": [last]})

    def pre_build_sync(self, info: Info, train_job: TrainJob) -> None:  # noqa: ARG002
        policy = TensorFlowPolicy.read(info)
        if policy is None:
            return
        tasks = _tasks(info)
        counts: list[Any] = [pods.count for pods, _ in tasks.values()]
        unknown = first_unknown([policy.port, *counts])
        ports = {} if unknown else _ports(tasks, policy.port)
        cluster = json.dumps(_cluster(tasks, ports))
        for place, (role, (pods, container)) in enumerate(tasks.items()):
            config = f'{{"cluster": {cluster}, "task": {{"type": "{role}", "index": $({INDEX})}}}}'
            env = [
                {"name": INDEX, "valueFrom": {"fieldRef": {"fieldPath": COMPLETION_INDEX}}},
                {"name": CONFIG, "value": unknown or config},
            ]
            if place != 0:
                before = counts[:place]
                env.append({"name": NODE_OFFSET, "value": first_unknown(before) or str(sum(before))})
            pods.remove_env(container, VARIABLES)
            container.env = upsert(container.env, env, "name")
            declared = [{"name": f"tf-{port}", "containerPort": port} for port in ports.get(role, ())]
            container.ports = upsert_ports(container.ports, declared)


def _count_problems(policy: TensorFlowPolicy, info: Info, train_job: TrainJob) -> Iterator[Problem]:
    """Yield why the counts of the roles are not a cluster that trains."""
    workers = nodes_of(train_job.trainer, info.ml_policy)
    where = "spec.mlPolicy.numNodes"
    if given_nodes(train_job.trainer) is not None:
        where = "spec.trainer.numNodes"
    if isinstance(workers, int) and workers < 0:
        yield Problem(where, f"a job cannot have {workers} workers", "give 0 or more")
    elif workers == 0 and policy.chief == 0:
        why = "no role trains: the job has neither workers nor a chief"
        yield Problem(where, why, "give 1 worker or more, or a chief")
    if workers == 0 and policy.ps != 0:
        why = "parameter servers need workers, and the job has none"
        yield Problem("spec.mlPolicy.tensorflow.ps", why, "give 1 worker or more")


def _workers(info: Info) -> PodSet | None:
    """Return the Pods of the job that trains and has no other role, whatever its name; None if not found."""
    found = _pods_of_roles(info).get("worker")
    if not found:
        return None
    return found[0]


def _pods_of_roles(info: Info) -> dict[str, list[PodSet]]:
    """Return the Pods of each role that the job has: those of a job without the name of a role are workers."""
    found: dict[str, list[PodSet]] = {}
    for pods in info.pod_sets:
        if pods.ancestor == TRAINER:
            role = pods.name if pods.name in ROLES else "worker"
            found.setdefault(role, []).append(pods)
    return found


def _copy_pods(workers: PodSet, role: str) -> PodSet:
    made = copy.deepcopy(workers)
    made.name = made.job["name"] = role
    return made


def _tasks(info: Info) -> dict[str, tuple[PodSet, Container]]:
    """Return the Pods of each role in the order of `ROLES`, with the container that trains."""
    found: dict[str, tuple[PodSet, Container]] = {}
    pods_of = _pods_of_roles(info)
    for role in ROLES:
        for pods in pods_of.get(role, [])[:1]:
            container = pods.container(NODE)
            if container is not None:
                found[role] = (pods, container)
    return found


def _ports(tasks: dict[str, tuple[PodSet, Container]], port: int) -> dict[str, range]:
    """Return the ports of the tasks of each role, all different.

    TensorFlow listens on a port of all addresses, so tasks that share a machine need different ports.
    """
    found: dict[str, range] = {}
    for role in CLUSTER:
        if role in tasks:
            count = tasks[role][0].count
            assert isinstance(count, int)
            found[role] = range(port, port + count)
            port += count
    return found


def _cluster(tasks: dict[str, tuple[PodSet, Container]], ports: dict[str, range]) -> dict[str, list[str]]:
    """Return the addresses of the tasks of each role."""
    cluster: dict[str, list[str]] = {}
    for role, numbers in ports.items():
        hosts = tasks[role][0].endpoints()
        cluster[role] = [f"{host}:{port}" for host, port in zip(hosts, numbers, strict=True)]
    return cluster
