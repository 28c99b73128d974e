"""The Pod that reads a claim, and the stream of a command in it, without a cluster."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import urllib3
from pulumi_trainer.provider.kubernetes.client import exec_stream
from pulumi_trainer.provider.kubernetes.client.api_resources import POD
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client, Unreachable
from pulumi_trainer.provider.kubernetes.client.exec_stream import CommandFailed
from pulumi_trainer.provider.kubernetes.client.transport import Access
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.targets.kubernetes import copy_pod
from pulumi_trainer.provider.targets.kubernetes.jobs.record import Record

NODE: dict[str, Any] = {
    "securityContext": {"runAsUser": 1000, "fsGroup": 2000, "sysctls": [{"name": "x"}]},
    "tolerations": [{"key": "gpu"}],
    "serviceAccountName": "trainer",
    "nodeSelector": {"gpu": "yes"},
    "containers": [
        {"name": "sidecar", "image": "side"},
        {"name": "node", "image": "torch:2", "env": [{"name": "SECRET"}]},
    ],
}
RUNNING = {"status": {"phase": "Running"}}


RECORD = Record.of({"metadata": {"namespace": "team", "name": "digits", "uid": "u-1"}, "data": {}})
JOBSET = {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": NODE}}}}]}}


class Cluster:
    """A client whose Pod has this state."""

    def __init__(
        self, state: Any = RUNNING, *, refusal: ApiError | None = None, jobset: Any = JOBSET, users: Sequence[Any] = ()
    ) -> None:
        self.state, self.refusal, self.jobset, self.users = state, refusal, jobset, users
        self.pods = dict[str, Any]()
        self.deleted = list[str]()
        self.argv: Sequence[str] = ()
        self.fault: TargetFault | None = None

    def within(self, _: float) -> Cluster:
        return self

    def create(self, kind: Any, document: Any) -> Any:
        if self.refusal:
            raise self.refusal
        self.pods[document["metadata"]["name"]] = document

    def get(self, kind: Any, namespace: str, name: str) -> Any:
        if kind is not POD:
            return self.jobset
        return self.state if name in self.pods else None

    def list(self, kind: Any, *_: Any, keep: Any = None, **__: Any) -> Any:
        if kind is POD:
            return [found for found in map(keep, self.users) if found], ""
        if self.fault:
            raise self.fault
        return [{"message": "Multi-Attach error for volume"}], ""

    def delete(self, kind: Any, namespace: str, name: str, **_: Any) -> bool:
        self.deleted.append(name)
        return True

    def execute(self, namespace: str, pod: str, container: str, argv: Sequence[str], *, idle: float) -> Iterator[bytes]:
        self.argv = argv
        yield b"archive"


def read(cluster: Any, uri: str = "pvc://digits-output", image: str = "") -> bytes:
    with copy_pod.archive(cluster, RECORD, uri, image) as pieces:
        return b"".join(pieces)


def test_the_pod_has_no_more_rights_than_it_needs() -> None:
    cluster = Cluster()
    assert read(cluster, "pvc://digits-output/run 1") == b"archive"
    ((name, pod),) = cluster.pods.items()
    assert cluster.deleted == [name] and cluster.argv[:2] == ["python3", "-c"]
    assert cluster.argv[3] == "/workspace/output/run 1"
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["blockOwnerDeletion"]) == ("ConfigMap", "u-1", False)
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert container["image"] == "torch:2" and "env" not in container
    assert container["volumeMounts"][0]["readOnly"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["automountServiceAccountToken"] is False and "serviceAccountName" not in spec
    assert spec["activeDeadlineSeconds"] and spec["restartPolicy"] == "Never"
    assert spec["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"}, "runAsUser": 1000, "fsGroup": 2000,
    }  # fmt: skip
    assert spec["tolerations"] == NODE["tolerations"] and "nodeSelector" not in spec and "affinity" not in spec


def test_it_goes_to_the_node_that_uses_the_claim() -> None:
    volumes = [{"name": "output", "persistentVolumeClaim": {"claimName": "digits-output"}}]
    there = {"metadata": {"name": "p"}, "spec": {"nodeName": "gpu-1", "volumes": volumes}, **RUNNING}
    ended = {**there, "spec": {**there["spec"], "nodeName": "gpu-0"}, "status": {"phase": "Succeeded"}}  # type: ignore[dict-item]
    cluster = Cluster(users=[RUNNING, ended, there])
    read(cluster, image="python:3.12")
    (pod,) = cluster.pods.values()
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["gpu-1"]
    assert pod["spec"]["containers"][0]["image"] == "python:3.12"


def test_of_a_job_that_is_gone_the_record_has_the_image() -> None:
    with pytest.raises(TargetFault, match="--image names one"):
        read(Cluster(jobset=None))
    kept = replace(RECORD, inputs={"image": "torch:1"})
    cluster = Cluster(jobset=None)
    with copy_pod.archive(cluster, kept, "pvc://digits-output", "") as pieces:  # type: ignore[arg-type]
        assert b"".join(pieces) == b"archive"
    (pod,) = cluster.pods.values()
    assert pod["spec"]["containers"][0]["image"] == "torch:1"


def test_nothing_stays_after_ctrl_c() -> None:
    cluster = Cluster()
    with pytest.raises(KeyboardInterrupt), copy_pod.archive(cluster, RECORD, "pvc://digits-output", ""):  # type: ignore[arg-type]
        raise KeyboardInterrupt
    assert cluster.deleted == list(cluster.pods)


def container(state: str, reason: str, words: str = "") -> Any:
    status = {"state": {state: {"reason": reason, "message": words}}}
    phase = "Failed" if state == "terminated" else "Pending"
    return {"status": {"phase": phase, "containerStatuses": [status]}}


def unscheduled() -> Any:
    condition = {"type": "PodScheduled", "status": "False", "message": "node(s) unavailable due to PVC(s) already used"}
    return {"status": {"phase": "Pending", "conditions": [condition]}}


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (container("terminated", "StartError", 'exec: "python3": not found'), "--image names one with python3"),
        (container("waiting", "ImagePullBackOff", "no such image"), "ImagePullBackOff: no such image"),
        (container("waiting", "ContainerCreating"), "copy the output when that pod has ended"),
        (unscheduled(), "already used.*copy the output when that pod has ended"),
        (None, "somebody has deleted it"),
    ],
)
def test_why_it_does_not_start(state: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_pod, "START_SECONDS", 0.0)
    cluster = Cluster(state)
    with pytest.raises(TargetFault, match=words):
        read(cluster)
    assert cluster.deleted == list(cluster.pods)


def test_why_it_does_not_start_without_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_pod, "START_SECONDS", 0.0)
    cluster = Cluster(container("waiting", "ContainerCreating"))
    cluster.fault = TargetFault(Problem("kubeconfig user ann: aws", "ended with exit code 1"))
    with pytest.raises(TargetFault, match="ContainerCreating"):
        read(cluster)


def test_a_missing_right_is_named_with_the_role_that_grants_it() -> None:
    refusal = ApiError(Problem("Pod", 'pods is forbidden: User "jane" cannot create resource "pods"'), 403, {})
    with pytest.raises(TargetFault, match=r"create and get pods/exec: pulumi-trainer rbac -n team --outputs"):
        read(Cluster(refusal=refusal))
    quota = ApiError(Problem("Pod", "exceeded quota: pods"), 403, {})
    with pytest.raises(TargetFault, match="exceeded quota") as refused:
        read(Cluster(refusal=quota))
    assert "rbac" not in str(refused.value)


@pytest.mark.parametrize("uri", ["pvc://", "pvc://digits-output/../../etc"])
def test_a_path_of_a_changed_record_is_refused(uri: str) -> None:
    with pytest.raises(TargetFault, match="not a valid path of an output"):
        read(Cluster(), uri)


def frame(channel: int, data: bytes) -> bytes:
    content = bytes([channel]) + data
    size = bytes([len(content)]) if len(content) < 126 else b"\x7e" + struct.pack(">H", len(content))
    return b"\x82" + size + content


@contextmanager
def server(answer: bytes, refusal: bytes = b"") -> Iterator[tuple[Client, list[str]]]:
    """A server that answers one WebSocket with these bytes; its requests."""
    requests: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += connection.recv(65536)
                requests.append(head.decode())
                if refusal:
                    connection.sendall(refusal)
                    return
                key = next(line for line in head.split(b"\r\n") if line.startswith(b"Sec-WebSocket-Key")).split(b": ")[
                    1
                ]
                accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
                connection.sendall(
                    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    b"Sec-WebSocket-Protocol: v4.channel.k8s.io\r\nSec-WebSocket-Accept: "
                    + accept
                    + b"\r\n\r\n"
                    + answer
                )

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        host = f"http://127.0.0.1:{listening.getsockname()[1]}"
        access = Access(host, urllib3.PoolManager(), lambda: [("Authorization", "Bearer token-of-mine")])
        yield Client(lambda _: access), requests
        thread.join(10)


def printed(answer: bytes, refusal: bytes = b"") -> tuple[bytes, str]:
    with server(answer, refusal) as (client, requests):
        out = b"".join(client.execute("team", "pod", "copy", ["python3", "-c", "print('a b&c')"], idle=10))
    return out, requests[0]


SUCCESS = frame(3, json.dumps({"status": "Success"}).encode())


def test_the_output_of_a_command_arrives_as_it_is() -> None:
    data = bytes(range(256)) * 100
    out, request = printed(frame(1, data) + frame(1, b"") + frame(2, b"a warning") + frame(1, b"\xff\n") + SUCCESS)
    assert out == data + b"\xff\n"
    assert "/pods/pod/exec?container=copy&stdout=true&stderr=true&command=python3&command=-c" in request
    assert "command=print%28%27a+b%26c%27%29" in request and "Authorization: Bearer token-of-mine" in request


def failure(code: str) -> bytes:
    causes = [{"reason": "ExitCode", "message": code}]
    status = {"status": "Failure", "message": "terminated with exit code", "details": {"causes": causes}}
    return frame(3, json.dumps(status).encode())


def test_a_command_that_fails_is_quoted() -> None:
    with pytest.raises(CommandFailed, match="cannot be read") as failed:
        printed(frame(1, b"half") + frame(2, b"model.pt cannot be read") + failure("3"))
    assert failed.value.code == 3


@pytest.mark.parametrize("rest", [b"", b"\x88\x00"])
def test_a_connection_that_ends_before_the_command_is_not_a_success(rest: bytes) -> None:
    with pytest.raises(Unreachable, match=r"ended before the command|broke"):
        printed(frame(1, b"half") + rest)


def test_a_refusal_has_the_words_of_the_server_and_no_token() -> None:
    words = {
        "kind": "Status",
        "message": "cannot create pods/exec with token-of-mine",
        "reason": "Forbidden",
        "code": 403,
    }
    body = json.dumps(words).encode()
    head = f"HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with pytest.raises(ApiError, match="cannot create pods/exec") as refused:
        printed(b"", head + body)
    assert refused.value.code == 403 and "token-of-mine" not in str(refused.value)


def test_a_proxy_without_http_is_refused() -> None:
    class Socks(urllib3.PoolManager):
        """As urllib3's for SOCKS: another class, with no `proxy`."""

    access = Access("http://127.0.0.1:1", Socks(), list)
    with pytest.raises(TargetFault, match="SOCKS"):
        list(exec_stream.run(access, "/x", "copy", ["true"], "command", 1))


