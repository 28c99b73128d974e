"""Declares the commands about jobs, queues and projects. The module of a command is loaded when it runs."""

from __future__ import annotations

from argparse import SUPPRESS
from pathlib import Path
from typing import TYPE_CHECKING

from pulumi_trainer.provider.cli.options import (
    CONTEXT,
    EVERYWHERE,
    JOBS,
    KUBECONFIG,
    NAMESPACE,
    ONE_JOB,
    ONE_OF_JOBS,
    OUTPUT,
    PLACE,
    STACK,
    format_option,
    read_place,
    read_seconds,
)
from pulumi_trainer.provider.cli.parsers import (
    Argument,
    Given,
    between,
    choice,
    command,
    flag,
    not_empty,
    option,
    texts,
)
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.service.reach import Where

if TYPE_CHECKING:
    from pulumi_trainer.provider.service.operations import Operation


@command(
    "version",
    "Print the versions of this package and of the products that it supports, for example `version -o json`.",
    OUTPUT,
)
def _version(given: Given) -> None:
    from pulumi_trainer.provider.cli import version

    version.show(given.output)


@command(
    "completion", "Print a script that completes commands and options in a shell, for example `completion bash`.",
    option("shell", metavar="SHELL", choices=("bash", "zsh", "tcsh"), help="Shell: bash, zsh or tcsh."),
)  # fmt: skip
def _completion(given: Given) -> None:
    from pulumi_trainer.provider.cli import completion

    completion.print_script(given.shell)


@command(
    "init", "Create a new Pulumi project, for example `init --template gpu-cluster training`.",
    option("directory", metavar="DIR", type=Path, help="Folder of the project, for example digits."),
    option("--template", default="quickstart", help="Template: quickstart (default), gpu-cluster, platform or team."),
)  # fmt: skip
def _init(given: Given) -> None:
    from pulumi_trainer.provider.cli import new_project

    new_project.init(given.directory, given.template)


@command(
    "run", "Run a script once, without a project, for example `run train.py --nodes 2 -- --lr 0.1`.",
    option("file", metavar="SCRIPT", type=Path, help="Python file, for example train.py."),
    option("arguments", metavar="-- ARGS", nargs="*", help="Arguments of the script, for example --lr 0.1."),
    option("--nodes", type=between(1), default=1, help="Number of nodes. Default: 1."),
    option("--nproc-per-node", dest="processes", type=between(1),
            help="Processes of each node. Default: one for each GPU, or 1."),
    option("--gpus", type=between(0), default=0, help="GPUs of each node. Default: 0."),
    option("--runtime", type=not_empty, default="torch-distributed",
            help="Runtime that starts the script; `runtime list` shows them. Default: torch-distributed."),
    option("--source", type=Path,
            help="Folder whose files travel with the script, for example . Default: the folder of the script."),
    option("--copy", metavar="DEST", default="", help="Copy the output at the end to a folder or to s3://BUCKET/PREFIX."),
    NAMESPACE, CONTEXT,
)  # fmt: skip
def _run_script(given: Given) -> int:
    from pulumi_trainer.provider.cli import script_run

    arguments = (*given.arguments, *given.script)
    script = script_run.Script(
        given.file, given.source, arguments, given.nodes, given.processes, given.gpus, given.runtime
    )
    return script_run.run(script, Where("", given.namespace, given.context), given.copy)


@command(
    "status", "Show what jobs are doing, for example `status -n team-a`.",
    JOBS, flag("--history", help="Show the attempts of one job: times, cause, steps done again, goodput."),
    *PLACE, EVERYWHERE, OUTPUT,
)  # fmt: skip
def _status(given: Given) -> None:
    from pulumi_trainer.provider.cli import job_status

    show = job_status.history if given.history else job_status.status
    show(given.job, read_place(given), output=given.output)


