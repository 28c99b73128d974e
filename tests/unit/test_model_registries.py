"""Model registries: digests of outputs, names, what of a job in a cluster is registered, and what is loaded."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.args.registries import MLflowRegistry
from pulumi_trainer.provider.jobs.metrics import Metric
from pulumi_trainer.provider.jobs.output_facts import Content
from pulumi_trainer.provider.jobs.runs import Identity, Run
from pulumi_trainer.provider.jobs.status import JobStatus
from pulumi_trainer.provider.kubernetes.errors import TargetFault
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.lifecycle.model_versions import ModelVersionInputs, ModelVersionOutputs, ModelVersions
from pulumi_trainer.provider.pod.scripts import digest_output
from pulumi_trainer.provider.registries.kubeflow_registry import KubeflowRegistry
from pulumi_trainer.provider.registries.mlflow_registry import MLflow
from pulumi_trainer.provider.registries.registry import Registration

from tests.model_registry_server import model_registry_server

SHELL = "find . -type f | LC_ALL=C sort | xargs -d '\\n' sha256sum | sha256sum"


def test_anybody_can_compute_the_digest(tmp_path: Path) -> None:
    folder = tmp_path / "output"
    for path, content in {"b/model.pt": b"x" * (1 << 20), "a.txt": b"", "b.txt": b"2", "Ä b/c": b"3"}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    (folder / "link").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    done = subprocess.run(SHELL, shell=True, cwd=folder, capture_output=True, text=True, check=True)
    expected = {"sha256": done.stdout.split()[0], "files": 4, "size": (1 << 20) + 2}
    assert digest_output.digest(str(folder)) == expected
    argv = [sys.executable, "-I", digest_output.__file__, f"{folder}/"]
    printed = subprocess.run(argv, capture_output=True, check=True).stdout
    assert Content.from_json("here", printed) == Content(**expected)
    (folder / "b.txt").rename(folder / "c.txt")
    assert digest_output.digest(str(folder))["sha256"] != expected["sha256"]


def test_a_long_digest_shows_that_it_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_output, "ALIVE", digest_output.CHUNK)
    (tmp_path / "model").write_bytes(bytes(3 * digest_output.CHUNK + 1))
    asked: list[None] = []
    digest_output.digest(str(tmp_path), lambda: asked.append(None))
    assert len(asked) == 3
    assert Content.from_json("here", b'\n\n{"sha256": "' + b"0" * 64 + b'", "files": 1, "size": 2}').size == 2


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"sha256": 1}', b'{"sha256": "abc"}'])
def test_an_answer_that_is_no_digest(data: bytes) -> None:
    with pytest.raises(TargetFault, match="here: its digest cannot be computed"):
        Content.from_json("here", data)


NAMES = ("digits", "a/b", "a:b", "", " ", ".", "..", "a b", "x" * 256, "Ä")
ALIASES = ("champion", "a b", "", "latest", "Latest", "v1", "V12", "v1x", "x" * 256, "a.b", "ä")


@pytest.mark.parametrize("name", NAMES)
def test_names_are_those_of_mlflow(name: str) -> None:
    from mlflow.exceptions import MlflowException
    from mlflow.utils.validation import _validate_model_name

    try:
        _validate_model_name(name)
        valid = len(name) <= 255  # of its database
    except MlflowException:
        valid = False
    assert valid is not bool([*MLflowRegistry(uri="http://a").name_problems(name, None, ())])


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_are_those_of_mlflow(alias: str) -> None:
    from mlflow.exceptions import MlflowException
    from mlflow.utils.validation import _validate_model_alias_name, _validate_model_alias_name_reserved

    try:
        _validate_model_alias_name(alias)
        _validate_model_alias_name_reserved(alias)
        valid = True
    except MlflowException:
        valid = False
    assert valid is not bool([*MLflowRegistry(uri="http://a").name_problems("digits", None, (alias,))])


class ClusterJobs:
    """What a cluster knows of a job that has succeeded."""

    def __init__(self, **changes: Any) -> None:
        known = {"phase": "Succeeded", "output": "pvc://digits-output/t4kz1f", "identity": Identity(id="t4kz1f")}
        self._status = JobStatus("digits", "team", **{**known, **changes})
        self.jobs = self

    def status(self, namespace: str, name: str) -> JobStatus | None:
        assert (namespace, name) == ("team", "digits")
        return self._status

    def runs(self, *_: str) -> list[Run]:
        metrics = {"loss": Metric(first="2", last="0.5"), "norm": Metric()}
        return [Run(id="t4kz1a"), Run(id="t4kz1f", inputs={"code": "abc"}, metrics=metrics)]

    def output_content(self, namespace: str, name: str, uri: str) -> Content:
        assert (namespace, name, uri) == ("team", "digits", "pvc://digits-output/t4kz1f")
        return Content("0" * 64, 2, 300)


def inputs(uri: str, **changes: Any) -> ModelVersionInputs:
    given: dict[str, Any] = {
        "target": {"kind": "kubernetes", "namespace": "team"},
        "component": "urn:pulumi:dev::lab::trainer:index:ModelVersion::digits",
        "namespace": "team",
        "job": "digits",
        "registry": {"kind": "kubeflow", "uri": uri},
        "model": "digits",
        "run": "t4kz1f",
    }
    return ModelVersionInputs(**{**given, **changes})


def test_the_output_of_a_cluster_is_registered_where_it_is() -> None:
    with model_registry_server() as registry:
        _, outputs = ModelVersions().create(inputs(registry.url), lambda _: ClusterJobs())
        ((_,), (version,), (artifact,)) = registry.objects.values()
    assert outputs.versions == ["digits-t4kz1f"] and outputs.digest == "sha256:" + "0" * 64
    found = {name: value["string_value"] for name, value in version["customProperties"].items()}
    assert found == {
        "trainer.model": "digits", "trainer.stack": "lab/dev", "trainer.job": "team/digits", "trainer.run": "t4kz1f",
        "trainer.digest": "sha256:" + "0" * 64, "trainer.output": "pvc://digits-output/t4kz1f", "trainer.files": "2",
        "trainer.bytes": "300", "trainer.input.code": "abc", "trainer.metric.loss": "0.5",
    }  # fmt: skip
    assert artifact["uri"] == "pvc://digits-output/t4kz1f" and artifact["modelSourceGroup"] == "team"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"cluster": "west"}, "is in the worker cluster west"),
        ({"identity": Identity(id="t4kz1g")}, "cannot be registered: the newest run is t4kz1g, which is Succeeded"),
        ({"phase": "Failed"}, "the newest run is t4kz1f, which is Failed. Hint: `pulumi up` registers the newest run"),
        ({"output": ""}, "has no output volume"),
    ],
)
def test_what_cannot_be_registered(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(TargetFault, match=why):
        ModelVersions().create(inputs("http://127.0.0.1:9"), lambda _: ClusterJobs(**changes))


def test_the_output_of_a_job_that_is_gone() -> None:
    jobs = ClusterJobs()
    jobs._status = None
    with pytest.raises(TargetFault, match="job team/digits is gone") as caught:
        ModelVersions().create(inputs("http://127.0.0.1:9"), lambda _: jobs)
    assert "Hint: `pulumi refresh` and `pulumi up` run the job again" in str(caught.value)


@pytest.mark.parametrize(
    ("registry", "why"),
    [
        ({"kind": "kubeflow", "uri": "http://me:s3cr3t-word@127.0.0.1"}, "registry.server: has credentials"),
        ({"kind": "mlflow", "uri": "http://a", "token": "s3cr3t-word"}, "registry.token: http://a would get it unenc"),
        ({"kind": "mlflow", "uri": "file:///tmp"}, "registry.uri: must be a URL with http:// or https://"),
        ({"kind": "mlflow", "uri": "https://a", "token": "s3cr3t-word"}, ""),
        ({"kind": "mlflow", "uri": Unknown("uri"), "token": "s3cr3t-word"}, ""),
    ],
)
def test_the_address_of_a_registry_is_checked_once_it_is_known(registry: dict[str, Any], why: str) -> None:
    given = inputs("", registry=registry)
    told = "\n".join(ModelVersions().check(None, given, None).failures)
    assert why in told and bool(why) is bool(told)
    assert "s3cr3t" not in told and "s3cr3t" not in given.where


def test_a_token_is_sent_instead_of_the_login_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    login = {"MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": "s3cr3t-word"}
    for name, value in login.items():
        monkeypatch.setenv(name, value)
    with model_registry_server(token="another") as registry:
        for token in ("mine", ""):
            with pytest.raises(TargetFault, match="the token is not valid"):
                MLflow(registry.url, token).has("digits", "1")
            assert {*login.items()} <= {*os.environ.items()} and "MLFLOW_TRACKING_TOKEN" not in os.environ
    assert registry.credentials[0] == "Bearer mine" and registry.credentials[-1].startswith("Basic ")


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """MLflow's client of a registry that is a folder."""
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = tmp_path.as_uri()
    return MlflowClient(uri, uri)


