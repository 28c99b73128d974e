"""Policies of users' plugins in a runtime. No CRD knows them, so they are laid aside for the server's steps and put back
into what is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pulumi_trainer.provider.admission.runtime import CLUSTER_WIDE, NAMESPACED
from pulumi_trainer.provider.kube.errors import Invalid, Problem
from pulumi_trainer.provider.kube.values.accessors import Document, section
from pulumi_trainer.provider.kube.values.typed import Findings
from pulumi_trainer.provider.pipeline import registry


@dataclass(frozen=True)
class Own:
    """policies: part of the spec (`mlPolicy`) -> name -> value. problems: what the plugins' types have against them."""

    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def put_back(self, stored: Document) -> Document:
        """What is stored, with the policies as they were given."""
        parts = {part: {**section(stored, "spec", part), **found} for part, found in self.policies.items()}
        return {**stored, "spec": {**section(stored, "spec"), **parts}} if parts else stored


def laid_aside(document: Any, *, refuse: bool) -> tuple[Any, Own]:
    """A document without own policies, and these. Raises Invalid: a plugin's package is broken; or refuse, and there are
    such policies."""
    spec = document.get("spec") if isinstance(document, dict) else None
    if not isinstance(spec, dict) or document.get("kind") not in (CLUSTER_WIDE, NAMESPACED):
        return document, Own()
    if refuse and (found := registry.foreign(spec)):
        raise Invalid(*found)
    findings = Findings()
    rest, policies = registry.own_in(spec, findings)
    return {**document, "spec": rest}, Own(policies, tuple(findings.problems))
