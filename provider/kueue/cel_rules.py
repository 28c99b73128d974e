"""The validation rules (CEL) of Kueue's CRDs, each as a small predicate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pulumi_trainer.provider.kubernetes.schema.field_errors import NoSuchKey
from pulumi_trainer.provider.kubernetes.schema.go_json_values import identity
from pulumi_trainer.provider.kubernetes.schema.schema import Predicates
from pulumi_trainer.provider.kubernetes.values.accessors import equal_as_go, listed, mappings
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kueue.objects import NODE_LABEL_OF_HOSTS

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _limits_need_cohort(spec: Any, _: Any, __: Any) -> bool:
    return "cohortName" in spec or not any(_has(quota, "borrowingLimit") for quota in _quotas(spec))


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


def _one_source(value: Any, _: Any, __: Any) -> bool:
    return ("kubeConfig" in value) != ("clusterProfileRef" in value)


def _unique(value: Any, _: Any, __: Any) -> bool:
    identities = [*map(identity, value)]
    known = [each for each in identities if each is not None]
    return len(known) == len(set(known))


def _labels_for_topology(spec: Any, _: Any, __: Any) -> bool:
    if "topologyName" not in spec:
        return True
    labels = _field(spec, "nodeLabels")
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


def _taint_effect(taint: Any) -> bool:
    return _among(_field(taint, "effect"), *_EFFECTS)


def _everything_exists(toleration: Any) -> bool:
    return _has(toleration, "key") or _among(_field(toleration, "operator"), "Exists")


def _seconds_of_eviction(toleration: Any) -> bool:
    return not _has(toleration, "tolerationSeconds") or _among(_field(toleration, "effect"), "NoExecute")


def _operator(toleration: Any) -> bool:
    return not _has(toleration, "operator") or _among(toleration["operator"], "Equal", "Exists")


def _exists_without_value(toleration: Any) -> bool:
    return not (_has(toleration, "operator") and toleration["operator"] == "Exists" and "value" in toleration)


def _effect(toleration: Any) -> bool:
    return not _has(toleration, "effect") or _among(toleration["effect"], *_EFFECTS)


def _each(holds: Callable[[Any], bool]) -> Callable[[Any, Any, Any], bool]:
    """Return CEL's all() of a predicate: an item that breaks the rule outweighs one in which a key is missing."""

    def all_items(items: Any, _: Any, __: Any) -> bool:
        missing: NoSuchKey | None = None
        for item in items:
            try:
                if not holds(item):
                    return False
            except NoSuchKey as error:
                missing = missing or error
        if missing is not None:
            raise missing
        return True

    return all_items


def _among(value: Any, *allowed: str) -> bool:
    return isinstance(value, Unknown) or value in allowed


def _has(value: Any, name: str) -> bool:
    return isinstance(value, dict) and name in value


def _field(value: Any, name: str) -> Any:
    """Return the field that a rule selects; a field of an unknown value is unknown."""
    if isinstance(value, Unknown):
        return value
    if name not in value:
        raise NoSuchKey(name)
    return value[name]


def _was_fixed(name: str) -> str:
    return (
        f"!has(oldSelf.topologyName) || (has(self.{name}) == has(oldSelf.{name}) && "
        f"(!has(self.{name}) || self.{name} == oldSelf.{name}))"
    )


PREDICATES: Predicates = {
    (
        "!has(self.cohortName) && has(self.resourceGroups) ? self.resourceGroups.all(rg, rg.flavors.all(f, "
        "f.resources.all(r, !has(r.borrowingLimit)))) : true"
    ): _limits_need_cohort,
    (
        "!has(self.preference) || (self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')"
    ): _preference_needs_both,
    (
        "!(self.reclaimWithinCohort == 'Never' && has(self.borrowWithinCohort) &&  self.borrowWithinCohort.policy"
        " != 'Never')"
    ): _borrowing_needs_reclaim,
    "self.flavors.all(x, size(x.resources) == size(self.coveredResources))": _as_many_resources,
    "[has(self.kubeConfig),has(self.clusterProfileRef)].filter(x,x==true).size() == 1": _one_source,
    "size(self.filter(i, size(self.filter(j, j == i)) > 1)) == 0": _unique,
    "!has(self.topologyName) || self.nodeLabels.size() >= 1": _labels_for_topology,
    _was_fixed("nodeLabels"): _fixed("nodeLabels"),
    _was_fixed("tolerations"): _fixed("tolerations"),
    ("!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)"): _fixed(
        "topologyName"
    ),
    "self.all(x, x.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])": _each(_taint_effect),
    "self.all(x, !has(x.key) ? x.operator == 'Exists' : true)": _each(_everything_exists),
    "self.all(x, has(x.tolerationSeconds) ? x.effect == 'NoExecute' : true)": _each(_seconds_of_eviction),
    "self.all(x, !has(x.operator) || x.operator in ['Equal', 'Exists'])": _each(_operator),
    "self.all(x, has(x.operator) && x.operator == 'Exists' ? !has(x.value) : true)": _each(_exists_without_value),
    "self.all(x, !has(x.effect) || x.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])": _each(_effect),
    (
        "size(self.filter(i, i.nodeLabel == 'kubernetes.io/hostname')) == 0 || self[size(self) - 1].nodeLabel == "
        "'kubernetes.io/hostname'"
    ): _hostname_level_is_last,
}
