"""Compares the data that a job was started with to the current data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.lifecycle.job_inputs import JobInputs

SHOWN = 5
"""Characters of a version that a note shows."""


def data_notes(olds: JobInputs, changes: Sequence[str]) -> tuple[str, ...]:
    """Return a note for each change of the data of a job. olds: Previous inputs of the job."""
    return tuple(f"{olds.where}: {each}; {next_run(olds.run)} trains on it" for each in changes)


def data_changes(olds: JobInputs, news: JobInputs) -> list[str]:
    """Return each dataset or model that has changed since the job was started, as text."""
    if not isinstance(news.data, Mapping):
        return []
    found = []
    for kind, data in news.data.items():
        was = str(section(olds.data, kind).get("version", data["version"]))
        if data["version"] not in (was, "unknown"):
            found.append(f"{kind} {data['name']} {_short(was)} -> {_short(data['version'])}")
    return found


def with_mounted_versions(olds: JobInputs | None, news: JobInputs) -> JobInputs:
    """Return a job's new inputs with the versions of the volumes that it mounts: `pulumi up --target` may leave the previous
    ones."""
    data = news.data
    if not isinstance(data, Mapping) or not data:
        return news
    versions = {kind: dict(entry) for kind, entry in data.items()}
    for kind, mounted in _mounted(news.documents, data):
        if olds is None or mounted["version"] == section(olds.data, kind).get("version"):
            versions[kind].update(mounted)
    return replace(news, data=versions)


def _short(version: str) -> str:
    return version[:SHOWN] or "unreadable"


def next_run(run: str) -> str:
    """Return the argument that starts another run."""
    if not re.fullmatch("[0-9]{1,18}", run):
        return "another run="
    return f'run="{int(run) + 1}"'


def _mounted(value: Any, kinds: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield kind and version of the data volumes that pods mount: the names of their claims end with the version."""
    if isinstance(value, list):
        for each in value:
            yield from _mounted(each, kinds)
    elif isinstance(value, dict):
        name = section(value, "persistentVolumeClaim").get("claimName")
        kind = str(value.get("name")).removeprefix("trainer-")
        if isinstance(name, str) and kind in kinds:
            yield kind, {"version": name.rpartition("-")[2]}
        for each in value.values():
            yield from _mounted(each, kinds)
