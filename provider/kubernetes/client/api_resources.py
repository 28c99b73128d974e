"""Kinds of core Kubernetes that this package reads and writes, and the API resources of their objects."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True)
class Kind:
    """A kind at the version in use. plural: Its name in paths and in permissions."""

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
        if self.group:
            return f"/apis/{self.api_version}"
        return f"/api/{self.api_version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of an object on the API server; without a name, of all objects. subresource: Such as `log` of a Pod."""
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
        """Return the name of an object in errors: `JobSet team/digits`."""
        if self.namespaced and namespace:
            return f"{self.kind} {namespace}/{name}"
        return f"{self.kind} {name}"


NAMESPACE = Kind("v1", "Namespace", "namespaces", False)
NODE = Kind("v1", "Node", "nodes", False)
POD = Kind("v1", "Pod", "pods")
EVENT = Kind("v1", "Event", "events")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
SECRET = Kind("v1", "Secret", "secrets")
SERVICE = Kind("v1", "Service", "services")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
RESOURCE_QUOTA = Kind("v1", "ResourceQuota", "resourcequotas")
LIMIT_RANGE = Kind("v1", "LimitRange", "limitranges")
CLAIM = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
JOB = Kind("batch/v1", "Job", "jobs")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
ROLE = Kind("rbac.authorization.k8s.io/v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
CLUSTER_ROLE = Kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", False)
CLUSTER_ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", False)
_ADMISSION = "admissionregistration.k8s.io/v1"
ADMISSION_POLICY = Kind(_ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", False)
ADMISSION_POLICY_BINDING = Kind(
    _ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", False
)
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
PRIORITY_CLASS = Kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", False)
RUNTIME_CLASS = Kind("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", False)
RESOURCE_CLAIM_TEMPLATE = Kind("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates")
RESOURCE_CLAIM = Kind("resource.k8s.io/v1", "ResourceClaim", "resourceclaims")
DEVICE_CLASS = Kind("resource.k8s.io/v1", "DeviceClass", "deviceclasses", False)
STORAGE_CLASS = Kind("storage.k8s.io/v1", "StorageClass", "storageclasses", False)
ACCESS_REVIEW = Kind("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", False)
RULES_REVIEW = Kind("authorization.k8s.io/v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", False)
