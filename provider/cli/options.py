"""Declares the options that several commands have, and reads their values."""

from __future__ import annotations

from typing import Any

from pulumi_trainer.provider.cli.parsers import Argument, Given, choice, flag, not_empty, option
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.wording import parse_duration
from pulumi_trainer.provider.service.reach import Where


def read_seconds(text: str, option: str = "--since") -> float:
    """Return the seconds of a duration such as 90s, 5m, 2h, 1d or 1h30m."""
    seconds = parse_duration(text)
    if seconds is None:
        raise Invalid(Problem(option, f"invalid duration {text!r} (expected for example 90s, 15m, 2h, 30d)"))
    return float(seconds)


def format_option(*forms: str) -> Argument:
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
OUTPUT = format_option("table", "json", "yaml")
TRAINER = option(
    "--trainer-version", metavar="VERSION", help="Release of Kubeflow Trainer whose rules apply; `version` lists them."
)
PLACE = (STACK, NAMESPACE, CONTEXT, KUBECONFIG)


def read_place(given: Given) -> Where:
    """Return the stack or cluster that the options of a command name."""
    return Where(given.stack, given.namespace, given.context, given.kubeconfig, getattr(given, "everywhere", False))


def read_release(given: Given) -> Any:
    """Return the release of Trainer that an option names; without one the default."""
    from pulumi_trainer.provider.trainer.releases import DEFAULT, RELEASES

    version = given.trainer_version or DEFAULT.version
    if version not in RELEASES:
        given.parser.error(f"argument --trainer-version: invalid value {version!r} (expected {' or '.join(RELEASES)})")
    return RELEASES[version]
