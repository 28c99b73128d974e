"""The values that an API server fills in. Rendering and the Local target take documents with them.

Sources: the defaults in the CRDs, https://github.com/kubeflow/trainer/tree/v2.3.0/manifests/base/crds and
https://github.com/kubernetes-sigs/jobset/tree/v0.12.0/config/components/crd/bases, and JobSet's mutating webhook,
https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/webhooks/jobset_webhook.go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pulumi_trainer.provider.api.typed import Findings, typed

Document = dict[str, Any]

# A tree of defaults mirrors a document: a mapping or the one item of a list is gone into where the document has it,
# every other value stands where the document has none.
_NAMED: Document = {"name": ""}
_SECRET: Document = {"secretRef": _NAMED}
_ENV: Document = {"valueFrom": {"configMapKeyRef": _NAMED, "secretKeyRef": _NAMED, "fileKeyRef": {"optional": False}}}
_PROBE: Document = {"grpc": {"service": ""}}
_CONTAINER: Document = {
    "env": [_ENV],
    "envFrom": [{"configMapRef": _NAMED, "secretRef": _NAMED}],
    "ports": [{"protocol": "TCP"}],
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "startupProbe": _PROBE,
}
_VOLUME: Document = {
    "azureDisk": {"fsType": "ext4", "readOnly": False},
    "cephfs": _SECRET,
    "cinder": _SECRET,
    "configMap": _NAMED,
    "csi": {"nodePublishSecretRef": _NAMED},
    "flexVolume": _SECRET,
    "iscsi": {"iscsiInterface": "default", **_SECRET},
    "projected": {"sources": [{"configMap": _NAMED, "secret": _NAMED}]},
    "rbd": {"keyring": "/etc/ceph/keyring", "pool": "rbd", "user": "admin", **_SECRET},
    "scaleIO": {"fsType": "xfs", "storageMode": "ThinProvisioned", **_SECRET},
    "storageos": _SECRET,
}
_POD: Document = {
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "imagePullSecrets": [_NAMED],
    "volumes": [_VOLUME],
}
_JOBSET: Document = {
    "failurePolicy": {"restartStrategy": "Recreate"},
    "replicatedJobs": [{"groupName": "default", "replicas": 1, "template": {"spec": {"template": {"spec": _POD}}}}],
    "volumeClaimPolicies": [{"retentionPolicy": {"whenDeleted": "Delete"}}],
}
_RUNTIME: Document = {
    "spec": {
        "mlPolicy": {
            "flux": {"numProcPerNode": 1},
            "mpi": {
                "mpiImplementation": "OpenMPI",
                "numProcPerNode": 1,
                "runLauncherAsNode": False,
                "sshAuthMountPath": "/root/.ssh",
            },
        },
        "podGroupPolicy": {
            "coscheduling": {"scheduleTimeoutSeconds": 60},
            "volcano": {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}},
        },
        "template": {"spec": _JOBSET},
    }
}
_SOURCE: Document = {"env": [_ENV], **_SECRET}
_PATCHED_JOB: Document = {"template": {"spec": {"template": {"spec": _POD}}}}
_TRAIN_JOB: Document = {
    "metadata": {"namespace": "default"},
    "spec": {
        "suspend": False,
        "managedBy": "trainer.kubeflow.org/trainjob-controller",
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime"},
        "initializer": {"dataset": _SOURCE, "model": _SOURCE},
        "trainer": {"env": [_ENV]},
        "runtimePatches": [{"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [_PATCHED_JOB]}}}}],
    },
}


def default_runtime(document: Document) -> Document:
    """A ClusterTrainingRuntime or TrainingRuntime as the API server stores it; the given one is not changed."""
    filled: Document = _filled(document, _RUNTIME)
    return filled


def default_train_job(document: Document) -> Document:
    """A TrainJob as the API server stores it, less the time of its patches; the given one is not changed."""
    filled: Document = _filled(document, _TRAIN_JOB)
    return filled


def default_jobset(document: Document) -> Document:
    """A JobSet as it runs: as `stored_jobset`, and each Job's `backoffLimit` (6), which is Kubernetes' default."""
    return _each_job(stored_jobset(document), _with_backoff_limit)


def stored_jobset(document: Document) -> Document:
    """A JobSet as the API server stores it, after its CRD's defaults and JobSet's webhook."""
    jobset = _each_job(_filled(document, {"spec": _JOBSET}), _indexed)
    spec = {
        "successPolicy": {"operator": "All"},
        "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
        **_mapping(jobset, "spec"),
    }
    spec["network"] = {"enableDNSHostnames": True, "publishNotReadyAddresses": True, **_mapping(spec, "network")}
    failure = _mapping(spec, "failurePolicy")
    if isinstance(rules := failure.get("rules"), list):
        named = (_with({"name": f"failurePolicyRule{i}"}, rule) for i, rule in enumerate(rules))
        spec["failurePolicy"] = {**failure, "rules": list(named)}
    if isinstance(policies := spec.get("volumeClaimPolicies"), list):
        retention = {"retentionPolicy": {"whenDeleted": "Delete"}}
        spec["volumeClaimPolicies"] = [_with(retention, policy) for policy in policies]
    # The webhook prints the JobSet again, so what Go leaves out is gone (`value: ""`); then defaults come anew.
    printed = typed("JobSetSpec", spec, (None, "spec"), Findings(), applied=True)
    return {**jobset, "spec": _filled(printed, _JOBSET)}


def _each_job(jobset: Document, change: Callable[[Document], Document]) -> Document:
    """The JobSet with the Job spec of each replicated job changed."""
    spec = _mapping(jobset, "spec")
    if not isinstance(spec.get("replicatedJobs"), list):
        return jobset
    jobs = []
    for job in spec["replicatedJobs"]:
        template = _mapping(job, "template")
        job_spec = change(_mapping(template, "spec"))
        jobs.append({**job, "template": {**template, "spec": job_spec}} if isinstance(job, dict) else job)
    return {**jobset, "spec": {**spec, "replicatedJobs": jobs}}


def _indexed(spec: Document) -> Document:
    pod = _mapping(spec, "template")
    pod_spec = {"restartPolicy": "OnFailure", **_mapping(pod, "spec")}
    return {"completionMode": "Indexed", **spec, "template": {**pod, "spec": pod_spec}}


def _with_backoff_limit(spec: Document) -> Document:
    """https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/apis/batch/v1/defaults.go"""
    return {"backoffLimit": 2**31 - 1 if "backoffLimitPerIndex" in spec else 6, **spec}


def _with(defaults: Document, document: Any) -> Any:
    """`document` with the defaults for what it has not, or has empty."""
    if not isinstance(document, dict):
        return document
    return {**document, **{name: document.get(name) or default for name, default in defaults.items()}}


def _mapping(document: Any, name: str) -> Document:
    found = document.get(name) if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}


def _filled(document: Any, defaults: Any) -> Any:
    if isinstance(document, list) and isinstance(defaults, list):
        return [_filled(item, defaults[0]) for item in document]
    if not isinstance(document, dict) or not isinstance(defaults, dict):
        return document
    filled = dict(document)
    for name, default in defaults.items():
        if filled.get(name) is not None:
            filled[name] = _filled(filled[name], default)
        elif not isinstance(default, (dict, list)):
            filled[name] = default
    return filled
