"""Each warning: a document that is warned of, and the smallest change that makes it right."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from pulumi_trainer import runtimes
from pulumi_trainer.program.queue_lints import ABOUT_QUEUES
from pulumi_trainer.provider.jobs.gpu_memory import Range, Training, read_parameters
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kueue.flavor_memory import MEMORY
from pulumi_trainer.provider.kueue.labels import MAX_EXECUTION, PRIORITY, QUEUE
from pulumi_trainer.provider.kueue.prices import BUDGET, PRICE
from pulumi_trainer.provider.kueue.queue_state import REFERENCED
from pulumi_trainer.provider.trainer.admission.warnings import (
    RULES,
    Queues,
    complete_queues,
    gpu_taints,
    queue_warnings,
)
from pulumi_trainer.provider.trainer.pipeline import Disruptions
from pulumi_trainer.provider.trainer.pipeline.disruptions import DISRUPTED, RESTART, STOPPED
from warnings_support import Document, codes, found, job, patched, runtime, step

from tests.trainer import default_runtime, default_train_job, render, warnings

TORCH: Document = {"torch": {}}
GPUS = {"limits": {"nvidia.com/gpu": 4, "memory": "64Gi"}}
TORCHRUN = ["torchrun", "train.py"]
SHM = patched(
    volumes=[{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    containers=[{"name": "node", "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}],
)
SHARED: Document = {
    "container": {"volumeMounts": [{"name": "data", "mountPath": "/workspace"}]},
    "pod": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
}
SCRATCH: Document = {**SHARED, "pod": {"volumes": [{"name": "data", "emptyDir": {}}]}}
"""The arguments of a step with a volume that its Pods share, and of one with a volume of each Pod."""
MPI = {"mpi": {"numProcPerNode": 1, "mpiImplementation": "OpenMPI", "sshAuthMountPath": "/root/.ssh"}}
SSHD = {"command": ["/usr/sbin/sshd"], "args": ["-De"]}
LAUNCHER_ENDS = {"operator": "All", "targetReplicatedJobs": ["launcher"]}
TUNE = {"command": ["tune", "run"]}
BOOTSTRAP = ["python3", "/etc/pulumi-trainer/code/bootstrap.py"]
CHECKPOINT = [{"name": "TRAINER_CHECKPOINT_DIR", "value": "/c"}, {"name": "TRAINER_CHECKPOINT_GRACE", "value": "300"}]
SAVING: Document = {"command": BOOTSTRAP, "env": CHECKPOINT}
TOLERANT = {"rules": [DISRUPTED, STOPPED]}
TAINTS = {
    "node a": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
    "node b": [{"key": "own", "effect": "NoExecute"}],
}

Change = Callable[[Document, Document, dict[str, Any]], None]
Case = tuple[str, Document, Document, dict[str, Any], Change]


def trainer(train_job: Document) -> Document:
    return train_job["spec"]["trainer"]


def replicated(given: Document, place: int = 0) -> Document:
    return given["spec"]["template"]["spec"]["replicatedJobs"][place]


def pod(given: Document, place: int = 0) -> Document:
    return replicated(given, place)["template"]["spec"]["template"]["spec"]


def counted(**counts: int) -> Document:
    """A step with numbers of Pods."""
    made = step()
    made["template"]["spec"].update(counts)
    return made


def tolerant(**pod: Any) -> Document:
    """A runtime of which disruptions restart a job without using its restarts."""
    given = runtime(TORCH, step(pod={"restartPolicy": "Never", "terminationGracePeriodSeconds": 310, **pod}))
    tolerate(given)
    return given


def tolerate(given: Document, *_: Any) -> None:
    replicated(given)["template"]["spec"]["podFailurePolicy"] = TOLERANT
    pod(given)["restartPolicy"] = "Never"
    given["spec"]["template"]["spec"]["failurePolicy"] = {"maxRestarts": 3, "rules": [RESTART]}


def with_claim(nodes: int) -> tuple[Document, Document]:
    template = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    given = runtime(TORCH, step(container=mounts), volumeClaimPolicies=[{"templates": [template]}])
    return given, job({"numNodes": nodes, "command": TORCHRUN})


def mpi_runtime(policy: dict[str, Any]) -> Document:
    return runtime({**policy, "mpi": {**MPI["mpi"], **policy.get("mpi", {})}}, step(ancestor=""), step("launcher"))


def mounting(path: str) -> Document:
    claims = [{"templates": [{"metadata": {"name": "v"}, "spec": {}}]}]
    mounts = {"volumeMounts": [{"name": "v", "mountPath": path}]}
    return runtime(TORCH, step(container=mounts), volumeClaimPolicies=claims)


def claiming(name: str) -> Document:
    """A runtime whose nodes claim devices."""
    pod = {"resourceClaims": [{"name": name, "resourceClaimTemplateName": name}]}
    return runtime(TORCH, step(pod=pod, container={"resources": {"claims": [{"name": name}]}}))


def claimed(count: int, mapped: str = "", **more: Any) -> Queues:
    """The claims of `claiming`, and the class that Kueue's configuration maps; without one it is not known."""
    asked = {"deviceClassName": "gpus.example.com", "count": count, **more}
    spec = {"spec": {"devices": {"requests": [{"name": "all", "exactly": asked}]}}}
    known = [{"kind": "ResourceClaimTemplate", "metadata": {"name": "gpus", "namespace": "default"}, "spec": spec}]
    if mapped:
        resources = {"deviceClassMappings": [{"name": "gpus", "deviceClassNames": [mapped]}]}
        known.append({"kind": "Configuration", "apiVersion": "config.kueue.x-k8s.io/v1beta2", "resources": resources})
    return complete_queues(known)


def waiting() -> Document:
    """A job in a queue."""
    given = job({"command": TORCHRUN, "numProcPerNode": 4}, runtimePatches=SHM)
    given["metadata"]["labels"] = {QUEUE: "all"}
    return given


SIBLING = {
    "kind": "JobSet",
    "metadata": {"name": "other", "namespace": "default"},
    "spec": {"network": {"subdomain": "job"}},
}

SECOND = {"schedulerName": "scheduler-plugins-scheduler"}


def kueue(kind: str, name: str, namespace: str = "", **spec: Any) -> Document:
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name, **place}, "spec": spec}


def quota(flavor: str, gpus: int, **more: int) -> list[Document]:
    amounts = {"nvidia.com/gpu": gpus, "memory": "10Ti", **more}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()]
    return [{"coveredResources": [*amounts], "flavors": [{"name": flavor, "resources": resources}]}]


WHOLE = quota("h100", 16)
NAMED = {"matchLabels": {"kubernetes.io/metadata.name": "default"}}
QUEUES = [
    *(kueue("LocalQueue", name, "default", clusterQueue=name) for name in ("all", "far", "round", "half")),
    kueue("LocalQueue", "lost", "default", clusterQueue="nobody"),
    kueue("LocalQueue", "all", "other", clusterQueue="all"),
    kueue("ClusterQueue", "all", namespaceSelector=NAMED, resourceGroups=quota("h100", 16)),
    kueue("ClusterQueue", "far", namespaceSelector={}, resourceGroups=quota("far", 16)),
    kueue("ClusterQueue", "round", namespaceSelector={}, cohortName="a", resourceGroups=quota("h100", 16)),
    kueue("ClusterQueue", "half", namespaceSelector={}, resourceGroups=quota("h100", 16) + quota("gone", 16)),
    kueue("Cohort", "a", parentName="b"), kueue("Cohort", "b", parentName="a"),
    kueue("ResourceFlavor", "h100", nodeLabels={"gpu": "h100"}), kueue("ResourceFlavor", "far", nodeLabels={"gpu": "b200"}),
    {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "labels": {"gpu": "h100"}}},
    kueue("WorkloadPriorityClass", "low"), {**kueue("WorkloadPriorityClass", "high"), "value": 100},
    kueue("LocalQueue", "busy", "default", clusterQueue="busy"),
    kueue(
        "ClusterQueue", "busy", namespaceSelector={}, resourceGroups=quota("h100", 16),
        preemption={"withinClusterQueue": "LowerPriority"},
    ),
    kueue("LocalQueue", "placed", "default", clusterQueue="placed"),
    kueue("LocalQueue", "held", "default", clusterQueue="held"),
    kueue("ClusterQueue", "held", namespaceSelector={}, resourceGroups=quota("h100", 16), stopPolicy="Hold"),
    kueue("LocalQueue", "wide", "default", clusterQueue="wide"),
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "spec": {"clusterQueue": "all"}, "metadata": {
            "name": "earlier", "namespace": "default", "annotations": {"pulumi-trainer.dev/renamed-to": "all"},
        },
    },
    kueue("ClusterQueue", "wide", namespaceSelector={}, resourceGroups=quota("lone", 17)),
    kueue("ResourceFlavor", "lone", nodeLabels={"host": "p0"}),
    kueue("LocalQueue", "all", "small", clusterQueue="open"),
    kueue("ClusterQueue", "open", namespaceSelector={}, resourceGroups=quota("h100", 16)),
    {
        "kind": "ResourceQuota", "apiVersion": "v1", "metadata": {"name": "pods", "namespace": "small"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "8"}},
    },
    kueue("ClusterQueue", "placed", namespaceSelector={}, resourceGroups=quota("placed", 48, pods=64)),
    kueue("ResourceFlavor", "placed", nodeLabels={"gpu": "placed"}, topologyName="dc"),
    kueue("Topology", "dc", levels=[{"nodeLabel": "rack"}, {"nodeLabel": "host"}]),
    *(
        {
            "kind": "Node", "apiVersion": "v1",
            "metadata": {"name": f"p{i}", "labels": {"gpu": "placed", "rack": f"r{i // 2}", "host": f"p{i}"}},
            "status": {"allocatable": {"nvidia.com/gpu": "8", "memory": "1Ti", "cpu": "96"}},
        }
        for i in range(3)
    ),
]  # fmt: skip


def changed(kind: str, name: str, **spec: Any) -> Any:
    """Those queues, with one of them changed."""
    same = [d for d in QUEUES if (d["kind"], d["metadata"]["name"]) != (kind, name)]
    (one,) = [d for d in QUEUES if (d["kind"], d["metadata"]["name"]) == (kind, name)]
    return complete_queues([*same, {**one, "spec": {**one["spec"], **spec}}])


def shrunk(gpus: int) -> Any:
    """The queues with one that has 16 GPUs and a job that waits for 12, and a program that gives the queue so many."""
    container = {"name": "node", "resources": {"limits": {"nvidia.com/gpu": "12"}}}
    pods = {"name": "node", "count": 1, "template": {"spec": {"containers": [container]}}}
    there = [
        *QUEUES, kueue("LocalQueue", "shrunk", "default", clusterQueue="shrunk"),
        kueue("ClusterQueue", "shrunk", namespaceSelector={}, resourceGroups=quota("h100", 16)),
        kueue("Workload", "waits", "default", queueName="shrunk", podSets=[pods]),
    ]  # fmt: skip
    queue = kueue("ClusterQueue", "shrunk", namespaceSelector={}, resourceGroups=quota("h100", gpus))
    return Queues((queue,), below=complete_queues(there))


def beside(kind: str, name: str) -> Document:
    """Other documents of the set: one of a kind, or of each kind that Pods refer to (`*`)."""
    kinds = REFERENCED if kind == "*" else (kind,)
    return {"queues": complete_queues([{"apiVersion": "v1", "kind": k, "metadata": {"name": name}} for k in kinds])}


AFTER_DATASET = [{"name": "dataset-initializer", "status": "Complete"}]
AFTER_DATA = [{"name": "data", "status": "Complete"}]
UPSTREAM: Document = {"image": "ghcr.io/kubeflow/trainer/dataset-initializer:v2.3.0", **SHARED["container"]}
FETCHED = runtime(
    TORCH,
    step("dataset-initializer", "dataset-initializer", SHARED["pod"], called="dataset-initializer", container=UPSTREAM),
    step(**SHARED, dependsOn=AFTER_DATASET),
)


def without_waiting(given: Document) -> Document:
    given = copy.deepcopy(given)
    del given["spec"]["template"]["spec"]["replicatedJobs"][1]["dependsOn"]
    return given


CLAIMS = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]}
SHARING = runtime(
    TORCH,
    step(
        pod={"resourceClaims": [{"name": "gpus", "resourceClaimName": "one"}]},
        container={"resources": {"claims": [{"name": "gpus"}]}},
    ),
)
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}
GPU_NODES = {"nvidia.com/gpu.present": "true"}


def on_nodes(operator: str) -> Document:
    """An affinity to nodes with, or without, a label of GPUs."""
    expression = {"key": "nvidia.com/gpu.product", "operator": operator}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


READY = {"exec": {"command": ["ready"]}}
MESHED = {
    "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"istio-injection": "enabled"}},
}  # fmt: skip


def closed(rules: Document) -> Document:
    spec = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], **rules}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny"}, "spec": spec}


EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
TEAM = {"key": "team", "operator": "Equal", "value": "nlp", "effect": "NoSchedule"}


NAMED_OTHER = {"matchLabels": {"kubernetes.io/metadata.name": "other"}}


def configured(**settings: Any) -> Any:
    """Kueue's Configuration."""
    return Queues(({"kind": "Configuration", "metadata": {"name": "kueue-manager-config"}, **settings},))


def suspended(train_job: Document) -> Document:
    train_job["spec"]["suspend"] = True
    return train_job


