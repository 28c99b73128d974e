"""Asks the registry of an image which digest its tag has now.

Protocol: https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md (pulling manifests); tokens:
https://distribution.github.io/distribution/spec/auth/token/. Credentials are those of `docker login` in `~/.docker/config.json`
(`auths`); helpers of credentials are not started.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from pulumi_trainer.provider.kubernetes.client.masking import hide_credentials, is_loopback
from pulumi_trainer.provider.kubernetes.errors import Problem, TargetFault
from pulumi_trainer.provider.kubernetes.values.accessors import section
from pulumi_trainer.provider.trainer.catalog.image_references import Image

SECONDS = 20.0
MOST = 1 << 22
"""Bytes of a manifest or a token; registries refuse larger manifests."""
_MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


def find_digest(image: Image) -> str:
    """Return the digest of the manifest, or of the index of manifests, that a tag has now."""
    host = image.registry
    if host == "docker.io":
        host = "registry-1.docker.io"
    address = f"{_scheme(host)}://{host}/v2/{image.repository}/manifests/{image.tag or 'latest'}"
    headers = {"Accept": _MANIFESTS}
    answer = _get(image, address, headers)
    if answer.status == 401:
        headers["Authorization"] = _authorization(image, answer.headers.get("WWW-Authenticate", ""))
        answer = _get(image, address, headers)
    if answer.status != 200:
        hint = ""
        if answer.status in (401, 403, 404):
            hint = f"`docker login {image.registry}` if it is private"
        raise TargetFault(Problem(image.text, f"{image.registry} answers {answer.status} for its manifest", hint))
    manifest = _body(image, answer)
    if not _is_manifest(manifest):
        why = f"{image.registry} sent no manifest (Content-Type {answer.headers.get('Content-Type')})"
        raise TargetFault(Problem(image.text, why, "is a proxy in between that wants a login?"))
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    named = answer.headers.get("Docker-Content-Digest", digest)
    if named != digest:
        raise TargetFault(Problem(image.text, f"{image.registry} sent a manifest that does not match its own digest"))
    return digest


def _is_manifest(body: bytes) -> bool:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("schemaVersion") == 2


def _scheme(host: str) -> str:
    """Return http for this machine, where Docker also asks without TLS."""
    if is_loopback(f"//{host}"):
        return "http"
    return "https"


def _get(image: Image, address: str, headers: dict[str, str]) -> urllib3.BaseHTTPResponse:
    try:
        return _connections(address).request(
            "GET", address, headers=headers, preload_content=False, timeout=SECONDS, redirect=False,
            retries=urllib3.Retry(2, redirect=False, raise_on_status=False),
        )  # fmt: skip
    except (urllib3.exceptions.HTTPError, ValueError) as error:  # ValueError: a token that is not valid in a header
        reason = getattr(error, "reason", None) or type(error).__name__
        why = f"{urlsplit(address).netloc} cannot be reached: {hide_credentials(str(reason))}"
        raise TargetFault(Problem(image.text, why)) from None


def _connections(address: str) -> urllib3.PoolManager:
    """Return connections to the host of an address, through the proxy that HTTPS_PROXY and NO_PROXY name for it."""
    target = urlsplit(address)
    proxy = getproxies().get(target.scheme)
    if not proxy or proxy_bypass(target.hostname or ""):
        return urllib3.PoolManager()
    user, _, _ = urlsplit(proxy).netloc.rpartition("@")
    headers = None
    if user:
        headers = urllib3.make_headers(proxy_basic_auth=unquote(user))
    return urllib3.ProxyManager(proxy, proxy_headers=headers)


def _body(image: Image, answer: urllib3.BaseHTTPResponse) -> bytes:
    try:
        found = answer.read(MOST + 1, decode_content=False)
    except urllib3.exceptions.HTTPError:
        raise TargetFault(Problem(image.text, "the response of its registry ended early")) from None
    finally:
        answer.close()
    if len(found) > MOST:
        raise TargetFault(Problem(image.text, f"the response of its registry is larger than {MOST} bytes"))
    return found


def _authorization(image: Image, challenge: str) -> str:
    """Return the value of the Authorization header that a registry asks for: the user's credentials, or a token for reading."""
    login = _login(image.registry)
    kind, _, rest = challenge.partition(" ")
    if kind.lower() == "basic" and login:
        return f"Basic {login}"
    asked = dict(_CHALLENGE.findall(rest))
    try:
        realm = urlsplit(asked.get("realm", ""))
    except ValueError:
        realm = urlsplit("")
    # Else a registry could have a service of this machine asked, and would get the answer.
    is_elsewhere = is_loopback(realm.geturl()) and not is_loopback(f"//{image.registry}")
    if kind.lower() != "bearer" or realm.scheme != _scheme(realm.netloc) or is_elsewhere:
        hint = f"`docker login {image.registry}`"
        raise TargetFault(Problem(image.text, f"{image.registry} asks for credentials", hint))
    query = urlencode({"service": asked.get("service", ""), "scope": f"repository:{image.repository}:pull"})
    headers = {}
    if login:
        headers["Authorization"] = f"Basic {login}"
    separator = "?"
    if realm.query:
        separator = "&"
    answer = _get(image, f"{realm.geturl()}{separator}{query}", headers)
    try:
        found: Any = json.loads(_body(image, answer))
        token = found.get("token") or found.get("access_token")
    except (ValueError, AttributeError):
        token = None
    if answer.status != 200 or not isinstance(token, str):
        hint = f"`docker login {image.registry}` if it is private"
        raise TargetFault(Problem(image.text, f"{realm.netloc} issued no token (status {answer.status})", hint))
    return f"Bearer {token}"


def _login(registry: str) -> str:
    """Return user and password of `docker login`, as base64; empty without any."""
    folder = os.environ.get("DOCKER_CONFIG") or "~/.docker"
    try:
        config = json.loads(Path(folder, "config.json").expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    names = (registry, f"https://{registry}")
    if registry == "docker.io":
        names = ("https://index.docker.io/v1/", "docker.io")
    for name in names:
        auth = section(config, "auths", name).get("auth")
        if isinstance(auth, str) and re.fullmatch(r"[A-Za-z0-9+/=]+", auth):
            return auth
    return ""
