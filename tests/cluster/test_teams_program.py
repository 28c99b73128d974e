"""A job that changes its queue, and queues that a program makes, through the real Pulumi engine with the least role."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pulumi_trainer.provider.kubernetes.client import api_resources as kinds
from pulumi_trainer.provider.kueue.api_resources import CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR
from pulumi_trainer.provider.trainer.labels import RENAMED_TO

from tests.engine.conftest import pulumi_home  # noqa: F401 (a fixture)

from .jobs import until
from .test_up import Lab, head, lab, program  # noqa: F401 (a fixture)

KUEUE = "kueue.x-k8s.io/v1beta2"


@pytest.fixture
def queues(lab: Lab) -> Iterator[None]:  # noqa: F811
    """red takes no jobs, blue has room for one of two nodes with a core each."""
    root, own = lab.root_client, lab.namespace
    into_pods = {"nodeLabels": {"sim/pool": "gpu"}, "tolerations": [{"key": "example.com/any", "operator": "Exists"}]}
    flavor_document = {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": own}, "spec": into_pods}
    root.create(RESOURCE_FLAVOR, flavor_document)
    flavor = {"name": own, "resources": [{"name": "cpu", "nominalQuota": 2}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]}
    for team, more in (("red", {"stopPolicy": "Hold"}), ("blue", {})):
        name = f"{own}-{team}"
        document = {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": {**spec, **more}}
        root.create(CLUSTER_QUEUE, document)
        local = {"metadata": {"name": team, "namespace": own}, "spec": {"clusterQueue": name}}
        root.create(LOCAL_QUEUE, {"apiVersion": KUEUE, "kind": "LocalQueue", **local})
    yield
    for name in ("red", "blue"):
        root.delete(CLUSTER_QUEUE, "", f"{own}-{name}", propagation="Background")
    root.delete(RESOURCE_FLAVOR, "", own, propagation="Background")


def of_queue(queue: str, before: str = "") -> str:
    job = program(f'resources_per_node={{"cpu": 1}}), queue="{queue}", max_execution=3600,')
    return f"from pulumi_trainer.program import session\n{before}\n{job}"


def test_a_job_changes_its_queue_while_it_waits(lab: Lab, queues: None) -> None:  # noqa: F811
    top = head().replace("pod_spec={", 'pod_spec={"node_selector": {"kubernetes.io/os": "linux"}, ', 1)
    renamed = {"metadata": {"name": "red", "namespace": lab.namespace, "annotations": {RENAMED_TO: "blue"}}}
    lab.root_client.apply(LOCAL_QUEUE, {"apiVersion": KUEUE, "kind": "LocalQueue", **renamed})
    lab.program(of_queue("red"), top)
    assert (
        'PT216: queue: LocalQueue red has been renamed to blue, and the old LocalQueue may be deleted. Hint: set queue="blue": '
        in lab.up().out
    )
    (job,) = lab.jobs().values()
    assert job["spec"]["suspend"] is True

    lab.program(of_queue("blue"), top)
    told = lab.preview().out
    assert "waits in queue red and moves to queue blue without a new run; if Kueue admits it before the update" in told
    assert "replace" not in lab.up().out
    pods = lab.pods(2)
    (after,) = lab.jobs().values()
    assert after["metadata"]["uid"] == job["metadata"]["uid"]
    assert after["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "blue"
    template = after["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert template["nodeSelector"] == {"kubernetes.io/os": "linux", "sim/pool": "gpu"} and template["tolerations"]
    lab.preview("--expect-no-changes", "--refresh")

    lab.program(of_queue("blue").replace('queue="blue"', 'queue="blue", labels={"team": "a"}'), top)
    assert "warning" not in lab.preview().out
    lab.up()
    assert next(iter(lab.jobs().values()))["metadata"]["labels"]["team"] == "a"
    assert {p["metadata"]["uid"] for p in lab.root_client.list(kinds.POD, lab.namespace)[0]} == pods

    lab.program(of_queue("red"), top)
    refused = lab.preview(ok=False).out
    assert "is Running since" in refused and "queue-name] (may change only while the job waits)" in refused


def test_queues_of_the_program(lab: Lab) -> None:  # noqa: F811
    """What it makes is not missed, and what is wrong with it is told once, or refused where the stack says so."""
    made = f"""
def queue(kind, name, **spec):
    place = {{"namespace": "{lab.namespace}"}} if kind == "LocalQueue" else {{}}
    return {{"apiVersion": "{KUEUE}", "kind": kind, "metadata": {{"name": name, **place}}, "spec": spec}}

session.current().queues[""] = [
    queue("LocalQueue", "grey", clusterQueue="grey"), queue("ClusterQueue", "grey", namespaceSelector={{}}, cohortName="a"),
    queue("Cohort", "a", parentName="b"), queue("Cohort", "b", parentName="a"),
]
"""
    lab.program(of_queue("grey", made), head())
    told = lab.preview().out
    assert told.partition("Diagnostics:")[2].count("PT205: Cohort a: spec.parentName: a -> b -> a is a cycle") == 1, (
        told
    )
    assert "LocalQueue grey does not exist" not in told
    lab.config("trainer:warnings", '{"PT205": "error"}')
    refused = lab.preview(ok=False).out
    assert "PT205" in refused and "not created or changed" in refused
    until(lambda: lab.jobs() == {})
