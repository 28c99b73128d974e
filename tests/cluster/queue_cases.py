"""Objects of Kueue's, right and wrong, for the same verdict from the offline check and from a real server.

A case is a kind and changes to a good object of that kind: (path, value) pairs, where a path's last part `-` takes away.
"""

from __future__ import annotations

import copy
from typing import Any

Document = dict[str, Any]

API = "kueue.x-k8s.io/v1beta2"


def quota(name: str, nominal: Any = 1, **limits: Any) -> Document:
    return {"name": name, "nominalQuota": nominal, **limits}


def group(*flavors: str, resources: tuple[str, ...] = ("cpu",), **limits: Any) -> Document:
    each = [quota(r, **limits) for r in resources]
    named = [{"name": flavor, "resources": copy.deepcopy(each)} for flavor in flavors]
    return {"coveredResources": list(resources), "flavors": named}


GOOD: dict[str, Document] = {
    "Topology": {"levels": [{"nodeLabel": "cloud/block"}, {"nodeLabel": "cloud/rack"}, {"nodeLabel": "kubernetes.io/hostname"}]},
    "ResourceFlavor": {
        "nodeLabels": {"gpu": "h100"},
        "nodeTaints": [{"key": "gpu", "value": "h100", "effect": "NoSchedule"}],
        "tolerations": [
            {"key": "gpu", "operator": "Equal", "value": "h100", "effect": "NoSchedule"},
            {"key": "slow", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
        ],
        "topologyName": "dc",
    },
    "ProvisioningRequestConfig": {
        "provisioningClassName": "queued.example.com",
        "parameters": {"a": "b"},
        "managedResources": ["nvidia.com/gpu"],
        "retryStrategy": {"backoffLimitCount": 2, "backoffBaseSeconds": 30, "backoffMaxSeconds": 600},
        "podSetUpdates": {"nodeSelector": [{"key": "pool", "valueFromProvisioningClassDetail": "name"}]},
        "podSetMergePolicy": "IdenticalPodTemplates",
    },
    "MultiKueueCluster": {"clusterSource": {"kubeConfig": {"location": "worker", "locationType": "Secret"}}},
    "MultiKueueConfig": {"clusters": ["one", "two"], "quotaManagement": "Manual"},
    "AdmissionCheck": {
        "controllerName": "kueue.x-k8s.io/multikueue",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "workers"},
    },
    "Cohort": {
        "parentName": "all",
        "resourceGroups": [group("shared", borrowingLimit=1, lendingLimit=2)],
        "fairSharing": {"weight": "2"},
    },
    "ClusterQueue": {
        "resourceGroups": [
            {
                "coveredResources": ["cpu", "memory"],
                "flavors": [
                    {
                        "name": "h100",
                        "resources": [
                            quota("cpu", 10, borrowingLimit="5", lendingLimit=4),
                            quota("memory", "64Gi"),
                        ],
                    }
                ],
            },
            group("net", resources=("example.com/nic",)),
        ],
        "cohortName": "research",
        "queueingStrategy": "BestEffortFIFO",
        "namespaceSelector": {
            "matchLabels": {"team": "nlp"},
            "matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}],
        },
        "flavorFungibility": {
            "whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor", "preference": "BorrowingOverPreemption",
        },
        "preemption": {
            "reclaimWithinCohort": "Any",
            "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 10},
            "withinClusterQueue": "LowerPriority",
        },
        "admissionChecksStrategy": {"admissionChecks": [{"name": "check", "onFlavors": ["h100"]}]},
        "stopPolicy": "None",
        "fairSharing": {"weight": 2},
        "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
        "concurrentAdmissionPolicy": {
            "migration": {"mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": "h100"}}
        },
    },
    "LocalQueue": {"clusterQueue": "team", "stopPolicy": "Hold", "fairSharing": {"weight": "0.5"}},
}  # fmt: skip
"""Kind -> a spec with every field."""

Case = tuple[str, str, Any]
"""Kind, path below spec (or from the top where it begins with /), and what stands there; `...`: nothing.
Without a path, the whole spec."""

