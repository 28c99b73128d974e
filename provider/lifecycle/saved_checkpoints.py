"""Which checkpoints of a lineage are complete: in the folder of a volume on this machine, or by the manifests in S3."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.jobs.checkpoints import CHECKPOINT_TO
from pulumi_trainer.provider.jobs.runs import Run
from pulumi_trainer.provider.kubernetes.errors import TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import mappings, section, text
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs
from pulumi_trainer.provider.lifecycle.target import Target
from pulumi_trainer.provider.pod.code import CHECKPOINT_PATH, OUTPUT_PATH
from pulumi_trainer.provider.pod.shared import find_checkpoint, s3

BUCKET_SECONDS = 5
"""Seconds that a plan waits for S3."""
_LONGEST_MANIFEST = 64 << 20
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_BELOW_OUTPUT = CHECKPOINT_PATH.removeprefix(OUTPUT_PATH).strip("/")
_Bucket: Callable[..., Any] = s3.Bucket
_fault: Callable[[str], str] = find_checkpoint.fault
_number_of: Callable[[str], int] = find_checkpoint.number_of


def saved_checkpoints(inputs: JobInputs, run: Run, target: Target) -> dict[int, float]:
    """Return the complete checkpoints in the folder of a run's lineage: step, in ascending order -> when it was saved, in seconds
    since the epoch; 0 in S3, where that is not read.

    Raises:
        TargetFault: They cannot be read: the volume is in a cluster, S3 does not answer, or its credentials are not known.
    """
    if run.place.startswith("s3://"):
        return dict.fromkeys(sorted(_steps_in_s3(f"{run.place}/{run.lineage}", environment_of(inputs))), 0.0)
    if inputs.target.get("kind") != "local":
        raise TargetFault(f"volume {run.place} is in the cluster")
    return checkpoints_in_volume(inputs.namespace, run.place, run.lineage, target)


def checkpoints_in_volume(namespace: str, place: str, lineage: str, target: Target) -> dict[int, float]:
    """Return the complete checkpoints of a lineage in a volume of this machine, as `saved_checkpoints` does."""
    found = target.volumes.find(namespace, place)
    if found is None:
        return {}
    folder = Path(found[0]["path"], lineage, _BELOW_OUTPUT)
    try:
        paths = [*folder.iterdir()]
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise TargetFault(f"{folder}: {error.strerror}") from None
    saved = dict[int, float]()
    for path in sorted(paths, key=lambda path: _number_of(path.name)):
        with suppress(OSError):  # the job has removed it meanwhile
            if _number_of(path.name) >= 0 and not _fault(str(path)):
                marker = path / find_checkpoint.OWN
                saved[_number_of(path.name)] = (marker if marker.exists() else path).stat().st_mtime
    return saved


def environment_of(inputs: JobInputs) -> dict[str, str]:
    """Return the variables of the container that saves checkpoints in S3, as far as the plan knows their values."""
    found = dict[str, str]()
    jobsets = [document for key, document in inputs.documents.items() if key.startswith("JobSet/")]
    for container in chain.from_iterable(job.pod.containers for job in chain.from_iterable(map(jobs_of, jobsets))):
        variables = {text(each.get("name")): each for each in mappings(container.env)}
        if CHECKPOINT_TO in variables:
            for name, variable in variables.items():
                ref = section(variable, "valueFrom", "secretKeyRef")
                secret = section(inputs.secrets, text(ref.get("name"))).get(text(ref.get("key")))
                found[name] = text(secret) or text(variable.get("value"))
    return {name: value for name, value in found.items() if value}


def _steps_in_s3(address: str, env: Mapping[str, str]) -> Iterator[int]:
    """Yield the steps of the checkpoints whose manifests are complete. Raise TargetFault if S3 does not answer, or if the
    credentials are not known."""
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    if not all(map(env.get, _KEYS)):
        raise TargetFault(f"{address}: the plan does not know the credentials")
    start, parts = f"{prefix}/manifests/", dict[str, set[int]]()
    try:
        there = _Bucket(bucket, env, tries=1, timeout=BUCKET_SECONDS)
        for key in there.list(start):
            match = re.fullmatch(r"([^/]{1,255})/node-(\d{1,6})\.json", key[len(start) :])
            if match and _number_of(match[1]) >= 0:
                parts.setdefault(match[1], set()).add(int(match[2]))
        for name, nodes in parts.items():
            if 0 in nodes:
                first = section(json.loads(there.read(f"{start}{name}/node-0.json", _LONGEST_MANIFEST)))
                count = first.get("nodes")
                if isinstance(count, int) and 0 < count <= len(nodes) and nodes >= {*range(count)}:
                    yield _number_of(name)
    except (s3.Failed, ValueError, RecursionError) as error:
        raise TargetFault(f"{address}: {error}") from None
