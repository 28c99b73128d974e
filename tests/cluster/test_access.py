"""Every way to a real API server: who we are there, over which way, and that it is no other cluster."""

from __future__ import annotations

import base64
import json
import stat
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi_trainer.provider.kubernetes.client import access
from pulumi_trainer.provider.kubernetes.client.access import open_client
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, Kind
from pulumi_trainer.provider.kubernetes.client.client import ApiError, Client, Unreachable
from pulumi_trainer.provider.kubernetes.errors import Refused, TargetFault
from pulumi_trainer.provider.targets.connection import configure, connect

from tools.cluster import Cluster

from .jobs import until

Document = dict[str, Any]
WHO = Kind("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews", False)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("KUBECONFIG", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    access._client.cache_clear()
    yield
    configure({})


@pytest.fixture
def plane(cluster: Any, request: pytest.FixtureRequest) -> Cluster:
    """A cluster that gives out tokens and certificates, as a real one that is used instead does not."""
    return cluster if isinstance(cluster, Cluster) else request.getfixturevalue("own_cluster")


def document(plane: Cluster, user: Document, **cluster: Any) -> Document:
    authority = base64.b64encode(plane.ca.read_bytes()).decode()
    own = {"server": plane.server, "certificate-authority-data": authority, **cluster}
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {k: v for k, v in own.items() if v is not None}}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }  # fmt: skip


def opened(path: Path, content: Document, **more: Any) -> Client:
    path.write_text(yaml.safe_dump(content))
    return open_client({"kubeconfig": str(path), **more}).within(20)


def who(client: Client) -> str:
    found = client.post(WHO, {"apiVersion": WHO.api_version, "kind": WHO.kind})["status"]["userInfo"]
    return str(found["username"])


def revoked(plane: Cluster, token: str) -> None:
    """Waits until the server has forgotten it, too."""
    plane.revoke(token)
    client = open_client({"content": yaml.safe_dump(document(plane, {"token": token}))})

    def refused() -> bool:
        try:
            who(client)
        except ApiError as error:
            return error.code == 401
        return False

    until(refused)


def program(path: Path, body: str) -> str:
    path.write_text(f"#!{sys.executable}\nimport json, os\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def plugin(path: Path, status: str) -> Document:
    """A user of a kubeconfig as those of EKS, GKE and AKS; status: Python."""
    body = f"print(json.dumps({{**json.loads(os.environ['KUBERNETES_EXEC_INFO']), 'status': {status}}}))"
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1beta1", "command": program(path, body),
            "interactiveMode": "IfAvailable", "provideClusterInfo": True, "installHint": "install it",
        }
    }  # fmt: skip


class TestWhoWeAre:
    def test_a_certificate(self, plane: Cluster, tmp_path: Path) -> None:
        certificate, key = plane.certificate("jane")
        for name, content in (("c.pem", certificate), ("k.pem", key)):
            (tmp_path / name).write_bytes(content)
        files = {"client-certificate": "c.pem", "client-key": "k.pem"}
        data = {
            f"client-{k}-data": base64.b64encode(v).decode() for k, v in (("certificate", certificate), ("key", key))
        }
        before = set(Path(access.tempfile.gettempdir()).iterdir())
        assert who(opened(tmp_path / "a", document(plane, files))) == "jane"
        assert who(opened(tmp_path / "b", document(plane, data))) == "jane"
        left = set(Path(access.tempfile.gettempdir()).iterdir()) - before
        assert not [p for p in left if p.is_file() and b"PRIVATE KEY" in p.read_bytes()]

    def test_a_certificate_that_has_expired(self, plane: Cluster, tmp_path: Path) -> None:
        certificate, key = plane.certificate("jane", life=timedelta(seconds=-60))
        (tmp_path / "c.pem").write_bytes(certificate)
        (tmp_path / "k.pem").write_bytes(key)
        made = opened(tmp_path / "a", document(plane, {"client-certificate": "c.pem", "client-key": "k.pem"}))
        with pytest.raises(TargetFault, match=r"Unauthorized|certificate"):
            who(made)


def test_a_token_that_is_replaced_midway(plane: Cluster, tmp_path: Path) -> None:
    """By the plugin, in the token file, in the kubeconfig: the old one is no longer accepted."""
    old, new = plane.token("joe"), plane.token("joe")
    for name in ("plugin-token", "token"):
        (tmp_path / name).write_text(old)
    login = plugin(tmp_path / "login", f"{{'token': open({str(tmp_path / 'plugin-token')!r}).read()}}")
    made = [
        opened(tmp_path / "a", document(plane, login)),
        opened(tmp_path / "b", document(plane, {"tokenFile": "token"})),
        opened(tmp_path / "c", document(plane, {"token": old})),
    ]
    assert [who(each) for each in made] == ["joe"] * 3
    for name in ("plugin-token", "token"):
        (tmp_path / name).write_text(new)
    (tmp_path / "c").write_text(yaml.safe_dump(document(plane, {"token": new})))
    revoked(plane, old)
    assert [who(each) for each in made] == ["joe"] * 3


