"""Manages volumes that outlive jobs: a folder for each persistentVolumeClaim.

    <root>/volumes/<namespace>/<claim>/{volume.json, data/}

`volume.json` records owner, generation and sweep label of a volume of the program; of a volume that was created for the
volumeClaimPolicies of a job and is deleted with the job, also the `job`; of a volume whose retention was changed, also `retain`.
A retained volume has no sweep label when it is created. A volume that only a pod mounts has no `volume.json`.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.jobs.identity import program_of
from pulumi_trainer.provider.jobs.output_facts import Output
from pulumi_trainer.provider.jobs.status import NAMESAKE, Owner
from pulumi_trainer.provider.kubernetes.errors import Conflict, Problem, Refused, TrainerError
from pulumi_trainer.provider.kubernetes.values.quantity import format_bytes
from pulumi_trainer.provider.kubernetes.values.wording import plural
from pulumi_trainer.provider.targets.local import volumes
from pulumi_trainer.provider.targets.local.machine import host_id
from pulumi_trainer.provider.targets.local.paths import FOLDER_MODE, make_folder, translate_os_errors
from pulumi_trainer.provider.targets.local.record import Record, is_run_manifest
from pulumi_trainer.provider.targets.local.store import VOLUME, discard, name_of, read_json, unreadable, write_json

_TIME = "%Y-%m-%d %H:%M:%S"
_WRITTEN = ("owner", "sweep", "generation", "host")
"""Keys of every `volume.json`."""
_DEEPEST = 200
"""Levels of folders whose files are counted in a volume."""


class Claim:
    """The folder of one persistentVolumeClaim."""

    def __init__(self, root: Path, namespace: str, name: str) -> None:
        self._where = f"volume {namespace}/{name}"
        self.folder = volumes.claim_folder(root, name_of("namespace", namespace), name_of("volume", name))
        self.data = self.folder / "data"
        self._root = root

    def create(self, owner: str, sweep: str) -> dict[str, str]:
        """Create the volume, or take over an existing one with its data, and return its `path` and `generation`.

        Each call begins a new generation, so that a late deletion of an earlier generation has no effect.
        """
        self._check_owner(owner, sweep)
        with translate_os_errors(self.data):
            make_folder(self.data, self._root)
        generation = self._write(owner, sweep)
        return {"path": str(self.data), "generation": generation}

    def create_for_job(self, job: str, *, deleted_with_job: bool) -> None:
        """Create the claim of a job's volumeClaimPolicies. As with JobSet, an existing claim is not deleted with the job."""
        self._check_owner(_job_owner(job))
        if not deleted_with_job:
            return
        with translate_os_errors(self.folder):
            make_folder(self.folder.parent, self._root)
            try:
                self.folder.mkdir(mode=FOLDER_MODE)
            except FileExistsError:
                return
        self._write(_job_owner(job), "", job=job)

    def conflicts(self, job: str) -> list[Problem]:
        """Return why the claim cannot belong to the job `job` (NAMESPACE/NAME)."""
        try:
            self._check_owner(_job_owner(job))
        except TrainerError as error:
            return list(error.problems)
        return []

    def delete_with_job(self, job: str, users: Iterator[tuple[Record, float]]) -> str:
        """Delete the claim if it was created for the job. Return what the claim contained, or why it is not deleted; empty if
        there is nothing to report."""
        known = self._read_record()
        if known is None or known.get("job") != job:
            return ""
        content = self.describe()
        stays = self.delete(known["generation"], users)
        if isinstance(stays, str) and stays:
            return stays
        if not content:
            return ""
        return f"{self._where} is deleted with job {job}: {content}"

    def _write(self, owner: str, sweep: str, **more: str) -> str:
        generation = secrets.token_hex(8)
        made = {"owner": owner, "sweep": sweep, "generation": generation, "host": host_id(), "created": time.time()}
        write_json(self.folder / VOLUME, {**made, **more})
        return generation

    def _check_owner(self, owner: str, sweep: str = "") -> None:
        """Raise Conflict if the volume belongs to another owner, or to another stack than `sweep` (empty if unknown)."""
        known = self._read_record()
        if known is None:
            return
        if known["owner"] != owner:
            why = f"exists and belongs to {known['owner']}"
        elif sweep and known["sweep"] and known["sweep"] != sweep and not _is_retained(known):
            why = f"exists and belongs to {NAMESAKE}"
        else:
            return
        raise Conflict(
            Problem(self._where, why, f"give the TrainJob another name; removing {self.folder} removes its content")
        )

    def read(self) -> tuple[dict[str, str], Owner] | None:
        """Return `path` and `generation` of the volume, and its owner; None if not found."""
        known = self._read_record()
        if known is None or not self.data.is_dir():
            return None
        return {"path": str(self.data), "generation": str(known["generation"])}, _owner_of(known)

    def describe(self) -> str:
        """Return the number of files, their size and the last change; empty if the volume has no files."""
        files, size, newest = measure(self.data)
        if not files:
            return ""
        written = time.strftime(_TIME, time.localtime(newest))
        return f"{plural(files, 'file')}, {format_bytes(size)}, last written {written}"

    def output(self, folder: Path) -> Output:
        """Return the facts about a folder of the volume, the output of a job. A record that cannot be read has no age."""
        known = None
        with suppress(TrainerError):
            known = self._read_record()
        files, size, written = measure(folder)
        record = known or {}
        created = record.get("created")
        if not isinstance(created, float):
            created = 0.0
        return Output(str(folder), size, files, created, written, _is_retained(record))

    def retain(self, generation: str, *, retain: bool) -> None:
        """Record whether a generation of the volume is retained."""
        known = self._read_record()
        if known is not None and known["generation"] == generation:
            write_json(self.folder / VOLUME, {**known, "retain": retain})

    def delete(self, generation: str, users: Iterator[tuple[Record, float]]) -> Owner | str:
        """Delete a generation of the volume with its data.

        Args:
            users: Unfinished jobs that mount the volume, and their start. The volume is deleted with the last of them.

        Returns:
            The owner if the volume has another generation; why the volume is not deleted yet; empty if it is deleted.
        """
        known = self._read_record()
        if known is None:
            return ""
        if known["generation"] != generation:
            return _owner_of(known)
        for record, since in users:
            write_json(self.folder / VOLUME, {**known, "left": True})
            begun = time.strftime(_TIME, time.localtime(since))
            job = f"{record.namespace}/{record.name}"
            return f"{self._where} is kept for {job}, unfinished since {begun}, and is deleted with that run"
        self.remove()
        return ""

    def relabel(self, generation: str, owner: str, sweep: str) -> None:
        """Record another owner and label for a generation of the volume. A volume without a label stays without."""
        known = self._read_record()
        if known is not None and known["generation"] == generation:
            label = sweep if known["sweep"] else ""
            write_json(self.folder / VOLUME, {**known, "owner": owner, "sweep": label})

    def remove_left(self, users: Iterator[tuple[Record, float]]) -> None:
        """Remove the volume if `delete` has left it to jobs and all of them have finished. users: as in `delete`."""
        known = self._read_record()
        if known is not None and known.get("left") and not any(users):
            self.remove()

    def sweep(self, label: str) -> str | None:
        """Remove the volume if it has the label and no data, or was left to a job. Return what the volume contained; None if it
        is not removed."""
        known = self._read_record()
        if known is None or known["sweep"] != label or _is_retained(known):
            return None
        if any(self.data.glob("*")) and not known.get("left"):
            return None
        content = self.describe()
        self.remove()
        return content

    def remove(self) -> None:
        discard(self.folder, self._root)

    def _read_record(self) -> dict[str, Any] | None:
        file = self.folder / VOLUME
        known = read_json(file)
        if known is None:
            return None
        missing = [key for key in _WRITTEN if key not in known]
        if missing:
            raise unreadable(file, f"is not a valid record of a volume: it has no {', '.join(missing)}")
        if known.get("host") != host_id():
            raise Refused(
                Problem(self._where, f"was made on another host (id {known.get('host')})", "use it from there")
            )
        return known


def measure(folder: Path) -> tuple[int, int, float]:
    """Return the number of files in a folder, their bytes and their last change, without following links, and without the files
    that name the run of each output in it."""
    if folder.is_symlink():
        return 0, 0, 0.0
    sizes, newest = [], 0.0
    deepest = len(folder.parts) + _DEEPEST
    for place, below, files in os.walk(folder):
        if len(Path(place).parts) > deepest:
            below.clear()  # deeper files are not counted: Python cannot follow any depth
        for file in files:
            if place == str(folder) and is_run_manifest(file):
                continue
            with suppress(OSError):
                found = Path(place, file).lstat()
                sizes.append(found.st_size)
                newest = max(newest, found.st_mtime)
    return len(sizes), sum(sizes), newest


def _is_retained(known: Mapping[str, Any]) -> bool:
    """Return whether the record of a volume says that it is retained; a job's own claim never is."""
    if "job" in known:
        return False
    return bool(known.get("retain", known.get("sweep") == ""))


def _job_owner(job: str) -> str:
    return f"job {job}"


def _owner_of(known: dict[str, Any]) -> Owner:
    urn = str(known.get("owner", ""))
    return Owner(urn, str(known.get("sweep", "")), program_of(urn))