def mlflow_inputs(mlflow: Any, **changes: Any) -> ModelVersionInputs:
    return inputs("", registry={"kind": "mlflow", "uri": mlflow.tracking_uri}, **changes)


def jobs_with(run: str) -> Any:
    return lambda _: ClusterJobs(identity=Identity(id=run))


def test_a_run_of_mlflow_that_was_left_empty_gets_its_record(mlflow: Any) -> None:
    many = {f"input-{number}": str(number) for number in range(120)}
    metrics = {f"metric-{number}": str(number) for number in range(20)}
    given = Registration(
        "digits",
        "",
        (),
        "pvc://a/b",
        "",
        "lab",
        "team",
        "digits",
        "t4kz1f",
        {"trainer.run": "t4kz1f"},
        {},
        many,
        metrics,
    )
    left = mlflow.create_run(mlflow.create_experiment("lab"), tags={"trainer.run": "t4kz1f"})
    registry = MLflow(mlflow.tracking_uri, "")
    made = registry.register(given)
    assert registry.register(given) == made
    version = mlflow.get_model_version("digits", made.version)
    assert version.run_id == left.info.run_id
    data = mlflow.get_run(version.run_id).data
    assert data.params == many and len(data.metrics) == len(metrics) and data.metrics["metric-7"] == 7


