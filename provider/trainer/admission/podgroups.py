"""Checks a PodGroup of a program as an API server does, before it is sent.

The schemas are those of the CRDs, without status:
https://github.com/kubernetes-sigs/scheduler-plugins/blob/v0.34.7/config/crd/bases/scheduling.x-k8s.io_podgroups.yaml and
https://github.com/volcano-sh/volcano/blob/v1.13.0/config/crd/volcano/bases/scheduling.volcano.sh_podgroups.yaml. They are not
in `kinds`, where a kind has one group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.schema import metadata
from pulumi_trainer.provider.kubernetes.schema.definition import Kind
from pulumi_trainer.provider.kubernetes.schema.field_errors import NOWHERE
from pulumi_trainer.provider.kubernetes.schema.schema import Schema
from pulumi_trainer.provider.kubernetes.values.accessors import section, without
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity
from pulumi_trainer.provider.trainer.pipeline.plugins import coscheduling, volcano

_INT32 = {"type": "integer", "format": "int32"}
_QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_RESOURCES = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": _QUANTITY,
        "x-kubernetes-int-or-string": True,
    },
}
_TOPOLOGY = {
    "type": "object",
    "properties": {
        "mode": {"type": "string", "enum": ["hard", "soft"], "default": "hard"},
        "highestTierAllowed": {"type": "integer", "default": 1},
    },
}
_SPECS: dict[str, dict[str, Any]] = {
    coscheduling.API_VERSION: {
        "minMember": {**_INT32, "minimum": 1},
        "minResources": _RESOURCES,
        "scheduleTimeoutSeconds": _INT32,
    },
    volcano.API_VERSION: {
        "minMember": _INT32,
        "minResources": _RESOURCES,
        "minTaskMember": {"type": "object", "additionalProperties": _INT32},
        "networkTopology": _TOPOLOGY,
        "priorityClassName": {"type": "string"},
        "queue": {"type": "string", "default": "default"},
    },
}
"""API version -> the properties of `spec`."""


def _kind(api_version: str) -> Kind:
    group, _, version = api_version.partition("/")
    spec = {"type": "object", "properties": _SPECS[api_version]}
    whole = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}, "spec": spec}
    schema = Schema({"type": "object", "properties": whole})
    return Kind("PodGroup", group, version, "podgroups", True, group == "scheduling.x-k8s.io", schema)


_KINDS = {api_version: _kind(api_version) for api_version in _SPECS}
API_VERSIONS = (*_KINDS,)


def refusals(document: Mapping[str, Any]) -> list[Problem]:
    """Return what the server rejects or drops of a PodGroup of either API; unknown leaves count as valid."""
    kind, unknown = _KINDS[document["apiVersion"]], list[str]()
    try:
        about = metadata.decode(dict(document), kind, unknown)
        pruned = kind.schema.pruned(without(document, "metadata"), None, unknown)
    except Invalid as error:
        return list(error.problems)
    faults = [fault.problem() for fault in (*metadata.faults(about, None), *kind.schema.faults(pruned))]
    placed = [problem for problem in faults if problem.where != NOWHERE]
    found = placed or [replace(problem, where="") for problem in faults]
    return [*(Problem(path, "unknown field") for path in unknown), *found]


def mistakes(document: Mapping[str, Any]) -> list[Problem]:
    """Return values that the server accepts although they make no sense: negative numbers."""
    found = []
    for name, amount in section(document, "spec", "minResources").items():
        if isinstance(amount, (int, str)) and Quantity.parse(str(amount)).amount < 0:
            found.append(Problem(f"spec.minResources[{name}]", f"must not be negative, and is {amount}"))
    for field in ("minMember", "scheduleTimeoutSeconds"):
        value = section(document, "spec").get(field)
        if isinstance(value, int) and value < 0:
            found.append(Problem(f"spec.{field}", f"must not be negative, and is {value}"))
    return found
