"""The CRDs' validation rules: each has a predicate, which answers as an implementation of CEL on generated values."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pulumi_trainer.provider.kubernetes.schema import cel
from pulumi_trainer.provider.kubernetes.schema.field_errors import NoSuchKey, NotEvaluated
from pulumi_trainer.provider.kubernetes.schema.schema import COMMON, Schema, equal
from pulumi_trainer.provider.kubernetes.schema.validation_rules import broken_rules
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kueue.cel_rules import PREDICATES as KUEUE
from pulumi_trainer.provider.kueue.crd_schemas import kinds as queue_kinds
from pulumi_trainer.provider.trainer.admission.cel_rules import PREDICATES

from tests.trainer import kinds

cel.predicate("true")(1, None, None)  # the library raises the recursion limit, which hypothesis would report in a test
TEXT = {"type": "string"}
UNKNOWN = Unknown("1")
ORDER = next(text for text in PREDICATES if "startupPolicy" in text)
CLAIMS = next(text for text in PREDICATES if "templates" in text)
LABEL = next(text for text in PREDICATES if text.startswith("self.metadata.name.matches"))
SHORT = next(text for text in PREDICATES if text.startswith("size("))
WITHOUT_NODE = "!self.exists(c, c == 'node')"
STUMBLING: list[tuple[str, Any, str]] = [
    (LABEL, {"metadata": {}}, "name"),
    (SHORT, {"metadata": {}}, "name"),
    (ORDER, {"startupPolicy": {"startupPolicyOrder": "InOrder"}}, "replicatedJobs"),
    (ORDER, {"startupPolicy": {}, "replicatedJobs": [{"dependsOn": []}]}, "startupPolicyOrder"),
    (ORDER, {"startupPolicy": {}}, "startupPolicyOrder"),
    (CLAIMS, {}, "templates"),
    (CLAIMS, {"templates": [{"spec": {}}, {"metadata": {}}]}, "metadata"),
]


def schemas_with_rules() -> list[tuple[str, Schema]]:
    """The rules of all bundled CRDs, except those that all projects use, each with its schema."""
    found: dict[str, Schema] = {}
    seen: set[int] = set()
    waiting = [kind.schema for kind in (*kinds.values(), *queue_kinds().values())]
    while waiting:
        schema = waiting.pop()
        if id(schema) not in seen:
            seen.add(id(schema))
            found |= {rule.text: schema for rule in schema.rules if rule.text not in COMMON}
            waiting += schema.child_schemas
    return sorted(found.items(), key=lambda pair: pair[0])


WORDS = ["", "a", "A-", "a\n", "a" * 64, "ä" * 63, "s3://x", "1s://a", "s3:/a", "hf+x.y-z://a", "a://b\nc"]
NAMES = {"metadata": st.fixed_dictionaries({}, optional={"name": st.sampled_from(WORDS)})}


def values(schema: Schema, rule: str) -> st.SearchStrategy[Any]:
    """Values as a server has them when it evaluates a rule: required fields and those with a default are there.

    The words are those that the rule names.
    """
    if schema.enum:
        return st.sampled_from(schema.enum)
    match schema.types:
        case ("object",):
            named = {name: values(each, rule) for name, each in schema.properties.items() if name in rule}
            if schema.additional_properties is not None:
                return st.dictionaries(st.sampled_from(WORDS[:3]), values(schema.additional_properties, rule))
            if "self.metadata" in rule:
                named = NAMES
            there = {*schema.required, *(name for name, _ in schema.defaults)}
            if rule == CLAIMS:  # has() of a field of a missing object: an error in a server, false in the library
                there.add("metadata")
            always = {name: each for name, each in named.items() if name in there}
            return st.fixed_dictionaries(always, optional={name: named[name] for name in named.keys() - there})
        case ("array",):
            assert schema.items is not None
            return st.lists(values(schema.items, rule), max_size=4)
        case ("integer",):
            return st.integers(-2, 3)
        case _:
            return st.sampled_from([*WORDS, *re.findall("'([^']+)'", rule)])


def test_every_rule_has_a_predicate() -> None:
    assert {text for text, _ in schemas_with_rules()} == {*PREDICATES, *KUEUE}


@pytest.mark.parametrize(("text", "schema"), schemas_with_rules(), ids=[text for text, _ in schemas_with_rules()])
@settings(max_examples=150, suppress_health_check=[HealthCheck.differing_executors])
@given(data=st.data())
def test_a_predicate_and_cel_agree(text: str, schema: Schema, data: st.DataObject) -> None:
    value, old = data.draw(values(schema, text)), None
    if "oldSelf" in text:
        old = data.draw(values(schema, text))
    answers: list[bool | str] = []
    for holds in ({**PREDICATES, **KUEUE}[text], cel.predicate(text)):
        try:
            answers.append(holds(value, old, schema))
        except (NoSuchKey, NotEvaluated):
            answers.append("a field is missing")
    assert answers[0] == answers[1]


@pytest.mark.parametrize(("text", "value", "name"), STUMBLING)
def test_fields_that_are_not_there(text: str, value: Any, name: str) -> None:
    with pytest.raises(NoSuchKey, match=name):
        PREDICATES[text](value, None, Schema({}))
    (fault,) = broken_rules(
        Schema({"type": "object", "x-kubernetes-validations": [{"rule": text, "message": "M"}]}, PREDICATES),
        value,
        None,
    )
    assert fault.detail == f"no such key: {name} evaluating rule: M"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (LABEL, {"metadata": {"name": UNKNOWN}}),
        (SHORT, {"metadata": UNKNOWN}),
        (ORDER, {"startupPolicy": UNKNOWN, "replicatedJobs": [{"dependsOn": []}]}),
        (ORDER, {"startupPolicy": {"startupPolicyOrder": UNKNOWN}, "replicatedJobs": [{"dependsOn": []}]}),
        (ORDER, {"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": UNKNOWN}),
        (ORDER, {"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": [UNKNOWN]}),
        (CLAIMS, {"templates": UNKNOWN}),
        (CLAIMS, {"templates": [UNKNOWN, {"metadata": UNKNOWN}, {"metadata": {"namespace": UNKNOWN}}]}),
        (WITHOUT_NODE, [UNKNOWN]),
    ],
)
def test_unknown_leaves_keep_the_rules(text: str, value: Any) -> None:
    assert PREDICATES[text](value, None, Schema({}))


LIST = {"type": "array", "items": {"type": "object", "properties": {"name": TEXT, "x": TEXT}}}
MAP = {**LIST, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
SET = {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}
A, B = {"name": "a"}, {"name": "b", "x": "1"}


@pytest.mark.parametrize(
    ("schema", "one", "other", "same"),
    [
        (TEXT, "a", "a", True),
        (TEXT, "a", "b", False),
        (TEXT, "a", UNKNOWN, True),
        ({"x-kubernetes-int-or-string": True}, 1, "1", False),
        ({"type": "boolean"}, True, 1, False),
        (LIST, [A, B], [A, B], True),
        (LIST, [A, B], [B, A], False),
        (LIST, [A], [A, B], False),
        (MAP, [A, B], [B, A], True),
        (MAP, [A, B], [B, {**A, "x": "2"}], False),
        (MAP, [A, B], [B, {"name": "c"}], False),
        (MAP, [A, UNKNOWN], [A, {"name": UNKNOWN}], True),
        (SET, ["a", "b"], ["b", "a"], True),
        (SET, ["a", "b"], ["b", "c"], False),
        ({"type": "object", "properties": {"a": MAP}}, {"a": [A, B]}, {"a": [B, A]}, True),
        ({"type": "object", "properties": {"a": MAP}}, {"a": [A, B]}, {}, False),
        ({"type": "object", "additionalProperties": TEXT}, {"a": "b"}, {"b": "b"}, False),
        ({"type": "object"}, {"a": {"b": 1}}, {"a": {"b": 1}}, True),
    ],
)
def test_equality(schema: dict[str, Any], one: Any, other: Any, same: bool) -> None:
    assert equal(Schema(schema), one, other) is same
    assert equal(Schema(schema), other, one) is same


def ruled(schema: dict[str, Any], **rule: str) -> dict[str, Any]:
    return {**schema, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed", **rule}]}


FIXED = ruled(TEXT)
ITEM = {"type": "object", "properties": {"name": TEXT, "x": FIXED}}


@pytest.mark.parametrize(
    ("schema", "value", "old", "where"),
    [
        ({"type": "object", "properties": {"a": FIXED}}, {"a": "1"}, {"a": "2"}, ["a"]),
        ({"type": "object", "properties": {"a": FIXED}}, {"a": "1"}, {}, []),
        ({"type": "object", "properties": {"a": FIXED}}, {}, {"a": "1"}, []),
        ({"type": "object", "properties": {"a": FIXED}}, {"a": "1"}, None, []),
        ({"type": "object", "properties": {"a": FIXED}}, {"a": "1"}, {"a": UNKNOWN}, []),
        ({"type": "object", "properties": {"a": FIXED}}, {"a": UNKNOWN}, {"a": "1"}, []),
        ({"type": "object", "properties": {"a": FIXED}}, {"a": None}, {"a": "1"}, []),
        ({"type": "object", "properties": {"a": FIXED}}, {"a": 5}, {"a": "1"}, []),
        ({"type": "object", "additionalProperties": FIXED}, {"a": "1"}, {"a": "2"}, ["a"]),
        ({**MAP, "items": ITEM}, [{"name": "b", "x": "1"}, {"name": "a", "x": "1"}], [{"name": "a", "x": "2"}], ["[1].x"]),
        ({**MAP, "items": ITEM}, [{"name": "b", "x": "1"}], "no list", []),
        ({**LIST, "items": ITEM}, [{"name": "a", "x": "1"}], [{"name": "a", "x": "2"}], []),
        (ruled({"type": "object"}, fieldPath=".a.b"), {"a": 1}, {"a": 2}, ["a.b"]),
    ],
)  # fmt: skip
def test_transitions(schema: dict[str, Any], value: Any, old: Any, where: list[str]) -> None:
    found = [fault.problem() for fault in broken_rules(Schema(schema), value, old)]
    assert [(p.where.removeprefix("."), p.why) for p in found] == [(path, "fixed") for path in where]


@pytest.mark.parametrize(
    ("reason", "type_"),
    [
        ("FieldValueForbidden",) * 2,
        ("FieldValueRequired",) * 2,
        ("FieldValueDuplicate",) * 2,
        ("Odd", "FieldValueInvalid"),
    ],
)
def test_reasons(reason: str, type_: str) -> None:
    (fault,) = broken_rules(Schema(ruled(TEXT, reason=reason)), "a", "b")
    assert fault.type == type_


def test_rules_of_other_crds() -> None:
    """Without words of its own a rule is told by its text; the library checks one without a predicate."""
    (fault,) = broken_rules(Schema({**TEXT, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}), "a", "b")
    assert fault.problem().why == "failed rule: self == oldSelf"
    starts = Schema({**TEXT, "x-kubernetes-validations": [{"rule": "self.startsWith('x')"}]})
    assert [fault.detail for fault in broken_rules(starts, "a", "b")] == ["failed rule: self.startsWith('x')"]
    assert [*broken_rules(starts, "xa", "b")] == []
