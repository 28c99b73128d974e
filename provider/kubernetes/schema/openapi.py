"""Checks documents with the schemas and validation rules of a cluster's own CRDs, and returns all errors at once.

A dry run of server-side apply stops at the first unknown field or wrong type. The schemas come from the server's OpenAPI, which
any authenticated user may read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.schema.field_errors import NOWHERE
from pulumi_trainer.provider.kubernetes.schema.schema import Predicates, Schema
from pulumi_trainer.provider.kubernetes.schema.validation_rules import all_faults
from pulumi_trainer.provider.kubernetes.values.accessors import section


def path(kind: Kind) -> str:
    """Return the API path of the schemas of a kind's group and version."""
    return f"/openapi/v3{kind.root}"


def schema(described: Mapping[str, Any], kind: Kind, predicates: Predicates) -> Schema | None:
    """Return the schema of a kind; None if not found."""
    wanted = {"group": kind.group, "version": kind.api_version.rpartition("/")[2], "kind": kind.kind}
    for given in section(described, "components", "schemas").values():
        if isinstance(given, dict) and wanted in (given.get("x-kubernetes-group-version-kind") or []):
            properties = {**section(given, "properties"), "metadata": _METADATA}
            return Schema({**given, "properties": properties}, predicates)
    return None


_METADATA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
"""Metadata has its own schema, which offline checks use."""


def problems(
    schema: Schema, document: Mapping[str, Any], kind: Kind, hint: Callable[[str], str] = lambda _: ""
) -> list[Problem]:
    """Return what the server would reject in a new document; unknown leaves count as valid.

    A validation rule that could not be evaluated is a problem of the type UNCHECKED: the server decides.
    """
    unknown: list[str] = []
    try:
        pruned = schema.pruned(dict(document), None, unknown)
    except Invalid as error:
        return list(error.problems)
    found = [Problem(at, f"the cluster's {kind.kind} has no such field", hint(at)) for at in sorted(unknown)]
    for fault in all_faults(schema, pruned):
        problem = fault.problem()
        found.append(replace(problem, where="") if problem.where == NOWHERE else problem)
    return found
