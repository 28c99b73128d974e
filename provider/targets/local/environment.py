"""Builds the environment of a container from its spec and a few variables of the user's environment.

Only the variables of `inherited` are taken from the user's environment, so no credential of the shell or of Pulumi reaches a job
that does not declare it.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pulumi_trainer.provider.kubernetes.views import Pod
from pulumi_trainer.provider.targets.local.machine import cpus, memory, quantity

_INHERITED = """
HOME USER LOGNAME LANG LANGUAGE TZ TMPDIR XDG_CACHE_HOME
http_proxy https_proxy no_proxy all_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY
SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE
PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST PIP_CERT PIP_CONFIG_FILE PIP_FIND_LINKS PIP_NO_INDEX
UV_INDEX_URL UV_EXTRA_INDEX_URL UV_DEFAULT_INDEX UV_INDEX UV_FIND_LINKS UV_INSECURE_HOST UV_CONFIG_FILE UV_CACHE_DIR UV_LINK_MODE
UV_NATIVE_TLS UV_OFFLINE
LD_LIBRARY_PATH DYLD_LIBRARY_PATH DYLD_FALLBACK_LIBRARY_PATH CUDA_HOME CUDA_PATH
"""


def inherited(user_environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that describe the machine: home, locale, proxies, certificates, package index, libraries."""
    names = _INHERITED.split()
    return {k: v for k, v in user_environment.items() if k in names or k.startswith("LC_")}


def base_environment(user_environment: Mapping[str, str], python: str) -> dict[str, str]:
    """Return the variables of every container: `inherited`, and PATH with the folder of the interpreter `python` in front."""
    return {
        **inherited(user_environment),
        "PATH": os.pathsep.join([str(Path(python).parent), user_environment.get("PATH", os.defpath)]),
    }


_REFERENCE = re.compile(r"\$(?:\$|\((?P<name>[^)]*)(?P<closed>\)?))")


def expand(text: str, values: Mapping[str, str]) -> str:
    """Return a text with Kubernetes' references `$(NAME)` replaced; `$$` becomes `$`, an unknown name stays.

    Rule: third_party/forked/golang/expansion/expand.go of https://github.com/kubernetes/kubernetes/tree/v1.36.0
    """

    def replaced(match: re.Match[str]) -> str:
        if match["name"] is None:
            return "$"
        if match["closed"]:
            return values.get(match["name"], match[0])
        return match[0].replace("$$", "$")

    return _REFERENCE.sub(replaced, text)


def references(text: str) -> set[str]:
    """Return the names that `expand` looks up in a text."""
    return {m["name"] for m in _REFERENCE.finditer(text) if m["closed"]}


@dataclass(frozen=True)
class PodFacts:
    """The fields of a pod that a fieldRef can name."""

    name: str
    namespace: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    address: str
    node: str
    service_account: str = "default"

    def field(self, path: str) -> str:
        """Return the value at a fieldPath; empty if it is not set, as in Kubernetes."""
        match = re.fullmatch(r"metadata\.(labels|annotations)\['(.*)'\]", path)
        if match and match[1] == "labels":
            return str(self.labels.get(match[2], ""))
        if match:
            return str(self.annotations.get(match[2], ""))
        return {
            "metadata.name": self.name,
            "metadata.namespace": self.namespace,
            "metadata.uid": self.uid,
            "spec.nodeName": self.node,
            "spec.serviceAccountName": self.service_account,
            "status.hostIP": "127.0.0.1",
            "status.hostIPs": "127.0.0.1",
            "status.podIP": self.address,
            "status.podIPs": self.address,
        }.get(path, "")


FIELDS = re.compile(
    r"metadata\.(name|namespace|uid|(labels|annotations)\['.+'\])|spec\.(nodeName|serviceAccountName)|status\.(hostIPs?|podIPs?)"
)
"""The fieldPaths that `PodFacts.field` supports."""

Texts = Mapping[str, Mapping[str, str]]


@dataclass
class Variables:
    """The variables of one container's spec.

    Attributes:
        literal: Names of variables whose value is written in a document; it may contain paths and host names.
        secret: Names of variables that contain a value of a Secret.
    """

    values: dict[str, str] = field(default_factory=dict)
    literal: set[str] = field(default_factory=set)
    secret: set[str] = field(default_factory=set)

    def put(self, name: str, value: str, *, literal: bool = False, secret: bool = False) -> None:
        """Add a variable, which replaces an earlier one of the same name."""
        self.values[name] = value
        for chosen, names in ((literal, self.literal), (secret, self.secret)):
            if chosen:
                names.add(name)
            else:
                names.discard(name)


def variables(
    pod: Mapping[str, Any], container: Mapping[str, Any], facts: PodFacts, configs: Texts, secrets: Texts
) -> Variables:
    """Return the variables of envFrom, then env, in order; a variable may refer to earlier ones."""
    done = Variables()
    for source in container.get("envFrom") or []:
        prefix = source.get("prefix") or ""
        for kind, texts in (("configMapRef", configs), ("secretRef", secrets)):
            for key, text in texts.get((source.get(kind) or {}).get("name", ""), {}).items():
                done.put(prefix + key, text, literal=texts is configs, secret=texts is secrets)
    for variable in container.get("env") or []:
        name, source = variable["name"], variable.get("valueFrom") or {}
        if source.get("fieldRef"):
            done.put(name, facts.field(source["fieldRef"]["fieldPath"]))
        elif source.get("resourceFieldRef"):
            done.put(name, str(resource_value(pod, container, source["resourceFieldRef"])))
        elif source.get("configMapKeyRef"):
            found = _text_of_key(source["configMapKeyRef"], configs)
            if found is not None:
                done.put(name, found, literal=True)
        elif source.get("secretKeyRef"):
            found = _text_of_key(source["secretKeyRef"], secrets)
            if found is not None:
                done.put(name, found, secret=True)
        else:
            text = str(variable.get("value") or "")
            holds_secret = bool(references(text) & done.secret)
            done.put(name, expand(text, done.values), literal=True, secret=holds_secret)
    return done


def _text_of_key(ref: Mapping[str, Any], objects: Texts) -> str | None:
    """Return the text of the key that a configMapKeyRef or secretKeyRef names; None if not found."""
    return objects.get(ref["name"], {}).get(ref["key"])


def resource_value(pod: Mapping[str, Any], container: Mapping[str, Any], ref: Mapping[str, Any]) -> int:
    """Return the value of a resourceFieldRef, rounded up to the divisor; a limit that is not set is the machine's amount.

    Rule: pkg/apis/core/v1/helper and pkg/api/v1/resource of https://github.com/kubernetes/kubernetes/tree/v1.36.0
    """
    other = ref.get("containerName")
    if other:
        container = next((c.document for c in Pod({**pod}).all_containers if c.name == other), container)
    kind, _, name = str(ref["resource"]).partition(".")
    given = ((container.get("resources") or {}).get(kind) or {}).get(name)
    if given is None and kind == "requests":
        given = ((container.get("resources") or {}).get("limits") or {}).get(name)
    if given is None and kind == "limits":
        given = {"cpu": cpus(), "memory": memory()}.get(name, 0)
    divisor = quantity(ref.get("divisor") or 1) or quantity(1)
    return math.ceil(quantity(given or 0) / divisor)
