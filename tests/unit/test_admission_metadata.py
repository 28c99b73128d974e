"""What the offline server reads of a document, and what it has against its metadata, in the real server's words."""

from __future__ import annotations

import math
from typing import Any

import pytest
from admission_support import BLOCKED, Store, admitted, answer, changed, faults, runtime, train_job
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

from tests.trainer import review

UNKNOWN = Unknown("1")


SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


KEY = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


RFC_1035 = ("<nil>", "Invalid", "metadata.name must match RFC 1035 DNS label format")


STORE = Store(runtime(), runtime("TrainingRuntime"))


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ("text", ""),
        (None, ""),
        ([], ""),
        ({}, "kind"),
        ({"kind": "Pod"}, "kind"),
        ({"kind": ["TrainJob"]}, "kind"),
        ({"kind": "TrainJob"}, "apiVersion"),
        ({"kind": "TrainJob", "apiVersion": "trainer.kubeflow.org/v2"}, "apiVersion"),
        (changed(train_job(), "metadata", "text"), "metadata"),
        (changed(train_job(), "metadata", UNKNOWN), "metadata"),
        (changed(train_job(), "metadata.name", 5), "metadata.name"),
        (changed(train_job(), "metadata.labels", {"a": 1}), "metadata.labels.a"),
        (changed(train_job(), "metadata.creationTimestamp", "yesterday"), "metadata.creationTimestamp"),
        (changed(train_job(), "metadata.creationTimestamp", []), "metadata.creationTimestamp"),
        (
            changed(train_job(), "metadata.ownerReferences", [{"controller": "yes"}]),
            "metadata.ownerReferences[0].controller",
        ),
        (changed(train_job(), "spec.trainer", {"numNodes": math.nan}), "spec.trainer.numNodes"),
        (changed(train_job(), "spec", {1: 2}), "spec.1"),
    ],
)
def test_no_documents(document: Any, where: str) -> None:
    verdict = review(document)
    assert verdict.stage == "decode"
    assert [p.where for p in verdict.errors] == [where]
    assert all(p.why for p in verdict.errors)


