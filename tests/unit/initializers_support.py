"""Servers on loopback for the tests of the initializers: one that misbehaves on demand, in front of moto, and a stand-in
for the Hugging Face hub.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from pulumi_trainer.provider.pod.initializers.source import Tuning

QUICK = Tuning(threads=4, part=64 * 1024, attempts=4, backoff=0.01, timeout=5.0)


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes

    @property
    def content(self) -> bool:
        """It asks for bytes of a file."""
        return self.method == "GET" and not self.path.startswith("/api/") and "list-type" not in self.query


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Fault:
    """What happens to the next `times` requests that match. answer: instead of the right one; cut: the connection ends after
    so many bytes of the body; stall: nothing more comes after so many bytes until `gate` is set; change: of the body."""

    matches: Callable[[Request], bool]
    times: int = 1
    answer: Answer | None = None
    cut: int | None = None
    stall: int | None = None
    change: Callable[[bytes], bytes] | None = None
    gate: threading.Event = field(default_factory=threading.Event)


class Loopback:
    """An HTTP server on a free port. requests: all that it was asked."""

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self._answer = answer
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self._lock = threading.Lock()
        ours = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def _any(self) -> None:
                ours._handle(self)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _any  # noqa: N815

            def log_message(self, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: object) -> None:
                """A client that went away."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        for fault in self.faults:
            fault.gate.set()
        self._server.shutdown()
        self._server.server_close()

    def fault(self, matches: Callable[[Request], bool] | str, **what: Any) -> Fault:
        """matches: a predicate, or a part of the path."""
        text = matches
        found = Fault(matches if callable(matches) else lambda r: str(text) in r.path, **what)
        self.faults.append(found)
        return found

    @property
    def contents(self) -> list[str]:
        """Paths of the requests for bytes of files."""
        return [r.path for r in self.requests if r.content]

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        body = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        headers = {k.lower(): v for k, v in handler.headers.items()}
        request = Request(handler.command, unquote(parts.path), parse_qs(parts.query), headers, body)
        with self._lock:
            self.requests.append(request)
            fault = next((f for f in self.faults if f.times and f.matches(request)), None)
            if fault:
                fault.times -= 1
        answer = fault.answer if fault and fault.answer else self._forward(request, handler.path)
        _send(handler, answer, fault)

    def _forward(self, request: Request, raw: str) -> Answer:
        return self._answer(Request(request.method, raw, request.query, request.headers, request.body))


def _send(handler: BaseHTTPRequestHandler, answer: Answer, fault: Fault | None) -> None:
    body = answer.body
    if fault and fault.change:
        body = fault.change(body)
    handler.send_response(answer.status)
    given = {k.lower() for k in answer.headers}
    for name, value in answer.headers.items():
        handler.send_header(name, value)
    if "content-length" not in given:
        handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command == "HEAD":
        return
    if fault and fault.cut is not None:
        handler.wfile.write(body[: fault.cut])
        handler.close_connection = True
        return
    if fault and fault.stall is not None:
        handler.wfile.write(body[: fault.stall])
        handler.wfile.flush()
        fault.gate.wait(60)
        body = body[fault.stall :]
    handler.wfile.write(body)


def forward(backend: str) -> Callable[[Request], Answer]:
    """Answers with what the server at `backend` (host:port) says."""

    def answer(request: Request) -> Answer:
        connection = http.client.HTTPConnection(backend, timeout=30)
        try:
            headers = {k: v for k, v in request.headers.items() if k != "connection"}
            connection.request(request.method, request.path, request.body or None, headers)
            response = connection.getresponse()
            kept = {k: v for k, v in response.getheaders() if k.lower() not in ("transfer-encoding", "connection")}
            return Answer(response.status, response.read(), kept)
        finally:
            connection.close()

    return answer


@dataclass
class Repository:
    """commits: id -> path -> content. lfs: paths whose content lies on the other server."""

    commits: dict[str, dict[str, bytes]]
    refs: dict[str, str]
    lfs: set[str] = field(default_factory=set)
    token: str = ""


