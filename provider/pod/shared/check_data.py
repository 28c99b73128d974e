"""Finds what a fine-tuning tool cannot use in its data and its model, from the files alone.

The plan reads files of this machine, and the job its own before the tool starts: this file travels with the job, so it needs only
the standard library. All that it reads may be hostile: it reads the beginning of regular files, and takes them for text and JSON.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

MOST_BYTES = 1 << 20
MOST_FILES = 1000
MOST_LINES = 1000

_PREFERENCE = ("chosen", "rejected")
_COLUMNS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "sft": (("messages",), ("prompt", "completion"), ("text",), ("conversations",), ("input_ids",)),
    "dpo": (_PREFERENCE,),
    "kto": (("prompt", "completion", "label"), _PREFERENCE),
    "reward": (_PREFERENCE, ("chosen_ids", "rejected_ids")),
    "grpo": (("prompt",),),
    "rloo": (("prompt",),),
    "distillation": (("prompt",),),
    "language-modeling": (("text",),),
}
"""Method -> sets of columns of the dataset, one of which it needs."""
_NAMED = {"sft": "dataset_text_field", "language-modeling": "text_column"}
"""Method -> field that names the column of text."""
_MARKER = re.compile(r"\{%-?\s*generation\s*-?%\}")
"""As TRL finds it."""
TEMPLATE_HINT = (
    "put {% generation %} and {% endgeneration %} around what the assistant says, in the tokenizer's template or in a file that"
    ' config={"chat_template_path": ...} names; or leave assistant_only_loss out'
)
DATASETS = "dataset_info.json"
"""File with the datasets of LLaMA-Factory."""

_ALPACA = ("prompt", "response", "chosen", "rejected", "kto_tag")
"""What each line of a dataset in the format alpaca has, if the dataset has it at all."""

Fault = tuple[str, str]
"""What is wrong, and a hint."""


def columns_fault(method: str, config: Mapping[str, Any], columns: Collection[str]) -> Fault | None:
    """Return why a method cannot use a dataset with these columns."""
    field = _NAMED.get(method, "")
    text = config.get(field) or "text"
    wanted = [[text if name == "text" else name for name in names] for names in _COLUMNS.get(method, ())]
    if not isinstance(text, str) or not wanted or any(set(names) <= set(columns) for names in wanted):
        return None
    needs = ", or ".join(" and ".join(names) for names in wanted[:3])
    hint = "rename the columns of the dataset"
    if field:
        hint += f', or name the column of text: config={{"{field}": ...}}'
    return f"the dataset has the columns {_listed(sorted(columns))}, and {method} needs {needs}", hint


def split_fault(field: str, split: str, known: Collection[str]) -> Fault | None:
    """Return that a dataset lacks a split that a field names."""
    if split in known:
        return None
    return f"the dataset has no split {split!r}, but {_listed(known)}", f'config={{"{field}": ...}} names the split'


def dataset_fault(path: str, method: str, config: Mapping[str, Any]) -> Fault | None:
    """Return why a method cannot use the JSON lines at a path; None if they are not known or other files decide."""
    columns = known_columns(path, config)
    return None if columns is None else columns_fault(method, config, columns)


def known_columns(path: str, config: Mapping[str, Any]) -> set[str] | None:
    """Return the columns of the JSON lines at a path; None if they are not known or other files decide."""
    if config.get("dataset_config") or config.get("dataset_train_split") not in (None, "train"):
        return None
    file = _train_file(path)
    return _columns(file) if file else None


def reward_fault(name: str, taken: Collection[str], columns: Collection[str]) -> Fault | None:
    """Return that a reward function takes columns without a default that the dataset lacks."""
    lacking = [each for each in taken if each not in columns]
    if not lacking:
        return None
    why = f"the reward function {name} takes {_listed(lacking)}, and the dataset has the columns {_listed(sorted(columns))}"
    return why, f"rename the columns of the dataset, or give the parameter a default: {lacking[0]}=None"


def model_fault(folder: str) -> Fault | None:
    """Return why a folder is not a model of Transformers."""
    hint = "give a folder that save_pretrained has written, or the name of a model of the hub"
    if not os.path.isdir(folder):
        return f"the base model {_short(folder)} is not there: no such folder", hint
    try:
        with os.scandir(folder) as entries:
            names = [each.name for each in itertools.islice(entries, MOST_FILES)]
    except OSError as error:
        return f"the folder {_short(folder)} of the base model cannot be read: {error.strerror}", hint
    if {"config.json", "adapter_config.json"} & {*names} or any(name.endswith(".gguf") for name in names):
        return None
    return f"the folder {_short(folder)} is not a base model: it has no config.json", hint


def template_fault(folder: str, config: Mapping[str, Any], known: Collection[str]) -> Fault | None:
    """Return that assistant_only_loss would fail with the chat template of a model. known: Digests of the templates that TRL
    gives markers by itself."""
    if config.get("assistant_only_loss") is not True or config.get("chat_template_path"):
        return None
    template = _template(folder)
    if template is None or _MARKER.search(template) or template_digest(template) in known:
        return None
    return (
        "the chat template of the model has no {% generation %} marker, which assistant_only_loss needs, and it is none of those"
        " that TRL can mark by itself",
        TEMPLATE_HINT,
    )


def template_digest(template: str) -> str:
    return hashlib.sha256(template.encode(errors="replace")).hexdigest()[:16]


def llamafactory_faults(folder: str, config: Mapping[str, Any]) -> list[tuple[str, Fault]]:
    """Return field and fault of each dataset that LLaMA-Factory would not read in a folder."""
    if not os.path.isdir(folder):
        return []
    described = _json(os.path.join(folder, DATASETS))
    hint = f"{DATASETS} describes each dataset: file and columns"
    if described is None:
        if os.path.lexists(os.path.join(folder, DATASETS)):
            return [("dataset", (f"{DATASETS} in the folder of the dataset is not a JSON object", hint))]
        return [("dataset", (f"the folder of the dataset has no {DATASETS}", hint))]
    found = list[tuple[str, Fault]]()
    for field in ("dataset", "eval_dataset"):
        names = config.get(field)
        for name in names.split(",") if isinstance(names, str) else ():
            fault = _llamafactory_fault(folder, name.strip(), described)
            found += [(field, fault)] if fault else []
    return found


def _llamafactory_fault(folder: str, name: str, described: Mapping[str, Any]) -> Fault | None:
    about = described.get(name)
    if not isinstance(about, dict):
        return f"{DATASETS} describes no dataset {name!r}, but {_listed(described)}", "name one of these"
    file, given = about.get("file_name"), about.get("columns")
    if not isinstance(file, str) or any(key in about for key in ("hf_hub_url", "ms_hub_url", "om_hub_url")):
        return None
    path = os.path.join(folder, file)
    if not os.path.exists(path):
        return f"the file {_short(file)} of the dataset {name} is not there", f'correct "file_name" in {DATASETS}'
    columns = _columns(path) if file.endswith(".jsonl") else None
    if about.get("formatting", "alpaca") == "alpaca":
        needed = {"prompt": "instruction", "response": "output"} if not isinstance(given, dict) else given
        wanted: Sequence[Any] = [*map(needed.get, _ALPACA)]  # the others may begin in later lines
    else:
        wanted = [given.get("messages")] if isinstance(given, dict) else ["conversations"]
    lacking = [each for each in wanted if isinstance(each, str) and columns is not None and each not in columns]
    if not lacking:
        return None
    why = f"the dataset {name} has the columns {_listed(sorted(columns or ()))}, and not {_listed(lacking)}"
    return why, f'name its columns in {DATASETS}: "columns": {{"prompt": ...}}'


def _train_file(path: str) -> str:
    """Return the file of JSON lines that `datasets` would take for the split train; empty if it is not known."""
    if os.path.isfile(path):
        return path if path.endswith(".jsonl") else ""
    data = [file for file in _files(path) if os.path.basename(file) != DATASETS]
    if len(data) >= MOST_FILES or not all(file.endswith(".jsonl") for file in data):
        return ""
    named = [file for file in data if "train" in os.path.basename(file)]
    return next((files[0] for files in (named, data) if len(files) == 1), "")


def _files(folder: str) -> list[str]:
    """Return files in a folder and below, without hidden ones."""
    found = list[str]()
    for place, _, names in os.walk(folder):
        found += [os.path.join(place, name) for name in names if not name.startswith(".")]
        if len(found) >= MOST_FILES:
            break
    return found


def _columns(path: str) -> set[str] | None:
    """Return the columns of the first lines of a file; None if these are not JSON objects."""
    content = beginning(path)
    lines = content.split(b"\n")
    whole = lines[:-1] if len(content) == MOST_BYTES else lines
    rows = [read_object(line) for line in whole[:MOST_LINES] if line.strip()]
    found = set[str]()
    for row in rows:
        if row is None:
            return None
        found |= row.keys()
    return found if rows else None


def _template(folder: str) -> str | None:
    """Return the chat template of a model; None if it is not one text."""
    others = ("additional_chat_templates", "chat_template.json", "processor_config.json", "preprocessor_config.json")
    if any(os.path.lexists(os.path.join(folder, name)) for name in others):
        return None
    path = os.path.join(folder, "chat_template.jinja")
    if os.path.lexists(path):
        content = beginning(path)
        return content.decode("utf-8", "replace") if 0 < len(content) < MOST_BYTES else None
    found = (_json(os.path.join(folder, "tokenizer_config.json")) or {}).get("chat_template")
    return found if isinstance(found, str) else None


def _json(path: str) -> dict[str, Any] | None:
    return read_object(beginning(path))


def read_object(content: bytes) -> dict[str, Any] | None:
    with suppress(ValueError, RecursionError):
        found = json.loads(content)
        return found if isinstance(found, dict) else None
    return None


def beginning(path: str) -> bytes:
    """Return the beginning of a regular file; empty if it cannot be read."""
    with suppress(OSError, ValueError), open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file.read(MOST_BYTES)
    return b""


def _listed(names: Collection[Any], most: int = 12) -> str:
    shown = [_short(str(name)) for name in names]
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return (", ".join(shown[:most]) + more) or "none"


def _short(text: str) -> str:
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[:200])
    return shown if len(text) <= 200 else f"{shown}..."
