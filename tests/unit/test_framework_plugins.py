"""The plugins of this package, and that of the documentation, on documents. `tests/frameworks` trains with them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pulumi_trainer.args import policies
from pulumi_trainer.provider.jobs.nodes import training_pods
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.trainer.labels import trainer_step
from pulumi_trainer.provider.trainer.pipeline import registry
from pulumi_trainer.provider.trainer.pipeline.interface import EnforceMLPolicyPlugin
from pulumi_trainer.provider.trainer.pipeline.plugins.paddle import Paddle
from pulumi_trainer.provider.trainer.pipeline.plugins.tensorflow import TensorFlow
from pulumi_trainer.provider.trainer.pipeline.policy import Policy

from tests.documented import blocks
from tests.trainer import render, validate

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


class Mine(EnforceMLPolicyPlugin):
    name = "Mine"
    policies = Paddle.policies

    def enforce_ml_policy(self, info: Any, train_job: Any) -> None: ...


@pytest.fixture(autouse=True)
def none_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", [])


def step(name: str, ancestor: str = "", **container: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": "node", "image": f"{name}:1", **container}], "volumes": []}
    labels = {"metadata": {"labels": {STEP: ancestor}}} if ancestor else {}
    return {"name": name, "template": {**labels, "spec": {"template": {"spec": pod}}}}


def runtime(policy: dict[str, Any], *steps: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": list(steps), **spec}}}}


def job(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "j"}, "spec": {"runtimeRef": {"name": "r"}, "trainer": {}, **spec}}


def jobset(runtime_: dict[str, Any], job_: dict[str, Any]) -> dict[str, Any]:
    return dict(render(runtime_, job_).objects["JobSet/j"]["spec"])


def rendered(runtime_: dict[str, Any], job_: dict[str, Any]) -> dict[str, Any]:
    return {j["name"]: j["template"]["spec"] for j in jobset(runtime_, job_)["replicatedJobs"]}


def node(jobs: dict[str, Any], name: str) -> Any:
    return jobs[name]["template"]["spec"]["containers"][0]


def env(jobs: dict[str, Any], name: str) -> dict[str, Any]:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in node(jobs, name)["env"]}


def config_of(jobs: dict[str, Any], name: str) -> Any:
    return json.loads(env(jobs, name)["TF_CONFIG"].replace("$(TRAINER_TASK_INDEX)", "0"))


INDEX = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}


WORKERS = ("node", "trainer")


def test_tf_config_of_each_role() -> None:
    policy = {"numNodes": 3, "tensorflow": {"chief": 1, "ps": 2, "evaluator": 1, "port": 4000}}
    jobs = rendered(runtime(policy, step(*WORKERS)), job())
    assert list(jobs) == ["chief", "node", "ps", "evaluator"], "the first one that trains is rank 0"
    cluster = {
        "chief": ["j-chief-0-0.j:4000"],
        "worker": [f"j-node-0-{i}.j:{4001 + i}" for i in range(3)],
        "ps": [f"j-ps-0-{i}.j:{4004 + i}" for i in range(2)],
    }
    for name, role, count, before in [
        ("node", "worker", 3, "1"),
        ("chief", "chief", 1, None),
        ("ps", "ps", 2, "4"),
        ("evaluator", "evaluator", 1, "6"),
    ]:
        assert jobs[name]["completions"] == jobs[name]["parallelism"] == count
        assert list(env(jobs, name))[:2] == ["TRAINER_TASK_INDEX", "TF_CONFIG"]  # the index has to stand before its use
        assert env(jobs, name).get("TRAINER_NODE_OFFSET") == before, "each task has a number of its own in the job"
        assert env(jobs, name)["TRAINER_TASK_INDEX"] == INDEX
        config = json.loads(env(jobs, name)["TF_CONFIG"].replace("$(TRAINER_TASK_INDEX)", "0"))
        assert config == {"cluster": cluster, "task": {"type": role, "index": 0}}


def test_workers_alone() -> None:
    given = runtime({"tensorflow": {}}, step("worker", "trainer"), network={"subdomain": "net"})
    jobs = rendered(given, job(trainer={"numNodes": 2}))
    config = env(jobs, "worker")["TF_CONFIG"].replace("$(TRAINER_TASK_INDEX)", "1")
    hosts = ["j-worker-0-0.net:2222", "j-worker-0-1.net:2223"]
    assert json.loads(config) == {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": 1}}
    assert "successPolicy" not in jobset(given, job())


@pytest.mark.parametrize(
    ("tensorflow", "ends"), [({"ps": 1}, "node"), ({"ps": 1, "chief": 1}, "chief"), ({"evaluator": 1}, "node")]
)
def test_which_role_ends_the_job(tensorflow: dict[str, Any], ends: str) -> None:
    found = jobset(runtime({"tensorflow": tensorflow}, step(*WORKERS)), job())
    assert found["successPolicy"] == {"operator": "All", "targetReplicatedJobs": [ends]}
    own = {"operator": "Any", "targetReplicatedJobs": ["node"]}
    assert jobset(runtime({"tensorflow": tensorflow}, step(*WORKERS), successPolicy=own), job())["successPolicy"] == own


def test_the_index_stands_before_a_tf_config_of_the_template() -> None:
    given = [{"name": name, "value": name} for name in ("TF_CONFIG", "A", "TRAINER_TASK_INDEX", "B")]
    jobs = rendered(runtime({"tensorflow": {"ps": 1}}, step(*WORKERS, env=given)), job())
    assert list(env(jobs, "node")) == ["A", "B", "TRAINER_TASK_INDEX", "TF_CONFIG"]
    assert list(env(jobs, "ps")) == ["A", "B", "TRAINER_TASK_INDEX", "TF_CONFIG", "TRAINER_NODE_OFFSET"]
    unknown = rendered(runtime({"tensorflow": {}}, step(*WORKERS, env=Unknown("e"))), job())
    assert node(unknown, "node")["env"] == Unknown("e")


@pytest.mark.parametrize(
    ("tensorflow", "declared", "leads"),
    [
        ({"ps": 1}, ["ps", "node"], "node"),
        ({"ps": 1, "chief": 1}, ["ps", "node", "chief"], "chief"),
        ({"ps": 1, "chief": 1}, ["node"], "chief"),
        ({}, ["node"], "node"),
    ],
)
def test_the_leading_role_is_rank_0(tensorflow: dict[str, Any], declared: list[str], leads: str) -> None:
    """In whatever order the template has them. The job shows what its first task reports."""
    steps = [step(name, "trainer") for name in declared]
    made = render(runtime({"tensorflow": tensorflow}, *steps), job()).objects["JobSet/j"]
    assert trainer_step(made) == leads


def test_a_chief_trains_alone() -> None:
    jobs = rendered(runtime({"numNodes": 0, "tensorflow": {"chief": 1}}, step(*WORKERS)), job())
    config = env(jobs, "chief")["TF_CONFIG"].replace("$(TRAINER_TASK_INDEX)", "0")
    assert list(jobs) == ["chief"] and json.loads(config)["cluster"] == {"chief": ["j-chief-0-0.j:2222"]}


def test_roles_run_the_trainers_program_and_the_runtime_may_have_a_job_for_each() -> None:
    mount = {"name": "code", "mountPath": "/code"}
    volume = {"name": "code", "configMap": {"name": "code"}}
    pod = {"volumes": [volume], "containers": [{"name": "node", "volumeMounts": [mount]}]}
    changed = [{"name": name, "template": {"spec": {"template": {"spec": pod}}}} for name in ("node", "ps")]
    change = {"template": {"spec": {"replicatedJobs": changed}}}
    patch = {"manager": "a/b", "time": "2026-01-31T09:30:00Z", "trainingRuntimeSpec": change}
    trainer = {"image": "tf:2", "command": ["python"], "args": ["x.py"], "env": [{"name": "A", "value": "b"}]}
    gpu, cpu = {"limits": {"nvidia.com/gpu": "1"}}, {"limits": {"cpu": "2"}}
    steps = [step("ps", "trainer", resources=cpu), step(*WORKERS, resources=gpu), step("evaluator", "trainer")]
    policy = {"tensorflow": {"chief": 1, "ps": 1}}
    jobs = rendered(runtime(policy, *steps), job(trainer=trainer, runtimePatches=[patch]))
    assert list(jobs) == ["chief", "ps", "node"], "the policy has no evaluator"
    for role in jobs:
        container = node(jobs, role)
        assert (container["image"], container["command"], container["args"]) == ("tf:2", ["python"], ["x.py"])
        assert env(jobs, role)["A"] == "b"
        assert container["volumeMounts"] == [mount] and jobs[role]["template"]["spec"]["volumes"] == [volume]
    assert [node(jobs, role)["resources"] for role in ("chief", "node", "ps")] == [gpu, gpu, cpu]
    assert config_of(jobs, "ps")["cluster"]["worker"] == ["j-node-0-0.j:2223"], "whatever the order of the template"


def test_tf_config_is_unknown_while_a_count_is() -> None:
    count = Unknown("n")
    given = ({"numNodes": count, "tensorflow": {"ps": 1}}, count), ({"tensorflow": {"ps": count}}, "1")
    for policy, before in given:
        jobs = rendered(runtime(policy, step(*WORKERS)), job())
        assert env(jobs, "node")["TF_CONFIG"] == env(jobs, "ps")["TF_CONFIG"] == count
        assert env(jobs, "ps")["TRAINER_NODE_OFFSET"] == before
    assert jobs["ps"]["completions"] == count
    assert not validate(runtime({"tensorflow": {}}, step(*WORKERS)), job(trainer={"env": count}))


@pytest.mark.parametrize(
    ("policy", "trainer", "found"),
    [
        ({"numNodes": 0, "tensorflow": {}}, {}, [("spec.mlPolicy.numNodes", "no role trains")]),
        ({"tensorflow": {}}, {"numNodes": 0}, [("spec.trainer.numNodes", "no role trains")]),
        ({"numNodes": 0, "tensorflow": {"ps": 1, "chief": 1}}, {}, [("spec.mlPolicy.tensorflow.ps", "need workers")]),
        ({"numNodes": 0, "tensorflow": {"chief": 1}}, {}, []),
        ({"numNodes": -2, "tensorflow": {"chief": 1}}, {}, [("spec.mlPolicy.numNodes", "cannot have -2 workers")]),
        (
            {"tensorflow": {}},
            {"env": [{"name": name, "value": "1"} for name in ("TF_CONFIG", "TASK_INDEX", "TRAINER_TASK_INDEX")]},
            [("spec.trainer.env", "policy sets TRAINER_TASK_INDEX, TF_CONFIG")],
        ),
        ({"tensorflow": {}}, {"env": [{"name": "TASK_INDEX", "value": "1"}]}, []),
    ],
)
def test_what_tensorflow_refuses(policy: dict[str, Any], trainer: dict[str, Any], found: list[tuple[str, str]]) -> None:
    problems = validate(runtime(policy, step(*WORKERS)), job(trainer=trainer))
    assert [p.where for p in problems] == [where for where, _ in found]
    assert all(why in problem.why for problem, (_, why) in zip(problems, found, strict=True))


def test_replicated_jobs_that_tensorflow_refuses() -> None:
    (problem,) = validate(runtime({"tensorflow": {"ps": 1}}, step(*WORKERS), step("ps")), job())
    assert problem.where == "spec.runtimeRef" and "ps must have the ancestor trainer" in problem.why
    alone = runtime({"tensorflow": {"ps": 1}}, step("ps", "trainer"))
    (problem,) = validate(alone, job())
    assert "from which the roles of TensorFlow are made" in problem.why and render(alone, job()).objects
    assert not validate(runtime({}, step("ps")), job())
    two = runtime({"tensorflow": {}}, step(*WORKERS), step("other", "trainer"), step("ps", "trainer"))
    (problem,) = validate(two, job())
    assert problem.where == "spec.runtimeRef" and "may run the workers, and node, other would" in problem.why


def test_counts_that_are_not_a_cluster() -> None:
    def problems(**counts: int) -> list[tuple[str, str]]:
        return [(p.where.removeprefix("spec.mlPolicy."), p.why) for p in TensorFlow.policies[0].problems(counts)]

    assert problems(chief=2) == [("tensorflow.chief", "must be less than or equal to 1, not 2")]
    assert problems(ps=-1) == [("tensorflow.ps", "must be greater than or equal to 0, not -1")]
    assert [where for where, _ in problems(evaluator=2, port=80)] == ["tensorflow.evaluator", "tensorflow.port"]


def test_pods_of_a_job_with_roles() -> None:
    """So many may mount a volume: more than one need ReadWriteMany."""
    count = Unknown("n")
    assert training_pods(1, {"tensorflow": {"chief": 1, "ps": 2, "port": 4000}}) == 4
    assert training_pods(1, {"tensorflow": {"ps": count}}) == training_pods(count, {}) == count
    assert (training_pods(2, {"torch": {}}), training_pods(2, {"mpi": {}})) == (2, 3)


def test_paddles_variables() -> None:
    given = runtime({"numNodes": 2, "paddle": {"port": 7000}}, step(*WORKERS), network={"subdomain": "s"})
    variables = {
        "PADDLE_RANK": INDEX,
        "PADDLE_NNODES": "2",
        "PADDLE_MASTER": "j-node-0-0.s:7000",
        "POD_IP": "j-node-0-$(PADDLE_RANK).s",
        "PADDLE_DISTRI_BACKEND": "gloo",
    }
    jobs = rendered(given, job())
    assert env(jobs, "node") == variables and node(jobs, "node")["ports"] == [{"containerPort": 7000}]
    own = [{"name": "POD_IP", "value": "x"}, {"name": "A", "value": "b"}]
    again = rendered(runtime({"paddle": {}}, step(*WORKERS, env=own)), job())
    assert list(env(again, "node"))[-4:] == ["PADDLE_RANK", "PADDLE_NNODES", "PADDLE_MASTER", "POD_IP"]
    eight = rendered(given, job(trainer={"numProcPerNode": 8}))
    assert env(eight, "node") == {**variables, "PADDLE_NPROC_PER_NODE": "8"}
    for limits in ({"nvidia.com/gpu": "1"}, {"nvidia.com/mig-1g.10gb": "1"}, Unknown("n")):
        jobs = rendered(given, job(trainer={"resourcesPerNode": {"limits": limits}}))
        assert "PADDLE_DISTRI_BACKEND" not in env(jobs, "node")
    count = Unknown("n")
    unknown = env(rendered(runtime({"paddle": {}}, step(*WORKERS)), job(trainer={"numNodes": count})), "node")
    assert [v for v in unknown.values() if isinstance(v, Unknown)] == [count] * 3


def test_what_paddle_refuses() -> None:
    taken = job(trainer={"env": [{"name": "PADDLE_MASTER", "value": "x"}, {"name": "POD_IP", "value": "y"}]})
    (problem,) = validate(runtime({"paddle": {}}, step(*WORKERS)), taken)
    assert problem.where == "spec.trainer.env" and problem.why.startswith("PADDLE_MASTER, POD_IP come from")
    assert not validate(runtime({}, step(*WORKERS)), taken)


@pytest.mark.parametrize(
    ("typed", "own"), [(policies.TensorFlowPolicy, TensorFlow.policies[0]), (policies.PaddlePolicy, Paddle.policies[0])]
)
def test_programs_have_the_fields_of_the_plugin(typed: type[policies.MLPolicy], own: type[Policy]) -> None:
    assert {*typed.fields} - {"num_nodes", "workers"} == {*own.model_fields}
    assert f"mlPolicy.{typed.framework}" == own.serves


def test_shipped_policies_are_alone_in_a_runtime_and_not_for_trainers_controller() -> None:
    with pytest.raises(Invalid, match="conflicts with tensorflow"):
        render(runtime({"tensorflow": {}, "paddle": {}}, step(*WORKERS)), job())
    with pytest.raises(Invalid, match="use mode jobset"):
        render(runtime({"tensorflow": {}}, step(*WORKERS)), job(), mode="trainer")
    with pytest.raises(Invalid, match=r"mlPolicy\.paddle is already served by plugin Paddle"):
        registry.register_plugin(Mine())


def test_the_plugin_of_the_documentation() -> None:
    (code,) = (block.text for block in blocks("docs/plugins.md", __file__))
    assert len([line for line in code.splitlines() if line.strip() and not line.startswith("#")]) <= 20
    module: dict[str, Any] = {"__name__": "horovod_plugin"}
    exec(compile(code, "horovod_plugin.py", "exec", dont_inherit=True), module)
    registry.register_plugin(module["Horovod"]())
    jobs = rendered(runtime({"horovod": {"cycleTime": 2}}, step("node", "trainer")), job())
    assert env(jobs, "node") == {"HOROVOD_CYCLE_TIME": "2"}
    assert module["HorovodPolicy"](num_nodes=4, cycle_time=2).document() == {"numNodes": 4, "horovod": {"cycleTime": 2}}
