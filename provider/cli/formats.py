"""Output formats of commands: tables for people, JSON and YAML for programs."""

from __future__ import annotations

import json
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.kubernetes.terminal import escaped, plain, print_line, print_lines

if TYPE_CHECKING:
    from pulumi_trainer.provider.service.reach import Where
    from rich.console import Console
    from rich.table import Table

Format = Literal["table", "json", "yaml"]
LogFormat = Literal["text", "json"]


def add_row(table: Table, *cells: Any) -> None:
    """Add a row to a table; texts become one line without colours, and other cells stay as they are."""
    table.add_row(*(plain(cell) if isinstance(cell, str) else cell for cell in cells))


def table_console(width: int) -> Console:
    """Return a console for tables, as wide as the terminal."""
    from rich.console import Console

    columns = None if sys.stdout.isatty() else width
    return Console(width=columns, markup=False, emoji=False)  # names are no markup


def shortened(text: str, most: int) -> str:
    """Return a text as one line for a cell of a table, with `...` for what is behind its first characters."""
    text = plain(text)
    if len(text) <= most:
        return text
    return f"{text[:most].rstrip()}..."


def print_data(data: Any, output: str) -> None:
    """Print plain data. output: json or yaml."""
    if output == "yaml":
        import yaml

        yaml.dump(data, sys.stdout, dumper(yaml.SafeDumper), sort_keys=False, width=2**16)  # writes lone surrogates too
    else:
        print_lines(escaped(json.dumps(data, indent=2)).split("\n"))


@cache
def dumper(base: Any = None) -> Any:
    """Return a dumper without anchors: people read the output, and what two fields share is an accident of the code.

    Args:
        base: PyYAML's dumper; default: the fast one, which rejects lone surrogates.
    """
    import yaml

    fast = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # PyYAML without libyaml has only the other one
    return type("WithoutAnchors", (base or fast,), {"ignore_aliases": lambda *_: True})


def report_no_jobs(job: str | None, where: Where, *, error: bool = False) -> None:
    """Print that a stack has no jobs. error: Print to stderr."""
    from pulumi_trainer.provider.service.jobs import of_stack

    if of_stack(job, where):
        print_line("The stack has no jobs.", error=error)
        return
    place = f"namespace {where.namespace}" if where.namespace else "the namespace"
    hint = "-n NAMESPACE searches another one, `pulumi-trainer status -A` searches all"
    if where.everywhere:
        place, hint = "the cluster", ""
    raise TargetFault(Problem(place, "has no JobSets and no TrainJobs", hint))
