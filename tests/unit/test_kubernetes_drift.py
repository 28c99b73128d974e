"""What others have changed in a job, and what controllers change as part of their work."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pulumi_trainer.provider.lifecycle.changes import compare
from pulumi_trainer.provider.targets.kubernetes.jobs.admitted import drop_kueue_fields, keep_kueue_fields
from pulumi_trainer.provider.targets.kubernetes.jobs.drift import changeable_fields, changed_fields, removal_patch

QUEUE = {"kueue.x-k8s.io/queue-name": "gpus"}


def job(**spec: Any) -> dict[str, Any]:
    pod = {
        "metadata": {"labels": {"app": "a"}, "annotations": {"note": "1"}},
        "spec": {
            "nodeSelector": {"zone": "a"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "containers": [{"name": "node", "image": "i"}],
        },
    }
    return {
        "kind": "JobSet",
        "metadata": {"name": "a", "labels": {"team": "a"}, "annotations": {"pulumi-trainer.dev/owner": "o"}},
        "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": pod}}}], **spec},
    }


def pod_of(document: dict[str, Any]) -> dict[str, Any]:
    template: dict[str, Any] = document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return template


def test_the_job_as_it_was_applied_and_what_a_server_adds_are_no_drift() -> None:
    live = job(successPolicy={"operator": "All"}, suspend=False)
    live["metadata"]["labels"]["added"] = "by a webhook"
    live["status"] = {"conditions": []}
    assert changed_fields(changeable_fields(job()), live) == {}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.suspend", True),
        ("spec.ttlSecondsAfterFinished", 5),
        ("spec.coordinator", {"replicatedJob": "node"}),
        ("metadata.labels[team]", "b"),
        ("spec.replicatedJobs[node].template.spec.template.metadata.labels[app]", None),
        ("spec.replicatedJobs[node].template.spec.template.metadata.annotations[note]", "2"),
        ("spec.replicatedJobs[node].template.spec.template.spec.nodeSelector[zone]", "b"),
        ("spec.replicatedJobs[node].template.spec.template.spec.tolerations", []),
    ],
)
def test_a_human_s_change_is_named_with_the_value_now(path: str, value: Any) -> None:
    live = job()
    at: Any = pod_of(live) if ".template.spec.template." in path else live
    names = path.rpartition("template.spec.template.")[2].replace("[", ".").rstrip("]").split(".")
    for name in names[:-1]:
        at = at[name]
    if value is None:
        del at[names[-1]]
    else:
        at[names[-1]] = value
    assert changed_fields(changeable_fields(job()), live) == {path: value}


def test_kueue_suspends_and_adds_to_pods() -> None:
    live = job(suspend=True)
    live["metadata"]["labels"].update(QUEUE)
    pod_of(live)["spec"]["nodeSelector"]["cloud"] = "h100"
    pod_of(live)["spec"]["tolerations"].append({"key": "spot", "operator": "Exists"})
    assert changed_fields(changeable_fields(job()), live) == {}


def test_an_apply_says_what_kueue_has_written_into_pods_that_run() -> None:
    wanted, live = job(), job()
    for document in (wanted, live):
        document["metadata"]["labels"].update(QUEUE)
    pod = pod_of(live)
    pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"] = "w"
    pod["spec"]["nodeSelector"]["cloud"] = "h100"
    pod["spec"]["tolerations"].append({"key": "spot", "operator": "Exists"})
    pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}]
    before = copy.deepcopy(live)
    assert keep_kueue_fields(wanted, live) == live == before and wanted != live
    assert drop_kueue_fields(live, wanted) == {**wanted, "spec": drop_kueue_fields(live, wanted)["spec"]} != live
    assert compare({"JobSet/a": drop_kueue_fields(live, wanted)}, {"JobSet/a": wanted}) == []
    other = copy.deepcopy(wanted)
    pod_of(other)["spec"]["nodeSelector"] = {"zone": "b"}
    made = keep_kueue_fields(other, live)
    assert pod_of(made)["spec"]["nodeSelector"] == {"zone": "b"}, "the server refuses that, in its own words"
    assert compare({"JobSet/a": drop_kueue_fields(live, other)}, {"JobSet/a": other}) != []
    live["spec"]["suspend"] = True
    assert keep_kueue_fields(wanted, live) == wanted and drop_kueue_fields(live, wanted) == live, (
        "it waits: nobody has written into it"
    )
    del live["spec"]["suspend"], live["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    assert keep_kueue_fields(wanted, live) == wanted, "not Kueue's"


def test_our_own_annotations_are_not_looked_at() -> None:
    live = job()
    live["metadata"]["annotations"]["pulumi-trainer.dev/owner"] = "other"
    assert changed_fields(changeable_fields(job()), live) == {}


def test_what_somebody_has_added_is_taken_away() -> None:
    assert removal_patch(changeable_fields(job()), job(ttlSecondsAfterFinished=5, suspend=True)) == {
        "spec": {"ttlSecondsAfterFinished": None}
    }
    assert removal_patch(changeable_fields(job(ttlSecondsAfterFinished=9)), job(ttlSecondsAfterFinished=5)) == {}


def train_job(**spec: Any) -> dict[str, dict[str, Any]]:
    return {"TrainJob/a": {"kind": "TrainJob", "metadata": {"name": "a"}, "spec": {"trainer": {"numNodes": 2}, **spec}}}


@pytest.mark.parametrize(
    ("new", "effects"),
    [
        (train_job(), []),
        (train_job(suspend=True), ["update"]),
        (train_job(trainer={"numNodes": 3}), ["replace"]),
        (train_job(runtimePatches=[{"manager": "a.b/c"}]), ["replace"]),
        (train_job(suspend=True, runtimePatches=[{"manager": "a.b/c"}]), ["replace", "update"]),
        (train_job(activeDeadlineSeconds=5), ["update"]),
    ],
)
def test_what_may_change_in_a_train_job(new: dict[str, Any], effects: list[str]) -> None:
    assert [c.effect for c in compare(train_job(), copy.deepcopy(new))] == effects


def test_what_a_mutating_webhook_makes_of_our_request_is_no_drift() -> None:
    before, live = changeable_fields(job(ttlSecondsAfterFinished=60)), job(ttlSecondsAfterFinished=5)
    pod_of(live)["spec"]["nodeSelector"] = {"zone": "b"}
    pod_of(live)["metadata"]["labels"] = {"app": "b"}
    live["metadata"]["labels"]["team"] = "b"
    inside = {"f:metadata": {"f:labels": {"f:app": {}}}, "f:spec": {"f:nodeSelector": {}}}
    jobs = {'k:{"name":"node"}': {".": {}, "f:template": {"f:spec": {"f:template": inside}}}}
    ours = {"f:spec": {"f:ttlSecondsAfterFinished": {}, "f:replicatedJobs": jobs}}
    live["metadata"]["managedFields"] = [
        {"manager": "pulumi-trainer", "operation": "Apply", "fieldsV1": ours},
        {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {"f:team": {}}}}},
    ]
    assert changed_fields(before, live) == {"metadata.labels[team]": "b"}
    live["metadata"]["managedFields"][0]["operation"] = "Update"
    assert len(changed_fields(before, live)) == 4, "an Apply alone is ours"
