"""Known objects that decide whether a job starts: those of a program, over those of a cluster.

These are Kueue's objects, as v1beta2, and those of Kubernetes that decide about Pods: `LIMITS` and what Pods reference.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pulumi_trainer.provider.kubernetes.device_claims import CLAIM, CLASS, TEMPLATE, DeviceClaim, device_claims
from pulumi_trainer.provider.kubernetes.values.accessors import (
    Document,
    listed,
    mappings,
    name_of,
    only,
    section,
    text,
    texts,
)
from pulumi_trainer.provider.kubernetes.values.label_selectors import matches_selector
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kubernetes.views import Pod
from pulumi_trainer.provider.kueue import configuration
from pulumi_trainer.provider.kueue.configuration import is_configuration
from pulumi_trainer.provider.kueue.labels import QUEUE
from pulumi_trainer.provider.kueue.objects import references
from pulumi_trainer.provider.kueue.quota import Tree, tree

LIMITS = (
    "Namespace", "LimitRange", "ResourceQuota", "RuntimeClass", "PriorityClass", "Node", "NetworkPolicy", TEMPLATE, CLAIM, CLASS,
)  # fmt: skip
"""Kinds of Kubernetes that decide about Pods, and are no part of Kueue."""
DEFAULT_QUEUE = "default"
"""LocalQueue that Kueue gives jobs of its namespace without a queue."""
OTHER_POLICIES = (
    "CiliumNetworkPolicy",
    "CiliumClusterwideNetworkPolicy",
    "AdminNetworkPolicy",
    "BaselineAdminNetworkPolicy",
)
"""Kinds that may admit what NetworkPolicies do not."""
REFERENCED = ("Secret", "ConfigMap", "PersistentVolumeClaim", "ServiceAccount")
"""Kinds inside a namespace that Pods refer to."""
MAKERS = {"ExternalSecret": ("spec", "target"), "SealedSecret": ("spec", "template", "metadata")}
"""Kinds of which a controller makes a Secret -> the place of its name, if this is another one."""
PROFILE = "Profile"
"""Kubeflow's kind of which a controller makes a namespace for a user."""
_NAME_LABEL = "kubernetes.io/metadata.name"
"""Label of every namespace with its name."""
NAMESPACED = ("LocalQueue", "LimitRange", "ResourceQuota", "Workload", "NetworkPolicy", TEMPLATE, CLAIM, *REFERENCED)