def tolerating() -> Any:
    """The queues, with a flavor that tolerates one of the taints of its node."""
    taints = [{"key": key, "effect": "NoSchedule", "value": "nlp"} for key in ("team", "nvidia.com/gpu")]
    node = {"kind": "Node", "metadata": {"name": "n", "labels": {"gpu": "h100"}}, "spec": {"taints": taints}}
    return Queues((node,), below=changed("ResourceFlavor", "h100", tolerations=[TEAM]))


def priced(flavor: str, price: str, budget: str) -> Any:
    """The queues, with a price of a flavor, and a budget of the team of the queue `all`."""
    made = (
        kueue("ResourceFlavor", flavor, nodeLabels={"gpu": flavor}),
        kueue("LocalQueue", "all", "default", clusterQueue="all"),
    )
    for document, annotation, amount in zip(made, (PRICE, BUDGET), (price, budget), strict=True):
        document["metadata"]["annotations"] = {annotation: amount}
    return Queues(made, below=complete_queues(QUEUES))


def with_memory(memory: str) -> Any:
    """The queues, with the memory of a GPU of the flavor h100; empty for none."""
    flavor = kueue("ResourceFlavor", "h100", nodeLabels={"gpu": "h100"})
    flavor["metadata"]["annotations"] = {MEMORY: memory} if memory else {}
    return Queues((flavor,), below=complete_queues(QUEUES))


def sized(parameters: str) -> Training:
    """A full training in mixed precision, of which each GPU has all."""
    count = read_parameters(parameters) or 0
    return Training(Range(count, count), "given", precision="mixed", sharding="ddp")


def asking(nodes: int, gpu: str = "nvidia.com/gpu") -> Document:
    return {"numNodes": nodes, "resourcesPerNode": {"limits": {gpu: 8, "memory": "640Gi"}}}


def limited(train_job: Document, seconds: str) -> Document:
    """The job with a limit of its time in a queue."""
    train_job["metadata"]["labels"][MAX_EXECUTION] = seconds
    return train_job


