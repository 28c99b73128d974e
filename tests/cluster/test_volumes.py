"""Volumes of the program as claims: whose they are, who mounts them, what they cannot become, and what a class cannot do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.jobs.status import Owner
from pulumi_trainer.provider.jobs.submission import Draft
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.errors import Conflict, Invalid, Refused, TrainerError
from pulumi_trainer.provider.lifecycle.diagnosis import diagnose, explain
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import snapshot, with_node_reason
from pulumi_trainer.provider.targets.kubernetes.storage import claims
from pulumi_trainer.provider.targets.kubernetes.storage.classes import ONE_NODE
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.trainer.kinds import JOBSET

from .jobs import jobset, pod_template, submission, until
from .storage_support import storage_class

Document = dict[str, Any]

ONE, MANY = {"accessMode": "ReadWriteOnce"}, {"accessMode": "ReadWriteMany"}


@pytest.fixture
def target(user_kubeconfig: Path, namespace: str) -> KubernetesTarget:
    """With the least role."""
    client = open_client({"kind": "kubernetes", "kubeconfig": str(user_kubeconfig)}, overrides={})
    return KubernetesTarget(client, cluster=lambda: "", namespace=namespace)


@pytest.fixture
def made(root: Client, namespace: str) -> Iterator[str]:
    """A class of volumes that somebody has made by hand."""
    with storage_class(root, namespace, volumes=2) as name:
        yield name


def claim(root: Client, namespace: str, name: str = "data") -> Document:
    found = root.get(kinds.CLAIM, namespace, name)
    assert found is not None
    return found


def with_claim(name: str, **given: Any) -> Document:
    """A JobSet whose pods mount the claim `data`."""
    document = jobset(name, **given)
    pod_template(document)["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    return document


def test_claims_of_policies_never_take_the_volume_of_a_program(
    target: KubernetesTarget, root: Client, namespace: str
) -> None:
    """JobSet mounts a claim that is there already, and makes and deletes only its own."""
    target.volumes.create(namespace, "victim-output", "urn:victim", "stack", ONE)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    document = jobset("output")
    document["spec"]["volumeClaimPolicies"] = [{"templates": [{"metadata": {"name": "victim"}, "spec": spec}]}]
    (container,) = pod_template(document)["spec"]["containers"]
    container["volumeMounts"] = [{"name": "victim", "mountPath": "/x"}]
    with pytest.raises(
        Invalid, match=f"volume {namespace}/victim-output: exists and belongs to another program .urn:victim"
    ):
        target.jobs.create(submission(namespace, document))
    draft = Draft(namespace, "output", "digest", {"JobSet/output": document})
    assert "victim-output: exists and belongs" in str(target.jobs.review(draft)[0][0])
    assert root.get(JOBSET, namespace, "output") is None

    document["spec"]["volumeClaimPolicies"][0]["templates"][0]["metadata"]["name"] = "own"
    container["volumeMounts"][0]["name"] = "own"
    target.jobs.create(submission(namespace, document))
    until(lambda: root.get(kinds.CLAIM, namespace, "own-output"))
    target.jobs.delete(namespace, "output")
    until(lambda: root.get(kinds.CLAIM, namespace, "own-output") is None)
    assert claim(root, namespace, "victim-output")["metadata"].get("deletionTimestamp") is None


@pytest.mark.smoke
def test_a_claim_is_made_once_and_goes_with_its_generation(
    target: KubernetesTarget, root: Client, namespace: str
) -> None:
    first = target.volumes.create(namespace, "data", "urn:a", "stack", ONE)
    live = claim(root, namespace)
    assert first["path"] == "pvc://data" and live["spec"]["resources"]["requests"]["storage"] == claims.SIZE
    assert live["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert live["metadata"]["labels"] == {owner_labels.MANAGED_BY: "pulumi-trainer", owner_labels.STACK: "stack"}
    assert target.volumes.find(namespace, "data") == (first, Owner("urn:a", "stack"))

    second = target.volumes.create(namespace, "data", "urn:a", "stack", ONE)
    assert second["generation"] != first["generation"]
    assert claim(root, namespace)["metadata"]["uid"] == live["metadata"]["uid"], "what is in it stays"
    target.volumes.delete(namespace, "data", first["generation"])
    assert target.volumes.find(namespace, "data") == (second, Owner("urn:a", "stack")), (
        "a late delete of an earlier life"
    )
    target.volumes.delete(namespace, "data", second["generation"])
    assert target.volumes.find(namespace, "data") is None
    target.volumes.delete(namespace, "data", second["generation"])


def test_a_claim_of_others_is_left_alone(target: KubernetesTarget, root: Client, namespace: str) -> None:
    made = target.volumes.create(namespace, "data", "urn:a", "stack", ONE)
    with pytest.raises(Conflict, match="exists and belongs to another program \\(urn:a\\)"):
        target.volumes.create(namespace, "data", "urn:b", "stack", ONE)
    with pytest.raises(Conflict, match="its access mode \\(ReadWriteOnce\\) cannot change"):
        target.volumes.create(namespace, "data", "urn:a", "stack", MANY)
    with pytest.raises(Conflict, match=r"belongs to another stack of this name.* pulumi-trainer.dev/retain=true"):
        target.volumes.create(namespace, "data", "urn:a", "another", ONE)
    assert target.volumes.find(namespace, "data") == (made, Owner("urn:a", "stack"))
    target.volumes.update(namespace, "data", made["generation"], {**ONE, "retain": True})
    theirs = target.volumes.create(namespace, "data", "urn:a", "another", {**ONE, "retain": True})
    assert theirs["generation"] != made["generation"]
    assert claim(root, namespace)["metadata"]["labels"][owner_labels.STACK] == "another", (
        "kept ones are for a later life"
    )
    assert target.volumes.delete(namespace, "data", made["generation"]) == Owner("urn:a", "another")
    with pytest.raises(Conflict, match="belongs to"):
        target.volumes.update(namespace, "data", made["generation"], {**ONE, "size": "40Gi"})
    target.volumes.update(namespace, "data", theirs["generation"], {**ONE, "retain": True})
    assert target.volumes.find(namespace, "data") == (theirs, Owner("urn:a", "another"))
    by_hand = {
        "metadata": {"name": "hand", "namespace": namespace},
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
    }
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    root.create(kinds.CLAIM, {**by_hand, "spec": spec})
    with pytest.raises(Conflict, match="was not created by this program"):
        target.volumes.create(namespace, "hand", "urn:a", "stack", ONE)
    assert target.volumes.find(namespace, "hand") is None


def owners(root: Client, namespace: str) -> list[str]:
    return [o["name"] for o in claim(root, namespace)["metadata"].get("ownerReferences") or []]


def test_a_claim_is_left_to_the_unfinished_jobs_that_mount_it(
    target: KubernetesTarget, root: Client, namespace: str
) -> None:
    volume = target.volumes.create(namespace, "data", "urn:a", "stack", MANY)
    for name in ("first", "second"):
        target.jobs.create(submission(namespace, with_claim(name, suspend=True), code=False))
    said = target.volumes.delete(namespace, "data", volume["generation"])
    assert f"volume {namespace}/data is kept for JobSet {namespace}/first, JobSet {namespace}/second" in said
    assert owners(root, namespace) == ["first", "second"]
    target.jobs.delete(namespace, "first")
    until(lambda: root.get(JOBSET, namespace, "first") is None)
    assert "deletionTimestamp" not in claim(root, namespace)["metadata"]
    target.jobs.delete(namespace, "second")
    until(lambda: root.get(kinds.CLAIM, namespace, "data") is None)


def test_a_claim_that_is_wanted_again_does_not_go_with_the_job(
    target: KubernetesTarget, root: Client, namespace: str
) -> None:
    volume = target.volumes.create(namespace, "data", "urn:a", "stack", MANY)
    target.jobs.create(submission(namespace, with_claim("waits", suspend=True), code=False))
    assert target.volumes.delete(namespace, "data", volume["generation"])
    again = target.volumes.create(namespace, "data", "urn:a", "stack", MANY)
    assert owners(root, namespace) == []
    target.jobs.delete(namespace, "waits")
    until(lambda: root.get(JOBSET, namespace, "waits") is None)
    found = target.volumes.find(namespace, "data")
    assert found is not None and found[0] == again


def test_size_and_age_of_what_may_hold_output_are_told(
    target: KubernetesTarget, root: Client, namespace: str, made: str
) -> None:
    target.volumes.create(namespace, "waits", "urn:a", "stack", ONE)
    assert target.volumes.describe(namespace, "waits") == "", "never bound, so nothing is in it"
    target.volumes.create(namespace, "data", "urn:a", "stack", {**MANY, "storageClass": made, "size": "1Gi"})
    until(lambda: claim(root, namespace)["status"]["phase"] == "Bound")
    held = target.volumes.describe(namespace, "data")
    assert held == f"a claim of 20Gi, made {claim(root, namespace)['metadata']['creationTimestamp']}"
    assert target.volumes.describe(namespace, "nosuch") == ""


def test_a_claim_is_not_deleted_while_an_unfinished_pod_mounts_it(
    target: KubernetesTarget, root: Client, namespace: str, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = target.volumes.create(namespace, "data", "urn:a", "stack", {**MANY, "storageClass": made})
    ends = with_claim("ends", simulate={"run": "100ms", "outcome": "succeed"})
    target.jobs.create(submission(namespace, ends, code=False))
    until(lambda: (root.get(JOBSET, namespace, "ends") or {}).get("status", {}).get("terminalState"))

    other = {"containers": [{"name": "c", "image": "x"}], **pod_template(with_claim("x"))["spec"]}
    notebook = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "notebook", "namespace": namespace},
        "spec": other,
    }
    root.create(kinds.POD, notebook)
    with pytest.raises(Refused, match=f"is mounted by Pod {namespace}/notebook"):
        target.volumes.delete(namespace, "data", volume["generation"])
    root.delete(kinds.POD, namespace, "notebook")
    until(lambda: root.get(kinds.POD, namespace, "notebook") is None)
    target.volumes.delete(namespace, "data", volume["generation"])
    assert target.volumes.find(namespace, "data") is None
    assert claim(root, namespace)["metadata"]["deletionTimestamp"], "its protection waits for pods that have ended, too"
    monkeypatch.setattr(claims, "GONE_SECONDS", 0.3)
    with pytest.raises(TrainerError, match=f"blocked by kubernetes.io/pvc-protection, Pod {namespace}/ends-"):
        target.volumes.create(namespace, "data", "urn:a", "stack", {**MANY, "storageClass": made})
    target.jobs.delete(namespace, "ends")
    until(lambda: root.get(kinds.CLAIM, namespace, "data") is None)


def test_a_claim_waits_for_pods_that_a_jobset_has_left(
    target: KubernetesTarget, root: Client, namespace: str, made: str
) -> None:
    volume = target.volumes.create(namespace, "data", "urn:a", "stack", {**MANY, "storageClass": made})
    pod = {"containers": [{"name": "c", "image": "x"}], **pod_template(with_claim("x"))["spec"]}
    about = {"name": "left", "namespace": namespace, "labels": {"jobset.sigs.k8s.io/jobset-name": "gone"}}
    root.create(kinds.POD, {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": pod})
    with ThreadPoolExecutor(1) as pool:
        deletion = pool.submit(target.volumes.delete, namespace, "data", volume["generation"])
        with pytest.raises(FutureTimeout):
            deletion.result(timeout=1)
        root.delete(kinds.POD, namespace, "left")
        assert deletion.result(timeout=60) == ""


def test_what_holds_a_deletion_is_said(
    target: KubernetesTarget, root: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "GONE_SECONDS", 0.3)
    volume = target.volumes.create(namespace, "data", "urn:a", "stack", ONE)
    root.patch(kinds.CLAIM, namespace, "data", {"metadata": {"finalizers": ["tests/held"]}})
    with pytest.raises(TrainerError, match="is being deleted, but blocked by tests/held"):
        target.volumes.delete(namespace, "data", volume["generation"])
    with pytest.raises(TrainerError, match="is being deleted"):
        target.volumes.create(namespace, "data", "urn:a", "stack", ONE)
    root.patch(kinds.CLAIM, namespace, "data", {"metadata": {"finalizers": None}})
    anew = target.volumes.create(namespace, "data", "urn:a", "stack", ONE)
    assert anew["generation"] != volume["generation"]


def test_a_sweep_takes_what_nobody_keeps(target: KubernetesTarget, root: Client, namespace: str) -> None:
    target.volumes.create(namespace, "left", "urn:a", "stack", ONE)
    kept = target.volumes.create(namespace, "kept", "urn:a", "stack", {**ONE, "retain": True})
    target.volumes.create(namespace, "theirs", "urn:a", "another", ONE)
    target.volumes.create(namespace, "data", "urn:a", "stack", ONE)
    target.jobs.create(submission(namespace, with_claim("waits", suspend=True), sweep="", code=False))
    assert target.sweep("stack") == [f"{namespace}/left"]
    until(lambda: target.volumes.find(namespace, "left") is None)
    assert all(target.volumes.find(namespace, name) for name in ("kept", "theirs", "data"))
    target.volumes.update(namespace, "kept", kept["generation"], ONE)
    assert target.sweep("stack") == [f"{namespace}/kept"], "it is not to be kept any more"


def test_a_bound_claim_grows_and_another_says_why_not(
    target: KubernetesTarget, root: Client, namespace: str, made: str
) -> None:
    volume = target.volumes.create(namespace, "data", "urn:a", "stack", {**ONE, "storageClass": made, "size": "1Gi"})
    until(lambda: claim(root, namespace)["status"]["phase"] == "Bound")
    target.volumes.update(namespace, "data", volume["generation"], {"size": "2Gi", "retain": True})
    live = claim(root, namespace)
    assert live["spec"]["resources"]["requests"]["storage"] == "2Gi"
    assert live["metadata"]["annotations"][owner_labels.RETAIN] == "true"
    with pytest.raises(TrainerError, match="can not be less than"):
        target.volumes.update(namespace, "data", volume["generation"], {"size": "1Gi"})
    waits = target.volumes.create(namespace, "waits", "urn:a", "stack", ONE)
    with pytest.raises(TrainerError, match="allowVolumeExpansion") as error:
        target.volumes.update(namespace, "waits", waits["generation"], {"size": "40Gi"})
    assert "@@" not in str(error.value), "without the server's own diff"


def test_a_sweep_tells_what_may_hold_data(target: KubernetesTarget, root: Client, namespace: str, made: str) -> None:
    target.volumes.create(namespace, "data", "urn:a", "stack", {**ONE, "storageClass": made, "size": "1Gi"})
    target.volumes.create(namespace, "waits", "urn:a", "stack", ONE)
    until(lambda: claim(root, namespace)["status"]["phase"] == "Bound")
    told: list[str] = []
    assert sorted(target.sweep("stack", told.append)) == [f"{namespace}/data", f"{namespace}/waits"]
    (line,) = told
    assert re.fullmatch(rf"volume {namespace}/data is deleted with what is in it: a claim of \d+Gi, made 20\S+", line)


@pytest.mark.parametrize("provisioner", ONE_NODE)
def test_a_class_for_one_node_is_refused_for_several(
    target: KubernetesTarget, root: Client, namespace: str, provisioner: str
) -> None:
    with storage_class(root, namespace, provisioner) as name:
        (refused,), warned = target.volumes.review(
            namespace, "data", {**MANY, "storageClass": name}, "job", "urn:a", adopt=False
        )
        assert provisioner in refused.why and name in refused.why and warned == []
        assert target.volumes.review(namespace, "data", {**ONE, "storageClass": name}, "job", "urn:a", adopt=False) == (
            [],
            [],
        )
        chosen = target.volumes.review(
            namespace, "data", {**MANY, "storageClass": name, "chosen": True}, "job", "urn:a", adopt=False
        )
        assert [len(found) for found in chosen] == ([0, 1] if ONE_NODE[provisioner].shared else [1, 0])


def test_a_claim_of_others_is_refused_to_a_new_job_and_a_warning_for_one_that_adopts(
    target: KubernetesTarget, namespace: str
) -> None:
    target.volumes.create(namespace, "data", "urn:a", "stack", ONE)

    def reviewed(*, adopt: bool) -> list[int]:
        fresh = KubernetesTarget(target.client, cluster=lambda: "", namespace=namespace)
        return [len(found) for found in fresh.volumes.review(namespace, "data", ONE, "job", "urn:b", adopt=adopt)]

    assert reviewed(adopt=False) == reviewed(adopt=True) == [1, 0]
    target.jobs.create(submission(namespace, with_claim("job", suspend=True), owner="urn:a"))
    assert reviewed(adopt=False) == [0, 0], "the stack may have been renamed"
    assert reviewed(adopt=True) == [0, 1]


def test_a_class_that_there_is_not_is_a_warning_and_then_an_error(
    target: KubernetesTarget, root: Client, namespace: str, made: str
) -> None:
    wanted = {**ONE, "storageClass": "nosuch"}
    (refused,), warned = target.volumes.review(namespace, "data", wanted, "job", "urn:a", adopt=False)
    assert warned == [] and "StorageClass 'nosuch' does not exist" in refused.why and made in refused.hint
    with pytest.raises(TrainerError, match="StorageClass 'nosuch' does not exist"):
        target.volumes.create(namespace, "data", "urn:a", "stack", wanted)
    assert target.volumes.find(namespace, "data") is None, "it would wait for ever"


def test_why_names_the_claim_that_is_not_bound(target: KubernetesTarget, root: Client, namespace: str) -> None:
    """It waits with its quota, and the scheduler names neither the claim nor its class."""
    size = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": size, "storageClassName": "nosuch"}
    about = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": namespace}}
    root.create(kinds.CLAIM, {**about, "spec": spec})
    target.jobs.create(submission(namespace, with_claim("job")))

    def told() -> str:
        seen = with_node_reason(target.client, snapshot(target.client, namespace, "job"))
        return explain(seen, diagnose(seen, 0), 0)

    until(lambda: "PersistentVolumeClaim data: StorageClass 'nosuch' does not exist" in told())


def test_where_output_is_kept_is_told_with_the_job(target: KubernetesTarget, namespace: str) -> None:
    target.volumes.create(namespace, "data", "urn:a", "stack", ONE)
    document = with_claim("writes", suspend=True)
    mount = {"name": "v", "mountPath": "/workspace/output"}
    pod_template(document)["spec"]["containers"][0]["volumeMounts"] = [mount]
    target.jobs.create(submission(namespace, document, code=False))
    status = target.jobs.status(namespace, "writes")
    assert status is not None and status.output == "pvc://data"
