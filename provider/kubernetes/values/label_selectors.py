"""Which labels a selector of Kubernetes matches: label selectors of objects, and the terms of a node affinity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulumi_trainer.provider.kubernetes.values.accessors import Document, listed, section


def matches_selector(selector: Document, labels: Mapping[str, Any]) -> bool:
    """Return whether a LabelSelector matches; an empty one matches everything."""
    if any(labels.get(key) != value for key, value in section(selector, "matchLabels").items()):
        return False
    return all(matches(section(expression), labels) for expression in listed(selector.get("matchExpressions")))


def matches(expression: Document, labels: Mapping[str, Any]) -> bool:
    """Return whether an expression of a LabelSelector or of a node affinity matches; an unknown operator matches nothing."""
    key, operator, values = str(expression.get("key")), expression.get("operator"), listed(expression.get("values"))
    if operator in ("DoesNotExist", "NotIn"):
        return key not in labels or (operator == "NotIn" and labels[key] not in values)
    if key not in labels:
        return False
    if operator in ("Gt", "Lt"):
        try:
            more = int(labels[key]) - int(values[0])
        except (ValueError, TypeError, IndexError):
            return False
        return more > 0 if operator == "Gt" else more < 0
    return operator == "Exists" or (operator == "In" and labels[key] in values)
