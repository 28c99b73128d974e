"""What the offline server answers to JobSets: JobSet's CRD and its webhooks, in their words."""

from __future__ import annotations

from typing import Any

import pytest
from admission_support import BLOCKED, admitted, answer, changed, jobset
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown

from tests.trainer import broken_rules, default_runtime, default_train_job, review, review_jobset, stored_jobset

UNKNOWN = Unknown("1")
POD = "spec.replicatedJobs.0.template.spec.template.spec"
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and "
    "end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def internal(words: str) -> tuple[str, str, str]:
    return ("<nil>", "InternalError", f"Internal error: {words}")


def invalid(where: str, value: str, words: str) -> tuple[str, str, str]:
    return (where, "Invalid", f'Invalid value: "{value}": {words}')


def job(name: str = "node", /, **more: Any) -> dict[str, Any]:
    return {**jobset()["spec"]["replicatedJobs"][0], "name": name, **more}


def rules(*given: dict[str, Any]) -> dict[str, Any]:
    return {"failurePolicy": {"rules": [{"action": "FailJobSet", **rule} for rule in given]}}


def claims(*names: str, **policy: Any) -> dict[str, Any]:
    return {"volumeClaimPolicies": [{"templates": [{"metadata": {"name": n}, "spec": {}} for n in names], **policy}]}


LONG = "JobSet name is too long, {} names generated for this JobSet will exceed 63 characters"
AT = "spec.replicatedJobs[0]"
WRONG: list[tuple[list[dict[str, Any]], dict[str, Any], set[tuple[str, str, str]], str]] = [
    (
        [],
        {"failurePolicy": {"restartStrategy": "InPlaceRestart"}},
        {internal("InPlaceRestart restart strategy cannot be set when InPlaceRestart feature gate is disabled")},
        "spec.failurePolicy.restartStrategy",
    ),
    (
        [job(dependsOn=[{"name": "node", "status": "Ready"}])],
        {},
        {internal("DependsOn can't be set for the first ReplicatedJob")},
        "spec.replicatedJobs[0].dependsOn",
    ),
    (
        [job(), job("b", dependsOn=[{"name": "c", "status": "Ready"}]), job("c")],
        {},
        {internal("replicatedJob: b cannot depend on replicatedJob: c")},
        "spec.replicatedJobs[1].dependsOn[0].name",
    ),
    (
        [],
        {"network": {"subdomain": "A"}},
        {invalid("spec.network.subdomain", "A", SUBDOMAIN), invalid("spec.network.subdomain", "A", LABEL_1035)},
        "spec.network.subdomain",
    ),
    (
        [],
        {"network": {"subdomain": "a" * 64}},
        {
            invalid(
                "spec.network.subdomain",
                "a" * 64,
                ".spec.network.subdomain is too long, must be less than 63 characters",
            )
        },
        "spec.network.subdomain",
    ),
    ([], {"managedBy": ""}, {("spec.managedBy", "Required", "Required value")}, "spec.managedBy"),
    (
        [],
        {"managedBy": "me"},
        {invalid("spec.managedBy", "me", 'must be a domain-prefixed path (such as "acme.io/foo")')},
        "spec.managedBy",
    ),
    ([], {"managedBy": "A/b"}, {invalid("spec.managedBy", "A", SUBDOMAIN)}, "spec.managedBy"),
    (
        [],
        {"managedBy": "a/ b"},
        {
            invalid(
                "spec.managedBy", " b", r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')"
            )
        },
        "spec.managedBy",
    ),
    (
        [],
        {"managedBy": "a.io/" + "x" * 59},
        {("spec.managedBy", "TooLong", "Too long: may not be more than 63 bytes")},
        "spec.managedBy",
    ),
    (
        [job(replicas=2**30)],
        {},
        {internal("the product of replicas and parallelism must not exceed 2147483647 for replicatedJob 'node'")},
        "spec.replicatedJobs[0]",
    ),
    ([job(groupName="A")], {}, {invalid(f"{AT}.groupName", "A", LABEL_1035)}, "spec.replicatedJobs[0].groupName"),
    (
        [job(groupName="a" * 64)],
        {},
        {
            invalid(
                f"{AT}.groupName",
                "a" * 64,
                ".spec.replicatedJob[].groupName is too long, must be less than 63 characters",
            )
        },
        "spec.replicatedJobs[0].groupName",
    ),
    ([job("Node")], {}, {invalid(f"{AT}.name", "job-Node-0", LABEL_1035)}, "spec.replicatedJobs[0].name"),
    ([job("n" * 50)], {}, {invalid(f"{AT}.name", f"job-{'n' * 50}-0", LONG.format("pod"))}, "metadata.name"),
    (
        [job("n" * 60)],
        {},
        {invalid(f"{AT}.name", f"job-{'n' * 60}-0", LONG.format(kind)) for kind in ("job", "pod")},
        "metadata.name",
    ),
    (
        [],
        {"successPolicy": {"operator": "All", "targetReplicatedJobs": ["x", "node"]}},
        {internal("invalid replicatedJob name 'x' does not appear in .spec.ReplicatedJobs")},
        "spec.successPolicy.targetReplicatedJobs[0]",
    ),
    (
        [],
        rules({"action": "RestartJob", "name": "1"}),
        {
            internal(
                "RestartJob and RestartJobAndIgnoreMaxRestarts failure policy actions are not allowed when RestartJob "
                "feature gate is disabled"
            )
        },
        "spec.failurePolicy.rules[0].action",
    ),
    (
        [],
        rules({"name": "a"}, {"name": "a"}),
        {internal("rule names are not unique, rules with indices [0 1] all have the same name 'a'")},
        "spec.failurePolicy.rules[1].name",
    ),
    (
        [],
        rules({"targetReplicatedJobs": ["x"]}),
        {internal("invalid replicatedJob name 'x' in failure policy does not appear in .spec.ReplicatedJobs")},
        "spec.failurePolicy.rules[0].targetReplicatedJobs[0]",
    ),
    (
        [],
        rules({"onJobFailureReasons": ["OOM", "FailedIndexes"]}),
        {internal("invalid job failure reason 'OOM' in failure policy is not a recognized job failure reason")},
        "spec.failurePolicy.rules[0].onJobFailureReasons[0]",
    ),
    (
        [],
        {"coordinator": {"replicatedJob": "x"}},
        {internal("coordinator replicatedJob x does not exist")},
        "spec.coordinator.replicatedJob",
    ),
    (
        [],
        {"coordinator": {"replicatedJob": "node", "jobIndex": 1}},
        {internal("coordinator job index 1 is invalid for replicatedJob node")},
        "spec.coordinator.jobIndex",
    ),
    (
        [],
        {"coordinator": {"replicatedJob": "node", "podIndex": 2}},
        {internal("coordinator pod index 2 is invalid for replicatedJob node job index 0")},
        "spec.coordinator.podIndex",
    ),
    (
        [changed({"j": job()}, "j.template.spec.completionMode", "NonIndexed")["j"]],
        {"coordinator": {"replicatedJob": "node"}},
        {internal("job for coordinator pod must be indexed completion mode, and completions number must be set")},
        "spec.coordinator",
    ),
    (
        [],
        {"coordinator": {"replicatedJob": "node"}, "network": {"subdomain": "s" * 60}},
        {
            internal(
                f'spec will lead to invalid label value "job-node-0-0.{"s" * 60}" for coordinator label '
                '"jobset.sigs.k8s.io/coordinator" (long JobSet / ReplicatedJob / SubDomain name?): must be no more than '
                "63 bytes"
            )
        },
        "metadata.name",
    ),
]


