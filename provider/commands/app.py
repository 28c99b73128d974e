"""The commands on a terminal for people, with typer: what they do stands in modules of their own, loaded when they run."""

from __future__ import annotations

import re
from typing import Annotated

import typer
from pulumi_trainer.provider.commands.arguments import COMMANDS
from pulumi_trainer.provider.commands.reach import Where
from pulumi_trainer.provider.kube.errors import Invalid, Problem

app = typer.Typer(
    help="Jobs of the current stack, or of a cluster; documents judged and rendered without either.",
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
)  # fmt: skip

_JOB = "In a stack: name of the resource or of the job. In a cluster: NAME, jobset/NAME or trainjob/NAME. Default: all."
JobArgument = Annotated[str | None, typer.Argument(help=_JOB, show_default=False)]
StackOption = Annotated[
    str, typer.Option("--stack", "-s", help="Stack; default: the selected one.", show_default=False)
]
NamespaceOption = Annotated[
    str, typer.Option("--namespace", "-n", help="Any job of this namespace of a cluster.", show_default=False)
]
ContextOption = Annotated[
    str, typer.Option("--context", help="Of the kubeconfig; default: the current one.", show_default=False)
]
KubeconfigOption = Annotated[str, typer.Option("--kubeconfig", help="File; default: as kubectl.", show_default=False)]
EverywhereOption = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Jobs of all namespaces of a cluster.")]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]


@app.command()
def status(
    job: JobArgument = None,
    stack: StackOption = "",
    namespace: NamespaceOption = "",
    context: ContextOption = "",
    kubeconfig: KubeconfigOption = "",
    everywhere: EverywhereOption = False,
    json_: JsonOption = False,
) -> None:
    """What jobs are doing: those of the current stack, or any of a cluster."""
    from pulumi_trainer.provider.commands import status as commands

    commands.status(job, Where(stack, namespace, context, kubeconfig, everywhere), as_json=json_)


@app.command()
def logs(
    job: JobArgument = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    step: Annotated[
        str, typer.Option(help="Only this step, such as node or dataset-initializer.", show_default=False)
    ] = "",
    tail: Annotated[
        int | None, typer.Option(min=0, help="The last lines of each container; default: all.", show_default=False)
    ] = None,
    since: Annotated[str, typer.Option(help="Only what is newer, such as 90s, 5m or 2h.", show_default=False)] = "",
    earlier: Annotated[
        bool, typer.Option("--all", help="Also what earlier attempts printed, as far as it is still there.")
    ] = False,
    stack: StackOption = "",
    namespace: NamespaceOption = "",
    context: ContextOption = "",
    kubeconfig: KubeconfigOption = "",
) -> None:
    """What the containers of jobs have printed, each line with its pod."""
    from pulumi_trainer.provider.commands import logs as commands

    wanted = commands.Wanted(follow, step, tail, _seconds(since) if since else None, earlier)
    commands.logs(job, Where(stack, namespace, context, kubeconfig), wanted)


@app.command()
def why(
    job: JobArgument = None,
    stack: StackOption = "",
    namespace: NamespaceOption = "",
    context: ContextOption = "",
    kubeconfig: KubeconfigOption = "",
) -> None:
    """What a job waits for or why it has failed, in one paragraph."""
    from pulumi_trainer.provider.commands import status as commands

    commands.why(job, Where(stack, namespace, context, kubeconfig))


@app.command()
def events(
    job: JobArgument = None,
    stack: StackOption = "",
    namespace: NamespaceOption = "",
    context: ContextOption = "",
    kubeconfig: KubeconfigOption = "",
    json_: JsonOption = False,
) -> None:
    """What happened to a job and its objects in a cluster, in order."""
    from pulumi_trainer.provider.commands import events as commands

    commands.events(job, Where(stack, namespace, context, kubeconfig), as_json=json_)


@app.command()
def queues(
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            help="Of LocalQueues and jobs; default: the stack's, else the context's.",
            show_default=False,
        ),
    ] = "",
    stack: StackOption = "",
    context: ContextOption = "",
    kubeconfig: KubeconfigOption = "",
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="All queues of a cluster.")] = False,
    json_: JsonOption = False,
) -> None:
    """Who holds, borrows and waits in Kueue's queues of a cluster, and why."""
    from pulumi_trainer.provider.commands import queues as commands

    commands.queues(Where(stack, namespace, context, kubeconfig, everywhere), as_json=json_)


def _seconds(text: str) -> float:
    """Of 90s, 5m, 2h, 1d, 1h30m."""
    if not re.fullmatch(r"(\d+d)?(\d+h)?(\d+m)?(\d+s)?", text) or not text:
        raise Invalid(Problem("--since", f"{text} is no duration", "write it like 90s, 5m or 1h30m"))
    units = {"d": 86400, "h": 3600, "m": 60, "s": 1}
    return float(sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([dhms])", text)))


def _listed() -> None:
    """For the list of commands: those that `arguments` parses never come here."""


for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(_listed)
