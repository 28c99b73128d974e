"""The output of a job: the folder or the claim that its pods mount at `code.OUTPUT_PATH`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import number, section, text


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


@dataclass(frozen=True)
class Content:
    """What identifies the content of an output, as `digest_output` computes it.

    Attributes:
        sha256: Digest of the names and contents of its files.
        files: Number of files.
        size: Their bytes.
    """

    sha256: str
    files: int
    size: int

    @classmethod
    def from_json(cls, where: str, data: bytes) -> Content:
        """Return what `digest_output` has printed. Raise TargetFault if that is something else."""
        try:
            known = section(json.loads(data))
        except (ValueError, RecursionError):
            known = {}
        digest = text(known.get("sha256"))
        if len(digest) != _DIGITS:
            raise TargetFault(Problem(where, "its digest cannot be computed: the answer of its Pod is not valid"))
        return cls(digest, number(known.get("files")), number(known.get("size")))


_DIGITS = 64
