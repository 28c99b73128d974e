"""PodGroups of a program's own, and the programs of docs/gangs.md, on a real control plane; the table of bad objects gets the
same verdict from the real server as from us."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import JOB
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client
from pulumi_trainer.provider.trainer.admission.podgroups import refusals
from pulumi_trainer.provider.trainer.kinds import JOBSET, POD_GROUP
from pulumi_trainer.provider.trainer.labels import MADE_BY

from tests.documented import blocks
from tests.engine.conftest import pulumi_home  # noqa: F401 (a fixture)
from tests.unit.podgroups_support import BAD, GOOD
from tools.cluster.build import PLUGIN, built

from .jobs import send, until
from .test_owners import second
from .test_up import Lab, lab  # noqa: F401 (a fixture)

PROGRAMS = [block.text for block in blocks("docs/gangs.md", __file__)]


@pytest.mark.parametrize("name", [*GOOD, *BAD])
def test_the_server_says_the_same(root: Client, namespace: str, name: str) -> None:
    document = GOOD[name] if name in GOOD else BAD[name][0]
    document = json.loads(json.dumps(document))
    document["metadata"]["namespace"] = namespace
    query = {"fieldManager": "test", "dryRun": "All", "fieldValidation": "Strict"}
    try:
        send(root, "POST", POD_GROUP.path(namespace), query, document)
        taken = True
    except ApiError as error:
        assert error.code in (400, 422), error
        taken = False
    assert taken == (name in GOOD) == (refusals(document) == [])


@pytest.fixture
def stack(lab: Lab) -> Iterator[Lab]:  # noqa: F811
    """With the plugin of pulumi-kubernetes."""
    plugin = built([PLUGIN], print)[PLUGIN] / "bin"
    lab.env["PATH"] = os.pathsep.join([str(plugin), lab.environment["PATH"]])
    yield lab


def groups(client: Client, namespace: str) -> dict[str, Any]:
    return {each["metadata"]["name"]: each["spec"] for each in client.list(POD_GROUP, namespace)[0]}


def test_the_page_has_its_programs() -> None:
    assert len(PROGRAMS) == 5


def test_a_gang_of_four_nodes(stack: Lab) -> None:
    stack.program(PROGRAMS[0], "")
    assert "warning" not in (up := stack.up()).out, up
    assert stack.outputs()["phase"] == "Succeeded"
    (name,) = groups(stack.root_client, stack.namespace)
    spec = groups(stack.root_client, stack.namespace)[name]
    assert spec == {
        "minMember": 4,
        "minResources": {"memory": "256Gi", "nvidia.com/gpu": "32"},
        "scheduleTimeoutSeconds": 60,
    }
    (jobset,) = stack.root_client.list(JOBSET, stack.namespace)[0]
    assert jobset["metadata"]["name"] == name
    stack.destroy()
    assert groups(stack.root_client, stack.namespace) == {}


def test_a_gang_of_each_stage(stack: Lab) -> None:
    stack.program(PROGRAMS[1], "")
    stack.up()
    found = groups(stack.root_client, stack.namespace)
    assert {name: spec["minMember"] for name, spec in found.items()} == {"staged.prepare": 1, "staged.node": 4}
    (jobset,) = stack.root_client.list(JOBSET, stack.namespace)[0]
    assert jobset["status"]["terminalState"] == "Completed"


@pytest.mark.parametrize("program", PROGRAMS[2:4], ids=["volcano", "kai"])
def test_runtimes_of_other_schedulers(stack: Lab, program: str) -> None:
    """Neither is installed here; what becomes of them is checked without one (tests/unit)."""
    job = 'trainer.TrainJob("job", runtime=runtime, trainer=trainer.Trainer(image="trainer:1", command=["torchrun", "train.py"]))'
    text = program.replace("trainer.ClusterTrainingRuntime(", "runtime = trainer.ClusterTrainingRuntime(", 1)
    stack.program(f"{text}\n{job}\n", "")
    out = stack.preview("--diff", ok="VolcanoPolicy" not in program).out
    if "VolcanoPolicy" in program:
        assert (
            "the cluster has no Volcano (scheduling.volcano.sh/v1beta1). Hint: install Volcano before the job" in out
        ), out
        assert "PT1" not in out and re.search(r'queue-name\s*: "research"', out), out
    else:
        assert re.search(r'schedulerName\s*: "kai-scheduler"', out) and "PT1" not in out, out
        assert out.count('kai.scheduler/queue: "research"') == 4, out  # of JobSet and pods, in the runtime and the job


def test_a_podgroup_of_its_own(stack: Lab, root: Client, cluster: Any) -> None:
    """Made, unchanged, changed in place, gone; its pods start together."""
    stack.env["KUBECONFIG"] = str(cluster.kubeconfig)
    stack.config("trainer:kubeconfig", str(cluster.kubeconfig))
    stack.config("kubernetes:namespace", stack.namespace)
    stack.program(PROGRAMS[4], "")
    stack.up()
    assert groups(root, stack.namespace) == {"sweep": {"minMember": 2, "minResources": {"nvidia.com/gpu": 2}}}
    until(lambda: (root.get(JOB, stack.namespace, "sweep") or {}).get("status", {}).get("succeeded") == 2)
    stack.up("--expect-no-changes")
    stack.program(PROGRAMS[4].replace("min_member=2", "min_member=1"), "")
    stack.up()
    assert groups(root, stack.namespace)["sweep"]["minMember"] == 1
    stack.program(PROGRAMS[4].replace("min_member=2", "min_member=0, min_resources_={}"), "")
    refused = stack.preview(ok=False).out
    assert "2 problems" in refused and "unknown field. Hint: did you mean min_resources?" in refused, refused
    assert ".min_member: " in refused, refused
    stack.destroy()
    assert groups(root, stack.namespace) == {}


def test_a_podgroup_of_another_stack_or_of_a_job_is_not_taken(stack: Lab, root: Client) -> None:
    own = 'trainer.CoschedulingPodGroup("gang", min_member=2)\n'
    head = "import pulumi\nimport pulumi_trainer as trainer\n"
    stack.program(own, head)
    stack.up()
    stack.up("--expect-no-changes")
    second(stack)
    stack.program(own, head)
    refused = stack.preview(ok=False).out
    assert (
        "PodGroup gang exists since" in refused
        and "belongs to the stack organization/lab/test. Hint: choose" in refused
    )
    take = f"kubectl annotate --overwrite podgroups.scheduling.x-k8s.io -n {stack.namespace} gang"
    assert f"{take} pulumi-trainer.dev/made-by=organization/lab/second" in refused
    stack.up(ok=False)
    given = {"metadata": {"annotations": {MADE_BY: "organization/lab/second"}}}
    root.patch(POD_GROUP, stack.namespace, "gang", given)
    stack.up()
    stack.stack = "test"
    assert "belongs to the stack organization/lab/second" in stack.preview(ok=False).out
    stack.up(ok=False)
    by_hand = {"apiVersion": POD_GROUP.api_version, "kind": "PodGroup", "spec": {"minMember": 3}}
    root.create(POD_GROUP, {**by_hand, "metadata": {"name": "hand", "namespace": stack.namespace}})
    stack.stack = "second"
    stack.program(own + own.replace("gang", "hand"), head)
    assert (
        "PodGroup hand exists since" in (shown := stack.preview(ok=False).out)
        and "was not created by this stack" in shown
    )
    assert groups(root, stack.namespace)["hand"] == {"minMember": 3}
    gang = """
runtime = trainer.ClusterTrainingRuntime(
    "gang", ml_policy=trainer.PlainPolicy(num_nodes=1), pod_group_policy=trainer.CoschedulingPolicy(),
    template=trainer.JobSetTemplate(replicated_jobs=[trainer.ReplicatedJob(
        name="node", pod_spec={"restart_policy": "Never", "scheduler_name": "scheduler-plugins-scheduler",
                               "containers": [{"name": "node", "image": "trainer:1"}]},
    )]),
)
trainer.TrainJob("hand", name="hand", runtime=runtime)
"""
    stack.program(own + gang, head)
    assert "PodGroup/hand: exists and was not created by this program" in (shown := stack.preview(ok=False).out), shown
    stack.up(ok=False)
    assert groups(root, stack.namespace)["hand"] == {"minMember": 3}
