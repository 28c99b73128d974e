"""Kueue's objects that users write: kinds, references, and conversion to older versions of the API.

All documents are of v1beta2; `at_version` converts them to an older version. Differences are those of
https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/apis/kueue/v1beta1 (its conversions) and, of v1alpha1,
https://github.com/kubernetes-sigs/kueue/tree/v0.10.0/apis/kueue/v1alpha1
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, listed, section
from pulumi_trainer.provider.kubernetes.values.quantity import canonical
from pulumi_trainer.provider.kubernetes.values.wording import aligned
from pulumi_trainer.provider.kueue.quota import ZERO, amount

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
BOUNDLESS: Mapping[str, str] = {"cpu": "1M", "memory": "1Pi", "ephemeral-storage": "1Pi", "pods": "1M"}
"""More than any cluster has: a queue without a quota of these admits no job that asks for them."""
NODE_LABEL_OF_HOSTS = "kubernetes.io/hostname"
_DIGEST = re.compile(r"-[0-9a-f]{6}$")


def without_digest(name: str) -> str:
    """Return the name of a flavor without the digest that `GpuQueues` appends for other labels or another topology."""
    return _DIGEST.sub("", name)


def references(document: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return kind, name and field of the objects that a document refers to, each once; unknown names are left out.

    The fields are those of v1beta2.
    """
    spec = section(document, "spec")
    found: list[tuple[str, Any, str]] = []
    match document.get("kind"):
        case "ResourceFlavor":
            found = [("Topology", spec.get("topologyName"), "spec.topologyName")]
        case "ClusterQueue":
            cohort = spec.get("cohortName", spec.get("cohort"))  # v1beta1
            found = [("Cohort", cohort, "spec.cohortName"), *_flavors(spec), *_checks(spec)]
        case "Cohort":
            parent = spec.get("parentName", spec.get("parent"))  # v1alpha1
            found = [("Cohort", parent, "spec.parentName"), *_flavors(spec)]
        case "LocalQueue":
            found = [("ClusterQueue", spec.get("clusterQueue"), "spec.clusterQueue")]
        case "AdmissionCheck":
            parameters = section(spec, "parameters")
            if parameters.get("apiGroup") == GROUP:
                found = [(str(parameters.get("kind")), parameters.get("name"), "spec.parameters.name")]
        case "MultiKueueConfig":
            names = enumerate(listed(spec.get("clusters")))
            found = [("MultiKueueCluster", name, f"spec.clusters[{i}]") for i, name in names]
    first: dict[tuple[str, str], str] = {}
    for kind, name, where in found:
        if isinstance(name, str) and name:
            first.setdefault((kind, name), where)
    return [(kind, name, where) for (kind, name), where in first.items()]


def _flavors(spec: Mapping[str, Any]) -> Iterable[tuple[str, Any, str]]:
    for i, group in enumerate(listed(spec.get("resourceGroups"))):
        for j, flavor in enumerate(listed(section(group).get("flavors"))):
            yield "ResourceFlavor", section(flavor).get("name"), f"spec.resourceGroups[{i}].flavors[{j}].name"


def _checks(spec: Mapping[str, Any]) -> Iterable[tuple[str, Any, str]]:
    checks = listed(section(spec, "admissionChecksStrategy").get("admissionChecks"))
    for i, check in enumerate(checks):
        yield "AdmissionCheck", section(check).get("name"), f"spec.admissionChecksStrategy.admissionChecks[{i}].name"


def with_canonical_quantities(value: Any, where: str = "", name: str = "") -> Any:
    """Return a document, or a part of it, with its quantities as Go prints them, as a server returns it. Raises Invalid."""
    if name in QUOTAS and isinstance(value, (str, int, float)) and not isinstance(value, bool):
        try:
            return canonical(str(value))
        except ValueError as error:
            raise Invalid(Problem(where, str(error))) from None
    if isinstance(value, dict):
        fields = {}
        for field, part in value.items():
            if field not in _WITHOUT_QUANTITIES:
                part = with_canonical_quantities(part, f"{where}.{field}", field)
            fields[field] = part
        return fields
    if not isinstance(value, list):
        return value
    return [with_canonical_quantities(v, f"{where}[{i}]") for i, v in enumerate(value)]


_WITHOUT_QUANTITIES = ("metadata", "nodeLabels", "matchLabels", "parameters")
"""Fields with names of users, such as the label `weight`."""


