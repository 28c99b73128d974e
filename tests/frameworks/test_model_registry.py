"""The outputs of jobs of this machine as versions in a real MLflow."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.entities.model_registry import ModelVersion

from tests.documented import blocks
from tests.engine.conftest import Project
from tests.mlflow_server import free_port, mlflow_server
from tests.moto_server import moto_server

KIND = "dynamic/trainer:ModelVersion"
PROGRAM = """
def train(word: str, fails: bool):
    import json, os, pathlib
    print(json.dumps({"trainerStatus": {"metrics": [{"name": "loss", "value": "0.25"}]}}), flush=True)
    pathlib.Path(os.environ["TRAINER_OUTPUT_DIR"], "model.txt").write_text(word)
    assert not fails

job = trainer.TrainJob(
    "digits", name="digits", runtime=plain, output=True, may_fail=@MAY_FAIL,
    trainer=trainer.CustomTrainer(func=train, func_args={"word": "@WORD", "fails": @FAILS}),
)
version = trainer.ModelVersion("digits", job=job, registry=trainer.MLflowRegistry(uri="@URI"), @MORE)
pulumi.export("version", version.version)
pulumi.export("url", version.url)
pulumi.export("digest", version.digest)
"""


def program(uri: str, word: str = "one", more: str = "", *, fails: bool = False, may_fail: bool = False) -> str:
    text = PROGRAM.replace("@URI", uri).replace("@WORD", word).replace("@MORE", more)
    return text.replace("@FAILS", str(fails)).replace("@MAY_FAIL", str(may_fail))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mlflow")


@pytest.fixture(scope="module")
def server(store: Path) -> Iterator[str]:
    with mlflow_server(store) as url:
        yield url


def versions(uri: str, model: str = "digits") -> list[ModelVersion]:
    """The versions of a model, the oldest first."""
    found = MlflowClient(uri, uri).search_model_versions(f"name = '{model}'")
    return sorted(found, key=lambda each: int(each.version))


def made(project: Project) -> dict[str, Any]:
    (resource,) = project.resources(KIND)
    return resource


def sha256sum(folder: Path) -> str:
    """The digest as its description says to compute it."""
    command = "find . -type f | LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum"
    done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=True)
    return f"sha256:{done.stdout.split()[0]}"


def test_each_run_that_succeeds_is_registered_once(project: Project, server: str) -> None:
    project.program(program(server, more='aliases=["champion"]'))
    planned = project.preview().out
    where = f"model digits in MLflow at {server}"
    assert f"{where}: the output of the run of job default/digits is registered as its next version with the alias" in (
        planned
    )
    assert not versions(server) and "deleted with the job's volume" not in planned  # it is copied

    told = project.up().out
    assert told.count("waiting for default/digits") == 2, told  # once as progress, once at the end
    (one,) = versions(server)
    assert project.outputs()["version"] == "1" and project.outputs()["url"].endswith("/models/digits/versions/1")
    (file,) = project.root.glob("volumes/default/digits-output/data/*/model.txt")
    folder = file.parent
    run = MlflowClient(server).get_run(one.run_id)
    expected = {
        "trainer.model": "digits", "trainer.stack": "lab/test", "trainer.job": "default/digits",
        "trainer.run": folder.name, "trainer.digest": sha256sum(folder), "trainer.files": "1", "trainer.bytes": "3",
        "trainer.output": f"file://{folder}", "trainer.input.nodes": "1", "trainer.metric.loss": "0.25",
    }  # fmt: skip
    assert expected.items() <= one.tags.items() and "trainer.input.code" in one.tags
    assert run.data.metrics == {"loss": 0.25} and run.data.params["nodes"] == "1" and run.info.status == "FINISHED"
    assert project.outputs()["digest"] == one.tags["trainer.digest"]
    copied = download_artifacts(one.source, tracking_uri=server, dst_path=str(project.folder / "copied"))
    assert sha256sum(Path(copied)) == one.tags["trainer.digest"]

    again = project.up().out
    assert "unchanged" in again and "updated" not in again and len(versions(server)) == 1
    project.run("state", "delete", "--yes", made(project)["urn"])  # as after a crash before the state was written
    project.up()
    assert [each.version for each in versions(server)] == ["1"] and project.outputs()["version"] == "1"

    project.program(program(server, "two", more='aliases=["champion", "new"]'))
    assert "once the run has succeeded" in project.preview().out and len(versions(server)) == 1
    project.up()
    first, second = versions(server)
    assert second.tags["trainer.digest"] != first.tags["trainer.digest"] == one.tags["trainer.digest"]
    aliases = MlflowClient(server, server).get_registered_model("digits").aliases
    assert {name: str(version) for name, version in aliases.items()} == {"champion": "2", "new": "2"}

    project.program(program(server, "two", more='aliases=["new"]'))
    project.up()
    assert {*MlflowClient(server, server).get_registered_model("digits").aliases} == {"new"}
    assert len(versions(server)) == 2

    assert f"{where} keeps versions 1, 2" in project.destroy().out
    assert len(versions(server)) == 2


def test_the_guide(project: Project, server: str) -> None:
    written, shown = [
        block.text.replace("http://127.0.0.1:5000", server).replace("digits", "guide")
        for block in blocks("docs/guides/model-registry.md", __file__)
    ]
    project.program(written, head="")
    assert shown.strip() in project.preview().out
    project.up()
    assert [each.version for each in versions(server, "guide")] == ["1"] and project.outputs()["version"] == "1"


def test_a_run_that_fails_registers_nothing(project: Project, server: str) -> None:
    project.program(program(server, "one", 'name="failing"', fails=True))
    assert "Failed" in project.up(ok=False).out
    assert not versions(server, "failing") and not project.resources(KIND)

    project.program(program(server, "one", 'name="failing", retain=False'))
    project.up()
    project.program(program(server, "two", 'name="failing", retain=False', fails=True, may_fail=True))
    told = project.up().out
    assert 'ModelVersion("digits"): nothing is registered, because TrainJob("digits") is Failed' in told
    assert [each.version for each in versions(server, "failing")] == ["1"] and project.outputs()["version"] == "1"

    project.program(program(server, "one", 'name="elsewhere", retain=False', fails=True, may_fail=True))
    project.up()
    assert not versions(server, "elsewhere") and project.outputs()["version"] == ""
    assert not versions(server, "failing")  # the model of another name is another resource
    project.destroy()


def test_a_server_that_does_not_answer_gets_the_version_later(project: Project, tmp_path: Path) -> None:
    port = free_port()
    project.program(program(f"http://127.0.0.1:{port}"))
    refused = project.up(ok=False).out
    assert f"MLflow at http://127.0.0.1:{port}: does not answer: " in refused and "Traceback" not in refused
    assert "the output of the job is kept" in refused
    (job,) = project.target.jobs.list_all()
    assert job.phase == "Succeeded"
    store = tmp_path / "store"
    store.mkdir()
    with mlflow_server(store, port) as url:
        project.up()
        assert [each.version for each in versions(url)] == ["1"]
        assert [each.uid for each in project.target.jobs.list_all()] == [job.uid]
    gone = project.refresh().out
    assert "is unchanged in the state of this stack" in gone and made(project)["outputs"]["registered"] == "1"


def rename(project: Project, name: str) -> None:
    """Give the project another experiment."""
    project.name = name
    (project.folder / "Pulumi.yaml").write_text(f"name: {name}\nruntime: python\n")
    assert project.run("stack", "init").code == 0


def test_artifacts_in_s3(project: Project, server: str) -> None:
    """A server may let its clients write to the store: boto3 is then asked for, and may fail."""
    rename(project, "stored")
    MlflowClient(server).create_experiment("stored", artifact_location="s3://models/of-tests")
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    with moto_server() as url:
        project.env.update(keys, MLFLOW_S3_ENDPOINT_URL=url)
        project.program(program(server, more='name="stored"'))
        told = project.up(ok=False).out
        assert f"MLflow at {server}: artifacts cannot be written to s3://models/of-tests" in told
        assert "NoSuchBucket" in told and "Traceback" not in told and not versions(server, "stored")
        s3 = boto3.client(
            "s3", endpoint_url=url, aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
        )
        s3.create_bucket(Bucket="models")
        project.up()
        (version,) = versions(server, "stored")
        assert version.source.startswith("s3://models/of-tests/") and version.source.endswith("/artifacts/model")
        key = f"{version.source.removeprefix('s3://models/')}/model.txt"
        assert s3.get_object(Bucket="models", Key=key)["Body"].read() == b"one"


def test_a_server_that_refuses_gets_the_version_later(project: Project, server: str) -> None:
    client = MlflowClient(server)
    rename(project, "refused")
    experiment = client.create_experiment("refused")
    client.delete_experiment(experiment)
    project.program(program(server, more='name="refused"'))
    told = project.up(ok=False).out
    assert f"MLflow at {server}: refuses: " in told and "Traceback" not in told
    assert not versions(server, "refused")
    client.restore_experiment(experiment)
    project.up()
    assert [each.version for each in versions(server, "refused")] == ["1"]


def test_what_is_removed(project: Project, server: str) -> None:
    """retain=False removes the versions of the resource alone; one that somebody has removed is registered again."""
    others = MlflowClient(server, server)
    others.create_registered_model("removed")
    other = others.create_model_version("removed", "s3://bucket/model")
    project.program(program(server, more='name="removed", retain=False'))
    project.up()
    others.delete_model_version("removed", project.outputs()["version"])
    assert "somebody has removed version 2" in project.refresh().out
    project.up()
    assert [each.version for each in versions(server, "removed")] == [other.version, "3"]
    project.program(program(server, "two", 'name="removed", retain=False'))
    project.up()
    assert len(versions(server, "removed")) == 3
    project.destroy()
    assert [each.version for each in versions(server, "removed")] == [other.version]


def test_a_token_is_secret_everywhere(project: Project, server: str) -> None:
    token = "c0ffee-token-5150"
    project.config("token", token, "--secret")
    text = program(server, more='name="guarded"').replace(
        f'uri="{server}"', f'uri="{server}", token=pulumi.Config().require_secret("token")'
    )
    project.program(text)
    told = project.up().out + project.preview("--diff").out + project.refresh().out
    project.program(text.replace('"guarded"', '"guarded", aliases=["best"]'))
    told += project.up().out + project.destroy().out
    history = "".join(path.read_text() for path in (project.folder / "state").rglob("*.json"))
    assert token not in told and token not in history and len(versions(server, "guarded")) == 1
