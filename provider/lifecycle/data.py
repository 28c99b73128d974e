"""Compares the data that a job was started with to the current data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pulumi_trainer.provider.jobs.submission import from_state
from pulumi_trainer.provider.kubernetes.values.accessors import section

SHOWN = 5
"""Characters of a version that a note shows."""


def data_notes(olds: Mapping[str, Any], changes: Sequence[str]) -> tuple[str, ...]:
    """Return a note for each change of the data of a job. olds: Previous inputs of the job."""
    return tuple(
        f"{olds['namespace']}/{olds['name']}: {each}; {next_run(olds['run'])} trains on it" for each in changes
    )


def data_changes(olds: Mapping[str, Any], news: Mapping[str, Any]) -> list[str]:
    """Return each dataset or model that has changed since the job was started, as text."""
    now = news.get("data")
    if not isinstance(now, Mapping):
        return []
    before = olds.get("data") or {}
    found = []
    for kind, data in now.items():
        was = str((before.get(kind) or {}).get("version", data["version"]))
        if data["version"] not in (was, "unknown"):
            found.append(f"{kind} {data['name']} {_short(was)} -> {_short(data['version'])}")
    return found


def with_mounted_versions(olds: Mapping[str, Any], news: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's new inputs with the versions of the volumes that it mounts: `pulumi up --target` may leave the previous
    ones."""
    data = news.get("data")
    if not isinstance(data, Mapping):
        return dict(news)
    before = olds.get("data") or {}
    versions = {kind: dict(entry) for kind, entry in data.items()}
    for kind, mounted in _mounted(from_state(news["objects"]), data):
        if not olds or mounted["version"] == (before.get(kind) or {}).get("version"):
            versions[kind].update(mounted)
    return {**news, "data": versions}


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
