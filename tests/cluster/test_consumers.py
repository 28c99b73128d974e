"""Who uses a runtime, as a platform team learns it from a cluster: by labels, in all namespaces that it may see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.errors import Refused
from pulumi_trainer.provider.lifecycle.channels import Channels
from pulumi_trainer.provider.lifecycle.resource import StateCalls
from pulumi_trainer.provider.lifecycle.rollout import hold_reasons
from pulumi_trainer.provider.targets.kubernetes.target import KubernetesTarget
from pulumi_trainer.provider.trainer.kinds import JOBSET
from pulumi_trainer.provider.trainer.labels import RELEASE, RUNTIME
from pulumi_trainer.provider.trainer.runtime_rollout import Rollout, Waves

from .jobs import jobset, submission, until

NAMESPACE = Kind("v1", "Namespace", "namespaces", False)


@pytest.fixture
def elsewhere(root: Client, namespace: str) -> Iterator[str]:
    """Another team's namespace."""
    name = f"{namespace}z"
    root.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    root.delete(NAMESPACE, "", name, propagation="Background")


def made_from(namespace: str, release: str, **said: str) -> dict[str, str]:
    """Its name is that of the test's namespace, since other tests' jobs are there too."""
    return {"name": namespace, "release": release, "digest": "d", **said}


def test_the_jobs_of_a_runtime(root: Client, namespace: str, elsewhere: str, user_kubeconfig: Path) -> None:
    target = KubernetesTarget(root, cluster=lambda: "", namespace=namespace)
    there = (
        (namespace, "mine", made_from(namespace, "1.0.0", channel="stable", follow="minor")),
        (elsewhere, "theirs", made_from(namespace, "1.1.0", channel="stable", follow="pin")),
        (elsewhere, "plain", made_from(namespace, "1.0.0")),
        (elsewhere, "another", made_from("another", "1.0.0")),
        (elsewhere, "long", {**made_from("x" * 64, "1.0.0"), "channel": "stable"}),
    )
    for where, name, runtime in there:
        target.jobs.create(submission(where, jobset(name, suspend=True), runtime=runtime, sweep=f"stack-{where}"))
    found, unseen = target.jobs.consumers(namespace)
    assert unseen == ""
    assert [(c.where, c.release, c.channel, c.follow, c.stack, c.ended) for c in found] == [
        (f"{namespace}/mine", "1.0.0", "stable", "minor", f"stack-{namespace}", False),
        (f"{elsewhere}/plain", "1.0.0", "", "", f"stack-{elsewhere}", False),
        (f"{elsewhere}/theirs", "1.1.0", "stable", "pin", f"stack-{elsewhere}", False),
    ]
    assert target.jobs.runtime_of(namespace, "mine") == (namespace, "1.0.0") and target.jobs.runtime_of(
        namespace, "nobody"
    ) == ("", "")
    for kind, name in ((JOBSET, "theirs"), (CONFIG_MAP, "theirs"), (CONFIG_MAP, "theirs-code")):
        labels = (root.get(kind, elsewhere, name) or {})["metadata"]["labels"]
        assert (labels[RUNTIME], labels[RELEASE]) == (namespace, "1.1.0")

    user = open_client({"kubeconfig": str(user_kubeconfig)})
    found, unseen = KubernetesTarget(user, cluster=lambda: "", namespace=namespace).jobs.consumers(namespace)
    assert [c.where for c in found] == [f"{namespace}/mine"]
    assert f"only jobs of namespace {namespace} could be seen" in unseen

    outputs = {"channel": "stable", "runtime": namespace, "target": {}, "release": "", "names": []}
    with pytest.raises(
        Refused, match=rf"2 jobs use it, 2 of which may still run: {namespace}/mine \(1.0.0\), {elsewhere}/theirs"
    ):
        StateCalls(Channels()).delete(outputs, lambda _: target)
    for where, name, _ in there:
        target.jobs.delete(where, name)
    StateCalls(Channels()).delete(outputs, lambda _: target)


def test_what_stops_a_roll_out_is_known_before_anybody_reads_a_status(root: Client, namespace: str) -> None:
    """The end of a job is in its record only once somebody has seen it."""
    target = KubernetesTarget(root, cluster=lambda: "", namespace=namespace)
    for name, outcome in (("canary", "succeed"), ("fails", "fail"), ("runs", "forever")):
        document = jobset(name, simulate={"run": "1s", "outcome": outcome})
        target.jobs.create(submission(namespace, document, runtime=made_from(namespace, "1.1.0")))
    for name in ("canary", "fails"):
        until(lambda name=name: (root.get(JOBSET, namespace, name) or {}).get("status", {}).get("terminalState"))
        assert "phase" not in (root.get(CONFIG_MAP, namespace, name) or {})["data"]
    waves, rollout = Waves([[f"{namespace}/canary", f"{namespace}/runs"], [namespace]]), Rollout("1.0.0", 1, 0.0)
    assert hold_reasons(target.jobs, namespace, "1.1.0", rollout, waves, 0.0) == [
        f"{namespace}/runs still runs on 1.1.0"
    ]
    assert hold_reasons(target.jobs, namespace, "1.1.0", Rollout("1.0.0", 2, 0.0), waves, 0.0) == [
        f"{namespace}/fails has failed on 1.1.0",
        f"{namespace}/runs still runs on 1.1.0",
    ]