@pytest.mark.parametrize(("images", "chosen"), [
    ("torch:2", "torch:2"), ("dataset-initializer: init:1, node: torch:2", "torch:2"),
    ("host:5000/a/b@sha256:0a", "host:5000/a/b@sha256:0a"),
    ("torch:2 sha256:0123456789ab", "torch:2"),
    ("launcher: mpi:1 sha256:0123456789ab, node: torch:2 sha256:0123456789ab", "torch:2"),
])  # fmt: skip
def test_the_image_of_a_job_that_is_gone_is_that_of_its_record(images: str, chosen: str) -> None:
    cluster = Cluster(jobset=None)
    with copy_pod.archive(cluster, replace(RECORD, inputs={"image": images}), "pvc://c", ""):  # type: ignore[arg-type]
        (pod,) = cluster.pods.values()
    assert pod["spec"]["containers"][0]["image"] == chosen


@pytest.mark.parametrize("images", ["launcher: mpi:1, worker: mpi:2", "node: torc... 0a1b2c3d4e5f"])
def test_a_record_without_the_image_of_the_node_needs_one(images: str) -> None:
    record = replace(RECORD, inputs={"image": images})
    with pytest.raises(TargetFault, match="its record has no image"):
        copy_pod.archive(Cluster(jobset=None), record, "pvc://c", "").__enter__()  # type: ignore[arg-type]


def test_the_pod_is_like_that_of_rank_0() -> None:
    def step(name: str, image: str, labels: dict[str, str]) -> dict[str, Any]:
        pod = {"containers": [{"name": "c", "image": image}]}
        return {"name": name, "template": {"metadata": {"labels": labels}, "spec": {"template": {"spec": pod}}}}

    trainer = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    steps = [step("fetch", "init:1", {}), step("workers", "torch:3", trainer)]
    cluster = Cluster(jobset={"spec": {"replicatedJobs": steps}})
    with copy_pod.archive(cluster, RECORD, "pvc://c", ""):  # type: ignore[arg-type]
        (pod,) = cluster.pods.values()
    assert pod["spec"]["containers"][0]["image"] == "torch:3"
