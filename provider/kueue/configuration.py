"""Kueue's Configuration: the file in the ConfigMap of its manager, which has neither a name nor a namespace.

Source: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/apis/config/v1beta2/configuration_types.go
"""

from __future__ import annotations

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, section
from pulumi_trainer.provider.kubernetes.values.wording import parse_duration

KIND = "Configuration"
CONFIGMAP = "kueue-manager-config"
_GROUP = "config.kueue.x-k8s.io/"
_KEY = "controller_manager_config.yaml"
_PODS_READY = "5m"
"""Kueue's default of `waitForPodsReady.timeout`."""


def is_configuration(document: Document) -> bool:
    """Return whether a document is Kueue's Configuration, or the ConfigMap with it."""
    if document.get("kind") == KIND:
        return str(document.get("apiVersion")).startswith(_GROUP)
    return document.get("kind") == "ConfigMap" and isinstance(section(document, "data").get(_KEY), str)


def configuration_of(document: Document) -> Document:
    """Return a Configuration with the name of its ConfigMap.

    Args:
        document: The Configuration, or the ConfigMap with it.

    Raises:
        Invalid: The ConfigMap contains no document that can be read.
    """
    from pulumi_trainer.provider.kubernetes.values.documents import parse  # it loads yaml

    if document["kind"] == KIND:
        return {**document, "metadata": {"name": CONFIGMAP}}
    where = f"ConfigMap {section(document, 'metadata').get('name')}: data[{_KEY}]"
    found = [each.content for each in parse(document["data"][_KEY], where)]
    if len(found) != 1 or not is_configuration(found[0]):
        raise Invalid(Problem(where, f"must contain one {KIND} of {_GROUP.rstrip('/')}"))
    return configuration_of(found[0])


def pods_ready_timeout(configuration: Document) -> int | None:
    """Return the seconds after which Kueue evicts a job whose Pods are not ready; None for never, or if unknown."""
    waits = configuration.get("waitForPodsReady")
    if not isinstance(waits, dict) or waits.get("enable") is False:  # `enable` is a field of v1beta1
        return None
    return parse_duration(str(waits.get("timeout") or _PODS_READY))
