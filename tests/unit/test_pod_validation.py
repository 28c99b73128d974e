"""What an API server refuses of the Jobs, Pods and Workloads that controllers make: nobody else would say so."""

# ruff: noqa: E501 (tables of documents)

from __future__ import annotations

from typing import Any

import pytest
from warnings_support import found, job, runtime, step

Document = dict[str, Any]
TORCH: Document = {"torch": {}}
QUEUE = "kueue.x-k8s.io/queue-name"


PODS: tuple[tuple[Document, Document, str, str], ...] = (
    ({}, {"ports": [{"containerPort": 1, "name": "x"}, {"containerPort": 2, "name": "x"}]}, "ports[1].name", 'Duplicate value: "x"'),
    ({}, {"ports": [{"name": "x", "containerPort": 0}]}, "ports[0].containerPort", "Required value"),
    ({}, {"ports": [{"name": "x", "containerPort": 65536}]}, "ports[0].containerPort", "Invalid value: 65536: must be between 1 and 65535, inclusive"),
    ({}, {"ports": [{"containerPort": 1, "name": "aA"}]}, "ports[0].name", 'Invalid value: "aA": must contain only alpha-numeric characters'),
    ({}, {"ports": [{"containerPort": 1, "name": "x" * 16}]}, "ports[0].name", "must be no more than 15 characters"),
    ({}, {"ports": [{"name": "x", "containerPort": 1, "protocol": "tcp"}]}, "ports[0].protocol", 'supported values: "TCP", "UDP", "SCTP"'),
    ({"hostNetwork": True}, {"ports": [{"name": "x", "containerPort": 1, "hostPort": 2}]}, "ports[0].containerPort", "must match `hostPort` when"),
    ({}, {"env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "a"}}}]}, "env[0].valueFrom", "when `value` is not empty"),
    ({}, {"env": [{"name": "A", "valueFrom": {}}]}, "env[0].valueFrom", "must specify one of: `fieldRef`"),
    ({}, {"imagePullPolicy": "always"}, "imagePullPolicy", 'Unsupported value: "always": supported values: "Always", "Never", "IfNotPresent"'),
    ({}, {"livenessProbe": {}}, "livenessProbe", "Required value: must specify a handler type"),
    ({}, {"livenessProbe": {"exec": {}, "httpGet": {}}}, "livenessProbe.httpGet", "may not specify more than 1 handler type"),
    ({}, {"livenessProbe": {"exec": {}, "successThreshold": 2}}, "livenessProbe.successThreshold", "Invalid value: 2: must be 1"),
    ({}, {"readinessProbe": {"exec": {}, "periodSeconds": -1}}, "readinessProbe.periodSeconds", "must be greater than or equal to 0"),
    (
        {}, {"securityContext": {"privileged": True, "allowPrivilegeEscalation": False}}, "securityContext",
        "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
    ),
    ({"initContainers": [{"name": "a", "image": "a", "lifecycle": {}}]}, {}, "initContainers[0].lifecycle", "may not be set for init containers"),
    ({"initContainers": [{"name": "node", "image": "a"}]}, {}, "containers[0].name", 'Duplicate value: "node"'),
    ({"volumes": [{"name": "a"}]}, {}, "volumes[0]", "Required value: must specify a volume type"),
    ({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]}, {}, "volumes[1].name", 'Duplicate value: "a"'),
    ({"volumes": [{"name": "a", "emptyDir": {"medium": "memory"}}]}, {}, "emptyDir.medium", 'no node has the medium "memory"'),
    ({"volumes": [{"name": "a", "nfs": {"path": "/a"}}]}, {}, "volumes[0].nfs.server", "Required value"),
    (
        {"volumes": [{"name": "a", "emptyDir": {}}]},
        {"volumeMounts": [{"name": "a", "mountPath": "/a"}, {"name": "a", "mountPath": "/a"}]}, "volumeMounts[1].mountPath", "must be unique",
    ),
    ({"terminationGracePeriodSeconds": -1}, {}, "terminationGracePeriodSeconds", "must be greater than or equal to 0"),
    ({"activeDeadlineSeconds": 0}, {}, "activeDeadlineSeconds", "must be between 1 and 2147483647, inclusive"),
    ({"dnsPolicy": "none"}, {}, "dnsPolicy", 'Unsupported value: "none"'),
    ({"serviceAccountName": "A"}, {}, "serviceAccountName", 'Invalid value: "A": a lowercase RFC 1123 subdomain'),
    ({"nodeSelector": {"a b": "c"}}, {}, "nodeSelector", 'Invalid value: "a b": name part must consist of'),
    ({"nodeSelector": {"a": "b c"}}, {}, "nodeSelector", 'Invalid value: "b c": a valid label'),
    ({"tolerations": [{"operator": "Equal"}]}, {}, "tolerations[0].operator", "operator must be Exists when `key` is empty"),
    ({"tolerations": [{"key": "a", "effect": "noSchedule"}]}, {}, "tolerations[0].effect", 'Unsupported value: "noSchedule"'),
    ({"tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}]}, {}, "effect", "must be 'NoExecute' when"),
    ({"hostPID": True, "shareProcessNamespace": True}, {}, "shareProcessNamespace", "cannot both be enabled"),
    ({"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}]}, {}, "maxSkew", "must be greater than zero"),
    ({"schedulingGates": [{"name": "a"}, {"name": "a"}]}, {}, "schedulingGates[1].name", "Duplicate value"),
    *(
        (
            {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}}, {}, f"matchExpressions[0].{field}", why,
        )
        for expression, field, why in (
            ({"key": "a", "operator": "In"}, "values", "must be specified when `operator` is 'In' or 'NotIn'"),
            ({"key": "a", "operator": "Exists", "values": ["b"]}, "values", "may not be specified when"),
            ({"key": "a", "operator": "Is"}, "operator", 'Unsupported value: "Is"'),
            ({"key": "a", "operator": "Gt", "values": []}, "values", "must be specified single value"),
        )
    ),
    (
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {}}]}}}, {},
        "podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey", "Required value: can not be empty",
    ),
    (
        {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 0, "preference": {}}]}}}, {},
        "[0].weight", "must be in the range 1-100",
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "container", "where", "why"), PODS, ids=[f"{i}-{row[2]}" for i, row in enumerate(PODS)]
)
def test_pods_that_kubernetes_refuses(spec: Document, container: Document, where: str, why: str) -> None:
    (told,) = [w for w in found(runtime(TORCH, step(pod=spec, container=container)), job({})) if w.code == "PT141"]
    assert told.where.endswith(where) and why in told.why, told


