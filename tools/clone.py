"""A folder with a Pulumi.yaml, what the CLI keeps for it, and the environment in which the CLI runs there.

Used by stack.py and locks.py, in `.venv`.
"""

from __future__ import annotations

import gzip
import json
import os
import secrets
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import setup
import yaml


@dataclass(frozen=True)
class Clone:
    """Everything of ours is below `root`."""

    root: Path

    @property
    def state(self) -> Path:
        """The backend, the passphrase and the stacks' configuration (Pulumi.yaml's stackConfigDir): they only fit together."""
        return self.root / ".pulumi-state"

    @property
    def jobs(self) -> Path:
        """Folder of the Local target."""
        return self.root / ".pulumi-trainer"

    @cached_property
    def project(self) -> str:
        """Name of the project."""
        return str(yaml.safe_load((self.root / "Pulumi.yaml").read_text())["name"])

    def stacks(self) -> list[str]:
        """The stacks that were ever made."""
        folder = self.state / ".pulumi" / "stacks" / self.project
        return sorted({file.name.split(".json")[0] for file in folder.glob("*.json*")})

    def latest(self, stack: str) -> dict[str, Any]:
        """The state of a stack as the backend has it, secrets encrypted."""
        file = self.state / ".pulumi" / "stacks" / self.project / f"{stack}.json"
        zipped = file.with_name(f"{file.name}.gz")
        text = gzip.decompress(zipped.read_bytes()) if zipped.exists() else file.read_bytes()
        return (json.loads(text).get("checkpoint") or {}).get("latest") or {}


def environment(clone: Clone, cli: Path | None, terminal: bool) -> dict[str, str]:
    """All that a run of the CLI needs so that it asks nothing and writes nothing outside the clone and our cache.

    cli: the folder of the CLI and its hosts, None where PATH has them.
    terminal: whether somebody watches, so that progress may be redrawn.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PULUMI_") or k.startswith("PULUMI_TRAINER_")}
    kept.pop("PYTHONHOME", None)
    first = [str(folder) for folder in (setup.VENV / "bin", cli) if folder]
    return {
        **kept,
        **setup.caches(),
        "PATH": os.pathsep.join([*first, os.environ.get("PATH", os.defpath)]),
        "VIRTUAL_ENV": str(setup.VENV),
        "PULUMI_HOME": str(clone.root / ".pulumi"),
        "PULUMI_BACKEND_URL": clone.state.as_uri(),
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(passphrase(clone)),
        "PULUMI_SKIP_UPDATE_CHECK": "1",
        "PULUMI_DIY_BACKEND_GZIP": "1",
        "PULUMI_TRAINER_PROGRESS": "tty" if terminal else "lines",
        # A command of the CLI starts three Pythons: where bytecode is not kept, each compiles all packages anew.
        **({"PYTHONDONTWRITEBYTECODE": ""} if "PYTHONDONTWRITEBYTECODE" in kept else {}),
    }


def passphrase(clone: Clone) -> Path:
    """The file with the passphrase of this clone's stacks, made on first use, for its owner's eyes only."""
    file = clone.state / "passphrase"
    clone.state.mkdir(mode=0o700, exist_ok=True)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return file
    with os.fdopen(descriptor, "w") as handle:
        handle.write(secrets.token_urlsafe(32))
    return file
