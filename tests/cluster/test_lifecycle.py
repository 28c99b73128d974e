"""Create, update, adopt, refresh, delete and sweep of jobs on a real API server, called as the dynamic provider calls them."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.jobs.status import Owner, Phase, Presence
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, NAMESPACE, POD, SECRET, Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.kubernetes.errors import Conflict, TargetFault, TrainerError
from pulumi_trainer.provider.lifecycle.changes import compare
from pulumi_trainer.provider.targets import generated_secrets
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.jobs import deletion
from pulumi_trainer.provider.targets.kubernetes.observe import overview
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.trainer.kinds import JOBSET

from .jobs import Document, jobset, left, pod_template, send, submission, until

OURS = Owner("owner", "stack")
"""Of the jobs that `submission` makes."""


@pytest.fixture
def client(user_kubeconfig: Path) -> Client:
    """With the least role."""
    return open_client({"kind": "kubernetes", "kubeconfig": str(user_kubeconfig)}, overrides={})


@pytest.fixture
def target(client: Client, namespace: str) -> KubernetesTarget:
    return KubernetesTarget(client, cluster=lambda: "", namespace=namespace)


def edit(root: Client, namespace: str, name: str, change: Document) -> None:
    """What somebody does with `kubectl edit`."""
    query = {"fieldManager": "kubectl-edit"}
    path = JOBSET.path(namespace, name)
    send(root, "PATCH", path, query, change)


class TestCreate:
    @pytest.mark.smoke
    def test_the_record_owns_all_other_objects_and_all_carry_our_labels(
        self, target: KubernetesTarget, root: Client, namespace: str
    ) -> None:
        status = target.jobs.create(submission(namespace, jobset("a")))
        record = root.get(CONFIG_MAP, namespace, "a")
        assert record is not None and record["metadata"]["uid"] == status.uid
        for kind, name in ((JOBSET, "a"), (CONFIG_MAP, "a-code"), (SECRET, "a-env")):
            meta = (root.get(kind, namespace, name) or {})["metadata"]
            assert [o["uid"] for o in meta["ownerReferences"]] == [status.uid]
            assert not meta["ownerReferences"][0].get("controller")
            assert (
                meta["labels"].items()
                >= {
                    owner_labels.MANAGED_BY: "pulumi-trainer",
                    owner_labels.STACK: "stack",
                    owner_labels.JOB: "a",
                }.items()
            )
        notes = (root.get(JOBSET, namespace, "a") or {})["metadata"]["annotations"]
        assert (notes[owner_labels.OWNER], notes[owner_labels.DIGEST], notes[owner_labels.RUN]) == (
            "owner",
            "digest",
            "1",
        )

    def test_a_second_create_of_the_same_finds_its_own(
        self, target: KubernetesTarget, client: Client, namespace: str
    ) -> None:
        first = target.jobs.create(submission(namespace, jobset("a")))
        before = (client.get(JOBSET, namespace, "a") or {})["metadata"]["uid"]
        again = target.jobs.create(submission(namespace, jobset("a")))
        assert again.uid == first.uid
        assert (client.get(JOBSET, namespace, "a") or {})["metadata"]["uid"] == before

    def test_what_it_does_is_told_without_another_look_at_all_jobs(
        self, target: KubernetesTarget, client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As a program tells of each job that it has made; one that was there before is looked at."""
        monkeypatch.setattr(overview, "AGE", 0.0)
        monkeypatch.setattr(overview, "REST", 0)
        target.jobs.create(submission(namespace, jobset("before")))
        known = target.overview(namespace).record("before")
        made = target.jobs.create(submission(namespace, jobset("a")))
        sent = client.requests
        told = target.jobs.cached_status(namespace, "a", made.uid, "Starting", OURS)
        assert told is not None and told.phase == "Starting" and client.requests == sent
        assert (
            known is not None
            and target.jobs.cached_status(namespace, "before", known.uid, "", OURS)
            and client.requests > sent
        )

    def test_what_a_crash_has_left_is_completed(self, target: KubernetesTarget, root: Client, namespace: str) -> None:
        wanted = submission(namespace, jobset("a"))
        target.jobs.create(wanted)
        root.delete(JOBSET, namespace, "a")
        until(lambda: root.get(JOBSET, namespace, "a") is None)
        root.delete(SECRET, namespace, "a-env")
        until(lambda: root.get(SECRET, namespace, "a-env") is None)
        target.jobs.create(wanted)
        assert root.get(JOBSET, namespace, "a") and root.get(SECRET, namespace, "a-env")

    def test_the_same_name_of_another_program_is_a_conflict_and_stays_untouched(
        self, target: KubernetesTarget, client: Client, namespace: str
    ) -> None:
        target.jobs.create(submission(namespace, jobset("a")))
        before = client.get(JOBSET, namespace, "a")
        with pytest.raises(
            Conflict, match=r"belongs to another program. Hint: give the TrainJob another name, or take"
        ):
            target.jobs.create(submission(namespace, jobset("a"), owner="other", sweep="theirs"))
        with pytest.raises(
            Conflict, match=r"from an interrupted `pulumi up` of this stack or .* kubectl delete jobset,configmap"
        ):
            target.jobs.create(submission(namespace, jobset("a"), owner="other"))
        for owner in ("owner", "other"):
            with pytest.raises(Conflict, match="belongs to another stack of this name"):
                target.jobs.create(submission(namespace, jobset("a"), owner=owner, sweep="stack-elsewhere"))
        after = client.get(JOBSET, namespace, "a")
        assert before and after and before["metadata"]["generation"] == after["metadata"]["generation"]
        with pytest.raises(Conflict, match=r"from an earlier state of this program. Hint: run `pulumi refresh`"):
            target.jobs.create(submission(namespace, jobset("a"), digest="newer"))

    def test_a_config_map_of_that_name_is_not_taken_for_a_record(
        self, target: KubernetesTarget, client: Client, namespace: str
    ) -> None:
        mine = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": namespace}}
        client.create(CONFIG_MAP, {**mine, "data": {"mine": "1"}})
        with pytest.raises(Conflict, match=r"is not a record of a job. Hint: give the TrainJob another name"):
            target.jobs.create(submission(namespace, jobset("a"), owner="other"))
        assert (client.get(CONFIG_MAP, namespace, "a") or {})["data"] == {"mine": "1"}

    def test_a_jobset_that_somebody_has_made_is_a_conflict_and_no_record_stays(
        self, target: KubernetesTarget, root: Client, namespace: str
    ) -> None:
        made = jobset("a")
        made["metadata"]["namespace"] = namespace
        send(root, "POST", JOBSET.path(namespace), {"fieldManager": "kubectl-create"}, made)
        with pytest.raises(Conflict, match=r"was created by .*kubectl-create.*adopt=True"):
            target.jobs.create(submission(namespace, jobset("a")))
        until(lambda: root.get(CONFIG_MAP, namespace, "a") is None)
        assert (root.get(JOBSET, namespace, "a") or {})["metadata"].get("ownerReferences") is None

    def test_keys_are_generated_once(self, target: KubernetesTarget, root: Client, namespace: str) -> None:
        wanted = submission(namespace, jobset("a", suspend=True))
        key = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a-ssh"}}
        data = {"id": generated_secrets.SSH_PRIVATE_KEY, "id.pub": generated_secrets.SSH_PUBLIC_KEY}
        wanted.objects["Secret/a-ssh"] = {**key, "data": data}
        target.jobs.create(wanted)
        first = (root.get(SECRET, namespace, "a-ssh") or {})["data"]
        target.jobs.create(wanted)
        target.jobs.update(wanted)
        assert (root.get(SECRET, namespace, "a-ssh") or {})["data"] == first != data

    def test_a_namespace_that_is_missing_is_said(self, target: KubernetesTarget) -> None:
        with pytest.raises(TrainerError, match=r"forbidden|not found.*create it"):
            target.jobs.create(submission("nowhere-to-be-found", jobset("a")))