@dataclass(frozen=True)
class Queues:
    """Known objects.

    Args:
        whole: Kinds of which all objects are known.
        below: Further objects, which `documents` override; for example those of a cluster, shared by many jobs.
    """

    documents: tuple[Document, ...] = ()
    whole: frozenset[str] = frozenset()
    below: Queues | None = None

    def find(self, kind: str, name: Any, namespace: Any = "") -> Document | None:
        """Return an object by its name; None if it is not known."""
        if not isinstance(name, str) or not isinstance(namespace, Hashable):
            return None
        if kind not in NAMESPACED:
            namespace = ""
        found = self._by_name.get((kind, namespace, name))
        if found is None and self.below is not None:
            return self.below.find(kind, name, namespace)
        return found

    def lacks(self, kind: str, name: Any, namespace: Any = "") -> bool:
        """Return whether an object is known not to exist, as all objects of its kind are known."""
        if not isinstance(name, str) or not name or not self.has_all(kind):
            return False
        if self.find(kind, name, namespace) is not None:
            return False
        return kind not in (*REFERENCED, TEMPLATE, CLAIM) or self._describes(kind, name, namespace)

    def _describes(self, kind: str, name: str, namespace: Any) -> bool:
        """Return whether the objects are about a namespace: they have it, another object of the kind in it, or an object of that
        name in another one."""
        if self.find("Namespace", namespace) is not None:
            return True
        return any(_key(d)[1] == namespace or _key(d)[2] == name for d in self.of(kind))

    def has_all(self, kind: str) -> bool:
        """Return whether all objects of a kind are known."""
        return kind in self.whole or (self.below is not None and self.below.has_all(kind))

    def of(self, kind: str) -> list[Document]:
        """Return all known objects of a kind."""
        documents = [d for d in self.documents if d.get("kind") == kind]
        if self.below is not None:
            documents += [d for d in self.below.of(kind) if _key(d) not in self._by_name]
        return documents

    def inside(self, kind: str, namespace: Any) -> list[Document]:
        """Return all known objects of a kind in a namespace. namespace: The namespace; empty means `default`."""
        return [d for d in self.of(kind) if _key(d)[1] == (namespace or "default")]

    def claims_of(self, pod: Pod, namespace: Any) -> tuple[DeviceClaim, ...]:
        """Return the devices that a Pod claims. namespace: Its namespace; empty means `default`."""
        return device_claims(pod, lambda kind, name: self.find(kind, name, namespace or "default"))

    @cached_property
    def device_resources(self) -> dict[str, str] | None:
        """DeviceClass, or extended resource of one -> resource of which its devices use quota, by Kueue's configuration; None if
        that is not known.

        The resource of a class with `sources` is empty: its quota depends on counters of the devices.
        Source: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/dra/mapper.go
        """
        if self.configuration is None:
            return None
        found: dict[str, str] = {}
        for mapping in mappings(section(self.configuration, "resources").get("deviceClassMappings")):
            resource = "" if mapping.get("sources") else text(mapping.get("name"))
            for name in texts(mapping.get("deviceClassNames")):
                found.setdefault(name, resource)
        for each in self.of(CLASS):
            extended, resource = text(section(each, "spec").get("extendedResourceName")), found.get(name_of(each), "")
            if extended and resource:
                found.setdefault(extended, resource)
        return found

    @cached_property
    def configuration(self) -> Document | None:
        """Kueue's Configuration; None if it is not known."""
        return next(iter(self.of(configuration.KIND)), None)

    def queue_of(self, job: Document) -> Any:
        """Return the LocalQueue of a TrainJob or a JobSet that Kueue manages itself; empty for none, may be unknown.

        A job without the label gets the LocalQueue named `default` of its namespace, unless it is stopped.
        Source: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/defaults.go, and
        core/localqueue_controller.go beside it for stopped ones
        """
        metadata = section(job, "metadata")
        labels = metadata.get("labels")
        if isinstance(labels, Unknown):
            return labels
        queue, namespace = section(labels).get(QUEUE), metadata.get("namespace") or "default"
        default = self.find("LocalQueue", DEFAULT_QUEUE, namespace)
        if queue or default is None or section(default, "spec").get("stopPolicy") not in (None, "None"):
            return queue or ""
        if not self.manages(namespace) or configuration.leaves_out(self.configuration or {}, str(job.get("kind"))):
            return ""
        return DEFAULT_QUEUE

    def manages(self, namespace: Any) -> bool | None:
        """Return whether Kueue manages jobs of a namespace (`managedJobsNamespaceSelector`); None if that is not known."""
        settings = self.configuration or {}
        selector = settings.get("managedJobsNamespaceSelector")
        if selector is None:
            return namespace not in ("kube-system", settings.get("namespace") or configuration.NAMESPACE)
        return self.selects(section(selector), namespace)

    def selects(self, selector: Document, namespace: Any) -> bool | None:
        """Return whether a LabelSelector selects a namespace; None if labels decide that are not known."""
        known = self.find("Namespace", namespace)
        labels = {_NAME_LABEL: namespace, **section(known, "metadata", "labels")}
        if known is not None:
            return matches_selector(selector, labels)
        whole: Document = {
            "matchLabels": section(selector, "matchLabels"),
            "matchExpressions": mappings(selector.get("matchExpressions")),
        }
        by_name = {
            "matchLabels": only(whole["matchLabels"], (_NAME_LABEL,)),
            "matchExpressions": [each for each in whole["matchExpressions"] if each.get("key") == _NAME_LABEL],
        }
        if not matches_selector(by_name, labels):
            return False
        return True if by_name == whole else None

    @cached_property
    def tree(self) -> Tree:
        """The tree of ClusterQueues and Cohorts."""
        if self.below is not None and not any(d.get("kind") in ("ClusterQueue", "Cohort") for d in self.documents):
            return self.below.tree
        return tree([*self.of("ClusterQueue"), *self.of("Cohort")])

    @cached_property
    def _by_name(self) -> dict[tuple[str, Any, Any], Document]:
        found = {}
        for document in self.documents:
            key = _key(document)
            if None not in key:
                found[key] = document
        return found

    def levels(self, flavor: Document) -> list[str] | None:
        """Return the node labels of a flavor's topology, the widest first; [] for no topology, None if it is not known."""
        name = section(flavor, "spec").get("topologyName")
        if not name:
            return []
        topology = self.find("Topology", name)
        if topology is None:
            return None
        return [str(section(level).get("nodeLabel")) for level in listed(section(topology, "spec").get("levels"))]

    def has_only_topologies(self, cluster_queue: Document | None) -> bool:
        """Return whether all flavors of a ClusterQueue have a topology: Kueue then places also Pods that request none by it."""
        named = references({"kind": "ClusterQueue", **(cluster_queue or {})})
        specs = [section(self.find(kind, name), "spec") for kind, name, _ in named if kind == "ResourceFlavor"]
        return bool(specs) and all(spec.get("topologyName") for spec in specs)


