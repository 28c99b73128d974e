"""Free-form data on a real API server: func_args in their ConfigMap, or all of them in the job's Secret."""

from __future__ import annotations

import base64
import json
from typing import Any

from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, POD, SECRET
from pulumi_trainer.provider.pod import code

from tests.engine.conftest import pulumi_home  # noqa: F401 (a fixture)

from .jobs import until
from .test_up import Lab, head, lab  # noqa: F401 (a fixture)

JOBS = """
def train(**given):
    print(given)

def job(name, func_args, **given):
    trainer.TrainJob(name, runtime=simulated, trainer=trainer.CustomTrainer(func=train, func_args=func_args, **given))

secret = pulumi.Output.secret("canary")
job("open", {"conf": {"learning_rate": .1, "lr_0.1": 3, "none": None, "b": 1.0}})
job("shut", {"conf": {"api_key": [secret], "none": None}}, env=pulumi.Output.secret({"A_B": "canary"}))
"""


def values(client: Any, kind: Any, namespace: str, name: str) -> dict[str, str]:
    found = next(d for d in client.list(kind, namespace)[0] if d["metadata"]["name"].startswith(name))
    return dict(found.get("data") or {})


def test_func_args_are_in_the_config_map_as_given_and_with_a_secret_in_the_secret(lab: Lab) -> None:  # noqa: F811
    lab.program(JOBS, head())
    assert "canary" not in lab.up("--diff").out
    client = lab.root_client
    given = next(
        d["data"] for d in client.list(CONFIG_MAP, lab.namespace)[0] if code.ARGS_FILE in (d.get("data") or {})
    )
    assert given[code.ARGS_FILE] == json.dumps({"conf": {"learning_rate": 0.1, "lr_0.1": 3, "none": None, "b": 1.0}})
    assert "canary" not in json.dumps(client.list(CONFIG_MAP, lab.namespace)[0])
    opened = {k: base64.b64decode(v).decode() for k, v in values(client, SECRET, lab.namespace, "shut-").items()}
    assert json.loads(opened.pop(code.ARGS_FILE)) == {"conf": {"api_key": ["canary"], "none": None}}
    assert opened == {"trainer.A_B": "canary"}

    def running() -> list[Any]:
        pods = [p for p in client.list(POD, lab.namespace)[0] if p["metadata"]["name"].startswith("shut-")]
        return [p for p in pods if p["status"].get("phase") == "Running"]

    (pod,) = until(running)
    volume = next(v for v in pod["spec"]["volumes"] if v["name"] == code.CODE_VOLUME)
    assert [next(iter(source)) for source in volume["projected"]["sources"]] == ["configMap", "secret"]
    lab.preview("--expect-no-changes")
    lab.destroy()
