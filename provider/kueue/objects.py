"""Kueue's objects that people write: their kinds, and one model of them for every version of the API.

All of ours is written in v1beta2; `at_version` says the same in the words of an older one. Differences are those of
https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/apis/kueue/v1beta1 (its conversions) and, of v1alpha1,
https://github.com/kubernetes-sigs/kueue/tree/v0.10.0/apis/kueue/v1alpha1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from pulumi_trainer.provider.kube.errors import Invalid, Problem
from pulumi_trainer.provider.kube.values.quantity import Quantity, canonical

Document = dict[str, Any]

GROUP = "kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1", "v1alpha1")
"""Newest first."""
NEWEST = VERSIONS[0]
KINDS: dict[str, str] = {
    "Topology": "topologies",
    "ResourceFlavor": "resourceflavors",
    "ProvisioningRequestConfig": "provisioningrequestconfigs",
    "MultiKueueCluster": "multikueueclusters",
    "MultiKueueConfig": "multikueueconfigs",
    "AdmissionCheck": "admissionchecks",
    "Cohort": "cohorts",
    "ClusterQueue": "clusterqueues",
    "LocalQueue": "localqueues",
    "WorkloadPriorityClass": "workloadpriorityclasses",
}
"""Kind -> plural; what others refer to comes before them."""
NAMESPACED = "LocalQueue"
FINALIZER = "kueue.x-k8s.io/resource-in-use"
QUOTAS = ("nominalQuota", "borrowingLimit", "lendingLimit", "weight")
"""Fields that are quantities."""
BOUNDLESS: Mapping[str, str] = {"cpu": "1M", "memory": "1Pi", "ephemeral-storage": "1Pi"}
"""More than any cluster has: a queue without a quota of these admits no job that asks for them."""
NODE_LABEL_OF_HOSTS = "kubernetes.io/hostname"


def references(document: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(kind, name, field) of the objects of Kueue's that a v1beta2 document names, each once; unknown names are left out."""
    spec = _map(document.get("spec"))
    found: list[tuple[str, Any, str]] = []
    match document.get("kind"):
        case "ResourceFlavor":
            found = [("Topology", spec.get("topologyName"), "spec.topologyName")]
        case "ClusterQueue":
            found = [("Cohort", spec.get("cohortName"), "spec.cohortName"), *_flavors(spec), *_checks(spec)]
        case "Cohort":
            found = [("Cohort", spec.get("parentName"), "spec.parentName"), *_flavors(spec)]
        case "LocalQueue":
            found = [("ClusterQueue", spec.get("clusterQueue"), "spec.clusterQueue")]
        case "AdmissionCheck":
            asked = _map(spec.get("parameters"))
            if asked.get("apiGroup") == GROUP:
                found = [(str(asked.get("kind")), asked.get("name"), "spec.parameters.name")]
        case "MultiKueueConfig":
            names = enumerate(_list(spec.get("clusters")))
            found = [("MultiKueueCluster", name, f"spec.clusters[{i}]") for i, name in names]
    first: dict[tuple[str, str], str] = {}
    for kind, name, where in found:
        if isinstance(name, str) and name:
            first.setdefault((kind, name), where)
    return [(kind, name, where) for (kind, name), where in first.items()]


def _flavors(spec: Mapping[str, Any]) -> Iterable[tuple[str, Any, str]]:
    for i, group in enumerate(_list(spec.get("resourceGroups"))):
        for j, flavor in enumerate(_list(_map(group).get("flavors"))):
            yield "ResourceFlavor", _map(flavor).get("name"), f"spec.resourceGroups[{i}].flavors[{j}].name"


def _checks(spec: Mapping[str, Any]) -> Iterable[tuple[str, Any, str]]:
    checks = _list(_map(spec.get("admissionChecksStrategy")).get("admissionChecks"))
    for i, check in enumerate(checks):
        yield "AdmissionCheck", _map(check).get("name"), f"spec.admissionChecksStrategy.admissionChecks[{i}].name"


def printed(value: Any, where: str = "", name: str = "") -> Any:
    """A document, or a part of it, with its quantities as Go prints them: what a server gives back is then what was sent.
    Raises Invalid for a quantity that is none."""
    if name in QUOTAS and isinstance(value, (str, int, float)) and not isinstance(value, bool):
        try:
            return canonical(str(value))
        except ValueError as error:
            raise Invalid(Problem(where, str(error))) from None
    if isinstance(value, dict):
        return {k: printed(v, f"{where}.{k}", k) for k, v in value.items()}
    return [printed(v, f"{where}[{i}]") for i, v in enumerate(value)] if isinstance(value, list) else value


