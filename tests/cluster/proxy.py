"""A proxy in front of an API server that counts what passes and does what tests tell it: refuse, reset, hang, lose answers.

It ends TLS with a certificate of its own and speaks HTTP/1.1; credentials in headers pass through. Tests give it a `rule`, and
programs a kubeconfig of `kubeconfig()`:

    with Proxy(cluster.kubeconfig) as proxy:
        proxy.rule = nth(3, Lose())                                     # the third request from now on
        proxy.rule = lambda request: Answer(503) if request.method == "PATCH" else None
        client = open_client({"kubeconfig": str(proxy.kubeconfig(tmp_path / "kubeconfig"))})
        assert proxy.count(method="POST") == 1
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import json
import os
import socket
import ssl
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Request:
    """number: counts from 1, since the last `reset`."""

    number: int
    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    agent: str = ""
    at: float = 0.0

    @property
    def watch(self) -> bool:
        return self.query.get("watch") in ("1", "true")

    @property
    def dry(self) -> bool:
        return "dryRun" in self.query

    @property
    def writes(self) -> bool:
        return self.method != "GET" and not self.dry and "selfsubject" not in self.path

    def __str__(self) -> str:
        return f"{self.number} {self.method} {self.path}" + (" (watch)" if self.watch else "")


@dataclass(frozen=True)
class Answer:
    """The server is not asked; this is the answer. after: Retry-After in seconds."""

    code: int
    after: int | None = None
    reason: str = ""
    message: str = "the proxy says no"


@dataclass(frozen=True)
class Reset:
    """The connection breaks before the server sees the request."""


@dataclass(frozen=True)
class Hang:
    """No answer, and the server does not see the request; the connection breaks after `seconds`."""

    seconds: float = 3600


@dataclass(frozen=True)
class Delay:
    """The server sees the request after `seconds`."""

    seconds: float


@dataclass(frozen=True)
class Lose:
    """The server acts, and the connection breaks before the answer comes."""


@dataclass(frozen=True)
class Cut:
    """The answer is a stream that breaks after so many lines (events of a watch); quietly: ended as the server does."""

    lines: int
    quietly: bool = False


@dataclass(frozen=True)
class Before:
    """Something happens before the server sees the request: a process is killed, a token revoked."""

    action: Callable[[], None]


@dataclass(frozen=True)
class After:
    """Something happens when the server has acted, before the answer comes."""

    action: Callable[[], None]


Fault = Answer | Reset | Hang | Delay | Lose | Cut | Before | After
Rule = Callable[[Request], Fault | None]


def nth(number: int, fault: Fault, only: Callable[[Request], bool] = lambda _: True) -> Rule:
    """The fault for the `number`th (from 1) request of those that are meant, and for no other."""
    seen = 0
    lock = threading.Lock()

    def rule(request: Request) -> Fault | None:
        nonlocal seen
        if not only(request):
            return None
        with lock:
            seen += 1
            return fault if seen == number else None

    return rule


def every(number: int, fault: Fault, only: Callable[[Request], bool] = lambda _: True) -> Rule:
    """The fault for the first of those that are meant, and then for every `number`th after it."""
    seen = 0
    lock = threading.Lock()

    def rule(request: Request) -> Fault | None:
        nonlocal seen
        if not only(request):
            return None
        with lock:
            seen += 1
            return fault if seen % number == 1 % number else None

    return rule


def kill_tree(pid: int) -> None:
    """SIGKILL for a process and all below it, from the top."""
    try:
        top = psutil.Process(pid)
        found = [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.kill()


class Proxy:
    """upstream: kubeconfig (its current context) of the server behind it; read again by `retarget`.

    rule: what to do with a request; asked once for each, from several threads. requests: what has come since the last `reset`.
    """

    def __init__(self, upstream: Path) -> None:
        self.rule: Rule = lambda _: None
        self.requests: list[Request] = []
        self.streams: set[socket.socket] = set()
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self.retarget(upstream)
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def retarget(self, upstream: Path) -> None:
        """Another server behind it."""
        config = yaml.safe_load(upstream.read_text())
        cluster = _current(config, "cluster")
        self._config = config
        address = urlsplit(cluster["server"])
        assert address.hostname
        self.address = address.hostname, address.port or 443
        if data := cluster.get("certificate-authority-data"):
            self.upstream_tls = ssl.create_default_context(cadata=base64.b64decode(data).decode())
        else:
            path = Path(upstream.parent, cluster["certificate-authority"])
            self.upstream_tls = ssl.create_default_context(cafile=str(path))

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def kubeconfig(self, file: Path, *, like: Path | None = None, token: str = "") -> Path:
        """Writes a kubeconfig whose server is the proxy. like: takes user and context from this one, else from the upstream's.
        token: instead of the user's credentials."""
        config = yaml.safe_load(like.read_text()) if like else json.loads(json.dumps(self._config))
        cluster, user = _current(config, "cluster"), _current(config, "user")
        cluster.pop("certificate-authority", None)
        cluster["server"] = self.url
        cluster["certificate-authority-data"] = base64.b64encode(_certificate()[0]).decode()
        if token:
            user.clear()
            user["token"] = token
        file.write_text(yaml.safe_dump(config))
        file.chmod(0o600)
        return file

    def break_streams(self) -> None:
        """Ends all watches and logs that are being followed, as a server that dies does."""
        for stream in list(self.streams):
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """No rule, and counting from 1 again."""
        with self._lock:
            self.rule = lambda _: None
            self.requests = []

    def count(self, only: Callable[[Request], bool] = lambda _: True, *, method: str = "", path: str = "") -> int:
        """Requests since the last `reset`; path: a part of it."""
        return sum(method in ("", r.method) and path in r.path and only(r) for r in list(self.requests))

    def arrived(self, method: str, target: str, body: bytes, agent: str) -> tuple[Request, Fault | None]:
        url = urlsplit(target)
        query = {k: v[0] for k, v in parse_qs(url.query, keep_blank_values=True).items()}
        with self._lock:
            number = len(self.requests) + 1
            request = Request(number, method, url.path, query, body, agent, time.monotonic())
            self.requests.append(request)
            rule = self.rule
        return request, rule(request)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    proxy: Proxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that break are what this is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server
    connection: ssl.SSLSocket
    _upstream: http.client.HTTPSConnection | None = None

    def setup(self) -> None:
        self.request.settimeout(30)
        self.request = _server_tls().wrap_socket(self.request, server_side=True)
        self.request.settimeout(None)
        super().setup()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def finish(self) -> None:
        if self._upstream:
            self._upstream.close()
        with suppress(OSError, ValueError):
            super().finish()

    def do(self) -> None:
        proxy = self.server.proxy
        body = self._body()
        request, fault = proxy.arrived(self.command, self.path, body, self.headers.get("User-Agent", ""))
        lines: Cut | None = None
        match fault:
            case Answer():
                return self._answer(fault)
            case Reset():
                return self._break()
            case Hang(seconds):
                proxy.closing.wait(seconds)
                return self._break()
            case Delay(seconds):
                proxy.closing.wait(seconds)
            case Before(action):
                action()
            case Cut():
                lines = fault
        try:
            answer = self._forward(body)
        except (OSError, http.client.HTTPException):  # the server is away
            return self._break()
        try:
            if "Content-Length" in answer.headers or answer.status in (204, 304):
                content = answer.read()
                if isinstance(fault, After):
                    fault.action()
                if isinstance(fault, Lose):
                    return self._break()
                return self._whole(answer, content)
            if isinstance(fault, Lose | After) and not request.watch:
                answer.read()  # so that the server has done all of it
            if isinstance(fault, After):
                fault.action()
            if isinstance(fault, Lose):
                return self._break()
            return self._stream(answer, lines, request)
        except (OSError, http.client.HTTPException):
            return self._break()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_HEAD = do  # noqa: N815

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            found = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                found += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return found
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _forward(self, body: bytes) -> http.client.HTTPResponse:
        own = ("host", "connection", "transfer-encoding", "content-length")
        headers = {k: v for k, v in self.headers.items() if k.lower() not in own}
        fresh = self._upstream is None
        if self._upstream is None:
            host, port = self.server.proxy.address
            self._upstream = http.client.HTTPSConnection(host, port, context=self.server.proxy.upstream_tls)
        try:
            self._upstream.request(self.command, self.path, body or None, headers)
            return self._upstream.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self._upstream.close()
            self._upstream = None
            if fresh or self.command != "GET":
                raise
            return self._forward(body)

    def _whole(self, answer: http.client.HTTPResponse, content: bytes) -> None:
        self.send_response_only(answer.status, answer.reason)
        for key, value in answer.headers.items():
            if key.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(key, value)
        if answer.status not in (204, 304):
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, answer: http.client.HTTPResponse, cut: Cut | None, request: Request) -> None:
        self.send_response_only(answer.status, answer.reason)
        for key, value in answer.headers.items():
            if key.lower() not in ("connection", "transfer-encoding"):
                self.send_header(key, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        left = cut.lines if cut else -1
        proxy = self.server.proxy
        gone = threading.Thread(target=self._until_gone, daemon=True)
        if request.watch:
            gone.start()
        behind = self._upstream.sock if self._upstream else None
        if behind is not None:
            proxy.streams.add(behind)
        try:
            while left and (data := answer.read1(65536)):
                if cut:
                    lines = data.splitlines(keepends=True)
                    data = b"".join(lines[:left])
                    left = max(0, left - sum(line.endswith(b"\n") for line in lines))
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            if cut and not left and not cut.quietly:
                return self._break()
            self.wfile.write(b"0\r\n\r\n")
            if left == 0:
                self.close_connection = True
                with suppress(OSError):
                    socket.socket.shutdown(self.connection, socket.SHUT_RDWR)  # `_until_gone` holds it open as well
        finally:
            if behind is not None:
                proxy.streams.discard(behind)

    def _until_gone(self) -> None:
        """Ends the watch behind it when the client has gone; nobody would see it while nothing happens."""
        with (
            suppress(OSError, ValueError),
            socket.socket(fileno=os.dup(self.connection.fileno())) as below,
        ):  # below TLS
            while not self.server.proxy.closing.is_set() and below.recv(1, socket.MSG_PEEK):
                time.sleep(0.05)
        upstream = self._upstream
        if upstream is not None and upstream.sock is not None:
            with suppress(OSError):
                upstream.sock.shutdown(socket.SHUT_RDWR)

    def _answer(self, fault: Answer) -> None:
        reason = fault.reason or {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}.get(
            fault.code, ""
        )
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": fault.message,
                  "reason": reason, "code": fault.code}  # fmt: skip
        content = json.dumps(status).encode()
        self.send_response_only(fault.code)
        self.send_header("Content-Type", "application/json")
        if fault.after is not None:
            self.send_header("Retry-After", str(fault.after))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _break(self) -> None:
        """A reset, not a polite end."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            socket.socket.shutdown(self.connection, socket.SHUT_RD)  # `_until_gone` holds it open as well
            os.close(self.connection.detach())


def _current(config: dict[str, Any], what: str) -> dict[str, Any]:
    """cluster or user of the current context."""
    context = next(c["context"] for c in config["contexts"] if c["name"] == config["current-context"])
    return next(e[what] for e in config[f"{what}s"] if e["name"] == context[what])


@lru_cache(maxsize=1)
def _certificate() -> tuple[bytes, bytes]:
    """Certificate of 127.0.0.1, signed by itself, and its key; PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "proxy")])
    now = datetime.now(timezone.utc)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(pem), secret


@lru_cache(maxsize=1)
def _server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"".join(_certificate()))
        file.flush()
        context.load_cert_chain(file.name)
    return context
