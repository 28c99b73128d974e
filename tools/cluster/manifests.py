"""What upstream installs, read from their modules as they were built: CRDs, webhook configurations, training runtimes.

Changed is what points into a cluster that has Services: webhooks are reached at a port of this machine. Called by cluster.py.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CRDS = {
    "jobset": ["config/components/crd/bases/*.yaml"],
    "kueue": ["config/components/crd/bases/*.yaml"],
    "trainer": ["manifests/base/crds/trainer*.yaml"],
    "scheduler-plugins": ["config/crd/bases/*.yaml"],
    "volcano": ["config/crd/*/bases/*.yaml"],
    "kai": ["deployments/kai-scheduler/crds/*.yaml"],
    "kwok": ["kustomize/crd/bases/*_logs.yaml", "kustomize/crd/bases/*_clusterlogs.yaml"],
}
WEBHOOKS = {
    "jobset": "config/components/webhook/manifests.yaml",
    "kueue": "config/components/webhook/manifests.yaml",
    "trainer": "manifests/base/webhook/manifests.yaml",
}
KUEUE_KINDS = ("clusterqueue", "cohort", "job", "jobset", "trainjob", "resourceflavor", "workload")
"""Kueue serves the webhooks of the integrations that are switched on; a call to another one fails."""
OF_JOBSET = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}
VALIDATED = {
    "matchExpressions": [
        {"key": "trainer.kubeflow.org/webhook-validation", "operator": "NotIn", "values": ["disabled"]}
    ]
}
SELECTORS = {
    "mpod.kb.io": OF_JOBSET,
    "vpod.kb.io": OF_JOBSET,
    "validator.clustertrainingruntime.trainer.kubeflow.org": VALIDATED,
    "validator.trainingruntime.trainer.kubeflow.org": VALIDATED,
}
"""Which objects a webhook is called for, where upstream says so in a patch of kustomize."""


def documents(path: Path) -> Iterator[Object]:
    """The documents of a YAML file."""
    with path.open(encoding="utf-8") as file:
        yield from (document for document in yaml.load_all(file, LOADER) if document)


def crds(component: str, folder: Path) -> list[Object]:
    """CRDs of a built component; megabytes of YAML, so beside them lies a cache in JSON."""
    if component not in CRDS:
        return []
    cache = folder / "crds.json"
    if not cache.exists():
        files = sorted(file for pattern in CRDS[component] for file in (folder / "module").glob(pattern))
        found = [d for file in files for d in documents(file) if d["kind"] == "CustomResourceDefinition"]
        for crd in found:
            crd.pop("status", None)
            crd["spec"].pop("conversion", None)  # its webhook has no Service here, and one version is stored
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
            json.dump(found, file)
        os.replace(file.name, cache)  # noqa: PTH105
    return list(json.loads(cache.read_text()))


def established(crd: Mapping[str, Any]) -> bool:
    """Whether the server serves it."""
    conditions = (crd.get("status") or {}).get("conditions") or []  # null at first
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def webhooks(component: str, folder: Path, port: int, ca: bytes) -> list[Object]:
    """Its webhook configurations, pointing to this port."""
    found = list(documents(folder / "module" / WEBHOOKS[component]))
    for configuration in found:
        configuration["metadata"]["name"] = f"{component}-{configuration['metadata']['name']}"
        hooks = [hook for hook in configuration["webhooks"] if component != "kueue" or hook["name"] in _kueue()]
        configuration["webhooks"] = [_here(hook, port, ca) for hook in hooks]
    return found


def _kueue() -> set[str]:
    return {f"{verb}{kind}.kb.io" for verb in "mv" for kind in KUEUE_KINDS}


def _here(hook: Mapping[str, Any], port: int, ca: bytes) -> Object:
    path = hook["clientConfig"]["service"]["path"]
    client = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": base64.b64encode(ca).decode()}
    selector = {"objectSelector": SELECTORS[hook["name"]]} if hook["name"] in SELECTORS else {}
    return {**hook, "clientConfig": client, **selector}


def runtimes(folder: Path) -> list[Object]:
    """Trainer's own ClusterTrainingRuntimes."""
    files: Iterable[Path] = sorted((folder / "module/manifests/base/runtimes").rglob("*.yaml"))
    return [d for file in files for d in documents(file) if d.get("kind") == "ClusterTrainingRuntime"]


def priority_classes(folder: Path) -> list[Object]:
    """KAI's own PriorityClasses, which its PodGroups name."""
    files = sorted((folder / "module/deployments/kai-scheduler/templates/priorityclasses").glob("*.yaml"))
    return [d for file in files for d in documents(file)]
