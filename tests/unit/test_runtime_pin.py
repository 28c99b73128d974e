"""`pulumi-trainer runtime pin`, against a registry of this machine that speaks the protocol of distribution."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import urllib3
import yaml
from pulumi_trainer.provider.cli import main as cli
from pulumi_trainer.provider.kubernetes.errors import Invalid, TargetFault
from pulumi_trainer.provider.trainer.catalog import registry
from pulumi_trainer.provider.trainer.catalog.image_references import Image, parse_image
from pulumi_trainer.provider.trainer.labels import RELEASE

MANIFEST = b'{"schemaVersion": 2, "manifests": []}'
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"
LOGIN = base64.b64encode(b"ann:pa55").decode()


class Registry(ThreadingHTTPServer):
    """Has `team/torch:2` for everybody and `private/torch:2` for ann. lies: Name another digest than the manifest has."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lies, self.realm, self.body = False, f"http://{self.address}/token", MANIFEST

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "")
        if self.path.startswith("/token?"):
            private = "private" in self.path
            allowed = not private or given == f"Basic {LOGIN}"
            return self.answer(200 if allowed else 401, json.dumps({"token": "t-private" if private else "t"}).encode())
        if self.path not in ("/v2/team/torch/manifests/2", "/v2/private/torch/manifests/2"):
            return self.answer(404)
        if given != ("Bearer t-private" if "private" in self.path else "Bearer t"):
            return self.answer(401, WWW_Authenticate=f'Bearer realm="{self.server.realm}",service="s"')
        digest = "sha256:" + "0" * 64 if self.server.lies else f"sha256:{hashlib.sha256(self.server.body).hexdigest()}"
        return self.answer(200, self.server.body, Docker_Content_Digest=digest)

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content_Length": str(len(body))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.chdir(tmp_path)
    made = Registry()
    Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def log_in(server: Registry, folder: Path) -> None:
    (folder / "docker").mkdir()
    (folder / "docker" / "config.json").write_text(json.dumps({"auths": {server.address: {"auth": LOGIN}}}))


