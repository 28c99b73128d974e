"""Defines options and help of `validate`, `render`, `runtime` and `rbac`, with argparse.

typer takes longer to load than these commands to run, and a hook or an editor calls them for every file that is saved.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.terminal import print_line
from pulumi_trainer.provider.kubernetes.values.wording import join_names

COMMANDS = {
    "validate": "Check whether runtimes and TrainJobs are admitted, without a cluster, for example `validate job.yaml`.",
    "render": "Print the objects of TrainJobs in files or of a job of the stack, for example `render job.yaml`.",
    "runtime": "List runtimes, and create, check and compare releases of a catalogue, for example `runtime list`.",
    "rbac": "Print the minimal Role and ClusterRole that jobs need, for example `rbac -n team-a | kubectl apply -f -`.",
}
_EXIT = "Exit code for documents: 0 admitted, 1 refused, 2 the input cannot be used."


class Parser(argparse.ArgumentParser):
    """A parser whose errors look like those of all other commands."""

    def error(self, message: str) -> NoReturn:
        """Print a message and end with exit code 2."""
        problem = Problem(self.prog.partition(" ")[2], message, f"`{self.prog} -h` lists its options")
        print_line(f"error: {problem}", error=True)
        raise SystemExit(2)


def run(command: str, arguments: Sequence[str]) -> int:
    """Run one of COMMANDS, and return its exit code.

    Args:
        command: One of `COMMANDS`.

    Raises:
        SystemExit: For --help, and for invalid arguments.
    """
    if command == "runtime":
        return _runtime(arguments)
    if command == "rbac":
        return _rbac(arguments)
    parser = _parser(command)
    given = parser.parse_intermixed_args(arguments)
    from pulumi_trainer.provider.cli import documents

    try:
        severities = documents.parse_severities(given.ignore, given.error)
    except Invalid as error:
        parser.error(str(error))
    if given.batch is not None:
        if given.names:
            parser.error(f"--batch {given.batch}: takes no other files")
        if getattr(given, "summary", False):
            parser.error(f"--batch {given.batch}: writes files, so --summary has no effect")
        if given.ignore or given.error:
            parser.error(f"--batch {given.batch}: reports no warnings, so --ignore and --error have no effect")
        if not given.batch.is_dir():
            parser.error(f"--batch {given.batch}: is not a folder")
        return documents.batch(given.batch, given.mode)
    if command == "validate":
        if not given.names:
            parser.error("give files, or - for stdin, or --batch DIR")
        return documents.validate(given.names, given.mode, given.output, severities)
    if given.names and documents.are_files(given.names):
        return documents.render(given.names, given.mode, given.output, severities, summary=given.summary)
    if len(given.names) > 1:
        parser.error(f"{' '.join(given.names)}: give one job, or files")
    from pulumi_trainer.provider.cli import stack

    jobs = stack.resources(given.stack, *(given.names or [None]))
    if not jobs:
        print_line("The stack has no jobs.", error=True)
    objects = [list(job.inputs.documents.values()) for job in jobs]
    show = documents.print_summary if given.summary else documents.print_objects
    show(list(chain.from_iterable(objects)), given.output)
    return 0


def _runtime(arguments: Sequence[str]) -> int:
    parser = Parser("pulumi-trainer runtime", description=COMMANDS["runtime"])
    actions = parser.add_subparsers(dest="action", required=True, metavar="COMMAND")
    listing = _add_action(
        actions,
        "list",
        "List the runtimes of the catalogue with releases, framework and devices, for example `runtime list -o json`.",
    )
    built_in = "Folder of the catalogue. Default: the built-in one."
    listing.add_argument("--catalog", metavar="DIR", default="", help=built_in)
    new = _add_action(actions, "new", "Write a new release to edit, for example `runtime new torch-distributed@1.1.0`.")
    new.add_argument("reference", metavar="NAME@RELEASE", help="Name of the runtime, and the new release.")
    like = "Runtime to copy: NAME@RELEASE of this or the built-in catalogue, or a file. Default: the newest release of NAME."
    new.add_argument("--from", dest="source", metavar="RUNTIME", default="", help=like)
    pin = _add_action(
        actions,
        "pin",
        "Write the next patch release, with the digests that its images' tags have now, for example `runtime pin torch-team`.",
    )
    newest = "Runtime of the catalogue, or one of its releases. Default: the newest release."
    pin.add_argument("reference", metavar="NAME[@RELEASE]", help=newest)
    check = _add_action(
        actions,
        "check",
        "Check the version numbers of all releases, and that no locked release has changed, for example `runtime check --lock`.",
    )
    check.add_argument("--lock", action="store_true", help="Add new releases to the lock if no problem was found.")
    diff = _add_action(
        actions,
        "diff",
        "Show what the step between two releases does to jobs: patch, minor or major, for example"
        " `runtime diff torch-team@1.0.0 torch-team@1.1.0`.",
    )
    diff.add_argument("names", nargs=2, metavar="RUNTIME", help="NAME@RELEASE, or a file.")
    for action in (new, pin, check, diff):
        where = "Folder of the catalogue. Default: runtimes, or the current folder."
        action.add_argument("--catalog", metavar="DIR", default="", help=where)
    given = parser.parse_args(arguments)
    if given.action == "list":
        from pulumi_trainer.provider.cli import runtime_table

        runtime_table.print_all(given.output, given.catalog)
        return 0
    from pulumi_trainer.provider.cli import releases

    folder = given.catalog or releases.default_folder()
    if given.action == "new":
        return releases.new(given.reference, given.source, folder or "runtimes")
    if given.action == "pin":
        return releases.pin(given.reference, folder or "runtimes")
    if given.action == "check":
        return releases.check(folder or "runtimes", given.output, lock=given.lock)
    return releases.diff(given.names[0], given.names[1], folder, given.output)


def _add_action(actions: Any, name: str, help_: str) -> Parser:
    """Return the parser of a command of `runtime`. All commands that print tables have the same option -o."""
    parser: Parser = actions.add_parser(name, help=help_, description=help_)
    if name in ("list", "check", "diff"):
        forms = ("table", "json", "yaml")
        text = "Output format: table (default), json or yaml."
        parser.add_argument("-o", "--output", choices=forms, default="table", metavar="FORMAT", help=text)
    return parser


def _rbac(arguments: Sequence[str]) -> int:
    parser = Parser("pulumi-trainer rbac", description=COMMANDS["rbac"])
    where = "Namespace of jobs, for example team-a; repeatable. Default: default."
    parser.add_argument("-n", "--namespace", action="append", metavar="NAMESPACE", help=where)
    mode = "trainer if jobs are TrainJobs that Kubeflow Trainer runs; repeatable. Default: jobset."
    parser.add_argument("--mode", action="append", choices=("jobset", "trainer"), help=mode)
    parser.add_argument(
        "--no-queues", action="store_true", help="Leave out what Kueue needs, for a cluster without Kueue."
    )
    quotas = "Add the permissions to read all queues of the cluster, as `queues` and warnings about quotas need them."
    parser.add_argument("--quotas", action="store_true", help=quotas)
    outputs = "Add the permissions to create pods and to run commands in them, as `outputs --copy` needs them."
    parser.add_argument("--outputs", action="store_true", help=outputs)
    usage = "Add the permissions to read jobs and queues of all namespaces, as `usage -A` and `exporter` need them."
    parser.add_argument("--usage", action="store_true", help=usage)
    admin = "Print what a platform team needs to manage queues instead: a ClusterRole, in all namespaces."
    parser.add_argument("--queues-admin", action="store_true", help=admin)
    explain = "Print a table of the permissions and what they imply, instead of the objects."
    parser.add_argument("--explain", action="store_true", help=explain)
    who = "Bind the roles to this subject; repeatable."
    for option, form in (("--user", "NAME"), ("--group", "NAME"), ("--service-account", "NAMESPACE:NAME")):
        parser.add_argument(option, action="append", default=[], metavar=form, help=who)
    given = parser.parse_args(arguments)
    from pulumi_trainer.provider.cli import rbac

    namespaces = list(dict.fromkeys(given.namespace or ["default"]))
    named = {"User": given.user, "Group": given.group, "ServiceAccount": given.service_account}
    subjects = []
    for kind, names in named.items():
        subjects += [rbac.subject(kind, name, namespaces) for name in names]
    if given.queues_admin:
        options = {"--mode": given.mode, "--no-queues": given.no_queues, "--quotas": given.quotas,
                   "--outputs": given.outputs, "--usage": given.usage}  # fmt: skip
        if ignored := [option for option, value in options.items() if value]:
            why = f"cannot be combined with {join_names(ignored)}: it prints the role of a platform team instead"
            raise Invalid(Problem("--queues-admin", why, "run the command twice"))
        namespaces, roles = [], rbac.queue_admin_roles()
    else:
        roles = rbac.chosen_roles(
            given.mode or ["jobset"],
            queues=not given.no_queues,
            quotas=given.quotas,
            outputs=given.outputs,
            usage=given.usage,
        )
    if given.explain:
        rbac.explain_roles(roles)
    else:
        rbac.print_roles(roles, namespaces, subjects)
    return 0


def _parser(command: str) -> Parser:
    parser = Parser(f"pulumi-trainer {command}", description=COMMANDS[command], epilog=_EXIT)
    files = "YAML or JSON file, or - for stdin."
    if command == "validate":
        forms, output = ["text", "yaml", "json"], "Output format; yaml and json have the result for the last TrainJob."
    else:
        files = "YAML or JSON file, - for stdin, or one job of the stack."
        forms, output = ["yaml", "json"], "Output format; yaml has the objects, json the last result with its objects."
        summary = "Print image, command and resources of each container as a table instead of the objects."
        parser.add_argument("--summary", action="store_true", help=summary)
        parser.add_argument("-s", "--stack", help="Stack of the job, for example dev. Default: the selected stack.")
    parser.add_argument("names", nargs="*", metavar="FILE", help=files)
    mode = "jobset (default), or trainer for exactly what Kubeflow Trainer's controller does."
    parser.add_argument("--mode", choices=("jobset", "trainer"), default="jobset", help=mode)
    parser.add_argument("-o", "--output", choices=forms, default=forms[0], help=output)
    batch = "Validate each DIR/*/input.yaml by itself, and write actual.json beside it."
    parser.add_argument("--batch", metavar="DIR", type=Path, help=batch)
    ignore = "Warning codes to hide, for example PT105,PT112; repeatable."
    parser.add_argument("--ignore", metavar="CODES", action="append", default=[], help=ignore)
    error = "Warning codes that refuse the document, for example PT105; repeatable."
    parser.add_argument("--error", metavar="CODES", action="append", default=[], help=error)
    return parser
