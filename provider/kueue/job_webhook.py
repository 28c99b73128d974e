"""Kueue's webhooks for a JobSet or a TrainJob with a queue: what they reject, in their words, with the default feature gates.

Source:
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/validation.go and tas_validation.go beside it
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.schema.field_errors import DUPLICATE, FORBIDDEN, INVALID
from pulumi_trainer.provider.kubernetes.schema.field_errors import REQUIRED as MISSING
from pulumi_trainer.provider.kubernetes.values.accessors import Document, only, section
from pulumi_trainer.provider.kubernetes.values.names import dns_1123_subdomain, qualified_name
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, first_unknown
from pulumi_trainer.provider.kueue.labels import (
    MAX_EXECUTION,
    PREFERRED,
    QUEUE,
    REQUIRED,
    SLICE_LEVEL,
    SLICE_SIZE,
    SLICES,
    TOGETHER,
    UNCONSTRAINED,
)
from pulumi_trainer.provider.kueue.podsets import PodSet, pod_sets

_BOOLEANS = ("1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False")
"""What Go reads as a boolean."""
_LAYERS = 3


def queued_problems(job: Document, jobset: Document, queue: Any = None) -> list[Problem]:
    """Return what Kueue rejects of a job; empty for a job without a queue. Unknown values count as valid.

    Args:
        queue: Its LocalQueue; default: that of its label.
    """
    labels = section(job, "metadata", "labels")
    if not (queue or labels.get(QUEUE)):
        return []
    sets = pod_sets(jobset)
    unreadable = next(chain.from_iterable(map(_unreadable, sets)), None)
    if unreadable is not None:  # Kueue stops here, and names no field
        return [*_labels(labels), unreadable]
    return [*_labels(labels), *chain.from_iterable(map(_request, sets)), *_groups(sets)]


def _unreadable(pods: PodSet) -> Iterator[Problem]:
    """Yield annotations whose values cannot be parsed.

    Source: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/tas.go
    """
    notes, at = pods.annotations, f"{pods.at}.metadata.annotations"
    if isinstance(notes, Unknown):
        return
    value = notes.get(UNCONSTRAINED)
    if REQUIRED not in notes and PREFERRED not in notes and isinstance(value, str) and value not in _BOOLEANS:
        yield Problem(f"{at}[{UNCONSTRAINED}]", f'strconv.ParseBool: parsing "{value}": invalid syntax', type=INVALID)
    text, size = notes.get(SLICES), notes.get(SLICE_SIZE)
    if isinstance(text, str):
        layers = _parse_layers(text)
        if layers is None:
            why = "failed to parse multi-layer topology constraints annotation: it is not a JSON array of objects"
            yield Problem(f"{at}[{SLICES}]", why, type=INVALID)
        elif not 0 < len(layers) <= _LAYERS:
            why = f"topology constraints must contain between 1 and {_LAYERS} entries: got {len(layers)}"
            yield Problem(f"{at}[{SLICES}]", why, type=INVALID)
    elif SLICE_LEVEL in notes and isinstance(size, str):
        number = _integer(size, 32)
        if isinstance(number, str):
            yield Problem(f"{at}[{SLICE_SIZE}]", f'strconv.ParseInt: parsing "{size}": {number}', type=INVALID)


def _integer(text: str, bits: int) -> int | str:
    """Return a number as Go's strconv parses it, or its error. Python would parse no more than 4,300 digits."""
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        return "invalid syntax"
    digits = text.lstrip("+-").lstrip("0")
    number = int(digits[:20] or 0)
    if text[0] == "-":
        number = -number
    if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        return number
    return "value out of range"


def _parse_layers(text: str) -> list[Document] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, list) and all(isinstance(layer, dict) for layer in found):
        return found
    return None


def _labels(labels: Mapping[str, Any]) -> Iterator[Problem]:
    queue, limit = labels.get(QUEUE), labels.get(MAX_EXECUTION)
    if isinstance(queue, str):
        wrong = dns_1123_subdomain(queue)
        if wrong:
            yield Problem(f"metadata.labels[{QUEUE}]", ",".join(wrong), type=INVALID)
    if isinstance(limit, str):
        at = f"metadata.labels[{MAX_EXECUTION}]"
        number = _integer(limit, 64)
        if isinstance(number, str):
            yield Problem(at, f'strconv.Atoi: parsing "{limit}": {number}', type=INVALID)
        elif number <= 0:
            yield Problem(at, "should be greater than 0", type=INVALID)


def _request(pods: PodSet) -> Iterator[Problem]:
    """Yield what is wrong with the topology request of a pod template."""
    notes, at = pods.annotations, f"{pods.at}.metadata.annotations"
    if isinstance(notes, Unknown):
        return
    kinds = [key for key in (REQUIRED, PREFERRED, UNCONSTRAINED) if key in notes]
    if len(kinds) > 1:
        all_of = ", ".join(f'"{key}"' for key in (REQUIRED, PREFERRED, UNCONSTRAINED))
        yield Problem(at, f"must not contain more than one topology annotation: [{all_of}]", type=INVALID)
    for key in (REQUIRED, PREFERRED, SLICE_LEVEL):
        value = notes.get(key)
        if isinstance(value, str):
            for why in qualified_name(value):
                yield Problem(f"{at}[{key}]", why, type=INVALID)
    yield from _group(notes, at)
    yield from _slices(pods, notes, at)
    text = notes.get(SLICES)
    if isinstance(text, str):
        yield from _layers(pods, text, notes, f"{at}[{SLICES}]")


