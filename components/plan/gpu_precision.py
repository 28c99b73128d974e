"""Whether the GPUs of a job's nodes have the precision that a fine-tuning tool is asked for, as far as labels say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pulumi_trainer.args.arguments import quoted
from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, items, listed, mappings, section
from pulumi_trainer.provider.kubernetes.views import jobs_of
from pulumi_trainer.provider.kueue.queue_state import Queues
from pulumi_trainer.provider.trainer.admission.multikueue import cluster_queue_of

_FIELDS = ("bf16", "bf16_full_eval", "tf32", "pure_bf16")
"""Fields that need a GPU of NVIDIA's generation Ampere or a newer one."""
_KIND = re.compile(r"gpu[.-](?:product|name|model|family)$|accelerator$|instance-(?:type|family)$|gpu\.compute\.major$")
"""Labels of nodes that tell the kind of a GPU: of NVIDIA's feature discovery, GKE, EKS, Karpenter, and instance types."""
_OLD = re.compile(
    r"(?:^|[^a-z0-9])(v100s?|t4g?|p100|p40|p4|m60|m40|k80|titan-(?:v|xp|rtx)|quadro-rtx-\d+|rtx-20\d\d"
    r"|volta|turing|pascal|maxwell|kepler|p2|p3|p3dn|g3|g3s|g4dn|g5g|nc\d+\w*_v[23])(?:[^a-z0-9]|$)",
    re.IGNORECASE,
)


def precision_problems(config: Any, jobsets: Iterable[Document], queues: Queues) -> list[Problem]:
    """Return the fields of a tool that all GPUs on which a job may run lack."""
    if not isinstance(config, Mapping):
        return []
    asked = [name for name in _FIELDS if config.get(name) is True]
    if not asked:
        return []
    kind = _kind_of_jobs(jobsets, queues)
    if not kind:
        return []
    why = (
        f"is True, but the GPUs of the nodes ({kind}) do not support it: bf16 and tf32 need NVIDIA Ampere (A100,"
        " A10) or newer"
    )
    hint = 'use config={"fp16": True}, or nodes with newer GPUs'
    return [Problem(f"trainer.config[{quoted(name)}]", why, hint) for name in asked]


def _kind_of_jobs(jobsets: Iterable[Document], queues: Queues) -> str:
    """Return the first of the labels that `_kind_of_nodes` finds."""
    for jobset in jobsets:
        kind = _kind_of_nodes(jobset, queues)
        if kind:
            return kind
    return ""


def _kind_of_nodes(jobset: Document, queues: Queues) -> str:
    """Return the label of the nodes of a job, if all nodes that it may get have old GPUs; else an empty text."""
    for job in jobs_of(jobset):
        for container in job.pod.containers:
            limits = section(container.document, "resources", "limits")
            if "gpu" in " ".join(map(str, limits)):
                return _of_pod(job.pod.spec) or _of_flavors(_flavors(jobset, queues))
    return ""


def _of_pod(spec: Document) -> str:
    found = _of_labels(section(spec, "nodeSelector").items())
    if found:
        return found
    required = section(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return _of_all(map(_of_term, mappings(required.get("nodeSelectorTerms"))))


def _of_term(term: Document) -> str:
    """Return the old kind that a term of a node affinity asks for."""
    for each in mappings(term.get("matchExpressions")):
        if each.get("operator") != "In":
            continue
        key = each.get("key")
        found = _of_all(_of_labels([(key, value)]) for value in listed(each.get("values")))
        if found:
            return found
    return ""


def _flavors(jobset: Document, queues: Queues) -> list[Document | None]:
    """Return the flavors in which the queue of a job has quota of GPUs; None for one that is not known."""
    found = []
    for group in items(section(cluster_queue_of(jobset, queues), "spec"), "resourceGroups"):
        if any("gpu" in str(name) for name in listed(group.get("coveredResources"))):
            found += [queues.find("ResourceFlavor", each.get("name")) for each in items(group, "flavors")]
    return found


def _of_flavors(flavors: Iterable[Document | None]) -> str:
    return _of_all(_of_labels(section(each or {}, "spec", "nodeLabels").items()) for each in flavors)


def _of_labels(labels: Iterable[tuple[Any, Any]]) -> str:
    for key, value in labels:
        if isinstance(key, str) and isinstance(value, str) and _KIND.search(key) and _is_old(key, value):
            return f"{key}={value}"
    return ""


def _is_old(key: str, value: str) -> bool:
    if key.endswith("compute.major"):
        return value.isdecimal() and int(value) < 8
    return _OLD.search(value) is not None


def _of_all(found: Iterator[str]) -> str:
    """Return the first of several texts if none is empty."""
    texts = [*found]
    if not texts or not all(texts):
        return ""
    return texts[0]
