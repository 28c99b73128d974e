"""Small datasets of this machine, which travel to a cluster in a ConfigMap; a script copies the files into the volume."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from pulumi_trainer.plan.user_code import LIMIT, PYTHON
from pulumi_trainer.provider.api import code
from pulumi_trainer.provider.kube.errors import Problem

SCRIPT, LIST = "unpack.py", "files.json"
COMMAND = [PYTHON, f"{code.CODE_PATH}/{SCRIPT}"]
"""Command of the container that mounts `Packed.volume` at `code.CODE_PATH`; it only needs Python."""


@dataclass(frozen=True)
class Packed:
    """The files of a dataset.

    Attributes:
        digests: Path below the volume -> sha256.
        contents: Path below the volume -> content.
        problems: Why the dataset cannot travel.
    """

    digests: Mapping[str, str] = field(default_factory=dict)
    contents: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    problems: Sequence[Problem] = ()

    def config_map(self, name: str, namespace: Any) -> dict[str, Any]:
        """Return the ConfigMap with the files. Its keys are numbers, as paths of files are not valid keys.

        Args:
            name: Name of the ConfigMap.
            namespace: Its namespace; may be unknown.
        """
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace},
            "data": {SCRIPT: _script(), LIST: json.dumps(self.digests)},
            "binaryData": {
                f"file-{i}": base64.b64encode(self.contents[p]).decode() for i, p in enumerate(self.digests)
            },
        }

    def volume(self, name: str) -> dict[str, Any]:
        """Return the ConfigMap as a volume, with the files under their own names below `data`."""
        own = [{"key": key, "path": key} for key in (SCRIPT, LIST)]
        files = [{"key": f"file-{i}", "path": f"data/{path}"} for i, path in enumerate(self.digests)]
        return {"name": code.CODE_VOLUME, "configMap": {"name": name, "items": [*own, *files]}}


def pack(uri: str, ignore: Sequence[str]) -> Packed:
    """Return the file, or all files below the folder, of a `file://` URI, without names that match a pattern.

    Args:
        uri: The `file://` URI, with an absolute path.
        ignore: Patterns of names to leave out, for example `*.tmp`.
    """
    root = Path(uri.removeprefix("file://"))
    if _size(root, ignore) > LIMIT:
        why = (
            f"is larger than {LIMIT} bytes, the most that can travel with a job; a cluster cannot read a path of"
            " this machine"
        )
        return Packed(problems=[Problem("storage_uri", why, "upload it, and give its s3:// or hf:// address")])
    contents: dict[str, bytes] = {}
    try:
        for path, file in _files(root, ignore):
            contents[path] = file.read_bytes()
    except OSError as error:
        return Packed(problems=[Problem("storage_uri", f"cannot read {error.filename}: {error.strerror}")])
    outside = [f for _, f in _files(root, ignore) if root.resolve() not in (f.resolve(), *f.resolve().parents)]
    if outside:
        why = f"{outside[0]} is a symbolic link that leads out of the folder"
        return Packed(problems=[Problem("storage_uri", why, "put the file itself there")])
    if not contents:
        return Packed(problems=[Problem("storage_uri", "has no files, or ignore_patterns exclude all of them")])
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in contents.items()}
    return Packed(digests, contents)


def _files(root: Path, ignore: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield the path below the folder, and the file."""
    for file in [root] if root.is_file() else sorted(root.rglob("*")):
        path = root.name if file == root else file.relative_to(root).as_posix()
        if file.is_file() and not any(fnmatchcase(path, pattern) for pattern in ignore):
            yield path, file


def _size(root: Path, ignore: Sequence[str]) -> int:
    """Return the bytes of all files; the count stops above `LIMIT`."""
    size = 0
    for _, file in _files(root, ignore):
        size += file.stat().st_size
        if size > LIMIT:
            break
    return size


@lru_cache(maxsize=1)
def _script() -> str:
    """Return the text of unpack.py. The text is part of the job's state, so it has no comments; it only needs the standard
    library.
    """
    return Path(__file__).with_name(SCRIPT).read_text(encoding="utf-8")
