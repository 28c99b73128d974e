"""The two modes differ in what docs/differences.md lists, in every golden case, and in nothing else.

`proves(n)` marks the test of row n of that table; each row has one.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from golden_cases import CASES, NAMES, RecordedCluster, having
from pulumi_trainer.plugins import EnforceMLPolicyPlugin, Policy
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kubernetes.values.documents import documents
from pulumi_trainer.provider.targets.generated_secrets import generate_values, keys_to_generate
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs import record
from pulumi_trainer.provider.targets.local.plan import Site
from pulumi_trainer.provider.targets.local.pod_processes import Tuning
from pulumi_trainer.provider.targets.local.record import Record as LocalRecord
from pulumi_trainer.provider.trainer.offline import Cluster
from pulumi_trainer.provider.trainer.offline.snapshots import SUFFIX
from pulumi_trainer.provider.trainer.pipeline import Disruptions, registry
from pulumi_trainer.provider.trainer.pipeline.plugins.mpi import OPEN_MPI_5
from pulumi_trainer.provider.trainer.releases import DEFAULT
from pulumi_trainer.runtimes import load

from tests.trainer import render

PAGE = (Path(__file__).parents[2] / "docs" / "differences.md").read_text().partition("## Where the Local target")[0]
ROWS = {int(number): text for number, text in re.findall(r"^\| (\d+) \| (.*) \|$", PAGE, re.M)}
CODE = [file for part in ("components", "provider") for file in (Path(__file__).parents[2] / part).rglob("*.py")]
PROVEN: dict[int, list[str]] = {}


def proves(*rows: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark the test of rows of the table."""

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        for row in rows:
            PROVEN.setdefault(row, []).append(test.__name__)
        return test

    return mark


def test_each_row_of_the_table_has_its_test() -> None:
    assert sorted(ROWS) == sorted(PROVEN) == list(range(1, len(ROWS) + 1))
    for row, text in ROWS.items():
        for path in re.findall(r"`([\w/]+\.py)`", text.rpartition(" | ")[2]):
            assert any(path in str(file) for file in CODE), f"row {row}: {path}"


KUEUE = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/priority-class": "high"}
MULTIKUEUE = "kueue.x-k8s.io/multikueue"


def rendered(name: str, mode: Any, **spec: Any) -> list[dict[str, Any]] | str:
    """What the last TrainJob of a case is rendered to, with labels, annotations and `spec` on top of its own."""
    cluster, last = RecordedCluster("trainer", DEFAULT), None
    for document in documents(CASES / name / "input.yaml"):
        last = cluster.apply(document.content) or last
    assert last is not None
    train_job = cluster.get(("trainer.kubeflow.org", "TrainJob", last.namespace, last.name))
    snapshot = cluster.get(("", "ConfigMap", last.namespace, f"{last.name}-runtime-snapshot"))
    assert train_job is not None and snapshot is not None
    train_job["metadata"] |= {"labels": KUEUE, "annotations": {"a0": "job"}}
    train_job["spec"] |= spec
    try:
        return list(render(snapshot, train_job, mode=mode).objects.values())
    except Invalid as error:
        return str(error)


