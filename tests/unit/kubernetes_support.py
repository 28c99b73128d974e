"""A small HTTP server that answers as a script says: what networks, proxies and overloaded servers do to a client."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import urllib3
from pulumi_trainer.provider.kubernetes.client.client import Access, Client

TOKEN = "canary-token-5f1c9b"

Handler = BaseHTTPRequestHandler
Step = Callable[[Handler], None]


def answer(status: int = 200, body: Any = None, **headers: str) -> Step:
    """JSON; headers with _ for -."""

    def act(handler: Handler) -> None:
        text = body if isinstance(body, bytes) else json.dumps(body if body is not None else {}).encode()
        handler.send_response(status)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {"Content-Type": "application/json", **given}.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)

    return act


def refusal(code: int, reason: str, message: str = "", **headers: str) -> Step:
    """The server's Status object."""
    return answer(code, {"kind": "Status", "code": code, "reason": reason, "message": message or reason}, **headers)


def named(name: str = "a", **more: Any) -> dict[str, Any]:
    """An object."""
    return {"kind": "ConfigMap", "metadata": {"name": name, "uid": f"uid-{name}"}, **more}


def reset(handler: Handler) -> None:
    """Resets the connection without an answer."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


def cut(body: bytes = b'{"kind": "ConfigMap"') -> Step:
    """Promises more than it sends."""

    def act(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body) + 1000))
        handler.end_headers()
        handler.wfile.write(body)
        handler.close_connection = True

    return act


def stream(*pieces: bytes, broken: bool = False) -> Step:
    """Chunks; broken: without the last one."""

    def act(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for piece in pieces:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            handler.wfile.flush()
        if not broken:
            handler.wfile.write(b"0\r\n\r\n")
        handler.close_connection = True

    return act


@dataclass
class Server:
    """url: where it listens. steps: what it does with the requests to come, the last one for ever. seen: requests."""

    url: str = ""
    steps: list[Step] = field(default_factory=list)
    seen: list[tuple[str, str]] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def does(self, *steps: Step) -> None:
        self.steps[:] = steps

    def next(self) -> Step:
        with self.lock:
            return self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]

    def client(self, token: str = TOKEN, patience: float = 10.0) -> Client:
        """Of this server, with a token."""
        pool = urllib3.PoolManager(maxsize=32)
        headers = [("Authorization", f"Bearer {token}")]
        return Client(lambda _: Access(self.url, pool, lambda: headers), patience=patience)


@contextmanager
def server() -> Iterator[Server]:
    made = Server()

    class Scripted(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def act(self) -> None:
            vars(self)["body"] = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            made.seen.append((self.command, self.path))
            made.headers.append(self.headers)
            try:
                made.next()(self)
            except OSError:
                self.close_connection = True

        do_GET = do_POST = do_PATCH = do_DELETE = act  # noqa: N815

        def log_message(self, *_: Any) -> None: ...

        def finish(self) -> None:
            try:
                super().finish()
            except (OSError, ValueError):
                pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, *_: Any) -> None: ...

    listening = Quiet(("127.0.0.1", 0), Scripted)
    made.url = f"http://127.0.0.1:{listening.server_address[1]}"
    thread = threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        listening.shutdown()
        listening.server_close()
