"""`completion`: prints a script that completes commands, options and files in a shell."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import shtab
from pulumi_trainer.provider.cli.parsers import COMMANDS, GROUPS, PROGRAM, Parser
from pulumi_trainer.provider.kubernetes.terminal import print_lines


def print_script(shell: str) -> None:
    """Print the script for a shell."""
    print_lines(shtab.complete(_whole_parser(), shell).split("\n"))


def _whole_parser() -> Parser:
    """Return one parser with all commands; each command has a parser of its own, so that it starts fast."""
    parser = Parser(PROGRAM)
    parser.add_argument("--version", action="store_true", help="Print the version.")
    listed = parser.add_subparsers()
    groups: dict[str, Any] = {}
    for name in GROUPS:
        groups[name] = listed.add_parser(name, help=GROUPS[name]).add_subparsers()
    for name, command in COMMANDS.items():
        group, _, word = name.rpartition(" ")
        own = groups.get(group, listed).add_parser(word, help=command.about)
        for argument in command.arguments:
            _complete_files(own.add_argument(*argument.names, **argument.settings))
    return parser


def _complete_files(action: argparse.Action) -> None:
    if action.type is Path or action.metavar in ("FILE", "DIR", "SCRIPT"):
        action.complete = shtab.FILE  # type: ignore[attr-defined]