def queued(
    queue: str = "all",
    nodes: int = 1,
    gpu: str = "nvidia.com/gpu",
    priority: str = "",
    level: str = "",
    namespace: str = "",
) -> Document:
    """A job of nodes of 8 GPUs in a queue."""
    document = job(asking(nodes, gpu), runtimePatches=copy.deepcopy(SHM))
    metadata = document["metadata"]
    metadata["labels"] = {k: v for k, v in ((QUEUE, queue), (PRIORITY, priority)) if v}
    metadata |= {"namespace": namespace} if namespace else {}
    if level:
        notes = {"metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": level}}}
        jobs = [{"name": "node", "template": {"spec": {"template": notes}}}]
        patch = {"manager": "a.b/c", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
        document["spec"]["runtimePatches"].insert(0, patch)
    return document


CASES: list[Case] = [
    ("PT101", runtime(TORCH), job({}, name="j" * 49), {}, lambda r, j, k: j["metadata"].update(name="j" * 48)),
    (
        "PT102",
        runtime(
            TORCH, step("data", "", pod=SECOND), step(dependsOn=[{"name": "data", "status": "Ready"}], pod=SECOND),
            gang={"coscheduling": {}},
        ),
        job({}), {"mode": "trainer"}, lambda r, j, k: replicated(r, 1).pop("dependsOn"),
    ),
    (
        "PT103",
        runtime(TORCH, step("data", ""), step(dependsOn=[{"name": "node", "status": "Ready"}])),
        job({}), {}, lambda r, j, k: replicated(r, 1)["dependsOn"][0].update(name="data"),
    ),
    ("PT104", runtime(TORCH), job({}), {"siblings": [SIBLING]}, lambda r, j, k: j["metadata"].update(namespace="mine")),
    (
        "PT105", runtime(TORCH), job({"numNodes": 2, "command": ["python3", "train.py"]}), {},
        lambda r, j, k: trainer(j).update(command=TORCHRUN),
    ),
    (
        "PT106", runtime(TORCH),
        job({"numProcPerNode": 2, "command": TORCHRUN, "resourcesPerNode": GPUS}, runtimePatches=SHM), {},
        lambda r, j, k: trainer(j).update(numProcPerNode=4),
    ),
    (
        "PT107", runtime(TORCH), job({}, runtimePatches=patched(containers=[{"name": "side"}])), {},
        lambda r, j, k: pod(r)["containers"].append({"name": "side", "image": "side:1"}),
    ),
    ("PT108", runtime({**TORCH, "numNodes": 2}), job(), {}, lambda r, j, k: j["spec"].update(trainer={})),
    (
        "PT109",
        runtime(TORCH, step(pod={"volumes": [{"name": "data", "emptyDir": {}}]})),
        job({}, runtimePatches=patched(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "d"}}])), {},
        lambda r, j, k: pod(r)["volumes"][0].update(name="other"),
    ),
    (
        "PT110", runtime({**TORCH, "numNodes": 2}, name="torchtune-llama3.2-1b"), job(dict(TUNE)), {},
        lambda r, j, k: r["spec"]["mlPolicy"].update(numNodes=1),
    ),
    (
        "PT111", runtime(TORCH), job({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}}), {"taints": TAINTS},
        lambda r, j, k: pod(r).update(tolerations=[{"key": "own", "operator": "Exists"}]),
    ),
    (
        "PT112", runtime(TORCH), job({"command": TORCHRUN, "resourcesPerNode": GPUS}), {},
        lambda r, j, k: j["spec"].update(runtimePatches=SHM),
    ),
    (
        "PT113", runtime(TORCH),
        job({"numNodes": 2, "command": TORCHRUN, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}}), {},
        lambda r, j, k: trainer(j)["resourcesPerNode"]["limits"].update(memory="8Gi"),
    ),
    (
        "PT114", runtime(TORCH, step(container={"ports": [{"containerPort": 80}, {"containerPort": 81}]})), job(), {},
        lambda r, j, k: pod(r)["containers"][0]["ports"][0].update(name="http"),
    ),
    ("PT115", runtime({"flux": {}}), job({}), {}, lambda r, j, k: trainer(j).update(numNodes=1)),
    (
        "PT116", runtime({**TORCH, "numNodes": 2}, name="torchtune-llama3.3-70b"),
        job({**TUNE, "args": ["model.lora_attn_modules=[q_proj]"]}), {},
        lambda r, j, k: r["spec"]["mlPolicy"].update(numNodes=1),
    ),
    (
        "PT117", mpi_runtime({"mpi": {"mpiImplementation": ""}}), job({}), {},
        lambda r, j, k: r["spec"]["mlPolicy"]["mpi"].update(mpiImplementation="OpenMPI"),
    ),
    (
        "PT118", runtime(None), job({"resourcesPerNode": {"limits": {"cpu": 1}}}), {},
        lambda r, j, k: r["spec"].update(mlPolicy={}),
    ),
    (
        "PT119",
        runtime(TORCH, step(container={"resources": {"limits": {"nvidia.com/gpu": 4}}})),
        job({"command": TORCHRUN, "resourcesPerNode": {"limits": {"cpu": 4}}}, runtimePatches=SHM), {},
        lambda r, j, k: trainer(j).update(numProcPerNode=4),
    ),
    ("PT120", runtime(TORCH, step("worker")), job({}), {}, lambda r, j, k: replicated(r).update(name="node")),
    (
        "PT121", runtime(TORCH, step(), step("more")), job({}), {},
        lambda r, j, k: replicated(r, 1)["template"].pop("metadata"),
    ),
    (
        "PT122", runtime(TORCH, step(ancestor="")), job({"image": "a:1"}), {},
        lambda r, j, k: replicated(r)["template"].update(step()["template"]),
    ),
    (
        "PT123",
        runtime(
            TORCH, step("dataset-initializer", "", called="dataset-initializer", **SHARED),
            step(**SHARED, dependsOn=AFTER_DATASET),
        ),
        job({}, initializer={"dataset": {"storageUri": "hf://a/b"}}), {},
        lambda r, j, k: replicated(r)["template"].update(
            metadata={"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "dataset-initializer"}}
        ),
    ),
    ("PT124", mpi_runtime({"numNodes": 4}), job({}), {}, lambda r, j, k: r["spec"]["mlPolicy"].update(numNodes=1)),
    ("PT125", runtime(TORCH), job({"numNodes": 0}), {}, lambda r, j, k: trainer(j).update(numNodes=1)),
    (
        "PT126", runtime(TORCH), job({"numProcPerNode": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}}), {},
        lambda r, j, k: trainer(j).update(numProcPerNode=1),
    ),
    (
        "PT127", runtime(TORCH), job({"numNodes": 2, "command": ["torchrun", "--rdzv-endpoint", "localhost:1", "a.py"]}), {},
        lambda r, j, k: trainer(j).update(numNodes=1),
    ),
    ("PT128", *with_claim(2), {}, lambda r, j, k: trainer(j).update(numNodes=1)),
    (
        "PT129", runtime(TORCH, gang={"volcano": {}}), job({}), {},
        lambda r, j, k: pod(r).update(schedulerName="volcano"),
    ),
    (
        "PT130", runtime(TORCH), job({"resourcesPerNode": {"requests": {"memory": "8Gi"}, "limits": {"memory": "4Gi"}}}),
        {}, lambda r, j, k: trainer(j)["resourcesPerNode"]["limits"].update(memory="8192Mi"),
    ),
    (
        "PT131", runtime(TORCH, step(container={"volumeMounts": [{"name": "data", "mountPath": "/data"}]})), job({}), {},
        lambda r, j, k: pod(r).update(volumes=[{"name": "data", "emptyDir": {}}]),
    ),
    (
        "PT132", runtime(TORCH, gang={"coscheduling": {}}), job({}), {},
        lambda r, j, k: pod(r).update(schedulerName="scheduler-plugins-scheduler"),
    ),
    (
        "PT133", runtime(TORCH, step(pod={"schedulerName": "kai-scheduler"}), gang={"volcano": {}}), job({}), {},
        lambda r, j, k: pod(r).update(schedulerName="our-volcano"),
    ),
    (
        "PT134", runtime(TORCH, step(pod={"terminationGracePeriodSeconds": 310})), job(SAVING), {"mode": "trainer"}, tolerate,
    ),
    (
        "PT135", tolerant(), job({**SAVING, "command": ["python3", "train.py"]}), {},
        lambda r, j, k: trainer(j).update(command=BOOTSTRAP),
    ),
    (
        "PT136", runtime(TORCH, step(pod={"terminationGracePeriodSeconds": 120})), job({"command": TORCHRUN}), {},
        lambda r, j, k: trainer(j).update(env=[{"name": "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "value": "110"}]),
    ),
    (
        "PT137", tolerant(), job(SAVING, runtimePatches=patched(terminationGracePeriodSeconds=60)), {},
        lambda r, j, k: j["spec"].pop("runtimePatches"),
    ),
    (
        "PT138", runtime(TORCH, ttlSecondsAfterFinished=60), job({}), {"mode": "trainer"},
        lambda r, j, k: k.update(mode="jobset"),
    ),
    (
        "PT139", runtime(TORCH, step(pod={"restartPolicy": "OnFailure"})), job({"numNodes": 2, "command": TORCHRUN}), {},
        lambda r, j, k: pod(r).update(restartPolicy="Never"),
    ),
    (
        "PT140", runtime(TORCH), job({}, activeDeadlineSeconds=9223372037), {},
        lambda r, j, k: j["spec"].update(activeDeadlineSeconds=9223372036),
    ),
    (
        "PT141", runtime(TORCH, step(pod={"tolerations": [{"key": "gpu", "operator": "Exists", "value": "true"}]})), job({}),
        {}, lambda r, j, k: pod(r)["tolerations"][0].pop("value"),
    ),
    (
        "PT142",
        runtime(TORCH, step(pod={"containers": [{"name": "node", "image": "a:1"}, {"name": "b", "image": "x/tensorboard:2"}]})),
        job({}), {},
        lambda r, j, k: pod(r).update(initContainers=[{**pod(r)["containers"].pop(), "restartPolicy": "Always"}]),
    ),
    (
        "PT143", runtime(TORCH, step(pod={"initContainers": [{"name": "logs", "image": "fluent/fluent-bit:3"}]})), job({}), {},
        lambda r, j, k: pod(r)["initContainers"][0].update(restartPolicy="Always"),
    ),
    (
        "PT144", runtime(MPI, step(ancestor="", container=SSHD), step("launcher")), job({"command": ["mpirun", "./pi"]}), {},
        lambda r, j, k: r["spec"]["template"]["spec"].update(successPolicy=LAUNCHER_ENDS),
    ),
    (
        "PT145", runtime(TORCH, step("data", "dataset-initializer", called="dataset-initializer", **SCRATCH),
            step(**SCRATCH, dependsOn=AFTER_DATA)),
        job({}, initializer={"dataset": {"storageUri": "hf://a/b"}}), {},
        lambda r, j, k: [pod(r, i).update(copy.deepcopy(SHARED["pod"])) for i in (0, 1)],
    ),
    (
        "PT146", runtime(TORCH, step(**SCRATCH), failurePolicy={"maxRestarts": 5}),
        job({"command": [*TORCHRUN, "--output_dir=/workspace/out"]}), {},
        lambda r, j, k: trainer(j)["command"].pop(),
    ),
    (
        "PT147", claiming("gpus"), job({"command": TORCHRUN}, runtimePatches=SHM), {"mode": "trainer", "queues": claimed(4)},
        lambda r, j, k: trainer(j).update(numProcPerNode=4),
    ),
    (
        "PT148", claiming("gpus"), job({"command": TORCHRUN, "resourcesPerNode": {"limits": {"cpu": 2}}}), {},
        lambda r, j, k: trainer(j).pop("resourcesPerNode"),
    ),
    (
        "PT149", runtime(TORCH), job({"command": TORCHRUN, "resourcesPerNode": {"limits": {"cpu": 32}}}), {},
        lambda r, j, k: trainer(j).update(numProcPerNode=1),
    ),
    (
        "PT151", mpi_runtime({"mpi": {"runLauncherAsNode": True}}), job({"numNodes": 2, "command": ["mpirun", "./pi"]}),
        {"mode": "trainer"}, lambda r, j, k: trainer(j).update(command=["mpirun", "--hostfile", "/etc/mpi/hostfile", "./pi"]),
    ),
    (
        "PT152", runtime(TORCH, step("data", "", ended={"ttlSecondsAfterFinished": 60}), step()), job({}), {},
        lambda r, j, k: replicated(r)["template"]["spec"].pop("ttlSecondsAfterFinished"),
    ),
    (
        "PT153", runtime(TORCH, step(pod={"activeDeadlineSeconds": 60})), job({}), {},
        lambda r, j, k: replicated(r)["template"]["spec"].update(backoffLimit=0),
    ),
    (
        "PT154", runtime(MPI, step(container=SSHD), step("launcher"), successPolicy=LAUNCHER_ENDS),
        job({"command": ["mpirun", "./pi"]}), {},
        lambda r, j, k: replicated(r)["template"].pop("metadata"),
    ),
    (
        "PT155", mpi_runtime({}), job({"image": "own:1"}), {},
        lambda r, j, k: pod(r)["containers"][0].update(image="own:1"),
    ),
    (
        "PT156", runtime(TORCH), job({"numProcPerNode": 0}), {},
        lambda r, j, k: j["spec"]["trainer"].update(numProcPerNode=1),
    ),
    (
        "PT161", runtime(TORCH), job({"numNodes": 2, "command": ["torchrun", "--nnodes=4", "train.py"]}), {},
        lambda r, j, k: trainer(j).update(command=["torchrun", "--nnodes", "1:4", "train.py", "--nnodes=4"]),
    ),
    (
        "PT162", runtime(TORCH, step(container={"env": [{"name": "LR", "value": "1"}]})),
        job({"env": [{"name": "LR", "value": "2"}]}), {},
        lambda r, j, k: trainer(j).update(env=[{"name": "LR", "value": "1"}]),
    ),
    (
        "PT163", runtime(TORCH, counted(parallelism=4, completions=1)), job({}), {},
        lambda r, j, k: replicated(r)["template"]["spec"].update(completions=4),
    ),
    (
        "PT164", mounting("//"), job({}), {},
        lambda r, j, k: pod(r)["containers"][0]["volumeMounts"][0].update(mountPath="/v"),
    ),
    (
        "PT165", runtime(TORCH), job({"resourcesPerNode": {"limits": {"memory": 16}}}), {},
        lambda r, j, k: trainer(j).update(resourcesPerNode={"limits": {"memory": "16Gi"}}),
    ),
    *(
        (code, runtime(TORCH, step(pod=refers)), job({}), beside(kind, "other"), lambda r, j, k: k.update(beside("*", "x")))
        for code, kind, refers in (
            ("PT166", "Secret", {"volumes": [{"name": "v", "secret": {"secretName": "x"}}]}),
            ("PT167", "ConfigMap", {"volumes": [{"name": "v", "configMap": {"name": "x"}}]}),
            ("PT168", "PersistentVolumeClaim", {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]}),
            ("PT169", "Secret", {"imagePullSecrets": [{"name": "x"}]}),
        )
    ),
    (
        "PT170",
        runtime(TORCH, step(pod={"nodeSelector": {"nvidia.com/gpu.present": "true"}, "tolerations": [TOLERATION]})), job({}),
        {}, lambda r, j, k: trainer(j).update(resourcesPerNode={"limits": {"nvidia.com/gpu": 1}}),
    ),
    (
        "PT171", FETCHED, job({}, initializer={"dataset": {"storageUri": "gs://team/data"}}), {},
        lambda r, j, k: j["spec"]["initializer"]["dataset"].update(storageUri="s3://team/data"),
    ),
    (
        "PT172", FETCHED, job({}, initializer={"dataset": {"storageUri": "hf://team/data@v1"}}), {},
        lambda r, j, k: j["spec"]["initializer"]["dataset"].update(storageUri="hf://team/data"),
    ),
    (
        "PT173", runtime(TORCH, step(pod=CLAIMS)), job({}), {},
        lambda r, j, k: pod(r)["containers"][0].update(resources={"claims": [{"name": "gpus"}]}),
    ),
    (
        "PT174", SHARING, job({"numNodes": 2, "numProcPerNode": 4, "command": TORCHRUN}), {},
        lambda r, j, k: trainer(j).update(numNodes=1),
    ),
    (
        "PT175", claiming("other"), job({"numProcPerNode": 4, "command": TORCHRUN}), {"queues": claimed(4)},
        lambda r, j, k: k.update(queues=Queues()),
    ),
    *(
        (code, runtime(TORCH), queued(**given), {"queues": shrunk(8) if code == "PT215" else complete_queues(QUEUES)}, change)
        for code, given, change in (
            ("PT201", {"queue": "lost"}, lambda r, j, k: k.update(queues=changed("LocalQueue", "lost", clusterQueue="all"))),
            ("PT202", {"gpu": "amd.com/gpu"}, lambda r, j, k: j["spec"].update(trainer=asking(1))),
            ("PT203", {"nodes": 3}, lambda r, j, k: trainer(j).update(numNodes=2)),
            ("PT204", {"queue": "far"}, lambda r, j, k: k.update(queues=changed("ResourceFlavor", "far", nodeLabels={}))),
            ("PT205", {"queue": "round"}, lambda r, j, k: k.update(queues=changed("Cohort", "b", parentName=""))),
            ("PT206", {"priority": "lo"}, lambda r, j, k: j["metadata"]["labels"].update({PRIORITY: "low"})),
            ("PT207", {"queue": "", "priority": "low"}, lambda r, j, k: j["metadata"]["labels"].update({QUEUE: "all"})),
            ("PT208", {"level": "rack"}, lambda r, j, k: j["spec"]["runtimePatches"].pop(0)),
            ("PT209", {"namespace": "other"}, lambda r, j, k: j["metadata"].update(namespace="default")),
            ("PT210", {"queue": "half"}, lambda r, j, k: k.update(queues=changed("ClusterQueue", "half", resourceGroups=WHOLE))),
            ("PT211", {"queue": "placed", "nodes": 3, "level": "rack"}, lambda r, j, k: trainer(j).update(numNodes=2)),
            ("PT212", {"queue": "al"}, lambda r, j, k: j["metadata"]["labels"].update({QUEUE: "all"})),
            ("PT213", {"queue": "held"}, lambda r, j, k: k.update(queues=changed("ClusterQueue", "held", stopPolicy="None"))),
            (
                "PT214", {"queue": "wide"},
                lambda r, j, k: k.update(queues=changed("ClusterQueue", "wide", resourceGroups=quota("lone", 16))),
            ),
            ("PT215", {"queue": "shrunk"}, lambda r, j, k: k.update(queues=shrunk(16))),
            ("PT216", {"queue": "earlier"}, lambda r, j, k: j["metadata"]["labels"].update({QUEUE: "all"})),
            ("PT217", {"queue": "busy"}, lambda r, j, k: j["metadata"]["labels"].update({PRIORITY: "high"})),
        )
    ),
    (
        "PT218", runtime(TORCH), limited(queued(), str(2**31)), {},
        lambda r, j, k: j["metadata"]["labels"].update({MAX_EXECUTION: str(2**31 - 1)}),
    ),
    (
        "PT219", runtime(TORCH, step(), *(step(f"more-{i}", "") for i in range(8))), queued(), {},
        lambda r, j, k: r["spec"]["template"]["spec"]["replicatedJobs"].pop(),
    ),
    (
        "PT220", claiming("gpus"), waiting(), {"queues": claimed(4, allocationMode="All")},
        lambda r, j, k: k.update(queues=claimed(4)),
    ),
    (
        "PT221", claiming("gpus"), waiting(), {"queues": claimed(4, mapped="others")},
        lambda r, j, k: k.update(queues=claimed(4, mapped="gpus.example.com")),
    ),
    ("PT222", runtime(TORCH), suspended(queued()), {}, lambda r, j, k: j["metadata"]["labels"].pop(QUEUE)),
    (
        "PT223", runtime(TORCH), {**job({}), "metadata": {"name": "job", "annotations": {QUEUE: "all"}}}, {},
        lambda r, j, k: j["metadata"].update(labels=j["metadata"].pop("annotations")),
    ),
    (
        "PT224", {**runtime(TORCH), "spec": {**runtime(TORCH)["spec"], "template": {
            **runtime(TORCH)["spec"]["template"], "metadata": {"annotations": {EXCLUSIVE: "rack"}},
        }}},
        queued(level="rack"), {}, lambda r, j, k: r["spec"]["template"].pop("metadata"),
    ),
    (
        "PT225", runtime(TORCH, step("data", ""), step(dependsOn=[{"name": "data", "status": "Complete"}])), queued(),
        {"mode": "trainer", "queues": configured(waitForPodsReady={"timeout": "5m"})},
        lambda r, j, k: k.update(queues=configured(waitForPodsReady={"timeout": "2h"})),
    ),
    (
        "PT226", runtime(TORCH), queued(),
        {"mode": "trainer", "queues": configured(integrations={"frameworks": ["batch/job"]})},
        lambda r, j, k: k.update(queues=configured(integrations={"frameworks": ["trainer.kubeflow.org/trainjob"]})),
    ),
    (
        "PT227", runtime(TORCH), job({}), {"queues": configured(manageJobsWithoutQueueName=True)},
        lambda r, j, k: k.update(queues=configured(manageJobsWithoutQueueName=False)),
    ),
    (
        "PT228", runtime(TORCH), queued(), {"queues": configured(managedJobsNamespaceSelector=NAMED_OTHER)},
        lambda r, j, k: j["metadata"].update(namespace="other"),
    ),
    (
        "PT229", runtime(TORCH), {**job({}), "metadata": {"name": "job", "labels": {"kueue.x-k8s.io/queue": "all"}}}, {},
        lambda r, j, k: j["metadata"].update(labels={QUEUE: "all"}),
    ),
    (
        "PT230", runtime(TORCH), limited(queued(nodes=2), "7200"), {"queues": priced("h100", "3.20 USD", "100 USD")},
        lambda r, j, k: limited(j, "3600"),
    ),
    (
        "PT231", runtime(TORCH), queued(), {"queues": priced("h100", "-3", "100 USD")},
        lambda r, j, k: k.update(queues=priced("h100", "3.20", "100 USD")),
    ),
    (
        "PT301", runtime(TORCH), queued(nodes=2, namespace="small"), {"queues": complete_queues(QUEUES)},
        lambda r, j, k: trainer(j).update(numNodes=1),
    ),
    (
        "PT302", runtime(TORCH, step(pod={"nodeSelector": {"gpu": "placed"}})),
        job({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 16, "memory": "640Gi"}}}, runtimePatches=SHM),
        {"queues": complete_queues([d for d in QUEUES if d["kind"] == "Node" and "status" in d])},
        lambda r, j, k: trainer(j)["resourcesPerNode"]["limits"].update({"nvidia.com/gpu": 8}),
    ),
    (
        "PT303", runtime(TORCH, step(pod={"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]})), queued(),
        {"mode": "trainer", "queues": tolerating()},
        lambda r, j, k: k.update(mode="jobset"),
    ),
    (
        "PT304", runtime(TORCH, step(container={"resources": {"limits": {"rdma/ib": 1}}})), job({}), {},
        lambda r, j, k: pod(r)["containers"][0].update(securityContext={"capabilities": {"add": ["IPC_LOCK"]}}),
    ),
    (
        "PT305", runtime(TORCH, step(pod={"nodeSelector": {"karpenter.sh/nodepool": "gpu"}})), job({}), {},
        lambda r, j, k: replicated(r)["template"]["spec"]["template"].update(
            metadata={"annotations": {"karpenter.sh/do-not-disrupt": "true"}}
        ),
    ),
    (
        "PT307", runtime(TORCH), job({"numNodes": 2}), {"queues": complete_queues([MESHED])},
        lambda r, j, k: replicated(r)["template"]["spec"]["template"].update(
            metadata={"labels": {"sidecar.istio.io/inject": "false"}}
        ),
    ),
    (
        "PT308", runtime(TORCH), job({"numNodes": 2}), {"queues": complete_queues([closed({"egress": [{}], "ingress": []})])},
        lambda r, j, k: k.update(queues=complete_queues([closed({"egress": [{}], "ingress": [{}]})])),
    ),
    (
        "PT309",
        runtime(TORCH, step(container={"readinessProbe": READY}), network={"publishNotReadyAddresses": False}),
        job({"numNodes": 2}), {},
        lambda r, j, k: r["spec"]["template"]["spec"]["network"].update(publishNotReadyAddresses=True),
    ),
    (
        "PT310", runtime(TORCH, step(pod={"hostNetwork": True})), job({"numNodes": 2, "command": TORCHRUN}), {},
        lambda r, j, k: pod(r).update(dnsPolicy="ClusterFirstWithHostNet"),
    ),
    (
        "PT311", without_waiting(FETCHED), job({}, initializer={"dataset": {"storageUri": "hf://team/data"}}), {},
        lambda r, j, k: r["spec"]["template"]["spec"]["replicatedJobs"][1].update(dependsOn=AFTER_DATASET),
    ),
    (
        "PT312", runtime(TORCH), queued(), {"training": sized("8B"), "queues": with_memory("80Gi")},
        lambda r, j, k: k.update(queues=with_memory("200Gi")),
    ),
    (
        "PT313", runtime(TORCH), queued(), {"training": sized("8B"), "queues": with_memory("")},
        lambda r, j, k: k.update(queues=with_memory("200Gi")),
    ),
]  # fmt: skip


FETCHES = step("dataset-initializer", "dataset-initializer", called="dataset-initializer", **SHARED)
FETCHING = runtime(TORCH, FETCHES, step(**SHARED, dependsOn=AFTER_DATASET))


def fetching(*env: Document, uri: str = "hf://team/data") -> Document:
    return job({}, initializer={"dataset": {"storageUri": uri, "env": [*env]}})


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_both_values_of_a_setting_are_named_with_the_one_that_wins(mode: str) -> None:
    twice = fetching({"name": "STORAGE_URI", "value": "hf://user:pass@host/other?token=1"})
    (warning,) = found(copy.deepcopy(FETCHING), twice, mode=mode)
    assert str(warning).startswith(
        "PT161: spec.initializer.dataset.storageUri: is hf://team/data, and STORAGE_URI in env is hf://host/other: env wins."
    )
    given = default_runtime(copy.deepcopy(FETCHING)), default_train_job(twice)
    assert "user:pass" in str(render(*given, mode=mode).objects), "env wins in the JobSet too"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"name": "STORAGE_URI", "value": "hf://team/data"}, []),
        ({"name": "STORAGE_URI", "value": Unknown("u")}, []),
        ({"name": "OTHER", "value": "hf://somebody/else"}, []),
        ({"name": "STORAGE_URI", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, ["PT161"]),
    ],
)
def test_a_uri_in_env(env: Document, expected: list[str]) -> None:
    assert codes(copy.deepcopy(FETCHING), fetching(env)) == expected