def served_version(kind: str, served: Mapping[str, Iterable[str]]) -> str | None:
    """The newest version that has the kind; None: no version that we know has. served: version -> plurals."""
    return next((v for v in VERSIONS if KINDS[kind] in served.get(v, ())), None)


def at_version(document: Document, version: str) -> tuple[Document, list[Problem]]:
    """A v1beta2 document in another version, and what that version cannot say. Raises nothing; nothing given is changed."""
    if version == NEWEST:
        return document, []
    spec, problems = dict(_map(document.get("spec"))), list[Problem]()
    if convert := _OLDER.get(document["kind"]):
        convert(spec, problems, version)
    problems = [Problem(p.where, f"cannot be said in {GROUP}/{version}, the newest that the cluster has", _NEWER)
                for p in problems]  # fmt: skip
    converted = {**document, "apiVersion": f"{GROUP}/{version}"}
    return ({**converted, "spec": spec} if "spec" in document else converted), problems


_NEWER = "upgrade Kueue there, or leave it out"


def _cluster_queue(spec: Document, problems: list[Problem], _: str) -> None:
    if "cohortName" in spec:
        spec["cohort"] = spec.pop("cohortName")
    fungibility = _map(spec.get("flavorFungibility"))
    if fungibility:
        words = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}
        spec["flavorFungibility"] = {
            k: words[k] if k in words and v == "MayStopSearch" else v for k, v in fungibility.items()
        }
    _unsaid(spec, "concurrentAdmissionPolicy", problems)


def _cohort(spec: Document, _: list[Problem], version: str) -> None:
    if version == "v1alpha1" and "parentName" in spec:
        spec["parent"] = spec.pop("parentName")


def _cluster(spec: Document, problems: list[Problem], _: str) -> None:
    source = dict(_map(spec.pop("clusterSource", None)))
    _unsaid(source, "clusterProfileRef", problems, "spec.clusterSource.")
    if kubeconfig := _map(source.get("kubeConfig")):
        spec["kubeConfig"] = {"locationType": "Secret", **kubeconfig}


def _config(spec: Document, problems: list[Problem], _: str) -> None:
    if spec.get("quotaManagement") == "Manual":
        del spec["quotaManagement"]
    _unsaid(spec, "quotaManagement", problems)


def _unsaid(spec: Document, name: str, problems: list[Problem], at: str = "spec.") -> None:
    if spec.pop(name, None) is not None:
        problems.append(Problem(f"{at}{name}", ""))


_OLDER: dict[str, Callable[[Document, list[Problem], str], None]] = {
    "ClusterQueue": _cluster_queue,
    "Cohort": _cohort,
    "MultiKueueCluster": _cluster,
    "MultiKueueConfig": _config,
}


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def quota_rows(queues: Sequence[Mapping[str, Any]], teams: Sequence[str], resource: str) -> list[Document]:
    """A row for each team and flavor: what is its own, what it may borrow and lend (None: no limit), what all of them have."""
    quotas = [_quotas(queue, resource) for queue in queues]
    total: dict[str, Fraction] = {}
    for each in quotas:
        for flavor, quota in each.items():
            total[flavor] = total.get(flavor, Fraction(0)) + _amount(quota.get("nominalQuota"))
    found = []
    for team, queue, each in zip(teams, queues, quotas, strict=True):
        for flavor, quota in each.items():
            limits = {k: quota[f"{k}Limit"] for k in ("borrowing", "lending") if f"{k}Limit" in quota}
            found.append({
                "team": team, "cluster_queue": queue["metadata"]["name"], "flavor": flavor, "resource": resource,
                "own": quota.get("nominalQuota"), "borrows": limits.get("borrowing"), "lends": limits.get("lending"),
                "of": int(total[flavor]),
            })  # fmt: skip
    return found


def quota_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The rows in columns, line by line: an output of one text would be shown with `\\n` in it."""
    heads = ("team", "flavor", "own", "borrows", "lends", "of")
    words = {None: "all"}
    lines = [heads, *(tuple(str(words.get(row[h], row[h])) for h in heads) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _quotas(queue: Mapping[str, Any], resource: str) -> dict[str, Mapping[str, Any]]:
    """Flavor -> the quota of a resource."""
    found: dict[str, Mapping[str, Any]] = {}
    for group in _list(_map(queue.get("spec")).get("resourceGroups")):
        for flavor in _list(_map(group).get("flavors")):
            for quota in _list(_map(flavor).get("resources")):
                if _map(quota).get("name") == resource:
                    found[str(flavor.get("name"))] = _map(quota)
    return found


def _amount(value: Any) -> Fraction:
    return Quantity.parse(str(value)).amount if isinstance(value, (int, str)) else Fraction(0)
