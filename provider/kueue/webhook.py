"""Kueue's webhooks for ClusterQueues, Cohorts and ResourceFlavors: defaults and validation.

Source: https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/pkg/webhooks (clusterqueue_webhook.go, cohort_webhook.go,
resourceflavor_webhook.go, common.go), with the default feature gates of that version. The other kinds have no webhook.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.schema.field_errors import DUPLICATE, FORBIDDEN, NOT_SUPPORTED, REQUIRED
from pulumi_trainer.provider.kubernetes.values.accessors import Document, equal_as_go, listed, mappings, section, texts
from pulumi_trainer.provider.kubernetes.values.names import label_value, qualified_name, quoted
from pulumi_trainer.provider.kubernetes.values.quantity import Quantity
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.kueue.objects import FINALIZER, QUOTAS, with_canonical_quantities

_MUTATED = ("ClusterQueue", "ResourceFlavor")
MOST_FLAVORS = 256
MOST_PAIRS = 512
"""Combinations of a flavor and a resource in one resource group."""


def mutate(stored: Document, old: Document | None) -> Document:
    """Return a new object with Kueue's finalizer, and with quantities as Go prints them. Raises Invalid."""
    if stored["kind"] not in _MUTATED or old is not None:
        return stored
    metadata = stored["metadata"]
    finalizers = listed(metadata.get("finalizers"))
    if FINALIZER not in finalizers:
        finalizers = [*finalizers, FINALIZER]
    found = {**stored, "metadata": {**metadata, "finalizers": finalizers}}
    if "spec" not in stored:
        return found
    return {**found, "spec": with_canonical_quantities(stored["spec"], "spec")}


def validate(stored: Document, old: Document | None) -> Iterator[Problem]:
    """Yield what the validating webhook rejects. old: The stored object; None on creation."""
    spec = section(stored, "spec")
    match stored["kind"]:
        case "ClusterQueue":
            old_spec = None
            if old is not None:
                old_spec = section(old, "spec")
            yield from _cluster_queue(spec, old_spec)
        case "Cohort":
            yield from _fair_sharing(spec)
            yield from _groups(spec, parent="parentName" in spec and spec["parentName"] != "", cohort=True)
        case "ResourceFlavor":
            yield from _flavor(spec)


