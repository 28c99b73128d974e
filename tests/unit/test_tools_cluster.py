"""The parts of the test cluster that need none: what is built and where, ports, processes, keys, documents of upstream."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import ssl
import subprocess
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from tools import go_modules
from tools.alone import alone
from tools.cluster import build, control_plane, manifests, pki, ports, processes, simulation, tokens
from tools.cluster.existing import Existing

GO = """#!/bin/sh
[ "$1" = mod ] && { echo "{\\"Dir\\": \\"$SOURCE\\"}"; exit 0; }
echo "$@" >> "$RECORD"
out=; while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; [ "$1" = -overlay ] && cp "$2" "$RECORD.overlay"; shift; done
echo program > "$out/program"
"""


class TestBuild:
    @pytest.fixture
    def go(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A `go` that writes down how it was called, and a module."""
        for name in ("bin", "source/config", "module/thing"):
            (tmp_path / name).mkdir(parents=True)
        (tmp_path / "bin" / "go").write_text(GO)
        (tmp_path / "bin" / "go").chmod(0o755)
        (tmp_path / "source" / "config" / "crd.yaml").write_text("kind: CustomResourceDefinition")
        (tmp_path / "source" / "main.go").write_text('path := "/etc/fixed"')
        for name in ("go.mod", "go.sum"):
            (tmp_path / "module" / "thing" / name).write_text(name)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("RECORD", str(tmp_path / "record"))
        monkeypatch.setenv("SOURCE", str(tmp_path / "source"))
        monkeypatch.setattr(build, "MODULES", tmp_path / "module")
        monkeypatch.setattr(build, "CACHE", tmp_path / "cache")
        component = build.Component(
            "thing", ("example.org/thing/cmd/a",), 2, "1.36.3", {"example.org/thing": ("config",)}
        )
        monkeypatch.setattr(build, "COMPONENTS", {"thing": component})
        monkeypatch.setattr(build, "CONTROL_PLANE", ("thing",))
        monkeypatch.setattr(build, "NODES", ())
        return tmp_path

    def test_it_is_built_once_with_what_is_kept_of_its_module(self, go: Path) -> None:
        said: list[str] = []
        folder = build.built(["thing"], said.append)["thing"]
        assert (folder / "bin" / "program").read_text() == "program\n"
        assert (folder / "module" / "config" / "crd.yaml").exists()
        assert said[0] == "1 of 1 components are missing: at most 2 minutes on 2 cores, once"
        assert said[1] == "building a: about 2 minutes"
        argv = (go / "record").read_text()
        assert "-mod=readonly" in argv and "-trimpath" in argv
        assert "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3" in argv
        assert not (go / "cache" / "go").exists() and not list((go / "cache").glob("building-*"))
        (go / "record").unlink()
        assert build.built(["thing"], pytest.fail)["thing"] == folder
        assert not (go / "record").exists()

    @pytest.mark.parametrize("file", ["go.mod", "go.sum", "main.go"])
    def test_what_is_built_from_something_else_is_another(self, go: Path, file: str) -> None:
        before = build.folder("thing")
        (build.MODULES / "thing" / file).write_text("other")
        assert build.folder("thing") != before

    def test_a_recipe_that_changes_is_another(self, go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before, component = build.folder("thing"), build.COMPONENTS["thing"]
        monkeypatch.setattr(build, "COMPONENTS", {"thing": replace(component, minutes=9)})
        assert build.folder("thing") == before
        monkeypatch.setattr(build, "COMPONENTS", {"thing": replace(component, version="")})
        assert build.folder("thing") != before

    def test_one_text_of_a_main_package_is_replaced(self, go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        main = ("example.org/thing", "main.go", '"/etc/fixed"', 'os.Getenv("ELSEWHERE")')
        component = build.Component("thing", (".",), 1, main=main)
        monkeypatch.setattr(build, "COMPONENTS", {"thing": component})
        build.built(["thing"], lambda text: None)
        replaced = json.loads((go / "record.overlay").read_text())["Replace"]
        assert list(replaced) == [str(build.MODULES / "thing" / "main.go")]
        (go / "source" / "main.go").write_text("it has moved")
        (build.MODULES / "thing" / "go.sum").write_text("newer")
        with pytest.raises(build.Unavailable, match='holds "/etc/fixed" 0 times, not once'):
            build.built(["thing"], lambda text: None)

    def test_a_build_that_fails_leaves_nothing_and_says_what_is_needed(self, go: Path) -> None:
        (go / "bin" / "go").write_text("#!/bin/sh\necho missing go.sum entry >&2; exit 1")
        with pytest.raises(
            build.Unavailable, match=r"thing can(.|\n)*Go modules: go build failed:\n.*missing go.sum(.|\n)*GOPROXY"
        ):
            build.built(["thing"], lambda text: None)
        assert not build.folder("thing").exists()

    def test_what_a_killed_build_has_left_goes(self, go: Path) -> None:
        left = go / "cache" / f"building-{build.folder('thing').name}-x"
        another = go / "cache" / "building-other-x"
        for folder in (left, another):
            (folder / "new").mkdir(parents=True)
        build.built(["thing"], lambda text: None)
        assert not left.exists() and another.exists(), "the other one may be at work"

    def test_nobody_waits_for_the_build_of_another_component(self, go: Path) -> None:
        other = go / "cache" / "locks" / "other"
        other.mkdir(parents=True)
        with alone(other, pytest.fail), build._go_cache(fcntl.LOCK_SH):
            (go / "cache" / "go").mkdir()
            assert build.built(["thing"], lambda text: None)["thing"].exists()
            assert (go / "cache" / "go").exists(), "the other build needs it"

    def test_no_go(self, go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(go))
        with pytest.raises(build.Unavailable, match="no go on PATH"):
            build.built(["thing"], lambda text: None)


def test_every_component_has_its_pins() -> None:
    for name, component in build.COMPONENTS.items():
        folder = build.MODULES / component.module
        modules = (folder / "go.mod").read_text()
        assert modules.startswith(f"module pulumi-trainer/tools/cluster/go/{folder.name}\n"), name
        for path in component.keep:
            assert f"{path} v" in modules and f"{path} v" in (folder / "go.sum").read_text(), name
    assert {*build.CONTROL_PLANE, *build.GANGS} == {built for built, _ in control_plane.PROGRAMS.values()}
    assert set(build.CONTROL_PLANE) == {control_plane.PROGRAMS[name][0] for name in control_plane.ALL}


class TestPorts:
    def test_two_clusters_never_share_a_block(self, tmp_path: Path) -> None:
        first, lock = ports.allocate(("a", "b"), tmp_path)
        assert first["b"] == first["a"] + 1 and ports.FIRST <= first["a"] < ports.LAST < 32768
        assert ports.hold(first["a"], tmp_path) is None
        os.close(lock)
        again = ports.hold(first["a"], tmp_path)
        assert again is not None
        os.close(again)

    def test_a_block_with_a_port_in_use_is_left_out(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            monkeypatch.setattr(ports, "FIRST", server.getsockname()[1])
            monkeypatch.setattr(ports, "LAST", server.getsockname()[1] + 1)
            with pytest.raises(OSError, match="no 1 free ports"):
                ports.allocate(("a",), tmp_path)

    def test_a_block_is_held_as_long_as_a_process_of_the_cluster_lives(self, tmp_path: Path) -> None:
        numbers, lock = ports.allocate(("a",), tmp_path / "ports")
        child = processes.start(tmp_path, "a", ["sleep", "60"], tmp_path / "log", keep=[lock])
        os.close(lock)
        assert ports.hold(numbers["a"], tmp_path / "ports") is None
        processes.end(processes.found(tmp_path), 5)
        child.wait()
        descriptor = ports.hold(numbers["a"], tmp_path / "ports")
        assert descriptor is not None
        os.close(descriptor)


class TestProcesses:
    def test_they_are_found_by_their_mark_alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SECRET", "canary")
        monkeypatch.setenv("NOT_OURS", f"{processes.CLUSTER}={tmp_path}")
        stranger = subprocess.Popen(["sleep", "60"])
        ours = processes.start(
            tmp_path, "etcd", ["sleep", "60"], tmp_path / "log", env={"A": "b"}, owner=processes.me()
        )
        try:
            time.sleep(0.05)
            (found,) = processes.found(tmp_path)
            assert (found.pid, found.name, found.owner) == (ours.pid, "etcd", processes.me())
            assert processes.found(tmp_path / "other") == []
            env = Path(f"/proc/{ours.pid}/environ").read_text()
            assert "A=b" in env and "canary" not in env
            assert os.getsid(ours.pid) == ours.pid
        finally:
            processes.send(processes.found(tmp_path), signal.SIGKILL, 5)
            assert ours.wait() == -signal.SIGKILL
            assert stranger.poll() is None
            stranger.kill()
            stranger.wait()

    def test_one_that_does_not_heed_term_is_killed(self, tmp_path: Path) -> None:
        argv = ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"]
        child = processes.start(tmp_path, "deaf", argv, tmp_path / "log")
        while not (tmp_path / "log").read_text():
            time.sleep(0.01)
        processes.end([p for p in processes.found(tmp_path) if p.pid == child.pid], 0.2)
        assert child.wait() == -signal.SIGKILL
        processes.send(processes.found(tmp_path), signal.SIGKILL, 5)

    def test_a_number_that_is_another_process_by_now_gets_no_signal(self, tmp_path: Path) -> None:
        other = subprocess.Popen(["sleep", "60"])
        try:
            gone = processes.Found(other.pid, tmp_path, "etcd", "")
            assert processes.send([gone], signal.SIGKILL, 1) == []
            assert other.poll() is None
        finally:
            other.kill()
            other.wait()

    def test_an_owner_is_more_than_its_number(self) -> None:
        assert processes.alive(processes.me())
        assert not processes.alive(f"{os.getpid()}:1")
        assert not processes.alive("99999999:1")
        assert not processes.alive("")


class TestKeys:
    def test_servers_are_trusted_by_name_and_address(self, tmp_path: Path) -> None:
        pki.make(tmp_path, ["127.0.0.1", "10.1.2.3"])
        certificate = x509.load_pem_x509_certificate((tmp_path / "tls.crt").read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "10.1.2.3"]
        client, server = (
            ssl.create_default_context(cafile=str(tmp_path / "ca.crt")),
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        )
        server.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = (
            client.wrap_bio(to_client, to_server, server_hostname="kubernetes.default.svc"),
            server.wrap_bio(to_server, to_client, server_side=True),
        )
        for _ in range(4):
            for end in ends:
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    pass
        assert ends[0].getpeercert()
        assert all(file.stat().st_mode & 0o077 == 0 for file in tmp_path.glob("*.key"))

    def test_a_certificate_names_user_and_groups_and_its_life(self, tmp_path: Path) -> None:
        pki.make(tmp_path, [])
        certificate, _ = pki.issue(tmp_path, "jane", ["a", "b"], life=timedelta(hours=-1))
        read = x509.load_pem_x509_certificate(certificate)
        assert read.subject.rfc4514_string() == "CN=jane,O=b,O=a"
        assert read.not_valid_after_utc - read.not_valid_before_utc == timedelta(minutes=5)


class TestTokens:
    def test_who_it_stands_for(self, tmp_path: Path) -> None:
        token = tokens.add(tmp_path, "jane", ["a"])
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        answer = tokens.review(tmp_path, asked)
        assert answer["status"] == {"authenticated": True, "user": {"username": "jane", "uid": "jane", "groups": ["a"]}}
        assert token not in "".join(str(path) for path in tmp_path.rglob("*")), "tokens are not to be listed"
        tokens.remove(tmp_path, token)
        assert tokens.review(tmp_path, asked)["status"] == {"authenticated": False}
        assert tokens.review(tmp_path, {})["status"] == {"authenticated": False}


PLACE = control_plane.Place(Path("/cluster"), {name: 21000 + i for i, name in enumerate(control_plane.PORTS)})


class TestCommands:
    @pytest.mark.parametrize("name", control_plane.ALL)
    def test_nothing_listens_beyond_this_machine(self, name: str) -> None:
        command = " ".join(control_plane.command(PLACE, name))
        assert "=0.0.0.0" not in command
        assert control_plane.health(PLACE, name).split("://")[1].startswith("127.0.0.1:")

    def test_nodes_in_networks_of_their_own_reach_the_api_server(self) -> None:
        command = control_plane.command(replace(PLACE, address="10.9.0.1"), "apiserver")
        assert "--bind-address=0.0.0.0" in command and "--advertise-address=10.9.0.1" in command

    def test_what_is_secret_is_in_no_argument(self, tmp_path: Path) -> None:
        place = replace(PLACE, folder=tmp_path)
        control_plane.configure(place, "canary")
        assert json.loads(place.kubeconfig.read_text())["users"][0]["user"]["token"] == "canary"
        assert place.kubeconfig.stat().st_mode & 0o077 == 0
        for name in control_plane.ALL:
            assert "canary" not in str([control_plane.command(place, name), control_plane.environment(place, name)])

    def test_kwok_leaves_real_nodes_alone(self, tmp_path: Path) -> None:
        place = replace(PLACE, folder=tmp_path)
        control_plane.configure(place, "token")
        options = json.loads((place.conf / "kwok.json").read_text())["options"]
        assert options["manageAllNodes"] is False
        assert options["manageNodesWithAnnotationSelector"] == "kwok.x-k8s.io/node=fake"
        assert simulation.node(0, 8, {})["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake"}


class TestDocuments:
    @pytest.fixture
    def module(self, tmp_path: Path) -> Path:
        hook = {
            "name": "mpod.kb.io",
            "clientConfig": {"service": {"name": "webhook-service", "namespace": "system", "path": "/mutate--v1-pod"}},
        }
        other = {**hook, "name": "mjob.kb.io"}
        meta = {"name": "mutating-webhook-configuration"}
        webhooks = {"kind": "MutatingWebhookConfiguration", "metadata": meta, "webhooks": [hook, other]}
        crd = {"kind": "CustomResourceDefinition", "spec": {"conversion": {"strategy": "Webhook"}}, "status": {}}
        for path, content in (("webhook/manifests.yaml", webhooks), ("crd/bases/a.yaml", crd)):
            file = tmp_path / "module" / "config" / "components" / path
            file.parent.mkdir(parents=True)
            file.write_text(yaml.safe_dump(content))
        return tmp_path

    def test_webhooks_point_to_this_machine_and_keep_their_selectors(self, module: Path) -> None:
        (found,) = manifests.webhooks("jobset", module, 21007, b"ca")
        assert found["metadata"]["name"] == "jobset-mutating-webhook-configuration"
        pod, job = found["webhooks"]
        assert pod["clientConfig"] == {"url": "https://127.0.0.1:21007/mutate--v1-pod", "caBundle": "Y2E="}
        assert pod["objectSelector"] == manifests.OF_JOBSET and "objectSelector" not in job

    def test_kueue_is_not_asked_about_what_it_does_not_serve(self, module: Path) -> None:
        (found,) = manifests.webhooks("kueue", module, 1, b"ca")
        assert [hook["name"] for hook in found["webhooks"]] == ["mjob.kb.io"]

    def test_crds_are_read_once(self, module: Path) -> None:
        first = manifests.crds("jobset", module)
        assert first == [{"kind": "CustomResourceDefinition", "spec": {}}]
        (module / "module/config/components/crd/bases/a.yaml").unlink()
        assert manifests.crds("jobset", module) == first


class TestExisting:
    KUBECONFIG: dict[str, Any] = {
        "current-context": "production",
        "contexts": [
            {"name": "production", "context": {"cluster": "p", "user": "p"}},
            {"name": "lab", "context": {"cluster": "l", "user": "l", "namespace": "team"}},
        ],
        "clusters": [
            {"name": "p", "cluster": {"server": "https://production"}},
            {"name": "l", "cluster": {"server": "https://lab", "certificate-authority": "ca.crt"}},
        ],
        "users": [{"name": "p", "user": {"token": "canary"}}, {"name": "l", "user": {"tokenFile": "/abs/token"}}],
    }

    def test_only_the_context_that_was_named_is_used(self, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "config").write_text(yaml.safe_dump(self.KUBECONFIG))
        made = Existing.of(tmp_path / "config", "lab", tmp_path / "out")
        text = made.kubeconfig.read_text()
        assert "production" not in text and "canary" not in text and made.server == "https://lab"
        known = yaml.safe_load(text)
        assert known["clusters"][0]["cluster"]["certificate-authority"] == str(tmp_path / "ca.crt")
        assert known["users"][0]["user"]["tokenFile"] == "/abs/token"

    def test_no_such_context(self, tmp_path: Path) -> None:
        (tmp_path / "config").write_text(yaml.safe_dump(self.KUBECONFIG))
        with pytest.raises(LookupError, match="no entry 'nosuch' in contexts"):
            Existing.of(tmp_path / "config", "nosuch", tmp_path)


def test_a_build_of_go_that_is_interrupted_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "go").write_text("#!/bin/sh\necho $$ > pid; exec sleep 60")
    (tmp_path / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def interrupt(self: Any, timeout: float | None = None) -> int:
        while timeout is not None:
            if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
                raise KeyboardInterrupt
        return wait(self)

    wait = subprocess.Popen.wait
    monkeypatch.setattr(subprocess.Popen, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        go_modules.build(tmp_path, ["."], "", tmp_path / "out", tmp_path / "caches", lambda text: None)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