class TestAdopt:
    def made_by_hand(self, root: Client, namespace: str, document: Document) -> set[str]:
        made = copy.deepcopy(document)
        made["metadata"]["namespace"] = namespace
        send(root, "POST", JOBSET.path(namespace), {"fieldManager": "kubectl-create"}, made)
        return self.pods(root, namespace)

    def pods(self, root: Client, namespace: str) -> set[str]:
        def running() -> set[str]:
            found, _ = root.list(POD, namespace)
            return {p["metadata"]["uid"] for p in found if p["status"].get("phase") == "Running"}

        return until(lambda: len(found := running()) == 2 and found)

    def test_a_live_jobset_is_taken_over_with_its_pods(
        self, target: KubernetesTarget, root: Client, namespace: str
    ) -> None:
        before = self.made_by_hand(root, namespace, jobset("a", pods=2))
        status = target.jobs.create(submission(namespace, jobset("a", pods=2)), adopt=True)
        assert self.pods(root, namespace) == before
        assert target.jobs.drift(namespace, "a") == {}
        target.jobs.delete(namespace, "a", uid=status.uid)
        assert left(root, namespace) == []

    def test_one_that_differs_is_refused_with_the_fields_and_stays(
        self, target: KubernetesTarget, root: Client, namespace: str
    ) -> None:
        self.made_by_hand(root, namespace, jobset("a", pods=2))
        wanted = jobset("a", pods=2)
        pod_template(wanted)["spec"]["containers"][0]["image"] = "other"
        with pytest.raises(Conflict, match=r"it differs in .*containers\[node\].image"):
            target.jobs.create(submission(namespace, wanted), adopt=True)
        assert (root.get(JOBSET, namespace, "a") or {})["metadata"].get("ownerReferences") is None

    def test_a_job_of_another_stack_is_taken_over_and_lost_to_it(
        self, target: KubernetesTarget, root: Client, namespace: str
    ) -> None:
        first = target.jobs.create(submission(namespace, jobset("a", pods=2), owner="theirs", sweep="theirs"))
        before = self.pods(root, namespace)
        with pytest.raises(Conflict, match="it differs in"):
            target.jobs.create(submission(namespace, jobset("a", pods=3)), adopt=True)
        taken = target.jobs.create(
            submission(namespace, jobset("a", pods=2), owner="ours", sweep="ours", program="lab/ours"), adopt=True
        )
        assert taken.uid == first.uid
        assert self.pods(root, namespace) == before
        assert (status := target.jobs.status(namespace, "a")) and status.owner == "ours"
        lost = Owner("theirs", "theirs")
        assert target.jobs.delete(namespace, "a", uid=first.uid, owner=lost) == status.whose
        with pytest.raises(Conflict, match="belongs to the stack lab/ours"):
            target.jobs.update(submission(namespace, jobset("a", pods=2, suspend=True), owner="theirs", sweep="theirs"))
        told = target.jobs.cached_status(namespace, "a", first.uid, "Running", lost)
        assert told is not None and told.whose == status.whose == Owner("ours", "ours", "lab/ours")
        assert self.pods(root, namespace) == before
        assert target.sweep("theirs") == []
        assert target.sweep("ours") == [f"{namespace}/a"]


