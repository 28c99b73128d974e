"""Small datasets of this machine, which travel to a cluster in a ConfigMap; a script copies the files into the volume."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pulumi_trainer.code.entry_source import LIMIT
from pulumi_trainer.code.user_code import PYTHON
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.pod.initializers import local_files

SCRIPT, LIST = "unpack.py", "files.json"
COMMAND = [PYTHON, f"{code.CODE_PATH}/{SCRIPT}"]
"""Command of the container that mounts `DatasetConfigMap.volume` at `code.CODE_PATH`; it only needs Python."""


@dataclass(frozen=True)
class DatasetConfigMap:
    """The ConfigMap that carries the files of a dataset."""

    digests: Mapping[str, str] = field(default_factory=dict)
    contents: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    problems: Sequence[Problem] = ()

    def config_map(self, name: str, namespace: Any) -> dict[str, Any]:
        """Return the ConfigMap with the files. Its keys are numbers, as paths of files are not valid keys."""
        files = {}
        for i, path in enumerate(self.digests):
            files[f"file-{i}"] = base64.b64encode(self.contents[path]).decode()
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace},
            "data": {SCRIPT: _script(), LIST: json.dumps(self.digests)},
            "binaryData": files,
        }

    def volume(self, name: str) -> dict[str, Any]:
        """Return the ConfigMap as a volume, with the files under their own names below `data`."""
        own = [{"key": key, "path": key} for key in (SCRIPT, LIST)]
        files = [{"key": f"file-{i}", "path": f"data/{path}"} for i, path in enumerate(self.digests)]
        return {"name": code.CODE_VOLUME, "configMap": {"name": name, "items": [*own, *files]}}


def pack(uri: str, ignore: Sequence[str]) -> DatasetConfigMap:
    """Return the file, or all files below the folder, of a `file://` URI, without names that match a pattern."""
    try:
        files = local_files(uri, ignore)
    except TargetFault as fault:
        problems = [Problem("storage_uri", f"{p.where}: {p.why}", p.hint) for p in fault.problems]
        return DatasetConfigMap(problems=problems)
    if sum(size for _, size in files.values()) > LIMIT:
        why = (
            f"is larger than {LIMIT} bytes, the most that can travel with a job; a cluster cannot read a path of"
            " this machine"
        )
        return DatasetConfigMap(
            problems=[Problem("storage_uri", why, "upload it, and give its s3:// or hf:// address")]
        )
    try:
        contents = {path: place.read_bytes() for path, (place, _) in files.items()}
    except OSError as error:
        return DatasetConfigMap(problems=[Problem("storage_uri", f"cannot read {error.filename}: {error.strerror}")])
    if not contents:
        return DatasetConfigMap(
            problems=[Problem("storage_uri", "has no files, or ignore_patterns exclude all of them")]
        )
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in contents.items()}
    return DatasetConfigMap(digests, contents)


@lru_cache(maxsize=1)
def _script() -> str:
    """Return the text of unpack.py. The text is part of the job's state, so it has no comments; it only needs the standard
    library.
    """
    return code.source_of(SCRIPT).read_text(encoding="utf-8")
