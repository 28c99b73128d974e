"""The plugins of the examples and of the documentation, on documents. `tests/engine/test_plugins.py` runs them."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.trainer.pipeline import registry

from tests.documented import blocks
from tests.trainer import render, validate

ROOT = Path(__file__).resolve().parents[2]
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


@pytest.fixture(autouse=True)
def none_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", [])


def plugin(folder: str, module: str, name: str) -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "examples" / "plugins" / folder))
    loaded = importlib.import_module(module)
    del sys.path[0]
    registry.register_plugin(getattr(loaded, name)())
    yield loaded
    del sys.modules[module]


@pytest.fixture
def tensorflow() -> Iterator[ModuleType]:
    yield from plugin("tensorflow", "tensorflow_plugin", "TensorFlow")


@pytest.fixture
def paddle() -> Iterator[ModuleType]:
    yield from plugin("paddle", "paddle_plugin", "Paddle")


def step(name: str, ancestor: str = "", **container: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": "node", "image": f"{name}:1", **container}], "volumes": []}
    labels = {"metadata": {"labels": {STEP: ancestor}}} if ancestor else {}
    return {"name": name, "template": {**labels, "spec": {"template": {"spec": pod}}}}


def runtime(policy: dict[str, Any], *steps: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": list(steps), **spec}}}}


def roles(*names: str) -> list[dict[str, Any]]:
    return [step(n, "trainer" if n in ("worker", "chief") else "") for n in names]


def job(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "j"}, "spec": {"runtimeRef": {"name": "r"}, "trainer": {}, **spec}}


def rendered(runtime_: dict[str, Any], job_: dict[str, Any]) -> dict[str, Any]:
    jobs = render(runtime_, job_).objects["JobSet/j"]["spec"]["replicatedJobs"]
    return {j["name"]: j["template"]["spec"] for j in jobs}


def node(jobs: dict[str, Any], name: str) -> Any:
    return jobs[name]["template"]["spec"]["containers"][0]


def env(jobs: dict[str, Any], name: str) -> dict[str, Any]:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in node(jobs, name)["env"]}


INDEX = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}


def test_tf_config_of_each_role(tensorflow: ModuleType) -> None:
    policy = {"numNodes": 3, "tensorflow": {"parameterServers": 2, "port": 4000}}
    jobs = rendered(runtime(policy, *roles("worker", "chief", "ps", "evaluator")), job())
    cluster = {
        "chief": ["j-chief-0-0.j:4000"],
        "worker": [f"j-worker-0-{i}.j:4000" for i in range(3)],
        "ps": [f"j-ps-0-{i}.j:4000" for i in range(2)],
    }
    for role, count in {"worker": 3, "chief": 1, "ps": 2, "evaluator": 1}.items():
        assert jobs[role]["completions"] == jobs[role]["parallelism"] == count
        assert list(env(jobs, role)) == ["TASK_INDEX", "TF_CONFIG"]  # $(TASK_INDEX) has to stand before its use
        assert env(jobs, role)["TASK_INDEX"] == INDEX
        config = json.loads(env(jobs, role)["TF_CONFIG"].replace("$(TASK_INDEX)", "0"))
        assert config == {"cluster": cluster, "task": {"type": role, "index": 0}}
        assert node(jobs, role)["ports"] == [{"containerPort": 4000}]


def test_tf_config_without_chief_and_ps(tensorflow: ModuleType) -> None:
    given = runtime({"tensorflow": {}}, *roles("worker"), network={"subdomain": "net"})
    jobs = rendered(given, job(trainer={"numNodes": 2}))
    config = env(jobs, "worker")["TF_CONFIG"].replace("$(TASK_INDEX)", "1")
    hosts = ["j-worker-0-0.net:2222", "j-worker-0-1.net:2222"]
    assert json.loads(config) == {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": 1}}


def test_all_roles_run_the_trainers_program_with_their_own_resources(tensorflow: ModuleType) -> None:
    mount = {"name": "code", "mountPath": "/code"}
    volume = {"name": "code", "configMap": {"name": "code"}}
    pod = {"volumes": [volume], "containers": [{"name": "node", "volumeMounts": [mount]}]}
    change = {"replicatedJobs": [{"name": "worker", "template": {"spec": {"template": {"spec": pod}}}}]}
    patch = {"manager": "a/b", "time": "2026-01-31T09:30:00Z", "trainingRuntimeSpec": {"template": {"spec": change}}}
    trainer = {
        "image": "tf:2", "command": ["python"], "args": ["x.py"], "env": [{"name": "A", "value": "b"}],
        "resourcesPerNode": {"limits": {"nvidia.com/gpu": "1"}},
    }  # fmt: skip
    given = runtime({"tensorflow": {}}, *roles("worker", "chief"), step("ps", resources={"limits": {"cpu": "2"}}))
    jobs = rendered(given, job(trainer=trainer, runtimePatches=[patch]))
    for role in ("worker", "chief", "ps"):
        container = node(jobs, role)
        assert (container["image"], container["command"], container["args"]) == ("tf:2", ["python"], ["x.py"])
        assert env(jobs, role)["A"] == "b"
        assert container["volumeMounts"] == [mount] and jobs[role]["template"]["spec"]["volumes"] == [volume]
    gpu = {"limits": {"nvidia.com/gpu": "1"}}
    assert [node(jobs, r)["resources"] for r in ("worker", "chief", "ps")] == [gpu, gpu, {"limits": {"cpu": "2"}}]
    plain = rendered(runtime({"tensorflow": {}}, *roles("worker"), step("ps", command=["a"], args=["b"])), job())
    assert (node(plain, "ps")["image"], node(plain, "ps")["command"], node(plain, "ps")["args"]) == (
        "ps:1",
        ["a"],
        ["b"],
    )


def test_tf_config_is_unknown_while_a_count_is(tensorflow: ModuleType) -> None:
    count = Unknown("n")
    jobs = rendered(runtime({"numNodes": count, "tensorflow": {}}, *roles("worker", "ps")), job())
    assert jobs["worker"]["completions"] == env(jobs, "ps")["TF_CONFIG"] == count
    assert not validate(runtime({"tensorflow": {}}, *roles("worker")), job(trainer={"env": count}))
    assert (
        env(rendered(runtime({"tensorflow": {"port": count}}, *roles("worker")), job()), "worker")["TF_CONFIG"] == count
    )


def test_what_tensorflow_refuses(tensorflow: ModuleType) -> None:
    wrong = validate(
        runtime({"tensorflow": {}}, *roles("ps")), job(trainer={"env": [{"name": "TF_CONFIG", "value": "x"}]})
    )
    assert [p.where for p in wrong] == ["spec.runtimeRef", "spec.trainer.env"]
    assert not validate(runtime({"tensorflow": {}}, *roles("worker")), job())
    assert not validate(runtime({}, *roles("ps")), job())
    assert render(runtime({"tensorflow": {}}, *roles("ps")), job()).objects


def test_paddles_environment(paddle: ModuleType) -> None:
    given = runtime(
        {"numNodes": 2, "paddle": {"masterPort": 7000}}, step("node", "trainer"), network={"subdomain": "s"}
    )
    jobs = rendered(given, job())
    assert env(jobs, "node") == {
        "PADDLE_TRAINER_ID": INDEX,
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ENDPOINTS": "j-node-0-0.s:6070,j-node-0-1.s:6070",
        "PADDLE_CURRENT_ENDPOINT": "j-node-0-$(PADDLE_TRAINER_ID).s:6070",
        "PADDLE_MASTER": "j-node-0-0.s:7000",
    }
    ports = [{"name": "trainer", "containerPort": 6070}, {"name": "master", "containerPort": 7000}]
    assert node(jobs, "node")["ports"] == ports
    count = Unknown("n")
    unknown = env(rendered(runtime({"paddle": {}}, step("node", "trainer")), job(trainer={"numNodes": count})), "node")
    assert [v for v in unknown.values() if isinstance(v, Unknown)] == [count] * 4


def test_what_paddle_refuses(paddle: ModuleType) -> None:
    (problem,) = paddle.PaddlePolicy.problems({"port": 7000, "masterPort": 7000})
    assert (problem.where, problem.why) == (
        "spec.mlPolicy.paddle",
        "port and masterPort must differ: the first node listens on both",
    )
    taken = job(trainer={"env": [{"name": "PADDLE_MASTER", "value": "x"}]})
    (problem,) = validate(runtime({"paddle": {}}, step("node", "trainer")), taken)
    assert problem.where == "spec.trainer.env" and "PADDLE_MASTER" in problem.why
    assert not validate(runtime({}, step("node", "trainer")), taken)


def test_the_plugin_of_the_documentation() -> None:
    (code,) = (block.text for block in blocks("docs/plugins.md", __file__))
    assert len([line for line in code.splitlines() if line.strip() and not line.startswith("#")]) <= 20
    module: dict[str, Any] = {"__name__": "horovod_plugin"}
    exec(compile(code, "horovod_plugin.py", "exec", dont_inherit=True), module)
    registry.register_plugin(module["Horovod"]())
    jobs = rendered(runtime({"horovod": {"cycleTime": 2}}, step("node", "trainer")), job())
    assert env(jobs, "node") == {"HOROVOD_CYCLE_TIME": "2"}
    assert module["HorovodPolicy"](num_nodes=4, cycle_time=2).document() == {"numNodes": 4, "horovod": {"cycleTime": 2}}
