"""Defines how a command declares its arguments, and the parser of a command.

argparse loads faster than the shortest commands run, and a hook or an editor calls these for every file that is saved.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.terminal import print_line

PROGRAM = "pulumi-trainer"

Given = argparse.Namespace
Run = Callable[[Given], "int | None"]


@dataclass(frozen=True)
class Argument:
    """An argument or an option, as `ArgumentParser.add_argument` takes it."""

    names: tuple[str, ...]
    settings: dict[str, Any]


@dataclass(frozen=True)
class Command:
    """A command. run: Returns the exit code; None stands for 0. more: What its help says at the end."""

    about: str
    arguments: tuple[Argument, ...]
    run: Run
    more: str = ""


COMMANDS: dict[str, Command] = {}
"""All commands, those of a group with its name: `cache list`."""

GROUPS = {
    "runtime": "List runtimes, and create, check and compare releases of a catalogue, for example `runtime list`.",
    "deploy": "Print what runs parts of pulumi-trainer in a cluster, for example `deploy exporter`.",
    "policy": "Enforce a file of rules about jobs elsewhere, for example `policy render policy.yaml`.",
    "cache": "List and prune the cache of this user, for example `cache list`.",
}
"""Commands that have commands."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors look like those of the commands."""

    def error(self, message: str) -> NoReturn:
        """Print a message and end with exit code 2."""
        self.refuse(message)

    def refuse(self, message: str, hint: str = "") -> NoReturn:
        """Print a message with a hint, by default where the options are listed, and end with exit code 2."""
        problem = Problem(self.prog.partition(" ")[2], message, hint or f"`{self.prog} -h` lists its options")
        print_line(f"error: {problem}", error=True)
        raise SystemExit(2)


def parser_of(name: str) -> Parser:
    """Return the parser of a command."""
    command = COMMANDS[name]
    parser = Parser(f"{PROGRAM} {name}", description=command.about, epilog=command.more or None, allow_abbrev=False)
    for each in command.arguments:
        parser.add_argument(*each.names, **each.settings)
    return parser


def option(*names: str, **settings: Any) -> Argument:
    return Argument(names, settings)


def flag(*names: str, **settings: Any) -> Argument:
    return Argument(names, {"action": "store_true", **settings})


def texts(*names: str, **settings: Any) -> Argument:
    """Return an option that may be given more than once."""
    return Argument(names, {"action": "append", **settings})


def choice(*names: str, choices: Sequence[str], about: str, more: str = "", **settings: Any) -> Argument:
    """Return an option with a list of values, the first of which is the default. about, more: What stands before and behind the
    list in its help."""
    listed = [f"{choices[0]} (default)", *choices[1:]]
    text = f"{about}: {', '.join(listed[:-1])} or {listed[-1]}{more}."
    return Argument(names, {"choices": choices, "default": choices[0], "help": text, **settings})


def not_empty(text: str) -> str:
    """Refuse an empty argument: it would select all jobs, and is most likely a variable of a shell that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("is empty")
    return text


def between(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return a function that reads a number in these limits."""
    form = f"{least} or more" if most is None else f"{least} to {most}"

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f"invalid value {text!r} (expected a whole number, {form})")
        return number

    return read


def command(name: str, about: str, *arguments: Argument, more: str = "") -> Callable[[Run], Run]:
    """Add a command that a function runs."""

    def add(command: Run) -> Run:
        COMMANDS[name] = Command(about, arguments, command, more)
        return command

    return add