def unserved_version(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield that a document is of a version that Kueue does not serve since 0.20, with the fields that are named otherwise now.

    Source: https://github.com/kubernetes-sigs/kueue/pull/14558
    """
    group, _, version = str(document.get("apiVersion")).rpartition("/")
    if group == GROUP and version in VERSIONS and version != NEWEST and document.get("kind") in KINDS:
        spec = section(document, "spec")
        hint = f"write {GROUP}/{NEWEST}, which Kueue serves since 0.15"
        for name, successor in _RENAMED.items():
            if name in spec:
                hint += f"; {name} is {successor} there"
        yield Problem("apiVersion", f"Kueue 0.20 and newer do not serve {group}/{version}", hint)


_RENAMED = {
    "cohort": "cohortName", "parent": "parentName", "admissionChecks": "admissionChecksStrategy",
    "kubeConfig": "clusterSource.kubeConfig",
}  # fmt: skip
"""Field of an older version -> its name in v1beta2."""


def served_version(kind: str, served: Mapping[str, Iterable[str]]) -> str | None:
    """Return the newest known version of Kueue's API that has a kind; None if not found.

    Args:
        served: Version -> the plurals of the kinds that the cluster serves in it, for example `clusterqueues`.
    """
    for version in VERSIONS:
        if KINDS[kind] in served.get(version, ()):
            return version
    return None


def at_version(document: Document, version: str) -> tuple[Document, list[Problem]]:
    """Return a v1beta2 document in another version, and the fields that this version lacks."""
    if version == NEWEST:
        return document, []
    spec, missing = dict(section(document, "spec")), list[Problem]()
    convert = _OLDER.get(document["kind"])
    if convert:
        convert(spec, missing, version)
    why = f"has no equivalent in {GROUP}/{version}, the newest version that the cluster serves"
    problems = [Problem(p.where, why, _NEWER) for p in missing]
    converted = {**document, "apiVersion": f"{GROUP}/{version}"}
    if "spec" in document:
        converted["spec"] = spec
    return converted, problems


_NEWER = "upgrade Kueue there, or leave it out"


def _cluster_queue(spec: Document, problems: list[Problem], _: str) -> None:
    if "cohortName" in spec:
        spec["cohort"] = spec.pop("cohortName")
    fungibility = section(spec, "flavorFungibility")
    if fungibility:
        converted = dict(fungibility)
        for field, word in (("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")):
            if fungibility.get(field) == "MayStopSearch":
                converted[field] = word
        spec["flavorFungibility"] = converted
    _report_missing(spec, "concurrentAdmissionPolicy", problems)


def _cohort(spec: Document, _: list[Problem], version: str) -> None:
    if version == "v1alpha1" and "parentName" in spec:
        spec["parent"] = spec.pop("parentName")


def _cluster(spec: Document, problems: list[Problem], _: str) -> None:
    source = dict(section(spec.pop("clusterSource", None)))
    _report_missing(source, "clusterProfileRef", problems, "spec.clusterSource.")
    kubeconfig = section(source, "kubeConfig")
    if kubeconfig:
        spec["kubeConfig"] = {"locationType": "Secret", **kubeconfig}


def _config(spec: Document, problems: list[Problem], _: str) -> None:
    if spec.get("quotaManagement") == "Manual":
        del spec["quotaManagement"]
    _report_missing(spec, "quotaManagement", problems)


def _report_missing(spec: Document, name: str, problems: list[Problem], at: str = "spec.") -> None:
    if spec.pop(name, None) is not None:
        problems.append(Problem(f"{at}{name}", ""))


_OLDER: dict[str, Callable[[Document, list[Problem], str], None]] = {
    "ClusterQueue": _cluster_queue,
    "Cohort": _cohort,
    "MultiKueueCluster": _cluster,
    "MultiKueueConfig": _config,
}


def quota_rows(queues: Sequence[Mapping[str, Any]], teams: Sequence[str], resource: str) -> list[Document]:
    """Return a row for each team and flavor: own quota, limits for borrowing and lending (None: no limit), and the total of
    its own and what the others lend.

    Args:
        teams: Names of the teams, in the order of `queues`.
    """
    quotas = [_quotas(queue, resource) for queue in queues]
    lent: dict[str, Fraction] = {}
    for each in quotas:
        for flavor, quota in each.items():
            lent[flavor] = lent.get(flavor, ZERO) + _lendable(quota)
    found = []
    for team, queue, each in zip(teams, queues, quotas, strict=True):
        for flavor, quota in each.items():
            found.append({
                "team": team, "cluster_queue": queue["metadata"]["name"], "flavor": flavor, "resource": resource,
                "own": quota.get("nominalQuota"), "borrows": quota.get("borrowingLimit"), "lends": quota.get("lendingLimit"),
                "of": int(lent[flavor] - _lendable(quota) + (amount(quota.get("nominalQuota")) or ZERO)),
            })  # fmt: skip
            if not section(queue, "spec").get("cohortName"):
                found[-1] |= {"borrows": 0, "lends": 0, "of": int(amount(quota.get("nominalQuota")) or ZERO)}
    return found


def quota_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the rows as lines of columns; Pulumi would show one text with `\\n` in it."""
    heads = ("team", "flavor", "own", "borrows", "lends", "of")
    words = {None: "all"}
    lines: list[tuple[str, ...]] = [heads]
    for row in rows:
        lines.append(tuple(str(words.get(row[head], row[head])) for head in heads))
    return aligned(lines)


def _quotas(queue: Mapping[str, Any], resource: str) -> dict[str, Mapping[str, Any]]:
    """Return the quota of a resource by flavor."""
    found: dict[str, Mapping[str, Any]] = {}
    for group in listed(section(queue, "spec").get("resourceGroups")):
        for flavor in listed(section(group).get("flavors")):
            for quota in listed(section(flavor).get("resources")):
                if section(quota).get("name") == resource:
                    found[str(flavor.get("name"))] = section(quota)
    return found


def _lendable(quota: Mapping[str, Any]) -> Fraction:
    """Return what others may borrow of a quota."""
    nominal = amount(quota.get("nominalQuota")) or ZERO
    if quota.get("lendingLimit") is None:
        return nominal
    return min(nominal, amount(quota["lendingLimit"]) or ZERO)
