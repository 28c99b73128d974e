"""A job that another program adopts: whatever its old owner does at the same time, it is the new owner's and goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.jobs.status import Owner
from pulumi_trainer.provider.jobs.submission import Submission
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import CLAIM, CONFIG_MAP, POD, SECRET, Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.errors import Refused, TrainerError
from pulumi_trainer.provider.kueue.objects import GROUP, KINDS, NEWEST
from pulumi_trainer.provider.lifecycle.draining import QueueGuards
from pulumi_trainer.provider.lifecycle.resource import StateCalls
from pulumi_trainer.provider.targets.kubernetes import owner_labels
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.trainer.kinds import JOBSET
from pulumi_trainer.provider.trainer.labels import MADE_BY

from tests.engine.conftest import pulumi_home  # noqa: F401 (a fixture)
from tests.engine.test_cli import cli

from .jobs import jobset, submission
from .test_up import Lab, head, lab, program, second  # noqa: F401 (a fixture)

OLD = Owner("old", "old-stack")


class Watched(Client):
    """A client that tells of each request before it is sent."""

    before: Callable[[], None] = staticmethod(lambda: None)

    def _json(self, *args: Any, **more: Any) -> dict[str, Any]:
        self.before()
        return super()._json(*args, **more)


def opened(user_kubeconfig: Path) -> Client:
    return open_client({"kind": "kubernetes", "kubeconfig": str(user_kubeconfig)}, overrides={})


def watched(user_kubeconfig: Path) -> Watched:
    """With the least role."""
    client = opened(user_kubeconfig)
    made = Watched.__new__(Watched)
    made.__dict__.update(client.__dict__)
    return made


def wanted(namespace: str, owner: Owner, **more: Any) -> Submission:
    given = {"suspend": True, **more.pop("spec", {})}
    return submission(namespace, jobset("a", **given), owner=owner.id, sweep=owner.stack, **more)


def changed(namespace: str) -> Submission:
    """What the old owner makes of the job: another label of it, code and secret."""
    made = wanted(namespace, OLD, digest="changed", secrets={"a-env": {"TOKEN": "canary-old"}})
    made.main["metadata"]["labels"] = {"changed": "by-the-old-owner"}
    made.objects["ConfigMap/a-code"]["data"] = {"main.py": "print('old')"}
    return made


CALLS: dict[str, Callable[[KubernetesTarget, str, str], Any]] = {
    "delete": lambda target, namespace, uid: target.jobs.delete(namespace, "a", uid=uid, owner=OLD),
    "update": lambda target, namespace, _: target.jobs.update(changed(namespace)),
    "update_secrets": lambda target, namespace, _: target.jobs.update_secrets(changed(namespace)),
    "sweep": lambda target, *_: target.sweep(OLD.stack),
    "create": lambda target, namespace, _: target.jobs.create(wanted(namespace, OLD)),
}
"""What the old owner does."""


@pytest.mark.parametrize("call", list(CALLS))
def test_an_adoption_before_any_request_of_the_old_owner(
    user_kubeconfig: Path, root: Client, namespace: str, call: str
) -> None:
    new = KubernetesTarget(opened(user_kubeconfig), cluster=lambda: "", namespace=namespace)
    at, done = 0, False
    while not done:
        owner = Owner(f"new-{at}", f"new-stack-{at}", f"lab/new-{at}")
        client = watched(user_kubeconfig)
        old = KubernetesTarget(client, cluster=lambda: "", namespace=namespace)
        uid = old.jobs.create(wanted(namespace, OLD)).uid
        live = root.get(JOBSET, namespace, "a")
        state = {"left": at, "adopted": False}

        def adopt(state: dict[str, Any] = state, owner: Owner = owner) -> None:
            state["left"] -= 1
            if state["left"] == -1:
                state["adopted"] = True
                new.jobs.create(wanted(namespace, owner, program=owner.program), adopt=True)

        client.before = adopt
        try:
            CALLS[call](old, namespace, uid)
        except TrainerError as refused:
            assert "belongs to" in str(refused), refused
        if not state["adopted"]:
            done = True
            adopt({"left": 0, "adopted": False}, owner)
        _check(root, namespace, owner, live if state["adopted"] and call not in ("delete", "sweep") else None)
        assert new.jobs.delete(namespace, "a", owner=owner) is None
        at += 1
    assert at > 1


def _check(root: Client, namespace: str, owner: Owner, same: Any) -> None:
    """All of the job is its new owner's, as that has said it. same: it is still this JobSet."""
    record, live = root.get(CONFIG_MAP, namespace, "a"), root.get(JOBSET, namespace, "a")
    code, secret = root.get(CONFIG_MAP, namespace, "a-code"), root.get(SECRET, namespace, "a-env")
    assert record and live and code and secret
    assert same is None or live["metadata"]["uid"] == same["metadata"]["uid"]
    for each in (record, live):
        assert each["metadata"]["annotations"][owner_labels.OWNER] == owner.id
    for each in (record, live, code, secret):
        assert each["metadata"]["labels"][owner_labels.STACK] == owner.stack
    assert "changed" not in live["metadata"]["labels"]
    assert code["data"] == {"main.py": "print(1)"}
    assert secret["data"] == {"TOKEN": "Y2FuYXJ5LTdkMWY="}


