"""What a cluster's own CRDs have against a document: all of it at once, where a dry run of server-side apply stops at the
first unknown field or wrong type.

The schemas come from the server's OpenAPI, which whoever may log in may read, with the CRDs' validation rules. Pure functions;
called by `review`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pulumi_trainer.provider.kube.client.kinds import Kind
from pulumi_trainer.provider.kube.errors import Invalid, Problem
from pulumi_trainer.provider.kube.schema import cel
from pulumi_trainer.provider.kube.schema.field_errors import BLOCKING, NOWHERE
from pulumi_trainer.provider.kube.schema.rules import Predicates, broken
from pulumi_trainer.provider.kube.schema.schema import Schema


def path(kind: Kind) -> str:
    """Where the server describes a kind."""
    return f"/openapi/v3{kind.root}"


def schema(described: Mapping[str, Any], kind: Kind, predicates: Predicates) -> Schema | None:
    """The schema of a kind in an answer from `path`; None where it is not there. predicates: of rules that are known; CEL decides
    on others."""
    wanted = {"group": kind.group, "version": kind.api_version.rpartition("/")[2], "kind": kind.kind}
    for given in _map(_map(described.get("components")).get("schemas")).values():
        if isinstance(given, dict) and wanted in (given.get("x-kubernetes-group-version-kind") or []):
            properties = {**_map(given.get("properties")), "metadata": _METADATA}
            made = Schema({**given, "properties": properties}, predicates)
            _with_rules(made)
            return made
    return None


_METADATA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
"""It has a schema of its own, which offline checks know."""


def _with_rules(schema: Schema) -> None:
    if schema.ruled:
        for rule in schema.rules:
            if rule.holds is None:
                rule.holds = cel.predicate(rule.text)
        for held in schema.held:
            _with_rules(held)


def problems(
    schema: Schema, document: Mapping[str, Any], kind: Kind, hint: Callable[[str], str] = lambda _: ""
) -> list[Problem]:
    """What the server will refuse in a document that is to be created; unknown leaves are right. hint: what to do about a field
    that the cluster does not know, by its path."""
    unknown: list[str] = []
    try:
        shaped = schema.shaped(dict(document), None, unknown)
    except Invalid as error:
        return list(error.problems)
    found = [Problem(at, f"the cluster's {kind.kind} has no such field", hint(at)) for at in sorted(unknown)]
    return [*found, *_faults(schema, shaped)]


def _faults(schema: Schema, shaped: Any) -> Iterator[Problem]:
    faults = list(schema.faults(shaped))
    if not any(fault.type in BLOCKING for fault in faults):
        faults += broken(schema, shaped, None)
    for fault in faults:
        problem = fault.problem()
        yield replace(problem, where="") if problem.where == NOWHERE else problem


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