class TestEnd:
    def test_a_finished_job_stays_finished_when_its_ttl_has_removed_it(
        self, target: KubernetesTarget, client: Client, namespace: str
    ) -> None:
        wanted = submission(namespace, jobset("a", simulate={"run": "1s"}, ttlSecondsAfterFinished=2))
        target.jobs.create(wanted)
        until(lambda: (s := target.jobs.status(namespace, "a")) and s.phase == Phase.SUCCEEDED)
        until(lambda: client.get(JOBSET, namespace, "a") is None)
        seen = target.jobs.status(namespace, "a")
        assert seen and seen.phase == Phase.SUCCEEDED and seen.finished
        assert target.jobs.create(wanted).phase == Phase.SUCCEEDED
        assert client.get(JOBSET, namespace, "a") is None

    def test_nobody_saw_how_it_ended(self, target: KubernetesTarget, client: Client, namespace: str) -> None:
        wanted = submission(namespace, jobset("a", simulate={"run": "1s"}, ttlSecondsAfterFinished=0))
        target.jobs.create(wanted)
        until(lambda: client.get(JOBSET, namespace, "a") is None)
        status = target.jobs.status(namespace, "a")
        assert status and (status.phase, status.reason) == (Phase.DELETED, "OutcomeUnknown")
        again = target.jobs.create(wanted)
        assert (again.phase, again.reason) == (Phase.DELETED, "OutcomeUnknown")
        assert client.get(JOBSET, namespace, "a") is None

    def test_one_that_somebody_has_deleted_runs_again(
        self, target: KubernetesTarget, client: Client, root: Client, namespace: str
    ) -> None:
        wanted = submission(namespace, jobset("a"))
        made = target.jobs.create(wanted)
        assert target.jobs.presence(namespace, "a") == Presence(OURS)
        root.delete(JOBSET, namespace, "a")
        until(lambda: root.get(JOBSET, namespace, "a") is None)
        status = target.jobs.status(namespace, "a")
        assert status and (status.phase, status.reason) == (Phase.DELETED, "OutcomeUnknown")
        fresh = KubernetesTarget(client, cluster=lambda: "", namespace=namespace)
        seen = fresh.jobs.presence(namespace, "a")
        assert seen is not None and seen.owner == OURS and seen.deleted and not seen.unsent
        assert target.jobs.create(wanted).uid == made.uid
        assert client.get(JOBSET, namespace, "a")
        root.delete(JOBSET, namespace, "a")
        until(lambda: root.get(JOBSET, namespace, "a") is None)
        again = KubernetesTarget(client, cluster=lambda: "", namespace=namespace).jobs.presence(namespace, "a")
        assert again is not None and again.deleted not in ("", seen.deleted)


