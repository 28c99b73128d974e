"""From the `target` input of a resource to a client of the recorded cluster.

`kubeconfig` reads kubeconfig files and `exec_credential` runs credential plugins; the official client does the rest of a user
(tokens, OIDC and the like) and the proxies of the environment. A cluster's identity is the UID of its namespace kube-system.
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
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import urllib3
from pulumi_trainer.provider.kubernetes.client import exec_credential
from pulumi_trainer.provider.kubernetes.client.client import RETRY_SECONDS, Access, Client, Unreachable
from pulumi_trainer.provider.kubernetes.client.kubeconfig import Chosen, choose_context
from pulumi_trainer.provider.kubernetes.client.masking import is_loopback
from pulumi_trainer.provider.kubernetes.client.transport import Header
from pulumi_trainer.provider.kubernetes.errors import Problem, Refused, TargetFault, TrainerError
from urllib3.util import parse_url

Connection = tuple[str, str, str]
"""kubeconfig, content, context; each may be empty."""
_LOADING = threading.Lock()
"""Modules of the official client import each other in a cycle: two threads could import half-initialized modules."""
_ALTERNATIVE_SECONDS = 10.0
"""Seconds for a server if there is another one to try."""


def open_client(
    target: Mapping[str, Any],
    *,
    overrides: Mapping[str, Any] | None = None,
    warn: Callable[[Problem], None] | None = None,
) -> Client:
    """Return a client of the target's cluster. Nothing is requested and no file is read before its first request.

    Requests raise TargetFault if the server is out of reach, Refused if no connection leads to the recorded cluster.

    Args:
        target: kubeconfig (a path), content (of a kubeconfig) and context, all optional; cluster: the recorded UID, absent
            before the first contact; unknown: a name of these that has no value yet.
        overrides: kubeconfig and context of the stack's configuration; they win if they lead to the recorded cluster.
        warn: Called with each risk of the access, once it is opened.
    """
    if target.get("unknown"):
        return Client(_not_yet)
    recorded = _connection(target)
    wanted = str(target.get("cluster") or "")
    connections = [recorded]
    if wanted:
        connections = [_with_overrides(recorded, overrides or {}), recorded]
    return _client(tuple(dict.fromkeys(connections)), wanted, _environment(), warn)


def _not_yet(_patience: float) -> Access:
    raise TargetFault(Problem("kubeconfig", "is not known yet: another resource of the program makes it"))


def _connection(target: Mapping[str, Any]) -> Connection:
    return str(target.get("kubeconfig") or ""), str(target.get("content") or ""), str(target.get("context") or "")


def _with_overrides(recorded: Connection, overrides: Mapping[str, Any]) -> Connection:
    kubeconfig, _, context = _connection(overrides)
    if kubeconfig:
        return kubeconfig, "", context
    return (*recorded[:2], context or recorded[2])


def _environment() -> str:
    """Return what else decides where a connection leads."""
    return "\n".join(os.environ.get(k, "") for k in ("KUBECONFIG", "HOME", "KUBERNETES_SERVICE_HOST"))


@lru_cache(maxsize=32)
def _client(
    connections: tuple[Connection, ...], wanted: str, _environment: str, warn: Callable[[Problem], None] | None
) -> Client:
    return Client(_Opener(connections, wanted), patience=RETRY_SECONDS, warn=warn)


class _Opener:
    """Opens the first of several connections that leads to the wanted cluster, at each call from the start.

    wanted: UID of the cluster; empty before the first contact: then every call must find the server of the first.
    """

    def __init__(self, connections: tuple[Connection, ...], wanted: str) -> None:
        self._connections, self._wanted = connections, wanted
        self._server: tuple[Any, ...] = ()

    def __call__(self, patience: float) -> Access:
        if not self._wanted:
            return access(self._unchanged(choose_context(*self._connections[0])))
        if len(self._connections) == 1:
            return self._checked(access(choose_context(*self._connections[0])), patience)
        deadline, each = time.monotonic() + patience, min(patience / 2, _ALTERNATIVE_SECONDS)
        while True:
            faults: list[TrainerError] = []
            for connection in self._connections:
                try:
                    return self._checked(access(choose_context(*connection)), each)
                except TrainerError as fault:
                    faults.append(fault)
            away = [fault for fault in faults if isinstance(fault, Unreachable) and fault.passing]
            if not away or time.monotonic() + each >= deadline:
                problems = list(chain.from_iterable(fault.problems for fault in faults))
                if len(away) == len(faults):
                    raise Unreachable("", "; ".join(map(str, problems)), "")
                raise Refused(*problems)

    def _checked(self, opened: Access, patience: float) -> Access:
        found = Client(lambda _: opened, patience=patience).cluster_id()
        if found == self._wanted:
            return replace(opened, cluster=found)
        why = f"{opened.host} is another cluster (kube-system has UID {found}) than the recorded one ({self._wanted})"
        hint = (
            "set trainer:kubeconfig and trainer:context of the stack to the recorded cluster; if that cluster no"
            " longer exists, remove its resources from the state: pulumi state delete --target-dependents URN"
            " (pulumi stack --show-urns)"
        )
        raise Refused(Problem(opened.where, why, hint))

    def _unchanged(self, choice: Chosen) -> Chosen:
        server = (choice.cluster["server"], choice.cluster.get("tls-server-name"), _authority(choice))
        if self._server and server != self._server:
            why = (
                f"pointed to {self._server[0]} when this command began, but now points to another server or another CA"
            )
            raise Refused(Problem(choice.where, why, "run the command again"))
        self._server = server
        return choice


def access(choice: Chosen) -> Access:
    """Return the access to a server as a user. Runs the user's credential plugin."""
    with _LOADING:
        from kubernetes.client import Configuration
        from kubernetes.client.rest import RESTClientObject

    cluster, user = choice.cluster, dict(choice.user)
    host = str(cluster["server"]).rstrip("/")
    expires = None
    cautions = []
    if user and host.lower().startswith("http://"):
        caution = _IN_CLEAR
        if not is_loopback(host):
            caution, user = _NOT_SENT, {}
        cautions.append(replace(caution, where=choice.where))
    if isinstance(user.get("exec"), dict) and not any(map(user.get, _STATIC_CREDENTIALS)):
        given, expires = exec_credential.credentials(user["exec"], cluster, choice.where)
        user.update(given)
    authorization, impersonation = _authorization(user, choice.where), _impersonation(user)
    configuration = Configuration()
    configuration.host = host
    configuration.retries = False
    configuration.connection_pool_maxsize = 32
    configuration.tls_server_name = cluster.get("tls-server-name")
    configuration.verify_ssl = cluster.get("insecure-skip-tls-verify") is not True
    if cluster.get("proxy-url"):
        configuration.proxy, configuration.no_proxy = str(cluster["proxy-url"]), None
    if configuration.proxy:
        configuration.proxy_headers = _proxy_login(configuration.proxy, choice.where)
    with _plain_errors(choice.where):
        pool = RESTClientObject(configuration).pool_manager
    pool.connection_pool_kw["socket_options"] = _keepalive()
    if host.startswith("https"):
        pool.connection_pool_kw["ssl_context"] = _tls(choice, user, insecure=not configuration.verify_ssl)
    if not configuration.verify_ssl:
        # one own warning instead of one for each request
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        cautions.append(replace(_INSECURE, where=choice.where))

    def headers() -> list[Header]:
        return authorization() + impersonation

    return Access(host, pool, headers, choice.where, expires=expires, cautions=tuple(cautions))