@pytest.mark.parametrize(
    ("trained", "expected"),
    [
        (
            {"numNodes": 2, "command": ["bash", "-c", "exec torchrun --standalone --nnodes 1 a.py"]},
            "torchrun gets --nnodes=1",
        ),
        ({"numNodes": 4, "command": ["python", "-m", "torch.distributed.run", "--nnodes=1:2", "a.py"]}, "--nnodes=1:2"),
        ({"numProcPerNode": 2, "command": ["torchrun", "--nproc_per_node", "4", "a.py"]}, "is 2, but torchrun gets"),
        ({"numNodes": 2, "command": ["torchrun", "--nnodes=$(PET_NNODES)", "a.py"]}, ""),
        ({"command": ["torchrun", "--nproc-per-node=4", "a.py"]}, ""),
        ({"numNodes": 2, "command": ["torchrun", "-m", "train", "--nnodes=4"]}, ""),
        ({"numNodes": 2, "command": ["torchrun", "a.py", "--nnodes=4"]}, ""),
    ],
)
def test_options_of_torchrun_that_the_job_sets_as_well(trained: Document, expected: str) -> None:
    warned = [str(w) for w in found(runtime(TORCH), job(trained)) if w.code == "PT161"]
    assert len(warned) == bool(expected) and all(expected in each for each in warned), warned


def test_overrides_of_torchtune_given_twice() -> None:
    given = runtime({"torch": {}}, name="torchtune-llama3.2-1b")
    train_job = job({**TUNE, "args": ["epochs=1", "epochs=2", "batch_size=4", "batch_size=4"]})
    (warning,) = (w for w in found(given, train_job) if w.code == "PT161")
    assert "spec.trainer.args: sets epochs to '1' and to '2': the last one wins" in str(warning)


def test_the_value_of_a_secret_variable_is_not_shown() -> None:
    given = runtime(TORCH, step(container={"env": [{"name": "DB_PASSWORD_PROD", "value": "letmein"}]}))
    (warning,) = found(given, job({"env": [{"name": "DB_PASSWORD_PROD", "value": "hunter2"}]}))
    assert "DB_PASSWORD_PROD has another value in the runtime: the job's value wins" in str(warning) and warning.is_note
    assert "hunter2" not in str(warning) and "letmein" not in str(warning)


@pytest.mark.parametrize("path", ["/", "//", "/.", "/a/..", "."])
def test_all_spellings_of_the_root_folder(path: str) -> None:
    assert codes(mounting(path), job({})) == ["PT164"]


def test_every_rule_has_a_case() -> None:
    assert [case[0] for case in CASES] == [rule.code for rule in RULES]
    assert len({rule.title for rule in RULES}) == len(RULES)


@pytest.mark.parametrize(("code", "given", "train_job", "known", "hint"), CASES, ids=[c[0] for c in CASES])
def test_warns_and_is_content(
    code: str, given: Document, train_job: Document, known: dict[str, Any], hint: Change
) -> None:
    given, train_job, known = copy.deepcopy((given, train_job, known))
    warned = found(given, train_job, **known)
    assert [w.code for w in warned] == [code], warned
    assert all(w.where and w.why and w.hint and str(w).startswith(f"{code}: {w.where}: ") for w in warned)
    hint(given, train_job, known)
    assert codes(given, train_job, **known) == []


@pytest.mark.parametrize(("code", "given", "train_job", "known", "hint"), CASES, ids=[c[0] for c in CASES])
def test_unknown_values_count_as_right(
    code: str, given: Document, train_job: Document, known: dict[str, Any], hint: Change
) -> None:
    """Each leaf in turn, and then each part, of both documents: nothing is raised, and no other warning comes up."""
    for which in (0, 1):
        for path in paths((given, train_job)[which]):
            both = copy.deepcopy((given, train_job))
            holder: Any = both[which]
            for key in path[:-1]:
                holder = holder[key]
            if path[0] in ("kind", "metadata") or path == ("spec",) or "runtimeRef" in path:
                continue
            holder[path[-1]] = Unknown("u")
            assert set(codes(*both, **known)) <= {code}, path


def paths(document: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [path for key, value in inside for path in [(*above, key), *paths(value, (*above, key))]]


@pytest.mark.parametrize(
    ("words", "warned"),
    [
        (["python", "train.py"], True),
        (["/usr/bin/python3.12", "-u", "train.py"], True),
        (["bash", "-c", "cd /app && python train.py"], True),
        (["python3", "-m", "torch.distributed.run", "train.py"], False),
        (["python3", "-m", "accelerate.commands.launch", "train.py"], True),
        (["python3", "-c", "import os; os.environ['PET_NNODES']"], False),
        (["bash", "-c", "torchrun train.py"], False),
        (["bash", "train.sh"], False),
        (["deepspeed", "train.py"], True),
        (["deepspeed", "--hostfile", "/etc/hosts.txt", "train.py"], False),
        (["python3", "/etc/pulumi-trainer/code/bootstrap.py"], False),
        (["/app/start"], False),
        (["accelerate", "launch", "train.py"], True),
        (["accelerate", "launch", "--num_machines=2", "--machine_rank=0", "train.py"], True),
        (["accelerate", "launch", "--multi_gpu", "train.py"], False),
        (["accelerate", "launch", "--config_file", "fsdp.yaml", "train.py"], False),
        (["accelerate", "launch", "--machine_rank", "$(PET_NODE_RANK)", "train.py"], True),
        (["bash", "-c", "export RANK=$PET_NODE_RANK WORLD_SIZE=2; accelerate launch train.py"], False),
        (["bash", "-c", "echo 'no torchrun here'; python train.py"], True),
        (["bash", "-c", "# was: torchrun train.py\npython train.py  # not PET_NNODES"], True),
        (["bash", "-c", "echo rank $PET_NODE_RANK; python train.py"], True),
        (["bash", "-c", "python train.py --rank $PET_NODE_RANK"], False),
        (["bash", "-c", "echo torchrun train.py > run.sh; bash run.sh"], False),
        (["bash", "-c", "echo start && torchrun train.py"], False),
        (["nsys", "profile", "-o", "x", "python", "train.py"], True),
        (["uvx", "trl", "sft"], True),
        (["uv", "tool", "run", "trl", "sft"], True),
        (["uv", "pip", "install", "trl"], False),
        (["coverage", "run", "train.py"], True),
        (["doppler", "run", "--", "torchrun", "train.py"], False),
        (["pixi", "run", "python", "train.py"], True),
        (["python", "-m", "trl", "sft"], True),
        (["accelerate", "config"], False),
        (["bash", "-c", "pip install trl\nset -e; HF_HOME=/hf exec accelerate launch train.py | tee log"], True),
        (["bash", "-c", "if true; then accelerate launch a.py; else torchrun a.py; fi"], False),
        (["bash", "-c", "echo it's; python train.py"], True),
        (["bash", "-c", "echo 'then; python train.py'"], False),
        (["bash", "-c", "python prepare.py && bash train.sh"], False),
        (["bash", "-c", "python prepare.py && /app/start"], False),
        (["bash", "-lc", ". /venv/bin/activate && /venv/bin/pip install x && python train.py"], True),
        (["sh", "-ec", "python -m pip install x && /app/start"], False),
        (["trl", "sft", "--config", "sft.yaml"], True),
        (["trl", "vllm-serve"], False),
        (["axolotl", "train", "qlora.yaml"], True),
        (["axolotl", "train", "qlora.yaml", "--launcher", "torchrun"], False),
        (["axolotl", "preprocess", "qlora.yaml"], False),
        (["lmf", "train", "a.yaml"], True),
        (["llamafactory-cli", "version"], False),
        (["swift", "sft"], True),
        (["uv", "run", "train.py"], True),
        (["uv", "run", "--with", "trl", "--frozen", "-m", "train"], True),
        (["uv", "run", "--extra", "gpu", "accelerate", "launch", "train.py"], True),
        (["uv", "run", "torchrun", "train.py"], False),
        (["uv", "run", "serve"], False),
        (["conda", "run", "-n", "trl", "python", "train.py"], True),
        (["env", "-u", "A=b", "numactl", "--localalloc", "python", "train.py"], True),
        (["/app/train.py"], True),
        (["uv", "run"] * 2000, False),
    ],
)
def test_what_is_torchrun(words: list[str], warned: bool) -> None:
    trainer = {"numNodes": 2, "command": words[:1], "args": words[1:]}
    assert codes(runtime(TORCH), job(trainer)) == (["PT105"] if warned else [])


@pytest.mark.parametrize(
    ("change", "warned"),
    [
        ({"args": ["-c", "python train.py"]}, True),
        ({"args": ["python train.py --lr 1"]}, True),
        ({"args": ["train.py"]}, False),
        ({"args": ["--lr", "1"]}, False),
        ({"command": ["trl", "sft"], "resourcesPerNode": {"limits": {"nvidia.com/gpu": 2}}}, False),
        ({"command": ["trl", "sft"], "resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}}, True),
        ({"command": ["accelerate", "launch", "a.py"], "resourcesPerNode": {"limits": {"huawei.com/Ascend910": 8}}}, False),
        (
            {
                "command": ["accelerate", "launch", "--num_processes", "1", "a.py"],
                "resourcesPerNode": {"limits": {"nvidia.com/gpu": 2}},
            }, True,
        ),
        ({"command": ["lmf", "train", "a.yaml"], "resourcesPerNode": {"limits": {"nvidia.com/gpu": 2}}}, True),
        ({"command": ["lmf", "train", "a.yaml"], "env": [{"name": "FORCE_TORCHRUN", "value": "1"}]}, True),
        ({"command": ["lmf", "train", "a.yaml"], "env": [{"name": "NNODES", "value": "2"}]}, False),
        ({"command": ["swift", "sft"], "env": [{"name": "NPROC_PER_NODE", "value": "1"}]}, False),
        ({"command": ["deepspeed", "a.py"], "numNodes": 1, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}, False),
    ],
)  # fmt: skip
def test_launchers_by_what_they_do_on_a_node(change: Document, warned: bool) -> None:
    """accelerate on a node with several GPUs starts torch.distributed.run, which reads PET_*: 2 nodes of 2 have 4 ranks."""
    told = [w for w in found(runtime(TORCH), job({"numNodes": 2, **change})) if w.code == "PT105"]
    assert bool(told) == warned, told


@pytest.mark.parametrize(
    ("key", "warned"),
    [("kueue.k8s.io/queue-name", True), ("kueue.x-k8s/priority-class", True), ("example.com/queue-name", False)],
)
def test_a_mistyped_domain_of_kueue(key: str, warned: bool) -> None:
    labelled = {**job({}), "metadata": {"name": "job", "labels": {key: "a"}}}
    told = [w.hint for w in found(runtime(TORCH), labelled) if w.code == "PT229"]
    assert bool(told) == warned and all("kueue.x-k8s.io/" in each for each in told), told


def test_ports_of_an_init_container_with_a_command_of_its_own_do_not_tell_that_it_runs_on() -> None:
    before = {"name": "warm", "image": "a:1", "command": ["python", "warm.py"], "ports": [{"containerPort": 1}]}
    assert codes(runtime(TORCH, step(pod={"initContainers": [before]})), job({})) == []


def test_budget_and_price_in_two_currencies_are_not_compared() -> None:
    given = runtime(TORCH), limited(queued(nodes=2), "3600")
    (warned,) = [w for w in found(*given, queues=priced("h100", "3.20 EUR", "100 USD")) if w.code == "PT230"]
    assert "its budget is in USD and the price of its GPUs in EUR" in warned.why


def test_accelerate_with_one_process_is_no_elastic_agent() -> None:
    given, trained = runtime(TORCH, step(pod={"terminationGracePeriodSeconds": 120})), ["accelerate", "launch", "a.py"]
    assert codes(given, job({"command": trained})) == []
    assert codes(given, job({"command": [*trained, "--multi_gpu"]})) == ["PT136"]


def test_a_runtime_whose_mount_may_have_the_hostfile() -> None:
    mounts = {"volumeMounts": [{"name": "hosts", "mountPath": "/job"}], "command": ["deepspeed", "a.py"]}
    given = runtime(TORCH, step(container=mounts, pod={"volumes": [{"name": "hosts", "configMap": {"name": "hosts"}}]}))
    assert codes(given, job({"numNodes": 2})) == []


@pytest.mark.parametrize(
    ("container", "warned"),
    [
        ({"image": "grafana/promtail@sha256:0"}, True),
        ({"name": "cloud-sql-proxy", "command": ["/start"]}, True),
        ({"command": ["python3", "-m", "http.server"]}, True),
        ({"command": ["python3", "metrics_exporter.py"]}, True),
        ({"ports": [{"name": "web", "containerPort": 80}]}, True),
        ({"command": ["sh", "-c", "echo up; sleep infinity"]}, True),
        ({"command": ["sh", "-c", "while true\ndo nvidia-smi\nsleep 60\ndone"]}, True),
        ({"command": ["sh", "-c", "while true; do test -f /data/done && break; sleep 5; done"]}, False),
        ({"command": ["sh", "-c", "sleep infinity & exec python upload.py"]}, False),
        ({"command": ["sh", "-c", "until test -f /data/done; do sleep 5; done; rclone copy /data s3:out"]}, False),
        ({"command": ["python3", "upload.py"]}, False),
        ({"name": "wait-for-proxy", "image": "proxy:1"}, False),
        ({"command": ["git-sync", "--one-time"]}, False),
        ({"image": "example.com/prep:1"}, False),
    ],
)
def test_containers_that_run_on(container: Document, warned: bool) -> None:
    """Beside the trainer such a container holds the Pod; before it, the training never begins."""
    beside = {"name": "side", "image": "side:1", **container}
    given = step(pod={"containers": [{"name": "node", "image": "a:1"}, beside]})
    assert codes(runtime(TORCH, given), job({})) == (["PT142"] if warned else [])
    assert codes(runtime(TORCH, step(pod={"initContainers": [{**beside, "restartPolicy": "Always"}]})), job({})) == []
    before = {**beside, "name": "before", "ports": container.get("ports", [])}
    if "name" not in container:  # the name of an init container does not tell what it does
        given = step(pod={"initContainers": [before]})
        assert codes(runtime(TORCH, given), job({})) == (["PT143"] if warned else [])


def test_a_second_container_of_a_step_that_nothing_waits_for() -> None:
    both = {"containers": [{"name": "node", "image": "a:1"}, {"name": "envoy", "image": "envoy:1"}]}

    def told(*steps: Document, **spec: Any) -> list[str]:
        return [w.why.rpartition(": ")[2] for w in found(runtime(TORCH, *steps, **spec), job({})) if w.code == "PT142"]

    data = step("data", "", pod=both)
    after = step(dependsOn=[{"name": "data", "status": "Complete"}])
    assert told(step(), data) == ["after node has ended, the job is never complete"]
    assert told(data, after) == ["after node has ended, node never begins"]
    assert told(step(), data, successPolicy={"operator": "All", "targetReplicatedJobs": ["node"]}) == []
    assert told(step(), data, successPolicy={"operator": "Any"}) == []
    injected = {"torch": {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["envoy"]}]}}}
    assert codes(runtime(injected, step(pod=both)), job({})) == []


