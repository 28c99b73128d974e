"""The validation rules (CEL) of the CRDs, each as a small predicate: those of Trainer and JobSet; Kueue's in `kueue_rules`.

`schema` makes a `Rule` of what a CRD says; `broken` is called for documents that are otherwise right. A rule that is
not in this table cannot be checked here and counts as kept; a test sees to it that the table has all of `kinds`.
What a rule's operators do, and which old value a rule may compare with, is as in
https://github.com/kubernetes/apiserver/blob/v0.36.3/pkg/cel/common/valuesunstructured.go and
https://github.com/kubernetes/apiextensions-apiserver/blob/v0.36.3/pkg/apiserver/schema/cel/validation.go
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pulumi_trainer.provider.kube.schema.field_errors import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    REQUIRED,
    At,
    Fault,
    NoSuchKey,
)
from pulumi_trainer.provider.kube.schema.json_values import identity
from pulumi_trainer.provider.kube.values.unknown import Unknown
from pulumi_trainer.provider.kueue.rules import KUEUE

if TYPE_CHECKING:
    from pulumi_trainer.provider.kube.schema.schema import Schema


class Rule:
    """One of a schema's `x-kubernetes-validations`."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.text: str = given["rule"].strip()
        self.message: str = given.get("message", "").strip()
        self.field: tuple[str, ...] = tuple(filter(None, given.get("fieldPath", "").split(".")))
        self.type: str = given.get("reason", INVALID)
        if self.type not in (FORBIDDEN, REQUIRED, DUPLICATE):
            self.type = INVALID
        self.transition = "oldSelf" in self.text
        self.holds = PREDICATES.get(self.text)

    def fault(self, value: Any, old: Any, at: At, schema: Schema) -> Fault | None:
        """What the server says where the rule is broken, or stumbles over a field that is not there."""
        if self.holds is None or (self.transition and (old is None or isinstance(old, Unknown))):
            return None
        try:
            if self.holds(value, old, schema):
                return None
            detail = self.message or f"failed rule: {self.text}"
        except NoSuchKey as error:
            detail = f"no such key: {error} evaluating rule: {self.message or self.text}"
            return Fault(at, INVALID, detail=detail, about="rule")
        for name in self.field:
            at = (at, name)
        return Fault(at, self.type, detail=detail)


def broken(schema: Schema, value: Any, old: Any, at: At = None) -> Iterator[Fault]:
    """The rules that a shaped value breaks. old: what stood there before, None for nothing comparable."""
    if value is None or isinstance(value, Unknown) or not schema.typed(value):
        return  # a value of a wrong type is there only where it was stored before its CRD forbade it
    for rule in schema.rules:
        fault = rule.fault(value, old, at, schema)
        if fault is not None:
            yield fault
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, each in schema.ruled_properties:
            if name in value:
                yield from broken(each, value[name], before.get(name), (at, name))
        if schema.others is not None and schema.others.ruled:
            for name in value.keys() - schema.properties.keys():
                yield from broken(schema.others, value[name], before.get(name), (at, name))
    elif isinstance(value, list) and schema.items is not None and schema.items.ruled:
        known = by_key(schema, old)
        for place, item in enumerate(value):
            yield from broken(schema.items, item, known.get(schema.key(item)) if known else None, (at, place))


def by_key(schema: Schema, items: Any) -> dict[Any, Any]:
    """The items of a list-map by what identifies them; items of other lists cannot be told from each other."""
    if schema.list_type != "map" or not isinstance(items, list):
        return {}
    found: dict[Any, Any] = {}
    for item in items:
        found.setdefault(schema.key(item), item)
    found.pop(None, None)
    return found


def equal(schema: Schema | None, one: Any, other: Any) -> bool:
    """CEL's ==: the order in list-maps and sets does not count. Unknown leaves are equal to everything."""
    if isinstance(one, Unknown) or isinstance(other, Unknown):
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and schema is not None:
        return len(one) == len(other) and all(
            name in other and equal(schema.properties.get(name, schema.others), item, other[name])
            for name, item in one.items()
        )
    if isinstance(one, list) and schema is not None:
        if len(one) != len(other):
            return False
        if schema.list_type == "set":
            known = {identity(item) for item in one}
            return None in known or {identity(item) for item in other} - {None} <= known
        if schema.list_type == "map":
            before = by_key(schema, one)
            return all(
                (key := schema.key(item)) is None or (key in before and equal(schema.items, before[key], item))
                for item in other
            )
        return all(equal(schema.items, *pair) for pair in zip(one, other, strict=True))
    return bool(one == other)