def suspended(document: Document) -> None:
    document["spec"]["suspend"] = not document["spec"].get("suspend", False)


def at(path: str, value: Any) -> Callable[[Document], None]:
    """Sets a field; numbers are places in lists."""

    def change(document: Document) -> None:
        place: Any = document
        *above, last = path.split(".")
        for name in above:
            place = place[int(name)] if name.isdigit() else place.setdefault(name, {})
        place[last] = value

    return change


def both(*changes: Callable[[Document], None]) -> Callable[[Document], None]:
    """Several at once."""

    def change(document: Document) -> None:
        for each in changes:
            each(document)

    return change


POD_TEMPLATE = "spec.replicatedJobs.0.template.spec.template"
JOB = "spec.replicatedJobs.0.template.spec"
CHANGES: dict[str, Callable[[Document], None]] = {
    "suspend": suspended,
    "ttl": at("spec.ttlSecondsAfterFinished", 60),
    "coordinator": at("spec.coordinator", {"replicatedJob": "node", "jobIndex": 0, "podIndex": 0}),
    "labels": at("metadata.labels", {"team": "a"}),
    "annotations": at("metadata.annotations", {"team": "a"}),
    "pod labels": at(f"{POD_TEMPLATE}.metadata.labels", {"team": "a"}),
    "pod annotations": at(f"{POD_TEMPLATE}.metadata.annotations", {"sim/outcome": "forever", "team": "a"}),
    "node selector": at(f"{POD_TEMPLATE}.spec.nodeSelector", {"zone": "a"}),
    "tolerations": at(f"{POD_TEMPLATE}.spec.tolerations", [{"key": "gpu", "operator": "Exists"}]),
    "scheduling gates": at(f"{POD_TEMPLATE}.spec.schedulingGates", [{"name": "example.com/wait"}]),
    "suspend, and pod labels": both(suspended, at(f"{POD_TEMPLATE}.metadata.labels", {"team": "a"})),
    "suspend, and pod annotations": both(suspended, at(f"{POD_TEMPLATE}.metadata.annotations", {"team": "a"})),
    "suspend, and node selector": both(suspended, at(f"{POD_TEMPLATE}.spec.nodeSelector", {"zone": "a"})),
    "suspend, and tolerations": both(suspended, at(f"{POD_TEMPLATE}.spec.tolerations", [{"operator": "Exists"}])),
    "suspend, and scheduling gates": both(
        suspended, at(f"{POD_TEMPLATE}.spec.schedulingGates", [{"name": "example.com/wait"}])
    ),
    "image": at(f"{POD_TEMPLATE}.spec.containers.0.image", "trainer:2"),
    "command": at(f"{POD_TEMPLATE}.spec.containers.0.command", ["true"]),
    "env": at(f"{POD_TEMPLATE}.spec.containers.0.env", [{"name": "A", "value": "1"}]),
    "resources": at(f"{POD_TEMPLATE}.spec.containers.0.resources", {"limits": {"cpu": "1"}}),
    "volumes": at(f"{POD_TEMPLATE}.spec.volumes", [{"name": "v", "emptyDir": {}}]),
    "service account": at(f"{POD_TEMPLATE}.spec.serviceAccountName", "other"),
    "restart policy": at(f"{POD_TEMPLATE}.spec.restartPolicy", "OnFailure"),
    "parallelism": at("spec.replicatedJobs.0.template.spec.parallelism", 3),
    "completions": at("spec.replicatedJobs.0.template.spec.completions", 3),
    "parallelism and completions": both(at(f"{JOB}.parallelism", 3), at(f"{JOB}.completions", 3)),
    "affinity": at(f"{POD_TEMPLATE}.spec.affinity", {"nodeAffinity": {}}),
    "scheduler": at(f"{POD_TEMPLATE}.spec.schedulerName", "other"),
    "priority class": at(f"{POD_TEMPLATE}.spec.priorityClassName", "system-node-critical"),
    "labels of its Jobs": at("spec.replicatedJobs.0.template.metadata", {"labels": {"team": "a"}}),
    "group": at("spec.replicatedJobs.0.groupName", "other"),
    "deadline": at(f"{JOB}.activeDeadlineSeconds", 60),
    "back-off limit": at("spec.replicatedJobs.0.template.spec.backoffLimit", 3),
    "replicas": at("spec.replicatedJobs.0.replicas", 3),
    "name of a replicated job": at("spec.replicatedJobs.0.name", "other"),
    "network": at("spec.network", {"enableDNSHostnames": False}),
    "success policy": at("spec.successPolicy", {"operator": "Any"}),
    "startup policy": at("spec.startupPolicy", {"startupPolicyOrder": "InOrder"}),
    "subdomain": at("spec.network", {"subdomain": "other"}),
    "failure policy": at("spec.failurePolicy", {"maxRestarts": 3}),
    "volume claim policies": both(
        at(
            "spec.volumeClaimPolicies",
            [
                {
                    "templates": [
                        {
                            "metadata": {"name": "data"},
                            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                        }
                    ]
                }
            ],
        ),
        at(f"{POD_TEMPLATE}.spec.containers.0.volumeMounts", [{"name": "data", "mountPath": "/data"}]),
    ),
    "managed by": at("spec.managedBy", "example.com/me"),
    "another replicated job": lambda d: d["spec"]["replicatedJobs"].append(
        {**copy.deepcopy(d["spec"]["replicatedJobs"][0]), "name": "more"}
    ),
}
"""FIELD.md's table of what may change in a JobSet and when, row by row."""


