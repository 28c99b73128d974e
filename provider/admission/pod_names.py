"""What the API server has against names and paths in a Pod's spec, in its words.

JobSet and Trainer do not look at them: the server refuses the Job or its Pods later, out of sight. On a machine they become
parts of paths. Rules:
https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/apis/core/validation/validation.go and `IsConfigMapKey` and
`IsRelaxedEnvVarName` of https://github.com/kubernetes/apimachinery/blob/v0.36.3/pkg/util/validation/validation.go
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pulumi_trainer.provider.kube.errors import Problem
from pulumi_trainer.provider.kube.schema.field_errors import REQUIRED
from pulumi_trainer.provider.kube.values.accessors import listed, section
from pulumi_trainer.provider.kube.values.names import (
    dns_1123_label,
    dns_1123_subdomain,
    qualified_name,
    quoted,
)

Document = Mapping[str, Any]
Rule = Callable[[str], list[str]]

_KEY = "[-._a-zA-Z0-9]+"
_NOT_A_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME', "
    f" or 'key-name', regex used for validation is '{_KEY}')"
)
_NOT_A_VARIABLE = "a valid environment variable name must consist only of printable ASCII characters other than '='"


def pod_name_problems(pod: Document, path: str) -> Iterator[Problem]:
    """Yield what is wrong with names and paths in a Pod's spec; unknown leaves count as right.

    Args:
        path: of the Pod's spec in the document that holds it.
    """
    for volume, at in _each(pod, "volumes", path):
        yield from _volume(volume, at)
    for kind in ("initContainers", "containers"):
        for container, at in _each(pod, kind, path):
            yield from _container(container, at)


def _volume(volume: Document, path: str) -> Iterator[Problem]:
    yield from _checked(volume, "name", path, dns_1123_label)
    for kind, field, rule in _SOURCES:
        if isinstance(source := volume.get(kind), dict):
            yield from _checked(source, field, f"{path}.{kind}", rule)
    yield from _files(volume, path)
    for source, at in _each(section(volume, "projected"), "sources", f"{path}.projected"):
        yield from _files(source, at)


def _files(source: Document, path: str) -> Iterator[Problem]:
    """Of a configMap, secret or downwardAPI, as a volume or as a part of one."""
    for kind in ("configMap", "secret", "downwardAPI"):
        for item, at in _each(section(source, kind), "items", f"{path}.{kind}"):
            if kind != "downwardAPI":
                yield from _checked(item, "key", at, None)
            yield from _checked(item, "path", at, _local_path)


def _container(container: Document, path: str) -> Iterator[Problem]:
    yield from _checked(container, "name", path, dns_1123_label)
    for variable, at in _each(container, "env", path):
        yield from _checked(variable, "name", at, _variable)
        for kind in ("configMapKeyRef", "secretKeyRef"):
            if reference := section(variable, "valueFrom", kind):
                yield from _checked(reference, "key", f"{at}.valueFrom.{kind}", _key)
    for mount, at in _each(container, "volumeMounts", path):
        for field in ("name", "mountPath"):
            yield from _checked(mount, field, at, None)
        for field in ("subPath", "subPathExpr"):
            if mount.get(field):
                yield from _checked(mount, field, at, _descending_path)
    yield from _resources(container, path)


def _resources(container: Document, path: str) -> Iterator[Problem]:
    for part in ("limits", "requests"):
        for name in section(container, "resources", part):
            for why in resource_name(name):
                yield Problem(f"{path}.resources.{part}[{name}]", f"Invalid value: {quoted(name)}: {why}")


def resource_name(name: str) -> list[str]:
    """Return what is wrong with the name of a resource that a container requests."""
    if found := qualified_name(name):
        return found
    if "/" in name or name in STANDARD_RESOURCES or name.startswith("hugepages-"):
        return []
    return ["must be a standard resource type or fully qualified", "must be a standard resource for containers"]


STANDARD_RESOURCES = ("cpu", "memory", "ephemeral-storage")


def _each(document: Document, field: str, path: str) -> Iterator[tuple[Document, str]]:
    """The mappings of a list, each with its path."""
    for place, item in enumerate(listed(document.get(field))):
        if isinstance(item, dict):
            yield item, f"{path}.{field}[{place}]"


def _checked(document: Document, field: str, path: str, rule: Rule | None) -> Iterator[Problem]:
    value = document.get(field) or ""
    if value == "":
        yield Problem(f"{path}.{field}", "Required value", type=REQUIRED)
    elif isinstance(value, str) and rule is not None:
        for why in rule(value):
            yield Problem(f"{path}.{field}", f"Invalid value: {quoted(value)}: {why}")


def _key(value: str) -> list[str]:
    found = ["must be no more than 253 characters"] if len(value) > 253 else []
    if not re.fullmatch(_KEY, value):
        found.append(_NOT_A_KEY)
    if value in (".", ".."):
        found.append(f"must not be '{value}'")
    elif value.startswith(".."):
        found.append("must not start with '..'")
    return found


def _variable(value: str) -> list[str]:
    return [] if re.fullmatch("[ -<>-~]+", value) else [_NOT_A_VARIABLE]


def _local_path(value: str) -> list[str]:
    found = _descending_path(value)
    if value.startswith("..") and not value.startswith("../"):
        found.append("must not start with '..'")
    return found


def _descending_path(value: str) -> list[str]:
    return [*(["must be a relative path"] if value.startswith("/") else []), *_without_backsteps(value)]


def _without_backsteps(value: str) -> list[str]:
    return ["must not contain '..'"] if ".." in value.split("/") else []


_SOURCES: tuple[tuple[str, str, Rule], ...] = (
    ("persistentVolumeClaim", "claimName", dns_1123_subdomain),
    ("hostPath", "path", _without_backsteps),
)
"""Kind of volume, its field with a name or a path, and what that must be. A server takes any claimName, and the Pod waits for
ever: a claim is called as an object is.
"""
