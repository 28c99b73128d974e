"""What a target is asked to create: the rendered objects of one job and whose they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Objects = dict[str, dict[str, Any]]
"""Rendered objects keyed "Kind/name" (JobSet/digits-1a2b3, ConfigMap/digits-1a2b3-code-0f3c...)."""


@dataclass(frozen=True)
class Submission:
    """One job for a target.

    owner: id that survives renames; what exists with the same owner and digest is ours and is taken over.
    digest: of what the user wrote. run: the user's `run` key. sweep: label that all objects of a stack carry.
    secrets: Secret name -> key -> value; never written to disk or logs by a target on this machine.
    """

    namespace: str
    name: str
    owner: str
    digest: str
    objects: Objects
    run: str = ""
    sweep: str = ""
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not any(key.startswith("JobSet/") for key in self.objects):
            raise ValueError("a submission holds a JobSet")

    @property
    def jobset(self) -> dict[str, Any]:
        return next(o for k, o in self.objects.items() if k.startswith("JobSet/"))
