"""Declares the commands of platform teams: releases of runtimes, deployments, rules, rights and the cache."""

from __future__ import annotations

from pulumi_trainer.provider.cli.options import (
    EVERYWHERE,
    OUTPUT,
    PLACE,
    TRAINER,
    format_option,
    read_place,
    read_release,
    read_seconds,
)
from pulumi_trainer.provider.cli.parsers import Given, command, flag, not_empty, option, texts
from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.wording import join_names

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
    _FOLDER, TRAINER,
)  # fmt: skip
def _new_release(given: Given) -> int:
    from pulumi_trainer.provider.cli import releases

    return releases.new(given.reference, given.source, _folder(given) or "runtimes", read_release(given))


@command(
    "runtime pin",
    "Write the next patch release, with the digests that its images' tags have now, for example `runtime pin torch-team`.",
    option("reference", metavar="NAME[@RELEASE]",
            help="Runtime of the catalogue, or one of its releases. Default: the newest release."),
    _FOLDER, TRAINER,
)  # fmt: skip
def _pin(given: Given) -> int:
    from pulumi_trainer.provider.cli import releases

    return releases.pin(given.reference, _folder(given) or "runtimes", read_release(given))


@command(
    "runtime check",
    "Check the version numbers of all releases, and that no locked release has changed, for example `runtime check --lock`.",
    flag("--lock", help="Add new releases to the lock if no problem was found."), OUTPUT, _FOLDER, TRAINER,
)  # fmt: skip
def _check(given: Given) -> int:
    from pulumi_trainer.provider.cli import releases

    return releases.check(_folder(given) or "runtimes", given.output, read_release(given), lock=given.lock)


@command(
    "runtime diff",
    "Show what the step between two releases does to jobs: patch, minor or major, for example"
    " `runtime diff torch-team@1.0.0 torch-team@1.1.0`.",
    option("names", nargs=2, metavar="RUNTIME", help="NAME@RELEASE, or a file."), OUTPUT, _FOLDER, TRAINER,
)  # fmt: skip
def _diff(given: Given) -> int:
    from pulumi_trainer.provider.cli import releases

    return releases.diff(given.names[0], given.names[1], _folder(given), given.output, read_release(given))


@command(
    "runtime impact",
    "Show what another release does to each job that uses the first one, for example"
    " `runtime impact torch-team@1.0.0 torch-team@1.1.0 -A`.",
    option("names", nargs=2, metavar="RUNTIME", help="NAME@RELEASE, or a file."),
    format_option("table", "markdown", "json", "yaml"), _FOLDER, TRAINER, *PLACE, EVERYWHERE,
)  # fmt: skip
def _impact(given: Given) -> None:
    from pulumi_trainer.provider.cli import runtime_impact

    one, other = given.names
    runtime_impact.impact(one, other, read_place(given), _folder(given), given.output, read_release(given))


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
