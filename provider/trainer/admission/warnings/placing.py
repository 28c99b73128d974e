"""Rules about Pods and the nodes they run on: taints, memory, volumes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pulumi_trainer.provider.kubernetes.device_claims import count_gpus
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.schema.node_fit import lasting_taints, shown_taint
from pulumi_trainer.provider.kubernetes.schema.tolerations import Tolerations
from pulumi_trainer.provider.kubernetes.values.accessors import Document, items, listed, mappings, section, texts
from pulumi_trainer.provider.kubernetes.values.unknown import first_unknown
from pulumi_trainer.provider.kubernetes.views import entries
from pulumi_trainer.provider.kueue.prices import gpu_flavors
from pulumi_trainer.provider.trainer.admission.warnings.view import Step, Taints, View, amount, gpus
from pulumi_trainer.provider.trainer.pipeline.resources import is_gpu

_NCCL = ("torch", "jax", "mpi")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108
_MEMORY_OF_A_PROCESS = 2 * 2**30
"""Bytes on the host that a process with a CUDA context and NCCL's buffers needs at the least."""


def gpu_taints(documents: Iterable[Document]) -> Taints | None:
    """Return the taints of Nodes and ResourceFlavors with GPUs, without those that a flavor tolerates; None if there are neither.

    With ClusterQueues among the documents, a flavor has GPUs if one of them has a quota of GPUs in it; else every flavor may.
    """
    found: dict[str, list[Any]] = {}
    documents = mappings([*documents])
    queues = [document for document in documents if document.get("kind") == "ClusterQueue"]
    flavors = set().union(*(gpu_flavors(queue, is_gpu) for queue in queues))
    for document in documents:
        name = str(section(document, "metadata").get("name"))
        spec = section(document, "spec")
        if document.get("kind") == "Node" and _has_gpus(section(document, "status", "allocatable")):
            found[f"node {name}"] = lasting_taints(document)
        elif document.get("kind") == "ResourceFlavor" and (not queues or name in flavors):
            taints = mappings(spec.get("nodeTaints"))
            own = Tolerations(listed(spec.get("tolerations")))
            found[f"flavor {name}"] = _untolerated(taints, own)
    return found or None


def _untolerated(taints: Iterable[Mapping[str, Any]], tolerations: Tolerations) -> list[Any]:
    return [taint for taint in taints if not tolerations.tolerate(taint)]


def _has_gpus(resources: Document) -> bool:
    for name, value in resources.items():
        if "gpu" in name.lower():
            quantity = amount(value)
            if quantity and quantity.amount:
                return True
    return False


def untolerated_taints(view: View) -> Iterator[Problem]:
    """Yield Pods with GPUs that do not tolerate the taints of any node or flavor with GPUs."""
    if not view.taints or not view.patches_known:
        return
    for step in view.steps:
        tolerations = step.pod.spec.get("tolerations", [])
        has_gpus = any(gpus(c.document) for c in step.pod.containers) or count_gpus(view.claims_of(step))
        if not isinstance(tolerations, list) or not has_gpus:
            continue
        own = Tolerations(tolerations)
        against: dict[str, list[Any]] = {}
        for place, taints in view.taints.items():
            untolerated = _untolerated(taints, own)
            against[place] = [taint for taint in untolerated if taint.get("effect") != "PreferNoSchedule"]
        if all(against.values()):
            place, first = next(iter(against.items()))
            shown = ", ".join(map(shown_taint, first))
            more = ""
            if len(against) > 1:
                more = f", and {len(against) - 1} more"
            why = (
                f"the Pods of {step.name} request GPUs and do not tolerate the taints of any node with GPUs:"
                f" {place} has {shown}{more}"
            )
            yield Problem(f"{step.pod.at}.tolerations", why, "add tolerations in the runtime or by a runtimePatch")


