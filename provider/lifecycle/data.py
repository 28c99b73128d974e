"""Tells which data a job was started with, and whether it has changed since."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pulumi_trainer.provider.api.submission import from_state

SHOWN = 5
"""Characters of a version that a note shows."""


def data_notes(olds: Mapping[str, Any], news: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note for each dataset or model that is not what the job was started with.

    olds, news: inputs of the job. A job that an earlier version has made is known by the volumes that it mounts.
    """
    now = news.get("data")
    if not isinstance(now, Mapping):
        return ()
    before = olds.get("data") or dict(_mounted(from_state(olds["objects"]), now))
    found = []
    for kind, data in now.items():
        was = str((before.get(kind) or {}).get("version", data["version"]))
        if was != data.get("former") and data["version"] not in (was, "unknown"):
            change = f"{kind} {data['name']} {_short(was)} -> {_short(data['version'])}"
            found.append(f"{olds['namespace']}/{olds['name']}: {change}; {_next_run(olds['run'])} trains on it")
    return tuple(found)


def with_mounted_versions(olds: Mapping[str, Any], news: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's new inputs with the versions of the volumes that it mounts: with `pulumi up --target` they may be those of
    before."""
    data = news.get("data")
    if not isinstance(data, Mapping):
        return dict(news)
    before = olds.get("data") or {}
    mounted = {
        kind: found
        for kind, found in _mounted(from_state(news["objects"]), data)
        if not olds or found["version"] == (before.get(kind) or {}).get("version")
    }
    return {**news, "data": {kind: {**each, **mounted.get(kind, {})} for kind, each in data.items()}}


def _short(version: str) -> str:
    return version[:SHOWN] or "unreadable"


def _next_run(run: str) -> str:
    return f'run="{int(run) + 1}"' if re.fullmatch("[0-9]{1,18}", run) else "another run="


def _mounted(value: Any, kinds: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield kind and version of the volumes of data that pods mount: the names of their claims end with the version."""
    if isinstance(value, list):
        for each in value:
            yield from _mounted(each, kinds)
    elif isinstance(value, dict):
        claim = value.get("persistentVolumeClaim")
        kind = str(value.get("name")).removeprefix("trainer-")
        if isinstance(claim, dict) and kind in kinds and isinstance(name := claim.get("claimName"), str):
            yield kind, {"version": name.rpartition("-")[2]}
        for each in value.values():
            yield from _mounted(each, kinds)