def release(folder: Path, image: str) -> None:
    file = folder / "runtimes" / "ours" / "1.2.3.yaml"
    assert cli.run(["runtime", "new", "ours@1.2.3", "--from", "torch-distributed"]) == 0
    document = yaml.safe_load(file.read_text())
    (job,) = document["spec"]["template"]["spec"]["replicatedJobs"]
    job["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = image
    file.write_text(yaml.safe_dump(document, sort_keys=False))


def images(file: Path) -> list[str]:
    return [line.split("image: ")[1] for line in file.read_text().splitlines() if "image: " in line]


@pytest.mark.parametrize("repository", ["team/torch", "private/torch"])
def test_the_next_release_has_digests(
    server: Registry, tmp_path: Path, repository: str, capsys: pytest.CaptureFixture[str]
) -> None:
    image = f"{server.address}/{repository}:2"
    release(tmp_path, image)
    log_in(server, tmp_path)
    assert cli.run(["runtime", "pin", "ours"]) == 0
    assert images(tmp_path / "runtimes/ours/1.2.4.yaml") == [f"{image}@{DIGEST}"]
    assert images(tmp_path / "runtimes/ours/1.2.3.yaml") == [image], "a release never changes"
    assert cli.run(["runtime", "check", "--lock"]) == 0
    assert "ours 1.2.4: patch after 1.2.3" in capsys.readouterr().out
    assert cli.run(["runtime", "pin", "ours"]) == 0
    assert "all images have digests" in capsys.readouterr().out and not (tmp_path / "runtimes/ours/1.2.5.yaml").exists()


@pytest.mark.parametrize("body", [b"<html>Log in</html>", b"", b"[]", b'{"schemaVersion": 1}'])
def test_what_is_no_manifest_gets_no_digest(server: Registry, tmp_path: Path, body: bytes) -> None:
    """Such as the page of a proxy that wants a login."""
    server.body = body
    with pytest.raises(TargetFault, match="sent no manifest"):
        registry.find_digest(parse_image(f"{server.address}/team/torch:2"))


def test_a_realm_may_have_a_query_and_may_be_invalid(server: Registry) -> None:
    server.realm += "?account=ann"
    assert registry.find_digest(parse_image(f"{server.address}/team/torch:2")) == DIGEST
    server.realm = "http://[::1/token"
    with pytest.raises(TargetFault, match="asks for credentials"):
        registry.find_digest(parse_image(f"{server.address}/team/torch:2"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"metadata": {"name": "../../evil", "labels": {}}}, "metadata.name"),
        ({"metadata": {"labels": {}}}, "metadata.name"),
        ({"metadata": {"name": "ours", "labels": []}}, "metadata.labels"),
        ({"metadata": {"name": "ours", "labels": {RELEASE: "v1.2"}}}, "invalid release 'v1.2'"),
        ({"spec": 5}, "spec"),
    ],
)
def test_a_file_that_is_no_valid_release_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    release(tmp_path, "ours/torch:2")
    document = yaml.safe_load((tmp_path / "runtimes/ours/1.2.3.yaml").read_text())
    (tmp_path / "given.yaml").write_text(yaml.safe_dump({**document, **change}))
    before = sorted(tmp_path.rglob("*"))
    for words in (["pin", "given.yaml"], *([] if "v1.2" in why else [["new", "mine@1.0.0", "--from", "given.yaml"]])):
        with pytest.raises(Invalid) as refused:
            cli.run(["runtime", *words])
        assert why in str(refused.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_tag_that_moves_is_a_warning(server: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release(tmp_path, "ours/torch")
    assert cli.run(["runtime", "check", "--lock"]) == 0
    said = capsys.readouterr().err
    assert (
        "warning: " in said
        and "the image ours/torch has no tag: two jobs of this release may run different images" in said
    )
    assert cli.run(["runtime", "check", "-o", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["warnings"]) == 1


@pytest.mark.parametrize(
    ("text", "registry_", "repository", "tag", "moves"),
    [
        ("torch", "docker.io", "library/torch", "", True),
        ("pytorch/pytorch:2.13.0", "docker.io", "pytorch/pytorch", "2.13.0", False),
        ("ghcr.io/a/b/c:main", "ghcr.io", "a/b/c", "main", True),
        ("localhost/a:1", "localhost", "a", "1", False),
        ("host:5000/a", "host:5000", "a", "", True),
        (f"a@{DIGEST}", "docker.io", "library/a", "", False),
    ],
)
def test_references(text: str, registry_: str, repository: str, tag: str, moves: bool) -> None:
    image = parse_image(text)
    assert (image.registry, image.repository, image.tag, image.moves) == (registry_, repository, tag, moves)


@pytest.mark.parametrize(
    "text", ["", "A/b", "a:", "a b", "a@sha256:1", "../x", "host/../x:1", "a:1?x", "h.example@x/a", "a\n"]
)
def test_what_is_no_reference_is_not_asked_for(text: str) -> None:
    with pytest.raises(Invalid, match="not a valid image reference"):
        parse_image(text)


def test_what_a_registry_may_not_do(server: Registry, tmp_path: Path) -> None:
    public, private = (parse_image(f"{server.address}/{each}/torch:2") for each in ("team", "private"))
    assert registry.find_digest(public) == DIGEST
    with pytest.raises(TargetFault, match=r"issued no token .status 401.*docker login"):
        registry.find_digest(private)
    with pytest.raises(TargetFault, match="answers 404"):
        registry.find_digest(parse_image(f"{server.address}/team/other:2"))
    log_in(server, tmp_path)
    server.realm = "http://registry.example/token"
    with pytest.raises(TargetFault, match="asks for credentials"):
        registry.find_digest(private)
    server.realm = f"http://{server.address}/token"
    server.lies = True
    with pytest.raises(TargetFault, match="does not match its own digest"):
        registry.find_digest(private)
    server.lies, server.body = False, b"x" * (registry.MOST + 1)
    with pytest.raises(TargetFault, match="larger than"):
        registry.find_digest(public)
    server.shutdown()
    server.server_close()
    with pytest.raises(TargetFault, match="cannot be reached"):
        registry.find_digest(public)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "LocalHost", "127.0.0.1@evil.example", "127.evil.example"]
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_registry_elsewhere_names_no_realm_of_this_machine(
    host: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would get the token of a service that listens on this machine alone."""
    asked = []
    challenge = f'Bearer realm="{scheme}://{host}:8080/token",service="s"'

    def get(image: Image, address: str, headers: dict[str, str]) -> urllib3.HTTPResponse:
        asked.append(address)
        headers = {"WWW-Authenticate": challenge}
        return urllib3.HTTPResponse(io.BytesIO(), headers, 401, preload_content=False)

    monkeypatch.setattr(registry, "_get", get)
    first = "https://registry.example/v2/team/torch/manifests/2"
    with pytest.raises(TargetFault) as failed:
        registry.find_digest(parse_image("registry.example/team/torch:2"))
    if host.endswith(".example") and scheme == "https":
        assert "issued no token" in str(failed.value) and len(asked) == 2
    else:
        assert "registry.example asks for credentials" in str(failed.value) and asked == [first]


@pytest.mark.parametrize(
    ("host", "scheme"),
    [("127.evil.example", "https"), ("127.0.0.1", "http"), ("127.8.0.9:5000", "http"), ("localhost:5000", "http")],
)
def test_registries_of_this_machine_alone_are_asked_without_tls(host: str, scheme: str) -> None:
    assert registry._scheme(parse_image(f"{host}/team/torch:2").registry) == scheme


def test_a_proxy_is_asked(server: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_PROXY names hosts that are asked directly."""
    monkeypatch.setenv("http_proxy", "http://ann:pa55@proxy.invalid:3128")
    with pytest.raises(TargetFault, match=r"cannot be reached: .*proxy") as failed:
        registry.find_digest(parse_image(f"{server.address}/team/torch:2"))
    assert "pa55" not in str(failed.value)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert registry.find_digest(parse_image(f"{server.address}/team/torch:2")) == DIGEST
    monkeypatch.setenv("http_proxy", f"http://ann:p%4055@{server.address}")
    monkeypatch.setenv("no_proxy", "")
    seen = []
    monkeypatch.setattr(
        Handler, "do_GET", lambda self: [seen.append((self.path, dict(self.headers))), self.answer(404)]
    )
    with pytest.raises(TargetFault, match="answers 404"):
        registry.find_digest(parse_image("localhost:1/team/torch:2"))
    ((path, headers),) = seen
    assert path == "http://localhost:1/v2/team/torch/manifests/2"
    assert headers["proxy-authorization"] == "Basic " + base64.b64encode(b"ann:p@55").decode()


def test_a_new_release_is_a_copy_of_the_newest_one_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, image in (("1.0.0", "one"), ("1.1.0", "two"), ("2.0.0", "three")):
        assert cli.run(["runtime", "new", f"ours@{number}", "--from", "torch-distributed"]) == 0
        file = tmp_path / "runtimes" / "ours" / f"{number}.yaml"
        document = yaml.safe_load(file.read_text())
        (job,) = document["spec"]["template"]["spec"]["replicatedJobs"]
        job["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = image
        file.write_text(yaml.safe_dump(document, sort_keys=False))
    capsys.readouterr()
    assert cli.run(["runtime", "new", "ours@1.1.1"]) == 0
    assert "1.1.1.yaml: a copy of ours@1.1.0;" in capsys.readouterr().out
    assert images(tmp_path / "runtimes" / "ours" / "1.1.1.yaml") == ["two"]
    assert cli.run(["runtime", "new", "ours@0.9.0"]) == 0
    assert "0.9.0.yaml: a copy of ours@1.0.0;" in capsys.readouterr().out, "no release is below it"
