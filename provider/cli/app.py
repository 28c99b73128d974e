"""Defines options and help of the commands about jobs and queues, with typer. The commands' modules are loaded when they run."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import typer
from pulumi_trainer.provider.cli.formats import Format, LogFormat
from pulumi_trainer.provider.cli.parsers import COMMANDS
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.terminal import print_line
from pulumi_trainer.provider.kubernetes.values.wording import parse_duration
from pulumi_trainer.provider.service.reach import Where

app = typer.Typer(
    help="Inspect and control training jobs of a stack or a cluster; validate and render TrainJobs without either.",
    add_completion=False, pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def _print_version(wanted: bool) -> None:
    if wanted:
        print_line(f"pulumi-trainer {version('pulumi-trainer')}")
        raise typer.Exit


def _print_help(context: typer.Context) -> None:
    """Print the help of a group of commands if none of them was given."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Inspect and control training jobs of a stack or a cluster; validate and render TrainJobs without either."""
    _print_help(context)


def _not_empty(value: str | None) -> str | None:
    """Refuse an empty argument: it would select all jobs, and is most likely a variable of a shell that is not set."""
    if value == "":
        raise typer.BadParameter("is empty")
    return value


_JOB = "Job, for example digits. In a stack: resource or job name; in a cluster: NAME, jobset/NAME or trainjob/NAME."
JobArgument = Annotated[
    str | None,
    typer.Argument(metavar="JOB", help=f"{_JOB} Default: all jobs.", show_default=False, callback=_not_empty),
]
SingleJobArgument = Annotated[
    str | None,
    typer.Argument(metavar="JOB", help=f"{_JOB} Default: the only job.", show_default=False, callback=_not_empty),
]
StackOption = Annotated[
    str, typer.Option("--stack", "-s", help="Stack, for example dev. Default: the selected stack.", show_default=False)
]
NamespaceOption = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace of a cluster, for example team-a.", show_default=False)
]
ContextOption = Annotated[
    str, typer.Option("--context", help="Context of the kubeconfig. Default: the current context.", show_default=False)
]
KubeconfigOption = Annotated[
    str, typer.Option("--kubeconfig", help="Kubeconfig file. Default: as for kubectl.", show_default=False)
]
EverywhereOption = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Search all namespaces of a cluster.")]
OutputOption = Annotated[Format, typer.Option("--output", "-o", help="Output format.")]
OneJobArgument = Annotated[str, typer.Argument(metavar="JOB", help=_JOB, show_default=False, callback=_not_empty)]


@app.command("version")
def show_version(output: OutputOption = "table") -> None:
    """Print the versions of this package and of the products that it supports, for example `version -o json`."""
    from pulumi_trainer.provider.cli import version as command

    command.show(output)


@app.command()
def init(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the project, for example digits.", show_default=False)
    ],
    template: Annotated[
        str, typer.Option(help="Template of the project: quickstart, gpu-cluster, platform or team.")
    ] = "quickstart",
) -> None:
    """Create a new Pulumi project, for example `init --template gpu-cluster training`."""
    from pulumi_trainer.provider.cli import new_project

    new_project.init(directory, template)


@app.command("run")
def run_script(
    file: Annotated[Path, typer.Argument(metavar="SCRIPT", help="Python file, for example train.py.", show_default=False)],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- ARGS]", help="Arguments of the script, for example --lr 0.1.", show_default=False),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Number of nodes.")] = 1,
    processes: Annotated[
        int | None,
        typer.Option(
            "--nproc-per-node", min=1, help="Processes of each node. Default: one for each GPU, or 1.", show_default=False
        ),
    ] = None,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of each node.")] = 0,
    runtime: Annotated[
        str, typer.Option(help="Runtime that starts the script; `runtime list` shows them.", callback=_not_empty)
    ] = "torch-distributed",
    source: Annotated[
        Path | None,
        typer.Option(
            help="Folder whose files travel with the script, for example . Default: the folder of the script.",
            show_default=False,
        ),
    ] = None,
    copy: Annotated[
        str,
        typer.Option(
            "--copy", metavar="DEST", help="Copy the output at the end to a folder or to s3://BUCKET/PREFIX.",
            show_default=False,
        ),
    ] = "",
    namespace: NamespaceOption = "",
    context: ContextOption = "",
) -> None:  # fmt: skip
    """Run a script once, without a project, for example `run train.py --nodes 2 -- --lr 0.1`."""
    from pulumi_trainer.provider.cli import script_run

    script = script_run.Script(file, source, tuple(arguments or ()), nodes, processes, gpus, runtime)
    code = script_run.run(script, Where("", namespace, context), copy)
    if code:
        raise typer.Exit(code)