@pytest.mark.parametrize(("jobs", "spec", "found", "at"), WRONG)
def test_what_the_webhook_refuses(jobs: list[Any], spec: dict[str, Any], found: set[Any], at: str) -> None:
    """In the server's words, and at the value that the author has to change."""
    assert answer(review(jobset(*jobs, **spec))) == ("validating-webhook", found)
    assert {problem.where for problem in review_jobset(jobset(*jobs, **spec))} == {at}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "1",
            "invalid failure policy rule name '1', a failure policy rule name must start with an alphabetic character, "
            "optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric "
            "character or '_'",
        ),
        (
            "x" * 129,
            "invalid failure policy rule name of length 129, the rule name must be at least 1 characters long and at most "
            "128 characters long",
        ),
    ],
)
def test_rule_names(name: str, words: str) -> None:
    assert answer(review(jobset(**rules({"name": name})))) == ("validating-webhook", {internal(words)})


def test_what_just_fits() -> None:
    admitted(jobset(managedBy="a.io/" + "x" * 58))
    admitted(changed(jobset(job(replicas=2**31 - 1)), "spec.replicatedJobs.0.template.spec.parallelism", 1))
    name = "a" * 59
    admitted(jobset(mounting(name), **claims(name)))


def mounting(*names: str, **pod: Any) -> dict[str, Any]:
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in names]
    container = {"name": "node", "image": "img:1", "volumeMounts": mounts}
    return changed({"j": job()}, "j.template.spec.template.spec", {"containers": [container], **pod})["j"]  # type: ignore[no-any-return]


