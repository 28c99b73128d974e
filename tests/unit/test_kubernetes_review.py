"""What is asked of a cluster before a job is created: the parts that need none."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
from pulumi_trainer.provider.jobs.submission import Draft
from pulumi_trainer.provider.kubernetes.cache import dryrun
from pulumi_trainer.provider.kubernetes.schema import cel, openapi
from pulumi_trainer.provider.kubernetes.schema.field_errors import UNCHECKED
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.targets.kubernetes.preflight import permissions, versions
from pulumi_trainer.provider.trainer.admission.referents import queue_name, referents
from pulumi_trainer.provider.trainer.kinds import JOBSET

Document = dict[str, Any]
POD = "spec.replicatedJobs[0].template.spec.template.spec"


def jobset(pod: Document | None = None, labels: Document | None = None, **spec: Any) -> Document:
    job = {"name": "node", "template": {"spec": {"template": {"spec": pod or {}}}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "digits", "labels": labels or {}},
        "spec": {"replicatedJobs": [job], **spec},
    }


def named(document: Document, *promised: str) -> list[tuple[str, str, str]]:
    key = f"{document['kind']}/digits"
    return [(r.kind.kind, r.name, r.where.removeprefix(f"{key}.")) for r in referents({key: document}, promised)]


SOURCES = [
    ({"runtimeClassName": "kata"}, "RuntimeClass", "kata", "runtimeClassName"),
    ({"priorityClassName": "high"}, "PriorityClass", "high", "priorityClassName"),
    ({"serviceAccountName": "robot"}, "ServiceAccount", "robot", "serviceAccountName"),
    ({"imagePullSecrets": [{"name": "pull"}]}, "Secret", "pull", "imagePullSecrets[0].name"),
    (
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
        "PersistentVolumeClaim",
        "data",
        "volumes[0].persistentVolumeClaim.claimName",
    ),
    ({"volumes": [{"name": "v", "configMap": {"name": "c"}}]}, "ConfigMap", "c", "volumes[0].configMap.name"),
    ({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, "Secret", "s", "volumes[0].secret.secretName"),
    (
        {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}]},
        "Secret",
        "s",
        "volumes[0].projected.sources[0].secret.name",
    ),
    (
        {
            "containers": [
                {"name": "a", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}
            ]
        },
        "Secret",
        "s",
        "containers[0].env[0].valueFrom.secretKeyRef.name",
    ),
    (
        {"initContainers": [{"name": "a", "envFrom": [{"configMapRef": {"name": "c"}}]}]},
        "ConfigMap",
        "c",
        "initContainers[0].envFrom[0].configMapRef.name",
    ),
]


@pytest.mark.parametrize(("pod", "kind", "name", "where"), SOURCES)
def test_what_pods_refer_to(pod: Document, kind: str, name: str, where: str) -> None:
    assert named(jobset(pod)) == [(kind, name, f"{POD}.{where}")]
    assert named(jobset(pod), f"{kind}/{name}") == [], "what the program makes is there in time"


@pytest.mark.parametrize(
    "pod",
    [
        {"serviceAccountName": "default"},
        {"priorityClassName": "system-node-critical"},
        {"priorityClassName": Unknown("1")},
        {"volumes": Unknown("1")},
        {"volumes": [{"name": "v", "configMap": {"name": "c", "optional": True}}]},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": Unknown("1")}}]},
        {"containers": [{"name": "a", "envFrom": [{"secretRef": {"name": "s", "optional": True}}]}]},
    ],
)
def test_what_is_there_anyway_or_not_known_yet(pod: Document) -> None:
    assert named(jobset(pod)) == []


def test_a_name_is_told_once() -> None:
    document = jobset({"serviceAccountName": "robot"})
    document["spec"]["replicatedJobs"] *= 2
    assert named(document) == [("ServiceAccount", "robot", f"{POD}.serviceAccountName")]


def test_only_pull_secrets_can_be_done_without() -> None:
    pod = {"imagePullSecrets": [{"name": "pull"}], "serviceAccountName": "robot"}
    assert {r.name: r.needed for r in referents({"JobSet/digits": jobset(pod)})} == {"pull": False, "robot": True}


def test_queues_and_claims_of_the_jobset() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/priority-class": "urgent"}
    template = {"metadata": {"name": "scratch"}, "spec": {"storageClassName": "fast"}}
    document = jobset(labels=labels, volumeClaimPolicies=[{"templates": [template]}])
    assert named(document) == [
        ("StorageClass", "fast", "spec.volumeClaimPolicies[0].templates[0].spec.storageClassName"),
        ("LocalQueue", "team", "metadata.labels[kueue.x-k8s.io/queue-name]"),
        ("WorkloadPriorityClass", "urgent", "metadata.labels[kueue.x-k8s.io/priority-class]"),
    ]
    assert queue_name({"JobSet/digits": document}) == "team" and queue_name({"JobSet/digits": jobset()}) == ""


def test_train_jobs() -> None:
    patch = {"template": {"spec": {"replicatedJobs": jobset({"priorityClassName": "high"})["spec"]["replicatedJobs"]}}}
    document = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "digits"},
        "spec": {
            "runtimeRef": {"name": "torch"},
            "trainer": {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]},
            "initializer": {"model": {"secretRef": {"name": "hub"}}},
            "runtimePatches": [{"manager": "me.dev/me", "trainingRuntimeSpec": patch}],
        },
    }
    at = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec"
    assert named(document) == [
        ("ClusterTrainingRuntime", "torch", "spec.runtimeRef.name"),
        ("ConfigMap", "c", "spec.trainer.env[0].valueFrom.configMapKeyRef.name"),
        ("Secret", "hub", "spec.initializer.model.secretRef.name"),
        ("PriorityClass", "high", f"{at}.priorityClassName"),
    ]


def test_versions() -> None:
    queued = {"JobSet/digits": jobset(labels={"kueue.x-k8s.io/queue-name": "team"})}
    served = {"jobset.x-k8s.io": ["v1alpha2"], "kueue.x-k8s.io": ["v1beta1", "v1beta2"]}
    assert versions.absent_products(queued, served) == versions.outdated_products(queued, served) == []
    assert [str(p) for p in versions.absent_products(queued, {})] == [
        "JobSet/digits: the cluster has no JobSet (jobset.x-k8s.io/v1alpha2). Hint: install JobSet 0.9 or newer"
        " (groups of replicated jobs) before the job",
        "queue team: the cluster has no Kueue (kueue.x-k8s.io/v1beta2). "
        "Hint: install Kueue 0.15 or newer (its API v1beta2) before"
        " the job",
    ]
    assert [str(p) for p in versions.outdated_products(queued, {**served, "kueue.x-k8s.io": ["v1beta1"]})] == [
        "queue team: the cluster serves kueue.x-k8s.io in v1beta1, but not in v1beta2. Hint: install Kueue 0.15 or newer (its API"
        " v1beta2)"
    ]
    assert versions.absent_products({"JobSet/digits": jobset()}, {"jobset.x-k8s.io": ["v1alpha2"]}) == []


SPEC = {
    "type": "object",
    "required": ["replicatedJobs"],
    "properties": {
        "replicatedJobs": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "suspend": {"type": "boolean"},
        "coins": {"type": "integer", "maximum": 9},
    },
    "x-kubernetes-validations": [
        {"rule": "size(self.replicatedJobs) <= 1", "message": "one at most"},
        {"rule": "quantity('2').isGreaterThan(quantity('1'))", "message": "a function of Kubernetes"},
    ],
}


def described(spec: Document) -> Document:
    version = {"group": "jobset.x-k8s.io", "version": "v1alpha2", "kind": "JobSet"}
    properties = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"allOf": []}, "spec": spec}
    schema = {"type": "object", "properties": properties, "x-kubernetes-group-version-kind": [version]}
    return {"components": {"schemas": {"other": {"type": "string"}, "JobSet": schema}}}


def found(document: Document) -> list[tuple[str, str]]:
    schema = openapi.schema(described(SPEC), JOBSET, {})
    assert schema is not None
    return [(p.where, p.why) for p in openapi.problems(schema, document, JOBSET)]


def test_a_clusters_own_schema() -> None:
    assert found(jobset(suspend=True, coins=Unknown("1"))) == []
    assert found(jobset(suspend="x", coins=10, other=1, dependsOn=[])) == [
        ("spec.dependsOn", "the cluster's JobSet has no such field"),
        ("spec.other", "the cluster's JobSet has no such field"),
        ("spec.suspend", 'spec.suspend in body must be of type boolean: "string"'),
        ("spec.coins", "spec.coins in body should be less than or equal to 9"),
    ]
    assert openapi.schema({"components": {"schemas": {}}}, JOBSET, {}) is None
    assert versions.upgrade_hint(JOBSET, "spec.replicatedJobs[1].dependsOn") == (
        "JobSet 0.8 introduced it: upgrade JobSet in the cluster"
    )
    for field, release in (
        ("replicatedJobs[0].groupName", "0.9"),
        ("failurePolicy.rules[0].onJobFailureMessagePatterns", "0.10"),
    ):
        hint = f"JobSet {release} introduced it: upgrade JobSet in the cluster"
        assert versions.upgrade_hint(JOBSET, f"spec.{field}") == hint


def test_a_clusters_own_rules() -> None:
    two = jobset()
    two["spec"]["replicatedJobs"] *= 2
    assert found(two) == [("spec", "one at most")]
    two["spec"]["replicatedJobs"][1] = Unknown("1")
    assert found(two) == [], "what is not known yet keeps the rules"


def unchecked(rule: str) -> str:
    """The reason in the only problem of a document, which is that a rule was not checked."""
    schema = openapi.schema(
        described({**SPEC, "x-kubernetes-validations": [{"rule": rule, "message": "M"}]}), JOBSET, {}
    )
    assert schema is not None
    (problem,) = openapi.problems(schema, jobset(), JOBSET)
    assert (problem.where, problem.type) == ("spec", UNCHECKED)
    assert problem.why.startswith("validation rule not checked (") and problem.why.endswith("): M")
    return problem.why


@pytest.mark.parametrize(
    "rule",
    ["self.(", "url('a') == url('b')", "self.nothing == 1", "size(self.replicatedJobs)", "self.all(i, v, v > 0)"],
)
def test_a_rule_that_cannot_be_evaluated_is_not_checked(rule: str) -> None:
    unchecked(rule)


def test_rules_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    cel._environment.cache_clear()
    monkeypatch.setitem(sys.modules, "celpy", None)
    assert "cel-python is not installed" in unchecked("1 == 1")


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        ("self.isSorted()", [("a", "b"), ("b", "a")]),
        ("self.indexOf('b') == 1", ["ab", "b"]),
        ("self.lastIndexOf('b') == 2", [("b", "b", "b"), ("b",)]),
        ("self.sum() == 3 && self.max() == 2 && self.min() == 1", [(1, 2), (1, 3)]),
        ("self.find('a+') == 'aa'", ["baab", "b"]),
        ("self.charAt(1) == 'b' && self.substring(1) == 'bc' && self.substring(0, 1) == 'a'", ["abc", "acb"]),
        ("self.split(',').join('-') == 'a-b'", ["a,b", "a,c"]),
        ("self.lowerAscii() == 'aÄ' && self.upperAscii() == 'AÄ'", ["aÄ", "aä"]),
        ("self.trim().replace('a', 'b') == 'b'", [" a ", "c"]),
        ("isQuantity(self)", ["1Gi", "one"]),
        ("quantity(self).compareTo(quantity('1')) > 0 && quantity(self).isGreaterThan(quantity('1'))", ["2", "1"]),
        ("quantity(self).isLessThan(quantity('1Ki')) && quantity(self).sign() == 1", ["1k", "-1"]),
        ("quantity(self).isInteger() && quantity(self).asInteger() == 2", ["2", "2500m"]),
        ("quantity(self).asApproximateFloat() < 1.0", ["500m", "1"]),
    ],
)
def test_functions_of_kubernetes(rule: str, holds: list[Any]) -> None:
    met, broken = (list(value) if isinstance(value, tuple) else value for value in holds)
    assert cel.predicate(rule)(met, None, None)
    assert not cel.predicate(rule)(broken, None, None)


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ({"verbs": ["create"], "apiGroups": ["batch"], "resources": ["jobs"]}, True),
        ({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, True),
        ({"verbs": ["get"], "apiGroups": ["batch"], "resources": ["jobs"]}, False),
        ({"verbs": ["create"], "apiGroups": [""], "resources": ["jobs"]}, False),
        ({"verbs": ["create"], "apiGroups": ["batch"], "resources": ["jobs/status"]}, False),
        ({"verbs": ["create"], "apiGroups": ["batch"], "resources": ["jobs"], "resourceNames": ["one"]}, False),
        ({}, False),
    ],
)
def test_permissions(rule: Document, allowed: bool) -> None:
    wanted = {"verbs": ["create"], "apiGroups": ["batch"], "resources": ["jobs"]}
    assert permissions.is_covered(wanted, [rule]) is allowed


def test_permissions_of_subresources_and_names() -> None:
    def covered(resource: str, name: str, rule: Document) -> bool:
        names = {"resourceNames": [name]} if name else {}
        wanted = {"verbs": ["get"], "apiGroups": [""], "resources": [resource], **names}
        return permissions.is_covered(wanted, [{"verbs": ["get"], "apiGroups": [""], **rule}])

    assert covered("pods/log", "", {"resources": ["*/log"]}) and not covered("pods", "", {"resources": ["*/log"]})
    assert covered("namespaces", "kube-system", {"resources": ["namespaces"]})
    assert covered("namespaces", "kube-system", {"resources": ["namespaces"], "resourceNames": ["kube-system"]})
    assert not covered("namespaces", "", {"resources": ["namespaces"], "resourceNames": ["kube-system"]})


def test_a_job_needs_what_it_has() -> None:
    plain, labels = Draft("n", "digits", "d", {"JobSet/digits": jobset()}), {"kueue.x-k8s.io/queue-name": "team"}
    of = {p.kind.kind for p in permissions.needed_permissions(plain)}
    assert of == {"ConfigMap", "JobSet", "Job", "Pod", "Namespace"}
    more = replace(plain, objects={"JobSet/digits": jobset(labels=labels)}, secrets={"s": {"k"}}, promised=[CLAIM])
    assert {p.kind.kind for p in permissions.needed_permissions(more)} == {
        *of,
        "Workload",
        "Secret",
        "PersistentVolumeClaim",
    }


CLAIM = "PersistentVolumeClaim/digits-output"


def test_objects_that_differ_in_the_jobs_name_alone() -> None:
    one, other, third = jobset(subdomain="digits"), jobset(subdomain="letter"), jobset(subdomain="digits", suspend=True)
    other["metadata"]["name"] = "letter"
    assert (
        dryrun.shape_digest(one, "digits")
        == dryrun.shape_digest(other, "letter")
        != dryrun.shape_digest(third, "digits")
    )
    assert dryrun.shape_digest(one, "digits") != dryrun.shape_digest(other, "digits")


@pytest.mark.parametrize("name", ["a", "ab", "digits-1a2b3", "x" * 63])
def test_another_name_of_the_same_length(name: str) -> None:
    given = {"metadata": {"name": name, "labels": {"a": "b"}}, "spec": {}}
    other = dryrun.renamed(given)
    assert len(other["metadata"]["name"]) == len(name) and other["metadata"]["name"] != name
    assert given["metadata"]["name"] == name and other["metadata"]["labels"] == {"a": "b"}


def test_long_words_keep_their_beginning_and_end() -> None:
    assert dryrun.brief("short") == "short"
    long = dryrun.brief(f"Invalid value: {'x' * 5000}: field is immutable")
    assert len(long) < 320 and long.startswith("Invalid value: x") and long.endswith("x: field is immutable")
