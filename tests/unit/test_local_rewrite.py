"""What literal strings of a container become on this machine."""

from __future__ import annotations

import pytest
from pulumi_trainer.provider.targets.local.rewrite import Rewriter, domains

MOUNTS = {"/workspace": "/r/w", "/workspace/output": "/r/out", "/etc/code": "/r/code/f.py", "/data/": "/r/data"}
HOSTS = {"job-node-0-0": "127.64.0.1", "job-node-0-1": "127.64.0.2", "job-node-0-10": "127.64.0.11"}
REWRITER = Rewriter(MOUNTS, HOSTS, domains("sub", "ns"), {29500: 41000, 80: 80})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/workspace/output", "/r/out"),
        ("/workspace/output/", "/r/out/"),
        ("/workspace/output/x/y", "/r/out/x/y"),
        ("--dir=/workspace/output", "--dir=/r/out"),
        ("file:///workspace/output/a", "file:///r/out/a"),
        ("/workspace/outputs", "/r/w/outputs"),
        ("/workspaces", "/workspaces"),
        ("/workspace.bak", "/workspace.bak"),
        ("/a/workspace", "/a/workspace"),
        ("s3://bucket/workspace/output", "s3://bucket/workspace/output"),
        ("https://h/data", "https://h/data"),
        ("/data", "/r/data"),
        ("/data:/workspace:/usr", "/r/data:/r/w:/usr"),
        ('cd "/workspace" && ls /data', 'cd "/r/w" && ls /r/data'),
        ("python3 /etc/code", "python3 /r/code/f.py"),
        ("relative/data", "relative/data"),
        ("", ""),
    ],
)
def test_paths(text: str, expected: str) -> None:
    assert REWRITER.path(text) == expected
    assert REWRITER.value(text) == expected
    assert REWRITER.argv([text]) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("job-node-0-0", "127.64.0.1"),
        ("job-node-0-0.sub", "127.64.0.1"),
        ("job-node-0-1.sub.ns.svc.cluster.local", "127.64.0.2"),
        ("job-node-0-1.sub.ns.svc.cluster.local.", "127.64.0.2"),
        ("tcp://job-node-0-1.sub.ns:1234", "tcp://127.64.0.2:1234"),
        ("job-node-0-0.sub,job-node-0-10.sub", "127.64.0.1,127.64.0.11"),
        ("job-node-0-0.other", "job-node-0-0.other"),
        ("job-node-0-2", "job-node-0-2"),
        ("my-job-node-0-0", "my-job-node-0-0"),
        ("job-node-0-0-x", "job-node-0-0-x"),
        ("/logs/job-node-0-0/x", "/logs/job-node-0-0/x"),
    ],
)
def test_hosts(text: str, expected: str) -> None:
    assert REWRITER.value(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("29500", "41000"),
        ("job-node-0-0.sub:29500", "127.64.0.1:41000"),
        ("tcp://h:29500/x,i:29500", "tcp://h:41000/x,i:41000"),
        ("295001", "295001"),
        ("h:29500.5", "h:29500.5"),
        ("steps=29500", "steps=29500"),
        ("80", "80"),
    ],
)
def test_ports_in_variables(text: str, expected: str) -> None:
    assert REWRITER.value(text) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--master_port=29500"], ["--master_port=41000"]),
        (["--master-port", "29500"], ["--master-port", "41000"]),
        (["--steps", "29500"], ["--steps", "29500"]),
        (["29500"], ["29500"]),
        (["--rdzv-endpoint=job-node-0-0.sub:29500"], ["--rdzv-endpoint=127.64.0.1:41000"]),
    ],
)
def test_ports_in_argv(words: list[str], expected: list[str]) -> None:
    assert REWRITER.argv(words) == expected


def test_a_folder_that_looks_like_a_host_name_is_left_alone() -> None:
    own = Rewriter({"/scratch": "/root/jobs/job-node-0-0/scratch"}, HOSTS)
    assert own.value("/scratch") == "/root/jobs/job-node-0-0/scratch"


def test_documents() -> None:
    given = {"/workspace": ["/workspace/a", 1, None, {"deep": "file:///data"}], "text": "no path"}
    expected = {"/workspace": ["/r/w/a", 1, None, {"deep": "file:///r/data"}], "text": "no path"}
    assert REWRITER.document(given) == expected


def test_nothing_to_rewrite() -> None:
    assert Rewriter({}, {}).argv(["a", "/b", "c:1"]) == ["a", "/b", "c:1"]