CLAIM = "spec.volumeClaimPolicies[0].template[{}].name"


def test_claims() -> None:
    admitted(jobset(mounting("a", "b"), **claims("a", "b")))
    init = changed(
        {"j": mounting()}, "j.template.spec.template.spec.initContainers", [{"name": "i", "volumeMounts": UNKNOWN}]
    )
    admitted(jobset(init["j"], **claims("a")))
    twice = review(jobset(mounting("a"), **claims("a", "a")))
    words = "names must be unique for VolumeClaimPolicies template"
    assert answer(twice) == ("validating-webhook", {invalid(CLAIM.format(1), "a", words)})
    odd = review(jobset(mounting("A"), **claims("A")))
    assert answer(odd) == ("validating-webhook", {invalid(CLAIM.format(0), "A", SUBDOMAIN)})
    name = "a" * 60
    long = review(jobset(mounting(name), **claims(name)))
    words = "VolumeClaimPolicies template name is too long"
    assert answer(long) == ("validating-webhook", {invalid(CLAIM.format(0), name, words)})
    volume = review(jobset(mounting("a", volumes=[{"name": "a", "emptyDir": {}}]), **claims("a")))
    where = f"{AT}.template.spec.template.spec.volumes[0].name"
    words = "volume name conflicts with VolumeClaimPolicy template name: a"
    assert answer(volume) == ("validating-webhook", {invalid(where, "a", words)})
    (problem,) = review(jobset(mounting(), **claims("a"))).errors
    assert problem.where == "spec.replicatedJobs"
    assert problem.why.startswith(
        'Invalid value: [{"name":"node","groupName":"default","template":{"metadata":{},"spec":'
    )
    words = "replicatedJob containers don't have a matching volumeMount: a from VolumeClaimPolicies"
    assert problem.why.endswith(f"]: {words}")


def test_claims_that_are_there_already() -> None:
    there = {"kind": "PersistentVolumeClaim", "metadata": {"name": "a-job", "namespace": "ns"}, "spec": {}}

    def lookup(kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        return there if (kind, namespace, name) == ("PersistentVolumeClaim", "ns", "a-job") else None

    kept = {"retentionPolicy": {"whenDeleted": "Retain"}}
    assert review(jobset(mounting("a"), **claims("a", **kept)), lookup=lookup).admitted
    deleted = review(jobset(mounting("a"), **claims("a")), lookup=lookup)
    where = "spec.volumeClaimPolicies[0].retentionPolicy.whenDeleted"
    assert answer(deleted) == (
        "validating-webhook",
        {invalid(where, "Delete", "retentionPolicy must be retain when PVC exists")},
    )
    there["spec"] = {"storageClassName": "fast"}
    (problem,) = review(jobset(mounting("a"), **claims("a", **kept)), lookup=lookup).errors
    assert problem.where == "spec.volumeClaimPolicies[0].template[0].spec"
    assert problem.why.endswith("spec does not match existing PVC a-job in namespace ns")


def test_defaults() -> None:
    document = jobset(**rules({"name": ""}, {"name": "mine"}), network={"subdomain": "s"})
    spec = admitted(document)["spec"]
    assert spec["successPolicy"] == {"operator": "All"}
    assert spec["startupPolicy"] == {"startupPolicyOrder": "AnyOrder"}
    assert spec["network"] == {"subdomain": "s", "enableDNSHostnames": True, "publishNotReadyAddresses": True}
    assert [rule["name"] for rule in spec["failurePolicy"]["rules"]] == ["failurePolicyRule0", "mine"]
    (node,) = spec["replicatedJobs"]
    assert (node["replicas"], node["groupName"]) == (1, "default")
    assert node["template"]["spec"]["completionMode"] == "Indexed"
    assert node["template"]["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert stored_jobset(document)["spec"] == spec
    kept = jobset(network={"enableDNSHostnames": False}, successPolicy={"operator": "Any"}, startupPolicy=None)
    kept = changed(kept, f"{POD}.restartPolicy", "Never")
    spec = admitted(kept)["spec"]
    assert spec["network"]["enableDNSHostnames"] is False
    assert spec["successPolicy"] == {"operator": "Any"}
    assert spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert admitted({k: v for k, v in jobset().items() if k != "spec"})["spec"]["successPolicy"]


def test_default_functions_leave_the_rest_alone() -> None:
    assert default_train_job({"spec": 5}) == {"spec": 5}
    assert default_train_job({"metadata": {"name": "a"}})["metadata"] == {"name": "a", "namespace": "default"}
    assert default_train_job({"metadata": {"namespace": "b"}})["metadata"] == {"namespace": "b"}
    assert default_runtime({"spec": {"foo": 1, "mlPolicy": {"flux": {}}}})["spec"] == {
        "foo": 1,
        "mlPolicy": {"flux": {"numProcPerNode": 1}},
    }
    assert "replicatedJobs" not in stored_jobset({**jobset(), "spec": {}})["spec"]


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        ("spec", "text", "spec"),
        ("spec.replicatedJobs", "text", "spec.replicatedJobs"),
        ("spec.replicatedJobs.0.template.spec", "text", "spec.replicatedJobs[0].template.spec"),
        ("spec.replicatedJobs.0.replicas", "2", "spec.replicatedJobs[0].replicas"),
        ("spec.failurePolicy", {"rules": [5]}, "spec.failurePolicy.rules[0]"),
        ("spec.volumeClaimPolicies", [5], "spec.volumeClaimPolicies[0]"),
        ("spec.network", 5, "spec.network"),
        ("status", {"conditions": 5}, "status.conditions"),
    ],
)
def test_what_go_cannot_read(path: str, value: Any, where: str) -> None:
    verdict = review(changed(jobset(), path, value))
    assert (verdict.stage, [p.where for p in verdict.errors]) == ("mutating-webhook", [where])


