"""Compares what two runs of a job were made from, by their records."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pulumi_trainer.provider.jobs.identity import short_digest
from pulumi_trainer.provider.jobs.runs import read_inputs

_CUT = re.compile(r"\.\.\. ([0-9a-f]{12})\Z")
"""End of a text that was too long for the record."""
_FROM_GIT = re.compile(r" \(git (?:\S+ )?[0-9a-f]{12}\)\Z")
"""End of the code of a project from git."""


def changed_inputs(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Return name -> "BEFORE -> AFTER" of the inputs in which two runs differ; of arguments with names, only those that differ.
    before: Inputs of the earlier run: name -> digest, version or short text (`Run.inputs`)."""
    found = {}
    for name in read_inputs({**before, **after}):
        was, now = before.get(name) or "none", after.get(name) or "none"
        is_same_code = name == "code" and (_FROM_GIT.sub("", was) == now or was == _FROM_GIT.sub("", now))
        if not is_same_code and _digest(was) != _digest(now):
            found[name] = " -> ".join(_differing(was, now))
    return found


def git_revision(inputs: Mapping[str, str]) -> str:
    """Return the revision and the commit of a run's project, as ` (git v1.2 0123456789ab)`; empty if it is not from git."""
    found = _FROM_GIT.search(inputs.get("code", ""))
    if found is None:
        return ""
    return found[0]


def _digest(text: str) -> str:
    """Return the digest of a text, or of the whole text if only its beginning was recorded."""
    cut = _CUT.search(text)
    if cut:
        return cut[1]
    return short_digest(_parsed(text), 12)


def _parsed(text: str) -> Any:
    """Return the value of a text that is an object or a list in JSON; else the text."""
    if not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _differing(before: str, after: str) -> list[str]:
    """Return two texts; of two JSON objects only the fields that differ."""
    was, now = _parsed(before), _parsed(after)
    if not isinstance(was, dict) or not isinstance(now, dict):
        return [before, after]
    return [json.dumps(_without_equal(one, other), sort_keys=True) for one, other in ((was, now), (now, was))]


def _without_equal(fields: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that others do not have, or have with another value."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if name in others and short_digest(value, 64) == short_digest(others[name], 64):
            continue
        found[name] = value
        if isinstance(value, dict) and isinstance(others.get(name), dict):
            found[name] = _without_equal(value, others[name])
    return found