def test_steps_that_run_on() -> None:
    server = step("server", "", container={"command": ["vllm", "serve", "a/model"]})
    (warning,) = found(runtime(TORCH, server, step()), job({}))
    assert warning.code == "PT144" and '"targetReplicatedJobs": ["node"]' in warning.hint
    ends = {"operator": "All", "targetReplicatedJobs": ["node"]}
    ready = step(dependsOn=[{"name": "server", "status": "Ready"}])
    assert codes(runtime(TORCH, server, ready, successPolicy=ends), job({})) == []
    complete = step(dependsOn=[{"name": "server", "status": "Complete"}])
    (warning,) = found(runtime(TORCH, server, complete, successPolicy=ends), job({}))
    assert warning.where == "spec.template.spec.replicatedJobs[1].dependsOn" and "node never begins" in warning.why
    assert codes(runtime(TORCH), job({"command": ["sleep", "infinity"]})) == [], "a user looks around in the Pod"


EPHEMERAL = {"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}}
OTHER_CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "other"}}
NFS = {"name": "data", "nfs": {"server": "nfs", "path": "/"}}


def mounted(at: str, image: str = "ghcr.io/kubeflow/trainer/model-initializer:v2", **mount: str) -> Document:
    mounts = [{"name": "data", "mountPath": at, **mount}]
    return {"container": {"image": image, "volumeMounts": mounts}, "pod": copy.deepcopy(SHARED["pod"])}


