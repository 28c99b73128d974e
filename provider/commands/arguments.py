"""The arguments of `validate`, `render`, `runtimes`, `runtime` and `rbac`.

Parsed without typer, which takes longer to load than these commands to run: a hook or an editor calls them for every
file that is saved.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from pulumi_trainer.provider.kube.errors import Invalid

COMMANDS = {
    "validate": "Would these runtimes and TrainJobs be admitted? Without Pulumi, without a cluster.",
    "render": "The objects of TrainJobs: of documents, without Pulumi and without a cluster, or of a job of the stack.",
    "runtimes": "The runtimes of the catalogue: releases, framework, devices, nodes, and what they are for.",
    "runtime": "Releases of one's own catalogue: new, check (numbers, lock), diff (what a release does to jobs).",
    "rbac": "The least Role and ClusterRole that jobs need in a cluster, as YAML for kubectl apply.",
}
_EXIT = "Exit code for documents: 0 admitted, 1 refused, 2 the input cannot be used."


def run(command: str, arguments: Sequence[str]) -> int:
    """Runs one of COMMANDS; its exit code. Raises SystemExit for --help and for arguments that are wrong."""
    if command == "runtimes":
        return _runtimes(arguments)
    if command == "runtime":
        return _runtime(arguments)
    if command == "rbac":
        return _rbac(arguments)
    parser = _parser(command)
    given = parser.parse_intermixed_args(arguments)
    from pulumi_trainer.provider.commands import documents

    try:
        severities = documents.severities(given.ignore, given.error)
    except Invalid as error:
        parser.error(str(error))
    if given.batch is not None:
        if given.names:
            parser.error(f"--batch {given.batch}: takes no other files")
        if given.ignore or given.error:
            parser.error(f"--batch {given.batch}: has no warnings that --ignore and --error could be about")
        if not given.batch.is_dir():
            parser.error(f"--batch {given.batch}: is not a folder")
        return documents.batch(given.batch, given.mode)
    if command == "validate":
        if not given.names:
            parser.error("give files, or - for stdin, or --batch DIR")
        return documents.validate(given.names, given.mode, given.output, severities)
    if given.names and documents.are_files(given.names):
        return documents.render(given.names, given.mode, given.output, severities)
    if len(given.names) > 1:
        parser.error(f"{' '.join(given.names)}: give one job, or files")
    from pulumi_trainer.provider.commands import stack

    jobs = stack.resources(given.stack, *(given.names or [None]))
    documents.print_objects([o for job in jobs for o in job.inputs["objects"].values()], given.output)
    return 0


def _runtimes(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("pulumi-trainer runtimes", description=COMMANDS["runtimes"])
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text: a table")
    output = parser.parse_args(arguments).output
    from pulumi_trainer.provider.commands import runtimes

    runtimes.print_all(output)
    return 0


def _runtime(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("pulumi-trainer runtime", description=COMMANDS["runtime"])
    actions = parser.add_subparsers(dest="action", required=True)
    new = actions.add_parser("new", help="write a release that is to be edited")
    new.add_argument("reference", metavar="NAME@RELEASE")
    like = "NAME@RELEASE of this or the built-in catalogue, or a file; default: the newest of that name"
    new.add_argument("--from", dest="source", metavar="RUNTIME", default="", help=like)
    check = actions.add_parser("check", help="is each release what its number says, and as it was released?")
    check.add_argument("--lock", action="store_true", help="release what is new, if all is right")
    diff = actions.add_parser("diff", help="what the step from A to B does to jobs: patch, minor or major")
    diff.add_argument("names", nargs=2, metavar="RUNTIME", help="NAME@RELEASE, or a file")
    for action in (new, check, diff):
        where = "folder of the catalogue; default: runtimes, or ."
        action.add_argument("--catalog", metavar="DIR", default="", help=where)
    for action in (check, diff):
        action.add_argument("--json", action="store_const", const="json", default="text", dest="output")
    given = parser.parse_args(arguments)
    from pulumi_trainer.provider.commands import releases

    folder = given.catalog or releases.default_folder()
    if given.action == "new":
        return releases.new(given.reference, given.source, folder or "runtimes")
    if given.action == "check":
        return releases.check(folder or "runtimes", given.output, lock=given.lock)
    return releases.diff(given.names[0], given.names[1], folder, given.output)


def _rbac(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("pulumi-trainer rbac", description=COMMANDS["rbac"])
    where = "namespace of jobs, may be given again; default: default"
    parser.add_argument("-n", "--namespace", action="append", metavar="NAMESPACE", help=where)
    mode = "trainer: jobs are TrainJobs that Kubeflow Trainer runs; default: jobset"
    parser.add_argument("--mode", choices=("jobset", "trainer"), default="jobset", help=mode)
    parser.add_argument("--no-queues", action="store_true", help="for a cluster without Kueue")
    seeing = "also to see all queues of the cluster: who holds and who waits, and whether a job ever fits"
    parser.add_argument("--quotas", action="store_true", help=seeing)
    admin = "for the queues of a platform team instead of jobs: a ClusterRole, in all namespaces"
    parser.add_argument("--queues-admin", action="store_true", help=admin)
    who = "to whom the roles are bound, may be given again"
    for option, form in (("--user", "NAME"), ("--group", "NAME"), ("--service-account", "NAMESPACE:NAME")):
        parser.add_argument(option, action="append", default=[], metavar=form, help=who)
    given = parser.parse_args(arguments)
    from pulumi_trainer.provider.commands import rbac

    namespaces = list(dict.fromkeys(given.namespace or ["default"]))
    named = {"User": given.user, "Group": given.group, "ServiceAccount": given.service_account}
    subjects = [rbac.subject(kind, name, namespaces) for kind, names in named.items() for name in names]
    if given.queues_admin:
        rbac.print_queue_admin(subjects)
        return 0
    rbac.print_all(namespaces, given.mode, subjects, queues=not given.no_queues, quotas=given.quotas)
    return 0


def _parser(command: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(f"pulumi-trainer {command}", description=COMMANDS[command], epilog=_EXIT)
    what = "YAML or JSON; - is stdin" if command == "validate" else "YAML or JSON (- is stdin), or one job of the stack"
    parser.add_argument("names", nargs="*", metavar="FILE", help=what)
    mode = "trainer: exactly what Kubeflow Trainer's controller does; default: jobset"
    parser.add_argument("--mode", choices=("jobset", "trainer"), default="jobset", help=mode)
    if command == "validate":
        forms, help_ = ["text", "yaml", "json"], "yaml and json: the verdict on the last TrainJob"
    else:
        forms, help_ = ["yaml", "json"], "yaml: the objects; json: the last verdict with them"
        parser.add_argument("-s", "--stack", help="stack of the job; default: the selected one")
    parser.add_argument("-o", "--output", choices=forms, default=forms[0], help=help_)
    judged = "judge each DIR/*/input.yaml by itself and write actual.json beside it"
    parser.add_argument("--batch", metavar="DIR", type=Path, help=judged)
    silent = "warnings that are not told, such as PT105,PT112; may be given again"
    parser.add_argument("--ignore", metavar="CODES", action="append", default=[], help=silent)
    refusing = "warnings that refuse the document"
    parser.add_argument("--error", metavar="CODES", action="append", default=[], help=refusing)
    return parser
