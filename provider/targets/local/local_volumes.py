"""The volumes of this machine: folders that outlive jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.jobs.output_facts import Output
from pulumi_trainer.provider.jobs.status import Loss, Owner
from pulumi_trainer.provider.kubernetes.errors import Unreadable
from pulumi_trainer.provider.targets.local.claims import Claim
from pulumi_trainer.provider.targets.local.record import Record
from pulumi_trainer.provider.targets.local.store import VOLUME, read_json


class LocalVolumes:
    """The volumes of one root folder."""

    def __init__(self, root: Path, users: Callable[[str, str], Iterator[tuple[Record, float]]]) -> None:
        self.root = root
        self._users = users

    def create(
        self,
        namespace: str,
        name: str,
        owner: str,
        sweep: str,
        claim: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> dict[str, str]:
        """Create the folder of a claim, or take over an existing one with its data."""
        return Claim(self.root, namespace, name).create(owner, sweep)

    def update(self, namespace: str, name: str, generation: str, claim: Mapping[str, Any]) -> None:
        """Record whether the folder is retained; a folder has neither size nor class."""
        Claim(self.root, namespace, name).retain(generation, retain=bool(claim.get("retain")))

    def find(self, namespace: str, name: str) -> tuple[dict[str, str], Owner] | None:
        """Return `path` and `generation` of a volume, and its owner; None if not found."""
        return Claim(self.root, namespace, name).read()

    def lost(self, namespace: str, name: str, owner: Owner) -> Loss:  # noqa: ARG002
        """Return whether a volume that was created before is lost."""
        if self.find(namespace, name) is None:
            return Loss.GONE
        return Loss.NONE

    def owned(self) -> list[tuple[str, str, str, str]]:
        """Return namespace, name, label of the stack, and generation of each volume that a program has created."""
        found = []
        for file in sorted((self.root / "volumes").glob(f"*/*/{VOLUME}")):
            with suppress(Unreadable):
                known = read_json(file) or {}
                if not known.get("job"):
                    place = file.parent.parent.name, file.parent.name
                    found.append((*place, str(known.get("sweep", "")), str(known.get("generation", ""))))
        return found

    def describe(self, namespace: str, name: str) -> str:
        """Return the number of files of a volume, their size and the last change; empty if it has no files."""
        return Claim(self.root, namespace, name).describe()

    def output(self, path: str) -> Output | None:
        """Return the facts about the output folder of a job; None for a folder that is not in a volume of this target."""
        folder = Path(path)
        if not path or (self.root / "volumes") not in folder.parents:
            return None
        namespace, claim = folder.relative_to(self.root / "volumes").parts[:2]
        return Claim(self.root, namespace, claim).output(folder)

    def relabel(self, namespace: str, name: str, generation: str, owner: str, sweep: str) -> None:
        """Record owner and label for a generation of a volume that was moved from another stack."""
        Claim(self.root, namespace, name).relabel(generation, owner, sweep)

    def delete(self, namespace: str, name: str, generation: str) -> Owner | str:
        """Delete a generation of a volume with its data; a volume that an unfinished job mounts is deleted when the job ends."""
        return Claim(self.root, namespace, name).delete(generation, self._users(namespace, name))

    def sweep(self, label: str, report: Callable[[str], None]) -> list[str]:
        """Delete the volumes with a label that are empty or were left to a job, and return NAMESPACE/NAME of each."""
        swept = []
        for file in sorted((self.root / "volumes").glob(f"*/*/{VOLUME}")):
            claim, content = Claim(self.root, file.parent.parent.name, file.parent.name), None
            with suppress(Unreadable):
                if label:
                    content = claim.sweep(label)
            if content is not None:
                swept.append(f"{file.parent.parent.name}/{file.parent.name}")
                if content:
                    report(f"volume {swept[-1]} is deleted with what is in it: {content}")
        return swept