@app.command()
def status(
    job: JobArgument = None,
    history: Annotated[
        bool, typer.Option("--history", help="Show the attempts of one job: times, cause, steps done again, goodput.")
    ] = False,
    stack: StackOption = "",
    namespace: NamespaceOption = "",
    context: ContextOption = "",
    kubeconfig: KubeconfigOption = "",
    everywhere: EverywhereOption = False,
    output: OutputOption = "table",
) -> None:
    """Show what jobs are doing, for example `status -n team-a`."""
    from pulumi_trainer.provider.cli import job_status

    show = job_status.history if history else job_status.status
    show(job, Where(stack, namespace, context, kubeconfig, everywhere), output=output)


@app.command()
def logs(
    job: JobArgument = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the logs until the job has ended.")] = False,
    step: Annotated[
        str, typer.Option(help="Show one step only, for example node or dataset-initializer.", show_default=False)
    ] = "",
    rank: Annotated[
        str,
        typer.Option(
            help="Show one node only, for example 0, or one of its processes, for example 0.3.", show_default=False
        ),
    ] = "",
    tail: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Show the last N lines of each container, or of the process of --rank. Default: all lines.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str, typer.Option(help="Show lines newer than this, for example 90s, 15m or 2h.", show_default=False)
    ] = "",
    earlier: Annotated[
        bool, typer.Option("--all", help="Include earlier runs on this machine, and earlier attempts in a cluster.")
    ] = False,
    run: Annotated[str, typer.Option(help="Show the run of this id, which `runs` lists.", show_default=False)] = "",
    stack: StackOption = "",
    namespace: NamespaceOption = "",
    context: ContextOption = "",
    kubeconfig: KubeconfigOption = "",
    output: Annotated[
        LogFormat, typer.Option("--output", "-o", help="Output format; json is an object for each line.")
    ] = "text",
) -> None:
    """Print the logs of jobs, for example `logs -f digits`."""
    from pulumi_trainer.provider.cli import logs as command
    from pulumi_trainer.provider.service.logs import Selection, parse_rank

    node, process = parse_rank(rank) if rank else (None, None)
    age = _seconds(since) if since else None
    selection = Selection(follow, step, tail, age, earlier, node, process, run)
    command.logs(job, Where(stack, namespace, context, kubeconfig), selection, output=output)


@app.command()
def why(
    job: JobArgument = None,
    stack: StackOption = "",
    namespace: NamespaceOption = "",
    context: ContextOption = "",
    kubeconfig: KubeconfigOption = "",
    output: OutputOption = "table",
) -> None:
    """Explain what a job waits for or why it has failed, for example `why digits`."""
    from pulumi_trainer.provider.cli import job_status

    job_status.why(job, Where(stack, namespace, context, kubeconfig), output=output)


@app.command()
def events(
    job: SingleJobArgument = None,
    stack: StackOption = "",
    namespace: NamespaceOption = "",
    context: ContextOption = "",
    kubeconfig: KubeconfigOption = "",
    output: OutputOption = "table",
) -> None:
    """List the events of a job and its objects in a cluster, for example `events digits`."""
    from pulumi_trainer.provider.cli import events as command

    command.events(job, Where(stack, namespace, context, kubeconfig), output=output)


@app.command()
def runs(
    job: SingleJobArgument = None,
    compared: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN RUN]", help="Ids of two runs: show what differed in these.", show_default=False),
    ] = None,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Show the metrics of each run as a table, of all jobs without JOB.")
    ] = False,
    sort: Annotated[
        str,
        typer.Option(
            metavar="METRIC",
            help="Sort the table by a metric, for example loss, the best run first.",
            show_default=False,
        ),
    ] = "",
    stack: StackOption = "",
    namespace: NamespaceOption = "",
    context: ContextOption = "",
    kubeconfig: KubeconfigOption = "",
    output: OutputOption = "table",
) -> None:
    """List the runs of a job and what differed in each, for example `runs digits` or `runs --metrics --sort loss`."""
    from pulumi_trainer.provider.cli import runs as command

    where = Where(stack, namespace, context, kubeconfig)
    if compared:
        if metrics or sort:
            raise Invalid(Problem("--metrics", "cannot be combined with two runs to compare"))
        command.compare(job, where, compared, output=output)
    else:
        command.runs(job, where, output=output, metrics=metrics, sort=sort)