def as_controller(objects: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Objects of mode jobset with the listed differences taken back; each has to be there."""
    objects = copy.deepcopy(objects)
    jobs = [(j.get("replicas", 1), j["template"]["spec"]["parallelism"]) for j in replicated(objects)]
    for mine, other in zip(objects, theirs, strict=True):
        assert "ownerReferences" not in mine["metadata"]  # 5
        mine["metadata"]["ownerReferences"] = other["metadata"]["ownerReferences"]
        if mine["kind"] == "PodGroup":  # 12; no case has a gang of several stages
            assert mine["spec"]["minMember"] == sum(replicas * pods for replicas, pods in jobs)
            assert other["spec"]["minMember"] == sum(pods for _, pods in jobs)
            mine["spec"]["minMember"] = other["spec"]["minMember"]
        if mine["kind"] != "JobSet":
            continue
        assert KUEUE.items() <= mine["metadata"]["labels"].items()  # 1
        assert mine["metadata"]["annotations"]["a0"] == "job"
        for part in ("labels", "annotations"):
            mine["metadata"][part] = other["metadata"].get(part)
            if mine["metadata"][part] is None:
                del mine["metadata"][part]
        assert "suspend" not in mine["spec"]  # 4
        if "suspend" in other["spec"]:
            mine["spec"]["suspend"] = other["spec"]["suspend"]
        assert mine["spec"].pop("managedBy") == MULTIKUEUE  # 3
        if "managedBy" in other["spec"]:
            mine["spec"]["managedBy"] = other["spec"]["managedBy"]
        if "failurePolicy" in other["spec"]:  # 2
            rules = mine["spec"]["failurePolicy"].get("rules", [])
            mine["spec"]["failurePolicy"]["rules"] = [r for r in rules if r["name"] != "activeDeadlineSeconds"]
            if "rules" not in other["spec"]["failurePolicy"]:
                del mine["spec"]["failurePolicy"]["rules"]
        for job, its in zip(
            mine["spec"].get("replicatedJobs", []), other["spec"].get("replicatedJobs", []), strict=True
        ):
            labels = job["template"].get("metadata", {}).get("labels", {})
            if labels.get("trainer.kubeflow.org/trainjob-ancestor-step") == "trainer":  # 2
                limit = its["template"]["spec"].pop("activeDeadlineSeconds", 60)
                assert job["template"]["spec"].pop("activeDeadlineSeconds") == min(60, limit)
            for container in job["template"]["spec"]["template"]["spec"].get("containers", []):
                if "env" in container:  # 14
                    container["env"] = [each for each in container["env"] if each["name"] not in OPEN_MPI_5.values()]
    return objects


def replicated(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    jobset = next(document for document in objects if document["kind"] == "JobSet")
    found: list[dict[str, Any]] = jobset["spec"].get("replicatedJobs", [])
    return found


@proves(1, 2, 3, 4, 5)
@pytest.mark.parametrize(
    "name", [n for n in having("snapshot") if not n.startswith("u-snapshot") or n == "u-snapshot-resume"]
)
def test_modes_differ_as_listed(name: str) -> None:
    changes = {"activeDeadlineSeconds": 60, "managedBy": MULTIKUEUE}
    mine, theirs = rendered(name, "jobset", **changes), rendered(name, "trainer", **changes)
    if isinstance(mine, str) or isinstance(theirs, str):
        assert mine == theirs
    else:
        assert as_controller(mine, theirs) == theirs


MANIFEST = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}


def train_job(runtime: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "job", "namespace": "team", "uid": "uid-1"}
    return {**MANIFEST, "metadata": metadata, "spec": {"runtimeRef": {"name": runtime}, "trainer": {}, **spec}}


ACTIVE = "RuntimePatches cannot be modified when the JobSet's ReplicatedJob node is still active"


@proves(10, 13)
@pytest.mark.parametrize("name", NAMES)
def test_verdicts_differ_as_listed(name: str) -> None:
    """For all 312 cases, up to the first document whose verdict differs."""
    mine, theirs = RecordedCluster("jobset", DEFAULT), RecordedCluster("trainer", DEFAULT)
    for document in documents(CASES / name / "input.yaml"):
        here, there = mine.apply(copy.deepcopy(document.content)), theirs.apply(document.content)
        if here is None or there is None:
            assert here is there
        elif here.stage == there.stage:
            assert {str(p) for p in here.errors} == {str(p) for p in there.errors}
        elif here.stage == "decode":  # 10
            assert there.admitted and any("the field is dropped" in note.why for note in there.notes)
            assert all("unknown field" in problem.why for problem in here.errors)
            return
        elif here.admitted:  # 13
            assert [problem.why for problem in there.errors] == [ACTIVE]
            return
        else:  # 10
            assert here.stage == "jobset" and there.admitted
            assert {str(p) for p in here.errors} <= {str(note) for note in there.notes}
            return


def test_both_of_these_happen() -> None:
    unknown = {**train_job("torch-distributed"), "specc": {}}
    assert verdict("jobset", unknown) == "decode" and verdict("trainer", unknown) is None
    long = train_job("torch-distributed")
    long["metadata"]["name"] = "a" * 60
    assert verdict("jobset", long) == "jobset" and verdict("trainer", long) is None


def verdict(mode: Any, document: dict[str, Any]) -> str | None:
    cluster = Cluster(mode, DEFAULT, catalogue=load)
    result = cluster.apply(document)
    assert result is not None
    return result.stage


@proves(2)
def test_a_restart_gives_no_new_deadline() -> None:
    runtime = load("plain")
    spec = runtime["spec"]["template"]["spec"]
    node = spec["replicatedJobs"][0]["template"]["spec"]

    def policy(**fields: Any) -> Any:
        return render(runtime, train_job("plain", **fields)).objects["JobSet/job"]["spec"].get("failurePolicy")

    assert policy(activeDeadlineSeconds=60) is None, "then any failed Job fails the JobSet"
    spec["failurePolicy"] = {"maxRestarts": 3}
    assert policy() == {"maxRestarts": 3}
    rule = {
        "name": "activeDeadlineSeconds", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"],
        "targetReplicatedJobs": ["node"],
    }  # fmt: skip
    assert policy(activeDeadlineSeconds=60) == {"maxRestarts": 3, "rules": [rule]}
    made = render(runtime, train_job("plain", activeDeadlineSeconds=60), disruptions=Disruptions()).objects[
        "JobSet/job"
    ]
    assert made["spec"]["failurePolicy"]["rules"][0] == rule and len(made["spec"]["failurePolicy"]["rules"]) == 2
    node["activeDeadlineSeconds"] = 9
    assert policy(activeDeadlineSeconds=60) == {"maxRestarts": 3}, "the lower limit is the runtime's own"
    del node["activeDeadlineSeconds"]
    own = {"name": "mine", "action": "RestartJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}
    spec["failurePolicy"]["rules"] = [own]
    assert policy(activeDeadlineSeconds=60)["rules"] == [own]


@proves(6)
def test_owner_and_stack_are_kept_with_a_job(tmp_path: Path) -> None:
    objects = render(load("plain"), train_job("plain")).objects
    submission = Submission("team", "job", "owner-1", "digest", objects, sweep="stack-1")
    site = Site(tmp_path, tmp_path / "job", "uid-1", python="python3", environments=tmp_path, user_environment={})
    local = LocalRecord.of(submission, site, Tuning())
    assert record.labels(submission)[owner_labels.STACK] == "stack-1"
    assert record.job_annotations(submission)[owner_labels.OWNER] == "owner-1"
    assert (local.owner, local.stack) == ("owner-1", "stack-1")
    theirs = render(load("plain"), train_job("plain"), mode="trainer").objects
    assert "stack-1" not in str(theirs)


@proves(7)
def test_no_snapshot_of_the_runtime() -> None:
    runtime, job = load("plain"), train_job("plain")
    for mode, there in (("jobset", False), ("trainer", True)):
        cluster = Cluster(mode, DEFAULT)  # type: ignore[arg-type]
        cluster.apply(runtime)
        cluster.apply(job)
        assert (cluster.get(("", "ConfigMap", "team", f"job{SUFFIX}")) is not None) is there


class OursPolicy(Policy):
    serves = "mlPolicy.ours"


class Ours(EnforceMLPolicyPlugin):
    name = "Ours"
    policies = (OursPolicy,)

    def enforce_ml_policy(self, info: Any, train_job: Any) -> None:
        info.trainer_container.env = [{"name": "OURS", "value": "1"}]


@proves(8)
def test_policies_of_own_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", [])
    registry.register_plugin(Ours())
    runtime = load("plain")
    runtime["spec"]["mlPolicy"] = {"ours": {}}
    assert "OURS" in str(render(runtime, train_job("plain")).objects)
    with pytest.raises(Invalid, match="is a plugin's own policy"):
        render(runtime, train_job("plain"), mode="trainer")


@proves(9)
def test_runtimes_come_from_the_catalogue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(train_job("torch-distributed")))
    assert cli.run(["validate", str(file)]) == 0
    assert "taken from the catalogue" in capsys.readouterr().out
    assert cli.run(["validate", "--mode", "trainer", str(file)]) == 1


@proves(11)
@pytest.mark.parametrize("name", ["deepspeed-distributed", "flux"])
def test_keys_are_placeholders_that_a_target_fills(name: str) -> None:
    runtime, job = load(name), train_job(name, trainer={"numNodes": 2})
    if name == "flux":
        runtime["spec"]["mlPolicy"]["flux"] = {"numProcPerNode": 1}
    secret, again = (
        next(document for document in render(runtime, job).objects.values() if document["kind"] == "Secret")
        for _ in range(2)
    )
    assert secret == again
    data = secret.get("data") or secret["stringData"]
    assert set(keys_to_generate(data)) == set(data)
    assert generate_values(data) != generate_values(data)


@proves(14)
def test_a_launcher_has_the_variables_of_open_mpi_5_too() -> None:
    """Their values: `tests/unit/test_plugin_mpi.py`."""
    runtime, job = load("deepspeed-distributed"), train_job("deepspeed-distributed", trainer={"numNodes": 2})
    mine, theirs = (str(render(runtime, job, mode=mode).objects) for mode in ("jobset", "trainer"))  # type: ignore[arg-type]
    assert all(four in mine and four in theirs for four in OPEN_MPI_5)
    assert all(five in mine and five not in theirs for five in OPEN_MPI_5.values())


@proves(15)
def test_torchrun_counts_claimed_devices() -> None:
    """More of them: `tests/unit/test_device_claims.py`."""
    runtime, job = load("torch-distributed"), train_job("torch-distributed")
    pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["resources"] = {"claims": [{"name": "gpus"}]}
    mine, theirs = (str(render(runtime, job, mode=mode).objects) for mode in ("jobset", "trainer"))  # type: ignore[arg-type]
    processes = "{'name': 'PET_NPROC_PER_NODE', 'value': '%s'}"
    assert processes % "auto" in mine and processes % "1" in theirs


@proves(12)
def test_a_gang_has_a_podgroup_for_each_stage() -> None:
    runtime = load("plain")
    runtime["spec"]["podGroupPolicy"] = {"coscheduling": {"scheduleTimeoutSeconds": 60}}
    steps = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    first = copy.deepcopy(steps[0])
    first["name"] = "prepare"
    first["template"].pop("metadata", None)
    steps[0]["dependsOn"] = [{"name": "prepare", "status": "Complete"}]
    steps.insert(0, first)
    job = train_job("plain", trainer={"numNodes": 3})
    mine = {n: o["spec"]["minMember"] for n, o in render(runtime, job).objects.items() if n.startswith("PodGroup/")}
    assert mine == {"PodGroup/job.prepare": 1, "PodGroup/job.node": 3}
    rendered = render(runtime, job, mode="trainer").objects
    assert {n: o["spec"]["minMember"] for n, o in rendered.items() if n.startswith("PodGroup/")} == {"PodGroup/job": 4}
