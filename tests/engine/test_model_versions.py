"""Model versions through the real engine: what a plan says and refuses, and a Kubeflow Model Registry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.model_registry_server import Registry, model_registry_server

from .conftest import Project

KIND = "dynamic/trainer:ModelVersion"
JOB = """
def train(word: str):
    import json, os, pathlib
    print(json.dumps({"trainerStatus": {"metrics": [{"name": "loss", "value": "0.25"}]}}), flush=True)
    pathlib.Path(os.environ["TRAINER_OUTPUT_DIR"], "model.txt").write_text(word)

job = trainer.TrainJob(
    "digits", name="digits", runtime=plain, output=True,
    trainer=trainer.CustomTrainer(func=train, func_args={"word": "@WORD"}),
)
"""
VERSION = """
version = trainer.ModelVersion(
    "digits", job=job, registry=trainer.KubeflowModelRegistry(server="@SERVER"@SETTINGS), @MORE
)
pulumi.export("version", version.version)
pulumi.export("url", version.url)
"""
BAD = """
mlflow = trainer.MLflowRegistry(uri="http://127.0.0.1:9")
trainer.ModelVersion("names", job=job, registry=mlflow, name="a/b", version="1.0", aliases=["v1", "a b", "best"])
kubeflow = trainer.KubeflowModelRegistry(server="http://127.0.0.1:9")
trainer.ModelVersion("aliases", job=job, registry=kubeflow, aliases=["best"], version="")
trainer.ModelVersion("open", job=job, registry=trainer.MLflowRegistry(uri="127.0.0.1:9", token="s3cr3t-word"))
trainer.ModelVersion("url", job=job, registry=trainer.MLflowRegistry(uri="http://me:s3cr3t-word@127.0.0.1:9"))
trainer.ModelVersion("clear", job=job, registry=trainer.MLflowRegistry(
    uri="http://mlflow.example.com", token=pulumi.Output.secret("s3cr3t-word")))
trainer.ModelVersion("types", job="digits", registry="mlflow", retain="no", aliases="best")
trainer.ModelVersion("one", job=job, registry=mlflow, name="digits")
trainer.ModelVersion("two", job=job, registry=mlflow, name="digits")
other = trainer.TrainJob("other", runtime=plain, trainer=trainer.Trainer(command=["true"]))
trainer.ModelVersion("lacking", job=other, registry=mlflow)
refused = trainer.TrainJob("refused", runtime="unknown", trainer=trainer.Trainer(command=["true"]), output=True)
trainer.ModelVersion("after", job=refused, registry=mlflow)
"""
REFUSED = (
    "names\") (__main__.py:30).name: not a valid name of a model of MLflow: 'a/b'",
    'names") (__main__.py:30).version: MLflow numbers versions itself. Hint: leave it out; aliases=["release-1-0"]',
    "names\") (__main__.py:30).aliases[0]: not a valid alias of MLflow: 'v1'",
    "names\") (__main__.py:30).aliases[1]: not a valid alias of MLflow: 'a b'",
    'aliases") (__main__.py:32).aliases: Kubeflow Model Registry has no aliases',
    'aliases") (__main__.py:32).version: must have 1 to 255 characters',
    'open") (__main__.py:33).registry.uri: must be a URL with http:// or https://',
    'open") (__main__.py:33).registry.token: is plain text',
    'url") (__main__.py:34).registry.uri: has credentials',
    'clear") (__main__.py:35).registry.token: http://mlflow.example.com would get it unencrypted. Hint: use https://',
    'types") (__main__.py:37).job: must be TrainJob',
    'types") (__main__.py:37).registry: must be MLflowRegistry or KubeflowModelRegistry',
    'types") (__main__.py:37).retain: must be True or False',
    'types") (__main__.py:37).aliases: must be a list',
    'two") (__main__.py:39).name: ModelVersion("one") (__main__.py:38) makes model version \'digits\' too',
    'lacking") (__main__.py:41).job: TrainJob("other") has no output volume',
)


def program(registry: Registry, word: str = "one", more: str = "", settings: str = "") -> str:
    text = (JOB + VERSION).replace("@SERVER", registry.url).replace("@WORD", word)
    return text.replace("@MORE", more).replace("@SETTINGS", settings)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with model_registry_server() as found:
        yield found


@pytest.mark.core
def test_a_plan_reports_all_problems_at_once(project: Project) -> None:
    project.program(JOB.replace("@WORD", "one") + BAD)
    told = project.preview(ok=False).out
    for expected in REFUSED:
        assert any(f'ModelVersion("{expected}' in line for line in told.splitlines()), f"{expected}\n{told}"
    assert 'ModelVersion("after")' not in told and 'TrainJob("refused")' in told
    assert "s3cr3t-word" not in told and "Traceback" not in told


def text(version: dict[str, Any], name: str) -> str:
    return str(version["customProperties"][name]["string_value"])


@pytest.mark.core
def test_each_run_is_a_version_with_its_record(project: Project, registry: Registry) -> None:
    project.program(program(registry))
    planned = project.preview().out
    where = f"model digits in Kubeflow Model Registry at {registry.url}"
    assert f"{where}: the output of the run of job default/digits is registered as its next version, once" in planned
    assert (
        "the registry has the address of the output, which is deleted with the job's volume. Hint: keep it with"
        in planned
    )
    assert not registry.requests
    project.up()
    ((model,), (version,), (artifact,)) = registry.objects.values()
    job = project.job("digits")
    assert model["name"] == "digits" and version["registeredModelId"] == model["id"]
    assert project.outputs()["version"] == version["name"] == f"digits-{job.identity.id}"
    assert project.outputs()["url"] == f"{registry.url}/api/model_registry/v1/model_versions/{version['id']}"
    assert text(version, "trainer.metric.loss") == "0.25" and text(version, "trainer.input.code")
    assert text(version, "trainer.digest").startswith("sha256:") and text(version, "trainer.files") == "1"
    assert artifact["uri"] == f"file://{job.output}" and artifact["modelVersionId"] == version["id"]
    assert artifact["modelSourceName"] == "digits" and artifact["modelSourceGroup"] == "default"

    asked = len(registry.requests)
    assert "updated" not in project.up().out and len(registry.requests) == asked
    (resource,) = project.resources(KIND)
    project.run("state", "delete", "--yes", resource["urn"])
    registry.objects["artifacts"].clear()  # as after a crash between the two requests
    project.up()
    ((_,), (same,), (again,)) = registry.objects.values()
    assert same == version and again["uri"] == artifact["uri"]
    assert f"{where} keeps version {version['name']}" in project.destroy().out
    assert version["state"] == "LIVE"


EVALUATION = """
def evaluate():
    raise SystemExit(3)

