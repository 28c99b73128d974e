"""Entry point of the command `pulumi-trainer`.

`parsers` parses the commands that have to answer at once (`validate`, `render`, `runtime`, ...), `app` the
others. Neither loads Pulumi or a client of a cluster.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.cli import parsers
from pulumi_trainer.provider.kubernetes.errors import Problem, TrainerError
from pulumi_trainer.provider.kubernetes.terminal import print_line
from pulumi_trainer.provider.machine.extras import EXTRAS, not_installed

_RUN, _NO_OPTION = "pulumi-trainer run", "No such option"
"""A command whose unknown options may be meant for a script, and the beginning of their message."""


def main() -> None:
    """Run a command. Errors for users are one line on stderr, with exit code 1."""
    _prepare_streams()
    try:
        if sys.argv[1:] and sys.argv[1] in parsers.COMMANDS:
            code = parsers.run(sys.argv[1], sys.argv[2:])
        else:
            code = _run_app()
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


def _run_app() -> int:
    """Run a command of `commands.app`, and return its exit code."""
    import typer
    from pulumi_trainer.provider.cli.app import app

    usage_error: Any = typer.BadParameter.__base__  # of click, or of the copy of it in newer releases of typer
    try:
        code = app(prog_name="pulumi-trainer", standalone_mode=False)
    except usage_error as error:
        command = error.ctx.command_path if error.ctx else "pulumi-trainer"
        why, _, near = error.format_message().replace("Value error, ", "").partition(". Did you mean ")
        hint = f"`{command} -h` lists its options"
        if near:
            hint = f"did you mean {near}"
        elif command == _RUN and why.startswith(_NO_OPTION):
            why = why.partition(" (")[0]
            hint = (
                f"`{command} -h` lists its options; arguments of the script follow --, as in `run train.py -- --lr 0.1`"
            )
        problem = Problem(command.partition(" ")[2], why[:1].lower() + why[1:].rstrip("."), hint)
        print_line(f"error: {problem}", error=True)
        return 2
    except typer.Abort:
        return 1
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    main()