class TestChange:
    @pytest.fixture(scope="class")
    @staticmethod
    def live(cluster: Any) -> tuple[Client, str]:
        """A suspended and a running JobSet, that stay as they are: changes are dry runs."""
        root = open_client({"kind": "kubernetes", "kubeconfig": str(cluster.kubeconfig)}, overrides={})
        namespace = f"changes-{int(time.time() * 1000)}"
        root.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        target = KubernetesTarget(root, cluster=lambda: "", namespace=namespace)
        target.jobs.create(submission(namespace, jobset("held", pods=2, suspend=True), code=False))
        target.jobs.create(submission(namespace, jobset("runs", pods=2), code=False))
        until(lambda: len(root.list(POD, namespace)[0]) == 2)
        return root, namespace

    @pytest.mark.parametrize("state", ["held", "runs"])
    @pytest.mark.parametrize("field", CHANGES)
    def test_the_server_takes_what_we_call_an_update_and_nothing_else(
        self, live: tuple[Client, str], field: str, state: str
    ) -> None:
        root, namespace = live
        old = jobset(state, pods=2, **({"suspend": True} if state == "held" else {}))
        new = copy.deepcopy(old)
        CHANGES[field](new)
        effects = {c.effect for c in compare({f"JobSet/{state}": old}, {f"JobSet/{state}": new})}
        assert len(effects) == 1
        new["metadata"]["namespace"] = namespace
        try:
            root.apply(JOBSET, new, dry_run=True, force=True)
            accepted = True
        except ApiError as error:
            assert error.code == 422 or "denied the request" in error.message, str(error)
            accepted = False
        assert effects == ({"update"} if accepted else {"replace"})

    def test_a_failure_policy_is_fixed_as_long_as_there_is_one(
        self, target: KubernetesTarget, root: Client, namespace: str
    ) -> None:
        """A job that runs gets one without being ended, fails, and starts again by it."""
        old = jobset("a", simulate={"outcome": "fail", "run": "3s", "only-attempt": "0"})
        target.jobs.create(submission(namespace, old, code=False))
        (pod,) = until(lambda: root.list(POD, namespace)[0])
        new = copy.deepcopy(old)
        new["spec"]["failurePolicy"] = {"maxRestarts": 1}
        assert [c.effect for c in compare({"JobSet/a": old}, {"JobSet/a": new})] == ["update"]
        target.jobs.update(submission(namespace, new, digest="second", code=False))
        assert [p["metadata"]["uid"] for p in root.list(POD, namespace)[0]] == [pod["metadata"]["uid"]]
        for policy, effect in (({"maxRestarts": 2}, "replace"), (None, "update")):
            other = copy.deepcopy(old)
            other["spec"] |= {"failurePolicy": policy} if policy else {}
            (change,) = compare({"JobSet/a": new}, {"JobSet/a": other})
            other["metadata"]["namespace"] = namespace
            try:
                root.apply(JOBSET, other, dry_run=True, force=True)
                accepted = True
            except ApiError as error:
                assert "spec.failurePolicy: Invalid value: Value is immutable" in error.message
                accepted = False
            assert change.effect == effect == ("update" if accepted else "replace")
        until(lambda: (s := target.jobs.status(namespace, "a")) and s.phase == Phase.SUCCEEDED)
        assert (root.get(JOBSET, namespace, "a") or {})["status"]["restarts"] == 1

    def test_an_update_changes_the_live_job_and_the_record_follows(
        self, target: KubernetesTarget, client: Client, namespace: str
    ) -> None:
        target.jobs.create(submission(namespace, jobset("a")))
        before = (client.get(JOBSET, namespace, "a") or {})["metadata"]["uid"]
        status = target.jobs.update(submission(namespace, jobset("a", suspend=True), digest="second"))
        assert status.digest == "second"
        assert target.jobs.create(submission(namespace, jobset("a", suspend=True), digest="second")).uid == status.uid
        found = client.get(JOBSET, namespace, "a") or {}
        assert found["spec"]["suspend"] is True and found["metadata"]["uid"] == before
        target.jobs.update(submission(namespace, jobset("a"), digest="third"))
        assert not (client.get(JOBSET, namespace, "a") or {})["spec"].get("suspend")

    def test_somebody_else_holds_the_field(self, target: KubernetesTarget, root: Client, namespace: str) -> None:
        target.jobs.create(submission(namespace, jobset("a", ttlSecondsAfterFinished=60)))
        edit(root, namespace, "a", {"spec": {"ttlSecondsAfterFinished": 5}})
        wanted = submission(namespace, jobset("a", ttlSecondsAfterFinished=90), digest="second")
        with pytest.raises(Conflict, match=r'ttlSecondsAfterFinished: is managed by the field manager "kubectl-edit"'):
            target.jobs.update(wanted)
        target.jobs.update(wanted, force=True)
        assert (root.get(JOBSET, namespace, "a") or {})["spec"]["ttlSecondsAfterFinished"] == 90

    def test_an_update_of_a_job_that_is_gone_creates_nothing(
        self, target: KubernetesTarget, client: Client, namespace: str
    ) -> None:
        with pytest.raises(TargetFault, match=r"is gone. Hint: run `pulumi refresh`"):
            target.jobs.update(submission(namespace, jobset("a")))
        target.jobs.create(submission(namespace, jobset("b"), owner="theirs"))
        with pytest.raises(Conflict, match="belongs to another TrainJob of this stack"):
            target.jobs.update(submission(namespace, jobset("b")))
        assert client.get(JOBSET, namespace, "a") is None