def _add_operation(operation: Literal["suspend", "resume", "stop"], help_: str) -> None:
    """Add a command that applies an operation to one job."""

    @app.command(operation, help=help_)
    def operate(
        job: OneJobArgument,
        stack: StackOption = "",
        namespace: NamespaceOption = "",
        context: ContextOption = "",
        kubeconfig: KubeconfigOption = "",
    ) -> None:
        from pulumi_trainer.provider.cli import operations

        operations.operate(operation, job, Where(stack, namespace, context, kubeconfig))


_add_operation("suspend", "End the processes or Pods of a job until it is resumed, for example `suspend digits`.")
_add_operation("resume", "Continue a suspended job, for example `resume digits`.")
_add_operation("stop", "End a job for good, and keep its output and its record, for example `stop digits`.")


@app.command()
def rerun(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB", help="Resource or job name, for example digits.", show_default=False, callback=_not_empty
        ),
    ],
    stack: StackOption = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", hidden=True)] = "",
    context: Annotated[str, typer.Option("--context", hidden=True)] = "",
    kubeconfig: Annotated[str, typer.Option("--kubeconfig", hidden=True)] = "",
) -> None:
    """Run a finished job of a stack again, as it was submitted, for example `rerun digits`."""
    from pulumi_trainer.provider.cli import operations

    operations.operate("rerun", job, Where(stack, namespace, context, kubeconfig))  # which refuses those of a cluster


@app.command()
def outputs(
    job: JobArgument = None,
    copy: Annotated[
        str | None,
        typer.Option(
            "--copy",
            metavar="DEST",
            help="Copy the output of the job to a folder or to s3://BUCKET/PREFIX, with the record of its run.",
            show_default=False,
            callback=_not_empty,
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier copy at DEST.")] = False,
    run: Annotated[
        str,
        typer.Option(
            "--run", metavar="ID", help="Run of the job, for example t4kz1f (`runs` lists the ids).", show_default=False
        ),
    ] = "",
    image: Annotated[
        str,
        typer.Option(
            help="Image with python3 to copy from a cluster, for example python:3.12. Default: that of the job.",
            show_default=False,
        ),
    ] = "",
    stack: StackOption = "",
    namespace: NamespaceOption = "",
    context: ContextOption = "",
    kubeconfig: KubeconfigOption = "",
    everywhere: EverywhereOption = False,
    output: OutputOption = "table",
) -> None:
    """List the outputs of jobs, or copy one, for example `outputs digits --copy ./digits`."""
    from pulumi_trainer.provider.cli import outputs as command

    if not copy and (overwrite or image):
        option = "--overwrite" if overwrite else "--image"
        raise Invalid(Problem(option, "has no effect without --copy"))
    copying = command.Copying(copy, overwrite, image) if copy else None
    where = Where(stack, namespace, context, kubeconfig, everywhere)
    command.outputs(job, where, output=output, copying=copying, run=run)


@app.command()
def queues(
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            help="Namespace of LocalQueues and jobs. Default: that of the stack, or else of the context.",
            show_default=False,
        ),
    ] = "",
    stack: StackOption = "",
    context: ContextOption = "",
    kubeconfig: KubeconfigOption = "",
    everywhere: EverywhereOption = False,
    queue: Annotated[
        str, typer.Option("--queue", "-q", help="Show only this queue, for example that of a team.", show_default=False)
    ] = "",
    cohort: Annotated[
        str, typer.Option("--cohort", help="Show only the queues of this cohort.", show_default=False)
    ] = "",
    idle: Annotated[bool, typer.Option("--all", help="Also show queues without jobs.")] = False,
    output: OutputOption = "table",
) -> None:
    """Show the quotas of Kueue's queues and which jobs use or wait for them, for example `queues -n team-a`."""
    from pulumi_trainer.provider.cli import queue_usage

    shown = queue_usage.Shown(queue, cohort, idle)
    queue_usage.queues(Where(stack, namespace, context, kubeconfig, everywhere), output=output, shown=shown)