_G = "resourceGroups"
_F = f"{_G}.0.flavors.0"
_R = f"{_F}.resources.0"
MANY = [group(*(f"f{i}-{j}" for j in range(43))) for i in range(6)]
CASES: list[Case] = [
    *((kind, "", ...) for kind in (*GOOD, "WorkloadPriorityClass")),
    # names
    ("ClusterQueue", "/metadata.name", "a" * 254),
    ("ClusterQueue", "/metadata.name", "a" * 253),
    ("LocalQueue", "/metadata.name", "UPPER"),
    ("Cohort", "/metadata.name", "a_b"),
    ("ResourceFlavor", "/metadata.labels", {"a b": "c"}),
    ("Topology", "/metadata.annotations", {"a b": "c"}),
    # quantities
    *(("ClusterQueue", f"{_R}.nominalQuota", v)
      for v in (-1, "-1", "1.5", "abc", "", "1e3", "1e1.5", "+4", "100000000000Ei", 1.5, None, True, "0", "-0", [], "4 Gi")),
    ("ClusterQueue", f"{_R}.nominalQuota", ...),
    *(("ClusterQueue", f"{_R}.borrowingLimit", v) for v in (-1, 0, "2Gi", "x")),
    *(("ClusterQueue", f"{_R}.lendingLimit", v) for v in (-1, 11, 10, "10000m", "10001m")),
    *(("Cohort", f"{_R}.{field}", v) for field in ("nominalQuota", "borrowingLimit", "lendingLimit") for v in (-1, "x", 100)),
    *((kind, "fairSharing.weight", v) for kind in ("ClusterQueue", "Cohort", "LocalQueue")
      for v in (-1, 0, "1n", "2n", "0.5", "x", 10)),
    # resource groups
    ("ClusterQueue", "cohortName", ...),
    ("ClusterQueue", "cohortName", ""),
    *(("ClusterQueue", "", {"cohortName": v, "resourceGroups": [group("f")]}) for v in ("", "a", "A", "a" * 254)),
    ("Cohort", "", {"parentName": "", "resourceGroups": [group("f")]}),
    ("ClusterQueue", "cohortName", "A"),
    ("ClusterQueue", "cohortName", "a" * 254),
    ("Cohort", "parentName", ...),
    ("Cohort", "parentName", ""),
    ("ClusterQueue", f"{_G}", []),
    ("ClusterQueue", f"{_G}.1", group("h100", resources=("example.com/nic",))),
    ("ClusterQueue", f"{_G}.1", group("net", resources=("cpu",))),
    ("ClusterQueue", f"{_G}.1", group("net", "net")),
    ("ClusterQueue", f"{_F}.resources", [quota("cpu")]),
    ("ClusterQueue", f"{_F}.resources", [quota("memory"), quota("cpu")]),
    ("ClusterQueue", f"{_F}.resources", [quota("cpu"), quota("cpu")]),
    ("ClusterQueue", f"{_F}.resources", [quota("cpu"), quota("memory"), quota("disk")]),
    ("ClusterQueue", f"{_F}.resources", []),
    ("ClusterQueue", f"{_F}.name", ""),
    ("ClusterQueue", f"{_F}.name", "H100"),
    ("ClusterQueue", f"{_F}.name", ...),
    ("ClusterQueue", f"{_G}.0.coveredResources", []),
    ("ClusterQueue", f"{_G}.0.coveredResources", ["cpu", "cpu"]),
    ("ClusterQueue", f"{_G}.0.coveredResources", ["cpu", "mem ory"]),
    ("ClusterQueue", f"{_G}.0.flavors", []),
    ("ClusterQueue", _G, [group(*(f"f{i}" for i in range(17)))]),
    ("ClusterQueue", _G, [group(*(f"f{i}" for i in range(64)))]),
    ("ClusterQueue", _G, [group(*(f"f{i}" for i in range(65)))]),
    ("ClusterQueue", _G, [group(f"f{i}", resources=(f"r{i}",)) for i in range(17)]),
    ("ClusterQueue", _G, [{**g, "coveredResources": [f"r{i}"],
                           "flavors": [{**f, "resources": [quota(f"r{i}")]} for f in g["flavors"]]}
                          for i, g in enumerate(MANY)]),
    ("ClusterQueue", _G, [group(*(f"f{i}" for i in range(9)), resources=tuple(f"r{i}" for i in range(57)))]),
    ("ClusterQueue", _G, [group(f"f{i}", resources=tuple(f"r{i}-{j}" for j in range(64))) for i in range(5)]),
    # words
    *(("ClusterQueue", f"preemption.{field}", v)
      for field in ("reclaimWithinCohort", "withinClusterQueue") for v in ("Never", "Any", "Sometimes", "", 1)),
    ("ClusterQueue", "preemption.withinClusterQueue", "LowerOrNewerEqualPriority"),
    ("ClusterQueue", "preemption", {"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "LowerPriority"}}),
    ("ClusterQueue", "preemption", {"borrowWithinCohort": {"policy": "Never"}}),
    ("ClusterQueue", "preemption", {}),
    ("ClusterQueue", "preemption.borrowWithinCohort.policy", "Any"),
    ("ClusterQueue", "preemption.borrowWithinCohort.maxPriorityThreshold", 2**31),
    *(("ClusterQueue", "flavorFungibility.whenCanBorrow", v) for v in ("MayStopSearch", "Borrow", "", "x")),
    *(("ClusterQueue", "flavorFungibility.whenCanPreempt", v) for v in ("MayStopSearch", "Preempt")),
    ("ClusterQueue", "flavorFungibility.preference", "x"),
    *((kind, "stopPolicy", v) for kind in ("ClusterQueue", "LocalQueue") for v in ("HoldAndDrain", "Drain", "", 0)),
    *(("ClusterQueue", "queueingStrategy", v) for v in ("StrictFIFO", "FIFO", "")),
    ("ClusterQueue", "admissionScope", {}),
    ("ClusterQueue", "admissionScope.admissionMode", "x"),
    ("ClusterQueue", "concurrentAdmissionPolicy.migration.mode", "x"),
    ("ClusterQueue", "concurrentAdmissionPolicy.migration", {}),
    # selectors and checks
    ("ClusterQueue", "namespaceSelector", {}),
    ("ClusterQueue", "namespaceSelector", ...),
    *(("ClusterQueue", "namespaceSelector", {"matchExpressions": [e]})
      for e in ({"key": "a", "operator": "In"}, {"key": "a", "operator": "Exists", "values": ["b"]},
                {"key": "a", "operator": "Is", "values": ["b"]}, {"key": "a b", "operator": "Exists"},
                {"key": "a", "operator": "NotIn", "values": ["b c"]}, {"operator": "Exists"}, {"key": "a"},
                {"key": "a", "operator": "DoesNotExist"})),
    ("ClusterQueue", "namespaceSelector", {"matchLabels": {"a": "b c"}}),
    ("ClusterQueue", "namespaceSelector", {"matchLabels": {"a b": ""}}),
    ("ClusterQueue", "admissionChecksStrategy.admissionChecks", []),
    ("ClusterQueue", "admissionChecksStrategy", {}),
    ("ClusterQueue", "admissionChecksStrategy.admissionChecks.0.onFlavors", ["other"]),
    ("ClusterQueue", "admissionChecksStrategy.admissionChecks.0.onFlavors", ["h100", "h100"]),
    ("ClusterQueue", "admissionChecksStrategy.admissionChecks", [{"name": "a"}, {"name": "a"}]),
    ("ClusterQueue", "admissionChecksStrategy.admissionChecks", [{"name": f"c{i}"} for i in range(65)]),
    ("LocalQueue", "clusterQueue", ""),
    ("LocalQueue", "clusterQueue", "A"),
    ("LocalQueue", "clusterQueue", 5),
    # flavors
    ("ResourceFlavor", "nodeLabels", ...),
    ("ResourceFlavor", "nodeLabels", {}),
    ("ResourceFlavor", "nodeLabels", {f"l{i}": "" for i in range(9)}),
    ("ResourceFlavor", "nodeLabels", {f"l{i}": "" for i in range(8)}),
    ("ResourceFlavor", "nodeLabels", {"a": "b c"}),
    ("ResourceFlavor", "nodeLabels", {"a b": "c"}),
    ("ResourceFlavor", "nodeLabels", {"a": 1}),
    ("ResourceFlavor", "topologyName", ""),
    ("ResourceFlavor", "topologyName", "A"),
    *(("ResourceFlavor", "nodeTaints", v)
      for v in ([{"key": "a", "effect": "NoSchedule"}] * 2,
                [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}],
                [{"key": "a", "effect": "Never"}], [{"key": "a"}], [{"effect": "NoSchedule"}],
                [{"key": "a b", "effect": "NoSchedule"}], [{"key": "a", "value": "b c", "effect": "NoSchedule"}],
                [{"key": f"a{i}", "effect": "NoSchedule"} for i in range(9)])),
    *(("ResourceFlavor", "tolerations", [v])
      for v in ({}, {"operator": "Exists"}, {"operator": "Equal"}, {"key": "a"}, {"key": "a b"},
                {"key": "a", "operator": "In"}, {"key": "a", "operator": "Exists", "value": "b"},
                {"key": "a", "effect": "Never"}, {"key": "a", "tolerationSeconds": 1},
                {"key": "a", "tolerationSeconds": 1, "effect": "NoSchedule"}, {"key": "", "operator": "Equal"},
                {"key": "a", "operator": "Exists", "value": ""})),
    ("ResourceFlavor", "tolerations", [{"key": f"a{i}"} for i in range(9)]),
    # topologies
    *(("Topology", "levels", [{"nodeLabel": label} for label in labels])
      for labels in ((), ("a",), ("a", "a"), ("kubernetes.io/hostname", "a"), ("a", "kubernetes.io/hostname"), ("a b",),
                     ("",), tuple(f"l{i}" for i in range(16)), tuple(f"l{i}" for i in range(17)), ("A/b",), ("a" * 317,))),
    ("Topology", "levels", [{}]),
    # priorities
    *(("WorkloadPriorityClass", "/value", v) for v in (..., 2**31, -(2**31), "1", 1.5, 2.0)),
    ("WorkloadPriorityClass", "/description", "d" * 2049),
    ("WorkloadPriorityClass", "/description", "d" * 2048),
    # checks of other controllers, other clusters
    ("AdmissionCheck", "controllerName", ...),
    ("AdmissionCheck", "controllerName", ""),
    ("AdmissionCheck", "parameters", ...),
    ("AdmissionCheck", "parameters.name", "a.b"),
    ("AdmissionCheck", "parameters.kind", ...),
    ("AdmissionCheck", "parameters.apiGroup", "A"),
    ("ProvisioningRequestConfig", "provisioningClassName", "A"),
    ("ProvisioningRequestConfig", "provisioningClassName", ...),
    ("ProvisioningRequestConfig", "parameters", {f"p{i}": "" for i in range(101)}),
    ("ProvisioningRequestConfig", "parameters", {"p": "v" * 256}),
    ("ProvisioningRequestConfig", "managedResources", ["a", "a"]),
    ("ProvisioningRequestConfig", "retryStrategy.backoffLimitCount", 2**31),
    ("ProvisioningRequestConfig", "podSetMergePolicy", "x"),
    ("ProvisioningRequestConfig", "podSetUpdates.nodeSelector", [{"key": "a b", "valueFromProvisioningClassDetail": "c"}]),
    ("ProvisioningRequestConfig", "podSetUpdates.nodeSelector", [{"key": "a"}]),
    ("MultiKueueConfig", "clusters", []),
    ("MultiKueueConfig", "clusters", ["a", "a"]),
    ("MultiKueueConfig", "clusters", [f"c{i}" for i in range(21)]),
    ("MultiKueueConfig", "quotaManagement", "x"),
    ("MultiKueueCluster", "clusterSource", {}),
    ("MultiKueueCluster", "clusterSource", {"clusterProfileRef": {"name": "p"}}),
    ("MultiKueueCluster", "clusterSource.clusterProfileRef", {"name": "p"}),
    ("MultiKueueCluster", "clusterSource.kubeConfig.locationType", "Url"),
    ("MultiKueueCluster", "clusterSource.kubeConfig.location", ""),
    ("MultiKueueCluster", "clusterSource.kubeConfig.location", ...),
    # fields that nobody knows
    *((kind, "quota", 1) for kind in GOOD),
    ("ClusterQueue", f"{_R}.nominal", 1),
]  # fmt: skip

UPDATES: list[Case] = [
    ("ClusterQueue", "concurrentAdmissionPolicy", ...),
    ("ClusterQueue", "stopPolicy", "HoldAndDrain"),
    ("ClusterQueue", f"{_R}.nominalQuota", -1),
    ("ClusterQueue", "admissionChecksStrategy.admissionChecks.0.onFlavors", ["other"]),
    ("LocalQueue", "clusterQueue", "other"),
    ("LocalQueue", "stopPolicy", "None"),
    ("AdmissionCheck", "controllerName", "other"),
    ("Topology", "levels", [{"nodeLabel": "other"}, {"nodeLabel": "kubernetes.io/hostname"}]),
    ("Topology", "levels.0.nodeLabel", "other"),
    ("Topology", "levels", [{"nodeLabel": "other"}]),
    ("ResourceFlavor", "nodeLabels", {"gpu": "a100"}),
    ("ResourceFlavor", "tolerations", ...),
    ("ResourceFlavor", "topologyName", ...),
    ("ResourceFlavor", "nodeTaints", ...),
    ("WorkloadPriorityClass", "/value", 5),
    ("Cohort", "parentName", "other"),
]
"""Changes of the good object."""


def document(case: Case, name: str, namespace: str) -> Document:
    """The object of a case, under that name unless it says another."""
    kind, path, value = case
    made: Document = {"apiVersion": API, "kind": kind, "metadata": {"name": name}}
    if kind == "LocalQueue":
        made["metadata"]["namespace"] = namespace
    if kind == "WorkloadPriorityClass":
        made |= {"value": 1000, "description": "for tests"}
    else:
        made["spec"] = copy.deepcopy(GOOD[kind])
    if not path and value is not ...:
        made["spec"] = copy.deepcopy(value)
    elif path:
        _put(made if path[0] == "/" else made["spec"], path.lstrip("/").split("."), value)
    return made


def _put(holder: Any, steps: list[str], value: Any) -> None:
    for step in steps[:-1]:
        holder = holder[int(step)] if isinstance(holder, list) else holder[step]
    last = steps[-1]
    if value is ...:
        del holder[last]
    elif isinstance(holder, list):
        holder[int(last)] = value
    else:
        holder[last] = value


def label(case: Case) -> str:
    return f"{case[0]} {case[1]}={str(case[2])[:60]}"
