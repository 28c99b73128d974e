"""Kueue's objects while the API server or a controller is away, and in a cluster that has an older API: a cluster of its own."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import NAMESPACE, Kind
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kueue.objects import GROUP, KINDS
from pulumi_trainer.provider.trainer.kinds import JOBSET

from tests.documented import blocks
from tests.engine.conftest import pulumi_home  # noqa: F401 (a fixture)
from tools.cluster import Cluster

from .jobs import DEFINITION, send, until
from .queue_lab import Lab, lab_on
from .test_outages import admin, cluster, ended, outage, own_cluster  # noqa: F401 (fixtures)
from .test_queues import EVERYTHING, SET, WORK

TEAMS = [f"t{i}" for i in range(5)]
WHOLE = {"ResourceFlavor": 1, "Cohort": 1, "ClusterQueue": 5, "LocalQueue": 5, "WorkloadPriorityClass": 3}


@pytest.fixture
def lab(tmp_path: Path, pulumi_home: Path, own_cluster: Cluster, namespace: str) -> Iterator[Lab]:  # noqa: F811
    yield lab_on(tmp_path / "lab", pulumi_home, own_cluster.kubeconfig, namespace)


def during(lab: Lab, cluster: Cluster, begun: Callable[[], Any], *command: str) -> None:  # noqa: F811
    """A command of the CLI, with the API server gone once it has begun; how it ends is up to it."""
    process = lab.start(*command, "--yes", "--skip-preview")
    until(begun)
    outage(cluster)
    out, _ = process.communicate(timeout=240)
    assert "Traceback" not in out, out


def test_the_api_server_is_killed_while_queues_are_made_and_drained(lab: Lab, own_cluster: Cluster) -> None:  # noqa: F811
    """Whatever the first try comes to, the next one has all of it, once, or nothing."""
    lab.program(lab.text(SET, teams=TEAMS, more='on_delete="drain",'))
    during(lab, own_cluster, lambda: lab.objects("ClusterQueue"), "up")
    lab.up()
    assert lab.count() == WHOLE
    lab.preview("--expect-no-changes", "--refresh")
    during(lab, own_cluster, lambda: len(lab.objects("LocalQueue")) < 5, "destroy")
    lab.destroy()
    assert lab.count() == {}


def held(lab: Lab, cluster: Cluster, seconds: int) -> None:  # noqa: F811
    """A queue that is to be drained within so many seconds, with a job that cannot end, as nobody looks after JobSets."""
    lab.program(lab.text(WORK, more=f'on_delete="drain", drain_seconds={seconds},'))
    lab.up()
    lab.job("first")
    until(lambda: lab.running() == {"first"})
    cluster.kill("jobset")


def test_what_cannot_be_drained_in_time_is_named_and_the_next_deletion_goes_on(lab: Lab, own_cluster: Cluster) -> None:  # noqa: F811
    held(lab, own_cluster, 1)
    told = lab.destroy(ok=False).out
    assert (
        f"(JobSet {lab.namespace}/first) holds 1 cpu" in told and "it stays stopped" in told and "Traceback" not in told
    )
    assert lab.objects("ClusterQueue")[lab.prefix]["spec"]["stopPolicy"] == "HoldAndDrain"
    own_cluster.restart("jobset")
    until(lambda: lab.running() == set())
    lab.destroy()
    assert lab.count() == {}


def test_the_api_server_is_killed_while_a_queue_drains(lab: Lab, own_cluster: Cluster) -> None:  # noqa: F811
    """Its job cannot end while nobody looks after JobSets, so the server goes in the middle of the wait."""
    held(lab, own_cluster, 60)
    destroy = lab.start("destroy", "--yes", "--skip-preview")
    until(lambda: lab.objects("ClusterQueue")[lab.prefix]["spec"].get("stopPolicy") == "HoldAndDrain")
    outage(own_cluster)
    own_cluster.restart("jobset")
    own_cluster.restart("kueue")  # it would suspend the JobSet minutes later: it backs off while the webhook is away
    out, _ = destroy.communicate(timeout=240)
    assert "Traceback" not in out, out
    lab.destroy()
    assert lab.count() == {}
    until(lambda: lab.running() == set())
    (job,) = lab.root_client.list(JOBSET, lab.namespace)[0]
    assert job["spec"]["suspend"] is True, "it waits for another queue"


def test_the_programs_of_the_page(lab: Lab) -> None:
    """As they stand there, one after the other: here their names are nobody else's."""
    for name in ("nlp", "computer-vision", "guests"):
        lab.root_client.apply(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    first, table, second = (block.text for block in blocks("docs/queues.md", __file__))
    lab.prefix = ""
    lab.program(first)
    shown = lab.plain_up().out
    assert textwrap.indent(table.rstrip(), "    ") in shown
    assert lab.count()["ClusterQueue"] == 3
    lab.destroy()
    lab.program(second)
    lab.plain_up()
    assert lab.count() == {
        "ResourceFlavor": 2,
        "Cohort": 1,
        "ClusterQueue": 1,
        "LocalQueue": 1,
        "WorkloadPriorityClass": 1,
    }
    lab.destroy()
    assert lab.count() == {}


def test_a_cluster_that_has_only_v1beta1(lab: Lab, own_cluster: Cluster) -> None:  # noqa: F811
    """What an API server of that version takes and stores; and then the cluster is upgraded. Kueue of today is gone by then: it
    would not know its own objects. This is the last test of the cluster."""
    own_cluster.kill("kueue")
    for configuration in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        of = Kind("admissionregistration.k8s.io/v1", configuration, f"{configuration.lower()}s", False)
        for each in lab.root_client.list(of)[0]:
            if each["metadata"]["name"].startswith("kueue"):
                lab.root_client.delete(of, "", each["metadata"]["name"])
    serve(lab.root_client, "v1beta1")
    newer = lab.up_of(lab.text(EVERYTHING), ok=False)
    assert (
        "concurrent_admission_policy: has no equivalent in kueue.x-k8s.io/v1beta1" in newer
        and lab.count("v1beta1") == {}
    )
    assert "cluster_profile: has no equivalent in kueue.x-k8s.io/v1beta1" in newer
    older = lab.text(EVERYTHING)
    newest = ("concurrent_admission_policy=", "other = trainer.MultiKueueCluster")
    older = "\n".join(line for line in older.splitlines() if not line.strip().startswith(newest))
    lab.up_of(older)
    queue = lab.objects("ClusterQueue", "v1beta1")[f"{lab.prefix}-q"]["spec"]
    assert queue["cohort"] == f"{lab.prefix}-r" and queue["flavorFungibility"]["whenCanBorrow"] == "TryNextFlavor"
    assert lab.objects("MultiKueueCluster", "v1beta1")[f"{lab.prefix}-w"]["spec"]["kubeConfig"]["location"] == "worker"
    lab.preview("--expect-no-changes", "--refresh")
    lab.up_of(lab.text(SAME))
    uids = {kind: ids(lab, kind, "v1beta1") for kind in KINDS}
    serve(lab.root_client, "v1beta2", "v1beta1")
    # Flavor, priority class and LocalQueue, and the resource that knows the objects of the program.
    assert "4 updated" in (told := lab.up().out) and "created" not in told and "deleted" not in told, told
    assert {kind: ids(lab, kind, "v1beta2") for kind in KINDS} == uids
    lab.preview("--expect-no-changes")
    lab.destroy()
    assert lab.count() == {}


SAME = """
trainer.ResourceFlavor("{name}", node_labels={{"a": "b"}})
trainer.LocalQueue("{name}", cluster_queue="elsewhere")
trainer.WorkloadPriorityClass("{name}", value=3)
"""
"""Kinds that need no conversion, which no webhook does here."""


def ids(lab: Lab, kind: str, version: str) -> set[str]:
    return {made["metadata"]["uid"] for made in lab.objects(kind, version).values()}


def serve(client: Client, *versions: str) -> None:
    """Kueue's API in these versions alone; the first is what is stored."""
    for crd in client.list(DEFINITION)[0]:
        if crd["spec"]["group"] == GROUP:
            for each in crd["spec"]["versions"]:
                each["served"], each["storage"] = each["name"] in versions, each["name"] == versions[0]
            send(client, "PUT", DEFINITION.path("", crd["metadata"]["name"]), {}, crd)

    def served() -> list[str]:
        groups = client.read("/apis")["groups"]
        return [v["version"] for group in groups if group["name"] == GROUP for v in group["versions"]]

    until(lambda: sorted(served()) == sorted(versions))
