"""The commands on a terminal for people, with typer: what they do stands in modules of their own, loaded when they run."""

from __future__ import annotations

from typing import Annotated

import typer

from .arguments import COMMANDS

app = typer.Typer(
    help="Jobs of the current stack; documents judged and rendered without one.", no_args_is_help=True,
    add_completion=False, pretty_exceptions_enable=False,
)  # fmt: skip

JobArgument = Annotated[
    str | None, typer.Argument(help="Name of the resource or of the JobSet; default: all.", show_default=False)
]
StackOption = Annotated[str | None, typer.Option("--stack", "-s", help="Stack; default: the selected one.")]


@app.command()
def status(
    job: JobArgument = None, stack: StackOption = None, json_: Annotated[bool, typer.Option("--json")] = False
) -> None:
    """What the jobs of the current stack are doing."""
    from . import stack as commands

    commands.status(job, stack, as_json=json_)


@app.command()
def logs(
    job: JobArgument = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    step: Annotated[str | None, typer.Option(help="Only this step, such as node or dataset-initializer.")] = None,
    stack: StackOption = None,
) -> None:
    """What the containers of the jobs have printed, each line with its pod."""
    from . import stack as commands

    commands.logs(job, stack, follow=follow, step=step)


def _listed() -> None:
    """For the list of commands: those that `arguments` parses never come here."""


for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(_listed)
