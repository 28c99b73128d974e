"""Entry point of the command `pulumi-trainer`. It loads neither Pulumi nor a client of a cluster."""

from __future__ import annotations

import difflib
import io
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import NoReturn

from pulumi_trainer.provider.cli.commands import COMMANDS, GROUPS
from pulumi_trainer.provider.cli.parsers import PROGRAM, Parser, parser_of
from pulumi_trainer.provider.kubernetes.errors import TrainerError
from pulumi_trainer.provider.kubernetes.terminal import print_line
from pulumi_trainer.provider.machine.extras import EXTRAS, not_installed

_ABOUT = "Inspect and control training jobs of a stack or a cluster; validate and render TrainJobs without either."


def main() -> None:
    """Run a command. Errors for users are one line on stderr, with exit code 1."""
    _prepare_streams()
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
        sys.exit(code)
    except TrainerError as error:
        print_line(f"error: {error}", error=True)
        sys.exit(1)
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        print_line(f"error: {not_installed(module, 'this command')}", error=True)
        sys.exit(1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains when it flushes
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        where = "cannot write" if error.filename is None else str(error.filename)
        print_line(f"error: {where}: {error.strerror or error}", error=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)


def _prepare_streams() -> None:
    """Let every text be printed: what the encoding of a terminal does not have is escaped, and a closed stream drops it."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def run(words: Sequence[str]) -> int:
    """Run a command, and return its exit code. Raises SystemExit for --help, and for invalid arguments."""
    name, group, rest = "", "", list(words)
    while not name or name in GROUPS:
        group = name
        if not rest or rest[0] in ("-h", "--help"):
            overview(group).print_help()
            return 0 if rest else 2
        if not group and rest[0] == "--version":
            print_line(f"{PROGRAM} {version(PROGRAM)}")
            return 0
        name = f"{group} {rest.pop(0)}".strip()
        if name not in COMMANDS and name not in GROUPS:
            _refuse_name(name, group)
    script: list[str] = []
    if name == "run" and "--" in rest:
        at = rest.index("--")
        rest, script = rest[:at], rest[at + 1 :]
    parser = parser_of(name)
    given, unknown = parser.parse_known_intermixed_args(rest)
    if unknown:
        _refuse_unknown(parser, name, unknown[0])
    given.script, given.parser = script, parser
    return COMMANDS[name].run(given) or 0


def overview(group: str = "") -> Parser:
    """Return a parser that prints the commands of the program or of a group."""
    parser = Parser(f"{PROGRAM} {group}".strip(), description=GROUPS.get(group, _ABOUT))
    if not group:
        parser.add_argument("--version", action="store_true", help="Print the version.")
    listed = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name in _names(group):
        listed.add_parser(name, help=_about(f"{group} {name}".strip()))
    return parser


def _names(group: str) -> list[str]:
    """Return the names of the commands of the program or of a group."""
    if group:
        return [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{group} ")]
    return list(dict.fromkeys(name.partition(" ")[0] for name in COMMANDS))


def _about(name: str) -> str:
    return GROUPS.get(name) or COMMANDS[name].about


def _refuse_name(name: str, group: str) -> NoReturn:
    word, where = name.rpartition(" ")[2], f"{PROGRAM} {group}".strip()
    what = "option" if word.startswith("-") else "command"
    near = difflib.get_close_matches(word, _names(group), 1)
    hint = f"did you mean {near[0]!r}?" if near else f"`{where} -h` lists the commands"
    Parser(where).refuse(f"no such {what} {word!r}", hint)


def _refuse_unknown(parser: Parser, name: str, word: str) -> NoReturn:
    if not word.startswith("-"):
        parser.refuse(f"takes no argument {word!r}")
    if name == "run":
        hint = (
            f"`{parser.prog} -h` lists its options; arguments of the script follow --, as in `run train.py -- --lr 0.1`"
        )
        parser.refuse(f"no such option {word}", hint)
    options = [*chain.from_iterable(each.names for each in COMMANDS[name].arguments)]
    near = difflib.get_close_matches(word, options, 1, 0.75)
    near = near or [option for option in options if len(word) > 3 and option.startswith(word)]
    parser.refuse(f"no such option {word}", f"did you mean {near[0]}?" if near else "")


if __name__ == "__main__":
    main()
