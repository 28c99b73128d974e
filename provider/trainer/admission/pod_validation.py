"""The API server's validation of Jobs and of the Pods in them, in its words, beside names and paths (`pod_names`).

JobSet and Trainer do not check these, so the server rejects the Job that JobSet's controller makes: nothing appears for the user.
Source: https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/apis/core/validation/validation.go and
https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/apis/batch/validation/validation.go. Unknown leaves count as valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, listed, section
from pulumi_trainer.provider.kubernetes.values.names import (
    dns_1123_label,
    dns_1123_subdomain,
    label_value,
    qualified_name,
    quoted,
)
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown, any_unknown
from pulumi_trainer.provider.kubernetes.views import Container, Pod, ReplicatedJob, entries

_NOT_NEGATIVE = "must be greater than or equal to 0"
_MOST_INDEXED = 100_000
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def job_problems(job: ReplicatedJob) -> Iterator[Problem]:
    """Yield why the API server refuses the Jobs of a replicated job."""
    yield from _job(job.job, f"{job.at}.template.spec")
    yield from _metadata(section(job.document, "template"), f"{job.at}.template")
    yield from _metadata(job.template, f"{job.at}.template.spec.template")
    yield from _pod(job.pod)


def _job(job: Document, at: str) -> Iterator[Problem]:
    counts = ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
    yield from _numbers(job, at, (*counts, "backoffLimitPerIndex", "maxFailedIndexes"))
    indexed = job.get("completionMode")
    if indexed not in ("Indexed", None) and not isinstance(indexed, Unknown):
        yield from _supported(job, "completionMode", at, ("NonIndexed", "Indexed"))
        for field in ("backoffLimitPerIndex", "successPolicy"):
            if field in job:
                yield _invalid(f"{at}.{field}", job[field], "requires indexed completion mode")
    elif _is_over(job.get("parallelism"), _MOST_INDEXED):
        yield _invalid(f"{at}.parallelism", job["parallelism"], f"must be less than or equal to {_MOST_INDEXED:,}")
    if "maxFailedIndexes" in job and "backoffLimitPerIndex" not in job:
        yield Problem(f"{at}.backoffLimitPerIndex", "Required value: when maxFailedIndexes is specified")
    if job.get("selector") and job.get("manualSelector") is not True:
        yield _invalid(f"{at}.selector", job["selector"], "`selector` not auto-generated", "leave it out")
    policies = ("Failed",) if "podFailurePolicy" in job else ("TerminatingOrFailed", "Failed")
    yield from _supported(job, "podReplacementPolicy", at, policies)


def _metadata(document: Document, at: str) -> Iterator[Problem]:
    """Yield what is wrong with labels and annotations."""
    yield from _labels(section(document, "metadata", "labels"), f"{at}.metadata.labels")
    for key in section(document, "metadata", "annotations"):
        yield from _all_invalid(f"{at}.metadata.annotations", key, qualified_name(key.lower()))


def _labels(labels: Mapping[str, Any], at: str) -> Iterator[Problem]:
    for key, value in labels.items():
        yield from _all_invalid(at, key, qualified_name(key))
        if isinstance(value, str):
            yield from _all_invalid(at, value, label_value(value))


def _pod(pod: Pod) -> Iterator[Problem]:
    spec, at = pod.spec, pod.at
    yield from _unique((container.at, container.document) for container in pod.all_containers)
    yield from _volumes(spec, at)
    yield from _claims(pod)
    for container in pod.all_containers:
        yield from _container(container, host_network=spec.get("hostNetwork") is True)
    yield from _numbers(spec, at, ("terminationGracePeriodSeconds",))
    limit = spec.get("activeDeadlineSeconds")
    if isinstance(limit, int) and limit < 1:
        yield _invalid(f"{at}.activeDeadlineSeconds", limit, "must be between 1 and 2147483647, inclusive")
    yield from _supported(spec, "dnsPolicy", at, ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"))
    yield from _supported(spec, "preemptionPolicy", at, ("PreemptLowerPriority", "Never"))
    for field, rule in _NAMES:
        name = spec.get(field)
        if isinstance(name, str) and name:
            yield from _all_invalid(f"{at}.{field}", name, rule(name))
    if spec.get("hostPID") is True and spec.get("shareProcessNamespace") is True:
        yield Problem(
            f"{at}.shareProcessNamespace", "Forbidden: ShareProcessNamespace and HostPID cannot both be enabled"
        )
    yield from _labels(section(spec, "nodeSelector"), f"{at}.nodeSelector")
    for place, toleration in entries(spec, "tolerations", at):
        yield from _toleration(toleration, place)
    yield from _affinity(section(spec, "affinity"), f"{at}.affinity")
    for place, spread in entries(spec, "topologySpreadConstraints", at):
        yield from _spread(spread, place)
    yield from _unique(entries(spec, "schedulingGates", at))


_NAMES: tuple[tuple[str, Callable[[str], list[str]]], ...] = (
    ("hostname", dns_1123_label),
    ("subdomain", dns_1123_label),
    ("serviceAccountName", dns_1123_subdomain),
    ("priorityClassName", dns_1123_subdomain),
    ("runtimeClassName", dns_1123_subdomain),
)


def _volumes(spec: Document, at: str) -> Iterator[Problem]:
    volumes = [*entries(spec, "volumes", at)]
    yield from _unique(volumes)
    for place, volume in volumes:
        sources = [name for name, value in volume.items() if name != "name" and value is not None]
        if not sources:
            yield Problem(place, "Required value: must specify a volume type")
        yield from _supported(section(volume, "hostPath"), "type", f"{place}.hostPath", _HOST_PATHS)
        medium = section(volume, "emptyDir").get("medium")
        if isinstance(medium, str) and not _MEDIUM.fullmatch(medium):
            why = f"no node has the medium {quoted(medium)}, so its pods would never start"
            yield Problem(
                f"{place}.emptyDir.medium", why, "use Memory, HugePages or one size of them, such as HugePages-2Mi"
            )
        for source, field in _REQUIRED:
            given = volume.get(source)
            if isinstance(given, dict) and not given.get(field):
                yield Problem(f"{place}.{source}.{field}", "Required value")


def _claims(pod: Pod) -> Iterator[Problem]:
    """Yield what is wrong with the claims of devices, and with their use in containers."""
    claims = [*entries(pod.spec, "resourceClaims", pod.at)]
    yield from _unique(claims)
    names = [claim.get("name") for _, claim in claims]
    for place, claim in claims:
        name, sources = claim.get("name"), [each for each in _CLAIM_SOURCES if claim.get(each) is not None]
        if isinstance(name, str):
            yield from _all_invalid(f"{place}.name", name, dns_1123_label(name))
        if len(sources) > 1:
            why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            yield _invalid(place, claim, why)
        elif not sources:
            yield _invalid(place, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
    if any_unknown([pod.spec.get("resourceClaims"), *listed(pod.spec.get("resourceClaims")), *names]):
        return
    known = ", ".join(sorted(map(str, names)))
    available = f": {known}" if known else " which is empty"
    for container in pod.all_containers:
        for place, used in entries(section(container.document, "resources"), "claims", f"{container.at}.resources"):
            if isinstance(used.get("name"), str) and used["name"] not in names:
                why = (
                    f"Not found: {quoted(used['name'])}: must be one of the names in pod.spec.resourceClaims{available}"
                )
                yield Problem(place, why)


_CLAIM_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")
_MEDIUM = re.compile(r"(Memory|HugePages(-\S+)?)?")
"""What a kubelet mounts; the API server accepts any text."""
_HOST_PATHS = (
    "", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice",
)  # fmt: skip
_REQUIRED = (
    ("configMap", "name"), ("secret", "secretName"), ("nfs", "server"), ("nfs", "path"), ("csi", "driver"),
)  # fmt: skip
"""Kinds of volumes and the fields that they need, beside those of `pod_names`."""


def _container(container: Container, *, host_network: bool) -> Iterator[Problem]:
    document, at = container.document, container.at
    yield from _supported(document, "imagePullPolicy", at, ("Always", "Never", "IfNotPresent"))
    yield from _supported(document, "terminationMessagePolicy", at, ("File", "FallbackToLogsOnError"))
    yield from _ports(document, at, host_network=host_network)
    for place, variable in entries(document, "env", at):
        yield from _variable(variable, place)
    mounts = [*entries(document, "volumeMounts", at)]
    paths = [mount.get("mountPath") for _, mount in mounts]
    for number, ((place, mount), path) in enumerate(zip(mounts, paths, strict=True)):
        if isinstance(path, str) and path in paths[:number]:
            yield _invalid(f"{place}.mountPath", path, "must be unique")
        if mount.get("subPath") and mount.get("subPathExpr"):
            yield Problem(f"{place}.subPathExpr", "Forbidden: subPathExpr and subPath are mutually exclusive")
    for field in _PROBES:
        probe = document.get(field)
        if isinstance(probe, dict):
            yield from _probe(probe, f"{at}.{field}", once=field != "readinessProbe")
    if container.is_init and not container.is_sidecar:
        for field in ("lifecycle", *_PROBES):
            if field in document:
                why = "Forbidden: may not be set for init containers without restartPolicy=Always"
                yield Problem(f"{at}.{field}", why)
    security = section(document, "securityContext")
    if security.get("privileged") is True and security.get("allowPrivilegeEscalation") is False:
        why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        yield _invalid(f"{at}.securityContext", security, why)
    yield from _numbers(security, f"{at}.securityContext", ("runAsUser", "runAsGroup"))


def _ports(document: Document, at: str, *, host_network: bool) -> Iterator[Problem]:
    ports = [*entries(document, "ports", at)]
    names = [port.get("name") for _, port in ports]
    for number, (place, port) in enumerate(ports):
        name = port.get("name")
        if isinstance(name, str) and name:
            yield from _all_invalid(f"{place}.name", name, _port_name(name))
            if name in names[:number]:
                yield _duplicate(f"{place}.name", name)
        inside, outside = port.get("containerPort"), port.get("hostPort")
        if inside in (None, 0):
            yield Problem(f"{place}.containerPort", "Required value")
        elif isinstance(inside, int) and not 1 <= inside <= 65535:
            yield _invalid(f"{place}.containerPort", inside, "must be between 1 and 65535, inclusive")
        if isinstance(outside, int) and outside and not 1 <= outside <= 65535:
            yield _invalid(f"{place}.hostPort", outside, "must be between 1 and 65535, inclusive")
        if host_network and isinstance(outside, int) and isinstance(inside, int) and outside not in (0, inside):
            yield _invalid(f"{place}.containerPort", inside, "must match `hostPort` when `hostNetwork` is true")
        yield from _supported(port, "protocol", place, ("TCP", "UDP", "SCTP"))


def _port_name(name: str) -> list[str]:
    found: list[str] = []
    if len(name) > 15:
        found.append("must be no more than 15 characters")
    if not re.fullmatch("[-a-z0-9]+", name):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", name):
        found.append("must contain at least one letter (a-z)")
    if "--" in name:
        found.append("must not contain consecutive hyphens")
    if name[0] == "-" or name[-1] == "-":
        found.append("must not begin or end with a hyphen")
    return found


def _variable(variable: Document, at: str) -> Iterator[Problem]:
    source = variable.get("valueFrom")
    if not isinstance(source, dict):
        return
    value = variable.get("value")
    if isinstance(value, str) and value:
        yield _invalid(f"{at}.valueFrom", "", "may not be specified when `value` is not empty", "give one of the two")
    kinds = [name for name, given in source.items() if given is not None]
    if not kinds:
        why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef`"
        yield _invalid(f"{at}.valueFrom", "", why)
    elif len(kinds) > 1:
        yield _invalid(f"{at}.valueFrom", "", "may not have more than one field specified at a time")


def _probe(probe: Document, at: str, *, once: bool) -> Iterator[Problem]:
    given = [name for name in _HANDLERS if probe.get(name) is not None]
    if not given:
        yield Problem(at, "Required value: must specify a handler type")
    for other in given[1:]:
        yield Problem(f"{at}.{other}", "Forbidden: may not specify more than 1 handler type")
    counts = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
    yield from _numbers(probe, at, counts)
    threshold = probe.get("successThreshold")
    if once and isinstance(threshold, int) and threshold > 1:
        yield _invalid(f"{at}.successThreshold", threshold, "must be 1")


def _toleration(toleration: Document, at: str) -> Iterator[Problem]:
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    value, effect = toleration.get("value") or "", toleration.get("effect") or ""
    if any_unknown((key, operator, value, effect)):
        return
    if key:
        yield from _all_invalid(f"{at}.key", key, qualified_name(str(key)))
    elif operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield _invalid(f"{at}.operator", operator, why)
    yield from _supported(toleration, "operator", at, ("Equal", "Exists"))
    if operator == "Exists" and value:
        yield _invalid(f"{at}.operator", toleration, "value must be empty when `operator` is 'Exists'")
    if operator == "Equal":
        yield from _all_invalid(f"{at}.value", value, label_value(str(value)))
    yield from _supported(toleration, "effect", at, ("", *_EFFECTS))
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        yield _invalid(f"{at}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")


def _affinity(affinity: Document, at: str) -> Iterator[Problem]:
    node, place = section(affinity, "nodeAffinity"), f"{at}.nodeAffinity"
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    terms = [*entries(section(node, required), "nodeSelectorTerms", f"{place}.{required}")]
    if required in node and not terms and isinstance(node[required], dict) and not any_unknown(node[required].values()):
        yield Problem(
            f"{place}.{required}.nodeSelectorTerms", "Required value: must have at least one node selector term"
        )
    for inside, weighted in entries(node, preferred, place):
        yield from _weight(weighted, inside)
        terms.append((f"{inside}.preference", section(weighted, "preference")))
    for inside, term in terms:
        for at_expression, expression in entries(term, "matchExpressions", inside):
            yield from _expression(expression, at_expression)
    for kind in ("podAffinity", "podAntiAffinity"):
        pods, place = section(affinity, kind), f"{at}.{kind}"
        found = [*entries(pods, required, place)]
        for inside, weighted in entries(pods, preferred, place):
            yield from _weight(weighted, inside)
            found.append((f"{inside}.podAffinityTerm", section(weighted, "podAffinityTerm")))
        for inside, term in found:
            if not term.get("topologyKey"):
                yield Problem(f"{inside}.topologyKey", "Required value: can not be empty")


def _weight(weighted: Document, at: str) -> Iterator[Problem]:
    weight = weighted.get("weight", 0)
    if isinstance(weight, int) and not 1 <= weight <= 100:
        yield _invalid(f"{at}.weight", weight, "must be in the range 1-100")


def _expression(expression: Document, at: str) -> Iterator[Problem]:
    operator, values = expression.get("operator"), expression.get("values")
    if any_unknown((operator, values)):
        return
    yield from _supported(expression, "operator", at, _OPERATORS)
    if operator in ("In", "NotIn") and not values:
        yield Problem(f"{at}.values", "Required value: must be specified when `operator` is 'In' or 'NotIn'")
    if operator in ("Exists", "DoesNotExist") and values:
        why = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield Problem(f"{at}.values", why)
    if operator in ("Gt", "Lt") and len(listed(values)) != 1:
        yield Problem(f"{at}.values", "Required value: must be specified single value when `operator` is 'Lt' or 'Gt'")
    key = expression.get("key")
    if isinstance(key, str):
        yield from _all_invalid(f"{at}.key", key, qualified_name(key))


def _spread(spread: Document, at: str) -> Iterator[Problem]:
    skew = spread.get("maxSkew", 0)
    if isinstance(skew, int) and skew < 1:
        yield _invalid(f"{at}.maxSkew", skew, "must be greater than zero")
    if not spread.get("topologyKey"):
        yield Problem(f"{at}.topologyKey", "Required value: can not be empty")
    yield from _supported(spread, "whenUnsatisfiable", at, ("DoNotSchedule", "ScheduleAnyway"))


def _numbers(document: Document, at: str, fields: Iterable[str]) -> Iterator[Problem]:
    for field in fields:
        value = document.get(field)
        if isinstance(value, int) and value < 0:
            yield _invalid(f"{at}.{field}", value, _NOT_NEGATIVE)


def _is_over(value: Any, most: int) -> bool:
    return isinstance(value, int) and value > most


def _supported(document: Document, field: str, at: str, words: Collection[str]) -> Iterator[Problem]:
    value = document.get(field)
    if isinstance(value, str) and value not in words:
        known = ", ".join(quoted(word) for word in words if word)
        yield Problem(f"{at}.{field}", f"Unsupported value: {quoted(value)}: supported values: {known}")


def _unique(named: Iterable[tuple[str, Document]]) -> Iterator[Problem]:
    """Yield names that occur again, of documents with their paths."""
    seen = set[str]()
    for at, document in named:
        name = document.get("name")
        if isinstance(name, str) and name in seen:
            yield _duplicate(f"{at}.name", name)
        elif isinstance(name, str):
            seen.add(name)


def _duplicate(at: str, name: str) -> Problem:
    return Problem(at, f"Duplicate value: {quoted(name)}")


def _all_invalid(at: str, value: Any, reasons: Iterable[str]) -> Iterator[Problem]:
    """Yield a problem for each reason why a value is not valid."""
    for why in reasons:
        yield _invalid(at, value, why)


def _invalid(at: str, value: Any, why: str, hint: str = "") -> Problem:
    if isinstance(value, dict):
        return Problem(at, f"Invalid value: {why}", hint)
    if isinstance(value, str):
        value = quoted(value)
    return Problem(at, f"Invalid value: {value}: {why}", hint)
