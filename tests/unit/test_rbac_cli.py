"""`pulumi-trainer rbac`: one table, printed as RBAC objects that can be applied as they are."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import yaml
from pulumi_trainer.provider.targets.kubernetes.preflight import rbac


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "pulumi_trainer.provider.cli", "rbac", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def printed(*arguments: str) -> list[dict[str, Any]]:
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def test_options_that_the_role_of_a_platform_team_ignores_are_refused() -> None:
    done = run("--platform", "--usage", "--mode", "trainer")
    assert done.returncode == 1 and "cannot be combined with --mode, --usage" in done.stderr, done.stderr


def test_roles_and_bindings() -> None:
    found = printed("-n", "a", "-n", "b", "-n", "a", "--user", "jane", "--service-account", "ci:runner")
    names = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in found]
    assert names == [
        ("ClusterRole", None, "pulumi-trainer"),
        ("Role", "a", "pulumi-trainer"),
        ("Role", "b", "pulumi-trainer"),
        *[
            (kind, place, f"pulumi-trainer-{who}")
            for who in ("user-jane", "serviceaccount-ci:runner")
            for kind, place in (("ClusterRoleBinding", None), ("RoleBinding", "a"), ("RoleBinding", "b"))
        ],
    ]
    subjects = [o["subjects"][0] for o in found if o["kind"] == "ClusterRoleBinding"]
    assert subjects == [
        {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"},
        {"kind": "ServiceAccount", "name": "runner", "namespace": "ci"},
    ]
    assert {o["roleRef"]["kind"] for o in found if o["kind"] == "RoleBinding"} == {"Role"}


def test_without_a_subject_there_is_no_binding() -> None:
    assert [o["kind"] for o in printed()] == ["ClusterRole", "Role"]
    assert printed()[1]["metadata"]["namespace"] == "default"


def test_roles_of_both_modes_at_once() -> None:
    both = printed("-n", "a", "--mode", "jobset", "--mode", "trainer", "--quotas")
    assert both == [*printed("-n", "a"), *printed("-n", "a", "--mode", "trainer"), *printed("--quotas")[-1:]]


def test_an_explanation_for_who_has_to_agree() -> None:
    said = run("--explain", "--outputs", "--quotas").stdout
    rows = {tuple(line.split()[:3]) for line in said.splitlines()}
    assert (
        ("create,", "get,", "delete") in rows and "pulumi-trainer-outputs" in said and "pulumi-trainer-quotas" in said
    )
    assert "its Pods may mount every Secret" in said
    assert "its Pods" not in run("--explain", "--platform").stdout, "who manages queues runs nothing"


def test_secrets_are_not_listed() -> None:
    for mode in ("jobset", "trainer"):
        rules = [rule for role in printed("--mode", mode, "--outputs", "--quotas") for rule in role["rules"]]
        (of_secrets,) = [rule for rule in rules if "secrets" in rule["resources"]]
        assert not {"list", "watch", "*"} & set(of_secrets["verbs"])


PRINTED = {
    "jobset": ("-n", "a", "--user", "jane"),
    "trainer": ("-n", "a", "--user", "jane", "--mode", "trainer"),
    "without queues": ("-n", "a", "--user", "jane", "--no-queues"),
    "trainer without queues": ("-n", "a", "--user", "jane", "--mode", "trainer", "--no-queues"),
    "quotas": ("-n", "a", "--user", "jane", "--quotas"),
    "outputs": ("-n", "a", "--user", "jane", "--outputs"),
    "usage": ("-n", "a", "--user", "jane", "--usage"),
    "platform": ("--user", "jane", "--platform"),
    "another team": ("-n", "b", "--user", "jim"),
    "a group of the same name": ("-n", "a", "--group", "jane"),
    "a service account of the same name": ("-n", "a", "--service-account", "jane:jane"),
    "a name with a slash": ("-n", "a", "--user", "jane/doe"),
    "a name with a dash": ("-n", "a", "--user", "jane-doe"),
    "a service account a-b:c": ("-n", "a", "--service-account", "a-b:c"),
    "a service account a:b-c": ("-n", "a", "--service-account", "a:b-c"),
}


def test_what_is_printed_for_one_never_takes_rights_from_another() -> None:
    """kubectl apply replaces the rules, and the subjects, of an object of the same name."""
    applied: dict[tuple[str, str, str], tuple[str, dict[str, Any]]] = {}
    for use, arguments in PRINTED.items():
        for document in printed(*arguments):
            metadata = document.pop("metadata")
            place = document["kind"], metadata.get("namespace", ""), metadata["name"]
            by, before = applied.setdefault(place, (use, document))
            assert before == document, f"{place} of {by!r} is another one for {use!r}"


def resources(*arguments: str) -> set[str]:
    return {r for o in printed(*arguments) for rule in o["rules"] for r in rule["resources"]}


def test_what_is_not_used_is_not_asked_for() -> None:
    queues = {"workloads", "localqueues", "workloadpriorityclasses"}
    assert queues <= resources() and not queues & resources("--no-queues")
    others = {"clusterqueues", "cohorts", "resourceflavors", "topologies", "admissionchecks"}
    assert others <= resources("--quotas") and not others & resources()
    (usage,) = [o for o in printed("--usage") if o["metadata"]["name"] == "pulumi-trainer-usage"]
    assert usage["kind"] == "ClusterRole"
    assert {verb for rule in usage["rules"] for verb in rule["verbs"]} == {"list", "watch"}
    assert "pods/exec" in resources("--outputs") and "pods/exec" not in resources("--quotas")
    runtimes = {"trainingruntimes", "clustertrainingruntimes"}
    assert runtimes <= resources("--mode", "trainer") and not runtimes & resources()


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_every_rule_says_what_it_is_for(mode: Any) -> None:
    out = run("--mode", mode).stdout
    for permission in rbac.job_permissions(mode):
        assert permission.why in out and permission.verbs
    kinds = [(p.kind, p.subresource, p.names, p.helps) for p in rbac.job_permissions(mode)]
    assert len(kinds) == len(set(kinds))
    assert not [p for p in rbac.job_permissions(mode) if "*" in p.verbs or "*" in str(p.rule)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-n", "A b"], "'A b' is not a valid name: a lowercase"),
        (["--service-account", "a:"], "'a:' is not NAMESPACE:NAME"),
    ],
)
def test_what_is_wrong_is_one_line(arguments: list[str], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr and not done.stdout


def test_no_client_of_a_cluster_is_loaded() -> None:
    code = (
        "import sys; sys.argv = ['pulumi-trainer', 'rbac']\n"
        "from pulumi_trainer.provider.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "sys.exit(any(m in sys.modules for m in ('kubernetes', 'pulumi', 'urllib3')))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_a_platform_team_has_one_role_for_queues_catalogues_and_usage() -> None:
    role, binding = printed("--platform", "--group", "platform")
    assert (role["kind"], role["metadata"]["name"]) == ("ClusterRole", "pulumi-trainer-platform")
    records = [rule for rule in role["rules"] if "list" in rule["verbs"] and rule["resources"] == ["configmaps"]]
    assert records, "the jobs that follow a channel"
    assert {verb for rule in role["rules"] for verb in rule["verbs"] if rule["resources"] == ["clusterqueues"]} == {
        "get", "list", "watch", "create", "patch", "delete",
    }  # fmt: skip
    assert (binding["kind"], binding["metadata"]["name"]) == (
        "ClusterRoleBinding",
        "pulumi-trainer-group-platform-platform",
    )
    assert binding["roleRef"]["name"] == "pulumi-trainer-platform"