@pytest.mark.parametrize(
    ("fetches", "trains", "says"),
    [
        (SHARED, SHARED, ""),
        (SCRATCH, SHARED, "data (emptyDir) belongs to one Pod: what data fetches into /workspace/model ends with its Pod"),
        ({**SHARED, "pod": {"volumes": [EPHEMERAL]}}, SHARED, "data (ephemeral) belongs to one Pod: what data fetches"),
        ({}, {}, "data mounts no volume at /workspace/model: what data fetches"),
        ({**SHARED, "pod": {"volumes": [OTHER_CLAIM]}}, SHARED, "node does not mount data, where data puts the model"),
        (SHARED, {}, "node does not mount data, where data puts the model"),
        (SHARED, SCRATCH, "node does not mount data, where data puts the model"),
        ({**SHARED, "pod": {"volumes": [NFS]}}, SHARED, ""),
        (mounted("/data"), SHARED, "data mounts no volume at /workspace/model: what data fetches into /workspace/model ends"),
        (mounted("/data", image="example/model:1"), SHARED, ""),
        (mounted("/workspace/model", subPath="a/model"), mounted("/workspace", subPath="a"), ""),
        (
            mounted("/workspace", subPath="a"), mounted("/workspace", subPath="b"),
            "data puts the model into a/model of data, and node mounts b of it",
        ),
        (mounted("/workspace", subPath="a"), mounted("/workspace", subPathExpr="$(JOB)"), ""),
        (mounted("/workspace", subPathExpr="$(JOB)"), mounted("/workspace", subPath="b"), ""),
        (mounted("/workspace", subPath="a"), mounted("/inputs", subPath="a/model"), ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["jobset", "trainer"])
def test_data_that_the_training_does_not_find(fetches: Document, trains: Document, says: str, mode: str) -> None:
    given = runtime(TORCH, step("data", "model-initializer", called="model-initializer", **fetches), step(**trains))
    told = [
        w
        for w in found(given, job({}, initializer={"model": {"storageUri": "hf://a/b"}}), mode=mode)
        if w.code == "PT145"
    ]
    assert len(told) == bool(says) and all(w.why.startswith(says) for w in told), told
    assert codes(given, job({}), mode=mode) == [], "nothing is fetched"


def test_a_cache_and_a_claim_of_the_jobset_are_no_data_that_ends() -> None:
    cached = runtime(TORCH, step("data", "dataset-initializer", called="dataset-initializer"), step())
    assert codes(cached, job({}, initializer={"dataset": {"storageUri": "cache://a/b"}})) == []
    claims = [{"templates": [{"metadata": {"name": "data"}, "spec": {}}]}]
    mounts = {"container": SHARED["container"]}
    fetches = step("data", "dataset-initializer", called="dataset-initializer", **mounts)
    given = runtime(TORCH, fetches, step(**mounts, dependsOn=AFTER_DATA), volumeClaimPolicies=claims)
    assert codes(given, job({}, initializer={"dataset": {"storageUri": "hf://a/b"}})) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["--output_dir", "/workspace/out"],
            "--output_dir names /workspace/out, and data (emptyDir) belongs to one Pod: the folder is empty",
        ),
        (
            ["--output_dir=/tmp/out"],
            "--output_dir names /tmp/out, and node mounts no volume at /tmp/out: the folder is empty",
        ),
        (["trainer.save_dir=/workspace"], "trainer.save_dir names /workspace, and data (emptyDir)"),
        (["--checkpoint-dir", "/lasting/a"], ""),
        (["--output_dir", "s3://bucket/out"], ""),
        (["--output_dir", "out"], ""),
        (["--trainer.default_root_dir=/tmp/a"], "--trainer.default_root_dir names /tmp/a, and node mounts no volume"),
        (["hydra.run.dir=/tmp/a"], "hydra.run.dir names /tmp/a, and node mounts no volume"),
        (["--resume_from_checkpoint", "/opt/base"], ""),
        (["checkpointer.checkpoint_dir=/opt/model"], ""),
        (["--output_dir", "/tmp/out", "--push_to_hub"], ""),
        (["--data_dir", "/workspace"], ""),
    ],
)
def test_folders_that_a_restart_empties(words: list[str], says: str) -> None:
    volumes = [{"name": "data", "emptyDir": {}}, {"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}}]
    mounts = [{"name": "data", "mountPath": "/workspace"}, {"name": "kept", "mountPath": "/lasting/"}]
    node = step(container={"volumeMounts": mounts}, pod={"volumes": volumes})

    def told(policy: Document | None, trainer: Document) -> list[Any]:
        spec = {} if policy is None else {"failurePolicy": policy}
        return [w for w in found(runtime(TORCH, node, **spec), job(trainer)) if w.code == "PT146"]

    trained = {"command": ["torchrun", "train.py", *words]}
    warned = told({"maxRestarts": 5}, trained)
    assert len(warned) == bool(says) and all(w.why.startswith(says) and w.is_note for w in warned), warned
    assert told(None, trained) == told({"maxRestarts": 0}, trained) == []
    assert told({"maxRestarts": 5, "restartStrategy": "InPlaceRestart"}, trained) == []
    assert len(told({"maxRestarts": 0, "rules": [RESTART]}, trained)) == bool(says)
    assert told({"maxRestarts": 5}, {**trained, "env": CHECKPOINT}) == [], "the plan places the checkpoints"


@pytest.mark.parametrize("words", [["--output_dir", "out"], ["--trainer.default_root_dir=./out"]])
def test_a_relative_folder_is_judged_where_the_working_directory_is_known(words: list[str]) -> None:
    trained = {"command": ["torchrun", "train.py", *words]}
    mounts = [{"name": "kept", "mountPath": "/lasting"}]
    kept = {"volumes": [{"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}}]}
    policy = {"failurePolicy": {"maxRestarts": 1}}

    def notes(container: Document, pod: Document) -> list[str]:
        given = runtime(TORCH, step(container=container, pod=pod), **policy)
        return [w.why for w in found(given, job(trained)) if w.code == "PT146"]

    (why,) = notes({}, {})
    assert "names out, and node mounts no volume at out" in why or "names ./out" in why
    assert notes({"volumeMounts": mounts}, kept) == [], "the image's working directory may be /lasting"
    assert notes({"volumeMounts": mounts, "workingDir": "/lasting/a"}, kept) == []
    (why,) = notes({"volumeMounts": mounts, "workingDir": "/opt"}, kept)
    assert "no volume at /opt/out" in why
    switches = {"command": ["torchrun", "train.py", "--save", "yes", "--output_dir", "hf://a/b", "--out_dir", "$OUT"]}
    assert codes(runtime(TORCH, **policy), job(switches)) == []


def test_the_retries_of_a_pod_empty_a_folder_too() -> None:
    trained = {"command": ["torchrun", "train.py", "--output_dir", "/workspace/out"]}
    given = runtime(TORCH, step(**{**SCRATCH, "pod": {**SCRATCH["pod"], "restartPolicy": "Never"}}))
    worker = given["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert codes(given, job(trained)) == []
    worker["backoffLimit"] = 3
    (note,) = found(given, job(trained))
    assert note.code == "PT146" and "after each of 3 restarts of a Pod (backoffLimit)" in note.why
    worker["template"]["spec"]["restartPolicy"] = "OnFailure"
    assert codes(given, job(trained)) == [], "its container starts again in the same Pod"


def test_a_folder_for_checkpoints_in_a_variable_and_one_that_a_sidecar_saves() -> None:
    policy = {"failurePolicy": {"maxRestarts": 1}}
    trained = {"command": TORCHRUN, "env": [{"name": "CHECKPOINT_DIR", "value": "/workspace/c"}]}
    (note,) = found(runtime(TORCH, step(**SCRATCH), **policy), job(trained))
    assert note.code == "PT146" and "after each of 1 restart (maxRestarts)" in note.why
    saves = [{"name": "save", "image": "a:1", "restartPolicy": "Always"}]
    beside = {**SCRATCH, "pod": {**SCRATCH["pod"], "initContainers": saves}}
    assert codes(runtime(TORCH, step(**beside), **policy), job(trained)) == []


def test_python_alone_is_right_where_there_is_one_process() -> None:
    command = {"command": ["python3", "train.py"]}
    assert (
        codes(runtime(TORCH), job({**command, "resourcesPerNode": {"limits": {"cpu": 8, "nvidia.com/gpu": 1}}})) == []
    )
    env = [{"name": "RANK", "value": "0"}]
    assert codes(runtime(TORCH), job({**command, "numNodes": 2, "env": env})) == []
    assert codes(runtime({"jax": {}}), job({**command, "numNodes": 2})) == []
    assert codes(runtime(TORCH), job({**command, "numProcPerNode": 2})) == ["PT105"]


@pytest.mark.parametrize(
    ("change", "warned"),
    [
        (lambda r, j: None, True),
        (lambda r, j: trainer(j).update(numNodes=1), False),
        (lambda r, j: trainer(j).update(env=[{"name": "PRTE_MCA_prte_default_hostfile", "value": "/etc/mpi/hostfile"}]), False),
        (lambda r, j: trainer(j).update(args=["-H", "job-node-0-0"]), False),
        (lambda r, j: trainer(j).update(command=["bash", "-c", "PRTE_MCA_prte_default_hostfile=/h mpirun ./pi"]), False),
        (lambda r, j: trainer(j).pop("command"), True),
    ],
)  # fmt: skip
def test_hosts_of_open_mpi_5(change: Callable[[Document, Document], Any], warned: bool) -> None:
    """In mode jobset the launcher has the variables of both versions."""
    given, train_job = mpi_runtime({}), job({"numNodes": 3, "command": ["mpirun", "./pi"]})
    change(given, train_job)
    assert codes(given, train_job) == []
    assert codes(given, train_job, mode="trainer") == (["PT151"] if warned else [])


def test_a_ttl_of_the_job_that_ends_the_jobset_runs_nothing_again() -> None:
    ended = {"ttlSecondsAfterFinished": 60}
    both = [step("data", ""), step(ended=ended)]
    assert codes(runtime(TORCH, step(ended=ended)), job({})) == []
    assert codes(runtime(TORCH, *both), job({})) == ["PT152"]
    assert (
        codes(runtime(TORCH, *both, successPolicy={"operator": "All", "targetReplicatedJobs": ["node"]}), job({})) == []
    )
    assert codes(runtime(TORCH, *both, successPolicy={"operator": "Any"}), job({})) == []


def test_a_command_for_steps_that_start_differently() -> None:
    def told(*commands: Document, **given: Any) -> list[str]:
        steps = [step(name, container=command) for name, command in zip(("node", "launcher"), commands, strict=False)]
        return [w.why for w in found(runtime(MPI, *steps), job(given or {"command": ["mpirun"]})) if w.code == "PT154"]

    assert told(SSHD, {}) == [
        "applies to node and launcher, which all have the ancestor trainer, and replaces /usr/sbin/sshd -De of node"
    ]
    assert told(SSHD, {"command": ["mpirun"]})[0].endswith("replaces /usr/sbin/sshd -De of node and mpirun of launcher")
    assert told(SSHD, SSHD) == told({}, {}) == told(SSHD) == told(SSHD, {}, image="own:1") == []
    assert len(told(SSHD, {}, args=["./pi"])) == 1


@pytest.mark.parametrize(
    ("policy", "trainer", "says"),
    [
        ({}, {"image": "own:1"}, "image: applies to launcher only: node keeps example.com/train:1"),
        ({}, {"env": [{"name": "A", "value": "1"}], "command": ["mpirun"]}, "env: applies to launcher only: node has no A"),
        ({}, {"env": [{"name": "A", "value": "1"}], "command": ["mpirun", "-x", "A"]}, ""),
        ({}, {"env": [{"name": "A", "value": "1"}], "command": ["mpirun", *BOOTSTRAP]}, ""),
        (
            {}, {"resourcesPerNode": {"limits": {"memory": "8Gi", "cpu": 2}, "requests": {"cpu": 2}}},
            "resourcesPerNode: applies to launcher only: node does not get its memory, cpu",
        ),
        ({"runLauncherAsNode": True}, {"env": [{"name": "A", "value": "1"}], "resourcesPerNode": {"limits": {"cpu": 2}}}, ""),
        ({"runLauncherAsNode": True}, {"image": "own:1"}, "image: applies to launcher only: node keeps example.com/train:1"),
        ({}, {"command": ["mpirun", "./pi"]}, ""),
    ],
)  # fmt: skip
def test_settings_that_the_nodes_of_mpi_do_not_get(policy: Document, trainer: Document, says: str) -> None:
    told = [w for w in found(mpi_runtime({"mpi": policy}), job(trainer)) if w.code == "PT155"]
    assert [f"{w.where}: {w.why}".removeprefix("spec.trainer.") for w in told] == ([says] if says else [])


def test_a_node_without_the_ancestor_does_not_get_the_command_either() -> None:
    given = runtime({}, step(ancestor=""), step("chief"))
    told = [w.where for w in found(given, job({"command": ["python3", "a.py"], "image": "own:1"})) if w.code == "PT155"]
    assert told == ["spec.trainer.image", "spec.trainer.command"]
    assert codes(runtime({}, step(), step("helper", "")), job({"image": "own:1"})) == []


def test_budgets_for_names() -> None:
    """The longest TrainJobs for which JobSet makes Pods."""
    budgets = {"node": 48, "launcher": 44, "model-initializer": 35, "dataset-initializer": 33}
    for name, budget in budgets.items():
        given = runtime({}, step(name))
        assert codes(given, job({}, name="j" * budget)) == []
        [warning] = found(given, job({}, name="j" * (budget + 2)))
        assert (warning.code, warning.hint) == ("PT101", "shorten it by 2") and f"at most {budget}" in warning.why
    assert codes(runtime(TORCH), job({"numNodes": 11}, name="j" * 48)) == ["PT101"]
    assert codes(runtime(TORCH), job({"numNodes": 11}, name="j" * 47)) == []


def test_a_gang_that_has_enough_pods_starts() -> None:
    given = runtime(
        {},
        step("data", "", replicas=2, pod=SECOND),
        step(dependsOn=[{"name": "data", "status": "Ready"}], pod=SECOND),
        gang={"coscheduling": {}},
    )
    assert codes(given, job({}), mode="trainer") == []
    in_order = runtime(
        {}, step(), step("more", ""), gang={"volcano": {}}, startupPolicy={"startupPolicyOrder": "InOrder"}
    )
    assert codes(in_order, job({}), mode="trainer") == ["PT102", "PT129"]


def test_a_gang_of_a_stage_waits_for_no_other() -> None:
    """Mode jobset makes a PodGroup a stage."""
    for policy in ("coscheduling", "volcano"):
        pod = {"schedulerName": "our-scheduler"}
        later = step(dependsOn=[{"name": "data", "status": "Complete"}], pod=pod)
        given = runtime(TORCH, step("data", "", pod=pod), later, gang={policy: {}})
        assert codes(given, job({})) == []
        assert codes(given, job({}), mode="trainer") == ["PT102"]


def test_schedulers_of_gangs() -> None:
    def told(scheduler: str, policy: str) -> list[str]:
        pod = {"schedulerName": scheduler} if scheduler else {}
        return codes(runtime(TORCH, step(pod=pod), gang={policy: {}}), job({}))

    assert told("", "coscheduling") == told("default-scheduler", "coscheduling") == ["PT132"]
    assert told("", "volcano") == told("default-scheduler", "volcano") == ["PT129"]
    assert told("volcano", "volcano") == told("our-own", "volcano") == told("our-own", "coscheduling") == []
    assert told("volcano", "coscheduling") == told("kai-scheduler", "coscheduling") == ["PT133"]
    assert told("scheduler-plugins-scheduler", "volcano") == told("kai-scheduler", "volcano") == ["PT133"]


def test_subdomains() -> None:
    own = {**SIBLING, "metadata": {"name": "job", "namespace": "default"}}
    nameless = {**SIBLING, "spec": {"network": {"subdomain": "job", "enableDNSHostnames": False}}}
    assert codes(runtime(TORCH), job({}), siblings=[own, nameless]) == []
    assert codes(runtime(TORCH, network={"subdomain": "other"}), job(), siblings=[{"metadata": {"name": "other"}}]) == [
        "PT104"
    ]


def test_patches_of_unknown_jobs_and_init_containers() -> None:
    [warning] = found(runtime(TORCH), job({}, runtimePatches=patched(job="nodes", nodeSelector={"a": "b"})))
    assert (warning.code, warning.hint) == ("PT107", "available: node") and warning.where.endswith(
        "replicatedJobs[0].name"
    )
    [warning, twice] = found(runtime(TORCH), job({}, runtimePatches=patched(initContainers=[{"name": "node"}])))
    assert twice.code == "PT141" and twice.why == 'Duplicate value: "node"'
    assert "no init container node" in warning.why and warning.hint == "available: none"


def test_one_port_without_a_name_gives_way() -> None:
    def given(**port: Any) -> Document:
        return runtime(TORCH, step(container={"ports": [{"containerPort": 8080, **port}]}))

    assert codes(given(), job({})) == ["PT114"]
    assert (
        codes(given(name="http"), job({})) == codes(given(containerPort=29500), job({})) == codes(given(), job()) == []
    )


def test_memory_limits() -> None:
    def given(policy: Document, memory: str | None, **more: Any) -> list[str]:
        limits = {"nvidia.com/gpu": 2, **({"memory": memory} if memory else {})}
        trainer = {"numNodes": 2, "command": TORCHRUN, "resourcesPerNode": {"limits": limits}}
        return codes(runtime(policy), job({**trainer, **more}, runtimePatches=SHM))

    assert given(TORCH, None) == given(TORCH, "2Gi") == given({"jax": {}}, "2Gi") == ["PT113"]
    assert given(TORCH, "4Gi") == given({"xgboost": {}}, "2Gi") == given(TORCH, "2Gi", numNodes=1) == []
    large = copy.deepcopy(SHM)
    spec = large[0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"][
        "spec"
    ]
    spec["volumes"][0]["emptyDir"]["sizeLimit"] = "2Gi"
    trainer = {
        "numNodes": 2,
        "command": TORCHRUN,
        "resourcesPerNode": {"limits": {"nvidia.com/gpu": 2, "memory": "4Gi"}},
    }
    assert codes(runtime(TORCH), job(trainer, runtimePatches=large)) == ["PT113"]


def test_shared_memory_of_one_process_or_of_the_host() -> None:
    assert (
        codes(runtime(TORCH, step(pod={"hostIPC": True})), job({"resourcesPerNode": GPUS, "command": TORCHRUN})) == []
    )
    assert codes(runtime(TORCH), job({"resourcesPerNode": GPUS, "numProcPerNode": 1})) == ["PT106"]


def test_processes_of_mpi() -> None:
    given = mpi_runtime({"mpi": {"numProcPerNode": 2}})
    pod(given)["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 4}}
    [warning] = found(given, job({}))
    assert (warning.code, warning.where) == ("PT106", "spec.mlPolicy.mpi.numProcPerNode")
    given["spec"]["mlPolicy"]["mpi"]["numProcPerNode"] = 1
    assert codes(given, job({})) == []


def test_addresses() -> None:
    assert codes(runtime(TORCH, network={"subdomain": "own"}), job({})) == ["PT120"]
    assert (
        codes(runtime(TORCH, network={"subdomain": "own"}), job({"command": ["torchrun", "--rdzv-endpoint=a:1"]})) == []
    )
    assert (
        codes(runtime(TORCH, network={"subdomain": "job"}), job({}))
        == codes(runtime({}, step("worker")), job({}))
        == []
    )
    hidden = runtime(TORCH, network={"enableDNSHostnames": False})
    assert codes(hidden, job({"numNodes": 2})) == ["PT120"] and codes(hidden, job({})) == []


def test_one_node_without_a_trainer_section_trains_as_it_should() -> None:
    assert codes(runtime({**TORCH, "numNodes": 1}), job()) == codes(runtime({**MPI, "numNodes": 2}), job()) == []
    gpus = runtime(TORCH, step(container={"resources": {"limits": {"nvidia.com/gpu": 2}}}))
    assert codes(gpus, job()) == ["PT108", "PT112"]


def test_policies_of_plugins_decide_themselves() -> None:
    given = runtime({"torch": {}, "mine": {}}, step(ancestor=""))
    assert codes(given, job({"image": "a:1"})) == []


def test_taints_of_documents() -> None:
    tainted = {"nodeTaints": [{"key": "gpu", "value": "a", "effect": "NoSchedule"}]}
    flavor = {"kind": "ResourceFlavor", "metadata": {"name": "h200"}, "spec": tainted}
    node = {"kind": "Node", "metadata": {"name": "n"}, "spec": {}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}
    resources = [{"name": "nvidia.com/gpu", "nominalQuota": 8}]
    queue = {
        "kind": "ClusterQueue",
        "spec": {"resourceGroups": [{"flavors": [{"name": "h200", "resources": resources}]}]},
    }
    spot = {"kind": "ResourceFlavor", "metadata": {"name": "spot"}, "spec": {}}
    assert gpu_taints([]) is gpu_taints([{"kind": "Node", "metadata": {"name": "cpu"}}]) is None
    assert gpu_taints([flavor, queue, spot]) == {"flavor h200": tainted["nodeTaints"]}
    assert gpu_taints([flavor, spot, node]) == {"flavor h200": tainted["nodeTaints"], "flavor spot": [], "node n": []}
    bearing = {**flavor, "spec": {**tainted, "tolerations": [{"key": "gpu", "value": "a"}]}}
    assert gpu_taints([bearing]) == {"flavor h200": []}
    gpu = job({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}})
    [warning] = found(runtime(TORCH), gpu, taints=gpu_taints([flavor]))
    assert "flavor h200 has gpu=a:NoSchedule" in warning.why
    assert codes(runtime(TORCH), gpu, taints=gpu_taints([flavor, node])) == codes(runtime(TORCH), gpu, taints={}) == []
    assert codes(runtime(TORCH), job({}), taints=gpu_taints([flavor])) == []


@pytest.mark.parametrize(
    ("toleration", "bears"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "b"}, False),
        ({"key": "gpu"}, False),
        ({"key": "cpu", "operator": "Exists"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"value": "a"}, False),
    ],
)
def test_tolerations(toleration: Document, bears: bool) -> None:
    taints = {
        "node n": [{"key": "gpu", "value": "a", "effect": "NoSchedule"}, {"key": "x", "effect": "PreferNoSchedule"}]
    }
    given = runtime(TORCH, step(pod={"tolerations": [toleration]}))
    gpu = job({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}})
    refused = ["PT141"] if "key" not in toleration and "operator" not in toleration else []
    assert codes(given, gpu, taints=taints) == [*([] if bears else ["PT111"]), *refused]


SENSIBLE: dict[str, Document] = {
    "nothing said": {},
    "two nodes": {"trainer": {"numNodes": 2, "command": TORCHRUN}},
    "our bootstrap": {"trainer": {"numNodes": 2, "command": BOOTSTRAP}},
    "GPUs": {"trainer": {"numNodes": 2, "command": TORCHRUN, "resourcesPerNode": GPUS}, "runtimePatches": SHM},
    "one GPU": {"trainer": {"command": ["python3", "a.py"], "resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}}},
}


@pytest.mark.parametrize("name", runtimes.names())
@pytest.mark.parametrize("what", SENSIBLE)
def test_the_catalogue_has_no_false_alarms(name: str, what: str) -> None:
    spec = copy.deepcopy(SENSIBLE[what])
    if name == "flux":
        spec.setdefault("trainer", {}).setdefault("numNodes", 1)
    if name.startswith("torchtune"):  # for one node, with GPUs and without shared memory: PT112 is right
        trainer = {k: v for k, v in spec.get("trainer", {}).items() if k == "resourcesPerNode"}
        spec = {"trainer": {**trainer, **TUNE}, "runtimePatches": SHM}
    assert codes(runtimes.load(name), {"metadata": {"name": "job"}, "spec": {"runtimeRef": {}, **spec}}) == []


UNLIMITED = "without a limit: Limit must be set for non overcommitable resources"


@pytest.mark.parametrize(
    ("resources", "says"),
    [
        ({"limits": {"cpu": "-1"}}, ["has limits of -1 cpu"]),
        (
            {"requests": {"nvidia.com/gpu": "1.5"}},
            [
                "has requests of 1500m nvidia.com/gpu, which must be a whole number",
                f"requests 1500m nvidia.com/gpu {UNLIMITED}",
            ],
        ),
        (
            {"requests": {"a/gpu": 2}, "limits": {"a/gpu": 4}},
            ["requests 2 a/gpu, but its limit is 4: both must be equal"],
        ),
        ({"requests": {"nvidia.com/gpu": 1}}, [f"requests 1 nvidia.com/gpu {UNLIMITED}"]),
        ({"requests": {"nvidia.com/gpu": 1}, "limits": {"cpu": 1}}, [f"requests 1 nvidia.com/gpu {UNLIMITED}"]),
        (
            {"requests": {"hugepages-2Mi": "4Mi"}},
            ["requests only huge pages: HugePages require cpu or memory", f"requests 4Mi hugepages-2Mi {UNLIMITED}"],
        ),
        ({"limits": {"nvidia.com/gpu": 1}}, []),
        ({"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": "1"}}, []),
        ({"requests": {"nvidia.com/gpu": 1}, "limits": Unknown("l")}, []),
        ({"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": Unknown("l")}}, []),
        ({"requests": {"cpu": 1}, "limits": {"cpu": 4}}, []),
        ({"requests": {"cpu": 2.0}, "limits": {"memory": Unknown("m")}}, []),
    ],
)
def test_resources_that_kubernetes_refuses(resources: Document, says: list[str]) -> None:
    told = [w for w in found(runtime(TORCH), job({"resourcesPerNode": resources})) if w.code == "PT130"]
    assert [w.why for w in told] == [f"the container node {each}" for each in says]
    assert all(w.where == "spec.trainer.resourcesPerNode" for w in told)
    told = [w for w in found(runtime(TORCH, step(container={"resources": resources})), job({})) if w.code == "PT130"]
    assert [w.why for w in told] == [f"the container node {each}" for each in says]
    assert all(w.where.endswith("containers[0].resources") for w in told)


def test_a_topology_that_no_node_of_the_flavor_has() -> None:
    def told(**labels: str) -> list[str]:
        documents = [
            kueue("ClusterQueue", "all", namespaceSelector={}, resourceGroups=quota("h100", 16)),
            kueue("ResourceFlavor", "h100", nodeLabels={"gpu": "h100"}, topologyName="dc"),
            kueue("Topology", "dc", levels=[{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]),
            {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "labels": {"gpu": "h100", **labels}}},
        ]
        return [str(w) for w in queue_warnings(documents, complete_queues(documents))]

    assert told(rack="r1", **{"kubernetes.io/hostname": "n"}) == []
    (warning,) = told(**{"kubernetes.io/hostname": "n"})
    assert (
        "PT204" in warning
        and "none of its 1 nodes has all labels of its topology (rack, kubernetes.io/hostname)" in warning
    )


def bare() -> Document:
    """A runtime that declares nothing about interruptions, except enough time."""
    return runtime(TORCH, step(pod={"terminationGracePeriodSeconds": 310}))


IGNORED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def with_rules(*pods: Document, jobset: Document | None = None) -> Document:
    given = tolerant()
    replicated(given)["template"]["spec"]["podFailurePolicy"] = {"rules": [*pods]}
    given["spec"]["template"]["spec"]["failurePolicy"]["rules"] = [jobset or RESTART]
    return given


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (tolerant(), []),
        (bare(), ["no podFailurePolicy of node fails its Job", "without failurePolicy a failed Job ends the job"]),
        (with_rules(STOPPED, DISRUPTED, IGNORED), []),
        (with_rules(IGNORED, DISRUPTED), ["the first rule of node for DisruptionTarget is Ignore", "its peers wait for it"]),
        (with_rules({**IGNORED, "action": "Count"}), ["the first rule of node for DisruptionTarget is Count"]),
        (with_rules(DISRUPTED, jobset={"action": "FailJobSet"}), ["with FailJobSet, which ends the job"]),
        (
            with_rules(DISRUPTED, jobset={"action": "FailJobSet", "onJobFailureMessagePatterns": ["exit code 4"]}),
            ["with RestartJobSet, which uses one of maxRestarts"],
        ),
        (with_rules(DISRUPTED, jobset={**RESTART, "onJobFailureMessagePatterns": ["condition .* matching"]}), []),
        (with_rules(DISRUPTED, jobset={**RESTART, "targetReplicatedJobs": ["other"]}), ["with RestartJobSet"]),
        (with_rules(Unknown("r")), []),
    ],
)  # fmt: skip
def test_what_a_disruption_costs(given: Document, says: list[str]) -> None:
    told = [w for w in found(given, job({**SAVING, "numNodes": 2}), mode="trainer") if w.code == "PT134"]
    assert len(told) == bool(says)
    assert all(part in told[0].why for part in says)
    assert codes(given, job({"numNodes": 2, "command": BOOTSTRAP}), mode="trainer") == []


def test_a_runtime_that_restarts_containers_in_place_has_no_rules_for_disruptions() -> None:
    given, saving = tolerant(), job(SAVING)
    pod(given)["restartPolicy"] = "OnFailure"
    replicated(given)["template"]["spec"].pop("podFailurePolicy")
    [warning] = found(given, saving, mode="trainer")
    assert (warning.code, warning.where.rpartition(".")[2]) == ("PT134", "restartPolicy")
    assert "restartPolicy OnFailure, with which Kubernetes allows no podFailurePolicy" in warning.why
    assert 'podFailurePolicy: {"rules"' in warning.hint
    assert codes(given, saving, mode="trainer", cluster=False) == []
    documents = default_runtime(given), default_train_job(saving)
    [warning] = warnings(*documents, render(*documents, disruptions=Disruptions()).objects)
    assert warning.hint.endswith("or leave it out: the checkpoint policy then adds the rules")


def test_kubernetes_replaces_a_single_pod_without_counting() -> None:
    given = with_rules(IGNORED)
    given["spec"]["template"]["spec"].pop("failurePolicy")
    assert codes(given, job(SAVING), mode="trainer") == []
    assert codes(given, job({**SAVING, "numNodes": 2}), mode="trainer") == ["PT134"]


def test_the_policy_of_a_job_makes_its_disruptions_free() -> None:
    documents = default_runtime(bare()), default_train_job(job(SAVING))
    objects = render(*documents, disruptions=Disruptions()).objects
    assert warnings(*documents, objects) == ()


def test_a_program_that_can_report_success_when_it_is_interrupted() -> None:
    def told(command: Any, **more: Any) -> list[str]:
        return codes(tolerant(), job({**SAVING, "command": command, **more}))

    assert told(["python3", "train.py"]) == told(None) == told(["./run"]) == ["PT135"]
    assert told(["torchrun", "train.py"]) == ["PT136"] and told(BOOTSTRAP) == told(Unknown("c")) == []
    assert told(["python3", "train.py"], env=[]) == []
    [warning] = found(tolerant(), job({"env": CHECKPOINT}))
    assert "the command of the image has to end with exit code 143" in warning.why
    assert codes(tolerant(), job({"env": CHECKPOINT}), cluster=False) == ["PT135"]


def test_how_long_torchrun_waits_for_its_workers() -> None:
    setting = {"env": [{"name": "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "value": "300"}]}

    def told(command: list[str], grace: Any = 120, policy: Document = TORCH, **more: Any) -> list[Any]:
        pod = {} if grace is None else {"terminationGracePeriodSeconds": grace}
        return found(runtime(policy, step(pod=pod)), job({"command": command, **more}), cluster=False)

    assert not told(TORCHRUN, None) and not told(TORCHRUN, 30) and not told(TORCHRUN, Unknown("g"))
    assert not told(TORCHRUN, policy={"jax": {}}) and not told(BOOTSTRAP) and not told(["python3", "train.py"])
    assert not told(["torchrun", "--shutdown-timeout=110", "a.py"]) and not told(TORCHRUN, **setting)
    assert not told(TORCHRUN, image="pytorch/pytorch:2.12.0-cuda13", **setting)
    for command in (["bash", "-c", "torchrun a.py"], ["python3", "-m", "torch.distributed.run", "a.py"]):
        assert [w.code for w in told(command)] == ["PT136"]
    [warning] = told(TORCHRUN, image="registry/pytorch/pytorch:2.9.1-cuda12", **setting)
    assert "torch 2.9 in the image cannot change these 30 seconds" in warning.why and "2.12 or newer" in warning.hint


def test_grace_periods() -> None:
    [warning] = found(tolerant(), job(SAVING, runtimePatches=patched(terminationGracePeriodSeconds=60)))
    assert warning.where.startswith("spec.runtimePatches[0].") and warning.where.endswith(
        ".terminationGracePeriodSeconds"
    )
    [warning] = found(tolerant(terminationGracePeriodSeconds=299), job(SAVING), cluster=False)
    assert warning.code == "PT137" and warning.where.startswith("spec.template.spec.replicatedJobs[0].")
    short = [{"name": "TRAINER_CHECKPOINT_GRACE", "value": "30"}]
    default = runtime(TORCH)
    assert codes(default, job({"command": BOOTSTRAP, "env": short})) == []
    assert codes(default, job({"command": BOOTSTRAP, "env": [{**short[0], "value": "31"}]})) == ["PT137"]
    for given in (Unknown("g"), "5m", "³"):
        assert codes(default, job({"command": BOOTSTRAP, "env": [{**short[0], "value": given}]})) == []


def test_a_node_that_starts_again_alone() -> None:
    given = runtime(TORCH, step(pod={"restartPolicy": "OnFailure"}))
    assert codes(given, job({"command": TORCHRUN})) == []
    assert codes(runtime(TORCH), job({"numNodes": 2, "command": TORCHRUN})) == []
    launcher = mpi_runtime({"mpi": {"runLauncherAsNode": True}})
    pod(launcher, 1)["restartPolicy"] = "OnFailure"
    assert codes(launcher, job({"numNodes": 4})) == []
    assert codes(given, job({"numNodes": 2, "command": TORCHRUN}), cluster=False) == ["PT139"]


def test_deadlines_that_overflow() -> None:
    given = runtime(TORCH)
    replicated(given)["template"]["spec"]["activeDeadlineSeconds"] = 2**62
    for mode in ("jobset", "trainer"):
        [warning] = found(given, job({}), mode=mode)
        assert warning.where == "spec.template.spec.replicatedJobs[0].template.spec.activeDeadlineSeconds"
    [warning] = found(given, job({}, activeDeadlineSeconds=2**62))
    assert warning.where == "spec.activeDeadlineSeconds"
    assert codes(given, job({}), cluster=False) == []


@pytest.mark.parametrize(
    ("spec", "warned"),
    [
        ({}, True),
        ({"preemption": {}}, False),
        ({"preemption": {"withinClusterQueue": "Never"}}, False),
        ({"preemption": Unknown("p")}, False),
        ({"preemption": {}, "cohortName": "shared"}, True),
        ({"preemption": {}, "cohortName": "calm"}, False),
    ],
)
def test_whom_kueue_may_preempt(spec: Document, warned: bool) -> None:
    others = [
        kueue("ClusterQueue", "owner", cohortName="shared", preemption={"reclaimWithinCohort": "Any"}),
        kueue("ClusterQueue", "patient", cohortName="calm"),
    ]
    known = Queues(tuple(others), below=changed("ClusterQueue", "busy", **spec))
    assert codes(runtime(TORCH), queued("busy"), queues=known) == (["PT217"] if warned else [])


def test_a_preemption_that_loses_work_is_about_the_queue() -> None:
    """Such a warning is reported for the first job in the queue, and not for each job of a sweep."""
    told = found(runtime(TORCH), queued("busy"), queues=complete_queues(QUEUES))
    (where,) = [each.where for each in told if each.code == "PT217"]
    assert where == "LocalQueue busy" and where.startswith(ABOUT_QUEUES)


def test_work_that_a_preemption_does_not_lose() -> None:
    queues = complete_queues(QUEUES)

    def told(*volumes: Document, env: str = "", read_only: bool = False, **more: Any) -> list[str]:
        mounts = [{"name": v["name"], "mountPath": f"/{v['name']}", "readOnly": read_only} for v in volumes]
        given = runtime(TORCH, step(pod={"volumes": [*volumes], **more}, container={"volumeMounts": mounts}))
        train_job = queued("busy")
        if env:
            trainer(train_job)["env"] = [{"name": env, "value": "/c"}]
        return [code for code in codes(given, train_job, queues=queues) if code == "PT217"]

    claim = {"name": "a", "persistentVolumeClaim": {"claimName": "a"}}
    assert told() == told(claim, read_only=True) == told({"name": "a", "emptyDir": {}}) == ["PT217"]
    assert told(claim) == told({"name": "a", "nfs": {}}) == told({"name": "a", "hostPath": {}}) == []
    assert told(env="TRAINER_OUTPUT_DIR") == told(env="TRAINER_CHECKPOINT_DIR") == []
    assert told(priorityClassName="high") == []
    assert "PT217" not in codes(runtime(TORCH), queued("busy"))


@pytest.mark.parametrize(
    ("spec", "container", "warned"),
    [
        ({"nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}}, {}, True),
        ({"affinity": on_nodes("Exists")}, {}, True),
        ({"affinity": on_nodes("DoesNotExist")}, {}, False),
        ({"nodeSelector": {"nvidia.com/gpu.present": "false"}}, {}, False),
        ({"nodeSelector": {"pool": "cpu"}}, {}, False),
        ({}, {}, False),
        ({"nodeSelector": GPU_NODES}, {"resources": {"limits": {"nvidia.com/mig-1g.10gb": 1}}}, False),
        ({"nodeSelector": GPU_NODES}, {"resources": {"claims": [{"name": "gpus"}]}}, False),
        ({"nodeSelector": GPU_NODES}, {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}, False),
        ({"nodeSelector": GPU_NODES, "tolerations": []}, {}, False),
        ({"nodeSelector": GPU_NODES, "tolerations": [{"operator": "Exists"}]}, {}, False),
    ],
)
def test_nodes_with_gpus_that_nobody_requests(spec: Document, container: Document, warned: bool) -> None:
    given = runtime(TORCH, step(pod={"tolerations": [TOLERATION], **spec}, container=container))
    for mode in ("jobset", "trainer"):
        assert ("PT170" in [each.code for each in found(given, job({}), mode=mode)]) is warned
    assert "PT170" not in codes(given, job({}), cluster=False)


@pytest.mark.parametrize(
    ("uri", "image", "warned"),
    [
        ("gs://team/data", "registry.team.example/mirror/dataset-initializer@sha256:1", True),
        ("pvc://claim/data", "ghcr.io/kubeflow/trainer/dataset-initializer", True),
        ("cache://schema/table", "ghcr.io/kubeflow/trainer/dataset-initializer", False),
        ("HF://team/data", "ghcr.io/kubeflow/trainer/dataset-initializer", False),
        ("gs://team/data", "registry.team.example/fetch-from-gcs", False),
    ],
)
def test_storage_uris_that_no_initializer_serves(uri: str, image: str, warned: bool) -> None:
    given = copy.deepcopy(FETCHED)
    pod(given)["containers"][0]["image"] = image
    told = [str(each) for each in found(given, fetching(uri=uri)) if each.code == "PT171"]
    assert len(told) == warned
    assert all(
        f"{uri.partition('://')[0]}:// is not supported by Trainer's dataset-initializer" in each for each in told
    )
    by_env = found(given, fetching({"name": "STORAGE_URI", "value": uri}))
    assert ("PT171" in [each.code for each in by_env]) is warned


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
@pytest.mark.parametrize(
    ("words", "nodes", "says"),
    [
        (["timeout", "--signal=TERM", "2h", "python", "train.py"], 2, "starts Python without torchrun"),
        (["timeout", "2h", "torchrun", "train.py"], 2, ""),
        (["sudo", "-E", "python", "train.py"], 2, "starts Python without torchrun"),
        (["gosu", "user", "python", "train.py"], 2, "starts Python without torchrun"),
        (["composer", "-n", "8", "train.py"], 2, "starts composer, which reads WORLD_SIZE"),
        (["composer", "--world_size", "16", "train.py"], 2, ""),
        (["composer", "train.py"], 1, ""),
        (["fabric", "run", "train.py"], 2, "starts fabric run, whose --num-nodes is 1"),
        (["fabric", "run", "--num-nodes=2", "train.py"], 2, ""),
        (["fabric", "consolidate", "folder"], 2, ""),
    ],
)
def test_launchers_behind_other_programs(words: list[str], nodes: int, says: str, mode: Any) -> None:
    warned = found(runtime(TORCH), job({"numNodes": nodes, "command": words}), mode)
    told = [each.why for each in warned if each.code == "PT105"]
    assert len(told) == bool(says) and all(each.startswith(says) for each in told)


@pytest.mark.parametrize("mode", ["jobset", "trainer"])
@pytest.mark.parametrize(
    ("script", "warned"),
    [
        ("torchrun train.py; sleep infinity", True),
        ("while true; do torchrun train.py; done", True),
        ("torchrun train.py && tail -f /dev/null", True),
        ("torchrun train.py || sleep infinity", False),
        ('if [ -n "$DEBUG" ]; then sleep infinity; fi; torchrun train.py', False),
        ("while true; do torchrun train.py && break; done", False),
        ("(while true; do nvidia-smi; done) & torchrun train.py; exit 0", False),
        ("sleep infinity", False),
        ("torchrun train.py", False),
    ],
)
def test_training_that_does_not_end(script: str, warned: bool, mode: Any) -> None:
    told = [w for w in found(runtime(TORCH), job({"command": ["bash", "-c", script]}), mode) if w.code == "PT144"]
    assert len(told) == warned, told
    assert all("which does not end: the job is never complete" in each.why for each in told)


@pytest.mark.parametrize(
    ("policy", "spec", "nodes", "warned"),
    [
        (TORCH, {"hostNetwork": True}, 2, True),
        (TORCH, {"hostNetwork": True, "dnsPolicy": "ClusterFirst"}, 2, True),
        (TORCH, {"dnsPolicy": "Default"}, 2, True),
        (TORCH, {"hostNetwork": True}, 1, False),
        (TORCH, {"hostNetwork": True, "dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.0.0.10"]}}, 2, False),
        (TORCH, {"hostNetwork": Unknown("n")}, 2, False),
        ({}, {"hostNetwork": True}, 2, False),
    ],
)
def test_who_asks_the_dns_of_the_machine(policy: Document, spec: Document, nodes: int, warned: bool) -> None:
    told = codes(runtime(policy, step(pod=spec)), job({"numNodes": nodes, "command": TORCHRUN}))
    assert ("PT310" in told) is warned
    assert "PT310" not in codes(runtime(policy, step(pod=spec)), job({"numNodes": nodes}), cluster=False)


@pytest.mark.parametrize(
    ("depends", "warned"),
    [
        ([], True), ([{"name": "dataset-initializer", "status": "Ready"}], True), (AFTER_DATASET, False),
        ([{"name": "between", "status": "Ready"}], False),
    ],
)  # fmt: skip
def test_who_waits_for_the_data(depends: list[Document], warned: bool) -> None:
    given = copy.deepcopy(FETCHED)
    jobs = given["spec"]["template"]["spec"]["replicatedJobs"]
    jobs.insert(1, {**step("between", ""), "dependsOn": AFTER_DATASET})
    jobs[2]["dependsOn"] = depends
    assert ("PT311" in codes(given, fetching())) is warned
    assert "PT311" not in codes(given, job({})), "nothing is fetched"
    assert "PT311" not in codes(given, fetching(uri="cache://a/b"))


def test_claims_that_all_pods_or_no_container_get() -> None:
    several = job({"numNodes": 3, "numProcPerNode": 1, "command": TORCHRUN})
    (shared,) = [w for w in found(copy.deepcopy(SHARING), several) if w.code == "PT174"]
    assert "the 3 Pods of node share its devices" in shared.why and shared.where.startswith("spec.template.spec.repl")
    assert "PT174" not in codes(claiming("gpus"), copy.deepcopy(several))
    of_init = runtime(TORCH, step(pod={
        **CLAIMS, "initContainers": [{"name": "i", "image": "x", "resources": {"claims": [{"name": "gpus"}]}}],
    }))  # fmt: skip
    assert "PT173" not in codes(of_init, job({}))
    of_job = job({"resourcesPerNode": {"limits": {"cpu": 1}}})
    assert "PT173" not in codes(claiming("gpus"), of_job), "PT148 is about the claims that resourcesPerNode drops"


def test_devices_that_the_documents_lack() -> None:
    asked = job({"numProcPerNode": 4, "command": TORCHRUN})
    for missing, known in ((True, claimed(4)), (False, Queues()), (False, complete_queues([MESHED]))):
        assert ("PT175" in codes(claiming("other"), copy.deepcopy(asked), queues=known)) is missing
    elsewhere = copy.deepcopy(claimed(4).documents[0])
    elsewhere["metadata"]["namespace"] = "away"
    assert "PT175" not in codes(claiming("other"), copy.deepcopy(asked), queues=complete_queues([elsewhere]))


@pytest.mark.parametrize(
    ("modes", "nodes", "says"),
    [
        (["ReadWriteOnce"], 2, "ReadWriteOnce lets only one node mount the claim data"),
        (["ReadWriteOncePod"], 2, "ReadWriteOncePod lets only one Pod mount the claim data"),
        (["ReadWriteMany"], 2, ""), (["ReadWriteOnce", "ReadOnlyMany"], 2, ""), (["ReadWriteOnce"], 1, ""), ([], 2, ""),
    ],
)  # fmt: skip
def test_claims_among_the_documents_for_several_nodes(modes: list[str], nodes: int, says: str) -> None:
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {"accessModes": modes}}
    given = runtime(TORCH, step(**SHARED))
    name = pod(given)["volumes"][0]["persistentVolumeClaim"]["claimName"]
    claim["metadata"] = {"name": name}
    warned = found(given, job({"numNodes": nodes, "command": TORCHRUN}), queues=complete_queues([claim]))
    told = [each.why for each in warned if each.code == "PT128"]
    assert len(told) == bool(says) and all(each.startswith(says.replace("data", name)) for each in told)


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("kueue.x-k8s.io/queue", "did you mean kueue.x-k8s.io/queue-name?"),
        ("kueue.x-k8s.io/Queue-Name", "did you mean kueue.x-k8s.io/queue-name?"),
        ("kueue.x-k8s.io/priority-class-name", "did you mean kueue.x-k8s.io/priority-class?"),
        ("kueue.x-k8s.io/podset-group", ""),
        ("kueue.x-k8s.io/pod-group-name", None), ("kueue.x-k8s.io/managed", None), ("kueue.x-k8s.io/multikueue-origin", None),
        ("team.example/queue", None),
    ],
)  # fmt: skip
def test_labels_that_kueue_does_not_know(key: str, says: str | None) -> None:
    for field in ("labels", "annotations"):
        given = {**job({}), "metadata": {"name": "job", field: {key: "x"}}}
        told = [each.hint for each in found(runtime(TORCH), given) if each.code == "PT229"]
        assert len(told) == (says is not None) and all((says or "") in each for each in told)


def test_cordoned_nodes_ask_for_no_toleration() -> None:
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    node = {"kind": "Node", "metadata": {"name": "a"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}
    assert gpu_taints([{**node, "spec": {"taints": [cordon]}}]) == {"node a": []}


def test_policies_of_other_kinds_may_admit_what_network_policies_do_not() -> None:
    denied = closed({"egress": [{}], "ingress": []})
    cilium = {"apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy", "metadata": {"name": "a"}, "spec": {}}
    several = job({"numNodes": 2, "command": TORCHRUN})
    assert "PT308" in codes(runtime(TORCH), copy.deepcopy(several), queues=complete_queues([denied]))
    assert "PT308" not in codes(runtime(TORCH), several, queues=complete_queues([denied, cilium]))
