"""Predicates for the validation rules (CEL) of the CRDs of Trainer and JobSet; Kueue's are in `kueue.cel_rules`.

They are about 100 times faster than the CEL library of `kubernetes.schema.cel`, which evaluates rules without a predicate. A test
compares both on generated values, and checks that all rules of `kinds` have a predicate.
"""

from __future__ import annotations

import re
from typing import Any

from pulumi_trainer.provider.kubernetes.schema.field_errors import NoSuchKey, all_hold, select
from pulumi_trainer.provider.kubernetes.schema.schema import Predicates, Schema
from pulumi_trainer.provider.kubernetes.values.accessors import listed, section
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown


def _label_name(value: Any, _: Any, __: Schema) -> bool:
    name = select(value, "metadata", "name")
    return isinstance(name, Unknown) or _LABEL.search(name) is not None


def _short_name(value: Any, _: Any, __: Schema) -> bool:
    name = select(value, "metadata", "name")
    return isinstance(name, Unknown) or len(name) <= 63


def _in_order_or_depends_on(value: Any, _: Any, __: Schema) -> bool:
    """Return the result of CEL's &&: an error on one side does not count if the other side is false."""
    if "startupPolicy" not in value or isinstance(value["startupPolicy"], Unknown):
        return True
    stumbled: NoSuchKey | None = None
    try:
        if select(value, "startupPolicy", "startupPolicyOrder") != "InOrder":
            return True
    except NoSuchKey as error:
        stumbled = error
    jobs = select(value, "replicatedJobs") if stumbled is None else value.get("replicatedJobs", [{"dependsOn": []}])
    depends = isinstance(jobs, list) and any(isinstance(job, dict) and "dependsOn" in job for job in jobs)
    if depends and stumbled is not None:
        raise stumbled
    return not depends


def _without_namespace(value: Any, _: Any, __: Schema) -> bool:
    """Return whether no template has a namespace."""

    def holds(template: Any) -> bool:
        namespace = section(select(template, "metadata")).get("namespace")
        return not (isinstance(namespace, str) and namespace)

    return all_hold(holds, listed(select(value, "templates")))


_LABEL = re.compile(r"^[a-z](?:[-a-z0-9]*[a-z0-9])?\Z")
_URI = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://.+\Z")

PREDICATES: Predicates = {
    "self >= 1": lambda value, _, __: bool(value >= 1),
    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')": _label_name,
    "size(self.metadata.name) <= 63": _short_name,
    "self == '' || self.matches('^[A-Za-z][A-Za-z0-9+.-]*://.+$')": (
        lambda value, _, __: value == "" or _URI.search(value) is not None
    ),
    "self in ['trainer.kubeflow.org/trainjob-controller', 'kueue.x-k8s.io/multikueue']": (
        lambda value, _, __: value in ("trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue")
    ),
    "has(self.lastUpdatedTime)": lambda value, _, __: "lastUpdatedTime" in value,
    "[has(self.torch), has(self.mpi), has(self.jax), has(self.xgboost),has(self.flux)].filter(x, x).size() <= 1": (
        lambda value, _, __: sum(name in value for name in ("torch", "mpi", "jax", "xgboost", "flux")) <= 1
    ),
    "!self.exists(c, c == 'node')": lambda value, _, __: "node" not in value,
    (
        "!(has(self.startupPolicy) && self.startupPolicy.startupPolicyOrder == 'InOrder'"
        " && self.replicatedJobs.exists(x, has(x.dependsOn)))"
    ): _in_order_or_depends_on,
    "self.templates.all(t, !has(t.metadata.namespace) || size(t.metadata.namespace) == 0)": _without_namespace,
}
