"""Names and paths in Pods: the real API server refuses what `admission/pod_names.py` refuses, in the same words."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pulumi_trainer.provider.kubernetes.client.api_resources import POD
from pulumi_trainer.provider.kubernetes.client.client import Client
from pulumi_trainer.provider.kubernetes.client.transport import ApiError
from pulumi_trainer.provider.trainer.admission.pod_names import pod_name_problems

LONG = "x" * 300


def volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", **source}]}


def container(**fields: Any) -> dict[str, Any]:
    given = {"name": "node", "image": "example.com/x:1", **fields}
    return {"containers": [given], "volumes": [{"name": "v", "emptyDir": {}}]}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    name = {"secret": {"secretName": "s"}, "configMap": {"name": "s"}}[kind]
    return volume(**{kind: {**name, "items": [{"key": "k", "path": "p", **fields}]}})


def projected(**fields: Any) -> dict[str, Any]:
    source = {"configMap": {"name": "s", "items": [{"key": "k", "path": "p", **fields}]}}
    return volume(projected={"sources": [source]})


NAMES = [
    "",
    "../x",
    ".",
    "..",
    "a.b",
    "A",
    "-a",
    "a-",
    "a_b",
    "a/b",
    "x\n",
    "x\0",
    'a"b',
    "ä",
    "x" * 64,
    LONG,
    "a",
    "x" * 63,
    "0",
]
PATHS = ["", "..", "../x", "/x", "a/../b", "..a", "a..", "a/..b", ".", "./a", "//a", "a/b"]
KEYS = ["", ".", "..", "..a", "a/b", "a b", "A_b-c.1", LONG, "a\n"]
VARIABLES = ["", "A=B", "A B", "a-b.c", "ä", "A\n", "~!", "="]

CASES = [
    *({"volumes": [{"name": n, "emptyDir": {}}]} for n in NAMES),
    *({"containers": [{"name": n, "image": "example.com/x:1"}]} for n in NAMES),
    *({"initContainers": [{"name": n, "image": "example.com/x:1"}]} for n in NAMES),
    *(volume(hostPath={"path": p}) for p in PATHS),
    *(item(kind, path=p) for kind in ("configMap", "secret") for p in PATHS),
    *(projected(path=p) for p in PATHS),
    item("configMap", key=""),
    item("configMap", key="../k"),
    *(volume(downwardAPI={"items": [{"path": p, "fieldRef": {"fieldPath": "metadata.name"}}]}) for p in PATHS),
    volume(persistentVolumeClaim={"claimName": ""}),
    *(container(volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": p}]) for p in PATHS),
    *(container(volumeMounts=[{"name": "v", "mountPath": "/v", "subPathExpr": p}]) for p in PATHS),
    container(volumeMounts=[{"name": "v", "mountPath": ""}]),
    *(
        container(env=[{"name": "A", "valueFrom": {kind: {"name": "s", "key": k}}}])
        for kind in ("configMapKeyRef", "secretKeyRef")
        for k in KEYS
    ),
    *(container(env=[{"name": n, "value": "x"}]) for n in VARIABLES),
]


def server_path(path: str) -> str:
    """The server leaves some indexes out."""
    return re.sub(r"(downwardAPI)\.items\[0\]|(volumeMounts)\[0\](?=\.subPath)", r"\1\2", path)


@pytest.mark.smoke
def test_the_server_says_the_same(root: Client, namespace: str) -> None:
    differing = []
    for case in CASES:
        spec = {"containers": [{"name": "node", "image": "example.com/x:1"}], **case}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": namespace}, "spec": spec}
        ours = {(server_path(p.where), p.why) for p in pod_name_problems(spec, "spec")}
        theirs = set()
        try:
            root.create(POD, pod, dry_run=True)
        except ApiError as fault:
            theirs = {(field, said) for field, _, said in fault.causes}
        if ours != theirs:
            differing.append(f"{case}\n  ours: {ours - theirs}\n  theirs: {theirs - ours}")
    assert not differing, "\n".join(differing)
