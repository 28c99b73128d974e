"""From the `target` input of a resource to the target itself. Called by `dynamic` and by the command line."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.api.errors import Problem, TargetFault
from pulumi_trainer.provider.targets.local import LocalTarget, host_id


def connect(target: Mapping[str, Any]) -> LocalTarget:
    """The target that `target` describes; `TargetFault` for one that cannot be reached from here."""
    if target.get("kind") != "local":
        raise TargetFault(
            Problem(
                "trainer:target",
                "the Kubernetes target renders and previews, and cannot apply yet",
                "use `pulumi preview`, or run the stack with `pulumi config set trainer:target local`",
            )
        )
    return _local(target["root"], target.get("python", ""))


@lru_cache(maxsize=16)
def _local(root: str, python: str) -> LocalTarget:
    return LocalTarget(Path(root), python=python) if python else LocalTarget(Path(root))


def local(root: str, python: str) -> dict[str, Any]:
    """The description of this machine as a target."""
    return {"kind": "local", "host": host_id(), "root": str(Path(root).absolute()), "python": python}
