"""What a plan knows of the data and the model of a fine-tuning tool: files of this machine, which it looks into."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pulumi_trainer.args import sources
from pulumi_trainer.args.arguments import quoted
from pulumi_trainer.args.fine_tuning import ToolTrainer, is_below, table
from pulumi_trainer.args.trl import reward_columns
from pulumi_trainer.plan.local_files import is_folder
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.pod.shared import check_data

_MOUNTED = {"model": code.MODEL_PATH, "dataset": code.DATASET_PATH}


def input_problems(trainer: ToolTrainer, initializer: Any) -> list[Problem]:
    """Return what a tool could not use of files of this machine that the initializer of its job names."""
    config = trainer.config
    if config is None:
        config = {}
    if not isinstance(config, Mapping):
        return []
    given = sources.parts(initializer)
    found = {}
    for kind, mounted in _MOUNTED.items():
        found[kind] = _path(given.get(kind), config.get(getattr(trainer, kind)), mounted)
    faults = [*_model_faults(trainer, config, found["model"]), *_dataset_faults(trainer, config, found["dataset"])]
    return [Problem(place, *fault) for place, fault in faults if fault is not None]


def model_folder(trainer: ToolTrainer, config: Mapping[str, Any], initializer: Any) -> str:
    """Return the folder of this machine with the model of a tool; empty if it is elsewhere or not known."""
    return _path(sources.parts(initializer).get("model"), config.get(trainer.model), code.MODEL_PATH)


def _path(source: Any, field: Any, mounted: str) -> str:
    """Return the path on this machine of what a tool gets as model or dataset; empty if it is elsewhere or not known."""
    uri = getattr(source, "storage_uri", None)
    if (
        not is_folder(uri)
        or getattr(source, "ignore_patterns", None) is not None
        or not is_below(field or mounted, mounted)
    ):
        return ""
    below = str(field or "").removeprefix(mounted).strip("/")
    path = Path(str(uri).removeprefix("file://"), below)
    if os.path.exists(path) or below:  # noqa: PTH110 - the initializer reports a missing one
        return str(path)
    return ""


def _model_faults(
    trainer: ToolTrainer, config: Mapping[str, Any], path: str
) -> Iterator[tuple[str, check_data.Fault | None]]:
    if path:
        known = table(trainer.tool).get("templates", ())
        fault = check_data.model_fault(path)
        yield "initializer.model", fault
        if fault is None:
            yield 'trainer.config["assistant_only_loss"]', check_data.template_fault(path, config, known)


def _dataset_faults(
    trainer: ToolTrainer, config: Mapping[str, Any], path: str
) -> Iterator[tuple[str, check_data.Fault | None]]:
    if path and trainer.dataset == "dataset_dir":
        for field, fault in check_data.llamafactory_faults(path, config):
            yield f"trainer.config[{quoted(field)}]", fault
    elif path and not config.get(trainer.other_dataset):
        yield "initializer.dataset", check_data.dataset_fault(path, trainer.method_name(), config)
        columns = check_data.known_columns(path, config)
        if columns is None:
            return
        for function in filter(inspect.isfunction, trainer.functions()):
            yield "trainer.reward", check_data.reward_fault(function.__name__, reward_columns(function), columns)
