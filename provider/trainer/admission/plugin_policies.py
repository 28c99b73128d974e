"""Removes the policies of users' plugins from a runtime for the server's steps, and restores them afterwards: no CRD has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, section
from pulumi_trainer.provider.kubernetes.values.typed import Findings
from pulumi_trainer.provider.trainer.admission.runtime import CLUSTER_WIDE, NAMESPACED
from pulumi_trainer.provider.trainer.pipeline import Release, registry


@dataclass(frozen=True)
class PluginPolicies:
    """Policies of users' plugins in a runtime.

    Args:
        policies: Part of the spec (`mlPolicy`) -> name -> value.
        problems: Errors of the policies by the plugins' types.
    """

    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def restore(self, stored: Document) -> Document:
        """Return the stored document with the policies as they were given."""
        parts = {part: {**section(stored, "spec", part), **found} for part, found in self.policies.items()}
        if not parts:
            return stored
        return {**stored, "spec": {**section(stored, "spec"), **parts}}


def remove_policies(document: Any, release: Release, *, refuse: bool) -> tuple[Any, PluginPolicies]:
    """Return a document without the policies of users' plugins, and these policies.

    Args:
        refuse: Whether a policy of a plugin is an error.

    Raises:
        Invalid: A plugin's package is broken, or `refuse` is set and a policy was found.
    """
    spec = section(document).get("spec")
    if not isinstance(spec, dict) or document.get("kind") not in (CLUSTER_WIDE, NAMESPACED):
        return document, PluginPolicies()
    if refuse and (found := registry.own_policy_problems(spec)):
        raise Invalid(*found)
    findings = Findings()
    rest, policies = registry.split_own_policies(spec, release.plugins, findings)
    return {**document, "spec": rest}, PluginPolicies(policies, tuple(findings.problems))
