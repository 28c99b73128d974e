"""Replaces values of train.py by those of files and of `--name=value`, in their order."""

import ast
import runpy
from typing import Any


def replaced(values: dict[str, Any], arguments: list[str]) -> dict[str, Any]:
    for argument in arguments:
        if argument.startswith("--"):
            name, _, text = argument[2:].partition("=")
            given = {name: ast.literal_eval(text)}
        else:
            given = {name: value for name, value in runpy.run_path(argument).items() if not name.startswith("__")}
        if unknown := given.keys() - values.keys():
            raise SystemExit(f"no such value: {', '.join(sorted(unknown))}")
        values = {**values, **given}
    return values
