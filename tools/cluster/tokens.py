"""Whom a token stands for: the API server asks here about tokens that it does not know, so that tests can issue and revoke them
while it runs (a restart of the API server is what its own list of tokens would take). Standard library only.

`python tokens.py PORT FOLDER`, started by cluster.py; `tokens` in the folder holds a file a token, named by its SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import ssl
import sys
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def add(folder: Path, user: str, groups: Sequence[str]) -> str:
    """A token that stands for this user from now on."""
    token = secrets.token_hex(16)
    file = _file(folder, token)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    file.write_text(json.dumps({"username": user, "uid": user, "groups": list(groups)}))
    return token


def remove(folder: Path, token: str) -> None:
    """From now on it stands for nobody; the API server may remember it for ten seconds."""
    _file(folder, token).unlink(missing_ok=True)


def _file(folder: Path, token: str) -> Path:
    return folder / "tokens" / hashlib.sha256(token.encode()).hexdigest()


def review(folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """The answer to a TokenReview."""
    file = _file(folder, str(asked.get("spec", {}).get("token", "")))
    status: dict[str, Any] = {"authenticated": False}
    if file.exists():
        status = {"authenticated": True, "user": json.loads(file.read_text())}
    return {"apiVersion": asked.get("apiVersion"), "kind": asked.get("kind"), "status": status}


class Handler(BaseHTTPRequestHandler):
    """One request of the API server."""

    protocol_version = "HTTP/1.1"
    folder: Path

    def do_GET(self) -> None:
        """Whether we are ready."""
        self._answer({})

    def do_POST(self) -> None:
        """A TokenReview."""
        self._answer(review(self.folder, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

    def _answer(self, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: there is a request a second."""


def main(port: int, folder: Path) -> None:
    """Serves until it is ended."""
    Handler.folder = folder
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
