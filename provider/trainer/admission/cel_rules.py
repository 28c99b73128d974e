"""Predicates for the validation rules (CEL) of the CRDs of Trainer and JobSet; Kueue's are in `kueue.cel_rules`.

They are about 100 times faster than the CEL library of `kube.schema.cel`, which evaluates rules without a predicate. A test
compares both on generated values, and checks that all rules of `kinds` have a predicate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pulumi_trainer.provider.kubernetes.schema.field_errors import NoSuchKey
from pulumi_trainer.provider.kubernetes.schema.schema import Predicate, Predicates, Schema
from pulumi_trainer.provider.kubernetes.values.accessors import listed
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown


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
    """Return the result of CEL's &&: an error on one side does not count if the other side is false."""
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
    """Return whether no template has a namespace.

    A template that breaks the rule outweighs one without metadata, which is an error.
    """
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
    return listed(value)


_LABEL = re.compile(r"^[a-z](?:[-a-z0-9]*[a-z0-9])?\Z")
_URI = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://.+\Z")

PREDICATES: Predicates = {
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
}
