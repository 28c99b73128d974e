"""What the jobs of a preview use and cost, and the budgets of their teams."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from tests.unit.test_start_answers import kueue, team

from . import kubernetes_plugin
from .conftest import Project, Result
from .test_cluster_refusals import KUEUE, Api, api  # noqa: F401

PRICE, BUDGET = "pulumi-trainer.dev/price-per-hour", "pulumi-trainer.dev/budget-per-month"
HEAD = "import pulumi\nimport pulumi_trainer as trainer\n"
JOBS = """
def work():
    pass
for name, given in {"llama": {"expected_hours": 1.5}, "limited": {"max_execution": 3600}, "open": {}}.items():
    trainer.TrainJob(name, name=name, runtime="torch-distributed", queue="gpus", wait_for="created", **given,
        trainer=trainer.CustomTrainer(func=work, num_nodes=2, resources_per_node={"nvidia.com/gpu": 8}))
"""


def serve(api: Api, budget: str, gpus: int = 0) -> None:  # noqa: F811
    """Serve a queue with a price and a budget. gpus: Of a job that has run since the month began."""
    queue, local = team("nlp", 64)
    local["metadata"]["annotations"] = {BUDGET: budget}
    flavor = kueue("ResourceFlavor", "h100", spec={})
    flavor["metadata"]["annotations"] = {PRICE: "3.20 USD"}
    ended = {"phase": "Succeeded", "started": "1", "finished": str(time.time())}
    record = {
        "metadata": {
            "name": "old",
            "namespace": "nlp",
            "uid": "record",
            "labels": {"pulumi-trainer.dev/record": "true"},
        },
        "data": {"job": "JobSet/old", "sent": "0", "usage": json.dumps({"queue": "gpus", "gpus": gpus}), **ended},
    }
    api.objects = {
        f"{KUEUE}/clusterqueues": [queue], f"{KUEUE}/localqueues": [local], f"{KUEUE}/namespaces/nlp/localqueues": [local],
        f"{KUEUE}/resourceflavors": [flavor], "/api/v1/namespaces/nlp/configmaps": [record] if gpus else [],
    }  # fmt: skip


def inputs(preview: Result) -> list[str]:
    found = [each["newState"].get("inputs", {}) for each in json.loads(preview.out)["steps"]]
    jobs = [each for each in found if "TrainJob" in each.get("component", "")]
    assert len(jobs) == 3
    return sorted(json.dumps(each, sort_keys=True) for each in jobs)


def test_cost_and_budget_of_a_plan(project: Project, api: Api) -> None:  # noqa: F811
    serve(api, "1000000 USD")
    project.program(JOBS, HEAD)
    project.config("trainer:namespace", "nlp")
    made = project.preview("--json")
    notes = [each["message"].strip() for each in json.loads(made.out)["diagnostics"] if each["severity"] == "info"]
    shown = "\n".join(notes)
    assert "llama: about 24 GPU-hours, 77 USD (h100 3.20 USD an hour; by expected_hours)" in shown
    assert "limited: at most 16 GPU-hours, 51 USD (h100 3.20 USD an hour; its time limit is 1h00m)" in shown
    assert "open: 51 USD an hour (h100 3.20 USD an hour), and how long it runs is not known" in shown
    total = "this plan starts 3 jobs with GPUs: up to about 40 GPU-hours, up to about 128 USD; and what is not known of nlp/open"
    assert total in shown
    month = time.strftime("%Y-%m", time.gmtime())
    why = f"whether its team stays within its budget of 1,000,000 USD for {month} is not known: what nlp/open uses"
    assert f"LocalQueue nlp/gpus: {why}" in shown
    api.objects[f"{KUEUE}/resourceflavors"][0]["metadata"]["annotations"][PRICE] = "4 USD"
    assert inputs(made) == inputs(project.preview("--json")), "prices are no inputs"


@pytest.mark.core
def test_a_plan_beyond_the_budget_of_a_team(project: Project, api: Api) -> None:  # noqa: F811
    serve(api, "40 GPU-hours", gpus=10**7)
    project.program(JOBS, HEAD)
    project.config("trainer:namespace", "nlp")
    warned = project.preview()
    beyond = r"PT230: LocalQueue nlp/gpus: its team has used [\d,]+ GPU-hours in \d{4}-\d\d, and this plan starts up to about 40 "
    assert re.search(beyond, warned.out), warned
    project.config("trainer:warnings.PT230", "error", "--path")
    assert re.search(beyond, project.preview(ok=False).out)
    project.config("trainer:budget.gpus", "10000000000 GPU-hours", "--path")
    within = project.preview()
    assert "PT230" not in within.out and "what nlp/open uses" in within.out, within


def test_prices_and_budgets_that_mean_nothing(project: Project, api: Api) -> None:  # noqa: F811
    serve(api, "lots")
    project.program(JOBS, HEAD)
    project.config("trainer:namespace", "nlp")
    project.config("trainer:prices.a100", "2.5", "--path")
    project.config("trainer:budget.vision", "5 USD", "--path")
    shown = project.preview().out
    assert (
        "PT231: LocalQueue gpus: metadata.annotations[pulumi-trainer.dev/budget-per-month]: must be the money or"
        in shown
    )
    assert "PT231: trainer:prices.a100 of the stack: no ResourceFlavor is called a100" in shown
    assert "PT231: trainer:budget.vision of the stack: no LocalQueue is called vision" in shown
    project.config("trainer:prices.h100", "much", "--path")
    refused = project.preview(ok=False).out
    assert "trainer:prices.h100: must be the price of an hour of a GPU, 0 or more, not" in refused


TEAMS = """
teams = {"nlp": trainer.Team(gpus=64, budget="5000 GPU-hours")}
gpus = trainer.GpuQueues("gpus", teams=teams, gpus={"h100": None}, prices={"h100": 3.2})
trainer.TrainJob("llama", name="llama", runtime="torch-distributed", queue=gpus.queues["nlp"], expected_hours=1.5,
    trainer=trainer.Trainer(command=["train"], num_nodes=2, resources_per_node={"gpu": 8}))
"""


def test_an_unreachable_cluster_is_no_empty_one(project: Project, tmp_path: Path, api: Api) -> None:  # noqa: F811
    """What only the cluster knows is named, and not guessed."""
    project.program(TEAMS, HEAD)
    project.env["PATH"] = kubernetes_plugin.install(tmp_path, project.environment["PATH"])
    project.config("trainer:namespace", "nlp")
    file = tmp_path / "kubeconfig"
    file.write_text(file.read_text().replace(api.url, "http://127.0.0.1:1"))
    shown = project.preview().out.partition("Diagnostics:")[2]
    assert "checked without the cluster: " in shown
    assert (
        "llama: it is not known whether it starts now: its queue, its priority or the Workloads are not known" in shown
    )
    assert "llama: about 24 GPU-hours, 77 USD (h100 3.20 USD an hour; by expected_hours)" in shown
    why = r"whether its team stays within its budget of 5,000 GPU-hours for \S+ is not known: what it has used: "
    assert re.search(rf"LocalQueue nlp/nlp: {why}", shown), shown
