"""The validation rules (CEL) of Kueue's CRDs, each as a small predicate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pulumi_trainer.provider.kubernetes.schema.field_errors import all_hold, select
from pulumi_trainer.provider.kubernetes.schema.go_json_values import identity
from pulumi_trainer.provider.kubernetes.schema.schema import Predicates
from pulumi_trainer.provider.kubernetes.values.accessors import equal_as_go, listed, mappings
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kueue.objects import NODE_LABEL_OF_HOSTS

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _quotas(spec: Any) -> Iterator[Any]:
    for group in mappings(spec.get("resourceGroups")):
        for flavor in mappings(group.get("flavors")):
            yield from listed(flavor.get("resources"))


def _preference_needs_both(value: Any, _: Any, __: Any) -> bool:
    both = [value.get("whenCanBorrow"), value.get("whenCanPreempt")]
    return "preference" not in value or all(_among(each, "TryNextFlavor") for each in both)


def _borrowing_needs_reclaim(value: Any, _: Any, __: Any) -> bool:
    borrow = value.get("borrowWithinCohort")
    borrows = isinstance(borrow, dict) and not _among(borrow.get("policy"), "Never")
    return not (value.get("reclaimWithinCohort") == "Never" and borrows)


def _as_many_resources(group: Any, _: Any, __: Any) -> bool:
    covered = group["coveredResources"]
    flavors = [flavor["resources"] for flavor in mappings(group["flavors"])]
    return not isinstance(covered, list) or all(len(f) == len(covered) for f in flavors if isinstance(f, list))


def _unique(value: Any, _: Any, __: Any) -> bool:
    identities = [*map(identity, value)]
    known = [each for each in identities if each is not None]
    return len(known) == len(set(known))


def _labels_for_topology(spec: Any, _: Any, __: Any) -> bool:
    if "topologyName" not in spec:
        return True
    labels = select(spec, "nodeLabels")
    return isinstance(labels, Unknown) or len(labels) >= 1


def _fixed(name: str) -> Callable[[Any, Any, Any], bool]:
    """Return the rule for a field that cannot change once a flavor has a topology."""
    return lambda spec, old, _: "topologyName" not in old or equal_as_go(spec.get(name), old.get(name))


def _hostname_level_is_last(levels: Any, _: Any, __: Any) -> bool:
    labels = []
    for level in levels:
        if isinstance(level, dict):
            level = level.get("nodeLabel")
        labels.append(level)
    return NODE_LABEL_OF_HOSTS not in labels or _among(labels[-1], NODE_LABEL_OF_HOSTS)


def _each(holds: Callable[[Any], bool]) -> Callable[[Any, Any, Any], bool]:
    return lambda items, _, __: all_hold(holds, items)


def _among(value: Any, *allowed: str) -> bool:
    return isinstance(value, Unknown) or value in allowed


def _has(value: Any, name: str) -> bool:
    return isinstance(value, dict) and name in value


def _was_fixed(name: str) -> str:
    return (
        f"!has(oldSelf.topologyName) || (has(self.{name}) == has(oldSelf.{name}) && "
        f"(!has(self.{name}) || self.{name} == oldSelf.{name}))"
    )


PREDICATES: Predicates = {
    (
        "!has(self.cohortName) && has(self.resourceGroups) ? self.resourceGroups.all(rg, rg.flavors.all(f, "
        "f.resources.all(r, !has(r.borrowingLimit)))) : true"
    ): lambda spec, _, __: "cohortName" in spec or not any(_has(each, "borrowingLimit") for each in _quotas(spec)),
    (
        "!has(self.preference) || (self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')"
    ): _preference_needs_both,
    (
        "!(self.reclaimWithinCohort == 'Never' && has(self.borrowWithinCohort) &&  self.borrowWithinCohort.policy"
        " != 'Never')"
    ): _borrowing_needs_reclaim,
    "self.flavors.all(x, size(x.resources) == size(self.coveredResources))": _as_many_resources,
    "[has(self.kubeConfig),has(self.clusterProfileRef)].filter(x,x==true).size() == 1": (
        lambda value, _, __: ("kubeConfig" in value) != ("clusterProfileRef" in value)
    ),
    "size(self.filter(i, size(self.filter(j, j == i)) > 1)) == 0": _unique,
    "!has(self.topologyName) || self.nodeLabels.size() >= 1": _labels_for_topology,
    _was_fixed("nodeLabels"): _fixed("nodeLabels"),
    _was_fixed("tolerations"): _fixed("tolerations"),
    ("!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)"): _fixed(
        "topologyName"
    ),
    "self.all(x, x.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])": _each(
        lambda taint: _among(select(taint, "effect"), *_EFFECTS)
    ),
    "self.all(x, !has(x.key) ? x.operator == 'Exists' : true)": _each(
        lambda each: _has(each, "key") or _among(select(each, "operator"), "Exists")
    ),
    "self.all(x, has(x.tolerationSeconds) ? x.effect == 'NoExecute' : true)": _each(
        lambda each: not _has(each, "tolerationSeconds") or _among(select(each, "effect"), "NoExecute")
    ),
    "self.all(x, !has(x.operator) || x.operator in ['Equal', 'Exists'])": _each(
        lambda each: not _has(each, "operator") or _among(each["operator"], "Equal", "Exists")
    ),
    "self.all(x, has(x.operator) && x.operator == 'Exists' ? !has(x.value) : true)": _each(
        lambda each: not (_has(each, "operator") and each["operator"] == "Exists" and "value" in each)
    ),
    "self.all(x, !has(x.effect) || x.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])": _each(
        lambda each: not _has(each, "effect") or _among(each["effect"], *_EFFECTS)
    ),
    (
        "size(self.filter(i, i.nodeLabel == 'kubernetes.io/hostname')) == 0 || self[size(self) - 1].nodeLabel == "
        "'kubernetes.io/hostname'"
    ): _hostname_level_is_last,
}
