"""The record of a job in a cluster keeps its runs; `runs` tells them apart, and `rerun_on` starts one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP

from tests.engine.conftest import pulumi_home  # noqa: F401 (a fixture)

from .jobs import until
from .test_deleted import cli, phases
from .test_up import Lab, head, lab  # noqa: F401 (a fixture)

PROGRAM = """
def train(lr):
    pass

job = trainer.TrainJob(
    "digits", name="digits", runtime=simulated, interrupt="allow",
    trainer=trainer.CustomTrainer(
        func=train, func_args={{"lr": {lr}}}, env={{"SEED": "1", "API_TOKEN": pulumi.Output.secret("hidden")}},
    ){more},
)
pulumi.export("inputs", job.run_inputs)
"""


def up(lab: Lab, lr: str, more: str = "", sim: str = "run: 1s") -> str:  # noqa: F811
    lab.program(PROGRAM.format(lr=lr, more=more), head(sim))
    return lab.up().out


@pytest.mark.smoke
def test_the_record_keeps_the_runs(lab: Lab, user_kubeconfig: Path) -> None:  # noqa: F811
    up(lab, "0.1")
    until(lambda: phases(lab, user_kubeconfig) == {"digits": "Succeeded"})
    record = lab.root_client.get(CONFIG_MAP, lab.namespace, "digits")
    assert record is not None
    inputs = json.loads(record["data"]["inputs"])
    assert lab.outputs()["inputs"] == inputs and inputs["arguments"] == '{"lr": 0.1}'
    assert (inputs["environment"], inputs["nodes"]) == ('{"API_TOKEN": "secret", "SEED": "1"}', "1")
    assert "hidden" not in json.dumps(record)
    up(lab, "0.2", sim="outcome: forever")
    up(lab, "0.3", ', rerun_on=["code", "runtime"]')
    until(lambda: phases(lab, user_kubeconfig) == {"digits": "Succeeded"})
    found = json.loads(cli(lab, user_kubeconfig, "runs", "digits", "-o", "json"))
    assert [run["phase"] for run in found] == ["Succeeded", "Interrupted", "Succeeded"]
    assert [run["inputs"]["arguments"] for run in found] == ['{"lr": 0.1}', '{"lr": 0.2}', '{"lr": 0.3}']
    assert '{"lr": 0.1} -> {"lr": 0.2}' in cli(lab, user_kubeconfig, "runs", "digits")
    assert "runs again (rerun_on)" in up(lab, "0.3", ', rerun_on=["code", "runtime"]', "run: 2s")
    until(lambda: len(json.loads(cli(lab, user_kubeconfig, "runs", "digits", "-o", "json"))) == 4)
    lab.preview("--expect-no-changes")


def test_a_record_that_somebody_has_edited_is_shown(lab: Lab, user_kubeconfig: Path) -> None:  # noqa: F811
    up(lab, "0.1")
    change = {"data": {"inputs": None, "earlier": '[{"run": 3}, 4, {"run": "\\u001b[2J", "inputs": {"a": [1]}}]'}}
    lab.root_client.patch(CONFIG_MAP, lab.namespace, "digits", change)
    shown = cli(lab, user_kubeconfig, "runs", "digits")
    assert "is not a valid record of a job: earlier[0].run is 3, not a text" in shown
    assert "\x1b" not in shown and "Traceback" not in shown