@command(
    "logs", "Print the logs of jobs, for example `logs -f digits`.",
    JOBS, flag("-f", "--follow", help="Follow the logs until the job has ended."),
    option("--step", default="", help="Show one step only, for example node or dataset-initializer."),
    option("--rank", default="", help="Show one node only, for example 0, or one of its processes, for example 0.3."),
    option("--tail", type=between(0), metavar="N",
            help="Show the last N lines of each container, or of the process of --rank. Default: all lines."),
    option("--since", metavar="AGE", default="", help="Show lines newer than this, for example 90s, 15m or 2h."),
    flag("--all", dest="earlier", help="Include earlier runs on this machine, and earlier attempts in a cluster."),
    option("--run", metavar="ID", default="", help="Show the run of this id, which `runs` lists."),
    *PLACE,
    choice("-o", "--output", choices=("text", "json"), metavar="FORMAT",
           about="Output format", more="; json is an object for each line"),
)  # fmt: skip
def _logs(given: Given) -> None:
    from pulumi_trainer.provider.cli import logs
    from pulumi_trainer.provider.service.logs import Selection, parse_rank

    node, process = parse_rank(given.rank) if given.rank else (None, None)
    age = read_seconds(given.since) if given.since else None
    selection = Selection(given.follow, given.step, given.tail, age, given.earlier, node, process, given.run)
    logs.logs(given.job, read_place(given), selection, output=given.output)


@command("why", "Explain what a job waits for or why it has failed, for example `why digits`.", JOBS, *PLACE, OUTPUT)
def _why(given: Given) -> None:
    from pulumi_trainer.provider.cli import job_status

    job_status.why(given.job, read_place(given), output=given.output)


@command(
    "events", "List the events of a job and its objects in a cluster, for example `events digits`.", ONE_OF_JOBS, *PLACE, OUTPUT
)  # fmt: skip
def _events(given: Given) -> None:
    from pulumi_trainer.provider.cli import events

    events.events(given.job, read_place(given), output=given.output)


@command(
    "runs", "List the runs of a job and what differed in each, for example `runs digits` or `runs --metrics --sort loss`.",
    ONE_OF_JOBS, option("compared", metavar="RUN", nargs="*", help="Ids of two runs: show what differed in these."),
    flag("--metrics", help="Show the metrics of each run as a table, of all jobs without JOB."),
    option("--sort", metavar="METRIC", default="", help="Sort the table by a metric, for example loss, the best run first."),
    *PLACE, OUTPUT,
)  # fmt: skip
def _runs(given: Given) -> None:
    from pulumi_trainer.provider.cli import runs

    if not given.compared:
        runs.runs(given.job, read_place(given), output=given.output, metrics=given.metrics, sort=given.sort)
    elif given.metrics or given.sort:
        raise Invalid(Problem("--metrics", "cannot be combined with two runs to compare"))
    else:
        runs.compare(given.job, read_place(given), given.compared, output=given.output)


def _add_operation(operation: Operation, about: str) -> None:
    """Add a command that applies an operation to one job."""

    @command(operation, about, ONE_JOB, *PLACE)
    def operate(given: Given) -> None:
        from pulumi_trainer.provider.cli import operations

        operations.operate(operation, given.job, read_place(given))


_add_operation("suspend", "End the processes or Pods of a job until it is resumed, for example `suspend digits`.")
_add_operation("resume", "Continue a suspended job, for example `resume digits`.")
_add_operation("stop", "End a job for good, and keep its output and its record, for example `stop digits`.")


@command(
    "rerun", "Run a finished job of a stack again, as it was submitted, for example `rerun digits`.",
    option("job", metavar="JOB", type=not_empty, help="Resource or job name, for example digits."), STACK,
    *(Argument(each.names, {**each.settings, "help": SUPPRESS}) for each in (NAMESPACE, CONTEXT, KUBECONFIG)),
)  # fmt: skip
def _rerun(given: Given) -> None:
    from pulumi_trainer.provider.cli import operations

    operations.operate("rerun", given.job, read_place(given))  # which refuses those of a cluster


@command(
    "outputs", "List the outputs of jobs, or copy one, for example `outputs digits --copy ./digits`.",
    JOBS,
    option("--copy", metavar="DEST", type=not_empty,
            help="Copy the output of the job to a folder or to s3://BUCKET/PREFIX, with the record of its run."),
    flag("--overwrite", help="Replace an earlier copy at DEST."),
    option("--run", metavar="ID", default="", help="Run of the job, for example t4kz1f (`runs` lists the ids)."),
    option("--image", default="",
            help="Image with python3 to copy from a cluster, for example python:3.12. Default: that of the job."),
    *PLACE, EVERYWHERE, OUTPUT,
)  # fmt: skip
def _outputs(given: Given) -> None:
    from pulumi_trainer.provider.cli import outputs

    if not given.copy and (given.overwrite or given.image):
        raise Invalid(Problem("--overwrite" if given.overwrite else "--image", "has no effect without --copy"))
    copying = outputs.Copying(given.copy, given.overwrite, given.image) if given.copy else None
    outputs.outputs(given.job, read_place(given), output=given.output, copying=copying, run=given.run)


