"""Volumes that outlive jobs: a folder for each persistentVolumeClaim.

    <root>/volumes/<namespace>/<claim>/{volume.json, data/}

A volume of the program has a `volume.json` (owner, generation, sweep label); one that only a job's pod asks for has none.
Called by `LocalTarget`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.api.errors import Conflict, Problem, Refused

from . import volumes
from .machine import host_id
from .record import Record
from .store import discard, faults, name_of, read_json, write_json


class Claim:
    """One volume."""

    def __init__(self, root: Path, namespace: str, name: str) -> None:
        self._where = f"volume {namespace}/{name}"
        self.folder = volumes.claim_folder(root, name_of("namespace", namespace), name_of("volume", name))
        self.data = self.folder / "data"
        self._trash = root / "trash"

    def create(self, owner: str, sweep: str) -> dict[str, str]:
        """Idempotent; what is in it stays. Each call begins a new generation, so that a late delete of an earlier one does
        nothing.
        """
        known = self._known()
        if known is not None and known["owner"] != owner:
            why = f"exists and belongs to {known['owner']}"
            raise Conflict(Problem(self._where, why, f"choose another name, or remove {self.folder}"))
        with faults(self.data):
            self.data.mkdir(parents=True, exist_ok=True)
        generation = secrets.token_hex(8)
        made = {"owner": owner, "sweep": sweep, "generation": generation, "host": host_id(), "created": time.time()}
        write_json(self.folder / "volume.json", made)
        return {"path": str(self.data), "generation": generation}

    def read(self) -> dict[str, str] | None:
        """path and generation; None: there is no such volume."""
        known = self._known()
        if known is None or not self.data.is_dir():
            return None
        return {"path": str(self.data), "generation": str(known["generation"])}

    def delete(self, generation: str, users: Iterator[tuple[Record, float]]) -> None:
        """Only that generation. users: unfinished jobs that mount it, and since when they run."""
        known = self._known()
        if known is None or known["generation"] != generation:
            return
        for record, since in users:
            begun = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since))
            why = f"is mounted by {record.namespace}/{record.name}, unfinished since {begun}"
            raise Refused(Problem(self._where, why, "wait until it has finished, or delete it first"))
        self.remove()

    def sweep(self, label: str) -> bool:
        """Removes it if it carries the label and holds nothing: data is never lost in a clean-up."""
        known = self._known()
        if known is None or known["sweep"] != label or any(self.data.glob("*")):
            return False
        self.remove()
        return True

    def remove(self) -> None:
        discard(self.folder, self._trash)

    def _known(self) -> dict[str, Any] | None:
        known = read_json(self.folder / "volume.json")
        if known is not None and known.get("host") != host_id():
            raise Refused(
                Problem(self._where, f"was made on another host (id {known.get('host')})", "use it from there")
            )
        return known