def test_aliases_that_are_dropped_with_a_new_run_do_not_stay_on_the_version_before(mlflow: Any) -> None:
    before = mlflow_inputs(mlflow, run="t4kz1a", aliases=["best", "old"])
    _, outputs = ModelVersions().create(before, jobs_with("t4kz1a"))
    mlflow.set_registered_model_alias("digits", "of-others", outputs.registered)
    now = mlflow_inputs(mlflow, aliases=["best"])
    outputs = ModelVersions().update(outputs, now, jobs_with("t4kz1f"))
    aliases = mlflow.get_registered_model("digits").aliases
    assert {name: str(version) for name, version in aliases.items()} == {"best": "2", "of-others": "1"}
    assert outputs.versions == ["1", "2"]


def test_the_versions_before_one_that_somebody_has_removed_are_not_forgotten(mlflow: Any) -> None:
    made = ModelVersions()
    _, outputs = made.create(mlflow_inputs(mlflow, run="t4kz1a", retain=False), jobs_with("t4kz1a"))
    now = mlflow_inputs(mlflow, retain=False)
    outputs = made.update(outputs, now, jobs_with("t4kz1f"))
    mlflow.delete_model_version("digits", outputs.registered)
    left, (note,) = made.read(outputs, None)
    assert left and (left.registered, left.run, left.url, left.digest, left.versions) == ("", "", "", "", ["1"])
    assert "somebody has removed version 2" in note and made.read(left, None) == (left, [])
    assert made.diff(left, now).changes and not made.diff(left, now).replaces
    again = made.update(left, now, jobs_with("t4kz1f"))
    assert again.registered and again.versions == ["1", again.registered] and not made.diff(again, now).changes
    made.delete(left, None)
    assert "1" not in [each.version for each in mlflow.search_model_versions("name = 'digits'")]