class TestDrift:
    def test_what_a_human_has_changed_is_named_and_put_back(
        self, target: KubernetesTarget, root: Client, namespace: str
    ) -> None:
        wanted = jobset("a", ttlSecondsAfterFinished=60)
        wanted["metadata"]["labels"] = {"team": "a", "keep": "1"}
        target.jobs.create(submission(namespace, wanted))
        assert target.jobs.drift(namespace, "a") == {}
        edit(root, namespace, "a", {"spec": {"suspend": True, "ttlSecondsAfterFinished": 5}})
        edit(root, namespace, "a", {"metadata": {"labels": {"team": None, "theirs": "2"}}})
        assert target.jobs.drift(namespace, "a") == {
            "spec.suspend": True,
            "spec.ttlSecondsAfterFinished": 5,
            "metadata.labels[team]": None,
        }
        target.jobs.update(submission(namespace, wanted), force=True)
        until(lambda: target.jobs.drift(namespace, "a") in ({}, {"spec.suspend": True}))

    def test_what_a_mutating_webhook_makes_of_a_job_is_left_alone(
        self, target: KubernetesTarget, root: Client, namespace: str
    ) -> None:
        with capped(root, namespace):
            wanted = jobset("a", ttlSecondsAfterFinished=60, suspend=True)
            target.jobs.create(submission(namespace, wanted))
            assert (root.get(JOBSET, namespace, "a") or {})["spec"]["ttlSecondsAfterFinished"] == 5
            assert target.jobs.drift(namespace, "a") == {}
            target.jobs.update(submission(namespace, wanted), force=True)
            assert target.jobs.drift(namespace, "a") == {}
            edit(root, namespace, "a", {"metadata": {"labels": {"x": "1"}}, "spec": {"suspend": False}})
            assert target.jobs.drift(namespace, "a") == {"spec.suspend": False}


