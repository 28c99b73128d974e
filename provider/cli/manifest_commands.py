"""Declares the commands that check, render, convert and import manifests. The module of a command is loaded when it runs."""

from __future__ import annotations

from argparse import ArgumentTypeError
from itertools import chain
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.cli.options import CONTEXT, KUBECONFIG, TRAINER, read_release
from pulumi_trainer.provider.cli.parsers import Given, Parser, choice, command, flag, option, texts
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kubernetes.terminal import print_line
from pulumi_trainer.provider.service.reach import Where

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
    TRAINER, _OF_CLUSTER, KUBECONFIG, more=_EXIT,
)  # fmt: skip
def _validate(given: Given) -> int:
    from pulumi_trainer.provider.cli import documents

    severities = _severities(given)
    if given.batch is not None:
        return documents.batch(given.batch, given.mode, read_release(given))
    if not given.names:
        given.parser.error("give files, or - for stdin, or --batch DIR")
    where = Where(context=given.context, kubeconfig=given.kubeconfig)
    in_cluster = where if where.cluster else None
    return documents.validate(
        given.names, given.mode, read_release(given), given.output, severities, in_cluster, given.policy
    )


def _severities(given: Given) -> Any:
    """Return the severity of each warning code that the options name, and refuse what --batch cannot be combined with."""
    from pulumi_trainer.provider.trainer.admission.warnings import Severities

    parser: Parser = given.parser
    try:
        severities = Severities.of(ignore=given.ignore, error=given.error)
    except Invalid as error:
        (problem,) = error.problems[:1]
        parser.refuse(problem.why, problem.hint)
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
    _BATCH, *_SEVERITIES, TRAINER, more=_EXIT,
)  # fmt: skip
def _render(given: Given) -> int:
    from pulumi_trainer.provider.cli import documents

    severities = _severities(given)
    if given.batch is not None:
        return documents.batch(given.batch, given.mode, read_release(given))
    if given.names and documents.are_files(given.names):
        return documents.render(
            given.names, given.mode, read_release(given), given.output, severities, summary=given.summary
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
