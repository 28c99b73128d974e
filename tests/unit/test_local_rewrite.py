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
    assert REWRITER.value("NAME", text) == expected
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
    assert REWRITER.value("NAME", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("job-node-0-0.sub:29500", "127.64.0.1:41000"),
        ("tcp://job-node-0-1:29500/x,localhost:29500", "tcp://127.64.0.2:41000/x,localhost:41000"),
        ("http://127.0.0.1:29500", "http://127.0.0.1:41000"),
        ("0.0.0.0:29500", "0.0.0.0:41000"),
        ('{"cluster": {"worker": ["job-node-0-0.sub:29500"]}}', '{"cluster": {"worker": ["127.64.0.1:41000"]}}'),
        ("localhost:295001", "localhost:295001"),
        ("localhost:29500.5", "localhost:29500.5"),
        ("my-localhost:29500", "my-localhost:29500"),
        ("tcp://h:29500/x,i:29500", "tcp://h:29500/x,i:29500"),
        ("registry:29500/x", "registry:29500/x"),
        ("0:0.1,epoch:29500", "0:0.1,epoch:29500"),
        ("1127.0.0.1:29500", "1127.0.0.1:29500"),
        ("29500", "29500"),
        ("80", "80"),
    ],
)
def test_ports_behind_hosts(text: str, expected: str) -> None:
    assert REWRITER.value("NAME", text) == expected
    assert REWRITER.argv([f"--option={text}", "--option", text]) == [f"--option={expected}", "--option", expected]


@pytest.mark.parametrize("name", ["PET_MASTER_PORT", "DMLC_TRACKER_PORT", "PORT", "port", "MY_PORT_NUMBER", "my-port"])
def test_variables_that_are_called_ports(name: str) -> None:
    assert REWRITER.value(name, "29500") == "41000"
    assert REWRITER.value(name, "29501") == "29501"
    assert REWRITER.value(name, "80") == "80"


@pytest.mark.parametrize("name", ["MAX_STEPS", "EXPORT", "PORTFOLIO", "REPORT_EVERY", "IMPORTANCE"])
def test_a_number_that_equals_a_port_stays(name: str) -> None:
    assert REWRITER.value(name, "29500") == "29500"
    option = f"--{name.lower()}"
    assert REWRITER.argv([f"{option}=29500", option, "29500"]) == [f"{option}=29500", option, "29500"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--master_port=29500"], ["--master_port=41000"]),
        (["--master-port", "29500"], ["--master-port", "41000"]),
        (["--port", "29500"], ["--port", "41000"]),
        (["--port", "--steps", "29500"], ["--port", "--steps", "29500"]),
        (["--port-range", "29500"], ["--port-range", "29500"]),
        (["port", "29500"], ["port", "29500"]),
        (["port=29500"], ["port=29500"]),
        (["29500"], ["29500"]),
        (["--rdzv-endpoint=job-node-0-0.sub:29500"], ["--rdzv-endpoint=127.64.0.1:41000"]),
    ],
)
def test_ports_in_argv(words: list[str], expected: list[str]) -> None:
    assert REWRITER.argv(words) == expected


def test_a_folder_that_looks_like_a_host_name_is_left_alone() -> None:
    own = Rewriter({"/scratch": "/root/jobs/job-node-0-0/scratch"}, HOSTS)
    assert own.value("NAME", "/scratch") == "/root/jobs/job-node-0-0/scratch"


def test_documents() -> None:
    given = {"/workspace": ["/workspace/a", 1, None, {"deep": "file:///data"}], "text": "no path"}
    expected = {"/workspace": ["/r/w/a", 1, None, {"deep": "file:///r/data"}], "text": "no path"}
    assert REWRITER.document(given) == expected


def test_nothing_to_rewrite() -> None:
    assert Rewriter({}, {}).argv(["a", "/b", "c:1"]) == ["a", "/b", "c:1"]