evaluation = trainer.TrainJob(
    "evaluation", runtime=plain, wait_for="complete", trainer=trainer.CustomTrainer(func=evaluate)
)
"""


def test_a_failed_evaluation_keeps_a_version_back(project: Project, registry: Registry) -> None:
    text = program(registry, more="opts=pulumi.ResourceOptions(depends_on=[evaluation])")
    project.program(EVALUATION + text)
    told = project.up(ok=False).out
    assert 'TrainJob("evaluation") Failed' in told and project.job("digits").phase == "Succeeded"
    assert not registry.requests and not project.resources(KIND)
    project.program(EVALUATION.replace("raise SystemExit(3)", "pass") + text)
    project.up()
    assert len(registry.objects["model_versions"]) == 1


def test_a_version_that_the_program_names(project: Project, registry: Registry) -> None:
    project.program(program(registry, more='version="1.0", retain=False'))
    project.up()
    project.program(program(registry, "two", 'version="1.0"'))
    assert "is registered as version '1.0'. Hint: another run needs another version=" in project.preview(ok=False).out
    project.program(program(registry, more='version="1.1"'))
    assert "and the same output is not registered twice" in project.preview(ok=False).out
    project.program(program(registry, "two", 'version="1.1", retain=False'))
    planned = project.preview().out
    assert "is registered as version 1.1, once the run has succeeded" in planned and "deleted with" not in planned
    project.up()
    assert [each["name"] for each in registry.objects["model_versions"]] == ["1.0", "1.1"]

    project.program(program(registry, "three", 'name="another", version="1.1"'))
    project.up()
    states = [(each["name"], each["state"]) for each in registry.objects["model_versions"]]
    assert states == [("1.0", "ARCHIVED"), ("1.1", "ARCHIVED"), ("1.1", "LIVE")]
    (resource,) = project.resources(KIND)
    project.run("state", "delete", "--yes", resource["urn"])
    project.program(program(registry, "four", 'name="another", version="1.1"'))
    told = project.up(ok=False).out
    assert "version '1.1' of 'another' is the output of another run. Hint: give the ModelVersion another" in told


def test_a_registry_that_fails_gets_the_version_later(project: Project, registry: Registry) -> None:
    token, settings = "c0ffee-token-5150", ', token=pulumi.Config().require_secret("token")'
    project.config("token", "wrong-token-5150", "--secret")
    registry.token = token
    project.program(program(registry, settings=settings))
    told = project.up(ok=False).out
    where = f"Kubeflow Model Registry at {registry.url}"
    assert f"{where}: refuses: 401" in told and "the token is not valid" in told and "Traceback" not in told
    assert "Hint: the output of the job is kept: `pulumi up` registers it once the registry takes it" in told
    assert project.job("digits").phase == "Succeeded" and not registry.objects["registered_models"]

    project.config("token", token, "--secret")
    registry.broken = "/artifacts"
    assert f"{where}: refuses: 500" in project.up(ok=False).out
    registry.broken = ""
    uid = project.job("digits").uid
    told = project.up().out + project.preview("--diff").out
    assert [len(each) for each in registry.objects.values()] == [1, 1, 1] and project.job("digits").uid == uid
    assert token not in told and token not in project.stack_text() and "5150" not in told