def test_a_job_without_containers() -> None:
    """Go prints the list that is missing as null."""
    where = f"{AT}.template.spec.template.spec.containers"
    null = (where, "TypeInvalid", f'{where} in body must be of type array: "null"')
    assert answer(review(jobset({"name": "node", "template": {}}))) == ("schema", {null, BLOCKED})


def test_updates() -> None:
    old = admitted(jobset())
    fixed = ("spec.replicatedJobs", "Invalid", "field is immutable")
    for path, value, right in (
        (f"{POD}.nodeSelector", {"a": "b"}, True),
        (f"{POD}.tolerations", [{"key": "a"}], True),
        (f"{POD}.schedulingGates", [{"name": "a"}], True),
        (
            "spec.replicatedJobs.0.template.spec.template.metadata",
            {"labels": {"a": "b"}, "annotations": {"c": "d"}},
            True,
        ),
        ("spec.replicatedJobs.0.template.spec.template.metadata", {"name": "x"}, False),
        (f"{POD}.affinity", {"podAffinity": {}}, False),
        (f"{POD}.containers.0.image", "img:2", False),
        ("spec.replicatedJobs.0.template.spec.parallelism", 3, False),
        ("spec.replicatedJobs.0.template.metadata", {"labels": {"a": "b"}}, False),
        ("spec.replicatedJobs.0.replicas", 2, False),
        ("spec.replicatedJobs", [], False),
        ("spec.replicatedJobs.0.replicas", UNKNOWN, True),
        (f"{POD}.containers.0.image", UNKNOWN, True),
    ):
        unknown = value is UNKNOWN
        for before, after in ((False, False), (True, False), (False, True), (True, True)):
            was, now = changed(old, "spec.suspend", before), changed(changed(old, path, value), "spec.suspend", after)
            allowed = unknown or (right and (before or after))
            wanted = (None, set()) if allowed else ("validating-webhook", {fixed})
            assert answer(review(now, old=was)) == wanted, (path, before, after)


