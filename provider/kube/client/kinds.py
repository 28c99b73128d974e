"""The kinds of objects that we read and write, and where an API server keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True)
class Kind:
    """A kind at the version that we speak. plural: its name in paths and in permissions."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """API group; empty for the core."""
        return self.api_version.rpartition("/")[0]

    @property
    def root(self) -> str:
        """Path of the group and version."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Path of an object, or of all of a namespace (of all namespaces if that is empty)."""
        parts = [self.root]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def where(self, namespace: str, name: str) -> str:
        """How errors call an object: `JobSet team/digits`."""
        return f"{self.kind} {namespace}/{name}" if self.namespaced and namespace else f"{self.kind} {name}"


NAMESPACE = Kind("v1", "Namespace", "namespaces", False)
NODE = Kind("v1", "Node", "nodes", False)
POD = Kind("v1", "Pod", "pods")
EVENT = Kind("v1", "Event", "events")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
SECRET = Kind("v1", "Secret", "secrets")
SERVICE = Kind("v1", "Service", "services")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
CLAIM = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
JOB = Kind("batch/v1", "Job", "jobs")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
PRIORITY_CLASS = Kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", False)
RUNTIME_CLASS = Kind("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", False)
STORAGE_CLASS = Kind("storage.k8s.io/v1", "StorageClass", "storageclasses", False)
DEFINITION = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", False)
ACCESS_REVIEW = Kind("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", False)
RULES_REVIEW = Kind("authorization.k8s.io/v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", False)