class TestTheWay:
    def test_a_server_with_another_certificate(self, plane: Cluster, tmp_path: Path) -> None:
        user = {"token": plane.token("joe")}
        made = opened(tmp_path / "a", document(plane, user, **{"certificate-authority-data": None}))
        with pytest.raises(Unreachable, match="certificate verify failed"):
            who(made)
        made = opened(tmp_path / "b", document(plane, user, **{"tls-server-name": "elsewhere.example"}))
        with pytest.raises(Unreachable, match=r"certificate verify failed.*elsewhere\.example"):
            who(made)

    def test_another_name_of_the_server(self, plane: Cluster, tmp_path: Path) -> None:
        content = document(plane, {"token": plane.token("joe")}, **{"tls-server-name": "kubernetes.default.svc"})
        assert who(opened(tmp_path / "a", content)) == "joe"

    def test_no_verification(self, plane: Cluster, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
        content = document(plane, {"token": plane.token("joe")}, **{"certificate-authority-data": None})
        content["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
        made = opened(tmp_path / "a", content)
        assert who(made) == "joe"
        assert "is not verified" in str(made.cautions[0]) and not recwarn.list


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster.start(tmp_path / "elsewhere", components=("etcd", "apiserver"))
    yield made
    made.stop()


class TestTheRecordedCluster:
    def target(self, path: Path, content: Document, **more: Any) -> Document:
        path.write_text(yaml.safe_dump(content))
        return {"kind": "kubernetes", "kubeconfig": str(path), **more}

    def test_no_call_reaches_another(self, plane: Cluster, elsewhere: Cluster, namespace: str, tmp_path: Path) -> None:
        users = (
            {"token": plane.token("root", ["system:masters"])},
            {"token": elsewhere.token("root", ["system:masters"])},
        )
        here, there = (document(p, u) for p, u in zip((plane, elsewhere), users, strict=True))
        target = self.target(tmp_path / "a", here)
        recorded = open_client(target).cluster_id()
        assert recorded != open_client(self.target(tmp_path / "b", there)).cluster_id()
        # The same file now leads elsewhere, as after `kubectl config use-context`.
        moved = self.target(tmp_path / "c", there, cluster=recorded)
        with pytest.raises(Refused, match="is another cluster"):
            open_client(moved).create(CONFIG_MAP, {"metadata": {"name": "a", "namespace": "default"}})
        # The stack's configuration leads there: it is not used.
        made = open_client({**target, "cluster": recorded}, overrides=self.target(tmp_path / "d", there))
        assert who(made) == "root" and made.host == plane.server
        assert open_client(self.target(tmp_path / "e", there)).get(CONFIG_MAP, "default", "a") is None

    def test_a_destroy_after_the_credentials_have_been_replaced(
        self, plane: Cluster, namespace: str, tmp_path: Path
    ) -> None:
        """The state holds a kubeconfig with a token that is accepted no more; the configuration has another one."""
        new = self.target(tmp_path / "new", document(plane, {"token": plane.token("root", ["system:masters"])}))
        recorded = open_client(new).cluster_id()
        old = document(plane, {"token": "replaced"})
        target = self.target(tmp_path / "old", old, namespace=namespace, cluster=recorded)
        with pytest.raises(TargetFault, match="Unauthorized"):
            connect(target).identity()
        configure({"kubeconfig": new["kubeconfig"]})
        made = connect(target)
        assert made.identity() == {"cluster": recorded}
        made.jobs.delete(namespace, "nothing")

    def test_neither_way_leads_there(self, plane: Cluster, tmp_path: Path) -> None:
        bad = self.target(tmp_path / "a", document(plane, {"token": "canary-77aa01"}), cluster="other-uid")
        good = self.target(tmp_path / "b", document(plane, {"token": plane.token("root", ["system:masters"])}))
        with pytest.raises(Refused) as caught:
            open_client(bad, overrides=good).get(CONFIG_MAP, "default", "a")
        assert "is another cluster" in str(caught.value) and "Unauthorized" in str(caught.value)
        assert "canary" not in str(caught.value)


def test_nothing_secret_is_logged(
    plane: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(0)
    token = plane.token("joe")
    secret = f"{{'token': {token!r}}}"
    ways: list[Callable[[], Client]] = [
        lambda: opened(tmp_path / "a", document(plane, {"token": token})),
        lambda: opened(tmp_path / "b", document(plane, plugin(tmp_path / "login", secret))),
        lambda: open_client({"content": json.dumps(document(plane, {"token": token}))}),
    ]
    told = []
    for way in ways:
        made = way()
        assert who(made) == "joe"
        with pytest.raises(ApiError) as caught:
            made.create(CONFIG_MAP, {"metadata": {"name": "a", "namespace": "kube-system"}})
        told += [str(caught.value), repr(caught.value.__dict__), repr(made), repr(made._shared)]
    out = capfd.readouterr()
    assert token not in "".join([*told, caplog.text, out.out, out.err])
