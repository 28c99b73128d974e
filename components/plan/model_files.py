"""The size of a model, as far as its files on this machine state it. They may be hostile: only their beginnings are read."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pulumi_trainer.args.arguments import as_mapping
from pulumi_trainer.provider.kubernetes.values.accessors import listed
from pulumi_trainer.provider.pod.shared.check_data import MOST_FILES, beginning, read_object

_TYPES = ("F32", "F16", "BF16")
_LENGTH = 8
"""Bytes before the header of a safetensors file, with its length."""
_KEYS = {
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "num_layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "vocabulary": ("vocab_size",),
}
"""Number -> its names in the config.json of models of Transformers."""
_MOST = 10**7


@dataclass(frozen=True)
class ModelSize:
    """The numbers that files state; None for one that they do not."""

    parameters: int | None = None
    hidden_size: int | None = None
    num_layers: int | None = None
    vocabulary: int | None = None


def read_model(folder: str) -> ModelSize:
    """Return the size of a model in a folder, from config.json and the headers of its safetensors files."""
    config = as_mapping(read_object(beginning(str(Path(folder, "config.json")))))
    found: dict[str, int | None] = {}
    for name, keys in _KEYS.items():
        found[name] = next((value for value in map(config.get, keys) if _is_size(value)), None)
    counts = [_count(path) for path in _weights(folder)]
    known = [count for count in counts if count is not None]
    parameters = sum(known) if known and len(known) == len(counts) else None
    return ModelSize(parameters, **found)


def _weights(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            for each in islice(entries, MOST_FILES):
                if each.name.startswith("model") and each.name.endswith(".safetensors"):
                    yield each.path
    except OSError:
        return


def _count(path: str) -> int | None:
    """Return the numbers in a safetensors file; None if they have fewer bits than 16, or if it cannot be read."""
    content = beginning(path)
    header = read_object(content[_LENGTH : _LENGTH + int.from_bytes(content[:_LENGTH], "little")])
    if header is None:
        return None
    total = 0
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        shape = _shape(as_mapping(tensor))
        if shape is None:
            return None
        total += math.prod(shape)
    return total or None


def _shape(tensor: Mapping[str, Any]) -> list[int] | None:
    shape = listed(tensor.get("shape"))
    return shape if tensor.get("dtype") in _TYPES and all(map(_is_size, shape)) else None


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST
