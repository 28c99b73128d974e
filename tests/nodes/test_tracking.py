"""A job on two real nodes whose progress goes to an MLflow server: one run for both nodes and both attempts, and its link."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from tests.cluster.test_up import Lab
from tests.cluster.test_up import lab as stack  # noqa: F401 (a fixture)
from tests.mlflow_server import history, link_of, mlflow_server, runs_of
from tools.cluster import Cluster, nodes
from tools.cluster.images import MACHINE

PROGRAM = """
import pulumi
import pulumi_trainer as trainer

def train():
    import os
    from pulumi_trainer import training
    points = training.checkpoints()
    found = points.load({}) or {"step": 0}
    print("run", os.environ["MLFLOW_RUN_ID"], flush=True)
    for step in range(found["step"] + 1, 5):
        training.progress(step=step, total=step, loss=1 / step)
        points.save({}, step=step)
        if step == 2 and not found["step"]:
            raise SystemExit("the first attempt ends here")

plain = trainer.ClusterTrainingRuntime(
    "plain",
    ml_policy=trainer.PlainPolicy(num_nodes=2),
    template=trainer.JobSetTemplate(
        replicated_jobs=[trainer.ReplicatedJob(name="node", backoff_limit=0, pod_spec={
            "restart_policy": "Never", "containers": [{"name": "node", "image": IMAGE}],
        })],
    ),
)
job = trainer.TrainJob(
    "told", name="told", runtime=plain, trainer=trainer.CustomTrainer(func=train),
    checkpoint=trainer.CheckpointPolicy(max_restarts=1), tracking=trainer.MLflow(URI), wait_for="complete",
)
pulumi.export("link", job.tracking_link)
"""


def test_both_nodes_and_attempts_have_one_run(stack: Lab, cluster: Cluster, tmp_path: Path) -> None:  # noqa: F811
    def command(*argv: str) -> str:
        whole = ["pulumi-trainer", *argv, "--stack", stack.stack]
        done = subprocess.run(
            whole, cwd=stack.folder, env=stack.environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    with mlflow_server(tmp_path, host=nodes.address(cluster.place.ports)) as address:
        stack.program(PROGRAM, head=f"IMAGE = {MACHINE!r}\nURI = {address!r}\n")
        stack.up()
        (run,) = runs_of(address, "told")
        name, link = run["info"]["run_id"], link_of(address, run)
        assert [step for step, _ in history(address, name, "loss")] == [1, 2, 3, 4]
        assert run["info"]["status"] == "FINISHED"
        assert set(re.findall(r"run ([0-9a-f]{32})", command("logs", "told"))) == {name}
        assert json.loads(command("status", "told", "-o", "json"))[0]["tracking"] == link
        assert f"told: {link}" in command("status", "told") and link in command("why", "told")
        assert stack.outputs()["link"] == link
        stack.destroy()