@app.command()
def usage(
    since: Annotated[str, typer.Option(help="Count jobs that ran within this time, for example 24h or 30d.")] = "30d",
    by: Annotated[Literal["team", "queue", "user", "job"], typer.Option(help="Group the rows by this.")] = "team",
    output: Annotated[
        Literal["table", "csv", "json", "yaml"], typer.Option("--output", "-o", help="Output format.")
    ] = "table",
    stack: StackOption = "",
    namespace: NamespaceOption = "",
    context: ContextOption = "",
    kubeconfig: KubeconfigOption = "",
    everywhere: EverywhereOption = False,
) -> None:
    """Show the GPU-hours and CPU-hours of jobs, for example `usage -A --since 30d --by team -o csv`."""
    from pulumi_trainer.provider.cli import usage as command

    where = Where(stack, namespace, context, kubeconfig, everywhere)
    command.usage(where, since=_seconds(since), by=by, output=output)


@app.command()
def doctor(
    stack: StackOption = "",
    namespace: NamespaceOption = "",
    context: ContextOption = "",
    kubeconfig: KubeconfigOption = "",
    everywhere: EverywhereOption = False,
    output: OutputOption = "table",
) -> None:
    """Compare the state of a stack with its cluster or this machine, for example `doctor -s dev`. Exit code 1: they differ."""
    from pulumi_trainer.provider.cli import doctor as command

    code = command.doctor(Where(stack, namespace, context, kubeconfig, everywhere), output=output)
    if code:
        raise typer.Exit(code)


@app.command()
def trust(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Kubeconfig, for example kubeconfig.yaml.", show_default=False)
    ],
) -> None:
    """Let commands run the credential plugin of a kubeconfig in a project's folder, for example `trust kubeconfig.yaml`."""
    from pulumi_trainer.provider.cli import trust as command

    command.trust(file)


@app.command()
def exporter(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free one.")] = 9400,
    address: Annotated[str, typer.Option(help="Address to listen on, for example 0.0.0.0 in a Pod.")] = "127.0.0.1",
    stack: StackOption = "",
    namespace: NamespaceOption = "",
    context: ContextOption = "",
    kubeconfig: KubeconfigOption = "",
    everywhere: EverywhereOption = False,
) -> None:
    """Serve Prometheus metrics of jobs and queues until interrupted, for example `exporter -A --port 9400`."""
    from pulumi_trainer.provider.cli import exporter as command

    command.exporter(Where(stack, namespace, context, kubeconfig, everywhere), port=port, address=address)


cache = typer.Typer(
    help="List and prune the cache of this user, for example `cache list`.",
    invoke_without_command=True,
    callback=_print_help,
)
app.add_typer(cache, name="cache")


@cache.command("list")
def cache_list(output: OutputOption = "table") -> None:
    """List environments, project archives, catalogues and git projects with sizes, for example `cache list -o json`."""
    from pulumi_trainer.provider.cli import cache as command

    command.list_all(output)


@cache.command()
def prune(
    older_than: Annotated[
        str | None,
        typer.Option(
            help="Remove only what was not used for this long, for example 30d. Default: all.",
            show_default=False,
            callback=_not_empty,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking.")] = False,
) -> None:
    """Remove what no running job uses, for example `cache prune --older-than 30d`."""
    from pulumi_trainer.provider.cli import cache as command

    seconds = 0.0
    if older_than:
        seconds = _seconds(older_than, "--older-than")
    command.prune(seconds, dry_run=dry_run, yes=yes)


def _seconds(text: str, option: str = "--since") -> float:
    """Return the seconds of a duration such as 90s, 5m, 2h, 1d or 1h30m."""
    seconds = parse_duration(text)
    if seconds is None:
        raise Invalid(Problem(option, f"invalid duration {text!r} (expected for example 90s, 15m, 2h, 30d)"))
    return float(seconds)


def _listed() -> None:
    """Stand in for the commands of `parsers` in the list of commands; never called."""


for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(_listed)