REQUIRED_BY_QUEUES = ("AdmissionCheck", "LocalQueue")
"""Kinds that complete documents have if they have ClusterQueues and use them."""


def is_known_kind(document: Document) -> bool:
    """Return whether a document is an object that decides whether a job starts."""
    kind = document.get("kind")
    if kind in LIMITS or kind in REFERENCED or kind in MAKERS or kind in OTHER_POLICIES or is_configuration(document):
        return True
    if kind == PROFILE:
        return text(document.get("apiVersion")).startswith("kubeflow.org/")
    return str(document.get("apiVersion", "")).startswith("kueue.x-k8s.io/")


def complete_queues(documents: Iterable[Document]) -> Queues:
    """Return the queues in a complete set of documents, such as the files of a command.

    All objects of a kind count as known if one of them is in the documents; `REQUIRED_BY_QUEUES` also if a ClusterQueue is, and
    `REFERENCED` if a Namespace is.
    """
    known: list[Document] = []
    for document in documents:
        if is_known_kind(document):
            known += _made(document)
    kinds = {str(d.get("kind")) for d in known}
    if "ClusterQueue" in kinds:
        kinds |= {"Cohort", *REQUIRED_BY_QUEUES}
    if "Namespace" in kinds:
        kinds |= {*REFERENCED}
    return Queues(tuple(known), frozenset(kinds))


def _made(document: Document) -> list[Document]:
    """Return what controllers make of a document: of those in `MAKERS` the Secret, without its keys; of a Profile its namespace
    with what belongs to it. Return any other document itself.
    """
    kind = str(document.get("kind"))
    if kind == PROFILE:
        return _made_of_profile(document)
    if kind not in MAKERS:
        return [document]
    metadata = section(document, "metadata")
    name = section(document, *MAKERS[kind]).get("name") or metadata.get("name")
    return [{"apiVersion": "v1", "kind": "Secret", "metadata": {**metadata, "name": name}}]


def _made_of_profile(profile: Document) -> list[Document]:
    """Return what Kubeflow's profile controller makes with the settings of its manifests.

    Source: https://github.com/kubeflow/kubeflow/blob/v1.10.0/components/profile-controller/controllers/profile_controller.go
    """
    name = section(profile, "metadata").get("name")
    labels = {_NAME_LABEL: name, "istio-injection": "enabled"}
    found: list[Document] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}]
    for account in ("default-editor", "default-viewer"):
        metadata = {"name": account, "namespace": name}
        found.append({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    quota = section(profile, "spec", "resourceQuotaSpec")
    if section(quota, "hard"):
        metadata = {"name": "kf-resource-quota", "namespace": name}
        found.append({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": quota})
    return found


def _key(document: Document) -> tuple[str, Any, Any]:
    """Return kind, namespace and name of an object; None in place of what is not valid."""
    metadata, kind = section(document, "metadata"), str(document.get("kind"))
    namespace: Any = ""
    if kind in NAMESPACED:
        namespace = metadata.get("namespace") or "default"
    if not isinstance(namespace, Hashable):
        namespace = None
    name = metadata.get("name")
    if not isinstance(name, str):
        name = None
    return kind, namespace, name