class Hub:
    """The parts of the hub's HTTP interface that a fetch uses; LFS files are redirected to a server of another origin.
    next_page: the server that a listing names for its further pages, if it is another one."""

    PAGE = 3

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.next_page = ""
        self.server = Loopback(self._answer)
        self.storage = Loopback(self._stored)

    def close(self) -> None:
        self.server.close()
        self.storage.close()

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def contents(self) -> list[str]:
        return [p for p in self.server.contents if "/resolve/" in p]

    def add(self, name: str, files: Mapping[str, bytes], lfs: set[str] | None = None, token: str = "") -> str:
        """A commit on main of `datasets/OWNER/NAME` or `models/OWNER/NAME`; returns its id."""
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        repository = self.repositories.setdefault(name, Repository({}, {}, lfs or set(), token))
        repository.commits[commit] = dict(files)
        repository.refs["main"] = commit
        return commit

    def _answer(self, request: Request) -> Answer:
        parts = unquote(urlsplit(request.path).path).strip("/").split("/")
        kind = "models"
        if parts[0] == "api":
            kind, parts = parts[1], parts[2:]
        elif parts[0] == "datasets":
            kind, parts = "datasets", parts[1:]
        repository = self.repositories.get(f"{kind}/{'/'.join(parts[:2])}")
        if repository is None:
            return _error(
                401 if "authorization" not in request.headers else 404, "RepoNotFound", "Repository not found"
            )
        if repository.token and request.headers.get("authorization") != f"Bearer {repository.token}":
            return _error(403, "GatedRepo", f"Access is restricted; you sent {request.headers.get('authorization')}")
        verb, rest = parts[2], parts[3:]
        if verb == "revision":
            revision = "/".join(rest)
        else:
            revision = rest[0]
        commit = repository.refs.get(revision, revision)
        if commit not in repository.commits:
            return _error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        files = repository.commits[commit]
        if verb == "revision":
            return _json({"id": "/".join(parts[:2]), "sha": commit})
        if verb == "paths-info":
            wanted = parse_qs(request.body.decode())["paths"]
            return _json([self._item(repository, files, p) for p in wanted if p in files])
        if verb == "tree":
            return self._tree(request, repository, files, "/".join(rest[1:]))
        return self._content(request, repository, commit, files, "/".join(rest[1:]))

    def _tree(self, request: Request, repository: Repository, files: Mapping[str, bytes], below: str) -> Answer:
        found = sorted(p for p in files if not below or p.startswith(f"{below}/"))
        if not found:
            return _error(404, "EntryNotFound", f"{below} does not exist")
        begin = int(request.query.get("cursor", ["0"])[0])
        items: list[dict[str, Any]] = [self._item(repository, files, p) for p in found[begin : begin + self.PAGE]]
        folders = [
            {"type": "directory", "oid": "0" * 40, "size": 0, "path": p.rpartition("/")[0]} for p in found if "/" in p
        ]
        headers = {}
        if begin + self.PAGE < len(found):
            page = (
                f"{self.next_page or self.url}{urlsplit(request.path).path}?recursive=true&cursor={begin + self.PAGE}"
            )
            headers["Link"] = f'<{page}>; rel="next"'
        return _json([*items, *folders[:1]], headers)

    def _item(self, repository: Repository, files: Mapping[str, bytes], path: str) -> dict[str, Any]:
        content = files[path]
        item: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": git_blob(content)}
        if path in repository.lfs:
            item["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
            item["oid"] = git_blob(b"a pointer")
        return item

    def _content(
        self, request: Request, repository: Repository, commit: str, files: Mapping[str, bytes], path: str
    ) -> Answer:
        if path not in files:
            return _error(404, "EntryNotFound", f"{path} does not exist")
        headers = {"X-Repo-Commit": commit, "ETag": f'"{git_blob(files[path])}"'}
        if path in repository.lfs:
            linked = {
                "X-Linked-ETag": f'"{hashlib.sha256(files[path]).hexdigest()}"',
                "X-Linked-Size": str(len(files[path])),
            }
            location = f"{self.storage.url}/{commit}/{path}?Signature=signed"
            return Answer(302, b"", {**headers, **linked, "Location": location})
        return Answer(200, files[path], headers)  # the hub itself answers a range with everything

    def _stored(self, request: Request) -> Answer:
        commit, _, path = urlsplit(request.path).path.strip("/").partition("/")
        content = next(r.commits[commit][unquote(path)] for r in self.repositories.values() if commit in r.commits)
        wanted = request.headers.get("range", "")
        if not wanted.startswith("bytes="):
            return Answer(200, content)
        start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        return Answer(206, content[start:], {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"})


def git_blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _json(data: Any, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(200, json.dumps(data).encode(), {"Content-Type": "application/json", **(headers or {})})


def _error(status: int, code: str, message: str) -> Answer:
    headers = {"X-Error-Code": code, "X-Error-Message": message, "Content-Type": "application/json"}
    return Answer(status, json.dumps({"error": message}).encode(), headers)


def tree(folder: Path) -> dict[str, bytes]:
    """Path -> content of every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def command(kind: str = "dataset", before: str = "") -> list[str]:
    """argv of the program; before: a few lines of Python that run first, in the same process."""
    if not before:
        return [sys.executable, "-m", "pulumi_trainer.provider.pod.initializers", kind]
    run = "import sys, os\nfrom pulumi_trainer.provider.pod.initializers import __main__ as program\n"
    return [sys.executable, "-c", f"{run}{before}\nsys.exit(program.main([{kind!r}], os.environ))"]


def environment(uri: str, output: Path, **variables: str) -> dict[str, str]:
    """Of a process: little of ours, nothing of AWS."""
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")}
    home = {"HOME": str(output.parent), "AWS_EC2_METADATA_DISABLED": "true"}
    return {**kept, **home, "STORAGE_URI": uri, "OUTPUT_DIR": str(output), **variables}


@contextmanager
def running(argv: list[str], env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process that does not outlive the test."""
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
