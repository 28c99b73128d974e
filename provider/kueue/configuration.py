"""Kueue's Configuration: the file in the ConfigMap of its manager, which has neither a name nor a namespace.

Source: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/apis/config/v1beta2/defaults.go, and for v1beta1 also
configuration_conversion.go beside its own
"""

from __future__ import annotations

from pulumi_trainer.provider.kubernetes.errors import Invalid, Problem
from pulumi_trainer.provider.kubernetes.values.accessors import Document, section, text, texts
from pulumi_trainer.provider.kubernetes.values.wording import parse_duration

KIND = "Configuration"
CONFIGMAP = "kueue-manager-config"
NAMESPACE = "kueue-system"
"""Kueue's namespace in its own manifests."""
FRAMEWORKS = {"TrainJob": "trainer.kubeflow.org/trainjob", "JobSet": "jobset.x-k8s.io/jobset"}
"""Kind of a job -> what `integrations.frameworks` calls it."""
_GROUP = "config.kueue.x-k8s.io/"
_KEY = "controller_manager_config.yaml"
_DEFAULTS: Document = {"integrations": {"frameworks": ["batch/job"]}, "waitForPodsReady": {}}
_PODS_READY = {"v1beta1": "5m", "v1beta2": "30m"}
"""Version -> Kueue's default of `waitForPodsReady.timeout`."""


def is_configuration(document: Document) -> bool:
    """Return whether a document is Kueue's Configuration, or the ConfigMap with it."""
    if document.get("kind") == KIND:
        return str(document.get("apiVersion")).startswith(_GROUP)
    return document.get("kind") == "ConfigMap" and isinstance(section(document, "data").get(_KEY), str)


def configuration_of(document: Document) -> Document:
    """Return a Configuration, or that in a ConfigMap with Kueue's defaults, with the name of its ConfigMap. Raises Invalid."""
    from pulumi_trainer.provider.kubernetes.values.documents import parse  # it loads yaml

    if document["kind"] == KIND:
        return {**document, "metadata": {"name": CONFIGMAP}}
    where = f"ConfigMap {section(document, 'metadata').get('name')}: data[{_KEY}]"
    found = [each.content for each in parse(document["data"][_KEY], where)]
    if len(found) != 1 or not is_configuration(found[0]):
        raise Invalid(Problem(where, f"must contain one {KIND} of {_GROUP.rstrip('/')}"))
    written = {key: value for key, value in found[0].items() if value is not None}
    integrations = {**_DEFAULTS["integrations"], **section(written, "integrations")}
    return configuration_of({**_DEFAULTS, **written, "integrations": integrations})


def pods_ready_timeout(configuration: Document) -> int | None:
    """Return the seconds after which Kueue evicts a job whose Pods are not ready; None for never, or if unknown."""
    waits, version = configuration.get("waitForPodsReady"), text(configuration.get("apiVersion")).rpartition("/")[2]
    if not isinstance(waits, dict) or (version == "v1beta1" and waits.get("enable") is not True):
        return None
    if section(configuration, "featureGates").get("DisableWaitForPodsReady") is True:
        return None
    default = _PODS_READY.get(version, _PODS_READY["v1beta2"])
    seconds = parse_duration(str(waits.get("timeout") or default))
    if seconds == 0:
        return parse_duration(default)
    return seconds


def leaves_out(configuration: Document, kind: str) -> bool:
    """Return whether Kueue does not manage a kind of `FRAMEWORKS`; a Configuration without any list does not say."""
    listed = section(configuration, "integrations").get("frameworks")
    return isinstance(listed, list) and FRAMEWORKS.get(kind) not in texts(listed)