_STATIC_CREDENTIALS = ("token", "tokenFile", "username", "client-certificate", "client-certificate-data")


def _keepalive() -> list[tuple[int, int, int]]:
    """Return socket options with TCP keepalive: a stream may be silent for hours."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


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


def _authorization(user: Mapping[str, Any], where: str) -> Callable[[], list[Header]]:
    """Return a function for the header of each request: it reads a token file again, and renews an OIDC token."""
    if user.get("tokenFile"):
        return _token_file(Path(str(user["tokenFile"])), where)
    login = {name: user[name] for name in ("token", "username", "password", "auth-provider") if user.get(name)}
    if not login:
        return list
    with _LOADING:
        from kubernetes.client import Configuration
        from kubernetes.config import ConfigException, load_kube_config_from_dict

    configuration: Any = Configuration()
    load: Any = load_kube_config_from_dict
    document = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {}}],
        "users": [{"name": "it", "user": login}],
    }
    try:
        load(document, client_configuration=configuration)
    except (ConfigException, ValueError, TypeError, KeyError, AttributeError) as error:
        why = f"the official client cannot use its user ({type(error).__name__})"
        raise TargetFault(Problem(where, why, "log in again")) from None

    def headers() -> list[Header]:
        settings = configuration.auth_settings().values()
        return [("Authorization", _header(str(s["value"]), where)) for s in settings if s.get("value")]

    return headers


def _token_file(path: Path, where: str) -> Callable[[], list[Header]]:
    """Return a function for the header with the token of a file that may be replaced; during a rotation the old one is valid."""
    token = ""

    def headers() -> list[Header]:
        nonlocal token
        try:
            token = path.read_text("utf-8").strip() or token
        except (OSError, UnicodeDecodeError) as error:
            if not token:
                why = f"token file {path} cannot be read: {getattr(error, 'strerror', '') or 'not text'}"
                raise TargetFault(Problem(where, why)) from None
        if not token:
            raise TargetFault(Problem(where, f"token file {path} is empty"))
        return [("Authorization", _header(f"Bearer {token}", where))]

    return headers


def _header(value: str, where: str) -> str:
    """Return a valid header value; the error of the HTTP library would quote an invalid one."""
    value = value.strip()
    if not value.isascii() or not value.isprintable():
        raise TargetFault(Problem(where, "its token contains characters that are not valid in a token", "log in again"))
    return value


def _impersonation(user: Mapping[str, Any]) -> list[Header]:
    """Return the headers of a user's impersonation, which the official client does not know.

    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
    """
    given = {"User": user.get("as"), "Uid": user.get("as-uid"), "Group": user.get("as-groups")}
    for key, values in (user.get("as-user-extra") or {}).items():
        given[f"Extra-{quote(str(key), safe=_IN_NAMES)}"] = values
    found = []
    for name, values in given.items():
        listed = values if isinstance(values, list) else [values]
        found += [(f"Impersonate-{name}", str(value)) for value in listed if value]
    return found


_IN_NAMES = "!#$&'*+-.^_`|~"
"""What the name of a header may have beside letters and digits."""


def _proxy_login(proxy: str, where: str) -> dict[str, str] | None:
    """Return the header with the user of a proxy's URL, which urllib3 ignores; None for no user."""
    try:
        parts = parse_url(proxy)
        if parts.scheme not in ("http", "https", "socks5", "socks5h") or not parts.host:
            raise ValueError
    except ValueError:
        raise TargetFault(Problem(where, "its proxy is not an http://, https:// or socks5:// address")) from None
    if not parts.auth:
        return None
    return urllib3.make_headers(proxy_basic_auth=unquote(parts.auth))


