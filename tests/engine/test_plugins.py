"""Own frameworks: the examples as a user runs them, and what is said of a plugin that is wrong."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.jobs.lineage import with_identity
from pulumi_trainer.provider.jobs.runs import Identity

from .conftest import Project
from .test_examples import previewed_objects

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def example(request: pytest.FixtureRequest, project: Project) -> Project:
    """An example, copied as a user would."""
    shutil.copytree(ROOT / "examples" / "plugins" / request.param, project.folder, dirs_exist_ok=True)
    project.name = request.param
    assert project.run("stack", "init").code == 0
    return project


def runs_as_previewed(project: Project) -> dict[str, Any]:
    """Brings it up; each leaf of the plan is what was then applied. The JobSet."""
    previewed = previewed_objects(project)
    up = project.up()
    assert "Succeeded" in up.out
    (resource,) = project.resources()
    applied = resource["inputs"]["objects"]
    assert applied == previewed
    (record,) = [json.loads(p.read_text()) for p in project.root.glob("jobs/*/*/record.json")]
    identified = with_identity(applied, Identity.from_dict(record["identity"]))
    assert all(record["objects"].get(key) == document for key, document in identified.items())
    assert "plugin" not in resource["inputs"]["__provider"]
    return next(document for key, document in applied.items() if key.startswith("JobSet/"))


def environment(jobset: dict[str, Any], step: str) -> dict[str, str]:
    job = next(j for j in jobset["spec"]["replicatedJobs"] if j["name"] == step)
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    return {e["name"]: e.get("value", "") for e in container["env"]}


@pytest.mark.core
@pytest.mark.parametrize("example", ["tensorflow"], indirect=True)
def test_tensorflow_roles_find_each_other(example: Project) -> None:
    jobset = runs_as_previewed(example)
    name = jobset["metadata"]["name"]
    config = environment(jobset, "ps")["TF_CONFIG"].replace("$(TASK_INDEX)", "1")
    cluster = {
        role: [f"{name}-{role}-0-{i}.{name}:2222" for i in range(n)]
        for role, n in [("chief", 1), ("worker", 2), ("ps", 2)]
    }
    assert json.loads(config) == {"cluster": cluster, "task": {"type": "ps", "index": 1}}
    logs = example.logs("roles")
    told = [(role, int(i), int(n)) for role, i, n in re.findall(r"(\w+) (\d) knows of (\d+)", logs)]
    tasks = [("chief", 0), ("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)]
    assert sorted(told) == [(*task, 11111) for task in tasks]
    assert "evaluator 0 hears of 11111" in logs
    again = example.up()
    assert "unchanged" in again.out and "created" not in again.out


@pytest.mark.parametrize("example", ["paddle"], indirect=True)
def test_paddle_trainers_pass_numbers_round(example: Project) -> None:
    jobset = runs_as_previewed(example)
    name = jobset["metadata"]["name"]
    env = environment(jobset, "node")
    hosts = [f"{name}-node-0-{i}.{name}" for i in range(3)]
    assert env["PADDLE_TRAINERS_NUM"] == "3" and env["PADDLE_MASTER"] == f"{hosts[0]}:6071"
    assert env["PADDLE_TRAINER_ENDPOINTS"] == ",".join(f"{host}:6170" for host in hosts)
    assert env["PADDLE_CURRENT_ENDPOINT"] == f"{name}-node-0-$(PADDLE_TRAINER_ID).{name}:6170"
    logs = example.logs("ring")
    assert sorted(re.findall(r"trainer (\d) of 3 knows of (\d+)", logs)) == [(str(i), "111") for i in range(3)]


RAY = """
from typing import Annotated
from pydantic import Field
from pulumi_trainer.plugins import EnforceMLPolicyPlugin, Policy, Unknown, upsert

class RayPolicy(Policy):
    serves = "mlPolicy.ray"
    port: Annotated[int, Field(ge=1024)] = 6379

class Ray(EnforceMLPolicyPlugin):
    name = "Ray"
    policies = (RayPolicy,)
    launcher = ("python3", "-X", "dev")

    def enforce_ml_policy(self, info, train_job):
        policy, container = RayPolicy.read(info), info.trainer_container
        if policy and container:
            value = policy.port if isinstance(policy.port, Unknown) else str(policy.port + 1)
            container.env = upsert(container.env, [{"name": "RAY_PORT", "value": value}], "name")
"""

JOB = """
import pulumi.dynamic
from ray_plugin import Ray, RayPolicy

class Maker(pulumi.dynamic.ResourceProvider):
    def create(self, props):
        return pulumi.dynamic.CreateResult("x", {"made": 7000})
class Other(pulumi.dynamic.Resource):
    made: pulumi.Output[int]
    def __init__(self, name):
        super().__init__(Maker(), name, {"made": None})

def runtime(name, policy):
    return trainer.ClusterTrainingRuntime(name, ml_policy=policy, template=trainer.JobSetTemplate(replicated_jobs=[
        trainer.ReplicatedJob(name="node", backoff_limit=0, pod_spec={
            "restart_policy": "Never", "containers": [{"name": "node", "image": "python:3.12"}],
        })
    ]))

def work():
    import os, sys
    print("port", os.environ["RAY_PORT"], "development", sys.flags.dev_mode, flush=True)
"""


@pytest.mark.core
def test_a_policy_takes_outputs_and_a_plugin_names_the_launcher(project: Project) -> None:
    (project.folder / "ray_plugin.py").write_text(RAY)
    project.program(
        JOB
        + """
trainer.register_plugin(Ray())
trainer.TrainJob(
    "job", runtime=runtime("ray", RayPolicy(port=Other("other").made, num_nodes=2)), wait_for="complete",
    trainer=trainer.CustomTrainer(func=work),
)
"""
    )
    preview = project.preview("--diff").out
    assert re.search(r"completions *: 2", preview) and "RAY_PORT" in preview and "7001" not in preview
    project.up()
    assert project.logs("job").count("port 7001 development True") == 2
    project.preview("--expect-no-changes")
    # Another version of the plugin does not touch the job that is there.
    (project.folder / "ray_plugin.py").write_text(RAY.replace("port + 1", "port + 2"))
    project.preview("--expect-no-changes")