Predicate = Callable[[Any, Any, "Schema"], bool]


def _unchanged(value: Any, old: Any, schema: Schema) -> bool:
    return equal(schema, value, old)


def _at_least_one(value: Any, _: Any, __: Schema) -> bool:
    return bool(value >= 1)


def _one_of(*values: str) -> Predicate:
    return lambda value, _, __: value in values


def _storage_uri(value: Any, _: Any, __: Schema) -> bool:
    return value == "" or _URI.search(value) is not None


def _label_name(value: Any, _: Any, __: Schema) -> bool:
    name = _select(value, "metadata", "name")
    return isinstance(name, Unknown) or _LABEL.search(name) is not None


def _short_name(value: Any, _: Any, __: Schema) -> bool:
    name = _select(value, "metadata", "name")
    return isinstance(name, Unknown) or len(name) <= 63


def _one_policy(value: Any, _: Any, __: Schema) -> bool:
    return sum(name in value for name in ("torch", "mpi", "jax", "xgboost", "flux")) <= 1


def _without_node(value: Any, _: Any, __: Schema) -> bool:
    return "node" not in value


def _in_order_or_depends_on(value: Any, _: Any, __: Schema) -> bool:
    """An error on one side of && does not count if the other side is false."""
    if "startupPolicy" not in value or isinstance(value["startupPolicy"], Unknown):
        return True
    stumbled: NoSuchKey | None = None
    try:
        if _select(value, "startupPolicy", "startupPolicyOrder") != "InOrder":
            return True
    except NoSuchKey as error:
        stumbled = error
    jobs = _select(value, "replicatedJobs") if stumbled is None else value.get("replicatedJobs", [{"dependsOn": []}])
    depends = isinstance(jobs, list) and any(isinstance(job, dict) and "dependsOn" in job for job in jobs)
    if depends and stumbled is not None:
        raise stumbled
    return not depends


def _without_namespace(value: Any, _: Any, __: Schema) -> bool:
    """One template that breaks the rule outweighs one without metadata, over which it stumbles."""
    stumbled: NoSuchKey | None = None
    for template in _items(_select(value, "templates")):
        try:
            metadata = _select(template, "metadata")
        except NoSuchKey as error:
            stumbled = error
            continue
        namespace = metadata.get("namespace", "") if isinstance(metadata, dict) else ""
        if isinstance(namespace, str) and namespace:
            return False
    if stumbled is not None:
        raise stumbled
    return True


def _has_updated_time(value: Any, _: Any, __: Schema) -> bool:
    return "lastUpdatedTime" in value


def _select(value: Any, *names: str) -> Any:
    for name in names:
        if isinstance(value, Unknown):
            return value
        if name not in value:
            raise NoSuchKey(name)
        value = value[name]
    return value


def _items(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else ()


_LABEL = re.compile(r"^[a-z](?:[-a-z0-9]*[a-z0-9])?\Z")
_URI = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://.+\Z")

PREDICATES: dict[str, Predicate] = {
    "self == oldSelf": _unchanged,
    "self >= 1": _at_least_one,
    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')": _label_name,
    "size(self.metadata.name) <= 63": _short_name,
    "self == '' || self.matches('^[A-Za-z][A-Za-z0-9+.-]*://.+$')": _storage_uri,
    "self in ['trainer.kubeflow.org/trainjob-controller', 'kueue.x-k8s.io/multikueue']": _one_of(
        "trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue"
    ),
    "has(self.lastUpdatedTime)": _has_updated_time,
    "[has(self.torch), has(self.mpi), has(self.jax), has(self.xgboost),has(self.flux)].filter(x, x).size() <= 1": (
        _one_policy
    ),
    "!self.exists(c, c == 'node')": _without_node,
    (
        "!(has(self.startupPolicy) && self.startupPolicy.startupPolicyOrder == 'InOrder'"
        " && self.replicatedJobs.exists(x, has(x.dependsOn)))"
    ): _in_order_or_depends_on,
    "self.templates.all(t, !has(t.metadata.namespace) || size(t.metadata.namespace) == 0)": _without_namespace,
    **KUEUE,
}
"""By the rule's text: whether it holds for (self, oldSelf, the schema of self). self is known and of the right type."""
