"""The output of a job: the folder or the claim that its pods mount at `code.OUTPUT_PATH`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Output:
    """The facts about an output that its target knows without reading it.

    Attributes:
        where: Folder, or `pvc://CLAIM[/FOLDER]`.
        size: Bytes of the files; in a cluster the capacity of the claim.
        files: Number of files; None if not known: no API shows what is in a claim.
        created: When the volume was created, in seconds since the epoch; 0 if not known.
        written: When a file was last written; 0 if not known.
        retained: Whether the volume stays when its job is deleted.
    """

    where: str
    size: int
    files: int | None = None
    created: float = 0.0
    written: float = 0.0
    retained: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as JSON."""
        return asdict(self)
