"""Volumes that outlive jobs: a folder for each persistentVolumeClaim.

    <root>/volumes/<namespace>/<claim>/{volume.json, data/}

A volume of the program has a `volume.json` (owner, generation, sweep label), and so has one that was made for the
volumeClaimPolicies of a job and goes with it (`job`). One that only a job's pod asks for has none.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.api.status import NAMESAKE, Owner
from pulumi_trainer.provider.kube.errors import (
    Conflict,
    Problem,
    Refused,
    TrainerError,
)
from pulumi_trainer.provider.kube.values.quantity import human
from pulumi_trainer.provider.lifecycle.identity import program_of
from pulumi_trainer.provider.targets.local import volumes
from pulumi_trainer.provider.targets.local.machine import host_id
from pulumi_trainer.provider.targets.local.paths import FOLDER_MODE, faults, make_folder
from pulumi_trainer.provider.targets.local.record import Record
from pulumi_trainer.provider.targets.local.store import (
    VOLUME,
    discard,
    name_of,
    read_json,
    unreadable,
    write_json,
)

_TIME = "%Y-%m-%d %H:%M:%S"
_WRITTEN = ("owner", "sweep", "generation", "host")
"""What every `volume.json` has."""
_DEEPEST = 200
"""Levels of folders that are counted in a volume."""


class Claim:
    """One volume."""

    def __init__(self, root: Path, namespace: str, name: str) -> None:
        self._where = f"volume {namespace}/{name}"
        self.folder = volumes.claim_folder(root, name_of("namespace", namespace), name_of("volume", name))
        self.data = self.folder / "data"
        self._root = root

    def create(self, owner: str, sweep: str) -> dict[str, str]:
        """Idempotent; what is in it stays. Each call begins a new generation, so that a late delete of an earlier one does
        nothing.
        """
        self._check_owner(owner, sweep)
        with faults(self.data):
            make_folder(self.data, self._root)
        generation = self._write(owner, sweep)
        return {"path": str(self.data), "generation": generation}

    def create_for_job(self, job: str, *, goes: bool) -> None:
        """Make the claim of a job's volumeClaimPolicies. As with JobSet, one that is there already is mounted, and not deleted
        with the job.

        Args:
            job: namespace/name.
            goes: Whether it is deleted with the job.

        Raises:
            Conflict: It belongs to another job, or to a program.
        """
        self._check_owner(_job_owner(job))
        if not goes:
            return
        with faults(self.folder):
            make_folder(self.folder.parent, self._root)
            try:
                self.folder.mkdir(mode=FOLDER_MODE)
            except FileExistsError:
                return
        self._write(_job_owner(job), "", job=job)

    def conflicts(self, job: str) -> list[Problem]:
        """Return why the claim cannot be one of that job's."""
        try:
            self._check_owner(_job_owner(job))
        except TrainerError as error:
            return list(error.problems)
        return []

    def delete_with_job(self, job: str, users: Iterator[tuple[Record, float]]) -> str:
        """Delete the claim if it was made for that job; return what was in it, or why it stays. users: as in `delete`."""
        known = self._known()
        if known is None or known.get("job") != job:
            return ""
        held = self.describe()
        stays = self.delete(known["generation"], users)
        if isinstance(stays, str) and stays:
            return stays
        return f"{self._where} is deleted with job {job}: {held}" if held else ""

    def _write(self, owner: str, sweep: str, **more: str) -> str:
        generation = secrets.token_hex(8)
        made = {"owner": owner, "sweep": sweep, "generation": generation, "host": host_id(), "created": time.time()}
        write_json(self.folder / VOLUME, {**made, **more})
        return generation

    def _check_owner(self, owner: str, sweep: str = "") -> None:
        """sweep: label of the stack, where it is known. Raises Conflict."""
        known = self._known()
        if known is None:
            return
        if known["owner"] != owner:
            why = f"exists and belongs to {known['owner']}"
        elif sweep and known["sweep"] and known["sweep"] != sweep:
            why = f"exists and belongs to {NAMESAKE}"
        else:
            return
        raise Conflict(
            Problem(
                self._where, why, f"give the TrainJob another name; whoever removes {self.folder} removes what is in it"
            )
        )

    def read(self) -> tuple[dict[str, str], Owner] | None:
        """path and generation, and whose it is; None: there is no such volume."""
        known = self._known()
        if known is None or not self.data.is_dir():
            return None
        return {"path": str(self.data), "generation": str(known["generation"])}, _whose(known)

    def describe(self) -> str:
        """Return how much it holds, and since when; empty if that is nothing."""
        sizes, newest = [], 0.0
        deepest = len(self.data.parts) + _DEEPEST
        for folder, below, files in os.walk(self.data) if not self.data.is_symlink() else ():
            if len(Path(folder).parts) > deepest:
                below.clear()  # what lies there is not counted: Python cannot follow it for ever
            for file in files:
                with suppress(OSError):
                    found = Path(folder, file).lstat()
                    sizes.append(found.st_size)
                    newest = max(newest, found.st_mtime)
        if not sizes:
            return ""
        count = "1 file" if len(sizes) == 1 else f"{len(sizes)} files"
        return f"{count}, {human(sum(sizes))}, last written {time.strftime(_TIME, time.localtime(newest))}"

    def delete(self, generation: str, users: Iterator[tuple[Record, float]]) -> Owner | str:
        """Only that generation: whose another one is is returned. users: unfinished jobs that mount it, and since when they run:
        it is left to them, and goes with the last of them; returns that."""
        known = self._known()
        if known is None:
            return ""
        if known["generation"] != generation:
            return _whose(known)
        for record, since in users:
            write_json(self.folder / VOLUME, {**known, "left": True})
            begun = time.strftime(_TIME, time.localtime(since))
            job = f"{record.namespace}/{record.name}"
            return f"{self._where} stays for {job}, unfinished since {begun}, and goes with that run of it"
        self.remove()
        return ""

    def remove_left(self, users: Iterator[tuple[Record, float]]) -> None:
        """Removes it if it was left to jobs, and none of them is unfinished any more."""
        known = self._known()
        if known is not None and known.get("left") and not any(users):
            self.remove()

    def sweep(self, label: str) -> str | None:
        """Removes it if it carries the label and holds nothing that is still to be kept: data is never lost in a clean-up.
        Returns what was in it; None: it stays."""
        known = self._known()
        if known is None or known["sweep"] != label or (any(self.data.glob("*")) and not known.get("left")):
            return None
        held = self.describe()
        self.remove()
        return held

    def remove(self) -> None:
        discard(self.folder, self._root)

    def _known(self) -> dict[str, Any] | None:
        known = read_json(file := self.folder / VOLUME)
        if known is not None and (missing := [key for key in _WRITTEN if key not in known]):
            raise unreadable(file, f"is not the record of a volume: it has no {', '.join(missing)}")
        if known is not None and known.get("host") != host_id():
            raise Refused(
                Problem(self._where, f"was made on another host (id {known.get('host')})", "use it from there")
            )
        return known


def _job_owner(job: str) -> str:
    return f"job {job}"


def _whose(known: dict[str, Any]) -> Owner:
    urn = str(known.get("owner", ""))
    return Owner(urn, str(known.get("sweep", "")), program_of(urn))
