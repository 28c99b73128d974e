"""The cluster of documents: what the controller does with what it finds. Golden cases hold the rest."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from documents_support import runtime, thing, train_job
from pulumi_trainer import runtimes
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kubernetes.values.documents import parse
from pulumi_trainer.provider.trainer.offline import Cluster, Result, Verdicts, judge, report
from pulumi_trainer.provider.trainer.releases import DEFAULT

from tests.golden.golden_cases import RecordedCluster

NOW = 1_800_000_000.0


def jobset(**rest: Any) -> dict[str, Any]:
    return thing("JobSet", version="jobset.x-k8s.io/v1alpha2", **rest)


def deleted(target: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "oracle/v1", "kind": "OracleDelete", "metadata": {"name": "x"}, "target": target}


def applied(*documents: dict[str, Any], mode: Any = "trainer", **how: Any) -> tuple[Cluster, Result]:
    """The result for the last TrainJob or runtime of the documents; none of them is changed."""
    cluster, last = RecordedCluster(mode, how.pop("release", DEFAULT), now=NOW, **how), None
    before = copy.deepcopy(documents)
    for document in documents:
        last = cluster.apply(document) or last
    assert documents == before
    assert last is not None
    return cluster, last


def kinds(result: Result) -> list[str]:
    return [document["kind"] for document in result.objects]


def test_a_refused_document_changes_nothing() -> None:
    cluster, result = applied(runtime(), train_job(), train_job(runtimeRef={"name": "other"}))
    assert (result.stage, result.objects) == ("schema", [])
    stored = cluster.get(("trainer.kubeflow.org", "TrainJob", "team", "job"))
    assert stored is not None and stored["spec"]["runtimeRef"]["name"] == "rt"


def test_a_running_jobset_is_left_alone() -> None:
    labels = {"labels": {"a": "b"}}
    assert kinds(applied(runtime(), train_job(), train_job(labels))[1]) == []
    assert kinds(applied(runtime(), train_job(), train_job(labels, suspend=True))[1]) == ["JobSet"]
    assert kinds(applied(runtime(), train_job(suspend=True), train_job(labels))[1]) == ["JobSet"]
    assert kinds(applied(runtime(), jobset(spec={"replicatedJobs": []}), train_job())[1]) == []
    assert kinds(applied(runtime(), train_job(), train_job(labels), mode="jobset")[1]) == ["JobSet"]


def test_a_jobset_that_makes_no_sense() -> None:
    for rest in ({"spec": "x"}, {"status": "x"}, {"status": {"conditions": "x", "replicatedJobsStatus": ["x"]}}):
        cluster, result = applied(runtime(), train_job(), jobset(**rest), train_job({"labels": {"a": "b"}}))
        assert result.admitted and not result.objects and cluster.status(result) == {}


def test_multikueue_is_left_to_kueue() -> None:
    job = train_job(managedBy="kueue.x-k8s.io/multikueue")
    cluster, result = applied(runtime(), job)
    assert result.admitted and kinds(result) == []
    assert cluster.get(("jobset.x-k8s.io", "JobSet", "team", "job")) is None and cluster.status(result) == {}
    assert "leaves the TrainJob alone" in str(result.notes[0])
    assert kinds(applied(runtime(), job, mode="jobset")[1]) == ["JobSet"]


def test_the_runtime_is_frozen_when_the_job_comes() -> None:
    later = (train_job(suspend=True), runtime(5), train_job())
    _, result = applied(runtime(2), *later)
    assert result.objects[0]["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"] == 2
    _, result = applied(runtime(2), *later, mode="jobset")
    assert result.objects[0]["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"] == 5


OWNER = {"kind": "TrainJob", "name": "job", "uid": "11111111-1111-1111-1111-111111111111", "controller": True}


def snapshot(data: Any, owner: dict[str, Any] | None = None) -> dict[str, Any]:
    found = thing("ConfigMap", "job-runtime-snapshot", data=data)
    found["metadata"]["ownerReferences"] = [OWNER if owner is None else owner]
    return found


def test_without_a_runtime_nothing_is_built() -> None:
    gone = deleted(snapshot({}))
    cluster, result = applied(runtime(), train_job(), deleted(runtime()), gone, deleted(jobset()))
    assert cluster.get(("jobset.x-k8s.io", "JobSet", "team", "job")) is None
    assert result.admitted and cluster.status(result) == {}


@pytest.mark.parametrize(
    ("configmap", "why"),
    [
        (snapshot({"runtime": ""}, {**OWNER, "uid": "x"}), "belongs to another object"),
        (snapshot({"runtime": ""}, {**OWNER, "controller": False}), "belongs to another object"),
        (snapshot({"other": ""}), "has no key runtime"),
        ({**snapshot({}), "metadata": {**snapshot({})["metadata"], "ownerReferences": 3}}, "belongs to another object"),
        (snapshot(None), "has no key runtime"),
        (snapshot({"runtime": "a: ["}), "not valid YAML"),
        (snapshot({"runtime": ""}), "must contain one runtime, not 0"),
        (snapshot({"runtime": yaml.safe_dump({**runtime(), "metadata": {"name": "b"}})}), "is of ClusterTrainingRuntime b"),
        (snapshot({"runtime": yaml.safe_dump(runtime(kind="TrainingRuntime"))}), "is of TrainingRuntime rt"),
        (snapshot({"runtime": yaml.safe_dump({**runtime(), "apiVersion": "v1"})}), "is of ClusterTrainingRuntime rt"),
        (snapshot({"runtime": yaml.safe_dump({**runtime(), "metadata": None})}), "is of ClusterTrainingRuntime None"),
    ],
)  # fmt: skip
def test_a_bad_snapshot_builds_nothing(configmap: dict[str, Any], why: str) -> None:
    cluster, result = applied(runtime(), configmap, train_job(suspend=True))
    assert result.admitted and not result.objects
    assert f"nothing is built: {why}" in str(result.notes[0]).replace("the runtime's snapshot ", "").replace(
        "data.runtime ", ""
    )
    assert "delete the ConfigMap job-runtime-snapshot" in result.notes[0].hint
    assert cluster.status(result)["conditions"][0]["type"] == "Suspended"


def test_the_catalogue_stands_in_for_a_runtime() -> None:
    job = train_job(runtimeRef={"name": "torch-distributed"})
    _, result = applied(job, mode="jobset", catalogue=runtimes.load)
    assert result.admitted and kinds(result) == ["JobSet"]
    assert "torch-distributed is not among the documents, and was taken from the catalogue" in str(result.notes[0])
    own = {**runtime(3), "metadata": {"name": "torch-distributed"}}
    _, result = applied(own, job, mode="jobset", catalogue=runtimes.load)
    assert not result.notes
    for catalogue in (None, lambda name: None, lambda name: {**runtime(), "spec": {}}):
        _, result = applied(job, mode="jobset", catalogue=catalogue)
        assert result.stage == "validating-webhook"


def test_jobsets_own_verdict() -> None:
    job = train_job({"name": "j" * 63})
    _, result = applied(runtime(), job, mode="jobset")
    assert result.stage == "jobset" and not result.objects
    assert "63 characters" in result.errors[0].why and result.errors[0].where.startswith("JobSet/jjj")
    cluster, result = applied(runtime(), job)
    assert result.admitted and kinds(result) == ["JobSet"] and "63 characters" in str(result.notes[0])
    assert cluster.get(("jobset.x-k8s.io", "JobSet", "team", "j" * 63)) is None


def test_jobsets_refusals_without_a_field_stand_beside_those_with_one() -> None:
    job = train_job({"name": "j" * 63})
    rt = runtime()
    rt["spec"]["template"]["spec"]["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ["nobody"]}
    _, result = applied(rt, job, mode="jobset")
    told = [str(problem) for problem in result.errors]
    assert any("JobSet name is too long" in text for text in told)
    assert any("invalid replicatedJob name 'nobody' does not appear" in text for text in told)
    assert not any("<nil>" in text for text in told)


def test_a_quantity_with_a_line_feed_is_refused_where_trainers_webhook_decodes_it() -> None:
    _, result = applied(runtime(), train_job(trainer={"resourcesPerNode": {"limits": {"cpu": "1\n"}}}))
    assert result.stage == "mutating-webhook"
    assert "must be a quantity such as 3, 500m or 4Gi, not '1\\n'" in str(result.errors[0])
    _, result = applied(runtime(), train_job(trainer={"resourcesPerNode": {"limits": {"cpu": " 1 "}}}))
    assert result.stage == "schema"  # the webhook reads it and writes nothing back


def test_names_in_messages_are_quoted_as_go_does() -> None:
    _, result = applied(runtime(), train_job(runtimeRef={"name": 'a"b\n\x1b[2J'}))
    assert result.errors[0].why.startswith(
        'clustertrainingruntimes.trainer.kubeflow.org "a\\"b\\n\\x1b[2J" not found: '
    )


def test_unknown_fields() -> None:
    job = train_job(trainer={"numNode": 3}, other={}, runtimePatches=[])
    _, result = applied(runtime(), job)
    assert result.admitted
    assert (
        sorted(map(str, result.notes))[1]
        == "spec.trainer.numNode: unknown field: the field is dropped. Hint: did you mean numNodes?"
    )
    _, result = applied(runtime(), job, mode="jobset")
    assert (result.stage, result.objects) == ("decode", [])
    assert {str(p).partition(". Hint")[0] for p in result.errors} == {
        "spec.other: unknown field", "spec.trainer.numNode: unknown field",
    }  # fmt: skip
    deep = runtime()
    deep["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0][
        "imag"
    ] = 1
    _, result = applied(deep, mode="jobset")
    assert "did you mean image?" in str(result.errors[0])


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({**train_job(), "apiVersion": "kubeflow.org/v1"}, "must be trainer.kubeflow.org/v1alpha1 for a TrainJob"),
        ({**runtime(), "apiVersion": "trainer.kubeflow.org/v1"}, "must be trainer.kubeflow.org/v1alpha1"),
        ({**jobset(), "apiVersion": "jobset.x-k8s.io/v1alpha1"}, "must be jobset.x-k8s.io/v1alpha2 for a JobSet"),
        ({**thing("ConfigMap"), "metadata": None}, "a ConfigMap needs a name"),
        (deleted({"kind": "JobSet"}), "target: must have apiVersion, kind and metadata"),
        ({**thing("Secret"), "metadata": {"name": 3}}, "a Secret needs a name"),
    ],
)
def test_what_no_cluster_has(document: dict[str, Any], why: str) -> None:
    with pytest.raises(Invalid, match=why):
        RecordedCluster("trainer", DEFAULT).apply(document)


def test_a_job_without_a_name_is_refused() -> None:
    assert not applied(runtime(), {**train_job(), "metadata": {"namespace": "team"}})[1].admitted
    assert not applied(runtime(), {**train_job(), "metadata": 3})[1].admitted


GATE = {"apiVersion": "oracle/v1", "kind": "OracleConfig", "trainJobStatus": True}
CERTIFICATE = {
    "apiVersion": "v1", "kind": "Secret",
    "metadata": {"name": "kubeflow-trainer-webhook-cert", "namespace": "kubeflow-system"}, "data": {"ca.crt": "Q0E="},
}  # fmt: skip


def test_the_gate_of_trainers_status_server() -> None:
    _, result = applied(GATE, CERTIFICATE, runtime(), train_job())
    assert kinds(result) == ["ConfigMap", "JobSet"] and result.objects[0]["data"] == {"ca.crt": "CA"}
    assert kinds(applied({**GATE, "trainJobStatus": False}, CERTIFICATE, runtime(), train_job())[1]) == ["JobSet"]
    for data in ({}, {"ca.crt": ""}, {"ca.crt": "%"}, {"ca.crt": 3}, {"ca.crt": "/w=="}, None):
        _, result = applied(GATE, {**CERTIFICATE, "data": data}, runtime(), train_job())
        assert not result.objects and "has no ca.crt" in str(result.notes[0])
    assert applied(GATE, runtime(), train_job())[1].notes


def test_namespaces() -> None:
    _, result = applied(
        runtime(kind="TrainingRuntime"), train_job(runtimeRef={"name": "rt", "kind": "TrainingRuntime"})
    )
    assert result.stage == "validating-webhook"  # the runtime is in default
    job = train_job({"namespace": ""}, runtimeRef={"name": "rt", "kind": "TrainingRuntime"})
    _, result = applied(runtime(kind="TrainingRuntime"), job)
    assert result.admitted and result.namespace == "default"


def run(text: str, mode: Any = "trainer") -> tuple[dict[str, Any], bool]:
    verdicts = Verdicts()
    for _ in judge(parse(text, "f.yaml"), Cluster(mode, DEFAULT, now=NOW), verdicts):
        pass
    return report(verdicts), verdicts.refused


def test_the_report_is_about_the_last_train_job() -> None:
    wrong = train_job({"name": "Wrong"})
    found, refused = run(
        yaml.safe_dump_all([runtime(), wrong, train_job(suspend=True), runtime(2), thing("ConfigMap")])
    )
    assert found["admitted"] and found["stage"] is None and refused
    assert found["warnings"][-1].startswith("TrainJob Wrong is refused: ")
    assert found["status"]["conditions"][0]["type"] == "Suspended"
    assert found["objects"][0]["kind"] == "JobSet"
    found, refused = run(yaml.safe_dump_all([runtime(), {**runtime(), "spec": {}}]))
    assert not found["admitted"] and refused
    found, refused = run(yaml.safe_dump_all([{**runtime(), "spec": {}}, runtime()]))
    assert found["admitted"] and refused  # the files of two teams: a later one mends nothing


def test_errors_say_field_type_and_detail() -> None:
    found, _ = run(yaml.safe_dump_all([runtime(), train_job(activeDeadlineSeconds=0)]))
    (error,) = found["errors"]
    assert error["field"] == "spec.activeDeadlineSeconds" and error["type"] == "FieldValueInvalid"
    assert "should be greater than or equal to 1" in error["detail"]
    found, _ = run(yaml.safe_dump_all([runtime(), train_job(trainer={"image": 1.1})]))
    assert found["stage"] == "mutating-webhook" and "write it in quotes" in found["errors"][0]["detail"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "found no TrainJob and no runtime to check"),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
            "f.yaml, document 1, line 2: found ConfigMap, but no TrainJob and no runtime",
        ),
        (
            "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJobb\nmetadata: {name: a}\n",
            "found TrainJobb, but no TrainJob and no runtime to check. Hint: did you mean TrainJob",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: TrainJob\n",
            r"f.yaml, document 2, line 5: apiVersion: must be trainer.kubeflow.org/v1alpha1 for a TrainJob, not v1",
        ),
    ],
)
def test_what_cannot_be_judged(text: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        run(text)


def test_objects_of_a_report_are_in_a_fixed_order() -> None:
    result = Result("TrainJob", "team", "job", None, (), ())
    result.objects = [thing("Secret"), thing("Zebra"), thing("ConfigMap", "b"), thing("ConfigMap", "a"), jobset()]
    found = report(Verdicts(result))["objects"]
    assert [(o["kind"], o["metadata"]["name"]) for o in found] == [
        ("JobSet", "job"), ("ConfigMap", "a"), ("ConfigMap", "b"), ("Secret", "job"), ("Zebra", "job"),
    ]  # fmt: skip