WHOSE = "belongs to the stack lab/second now, which has adopted it"


def test_an_adopted_job_is_left_alone_by_the_stack_that_has_lost_it(lab: Lab) -> None:  # noqa: F811
    lab.program(program('), name="a0",'), head())
    lab.up()
    pods = lab.pods(2)
    second(lab)
    lab.program(program('), name="a0", adopt=True, run="2",'), head())
    for ask in (lab.preview, lab.up):
        assert "differs in run, which is '1' and not '2'" in ask(ok=False).out
    lab.program(program('), name="a0", adopt=True,'), head())
    lab.up()
    assert lab.pods(2) == pods
    lab.stack = "test"
    lab.program(program('), name="a0",'), head())
    assert WHOSE in lab.preview("--expect-no-changes").out
    assert WHOSE in lab.up().out
    for args in (("status",), ("status", "-o", "json"), ("why", "a0")):
        shown = cli(lab, *args, "--stack", "test").stdout
        assert f"{lab.namespace}/a0 {WHOSE}" in shown and "Running" in shown, shown
    lab.program(program('), name="a0", run="2", interrupt="allow",'), head())
    assert WHOSE in lab.preview(ok=False).out
    lab.program(program('), name="a0",'), head())
    assert WHOSE in lab.destroy().out
    assert lab.pods(2) == pods
    lab.up(ok=False)
    lab.stack = "second"
    lab.destroy()
    assert lab.root_client.list(POD, lab.namespace)[0] == []


def test_a_plan_says_what_is_taken_over(lab: Lab, user_kubeconfig: Path) -> None:  # noqa: F811
    def adopts(name: str, more: str) -> str:
        return program(f'env={{"TOKEN": pulumi.Output.secret("canary")}}), name="{name}", {more}')

    def plan() -> str:
        return " ".join(lab.preview().out.split())

    where = f"{lab.namespace}/a0"
    values = "the values of its Secret a0-env become those of this program"
    lab.program(adopts("a0", ""), head())
    lab.up()
    second(lab)
    lab.program(adopts("a0", "adopt=True,"), head())
    assert f"{where}: belongs to the stack lab/test and is taken over; {values}" in plan()
    lab.up()
    assert "taken over" not in plan()
    lab.program(adopts("a0", 'adopt=True, run="2", interrupt="allow",'), head())
    assert "taken over" not in plan()
    lab.up()
    target = KubernetesTarget(opened(user_kubeconfig), cluster=lambda: "", namespace=lab.namespace)
    live = lab.root_client.get(JOBSET, lab.namespace, "a0")
    assert live is not None
    lab.run("stack", "rm", "--force", "--yes", "--preserve-config")
    lab.run("stack", "init")
    assert f"{where}: belongs to another stack of this name: in another backend" in (lost := plan()), lost
    assert f"and is taken over; {values}" in lost
    orphan = submission(lab.namespace, {**live, "metadata": {"name": "a0", "namespace": lab.namespace}}, owner="other")
    lab.root_client.delete(CONFIG_MAP, lab.namespace, "a0", propagation="Orphan")
    assert target.jobs.check_adoption(orphan) == f"was created by pulumi-trainer and is taken over; {values}"


