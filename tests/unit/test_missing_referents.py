"""What a job refers to and a cluster does not have: an error of the plan, unless the program makes it or nobody can know."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from pulumi_trainer.provider.jobs.submission import ANYTHING, Dispatch, Draft
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record
from pulumi_trainer.provider.targets.kubernetes.preflight import server_review
from pulumi_trainer.provider.trainer.kinds import ALL, JOBSET

Document = dict[str, Any]
GROUPS = {kind.group: kind.api_version.rpartition("/")[2] for kind in ALL if kind.group}


def fault(code: int, message: str) -> ApiError:
    return ApiError(Problem("cluster", message), code, {})


@dataclass(eq=False)
class Cluster:
    """Has nothing but a namespace. forbidden: kinds that may not be read, as "kind" or "verb kind"."""

    forbidden: Collection[str] = ()
    there: Collection[str] = ()
    cautions: tuple[Any, ...] = ()
    workers: ClassVar[dict[str, Any]] = {}

    def within(self, _: float) -> Cluster:
        return self

    def _may(self, verb: str, kind: Kind) -> None:
        if {kind.kind, f"{verb} {kind.kind}"} & set(self.forbidden):
            raise fault(403, f"cannot {verb} {kind.kind}")

    def get(self, kind: Kind, _: str, name: str, **__: Any) -> Document | None:
        self._may("get", kind)
        there = kind == kinds.NAMESPACE or f"{kind.kind}/{name}" in self.there
        return {"metadata": {"name": name}} if there else None

    def list(self, kind: Kind, _: str = "", *, fields: str = "", **__: Any) -> tuple[list[Document], str]:
        self._may("list", kind)
        name = fields.removeprefix("metadata.name=")
        return ([{}] if f"{kind.kind}/{name}" in self.there else []), ""

    def read(self, path: str, _: Any = None) -> Document:
        if path != "/apis":
            raise fault(404, "no schema")
        return {"groups": [{"name": g, "versions": [{"version": v}]} for g, v in GROUPS.items()]}

    def post(self, *_: Any) -> Document:
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        return {"status": {"resourceRules": [everything]}}

    def apply(self, _: Kind, document: Mapping[str, Any], **__: Any) -> Document:
        answer: Document = copy.deepcopy(dict(document))
        answer["spec"] = {**answer.get("spec", {}), "suspend": True}
        return answer


def env(**source: Any) -> Document:
    return {"containers": [{"name": "node", "env": [{"name": "A", "valueFrom": source}]}]}


def volume(**source: Any) -> Document:
    return {"volumes": [{"name": "v", **source}]}


NEEDED: dict[str, Document] = {
    "Secret/s": env(secretKeyRef={"name": "s", "key": "k"}),
    "Secret/v": volume(secret={"secretName": "v"}),
    "ConfigMap/c": env(configMapKeyRef={"name": "c", "key": "k"}),
    "ConfigMap/v": volume(configMap={"name": "v"}),
    "PersistentVolumeClaim/data": volume(persistentVolumeClaim={"claimName": "data"}),
    "ServiceAccount/robot": {"serviceAccountName": "robot"},
    "PriorityClass/high": {"priorityClassName": "high"},
    "RuntimeClass/kata": {"runtimeClassName": "kata"},
    "LocalQueue/team": {},
    "WorkloadPriorityClass/urgent": {},
}
"""What is missing -> the pods that name it."""
LABELS = {
    "LocalQueue/team": {"kueue.x-k8s.io/queue-name": "team"},
    "WorkloadPriorityClass/urgent": {"kueue.x-k8s.io/priority-class": "urgent"},
}


def draft(key: str, pod: Document | None = None, **more: Any) -> Draft:
    job = {"name": "node", "template": {"spec": {"template": {"spec": NEEDED[key] if pod is None else pod}}}}
    document = {
        "apiVersion": JOBSET.api_version, "kind": "JobSet",
        "metadata": {"name": "a", "labels": LABELS.get(key, {})}, "spec": {"replicatedJobs": [job]},
    }  # fmt: skip
    return Draft("ns", "a", "digest", {"JobSet/a": document}, **more)


def told(cluster: Any, asked: Draft, **more: Any) -> tuple[list[str], list[str]]:
    refusals, warnings = server_review.review(cluster, asked, **more)
    return [str(p) for p in refusals], [str(p) for p in warnings]


@pytest.mark.parametrize("key", NEEDED)
class TestMissing:
    def test_is_an_error_of_the_plan_which_is_what_up_meets(self, key: str) -> None:
        (refusal,), warnings = told(Cluster(), draft(key))
        assert f"{key.replace('/', ' ')} does not exist" in refusal and warnings == []
        assert [str(p) for p in server_review.missing(Cluster(), draft(key).objects, "ns")] == [refusal]  # type: ignore[arg-type]

    def test_is_none_if_it_is_there(self, key: str) -> None:
        assert told(Cluster(there=[key]), draft(key)) == ([], [])

    def test_is_none_if_the_program_makes_it(self, key: str) -> None:
        assert told(Cluster(), draft(key, promised=[key])) == ([], [])

    def test_is_none_if_a_dependency_makes_it(self, key: str) -> None:
        assert told(Cluster(), draft(key, awaited=[key])) == ([], [])
        assert told(Cluster(), draft(key, awaited=[f"{key.partition('/')[0]}/"])) == ([], []), "the name is not known"

    def test_is_an_error_if_dependencies_make_something_else(self, key: str) -> None:
        other = f"{key.partition('/')[0]}/other"
        refusals, _ = told(Cluster(), draft(key, awaited=["Service/", other]))
        assert len(refusals) == 1

    def test_is_a_warning_if_a_dependency_may_make_it(self, key: str) -> None:
        refusals, (warning,) = told(Cluster(), draft(key, awaited=[ANYTHING]))
        assert refusals == [] and "does not exist" in warning

    def test_is_not_judged_without_the_permission_to_look(self, key: str) -> None:
        assert told(Cluster(forbidden=[key.partition("/")[0]]), draft(key)) == ([], [])

    def test_is_a_warning_while_a_run_goes_on_that_can_only_be_changed_in_place(self, key: str) -> None:
        record: Record = Record.of({"metadata": {"name": "a", "annotations": {}}})
        refusals, (warning,) = told(Cluster(), draft(key), record=record, unfinished=True)
        assert refusals == [] and "does not exist" in warning
        refusals, warnings = told(Cluster(), draft(key, interrupts=True), record=record, unfinished=True)
        assert len(refusals) == 1 and warnings == [], "it would be ended, and not made again"


OPTIONAL: list[Document] = [
    env(secretKeyRef={"name": "s", "key": "k", "optional": True}),
    env(configMapKeyRef={"name": "c", "key": "k", "optional": True}),
    volume(secret={"secretName": "v", "optional": True}),
    volume(configMap={"name": "v", "optional": True}),
    volume(projected={"sources": [{"secret": {"name": "v", "optional": True}}]}),
    {"containers": [{"name": "node", "envFrom": [{"secretRef": {"name": "s", "optional": True}}]}]},
    {"serviceAccountName": "default", "priorityClassName": "system-node-critical"},
]


@pytest.mark.parametrize("pod", OPTIONAL)
def test_what_may_be_missing_is_not_mentioned(pod: Document) -> None:
    assert told(Cluster(), draft("", pod)) == ([], [])


def test_a_pull_secret_that_is_missing_is_a_warning() -> None:
    refusals, (warning,) = told(Cluster(), draft("", {"imagePullSecrets": [{"name": "pull"}]}))
    assert refusals == [] and "without it only public images can be pulled" in warning


def test_the_secret_that_comes_with_the_job_is_none_of_those() -> None:
    assert told(Cluster(), draft("Secret/s", secrets={"s": ["k"]})) == ([], [])


def test_who_may_not_read_secrets_is_not_told_that_one_is_missing() -> None:
    assert told(Cluster(forbidden=["get Secret"]), draft("Secret/s"))[0] == []


def test_a_cluster_out_of_reach_is_a_warning() -> None:
    class Away(Cluster):
        def read(self, path: str, _: Any = None) -> Document:
            raise fault(503, "no answer")

    refusals, (warning,) = told(Away(), draft("Secret/s"))
    assert refusals == [] and warning.startswith("checked without the cluster: ")


class TestMultiKueue:
    """Which sends the job alone."""

    WORKERS = Dispatch(("w1", "w2"), "AdmissionCheck mk of ClusterQueue gpus")

    def test_what_the_program_makes_stays_here(self) -> None:
        asked = draft(
            "PersistentVolumeClaim/data",
            dispatch=self.WORKERS,
            promised=["PersistentVolumeClaim/data"],
            secrets={"a-env": ["k"]},
        )
        asked.objects["ConfigMap/a-code"] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a-code"}}
        (refusal,), _ = told(Cluster(), asked)
        assert refusal == (
            f"queue: MultiKueue sends the job to {self.WORKERS}, but these objects, which its pods need, stay in this"
            " cluster: ConfigMap a-code, PersistentVolumeClaim data, Secret a-env. Hint: name w1, w2 in"
            " target=Kubernetes(workers=...) or trainer:workers, so that they get copies; or choose a queue without"
            " MultiKueue, or put the code into the image and use objects that exist in the worker clusters"
        )

    def test_what_it_names_alone_has_to_be_there_too(self) -> None:
        refusals, warnings = told(Cluster(there=["Secret/s"]), draft("Secret/s", dispatch=self.WORKERS))
        why = f"queue: MultiKueue sends the job to {self.WORKERS}, where its namespace must have: Secret s"
        assert refusals == [] and warnings == [f"{why}. Hint: create these objects there"]

    def test_a_job_that_needs_nothing_is_sent(self) -> None:
        assert told(Cluster(), draft("", {}, dispatch=self.WORKERS)) == ([], [])


class Describing(Cluster):
    """Has a schema with a validation rule that cannot be evaluated here."""

    def read(self, path: str, given: Any = None) -> Document:
        if not path.startswith("/openapi"):
            return super().read(path, given)
        version = {"group": "jobset.x-k8s.io", "version": "v1alpha2", "kind": "JobSet"}
        ruled = {"type": "string", "x-kubernetes-validations": [{"rule": "nobody.knows(self)", "message": "M"}]}
        spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        fields = {"apiVersion": {"type": "string"}, "kind": ruled, "spec": spec}
        given = {"type": "object", "properties": fields, "x-kubernetes-group-version-kind": [version]}
        return {"components": {"schemas": {"JobSet": given}}}


def test_a_rule_that_neither_this_program_nor_a_dry_run_has_checked_is_a_warning() -> None:
    refusals, warnings = told(Describing(), draft("", {}))
    assert (refusals, warnings) == ([], []), "the dry run has checked it"
    refusals, warnings = told(Describing(), draft("", {"hostname": Unknown("1")}))
    assert refusals == []
    (warning,) = warnings
    assert warning.startswith("JobSet/a.kind: validation rule not checked (") and warning.endswith("): M")
