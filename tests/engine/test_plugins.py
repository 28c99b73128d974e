"""Frameworks by plugins: TensorFlow's roles, one of a user, and what is said of a plugin that is wrong."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pulumi_trainer.provider.jobs.lineage import with_identity
from pulumi_trainer.provider.jobs.runs import Identity

from .conftest import Project
from .test_examples import previewed_objects


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


ROLES = r"""
runtime = trainer.ClusterTrainingRuntime(
    "roles",
    ml_policy=trainer.TensorFlowPolicy(COUNTS),
    template=trainer.JobSetTemplate(replicated_jobs=[trainer.ReplicatedJob(name="node", backoff_limit=0, pod_spec={
        "restart_policy": "Never", "termination_grace_period_seconds": 1,
        "containers": [{"name": "node", "image": "python:3.12"}],
    })]),
)


# Each task of the cluster knows one number. It asks all others for theirs; their sum is what all know in the end. The
# evaluator, which is no part of the cluster, asks the parameter servers for the sum.
def train():
    import json, os, socket, socketserver, threading, time

    config = json.loads(os.environ["TF_CONFIG"])
    me = (config["task"]["type"], config["task"]["index"])
    cluster = {(role, i): at for role, all_ in config["cluster"].items() for i, at in enumerate(all_)}
    assert me in cluster or me == ("evaluator", 0), f"{me} is not in {cluster}"
    asked_by, total, all_known = set(), 0, threading.Event()

    class Answer(socketserver.StreamRequestHandler):
        def handle(self):
            asker, question = json.loads(self.rfile.readline())
            if question == "sum":
                all_known.wait()
            self.wfile.write(b"%d\n" % (total if question == "sum" else number))
            asked_by.add(tuple(asker))

    def ask(address, question):
        host, port = address.split(":")
        while True:
            try:
                with socket.create_connection((host, int(port))) as peer:
                    peer.sendall(json.dumps([me, question]).encode() + b"\n")
                    return int(peer.makefile().readline())
            except OSError:  # it is not there yet
                time.sleep(0.1)

    if me not in cluster:
        sums = {ask(address, "sum") for (role, _), address in cluster.items() if role == "ps"}
        print(*me, "hears of", *sums, flush=True)
        return
    number = 10 ** list(cluster).index(me)
    host, port = cluster[me].split(":")
    server = socketserver.ThreadingTCPServer((host, int(port)), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    total = number + sum(ask(address, "number") for other, address in cluster.items() if other != me)
    all_known.set()
    print(*me, "knows of", total, flush=True)
    while me[0] == "ps" or len(asked_by) < len(cluster) - 1:
        time.sleep(0.1)


trainer.TrainJob("roles", runtime=runtime, trainer=trainer.CustomTrainer(func=train), wait_for="complete")
"""


@pytest.mark.core
def test_tensorflow_roles_find_each_other(project: Project) -> None:
    """Without TensorFlow: the program only talks. `tests/frameworks` trains."""
    project.program(ROLES.replace("COUNTS", "workers=2, ps=2, chief=1, evaluator=1"))
    jobset = runs_as_previewed(project)
    name = jobset["metadata"]["name"]
    config = environment(jobset, "ps")["TF_CONFIG"].replace("$(TRAINER_TASK_INDEX)", "1")
    cluster = {
        "chief": [f"{name}-chief-0-0.{name}:2222"],
        "worker": [f"{name}-node-0-{i}.{name}:{2223 + i}" for i in range(2)],
        "ps": [f"{name}-ps-0-{i}.{name}:{2225 + i}" for i in range(2)],
    }
    assert json.loads(config) == {"cluster": cluster, "task": {"type": "ps", "index": 1}}
    logs = project.logs("roles")
    told = [(role, int(i), int(n)) for role, i, n in re.findall(r"(\w+) (\d) knows of (\d+)", logs)]
    tasks = [("chief", 0), ("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)]
    assert sorted(told) == [(*task, 11111) for task in tasks]
    again = project.up()
    assert "unchanged" in again.out and "created" not in again.out


def test_counts_that_are_not_a_cluster_are_refused_together(project: Project) -> None:
    problems = {
        "chief=2, ps=-1, evaluator=3": ("ml_policy.chief", "ml_policy.ps", "ml_policy.evaluator"),
        "workers=-1": ("cannot have -1 workers",),
        "workers=0": ("neither workers nor a chief",),
        "workers=0, chief=1, ps=1": ("parameter servers need workers",),
        "num_nodes=2": ("num_nodes: unknown", "workers"),
    }
    for counts, found in problems.items():
        project.program(ROLES.replace("COUNTS", counts))
        refused = project.run("preview")
        assert refused.code != 0
        for words in found:
            assert words in refused.out, (counts, refused.out)
        print(refused.out)


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
