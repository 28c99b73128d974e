"""The memory of a GPU of the flavors and nodes that a job may get."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi_trainer.provider.jobs.gpu_memory import Range, Training
from pulumi_trainer.provider.kubernetes.errors import Invalid
from pulumi_trainer.provider.kueue.flavor_memory import MEMORY, memory_by_place, memory_of_part, read_memory
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.kueue.podsets import PodSet
from pulumi_trainer.provider.trainer.admission.warnings import Queues, complete_queues
from warnings_support import found, job, runtime

GPU, GIB = "nvidia.com/gpu", 2**30
PODS = PodSet("node", "", 1, {"spec": {"containers": []}})


def kueue(kind: str, name: str, **more: Any) -> dict[str, Any]:
    about = {"name": name, "annotations": more.pop("annotations", {})}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {**about, **more.pop("at", {})}, **more}


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": {"allocatable": {GPU: "8"}}}


def queues(*flavors: dict[str, Any], nodes: tuple[dict[str, Any], ...] = (), quota: Any = 8) -> Queues:
    quotas = [
        {"name": each["metadata"]["name"], "resources": [{"name": GPU, "nominalQuota": quota}]} for each in flavors
    ]
    groups = [{"coveredResources": [GPU], "flavors": quotas}]
    queue = kueue("ClusterQueue", "all", spec={"resourceGroups": groups, "namespaceSelector": {}})
    local = kueue("LocalQueue", "all", at={"namespace": "default"}, spec={"clusterQueue": "all"})
    return complete_queues([*flavors, queue, local, *nodes])


def flavor(name: str, memory: str = "", **labels: str) -> dict[str, Any]:
    annotations = {MEMORY: memory} if memory else {}
    return kueue("ResourceFlavor", name, annotations=annotations, spec={"nodeLabels": labels})


def memory(known: Queues, pods: PodSet = PODS) -> dict[str, float]:
    behind = known.find("ClusterQueue", "all")
    return {name: size / GIB for name, size in memory_by_place(pods, GPU, behind, known).items()}


LABELLED = {"nvidia.com/gpu.memory": "81920"}


@pytest.mark.parametrize(
    ("given", "nodes", "gib"),
    [
        (flavor("h100", "80Gi"), (), 80),
        (flavor("h100", "80Gi", gpu="h100"), (node("a", gpu="h100", **{"nvidia.com/gpu.memory": "40960"}),), 80),
        (flavor("h100", "much"), (), None),
        (flavor("h100", **LABELLED), (), 80),
        (flavor("h100", **{"karpenter.k8s.aws/instance-gpu-memory": "24576"}), (), 24),
        (flavor("h100", **{"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}), (), 80),
        (flavor("h100", **{"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}), (), 5),
        (flavor("h100", **{"cloud.google.com/gke-accelerator": "nvidia-a100-80gb"}), (), 80),
        (flavor("h100", **{"cloud.google.com/gke-accelerator": "nvidia-l4"}), (), None),
        (flavor("h100", gpu="h100"), (node("a", gpu="h100", **LABELLED), node("b", gpu="l4")), 80),
        (flavor("h100", gpu="h100"), (node("a", gpu="h100", **LABELLED), node("b", gpu="h100")), None),
        (flavor("h100"), (node("a", **LABELLED),), None),
    ],
)
def test_what_states_the_memory_of_a_flavor(given: Any, nodes: Any, gib: int | None) -> None:
    """The annotation first, then labels of the flavor, then those of its nodes: all that have GPUs, or it is not known."""
    assert memory(queues(given, nodes=nodes)) == ({} if gib is None else {"h100": gib})


def test_flavors_that_a_job_cannot_get() -> None:
    known = queues(flavor("h100", "80Gi", gpu="h100"), flavor("l4", "24Gi", gpu="l4"))
    assert memory(known) == {"h100": 80, "l4": 24}
    selecting = PodSet("node", "", 1, {"spec": {"nodeSelector": {"gpu": "h100"}}})
    assert memory(known, selecting) == {"h100": 80}
    assert memory(queues(flavor("h100", "80Gi"), quota=0)) == {}
    assert memory_by_place(PODS, "nvidia.com/mig-1g.10gb", known.find("ClusterQueue", "all"), known) == {}


def test_nodes_without_a_queue() -> None:
    nodes = node("a", gpu="h100", **LABELLED), node("b", gpu="l4", **{"nvidia.com/gpu.memory": "23034"})
    known = complete_queues(nodes)
    assert memory_by_place(PODS, GPU, None, known) == {"": 80 * GIB}
    selecting = PodSet("node", "", 1, {"spec": {"nodeSelector": {"gpu": "l4"}}})
    assert memory_by_place(selecting, GPU, None, known) == {"": 23034 * 2**20}
    assert memory_by_place(PODS, GPU, None, Queues()) == {}


def test_parts_of_a_gpu() -> None:
    assert memory_of_part("nvidia.com/mig-3g.40gb") == 40 * GIB
    assert memory_of_part(GPU) is None


@pytest.mark.parametrize("given", ["80", "80GB", "", None, 80, "-80Gi", "1000Ti"])
def test_amounts_that_are_no_memory_of_a_gpu(given: Any) -> None:
    with pytest.raises(Invalid, match="must be the memory of one GPU"):
        read_memory(given)


def about(
    known: Queues,
    limits: dict[str, Any],
    parameters: float,
    nodes: int = 1,
    queue: str = "all",
    precision: Any = "bf16",
) -> list[str]:
    """The warnings and notes about memory of a full training on GPUs that share nothing."""
    training = Training(Range(parameters, parameters), "given", precision=precision, sharding="ddp")
    given = job({"numNodes": nodes, "resourcesPerNode": {"limits": limits}})
    given["metadata"]["labels"] = {QUEUE: queue} if queue else {}
    warned = found(runtime({"torch": {}}), given, queues=known, training=training)
    return [str(each) for each in warned if each.code in ("PT312", "PT313")]


def test_a_flavor_that_is_too_small_beside_one_that_is_not() -> None:
    known = queues(flavor("h100", "80Gi", gpu="h100"), flavor("l4", "24Gi", gpu="l4"))
    (warned,) = about(known, {GPU: 4}, 7e9, nodes=2)
    assert (
        "8 GPUs with ddp: each GPU needs 52.2 GiB" in warned
        and "but a GPU of flavor l4 has 24 GiB. Hint: this fits:" in warned
    )
    sharded = "FSDP or ZeRO-3 on the 8 GPUs (6.5 GiB without activations)"
    assert f"flavors=['h100'] without activations, or {sharded}" in warned and "h100 has" not in warned
    (warned,) = about(known, {GPU: 1}, 70e9)
    assert (
        "a GPU of flavor h100 has 80 GiB, a GPU of flavor l4 has 24 GiB. Hint: this fits: 32 GPUs with FSDP or ZeRO-3"
        in warned
    )
    assert about(known, {GPU: 1}, 1e9) == []
    assert about(queues(flavor("h100", "80Gi")), {GPU: 1}, 8e9) == []
    (noted,) = about(queues(flavor("h100", "80Gi")), {GPU: 1}, 8e9, precision=None)
    assert (
        "PT313" in noted
        and "59.6 to 134.1 GiB" in noted
        and "and a GPU of flavor h100 has 80 GiB. Hint: this fits: 4 GPUs" in noted
    )


def test_a_part_of_a_gpu_and_a_job_without_a_queue() -> None:
    (warned,) = about(Queues(), {"nvidia.com/mig-1g.10gb": 1}, 7e9, queue="")
    assert "but a GPU of its nodes has 10 GiB" in warned and "full training in bf16 with adamw, 1 GPU" in warned
    labelled = complete_queues([node("a", **LABELLED)])
    (warned,) = about(labelled, {GPU: 1}, 13e9, queue="")
    assert (
        warned.startswith("PT312: spec.trainer: 13B parameters (given)") and "a GPU of its nodes has 80 GiB" in warned
    )
    assert about(labelled, {"cpu": 1}, 13e9, queue="") == []


def test_a_queue_that_is_not_known() -> None:
    (noted,) = about(complete_queues([node("a", **LABELLED)]), {GPU: 1}, 13e9, queue="elsewhere")
    assert noted.startswith("PT313") and "the memory of the GPUs is not known" in noted