def test_an_archived_version_is_gone_and_lives_when_it_is_registered_again() -> None:
    made = ModelVersions()
    with model_registry_server() as registry:
        given = inputs(registry.url)
        _, outputs = made.create(given, lambda _: ClusterJobs())
        (version,) = registry.objects["model_versions"]
        assert made.read(outputs, None) == (outputs, [])
        KubeflowRegistry(registry.url, "").remove("digits", outputs.registered)
        assert version["state"] == "ARCHIVED"
        left, (note,) = made.read(outputs, None)
        assert left and left.versions == [] and "somebody has removed version digits-t4kz1f" in note
        assert made.update(left, given, lambda _: ClusterJobs()) == outputs
        assert version["state"] == "LIVE" and len(registry.objects["model_versions"]) == 1


def test_a_server_that_is_not_there() -> None:
    outputs = ModelVersionOutputs.of(inputs("http://127.0.0.1:9"), registered="1", versions=["1"], retain=False)
    with pytest.raises(
        TargetFault, match=r"Kubeflow Model Registry at http://127.0.0.1:9: does not answer: .*127.0.0.1"
    ):
        ModelVersions().delete(outputs, None)
    assert ModelVersions().read(outputs, None)[0] == outputs


def test_a_server_of_mlflow_that_fails() -> None:
    at = {"registry": {"kind": "mlflow", "uri": "http://127.0.0.1:9"}, "registered": "1", "versions": ["1"]}
    outputs = ModelVersionOutputs.of(inputs(""), retain=False, **at)
    with pytest.raises(TargetFault, match=r"MLflow at http://127.0.0.1:9: does not answer: Connection refused$"):
        ModelVersions().delete(outputs, None)
    with model_registry_server(token="another") as registry:
        outputs = dataclasses.replace(outputs, registry={"kind": "mlflow", "uri": registry.url})
        with pytest.raises(
            TargetFault, match=f"MLflow at {registry.url}: refuses: INTERNAL_ERROR: the token is not valid$"
        ):
            ModelVersions().delete(outputs, None)


def test_only_another_run_or_setting_is_a_change() -> None:
    before, made = inputs("http://a"), ModelVersions()
    outputs = ModelVersionOutputs.of(before, registered="1", versions=["1"])
    assert not made.diff(outputs, before).changes and not made.check(before, before, None).notes
    for changes in ({"aliases": ["best"]}, {"retain": False}, {"run": "t4kz1g"}, {"run": Unknown("run")}):
        found = made.diff(outputs, inputs("http://a", **changes))
        assert found.changes and not found.replaces, changes
    assert made.diff(outputs, inputs("http://b")).replaces == ("registry",)
    assert made.diff(outputs, inputs("http://a", model="b")).replaces == ("model",)
    unknown = inputs("http://a", registry={"kind": "kubeflow", "uri": Unknown("uri")})
    assert made.diff(outputs, unknown).changes is None
    failed = made.check(before, inputs("http://a", run=""), None)
    assert failed.inputs.run == "t4kz1f" and not failed.notes and not made.diff(outputs, failed.inputs).changes


def test_importing_the_package_loads_no_client_of_a_registry() -> None:
    code = (
        "import sys, json, pulumi_trainer as t; t.ModelVersion, t.MLflowRegistry(uri='http://a').check();"
        " from pulumi_trainer.provider.engine import dynamic; from pulumi_trainer.provider.cli import main;"
        " print(json.dumps([m for m in sys.modules if m.split('.')[0] in ('mlflow', 'model_registry', 'mr_openapi', 'aiohttp')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