_TAINT = "nvidia.com/gpu"
_OF_GPU_NODES = re.compile(r"gpu|accelerator|nvidia\.com", re.IGNORECASE)
"""Labels by which Pods select nodes with GPUs."""
_DEVICES = re.compile(r"gpu|^(nvidia|amd)\.com/", re.IGNORECASE)


def unrequested_gpus(view: View) -> Iterator[Problem]:
    """Yield nodes whose Pods go to nodes with GPUs and request none: the container sees no GPU."""
    step, container = view.worker, view.worker_container
    if step is None or container is None or first_unknown(step.pod.spec) is not None:
        return
    tolerated = {toleration.get("key") for toleration in items(step.pod.spec, "tolerations")}
    label = next(filter(_OF_GPU_NODES.search, _selected_labels(step.pod.spec)), None)
    if _TAINT not in tolerated or label is None or _may_have_devices(step):
        return
    why = (
        f"the Pods of {step.name} tolerate the taint {_TAINT}, select nodes by {label} and request no GPU: their"
        " containers see none, and the GPUs of the node stay unused"
    )
    hint = f'request them: resourcesPerNode with limits {{"{_TAINT}": ...}}; or remove toleration and selector'
    yield Problem(f"{step.pod.at}.tolerations", why, hint)


def _selected_labels(spec: Document) -> Iterator[str]:
    """Yield the labels that a node must have for a Pod."""
    for key, value in section(spec, "nodeSelector").items():
        if value != "false":
            yield key
    required = section(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    for term in items(required, "nodeSelectorTerms"):
        for expression in items(term, "matchExpressions"):
            if expression.get("operator") in ("In", "Exists") and expression.get("values") != ["false"]:
                yield str(expression.get("key"))


def _may_have_devices(step: Step) -> bool:
    """Return whether Pods get devices: by a resource, by a claim, or by the variable of NVIDIA's runtime."""
    if step.pod.spec.get("resourceClaims"):
        return True
    for container in step.pod.all_containers:
        resources = container.document.get("resources")
        names = [*section(resources, "limits"), *section(resources, "requests")]
        if any(map(_DEVICES.search, names)) or section(resources).get("claims"):
            return True
        if any(each.get("name") == "NVIDIA_VISIBLE_DEVICES" for each in container.env):
            return True
    return False


def small_shared_memory(view: View) -> Iterator[Problem]:
    """Yield nodes with several GPUs with the default /dev/shm, which NCCL's buffers and DataLoader's workers use."""
    container = view.worker_container
    if not view.has_policy("torch") or view.worker is None or container is None or view.gpus < 2:
        return
    if not view.steps_known or not view.patches_known:
        return
    one_process = (view.trainer or {}).get("numProcPerNode") == 1
    if (
        one_process
        or view.worker.pod.spec.get("hostIPC") is True
        or not isinstance(container.get("volumeMounts", []), list)
    ):
        return
    mounts = {str(section(m).get("mountPath")).rstrip("/") for m in listed(container.get("volumeMounts"))}
    if not mounts & {_SHARED_MEMORY, "/dev"}:
        why = f"{view.gpus} GPUs of a node share the default /dev/shm of 64 MiB, which NCCL and DataLoader soon fill"
        hint = 'mount a volume {"emptyDir": {"medium": "Memory"}} at /dev/shm, in the runtime or by a runtimePatch'
        yield Problem(f"{view.worker.pod.at}.volumes", why, hint)


def memory_limits(view: View) -> Iterator[Problem]:
    """Yield containers on several nodes whose memory limit is too low for NCCL."""
    container = view.worker_container
    if (
        not view.has_policy(*_NCCL)
        or not view.several_nodes
        or view.worker is None
        or container is None
        or not view.gpus
    ):
        return
    resources = container.get("resources", {})
    if not isinstance(resources, dict):
        return
    limits = [resources.get("limits", {})]
    of_pod = view.worker.pod.spec.get("resources", {})
    if isinstance(of_pod, dict):
        limits.append(of_pod.get("limits", {}))
    if not all(isinstance(each, dict) for each in limits):
        return
    where = "spec.trainer.resourcesPerNode.limits.memory"
    given = next((each["memory"] for each in limits if "memory" in each), None)
    wanted = view.gpus * _MEMORY_OF_A_PROCESS + _shared(view.worker)
    if given is None:
        why = (
            f"is missing on {view.nodes} nodes with GPUs: other Pods there can use up the memory, and if one"
            " process is killed (OOM), all others wait for it until NCCL times out"
        )
        yield Problem(where, why, f"give a limit and the same request, more than {_gi(wanted)}")
        return
    limit = amount(given)
    if limit and limit.amount < wanted:
        why = (
            f"is {given}; {view.gpus} processes with CUDA and NCCL need about {_gi(wanted)}, shared memory"
            " included: one is killed (OOM), and those of the other nodes wait for it until NCCL times out"
        )
        yield Problem(where, why, f"give more than {_gi(wanted)}")


def tiny_memory(view: View) -> Iterator[Problem]:
    """Yield containers whose memory limit is too low for any process: a number without its unit is in bytes."""
    for step in view.steps:
        for container in step.pod.all_containers:
            given = section(container.document, "resources", "limits").get("memory")
            limit = amount(given)
            if limit is not None and limit.amount < _LEAST_MEMORY:
                why = f"is {given}, less than the 6 MiB that a container needs to start: a number without unit is in bytes"
                yield Problem(f"{container.at}.resources.limits.memory", why, 'give a unit, such as "16Gi"')


_LEAST_MEMORY = 6 * 2**20


def _shared(step: Step) -> int:
    """Return the bytes that the Pod's volumes in memory may take of its limit, as far as they have a size limit."""
    total = 0
    for volume in step.pod.volumes:
        source = section(volume, "emptyDir")
        if source.get("medium") == "Memory":
            size = amount(source.get("sizeLimit"))
            if size:
                total += size.value
    return total


def _gi(size: int) -> str:
    return f"{-(-size // 2**30)}Gi"


def one_node_claims(view: View) -> Iterator[Problem]:
    """Yield volumes that only one node can mount, but several do."""
    claims: dict[Any, tuple[str, list[str]]] = {}
    for place, policy in enumerate(listed(section(view.jobset, "spec").get("volumeClaimPolicies"))):
        for number, template in enumerate(listed(section(policy).get("templates"))):
            at = f"spec.template.spec.volumeClaimPolicies[{place}].templates[{number}].spec.accessModes"
            modes = texts(section(template, "spec").get("accessModes"))
            claims[section(template, "metadata").get("name")] = at, modes
    for step in view.steps:
        if step.pods is None or step.pods < 2:
            continue
        mounted = {mount.get("name") for mount in step.pod.mounts}
        known = {name: claim for name, claim in claims.items() if name in mounted}
        for name, (at, modes) in {**known, **dict(_known_claims(view, step))}.items():
            if modes and not any("Many" in mode for mode in modes):
                one = "Pod" if modes == ["ReadWriteOncePod"] else "node"
                needed = f"{step.pods} Pods of {step.name} need it"
                why = f"{' and '.join(modes)} lets only one {one} mount the claim {name}, but {needed}"
                yield Problem(at, why, "use ReadWriteMany, with a StorageClass that supports it")


def _known_claims(view: View, step: Step) -> Iterator[tuple[Any, tuple[str, list[str]]]]:
    """Yield name, path and access modes of each known PersistentVolumeClaim of a step."""
    namespace = view.namespace
    for at, volume in entries(step.pod.spec, "volumes", step.pod.at):
        name = section(volume, "persistentVolumeClaim").get("claimName")
        claim = view.queues.find("PersistentVolumeClaim", name, namespace)
        yield name, (f"{at}.persistentVolumeClaim", texts(section(claim, "spec").get("accessModes")))