def _tls(choice: Chosen, user: Mapping[str, Any], *, insecure: bool) -> ssl.SSLContext:
    """Return the settings. A certificate's key is on disk only while OpenSSL reads it: the official client leaves it there."""
    context = ssl.create_default_context()
    if insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif authority := _authority(choice):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with _plain_errors(f"{choice.where}: certificate-authority"):
            context.load_verify_locations(cadata=authority)
    certificate = _data(user, "client-certificate", choice.where)
    key = _data(user, "client-key", choice.where)
    if certificate and key:
        with _plain_errors(f"{choice.where}: client-certificate"), tempfile.NamedTemporaryFile() as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name, password=lambda: "")  # an encrypted key would ask on the terminal
    elif certificate or key:
        raise TargetFault(Problem(choice.where, "has only one of client-certificate and client-key"))
    return context


def _authority(choice: Chosen) -> str:
    return _data(choice.cluster, "certificate-authority", choice.where).decode("ascii", "replace")


def _data(entry: Mapping[str, Any], name: str, where: str) -> bytes:
    """Return NAME-data, which is base64, or else the file NAME; empty for neither."""
    try:
        data = entry.get(f"{name}-data")
        if data:
            return base64.b64decode(str(data), validate=True)
        if entry.get(name):
            return Path(str(entry[name])).read_bytes()
    except binascii.Error:
        raise TargetFault(Problem(where, f"its {name}-data is not base64")) from None
    except OSError as error:
        raise TargetFault(Problem(where, f"its {name} {entry[name]} cannot be read: {error.strerror}")) from None
    return b""


@contextmanager
def _plain_errors(where: str) -> Iterator[None]:
    """Turn errors of OpenSSL and urllib3 into errors for the user."""
    try:
        yield
    except ssl.SSLError as error:
        raise TargetFault(Problem(where, f"cannot be used: {error.reason or 'not valid PEM'}")) from None
    except (OSError, ValueError, ImportError, urllib3.exceptions.HTTPError) as error:
        raise TargetFault(Problem(where, f"cannot be used ({type(error).__name__})")) from None
