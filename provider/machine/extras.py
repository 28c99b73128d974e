"""The extras of this package: the modules of each, and the requirement and the command that install it.

Both name what the running package was installed from, because the package is in no public index.
"""

from __future__ import annotations

import json
from importlib import metadata
from importlib.util import find_spec
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault

EXTRAS = {
    "kubernetes": "kubernetes",
    "urllib3": "kubernetes",
    "websocket": "kubernetes",
    "pulumi_kubernetes": "kubernetes",
    "boto3": "s3",
    "huggingface_hub": "hub",
    "prometheus_client": "exporter",
    "mlflow": "mlflow",
    "model_registry": "model-registry",
}
"""Module -> its extra."""


def missing(module: str, where: str = "") -> list[Problem]:
    """Return the problem that a module of an extra is not installed, or no problem; nothing is imported."""
    if find_spec(module):
        return []
    return [_not_installed(module, where)]


def not_installed(module: str, where: str = "") -> TargetFault:
    """Return the error for a module of an extra whose import has failed."""
    return TargetFault(_not_installed(module, where))


def _not_installed(module: str, where: str) -> Problem:
    extra = EXTRAS[module]
    why = f"needs the extra {extra!r}, which is not installed ({module} is missing)"
    return Problem(where, why, install_command(extra))


def install_command(extra: str) -> str:
    """Return the command that adds an extra to the installed package."""
    origin = _origin(_installed())
    if origin.get("dir_info", {}).get("editable"):
        return f'pip install --editable "{origin["url"].removeprefix("file://")}[{extra}]"'
    return f'pip install "{requirement(extra)}"'


def requirement(extra: str = "") -> str:
    """Return the requirement of this package in the form of a requirements file.

    It names the wheel, the folder or the commit that the installer has recorded
    (https://packaging.python.org/specifications/direct-url/), else the version. A query of the URL may be a credential and is
    left out.
    """
    name = "pulumi-trainer"
    if extra:
        name += f"[{extra}]"
    package = _installed()
    if package is None:
        return name
    origin = _origin(package)
    if not origin:
        return f"{name}=={package.version}"
    url = origin["url"].partition("?")[0]
    repository = origin.get("vcs_info")
    if repository:
        url = f"{repository['vcs']}+{url}@{repository['commit_id']}"
    return f"{name} @ {url}"


def _installed() -> metadata.Distribution | None:
    """Return what is installed of this package; None if it is only on PYTHONPATH."""
    try:
        return metadata.distribution("pulumi-trainer")
    except metadata.PackageNotFoundError:
        return None


def _origin(package: metadata.Distribution | None) -> dict[str, Any]:
    """Return what the installer has recorded of a package that does not come from an index; empty if it has nothing."""
    if package is None:
        return {}
    recorded = package.read_text("direct_url.json")
    if not recorded:
        return {}
    return dict(json.loads(recorded))
