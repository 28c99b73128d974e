"""`pulumi-trainer trust`: which kubeconfigs commands use, in the folder of a project that somebody else has written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi_trainer import client
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.cli.trust import trust
from pulumi_trainer.provider.kubernetes.errors import TargetFault
from pulumi_trainer.provider.lifecycle.state_format import FORMAT
from pulumi_trainer.provider.service import stack
from pulumi_trainer.provider.service.trust import kubeconfig_check

PLUGIN = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin.sh", "args": ["--login"]}}


def write_kubeconfig(path: Path, user: dict[str, Any]) -> None:
    named = {
        "contexts": ("context", {"cluster": "c", "user": "u"}),
        "clusters": ("cluster", {"server": "https://127.0.0.1:1"}),
    }
    names = {"contexts": "x", "clusters": "c", "users": "u"}
    lists = {**named, "users": ("user", user)}
    content = {kind: [{"name": names[kind], key: value}] for kind, (key, value) in lists.items()}
    path.write_text(yaml.safe_dump({"current-context": "x", **content}))


@pytest.fixture
def project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project whose stack names a kubeconfig in its folder, with a plugin that leaves a file."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "Pulumi.yaml").write_text("name: lab\nruntime: python\n")
    (folder / "plugin.sh").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (folder / "plugin.sh").chmod(0o755)
    write_kubeconfig(folder / "kc.yaml", PLUGIN)
    target = {"kind": "kubernetes", "kubeconfig": "kc.yaml", "mode": "jobset", "namespace": "team"}
    inputs = {
        "format": FORMAT,
        "name": "job",
        "namespace": "team",
        "objects": {},
        "target": target,
        "digest": "d",
        "run": "1",
    }
    urn = f"urn:pulumi:dev::lab::{stack._TYPE}::job"
    state = {"deployment": {"resources": [{"type": stack._TYPE, "urn": urn, "inputs": inputs}]}}
    config = {"trainer:kubeconfig": {"value": "kc.yaml"}}

    def pulumi(argv: list[str], *_: object) -> str:
        return json.dumps(config if argv[0] == "config" else state)

    monkeypatch.setattr(stack, "_pulumi", pulumi)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return folder


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[Any, str]:
    """Return the exit code of a command, and what it prints."""
    monkeypatch.setattr(sys, "argv", ["pulumi-trainer", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    shown = capsys.readouterr()
    return ended.value.code or 0, shown.out + shown.err


@pytest.mark.parametrize("command", ["queues", "status", "why", "doctor", "exporter --port 0"])
def test_a_plugin_runs_only_after_it_was_trusted(
    project: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, shown = run(capsys, monkeypatch, *command.split())
    assert code == 1 and not (tmp_path / "ran").exists()
    assert shown == (
        f"error: kubeconfig kc.yaml: is in the folder of the project, and would run `{project}/plugin.sh --login`."
        " Hint: if you trust whoever has written it: `pulumi-trainer trust kc.yaml`\n"
    )
    code, shown = run(capsys, monkeypatch, "trust", "kc.yaml")
    assert (code, shown) == (0, f"kc.yaml may be used until it changes. It may:\n  run `{project}/plugin.sh --login`\n")
    code, shown = run(capsys, monkeypatch, *command.split())
    assert "its output is not an ExecCredential" in shown and (tmp_path / "ran").exists()
    (tmp_path / "ran").unlink()
    write_kubeconfig(project / "kc.yaml", {"exec": {**PLUGIN["exec"], "args": ["--other"]}})
    assert "plugin.sh --other`" in run(capsys, monkeypatch, *command.split())[1], "it has changed"
    assert not (tmp_path / "ran").exists()


def test_programs_are_refused_in_the_same_way(project: Path) -> None:
    with pytest.raises(TargetFault, match="pulumi-trainer trust"):
        client.connect(stack="dev").status("job")


def test_a_kubeconfig_that_the_user_names_needs_no_trust(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with kubectl."""
    for words in (("status", "--kubeconfig", "kc.yaml"), ("doctor", "--kubeconfig", "kc.yaml")):
        assert "its output is not an ExecCredential" in run(capsys, monkeypatch, *words)[1]
        (tmp_path / "ran").unlink()


