"""What is said offline of Kueue's objects, and what a real API server with Kueue's webhooks says."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.kueue.objects import KINDS, NEWEST, at_version
from pulumi_trainer.provider.targets.kubernetes.queues.queue_snapshot import read_queues
from pulumi_trainer.provider.trainer.kinds import JOBSET

from tests.trainer import review

from .jobs import jobset, send, until
from .queue_cases import CASES, UPDATES, Document, document, label


def kind_of(of: Document) -> Kind:
    return Kind(of["apiVersion"], of["kind"], KINDS[of["kind"]], of["kind"] == "LocalQueue")


def said(client: Client, of: Document, *, verb: str = "POST") -> str:
    """The server's refusal of a dry run; empty: it takes the object."""
    kind, metadata = kind_of(of), of["metadata"]
    path = kind.path(metadata.get("namespace", ""), metadata["name"] if verb != "POST" else "")
    try:
        send(client, verb, path, {"dryRun": "All", "fieldValidation": "Strict"}, of)
    except ApiError as error:
        return error.message
    return ""


def updated(client: Client, of: Document) -> str:
    """The server's refusal of the object in place of what is there; Kueue's controllers may write to that meanwhile."""
    while True:
        there = client.get(kind_of(of), of["metadata"].get("namespace", ""), of["metadata"]["name"])
        assert there is not None
        of["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
        refusal = said(client, of, verb="PUT")
        if "the object has been modified" not in refusal:
            return refusal


@pytest.fixture(scope="module")
def client(cluster: Any) -> Client:
    return open_client({"kubeconfig": str(cluster.kubeconfig)})


def test_the_same_verdict_for_every_case(client: Client, namespace: str) -> None:
    different = []
    for case in CASES:
        made = document(case, "case", namespace)
        verdict = review(made)
        ours = [*map(str, verdict.errors), *(f"unknown field {path}" for path in verdict.unknown)]
        if bool(theirs := said(client, made)) is not bool(ours):
            different.append(f"{label(case)}\n  server: {theirs or 'takes it'}\n  offline: {ours or 'takes it'}")
    assert not different, "\n".join(different)


def test_the_same_verdict_for_every_update(client: Client, namespace: str) -> None:
    """The good objects are made for this, and nothing refers to them, so that they go at once."""
    different = []
    for kind in dict.fromkeys(case[0] for case in UPDATES):
        good = document((kind, "", ...), f"good-{namespace}", namespace)
        made = client.create(kind_of(good), good)
        stored = review(good).stored
        assert stored is not None
        for case in (c for c in UPDATES if c[0] == kind):
            changed = document(case, f"good-{namespace}", namespace)
            ours = review(changed, old=stored).errors
            if bool(theirs := updated(client, changed)) is not bool(ours):
                different.append(f"{label(case)}\n  server: {theirs or 'takes it'}\n  offline: {ours or 'takes it'}")
        client.delete(kind_of(good), namespace, made["metadata"]["name"])
    assert not different, "\n".join(different)


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_older_version_is_told_is_what_it_knows(client: Client, namespace: str, kind: str) -> None:
    """Where an object has a field that is newer, that is a problem, and all else is taken by a server of that version."""
    newest = document((kind, "", ...), "older", namespace)
    older, problems = at_version(newest, "v1beta1")
    assert older["apiVersion"] == "kueue.x-k8s.io/v1beta1" and at_version(newest, NEWEST) == (newest, [])
    assert [p.where for p in problems] == (["spec.concurrentAdmissionPolicy"] if kind == "ClusterQueue" else [])
    if kind == "ClusterQueue":  # without a conversion webhook, Kueue's webhook does not see the cohort's older name
        for each in older["spec"]["resourceGroups"][0]["flavors"][0]["resources"]:
            each.pop("borrowingLimit", None), each.pop("lendingLimit", None)
    if kind not in ("MultiKueueCluster",):  # stored, that one would be checked as v1beta2
        assert said(client, older) == ""


def test_a_job_without_a_queue_is_in_the_default_queue_of_its_namespace(client: Client, namespace: str) -> None:
    """As Kueue's webhook has it, and as a preview reads it."""
    made = jobset("job")
    made["metadata"]["namespace"] = namespace

    def queue() -> str:
        answer = send(client, "POST", JOBSET.path(namespace), {"dryRun": "All"}, made)
        return str((answer["metadata"].get("labels") or {}).get(QUEUE, ""))

    def ours() -> str:
        known = read_queues(client.within(client.patience), namespace)  # which has asked nothing yet
        return str(known.queue_of(made))

    assert queue() == ours() == ""
    default = document(("LocalQueue", "stopPolicy", "None"), "default", namespace)
    created = client.create(kind_of(default), default)
    until(queue)
    assert queue() == ours() == "default"
    held = {"spec": {"stopPolicy": "Hold"}}
    send(client, "PATCH", kind_of(default).path(namespace, created["metadata"]["name"]), {}, held)
    until(lambda: not queue())
    assert queue() == ours() == ""
