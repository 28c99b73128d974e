"""Checks the metadata of a NetworkPolicy as an API server does; its spec is written by the component."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.schema import metadata
from pulumi_trainer.provider.kubernetes.schema.definition import Kind
from pulumi_trainer.provider.kubernetes.schema.schema import Schema

_KIND = Kind("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies", True, False, Schema({"type": "object"}))


def metadata_problems(document: Mapping[str, Any]) -> list[Problem]:
    """Return what the server rejects of name, labels and annotations; unknown leaves count as valid."""
    try:
        about = metadata.decode(dict(document), _KIND, [])
    except Invalid as error:
        return list(error.problems)
    return [fault.problem() for fault in metadata.faults(about, None)]