def _cluster_queue(spec: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[Problem]:
    groups = mappings(spec.get("resourceGroups"))
    yield from _groups(spec, parent=spec.get("cohortName", "") != "", cohort=False)
    yield from _selector(section(spec, "namespaceSelector"), "spec.namespaceSelector")
    yield from _fair_sharing(spec)
    at = "spec.resourceGroups"
    for what, part, most in (("flavors", "flavors", MOST_FLAVORS), ("covered resources", "coveredResources", 256)):
        total = sum(len(listed(group.get(part))) for group in groups)
        if total > most:
            yield Problem(at, f"total number of {what} across all resourceGroups must be ≤ {most}, got {total}")
    for i, group in enumerate(groups):
        total = sum(len(listed(section(f).get("resources"))) for f in listed(group.get("flavors")))
        if total > MOST_PAIRS:
            why = f"number of flavor-resource combinations in a resourceGroup must be ≤ {MOST_PAIRS}, got {total}"
            yield Problem(f"{at}[{i}]", why)
    yield from _checks(spec, groups)
    if old is not None and not equal_as_go(spec.get("concurrentAdmissionPolicy"), old.get("concurrentAdmissionPolicy")):
        yield Problem("spec.concurrentAdmissionPolicy", "field is immutable")


def _checks(spec: Mapping[str, Any], groups: list[Any]) -> Iterator[Problem]:
    names: list[Any] = []
    for group in groups:
        names += [section(flavor).get("name") for flavor in listed(group.get("flavors"))]
    if any(isinstance(name, (Unknown, type(None))) for name in names):
        return
    at = "spec.admissionChecksStrategy.admissionChecks"
    for i, check in enumerate(listed(section(spec, "admissionChecksStrategy").get("admissionChecks"))):
        for j, flavor in enumerate(listed(section(check).get("onFlavors"))):
            if isinstance(flavor, str) and flavor not in names:
                shown = ", ".join(map(quoted, sorted(set(names))))
                yield Problem(f"{at}[{i}].onFlavors[{j}]", f"supported values: {shown}", type=NOT_SUPPORTED)


def _groups(spec: Mapping[str, Any], *, parent: bool, cohort: bool) -> Iterator[Problem]:
    resources: set[str] = set()
    flavors: set[str] = set()
    for i, group in enumerate(listed(spec.get("resourceGroups"))):
        at = f"spec.resourceGroups[{i}]"
        covered = listed(section(group).get("coveredResources"))
        for j, name in enumerate(covered):
            if isinstance(name, str):
                here = f"{at}.coveredResources[{j}]"
                for why in qualified_name(name):
                    yield Problem(here, why)
                yield from _once(name, resources, here, "one resource group covers a resource")
        for j, flavor in enumerate(listed(section(group).get("flavors"))):
            here = f"{at}.flavors[{j}]"
            for k, (quota, name) in enumerate(zip(listed(section(flavor).get("resources")), covered, strict=False)):
                yield from _quota(section(quota), name, f"{here}.resources[{k}]", parent=parent, cohort=cohort)
            name = section(flavor).get("name")
            if isinstance(name, str):
                yield from _once(name, flavors, f"{here}.name", "one resource group has a flavor")


def _once(name: str, earlier: set[str], where: str, hint: str) -> Iterator[Problem]:
    """Yield that a name occurs again, and add it to the earlier ones."""
    if name in earlier:
        yield Problem(where, f'Duplicate value: "{name}"', f"only {hint}", DUPLICATE)
    earlier.add(name)


def _quota(quota: Mapping[str, Any], covered: Any, at: str, *, parent: bool, cohort: bool) -> Iterator[Problem]:
    name = quota.get("name")
    if isinstance(name, str) and isinstance(covered, str) and name != covered:
        hint = f"coveredResources has {covered} at this position"
        yield Problem(f"{at}.name", "must match the name in coveredResources", hint)
    amounts = {field: _amount(quota.get(field)) for field in QUOTAS}
    for field, amount in amounts.items():
        if isinstance(amount, str):
            yield Problem(f"{at}.{field}", amount)
        elif amount is not None and amount < 0:
            yield Problem(f"{at}.{field}", "must be greater than or equal to 0")
        if field != "nominalQuota" and field in quota and not parent:
            above = "cohort"
            if cohort:
                above = "parent"
            yield Problem(f"{at}.{field}", f"must be nil when {above} is empty")
    lending, nominal = amounts["lendingLimit"], amounts["nominalQuota"]
    if not cohort and isinstance(lending, Fraction) and isinstance(nominal, Fraction) and lending > nominal:
        yield Problem(f"{at}.lendingLimit", "must be less than or equal to the nominalQuota")


def _fair_sharing(spec: Mapping[str, Any]) -> Iterator[Problem]:
    weight = _amount(section(spec, "fairSharing").get("weight"))
    if isinstance(weight, str):
        yield Problem("spec.fairSharing.weight", weight)
    elif weight is not None and weight < 0:
        yield Problem("spec.fairSharing", "must be greater than or equal to 0")
    elif weight is not None and 0 < weight <= Fraction(1, 10**9):
        yield Problem("spec.fairSharing", "When not 0, weight must be > 10e-9")


def _amount(value: Any) -> Fraction | str | None:
    """Return the amount of a quantity, a text that describes why it is not valid, or None if the value is not a quantity."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    try:
        return Quantity.parse(str(value)).amount
    except ValueError as error:
        return str(error)


def _selector(selector: Mapping[str, Any], at: str) -> Iterator[Problem]:
    yield from _labels(section(selector, "matchLabels"), f"{at}.matchLabels")
    for i, each in enumerate(listed(selector.get("matchExpressions"))):
        here, values = f"{at}.matchExpressions[{i}]", section(each).get("values")
        match section(each).get("operator"):
            case "In" | "NotIn":
                if not values:
                    yield Problem(
                        f"{here}.values", "must be specified when `operator` is 'In' or 'NotIn'", type=REQUIRED
                    )
            case "Exists" | "DoesNotExist":
                if values:
                    why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                    yield Problem(f"{here}.values", why, type=FORBIDDEN)
            case str():
                yield Problem(f"{here}.operator", "not a valid selector operator", "In, NotIn, Exists or DoesNotExist")
        yield from _name(section(each).get("key"), f"{here}.key")
        for j, value in enumerate(texts(values)):
            yield from _value(value, f"{here}.values[{j}]")


def _flavor(spec: Mapping[str, Any]) -> Iterator[Problem]:
    yield from _labels(section(spec, "nodeLabels"), "spec.nodeLabels")
    earlier: set[tuple[Any, Any]] = set()
    for i, taint in enumerate(map(section, listed(spec.get("nodeTaints")))):
        at = f"spec.nodeTaints[{i}]"
        yield from _name(taint.get("key"), f"{at}.key")
        yield from _value(taint.get("value"), f"{at}.value")
        pair = (taint.get("key"), taint.get("effect"))
        if all(isinstance(each, str) for each in pair):
            if pair in earlier:
                yield Problem(at, "taints must be unique by key and effect pair", type=DUPLICATE)
            earlier.add(pair)
    for i, toleration in enumerate(listed(spec.get("tolerations"))):
        yield from _name(section(toleration).get("key") or None, f"spec.tolerations[{i}].key")


def _name(name: Any, where: str) -> Iterator[Problem]:
    """Yield what is wrong with the name of a label or taint; nothing for a value that is not a string."""
    if isinstance(name, str):
        for why in qualified_name(name):
            yield Problem(where, why)


def _value(value: Any, where: str) -> Iterator[Problem]:
    """Yield what is wrong with the value of a label or taint; nothing for a value that is not a string."""
    if isinstance(value, str):
        for why in label_value(value):
            yield Problem(where, why)


def _labels(labels: Mapping[str, Any], at: str) -> Iterator[Problem]:
    for key, value in labels.items():
        wrong = [*qualified_name(key)]
        if isinstance(value, str):
            wrong += label_value(value)
        for why in wrong:
            yield Problem(at, why, f"correct the label {key[:80]!r}")
