"""The last lines of a container's log, which end in messages, the record and the state, show no value of its pod's Secrets."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from kubernetes_support import answer, refusal, server
from pulumi_trainer.provider.kubernetes.client.client import Unreachable
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.lifecycle.diagnosis.outcome import FailedContainer
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.targets.kubernetes.observe.job_snapshot import LAST_BYTES, last_lines

TOKEN = "0123456789abcdef" * 60
PEM = "-----BEGIN X KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END X KEY-----\n"
SPEC = {
    "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "a"}}]}],
    "containers": [
        {"name": "c", "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "b", "key": "k"}}}, {"name": "Y"}]}
    ],
    "volumes": [
        {"name": "v", "secret": {"secretName": "c"}},
        {"name": "w", "projected": {"sources": [{"secret": {"name": "d"}}, {"configMap": {"name": "x"}}]}},
    ],
}
VALUES = {"a": TOKEN, "b": PEM, "c": "it's\"mine", "d": json.dumps({"key": "nested-key-1", "n": 3})}


ARGUMENTS = {"model": "org/model", "login": {"token": "hf_0123456789", "id": "user-1"}, "n": [1, "two-2"]}


FAILED = FailedContainer("p", "c", node="0", restarts=0, previous=False)


def listed(kind: str, *items: dict[str, Any]) -> Any:
    return answer(body={"kind": f"{kind}List", "metadata": {"resourceVersion": "1"}, "items": list(items)})


def secret(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"k": base64.b64encode(VALUES[name].encode()).decode()}}


def shown(log: str, *further: Any) -> list[str]:
    """further: the answers to requests of Secrets; without them those that the pod names."""
    steps = further or [answer(body=secret(name)) for name in VALUES]
    with server() as cluster:
        cluster.does(answer(body=log.encode()), listed("Pod", {"metadata": {"name": "p"}, "spec": SPEC}), *steps)
        title, *lines = last_lines(cluster.client(), "ns", FAILED)
    assert all(path.startswith("/api/v1/namespaces/ns/") for _, path in cluster.seen)
    assert title.startswith("last ")
    return [line.removeprefix("  ") for line in lines]


def test_every_secret_that_a_pod_names_in_any_spelling() -> None:
    log = "\n".join([f"401 for Bearer {TOKEN}", PEM, repr(PEM), repr(VALUES["c"]), "key is nested-key-1", "the end"])
    lines = shown(log)
    assert lines[0] == "401 for Bearer [secret]" and lines[-2:] == ["key is [secret]", "the end"]
    for part in (TOKEN[:16], "MIIE", "KEY", "mine"):
        assert part not in "\n".join(lines)


@pytest.mark.parametrize("end", ["\n", "\r"])
def test_a_secret_in_which_the_answer_ends(end: str) -> None:
    log = f"one{end}" + "x" * (LAST_BYTES - 20 - len(TOKEN) // 2) + end + TOKEN
    assert shown(log[:LAST_BYTES]) == ["[...]" + "x" * 160]


@pytest.mark.parametrize("previous", [True, False])
def test_the_log_of_the_run_that_failed(previous: bool) -> None:
    with server() as cluster:
        pods = listed("Pod", {"metadata": {"name": "p"}, "spec": {}})
        cluster.does(answer(body=b"all is lost"), pods)
        assert last_lines(cluster.client(), "ns", replace(FAILED, previous=previous)) == ["last line:", "  all is lost"]
    assert ("previous=true" in cluster.seen[0][1]) == previous


def test_a_progress_bar_hides_no_line() -> None:
    """A container runtime stores its states in pieces of 16 KiB, each of which the API server takes for a line."""
    bar = "".join(f"\r  {percent}%|{'#' * 300}" for percent in range(100))
    assert shown(f"epoch 1\r\n{bar}error 1\n") == ["epoch 1", f"[...]{'#' * 153}error 1"]


def test_a_traceback_names_the_files_of_a_project_as_the_project_does() -> None:
    log = '  File "/opt/pulumi-trainer/source/project/src/model.py", line 7, in loss\n  File "/usr/lib/x.py", line 1, in y'
    assert shown(log) == ['  File "src/model.py", line 7, in loss', '  File "/usr/lib/x.py", line 1, in y']


def test_secrets_that_may_not_be_read() -> None:
    """Who may read the log alone is shown what it says."""
    assert shown("all is lost", refusal(403, "Forbidden")) == ["all is lost"]
    assert shown("all is lost", refusal(404, "NotFound")) == ["all is lost"]
    odd = {"metadata": {"name": "a"}, "data": {"k": "%", "n": 3}}
    others = [answer(body=secret(name)) for name in "bcd"]
    assert shown("all is lost", answer(body=odd), *others) == ["all is lost"]


ALL = "[secret] [secret] [secret] [secret]"


def test_nothing_of_a_pod_whose_secrets_are_not_known_any_more() -> None:
    """It was deleted since its log was read, for example at the backoff limit of its Job."""
    with server() as cluster:
        cluster.does(answer(body=f"401 for Bearer {TOKEN}".encode()), listed("Pod"))
        assert not last_lines(cluster.client(), "ns", FAILED)


def launch_file(text: str) -> Any:
    return answer(body={"metadata": {"name": "job-code"}, "data": {code.LAUNCH_FILE: text}})


@pytest.mark.parametrize(
    ("launch", "expected"),
    [
        (launch_file('{"secrets": [["login", "token"], ["n", 1]]}'), "org/model user-1 [secret] [secret]"),
        (launch_file('{"secrets": [["login"], ["n"]]}'), "org/model [secret] [secret] [secret]"),
        (launch_file('{"secrets": [["log in"]]}'), ALL),
        (launch_file('{"install": []}'), ALL),
        (refusal(403, "Forbidden"), ALL),
    ],
)
def test_of_arguments_those_that_are_secret(launch: Any, expected: str) -> None:
    """All of them, if it cannot be known which."""
    sources = [{"configMap": {"name": "job-code"}}, {"secret": {"name": "job-secret"}}]
    spec = {"volumes": [{"name": code.CODE_VOLUME, "projected": {"sources": sources}}]}
    encoded = base64.b64encode(json.dumps(ARGUMENTS).encode()).decode()
    with server() as cluster:
        pods = listed("Pod", {"metadata": {"name": "p"}, "spec": spec})
        log = answer(body=b"org/model user-1 hf_0123456789 two-2")
        secret = answer(body={"metadata": {"name": "job-secret"}, "data": {code.ARGS_FILE: encoded}})
        cluster.does(log, pods, secret, launch)
        assert last_lines(cluster.client(), "ns", FAILED) == ["last line:", f"  {expected}"]


@pytest.mark.parametrize("asked", ["log_tail", "list", "get"])
@pytest.mark.parametrize(
    "fault", [TargetFault(Problem("aws", "ended with exit code 1")), Unreachable("server", "away")]
)
def test_no_lines_if_the_server_cannot_be_asked_which_are_secret(
    asked: str, fault: TargetFault, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise fault

    with server() as cluster:
        cluster.does(answer(body=b"secret?"), listed("Pod", {"metadata": {"name": "p"}, "spec": SPEC}))
        client = cluster.client()
        monkeypatch.setattr(client, asked, fail)
        assert not last_lines(client, "ns", FAILED)
