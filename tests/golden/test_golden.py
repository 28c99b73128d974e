"""Rendering, defaults and reviews against what the real Kubeflow Trainer made of the same documents: see README.md."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pulumi_trainer.provider.admission import default_runtime, default_train_job, review_jobset
from pulumi_trainer.provider.admission.defaults import stored_jobset
from pulumi_trainer.provider.api.errors import Invalid
from pulumi_trainer.provider.api.typed import Findings, typed
from pulumi_trainer.provider.pipeline import render, validate

CASES = Path(__file__).parent / "cases"
UID = "11111111-1111-1111-1111-111111111111"
WITHOUT_IMAGE = {
    "g-init-container-in-containers",
    "g-node-env-in-init-containers",
    "g-unknown-initcontainer",
    "i-empty-image-command",
}


def documents(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The runtime as it was when the first TrainJob came, and the TrainJob as it was sent last."""
    found = [d for d in yaml.safe_load_all((CASES / name / "input.yaml").read_text()) if d]
    train_jobs = [d for d in found if d["kind"] == "TrainJob"]
    before = found[: found.index(train_jobs[0])]
    runtimes = [d for d in before if d["kind"] in ("ClusterTrainingRuntime", "TrainingRuntime")]
    train_job = train_jobs[-1]
    train_job["metadata"]["uid"] = UID
    return runtimes[-1], train_job


def expected(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((CASES / name / "expected.json").read_text())
    return read


NAMES = sorted(path.name for path in CASES.iterdir())
RENDERED = [n for n in NAMES if "objects" in expected(n)]
JUDGED = [n for n in NAMES if expected(n).get("stage") == "validating-webhook" and "errors" in expected(n)]
REFUSED = [n for n in NAMES if n not in RENDERED and n not in JUDGED]


def test_every_case_is_run() -> None:
    assert len(RENDERED) == 109
    assert len(JUDGED) == 10
    assert all(expected(name)["message"] for name in REFUSED)
    assert len(NAMES) == len(RENDERED) + len(JUDGED) + len(REFUSED)


@pytest.mark.parametrize("name", RENDERED)
def test_objects(name: str) -> None:
    runtime, train_job = documents(name)
    rendered = render(default_runtime(runtime), default_train_job(train_job), mode="trainer")
    assert list(rendered.objects.values()) == expected(name)["objects"]
    assert list(rendered.objects) == [f"JobSet/{train_job['metadata']['name']}"]


@pytest.mark.parametrize("name", RENDERED)
def test_train_job_as_stored(name: str) -> None:
    _, train_job = documents(name)
    stored = expected(name)["trainJob"]
    patches = stored["spec"].pop("runtimePatches", [])
    mine = default_train_job(train_job)
    # The server adds the time of each patch, prints patches anew, and drops what it does not know.
    assert [p["manager"] for p in mine["spec"].pop("runtimePatches", [])] == [p["manager"] for p in patches]
    for spec in (mine["spec"], stored["spec"]):
        spec.update(typed("TrainJobSpec", spec, None, Findings(), applied=True))
    assert {key: mine["spec"][key] for key in stored["spec"]} == stored["spec"]
    assert mine["metadata"]["namespace"] == stored["metadata"]["namespace"]


@pytest.mark.parametrize("name", RENDERED)
def test_runtime_as_stored(name: str) -> None:
    runtime, _ = documents(name)
    stored = expected(name)["snapshot"]["runtime"]["spec"]
    mine = typed("TrainingRuntimeSpec", default_runtime(runtime)["spec"], None, Findings(), applied=True)
    no_template: dict[str, Any] = {"template": {"metadata": {}, "spec": {}}}  # left out if it is empty
    assert {**no_template, **mine} == {**no_template, **stored}


@pytest.mark.parametrize("name", [n for n in RENDERED if "jobSetDefaulted" in expected(n)])
def test_jobset_as_stored(name: str) -> None:
    wanted = expected(name)
    assert stored_jobset(wanted["objects"][0]) == wanted["jobSetDefaulted"]


@pytest.mark.parametrize("name", RENDERED)
def test_jobset_is_admitted_or_not(name: str) -> None:
    wanted = expected(name)
    found = review_jobset(wanted["objects"][0])
    if name in WITHOUT_IMAGE:
        assert [problem.why for problem in found] == ["is required"]
        assert found[0].where.endswith(".image")
    else:
        assert (not found) == wanted["jobSetAdmission"]["admitted"]


@pytest.mark.parametrize("name", JUDGED)
def test_webhook_refuses(name: str) -> None:
    runtime, train_job = documents(name)
    found = validate(default_runtime(runtime), default_train_job(train_job))
    wanted = [(error["field"], error["detail"]) for error in expected(name)["errors"]]
    assert sorted((problem.where, problem.why) for problem in found) == sorted(wanted)


@pytest.mark.parametrize("name", RENDERED)
def test_webhook_admits(name: str) -> None:
    runtime, train_job = documents(name)
    assert validate(default_runtime(runtime), default_train_job(train_job)) == ()


@pytest.mark.parametrize("name", REFUSED)
def test_cannot_be_rendered(name: str) -> None:
    runtime, train_job = documents(name)
    with pytest.raises(Invalid):
        render(default_runtime(runtime), default_train_job(train_job), mode="trainer")


def shuffled(document: Any, order: st.DataObject) -> Any:
    """The same document with its mappings written in another order."""
    if isinstance(document, dict):
        keys = order.draw(st.permutations(list(document)))
        return {key: shuffled(document[key], order) for key in keys}
    return [shuffled(item, order) for item in document] if isinstance(document, list) else document


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(RENDERED), st.sampled_from(["jobset", "trainer"]), st.data())
def test_same_documents_same_bytes(name: str, mode: Any, order: st.DataObject) -> None:
    runtime, train_job = (default_runtime(documents(name)[0]), default_train_job(documents(name)[1]))
    before = copy.deepcopy((runtime, train_job))
    first = json.dumps(render(runtime, train_job, mode=mode).objects)
    assert (runtime, train_job) == before
    assert json.dumps(render(shuffled(runtime, order), shuffled(train_job, order), mode=mode).objects) == first
