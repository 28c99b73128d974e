"""Whatever a document has: a review answers, always the same, touches nothing, and does not mind the order of fields."""

from __future__ import annotations

import copy
from typing import Any

from admission_support import Store, job_template, jobset, pod_patch, runtime, train_job
from hypothesis import given, settings
from hypothesis import strategies as st
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

from tests.trainer import default_runtime, default_train_job, kinds, review, stored_jobset

STORE = Store(runtime())
MOUNT = {"name": "v", "mountPath": "/v"}
FULL = [
    runtime(podGroupPolicy={"coscheduling": {}}),
    runtime("TrainingRuntime", mlPolicy={"mpi": {"numProcPerNode": 2}}),
    train_job(
        initializer={"dataset": {"storageUri": "hf://a/b"}},
        trainer={"numNodes": 2, "env": [{"name": "A", "value": "b"}], "resourcesPerNode": {"limits": {"cpu": 1}}},
        runtimePatches=[pod_patch(containers=[{"name": "node", "volumeMounts": [MOUNT]}], volumes=[{"name": "v"}])],
    ),
    jobset(
        {"name": "node", "dependsOn": [{"name": "x", "status": "Ready"}], "template": job_template(ancestor=None)},
        coordinator={"replicatedJob": "node"},
        failurePolicy={"rules": [{"action": "FailJobSet"}]},
        network={"subdomain": "s"},
        volumeClaimPolicies=[{"templates": [{"metadata": {"name": "v"}, "spec": {}}]}],
        successPolicy={"operator": "All", "targetReplicatedJobs": ["node"]},
    ),
]

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["node", "1Gi", "2026-01-01T00:00:00Z", Unknown("1"), b"bytes", float("nan"), 10**400]),
)
keys = st.one_of(st.sampled_from(["name", "env", "spec", "metadata", "template"]), st.text(max_size=3), st.integers())
values = st.recursive(
    leaves, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)), max_leaves=8
)


def places(document: Any) -> list[tuple[Any, Any]]:
    """Everything that can be replaced: (holder, key)."""
    found: list[tuple[Any, Any]] = []
    for key, item in document.items() if isinstance(document, dict) else enumerate(document):
        found.append((document, key))
        if isinstance(item, (dict, list)):
            found += places(item)
    return found


@st.composite
def documents(draw: st.DrawFn) -> Any:
    """A document of a kind with a few parts replaced by anything."""
    document = copy.deepcopy(draw(st.sampled_from(FULL)))
    for _ in range(draw(st.integers(0, 3))):
        if found := [(holder, key) for holder, key in places(document) if key not in ("kind", "apiVersion")]:
            holder, key = draw(st.sampled_from(found))
            holder[key] = draw(values)
    return document


def backwards(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: backwards(value[key]) for key in reversed(list(value))}
    return [backwards(item) for item in value] if isinstance(value, list) else value


thorough = settings(max_examples=150)


@thorough
@given(documents(), documents())
def test_a_review_always_answers(document: Any, other: Any) -> None:
    given_ = copy.deepcopy(document)
    verdict = review(document, lookup=STORE)
    assert repr(document) == repr(given_)
    again = review(backwards(document), lookup=STORE)
    assert (again.stage, again.warnings) == (verdict.stage, verdict.warnings)
    if verdict.stage != "decode":  # there, reading stops at the first thing that is no data
        assert repr(again.errors) == repr(verdict.errors)
        assert again.stored == verdict.stored
    assert verdict.admitted is (verdict.stored is not None) is (not verdict.errors) is (verdict.stage is None)
    assert all(
        problem.why or problem.type in ("FieldValueRequired", "FieldValueDuplicate") for problem in verdict.errors
    )
    if verdict.stored is not None:
        assert review(verdict.stored, lookup=STORE).stored == verdict.stored
        assert review(verdict.stored, old=verdict.stored, lookup=STORE).admitted
        changed = review({**other, "metadata": verdict.stored["metadata"]}, old=verdict.stored, lookup=STORE)
        assert changed.admitted or changed.errors


@thorough
@given(values)
def test_anything_at_all(value: Any) -> None:
    assert review(value).stage == "decode"
    for kind in kinds.values():
        document = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "a"}, "spec": value}
        assert review(document, lookup=STORE) is not None


@thorough
@given(documents())
def test_defaults_come_once(document: Any) -> None:
    for fill in (default_runtime, default_train_job):
        before = copy.deepcopy(document)
        once = fill(document)
        assert repr(fill(once)) == repr(once)
        assert repr(document) == repr(before)
    if document["kind"] == "JobSet" and review(document).admitted:
        assert stored_jobset(stored_jobset(document)) == stored_jobset(document)


def test_long_lists_are_no_trouble() -> None:
    """Thousands of wrong items take a second, before and after an update; their square would take minutes."""
    many = [{"name": f"n{place}", "value": 5} for place in range(20_000)]
    document = train_job(trainer={"env": many})
    assert len(review(document).errors) == len(many)
    wrong = runtime(template={"spec": {"replicatedJobs": [{"name": f"n{place}"} for place in range(10_000)]}})
    assert len(review(wrong, old=default_runtime(wrong)).errors) == 0
    assert len(review(wrong, old=runtime()).errors) == 10_001
