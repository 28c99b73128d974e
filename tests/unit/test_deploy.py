"""`deploy`: the objects that it prints, and what their alerts ask for."""

from __future__ import annotations

import json
import re
from importlib.metadata import entry_points, metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi_trainer.provider.cli import deploy
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.cli.exporter import METRICS, PREFIX
from pulumi_trainer.provider.kubernetes.errors import Invalid

from tools.pulumi_cli import VERSION

ROOT = Path(__file__).parents[2]


def printed(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """Kind -> object."""
    assert cli.run(["deploy", "exporter", "example.com/trainer:1", "-n", "monitoring", *options]) == 0
    return {each["kind"]: each for each in yaml.safe_load_all(capsys.readouterr().out)}


def test_the_exporter_reads_and_is_restricted(capsys: pytest.CaptureFixture[str]) -> None:
    made = printed(capsys)
    assert [*made] == ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Deployment", "Service"]
    verbs = {verb for rule in made["ClusterRole"]["rules"] for verb in rule["verbs"]}
    assert verbs == {"get", "list", "watch"}
    pod = made["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (container["image"], container["args"][:2]) == ("example.com/trainer:1", ["exporter", "-A"])
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    assert container["ports"][0]["containerPort"] == int(container["args"][-1])


def test_alerts_ask_for_metrics_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    made = printed(capsys, "--prometheus-operator")
    assert {"ServiceMonitor", "PrometheusRule"} <= made.keys()
    (group,) = made["PrometheusRule"]["spec"]["groups"]
    assert len(group["rules"]) == len(deploy.ALERTS)
    for rule in group["rules"]:
        asked = set(re.findall(rf"{PREFIX}([a-z_]+)", rule["expr"]))
        assert asked and asked <= METRICS.keys()
        labels = {label for name in asked for label in METRICS[name][1]}
        assert set(re.findall(r"[$]labels[.](\w+)", rule["annotations"]["summary"])) <= labels


DOCTOR = (
    "deploy", "doctor", "example.com/trainer:1", "--stack", "organization/platform/prod", "--backend", "s3://states?region=a",
    "--secret", "backend",
)  # fmt: skip


def test_a_cron_job_runs_doctor_with_the_service_account_of_its_pod(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*DOCTOR, "--prometheus-operator"]) == 0
    made = {each["kind"]: each for each in yaml.safe_load_all(capsys.readouterr().out)}
    assert [*made] == [
        "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "CronJob", "PrometheusRule",
    ]  # fmt: skip
    assert {verb for rule in made["ClusterRole"]["rules"] for verb in rule["verbs"]} == {"get", "list"}
    job = made["CronJob"]["spec"]["jobTemplate"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert container["args"][:4] == ["doctor", "-A", "--stack", "organization/platform/prod"]
    assert {"name": "PULUMI_BACKEND_URL", "value": "s3://states?region=a"} in container["env"]
    assert container["envFrom"] == [{"secretRef": {"name": "backend"}}]
    config = yaml.safe_load(made["ConfigMap"]["data"]["config"])
    assert config["users"][0]["user"]["tokenFile"].endswith("serviceaccount/token")
    (rule,) = made["PrometheusRule"]["spec"]["groups"][0]["rules"]
    assert rule["alert"] == "PulumiTrainerDrift"


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (4, "prod", "--stack: is not the full name of a stack: 'prod'. Hint: for example organization/platform/prod"),
        (6, "file:///states", "--backend: is not a URL that a Pod can reach: 'file:///states'"),
        (8, "A_b", "--secret: 'A_b'"),
    ],
)
def test_a_doctor_that_could_not_read_the_state(place: int, value: str, problem: str) -> None:
    words = [*DOCTOR]
    words[place] = value
    with pytest.raises(Invalid, match=re.escape(problem)):
        cli.run(words)


def test_names_that_are_not_valid() -> None:
    with pytest.raises(Invalid, match=r"--namespace: 'A_b'.*\n.*IMAGE: is not the name of an image: 'two words'"):
        cli.run(["deploy", "exporter", "two words", "-n", "A_b"])


def test_the_image_has_what_the_printed_pods_run() -> None:
    """Its user, its extras, its entry point, and the pinned Pulumi CLI; only the folder of the wheel is copied."""
    lines = (ROOT / "Containerfile").read_text().splitlines()
    words = dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))
    assert words["USER"] == str(deploy._POD["runAsUser"]) and words["ENV"] == "HOME=/tmp"
    (entry,) = json.loads(words["ENTRYPOINT"])
    assert entry in entry_points(group="console_scripts").names
    extras = re.search(r"\[([\w,]+)\]", words["RUN"])
    assert extras and {*extras[1].split(",")} <= {*(metadata("pulumi-trainer").get_all("Provides-Extra") or ())}
    assert any(f"pulumi-base:{VERSION} " in line for line in lines)
    assert [line for line in lines if line.startswith("COPY") and "--from" not in line] == ["COPY *.whl /tmp/"]
