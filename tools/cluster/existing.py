"""A cluster that somebody else runs, for tests: the one of a kubeconfig's context. Called by tests/cluster/conftest.py.

What breaks or extends a cluster is not here: those tests start one of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""Keys whose value is a path beside the kubeconfig."""


@dataclass(frozen=True)
class Existing:
    """The part of `Cluster` that holds for any cluster."""

    kubeconfig: Path
    server: str

    @classmethod
    def of(cls, kubeconfig: Path, context: str, folder: Path) -> Existing:
        """folder: gets a kubeconfig with this context alone.

        Raises: LookupError where there is no such context.
        """
        known = yaml.safe_load(kubeconfig.read_text())
        chosen = _named(known, "contexts", context)["context"]
        cluster = _absolute(_named(known, "clusters", chosen["cluster"])["cluster"], kubeconfig.parent)
        user = _absolute(_named(known, "users", chosen["user"])["user"], kubeconfig.parent)
        content = {
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}], "users": [{"name": "admin", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        }  # fmt: skip
        file = folder / "kubeconfig"
        file.touch(mode=0o600)
        file.write_text(yaml.safe_dump(content))
        return cls(file, cluster["server"])

    def stop(self) -> None:
        """It stays."""


def _named(known: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    for entry in known.get(kind) or []:
        if entry["name"] == name:
            return dict(entry)
    raise LookupError(f"the kubeconfig has no entry {name!r} in {kind}")


def _absolute(entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    return {key: str(folder / value) if key in FILES else value for key, value in entry.items()}
