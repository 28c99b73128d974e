"""kubeconfig as kubectl reads it, credential plugins, token files, and what may never be told."""

from __future__ import annotations

import base64
import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import psutil
import pytest
import yaml
from documents_support import BOMB
from kubernetes_support import Server, answer, named, refusal, server
from pulumi_trainer.provider.kubernetes.client import access, client, exec_credential, kubeconfig
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Unreachable
from pulumi_trainer.provider.kubernetes.client.kubeconfig import choose_context
from pulumi_trainer.provider.kubernetes.errors import Problem, Refused, TargetFault
from pulumi_trainer.provider.service import jobs
from pulumi_trainer.provider.service.jobs import open_cluster
from pulumi_trainer.provider.service.reach import Where

CANARY = "canary-9f3e7a51c0de"
Document = dict[str, Any]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_PROXY", "")
    access._client.cache_clear()


@pytest.fixture
def api() -> Iterator[Server]:
    with server() as made:
        made.does(answer(200, named()))
        yield made


def config(server: str = "https://one", user: Document | None = None, name: str = "one", **cluster: Any) -> Document:
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server, **cluster}}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }  # fmt: skip


def write(path: Path, document: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return str(path)


def program(path: Path, body: str) -> str:
    write(path, f"#!{sys.executable}\nimport json, os, sys, time\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def said(call: Any) -> str:
    with pytest.raises(TargetFault) as caught:
        call()
    assert CANARY not in str(caught.value) + repr(caught.value)
    return str(caught.value)


MERGES = "".join(f"b{i}: &b{i}\n  <<: [{', '.join([f'*b{i - 1}' if i else '*a'] * 30)}]\n" for i in range(30))
"""Merge keys that repeat what was merged before them."""


class TestFiles:
    def test_the_first_file_that_names_something_wins(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        one, two = config("https://one"), config("https://two", name="two")
        two["clusters"].append({"name": "one", "cluster": {"server": "https://other"}})
        paths = [write(tmp_path / "one", one), str(tmp_path / "nothing"), write(tmp_path / "two", two)]
        monkeypatch.setenv("KUBECONFIG", os.pathsep.join(paths))
        assert choose_context().cluster["server"] == "https://one"
        assert choose_context(context="two").cluster["server"] == "https://two"

    def test_contexts_users_and_clusters_of_several_files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = config(user={"token": "t"})
        parts = [{**whole, key: []} for key in ("users", "clusters")]
        parts[0].pop("current-context")
        paths = [write(tmp_path / str(i), part) for i, part in enumerate(parts)]
        monkeypatch.setenv("KUBECONFIG", os.pathsep.join(paths))
        assert (choose_context().cluster["server"], choose_context().user) == ("https://one", {"token": "t"})

    def test_the_default(self, tmp_path: Path) -> None:
        write(tmp_path / "home/.kube/config", config("https://home"))
        assert choose_context().cluster["server"] == "https://home"

    def test_paths_are_those_of_the_file(self, tmp_path: Path) -> None:
        user = {"client-certificate": "c.pem", "tokenFile": "/abs/token", "exec": {"command": "bin/login"}}
        path = write(tmp_path / "a/config", {**config(user=user, **{"certificate-authority": "../ca.pem"})})
        found = choose_context(path)
        assert found.cluster["certificate-authority"] == str(tmp_path / "a/../ca.pem")
        assert found.user["client-certificate"] == str(tmp_path / "a/c.pem")
        assert found.user["tokenFile"] == "/abs/token"
        assert found.user["exec"]["command"] == str(tmp_path / "a/bin/login")

    def test_paths_of_a_content_are_below_the_current_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        given = config(user={"client-certificate": "c.pem"}, **{"certificate-authority": "ca.pem"})
        found = choose_context(content=json.dumps(given))
        assert found.cluster["certificate-authority"] == str(tmp_path / "ca.pem")
        assert found.user["client-certificate"] == str(tmp_path / "c.pem")

    def test_a_pod(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
        assert "no kubeconfig found" in said(choose_context)
        write(tmp_path / "token", "t")
        assert choose_context().cluster == {
            "server": "https://[fd00::1]:443",
            "certificate-authority": str(tmp_path / "ca.crt"),
        }
        write(tmp_path / "home/.kube/config", config("https://home"))
        assert choose_context().cluster["server"] == "https://home"

    @pytest.mark.parametrize(
        ("document", "words"),
        [
            ("", "is not a kubeconfig"),
            (f"a: [{CANARY}", "not a YAML mapping (line 1)"),
            (f"users:\n- token: {CANARY}\n  x: [", "not a YAML mapping (line 3)"),
            (f"[{CANARY}]", "is not a kubeconfig"),
            ("a: \x01", "is not a kubeconfig"),
            (f"current-context: one\n{BOMB}", "not a YAML mapping (line 7)"),
            (f"a: &a {{token: {CANARY}}}\n" + MERGES, "names no current context"),
            ({"kind": "Config"}, "names no current context. Hint: choose one of: none"),
            ({**config(), "current-context": "b"}, 'has no context "b". Hint: available: one'),
            ({**config(), "clusters": []}, 'its cluster "one" has no entry with a server'),
            ({**config(), "clusters": [{"name": "one"}]}, 'its cluster "one" has no entry with a server'),
            ({**config(), "users": None}, 'its user "one" has no entry'),
            ({**config(), "contexts": [1, {}, {"name": "one", "context": 1}]}, "has no entry with a server"),
            (config("file:///etc"), "its server is not an https:// address"),
            (config(f"{CANARY}"), "its server is not an https:// address"),
            (config(f"https://me:{CANARY}@one"), "its server has credentials in its address"),
        ],
    )
    def test_what_is_wrong_is_told_without_its_content(self, tmp_path: Path, document: Any, words: str) -> None:
        text = document if isinstance(document, str) else yaml.safe_dump(document)
        assert words in said(lambda: choose_context(write(tmp_path / "config", text)))
        if text:
            assert words in said(lambda: choose_context(content=text))

    def test_a_file_without_end_is_not_read(self) -> None:
        assert "is longer than 3 MiB" in said(lambda: choose_context("/dev/zero"))

    def test_a_file_that_is_not_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "/nosuch: cannot be read: No such file" in said(lambda: choose_context("/nosuch"))
        monkeypatch.setenv("KUBECONFIG", "/nosuch")
        assert "/nosuch does not exist. Hint: set KUBECONFIG" in said(choose_context)

    def test_a_command_without_project_and_without_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("KUBECONFIG", "/nosuch")
        nothing, cluster = Where("", "", "", "", False), Where("", "", "there", "", False)
        assert said(lambda: open_cluster(nothing)) == (
            "no Pulumi.yaml in this folder or above, and no kubeconfig found: /nosuch does not exist."
            " Hint: run the command in the folder of a Pulumi project, or set KUBECONFIG to an existing file"
        )
        assert "Pulumi" not in said(lambda: open_cluster(cluster))

    def test_the_hint_is_of_the_interface(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("KUBECONFIG", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert said(choose_context).endswith("Hint: set KUBECONFIG, or give target=Kubernetes(kubeconfig=...)")
        for where in (Where(context="there"), Where(namespace="team")):
            assert said(lambda where=where: open_cluster(where)).endswith("Hint: set KUBECONFIG, or pass --kubeconfig")

    @pytest.mark.parametrize("namespace", ["", "team"])
    def test_the_file_of_an_option(self, namespace: str) -> None:
        named = Where(namespace=namespace, kubeconfig="/nosuch")
        assert said(lambda: open_cluster(named)) == (
            "kubeconfig /nosuch: cannot be read: No such file or directory. Hint: give the path of another file: --kubeconfig"
        )

    def test_nothing_of_it_in_a_representation(self) -> None:
        found = choose_context(content=yaml.safe_dump(config(user={"token": CANARY})))
        assert CANARY not in repr(found)


def run(body: str, tmp_path: Path, **more: Any) -> tuple[dict[str, str], float | None]:
    given = {"apiVersion": "client.authentication.k8s.io/v1", "command": program(tmp_path / "login", body), **more}
    return exec_credential.credentials(given, {"server": "https://one"}, "here")


def prints(**status: Any) -> str:
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return f"print({json.dumps(json.dumps(credential))})"


class TestPlugins:
    def test_a_token(self, tmp_path: Path) -> None:
        found = run(prints(token="t", expirationTimestamp="2026-01-02T03:04:05.123456789Z"), tmp_path)
        assert found == ({"token": "t"}, 1767323045.0)

    def test_a_certificate(self, tmp_path: Path) -> None:
        found, expires = run(prints(clientCertificateData="c", clientKeyData="k"), tmp_path)
        assert {k: base64.b64decode(v) for k, v in found.items()} == {
            "client-certificate-data": b"c", "client-key-data": b"k",
        }  # fmt: skip
        assert expires is None

    def test_what_it_is_told(self, tmp_path: Path) -> None:
        body = "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        body += "print(json.dumps({**info, 'status': {'token': json.dumps([info['spec'], sys.argv[1:], os.environ['A']])}}))"
        extensions = [{"name": "client.authentication.k8s.io/exec", "extension": {"x": 1}}]
        cluster = {"server": "https://one", "certificate-authority-data": "ca", "extensions": extensions}
        given = {
            "apiVersion": "client.authentication.k8s.io/v1beta1", "command": program(tmp_path / "login", body),
            "args": ["get", 1], "env": [{"name": "A", "value": "b"}],
        }  # fmt: skip
        plain, _ = exec_credential.credentials(given, cluster, "here")
        assert json.loads(plain["token"]) == [{"interactive": False}, ["get", "1"], "b"]
        told, _ = exec_credential.credentials({**given, "provideClusterInfo": True}, cluster, "here")
        wanted = {"server": "https://one", "certificate-authority-data": "ca", "config": {"x": 1}}
        assert json.loads(told["token"])[0]["cluster"] == wanted

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            (f"print('{CANARY}')", "its output is not an ExecCredential"),
            (f"print(json.dumps(['{CANARY}']))", "its output is not an ExecCredential"),
            ("", "its output is not an ExecCredential"),
            (prints(), "without a token"),
            (prints(clientCertificateData=CANARY), "without a token"),
            (prints(token=1), "without a token"),
            (prints(token="t", expirationTimestamp=CANARY), "its expirationTimestamp is not a time"),
            (
                prints(token=CANARY).replace("k8s.io/v1", "k8s.io/v1beta1"),
                'answered with "client.authentication.k8s.io/v1beta1"',
            ),
            (f"print('{CANARY}'); sys.exit(3)", "exit code 3: no output on stderr"),
            ("sys.exit('log in first')", "exit code 1: log in first"),
            ("sys.exit('x ' * 5000 + 'end of ' + 'eyJhbGciOiJ.' + 'y' * 20)", "x end of [secret]"),
            (f"sys.exit('Authorization: Bearer {CANARY}')", "Authorization: [secret]"),
            ("sys.exit('refused: ' + os.environ['LOGIN_TOKEN'])", "refused: [secret]"),
        ],
    )
    def test_what_goes_wrong_is_told_without_secrets(self, tmp_path: Path, body: str, words: str) -> None:
        env = [{"name": "LOGIN_TOKEN", "value": CANARY}]
        text = said(lambda: run(body, tmp_path, env=env))
        assert words in text and text.startswith(f"here: credential plugin {tmp_path}/login: ") and len(text) < 1500

    def test_it_is_not_there(self) -> None:
        given = {"apiVersion": "client.authentication.k8s.io/v1", "command": "nosuch-auth-plugin"}
        hint = "brew install nosuch-auth-plugin"
        text = said(lambda: exec_credential.credentials({**given, "installHint": hint}, {}, "here"))
        assert text == f"here: credential plugin nosuch-auth-plugin: is not on PATH. Hint: {hint}"
        assert "install it, or choose another context" in said(lambda: exec_credential.credentials(given, {}, "here"))
        given["command"] = "/opt/nosuch"
        assert "program not found" in said(lambda: exec_credential.credentials(given, {}, "here"))

    def test_it_is_no_program(self, tmp_path: Path) -> None:
        path = write(tmp_path / "broken", "\x7fELF")
        Path(path).chmod(0o755)
        given = {"apiVersion": "client.authentication.k8s.io/v1", "command": path}
        assert "cannot be run: Exec format error" in said(lambda: exec_credential.credentials(given, {}, "here"))

    def test_one_that_waits_for_a_login_is_ended(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(exec_credential, "PLUGIN_SECONDS", 4.0)
        body = f"""
import subprocess
print("open https://login.example in a browser", file=sys.stderr, flush=True)
child = subprocess.Popen(["sleep", "600"])
open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
time.sleep(600)
"""
        text = said(lambda: run(body, tmp_path))
        assert (
            "did not answer within 4 s; its output: open https://login.example in a browser. Hint: run it in a terminal"
            in text
        )
        pid, until = int((tmp_path / "pid").read_text()), time.monotonic() + 10
        while not ended(pid):  # a signal takes its time on a busy machine
            assert time.monotonic() < until
            time.sleep(0.05)

    def test_one_that_wants_a_terminal(self, tmp_path: Path) -> None:
        assert "requires a terminal" in said(lambda: run(prints(token="t"), tmp_path, interactiveMode="Always"))

    @pytest.mark.parametrize("version", ["", "client.authentication.k8s.io/v1alpha1"])
    def test_versions_that_are_no_more(self, tmp_path: Path, version: str) -> None:
        text = said(lambda: run(prints(token="t"), tmp_path, apiVersion=version))
        assert f'its apiVersion "{version}" is not one of' in text and "generate the kubeconfig again" in text


def ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def opened(api: Server, user: Document, tmp_path: Path, **cluster: Any) -> Any:
    path = write(tmp_path / "config", config(api.url, user, **cluster))
    return open_client({"kubeconfig": path}).within(1.0)


class TestCredentials:
    def asked(self, api: Server, made: Any) -> Any:
        assert made.get(CONFIG_MAP, "team", "a")
        return api.headers[-1]

    def test_a_token(self, api: Server, tmp_path: Path) -> None:
        assert self.asked(api, opened(api, {"token": "t\n"}, tmp_path))["Authorization"] == "Bearer t"

    def test_a_password(self, api: Server, tmp_path: Path) -> None:
        user = {"username": "u", "password": CANARY}
        sent = self.asked(api, opened(api, user, tmp_path))["Authorization"]
        assert base64.b64decode(sent.split()[1]).decode() == f"u:{CANARY}"

    def test_nobody(self, api: Server, tmp_path: Path) -> None:
        assert self.asked(api, opened(api, {}, tmp_path))["Authorization"] is None

    def test_a_token_file_rotates(self, api: Server, tmp_path: Path) -> None:
        file = tmp_path / "token"
        write(file, "first\n")
        made = opened(api, {"token": "ignored", "tokenFile": str(file)}, tmp_path)
        assert self.asked(api, made)["Authorization"] == "Bearer first"
        write(tmp_path / "new", "second\n")
        (tmp_path / "new").replace(file)  # as the kubelet does
        assert self.asked(api, made)["Authorization"] == "Bearer second"
        file.unlink()
        assert self.asked(api, made)["Authorization"] == "Bearer second"
        write(file, "")
        assert self.asked(api, made)["Authorization"] == "Bearer second"

    @pytest.mark.parametrize("content", [None, "", b"\xff\xfe"])
    def test_a_token_file_that_holds_none(self, api: Server, tmp_path: Path, content: Any) -> None:
        if content is not None:
            (tmp_path / "token").write_bytes(content if isinstance(content, bytes) else content.encode())
        made = opened(api, {"tokenFile": "token"}, tmp_path)
        assert f"token file {tmp_path}/token" in said(lambda: made.get(CONFIG_MAP, "team", "a"))

    @pytest.mark.parametrize("token", [f"{CANARY}\nX: y", f"{CANARY}\u20ac", f"{CANARY}\x00"])
    def test_a_token_that_no_header_can_hold(self, api: Server, tmp_path: Path, token: str) -> None:
        made = open_client({"content": json.dumps(config(api.url, {"token": token}))})
        assert "characters that are not valid in a token" in said(lambda: made.get(CONFIG_MAP, "team", "a"))

    def test_a_plugin_is_run_once(self, api: Server, tmp_path: Path) -> None:
        body = f"open({str(tmp_path / 'runs')!r}, 'a').write('x')\n" + prints(token="t")
        user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": program(tmp_path / "login", body)}}
        made = opened(api, user, tmp_path)
        for _ in range(3):
            assert self.asked(api, made)["Authorization"] == "Bearer t"
        assert (tmp_path / "runs").read_text() == "x"

    def test_a_plugin_is_run_again_when_its_token_has_expired(
        self, api: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        count = tmp_path / "runs"
        body = f"open({str(count)!r}, 'a').write('x'); n = len(open({str(count)!r}).read())\n"
        body += "print(json.dumps({**json.loads(os.environ['KUBERNETES_EXEC_INFO']), 'status': {'token': f't{n}'}}))"
        user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": program(tmp_path / "login", body)}}
        made = opened(api, user, tmp_path)
        api.does(answer(200, named()), refusal(401, "Unauthorized"), answer(200, named()))
        assert self.asked(api, made)["Authorization"] == "Bearer t1"
        assert self.asked(api, made)["Authorization"] == "Bearer t2"

    def test_acting_as_somebody_else(self, api: Server, tmp_path: Path) -> None:
        user = {
            "token": "t",
            "as": "jane",
            "as-uid": "7",
            "as-groups": ["a", "b"],
            "as-user-extra": {"scopes": ["x", "z"], "corp.example/50%": ["v"]},
        }
        sent = self.asked(api, opened(api, user, tmp_path))
        found = {k: sent.get_all(k) for k in sent if k.startswith("Impersonate")}
        assert found == {
            "Impersonate-User": ["jane"], "Impersonate-Uid": ["7"], "Impersonate-Group": ["a", "b"],
            "Impersonate-Extra-scopes": ["x", "z"], "Impersonate-Extra-corp.example%2F50%25": ["v"],
        }  # fmt: skip

    def test_the_proxy_of_the_kubeconfig(self, api: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_PROXY", "*")
        proxy = api.url.replace("http://", f"http://me:{CANARY}@")
        path = write(tmp_path / "config", config("http://cluster.example", {"token": "t"}, **{"proxy-url": proxy}))
        sent = self.asked(api, open_client({"kubeconfig": path}))
        assert api.seen[-1][1].startswith("http://cluster.example/api/v1/")
        assert base64.b64decode(sent["Proxy-Authorization"].split()[1]).decode() == f"me:{CANARY}"

    def test_the_proxy_of_the_environment(self, api: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("http_proxy", api.url)
        path = write(tmp_path / "config", config("http://cluster.example"))
        self.asked(api, open_client({"kubeconfig": path}))
        assert api.seen[-1][1].startswith("http://cluster.example/")

    def test_a_proxy_that_is_away_is_told_without_its_password(self, tmp_path: Path) -> None:
        with server() as gone:
            proxy = gone.url.replace("http://", f"http://me:{CANARY}@")
        path = write(tmp_path / "config", config("https://cluster.example", **{"proxy-url": proxy}))
        made = open_client({"kubeconfig": path}).within(0.2)
        assert "no answer from https://cluster.example" in said(lambda: made.get(CONFIG_MAP, "team", "a"))

    @pytest.mark.parametrize(
        ("user", "cluster", "words"),
        [
            ({"client-certificate-data": "%", "client-key-data": ""}, {}, "client-certificate-data is not base64"),
            ({"client-certificate-data": "YQ=="}, {}, "only one of client-certificate and client-key"),
            ({"client-certificate-data": "YQ==", "client-key-data": "YQ=="}, {}, "client-certificate: cannot be used"),
            ({"client-certificate": "/nosuch"}, {}, "its client-certificate /nosuch cannot be read: No such file"),
            (
                {},
                {"certificate-authority": "/nosuch"},
                "its certificate-authority /nosuch cannot be read: No such file",
            ),
            ({}, {"certificate-authority-data": "YQ=="}, "certificate-authority: cannot be used"),
            ({}, {"proxy-url": f"ftp://me:{CANARY}@x"}, "its proxy is not an http://"),
            ({"auth-provider": {"name": "oidc", "config": {}}}, {}, "the official client cannot use its user"),
        ],
    )
    def test_what_cannot_be_used(self, tmp_path: Path, user: Document, cluster: Document, words: str) -> None:
        path = write(tmp_path / "config", config("https://127.0.0.1:1", user, **cluster))
        assert words in said(lambda: open_client({"kubeconfig": path}).get(CONFIG_MAP, "team", "a"))

    def test_no_verification_is_a_caution(self, tmp_path: Path) -> None:
        path = write(tmp_path / "config", config("https://127.0.0.1:1", **{"insecure-skip-tls-verify": True}))
        (caution,) = open_client({"kubeconfig": path}).cautions
        assert "insecure-skip-tls-verify" in str(caution) and str(tmp_path) in str(caution)

    def test_a_caution_is_shown_once_a_process(self, api: Server, tmp_path: Path) -> None:
        path = write(tmp_path / "config", config(api.url, {"token": "t"}, **{"insecure-skip-tls-verify": True}))
        shown: list[Problem] = []
        for _ in range(2):
            assert open_client({"kubeconfig": path}, warn=shown.append).get(CONFIG_MAP, "team", "a")
        assert ["http://: credentials are sent unencrypted" in str(p) for p in shown] == [True, False]
        assert "insecure-skip-tls-verify" in str(shown[1])

    def test_commands_show_it(
        self, api: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = write(tmp_path / "config", config("https://127.0.0.1:1", **{"insecure-skip-tls-verify": True}))
        client, _ = jobs.open_cluster(Where(kubeconfig=path))
        assert client.host and "warning: kubeconfig" in capsys.readouterr().err

    @pytest.mark.parametrize("user", ["token", "password", "tokenFile", "exec"])
    def test_no_credentials_over_http(self, api: Server, tmp_path: Path, user: str) -> None:
        """As client-go; http is for this machine alone."""
        plugin = program(tmp_path / "plugin", prints(token=CANARY) + f"\nopen({str(tmp_path / 'ran')!r}, 'w')")
        users = {
            "token": {"token": CANARY, "as": "jane"}, "password": {"username": "me", "password": CANARY},
            "tokenFile": {"tokenFile": write(tmp_path / "token", CANARY)},
            "exec": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": plugin}},
        }  # fmt: skip
        path = write(tmp_path / "config", config("http://cluster.example", users[user], **{"proxy-url": api.url}))
        made = open_client({"kubeconfig": path}).within(1.0)
        assert made.get(CONFIG_MAP, "team", "a")
        sent = api.headers[-1]
        assert sent["Authorization"] is None and sent["Impersonate-User"] is None and CANARY not in str(sent)
        assert not (tmp_path / "ran").exists()
        (caution,) = made.cautions
        assert "http://: anybody on the network could read the credentials, so none are sent" in str(caution)

    @pytest.mark.parametrize("written", [
        str, lambda t: "".join(f"\\u{ord(c):04x}" for c in t), lambda t: f"\\u{ord(t[0]):04x}{t[1:]}", quote_plus,
        lambda t: base64.b64encode(f"me:{t}".encode()).decode(),
    ], ids=["as it is", "all escaped", "one escaped", "of a URL", "Basic"])  # fmt: skip
    @pytest.mark.parametrize("password", [True, False])
    def test_what_a_server_echoes(self, api: Server, tmp_path: Path, written: Any, password: bool) -> None:
        secret = f"p+{CANARY}"
        user = {"username": "me", "password": secret} if password else {"token": secret}
        echo = written(secret)
        causes = f'{{"causes": [{{"message": "{echo}"}}]}}'
        body = f'{{"kind": "Status", "message": "you sent {echo}", "reason": "{echo}", "details": {causes}}}'
        api.does(answer(422, body.encode()))
        with pytest.raises(ApiError) as caught:
            opened(api, user, tmp_path).get(CONFIG_MAP, "team", "a")
        error = caught.value
        told = f"{error} {error.reason} {error.causes} {error.details}"
        assert CANARY not in told and (not password or echo not in told)


def cluster_of(uid: str) -> Any:
    return answer(200, {"metadata": {"name": "kube-system", "uid": uid}})


class TestIdentity:
    """Which of two servers is asked for what."""

    @pytest.fixture
    def other(self) -> Iterator[Server]:
        with server() as made:
            yield made

    def target(self, api: Server, path: Path, **more: Any) -> Document:
        return {"kubeconfig": write(path, config(api.url, {"token": CANARY})), **more}

    def test_the_configuration_wins(self, api: Server, other: Server, tmp_path: Path) -> None:
        api.does(cluster_of("u-1"))
        other.does(cluster_of("u-1"), answer(200, named()))
        made = open_client(
            self.target(api, tmp_path / "a", cluster="u-1"), overrides=self.target(other, tmp_path / "b")
        )
        assert made.get(CONFIG_MAP, "team", "a") and made.cluster_id() == "u-1"
        assert len(other.seen) == 2 and not api.seen

    def test_but_not_if_it_leads_elsewhere(self, api: Server, other: Server, tmp_path: Path) -> None:
        api.does(cluster_of("u-1"), answer(200, named()))
        other.does(cluster_of("u-2"))
        made = open_client(
            self.target(api, tmp_path / "a", cluster="u-1"), overrides=self.target(other, tmp_path / "b")
        )
        assert made.get(CONFIG_MAP, "team", "a")
        assert [path for _, path in other.seen] == ["/api/v1/namespaces/kube-system"]

    def test_nor_if_it_leads_nowhere(self, api: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(access, "_ALTERNATIVE_SECONDS", 0.2)
        with server() as gone:
            overrides = self.target(gone, tmp_path / "b")
        api.does(cluster_of("u-1"), answer(200, named()))
        assert open_client(self.target(api, tmp_path / "a", cluster="u-1"), overrides=overrides).get(
            CONFIG_MAP, "t", "a"
        )

    def test_neither(self, api: Server, other: Server, tmp_path: Path) -> None:
        api.does(refusal(401, "Unauthorized"))
        other.does(cluster_of("u-2"))
        made = open_client(
            self.target(api, tmp_path / "a", cluster="u-1"), overrides=self.target(other, tmp_path / "b")
        )
        with pytest.raises(Refused) as caught:
            made.get(CONFIG_MAP, "team", "a")
        first, second = str(caught.value).splitlines()
        assert (
            "another cluster (kube-system has UID u-2) than the recorded one (u-1). Hint: set trainer:kubeconfig"
            in first
        )
        assert "Unauthorized. Hint: log in again" in second and CANARY not in first + second
        assert {path for _, path in api.seen + other.seen} == {"/api/v1/namespaces/kube-system"}

    def test_both_away(self, tmp_path: Path) -> None:
        with server() as one, server() as two:
            given = self.target(one, tmp_path / "a", cluster="u-1"), self.target(two, tmp_path / "b")
        made = open_client(given[0], overrides=given[1]).within(0.5)
        with pytest.raises(Unreachable, match=r"no answer from .*; .*no answer from "):
            made.get(CONFIG_MAP, "team", "a")

    def test_another_cluster(self, api: Server, tmp_path: Path) -> None:
        api.does(cluster_of("u-2"))
        made = open_client(self.target(api, tmp_path / "a", cluster="u-1"))
        for call in (
            lambda: made.get(CONFIG_MAP, "t", "a"),
            lambda: made.delete(CONFIG_MAP, "t", "a"),
            made.cluster_id,
        ):
            with pytest.raises(Refused, match="is another cluster"):
                call()
        assert {path for _, path in api.seen} == {"/api/v1/namespaces/kube-system"}

    def test_before_the_first_contact_the_program_says_where(self, api: Server, other: Server, tmp_path: Path) -> None:
        made = open_client(self.target(api, tmp_path / "a"), overrides=self.target(other, tmp_path / "b"))
        assert made.get(CONFIG_MAP, "team", "a") and not other.seen

    def test_a_kubeconfig_that_is_turned_to_another_server_midway(
        self, api: Server, other: Server, tmp_path: Path
    ) -> None:
        made = open_client(self.target(api, tmp_path / "a"))
        assert made.get(CONFIG_MAP, "team", "a")
        self.target(other, tmp_path / "a")
        api.does(refusal(401, "Unauthorized"))
        with pytest.raises(Refused, match=r"now points to another server or another CA. Hint: run the command again"):
            made.get(CONFIG_MAP, "team", "a")
        assert not other.seen

    def test_one_that_is_not_known_yet(self) -> None:
        assert "is not known yet" in said(lambda: open_client({"unknown": "content"}).get(CONFIG_MAP, "t", "a"))

    def test_nothing_is_asked_by_opening(self, api: Server, tmp_path: Path) -> None:
        open_client(self.target(api, tmp_path / "a", cluster="u-1"))
        open_client({"kubeconfig": "/nosuch"})
        assert not api.seen

    def test_one_client_for_equal_targets(self, api: Server, tmp_path: Path) -> None:
        given = self.target(api, tmp_path / "a")
        assert open_client(given) is open_client({**given, "mode": "trainer"})
        assert open_client(given) is not open_client({**given, "context": "other"})


def test_patience_is_that_of_who_asks(api: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(client.time, "sleep", slept.append)
    api.does(refusal(503, "Away", Retry_After="3"))
    made = open_client({"kubeconfig": write(tmp_path / "config", config(api.url)), "cluster": "u"})
    with pytest.raises(TargetFault, match="Away"):
        made.within(2).get(CONFIG_MAP, "t", "a")
    assert not slept
