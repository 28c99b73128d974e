"""The structural schema engine: what it drops, fills in and refuses, in the API server's words."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kubernetes.schema.field_errors import dotted_path, path_steps
from pulumi_trainer.provider.kubernetes.schema.schema import Schema
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

from tests.trainer import kinds

TEXT = {"type": "string"}
WHOLE = {"type": "integer"}
EITHER = {"x-kubernetes-int-or-string": True, "pattern": "^[0-9]+m?$"}
NIL, TYPE = "<nil>", "TypeInvalid"


def found(schema: dict[str, Any], value: Any) -> list[tuple[str, str, str]]:
    """Faults of a value at `a.b`."""
    at = ((None, "a"), "b")
    problems = [fault.problem() for fault in Schema(schema).faults(value, at)]
    return [(p.where, p.type.removeprefix("FieldValue"), p.why) for p in problems]


def is_type(expected: str, got: str) -> list[tuple[str, str, str]]:
    return [("a.b", TYPE, f'a.b in body must be of type {expected}: "{got}"')]


def no_text(where: str) -> tuple[str, str, str]:
    return (where, TYPE, f'{where} in body must be of type string: "integer"')


WRONG: list[tuple[dict[str, Any], Any, list[tuple[str, str, str]]]] = [
    (TEXT, 5, is_type("string", "integer")),
    (TEXT, None, is_type("string", "null")),
    (TEXT, True, is_type("string", "boolean")),
    (TEXT, 1.5, is_type("string", "number")),
    ({"type": "object"}, [], is_type("object", "array")),
    ({"type": "array"}, {}, is_type("array", "object")),
    ({"type": "boolean"}, "true", is_type("boolean", "string")),
    (WHOLE, "5", is_type("integer", "string")),
    (WHOLE, True, is_type("integer", "boolean")),
    (
        WHOLE,
        1.5,
        [
            *is_type("integer", "number"),
            (NIL, "Invalid", "Checked value must be of type integer (default format) in a.b"),
        ],
    ),
    (
        {**WHOLE, "format": "int32"},
        1.5,
        [
            *is_type("int32", "float64"),
            (NIL, "Invalid", "Checked value must be of type integer with format int32 in a.b"),
        ],
    ),
    ({**WHOLE, "format": "int32"}, True, is_type("int32", "")),
    ({**WHOLE, "format": "int32"}, "1", is_type("integer", "string")),
    (
        {**WHOLE, "format": "int32"},
        2**31,
        [(NIL, "Invalid", "Checked value must be of type integer with format int32 in a.b")],
    ),
    ({"type": "number"}, "1", is_type("number", "string")),
    ({**WHOLE, "minimum": 1}, 0, [("a.b", "Invalid", "a.b in body should be greater than or equal to 1")]),
    ({**WHOLE, "maximum": 100}, 101, [("a.b", "Invalid", "a.b in body should be less than or equal to 100")]),
    ({**TEXT, "maxLength": 3}, "abcd", [("a.b", "TooLong", "may not be more than 3 bytes")]),
    ({**TEXT, "maxLength": 1}, "ab", [("a.b", "TooLong", "may not be more than 1 byte")]),
    ({**TEXT, "maxLength": 1, "pattern": "^x$"}, "ab", [("a.b", "TooLong", "may not be more than 1 byte")]),
    ({**TEXT, "minLength": 1}, "", [("a.b", "Invalid", "a.b in body should be at least 1 chars long")]),
    ({**TEXT, "pattern": "^x$"}, "x\n", [("a.b", "Invalid", "a.b in body should match '^x$'")]),
    ({**TEXT, "enum": ["A", "B"]}, "a", [("a.b", "NotSupported", 'supported values: "A", "B"')]),
    ({**WHOLE, "enum": [1]}, 2, [("a.b", "NotSupported", "supported values: 1")]),
    ({"type": "array", "maxItems": 1}, [1, 2], [("a.b", "TooMany", "must have at most 1 item")]),
    ({"type": "array", "maxItems": 2}, [1, 2, 3], [("a.b", "TooMany", "must have at most 2 items")]),
    ({"type": "array", "minItems": 1}, [], [("a.b", "Invalid", "a.b in body should have at least 1 items")]),
    ({"type": "object", "minProperties": 1}, {}, [("a.b", "Invalid", "a.b in body should have at least 1 properties")]),
    ({"type": "object", "maxProperties": 1}, {"x": 1, "y": 1}, [("a.b", "TooMany", "must have at most 1 item")]),
    ({"type": "object", "required": ["x"]}, {}, [("a.b.x", "Required", "")]),
    ({"type": "object", "properties": {"x": TEXT}}, {"x": 1}, [no_text("a.b.x")]),
    ({"type": "object", "additionalProperties": TEXT}, {"x.y/z": 1}, [no_text("a.b.x.y/z")]),
    ({"type": "array", "items": TEXT}, ["", 1], [no_text("a.b[1]")]),
    (EITHER, "x", [("a.b", "Invalid", "a.b in body should match '^[0-9]+m?$'")]),
    (
        EITHER,
        1.5,
        [
            *is_type("integer,string", "number"),
            (NIL, "Invalid", '"a.b" must validate at least one schema (anyOf)'),
            *is_type("integer", "number"),
            (NIL, "Invalid", "Checked value must be of type integer (default format) in a.b"),
        ],
    ),
    (
        EITHER,
        [],
        [
            *is_type("integer,string", "array"),
            (NIL, "Invalid", '"a.b" must validate at least one schema (anyOf)'),
            *is_type("integer", "array"),
        ],
    ),
    (EITHER, None, is_type("integer,string", "null")),
    ({**TEXT, "format": "date-time"}, "yesterday", is_type("date-time", "yesterday")),
    ({**TEXT, "format": "date-time"}, 5, is_type("date-time", "int64")),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "faults"), WRONG)
def test_wrong_values(schema: dict[str, Any], value: Any, faults: list[tuple[str, str, str]]) -> None:
    assert found(schema, value) == faults


RIGHT: list[tuple[dict[str, Any], Any]] = [
    ({}, {"anything": 1}),
    ({**TEXT, "nullable": True}, None),
    ({"type": "number"}, 1),
    ({"type": "number"}, 1.5),
    ({**WHOLE, "format": "int32"}, -(2**31)),
    ({**WHOLE, "format": "int64"}, 2**63 - 1),
    ({**WHOLE, "minimum": 0, "maximum": 1}, 0),
    ({**WHOLE, "minimum": 0, "maximum": 1}, 1),
    ({"type": "object", "minProperties": 1, "maxProperties": 1}, {"x": 1}),
    ({"type": "array", "minItems": 1, "maxItems": 1}, [1]),
    ({**TEXT, "maxLength": 3}, "äöü"),
    ({**TEXT, "enum": ["A", ""]}, ""),
    (EITHER, 5),
    (EITHER, "5m"),
    ({**TEXT, "pattern": r"^\pL$"}, "é"),
    ({**TEXT, "pattern": r"(?<=a)b"}, "RE2 does not know this pattern"),
    ({**TEXT, "format": "date-time"}, "2026-01-31T09:30:00.5+01:00"),
    ({**TEXT, "format": "unheard-of"}, "x"),
    ({"type": "array", "x-kubernetes-list-type": "set"}, ["a", "b", 1, True]),
    ({"type": "array", "x-kubernetes-list-type": "atomic"}, ["a", "a"]),
]


@pytest.mark.parametrize(("schema", "value"), RIGHT)
def test_right_values(schema: dict[str, Any], value: Any) -> None:
    assert found(schema, value) == []


@pytest.mark.parametrize("schema", [schema for schema, _, _ in WRONG])
def test_unknown_leaves_are_right(schema: dict[str, Any]) -> None:
    assert found(schema, Unknown("1")) == []


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-30T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:60Z",
        "2026-01-01 00:00:00Z",
        "",
        "20260101T000000Z",
    ],
)
def test_no_times(text: str) -> None:
    assert found({**TEXT, "format": "date-time"}, text) == is_type("date-time", text)


def twice(place: int) -> tuple[str, str, str]:
    return (f"a.b[{place}]", "Duplicate", "")


SET = {"type": "array", "x-kubernetes-list-type": "set"}
MAP = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
MAP2 = {**MAP, "x-kubernetes-list-map-keys": ["port", "protocol"]}


@pytest.mark.parametrize(
    ("schema", "value", "faults"),
    [
        (SET, ["a", "b", "a", "a"], [twice(2)]),
        (SET, [{"x": 1}, {"x": 1}], [twice(1)]),
        (SET, [1, True], []),
        (SET, [Unknown("1"), Unknown("1")], []),
        (SET, [{"x": Unknown("1")}, {"x": Unknown("1")}], []),
        (MAP, [{"name": "a"}, {"name": "b"}, {"name": "a", "x": 1}], [twice(2)]),
        (MAP, [{"name": "a"}, {"name": "a"}, {"name": "a"}, {"name": "b"}, {"name": "b"}], [twice(1), twice(4)]),
        (MAP, [{}, None], [twice(1)]),
        (MAP, [{"name": ["x"]}, {"name": ["x"]}], [twice(1)]),
        (MAP, [{"name": Unknown("1")}, {"name": Unknown("1")}, Unknown("2"), Unknown("2")], []),
        (MAP, [1, {"name": "a"}, {"name": "a"}], [("a.b[0]", "Invalid", "must be an object for an array of list-type map")]),
        (MAP2, [{"port": 1, "protocol": "TCP"}, {"port": 1}, {"port": 1, "protocol": "TCP"}], [twice(2)]),
    ],
)  # fmt: skip
def test_items_that_are_there_twice(schema: dict[str, Any], value: Any, faults: list[Any]) -> None:
    assert found(schema, value) == faults


def test_a_duplicate_says_of_what() -> None:
    (fault,) = Schema(MAP2).faults([{"port": 1, "protocol": "TCP"}] * 2)
    assert fault.problem().hint == 'another item has port 1 and protocol "TCP" too'
    assert "Duplicate value" in str(fault.problem())


OBJECT = {
    "type": "object",
    "properties": {
        "known": TEXT,
        "nullable": {**TEXT, "nullable": True},
        "filled": {**TEXT, "default": "x"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "freeList": {"type": "array", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "additionalProperties": TEXT},
        "counts": {"type": "object", "additionalProperties": {**WHOLE, "default": 3}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"filled": {**TEXT, "default": "y"}}}},
        "texts": {"type": "array", "items": {**TEXT, "default": "z"}},
    },
}
SHAPED: list[tuple[Any, Any, list[str]]] = [
    ({}, {"filled": "x"}, []),
    ({"filled": None, "known": None, "nullable": None}, {"filled": "x", "nullable": None}, []),
    ({"foo": {"a": 1}, "known": "a"}, {"filled": "x", "known": "a"}, ["foo"]),
    ({"filled": ""}, {"filled": ""}, []),
    ({"free": {"a": [{"b": 1.0}]}}, {"filled": "x", "free": {"a": [{"b": 1}]}}, []),
    ({"freeList": [{"b": 1}]}, {"filled": "x", "freeList": [{"b": 1}]}, []),
    ({"labels": {"a": None, "b": "c"}}, {"filled": "x", "labels": {"b": "c"}}, []),
    ({"counts": {"a": None}}, {"filled": "x", "counts": {"a": 3}}, []),
    ({"list": [{}, {"foo": 1}, None]}, {"filled": "x", "list": [{"filled": "y"}, {"filled": "y"}, None]}, ["list[1].foo"]),
    ({"texts": [None, "a"]}, {"filled": "x", "texts": ["z", "a"]}, []),
    ({"known": {"a": 1}}, {"filled": "x", "known": {}}, ["known.a"]),
    ({"known": [{"a": 1}, [{"b": 1}], 2]}, {"filled": "x", "known": [{}, [{}], 2]}, ["known[0].a", "known[1][0].b"]),
    ({"known": 2.0}, {"filled": "x", "known": 2}, []),
    ({"known": 2**63}, {"filled": "x", "known": float(2**63)}, []),
    ({"known": Unknown("1"), "list": Unknown("2")}, {"filled": "x", "known": Unknown("1"), "list": Unknown("2")}, []),
    (("a", 1), ["a", 1], []),
    ("text", "text", []),
]  # fmt: skip


@pytest.mark.parametrize(("given", "wanted", "unknown"), SHAPED)
def test_shaped(given: Any, wanted: Any, unknown: list[str]) -> None:
    schema, dropped = Schema(OBJECT), []
    pruned = schema.pruned(given, None, dropped)
    assert repr(pruned) == repr(wanted) or pruned == wanted
    assert dropped == unknown
    assert schema.pruned(pruned) == pruned, "a second time changes nothing"


def test_filled_only_fills() -> None:
    schema = Schema(OBJECT)
    given = {"foo": 1, "known": None, "filled": None, "list": [{}, 5], "texts": "a", "labels": {"a": None}}
    filled = {**given, "filled": "x", "list": [{"filled": "y"}, 5]}
    assert schema.with_defaults(given) == filled
    assert given["filled"] is None
    assert schema.with_defaults("text") == "text"
    assert Schema({"type": "object", "properties": {"x": {"default": 1, "nullable": True}}}).with_defaults(
        {"x": None}
    ) == {"x": None}


def deep(levels: int, inside: Any = 1) -> Any:
    for _ in range(levels):
        inside = [inside]
    return inside


class Odd:
    pass


@pytest.mark.parametrize(
    ("given", "where", "why"),
    [
        ({"known": math.nan}, "known", "must be plain data, not infinite or NaN"),
        ({"known": 10**400}, "known", "must be plain data, not infinite or NaN"),
        ({"list": [{"filled": Odd()}]}, "list[0].filled", "not a Python Odd"),
        ({1: "x"}, "1", "the name of a field must be a string"),
        ({"free": {0: "x"}}, "free.0", "the name of a field must be a string"),
        ({"known": deep(200)}, "known", "is nested deeper than 100 levels"),
        ({"free": {"a": deep(50_000)}}, "free", "is nested deeper than 100 levels"),
    ],
)
def test_no_plain_data(given: Any, where: str, why: str) -> None:
    with pytest.raises(Invalid) as error:
        Schema(OBJECT).pruned(given)
    (problem,) = error.value.problems
    assert problem.where.startswith(where)
    assert why in problem.why


def test_subclasses_of_plain_data() -> None:
    class Text(str):
        pass

    class Number(int):
        pass

    class Mapping(dict):  # type: ignore[type-arg]
        pass

    pruned = Schema(OBJECT).pruned(
        Mapping({Text("known"): Text("a"), "list": (Mapping(),), "counts": {"a": Number(1)}})
    )
    assert pruned == {"known": "a", "filled": "x", "list": [{"filled": "y"}], "counts": {"a": 1}}


def test_paths() -> None:
    at = (((None, "spec"), "list"), 3)
    assert (dotted_path(at), path_steps(at), dotted_path(None)) == ("spec.list[3]", ["spec", "list", 3], "")


def test_everything_of_the_kinds_is_used() -> None:
    """No CRD says something that the engine does not look at; equal parts are one object."""
    known = kinds
    assert sorted(known) == ["ClusterTrainingRuntime", "JobSet", "TrainJob", "TrainingRuntime"]
    assert (
        known["ClusterTrainingRuntime"].schema.properties["spec"] is known["TrainingRuntime"].schema.properties["spec"]
    )
    assert known["TrainJob"].api_version == "trainer.kubeflow.org/v1alpha1"
    assert known["JobSet"].plural == "jobsets"
    assert [kind.namespaced for _, kind in sorted(known.items())] == [False, True, True, True]
    assert [kind.status for _, kind in sorted(known.items())] == [False, True, True, False]
