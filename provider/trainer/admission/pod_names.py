"""The API server's checks of names and paths in a Pod's spec, in its words.

JobSet and Trainer do not check them, so the server rejects the Job or its Pods later, invisible to users. On one machine
the names become parts of paths. Sources:
https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/apis/core/validation/validation.go and `IsConfigMapKey` and
`IsRelaxedEnvVarName` of https://github.com/kubernetes/apimachinery/blob/v0.36.3/pkg/util/validation/validation.go
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from posixpath import normpath
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem
from pulumi_trainer.provider.kubernetes.schema.field_errors import REQUIRED
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.kubernetes.values.names import dns_1123_label, dns_1123_subdomain, qualified_name, quoted
from pulumi_trainer.provider.kubernetes.views import entries

Document = Mapping[str, Any]
Rule = Callable[[str], list[str]]

_KEY = "[-._a-zA-Z0-9]+"
_NOT_A_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME', "
    f" or 'key-name', regex used for validation is '{_KEY}')"
)
_NOT_A_VARIABLE = "a valid environment variable name must consist only of printable ASCII characters other than '='"


def pod_name_problems(pod: Document, path: str) -> Iterator[Problem]:
    """Yield the problems of names and paths in a Pod's spec; unknown leaves count as valid."""
    for at, volume in entries(pod, "volumes", path):
        yield from _volume_problems(volume, at)
    for kind in ("initContainers", "containers"):
        for at, container in entries(pod, kind, path):
            yield from _container_problems(container, at)


def _volume_problems(volume: Document, path: str) -> Iterator[Problem]:
    yield from _field_problems(volume, "name", path, dns_1123_label)
    for kind, field, rule in _SOURCES:
        source = volume.get(kind)
        if isinstance(source, dict):
            yield from _field_problems(source, field, f"{path}.{kind}", rule)
    yield from _file_problems(volume, path)
    for at, source in entries(section(volume, "projected"), "sources", f"{path}.projected"):
        yield from _file_problems(source, at)


def _file_problems(source: Document, path: str) -> Iterator[Problem]:
    """Yield the problems of a configMap, secret or downwardAPI, as a volume or as a part of one."""
    for kind in ("configMap", "secret", "downwardAPI"):
        for at, item in entries(section(source, kind), "items", f"{path}.{kind}"):
            if kind != "downwardAPI":
                yield from _field_problems(item, "key", at, None)
            yield from _field_problems(item, "path", at, _local_path_faults)


def _container_problems(container: Document, path: str) -> Iterator[Problem]:
    yield from _field_problems(container, "name", path, dns_1123_label)
    for at, variable in entries(container, "env", path):
        yield from _field_problems(variable, "name", at, _variable_faults)
        for kind in ("configMapKeyRef", "secretKeyRef"):
            reference = section(variable, "valueFrom", kind)
            if reference:
                yield from _field_problems(reference, "key", f"{at}.valueFrom.{kind}", _key_faults)
    for at, mount in entries(container, "volumeMounts", path):
        for field in ("name", "mountPath"):
            yield from _field_problems(mount, field, at, None)
        for field in ("subPath", "subPathExpr"):
            if mount.get(field):
                yield from _field_problems(mount, field, at, _relative_path_faults)
    yield from _resource_problems(container, path)


def is_root(path: Any) -> bool:
    """Return whether a path of a mount is that of the root folder."""
    return isinstance(path, str) and path != "" and normpath(f"/{path.lstrip('/')}") == "/"


def _resource_problems(container: Document, path: str) -> Iterator[Problem]:
    for part in ("limits", "requests"):
        for name in section(container, "resources", part):
            for why in resource_name(name):
                yield Problem(f"{path}.resources.{part}[{name}]", f"Invalid value: {quoted(name)}: {why}")


def resource_name(name: str) -> list[str]:
    """Return why the name of a resource that a container requests is not valid; empty for a valid one."""
    found = qualified_name(name)
    if found:
        return found
    if "/" in name or name in STANDARD_RESOURCES or name.startswith("hugepages-"):
        return []
    return ["must be a standard resource type or fully qualified", "must be a standard resource for containers"]


STANDARD_RESOURCES = ("cpu", "memory", "ephemeral-storage")


def _field_problems(document: Document, field: str, path: str, rule: Rule | None) -> Iterator[Problem]:
    value = document.get(field) or ""
    if value == "":
        yield Problem(f"{path}.{field}", "Required value", type=REQUIRED)
    elif isinstance(value, str) and rule is not None:
        for why in rule(value):
            yield Problem(f"{path}.{field}", f"Invalid value: {quoted(value)}: {why}")


def _key_faults(value: str) -> list[str]:
    found: list[str] = []
    if len(value) > 253:
        found.append("must be no more than 253 characters")
    if not re.fullmatch(_KEY, value):
        found.append(_NOT_A_KEY)
    if value in (".", ".."):
        found.append(f"must not be '{value}'")
    elif value.startswith(".."):
        found.append("must not start with '..'")
    return found


def _variable_faults(value: str) -> list[str]:
    return [] if re.fullmatch("[ -<>-~]+", value) else [_NOT_A_VARIABLE]


def _local_path_faults(value: str) -> list[str]:
    """Return why a value is not a valid path below a volume (`validateLocalNonReservedPath`)."""
    found = _relative_path_faults(value)
    if value.startswith("..") and not value.startswith("../"):
        found.append("must not start with '..'")
    return found


def _relative_path_faults(value: str) -> list[str]:
    found: list[str] = []
    if value.startswith("/"):
        found.append("must be a relative path")
    return found + _backstep_faults(value)


def _backstep_faults(value: str) -> list[str]:
    return ["must not contain '..'"] if ".." in value.split("/") else []


_SOURCES: tuple[tuple[str, str, Rule], ...] = (
    ("persistentVolumeClaim", "claimName", dns_1123_subdomain),
    ("hostPath", "path", _backstep_faults),
)
"""Kind of volume, its field with a name or a path, and what that must be. A server takes any claimName, and the Pod waits for
ever: a claim is called as an object is.
"""