def _group(notes: Mapping[str, Any], at: str) -> Iterator[Problem]:
    name, at = notes.get(TOGETHER), f"{at}[{TOGETHER}]"
    if TOGETHER not in notes:
        return
    if isinstance(name, str) and name[:1] not in ("+", "-") and isinstance(_integer(name, 65), int):
        yield Problem(at, "must not be a number", type=INVALID)
    for other in (SLICE_SIZE, SLICE_LEVEL, SLICES):
        if other in notes:
            yield Problem(at, f"may not be set when '{other}' is specified", type=FORBIDDEN)
    if REQUIRED not in notes and PREFERRED not in notes:
        why = f"may not be set when neither '{PREFERRED}' nor '{REQUIRED}' is specified"
        yield Problem(at, why, type=FORBIDDEN)


def _slices(pods: PodSet, notes: Mapping[str, Any], at: str) -> Iterator[Problem]:
    size = notes.get(SLICE_SIZE)
    if SLICE_LEVEL in notes and SLICE_SIZE not in notes:
        yield Problem(f"{at}[{SLICE_SIZE}]", f"must be set when '{SLICE_LEVEL}' is specified", type=MISSING)
    if SLICE_SIZE in notes and SLICE_LEVEL not in notes:
        yield Problem(f"{at}[{SLICE_SIZE}]", f"may not be set when '{SLICE_LEVEL}' is not specified", type=FORBIDDEN)
    if isinstance(size, str):
        number = _integer(size, 32)
        if isinstance(number, str) or number < 1:
            yield Problem(f"{at}[{SLICE_SIZE}]", "must be greater than or equal to 1", type=INVALID)
        elif pods.count is not None and number > pods.count:
            why = f"must not be greater than pod set count {pods.count}"
            yield Problem(f"{at}[{SLICE_SIZE}]", why, type=INVALID)


def _layers(pods: PodSet, text: str, notes: Mapping[str, Any], at: str) -> Iterator[Problem]:
    for other in (SLICE_LEVEL, SLICE_SIZE):
        if other in notes:
            yield Problem(at, f"may not be set when '{other}' is specified", type=FORBIDDEN)
    layers = _parse_layers(text) or []
    first: dict[str, int] = {}
    sizes = [*map(_size, layers)]
    for i, (layer, size) in enumerate(zip(layers, sizes, strict=True)):
        level = str(layer.get("topology", ""))
        for why in qualified_name(level):
            yield Problem(f"{at}[{i}].topology", why, type=INVALID)
        if size < 1:
            yield Problem(f"{at}[{i}].size", "must be greater than or equal to 1", type=INVALID)
        if level in first:
            yield Problem(f"{at}[{i}].topology", f"{level} (also at index {first[level]})", type=DUPLICATE)
        first.setdefault(level, i)
        if i and size > 0 and sizes[i - 1] % size:
            why = f"must evenly divide the parent layer size {sizes[i - 1]}"
            yield Problem(f"{at}[{i}].size", why, type=INVALID)
    if pods.count is not None and sizes[0] > pods.count:
        yield Problem(at, f"must not be greater than pod set count {pods.count}", type=INVALID)


def _size(layer: Document) -> int:
    size = layer.get("size", 0)
    if not isinstance(size, int):
        return 0
    return size


def _groups(sets: list[PodSet]) -> Iterator[Problem]:
    """Yield what is wrong with groups of replicated jobs whose pods share a domain."""
    groups: dict[str, list[PodSet]] = {}
    for each in sets:
        notes = each.annotations
        if isinstance(notes, Unknown) or first_unknown(notes) is not None:
            return
        group = notes.get(TOGETHER)
        if isinstance(group, str) and (REQUIRED in notes or PREFERRED in notes):
            groups.setdefault(group, []).append(each)
    for name, members in groups.items():
        places = [f"{each.at}.metadata.annotations" for each in members]
        if len(members) != 2:
            why = f"can only define groups of exactly 2 pod sets, got: {len(members)} pod set(s)"
            for at in places:
                yield Problem(f"{at}[{TOGETHER}]", why, type=INVALID)
            continue
        counts = [each.count for each in members]
        if None not in counts and 1 not in counts:
            why = (
                "can only define groups where at least one pod set has only 1 replica, got:"
                f" {counts[0]} replica(s) and {counts[1]} replica(s) in the group"
            )
            for at in places:
                yield Problem(f"{at}[{TOGETHER}]", why, type=INVALID)
        levels = [*map(_wanted_levels, members)]
        if levels[0] != levels[1]:
            for at, other in zip(places, reversed(places), strict=True):
                why = f"must specify '{REQUIRED}' or '{PREFERRED}' topology consistent with '{other}' in group '{name}'"
                yield Problem(at, why, type=INVALID)


def _wanted_levels(pods: PodSet) -> Document:
    return only(pods.annotations_or_empty, (REQUIRED, PREFERRED))


def unmanaged_problems(answer: Mapping[str, Any]) -> list[Problem]:
    """Return the problem that Kueue does not manage a new job; empty if Kueue has suspended it."""
    queue = (answer["metadata"].get("labels") or {}).get(QUEUE)
    if not queue or (answer.get("spec") or {}).get("suspend") is True:
        return []
    kind = answer["kind"]
    why = f"Kueue does not manage {kind}s in this cluster: the job would start at once, without a quota"
    hint = f"add {answer['apiVersion'].partition('/')[0]}/{kind.lower()} to integrations.frameworks of Kueue's configuration"
    return [Problem(f"metadata.labels[{QUEUE}]", why, hint)]