def test_stored() -> None:
    document = train_job(foo=1, suspend=None, trainer={"env": [{"name": "A", "bar": 2}], "numNodes": 2.0})
    document |= {"status": {"conditions": []}, "other": 3}
    document["metadata"] |= {"labels": {"a": None}, "annotations": {}, "baz": 4, "namespace": None}
    verdict = review(document, lookup=Store(runtime()))
    assert answer(verdict) == (None, set())
    assert verdict.unknown == ("metadata.baz", "other", "spec.foo", "spec.trainer.env[0].bar")
    assert verdict.stored == {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "job", "namespace": "default", "labels": {"a": ""}},
        "spec": {
            "managedBy": "trainer.kubeflow.org/trainjob-controller",
            "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "torch"},
            "suspend": False,
            "trainer": {"env": [{"name": "A"}], "numNodes": 2},
        },
    }
    assert admitted(verdict.stored) == verdict.stored


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        ({}, {("metadata.name", "Required", "name or generateName is required"), BLOCKED}),
        ({"name": "Job"}, {("metadata.name", "Invalid", SUBDOMAIN), RFC_1035}),
        ({"name": "a.b"}, {RFC_1035}),
        ({"name": "1a"}, {RFC_1035}),
        ({"name": "a" * 64}, {("<nil>", "Invalid", "metadata.name must be no more than 63 characters")}),
        (
            {"name": "a" * 254},
            {
                ("metadata.name", "Invalid", "must be no more than 253 characters"),
                ("<nil>", "Invalid", "metadata.name must be no more than 63 characters"),
            },
        ),
        ({"generateName": "a-"}, set()),
        ({"generateName": "A-"}, {("metadata.name", "Invalid", SUBDOMAIN), RFC_1035}),
        (
            {"generateName": "A"},
            {("metadata.generateName", "Invalid", SUBDOMAIN), ("metadata.name", "Invalid", SUBDOMAIN), RFC_1035},
        ),
        ({"generateName": UNKNOWN}, set()),
        ({"name": UNKNOWN}, set()),
        ({"name": "a", "namespace": "a.b"}, {("metadata.namespace", "Invalid", "must not contain dots")}),
        ({"name": "a", "namespace": "N"}, {("metadata.namespace", "Invalid", LABEL)}),
        (
            {"name": "a", "namespace": "n" * 64},
            {("metadata.namespace", "Invalid", "must be no more than 63 characters")},
        ),
        ({"name": "a", "namespace": UNKNOWN}, set()),
        ({"name": "a", "labels": {"a.b/c": "x", "A_b": ""}}, set()),
        ({"name": "a", "labels": {"a b": "x"}}, {("metadata.labels", "Invalid", f"name part {KEY}")}),
        ({"name": "a", "labels": {"/b": "x"}}, {("metadata.labels", "Invalid", "prefix part must be non-empty")}),
        ({"name": "a", "labels": {"A/b": "x"}}, {("metadata.labels", "Invalid", f"prefix part {SUBDOMAIN}")}),
        (
            {"name": "a", "labels": {"a/": "x"}},
            {
                ("metadata.labels", "Invalid", f"name part {KEY}"),
                ("metadata.labels", "Invalid", "name part must be non-empty"),
            },
        ),
        (
            {"name": "a", "labels": {"a/b/c": "x"}},
            {
                (
                    "metadata.labels",
                    "Invalid",
                    f"a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                )
            },
        ),
        (
            {"name": "a", "labels": {"k" * 64: "x"}},
            {("metadata.labels", "Invalid", "name part must be no more than 63 bytes")},
        ),
        ({"name": "a", "labels": {"a": "v" * 64}}, {("metadata.labels", "Invalid", "must be no more than 63 bytes")}),
        ({"name": "a", "labels": {"a": "-"}}, {("metadata.labels", "Invalid", VALUE)}),
        ({"name": "a", "labels": {"a": UNKNOWN}}, set()),
        ({"name": "a", "labels": UNKNOWN, "annotations": UNKNOWN}, set()),
        ({"name": "a", "annotations": {"A.B/c": "any text"}}, set()),
        ({"name": "a", "annotations": {"a b": "x"}}, {("metadata.annotations", "Invalid", f"name part {KEY}")}),
        (
            {"name": "a", "annotations": {"a": "x" * 262144}},
            {("metadata.annotations", "TooLong", "may not be more than 262144 bytes"), BLOCKED},
        ),
        ({"name": "a", "annotations": {"a": "x" * 262143}}, set()),
        ({"name": "a", "generation": -1}, {("metadata.generation", "Invalid", "must be greater than or equal to 0")}),
        ({"name": "a", "generation": 0}, set()),
        (
            {"generateName": "-"},
            {("metadata.generateName", "Invalid", SUBDOMAIN), ("metadata.name", "Invalid", SUBDOMAIN), RFC_1035},
        ),
        ({"name": "a", "finalizers": ["a.b/c"]}, set()),
        (
            {"name": "a", "finalizers": [None]},
            {
                ("metadata.finalizers", "Invalid", "name part must be non-empty"),
                ("metadata.finalizers", "Invalid", f"name part {KEY}"),
            },
        ),
        (
            {"name": "a", "ownerReferences": [None]},
            {
                ("metadata.ownerReferences.apiVersion", "Invalid", "version must not be empty"),
                ("metadata.ownerReferences.kind", "Invalid", "must not be empty"),
                ("metadata.ownerReferences.name", "Invalid", "must not be empty"),
                ("metadata.ownerReferences.uid", "Invalid", "must not be empty"),
            },
        ),
        (
            {"name": "a", "ownerReferences": [UNKNOWN, {"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]},
            {("metadata.ownerReferences", "Invalid", "/v1, Kind=Event is disallowed from being an owner")},
        ),
        (
            {
                "name": "a",
                "ownerReferences": [
                    {"apiVersion": "g/v1", "kind": "A", "name": n, "uid": "u", "controller": True} for n in "bc"
                ],
            },
            {
                (
                    "metadata.ownerReferences",
                    "Invalid",
                    'Only one reference can have Controller set to true. Found "true" in references for A/b and A/c',
                )
            },
        ),
        (
            {"name": "a", "ownerReferences": [{"apiVersion": "a/b/c", "kind": "A", "name": "n", "uid": "u"}]},
            {("metadata.ownerReferences.apiVersion", "Invalid", "version must not be empty")},
        ),
    ],
)
def test_metadata(metadata: dict[str, Any], found: set[Any]) -> None:
    verdict = review({**train_job(), "metadata": metadata}, lookup=STORE)
    if metadata.get("namespace") is not UNKNOWN and isinstance(metadata.get("name", UNKNOWN), str):
        assert verdict.stage == ("schema" if found else None)
    assert faults(verdict) == found


def test_metadata_of_updates() -> None:
    old = admitted(train_job(), lookup=STORE)
    old["metadata"] |= {"uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    assert admitted(train_job(), old=old, lookup=STORE)["metadata"] == old["metadata"]
    for field, value in (("uid", "2"), ("name", "other"), ("namespace", "other")):
        verdict = review(changed(train_job(), f"metadata.{field}", value), old=old, lookup=STORE)
        assert answer(verdict) == ("schema", {(f"metadata.{field}", "Invalid", "field is immutable")})
        review(changed(train_job(), f"metadata.{field}", UNKNOWN), old=old, lookup=STORE)
    assert admitted(changed(train_job(), "metadata.labels", {"a": "b"}), old=old, lookup=STORE)