@contextmanager
def capped(root: Client, namespace: str) -> Iterator[None]:
    """A MutatingAdmissionPolicy that lowers the TTL of all JobSets of the namespace, from when it works."""
    group = "admissionregistration.k8s.io/v1"
    policy = Kind(group, "MutatingAdmissionPolicy", "mutatingadmissionpolicies", False)
    binding = Kind(group, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", False)
    name, head = f"cap-{namespace}", {"apiVersion": group, "metadata": {"name": f"cap-{namespace}"}}
    rule = {"apiGroups": ["jobset.x-k8s.io"], "apiVersions": ["*"], "operations": ["*"], "resources": ["jobsets"]}
    patch = {"expression": "Object{spec: Object.spec{ttlSecondsAfterFinished: 5}}"}
    spec = {
        "matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "Never", "failurePolicy": "Fail",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": patch}],
    }  # fmt: skip
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    bound = {"policyName": name, "matchResources": {"namespaceSelector": here}}
    root.create(policy, {**head, "kind": policy.kind, "spec": spec})
    root.create(binding, {**head, "kind": binding.kind, "spec": bound})
    probe = {"apiVersion": JOBSET.api_version, "kind": JOBSET.kind, **jobset("probe", ttlSecondsAfterFinished=60)}
    probe["metadata"]["namespace"] = namespace
    try:
        until(lambda: root.apply(JOBSET, probe, dry_run=True)["spec"]["ttlSecondsAfterFinished"] == 5)
        yield
    finally:
        root.delete(binding, "", name)
        root.delete(policy, "", name)


