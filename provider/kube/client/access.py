"""From the `target` input of a resource to a client of that very cluster.

kubeconfig is read by `kubeconfig`, credential plugins are run by `plugin`; the official client takes from there what is left
of a user (tokens, OIDC and the like) and the proxies of the environment. A cluster's identity is the UID of its namespace
kube-system.
"""

from __future__ import annotations

import base64
import binascii
import os
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import urllib3
from pulumi_trainer.provider.kube.client import exec_credential
from pulumi_trainer.provider.kube.client.client import (
    PATIENCE,
    Access,
    Client,
    Unreachable,
)
from pulumi_trainer.provider.kube.client.kubeconfig import Chosen, chosen
from pulumi_trainer.provider.kube.client.masking import is_loopback
from pulumi_trainer.provider.kube.errors import (
    Problem,
    Refused,
    TargetFault,
    TrainerError,
)

Header = tuple[str, str]
Way = tuple[str, str, str]
"""kubeconfig, content, context; each may be empty."""
_LOADING = threading.Lock()
"""Modules of the client import each other in a circle: two threads that begin at different ends would find one half made."""
_ELSEWHERE = 10.0
"""Seconds for a server of which there is another one to try."""


def open_client(
    target: Mapping[str, Any],
    *,
    overrides: Mapping[str, Any] | None = None,
    warn: Callable[[Problem], None] | None = None,
) -> Client:
    """A client of the target's cluster. Nothing is asked and no file is read before its first request.

    target: kubeconfig (a path), content (of a kubeconfig) and context, all optional; cluster: the UID that was recorded,
    absent before the first contact; unknown: a name of these that has no value yet. overrides: kubeconfig and context of the
    stack's configuration; they win, provided that they lead to the recorded cluster. warn: is called with what is unwise
    about the access, once it is opened.

    Requests raise TargetFault where there is no way to the server, Refused where none leads to the recorded cluster.
    """
    if target.get("unknown"):
        return Client(_not_yet)
    recorded = _way(target)
    wanted = str(target.get("cluster") or "")
    ways = dict.fromkeys([_overridden(recorded, overrides or {}), recorded] if wanted else [recorded])
    return _client(tuple(ways), wanted, _environment(), warn)


def cluster_id(client: Client) -> str:
    """UID of the namespace kube-system; asked once a client."""
    return client.cluster_id()


def _not_yet(_patience: float) -> Access:
    raise TargetFault(Problem("kubeconfig", "is not known yet: another resource of the program makes it"))


def _way(target: Mapping[str, Any]) -> Way:
    return tuple(str(target.get(k) or "") for k in ("kubeconfig", "content", "context"))  # type: ignore[return-value]


def _overridden(recorded: Way, overrides: Mapping[str, Any]) -> Way:
    kubeconfig, _, context = _way(overrides)
    if kubeconfig:
        return kubeconfig, "", context
    return (*recorded[:2], context or recorded[2])


def _environment() -> str:
    """What else decides where a way leads."""
    return "\n".join(os.environ.get(k, "") for k in ("KUBECONFIG", "HOME", "KUBERNETES_SERVICE_HOST"))


@lru_cache(maxsize=32)
def _client(ways: tuple[Way, ...], wanted: str, _environment: str, warn: Callable[[Problem], None] | None) -> Client:
    return Client(_Opening(ways, wanted), patience=PATIENCE, warn=warn)


class _Opening:
    """Opens the first of the ways that leads to the wanted cluster; again, from the start, whenever it is called.

    wanted: its UID; empty before the first contact: then the server that was found first stays the one."""

    def __init__(self, ways: tuple[Way, ...], wanted: str) -> None:
        self._ways, self._wanted = ways, wanted
        self._server: tuple[Any, ...] = ()

    def __call__(self, patience: float) -> Access:
        if not self._wanted:
            return access(self._same(chosen(*self._ways[0])))
        deadline = time.monotonic() + patience
        each = patience if len(self._ways) == 1 else min(patience / 2, _ELSEWHERE)
        while True:
            faults: list[TrainerError] = []
            for way in self._ways:
                try:
                    return self._checked(access(chosen(*way)), each)
                except TrainerError as fault:
                    faults.append(fault)
            away = [fault for fault in faults if isinstance(fault, Unreachable) and fault.passing]
            if len(faults) > 1 and away and time.monotonic() + each < deadline:
                continue
            if len(faults) == 1:
                raise faults[0]
            problems = [problem for fault in faults for problem in fault.problems]
            raise Unreachable("", "; ".join(map(str, problems)), "") if len(away) == len(faults) else Refused(*problems)

    def _checked(self, opened: Access, patience: float) -> Access:
        found = Client(lambda _: opened, patience=patience).cluster_id()
        if found == self._wanted:
            return replace(opened, cluster=found)
        why = f"{opened.host} is another cluster (kube-system has UID {found}) than the recorded one ({self._wanted})"
        mend = (
            "set trainer:kubeconfig and trainer:context of the stack to the cluster where this is; if that one is gone for good,"
            " make the stack forget what was in it: pulumi state delete --target-dependents URN (pulumi stack --show-urns)"
        )
        raise Refused(Problem(opened.where, why, mend))

    def _same(self, way: Chosen) -> Chosen:
        server = (way.cluster["server"], way.cluster.get("tls-server-name"), _authority(way))
        if self._server and server != self._server:
            why = f"pointed to {self._server[0]} when this began, and now points to another server or another CA"
            raise Refused(Problem(way.where, why, "start again"))
        self._server = server
        return way


