"""The extras of this package: which module comes with which, and the command that installs it."""

from __future__ import annotations

from importlib.util import find_spec

from pulumi_trainer.provider.kube.errors import Problem, TargetFault

EXTRAS = {
    "kubernetes": "kubernetes",
    "urllib3": "kubernetes",
    "pulumi_kubernetes": "kubernetes",
    "boto3": "s3",
    "huggingface_hub": "hub",
}
"""Module -> the extra that it comes with."""


def missing(module: str, where: str = "") -> list[Problem]:
    """Return the problem that a module of an extra is not installed; nothing is imported."""
    return [] if find_spec(module) else [_not_installed(module, where)]


def not_installed(module: str, where: str = "") -> TargetFault:
    """Return the error for a module of an extra whose import has failed."""
    return TargetFault(_not_installed(module, where))


def _not_installed(module: str, where: str) -> Problem:
    extra = EXTRAS[module]
    why = f"needs the extra {extra!r}, which is not installed ({module} is missing)"
    return Problem(where, why, f'pip install "pulumi-trainer[{extra}]"')