def test_other_updates() -> None:
    old = admitted(jobset(managedBy="a.b/c", network={"subdomain": "s"}))
    verdict = review(changed(old, "spec.managedBy", "a.b/d"), old=old)
    assert answer(verdict) == ("validating-webhook", {("spec.managedBy", "Invalid", "field is immutable")})
    verdict = review(changed(old, "spec.network.subdomain", "t"), old=old)
    assert answer(verdict) == ("schema", {("spec.network", "Invalid", "Value is immutable")})
    admitted(changed(old, "metadata.labels", {"a": "b"}), old=old)
    suspended = changed(old, "spec.suspend", True)
    added = changed(suspended, "spec.replicatedJobs", [*old["spec"]["replicatedJobs"], job("b")])
    assert answer(review(added, old=old))[1] == {("spec.replicatedJobs", "Invalid", "field is immutable")}
    assert review(changed(suspended, "spec.replicatedJobs", UNKNOWN), old=old).admitted
    assert review(changed(suspended, "spec.replicatedJobs", [UNKNOWN]), old=old).admitted
    typed = changed(old, "spec.replicatedJobs.0.replicas", "1")
    assert review(typed, old=old).stage == "schema", "the mutating webhook does not see updates"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.replicatedJobs", UNKNOWN),
        ("spec.replicatedJobs", [UNKNOWN]),
        ("spec.replicatedJobs.0.name", UNKNOWN),
        ("spec.replicatedJobs.0.groupName", UNKNOWN),
        ("spec.replicatedJobs.0.replicas", UNKNOWN),
        ("spec.replicatedJobs.0.template", UNKNOWN),
        (POD, UNKNOWN),
        ("spec.replicatedJobs.0.template.spec.completions", UNKNOWN),
        ("spec.network", UNKNOWN),
        ("spec.network", {"subdomain": UNKNOWN}),
        ("spec.managedBy", UNKNOWN),
        ("spec.successPolicy", {"operator": "All", "targetReplicatedJobs": [UNKNOWN]}),
        ("spec.failurePolicy", {"rules": [UNKNOWN, {"action": UNKNOWN, "name": UNKNOWN}]}),
        ("spec.failurePolicy", {"rules": [{"action": "FailJobSet", "targetReplicatedJobs": [UNKNOWN]}]}),
        ("spec.coordinator", UNKNOWN),
        ("spec.coordinator", {"replicatedJob": UNKNOWN}),
        ("spec.coordinator", {"replicatedJob": "node", "jobIndex": UNKNOWN, "podIndex": UNKNOWN}),
        ("spec.volumeClaimPolicies", [{"templates": [{"metadata": {"name": UNKNOWN}, "spec": {}}]}]),
        ("spec", UNKNOWN),
        ("metadata.name", UNKNOWN),
    ],
)
def test_unknown_leaves_are_right(path: str, value: Any) -> None:
    admitted(changed(jobset(), path, value))
    old = admitted(jobset(**rules({"name": "a"})))
    document = changed(old, path, value)
    if not isinstance(value, dict) and path != "spec.volumeClaimPolicies":
        admitted(document, old=old)


def template(name: str) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name}, "spec": spec}


BOTH = [
    (
        {"network": {"subdomain": "a.b"}},
        "spec.network.subdomain",
        invalid("spec.network.subdomain", "a.b", LABEL_1035),
        "",
    ),
    (
        {"successPolicy": {"operator": "All", "targetReplicatedJobs": ["gone"]}},
        "spec.successPolicy.targetReplicatedJobs[0]",
        internal("invalid replicatedJob name 'gone' does not appear in .spec.ReplicatedJobs"),
        "replicated jobs: node",
    ),
    (
        rules({"action": "RestartJob", "name": "first"}),
        "spec.failurePolicy.rules[0].action",
        internal(
            "RestartJob and RestartJobAndIgnoreMaxRestarts failure policy actions are not allowed when RestartJob "
            "feature gate is disabled"
        ),
        "use RestartJobSet or RestartJobSetAndIgnoreMaxRestarts",
    ),
    (
        rules({"action": "FailJobSet", "name": "same"}, {"action": "FailJobSet", "name": "same"}),
        "spec.failurePolicy.rules[1].name",
        internal("rule names are not unique, rules with indices [0 1] all have the same name 'same'"),
        "",
    ),
    (
        {"coordinator": {"replicatedJob": "gone"}},
        "spec.coordinator.replicatedJob",
        internal("coordinator replicatedJob gone does not exist"),
        "replicated jobs: node",
    ),
]


@pytest.mark.parametrize(("spec", "at", "error", "hint"), BOTH)
def test_the_author_reads_the_webhooks_words_with_the_path_of_the_value_and_a_hint(
    spec: dict[str, Any], at: str, error: tuple[str, str, str], hint: str
) -> None:
    given = jobset()
    given["spec"] |= spec
    (broken,) = broken_rules(stored_jobset(given))
    server, author = broken.server_error, broken.author_problem
    assert (server.where, server.type.removeprefix("FieldValue"), server.why) == error
    assert (author.where, author.why, author.hint) == (at, error[2].removeprefix("Internal error: "), hint)


def test_an_unmounted_claim_of_a_job_with_an_unknown_leaf_is_reported() -> None:
    given = jobset()
    given["spec"]["volumeClaimPolicies"] = [{"templates": [template("data")]}]
    given["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = UNKNOWN
    (broken,) = broken_rules(stored_jobset(given))
    assert broken.server_error.where == "spec.replicatedJobs"
    assert '"image":"Unknown"' in broken.server_error.why
    assert broken.author_problem.where == "spec.volumeClaimPolicies[0].templates[0].metadata.name"
    assert broken.author_problem.why.startswith("replicatedJob containers don't have a matching volumeMount: data")