def access(way: Chosen) -> Access:
    """The connection to a server as a user. Runs the user's credential plugin. Raises TargetFault."""
    with _LOADING:
        from kubernetes.client import Configuration
        from kubernetes.client.rest import RESTClientObject

    cluster, user = way.cluster, dict(way.user)
    expires = None
    cautions = []
    if user and str(cluster["server"]).lower().startswith("http://"):
        local = is_loopback(str(cluster["server"]))
        cautions.append(replace(_IN_CLEAR if local else _NOT_SENT, where=way.where))
        user = user if local else {}
    static = any(
        user.get(k) for k in ("token", "tokenFile", "username", "client-certificate", "client-certificate-data")
    )
    if isinstance(user.get("exec"), dict) and not static:
        given, expires = exec_credential.credentials(user["exec"], cluster, way.where)
        user.update(given)
    configuration = Configuration()
    configuration.host = str(cluster["server"]).rstrip("/")
    configuration.retries = False
    configuration.connection_pool_maxsize = 32
    if proxy := str(cluster.get("proxy-url") or ""):
        configuration.proxy, configuration.no_proxy = proxy, None
    if configuration.proxy:
        configuration.proxy_headers = _proxy_login(configuration.proxy, way.where)
    authorization = _authorization(configuration, cluster, user, way.where)
    insecure = cluster.get("insecure-skip-tls-verify") is True
    configuration.verify_ssl = not insecure
    with _told(way.where):
        pool = RESTClientObject(configuration).pool_manager
    pool.connection_pool_kw["socket_options"] = _alive()
    if configuration.host.startswith("https"):
        pool.connection_pool_kw["ssl_context"] = _tls(way, user, insecure=insecure)
        if name := cluster.get("tls-server-name"):
            pool.connection_pool_kw["server_hostname"] = str(name)
    if insecure:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # one of ours instead of one a request
        cautions.append(replace(_INSECURE, where=way.where))
    acting = _acting_as(user)
    return Access(
        configuration.host, pool, lambda: authorization() + acting, way.where, expires=expires, cautions=tuple(cautions)
    )


