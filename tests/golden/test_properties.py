"""What holds for all documents; those of the golden cases, changed at random, are where they come from."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from typing import Any

from golden_cases import CASES, NAMES, RecordedCluster, expected
from hypothesis import given, settings
from hypothesis import strategies as st
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kubernetes.values.documents import documents
from pulumi_trainer.provider.trainer.offline import Verdicts, report
from pulumi_trainer.provider.trainer.releases import DEFAULT

from tests.trainer import render, review

MODES: Any = st.sampled_from(["jobset", "trainer"])
NOW = 1_800_000_000.0
JUNK = [
    None, "", "x", "Ä", "a" * 300, "1", "-1", "1.5", "500m", "yes", 0, 1, -1, 2**31, 2**63, 2**70, 1.5, 1e300, True, False,
    [], {}, [None], [[]], [{}], {"": ""}, {"name": "node"}, [{"name": "node"}], [{"name": 1}], {"a": {"b": {"c": []}}},
    "$(X)", "2026-01-01T00:00:00Z", "trainer", "node", {"$patch": "replace"}, {"$patch": "delete"}, {"$retainKeys": [1]},
]  # fmt: skip


@functools.cache
def given_documents(name: str) -> tuple[dict[str, Any], ...]:
    return tuple(d.content for d in documents(CASES / name / "input.yaml"))


def outcome(found: list[dict[str, Any]], mode: Any) -> str:
    """The report as text; raises nothing but Invalid, which is told."""
    cluster, last = RecordedCluster(mode, DEFAULT, now=NOW), None
    before = json.dumps(found)
    try:
        for document in found:
            last = cluster.apply(document) or last
    except Invalid as error:
        assert str(error)
        return str(error)
    finally:
        assert json.dumps(found) == before
    assert last is not None
    verdicts = Verdicts(last, cluster.status(last))
    if not last.admitted:
        assert last.errors and not last.objects
    return json.dumps(report(verdicts))


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every value of a document, as what holds it and the key or index there."""
    for key, item in list(value.items()) if isinstance(value, dict) else list(enumerate(value)):
        yield value, key
        if isinstance(item, (dict, list)):
            yield from places(item)


def mutated(found: list[dict[str, Any]], data: st.DataObject) -> list[dict[str, Any]]:
    found = copy.deepcopy(found)
    for _ in range(data.draw(st.integers(1, 3))):
        document = data.draw(st.sampled_from(found))
        holder, key = data.draw(st.sampled_from(list(places(document))))
        how = data.draw(st.sampled_from(["put", "put", "remove", "twice", "add"]))
        if how == "remove" and holder is not document:
            del holder[key]
        elif how == "twice" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        elif how == "add" and isinstance(holder, dict):
            added = data.draw(st.sampled_from(["x", "name", "spec", "env", "replicas", "$patch"]))
            holder[added] = copy.deepcopy(data.draw(st.sampled_from(JUNK)))
        elif holder is not document or key not in ("apiVersion", "kind"):
            holder[key] = copy.deepcopy(data.draw(st.sampled_from(JUNK)))
    return found


def shuffled(document: Any, data: st.DataObject) -> Any:
    """The same document with its mappings written in another order."""
    if isinstance(document, dict):
        keys = data.draw(st.permutations(list(document)))
        return {key: shuffled(document[key], data) for key in keys}
    return [shuffled(item, data) for item in document] if isinstance(document, list) else document


@settings(max_examples=150)
@given(st.sampled_from(NAMES), MODES, st.data())
def test_whatever_is_written_is_answered_and_always_the_same(name: str, mode: Any, data: st.DataObject) -> None:
    found = mutated([*given_documents(name)], data)
    assert outcome(found, mode) == outcome(found, mode)


@settings(max_examples=30)
@given(st.sampled_from(NAMES), MODES, st.data())
def test_the_order_of_keys_decides_nothing(name: str, mode: Any, data: st.DataObject) -> None:
    found = [*given_documents(name)]
    assert outcome([shuffled(document, data) for document in found], mode) == outcome(found, mode)


ADMITTED = [name for name in NAMES if expected(name)["admitted"] and "trainJob" in expected(name)]
BUILDS_NOTHING = ("mpi", "flux")
"""Where what is admitted may fail later, as it does in the real one: an MPI implementation that is "", no numNodes."""


@settings(max_examples=100)
@given(st.sampled_from(ADMITTED), MODES, st.data())
def test_what_is_admitted_is_rendered(name: str, mode: Any, data: st.DataObject) -> None:
    """Every pair of a runtime and a TrainJob that admission lets through has objects."""
    found = [d for d in given_documents(name) if d["kind"] in ("ClusterTrainingRuntime", "TrainingRuntime", "TrainJob")]
    runtime, train_job = mutated([found[0], next(d for d in found if d["kind"] == "TrainJob")], data)
    stored = review(runtime)
    answer = review(train_job, lookup=lambda kind, namespace, name: stored.stored if "Runtime" in kind else None)
    if answer.stored is None or stored.stored is None:
        return
    policy = (stored.stored.get("spec") or {}).get("mlPolicy") or {}
    try:
        rendered = render(stored.stored, answer.stored, mode=mode)
    except Invalid as error:
        assert any(name in policy for name in BUILDS_NOTHING), error
    else:
        assert any(document["kind"] == "JobSet" for document in rendered.objects.values())
        assert json.dumps(rendered.objects) == json.dumps(render(stored.stored, answer.stored, mode=mode).objects)