@pytest.mark.parametrize(
    ("user", "why"),
    [
        (PLUGIN, "run `{}/plugin.sh --login`"),
        ({"exec": {"command": "aws", "args": "x"}}, "run `aws x`"),
        ({"auth-provider": {"name": "gcp", "config": {"cmd-path": "sh", "cmd-args": "-c x"}}}, "run `sh -c x`"),
        ({"tokenFile": "/etc/hostname"}, "send the content of /etc/hostname to a server"),
        ({"tokenFile": "../home/token"}, "send the content of {}/../home/token to a server"),
        ({"tokenFile": "token"}, ""),
        ({"token": "t"}, ""),
        ({"client-certificate-data": "YQ==", "client-key": "key.pem"}, ""),
        ({}, ""),
    ],
)
def test_what_needs_trust(project: Path, user: dict[str, Any], why: str) -> None:
    write_kubeconfig(project / "kc.yaml", user)
    if not why:
        kubeconfig_check(".")("kc.yaml")
        return
    with pytest.raises(TargetFault) as refused:
        kubeconfig_check(".")("kc.yaml")
    assert f"and would {why.format(project)}. Hint" in str(refused.value)
    trust(Path("kc.yaml"))
    kubeconfig_check(".")(str(project / "kc.yaml"))


def test_where_a_kubeconfig_needs_trust(project: Path, tmp_path: Path, home: Path) -> None:
    below, link, beside = project / "a" / "kc.yaml", tmp_path / "link.yaml", tmp_path / "other" / "kc.yaml"
    for path in (below, beside, home / ".kube" / "config"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_kubeconfig(path, PLUGIN)
    link.symlink_to(below)
    (project / "out.yaml").symlink_to(beside)
    for path in (below, link, project / "out.yaml"):
        with pytest.raises(TargetFault, match="is in the folder of the project"):
            kubeconfig_check(".")(str(path))
    for path in (beside, "~/.kube/config", "no-such-file", "~nobody-here/x", "a\0b", "a: b\n" * 5000):
        kubeconfig_check(".")(str(path))
    with pytest.raises(TargetFault, match="is in the folder of the project"):
        kubeconfig_check(str(below.parent))(str(project / "kc.yaml"))
    with pytest.raises(TargetFault, match="is in the folder of the project"):
        kubeconfig_check(".")("../other/kc.yaml")  # an archive may have made both folders
    (tmp_path / ".git").mkdir()
    with pytest.raises(TargetFault, match="is in the folder of the project"):
        kubeconfig_check(".")(str(beside))


@pytest.mark.parametrize("record", ["", "[1]", "{", '{"x": 1}'])
def test_a_record_that_cannot_be_read_trusts_nothing(project: Path, home: Path, record: str) -> None:
    trust(Path("kc.yaml"))
    kubeconfig_check(".")("kc.yaml")
    (home / ".config" / "pulumi-trainer" / "trusted.json").write_text(record)
    with pytest.raises(TargetFault, match="is in the folder of the project"):
        kubeconfig_check(".")("kc.yaml")


def test_several_kubeconfigs_are_trusted_at_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_kubeconfig(project / "other.yaml", {"exec": {"command": "a\n\x1b[2J"}})
    for name in ("kc.yaml", "other.yaml", "kc.yaml"):
        trust(Path(name))
    for name in ("kc.yaml", "other.yaml"):
        kubeconfig_check(".")(name)
    assert "\x1b" not in capsys.readouterr().out
    record = Path("~/.config/pulumi-trainer/trusted.json").expanduser()
    assert [*json.loads(record.read_text())] == [str(project / "kc.yaml"), str(project / "other.yaml")]
    assert record.stat().st_mode & 0o777 == 0o600
