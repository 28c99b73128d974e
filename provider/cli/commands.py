"""Declares all commands with their arguments. The module of a command is loaded when it runs."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentTypeError
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulumi_trainer.provider.cli.parsers import (
    COMMANDS,
    Argument,
    Given,
    Parser,
    between,
    choice,
    command,
    flag,
    not_empty,
    option,
    texts,
)
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.terminal import print_line
from pulumi_trainer.provider.kubernetes.values.wording import join_names, parse_duration
from pulumi_trainer.provider.service.reach import Where

if TYPE_CHECKING:
    from pulumi_trainer.provider.service.operations import Operation

__all__ = ["COMMANDS", "GROUPS", "read_seconds"]

GROUPS = {
    "runtime": "List runtimes, and create, check and compare releases of a catalogue, for example `runtime list`.",
    "deploy": "Print what runs parts of pulumi-trainer in a cluster, for example `deploy exporter`.",
    "policy": "Enforce a file of rules about jobs elsewhere, for example `policy render policy.yaml`.",
    "cache": "List and prune the cache of this user, for example `cache list`.",
}
"""Commands that have commands."""


def read_seconds(text: str, option: str = "--since") -> float:
    """Return the seconds of a duration such as 90s, 5m, 2h, 1d or 1h30m."""
    seconds = parse_duration(text)
    if seconds is None:
        raise Invalid(Problem(option, f"invalid duration {text!r} (expected for example 90s, 15m, 2h, 30d)"))
    return float(seconds)


def _output(*forms: str) -> Argument:
    return choice("-o", "--output", choices=forms, about="Output format", metavar="FORMAT")


_JOB = "Job, for example digits. In a stack: resource or job name; in a cluster: NAME, jobset/NAME or trainjob/NAME."
JOBS = option("job", metavar="JOB", nargs="?", type=not_empty, help=f"{_JOB} Default: all jobs.")
ONE_OF_JOBS = option("job", metavar="JOB", nargs="?", type=not_empty, help=f"{_JOB} Default: the only job.")
ONE_JOB = option("job", metavar="JOB", type=not_empty, help=_JOB)
STACK = option("-s", "--stack", default="", help="Stack, for example dev. Default: the selected stack.")
NAMESPACE = option("-n", "--namespace", default="", help="Namespace of a cluster, for example team-a.")
CONTEXT = option("--context", default="", help="Context of the kubeconfig. Default: the current context.")
KUBECONFIG = option("--kubeconfig", default="", help="Kubeconfig file. Default: as for kubectl.")
EVERYWHERE = flag("-A", "--all-namespaces", dest="everywhere", help="Search all namespaces of a cluster.")
OUTPUT = _output("table", "json", "yaml")
PLACE = (STACK, NAMESPACE, CONTEXT, KUBECONFIG)


def _where(given: Given) -> Where:
    """Return the stack or cluster that the options of a command name."""
    return Where(given.stack, given.namespace, given.context, given.kubeconfig, getattr(given, "everywhere", False))


@command(
    "version",
    "Print the versions of this package and of the products that it supports, for example `version -o json`.",
    OUTPUT,
)
def _version(given: Given) -> None:
    from pulumi_trainer.provider.cli import version

    version.show(given.output)


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
    show(given.job, _where(given), output=given.output)


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
    logs.logs(given.job, _where(given), selection, output=given.output)


@command("why", "Explain what a job waits for or why it has failed, for example `why digits`.", JOBS, *PLACE, OUTPUT)
def _why(given: Given) -> None:
    from pulumi_trainer.provider.cli import job_status

    job_status.why(given.job, _where(given), output=given.output)


@command(
    "events", "List the events of a job and its objects in a cluster, for example `events digits`.", ONE_OF_JOBS, *PLACE, OUTPUT
)  # fmt: skip
def _events(given: Given) -> None:
    from pulumi_trainer.provider.cli import events

    events.events(given.job, _where(given), output=given.output)


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
        runs.runs(given.job, _where(given), output=given.output, metrics=given.metrics, sort=given.sort)
    elif given.metrics or given.sort:
        raise Invalid(Problem("--metrics", "cannot be combined with two runs to compare"))
    else:
        runs.compare(given.job, _where(given), given.compared, output=given.output)


def _add_operation(operation: Operation, about: str) -> None:
    """Add a command that applies an operation to one job."""

    @command(operation, about, ONE_JOB, *PLACE)
    def operate(given: Given) -> None:
        from pulumi_trainer.provider.cli import operations

        operations.operate(operation, given.job, _where(given))


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

    operations.operate("rerun", given.job, _where(given))  # which refuses those of a cluster


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
    outputs.outputs(given.job, _where(given), output=given.output, copying=copying, run=given.run)


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
    queue_usage.queues(_where(given), output=given.output, shown=shown, watch=given.watch)


@command(
    "usage", "Show the GPU-hours, CPU-hours and cost of jobs, for example `usage -A --since 30d --by team -o csv`.",
    option("--since", metavar="AGE", default="", help="Count jobs that ran within this time, for example 24h. Default: 30d."),
    option("--month", metavar="MONTH", default="", help="Count a calendar month (UTC) instead, for example 2026-11."),
    choice("--by", choices=("team", "queue", "user", "job"), metavar="KEY", about="Group the rows by this"),
    flag("--budget", help="Show what each team has used of its budget in this calendar month (UTC)."),
    _output("table", "csv", "json", "yaml"), STACK, NAMESPACE,
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

    return doctor.doctor(_where(given), output=given.output)


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

    exporter.exporter(_where(given), port=given.port, address=given.address)


_SEVERITIES = (
    texts("--ignore", metavar="CODES", default=[], help="Warning codes to hide, for example PT105,PT112; repeatable."),
    texts("--error", metavar="CODES", default=[], help="Warning codes that refuse the document, for example PT105; repeatable."),
)  # fmt: skip
_BATCH = option(
    "--batch",
    metavar="DIR",
    type=Path,
    help="Check each DIR/*/input.yaml by itself, and write the result to actual.json beside it.",
)
_MODE = choice(
    "--mode", choices=("jobset", "trainer"), metavar="MODE",
    about="How objects are rendered", more=" (as Kubeflow Trainer's controller does it)",
)  # fmt: skip
_OF_CLUSTER = option(
    "--context", default="", help="Context of a cluster whose queues are read. Default: only the documents count."
)
_TRAINER = option(
    "--trainer-version", metavar="VERSION", help="Release of Kubeflow Trainer whose rules apply; `version` lists them."
)


def _release(given: Given) -> Any:
    """Return the release of Trainer that an option names; without one the default."""
    from pulumi_trainer.provider.trainer.releases import DEFAULT, RELEASES

    version = given.trainer_version or DEFAULT.version
    if version not in RELEASES:
        given.parser.error(f"argument --trainer-version: invalid value {version!r} (expected {' or '.join(RELEASES)})")
    return RELEASES[version]


_EXIT = "Exit code for documents: 0 admitted, 1 refused, 2 the input cannot be used."


@command(
    "validate",
    "Check whether runtimes and TrainJobs are admitted, for example `validate job.yaml`, and with --context what the queues of a"
    " cluster would do with them.",
    option("names", nargs="*", metavar="FILE", help="YAML or JSON file, or - for stdin."),
    _MODE,
    choice("-o", "--output", choices=("text", "yaml", "json"), metavar="FORMAT",
            about="Output format", more="; yaml and json have the result for the last TrainJob"),
    _BATCH, *_SEVERITIES, option("--policy", default="", metavar="FILE", help="File of rules that jobs have to keep."),
    _TRAINER, _OF_CLUSTER, KUBECONFIG, more=_EXIT,
)  # fmt: skip
def _validate(given: Given) -> int:
    from pulumi_trainer.provider.cli import documents

    severities = _severities(given)
    if given.batch is not None:
        return documents.batch(given.batch, given.mode, _release(given))
    if not given.names:
        given.parser.error("give files, or - for stdin, or --batch DIR")
    where = Where(context=given.context, kubeconfig=given.kubeconfig)
    in_cluster = where if where.cluster else None
    return documents.validate(
        given.names, given.mode, _release(given), given.output, severities, in_cluster, given.policy
    )


def _severities(given: Given) -> Any:
    """Return the severity of each warning code that the options name, and refuse what --batch cannot be combined with."""
    from pulumi_trainer.provider.trainer.admission.warnings import Severities

    parser: Parser = given.parser
    try:
        severities = Severities.of(ignore=given.ignore, error=given.error)
    except Invalid as error:
        parser.error(str(error))
    if given.batch is None:
        return severities
    if given.names:
        parser.error(f"--batch {given.batch}: takes no other files")
    if getattr(given, "summary", False):
        parser.error(f"--batch {given.batch}: writes files, so --summary has no effect")
    if given.ignore or given.error:
        parser.error(f"--batch {given.batch}: reports no warnings, so --ignore and --error have no effect")
    if getattr(given, "context", "") or getattr(given, "kubeconfig", "") or getattr(given, "policy", ""):
        parser.error(
            f"--batch {given.batch}: validates files alone, so --context, --kubeconfig and --policy have no effect"
        )
    if not given.batch.is_dir():
        parser.error(f"--batch {given.batch}: is not a folder")
    return severities


@command(
    "render", "Print the objects of TrainJobs in files or of a job of the stack, for example `render job.yaml`.",
    option("names", nargs="*", metavar="FILE", help="YAML or JSON file, - for stdin, or one job of the stack."),
    flag("--summary", help="Print image, command and resources of each container as a table instead of the objects."),
    option("-s", "--stack", help="Stack of the job, for example dev. Default: the selected stack."), _MODE,
    choice("-o", "--output", choices=("yaml", "json"), metavar="FORMAT",
            about="Output format", more="; yaml has the objects, json the last result with its objects"),
    _BATCH, *_SEVERITIES, _TRAINER, more=_EXIT,
)  # fmt: skip
def _render(given: Given) -> int:
    from pulumi_trainer.provider.cli import documents

    severities = _severities(given)
    if given.batch is not None:
        return documents.batch(given.batch, given.mode, _release(given))
    if given.names and documents.are_files(given.names):
        return documents.render(
            given.names, given.mode, _release(given), given.output, severities, summary=given.summary
        )
    if len(given.names) > 1:
        given.parser.error(f"{' '.join(given.names)}: give one job, or files")
    from pulumi_trainer.provider.service import stack

    jobs = stack.resources(given.stack, *(given.names or [None]))
    if not jobs:
        print_line("The stack has no jobs.", error=True)
    objects = [list(job.inputs.documents.values()) for job in jobs]
    show = documents.print_summary if given.summary else documents.print_objects
    show(list(chain.from_iterable(objects)), given.output)
    return 0


@command(
    "convert", "Write a Pulumi project from YAML and compare it with the YAML, for example `convert jobs.yaml -o jobs`.",
    option("files", nargs="+", metavar="FILE", help="YAML or JSON file with jobs, runtimes or queues, or - for stdin."),
    option("-o", "--output", metavar="DIR", type=Path, default=Path("converted"),
            help="Folder of the project, for example jobs. Default: converted."),
    flag("--force", help="Replace files of the project that exist."),
    more="Exit code: 0 the same objects, 1 an object differs or is not converted, 2 the input cannot be used.",
)  # fmt: skip
def _convert(given: Given) -> int:
    from pulumi_trainer.provider.cli import convert

    return convert.convert(given.files, given.output, force=given.force)


@command(
    "import", "Write a Pulumi project that takes over what a cluster has, for example `import -A --context prod -o prod`.",
    option("objects", metavar="KIND/NAME", nargs="*",
            help="Take over only these objects, for example clusterqueue/nlp. Default: all."),
    option("-n", "--namespace", default="",
            help="Take over only the jobs, runtimes and LocalQueues of this namespace. Default: that of the context."),
    CONTEXT, KUBECONFIG, flag("-A", "--all-namespaces", dest="everywhere",
            help="Take over all namespaces, and the queues and runtimes of the cluster."),
    option("-o", "--output", metavar="DIR", type=Path, default=Path("imported"),
            help="Folder of the project, which has none yet, for example prod; - prints the program. Default: imported."),
    more="It changes nothing in the cluster. Exit code: 0 all objects are in the program, 1 some are not, 2 none is.",
)  # fmt: skip
def _import(given: Given) -> int:
    from pulumi_trainer.provider.cli import import_cluster

    where = Where("", given.namespace, given.context, given.kubeconfig, given.everywhere)
    return import_cluster.import_cluster(where, given.objects, given.output)


_CONDITIONS = ("never", "preempts", "budget", "refused", "warning")


def _read_conditions(text: str) -> list[str]:
    given = text.split(",")
    if not set(given) <= set(_CONDITIONS):
        raise ArgumentTypeError(f"invalid value {text!r} (expected {', '.join(_CONDITIONS)}, separated by commas)")
    return given


@command(
    "report",
    "Print what a preview means for jobs, GPUs, cost and queues as Markdown for a review, for example `report preview.json`.",
    option("file", metavar="PREVIEW", nargs="?", type=Path, default=Path("-"),
           help="Output of `pulumi preview --json`, for example preview.json. Default: stdin."),
    option("--fail-on", metavar="CONDITIONS", type=_read_conditions, default=[],
           help="End with exit code 1 if a job never starts, preempts others or is refused, if a budget is exceeded, or for any"
           " warning: never, preempts, budget, refused or warning, for example never,refused. Default: none."),
    more="Exit code: 0, 1 for a condition of --fail-on, 2 the preview cannot be used.",
)  # fmt: skip
def _report(given: Given) -> int:
    from pulumi_trainer.provider.cli import report

    return report.report(given.file, given.fail_on)


_FOLDER = option(
    "--catalog", metavar="DIR", default="", help="Folder of the catalogue. Default: runtimes, or the current folder."
)


def _folder(given: Given) -> str:
    from pulumi_trainer.provider.cli import releases

    return given.catalog or releases.default_folder()


@command(
    "runtime list",
    "List the runtimes of the catalogue with releases, framework and devices, for example `runtime list -o json`.",
    option("--catalog", metavar="DIR", default="", help="Folder of the catalogue. Default: the built-in one."), OUTPUT,
)  # fmt: skip
def _list_runtimes(given: Given) -> None:
    from pulumi_trainer.provider.cli import runtime_table

    runtime_table.print_all(given.output, given.catalog)


@command(
    "runtime new", "Write a new release to edit, for example `runtime new torch-distributed@1.1.0`.",
    option("reference", metavar="NAME@RELEASE", help="Name of the runtime, and the new release."),
    option("--from", dest="source", metavar="RUNTIME", default="",
            help="Runtime to copy: NAME@RELEASE of this or the built-in catalogue, or a file. Default: the newest"
            " of NAME below RELEASE."),
    _FOLDER, _TRAINER,
)  # fmt: skip
def _new_release(given: Given) -> int:
    from pulumi_trainer.provider.cli import releases

    return releases.new(given.reference, given.source, _folder(given) or "runtimes", _release(given))


@command(
    "runtime pin",
    "Write the next patch release, with the digests that its images' tags have now, for example `runtime pin torch-team`.",
    option("reference", metavar="NAME[@RELEASE]",
            help="Runtime of the catalogue, or one of its releases. Default: the newest release."),
    _FOLDER, _TRAINER,
)  # fmt: skip
def _pin(given: Given) -> int:
    from pulumi_trainer.provider.cli import releases

    return releases.pin(given.reference, _folder(given) or "runtimes", _release(given))


@command(
    "runtime check",
    "Check the version numbers of all releases, and that no locked release has changed, for example `runtime check --lock`.",
    flag("--lock", help="Add new releases to the lock if no problem was found."), OUTPUT, _FOLDER, _TRAINER,
)  # fmt: skip
def _check(given: Given) -> int:
    from pulumi_trainer.provider.cli import releases

    return releases.check(_folder(given) or "runtimes", given.output, _release(given), lock=given.lock)


@command(
    "runtime diff",
    "Show what the step between two releases does to jobs: patch, minor or major, for example"
    " `runtime diff torch-team@1.0.0 torch-team@1.1.0`.",
    option("names", nargs=2, metavar="RUNTIME", help="NAME@RELEASE, or a file."), OUTPUT, _FOLDER, _TRAINER,
)  # fmt: skip
def _diff(given: Given) -> int:
    from pulumi_trainer.provider.cli import releases

    return releases.diff(given.names[0], given.names[1], _folder(given), given.output, _release(given))


@command(
    "runtime impact",
    "Show what another release does to each job that uses the first one, for example"
    " `runtime impact torch-team@1.0.0 torch-team@1.1.0 -A`.",
    option("names", nargs=2, metavar="RUNTIME", help="NAME@RELEASE, or a file."),
    _output("table", "markdown", "json", "yaml"), _FOLDER, _TRAINER, *PLACE, EVERYWHERE,
)  # fmt: skip
def _impact(given: Given) -> None:
    from pulumi_trainer.provider.cli import runtime_impact

    one, other = given.names
    runtime_impact.impact(one, other, _where(given), _folder(given), given.output, _release(given))


@command(
    "deploy exporter",
    "Print what runs the exporter in a cluster, for example `deploy exporter IMAGE -n monitoring | kubectl apply -f -`.",
    option("image", metavar="IMAGE", help="Image with pulumi-trainer, made from the Containerfile."),
    option("-n", "--namespace", default="pulumi-trainer", help="Namespace of the exporter. Default: pulumi-trainer."),
    flag("--prometheus-operator", help="Add a ServiceMonitor, and alerts as a PrometheusRule."),
)  # fmt: skip
def _deploy_exporter(given: Given) -> None:
    from pulumi_trainer.provider.cli import deploy

    deploy.print_exporter(given.namespace, given.image, monitored=given.prometheus_operator)


@command(
    "deploy doctor",
    "Print a CronJob that runs `doctor` for a stack each hour, for example"
    " `deploy doctor IMAGE --stack organization/platform/prod --backend s3://states --secret backend | kubectl apply -f -`.",
    option("image", metavar="IMAGE", help="Image with pulumi-trainer, made from the Containerfile."),
    option("--stack", required=True, metavar="STACK", help="Full name of the stack, for example organization/platform/prod."),
    option("--backend", required=True, metavar="URL", help="Backend with its state, for example s3://states."),
    option("--secret", required=True, metavar="NAME",
           help="Secret with the variables of the backend's credentials, for example PULUMI_ACCESS_TOKEN."),
    option("-n", "--namespace", default="pulumi-trainer", help="Namespace of the CronJob. Default: pulumi-trainer."),
    flag("--prometheus-operator", help="Add an alert, as a PrometheusRule, for the metrics of kube-state-metrics."),
)  # fmt: skip
def _deploy_doctor(given: Given) -> None:
    from pulumi_trainer.provider.cli import deploy

    deploy.print_doctor(
        given.namespace, given.image, given.stack, given.backend, given.secret, monitored=given.prometheus_operator
    )


_RULES = option("file", metavar="FILE", help="File of rules; docs/policies.md has its fields.")


@command(
    "policy render",
    "Print rules as ValidatingAdmissionPolicies, for example `policy render policy.yaml | kubectl apply -f -`.",
    option(
        "file", nargs="?", metavar="FILE", help="File of rules; docs/policies.md has its fields. Optional with --users."
    ),
    flag("--users", help="Add a MutatingAdmissionPolicy with which `usage` knows who has created a job."),
    option("--name", default="training-jobs", help="Name of the policy. Default: training-jobs."),
    texts("-n", "--namespace", help="Namespace in which it holds, for example team-a; repeatable. Default: all."),
)
def _render_policy(given: Given) -> None:
    from pulumi_trainer.provider.cli import policy

    policy.print_policies(given.file, given.name, given.namespace or [], users=given.users)


@command(
    "policy pack", "Write a policy pack of Pulumi with rules, for example `policy pack policy.yaml pack`.",
    _RULES, option("folder", metavar="DIR", help="Folder of the pack."),
)  # fmt: skip
def _write_pack(given: Given) -> None:
    from pulumi_trainer.provider.cli import policy

    policy.write_pack(given.file, given.folder)


@command(
    "rbac", "Print the minimal Role and ClusterRole that jobs need, for example `rbac -n team-a | kubectl apply -f -`.",
    texts("-n", "--namespace", help="Namespace of jobs, for example team-a; repeatable. Default: default."),
    texts("--mode", choices=("jobset", "trainer"),
           help="trainer if jobs are TrainJobs that Kubeflow Trainer runs; repeatable. Default: jobset."),
    flag("--no-queues", help="Leave out what Kueue needs, for a cluster without Kueue."),
    flag("--quotas", help="Add the permissions to read all queues, as `queues` and warnings about quotas need them."),
    flag("--outputs", help="Add the permissions to create pods and to run commands in them, as `outputs --copy` needs them."),
    flag("--usage", help="Add the permissions to read jobs and queues of all namespaces, for `usage -A` and `exporter`."),
    flag("--platform", help="Print what a platform team needs instead: a ClusterRole for queues, channels and `usage`."),
    flag("--explain", help="Print a table of the permissions and what they imply, instead of the objects."),
    *(texts(option, metavar=form, default=[], help="Bind the roles to this subject; repeatable.")
      for option, form in (("--user", "NAME"), ("--group", "NAME"), ("--service-account", "NAMESPACE:NAME"))),
)  # fmt: skip
def _rbac(given: Given) -> None:
    from pulumi_trainer.provider.cli import rbac

    namespaces = list(dict.fromkeys(given.namespace or ["default"]))
    named = {"User": given.user, "Group": given.group, "ServiceAccount": given.service_account}
    subjects = []
    for kind, names in named.items():
        subjects += [rbac.subject(kind, name, namespaces) for name in names]
    if given.platform:
        options = {"--mode": given.mode, "--no-queues": given.no_queues, "--quotas": given.quotas,
                   "--outputs": given.outputs, "--usage": given.usage}  # fmt: skip
        if ignored := [option for option, value in options.items() if value]:
            why = f"cannot be combined with {join_names(ignored)}: it prints the role of a platform team instead"
            raise Invalid(Problem("--platform", why, "run the command twice"))
        namespaces, roles = [], rbac.platform_roles()
    else:
        chosen = {"queues": not given.no_queues, "quotas": given.quotas, "outputs": given.outputs, "usage": given.usage}
        roles = rbac.chosen_roles(given.mode or ["jobset"], **chosen)
    if given.explain:
        rbac.explain_roles(roles)
    else:
        rbac.print_roles(roles, namespaces, subjects)


@command(
    "cache list",
    "List environments, code archives, catalogues and git projects with sizes, for example `cache list -o json`.", OUTPUT
)  # fmt: skip
def _list_cache(given: Given) -> None:
    from pulumi_trainer.provider.cli import cache

    cache.list_all(given.output)


@command(
    "cache prune", "Remove what no running job uses, for example `cache prune --older-than 30d`.",
    option("--older-than", metavar="AGE", type=not_empty,
            help="Remove only what was not used for this long, for example 30d. Default: all."),
    flag("--dry-run", help="Print what would be removed."), flag("-y", "--yes", help="Remove without asking."),
)  # fmt: skip
def _prune(given: Given) -> None:
    from pulumi_trainer.provider.cli import cache

    seconds = read_seconds(given.older_than, "--older-than") if given.older_than else 0.0
    cache.prune(seconds, dry_run=given.dry_run, yes=given.yes)