class TestDelete:
    def test_nothing_is_left(self, target: KubernetesTarget, root: Client, namespace: str) -> None:
        status = target.jobs.create(submission(namespace, jobset("a", pods=2)))
        until(lambda: len(root.list(POD, namespace)[0]) == 2)
        target.jobs.delete(namespace, "a", uid=status.uid)
        assert left(root, namespace) == []
        target.jobs.delete(namespace, "a", uid=status.uid)

    def test_only_that_run_of_it(self, target: KubernetesTarget, root: Client, namespace: str) -> None:
        target.jobs.create(submission(namespace, jobset("a")))
        target.jobs.delete(namespace, "a", uid="00000000-0000-0000-0000-000000000000")
        assert root.get(JOBSET, namespace, "a")

    def test_a_job_whose_record_was_removed_alone(self, target: KubernetesTarget, root: Client, namespace: str) -> None:
        status = target.jobs.create(submission(namespace, jobset("a")))
        root.delete(CONFIG_MAP, namespace, "a", propagation="Orphan")
        until(lambda: root.get(CONFIG_MAP, namespace, "a") is None)
        target.jobs.delete(namespace, "a", uid=status.uid)
        until(lambda: left(root, namespace) == [])

    def test_what_holds_it_is_said(
        self, target: KubernetesTarget, root: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        status = target.jobs.create(submission(namespace, jobset("a")))
        edit(root, namespace, "a", {"metadata": {"finalizers": ["example.com/keep"]}})
        monkeypatch.setattr(deletion, "DELETE_SECONDS", 2.0)
        with pytest.raises(TargetFault, match=r"not gone after \d+ s: JobSet .*/a has the finalizer example.com/keep"):
            target.jobs.delete(namespace, "a", uid=status.uid)
        edit(root, namespace, "a", {"metadata": {"finalizers": None}})
        target.jobs.delete(namespace, "a", uid=status.uid)
        until(lambda: left(root, namespace) == [])

    def test_a_sweep_takes_the_jobs_of_its_stack_and_leaves_what_is_retained(
        self, target: KubernetesTarget, root: Client, namespace: str
    ) -> None:
        target.jobs.create(submission(namespace, jobset("a", suspend=True), sweep="ours"))
        target.jobs.create(submission(namespace, jobset("b", suspend=True), sweep="ours", retain=True))
        target.jobs.create(submission(namespace, jobset("c", suspend=True), sweep="theirs"))
        assert target.sweep("ours") == [f"{namespace}/a"]
        assert sorted(j["metadata"]["name"] for j in root.list(JOBSET, namespace)[0]) == ["b", "c"]

    def test_a_job_of_another_label_does_not_go_with_the_old_one(
        self, target: KubernetesTarget, root: Client, namespace: str
    ) -> None:
        """As `pulumi state move` leaves it: the owner is the same, and the stack another one."""
        made = target.jobs.create(submission(namespace, jobset("a"), sweep="old"))
        theirs = submission(namespace, jobset("a"), owner="other", sweep="new")
        with pytest.raises(Conflict, match="belongs to"):
            target.jobs.relabel(theirs, Owner("other", "old"))
        for _ in range(2):
            target.jobs.relabel(submission(namespace, jobset("a"), sweep="new"), Owner("owner", "old"))
        assert target.sweep("old") == []
        status = target.jobs.status(namespace, "a")
        assert status is not None and (status.uid, status.stack) == (made.uid, "new")
        (job,) = root.list(JOBSET, namespace)[0]
        assert job["metadata"]["labels"][owner_labels.STACK] == "new"
        volume = target.volumes.create(namespace, "v", "urn:old", "old")
        target.volumes.relabel(namespace, "v", "another", "urn:new", "new")
        assert target.volumes.find(namespace, "v") == (volume, Owner("urn:old", "old"))
        target.volumes.relabel(namespace, "v", volume["generation"], "urn:new", "new")
        assert target.volumes.find(namespace, "v") == (volume, Owner("urn:new", "new"))
        assert target.sweep("old") == []
        assert sorted(target.sweep("new")) == [f"{namespace}/a", f"{namespace}/v"]


def test_a_namespace_that_is_going(target: KubernetesTarget, root: Client, namespace: str) -> None:
    """Something holds it: nothing can be made there any more, and what was made goes."""
    status = target.jobs.create(submission(namespace, jobset("a")))
    holds = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "holds", "namespace": namespace}}
    root.create(CONFIG_MAP, {**holds, "metadata": {**holds["metadata"], "finalizers": ["example.com/keep"]}})
    root.delete(NAMESPACE, "", namespace, propagation="Background")
    try:
        with pytest.raises(TrainerError) as caught:
            target.jobs.create(submission(namespace, jobset("b")))
        assert "because it is being terminated" in str(caught.value)
        assert "pulumi-trainer rbac" not in str(caught.value) and "wait until its deletion has finished" in str(
            caught.value
        )
        target.jobs.delete(namespace, "a", uid=status.uid)
        until(lambda: left(root, namespace) in ([], ["ConfigMap/holds"]))
    finally:
        root.patch(CONFIG_MAP, namespace, "holds", {"metadata": {"finalizers": None}})
    until(lambda: root.get(NAMESPACE, "", namespace) is None)
    everybody = KubernetesTarget(root, cluster=lambda: "", namespace=namespace)  # the user's rights went with it
    everybody.jobs.delete(namespace, "a", uid=status.uid)
    with pytest.raises(TrainerError, match=f"namespace {namespace} does not exist|not found"):
        everybody.jobs.create(submission(namespace, jobset("b")))
