"""Which release of Trainer a program's jobs follow, and what differs between releases."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import pulumi
import pytest
from admission_support import Store, job_template, runtime, train_job
from pulumi_trainer.program import trainer_release
from pulumi_trainer.program.targets import Destination, Kubernetes, Local, Place
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem, TargetFault
from pulumi_trainer.provider.kubernetes.schema import openapi
from pulumi_trainer.provider.lifecycle import channels, runtimes
from pulumi_trainer.provider.targets import connection, queries
from pulumi_trainer.provider.targets.kubernetes.cluster import Cluster
from pulumi_trainer.provider.targets.kubernetes.jobs import adoption
from pulumi_trainer.provider.targets.kubernetes.preflight.trainer_release import nearest_release
from pulumi_trainer.provider.trainer.admission import review as admission_review
from pulumi_trainer.provider.trainer.admission.cel_rules import PREDICATES
from pulumi_trainer.provider.trainer.kinds import TRAIN_JOB
from pulumi_trainer.provider.trainer.pipeline import Release
from pulumi_trainer.provider.trainer.releases import DEFAULT, NEWEST, RELEASES

from tests.trainer import review

each_release = pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)


def served(release: Release) -> dict[str, Any]:
    """What a server with the CRDs of a release tells about TrainJobs."""
    schema = copy.deepcopy(release.kinds["TrainJob"].schema.given)
    kind = {"group": "trainer.kubeflow.org", "version": "v1alpha1", "kind": "TrainJob"}
    return {"components": {"schemas": {"TrainJob": {**schema, "x-kubernetes-group-version-kind": [kind]}}}}


def nearest(described: dict[str, Any]) -> Release:
    schema = openapi.schema(described, TRAIN_JOB, PREDICATES)
    assert schema is not None
    return nearest_release(schema)


@each_release
def test_the_crds_of_a_cluster_tell_its_release(release: Release) -> None:
    assert nearest(served(release)) is release


def test_the_release_of_unknown_crds_is_the_nearest() -> None:
    later = served(NEWEST)
    spec = later["components"]["schemas"]["TrainJob"]["properties"]["spec"]["properties"]
    spec["elasticity"] = {"type": "object"}
    assert nearest(later) is NEWEST
    del spec["trainer"]["properties"]["numNodes"]["minimum"]
    del spec["trainer"]["properties"]["numProcPerNode"]["x-kubernetes-validations"]
    assert nearest(later) is DEFAULT


def configure(monkeypatch: pytest.MonkeyPatch, release: Release) -> None:
    monkeypatch.setattr(pulumi.Config, "get", lambda _, key: {"version": release.version}.get(key))


def chosen(monkeypatch: pytest.MonkeyPatch, destination: Destination, in_cluster: str, **place: Any) -> Release:
    monkeypatch.setattr(queries, "trainer_version", lambda _: in_cluster)
    target = connection.TargetInput({"kind": "kubernetes"})
    return asyncio.run(trainer_release.choose_release(destination, Place("team", target, **place)))


def test_configuration_then_cluster_then_default(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Kubernetes(mode="trainer")
    assert chosen(monkeypatch, trainer, NEWEST.version) is NEWEST
    assert chosen(monkeypatch, trainer, "") is DEFAULT
    assert chosen(monkeypatch, trainer, NEWEST.version, problems=[Problem("target", "is not known")]) is DEFAULT
    configure(monkeypatch, DEFAULT)
    assert chosen(monkeypatch, trainer, NEWEST.version) is DEFAULT


def test_without_trainers_controller_no_cluster_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for destination in (Local(), Kubernetes(mode="jobset")):
        assert chosen(monkeypatch, destination, NEWEST.version) is DEFAULT
    configure(monkeypatch, NEWEST)
    assert chosen(monkeypatch, Local(), "") is NEWEST


@each_release
def test_each_release_has_kinds_types_and_plugins_of_its_own(release: Release) -> None:
    assert {*release.kinds} == {"ClusterTrainingRuntime", "JobSet", "TrainJob", "TrainingRuntime"}
    assert "runtimePatches" in release.go.fields("TrainJobSpec")
    assert release.plugins[-1].name == "JobSet"
    assert len({plugin.name for plugin in release.plugins}) == len(release.plugins)


@each_release
def test_flux_without_processes(release: Release) -> None:
    flux = runtime(
        mlPolicy={"flux": {}}, template={"spec": {"replicatedJobs": [{"name": "node", "template": job_template()}]}}
    )
    verdict = review(train_job(trainer={"numNodes": 1, "numProcPerNode": 0}), release=release, lookup=Store(flux))
    stages = {"2.3.0": "validating-webhook", "8c0f5059b": "schema"}
    assert verdict.stage == stages[release.version]
    assert [problem.where for problem in verdict.errors] == ["spec.trainer.numProcPerNode"]


@each_release
@pytest.mark.parametrize("command", ["validate", "render"])
def test_the_commands_take_a_release(
    release: Release, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = runtime(), train_job(trainer={"numNodes": 1, "numProcPerNode": 0})
    file = tmp_path / "job.yaml"
    file.write_text("\n---\n".join(map(json.dumps, documents)))
    code = cli.run([command, "--mode", "trainer", "--trainer-version", release.version, str(file)])
    printed = "".join(capsys.readouterr())
    assert (code, "numProcPerNode must be greater than or equal to 1" in printed) == (
        (0, False) if release is DEFAULT else (1, True)
    )


def test_the_commands_name_the_releases(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.run(["validate", "--trainer-version", "2.4.0", "job.yaml"])
    assert ended.value.code == 2
    assert "invalid value '2.4.0' (expected " in (told := capsys.readouterr().err) and all(
        version in told for version in RELEASES
    )


def mpi_runtime(processes: int) -> dict[str, Any]:
    jobs = [{"name": name, "template": job_template()} for name in ("launcher", "node")]
    found = runtime(mlPolicy={"mpi": {"numProcPerNode": processes}}, template={"spec": {"replicatedJobs": jobs}})
    found["metadata"].update(name="mpi-team", labels={"trainer.kubeflow.org/framework": "mpi"})
    return found


@each_release
def test_the_commands_for_catalogues_take_a_release(
    release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in (0, 1):
        Path(f"{number}.json").write_text(json.dumps(mpi_runtime(number)))
        assert cli.run(["runtime", "new", f"mpi-team@{number + 1}.0.0", "--from", f"{number}.json"]) == 0
    capsys.readouterr()
    why = "NumProcPerNode in mpiPolicy must be >= 1"
    for command in ("check --lock", "diff mpi-team@1.0.0 mpi-team@2.0.0", "new mpi-team@3.0.0 --from 0.json"):
        try:
            code = cli.run(["runtime", *command.split(), "--trainer-version", release.version])
            printed = "".join(capsys.readouterr())
        except Invalid as error:
            code, printed = 1, str(error)
        assert (code, why in printed) == ((1, True) if release is NEWEST else (0, False)), printed


@pytest.mark.parametrize(("mode", "asks"), [("trainer", True), ("jobset", False)])
def test_adoption_compares_with_the_defaults_of_the_clusters_release(
    mode: str, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def version(_: Cluster) -> str:
        asked.append("schema")
        return NEWEST.version

    monkeypatch.setattr(Cluster, "trainer_version", version)
    cluster = Cluster(None, cluster=str, mode=mode)  # type: ignore[arg-type]  # no request
    assert (cluster.trainer_release(), bool(asked)) == ((NEWEST if asks else DEFAULT), asks)
    used: list[Release] = []

    def reviewed(job: dict[str, Any], release: Release) -> Any:
        used.append(release)
        return admission_review(job, release)

    monkeypatch.setattr(adoption, "review", reviewed)
    job = train_job()
    submission = Submission("default", "job", "owner", "digest", {"TrainJob/job": job})
    adoption.check(admission_review(job, NEWEST).stored, "", submission, TRAIN_JOB, cluster.trainer_release())
    assert used == [cluster.trainer_release()]


def test_a_cluster_that_cannot_be_read_has_the_default_release(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Cluster) -> str:
        raise TargetFault(Problem("", "is out of reach"))

    monkeypatch.setattr(Cluster, "trainer_version", fail)
    assert Cluster(None, cluster=str, mode="trainer").trainer_release() is DEFAULT  # type: ignore[arg-type]


@each_release
def test_notes_on_runtimes_and_channels_follow_the_release_of_the_plan(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Release] = []

    def compare(_before: Any, _after: Any, trainer: Release) -> list[Any]:
        used.append(trainer)
        return []

    for module in (runtimes, channels):
        monkeypatch.setattr(module, "compare", compare)
        monkeypatch.setattr(module, "find_consumers", lambda *_: ([], ""))
    about: Any = {"target": {"kind": "kubernetes"}, "component": "urn", "trainer": release.version}
    olds, news = (runtimes.RuntimeInputs(document=mpi_runtime(number), **about) for number in (1, 2))
    assert "none for jobs" in runtimes.change_notes(olds, news, lambda _: None)[0]  # type: ignore[arg-type, return-value]
    offers = [
        channels.ChannelInputs(channel="stable", runtime="mpi", release=number, document={}, **about)
        for number in ("1.0.0", "2.0.0")
    ]
    assert channels.Channels().check(offers[0], offers[1], lambda _: None).notes  # type: ignore[arg-type, return-value]
    assert used == [release, release]