def _alive() -> list[tuple[int, int, int]]:
    """A stream may be silent for hours: the system asks whether the other end is still there."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), *options]


_INSECURE = Problem(
    "",
    "insecure-skip-tls-verify: the server's certificate is not verified, and whoever is in between reads the credentials",
    "give the cluster's certificate-authority-data instead",
)


_IN_CLEAR = Problem(
    "",
    "http://: credentials are sent unencrypted, though not beyond this machine",
    "give the cluster an https:// server",
)
_NOT_SENT = Problem(
    "",
    "http://: anybody on the network could read the credentials, so none are sent",
    "give the cluster an https:// server, or reach it through kubectl proxy on this machine",
)


def _authorization(
    configuration: Any, cluster: Mapping[str, Any], user: Mapping[str, Any], where: str
) -> Callable[[], list[Header]]:
    """Makes the header of a request: a token file is read again when it has changed, an OIDC token renewed."""
    if path := user.get("tokenFile"):
        file = _TokenFile(Path(str(path)), where)
        return lambda: [("Authorization", _header(f"Bearer {file.read()}", where))]
    names = ("token", "username", "password", "auth-provider")
    rest = {k: user[k] for k in names if user.get(k)}
    if not rest:
        return list
    with _LOADING:
        from kubernetes.config.config_exception import ConfigException
        from kubernetes.config.kube_config import KubeConfigLoader

    context = {"name": "it", "context": {"cluster": "it", "user": "it"}}
    document = {
        "current-context": "it",
        "contexts": [context],
        "clusters": [{"name": "it", "cluster": {"server": cluster["server"]}}],
        "users": [{"name": "it", "user": rest}],
    }
    host, proxy, verify = configuration.host, configuration.proxy, configuration.verify_ssl
    try:
        loader: Any = KubeConfigLoader
        loader(document, config_base_path="").load_and_set(configuration)
    except (ConfigException, ValueError, TypeError, KeyError, AttributeError) as error:
        why = f"the official client cannot use its user ({type(error).__name__})"
        raise TargetFault(Problem(where, why, "log in again")) from None
    configuration.host, configuration.proxy, configuration.verify_ssl = host, proxy, verify

    def headers() -> list[Header]:
        settings = configuration.auth_settings().values()
        return [("Authorization", _header(str(s["value"]), where)) for s in settings if s.get("value")]

    return headers


class _TokenFile:
    """A token that others replace while we run."""

    def __init__(self, path: Path, where: str) -> None:
        self._path, self._where = path, where
        self._lock = threading.Lock()
        self._seen: tuple[int, int] = (0, 0)
        self._token = ""

    def read(self) -> str:
        with self._lock:
            try:
                status = self._path.stat()
                if (status.st_ino, status.st_mtime_ns) != self._seen:
                    self._token = self._path.read_text("utf-8").strip() or self._token
                    self._seen = (status.st_ino, status.st_mtime_ns)
            except (OSError, UnicodeDecodeError) as error:
                if not self._token:  # in the middle of a rotation the old one still holds
                    why = f"token file {self._path} cannot be read: {getattr(error, 'strerror', '') or 'no text'}"
                    raise TargetFault(Problem(self._where, why)) from None
            if not self._token:
                raise TargetFault(Problem(self._where, f"token file {self._path} is empty"))
            return self._token


def _header(value: str, where: str) -> str:
    """A value that a header can hold; the error of the HTTP library would quote it."""
    value = value.strip()
    if not value.isascii() or not value.isprintable():
        raise TargetFault(Problem(where, "its token holds characters that no token has", "log in again"))
    return value


def _acting_as(user: Mapping[str, Any]) -> list[Header]:
    """https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation"""
    names = (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid"))
    found = [(name, str(user[key])) for key, name in names if user.get(key)]
    found += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or []]
    for key, values in (user.get("as-user-extra") or {}).items():
        found += [(f"Impersonate-Extra-{key}", str(v)) for v in (values if isinstance(values, list) else [values])]
    return found


def _proxy_login(proxy: str, where: str) -> dict[str, str] | None:
    """urllib3 leaves the user of a proxy's URL out."""
    try:
        parts = urlsplit(proxy)
        if parts.scheme not in ("http", "https", "socks5", "socks5h") or not parts.hostname:
            raise ValueError
    except ValueError:
        raise TargetFault(Problem(where, "its proxy is no http://, https:// or socks5:// address")) from None
    if not parts.username:
        return None
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(login.encode()).decode()}


def _tls(way: Chosen, user: Mapping[str, Any], *, insecure: bool) -> ssl.SSLContext:
    """A certificate's key is on no disk of ours for longer than OpenSSL takes to read it."""
    context = ssl.create_default_context()
    if insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif authority := _authority(way):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with _told(f"{way.where}: certificate-authority"):
            context.load_verify_locations(cadata=authority)
    certificate, key = (_data(user, f"client-{k}", way.where) for k in ("certificate", "key"))
    if certificate and key:
        with _told(f"{way.where}: client-certificate"), tempfile.NamedTemporaryFile() as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name, password=lambda: "")  # an encrypted key would ask on the terminal
    elif certificate or key:
        raise TargetFault(Problem(way.where, "has only one of client-certificate and client-key"))
    return context


def _authority(way: Chosen) -> str:
    return _data(way.cluster, "certificate-authority", way.where).decode("ascii", "replace")


def _data(entry: Mapping[str, Any], name: str, where: str) -> bytes:
    """NAME-data, which is base64, else the file NAME; empty if there is neither."""
    try:
        if data := entry.get(f"{name}-data"):
            return base64.b64decode(str(data), validate=True)
        return Path(str(entry[name])).read_bytes() if entry.get(name) else b""
    except binascii.Error:
        raise TargetFault(Problem(where, f"its {name}-data is not base64")) from None
    except OSError as error:
        raise TargetFault(Problem(where, f"its {name} {entry[name]} cannot be read: {error.strerror}")) from None


@contextmanager
def _told(where: str) -> Iterator[None]:
    """What OpenSSL and urllib3 refuse, as an error for the user."""
    try:
        yield
    except ssl.SSLError as error:
        raise TargetFault(Problem(where, f"cannot be used: {error.reason or 'no PEM'}")) from None
    except (OSError, ValueError, ImportError, urllib3.exceptions.HTTPError) as error:
        raise TargetFault(Problem(where, f"cannot be used ({type(error).__name__})")) from None
