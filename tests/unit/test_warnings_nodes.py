"""What nodes, the tolerations of flavors and Karpenter do to the Pods of a job."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.kueue.queue_state import Queues, complete_queues
from pulumi_trainer.provider.trainer.admission.warnings import gpu_taints
from warnings_support import Document, found, job, runtime, step

TORCH: Document = {"torch": {}}
MAINTENANCE = {"key": "maint", "value": "x", "effect": "NoSchedule"}
GPU = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
TEAM = {"key": "team", "value": "nlp", "effect": "NoSchedule"}
TOLERATES_GPU = {"key": "nvidia.com/gpu", "operator": "Exists"}


def node(name: str, *taints: Document, gpus: int = 8, **labels: str) -> Document:
    allocatable = {"cpu": "96", "memory": "1Ti", "pods": "110"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"gpu": "h100", "rack": "r1", "kubernetes.io/hostname": name, **labels}},
        "spec": {"taints": [*taints]},
        "status": {"allocatable": allocatable},
    }


def kueue(kind: str, name: str, **spec: Any) -> Document:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec}


def group(resources: Sequence[str], *flavors: str) -> Document:
    quotas = [{"name": name, "nominalQuota": "4Ti"} for name in resources]
    return {
        "coveredResources": [*resources],
        "flavors": [{"name": each, "resources": copy.deepcopy(quotas)} for each in flavors],
    }


def queue(*groups: Document) -> list[Document]:
    return [
        kueue("LocalQueue", "q", clusterQueue="cq"),
        kueue("ClusterQueue", "cq", namespaceSelector={}, resourceGroups=[*groups]),
    ]


ALL = ("cpu", "memory", "nvidia.com/gpu")


def asking(gpus: int = 8, label: str = "q") -> Document:
    limits = {"cpu": 4, "memory": "640Gi"} | ({"nvidia.com/gpu": gpus} if gpus else {})
    given = job({"numNodes": 2, "command": ["torchrun", "train.py"], "resourcesPerNode": {"limits": limits}})
    if label:
        given["metadata"]["labels"] = {QUEUE: label}
    return given


def told(documents: Sequence[Document], train_job: Document, *codes: str, **pod: Any) -> list[str]:
    mode = pod.pop("mode", "jobset")
    given = runtime(TORCH, step(pod=pod))
    known = {"queues": complete_queues(documents), "taints": gpu_taints(documents)}
    warned = found(given, copy.deepcopy(train_job), mode=mode, **known)
    return [str(each) for each in warned if each.code in (codes or ("PT302",))]


def topology(*levels: str) -> list[Document]:
    return [
        kueue("Topology", "dc", levels=[{"nodeLabel": level} for level in levels]),
        kueue("ResourceFlavor", "h100", nodeLabels={"gpu": "h100"}, topologyName="dc"),
        *queue(group(ALL, "h100")),
    ]


PLAIN = [kueue("ResourceFlavor", "h100", nodeLabels={"gpu": "h100"}), *queue(group(ALL, "h100"))]


@pytest.mark.parametrize("mode", ["trainer", "jobset"])
@pytest.mark.parametrize(
    ("objects", "does"),
    [
        (PLAIN, "such as maint=x:NoSchedule. Hint"),
        (
            topology("rack"),
            "Up to 0.19 Kueue ignores taints in a topology without kubernetes.io/hostname, admits the job",
        ),
        (topology("rack", "kubernetes.io/hostname"), "Kueue checks the taints of nodes in a topology by"),
    ],
)
@pytest.mark.parametrize("gpus", [8, 0])
def test_all_nodes_of_the_flavor_are_tainted(objects: list[Document], does: str, gpus: int, mode: str) -> None:
    tainted = [*objects, node("a", MAINTENANCE, gpus=gpus), node("b", MAINTENANCE, gpus=gpus)]
    (warned,) = told(tainted, asking(gpus), mode=mode)
    assert "all 2 nodes have taints that it does not tolerate" in warned and does in warned
    assert told(tainted, asking(gpus), mode=mode, tolerations=[{"key": "maint", "operator": "Exists"}]) == []
    one_free = [*objects, node("a", MAINTENANCE, gpus=gpus), node("b", gpus=gpus), node("c", gpus=gpus)]
    assert told(one_free, asking(gpus), mode=mode) == []


def test_tainted_nodes_of_a_job_without_a_queue() -> None:
    nodes = [node("a", GPU, gpus=8), node("b", GPU, gpus=8)]
    (warned,) = told(nodes, asking(0, label=""))
    assert "all 2 nodes have taints that it does not tolerate, such as nvidia.com/gpu:NoSchedule" in warned
    assert told([*nodes, node("c", gpus=0), node("d", gpus=0)], asking(0, label="")) == []
    warned_once = told(nodes, asking(8, label=""), "PT111", "PT302")
    assert [each[:5] for each in warned_once] == ["PT111"], "one warning for one cause"


def test_taints_that_come_and_go_with_the_state_of_a_node() -> None:
    cordoned = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    assert told([*topology("rack"), node("a", cordoned), node("b", cordoned)], asking()) == []


def flavor(*tolerations: Document) -> list[Document]:
    return [kueue("ResourceFlavor", "h100", nodeLabels={"gpu": "h100"}, tolerations=[*tolerations])]


TOLERATES_TEAM = {"key": "team", "operator": "Equal", "value": "nlp", "effect": "NoSchedule"}


def test_the_tolerations_of_a_flavor_replace_those_of_the_runtime() -> None:
    nodes = [node("a", GPU, TEAM), node("b", GPU, TEAM)]
    objects = [*flavor(TOLERATES_TEAM), *queue(group(ALL, "h100"))]
    for known in ([*objects, *nodes], objects):
        (warned,) = told(known, asking(), "PT302", "PT303", tolerations=[TOLERATES_GPU], mode="trainer")
        effect = "no node of the flavor takes the Pods" if nodes[0] in known else "the Pods may find no node"
        assert "without nvidia.com/gpu:any effect: " + effect in warned
        assert told(known, asking(), "PT302", "PT303", tolerations=[TOLERATES_GPU]) == []
        assert told(known, asking(label="other"), "PT303", tolerations=[TOLERATES_GPU], mode="trainer") == []


@pytest.mark.parametrize(
    ("objects", "tolerations"),
    [
        ([*flavor(), *queue(group(ALL, "h100"))], [TOLERATES_GPU]),
        ([*flavor(TOLERATES_TEAM, TOLERATES_GPU), *queue(group(ALL, "h100"))], [TOLERATES_GPU]),
        ([*flavor(TOLERATES_TEAM), *queue(group(ALL, "h100"))], []),
        ([*flavor(TOLERATES_TEAM), *queue(group(ALL, "h100"))], Unknown("t")),
        ([*flavor(TOLERATES_TEAM), *queue(group(ALL, "h100")), node("a", TEAM)], [TOLERATES_GPU]),
        (
            [
                *flavor(TOLERATES_TEAM), kueue("ResourceFlavor", "cpu", tolerations=[TOLERATES_GPU]),
                *queue(group(ALL[2:], "h100"), group(ALL[:2], "cpu")),
            ],
            [TOLERATES_GPU],
        ),
    ],
)  # fmt: skip
def test_flavors_that_lose_no_toleration_that_counts(objects: list[Document], tolerations: Any) -> None:
    assert told(objects, asking(), "PT303", tolerations=tolerations, mode="trainer") == []


@pytest.mark.parametrize(
    ("container", "noted"),
    [
        ({"resources": {"limits": {"rdma/hca_shared": 1}}}, True),
        ({"resources": {"limits": {"nvidia.com/hostdev": 8}}, "securityContext": {"privileged": False}}, True),
        ({"resources": {"limits": {"rdma/ib": 1}}, "securityContext": {"capabilities": {"add": ["SYS_NICE"]}}}, True),
        ({"resources": {"limits": {"rdma/ib": 1}}, "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}, False),
        ({"resources": {"limits": {"rdma/ib": 1}}, "securityContext": {"privileged": True}}, False),
        ({"resources": {"limits": {"rdma/ib": 1}}, "securityContext": Unknown("s")}, False),
        ({"resources": {"limits": {"vpc.amazonaws.com/efa": 32}}}, False),
        ({"resources": {"limits": {"nvidia.com/gpu": 8}}}, False),
    ],
)
def test_rdma_needs_locked_memory(container: Document, noted: bool) -> None:
    warned = [w for w in found(runtime(TORCH, step(container=container)), job({})) if w.code == "PT304"]
    assert len(warned) == noted and all(w.is_note for w in warned)


POOL = {"karpenter.sh/nodepool": "gpu"}


def test_nodes_that_karpenter_may_replace() -> None:
    def noted(known: Sequence[Document], selector: Document | None = None, **annotations: str) -> int:
        given = step(pod={"nodeSelector": selector or {}})
        given["template"]["spec"]["template"]["metadata"] = {"annotations": annotations}
        warned = [w for w in found(runtime(TORCH, given), job({}), queues=complete_queues(known)) if w.code == "PT305"]
        assert all(w.is_note for w in warned)
        return len(warned)

    assert noted([node("a", **POOL), node("b", **POOL)]) == 1
    assert noted([node("a", **POOL), node("b", **{**POOL, "gpu": "a10"})], {"gpu": "h100"}) == 1
    assert noted([node("a", **POOL), node("b")]) == noted([node("a")]) == noted([]) == 0
    assert noted([], POOL) == 1
    assert noted([], POOL, **{"karpenter.sh/do-not-disrupt": "true"}) == 0
    assert noted([], POOL, **{"karpenter.sh/do-not-disrupt": "false"}) == 1
    given = runtime(TORCH, step(pod={"nodeSelector": Unknown("n")}))
    assert not any(w.code == "PT305" for w in found(given, job({}), queues=Queues()))