JOBS: tuple[tuple[Document, str, str], ...] = (
    ({"backoffLimit": -1}, "backoffLimit", "must be greater than or equal to 0"),
    ({"ttlSecondsAfterFinished": -1}, "ttlSecondsAfterFinished", "must be greater than or equal to 0"),
    ({"completionMode": "indexed"}, "completionMode", 'supported values: "NonIndexed", "Indexed"'),
    ({"maxFailedIndexes": 1}, "backoffLimitPerIndex", "Required value: when maxFailedIndexes is specified"),
    ({"selector": {"matchLabels": {"a": "b"}}}, "selector", "`selector` not auto-generated"),
    ({"podReplacementPolicy": "Never"}, "podReplacementPolicy", 'supported values: "TerminatingOrFailed", "Failed"'),
    ({"template": {"metadata": {"labels": {"a b": "c"}}}}, "metadata.labels", 'Invalid value: "a b"'),
    ({"template": {"metadata": {"labels": {"a": "b c"}}}}, "metadata.labels", 'Invalid value: "b c"'),
    ({"template": {"metadata": {"annotations": {"a b": "c"}}}}, "metadata.annotations", 'Invalid value: "a b"'),
)


@pytest.mark.parametrize(("spec", "where", "why"), JOBS)
def test_jobs_that_kubernetes_refuses(spec: Document, where: str, why: str) -> None:
    given = step()
    inner = given["template"]["spec"]
    inner["template"].update(spec.pop("template", {}))
    inner.update(spec)
    (told,) = [w for w in found(runtime(TORCH, given), job({})) if w.code == "PT141"]
    assert told.where.endswith(where) and why in told.why, told


def test_workloads_that_kueue_cannot_make() -> None:
    def told(count: int, note: str = "", queue: str = "all") -> list[str]:
        steps = [step(), *(step(f"more-{number}", "") for number in range(count - 1))]
        if note:
            steps[0]["template"]["spec"]["template"]["metadata"] = {
                "annotations": {"kueue.x-k8s.io/podset-required-topology": note}
            }
        return [
            f"{w.code} {w.why}"
            for w in found(runtime(TORCH, *steps), {**job({}), "metadata": {"name": "job", "labels": {QUEUE: queue}}})
            if w.code in ("PT218", "PT219")
        ]

    assert told(8) == told(19, queue="") == []
    assert [each[:5] for each in told(18)] == ["PT219"]
    assert told(19) == ["PT218 spec.podSets: Too many: 19: must have at most 18 items (a replicated job is one)"]
    assert told(1, f"example.com/{'a' * 51}") == []
    assert told(1, f"example.com/{'a' * 52}") == ["PT218 Too long: may not be more than 63 bytes"]


def test_what_kubernetes_accepts_is_no_problem() -> None:
    media = [
        {"name": f"v{i}", "emptyDir": {"medium": each}}
        for i, each in enumerate(("", "Memory", "HugePages", "HugePages-2Mi"))
    ]
    spec = {"volumes": media, "schedulerName": "My_Scheduler"}
    assert not [w for w in found(runtime(TORCH, step(pod=spec)), job({})) if w.code == "PT141"]