def test_a_name_that_another_program_holds_is_refused_in_the_plan(lab: Lab) -> None:  # noqa: F811
    lab.program(program('), name="a0",'), head())
    lab.up()
    pods = lab.pods(2)
    second(lab)
    refused = lab.preview(ok=False).out
    held = f"{lab.namespace}/a0: exists and belongs to the stack lab/test. Hint: give the TrainJob another name"
    assert held in refused and "adopt=True" in refused, refused
    lab.up(ok=False)
    assert lab.pods(2) == pods
    by_hand = {**jobset("hand", suspend=True), "metadata": {"name": "hand", "namespace": lab.namespace}}
    lab.root_client.create(JOBSET, by_hand)
    lab.program(program('), name="hand",'), head())
    refused = lab.preview(ok=False).out
    assert "hand" in refused and "adopt=True" in refused, refused
    lab.up(ok=False)
    found = lab.root_client.get(JOBSET, lab.namespace, "hand")
    assert found is not None and owner_labels.OWNER not in (found["metadata"].get("annotations") or {})


MANY = """
for name in ("aaa", "bbb", "hand", "settings", "kept"):
    trainer.TrainJob(
        name, name=name, runtime=simulated, output=name == "kept",
        trainer=trainer.Trainer(image="trainer:1", command=["python", "x.py"]),
    )
"""


def test_names_that_nobody_of_ours_holds_are_refused_in_the_plan_beside_jobs_that_are_alike(lab: Lab) -> None:  # noqa: F811
    def about(name: str) -> dict[str, str]:
        return {"name": name, "namespace": lab.namespace}

    lab.root_client.create(JOBSET, {**jobset("hand", suspend=True), "metadata": about("hand")})
    lab.root_client.create(CONFIG_MAP, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about("settings")})
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about("kept-output"), "spec": spec}
    lab.root_client.create(CLAIM, claim)
    lab.program(MANY, head())
    for _ in range(2):
        refused = lab.preview(ok=False).out
        assert "3 problems" in refused, refused
        assert "JobSet/hand: exists since" in refused
        assert "settings: a ConfigMap of that name exists since" in refused and "is not a record of a job" in refused
        assert "kept-output: exists and was not created by this program" in refused


def test_a_cluster_queue_of_another_stack_is_neither_drained_nor_released(root: Client, namespace: str) -> None:
    kind = Kind(f"{GROUP}/{NEWEST}", "ClusterQueue", KINDS["ClusterQueue"], False)
    about = {"name": namespace, "annotations": {MADE_BY: "org/lab/second"}}
    root.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": about, "spec": {}})
    target = KubernetesTarget(root, cluster=lambda: "", namespace=namespace)
    guards = StateCalls(QueueGuards())
    guard = {"name": namespace, "version": NEWEST, "drain": True, "seconds": 1, "beside": [], "target": {}}
    try:
        with pytest.raises(Refused, match="belongs to the stack org/lab/second now, and is left alone"):
            guards.delete({**guard, "stack": "org/lab/test"}, lambda _: target)
        live = root.get(kind, "", namespace)
        assert live is not None and live["spec"].get("stopPolicy") in (None, "None")
        assert guards.delete({**guard, "stack": "org/lab/second"}, lambda _: target) == []
    finally:
        root.delete(kind, "", namespace, propagation="Background")
    news = {**guard, "stack": "org/lab/test"}
    assert guards.diff({**guard, "stack": "org/lab/renamed"}, news).changes


def test_a_job_that_is_reached_by_another_file_does_not_go_with_the_target_it_was_made_with(
    lab: Lab,  # noqa: F811
    user_kubeconfig: Path,
) -> None:
    def reached(name: str, file: str) -> str:
        copy = lab.folder / file
        copy.write_bytes(user_kubeconfig.read_bytes())
        copy.chmod(0o600)
        return program(f'), target=trainer.Kubernetes(kubeconfig="{copy}", namespace="{lab.namespace}"),', name=name)

    lab.program(reached("a", "one") + reached("b", "two"), head())
    lab.up()
    uid = lab.jobs()["b"]["metadata"]["uid"]
    lab.program(reached("b", "three"), head())
    assert "b is deleted" not in lab.up().out
    assert {name: job["metadata"]["uid"] for name, job in lab.jobs().items()} == {"b": uid}
    lab.preview("--expect-no-changes")
    lab.destroy()
    assert lab.jobs() == {}