@command(
    "queues", "Show the quotas of Kueue's queues and which jobs use or wait for them, for example `queues -n team-a`.",
    option("-n", "--namespace", default="",
            help="Namespace of LocalQueues and jobs. Default: that of the stack, or else of the context."),
    STACK, CONTEXT, KUBECONFIG, EVERYWHERE,
    option("-q", "--queue", default="", help="Show only this queue, for example that of a team."),
    option("--cohort", default="", help="Show only the queues of this cohort."),
    flag("--all", dest="idle", help="Also show queues without jobs."),
    flag("-w", "--watch", help="Show them again every 5 seconds, until Ctrl-C."), OUTPUT,
)  # fmt: skip
def _queues(given: Given) -> None:
    from pulumi_trainer.provider.cli import queue_usage

    shown = queue_usage.Shown(given.queue, given.cohort, given.idle)
    queue_usage.queues(read_place(given), output=given.output, shown=shown, watch=given.watch)


@command(
    "usage", "Show the GPU-hours, CPU-hours and cost of jobs, for example `usage -A --since 30d --by team -o csv`.",
    option("--since", metavar="AGE", default="", help="Count jobs that ran within this time, for example 24h. Default: 30d."),
    option("--month", metavar="MONTH", default="", help="Count a calendar month (UTC) instead, for example 2026-11."),
    choice("--by", choices=("team", "queue", "user", "job"), metavar="KEY", about="Group the rows by this"),
    flag("--budget", help="Show what each team has used of its budget in this calendar month (UTC)."),
    format_option("table", "csv", "json", "yaml"), STACK, NAMESPACE,
    texts("--context", help="Context of the kubeconfig; repeatable, to add up clusters. Default: the current context."),
    KUBECONFIG, EVERYWHERE,
)  # fmt: skip
def _usage(given: Given) -> None:
    from pulumi_trainer.provider.cli import usage

    contexts = dict.fromkeys(given.context or [""])
    places = [Where(given.stack, given.namespace, each, given.kubeconfig, given.everywhere) for each in contexts]
    if given.since and given.month:
        raise Invalid(Problem("--month", "cannot be combined with --since: each names a time"))
    if not given.budget:
        window = usage.read_window(given.month, read_seconds(given.since or "30d"))
        usage.usage(places, window=window, by=given.by, output=given.output)
    elif places[1:]:
        raise Invalid(
            Problem("--budget", "cannot be combined with several --context: each cluster has its own budgets")
        )
    elif given.since or given.month or given.by != "team":
        raise Invalid(
            Problem("--budget", "cannot be combined with --since, --month or --by: it counts this month by team")
        )
    else:
        usage.budgets(places[0], output=given.output)


@command(
    "doctor",
    "Compare the state of a stack with its cluster or this machine, for example `doctor -s dev`. Exit code 1: they differ.",
    *PLACE, EVERYWHERE, OUTPUT,
)  # fmt: skip
def _doctor(given: Given) -> int:
    from pulumi_trainer.provider.cli import doctor

    return doctor.doctor(read_place(given), output=given.output)


@command(
    "trust", "Let commands run the credential plugin of a kubeconfig in a project's folder, for example `trust kubeconfig.yaml`.",
    option("file", metavar="FILE", type=Path, help="Kubeconfig, for example kubeconfig.yaml."),
)  # fmt: skip
def _trust(given: Given) -> None:
    from pulumi_trainer.provider.cli import trust

    trust.trust(given.file)


@command(
    "exporter", "Serve Prometheus metrics of jobs and queues until interrupted, for example `exporter -A --port 9400`.",
    option("--port", type=between(0, 65535), default=9400, help="Port to listen on; 0 for any free one. Default: 9400."),
    option("--address", default="127.0.0.1", help="Address to listen on, for example 0.0.0.0 in a Pod. Default: 127.0.0.1."),
    *PLACE, EVERYWHERE,
)  # fmt: skip
def _exporter(given: Given) -> None:
    from pulumi_trainer.provider.cli import exporter

    exporter.exporter(read_place(given), port=given.port, address=given.address)
